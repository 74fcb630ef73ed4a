// The gradient of the weight is the adjoint of winograd.cpp's: of a tile's window d and the gradient g of its 2x2 results
// B^T d B and A g A^T are multiplied position by position, summed over tiles, M, and then G^T M G. A sum that is not
// finite is computed anew as it is defined.
#include "training.h"

namespace fg {

constexpr int64_t GRADIENT_TILES = 48;  // of a chunk: windows, gradients and sums fit into the second cache
constexpr int64_t APART = 16;  // elements between positions, which else would share the sets of the caches
// Of a tile of sums in registers.
#if defined(__AVX512F__)
constexpr int SUM_ROWS = 8, SUM_PANELS = 3;
#elif defined(__AVX__) || defined(__aarch64__)
constexpr int SUM_ROWS = 4, SUM_PANELS = 1;
#else
constexpr int SUM_ROWS = 2, SUM_PANELS = 1;
#endif
constexpr int SUM_VECTORS = PANEL / FG_WIDE;
alignas(64) static const float NOTHING_HERE[FG_WIDE] = {};

INLINE lane_vector at(const float* p) { return *(const lane_vector_unaligned*)p; }
INLINE void put(float* p, lane_vector value) { *(lane_vector_unaligned*)p = value; }

// G w: of three elements four.
INLINE void transform_three(const lane_vector* w, int64_t step, lane_vector* to, int64_t to_step) {
  const lane_vector half = wide::splat(0.5f), ends = (w[0] + w[2 * step]) * half, middle = w[step] * half;
  to[0] = w[0], to[to_step] = ends + middle, to[2 * to_step] = ends - middle, to[3 * to_step] = w[2 * step];
}

void train(const WinogradPanels& a, int64_t begin, int64_t end) {
  constexpr int64_t CHANNELS = 16;  // of a block whose elements are put side by side first
  alignas(64) float block[CHANNELS][9][PANEL], made[WINOGRAD_PRODUCTS][CHANNELS][PANEL];
  const int64_t position = a.columns * a.channels;
  for (int64_t unit = begin; unit < end; ++unit) {
    float* const to = a.panels + unit * a.channels * PANEL;
    for (int64_t first = 0; first < a.channels; first += CHANNELS) {
      for (int64_t k = 0; k < PANEL; ++k) {
        const float* const column = a.weight + (unit * PANEL + k) * a.step[0] + first * a.step[1];
        for (int64_t c = 0; c < CHANNELS; ++c) {
          const float* const from = column + c * a.step[1];
          _Pragma("GCC unroll 9") for (int e = 0; e < 9; ++e) block[c][e][k] = from[e / 3 * a.step[2] + e % 3 * a.step[3]];
        }
      }
      for (int64_t c = 0; c < CHANNELS; ++c) {
        for (int64_t v = 0; v < PANEL; v += FG_WIDE) {
          lane_vector w[9], rows[12], whole[16];
          _Pragma("GCC unroll 9") for (int e = 0; e < 9; ++e) w[e] = at(block[c][e] + v);
          _Pragma("GCC unroll 3") for (int j = 0; j < 3; ++j) transform_three(w + j, 3, rows + j, 3);
          _Pragma("GCC unroll 4") for (int i = 0; i < 4; ++i) transform_three(rows + 3 * i, 1, whole + 4 * i, 1);
          _Pragma("GCC unroll 16") for (int p = 0; p < WINOGRAD_PRODUCTS; ++p) put(made[p][c] + v, whole[p]);
        }
      }
      for (int p = 0; p < WINOGRAD_PRODUCTS; ++p) {
        __builtin_memcpy(to + p * position + first * PANEL, made[p], sizeof made[p]);
      }
    }
  }
}

struct Tile {
  int64_t image, y, x;  // of a tile's first pixel in the result
};

INLINE Tile tile_of(const WinogradGradient& a, int64_t tile) {
  const int64_t across = (a.across + 1) / 2, down = (a.rows + 1) / 2, strip = tile / across;
  return {strip / down, strip % down * 2, tile % across * 2};
}

// B^T d B of a tile's window, channels [channel, channel + count): position p of a panel at p * position + its place.
static void transform_window(const WinogradGradient& a, Tile place, int64_t channel, int64_t count, float* to, int64_t position,
                             int64_t panel) {
  const float* from[4][4];
  int64_t step[4][4];
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) {
      const int64_t y = place.y - a.above + i, x = place.x - a.beside + j;
      const bool inside = y >= 0 && y < a.height && x >= 0 && x < a.width;
      from[i][j] = inside ? a.x + ((place.image * a.height + y) * a.width + x) * a.channels + channel : NOTHING_HERE;
      step[i][j] = inside;
    }
  }
  for (int64_t c = 0; c < count; c += FG_WIDE) {
    lane_vector t[4][4];
    _Pragma("GCC unroll 4") for (int j = 0; j < 4; ++j) {
      lane_vector d[4];
      _Pragma("GCC unroll 4") for (int i = 0; i < 4; ++i) d[i] = at(from[i][j] + c * step[i][j]);
      t[0][j] = d[0] - d[2], t[1][j] = d[1] + d[2], t[2][j] = d[2] - d[1], t[3][j] = d[1] - d[3];
    }
    float* const here = to + c / PANEL * panel + c % PANEL;
    _Pragma("GCC unroll 4") for (int i = 0; i < 4; ++i) {
      float* const row = here + 4 * i * position;
      put(row, t[i][0] - t[i][2]), put(row + position, t[i][1] + t[i][2]);
      put(row + 2 * position, t[i][2] - t[i][1]), put(row + 3 * position, t[i][1] - t[i][3]);
    }
  }
}

