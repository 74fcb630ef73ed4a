// Products of matrices of bf16 as they are: a block of columns of the right one is put into panels of pairs for all of its
// rows, in the second cache; then a block of rows is multiplied at a time, first turned where its rows are not side by side.
#include "matrices.h"

#include "product_amx.h"
#include "product_tiles.h"

namespace fg {

constexpr int64_t TURNED_ROWS = 128;               // of a block that is turned
constexpr int64_t PANELS_ROOM = 256 << 10;         // elements of the panels
constexpr int64_t MATRIX_DEPTH = DEPTH<bf16_pair>;  // that is multiplied at a time
constexpr int64_t TURNED_APART = 32;                      // elements between turned rows, which else would share sets of the cache

// Rows k and k + 1 of FG_WIDE columns as pairs. `p` of the first; the second is `step` elements on, or zeros.
INLINE lane_pairs pairs_of(const bf16* p, int64_t step, bool both) {
  using namespace wide;
  const lane_pairs low = __builtin_convertvector(raw_load((const uint16_t*)p, Full{}), lane_pairs);
  if (!both) return low;
  return low | (__builtin_convertvector(raw_load((const uint16_t*)p + step, Full{}), lane_pairs) << 16);
}

// FG_WIDE rows of FG_WIDE pairs from p on, one every `step` elements, turned: pair q of row l at to[q * PANEL + l].
INLINE void turn_square(const bf16* p, int64_t step, bf16_pair* to, int64_t to_step) {
  wide::vec<float> square[FG_WIDE];
  for (int l = 0; l < FG_WIDE; ++l) __builtin_memcpy(&square[l], p + l * step, sizeof square[l]);
  wide::transpose(square);
  for (int q = 0; q < FG_WIDE; ++q) __builtin_memcpy(to + q * to_step, &square[q], sizeof square[q]);
}

// Columns [column, column + PANEL) of all rows, zeros behind the last column and row.
static void put_pairs(const Matrices<bf16>& a, int64_t k, int64_t depth, int64_t column, bf16_pair* to) {
  const int64_t columns = min((int64_t)PANEL, a.columns - column);
  const bf16* const from = a.w + k * a.w_row + column * a.w_step;
  int64_t done = 0;
  if (columns == PANEL && a.w_step == 1) {
    for (; done < depth; done += 2) {
      for (int64_t c = 0; c < PANEL; c += FG_WIDE) {
        const lane_pairs made = pairs_of(from + done * a.w_row + c, a.w_row, done + 1 < depth);
        __builtin_memcpy(to + done / 2 * PANEL + c, &made, sizeof made);
      }
    }
  } else if (columns == PANEL && a.w_row == 1) {
    for (; done + 2 * FG_WIDE <= depth; done += 2 * FG_WIDE) {
      for (int64_t c = 0; c < PANEL; c += FG_WIDE) {
        turn_square(from + done + c * a.w_step, a.w_step, to + done / 2 * PANEL + c, PANEL);
      }
    }
  }
  for (; done < depth; done += 2) {
    for (int64_t c = 0; c < PANEL; ++c) {
      const bf16* const p = from + c * a.w_step;
      const bool is_column = c < columns;
      bf16_pair& pair = to[done / 2 * PANEL + c];
      pair.even = is_column ? p[done * a.w_row] : bf16{0};
      pair.odd = is_column && done + 1 < depth ? p[(done + 1) * a.w_row] : bf16{0};
    }
  }
}

// Rows [row, row + rows) of columns [k, k + depth) of x, whose columns are side by side, row by row.
static void turn(const Matrices<bf16>& a, int64_t row, int64_t rows, int64_t k, int64_t depth, bf16* to, int64_t to_row) {
  const bf16* const from = a.x + row * a.x_row + k * a.x_step;
  int64_t r = 0;
  for (; a.x_row == 1 && r + FG_WIDE <= rows; r += FG_WIDE) {
    int64_t done = 0;
    for (; done + 2 * FG_WIDE <= depth; done += 2 * FG_WIDE) {
      wide::vec<float> square[FG_WIDE];
      for (int q = 0; q < FG_WIDE; ++q) {
        square[q] = (wide::vec<float>)pairs_of(from + r + (done + 2 * q) * a.x_step, a.x_step, true);
      }
      wide::transpose(square);
      for (int l = 0; l < FG_WIDE; ++l) __builtin_memcpy(to + (r + l) * to_row + done, &square[l], sizeof square[l]);
    }
    for (; done < depth; ++done) {
      for (int l = 0; l < FG_WIDE; ++l) to[(r + l) * to_row + done] = from[r + l + done * a.x_step];
    }
  }
  for (; r < rows; ++r) {
    for (int64_t done = 0; done < depth; ++done) to[r * to_row + done] = from[r * a.x_row + done * a.x_step];
  }
}

template <class F>
static void multiply_by(const Matrices<bf16>& a, const Reader& reader, int64_t begin, int64_t end, F product) {
  if (a.rows == 0) return;
  alignas(64) bf16_pair panels[PANELS_ROOM / 2];
  alignas(64) bf16 turned[TURNED_ROWS * (MATRIX_DEPTH + TURNED_APART)];
  alignas(512) float block[BLOCK_ELEMENTS];
  const bool alone = reader.run != nullptr && reader.result != nullptr;
  const int64_t down = (a.rows + a.block_rows - 1) / a.block_rows;
  const int64_t deep = max(min(a.depth, PANELS_ROOM / a.block_columns / 2 * 2), (int64_t)2);  // that there is room for
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t row = unit % down * a.block_rows, column = unit / down * a.block_columns;
    const int64_t rows = min(a.block_rows, a.rows - row), columns = min(a.block_columns, a.columns - column);
    const int64_t each = min(TURNED_ROWS, BLOCK_ELEMENTS / columns);
    for (int64_t start = 0; start == 0 || start < a.depth; start += deep) {
      const int64_t held = min(deep, a.depth - start), panel = (held + 1) / 2 * PANEL;
      for (int64_t c = 0; c < columns; c += PANEL) put_pairs(a, start, held, column + c, panels + c / PANEL * panel);
      for (int64_t r = row; r < row + rows; r += each) {
        const int64_t here = min(each, row + rows - r);
        float* const out = alone ? block : a.out + r * a.columns + column;
        const int64_t out_row = alone ? columns : a.columns;
        for (int64_t q = 0; a.depth == 0 && q < here; ++q) __builtin_memset(out + q * out_row, 0, columns * sizeof(float));
        for (int64_t k = 0; k < held; k += MATRIX_DEPTH) {
          const int64_t depth = min(MATRIX_DEPTH, held - k);
          const bf16* x = a.x + r * a.x_row + start + k;
          int64_t x_row = a.x_row;
          if (a.x_step != 1) {
            turn(a, r, here, start + k, depth, turned, MATRIX_DEPTH + TURNED_APART);
            x = turned, x_row = MATRIX_DEPTH + TURNED_APART;
          }
          product(here, x, x_row, panels + k / 2 * PANEL, panel, out, out_row, depth, columns, start + k == 0);
        }
        if (start + held < a.depth || reader.run == nullptr) continue;
        if (alone) read_block_of(block, reader, a.columns, r, r + here, column, column + columns);
        else read_block(reader, a.columns, r, r + here, column, column + columns);
      }
    }
  }
}

template <> void multiply<bf16>(const Matrices<bf16>& a, const Reader& reader, int64_t begin, int64_t end) {
#if defined(FG_AMX)
  if (has_amx()) {
    AmxState state;
    multiply_by(a, reader, begin, end, [&](auto... args) { amx_rows(args..., state); });
    release_tiles();
    return;
  }
#endif
  multiply_by(a, reader, begin, end, rows_by_tiles<const bf16*, bf16_pair>);
}

}  // namespace fg
