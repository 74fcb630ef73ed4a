// Keys come chunk by chunk, without those that a mask hides from a whole block of queries: those of a chunk and their values
// lie in panels (product.h) on the stack, the scores of a block of queries in the cache. The largest score of a row and the sum of its exponentials are kept as chunks go by;
// where a chunk brings a larger score, the row of the result so far is scaled down. Few queries, of all heads that share
// their keys, read keys and values as they lie.
// Queries, keys and values of bf16 are multiplied by pairs, with weights that are rounded to bf16; the sums of values are of
// float until their end.
#pragma once
#include "attention.h"

namespace fg {

constexpr int64_t CHUNK = 256;  // keys
template <class T> struct panel_of { typedef float type; };
template <> struct panel_of<bf16> { typedef bf16_pair type; };

// keys in panels: [key / PANEL][element][PANEL keys]
INLINE void pack_keys(float* to, const float* k, int64_t row, int64_t keys, int64_t size) {
  for (int64_t j = 0; j < keys; j += PANEL, to += PANEL * size) {
    for (int64_t c = 0; c < PANEL; c += FG_WIDE) {
      const int64_t here = min(keys - j - c, (int64_t)FG_WIDE);
      for (int64_t e = 0; e < size; e += FG_WIDE) {
        const int64_t elements = min(size - e, (int64_t)FG_WIDE);
        lane_vector tile[FG_WIDE];
        for (int l = 0; l < FG_WIDE; ++l) tile[l] = lane_vector{};
        const float* const from = k + (j + c) * row + e;
        if (here == FG_WIDE && elements == FG_WIDE) wide::load_tile(tile, from, row, Full{}, Full{});
        else if (here > 0) wide::load_tile(tile, from, row, Part{here}, Part{elements});
        for (int64_t l = 0; l < elements; ++l) *(lane_vector_unaligned*)(to + (e + l) * PANEL + c) = tile[l];
      }
    }
  }
}
// Two elements of a key are moved as one float.
INLINE void pack_keys(bf16_pair* to, const bf16* k, int64_t row, int64_t keys, int64_t size) {
  const int64_t pairs = size / 2;
  if (size % 2 == 0 && row % 2 == 0) return pack_keys((float*)to, (const float*)k, row / 2, keys, pairs);
  for (int64_t j = 0; j < keys; j += PANEL) {
    for (int64_t e = 0; e < size; e += 2, to += PANEL) {
      for (int64_t c = 0; c < PANEL; ++c) {
        const bf16* const from = k + (j + c) * row + e;
        to[c].even = j + c < keys ? from[0] : bf16{};
        to[c].odd = j + c < keys && e + 1 < size ? from[1] : bf16{};
      }
    }
  }
}

// values in panels: [element / PANEL][key][PANEL elements]
INLINE void pack_values(float* to, const float* v, int64_t row, int64_t keys, int64_t size) {
  for (int64_t e = 0; e < size; e += PANEL) {
    const int64_t elements = min(size - e, (int64_t)PANEL);
    for (int64_t j = 0; j < keys; ++j, to += PANEL) {
      const float* const from = v + j * row + e;
      if (elements == PANEL) __builtin_memcpy(to, from, PANEL * sizeof(float));
      else for (int64_t c = 0; c < PANEL; ++c) to[c] = c < elements ? from[c] : 0;
    }
  }
}
INLINE void pack_values(bf16_pair* to, const bf16* v, int64_t row, int64_t keys, int64_t size) {
  using namespace wide;
  for (int64_t e = 0; e < size; e += PANEL) {
    for (int64_t j = 0; j < keys; j += 2, to += PANEL) {
      const bf16 *const even = v + j * row + e, *const odd = even + (j + 1 < keys ? row : 0);
      for (int64_t c = 0; c < PANEL; c += FG_WIDE) {
        const int64_t here = max(min(size - e - c, (int64_t)FG_WIDE), (int64_t)0);
        const auto put = [&](auto lanes) __attribute__((always_inline)) {
          vec<uint32_t> low = (vec<uint32_t>)load(even + c, lanes), high = (vec<uint32_t>)load(odd + c, lanes);
          if (j + 1 == keys) high = vec<uint32_t>{};
          const vec<uint32_t> both = low >> 16 | high;
          __builtin_memcpy(to + c, &both, sizeof both);
        };
        if (here == FG_WIDE) put(Full{});
        else put(Part{here});
      }
    }
  }
}

// The logarithm of the least weight that counts beside the largest, 1: some processors take a hundred times as long for
// denormal numbers, which masks of -100 leave.
constexpr float LEAST = -86.6f;

// NaN in x is left out.
INLINE lane_vector larger(lane_vector x, lane_vector top) {
#if defined(FG_AVX512) && FG_WIDE == 16
  return __builtin_ia32_maxps512_mask(x, top, top, (uint16_t)-1, 4);
#else
  return x > top ? x : top;
#endif
}

// FG_WIDE weights, exponentials of what is not above 0, and their place. For bf16, which has 8 bits of them, 18 are right.
INLINE lane_vector weights_of(lane_vector below, float* to) {
  using namespace wide;
  const lane_vector x = exp(select(lt(below, splat(LEAST)), splat(-__builtin_inff()), below));
  *(lane_vector_unaligned*)to = x;
  return x;
}
INLINE lane_vector weights_of(lane_vector below, bf16* to) {
  using namespace wide;
  const lane_vector rounding = splat(0x1.8p23f), n = fma(below, splat(1.44269504f), rounding) - rounding;
  const lane_vector r = fma(n, splat(-0.693147181f), below);
  lane_vector y = splat(0.0414584018f);
  y = fma(y, r, splat(0.167910308f));
  y = fma(y, r, splat(0.50004369f));
  y = fma(y, r, splat(0.999963343f));
  y = fma(y, r, splat(0.999999285f));
  const lane_vector x = select(lt(below, splat(LEAST)), splat(0.0f), scale(y, n));
#if defined(__AVX512BF16__) && FG_WIDE == 16
  vec<uint16_t> halves;  // no weight is denormal, which the instruction would make 0
  asm("vcvtneps2bf16 %1, %0" : "=v"(halves) : "v"(x));
  raw_store((uint16_t*)to, halves, Full{});
#else
  store(to, x, Full{});
#endif
  return x;
}

// Weights of a row of scores, which are scaled in place; the first `left` of them count, the rest of `all` becomes 0.
// Returns the factor for the row of the result so far.
template <class T>
INLINE float exponentials(float* s, T* weights, int64_t left, int64_t all, float scale, const float* mask,
                          int64_t mask_step, float& largest, float& sum) {
  using namespace wide;
  const lane_vector factor = splat(scale), least = splat(-__builtin_inff());
  const int64_t whole = (all + FG_WIDE - 1) / FG_WIDE * FG_WIDE;
  lane_vector top[2] = {least, least};
  const auto scale_lanes = [&](int64_t j, auto lanes, lane_vector& top) __attribute__((always_inline)) {
    lane_vector x = *(const lane_vector_unaligned*)(s + j) * factor;
    if (mask != nullptr) x = x + (mask_step == 0 ? splat(mask[0]) : load(mask + j, lanes));
    x = keep(lanes, x, least);
    *(lane_vector_unaligned*)(s + j) = x;
    top = larger(x, top);
  };
  int64_t j = 0;
  for (; j + 2 * FG_WIDE <= left; j += 2 * FG_WIDE) scale_lanes(j, Full{}, top[0]), scale_lanes(j + FG_WIDE, Full{}, top[1]);
  if (j + FG_WIDE <= left) scale_lanes(j, Full{}, top[0]), j += FG_WIDE;
  if (j < left) scale_lanes(j, Part{left - j}, top[1]), j += FG_WIDE;
  const int64_t counted = j;
  const auto clear = [&](int64_t from) {
    for (int64_t j = from; j < whole; j += FG_WIDE) __builtin_memset(weights + j, 0, FG_WIDE * sizeof(T));
  };
  const float before = largest;
  largest = fg::maximum(before, max_lanes(larger(top[0], top[1])));
  if (largest == -__builtin_inff()) {  // nothing to attend to as yet
    for (int64_t j = 0; j < left; ++j) if (s[j] != s[j]) sum = s[j];
    clear(0);
    return 1;
  }
  const lane_vector base = splat(largest);
  lane_vector total[2] = {};
  for (j = 0; j + 2 * FG_WIDE <= counted; j += 2 * FG_WIDE) {
    for (int i = 0; i < 2; ++i) {
      const int64_t at = j + i * FG_WIDE;
      total[i] = total[i] + weights_of(*(const lane_vector_unaligned*)(s + at) - base, weights + at);
    }
  }
  if (j < counted) total[0] = total[0] + weights_of(*(const lane_vector_unaligned*)(s + j) - base, weights + j);
  clear(counted);
  const bool nothing = before == -__builtin_inff();  // as yet
  const float shrunk = before == largest ? 1 : nothing ? 0 : fg::exp(before - largest);
  sum = sum * shrunk + sum_lanes(total[0] + total[1]);
  return shrunk;
}

INLINE void multiply_row(float* row, int64_t size, float factor) {
  int64_t e = 0;
  for (; e + FG_WIDE <= size; e += FG_WIDE) {
    lane_vector_unaligned& part = *(lane_vector_unaligned*)(row + e);
    part = part * wide::splat(factor);
  }
  for (; e < size; ++e) row[e] *= factor;
}

// A row function, applied to rows that are elsewhere than its tensor.
template <class T> struct Rows {
  const RowFunction& f;
  void* pointers[MOST_POINTERS];

  explicit Rows(const RowFunction& f) : f(f) {
    for (int i = 0; i < f.count; ++i) pointers[i] = f.pointers[i];
  }
  explicit operator bool() const { return f.run != nullptr; }
  // row[0] stands for the element at `position`.
  void operator()(T* row, int64_t position, int64_t n) {
    pointers[f.slot] = (void*)((uintptr_t)row - (uintptr_t)position * sizeof(T));
    f.run(pointers, position, position + n, f.sizes);
  }
};

// The largest magnitude of some rows; NaN if there is one.
template <class T> INLINE float magnitude(const T* p, int64_t row, int64_t rows, int64_t size) {
  using namespace wide;
  lane_vector top = lane_vector{};
  for (int64_t r = 0; r < rows; ++r) {
    int64_t e = 0;
    for (; e + FG_WIDE <= size; e += FG_WIDE) top = maximum(top, abs(load(p + r * row + e, Full{})));
    if (e < size) top = maximum(top, abs(load(p + r * row + e, Part{size - e})));
  }
  return max_lanes(top);
}

constexpr float FINITE = 1e37f;  // products and sums below overflow nowhere

// Which keys of a chunk no query of a block sees.
template <class T> struct Hidden {
  const Attention<T>& a;
  Rows<bool> visible;
  float queries = 0;  // the largest magnitude

  explicit Hidden(const Attention<T>& a) : a(a), visible(a.visible) {}
  bool known() const { return a.visible.run != nullptr || (a.mask != nullptr && a.keys > CHUNK && a.mask_step[3] == 1); }
  bool exact() const { return a.visible.run != nullptr && a.exact; }

  // Whether hidden keys add nothing: 0 times the values, and no score is NaN.
  bool adds_nothing(const T* k, const T* v, int64_t chunk) const {
    if (!(magnitude(v, a.v_step[2], chunk, a.size) < __builtin_inff())) return false;
    if (exact()) return true;
    return queries * magnitude(k, a.k_step[2], chunk, a.size) * (float)a.size * a.bound < FINITE;
  }

  // position: of the first query's score with the chunk's first key; mask: there.
  bool all(int64_t rows, int64_t position, const float* mask, int64_t chunk) {
    alignas(64) bool row[CHUNK + 8] = {};
    for (int64_t r = 0; r < rows; ++r) {
      uint64_t any = 0;
      if (visible) {
        visible(row, position + r * a.keys, chunk);
        for (int64_t j = 0; j < chunk; j += 8) {
          uint64_t eight;
          __builtin_memcpy(&eight, row + j, 8);
          any |= eight;
        }
      } else {
        const float* const m = mask + r * a.mask_step[2];
        for (int64_t j = 0; j < chunk; ++j) any |= m[j] != -__builtin_inff();
      }
      if (any) return false;
    }
    return true;
  }

  // The same, asked once for all heads of a sequence where they see alike. block: of queries; number: of the chunk.
  bool all(int64_t sequence, int64_t block, int64_t number, int64_t rows, int64_t position, const float* mask,
           int64_t chunk) {
    const int64_t chunks = (a.keys + CHUNK - 1) / CHUNK, at = block * chunks + number;
    if (!a.alike || at >= KNOWN) return all(rows, position, mask, chunk);
    if (sequence != known_sequence) __builtin_memset(known_blocks, 0, KNOWN), known_sequence = sequence;
    if (known_blocks[at] == 0) known_blocks[at] = all(rows, position, mask, chunk) ? 2 : 1;
    return known_blocks[at] == 2;
  }

 private:
  static constexpr int64_t KNOWN = 4096;
  char known_blocks[KNOWN];  // 0: not asked yet
  int64_t known_sequence = -1;
};

// The row of the result, from the sum of values by weights whose sum is not 1 yet. empty: nothing was written to it.
template <class T> INLINE void finish_row(const Attention<T>& a, float* row, float sum, bool empty) {
  if (empty) __builtin_memset(row, 0, a.size * sizeof(float));
  if (sum != 0) multiply_row(row, a.size, 1 / sum);
  else if (a.nothing_is_nan && a.keys > 0) for (int64_t e = 0; e < a.size; ++e) row[e] = __builtin_nanf("");
}

template <class T> INLINE int64_t block_rows(int64_t left) { return left <= MOST_QUERIES<T> ? left : QUERIES<T>; }

// Where the sums of values are until their end, and weights: for float, in the result and in place of the scores.
template <class T, int ROOM> struct Sums {
  float* rows(float* out) { return out; }
  int64_t row(int64_t out_row) { return out_row; }
  float* weights(float* scores) { return scores; }
  void finish(float*, float*, int64_t) {}
};
template <int ROOM> struct Sums<bf16, ROOM> {
  alignas(64) float sums[UNIT_QUERIES<bf16> * ROOM];
  alignas(64) bf16 rounded[MOST_QUERIES<bf16> * CHUNK];
  float* rows(bf16*) { return sums; }
  int64_t row(int64_t) { return ROOM; }
  bf16* weights(float*) { return rounded; }
  void finish(bf16* out, float* row, int64_t size) {
    int64_t e = 0;
    for (; e + FG_WIDE <= size; e += FG_WIDE) wide::store(out + e, wide::load(row + e, Full{}), Full{});
    if (e < size) wide::store(out + e, wide::load(row + e, Part{size - e}), Part{size - e});
  }
};

// ROOM: for the elements of a head.
template <int ROOM, class T> static void attention_in(const Attention<T>& a, int64_t begin, int64_t end) {
  typedef typename panel_of<T>::type W;
  constexpr int64_t PAIRED = weight_of<W>::ROWS;
  alignas(64) W keys[CHUNK * ((ROOM + PAIRED - 1) / PAIRED)], values[CHUNK / PAIRED * ROOM];
  alignas(64) float scores[MOST_QUERIES<T> * CHUNK];
  float largest[UNIT_QUERIES<T>], sum[UNIT_QUERIES<T>];
  bool skipped[UNIT_QUERIES<T> / QUERIES<T> + 1];
  Sums<T, ROOM> sums;
  T* const weights = sums.weights(scores);
  Rows<float> changed(a.scores);
  Hidden<T> hidden(a);
  const bool may_skip = hidden.known();
  const int64_t down = (a.queries + a.unit_queries - 1) / a.unit_queries;
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t b = unit / down / a.heads, h = unit / down % a.heads;
    const int64_t first = unit % down * a.unit_queries, last = min(first + a.unit_queries, a.queries);
    const int64_t shared = h / a.group;
    const T* const q = a.q + b * a.q_step[0] + h * a.q_step[1];
    const float* const mask = a.mask ? a.mask + b * a.mask_step[0] + h * a.mask_step[1] : nullptr;
    T* const result = a.out + b * a.out_step[0] + h * a.out_step[1];
    const int64_t out_row = sums.row(a.out_step[2]);
    float* const out = sums.rows(result + first * a.out_step[2]);  // of query `first`
    for (int64_t r = 0; r < last - first; ++r) largest[r] = -__builtin_inff(), sum[r] = 0;
    const int64_t seen = a.causal ? min(a.keys, last) : a.keys;
    const int64_t place = (b * a.heads + h) * a.queries * a.keys;  // of the head's scores
    if (may_skip) {
      for (int64_t r = 0; r < last - first; ++r) __builtin_memset(out + r * out_row, 0, a.size * sizeof(float));
      if (!hidden.exact()) hidden.queries = magnitude(q + first * a.q_step[2], a.q_step[2], last - first, a.size);
    }
    for (int64_t k0 = 0; k0 < seen; k0 += CHUNK) {
      const int64_t chunk = min(CHUNK, seen - k0);
      const T* const k = a.k + b * a.k_step[0] + shared * a.k_step[1] + k0 * a.k_step[2];
      const T* const v = a.v + b * a.v_step[0] + shared * a.v_step[1] + k0 * a.v_step[2];
      if (may_skip) {
        const bool nothing = hidden.adds_nothing(k, v, chunk);
        bool all = true;
        for (int64_t r0 = first, rows, i = 0; r0 < last; r0 += rows, ++i) {
          rows = block_rows<T>(last - r0);
          const float* const m = mask ? mask + r0 * a.mask_step[2] + k0 : nullptr;
          const int64_t block = unit % down * (UNIT_QUERIES<T> / QUERIES<T> + 1) + i;
          skipped[i] = nothing && hidden.all(b, block, k0 / CHUNK, rows, place + r0 * a.keys + k0, m, chunk);
          all = all && skipped[i];
        }
        if (all) continue;
      }
      const int64_t step = (chunk + PANEL - 1) / PANEL * PANEL;  // of scores
      pack_keys(keys, k, a.k_step[2], chunk, a.size);
      pack_values(values, v, a.v_step[2], chunk, a.size);
      for (int64_t r0 = first, rows, i = 0; r0 < last; r0 += rows, ++i) {
        rows = block_rows<T>(last - r0);
        const int64_t n = a.causal ? min(chunk, r0 + rows - k0) : chunk;
        if (n <= 0 || (may_skip && skipped[i])) continue;
        const int64_t whole = (n + PANEL - 1) / PANEL * PANEL;  // panels are filled up
        const int64_t pairs = (a.size + PAIRED - 1) / PAIRED;
        product_rows<W>(rows, q + r0 * a.q_step[2], a.q_step[2], keys, pairs * PANEL, scores, step, a.size, whole, true);
        for (int64_t r = r0; r < r0 + rows; ++r) {
          const int64_t left = a.causal ? min(n, r + 1 - k0) : n;
          float* const row = scores + (r - r0) * step;
          if (changed) changed(row, place + r * a.keys + k0, n);
          const float* const m = mask ? mask + r * a.mask_step[2] + k0 * a.mask_step[3] : nullptr;
          const float shrunk = exponentials(row, weights + (r - r0) * step, left, n, a.scale, m, a.mask_step[3], largest[r - first], sum[r - first]);
          if ((k0 > 0 || may_skip) && shrunk != 1) multiply_row(out + (r - first) * out_row, a.size, shrunk);
        }
        product_rows<W>(rows, weights, step, values, (chunk + PAIRED - 1) / PAIRED * PANEL,
                        out + (r0 - first) * out_row, out_row, n, a.size, k0 == 0 && !may_skip);
      }
    }
    for (int64_t r = 0; r < last - first; ++r) {
      finish_row(a, out + r * out_row, sum[r], seen == 0);
      sums.finish(result + (first + r) * a.out_step[2], out + r * out_row, a.size);
    }
  }
}

