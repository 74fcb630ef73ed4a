// A row of a result is a sum of products of rows of an image by rows of a window: three rows by three places at a time,
// with their weights, or sums for the weight's gradient, in registers. At an image's edges, and for windows of other
// widths, each place is looked up.
#include "depthwise.h"

namespace fg {

#if defined(__AVX512F__)
constexpr int AT_ONCE = 2;  // vectors: 18 weights or sums and two more fit into the registers
#else
constexpr int AT_ONCE = 1;
#endif
constexpr int64_t MOST_ROWS = 32;  // of a window
constexpr int WIDTH = 3;           // of a window, in registers

INLINE lane_vector at(const float* p) { return *(const lane_vector_unaligned*)p; }
INLINE void put(float* p, lane_vector value) { *(lane_vector_unaligned*)p = value; }

// The rows of one image that a row of another sees through a window, and where each is in the window.
struct Seen {
  int64_t count, place[MOST_ROWS], row[MOST_ROWS];
};

// Positions of a line that a window's place is over: of the result's position x in the image, or the other way around.
INLINE int64_t of_result(int64_t x, int64_t place, int64_t step, int64_t apart, int64_t before, int64_t size) {
  const int64_t found = x * step + place * apart - before;
  return found >= 0 && found < size ? found : -1;
}
INLINE int64_t of_image(int64_t u, int64_t place, int64_t step, int64_t apart, int64_t before, int64_t size) {
  const int64_t found = u + before - place * apart;
  return found >= 0 && found % step == 0 && found / step < size ? found / step : -1;
}

static Seen seen_by_result(const Places& n, int64_t y) {
  Seen found = {};
  for (int64_t i = 0; i < n.down; ++i) {
    const int64_t row = of_result(y, i, n.step_down, n.apart_down, n.above, n.height);
    if (row >= 0) found.place[found.count] = i, found.row[found.count++] = row;
  }
  return found;
}

static Seen seen_by_image(const Places& n, int64_t v) {
  Seen found = {};
  for (int64_t i = 0; i < n.down; ++i) {
    const int64_t row = of_image(v, i, n.step_down, n.apart_down, n.above, n.rows);
    if (row >= 0) found.place[found.count] = i, found.row[found.count++] = row;
  }
  return found;
}

// Positions [first, last) of the result's rows whose windows lie in the image.
INLINE void inside(const Places& n, int64_t* first, int64_t* last) {
  *first = min((n.beside + n.step_over - 1) / n.step_over, n.across);
  const int64_t room = n.width - 1 + n.beside - (n.over - 1) * n.apart_over;
  *last = max(*first, room < 0 ? 0 : min(room / n.step_over + 1, n.across));
}

// Places of a window that lie over a line of positions: how far each is from the first one's in elements, in the line and in
// the weight's rows.
struct Taps {
  int64_t count, from[WIDTH], weight[WIDTH];
};

// out[k * out_step] = sum of from[r][k * step + taps.from[j]] * weight[r][taps.weight[j]], for k in [0, count).
template <int R, int J>
__attribute__((noinline)) void add_rows(const float* const* from, int64_t step, const Taps& taps, const float* const* weight,
                                        float* out, int64_t out_step, int64_t count, int64_t block) {
  const auto some = [&](int64_t c, auto vectors) {
    constexpr int V = decltype(vectors)::value;
    lane_vector w[R][J][V];
    const float* p[R];
    int64_t apart[J];
    _Pragma("GCC unroll 3") for (int j = 0; j < J; ++j) apart[j] = taps.from[j];
    _Pragma("GCC unroll 3") for (int r = 0; r < R; ++r) {
      p[r] = from[r] + c;
      _Pragma("GCC unroll 3") for (int j = 0; j < J; ++j) {
        _Pragma("GCC unroll 2") for (int v = 0; v < V; ++v) w[r][j][v] = at(weight[r] + taps.weight[j] + c + v * FG_WIDE);
      }
    }
    float* to = out + c;
    for (int64_t k = 0; k < count; ++k, to += out_step) {
      lane_vector sum[V] = {};
      _Pragma("GCC unroll 3") for (int r = 0; r < R; ++r) {
        _Pragma("GCC unroll 3") for (int j = 0; j < J; ++j) {
          _Pragma("GCC unroll 2") for (int v = 0; v < V; ++v) {
            sum[v] = wide::mul_add(at(p[r] + apart[j] + v * FG_WIDE), w[r][j][v], sum[v]);
          }
        }
        p[r] += step;
      }
      _Pragma("GCC unroll 2") for (int v = 0; v < V; ++v) put(to + v * FG_WIDE, sum[v]);
    }
  };
  int64_t c = 0;
  for (; c + AT_ONCE * FG_WIDE <= block; c += AT_ONCE * FG_WIDE) some(c, Int<AT_ONCE>{});
  for (; c < block; c += FG_WIDE) some(c, Int<1>{});
}

template <int R>
static void add_rows(const float* const* from, int64_t step, const Taps& taps, const float* const* weight, float* out,
                     int64_t out_step, int64_t count, int64_t block) {
  if (taps.count == 1) add_rows<R, 1>(from, step, taps, weight, out, out_step, count, block);
  else if (taps.count == 2) add_rows<R, 2>(from, step, taps, weight, out, out_step, count, block);
  else add_rows<R, 3>(from, step, taps, weight, out, out_step, count, block);
}

// Whether the rows and places are few enough for registers, where they have been added.
static bool add_rows(const Seen& seen, const float* const* from, int64_t step, const Taps& taps, const float* const* weight,
                     float* out, int64_t out_step, int64_t count, int64_t block) {
  if (taps.count < 1 || taps.count > WIDTH || seen.count < 1 || seen.count > WIDTH) return false;
  if (seen.count == 1) add_rows<1>(from, step, taps, weight, out, out_step, count, block);
  else if (seen.count == 2) add_rows<2>(from, step, taps, weight, out, out_step, count, block);
  else add_rows<3>(from, step, taps, weight, out, out_step, count, block);
  return true;
}

// One position, of which `where` tells what lies under a place of the window.
template <class Where>
INLINE void add_places(const Seen& seen, const float* const* from, const float* const* weight, int64_t over, int64_t channels,
                       float* out, int64_t block, Where where) {
  for (int64_t c = 0; c < block; c += FG_WIDE) {
    lane_vector sum = {};
    for (int64_t j = 0; j < over; ++j) {
      const int64_t position = where(j);
      if (position < 0) continue;
      for (int64_t r = 0; r < seen.count; ++r) {
        sum = wide::mul_add(at(from[r] + position * channels + c), at(weight[r] + j * channels + c), sum);
      }
    }
    put(out + c, sum);
  }
}

void depthwise(const Depthwise& a, int64_t begin, int64_t end) {
  const Places& n = a.n;
  int64_t first, last;
  inside(n, &first, &last);
  Taps taps = {};
  for (int64_t j = 0; j < n.over; ++j, ++taps.count) {
    if (j < WIDTH) taps.from[j] = j * n.apart_over * n.channels, taps.weight[j] = j * n.channels;
  }
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t image = unit / n.rows, y = unit % n.rows, line = n.width * n.channels;
    const Seen seen = seen_by_result(n, y);
    const float *from[MOST_ROWS], *moved[MOST_ROWS], *weight[MOST_ROWS];
    for (int64_t r = 0; r < seen.count; ++r) {
      from[r] = a.x + (image * n.height + seen.row[r]) * line;
      moved[r] = from[r] + (first * n.step_over - n.beside) * n.channels;
      weight[r] = a.weight + seen.place[r] * n.over * n.channels;
    }
    float* const out = a.out + unit * n.across * n.channels;
    const bool whole = add_rows(seen, moved, n.step_over * n.channels, taps, weight, out + first * n.channels, n.channels,
                                last - first, n.channels);
    for (int64_t x = 0; x < n.across; ++x) {
      if (whole && x == first) x = last;
      if (x >= n.across) break;
      add_places(seen, from, weight, n.over, n.channels, out + x * n.channels, n.channels, [&](int64_t j) {
        return of_result(x, j, n.step_over, n.apart_over, n.beside, n.width);
      });
    }
  }
}

