#include "vec.h"

namespace fg {

static __attribute__((noinline)) void fn0(void* const* P, int64_t begin, int64_t end, const int64_t* n) {
  using namespace wide;
  float* const p0 = (float*)P[0];
  float* const p1 = (float*)P[1];
  float* const p2 = (float*)P[2];
  const int64_t n0 = n[0];
  for (int64_t t = begin; t < end; ++t) {
    const int64_t i0 = t;
    const vec<float> t1 = splat(1.0f);
    vec<float> a3 = splat(0.0f);
    each_vector<W, 1>(0, n0, [&](int64_t r0, auto lanes, auto u) __attribute__((always_inline)) {
      const vec<float> t0 = load(p0 + n0 * i0 + r0, lanes);
      const vec<float> t2 = t0 + t1;
      a3 = keep(lanes, a3 + t2, a3);
    });
    const float t4 = sum_lanes(a3);
    const float t7 = div(t4, 96.0f);
    const vec<float> t8 = splat(t7);
    vec<float> a11 = splat(0.0f);
    each_vector<W, 1>(0, n0, [&](int64_t r0, auto lanes, auto u) __attribute__((always_inline)) {
      const vec<float> t5 = load(p0 + n0 * i0 + r0, lanes);
      const vec<float> t6 = t5 + t1;
      const vec<float> t9 = t6 - t8;
      const vec<float> t10 = t9 * t9;
      a11 = keep(lanes, a11 + t10, a11);
    });
    const float t12 = sum_lanes(a11);
    const float t15 = div(t12, 96.0f);
    const float t16 = t15 + 9.999999747378752e-06f;
    const float t17 = rsqrt(t16);
    const vec<float> t20 = splat(t17);
    each_vector<W, 1>(0, n0, [&](int64_t r0, auto lanes, auto u) __attribute__((always_inline)) {
      const vec<float> t13 = load(p0 + n0 * i0 + r0, lanes);
      const vec<float> t14 = t13 + t1;
      const vec<float> t18 = load(p1 + r0, lanes);
      const vec<float> t19 = t14 - t8;
      const vec<float> t21 = t19 * t20;
      const vec<float> t22 = t21 * t18;
      store(p2 + n0 * i0 + r0, t22, lanes);
    });
  }
}

extern "C" void k0(void* const* P, int64_t begin, int64_t end) {
  static const int64_t n[] = {96};
  fn0(P, begin, end, n);
}

}
