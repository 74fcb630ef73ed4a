// Convolutions of any window as products of pairs of bf16 with weights in panels: of each row of the window, the pixels
// beside one another are a row of the matrix. Images have channels innermost. Defined in windows.cpp, which is compiled once
// for a machine.
#pragma once
#include "product.h"

namespace fg {

struct Windows {
  const bf16* x;       // [images][height][width][channels]
  const bf16_pair* w;  // [columns / PANEL][pairs of elements of a window, then zeros][PANEL columns]
  float* out;          // [images][rows][across][columns]
  int64_t images, height, width, channels, columns, rows, across;
  int64_t window_rows, window_across, step_down, step_across, above, beside, apart;  // apart: rows of a window
  int64_t unit_rows, unit_columns;  // of a unit of work: rows of images, columns of the result
};

// Units [begin, end): rows of all images, of each block of columns.
INTERNAL void convolve(const Windows& a, const Reader& reader, int64_t begin, int64_t end);

}  // namespace fg
