#include "vec.h"

namespace fg {

static __attribute__((noinline)) void fn0(void* const* P, int64_t begin, int64_t end, const int64_t* n) {
  using namespace half;
  float* const p0 = (float*)P[0];
  int64_t* const p1 = (int64_t*)P[1];
  const int64_t n0 = n[0];
  for (int64_t t = begin; t < end; ++t) {
    const vec<int64_t> t2 = splat((int64_t)-30);
    const vec<int64_t> t4 = splat(INT64_MIN);
    vec<int64_t> a6 = splat(INT64_MIN);
    each_vector<W, 0>(0, n0, [&](int64_t r0, auto lanes, auto u) __attribute__((always_inline)) {
      const vec<float> t0 = load(p0 + r0, lanes);
      const vec<int64_t> t1 = cast<int64_t>(t0);
      const vec<int64_t> t3 = t1 - t2;
      const vec<int64_t> t5 = bit_xor(t3, t4);
      a6 = keep(lanes, maximum(a6, t5), a6);
    });
    const int64_t t7 = max_lanes(a6);
    const int64_t t8 = bit_xor(t7, INT64_MIN);
    const int64_t t9 = t8 + (int64_t)-30;
    const bool t10 = ge(t9, (int64_t)-30);
    const bool t11 = lt(t9, (int64_t)30);
    const bool t12 = logical_and(t10, t11);
    const int64_t t13 = maximum(t9, (int64_t)-9223372036854775807);
    const int64_t t14 = select(t12, INT64_MIN, t13);
    put(p1 + 0, t14);
  }
}

static __attribute__((noinline)) void fn1(void* const* P, int64_t begin, int64_t end, const int64_t* n) {
  using namespace wide;
  float* const p0 = (float*)P[0];
  float* const p1 = (float*)P[1];
  const int64_t j0 = begin, j1 = end;
  each_vector<W, 0>(j0, j1, [&](int64_t i0, auto lanes, auto u) __attribute__((always_inline)) {
    const vec<float> t0 = load(p0 + i0, lanes);
    store(p1 + i0, t0, lanes);
  });
}

static __attribute__((noinline)) void fn2(void* const* P, int64_t begin, int64_t end, const int64_t* n) {
  using namespace wide;
  float* const p0 = (float*)P[0];
  float* const p1 = (float*)P[1];
  float* const p2 = (float*)P[2];
  const int64_t n0 = n[0];
  const int64_t n1 = n[1];
  const int64_t j0 = begin, j1 = end;
  const vec<float> t1 = splat(2.0f);
  for (int64_t r0 = 0; r0 < n1; ++r0) {
    const float t3 = get(p1[r0]);
    const int64_t t4 = cast<int64_t>(t3);
    const bool t5 = lt(t4, (int64_t)0);
    const int64_t t6 = t4 + (int64_t)30;
    const int64_t t7 = select(t5, t6, t4);
    const int64_t t8 = maximum(t7, (int64_t)0);
    const int64_t t9 = minimum(t8, (int64_t)29);
    each_vector<W, 0>(j0, j1, [&](int64_t i0, auto lanes, auto u) __attribute__((always_inline)) {
      const vec<float> t0 = load(p0 + n0 * r0 + i0, lanes);
      const vec<float> t2 = t0 * t1;
      store(p2 + i0 + n0 * t9, load(p2 + i0 + n0 * t9, lanes) + t2, lanes);
    });
  }
}

extern "C" void k0(void* const* P, int64_t begin, int64_t end) {
  static const int64_t n[] = {60};
  fn0(P, begin, end, n);
}
extern "C" void k2(void* const* P, int64_t begin, int64_t end) {
  static const int64_t n[] = {0};
  fn1(P, begin, end, n);
}
extern "C" void k3(void* const* P, int64_t begin, int64_t end) {
  static const int64_t n[] = {48, 60};
  fn2(P, begin, end, n);
}

}
