// The kernels for x86 processors with AVX2 and FMA.
#include <stdint.h>
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#endif
#define ISA avx2
#define BYTES 32
#include "steps.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
