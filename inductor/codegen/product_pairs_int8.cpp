#include "product_amx.h"
#include "product_tiles.h"

namespace fg {

#if defined(FG_AMX)
constexpr int64_t FEW_ROWS = 32;      // of one pair of tiles
constexpr int64_t SHORT_DEPTH = 256;  // of pairs that stay in the first cache while these are multiplied

// As product_rows: two panels at a time become pairs of bf16 for all rows.
static void amx_rows_of_int8(int64_t rows, const bf16* x, int64_t x_row, const int8_pair* w, int64_t panel, float* out,
                             int64_t out_row, int64_t depth, int64_t columns, bool first, AmxState& state) {
  alignas(64) bf16_pair wide[2 * elements_of<int8_pair>(DEPTH<int8_pair>) * PANEL];
  const int64_t most = rows > FEW_ROWS ? DEPTH<int8_pair> : SHORT_DEPTH;
  for (int64_t c = 0; c < columns; c += 2 * PANEL) {
    const int64_t here = min((int64_t)2 * PANEL, columns - c);
    for (int64_t k = 0; k < depth; k += most) {
      const int64_t deep = min(most, depth - k);
      const int8_pair* const from = w + c / PANEL * panel + elements_of<int8_pair>(k) * PANEL;
      if (here > PANEL) widen_panels<2>(wide, from, panel, deep);
      else widen_panels<1>(wide, from, panel, deep);
      amx_rows(rows, x + k, x_row, wide, elements_of<int8_pair>(deep) * PANEL, out + c, out_row, deep, here,
               first && k == 0, state);
    }
  }
}
#endif

template <> void product<int8_pair>(const Product<int8_pair>& p, const Reader& reader, int64_t begin, int64_t end) {
#if defined(FG_AMX)
  if (p.rows >= AMX_LEAST_ROWS && has_amx()) {
    AmxState state;
    product_by(p, reader, begin, end, [&](auto... args) { amx_rows_of_int8(args..., state); });
    release_tiles();
    return;
  }
#endif
  product_by(p, reader, begin, end, rows_by_tiles<const bf16*, int8_pair>);
}

}  // namespace fg
