#include "vec.h"

namespace fg {

static __attribute__((noinline)) void fn0(void* const* P, int64_t begin, int64_t end, const int64_t* n) {
  using namespace wide;
  float* const p0 = (float*)P[0];
  float* const p1 = (float*)P[1];
  const int64_t n0 = n[0];
  const int64_t n1 = n[1];
  for (int64_t t = begin; t < end; ++t) {
    const int64_t first = t * 16, last = min(n0, first + 16);
    for (int64_t i0 = first; i0 < last; i0 += W) {
      one_vector<W>(last - i0, [&](auto lanes) __attribute__((always_inline)) {
        vec<float> a1 = splat(0.0f);
        for (int64_t r0 = 0; r0 < n1; ++r0) {
          const vec<float> t0 = load(p0 + i0 + n0 * r0, lanes);
          a1 = a1 + t0;
        }
        const vec<float> t2 = a1;
        store(p1 + i0, t2, lanes);
      });
    }
  }
}

extern "C" void k0(void* const* P, int64_t begin, int64_t end) {
  static const int64_t n[] = {100, 64};
  fn0(P, begin, end, n);
}

}
