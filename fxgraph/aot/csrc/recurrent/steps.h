// The kernels of one instruction set; its file defines ISA and BYTES, the size of a vector, and includes this one.
// No other header may stand behind the file's target pragma: inline functions of another would be compiled for it.
#include "kernels.h"

#define INLINE inline __attribute__((always_inline))
#define APART __attribute__((noinline))  // compiled once, not for each number of rows

namespace framegraph::recurrent::ISA {
namespace {

constexpr int REGISTERS = BYTES == 64 ? 32 : 16;

template <class T> struct Types;
template <> struct Types<float> {
  typedef float V __attribute__((vector_size(BYTES)));
  typedef uint32_t Bits;
  typedef Bits I __attribute__((vector_size(BYTES)));
  static constexpr float magic = 12582912.0f, log2e = 1.44269504f, ln2_high = 0.693145751953125f,
                         ln2_low = 1.42860677e-6f, limit = 87.0f;
  static constexpr int mantissa = 23, bias = 127, terms = 7;
};
template <> struct Types<double> {
  typedef double V __attribute__((vector_size(BYTES)));
  typedef uint64_t Bits;
  typedef Bits I __attribute__((vector_size(BYTES)));
  static constexpr double magic = 6755399441055744.0, log2e = 1.4426950408889634,
                          ln2_high = 0.693147180369123816490, ln2_low = 1.90821492927058770002e-10, limit = 700.0;
  static constexpr int mantissa = 52, bias = 1023, terms = 13;
};

template <class T> using Vec = typename Types<T>::V;
template <class T> constexpr int lanes = BYTES / sizeof(T);

template <class T> INLINE Vec<T> all(T x) { return x - Vec<T>{}; }

// Keeps a value that several operations take in a register; compilers would rather load it for each.
template <class V> INLINE void keep(V& v) {
#if defined(__x86_64__)
  asm("" : "+v"(v));
#elif defined(__aarch64__)
  asm("" : "+w"(v));
#endif
}

template <class T> INLINE Vec<T> load(const T* p, int64_t n) {
  Vec<T> v{};
  if (n >= lanes<T>) __builtin_memcpy(&v, p, BYTES);
  else for (int64_t l = 0; l < n; ++l) v[l] = p[l];
  return v;
}
template <class T> INLINE void store(T* p, Vec<T> v, int64_t n) {
  if (n >= lanes<T>) __builtin_memcpy(p, &v, BYTES);
  else for (int64_t l = 0; l < n; ++l) p[l] = v[l];
}

// --- functions: NaN stays, and an overflow ends at the limit --------------------------------------

// x, or the limit where x is above it, or with `below` where it is below. Compilers would compare and choose.
template <bool below = false, class T> INLINE Vec<T> limited(Vec<T> x, T limit) {
  const Vec<T> end = all<T>(limit);
#if defined(__x86_64__)
  if constexpr (BYTES >= 32) {
    constexpr bool single = sizeof(T) == 4;
    Vec<T> y;
    if constexpr (below && single) asm("vmaxps %1, %2, %0" : "=v"(y) : "v"(x), "v"(end));
    else if constexpr (below) asm("vmaxpd %1, %2, %0" : "=v"(y) : "v"(x), "v"(end));
    else if constexpr (single) asm("vminps %1, %2, %0" : "=v"(y) : "v"(x), "v"(end));
    else asm("vminpd %1, %2, %0" : "=v"(y) : "v"(x), "v"(end));
    return y;
  }
#endif
  if constexpr (below) return x < end ? end : x;
  else return x > end ? end : x;
}

// exp(x) - 1 = scale (1 + p) - 1 with x = n ln2 + r, scale = 2^n, p = exp(r) - 1 by its series; x: within the limits
template <class T> INLINE void exp_parts(Vec<T> x, Vec<T>& scale, Vec<T>& p) {
  typedef Types<T> C;
  Vec<T> shifted = x * C::log2e + C::magic, n = shifted - C::magic;
  Vec<T> r = x - n * C::ln2_high;
  r = r - n * C::ln2_low;
  T factorial[C::terms + 1] = {1};
  for (int i = 1; i <= C::terms; ++i) factorial[i] = factorial[i - 1] * i;
  Vec<T> q = all<T>(T(1) / factorial[C::terms]);
  for (int i = C::terms - 1; i >= 2; --i) q = q * r + T(1) / factorial[i];
  p = q * (r * r) + r;
  scale = (Vec<T>)(((typename C::I)shifted << C::mantissa) + (((typename C::I){} + C::bias) << C::mantissa));
}

// a / b of a normal b, in float by AVX-512 to within its last two places: an eighth of the time of a division.
template <class T> INLINE Vec<T> quotient(Vec<T> a, Vec<T> b) {
#if defined(__x86_64__)
  if constexpr (BYTES == 64 && sizeof(T) == 4) {
    Vec<T> y;
    asm("vrcp14ps %1, %0" : "=v"(y) : "v"(b));
    Vec<T> q = a * y;
    return q + y * (a - q * b);
  }
#endif
  return a / b;
}

template <class T> INLINE Vec<T> sigmoid(Vec<T> x) {
  Vec<T> scale, p;
  exp_parts<T>(limited<true>(limited(-x, Types<T>::limit), -Types<T>::limit), scale, p);
  return quotient<T>(all<T>(T(1)), T(1) + (scale + scale * p));
}

// e / (e + 2) with e = exp(2 |x|) - 1: exact in its last places near 0, too
template <class T> INLINE Vec<T> tanh(Vec<T> x) {
  typedef typename Types<T>::I I;
  const I sign = I{} + (typename Types<T>::Bits(1) << (8 * sizeof(T) - 1));
  Vec<T> scale, p, positive = limited((Vec<T>)((I)x & ~sign), T(20));
  exp_parts<T>(positive * T(2), scale, p);
  Vec<T> e = (scale - T(1)) + scale * p;
  return (Vec<T>)((I)quotient<T>(e, e + T(2)) | ((I)x & sign));
}

template <class T> INLINE Vec<T> relu(Vec<T> x) { return x <= T(0) ? Vec<T>{} : x; }

// The elements of two vectors in turn: those of their first halves, or of their second ones.
template <bool second, class V> INLINE V in_turn(V a, V b) {
  constexpr int W = BYTES / sizeof(a[0]), h = second ? W / 2 : 0;
  if constexpr (W == 2) return __builtin_shufflevector(a, b, h, W + h);
  else if constexpr (W == 4) return __builtin_shufflevector(a, b, h, W + h, h + 1, W + h + 1);
  else if constexpr (W == 8)
    return __builtin_shufflevector(a, b, h, W + h, h + 1, W + h + 1, h + 2, W + h + 2, h + 3, W + h + 3);
  else
    return __builtin_shufflevector(a, b, h, W + h, h + 1, W + h + 1, h + 2, W + h + 2, h + 3, W + h + 3, h + 4,
                                   W + h + 4, h + 5, W + h + 5, h + 6, W + h + 6, h + 7, W + h + 7);
}

// A square of elements turned over: log2(lanes) times the rows of both halves in turn.
template <class T> INLINE void transpose(Vec<T> (&rows)[lanes<T>]) {
  constexpr int W = lanes<T>;
#pragma GCC unroll 4
  for (int done = 1; done < W; done *= 2) {
    Vec<T> next[W];
#pragma GCC unroll 8
    for (int i = 0; i < W / 2; ++i) {
      next[2 * i] = in_turn<false>(rows[i], rows[i + W / 2]);
      next[2 * i + 1] = in_turn<true>(rows[i], rows[i + W / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < W; ++i) rows[i] = next[i];
  }
}

// --- products ------------------------------------------------------------------------------------

// How many vectors side by side one block has: all gates of one vector of columns, or two vectors of columns.
constexpr int vectors(Kind kind) { return kind == LSTM ? 4 : kind == GRU ? 3 : 2; }
constexpr int units(Kind kind) { return kind == LSTM || kind == GRU ? 1 : 2; }
constexpr int TILES = 4;                     // of rows whose sums are kept at a time
constexpr int64_t FIRST_CACHE = 24 << 10;  // bytes of columns for these
constexpr int most_rows(int vectors) { return (REGISTERS == 32 ? 24 : 12) / vectors; }

// The fewer of a step's rows and columns stay in registers beside the sums, and one of the others at a time.
template <class T, int M, int N>
INLINE void product(const T* a, int64_t a_row, const T* w, int64_t k, Vec<T>* sum, bool more) {
  Vec<T> acc[M][N] = {};
  if (more)
#pragma GCC unroll 12
    for (int m = 0; m < M; ++m)
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) acc[m][n] = sum[m * N + n];
  const Vec<T>* b = (const Vec<T>*)w;
  for (int64_t i = 0; i < k; ++i, b += N)
    if constexpr (M <= N) {
      Vec<T> x[M];
#pragma GCC unroll 12
      for (int m = 0; m < M; ++m) x[m] = all<T>(a[m * a_row + i]);
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) {
        Vec<T> y = b[n];
        keep(y);
#pragma GCC unroll 12
        for (int m = 0; m < M; ++m) acc[m][n] += x[m] * y;
      }
    } else {
      Vec<T> y[N];
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) keep(y[n] = b[n]);
#pragma GCC unroll 12
      for (int m = 0; m < M; ++m) {
        Vec<T> x = all<T>(a[m * a_row + i]);
        keep(x);
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) acc[m][n] += x * y[n];
      }
    }
#pragma GCC unroll 12
  for (int m = 0; m < M; ++m)
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) sum[m * N + n] = acc[m][n];
}

