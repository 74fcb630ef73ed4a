#include "vec.h"

namespace fg {

static __attribute__((noinline)) void fn0(void* const* P, int64_t begin, int64_t end, const int64_t* n) {
  using namespace wide;
  float* const p0 = (float*)P[0];
  float* const p1 = (float*)P[1];
  const int64_t n0 = n[0];
  const int64_t n1 = n[1];
  const int64_t n2 = n[2];
  const int64_t n3 = n[3];
  if (begin >= end) return;
  const int64_t t = begin / n2;
  int64_t j0 = begin - t * n2;
  int64_t i0 = t;
  for (int64_t e = begin; e < end;) {
    const int64_t j1 = min(n2, j0 + end - e);
    each_vector<W, 0>(j0, min(j1, 1), [&](int64_t i1, auto lanes, auto u) __attribute__((always_inline)) {
      const vec<float> t0 = load(p0 + n0 * i0 + i1 + n1, lanes);
      store(p1 + n2 * i0 + i1, t0, lanes);
    });
    each_vector<W, 0>(max(j0, 1) - 1, min(j1, 3) - 1, [&](int64_t i1, auto lanes, auto u) __attribute__((always_inline)) {
      const vec<float> t1 = load_reversed(p0 + n0 * i0 - i1 + n3, lanes);
      store(p1 + n2 * i0 + i1 + 1, t1, lanes);
    });
    each_vector<W, 0>(max(j0, 3) - 3, min(j1, 4) - 3, [&](int64_t i1, auto lanes, auto u) __attribute__((always_inline)) {
      const vec<float> t2 = load_reversed(p0 + n0 * i0 - i1 + 1, lanes);
      store(p1 + n2 * i0 + i1 + 3, t2, lanes);
    });
    each_vector<W, 0>(max(j0, 4) - 4, j1 - 4, [&](int64_t i1, auto lanes, auto u) __attribute__((always_inline)) {
      const vec<float> t3 = load(p0 + n0 * i0 + i1, lanes);
      store(p1 + n2 * i0 + i1 + 4, t3, lanes);
    });
    e += j1 - j0;
    j0 = 0;
    ++i0;
  }
}

extern "C" void k0(void* const* P, int64_t begin, int64_t end) {
  static const int64_t n[] = {40, 39, 43, 38};
  fn0(P, begin, end, n);
}

}
