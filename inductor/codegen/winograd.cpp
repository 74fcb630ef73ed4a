// A tile is 2x2 pixels of the result, of a window of 4x4 pixels: d -> B^T d B -> a product for each of the 16 positions,
// of all tiles of a chunk -> A^T m A. Additions alone, so that rounding is about that of the sums of 9 products. A result
// that is not finite is computed anew by the definition, since the transform may subtract infinities.
#include "winograd.h"

namespace fg {

constexpr int64_t ROOM = 96 << 10;    // elements of a chunk's windows: of the second cache
constexpr int64_t MOST_TILES = 48;     // of a chunk
constexpr int64_t CHUNK_COLUMNS = 64;  // of results between products and output
constexpr int64_t APART = 16;          // elements between positions, which else would share the sets of the caches
alignas(64) static const float NOTHING[FG_WIDE] = {};

struct Place {
  int64_t image, y, x;  // of a tile's first pixel in the result
};

INLINE Place place_of(const Winograd& a, int64_t tile) {
  const int64_t across = (a.across + 1) / 2, down = (a.rows + 1) / 2, strip = tile / across;
  return {strip / down, strip % down * 2, tile % across * 2};
}

// The window of a tile, transformed: position p of channel c at to[p * step + c].
static void transform_window(const Winograd& a, Place place, float* to, int64_t step) {
  const float* from[4][4];
  int64_t channel[4][4];
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) {
      const int64_t y = place.y - a.above + i, x = place.x - a.beside + j;
      const bool inside = y >= 0 && y < a.height && x >= 0 && x < a.width;
      from[i][j] = inside ? a.x + ((place.image * a.height + y) * a.width + x) * a.channels : NOTHING;
      channel[i][j] = inside;
    }
  }
  for (int64_t c = 0; c < a.channels; c += FG_WIDE) {
    lane_vector t[4][4];
    _Pragma("GCC unroll 4") for (int j = 0; j < 4; ++j) {
      lane_vector d[4];
      _Pragma("GCC unroll 4") for (int i = 0; i < 4; ++i) {
        d[i] = *(const lane_vector_unaligned*)(from[i][j] + c * channel[i][j]);
      }
      t[0][j] = d[0] - d[2], t[1][j] = d[1] + d[2], t[2][j] = d[2] - d[1], t[3][j] = d[1] - d[3];
    }
    _Pragma("GCC unroll 4") for (int i = 0; i < 4; ++i) {
      float* const row = to + 4 * i * step + c;
      *(lane_vector_unaligned*)row = t[i][0] - t[i][2];
      *(lane_vector_unaligned*)(row + step) = t[i][1] + t[i][2];
      *(lane_vector_unaligned*)(row + 2 * step) = t[i][2] - t[i][1];
      *(lane_vector_unaligned*)(row + 3 * step) = t[i][1] - t[i][3];
    }
  }
}

// One pixel of the result, columns [0, count) from `column` on, as it is defined.
static void pixel(const Winograd& a, Place place, int64_t column, int64_t count, float* out) {
  for (int64_t k = 0; k < count; ++k) {
    const float* const w = a.weight + (column + k) * a.weight_step[0];
    float sum = 0;
    for (int64_t i = 0; i < 3; ++i) {
      for (int64_t j = 0; j < 3; ++j) {
        const int64_t y = place.y - a.above + i, x = place.x - a.beside + j;
        if (y < 0 || y >= a.height || x < 0 || x >= a.width) continue;
        const float* const from = a.x + ((place.image * a.height + y) * a.width + x) * a.channels;
        const float* const of_window = w + i * a.weight_step[2] + j * a.weight_step[3];
        for (int64_t c = 0; c < a.channels; ++c) sum += from[c] * of_window[c * a.weight_step[1]];
      }
    }
    out[k] = sum;
  }
}

