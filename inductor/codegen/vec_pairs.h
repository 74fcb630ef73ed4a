// Vectors of 16-bit integers that fill a register: twice as many lanes as fg::wide. For kernels that do no more than move
// such elements (moves.py), with no mask of their lanes.
#pragma once
#include "vec.h"

namespace fg {
namespace pairs {

constexpr int W = 2 * FG_WIDE;
typedef int16_t V __attribute__((vector_size(2 * W)));
template <class T> using vec = V;  // of int16_t, the only type there is

INLINE V splat(int16_t x) { return x - V{}; }
// The first N lanes.
template <int N> struct Some {};
INLINE int lane_count(Full) { return W; }
template <int N> INLINE int lane_count(Some<N>) { return N; }

INLINE V load(const int16_t* p, Full) {
  V r;
  __builtin_memcpy(&r, p, sizeof r);
  return r;
}
template <int N> INLINE V load(const int16_t* p, Some<N>) {
  V r{};
  __builtin_memcpy(&r, p, 2 * N);
  return r;
}
INLINE void store(int16_t* p, V x, Full) { __builtin_memcpy(p, &x, sizeof x); }
template <int N> INLINE void store(int16_t* p, V x, Some<N>) { __builtin_memcpy(p, &x, 2 * N); }

template <class L, class F> INLINE V gather(const int16_t* p, L k, F at) {
  V r{};
  for (int l = 0; l < lane_count(k); ++l) r[l] = p[at(l)];
  return r;
}
template <int K, class L> INLINE V load_every(const int16_t* p, L k) {
  return gather(p, k, [](int64_t l) { return K * l; });
}
template <class L> INLINE V load_reversed(const int16_t* p, L k) {
  return gather(p, k, [](int64_t l) { return -l; });
}
#if defined(FG_GCC)
// See vec_memory.h.
template <int K> INLINE V load_every(const int16_t* p, Full) {
  V r = load(p, Full{});
  _Pragma("GCC unroll 8") for (int part = 1; part < K; ++part) {
    const int last = (K - 1) * (W - 1), from = part < K - 1 ? part * W : last;
    V pick;
    LANES {
      const bool here = K * l >= from && (part == K - 1 || K * l < from + W);
      pick[l] = here ? W + K * l - from : part == 1 && K * l < W ? K * l : l;
    }
    r = __builtin_shuffle(r, load(p + from, Full{}), pick);
  }
  return r;
}
INLINE V load_reversed(const int16_t* p, Full) {
  V pick;
  LANES pick[l] = W - 1 - l;
  return __builtin_shuffle(load(p - (W - 1), Full{}), pick);
}
#endif

// One mask for all lanes.
template <class L> INLINE V load_if(bool m, const int16_t* p, L k) { return m ? load(p, k) : V{}; }
template <int K, class L> INLINE V load_every_if(bool m, const int16_t* p, L k) {
  return m ? load_every<K>(p, k) : V{};
}
template <class L> INLINE V load_reversed_if(bool m, const int16_t* p, L k) { return m ? load_reversed(p, k) : V{}; }
template <class L, class F> INLINE V gather_if(bool m, const int16_t* p, L k, F at) { return m ? gather(p, k, at) : V{}; }
// See vec_memory.h.
template <int STEP, class L, class F> INLINE V load_run(bool whole, const int16_t* p, L k, F at) {
  if (whole) {
    if constexpr (STEP == 1) return load(p + at(0), k);
    else if constexpr (STEP == -1) return load_reversed(p + at(0), k);
    else return splat(p[at(0)]);
  }
  return gather(p, k, at);
}
template <int STEP, class L, class F> INLINE V load_run_if(bool m, bool whole, const int16_t* p, L k, F at) {
  return m ? load_run<STEP>(whole, p, k, at) : V{};
}
template <class L, class F> INLINE void scatter(int16_t* p, V x, L k, F at) {
  for (int l = 0; l < lane_count(k); ++l) p[at(l)] = x[l];
}

// f(j, lanes, Int) for [begin, end). What is left behind whole vectors is moved by one that ends there: elements are moved
// twice, to the same places.
template <int N, class F> INLINE void each_of_few(int64_t begin, int64_t end, F f) {
  if (end - begin >= N) {
    f(begin, Some<N>{}, Int<0>{});
    f(end - N, Some<N>{}, Int<0>{});
  } else if constexpr (N > 1) {
    each_of_few<N / 2>(begin, end, f);
  }
}
template <class F> INLINE void each_move(int64_t begin, int64_t end, F f) {
  int64_t j = begin;
  for (; j + W <= end; j += W) f(j, Full{}, Int<0>{});
  if (j == end) return;
  if (j > begin) f(end - W, Full{}, Int<0>{});
  else each_of_few<W / 2>(begin, end, f);
}

}  // namespace pairs
}  // namespace fg
