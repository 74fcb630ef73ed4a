#include "product_amx.h"
#include "product_tiles.h"

namespace fg {

template <> void product<bf16_pair>(const Product<bf16_pair>& p, const Reader& reader, int64_t begin, int64_t end) {
#if defined(FG_AMX)
  if (p.rows >= AMX_LEAST_ROWS && has_amx()) {
    AmxState state;
    product_by(p, reader, begin, end, [&](auto... args) { amx_rows(args..., state); });
    release_tiles();
    return;
  }
#endif
  product_by(p, reader, begin, end, product_rows<bf16_pair>);
}

}  // namespace fg