template <int M, class T, int N>
INLINE void product_rows(const T* a, int64_t a_row, const T* w, int64_t k, Vec<T>* sum, int64_t rows, bool more) {
  if (rows == M) return product<T, M, N>(a, a_row, w, k, sum, more);
  if constexpr (M > 1) product_rows<M - 1, T, N>(a, a_row, w, k, sum, rows, more);
}

// A tile: its rows' products with a part of a block of packed columns. more: added to the sums of the parts before.
template <int N, class T>
APART void tile(const T* a, int64_t a_row, const T* w, int64_t k, Vec<T>* sum, int64_t rows, bool more) {
  product_rows<most_rows(N), T, N>(a, a_row, w, k, sum, rows, more);
}

// The sums of a few tiles, zero without a left side. Each part of the columns, that the first cache has room for, meets
// all of the tiles before the next part.
template <int N, class T>
APART void tiles(const T* a, int64_t a_row, const T* w, int64_t k, Vec<T>* sum, int64_t rows) {
  constexpr int most = most_rows(N);
  if (!a) {
    for (int64_t i = 0; i < rows * N; ++i) sum[i] = Vec<T>{};
    return;
  }
  const int64_t count = (rows + most - 1) / most, parts = count > 1 ? (k * N * BYTES + FIRST_CACHE - 1) / FIRST_CACHE : 1;
  for (int64_t p = 0, from = 0, to; p < parts; ++p, from = to) {
    to = k * (p + 1) / parts;
    for (int64_t i = 0, row = 0, end; i < count; ++i, row = end) {  // of like height
      end = rows * (i + 1) / count;
      tile<N, T>(a + row * a_row + from, a_row, w + from * N * lanes<T>, to - from, sum + row * N, end - row, p > 0);
    }
  }
}

