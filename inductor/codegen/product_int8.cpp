#include "product_tiles.h"

namespace fg {

template void product<int8_t>(const Product<int8_t>&, const Reader&, int64_t, int64_t);

}  // namespace fg