// A g: of two elements four.
INLINE void transform_two(lane_vector g, lane_vector h, lane_vector* to, int64_t step) {
  to[0] = g, to[step] = g + h, to[2 * step] = g - h, to[3 * step] = lane_vector{} - h;
}

// A g A^T of a tile's results, columns [column, column + count).
static void transform_results(const WinogradGradient& a, Tile place, int64_t column, int64_t count, float* to,
                              int64_t position) {
  const float* from[2][2];
  int64_t step[2][2];
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 2; ++j) {
      const int64_t y = place.y + i, x = place.x + j;
      const bool inside = y < a.rows && x < a.across;
      from[i][j] = inside ? a.gradient + ((place.image * a.rows + y) * a.across + x) * a.columns + column : NOTHING_HERE;
      step[i][j] = inside;
    }
  }
  for (int64_t k = 0; k < count; k += FG_WIDE) {
    lane_vector rows[8], whole[16];
    _Pragma("GCC unroll 2") for (int j = 0; j < 2; ++j) {
      transform_two(at(from[0][j] + k * step[0][j]), at(from[1][j] + k * step[1][j]), rows + j, 2);
    }
    _Pragma("GCC unroll 4") for (int i = 0; i < 4; ++i) transform_two(rows[2 * i], rows[2 * i + 1], whole + 4 * i, 1);
    _Pragma("GCC unroll 16") for (int p = 0; p < WINOGRAD_PRODUCTS; ++p) put(to + p * position + k, whole[p]);
  }
}

// SUM_ROWS columns' sums for P panels of channels, over `tiles` of a chunk: added to sums before unless it is the first.
template <int P>
__attribute__((noinline)) void add_products(const float* gradients, int64_t step, const float* windows, int64_t panel,
                                            float* sums, int64_t row, int64_t tiles, bool first) {
  constexpr int N = P * SUM_VECTORS;
  lane_vector sum[SUM_ROWS][N];
  _Pragma("GCC unroll 16") for (int r = 0; r < SUM_ROWS; ++r) {
    _Pragma("GCC unroll 16") for (int c = 0; c < N; ++c) sum[r][c] = first ? lane_vector{} : at(sums + r * row + c * FG_WIDE);
  }
  for (int64_t t = 0; t < tiles; ++t) {
    lane_vector w[N];
    _Pragma("GCC unroll 16") for (int c = 0; c < N; ++c) {
      w[c] = at(windows + c / SUM_VECTORS * panel + t * PANEL + c % SUM_VECTORS * FG_WIDE);
    }
    _Pragma("GCC unroll 16") for (int r = 0; r < SUM_ROWS; ++r) {
      const lane_vector g = wide::splat(gradients[t * step + r]);
      _Pragma("GCC unroll 16") for (int c = 0; c < N; ++c) sum[r][c] = wide::mul_add(g, w[c], sum[r][c]);
    }
  }
  _Pragma("GCC unroll 16") for (int r = 0; r < SUM_ROWS; ++r) {
    _Pragma("GCC unroll 16") for (int c = 0; c < N; ++c) put(sums + r * row + c * FG_WIDE, sum[r][c]);
  }
}