// The same for one row by weights as they are, [gates * columns, k]: dot products, for which packing would not pay.
template <Kind kind, class T>
APART void dot_tile(const T* a, const T* w, int64_t k, int64_t columns, int64_t block, Vec<T>* sum) {
  constexpr int W = lanes<T>, parts = units(kind);
  for (int v = 0; v < vectors(kind); ++v) {
    int64_t j = (block * parts + (parts > 1 ? v : 0)) * W, n = columns - j, i = 0;
    if (n <= 0) break;
    const T* rows[W];
    for (int64_t l = 0; l < W; ++l) rows[l] = w + ((parts > 1 ? 0 : v) * columns + j + (l < n ? l : n - 1)) * k;
    Vec<T> acc[W] = {};
    for (; i + W <= k; i += W) {
      Vec<T> x = load(a + i, W);
#pragma GCC unroll 16
      for (int l = 0; l < W; ++l) acc[l] += x * load(rows[l] + i, W);
    }
    if (i < k) {
      Vec<T> x = load(a + i, k - i);
      for (int l = 0; l < W; ++l) acc[l] += x * load(rows[l] + i, k - i);
    }
    transpose<T>(acc);
    sum[v] = Vec<T>{};
    for (int l = 0; l < W; ++l) sum[v] += acc[l];
  }
}