// Lane l: the sum of the lanes of rows[l].
INLINE lane_vector sums_of(lane_vector (&rows)[FG_WIDE]) {
  using namespace wide;
  const auto halve = [&](auto width) __attribute__((always_inline)) {
    constexpr int N = decltype(width)::value;
    for (int k = 0; k < N; ++k) {
      const lane_vector x = rows[k], y = rows[k + N];
      rows[k] = low_halves<N>(x, y) + high_halves<N>(x, y);
    }
  };
  if constexpr (FG_WIDE > 8) halve(Int<8>{});
  if constexpr (FG_WIDE > 4) halve(Int<4>{});
  halve(Int<2>{});
  halve(Int<1>{});
  return rows[0];
}

// A query and the state of its row of the result so far.
struct Query {
  const float *q, *mask;
  float* out;
  int64_t number, place;  // place: of its scores
  float largest, sum;
};

// s[j] = q . k[j] for FG_WIDE keys, the first `here` of which there are
INLINE void scores_of(float* s, const float* q, const float* k, int64_t row, int64_t here, int64_t size) {
  lane_vector sum[FG_WIDE];
  for (int l = 0; l < FG_WIDE; ++l) sum[l] = lane_vector{};
  const int64_t whole = size / FG_WIDE * FG_WIDE;
  for (int64_t e = 0; e < whole; e += FG_WIDE) {
    const lane_vector x = *(const lane_vector_unaligned*)(q + e);
    if (here >= FG_WIDE) {
      _Pragma("GCC unroll 16") for (int l = 0; l < FG_WIDE; ++l) {
        sum[l] = wide::mul_add(x, *(const lane_vector_unaligned*)(k + l * row + e), sum[l]);
      }
    } else {
      for (int l = 0; l < here; ++l) sum[l] = wide::mul_add(x, *(const lane_vector_unaligned*)(k + l * row + e), sum[l]);
    }
  }
  if (whole < size) {
    const Part rest{size - whole};
    const lane_vector x = wide::load(q + whole, rest);
    for (int l = 0; l < min(here, (int64_t)FG_WIDE); ++l) {
      sum[l] = wide::mul_add(x, wide::load(k + l * row + whole, rest), sum[l]);
    }
  }
  *(lane_vector_unaligned*)s = sums_of(sum);
}

