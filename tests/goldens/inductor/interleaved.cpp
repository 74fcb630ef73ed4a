#include "vec.h"

namespace fg {

static __attribute__((noinline)) void fn0(void* const* P, int64_t begin, int64_t end, const int64_t* n) {
  using namespace wide;
  float* const p0 = (float*)P[0];
  bool* const p1 = (bool*)P[1];
  const int64_t n0 = n[0];
  const int64_t n1 = n[1];
  const int64_t n2 = n[2];
  const int64_t n3 = n[3];
  if (begin >= end) return;
  const int64_t t = begin / n0;
  int64_t j0 = begin - t * n0;
  int64_t i1 = t % n3;
  int64_t i0 = t / n3;
  for (int64_t e = begin; e < end;) {
    const int64_t j1 = min(n0, j0 + end - e);
    const vec<float> t1 = splat(0.0f);
    each_vector<W, 0>(j0, j1, [&](int64_t i2, auto lanes, auto) __attribute__((always_inline)) {
      const vec<float> t0 = load(p0 + n0 * i0 + i2, lanes);
      const mask t2 = gt(t0, t1);
      int64_t i3 = 0;
      mask g3[2];
      for (; i3 < 2; ++i3) {
        g3[i3] = t2;
      }
      store_interleaved(p1 + n1 * i0 + n2 * i1 + 2 * i2, g3, lanes);
    });
    e += j1 - j0;
    j0 = 0;
    if (++i1 == n3) {
      i1 = 0;
      ++i0;
    }
  }
}

extern "C" void k0(void* const* P, int64_t begin, int64_t end) {
  static const int64_t n[] = {20, 80, 40, 2};
  fn0(P, begin, end, n);
}

}
