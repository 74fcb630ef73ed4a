#include "matrices.h"

#include "product_tiles.h"

namespace fg {

constexpr int64_t MATRIX_ROWS = 48;  // that are multiplied at a time: whole tiles of every processor

// A panel of w: columns [column, column + PANEL) of rows [k, k + depth), zeros behind the last column.
static void put_panel(const Matrices<float>& a, int64_t k, int64_t depth, int64_t column, float* to) {
  using namespace wide;
  const int64_t columns = min((int64_t)PANEL, a.columns - column);
  const float* const from = a.w + k * a.w_row + column * a.w_step;
  int64_t done = 0;
  if (columns == PANEL && a.w_step == 1) {
    for (; done < depth; ++done) {
      for (int64_t c = 0; c < PANEL; c += FG_WIDE) store(to + done * PANEL + c, load(from + done * a.w_row + c, Full{}), Full{});
    }
  } else if (columns == PANEL && a.w_row == 1) {
    for (; done + FG_WIDE <= depth; done += FG_WIDE) {
      for (int64_t c = 0; c < PANEL; c += FG_WIDE) {
        vec<float> square[FG_WIDE];
        load_tile(square, from + done + c * a.w_step, a.w_step, Full{}, Full{});
        for (int64_t q = 0; q < FG_WIDE; ++q) store(to + (done + q) * PANEL + c, square[q], Full{});
      }
    }
  }
  for (; done < depth; ++done) {
    for (int64_t c = 0; c < PANEL; ++c) to[done * PANEL + c] = c < columns ? from[done * a.w_row + c * a.w_step] : 0;
  }
}

static void clear(float* to, int64_t n) {
  for (int64_t c = 0; c < n; ++c) to[c] = 0;
}

template <> void multiply<float>(const Matrices<float>& a, const Reader& reader, int64_t begin, int64_t end) {
  if (a.rows == 0) return;
  alignas(64) float panels[DEPTH<float> * MATRIX_COLUMNS];
  const int64_t down = (a.rows + a.block_rows - 1) / a.block_rows;
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t row = unit % down * a.block_rows, column = unit / down * a.block_columns;
    const int64_t rows = min(a.block_rows, a.rows - row), columns = min(a.block_columns, a.columns - column);
    float* const out = a.out + row * a.columns + column;
    for (int64_t r = 0; a.depth == 0 && r < rows; ++r) clear(out + r * a.columns, columns);  // a sum of nothing
    for (int64_t k = 0; k < a.depth; k += DEPTH<float>) {
      const int64_t depth = min(DEPTH<float>, a.depth - k), panel = depth * PANEL;
      for (int64_t c = 0; c < columns; c += PANEL) put_panel(a, k, depth, column + c, panels + c * depth);
      for (int64_t r = 0; r < rows; r += MATRIX_ROWS) {
        const int64_t here = min(MATRIX_ROWS, rows - r);
        const float* const x = a.x + (row + r) * a.x_row + k * a.x_step;
        float* const to = out + r * a.columns;
        if (a.x_step == 1) product_rows(here, x, a.x_row, panels, panel, to, a.columns, depth, columns, k == 0);
        else rows_by_tiles(here, Turned{x}, a.x_step, panels, panel, to, a.columns, depth, columns, k == 0);
      }
    }
    if (reader.run != nullptr) read_block(reader, a.columns, row, row + rows, column, column + columns);
  }
}

}  // namespace fg