// finish(sums, row, block) for each tile and row of a part
template <int N, class T, class F>
INLINE void by_tiles(const T* a, int64_t a_row, const T* packed, int64_t k, const Part& part, const F& finish) {
  constexpr int most = TILES * most_rows(N);
  Vec<T> sum[most * N];
  for (int64_t block = part.block; block < part.block_end; ++block)
    for (int64_t row = part.row, rows; row < part.row_end; row += rows) {
      rows = part.row_end - row < most ? part.row_end - row : most;
      tiles<N, T>(a ? a + row * a_row : a, a_row, packed + block * k * N * lanes<T>, k, sum, rows);
      for (int64_t i = 0; i < rows; ++i) finish(sum + i * N, row + i, block);
    }
}

// f(number of the vector, its first column, how many columns it has) over the columns of a block; compiled apart for
// vectors that are full
template <Kind kind, class T, class F> INLINE void by_units(int64_t block, int64_t columns, const F& f) {
  for (int u = 0; u < units(kind); ++u) {
    int64_t j = (block * units(kind) + u) * lanes<T>;
    if (j + lanes<T> <= columns) f(u, j, lanes<T>);
    else if (j < columns) f(u, j, columns - j);
  }
}

// --- forward -------------------------------------------------------------------------------------

template <class T> INLINE void lstm_cell(const Forward<T>& f, const Vec<T>* sum, const T* in, T* gates, const T* c0, T* c,
                                         T* h, int64_t j, int64_t n) {
  Vec<T> g[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    g[i] = load(in + i * f.hidden + j, n) + sum[i] + load(f.bias + i * f.hidden + j, n);
    g[i] = i == 2 ? tanh<T>(g[i]) : sigmoid<T>(g[i]);
    if (f.save) store(gates + i * f.hidden + j, g[i], n);
  }
  Vec<T> cell = g[1] * load(c0 + j, n) + g[0] * g[2];
  store(c + j, cell, n);
  store(h + j, g[3] * tanh<T>(cell), n);
}

template <class T> INLINE void gru_cell(const Forward<T>& f, const Vec<T>* sum, const T* in, T* gates, const T* h0, T* h,
                                        int64_t j, int64_t n) {
  int64_t size = f.hidden;
  Vec<T> r = sigmoid<T>(load(in + j, n) + sum[0] + load(f.bias + j, n));
  Vec<T> z = sigmoid<T>(load(in + size + j, n) + sum[1] + load(f.bias + size + j, n));
  Vec<T> hn = sum[2] + load(f.bias + 2 * size + j, n);
  Vec<T> nn = tanh<T>(load(in + 2 * size + j, n) + r * hn);
  if (f.save) {
    store(gates + j, r, n);
    store(gates + size + j, z, n);
    store(gates + 2 * size + j, nn, n);
    store(gates + 3 * size + j, hn, n);
  }
  store(h + j, (load(h0 + j, n) - nn) * z + nn, n);
}

