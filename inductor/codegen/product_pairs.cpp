#include "product_tiles.h"

namespace fg {

template void product<bf16_pair>(const Product<bf16_pair>&, const Reader&, int64_t, int64_t);

}  // namespace fg
