// Convolutions of 3x3 windows, stride 1, by Winograd's F(2x2, 3x3): four results of 16 products in place of 36. Images have
// channels innermost. Defined in winograd.cpp, which is compiled once for a machine.
#pragma once
#include "product.h"

namespace fg {

constexpr int WINOGRAD_PRODUCTS = 16;  // of a tile: positions of the transformed window

struct Winograd {
  const float* x;       // [images][height][width][channels]
  const float* panels;  // the transformed weight, [position][column / PANEL][channel][PANEL columns]
  const float* weight;  // as it was, [column][channel][3][3], with its steps
  float* out;           // [images][rows][across][columns]
  int64_t images, height, width, channels, columns, rows, across, above, beside;
  int64_t weight_step[4];
  int64_t strips;  // pairs of rows of a unit of work
};

// Units [begin, end): of all pairs of rows of all images.
INTERNAL void winograd(const Winograd& a, const Reader& reader, int64_t begin, int64_t end);

}  // namespace fg