template <Kind kind, class T> void forward_of(const Forward<T>& f, int64_t t, int64_t before, const Part& part) {
  const T* h0 = before < 0 ? f.h0 : f.y + before * f.batch * f.state;
  const T* c0 = before < 0 ? f.c0 : f.cells + before * f.cell_time;
  auto finish = [&](const Vec<T>* sum, int64_t r, int64_t block) {
    int64_t at = t * f.batch + r;
    const T* in = f.inputs + (t - f.input_begin) * f.input_time + r * f.input_row;
    T* gates = f.save ? f.gates + t * f.gate_time + r * f.gate_row : nullptr;
    T* h = f.full ? f.full + r * f.hidden : f.y + at * f.hidden;
    by_units<kind, T>(block, f.hidden, [&](int u, int64_t j, int64_t n) __attribute__((always_inline)) {
      if constexpr (kind == LSTM)
        lstm_cell<T>(f, sum, in, gates, c0 + r * f.hidden, f.cells + t * f.cell_time + r * f.hidden, h, j, n);
      else if constexpr (kind == GRU)
        gru_cell<T>(f, sum, in, gates, h0 + r * f.hidden, h, j, n);
      else {
        Vec<T> x = load(in + j, n) + sum[u] + load(f.bias + j, n);
        store(h + j, kind == TANH ? tanh<T>(x) : relu<T>(x), n);
      }
    });
  };
  if (f.packed) return by_tiles<vectors(kind), T>(h0, f.state, f.packed, f.state, part, finish);
  Vec<T> sum[vectors(kind)];
  for (int64_t block = part.block; block < part.block_end; ++block) {
    dot_tile<kind, T>(h0, f.weights, f.state, f.hidden, block, sum);
    finish(sum, 0, block);
  }
}

template <class T> void forward(const Forward<T>& f, int64_t t, int64_t before, Part part) {
  switch (f.kind) {
    case TANH: return forward_of<TANH, T>(f, t, before, part);
    case RELU: return forward_of<RELU, T>(f, t, before, part);
    case LSTM: return forward_of<LSTM, T>(f, t, before, part);
    case GRU: return forward_of<GRU, T>(f, t, before, part);
  }
}

// The rows of all steps at once where they have one distance, else those of a step, or the steps of a row.
template <Kind kind, class T> void inputs_of(const Inputs<T>& p, const Part& part) {
  const int64_t rows = part.row_end - part.row, gates = gate_count(kind);
  const bool even = p.x_time == rows * p.x_row && p.out_time == rows * p.out_row, by_row = even || rows >= p.steps;
  const int64_t inner = even ? rows * p.steps : by_row ? rows : p.steps, outer = even ? 1 : by_row ? p.steps : rows;
  const int64_t x_inner = by_row ? p.x_row : p.x_time, x_outer = by_row ? p.x_time : p.x_row;
  const int64_t out_inner = by_row ? p.out_row : p.out_time, out_outer = by_row ? p.out_time : p.out_row;
  for (int64_t block = part.block; block < part.block_end; ++block)
    for (int64_t i = 0; i < outer; ++i) {
      const T* x = p.x + part.row * p.x_row + i * x_outer;
      T* out = p.out + part.row * p.out_row + i * out_outer;
      by_tiles<vectors(kind), T>(x, x_inner, p.packed, p.k, {0, inner, block, block + 1},
                                 [&](const Vec<T>* sum, int64_t r, int64_t) {
        by_units<kind, T>(block, p.hidden, [&](int u, int64_t j, int64_t n) __attribute__((always_inline)) {
          for (int64_t g = 0; g < gates; ++g) {
            const int64_t column = g * p.hidden + j;
            store(out + r * out_inner + column, sum[gates == 1 ? u : g] + load(p.bias + column, n), n);
          }
        });
      });
    }
}

template <class T> void inputs(const Inputs<T>& p, Kind kind, Part part) {
  switch (kind) {
    case TANH:
    case RELU: return inputs_of<TANH, T>(p, part);
    case LSTM: return inputs_of<LSTM, T>(p, part);
    case GRU: return inputs_of<GRU, T>(p, part);
  }
}

