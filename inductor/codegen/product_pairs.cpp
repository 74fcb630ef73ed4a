#include "product_amx.h"
#include "product_tiles.h"

namespace fg {

#if defined(FG_AMX)
template <> void product<bf16_pair>(const Product<bf16_pair>& p, const Reader& reader, int64_t begin, int64_t end) {
  if (p.rows < AMX_LEAST_ROWS || !has_amx()) {
    product_by(p, reader, begin, end, product_rows<bf16_pair>);
    return;
  }
  AmxRest rest;
  product_by(p, reader, begin, end, [&](auto... args) { amx_rows(args..., rest); });
  release_tiles();
}
#else
template void product<bf16_pair>(const Product<bf16_pair>&, const Reader&, int64_t, int64_t);
#endif

}  // namespace fg
