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
  product_by(p, reader, begin, end, rows_by_tiles<const bf16*, bf16_pair>);
}

template <>
void product_rows<bf16_pair>(int64_t rows, const bf16* x, int64_t x_row, const bf16_pair* w, int64_t panel, float* out,
                             int64_t out_row, int64_t depth, int64_t columns, bool first) {
#if defined(FG_AMX)
  if (rows >= AMX_LEAST_ROWS && has_amx()) {
    AmxState state;
    amx_rows(rows, x, x_row, w, panel, out, out_row, depth, columns, first, state);
    release_tiles();
    return;
  }
#endif
  rows_by_tiles(rows, x, x_row, w, panel, out, out_row, depth, columns, first);
}

}  // namespace fg