// --- backward ------------------------------------------------------------------------------------

template <class T> INLINE void lstm_gradient(const Backward<T>& b, Vec<T> dh, int64_t at, T* out, const T* gates,
                                             const T* c0, T* carry, int64_t j, int64_t n) {
  Vec<T> i = load(gates, n), f = load(gates + b.hidden, n), g = load(gates + 2 * b.hidden, n);
  Vec<T> o = load(gates + 3 * b.hidden, n), c = tanh<T>(load(b.cells + at * b.hidden + j, n));
  Vec<T> dc = dh * o * (T(1) - c * c) + load(carry + j, n);
  store(out, dc * g * i * (T(1) - i), n);
  store(out + b.hidden, dc * load(c0 + j, n) * f * (T(1) - f), n);
  store(out + 2 * b.hidden, dc * i * (T(1) - g * g), n);
  store(out + 3 * b.hidden, dh * c * o * (T(1) - o), n);
  store(carry + j, dc * f, n);
}

// Gradients in the order n (of the input), r, z, n (of h): the product takes the last three, as the weights have them.
template <class T> INLINE void gru_gradient(const Backward<T>& b, Vec<T> dh, T* out, const T* gates, const T* h0,
                                            T* carry, int64_t j, int64_t n) {
  Vec<T> r = load(gates, n), z = load(gates + b.hidden, n), nn = load(gates + 2 * b.hidden, n);
  Vec<T> hn = load(gates + 3 * b.hidden, n);
  Vec<T> dn = dh * (T(1) - z) * (T(1) - nn * nn);
  store(out, dn, n);
  store(out + b.hidden, dn * hn * r * (T(1) - r), n);
  store(out + 2 * b.hidden, dh * (load(h0 + j, n) - nn) * z * (T(1) - z), n);
  store(out + 3 * b.hidden, dn * r, n);
  store(carry + j, dh * z, n);
}

template <Kind kind, class T>
void backward_of(const Backward<T>& b, int64_t t, int64_t before, const T* a, bool last, const Part& part) {
  const T* h0 = before < 0 ? b.h0 : b.y + before * b.batch * b.state;
  const T* c0 = before < 0 ? b.c0 : b.cells + before * b.batch * b.hidden;
  by_tiles<2, T>(a, b.given_row, b.packed, b.given, part, [&](const Vec<T>* sum, int64_t r, int64_t block) {
    int64_t at = t * b.batch + r;
    T* carry = b.carry + r * b.hidden;
    by_units<TANH, T>(block, b.hidden, [&](int u, int64_t j, int64_t n) __attribute__((always_inline)) {
      Vec<T> dh = sum[u];
      if (b.dy) dh += load(b.dy + at * b.hidden + j, n);
      if (last && b.dh) dh += load(b.dh + r * b.hidden + j, n);
      const T* gates = b.gates + t * b.gate_time + r * 4 * b.hidden + j;
      T* out = b.dgates + r * b.dgate_row + j;
      if constexpr (kind == LSTM)
        lstm_gradient<T>(b, dh, at, out, gates, c0 + r * b.hidden, carry, j, n);
      else if constexpr (kind == GRU) {
        if (!last) dh += load(carry + j, n);
        gru_gradient<T>(b, dh, out, gates, h0 + r * b.hidden, carry, j, n);
      } else {
        Vec<T> y = load(b.y + at * b.hidden + j, n);
        store(out, kind == TANH ? dh * (T(1) - y * y) : y <= T(0) ? Vec<T>{} : dh, n);
      }
    });
  });
}

template <class T> void backward(const Backward<T>& b, int64_t t, int64_t before, const T* a, bool last, Part part) {
  switch (b.kind) {
    case TANH: return backward_of<TANH, T>(b, t, before, a, last, part);
    case RELU: return backward_of<RELU, T>(b, t, before, a, last, part);
    case LSTM: return backward_of<LSTM, T>(b, t, before, a, last, part);
    case GRU: return backward_of<GRU, T>(b, t, before, a, last, part);
  }
}

