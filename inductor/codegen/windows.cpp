// Rows of an image are copied to where zeros surround them. There each pixel of the result has its part of a row of the
// window in one stretch, `step_across` pixels after that of the pixel before, and the next row of pixels follows after a few
// stretches that nobody reads: a matrix whose rows overlap, for each row of the window. Where these few are many for the
// columns that they cost, or rows are too long, stretches are copied one by one instead.
#include "windows.h"

#include "product_amx.h"
#include "product_tiles.h"

namespace fg {

constexpr int64_t WINDOW_ROOM = 128 << 10;  // elements of copied rows, or stretches
constexpr int64_t PANEL_ROWS = 32;          // a multiple of which panels have, zeros at their ends
constexpr int64_t STRETCH_COLUMNS = 64;     // whose products take the time of copying a stretch
constexpr int64_t SHORT = 4 * FG_WIDE;      // elements of a stretch that is copied without a call, at most
constexpr int64_t STRETCH_PIXELS = 128;     // whose stretches are copied at a time, at most
constexpr int64_t LEAST_PIXELS = 32;        // of an image, for which a matrix of its own is worth while
constexpr int64_t MOST_TERMS = 16;          // rows of a window that are summed at once
constexpr int64_t MOST_DEPTH = DEPTH<bf16_pair>;

// Elements [start, start + count) of a row of an image, zeros outside of the row.
static void copy_stretch(bf16* to, int64_t count, const bf16* row, int64_t start, int64_t limit) {
  const int64_t before = row == nullptr ? 0 : min(max(-start, (int64_t)0), count);
  const int64_t behind = row == nullptr ? 0 : max(min(limit - start, count), before);
  if (before > 0) __builtin_memset(to, 0, before * sizeof(bf16));
  if (behind > before) __builtin_memcpy(to + before, row + start + before, (behind - before) * sizeof(bf16));
  if (count > behind) __builtin_memset(to + behind, 0, (count - behind) * sizeof(bf16));
}

// Several stretches inside of a row, a few vectors each.
INLINE void copy_short(bf16* to, int64_t to_step, const bf16* from, int64_t from_step, int64_t count, int64_t times) {
  using namespace wide;
  const int64_t whole = count / FG_WIDE * FG_WIDE;
  const Part rest = {count - whole};
  for (int64_t t = 0; t < times; ++t, to += to_step, from += from_step) {
    uint16_t* const p = (uint16_t*)to;
    const uint16_t* const q = (const uint16_t*)from;
    for (int64_t n = 0; n < whole; n += FG_WIDE) raw_store(p + n, raw_load(q + n, Full{}), Full{});
    raw_store(p + whole, raw_load(q + whole, rest), rest);
  }
}

// multiply: as product_rows, of the sum of several terms.
template <class F> struct WindowRun {
  const Windows& a;
  const Reader& reader;
  F multiply;
  bf16* room;
  float* block;
  int64_t depth = a.window_across * a.channels, all = a.window_rows * depth;  // elements of a stretch, and of a window
  int64_t inner = (all + PANEL_ROWS - 1) / PANEL_ROWS * PANEL_ROWS, panel = inner / 2 * PANEL;
  // Stretches of a copied row.
  int64_t wide = (max((a.across - 1) * a.step_across + a.window_across, a.step_across) + a.step_across - 1) / a.step_across;
  int64_t terms = max(min(MOST_DEPTH / depth, MOST_TERMS), (int64_t)1);  // rows of a window that are multiplied at once

  INLINE const bf16* row_of(int64_t image, int64_t y) const {
    return y >= 0 && y < a.height ? a.x + (image * a.height + y) * a.width * a.channels : nullptr;
  }

  // Rows of the result of which there is room for the rows that they read.
  int64_t most_rows() const {
    const int64_t height = WINDOW_ROOM / (wide * a.step_across * a.channels) / a.step_down * a.step_down;
    const int64_t around = (a.window_rows - 1) * a.apart + 1;
    return height < around ? 0 : (height - around) / a.step_down + 1;
  }
  bool by_whole_rows(int64_t columns) const {
    return depth % PANEL_ROWS == 0 && (wide - a.across) * columns <= STRETCH_COLUMNS * a.across && most_rows() > 0 &&
           a.across * columns <= BLOCK_ELEMENTS && a.rows * wide >= LEAST_PIXELS;
  }

  // Hands on pixels [first, last), of which columns [column, last_column) are in memory from `from` on.
  void read(int64_t first, int64_t last, int64_t column, int64_t last_column, float* from) const {
    if (reader.run != nullptr && reader.result != nullptr) {
      read_block_of(from, reader, a.columns, first, last, column, last_column);
      return;
    }
    const int64_t columns = last_column - column;
    for (int64_t p = first; p < last; ++p) {
      __builtin_memcpy(a.out + p * a.columns + column, from + (p - first) * columns, columns * sizeof(float));
    }
    if (reader.run != nullptr) read_block(reader, a.columns, first, last, column, last_column);
  }

  // Elements [k, k + count) of the windows of pixels [first, last), zeros behind the window.
  void copy(int64_t first, int64_t last, int64_t k, int64_t count) const {
    bf16* to = room;
    for (int64_t next; first < last; to += (next - first) * count, first = next) {
      const int64_t row = first / a.across, image = row / a.rows, x = first - row * a.across;
      next = min(last, (row + 1) * a.across);
      const int64_t top = (row - image * a.rows) * a.step_down - a.above;
      for (int64_t at = k, here; at < min(k + count, all); at += here) {
        const int64_t i = at / depth;
        here = min(k + count, (i + 1) * depth) - at;
        copy_pixels(to + at - k, count, row_of(image, top + i * a.apart), x, next - first, at - i * depth, here);
      }
      for (int64_t n = 0; n < next - first && k + count > all; ++n) {
        __builtin_memset(to + n * count + all - k, 0, (k + count - all) * sizeof(bf16));
      }
    }
  }
  // Elements [k, k + count) of stretches in one row of an image, for `pixels` of the result from x on.
  void copy_pixels(bf16* to, int64_t step, const bf16* row, int64_t x, int64_t pixels, int64_t k, int64_t count) const {
    const int64_t limit = a.width * a.channels, move = a.step_across * a.channels;
    int64_t start = (x * a.step_across - a.beside) * a.channels + k;
    for (int64_t done = 0, some; done < pixels; done += some, to += some * step, start += some * move) {
      if (count <= SHORT && row != nullptr && start >= 0 && start + count <= limit) {
        some = min((limit - start - count) / move + 1, pixels - done);
        copy_short(to, step, row + start, move, count, some);
      } else {
        some = 1;
        copy_stretch(to, count, row, start, limit);
      }
    }
  }

  // Pixels [first, last) of the result.
  void by_stretches(int64_t first, int64_t last, int64_t column, int64_t last_column) const {
    const int64_t columns = last_column - column, each = max(min(STRETCH_PIXELS, BLOCK_ELEMENTS / columns), (int64_t)1);
    const bf16_pair* const panels = a.w + column / PANEL * panel;
    for (int64_t p = first; p < last; p += each) {
      const int64_t pixels = min(each, last - p);
      for (int64_t k = 0; k < inner; k += MOST_DEPTH) {
        const int64_t count = min(MOST_DEPTH, inner - k);
        copy(p, p + pixels, k, count);
        multiply(pixels, room, count, panels + k / 2 * PANEL, panel, block, columns, count, columns, k == 0, ONCE);
      }
      read(p, p + pixels, column, last_column, block);
    }
  }

  // `rows` rows of the result of one image, from row y on.
  void by_rows(int64_t image, int64_t y, int64_t rows, int64_t column, int64_t last_column) const {
    const int64_t columns = last_column - column, step = a.step_across * a.channels, slot = wide * step;
    const int64_t top = y * a.step_down - a.above, height = (rows - 1) * a.step_down + (a.window_rows - 1) * a.apart + 1;
    const int64_t each = (height + a.step_down - 1) / a.step_down;  // rows that are `step_down` apart follow one another
    const auto place = [&](int64_t r) { return (r % a.step_down * each + r / a.step_down) * slot; };
    for (int64_t r = 0; r < height; ++r) {
      copy_stretch(room + place(r), slot, row_of(image, top + r), -a.beside * a.channels, a.width * a.channels);
    }
    const bf16_pair* const panels = a.w + column / PANEL * panel;
    const int64_t most = (BLOCK_ELEMENTS / columns - a.across) / wide + 1, pieces = (rows + most - 1) / most;
    const int64_t at_once = (rows + pieces - 1) / pieces;
    for (int64_t r = 0; r < rows; r += at_once) {
      const int64_t here = min(at_once, rows - r), pixels = (here - 1) * wide + a.across;
      for (int64_t i = 0; i < a.window_rows; i += terms) {
        int64_t places[MOST_TERMS];
        const int64_t count = min(terms, a.window_rows - i);
        for (int64_t t = 0; t < count; ++t) places[t] = place((i + t) * a.apart) + r * slot;
        for (int64_t k = 0; k < depth; k += MOST_DEPTH) {
          const bf16_pair* const w = panels + (i * depth + k) / 2 * PANEL;
          multiply(pixels, room + k, step, w, panel, block, columns, min(MOST_DEPTH, depth - k), columns, i + k == 0,
                   Terms{count, places, depth / 2 * PANEL});
        }
      }
      for (int64_t n = 0; n < here; ++n) {
        const int64_t pixel = (image * a.rows + y + r + n) * a.across;
        read(pixel, pixel + a.across, column, last_column, block + n * wide * columns);
      }
    }
  }

  void unit(int64_t first, int64_t last, int64_t column, int64_t last_column) const {
    if (!by_whole_rows(last_column - column)) {
      by_stretches(first * a.across, last * a.across, column, last_column);
      return;
    }
    for (int64_t next; first < last; first = next) {
      const int64_t image = first / a.rows;
      next = min(min(last, (image + 1) * a.rows), first + most_rows());
      by_rows(image, first - image * a.rows, next - first, column, last_column);
    }
  }
};

template <class F>
static void convolve_by(const Windows& a, const Reader& reader, int64_t begin, int64_t end, F multiply) {
  alignas(64) bf16 room[WINDOW_ROOM];
  alignas(512) float block[BLOCK_ELEMENTS];
  const WindowRun<F> run = {a, reader, multiply, room, block};
  const int64_t all = a.images * a.rows, down = (all + a.unit_rows - 1) / a.unit_rows;
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t row = unit % down * a.unit_rows, column = unit / down * a.unit_columns;
    run.unit(row, min(row + a.unit_rows, all), column, min(column + a.unit_columns, a.columns));
  }
}

void convolve(const Windows& a, const Reader& reader, int64_t begin, int64_t end) {
#if defined(FG_AMX)
  if (has_amx()) {
    AmxState state;
    const auto multiply = [&](int64_t rows, const bf16* x, int64_t x_row, const bf16_pair* w, int64_t panel, float* out,
                              int64_t out_row, int64_t depth, int64_t columns, bool first, Terms terms) {
      amx_rows(rows, x, x_row, w, panel, out, out_row, depth, columns, first, state, terms);
    };
    convolve_by(a, reader, begin, end, multiply);
    release_tiles();
    return;
  }
#endif
  const auto multiply = [](int64_t rows, const bf16* x, int64_t x_row, const bf16_pair* w, int64_t panel, float* out,
                           int64_t out_row, int64_t depth, int64_t columns, bool first, Terms terms) {
    for (int64_t t = 0; t < terms.count; ++t) {
      rows_by_tiles(rows, x + terms.x[t], x_row, w + t * terms.w, panel, out, out_row, depth, columns, first && t == 0);
    }
  };
  convolve_by(a, reader, begin, end, multiply);
}

}  // namespace fg
