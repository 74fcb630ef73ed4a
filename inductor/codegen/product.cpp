#include "product_tiles.h"

namespace fg {

template void product<float>(const Product<float>&, const Reader&, int64_t, int64_t);
template void product_rows<float>(int64_t, const float*, int64_t, const float*, int64_t, float*, int64_t, int64_t,
                                  int64_t, bool);

}  // namespace fg
