#include "vec.h"

namespace fg {

static __attribute__((noinline)) void fn0(void* const* P, int64_t begin, int64_t end, const int64_t* n) {
  using namespace wide;
  float* const p0 = (float*)P[0];
  float* const p1 = (float*)P[1];
  float* const p2 = (float*)P[2];
  float* const p3 = (float*)P[3];
  const int64_t n0 = n[0];
  const int64_t n1 = n[1];
  const int64_t n2 = n[2];
  const int64_t n3 = n[3];
  if (begin >= end) return;
  const int64_t t = begin / n1;
  int64_t j0 = begin - t * n1;
  int64_t i1 = t % n3;
  int64_t i0 = t / n3;
  for (int64_t e = begin; e < end;) {
    const int64_t j1 = min(n1, j0 + end - e);
    const float t1 = get(p1[i1]);
    const float t2 = get(p2[i1]);
    const float t3 = t2 + 9.999999747378752e-06f;
    const float t4 = rsqrt(t3);
    const float t5 = t1 * t4;
    const float t6 = neg(t5);
    const vec<float> t7 = splat(t4);
    const vec<float> t9 = splat(t6);
    each_vector<W, 0>(j0, j1, [&](int64_t i2, auto lanes, auto u) __attribute__((always_inline)) {
      const vec<float> t0 = load(p0 + n0 * i0 + n1 * i1 + i2, lanes);
      const vec<float> t8 = t0 * t7;
      const vec<float> t10 = t8 + t9;
      const vec<float> t11 = relu(t10);
      store(p3 + n2 * i0 + n1 * i1 + i2, t11, lanes);
    });
    e += j1 - j0;
    j0 = 0;
    if (++i1 == n3) {
      i1 = 0;
      ++i0;
    }
  }
}

static __attribute__((noinline)) void fn1(void* const* P, int64_t begin, int64_t end, const int64_t* n) {
  using namespace wide;
  float* const p0 = (float*)P[0];
  float* const p1 = (float*)P[1];
  float* const p2 = (float*)P[2];
  float* const p3 = (float*)P[3];
  const int64_t n0 = n[0];
  const int64_t n1 = n[1];
  const int64_t n2 = n[2];
  const int64_t n3 = n[3];
  const int64_t n4 = n[4];
  if (begin >= end) return;
  const int64_t t = begin / n1;
  int64_t j0 = begin - t * n1;
  int64_t i1 = t % n4;
  int64_t i0 = t / n4;
  for (int64_t e = begin; e < end;) {
    const int64_t j1 = min(n1, j0 + end - e);
    const float t1 = get(p1[i1 + 3]);
    const float t2 = get(p2[i1 + 3]);
    const float t3 = t2 + 9.999999747378752e-06f;
    const float t4 = rsqrt(t3);
    const float t5 = t1 * t4;
    const float t6 = neg(t5);
    const vec<float> t7 = splat(t4);
    const vec<float> t9 = splat(t6);
    each_vector<W, 0>(j0, j1, [&](int64_t i2, auto lanes, auto u) __attribute__((always_inline)) {
      const vec<float> t0 = load(p0 + n0 * i0 + n1 * i1 + i2, lanes);
      const vec<float> t8 = t0 * t7;
      const vec<float> t10 = t8 + t9;
      const vec<float> t11 = relu(t10);
      store(p3 + n2 * i0 + n1 * i1 + i2 + n3, t11, lanes);
    });
    e += j1 - j0;
    j0 = 0;
    if (++i1 == n4) {
      i1 = 0;
      ++i0;
    }
  }
}

extern "C" void k0(void* const* P, int64_t begin, int64_t end) {
  static const int64_t n[] = {192, 64, 512, 3, 320, 64, 512, 192, 5};
  static const uint16_t a[] = {0, 1, 2, 3, 4, 1, 2, 3};
  static const Stretch parts[] = {
    {fn0, 0, 384, n + 0, a + 0, 4},
    {fn1, 384, 1024, n + 4, a + 4, 4},
  };
  run_shares(parts, 2, P, begin, end);
}

}
