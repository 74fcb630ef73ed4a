#include "product_tiles.h"

namespace fg {

template void product<bf16>(const Product<bf16>&, const Reader&, int64_t, int64_t);
template void product<f16>(const Product<f16>&, const Reader&, int64_t, int64_t);

}  // namespace fg