// sums[r][j] += from[r][k * step + j * apart] * gradient[k], for k in [0, count).
template <int R>
__attribute__((noinline)) void add_sums(const float* const* from, int64_t step, int64_t apart, const float* gradient,
                                        float* const* sums, int64_t channels, int64_t count, int64_t block) {
  const auto some = [&](int64_t c, auto vectors) {
    constexpr int V = decltype(vectors)::value;
    lane_vector sum[R][WIDTH][V];
    const float *p[R], *g = gradient + c;
    _Pragma("GCC unroll 3") for (int r = 0; r < R; ++r) {
      p[r] = from[r] + c;
      _Pragma("GCC unroll 3") for (int j = 0; j < WIDTH; ++j) {
        _Pragma("GCC unroll 2") for (int v = 0; v < V; ++v) sum[r][j][v] = at(sums[r] + j * channels + c + v * FG_WIDE);
      }
    }
    for (int64_t k = 0; k < count; ++k, g += channels) {
      lane_vector here[V];
      _Pragma("GCC unroll 2") for (int v = 0; v < V; ++v) here[v] = at(g + v * FG_WIDE);
      _Pragma("GCC unroll 3") for (int r = 0; r < R; ++r) {
        _Pragma("GCC unroll 3") for (int j = 0; j < WIDTH; ++j) {
          _Pragma("GCC unroll 2") for (int v = 0; v < V; ++v) {
            sum[r][j][v] = wide::mul_add(at(p[r] + j * apart + v * FG_WIDE), here[v], sum[r][j][v]);
          }
        }
        p[r] += step;
      }
    }
    _Pragma("GCC unroll 3") for (int r = 0; r < R; ++r) {
      _Pragma("GCC unroll 3") for (int j = 0; j < WIDTH; ++j) {
        _Pragma("GCC unroll 2") for (int v = 0; v < V; ++v) put(sums[r] + j * channels + c + v * FG_WIDE, sum[r][j][v]);
      }
    }
  };
  int64_t c = 0;
  for (; c + AT_ONCE * FG_WIDE <= block; c += AT_ONCE * FG_WIDE) some(c, Int<AT_ONCE>{});
  for (; c < block; c += FG_WIDE) some(c, Int<1>{});
}