static void add_chunk(const float* gradients, int64_t columns, const float* windows, int64_t channels, float* sums,
                      int64_t tiles, bool first) {
  const int64_t panel = tiles * PANEL;
  for (int64_t c = 0; c < channels;) {
    const int64_t left = (channels - c) / PANEL;
    const int64_t panels = SUM_PANELS == 1 ? 1 : left == 4 ? 2 : min(left, (int64_t)SUM_PANELS);
    const float* const from = windows + c / PANEL * panel;
    for (int64_t k = 0; k < columns; k += SUM_ROWS) {
      float* const to = sums + k * channels + c;
      if (panels == 1) add_products<1>(gradients + k, columns, from, panel, to, channels, tiles, first);
      else if (panels == 2) add_products<2>(gradients + k, columns, from, panel, to, channels, tiles, first);
      else add_products<SUM_PANELS>(gradients + k, columns, from, panel, to, channels, tiles, first);
    }
    c += panels * PANEL;
  }
}

// The gradient of one column's window, FG_WIDE channels from `channel` on, as it is defined.
static void window_gradient(const WindowGradient& a, int64_t column, int64_t channel, lane_vector* to) {
  for (int64_t e = 0; e < a.down * a.over; ++e) to[e] = lane_vector{};
  for (int64_t image = 0; image < a.images; ++image) {
    for (int64_t y = 0; y < a.rows; ++y) {
      for (int64_t x = 0; x < a.across; ++x) {
        const lane_vector g = wide::splat(a.gradient[((image * a.rows + y) * a.across + x) * a.columns + column]);
        for (int64_t e = 0; e < a.down * a.over; ++e) {
          const int64_t v = y * a.step_down - a.above + e / a.over, u = x * a.step_over - a.beside + e % a.over;
          if (v < 0 || v >= a.height || u < 0 || u >= a.width) continue;
          to[e] = wide::mul_add(g, at(a.x + ((image * a.height + v) * a.width + u) * a.channels + channel), to[e]);
        }
      }
    }
  }
}

// Hands over a window's gradient, or computes it anew if it is not finite.
INLINE void hand_over(const WindowGradient& a, int64_t column, int64_t channel, lane_vector* whole) {
  const int64_t places = a.down * a.over;
  lane_vector wrong = lane_vector{};
  for (int64_t e = 0; e < places; ++e) wrong = wrong + (whole[e] - whole[e]);
  const float found = wide::sum_lanes(wrong);
  if (found != found) window_gradient(a, column, channel, whole);
  alignas(64) float side_by_side[MOST_PLACES][FG_WIDE];
  for (int64_t e = 0; e < places; ++e) put(side_by_side[e], whole[e]);
  float* const out = a.out + (column * a.channels + channel) * places;
  for (int64_t lane = 0; lane < FG_WIDE; ++lane) {
    for (int64_t e = 0; e < places; ++e) out[lane * places + e] = side_by_side[e][lane];
  }
}

void train(const WindowGradient& a, int64_t begin, int64_t end) {
  constexpr int64_t PIXELS = 64;  // of a chunk
  alignas(64) float windows[MOST_PLACES * (PIXELS * GRADIENT_CHANNELS + APART)];
  alignas(64) float gradients[PIXELS * GRADIENT_COLUMNS];
  alignas(64) float sums[MOST_PLACES * (GRADIENT_CHANNELS * GRADIENT_COLUMNS + APART)];
  const int64_t pixels = a.images * a.rows * a.across, places = a.down * a.over;
  const int64_t chunks = (pixels + PIXELS - 1) / PIXELS, each = (pixels + chunks - 1) / chunks;
  const int64_t blocks = (a.columns + a.block - 1) / a.block;
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t column = unit % blocks * a.block, channel = unit / blocks * GRADIENT_CHANNELS;
    const int64_t columns = min(a.block, a.columns - column), channels = min(GRADIENT_CHANNELS, a.channels - channel);
    const int64_t sum_step = columns * channels + APART;
    for (int64_t first = 0; first < pixels; first += each) {
      const int64_t count = min(each, pixels - first), window_step = count * channels + APART;
      for (int64_t t = 0; t < count; ++t) {
        const int64_t pixel = first + t, line = pixel / a.across, image = line / a.rows;
        const int64_t y = line % a.rows * a.step_down - a.above, x = pixel % a.across * a.step_over - a.beside;
        __builtin_memcpy(gradients + t * columns, a.gradient + pixel * a.columns + column, columns * sizeof(float));
        for (int64_t e = 0; e < places; ++e) {
          const int64_t v = y + e / a.over, u = x + e % a.over;
          const bool inside = v >= 0 && v < a.height && u >= 0 && u < a.width;
          const float* const from = a.x + ((image * a.height + v) * a.width + u) * a.channels + channel;
          float* const to = windows + e * window_step + t * PANEL;
          for (int64_t c = 0; c < channels; c += FG_WIDE) {
            put(to + c / PANEL * count * PANEL + c % PANEL, inside ? at(from + c) : lane_vector{});
          }
        }
      }
      for (int64_t e = 0; e < places; ++e) {
        add_chunk(gradients, columns, windows + e * window_step, channels, sums + e * sum_step, count, first == 0);
      }
    }
    for (int64_t k = 0; k < columns; ++k) {
      for (int64_t c = 0; c < channels; c += FG_WIDE) {
        lane_vector whole[MOST_PLACES];
        for (int64_t e = 0; e < places; ++e) whole[e] = at(sums + e * sum_step + k * channels + c);
        hand_over(a, column + k, channel + c, whole);
      }
    }
  }
}

