// Keys come chunk by chunk: those of a chunk and their values lie in panels (product.h) on the stack, the scores of a
// block of queries in the cache. The largest score of a row and the sum of its exponentials are kept as chunks go by;
// where a chunk brings a larger score, the row of the result so far is scaled down.
#include "attention.h"

namespace fg {

constexpr int64_t CHUNK = 256;  // keys

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

// Scores of a row become exponentials; what is `left` of them counts, the rest of `all` becomes 0. Returns what the row
// of the result so far is to be multiplied by.
INLINE float exponentials(float* s, int64_t left, int64_t all, float scale, const float* mask, int64_t mask_step,
                          float& largest, float& sum) {
  using namespace wide;
  const lane_vector factor = splat(scale), least = splat(-__builtin_inff());
  const int64_t whole = (all + FG_WIDE - 1) / FG_WIDE * FG_WIDE;
  lane_vector top = least;
  const auto scale_lanes = [&](int64_t j, auto lanes) {
    lane_vector x = *(const lane_vector_unaligned*)(s + j) * factor;
    if (mask != nullptr) x = x + (mask_step == 0 ? splat(mask[0]) : load(mask + j, lanes));
    x = keep(lanes, x, least);
    *(lane_vector_unaligned*)(s + j) = x;
    top = maximum(top, x);
  };
  int64_t j = 0;
  for (; j + FG_WIDE <= left; j += FG_WIDE) scale_lanes(j, Full{});
  if (j < left) scale_lanes(j, Part{left - j}), j += FG_WIDE;
  for (; j < whole; j += FG_WIDE) *(lane_vector_unaligned*)(s + j) = least;
  const float before = largest;
  largest = fg::maximum(before, max_lanes(top));
  if (largest == -__builtin_inff()) {  // nothing to attend to as yet
    for (int64_t j = 0; j < whole; ++j) s[j] = 0;
    return 1;
  }
  const lane_vector base = splat(largest);
  lane_vector total = lane_vector{};
  for (int64_t j = 0; j < whole; j += FG_WIDE) {
    const lane_vector x = exp(*(const lane_vector_unaligned*)(s + j) - base);
    *(lane_vector_unaligned*)(s + j) = x;
    total = total + x;
  }
  const bool nothing = before == -__builtin_inff();  // as yet
  const float shrunk = before == largest ? 1 : nothing ? 0 : fg::exp(before - largest);
  sum = sum * shrunk + sum_lanes(total);
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

// ROOM: for the elements of a head.
template <int ROOM> static void attention_in(const Attention& a, int64_t begin, int64_t end) {
  alignas(64) float keys[CHUNK * ROOM], values[CHUNK * ROOM], scores[MOST_QUERIES * CHUNK];
  float largest[UNIT_QUERIES], sum[UNIT_QUERIES];
  const int64_t down = (a.queries + a.unit_queries - 1) / a.unit_queries;
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t b = unit / down / a.heads, h = unit / down % a.heads;
    const int64_t first = unit % down * a.unit_queries, last = min(first + a.unit_queries, a.queries);
    const float* const q = a.q + b * a.q_step[0] + h * a.q_step[1];
    const float* const mask = a.mask ? a.mask + b * a.mask_step[0] + h * a.mask_step[1] : nullptr;
    float* const out = a.out + b * a.out_step[0] + h * a.out_step[1];
    for (int64_t r = 0; r < last - first; ++r) largest[r] = -__builtin_inff(), sum[r] = 0;
    const int64_t seen = a.causal ? min(a.keys, last) : a.keys;
    for (int64_t k0 = 0; k0 < seen; k0 += CHUNK) {
      const int64_t chunk = min(CHUNK, seen - k0);
      pack_keys(keys, a.k + b * a.k_step[0] + h * a.k_step[1] + k0 * a.k_step[2], a.k_step[2], chunk, a.size);
      pack_values(values, a.v + b * a.v_step[0] + h * a.v_step[1] + k0 * a.v_step[2], a.v_step[2], chunk, a.size);
      for (int64_t r0 = first, rows; r0 < last; r0 += rows) {
        rows = last - r0 <= MOST_QUERIES ? last - r0 : QUERIES;
        const int64_t n = a.causal ? min(chunk, r0 + rows - k0) : chunk;
        if (n <= 0) continue;
        const int64_t whole = (n + PANEL - 1) / PANEL * PANEL;  // panels are filled up
        product_rows(rows, q + r0 * a.q_step[2], a.q_step[2], keys, a.size * PANEL, scores, CHUNK, a.size, whole,
                         true);
        for (int64_t r = r0; r < r0 + rows; ++r) {
          const int64_t left = a.causal ? min(n, r + 1 - k0) : n;
          const float* const m = mask ? mask + r * a.mask_step[2] + k0 * a.mask_step[3] : nullptr;
          const float shrunk = exponentials(scores + (r - r0) * CHUNK, left, n, a.scale, m, a.mask_step[3],
                                            largest[r - first], sum[r - first]);
          if (k0 > 0 && shrunk != 1) multiply_row(out + r * a.out_step[2], a.size, shrunk);
        }
        product_rows(rows, scores, CHUNK, values, chunk * PANEL, out + r0 * a.out_step[2], a.out_step[2], n,
                         a.size, k0 == 0);
      }
    }
    for (int64_t r = first; r < last; ++r) {
      float* const row = out + r * a.out_step[2];
      if (seen == 0) __builtin_memset(row, 0, a.size * sizeof(float));
      else if (sum[r - first] != 0) multiply_row(row, a.size, 1 / sum[r - first]);
    }
  }
}

void attention(const Attention& a, int64_t begin, int64_t end) {
  if (a.size <= 32) attention_in<32>(a, begin, end);
  else if (a.size <= 64) attention_in<64>(a, begin, end);
  else attention_in<HEAD>(a, begin, end);
}

}  // namespace fg