template <class T> void plain_product(const Product<T>& p, Part part) {
  by_tiles<2, T>(p.a, p.a_row, p.packed, p.k, part, [&](const Vec<T>* sum, int64_t row, int64_t block) {
    int64_t at = row * p.columns;
    by_units<TANH, T>(block, p.columns, [&](int u, int64_t j, int64_t n) __attribute__((always_inline)) {
      Vec<T> y = sum[u];
      if (p.one) y += load(p.one + at + j, n);
      if (p.two) y += load(p.two + at + j, n);
      store(p.out + at + j, y, n);
    });
  });
}

// --- packing -------------------------------------------------------------------------------------

// `load` of T, or for float of bfloat16 by its bits, which are the upper half of a float's.
template <class T> INLINE Vec<T> load_wide(const T* p, int64_t n) { return load(p, n); }
template <class T> INLINE T wide(T x) { return x; }
template <class T> INLINE Vec<T> load_wide(const uint16_t* p, int64_t n) {
  typedef uint16_t Narrow __attribute__((vector_size(BYTES / 2)));
  Narrow v{};
  if (n >= lanes<T>) __builtin_memcpy(&v, p, sizeof v);
  else for (int64_t l = 0; l < n; ++l) v[l] = p[l];
  return (Vec<T>)(__builtin_convertvector(v, typename Types<T>::I) << 16);
}
template <class T> INLINE T wide(uint16_t x) {
  const uint32_t bits = uint32_t(x) << 16;
  T result;
  __builtin_memcpy(&result, &bits, sizeof result);
  return result;
}

// One vector of columns, n of which there are, over all rows.
template <class T, class S>
APART void pack_columns(const Packing<T, S>& p, const S* source, T* packed, int64_t size, int64_t n) {
  constexpr int W = lanes<T>;
  int64_t k = 0;
  if (p.column == 1)
    for (; k < p.rows; ++k) store(packed + k * size, load_wide<T>(source + k * p.row, n), W);
  else if (p.row == 1 && n >= W)
    for (; k + W <= p.rows; k += W) {
      Vec<T> square[W];
      for (int l = 0; l < W; ++l) square[l] = load_wide<T>(source + l * p.column + k, W);
      transpose<T>(square);
      for (int l = 0; l < W; ++l) store(packed + (k + l) * size, square[l], W);
    }
  for (; k < p.rows; ++k)
    for (int64_t l = 0; l < W; ++l) packed[k * size + l] = l < n ? wide<T>(source[k * p.row + l * p.column]) : T(0);
}

template <class T, class S> void pack(const Packing<T, S>& p, Kind kind, int64_t block, int64_t end) {
  const int64_t gates = gate_count(kind), parts = units(kind), size = gates * parts * lanes<T>;
  for (; block < end; ++block)
    for (int64_t v = 0; v < gates * parts; ++v) {
      int64_t j = (block * parts + (parts > 1 ? v : 0)) * lanes<T>, n = p.columns - j;
      const S* source = p.source + j * p.column + (parts > 1 ? 0 : v) * p.gate;
      pack_columns<T, S>(p, source, p.packed + block * p.rows * size + v * lanes<T>, size, n < 0 ? 0 : n);
    }
}

template <class T> int64_t width(Kind kind) { return units(kind) * lanes<T>; }

}  // namespace

const Kernels<float> float_kernels = {width<float>,  pack<float, float>, pack<float, uint16_t>,
                                      inputs<float>, forward<float>,     backward<float>,
                                      plain_product<float>};
const Kernels<double> double_kernels = {width<double>,  pack<double, double>, nullptr,
                                        inputs<double>, forward<double>,      backward<double>,
                                        plain_product<double>};

}  // namespace framegraph::recurrent::ISA
