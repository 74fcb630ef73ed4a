// Products of a matrix and weights in panels: packed[panel][k][PANEL columns]. Weights are of float, bf16, f16 or int8_t,
// or of bf16_pair or int8_pair, two rows side by side for a matrix of bf16; sums are of float. Defined in product_tiles.h, which is
// compiled once for a machine, for each type of weights.
#pragma once
#include "vec.h"

#define INTERNAL __attribute__((visibility("hidden")))

namespace fg {

constexpr int PANEL = 16;
struct bf16_pair { bf16 even, odd; };  // rows 2 * k and 2 * k + 1 of a column
struct int8_pair { int8_t even, odd; };
template <class W> struct weight_of {
  typedef float matrix;               // the type of the other factor's elements
  static constexpr int64_t ROWS = 1;  // of the weight in an element of a panel
};
template <> struct weight_of<bf16_pair> {
  typedef bf16 matrix;
  static constexpr int64_t ROWS = 2;
};
template <> struct weight_of<int8_pair> : weight_of<bf16_pair> {};
template <class W> using matrix_of = typename weight_of<W>::matrix;

// Rows of a block of a weight: a panel of these takes 32 KiB, or less.
template <class W> constexpr int64_t DEPTH = 512 * weight_of<W>::ROWS;

typedef wide::vec<float> lane_vector;
typedef float lane_vector_unaligned __attribute__((vector_size(4 * FG_WIDE), aligned(4)));

template <class W> struct Product {
  const matrix_of<W>* x;
  const W* w;
  float* out;
  int64_t rows, columns, depth, x_row;
  int64_t block_rows, block_columns;  // of a unit of work
  // Another of this shape whose result the same reader takes, from blocks alone; where among its pointers.
  const Product* beside = nullptr;
  void** result = nullptr;
};

// The kernel that reads a product's result, if any: called with its pointers and sizes for the elements that it can
// compute when a block is done.
struct Reader {
  void (*run)(void* const*, int64_t, int64_t, const int64_t*);
  void* const* pointers;
  const int64_t* sizes;
  int64_t positions;  // of its range, for each row of the result; -1 if it reads element e at position e
  void** result;      // among its pointers, if the result is in no memory but that of a block
};
constexpr int64_t BLOCK_ELEMENTS = 1 << 15;  // of such a block, at most
constexpr int64_t MOST_BESIDE = 4;           // results that one reader takes

// Runs the reader over its part of a block of a result that is `width` wide.
static inline void read_block(const Reader& reader, int64_t width, int64_t row, int64_t last_row, int64_t column,
                              int64_t last_column) {
  if (reader.positions >= 0) {
    reader.run(reader.pointers, row * reader.positions, last_row * reader.positions, reader.sizes);
  } else if (last_column - column == width) {
    reader.run(reader.pointers, row * width, last_row * width, reader.sizes);
  } else {
    for (int64_t r = row; r < last_row; ++r) {
      reader.run(reader.pointers, r * width + column, r * width + last_column, reader.sizes);
    }
  }
}

// The same for blocks that alone are in memory, BLOCK_ELEMENTS apart: of `count` results.
static inline void read_blocks_of(float* blocks, void** const* results, int64_t count, const Reader& reader,
                                  int64_t width, int64_t row, int64_t last_row, int64_t column, int64_t last_column) {
  const int64_t columns = last_column - column, step = columns == width ? last_row - row : 1;
  for (int64_t r = row; r < last_row; r += step, blocks += step * columns) {
    for (int64_t n = 0; n < count; ++n) {
      const uintptr_t start = (uintptr_t)(r * width + column) * sizeof(float);
      *results[n] = (void*)((uintptr_t)(blocks + n * BLOCK_ELEMENTS) - start);
    }
    read_block(reader, width, r, r + step, column, last_column);
  }
}

static inline void read_block_of(float* block, const Reader& reader, int64_t width, int64_t row, int64_t last_row,
                                 int64_t column, int64_t last_column) {
  read_blocks_of(block, &reader.result, 1, reader, width, row, last_row, column, last_column);
}

// Products of one depth whose sum is the result: where in x each begins, and elements of w from one to the next.
struct Terms {
  int64_t count;
  const int64_t* x;
  int64_t w;
};
static const int64_t AT_START[1] = {0};
static const Terms ONCE = {1, AT_START, 0};

// Units [begin, end) of a product, columns of blocks one after another.
template <class W> INTERNAL void product(const Product<W>& p, const Reader& reader, int64_t begin, int64_t end);

// `rows` rows of a product of depth at most DEPTH, for the columns [0, columns): added to `out` unless the
// block of k is the first. x_row, out_row: elements from one row to the next; panel: from one panel to the next.
template <class W>
INTERNAL void product_rows(int64_t rows, const matrix_of<W>* x, int64_t x_row, const W* w, int64_t panel, float* out,
                           int64_t out_row, int64_t depth, int64_t columns, bool first);

}  // namespace fg
