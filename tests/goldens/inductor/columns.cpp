#include "vec.h"

namespace fg {

static __attribute__((noinline)) void fn0(void* const* P, int64_t begin, int64_t end, const int64_t* n) {
  using namespace wide;
  float* const p0 = (float*)P[0];
  float* const p1 = (float*)P[1];
  const int64_t n0 = n[0];
  const int64_t n1 = n[1];
  for (int64_t t = begin; t < end; ++t) {
    const int64_t low = t * 16, high = min(n0, low + 16);
    each_group<W, 0>(low, high, [&](int64_t first, auto vectors, auto lanes) __attribute__((always_inline)) {
      constexpr int N = decltype(vectors)::value;
      vec<float> t2[N];
      vec<float> a1[N]; fill_all(a1, splat(0.0f));
      for (int64_t r0 = 0; r0 < n1; ++r0) {
        in_group<W, N>(first, [&](int64_t i0, auto u) __attribute__((always_inline)) {
          const vec<float> t0 = load(p0 + i0 + n0 * r0, lanes);
          a1[decltype(u)::value] = a1[decltype(u)::value] + t0;
        });
      }
      in_group<W, N>(first, [&](int64_t i0, auto u) __attribute__((always_inline)) {
        t2[decltype(u)::value] = a1[decltype(u)::value];
        store(p1 + i0, t2[decltype(u)::value], lanes);
      });
    });
  }
}

extern "C" void k0(void* const* P, int64_t begin, int64_t end) {
  static const int64_t n[] = {100, 64};
  fn0(P, begin, end, n);
}

}
