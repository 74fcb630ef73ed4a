// The steps of a recurrent layer over time, as kernels over pointers: one table of functions per instruction set.
#pragma once
#include <stdint.h>

namespace framegraph::recurrent {

enum Kind : int64_t { TANH = 0, RELU = 1, LSTM = 2, GRU = 3 };

// Gates of a kind, as rows of its weights: RNN h; LSTM i, f, g, o; GRU r, z, n.
constexpr int64_t gate_count(Kind kind) { return kind == LSTM ? 4 : kind == GRU ? 3 : 1; }

// A matrix packed for products with rows: blocks of `width` columns, each block's rows one after another.
// Element (k, column j of gate g) is source[k * row + j * column + g * gate]. Source: T, or uint16_t of bfloat16.
template <class T, class Source = T>
struct Packing {
  const Source* source;
  T* packed;
  int64_t rows, columns, row, column, gate;
};

// One direction of a layer, contiguous [time, batch, ...]. Steps without a predecessor start from h0 and c0.
template <class T>
struct Forward {
  Kind kind;
  bool save;  // keep activated gates (GRU: also the hidden part of n, before r scales it) and cells
  int64_t batch, hidden, state;  // state: the size of h, less than `hidden` in a projected layer
  int64_t input_time, input_row;  // distances: between the inputs of two steps, and of two rows
  int64_t input_begin;            // the step whose inputs are the first
  int64_t gate_row, gate_time, cell_time;  // between the gates of two rows, and the gates and cells of two steps
  const T *inputs, *h0, *c0, *bias;  // inputs: their part of the gates, with its bias; bias: the hidden part's
  const T *weights, *packed;         // packed: null if not worth while
  T *gates, *cells, *y, *full;       // full: h before projection
};

// The inputs of several steps, of rows x: out[step][row] = x[step][row] @ packed + bias, in the order of the gates.
template <class T>
struct Inputs {
  const T *x, *packed, *bias;
  T* out;
  int64_t k, hidden, steps;
  int64_t x_time, x_row, out_time, out_row;  // distances between two steps, and two rows
};

template <class T>
struct Backward {
  Kind kind;
  int64_t batch, hidden, state, given, given_row;  // given: columns of the product's left side, given_row apart
  int64_t gate_time, dgate_row;  // between the gates of two steps, and the gradients of two rows' gates
  const T *h0, *c0, *gates, *cells, *y, *packed;
  const T *dy, *dh;  // null if absent
  T *dgates, *carry;  // dgates: of this step; carry: the gradient of the step before besides the product (LSTM: of its cell)
};

// out[row] = a[row] @ packed (+ one[row] + two[row])
template <class T>
struct Product {
  const T *a, *packed, *one, *two;
  T* out;
  int64_t k, a_row, columns;
};

// Rows and blocks of columns: the part of a step that one thread does.
struct Part {
  int64_t row, row_end, block, block_end;
};

template <class T>
struct Kernels {
  int64_t (*width)(Kind kind);  // columns of a block of the forward; those of `plain` products: width(TANH)
  void (*pack)(const Packing<T>&, Kind kind, int64_t block, int64_t block_end);
  void (*pack_narrow)(const Packing<T, uint16_t>&, Kind kind, int64_t block, int64_t block_end);
  void (*inputs)(const Inputs<T>&, Kind kind, Part);  // rows: of a step
  void (*forward)(const Forward<T>&, int64_t t, int64_t before, Part);  // before: the step before t, or -1
  // after: the step after t in the layer's order, or -1; a: its gates' gradients, or null
  void (*backward)(const Backward<T>&, int64_t t, int64_t before, const T* a, bool last, Part);
  void (*product)(const Product<T>&, Part);
};

#define FRAMEGRAPH_DECLARE(ISA)                \
  namespace ISA {                              \
  extern const Kernels<float> float_kernels;   \
  extern const Kernels<double> double_kernels; \
  }
FRAMEGRAPH_DECLARE(plain)
FRAMEGRAPH_DECLARE(avx2)
FRAMEGRAPH_DECLARE(avx512)

}  // namespace framegraph::recurrent