// The results of a tile, `count` columns from `column` on, of the products m[p * step + k].
static void results(const Winograd& a, Place place, const float* m, int64_t step, int64_t column, int64_t count) {
  float* const out = a.out + ((place.image * a.rows + place.y) * a.across + place.x) * a.columns + column;
  const int64_t rows = min(a.rows - place.y, (int64_t)2), across = min(a.across - place.x, (int64_t)2);
  lane_vector wrong = lane_vector{};
  for (int64_t k = 0; k < count; k += FG_WIDE) {
    lane_vector s[2][4];
    _Pragma("GCC unroll 4") for (int j = 0; j < 4; ++j) {
      lane_vector v[4];
      _Pragma("GCC unroll 4") for (int i = 0; i < 4; ++i) v[i] = *(const lane_vector_unaligned*)(m + (4 * i + j) * step + k);
      s[0][j] = v[0] + v[1] + v[2], s[1][j] = v[1] - v[2] - v[3];
    }
    _Pragma("GCC unroll 2") for (int i = 0; i < 2; ++i) {
      const lane_vector left = s[i][0] + s[i][1] + s[i][2], right = s[i][1] - s[i][2] - s[i][3];
      wrong = wrong + (left - left) + (right - right);
      float* const to = out + i * a.across * a.columns + k;
      if (i < rows) {
        *(lane_vector_unaligned*)to = left;
        if (across > 1) *(lane_vector_unaligned*)(to + a.columns) = right;
      }
    }
  }
  const float found = wide::sum_lanes(wrong);
  if (found == found) return;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < across; ++j) {
      pixel(a, {place.image, place.y + i, place.x + j}, column, count, out + (i * a.across + j) * a.columns);
    }
  }
}

static void chunk(const Winograd& a, int64_t first, int64_t tiles, float* windows, float* products) {
  const int64_t step = tiles * a.channels + APART, panel = a.channels * PANEL;
  for (int64_t t = 0; t < tiles; ++t) transform_window(a, place_of(a, first + t), windows + t * a.channels, step);
  for (int64_t column = 0; column < a.columns; column += CHUNK_COLUMNS) {
    const int64_t count = min(CHUNK_COLUMNS, a.columns - column), apart = tiles * count + APART;
    for (int64_t p = 0; p < WINOGRAD_PRODUCTS; ++p) {
      const float* const w = a.panels + (p * a.columns + column) / PANEL * panel;
      for (int64_t k = 0; k < a.channels; k += DEPTH<float>) {
        product_rows(tiles, windows + p * step + k, a.channels, w + k * PANEL, panel, products + p * apart, count,
                     min(DEPTH<float>, a.channels - k), count, k == 0);
      }
    }
    for (int64_t t = 0; t < tiles; ++t) {
      results(a, place_of(a, first + t), products + t * count, apart, column, count);
    }
  }
}

void winograd(const Winograd& a, const Reader& reader, int64_t begin, int64_t end) {
  alignas(64) float windows[ROOM + WINOGRAD_PRODUCTS * APART];
  alignas(64) float products[WINOGRAD_PRODUCTS * (MOST_TILES * CHUNK_COLUMNS + APART)];
  const int64_t across = (a.across + 1) / 2, all = a.images * ((a.rows + 1) / 2);
  int64_t most = min(MOST_TILES, ROOM / (WINOGRAD_PRODUCTS * a.channels));
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t strip = unit * a.strips, last_strip = min(strip + a.strips, all);
    const int64_t tiles = (last_strip - strip) * across, chunks = (tiles + most - 1) / most;
    const int64_t each = (tiles + chunks - 1) / chunks;
    for (int64_t t = 0; t < tiles; t += each) chunk(a, strip * across + t, min(each, tiles - t), windows, products);
    if (reader.run == nullptr) continue;
    const Place from = place_of(a, strip * across), to = place_of(a, last_strip * across);
    const int64_t row = (from.image * a.rows + from.y) * a.across, last = (to.image * a.rows + to.y) * a.across;
    read_block(reader, a.columns, row, last, 0, a.columns);
  }
}

}  // namespace fg
