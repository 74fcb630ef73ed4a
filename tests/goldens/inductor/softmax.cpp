#include "vec.h"

namespace fg {

static __attribute__((noinline)) void fn0(void* const* P, int64_t begin, int64_t end, const int64_t* n) {
  using namespace wide;
  float* const p0 = (float*)P[0];
  float* const p1 = (float*)P[1];
  const int64_t n0 = n[0];
  alignas(64) float s0[100];
  for (int64_t t = begin; t < end; ++t) {
    const int64_t i0 = t;
    vec<float> a1 = splat(-__builtin_inff());
    each_vector<W, 0>(0, n0, [&](int64_t r0, auto lanes, auto u) __attribute__((always_inline)) {
      const vec<float> t0 = load(p0 + n0 * i0 + r0, lanes);
      a1 = keep(lanes, maximum(a1, t0), a1);
    });
    const float t2 = max_lanes(a1);
    const vec<float> t4 = splat(t2);
    vec<float> a7 = splat(0.0f);
    each_vector<W, 0>(0, n0, [&](int64_t r0, auto lanes, auto u) __attribute__((always_inline)) {
      const vec<float> t3 = load(p0 + n0 * i0 + r0, lanes);
      const vec<float> t5 = t3 - t4;
      const vec<float> t6 = exp(t5);
      store(s0 + r0, t6, lanes);
      a7 = keep(lanes, a7 + t6, a7);
    });
    const float t8 = sum_lanes(a7);
    const float t10 = reciprocal(t8);
    const vec<float> t11 = splat(t10);
    each_vector<W, 0>(0, n0, [&](int64_t r0, auto lanes, auto u) __attribute__((always_inline)) {
      const vec<float> t9 = load(s0 + r0, lanes);
      const vec<float> t12 = t9 * t11;
      store(p1 + n0 * i0 + r0, t12, lanes);
    });
  }
}

extern "C" void k0(void* const* P, int64_t begin, int64_t end) {
  static const int64_t n[] = {100};
  fn0(P, begin, end, n);
}

}