// G^T m: of four elements three.
INLINE void fold_four(const lane_vector* m, int64_t step, lane_vector* to, int64_t to_step) {
  const lane_vector half = wide::splat(0.5f), sum = (m[step] + m[2 * step]) * half;
  to[0] = m[0] + sum, to[to_step] = (m[step] - m[2 * step]) * half, to[2 * to_step] = m[3 * step] + sum;
}

void train(const WinogradGradient& a, int64_t begin, int64_t end) {
  alignas(64) float windows[WINOGRAD_PRODUCTS * (GRADIENT_TILES * GRADIENT_CHANNELS + APART)];
  alignas(64) float gradients[WINOGRAD_PRODUCTS * (GRADIENT_TILES * GRADIENT_COLUMNS + APART)];
  alignas(64) float sums[WINOGRAD_PRODUCTS * (GRADIENT_CHANNELS * GRADIENT_COLUMNS + APART)];
  const int64_t tiles = a.images * ((a.rows + 1) / 2) * ((a.across + 1) / 2);
  const int64_t chunks = (tiles + GRADIENT_TILES - 1) / GRADIENT_TILES, each = (tiles + chunks - 1) / chunks;
  const int64_t blocks = (a.columns + a.block - 1) / a.block;
  const WindowGradient plain = {a.x,       a.gradient, a.out,    a.images, a.height, a.width, a.channels, a.columns, a.rows,
                                a.across, a.above,    a.beside, 3,        3,        1,       1,          a.block};
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t column = unit % blocks * a.block, channel = unit / blocks * GRADIENT_CHANNELS;
    const int64_t columns = min(a.block, a.columns - column), channels = min(GRADIENT_CHANNELS, a.channels - channel);
    const int64_t sum_step = columns * channels + APART;
    for (int64_t first = 0; first < tiles; first += each) {
      const int64_t count = min(each, tiles - first);
      const int64_t window_step = count * channels + APART, gradient_step = count * columns + APART;
      for (int64_t t = 0; t < count; ++t) {
        const Tile place = tile_of(a, first + t);
        transform_window(a, place, channel, channels, windows + t * PANEL, window_step, count * PANEL);
        transform_results(a, place, column, columns, gradients + t * columns, gradient_step);
      }
      for (int64_t p = 0; p < WINOGRAD_PRODUCTS; ++p) {
        add_chunk(gradients + p * gradient_step, columns, windows + p * window_step, channels, sums + p * sum_step, count,
                  first == 0);
      }
    }
    for (int64_t k = 0; k < columns; ++k) {
      for (int64_t c = 0; c < channels; c += FG_WIDE) {
        lane_vector m[16], rows[12], whole[9];
        _Pragma("GCC unroll 16") for (int p = 0; p < WINOGRAD_PRODUCTS; ++p) {
          m[p] = at(sums + p * sum_step + k * channels + c);
        }
        _Pragma("GCC unroll 4") for (int j = 0; j < 4; ++j) fold_four(m + j, 4, rows + j, 4);
        _Pragma("GCC unroll 3") for (int i = 0; i < 3; ++i) fold_four(rows + 4 * i, 1, whole + 3 * i, 1);
        hand_over(plain, column + k, channel + c, whole);
      }
    }
  }
}

}  // namespace fg