// out[m] += sum over keys of s[m][j] v[j], for M queries; the elements from e on, all lanes of them or some
template <int M, int64_t LENGTH, class L>
INLINE void add_values(Query* queries, const float (&s)[TOGETHER][LENGTH], const float* v, int64_t row, int64_t keys,
                       int64_t e, L lanes) {
  lane_vector sum[M];
  for (int m = 0; m < M; ++m) sum[m] = wide::load(queries[m].out + e, lanes);
  for (int64_t j = 0; j < keys; ++j) {
    const lane_vector x = wide::load(v + j * row + e, lanes);
    for (int m = 0; m < M; ++m) sum[m] = wide::mul_add(wide::splat(s[m][j]), x, sum[m]);
  }
  for (int m = 0; m < M; ++m) wide::store(queries[m].out + e, sum[m], lanes);
}

template <int M> static void few_queries(const Attention<float>& a, Query* queries, const float* k, const float* v) {
  alignas(64) float scores[TOGETHER][CHUNK];
  Rows<float> changed(a.scores);
  int64_t seen = a.keys;
  if (a.causal) {
    seen = 0;
    for (int m = 0; m < M; ++m) seen = max(seen, min(a.keys, queries[m].number + 1));
  }
  for (int64_t k0 = 0; k0 < seen; k0 += CHUNK) {
    const int64_t n = min(CHUNK, seen - k0);
    const float *const keys = k + k0 * a.k_step[2], *const values = v + k0 * a.v_step[2];
    for (int64_t j = 0; j < n; j += FG_WIDE) {
      for (int m = 0; m < M; ++m) {
        scores_of(scores[m] + j, queries[m].q, keys + j * a.k_step[2], a.k_step[2], n - j, a.size);
      }
    }
    for (int m = 0; m < M; ++m) {
      Query& one = queries[m];
      const int64_t left = a.causal ? max(min(n, one.number + 1 - k0), (int64_t)0) : n;
      const float* const mask = one.mask ? one.mask + k0 * a.mask_step[3] : nullptr;
      if (changed) changed(scores[m], one.place + k0, n);
      const float shrunk = exponentials(scores[m], scores[m], left, n, a.scale, mask, a.mask_step[3], one.largest, one.sum);
      if (k0 > 0 && shrunk != 1) multiply_row(one.out, a.size, shrunk);
    }
    int64_t e = 0;
    for (; e + FG_WIDE <= a.size; e += FG_WIDE) add_values<M>(queries, scores, values, a.v_step[2], n, e, Full{});
    if (e < a.size) add_values<M>(queries, scores, values, a.v_step[2], n, e, Part{a.size - e});
  }
}

