#include "vec.h"

namespace fg {

static __attribute__((noinline)) void fn0(void* const* P, int64_t begin, int64_t end, const int64_t* n) {
  using namespace wide;
  float* const p0 = (float*)P[0];
  float* const p1 = (float*)P[1];
  const int64_t n0 = n[0];
  const int64_t n1 = n[1];
  for (int64_t e = begin; e < end;) {
    const int64_t t = e / n1, j0 = e - t * n1;
    const int64_t j1 = min(n1, j0 + end - e);
    const int64_t i0 = t;
    const vec<float> t1 = splat(1.0f);
    each_vector<W>(j0, j1, [&](int64_t i1, auto lanes, auto u) __attribute__((always_inline)) {
      const vec<float> t0 = gather(p0, lanes, [&](int64_t l) { return i0 + n0 * (i1 + l); });
      const vec<float> t2 = t0 + t1;
      store(p1 + n1 * i0 + i1, t2, lanes);
    });
    e += j1 - j0;
  }
}

extern "C" void k0(void* const* P, int64_t begin, int64_t end) {
  static const int64_t n[] = {24, 40};
  fn0(P, begin, end, n);
}

}
