#include "matrices.h"

#include "product_tiles.h"

namespace fg {

constexpr int64_t MATRIX_ROWS = 48;  // that are multiplied at a time: whole tiles of every processor

// Columns [column, column + columns) of rows [k, k + depth) of w in panels, zeros behind the last column of the last one.
static void put_panels(const Matrices<float>& a, int64_t k, int64_t depth, int64_t column, int64_t columns, float* to) {
  using namespace wide;
  const float* const from = a.w + k * a.w_row + column * a.w_step;
  const int64_t whole = a.w_step == 1 ? columns / PANEL * PANEL : 0, panel = depth * PANEL;
  for (int64_t done = 0; whole > 0 && done < depth; ++done) {  // row by row, as they lie in memory
    const float* const row = from + done * a.w_row;
    for (int64_t c = 0; c < whole; c += FG_WIDE) {
      store(to + c / PANEL * panel + done * PANEL + c % PANEL, load(row + c, Full{}), Full{});
    }
  }
  for (int64_t c = whole; c < columns; c += PANEL) {
    const int64_t here = min((int64_t)PANEL, columns - c);
    float* const to_panel = to + c * depth;
    int64_t done = 0;
    if (here == PANEL && a.w_row == 1) {
      for (; done + FG_WIDE <= depth; done += FG_WIDE) {
        for (int64_t e = 0; e < PANEL; e += FG_WIDE) {
          vec<float> square[FG_WIDE];
          load_tile(square, from + done + (c + e) * a.w_step, a.w_step, Full{}, Full{});
          for (int64_t q = 0; q < FG_WIDE; ++q) store(to_panel + (done + q) * PANEL + e, square[q], Full{});
        }
      }
    }
    for (; done < depth; ++done) {
      for (int64_t e = 0; e < PANEL; ++e) {
        to_panel[done * PANEL + e] = e < here ? from[done * a.w_row + (c + e) * a.w_step] : 0;
      }
    }
  }
}

// Rows [0, rows) of columns [0, depth) of x, whose columns are side by side, at to[k * rows + row]: one after another, since
// columns that are far apart share few sets of the cache.
static void put_rows(const float* x, int64_t x_step, int64_t rows, int64_t depth, float* to) {
  using namespace wide;
  for (int64_t k = 0; k < depth; ++k, x += x_step, to += rows) {
    int64_t r = 0;
    for (; r + FG_WIDE <= rows; r += FG_WIDE) store(to + r, load(x + r, Full{}), Full{});
    if (r < rows) store(to + r, load(x + r, Part{rows - r}), Part{rows - r});
  }
}

static void clear(float* to, int64_t n) {
  for (int64_t c = 0; c < n; ++c) to[c] = 0;
}

template <> void multiply<float>(const Matrices<float>& a, const Reader& reader, int64_t begin, int64_t end) {
  if (a.rows == 0) return;
  alignas(64) float panels[DEPTH<float> * MATRIX_COLUMNS], left[DEPTH<float> * MATRIX_ROWS];
  const int64_t down = (a.rows + a.block_rows - 1) / a.block_rows;
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t row = unit % down * a.block_rows, column = unit / down * a.block_columns;
    const int64_t rows = min(a.block_rows, a.rows - row), columns = min(a.block_columns, a.columns - column);
    float* const out = a.out + row * a.columns + column;
    for (int64_t r = 0; a.depth == 0 && r < rows; ++r) clear(out + r * a.columns, columns);  // a sum of nothing
    for (int64_t k = 0; k < a.depth; k += DEPTH<float>) {
      const int64_t depth = min(DEPTH<float>, a.depth - k), panel = depth * PANEL;
      put_panels(a, k, depth, column, columns, panels);
      for (int64_t r = 0; r < rows; r += MATRIX_ROWS) {
        const int64_t here = min(MATRIX_ROWS, rows - r);
        const float* const x = a.x + (row + r) * a.x_row + k * a.x_step;
        float* const to = out + r * a.columns;
        if (a.x_step == 1) product_rows(here, x, a.x_row, panels, panel, to, a.columns, depth, columns, k == 0);
        else {
          put_rows(x, a.x_step, here, depth, left);
          rows_by_tiles(here, Turned{left}, here, panels, panel, to, a.columns, depth, columns, k == 0);
        }
      }
    }
    if (reader.run != nullptr) read_block(reader, a.columns, row, row + rows, column, column + columns);
  }
}

}  // namespace fg
