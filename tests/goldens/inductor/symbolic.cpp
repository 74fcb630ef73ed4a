#include "vec.h"

namespace fg {

static __attribute__((noinline)) void fn0(void* const* P, int64_t begin, int64_t end, const int64_t* n) {
  using namespace wide;
  float* const p0 = (float*)P[0];
  float* const p1 = (float*)P[1];
  float* const p2 = (float*)P[2];
  const int64_t n0 = n[0];
  Row<float, 24576> row0(n0); float* const s0 = row0.data;
  Row<float, 24576> row1(n0); float* const s1 = row1.data;
  for (int64_t t = begin; t < end; ++t) {
    const int64_t i0 = t;
    vec<float> a4 = splat(-__builtin_inff());
    each_vector<W, 0>(0, n0, [&](int64_t r0, auto lanes, auto u) __attribute__((always_inline)) {
      const vec<float> t0 = load(p0 + n0 * i0 + r0, lanes);
      const vec<float> t1 = load(p1 + r0, lanes);
      const vec<float> t2 = t0 + t1;
      const vec<float> t3 = relu(t2);
      store(s0 + r0, t3, lanes);
      a4 = keep(lanes, maximum(a4, t3), a4);
    });
    const float t5 = max_lanes(a4);
    const vec<float> t7 = splat(t5);
    vec<float> a10t = splat(0.0f);
    for (int64_t c = 0; c < n0; c += 4096) {
      vec<float> a10 = splat(0.0f);
      each_vector<W, 0>(c, min(c + 4096, n0), [&](int64_t r0, auto lanes, auto u) __attribute__((always_inline)) {
        const vec<float> t6 = load(s0 + r0, lanes);
        const vec<float> t8 = t6 - t7;
        const vec<float> t9 = exp(t8);
        store(s1 + r0, t9, lanes);
        a10 = keep(lanes, a10 + t9, a10);
      });
      a10t = a10t + a10;
    }
    const float t11 = sum_lanes(a10t);
    const float t13 = reciprocal(t11);
    const vec<float> t14 = splat(t13);
    each_vector<W, 0>(0, n0, [&](int64_t r0, auto lanes, auto u) __attribute__((always_inline)) {
      const vec<float> t12 = load(s1 + r0, lanes);
      const vec<float> t15 = t12 * t14;
      store(p2 + n0 * i0 + r0, t15, lanes);
    });
  }
}

extern "C" void k0(void* const* P, int64_t begin, int64_t end) {
  const int64_t* const S = (const int64_t*)P[3];
  const int64_t n[] = {S[0]};
  fn0(P, begin, end, n);
}

}
