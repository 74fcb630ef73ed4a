// A tile of the result, R rows and P panels, stays in registers while its sums walk along k. The weights of a panel stay
// in the first cache for all tiles of a block of rows. Readers of the result follow a block at a time, as long as the
// block is in the cache.
#pragma once
#include "product.h"

namespace fg {

constexpr int PANEL_VECTORS = PANEL / FG_WIDE;
// Vectors of the result that registers hold beside the factors.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int TILE_VECTORS = 24;
#elif defined(__AVX__)
constexpr int TILE_VECTORS = 12;
#else
constexpr int TILE_VECTORS = 8;
#endif
// Most rows of a tile: of two panels where a panel is one vector, else of one.
constexpr int TILE_ROWS = TILE_VECTORS / (PANEL_VECTORS == 1 ? 2 : PANEL_VECTORS);

// Rows of a panel that are asked for before they are read: the processor does so by itself within a page, which holds as
// many. Behind the last one is the next panel.
constexpr int64_t AHEAD = 64;

// FG_WIDE elements of a weight.
INLINE lane_vector widened(const float* p) { return *(const lane_vector_unaligned*)p; }
INLINE lane_vector widened(const bf16* p) { return wide::load(p, Full{}); }
INLINE lane_vector widened(const f16* p) { return wide::load(p, Full{}); }
INLINE lane_vector widened(const int8_t* p) {
#if defined(FG_GCC) && defined(__AVX2__) && FG_WIDE == 8
  typedef char bytes __attribute__((vector_size(16)));
  typedef long long words __attribute__((vector_size(16)));
  int64_t eight;
  __builtin_memcpy(&eight, p, 8);
  return __builtin_convertvector(__builtin_ia32_pmovsxbd256((bytes)words{eight, 0}), lane_vector);
#elif defined(FG_GCC) && defined(__AVX512F__) && FG_WIDE == 16
  typedef char bytes __attribute__((vector_size(16), aligned(1)));
  typedef int32_t words __attribute__((vector_size(64)));
  return __builtin_convertvector(__builtin_ia32_pmovsxbd512_mask(*(const bytes*)p, words{}, -1), lane_vector);
#else
  typedef int8_t bytes __attribute__((vector_size(FG_WIDE), aligned(1)));
  typedef int32_t words __attribute__((vector_size(4 * FG_WIDE)));
  return __builtin_convertvector(__builtin_convertvector(*(const bytes*)p, words), lane_vector);
#endif
}

// Pairs of bf16.
typedef int32_t lane_pairs __attribute__((vector_size(4 * FG_WIDE)));
typedef int32_t lane_pairs_unaligned __attribute__((vector_size(4 * FG_WIDE), aligned(2)));

INLINE lane_pairs widened(const bf16_pair* p) { return *(const lane_pairs_unaligned*)p; }

// Every int8 is a bf16: the upper half of its float.
INLINE lane_pairs widened(const int8_pair* p) {
#if defined(FG_GCC) && defined(__AVX512F__) && FG_WIDE == 16
  typedef int16_t pairs __attribute__((vector_size(32), aligned(1)));
  const lane_pairs both = __builtin_ia32_pmovsxwd512_mask(*(const pairs*)p, lane_pairs{}, -1);
#else
  typedef int16_t pairs __attribute__((vector_size(2 * FG_WIDE), aligned(1)));
  const lane_pairs both = __builtin_convertvector(*(const pairs*)p, lane_pairs);
#endif
  typedef uint32_t halves __attribute__((vector_size(4 * FG_WIDE)));
  const lane_vector even = __builtin_convertvector(both << 24 >> 24, lane_vector);
  const lane_vector odd = __builtin_convertvector(both >> 8, lane_vector);
  return (lane_pairs)((halves)even >> 16 | (halves)odd);
}

// `depth` rows of a weight as elements of a panel: the last one may be half a pair.
template <class W> constexpr int64_t elements_of(int64_t depth) {
  return (depth + weight_of<W>::ROWS - 1) / weight_of<W>::ROWS;
}

// A matrix whose columns are side by side: element (r, k) is p[k * row + r].
struct Turned {
  const float* p;
  INLINE Turned operator+(int64_t rows) const { return {p + rows}; }
};
// From one row to the next.
template <class T> INLINE int64_t row_step(const T*, int64_t row) { return row; }
INLINE int64_t row_step(Turned, int64_t) { return 1; }

// Element k of row r of the matrix, for all lanes.
INLINE lane_vector spread(const float* x, int64_t r, int64_t row, int64_t k, int64_t) { return wide::splat(x[r * row + k]); }
INLINE lane_vector spread(Turned x, int64_t r, int64_t row, int64_t k, int64_t) { return wide::splat(x.p[k * row + r]); }
INLINE lane_pairs spread(const bf16* x, int64_t r, int64_t row, int64_t k, int64_t depth) {
  x += r * row;
  int32_t pair = x[2 * k].bits;
  if (2 * k + 1 < depth) __builtin_memcpy(&pair, x + 2 * k, 4);
  return pair - lane_pairs{};
}

INLINE lane_vector multiply(lane_vector a, lane_vector b, lane_vector sum) { return wide::mul_add(a, b, sum); }
INLINE lane_vector multiply(lane_pairs a, lane_pairs b, lane_vector sum) {
#if defined(__AVX512BF16__) && FG_WIDE == 16
  asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
  return sum;
#else
  const int32_t high = (int32_t)0xffff0000;
  sum = wide::mul_add((lane_vector)(a << 16), (lane_vector)(b << 16), sum);
  return wide::mul_add((lane_vector)(a & high), (lane_vector)(b & high), sum);
#endif
}

// Keeps a factor of several products in a register: it would be read again for some of them.
template <class T> INLINE void hold(T& factor) {
#if defined(FG_GCC) && defined(__AVX__)
  asm("" : "+v"(factor));
#endif
}

// The sums of P panels for R rows, from this block of k; added to `out` unless the block is the first.
template <int R, int P, class X, class W>
__attribute__((noinline)) void product_tile(X x, int64_t x_row, const W* w, int64_t panel, float* out,
                                            int64_t out_row, int64_t depth, bool first) {
  constexpr int N = P * PANEL_VECTORS;
  lane_vector sum[R][N];
  _Pragma("GCC unroll 16") for (int r = 0; r < R; ++r) {
    _Pragma("GCC unroll 16") for (int c = 0; c < N; ++c) {
      sum[r][c] = lane_vector{};
      if (!first) sum[r][c] = *(const lane_vector_unaligned*)(out + r * out_row + c * FG_WIDE);
    }
  }
  for (int64_t k = 0; k < elements_of<W>(depth); ++k) {
    if constexpr (sizeof(W) == 4) {
      _Pragma("GCC unroll 16") for (int p = 0; p < P; ++p) __builtin_prefetch(w + p * panel + (k + AHEAD) * PANEL);
    }
    const auto factor = [&](int c) __attribute__((always_inline)) {
      return widened(w + (c / PANEL_VECTORS) * panel + k * PANEL + (c % PANEL_VECTORS) * FG_WIDE);
    };
    // Registers hold the sums and the fewer of both factors.
    if constexpr (R < N) {
      decltype(spread(x, 0, x_row, k, depth)) a[R];
      _Pragma("GCC unroll 16") for (int r = 0; r < R; ++r) a[r] = spread(x, r, x_row, k, depth);
      _Pragma("GCC unroll 16") for (int c = 0; c < N; ++c) {
        auto b = factor(c);
        if constexpr (R > 1) hold(b);
        _Pragma("GCC unroll 16") for (int r = 0; r < R; ++r) sum[r][c] = multiply(a[r], b, sum[r][c]);
      }
    } else {
      decltype(factor(0)) b[N];
      _Pragma("GCC unroll 16") for (int c = 0; c < N; ++c) hold(b[c] = factor(c));
      _Pragma("GCC unroll 16") for (int r = 0; r < R; ++r) {
        const auto a = spread(x, r, x_row, k, depth);
        _Pragma("GCC unroll 16") for (int c = 0; c < N; ++c) sum[r][c] = multiply(a, b[c], sum[r][c]);
      }
    }
  }
  _Pragma("GCC unroll 16") for (int r = 0; r < R; ++r) {
    _Pragma("GCC unroll 16") for (int c = 0; c < N; ++c) {
      *(lane_vector_unaligned*)(out + r * out_row + c * FG_WIDE) = sum[r][c];
    }
  }
}

// The last panel, of which only `columns` are the result's: by way of a tile that has room for all.
template <int R, class X, class W>
__attribute__((noinline)) void product_edge(X x, int64_t x_row, const W* w, float* out, int64_t out_row,
                                            int64_t depth, int64_t columns, bool first) {
  float tile[R * PANEL];
  for (int r = 0; r < R && !first; ++r) {
    for (int64_t c = 0; c < PANEL; ++c) tile[r * PANEL + c] = c < columns ? out[r * out_row + c] : 0;
  }
  product_tile<R, 1>(x, x_row, w, 0, tile, PANEL, depth, first);
  for (int r = 0; r < R; ++r) {
    for (int64_t c = 0; c < columns; ++c) out[r * out_row + c] = tile[r * PANEL + c];
  }
}

constexpr int panels_of(int rows) {
  const int most = TILE_VECTORS / (rows * PANEL_VECTORS);
  return most < 1 ? 1 : most > 8 ? 8 : most;
}

// Elements of a block of panels that several tiles read.
template <class W> struct wide_of { typedef float type; };
template <> struct wide_of<int8_pair> { typedef bf16_pair type; };

template <int P, class W>
INLINE void widen_panels(typename wide_of<W>::type* to, const W* w, int64_t panel, int64_t depth) {
  for (int p = 0; p < P; ++p) {
    for (int64_t e = 0; e < elements_of<W>(depth) * PANEL; e += FG_WIDE, to += FG_WIDE) {
      const W* const from = w + p * panel + e;
      __builtin_prefetch(from + AHEAD * PANEL);
      const auto some = widened(from);
      __builtin_memcpy(to, &some, sizeof(some));
    }
  }
}

// Tiles of R rows, `tiles` of them, for the columns of P panels (or fewer: the last panel's `columns`).
template <int R, int P, class X, class W>
INLINE void product_column(int64_t tiles, X x, int64_t x_row, const W* w, int64_t panel, float* out,
                           int64_t out_row, int64_t depth, int64_t columns, bool first) {
  for (int64_t t = 0; t < tiles; ++t, x = x + R * row_step(x, x_row), out += R * out_row) {
    if (columns >= P * PANEL) product_tile<R, P>(x, x_row, w, panel, out, out_row, depth, first);
    else product_edge<R>(x, x_row, w, out, out_row, depth, columns, first);
  }
}
// Whether elements of W are converted before the product.
template <class W> constexpr bool is_converted = true;
template <> constexpr bool is_converted<float> = false;
template <> constexpr bool is_converted<bf16_pair> = false;

// The same; narrow elements are widened once for all tiles.
template <int R, int P, class X, class W>
INLINE void product_widened(int64_t tiles, X x, int64_t x_row, const W* w, int64_t panel, float* out,
                            int64_t out_row, int64_t depth, int64_t columns, bool first) {
  if constexpr (is_converted<W> && 2 * R > TILE_ROWS) {  // lower tiles are alone
    if (tiles > 3) {
      typedef typename wide_of<W>::type wide_type;
      alignas(64) wide_type wide[P * elements_of<W>(DEPTH<W>) * PANEL];
      widen_panels<P>(wide, w, panel, depth);
      product_column<R, P>(tiles, x, x_row, (const wide_type*)wide, elements_of<W>(depth) * PANEL, out, out_row, depth,
                           columns, first);
      return;
    }
  }
  product_column<R, P>(tiles, x, x_row, w, panel, out, out_row, depth, columns, first);
}

// Panels of the next narrower tile.
constexpr int fewer_panels(int panels) { return panels > 4 ? 4 : panels > 2 ? 2 : 1; }

// Tiles of R rows, `tiles` of them, for the columns [0, columns). What is left beside tiles of P panels is for narrower
// ones: a tile of one panel would have each sum wait for the one before.
template <int R, int P = panels_of(R), class X, class W>
void product_tiles(int64_t tiles, X x, int64_t x_row, const W* w, int64_t panel, float* out, int64_t out_row,
                   int64_t depth, int64_t columns, bool first) {
  while (columns >= P * PANEL || (P == 1 && columns > 0)) {
    product_widened<R, P>(tiles, x, x_row, w, panel, out, out_row, depth, columns, first);
    w += P * panel, out += P * PANEL, columns -= P * PANEL;
  }
  if constexpr (P > 1) {
    product_tiles<R, fewer_panels(P)>(tiles, x, x_row, w, panel, out, out_row, depth, columns, first);
  }
}

// The same for tiles of a height that is known when the code runs.
template <int R, class... Args> INLINE void tiles_of(int64_t height, Args... args) {
  if (height == R) product_tiles<R>(args...);
  else if constexpr (R > 1) tiles_of<R - 1>(height, args...);
}

// In tiles of about equal height.
template <class X, class W>
void rows_by_tiles(int64_t rows, X x, int64_t x_row, const W* w, int64_t panel, float* out, int64_t out_row, int64_t depth,
                   int64_t columns, bool first) {
  const int64_t tiles = (rows + TILE_ROWS - 1) / TILE_ROWS, height = (rows + tiles - 1) / tiles;
  const int64_t whole = rows / height, last = rows - whole * height;
  tiles_of<TILE_ROWS>(height, whole, x, x_row, w, panel, out, out_row, depth, columns, first);
  if (last > 0) {
    tiles_of<TILE_ROWS>(last, (int64_t)1, x + whole * height * row_step(x, x_row), x_row, w, panel, out + whole * height * out_row,
                        out_row, depth, columns, first);
  }
}

template <class W>
void product_rows(int64_t rows, const matrix_of<W>* x, int64_t x_row, const W* w, int64_t panel, float* out,
                  int64_t out_row, int64_t depth, int64_t columns, bool first) {
  rows_by_tiles(rows, x, x_row, w, panel, out, out_row, depth, columns, first);
}

// multiply: as product_rows.
template <class W, class F>
INLINE void product_by(const Product<W>& p, const Reader& reader, int64_t begin, int64_t end, F multiply) {
  const int64_t down = (p.rows + p.block_rows - 1) / p.block_rows;
  const bool alone = reader.run != nullptr && reader.result != nullptr;
  void** results[MOST_BESIDE] = {reader.result};
  int64_t count = 1;
  for (const Product<W>* q = p.beside; q != nullptr; q = q->beside) results[count++] = q->result;
  const int64_t room = alone ? count * BLOCK_ELEMENTS * sizeof(float) : 1;
  float* const block = (float*)__builtin_alloca_with_align(room, 512);
  const auto multiplied = [&](const Product<W>& q, int64_t row, int64_t column, int64_t rows, int64_t columns, float* out,
                              int64_t out_row) {
    const int64_t panel = elements_of<W>(q.depth) * PANEL;
    for (int64_t k = 0; k < q.depth; k += DEPTH<W>) {
      const matrix_of<W>* const x = q.x + row * q.x_row + k;
      const W* const w = q.w + column / PANEL * panel + elements_of<W>(k) * PANEL;
      multiply(rows, x, q.x_row, w, panel, out, out_row, min(DEPTH<W>, q.depth - k), columns, k == 0);
    }
  };
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t row = unit % down * p.block_rows, column = unit / down * p.block_columns;
    const int64_t rows = min(p.block_rows, p.rows - row), columns = min(p.block_columns, p.columns - column);
    if (!alone) {
      multiplied(p, row, column, rows, columns, p.out + row * p.columns + column, p.columns);
    } else {
      const Product<W>* q = &p;
      for (int64_t n = 0; n < count; ++n, q = q->beside) {
        multiplied(*q, row, column, rows, columns, block + n * BLOCK_ELEMENTS, columns);
      }
    }
    if (alone) read_blocks_of(block, results, count, reader, p.columns, row, row + rows, column, column + columns);
    else if (reader.run != nullptr) read_block(reader, p.columns, row, row + rows, column, column + columns);
  }
}

template <class W> void product(const Product<W>& p, const Reader& reader, int64_t begin, int64_t end) {
  product_by(p, reader, begin, end, product_rows<W>);
}

}  // namespace fg
