#include "product_amx.h"
#include "product_tiles.h"

namespace fg {

template <> void product<bf16_pair>(const Product<bf16_pair>& p, const Reader& reader, int64_t begin, int64_t end) {
#if defined(FG_AMX)
  if (p.rows >= AMX_LEAST_ROWS && has_amx()) {
    amx_product(p, reader, begin, end);
    return;
  }
#endif
  product_by_vectors(p, reader, begin, end);
}

}  // namespace fg
