#include "vec.h"

namespace fg {

static __attribute__((noinline)) void fn0(void* const* P, int64_t begin, int64_t end, const int64_t* n) {
  using namespace wide;
  float* const p0 = (float*)P[0];
  float* const p1 = (float*)P[1];
  const int64_t n0 = n[0];
  const int64_t n1 = n[1];
  for (int64_t t = begin; t < end; ++t) {
    const int64_t first = t * 64, last = min(n0, first + 64);
    const vec<float> t2 = splat(1.0f);
    each_vector<W, 0>(0, n1, [&](int64_t i1, auto lanes, auto) __attribute__((always_inline)) {
      each_vector<W, 0>(first, last, [&](int64_t i0_first, auto across, auto) __attribute__((always_inline)) {
        const int64_t i0 = i0_first;
        vec<float> g0[W];
        load_tile(g0, p0 + n0 * i1 + i0, n0, lanes, across);
        for (int64_t q = 0; q < lane_count(across); ++q) {
          const int64_t i0 = i0_first + q;
          const vec<float> t1 = g0[q];
          const vec<float> t3 = t1 + t2;
          store(p1 + i1 + n1 * i0, t3, lanes);
        }
      });
    });
  }
}

extern "C" void k0(void* const* P, int64_t begin, int64_t end) {
  static const int64_t n[] = {24, 40};
  fn0(P, begin, end, n);
}

}
