// Convolutions of each channel by a window of its own, of images with channels innermost, and their gradients. Defined in
// depthwise.cpp, which is compiled once for a machine. Channels are whole vectors.
#pragma once
#include "product.h"

namespace fg {

// The sizes of a convolution: of images, of the result (rows, across), of the window (down, over), of what lies above and
// beside an image; the window's steps, and how far apart its places are.
struct Places {
  int64_t images, height, width, channels, rows, across, down, over, above, beside, step_down, step_over, apart_down, apart_over;
};

struct Depthwise {
  const float* x;       // [images][height][width][channels]
  const float* weight;  // [down][over][channels]
  float* out;           // [images][rows][across][channels]
  Places n;
};

struct DepthwiseGradient {
  const float *x, *gradient, *weight;  // as x, out and weight above
  float* image;                        // as x
  float* out;                          // of the weight, [parts][down][over][channels]: of some images each
  Places n;
  int64_t parts, block;  // channels of a unit
};

// Units [begin, end): rows of images.
INTERNAL void depthwise(const Depthwise& a, int64_t begin, int64_t end);
// Units [begin, end): blocks of channels, of each part of the images.
INTERNAL void depthwise(const DepthwiseGradient& a, int64_t begin, int64_t end);

}  // namespace fg