static void attention_of_groups(const Attention<float>& a, int64_t begin, int64_t end) {
  const int64_t groups = a.heads / a.group, rows = a.group * a.queries;
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t b = unit / groups, g = unit % groups;
    const float* const k = a.k + b * a.k_step[0] + g * a.k_step[1];
    const float* const v = a.v + b * a.v_step[0] + g * a.v_step[1];
    for (int64_t r0 = 0; r0 < rows; r0 += TOGETHER) {
      const int64_t count = min(TOGETHER, rows - r0);
      Query queries[TOGETHER];
      for (int64_t m = 0; m < count; ++m) {
        const int64_t h = g * a.group + (r0 + m) / a.queries, i = (r0 + m) % a.queries;
        const float* const mask = a.mask ? a.mask + b * a.mask_step[0] + h * a.mask_step[1] + i * a.mask_step[2] : nullptr;
        float* const out = a.out + b * a.out_step[0] + h * a.out_step[1] + i * a.out_step[2];
        const int64_t place = ((b * a.heads + h) * a.queries + i) * a.keys;
        queries[m] = {a.q + b * a.q_step[0] + h * a.q_step[1] + i * a.q_step[2], mask, out, i, place, -__builtin_inff(), 0};
        __builtin_memset(out, 0, a.size * sizeof(float));
      }
      if (count == 1) few_queries<1>(a, queries, k, v);
      else if (count == 2) few_queries<2>(a, queries, k, v);
      else if (count == 3) few_queries<3>(a, queries, k, v);
      else few_queries<4>(a, queries, k, v);
      for (int64_t m = 0; m < count; ++m) finish_row(a, queries[m].out, queries[m].sum, false);
    }
  }
}

template <class T> void attention(const Attention<T>& a, int64_t begin, int64_t end) {
  if constexpr (sizeof(T) == sizeof(float)) {
    if (a.unit_queries == 0) return attention_of_groups(a, begin, end);
  }
  if (a.size <= 32) attention_in<32>(a, begin, end);
  else if (a.size <= 64) attention_in<64>(a, begin, end);
  else attention_in<HEAD>(a, begin, end);
}

}  // namespace fg
