// Products of two matrices as they are, each with its rows or its columns side by side: the right one is put into panels
// block by block, in the cache. Of float, or of bf16 with sums of float. Defined in matrices.cpp and matrices_pairs.cpp, which
// are compiled once for a machine.
#pragma once
#include "product.h"

namespace fg {

template <class T> struct Matrices {
  const T* x;  // element (row, k) at x[row * x_row + k * x_step]; one of both is 1
  const T* w;  // element (k, column) at w[k * w_row + column * w_step]; one of both is 1
  float* out;
  int64_t rows, columns, depth, x_row, x_step, w_row, w_step;
  int64_t block_rows, block_columns;  // of a unit of work
};

constexpr int64_t MATRIX_COLUMNS = 128;  // of a block, at most

// Units [begin, end): blocks of rows, of each block of columns.
template <class T> INTERNAL void multiply(const Matrices<T>& a, const Reader& reader, int64_t begin, int64_t end);

}  // namespace fg