// The sums for the weight of a row of the result, of channels [channel, channel + block).
static void gradient_row(const DepthwiseGradient& a, int64_t image, int64_t y, int64_t channel, int64_t block, float* to,
                         int64_t first, int64_t last) {
  const Places& n = a.n;
  const Seen seen = seen_by_result(n, y);
  const float *from[MOST_ROWS], *moved[MOST_ROWS];
  float* sums[MOST_ROWS];
  for (int64_t r = 0; r < seen.count; ++r) {
    from[r] = a.x + (image * n.height + seen.row[r]) * n.width * n.channels + channel;
    moved[r] = from[r] + (first * n.step_over - n.beside) * n.channels;
    sums[r] = to + seen.place[r] * n.over * n.channels + channel;
  }
  const float* const gradient = a.gradient + (image * n.rows + y) * n.across * n.channels + channel;
  const int64_t step = n.step_over * n.channels, apart = n.apart_over * n.channels;
  const auto three = [&](auto rows) {
    add_sums<decltype(rows)::value>(moved, step, apart, gradient + first * n.channels, sums, n.channels, last - first, block);
  };
  const bool whole = n.over == WIDTH && seen.count >= 1 && seen.count <= 3;
  if (whole && seen.count == 1) three(Int<1>{});
  if (whole && seen.count == 2) three(Int<2>{});
  if (whole && seen.count == 3) three(Int<3>{});
  for (int64_t x = 0; x < n.across; ++x) {
    if (whole && x == first) x = last;
    if (x >= n.across) break;
    for (int64_t j = 0; j < n.over; ++j) {
      const int64_t position = of_result(x, j, n.step_over, n.apart_over, n.beside, n.width);
      if (position < 0) continue;
      for (int64_t r = 0; r < seen.count; ++r) {
        float* const sum = sums[r] + j * n.channels;
        for (int64_t c = 0; c < block; c += FG_WIDE) {
          put(sum + c, wide::mul_add(at(from[r] + position * n.channels + c), at(gradient + x * n.channels + c), at(sum + c)));
        }
      }
    }
  }
}

