// The kernels for x86 processors with AVX-512.
#include <stdint.h>
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512vl,avx512bw,fma"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512dq,avx512vl,avx512bw,fma")
#endif
#define ISA avx512
#define BYTES 64
#include "steps.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
