// Kernels of training besides winograd.h: a weight's transform in each step, and the weight's gradient, whose 9 elements
// are 16 products in place of 36. Defined in training.cpp, which is compiled once for a machine.
#pragma once
#include "winograd.h"

namespace fg {

struct WinogradPanels {
  const float* weight;
  float* panels;  // [position][column / PANEL][channel][PANEL columns]
  int64_t channels, columns;
  int64_t step[4];  // of the weight's columns, channels, rows and columns of a window
};

// Units [begin, end): panels of columns.
INTERNAL void train(const WinogradPanels& a, int64_t begin, int64_t end);

struct WinogradGradient {
  const float* x;         // [images][height][width][channels]
  const float* gradient;  // of the result, [images][rows][across][columns]
  float* out;             // of the weight, [columns][channels][3][3]
  int64_t images, height, width, channels, columns, rows, across, above, beside;
  int64_t block;  // columns of a unit of work
};

// The same for any window of at most MOST_PLACES elements, as sums of products of shifted images.
struct WindowGradient {
  const float* x;         // [images][height][width][channels]
  const float* gradient;  // of the result, [images][rows][across][columns]
  float* out;             // of the weight, [columns][channels][down][over]
  int64_t images, height, width, channels, columns, rows, across, above, beside;
  int64_t down, over, step_down, step_over;  // sizes of the window, and its steps
  int64_t block;                             // columns of a unit of work
};

constexpr int64_t MOST_PLACES = 9;
constexpr int64_t GRADIENT_CHANNELS = 64, GRADIENT_COLUMNS = 64;  // of a unit, at most

// Units [begin, end): blocks of columns, of each block of channels.
INTERNAL void train(const WinogradGradient& a, int64_t begin, int64_t end);
INTERNAL void train(const WindowGradient& a, int64_t begin, int64_t end);

}  // namespace fg