// A row of the image's gradient, of channels [channel, channel + block): every step_over-th position sees the same places.
static void image_row(const DepthwiseGradient& a, int64_t image, int64_t v, int64_t channel, int64_t block) {
  const Places& n = a.n;
  const Seen seen = seen_by_image(n, v);
  const float *from[MOST_ROWS], *moved[MOST_ROWS], *weight[MOST_ROWS];
  for (int64_t r = 0; r < seen.count; ++r) {
    from[r] = a.gradient + (image * n.rows + seen.row[r]) * n.across * n.channels + channel;
    weight[r] = a.weight + seen.place[r] * n.over * n.channels + channel;
  }
  float* const out = a.image + (image * n.height + v) * n.width * n.channels + channel;
  for (int64_t start = 0; start < min(n.step_over, n.width); ++start) {
    // At position start + k * step_over place j lies over k + shift of the result.
    Taps taps = {};
    int64_t least = 0, most = 0;
    for (int64_t j = 0; j < n.over; ++j) {
      const int64_t shifted = start + n.beside - j * n.apart_over;
      if (imod(shifted, n.step_over) != 0) continue;
      const int64_t shift = idiv(shifted, n.step_over);
      least = taps.count == 0 ? shift : min(least, shift), most = taps.count == 0 ? shift : max(most, shift);
      if (taps.count < WIDTH) taps.from[taps.count] = shift * n.channels, taps.weight[taps.count] = j * n.channels;
      ++taps.count;
    }
    const int64_t all = (n.width - start + n.step_over - 1) / n.step_over;
    const int64_t first = min(max(-least, (int64_t)0), all), last = max(first, min(all, n.across - most));
    for (int64_t r = 0; r < seen.count; ++r) moved[r] = from[r] + first * n.channels;
    float* const here = out + (start + first * n.step_over) * n.channels;
    const bool whole = add_rows(seen, moved, n.channels, taps, weight, here, n.step_over * n.channels, last - first, block);
    for (int64_t k = 0; k < all; ++k) {
      if (whole && k == first) k = last;
      if (k >= all) break;
      const int64_t u = start + k * n.step_over;
      add_places(seen, from, weight, n.over, n.channels, out + u * n.channels, block, [&](int64_t j) {
        return of_image(u, j, n.step_over, n.apart_over, n.beside, n.across);
      });
    }
  }
}

void depthwise(const DepthwiseGradient& a, int64_t begin, int64_t end) {
  const Places& n = a.n;
  const int64_t blocks = (n.channels + a.block - 1) / a.block, each = (n.images + a.parts - 1) / a.parts;
  int64_t first, last;
  inside(n, &first, &last);
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t part = unit / blocks, channel = unit % blocks * a.block, block = min(a.block, n.channels - channel);
    float* const to = a.out + part * n.down * n.over * n.channels;
    for (int64_t e = 0; e < n.down * n.over; ++e) {
      __builtin_memset(to + e * n.channels + channel, 0, block * sizeof(float));
    }
    for (int64_t image = part * each; image < min((part + 1) * each, n.images); ++image) {
      int64_t done = 0;  // rows of the image's gradient: each when the last row that it is a sum of has been read
      for (int64_t y = 0; y < n.rows; ++y) {
        gradient_row(a, image, y, channel, block, to, first, last);
        const int64_t until = y + 1 == n.rows ? n.height : min(n.height, (y + 1) * n.step_down - n.above);
        for (; done < until; ++done) image_row(a, image, done, channel, block);
      }
    }
  }
}

}  // namespace fg
