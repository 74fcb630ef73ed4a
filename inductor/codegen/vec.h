// The vector vocabulary of generated kernels.
//
// Every function exists for a scalar (namespace fg) and for vectors (fg::wide, fg::half) under one name, so that one
// rendered body serves all. Vectors are the compiler's own vector types. The lanes of fg::wide fill a register with
// 32-bit elements; fg::half has half as many, for kernels with 64-bit elements, so that no type exceeds a register.
// A boolean vector is a `mask`, lanes 0 or -1. No library header is included: a kernel compiles in a fraction of a
// second. Everything is exact in NaN, infinity and signed zero; the functions of vec_math.h stay within 2 ulp, erfc
// within 3.5, tanh and erf within 6. Other elementary functions are SLEEF's out of torch's library, as eager's are, or
// else the C library's.
#pragma once
#include <stddef.h>
#include <stdint.h>

#define INLINE inline __attribute__((always_inline))
#define LANES for (int l = 0; l < W; ++l)

#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpsabi"
#else
#pragma GCC diagnostic ignored "-Wpsabi"
#define FG_GCC 1
#endif

#if defined(FG_GCC) && defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#define FG_AVX512 1
#endif
#if defined(__AVX512F__)
#define FG_WIDE 16
#elif defined(__AVX__)
#define FG_WIDE 8
#else
#define FG_WIDE 4
#endif

#if defined(__linux__) && defined(__AVX2__)
extern "C" void* dlopen(const char* file, int mode);
extern "C" void* dlsym(void* library, const char* name);
#define FG_SLEEF 1
#endif

namespace fg {

struct bf16 { uint16_t bits; };
struct f16 { uint16_t bits; };

// How many lanes of a vector take part: all, or the first n at the end of a row.
struct Full {};
struct Part { int64_t n; };
// A number that the compiler knows, to index accumulators with.
template <int N> struct Int { static constexpr int value = N; };

INLINE int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }

// The address of a vector function of SLEEF, with which eager computes: torch's library has them. Null where it does not,
// or where torch is not in the process.
static __attribute__((unused)) void* sleef(const char* name, char type, int lanes, const char* accuracy) {
#if defined(FG_SLEEF)
  constexpr int lazy = 1, if_loaded = 4;  // of <dlfcn.h>
  void* torch = dlopen("libtorch_cpu.so", lazy | if_loaded);
  if (torch == nullptr) return nullptr;
  char symbol[32], *end = symbol;
  const auto put = [&](const char* text) { while (*text) *end++ = *text++; };
  const char width[] = {char('0' + lanes / 10), char('0' + lanes % 10), 0};
  put("Sleef_"), put(name), *end++ = type, put(width + (lanes < 10)), put(accuracy), *end = 0;
  return dlsym(torch, symbol);
#else
  return nullptr;
#endif
}

// Index arithmetic rounds towards minus infinity; divisors are positive.
INLINE int64_t idiv(int64_t a, int64_t b) { int64_t q = a / b; return q - (a - q * b < 0); }
INLINE int64_t imod(int64_t a, int64_t b) { int64_t r = a % b; return r < 0 ? r + b : r; }
// The index, or a number of its sign where it is large, to which lanes of small steps can be added in 32 bits.
INLINE int64_t in_32_bits(int64_t x) {
  constexpr int64_t most = (int64_t)1 << 30;
  return x > most ? most : x < -most ? -most : x;
}

// --- scalars -------------------------------------------------------------------------------------

// Keeps the templates for numbers from competing with those for vectors.
template <class T> struct number_type {};
template <> struct number_type<float> { typedef int ok; };
template <> struct number_type<double> { typedef int ok; };
template <> struct number_type<int64_t> { typedef int ok; };
template <> struct number_type<int32_t> { typedef int ok; };
template <> struct number_type<int16_t> { typedef int ok; };
template <> struct number_type<int8_t> { typedef int ok; };
template <> struct number_type<uint8_t> { typedef int ok; };
template <> struct number_type<bool> { typedef int ok; };
template <class T> using is_number = typename number_type<T>::ok;

INLINE int32_t to_bits(float x) { int32_t r; __builtin_memcpy(&r, &x, 4); return r; }
INLINE float from_bits(int32_t x) { float r; __builtin_memcpy(&r, &x, 4); return r; }
template <class V> INLINE V lit(float c) { return c; }
template <class V> INLINE V ilit(int32_t c) { return c; }
template <class T> INLINE T select(bool c, T a, T b) { return c ? a : b; }
INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
// Fused where the machine can, as in eager; elsewhere a fused product takes a function call.
#if defined(__FMA__) || defined(__aarch64__)
INLINE float mul_add(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
INLINE double mul_add(double a, double b, double c) { return __builtin_fma(a, b, c); }
#else
INLINE float mul_add(float a, float b, float c) { return a * b + c; }
INLINE double mul_add(double a, double b, double c) { return a * b + c; }
#endif
INLINE int32_t round_to_int(float x) { return (int32_t)__builtin_rintf(x); }
INLINE float scale(float x, float n) { return __builtin_scalbnf(x, (int)n); }
INLINE float to_float(int32_t x) { return (float)x; }
INLINE float no_more(float x, float c) { return c < x ? c : x; }
INLINE float no_less(float x, float c) { return c > x ? c : x; }

#define FG_COMPARE(NAME, OP) template <class T, is_number<T> = 0> INLINE bool NAME(T a, T b) { return a OP b; }
FG_COMPARE(eq, ==) FG_COMPARE(ne, !=) FG_COMPARE(lt, <) FG_COMPARE(le, <=) FG_COMPARE(gt, >) FG_COMPARE(ge, >=)
INLINE bool logical_and(bool a, bool b) { return a & b; }
INLINE bool logical_or(bool a, bool b) { return a | b; }
INLINE bool logical_xor(bool a, bool b) { return a ^ b; }
INLINE bool logical_not(bool a) { return !a; }

#define FG_LIBM1(NAME, FN)                                                                        \
  INLINE float NAME(float x) { return __builtin_##FN##f(x); }                                      \
  INLINE double NAME(double x) { return __builtin_##FN(x); }
#define FG_LIBM2(NAME, FN)                                                                        \
  INLINE float NAME(float x, float y) { return __builtin_##FN##f(x, y); }                          \
  INLINE double NAME(double x, double y) { return __builtin_##FN(x, y); }
FG_LIBM1(sqrt, sqrt) FG_LIBM1(floor, floor) FG_LIBM1(ceil, ceil) FG_LIBM1(trunc, trunc) FG_LIBM1(round, nearbyint)
FG_LIBM1(exp2, exp2) FG_LIBM1(log2, log2) FG_LIBM1(log10, log10) FG_LIBM1(sin, sin) FG_LIBM1(cos, cos)
FG_LIBM1(tan, tan) FG_LIBM1(asin, asin) FG_LIBM1(acos, acos) FG_LIBM1(atan, atan) FG_LIBM1(sinh, sinh)
FG_LIBM1(cosh, cosh) FG_LIBM1(asinh, asinh) FG_LIBM1(acosh, acosh) FG_LIBM1(atanh, atanh)
FG_LIBM1(lgamma, lgamma)
FG_LIBM2(fmod, fmod) FG_LIBM2(atan2, atan2) FG_LIBM2(hypot, hypot) FG_LIBM2(copysign, copysign)
#define FG_DOUBLE(NAME) INLINE double NAME(double x) { return __builtin_##NAME(x); }
FG_DOUBLE(exp) FG_DOUBLE(log) FG_DOUBLE(tanh) FG_DOUBLE(erf) FG_DOUBLE(expm1) FG_DOUBLE(log1p)
FG_DOUBLE(erfc)
INLINE double sigmoid(double x) { return 1.0 / (1.0 + __builtin_exp(-x)); }
template <class T, is_number<T> = 0> INLINE T rsqrt(T x) { return T(1) / sqrt(x); }
template <class T, is_number<T> = 0> INLINE T reciprocal(T x) { return T(1) / x; }
template <class T, is_number<T> = 0> INLINE T abs(T x) { return x < 0 ? -x : x; }
INLINE float abs(float x) { return __builtin_fabsf(x); }
INLINE double abs(double x) { return __builtin_fabs(x); }
INLINE uint8_t abs(uint8_t x) { return x; }
template <class T, is_number<T> = 0> INLINE T neg(T x) { return -x; }
template <class T, is_number<T> = 0> INLINE T sign(T x) { return T((x > 0) - (x < 0)); }
template <class T, is_number<T> = 0> INLINE bool isinf(T x) { return abs(x) == (T)__builtin_inff(); }
INLINE bool signbit(float x) { return __builtin_signbitf(x) != 0; }
INLINE bool signbit(double x) { return __builtin_signbit(x) != 0; }
// NaN in either operand is the result, as torch has it; of fmax and fmin the other operand, or the first of equal zeros.
template <class T, is_number<T> = 0> INLINE T maximum(T a, T b) { return (a > b || a != a) ? a : b; }
template <class T, is_number<T> = 0> INLINE T minimum(T a, T b) { return (a < b || a != a) ? a : b; }
template <class T, is_number<T> = 0> INLINE T fmax(T a, T b) { return (b > a || a != a) ? b : a; }
template <class T, is_number<T> = 0> INLINE T fmin(T a, T b) { return (b < a || a != a) ? b : a; }
template <class T, is_number<T> = 0> INLINE T relu(T x) { return x < 0 ? T(0) : x; }
template <class T, is_number<T> = 0> INLINE T add(T a, T b) { return a + b; }
template <class T, is_number<T> = 0> INLINE T sub(T a, T b) { return a - b; }
template <class T, is_number<T> = 0> INLINE T mul(T a, T b) { return a * b; }
template <class T, is_number<T> = 0> INLINE T bit_and(T a, T b) { return a & b; }
template <class T, is_number<T> = 0> INLINE T bit_or(T a, T b) { return a | b; }
template <class T, is_number<T> = 0> INLINE T bit_xor(T a, T b) { return a ^ b; }
template <class T, is_number<T> = 0> INLINE T bit_not(T a) { return ~a; }
template <class T, is_number<T> = 0> INLINE T shift_left(T a, T b) {
  return b < 0 || b >= T(sizeof(T) * 8) ? T(0) : T(a << b);
}
template <class T, is_number<T> = 0> INLINE T shift_right(T a, T b) {
  return b < 0 || b >= T(sizeof(T) * 8) ? T(a < 0 ? -1 : 0) : T(a >> b);
}

// Integer division by zero gives 0 rather than ending the process; a check of the plan raises.
template <class T, is_number<T> = 0> INLINE T div(T a, T b) { return b == 0 ? T(0) : T(a / b); }
INLINE float div(float a, float b) { return a / b; }
INLINE double div(double a, double b) { return a / b; }
// Division of the least integer by -1 ends the process; unsigned numbers have no -1.
template <class T> INLINE bool is_minus_one(T b) { return T(-1) < T(0) && b == T(-1); }
template <class T, is_number<T> = 0> INLINE T div_trunc(T a, T b) {
  return b == 0 ? T(0) : is_minus_one(b) ? T(T(0) - a) : T(a / b);
}
INLINE float div_trunc(float a, float b) { return trunc(a / b); }
INLINE double div_trunc(double a, double b) { return trunc(a / b); }
template <class T, is_number<T> = 0> INLINE T div_floor(T a, T b) {
  if (b == 0) return 0;
  if (is_minus_one(b)) return T(0) - a;
  T q = a / b;
  return q - (a % b != 0 && ((a < 0) != (b < 0)));
}
template <class T, is_number<T> = 0> INLINE T float_div_floor(T a, T b) {
  if (b == 0) return a / b;
  T m = fmod(a, b), q = (a - m) / b;
  if (m != 0 && (b < 0) != (m < 0)) q -= 1;
  if (q == 0) return copysign(T(0), a / b);
  T f = floor(q);
  return q - f > T(0.5) ? f + 1 : f;
}
INLINE float div_floor(float a, float b) { return float_div_floor(a, b); }
INLINE double div_floor(double a, double b) { return float_div_floor(a, b); }
template <class T, is_number<T> = 0> INLINE T remainder(T a, T b) {
  if (b == 0 || is_minus_one(b)) return 0;
  T m = a % b;
  return m != 0 && ((m < 0) != (b < 0)) ? T(m + b) : m;
}
template <class T, is_number<T> = 0> INLINE T float_remainder(T a, T b) {
  T m = fmod(a, b);
  return m != 0 && (b < 0) != (m < 0) ? m + b : m;
}
INLINE float remainder(float a, float b) { return float_remainder(a, b); }
INLINE double remainder(double a, double b) { return float_remainder(a, b); }
template <class T, is_number<T> = 0> INLINE T fmod(T a, T b) { return b == 0 || is_minus_one(b) ? T(0) : T(a % b); }
template <class T, is_number<T> = 0> INLINE T pow(T a, T b) {
  if (b < 0) return a == 1 ? T(1) : a == T(-1) ? (b & 1 ? T(-1) : T(1)) : T(0);
  T r = 1;
  for (; b; b >>= 1, a *= a)
    if (b & 1) r *= a;
  return r;
}
INLINE float pow(float a, float b) { return __builtin_powf(a, b); }
INLINE double pow(double a, double b) { return __builtin_pow(a, b); }

// Conversions. A half type is float in registers and rounds to nearest even when stored.
INLINE float get(bf16 x) { return from_bits((int32_t)((uint32_t)x.bits << 16)); }
INLINE float get(f16 h) {
  uint32_t m = (uint32_t)(h.bits & 0x7fff) << 13;
  float f = from_bits((int32_t)m) * 0x1p112f;
  uint32_t b = (uint32_t)to_bits(f) | ((h.bits & 0x7c00) == 0x7c00 ? 0x7f800000u : 0u);
  return from_bits((int32_t)(b | ((uint32_t)(h.bits & 0x8000) << 16)));
}
template <class T, is_number<T> = 0> INLINE T get(T x) { return x; }
INLINE uint16_t bf16_bits(float x) {
  uint32_t b = (uint32_t)to_bits(x);
  if (x != x) return (uint16_t)((b >> 16) | 0x40);
  return (uint16_t)((b + 0x7fff + ((b >> 16) & 1)) >> 16);
}
INLINE uint16_t f16_bits(float x) {
  uint32_t b = (uint32_t)to_bits(x), s = (b >> 16) & 0x8000, m = b & 0x7fffffff;
  if (m > 0x7f800000) return (uint16_t)(s | 0x7e00 | ((m >> 13) & 0x3ff));
  if (m >= 0x477ff000) return (uint16_t)(s | 0x7c00);
  if (m < 0x38800000) return (uint16_t)(s | (uint32_t)(to_bits(from_bits((int32_t)m) + 0.5f) - 0x3f000000));
  return (uint16_t)(s | ((m + 0xfff + ((m >> 13) & 1) - (112u << 23)) >> 13));
}
INLINE float round_bf16(float x) { return get(bf16{bf16_bits(x)}); }
INLINE float round_f16(float x) { return get(f16{f16_bits(x)}); }
// Floats beyond a narrow integer type wrap round, as aten's do; by the C++ standard they may become anything.
template <class T, class S>
constexpr bool wraps = S(0.5) != S(0) && S(0.5) != S(1) && sizeof(T) < 4 && T(2) != T(1);
template <class T, class S, is_number<S> = 0> INLINE T cast(S x) {
  if constexpr (wraps<T, S>) return (T)(int64_t)x;
  else return (T)x;
}
template <class T, class S> INLINE void put(T* p, S x) { *p = (T)x; }
INLINE void put(bf16* p, float x) { p->bits = bf16_bits(x); }
INLINE void put(f16* p, float x) { p->bits = f16_bits(x); }
template <class T> INLINE auto get_if(bool m, const T* p) { return m ? get(*p) : decltype(get(*p))(0); }

// The first n of 16 bytes, 0 < n < 16, by two moves that may overlap: no other memory is touched.
typedef unsigned __int128 Bytes;
typedef uint64_t Words __attribute__((vector_size(16)));
constexpr bool little_endian = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;
template <class T> INLINE Bytes ends_of(const char* p, int64_t n) {
  T low, high;
  __builtin_memcpy(&low, p, sizeof low);
  __builtin_memcpy(&high, p + n - sizeof high, sizeof high);
  return low | (Bytes)high << 8 * (n - sizeof high);
}
template <class T> INLINE void put_ends(char* p, Bytes x, int64_t n) {
  const T low = (T)x, high = (T)(x >> 8 * (n - sizeof high));
  __builtin_memcpy(p, &low, sizeof low);
  __builtin_memcpy(p + n - sizeof high, &high, sizeof high);
}
INLINE Words load_bytes(const void* from, int64_t n) {
  const char* p = (const char*)from;
  const Bytes x = n >= 8   ? ends_of<uint64_t>(p, n)
                  : n >= 4 ? ends_of<uint32_t>(p, n)
                  : n >= 2 ? ends_of<uint16_t>(p, n)
                           : ends_of<uint8_t>(p, n);
  return Words{(uint64_t)x, (uint64_t)(x >> 64)};
}
INLINE void store_bytes(void* to, Words from, int64_t n) {
  char* p = (char*)to;
  const Bytes x = from[0] | (Bytes)from[1] << 64;
  if (n >= 8) put_ends<uint64_t>(p, x, n);
  else if (n >= 4) put_ends<uint32_t>(p, x, n);
  else if (n >= 2) put_ends<uint16_t>(p, x, n);
  else put_ends<uint8_t>(p, x, n);
}

// Reductions: one step, and where to start.
// Positions that come in order need no comparison: the first of equals is there already. A NaN beats every number.
template <class T, class P> INLINE void arg_step(bool better, T& best, P& at, T x, P i) {
  if (better) best = x, at = i;
}
template <class T, is_number<T> = 0> INLINE bool arg_greater(T x, T best) { return !(x <= best) & (best == best); }
template <class T, is_number<T> = 0> INLINE bool arg_less(T x, T best) { return !(x >= best) & (best == best); }
template <class T, class P, is_number<T> = 0> INLINE bool arg_greater(T x, P i, T best, P at) {
  return x != x ? (best == best || i < at) : (x > best || (x == best && i < at));
}
template <class T, class P, is_number<T> = 0> INLINE bool arg_less(T x, P i, T best, P at) {
  return x != x ? (best == best || i < at) : (x < best || (x == best && i < at));
}
template <class T, is_number<T> = 0> INLINE T keep(Full, T now, T) { return now; }

}  // namespace fg

namespace fg {
#define FG_VEC float
#define FG_IVEC int32_t
#include "vec_math.h"
#undef FG_VEC
#undef FG_IVEC
namespace wide {
#define FG_LANES FG_WIDE
#include "vec_lanes.h"
#undef FG_LANES
}  // namespace wide
namespace half {
#define FG_LANES (FG_WIDE / 2)
#include "vec_lanes.h"
#undef FG_LANES
}  // namespace half
}  // namespace fg

// --- loops over lanes ----------------------------------------------------------------------------

namespace fg {

// How many vectors a range is known to be a multiple of: 0 if none. Bodies that cannot run are not compiled.
// f(j, Full) for whole vectors from `begin`, then f(j, Part) for the rest before `end`.
template <int W, int WHOLE, class F> INLINE void each_vector(int64_t begin, int64_t end, F f) {
  int64_t j = begin;
  for (; j + W <= end; j += W) f(j, Full{}, Int<0>{});
  if constexpr (WHOLE == 0) {
    if (j < end) f(j, Part{end - j}, Int<0>{});
  }
}
// The same with four vectors in flight: f's last argument picks one of four accumulators.
template <int W, int WHOLE, class F> INLINE void each_vector4(int64_t begin, int64_t end, F f) {
  int64_t j = begin;
  for (; j + 4 * W <= end; j += 4 * W) {
    f(j, Full{}, Int<0>{});
    f(j + W, Full{}, Int<1>{});
    f(j + 2 * W, Full{}, Int<2>{});
    f(j + 3 * W, Full{}, Int<3>{});
  }
  if constexpr (WHOLE < 4) each_vector<W, WHOLE>(j, end, f);
}
// A row of n intermediate values: on the stack if BYTES hold it.
template <class T, int64_t BYTES> struct Row {
  alignas(64) T room[BYTES / sizeof(T)];
  void* held = nullptr;
  T* data = room;
  INLINE explicit Row(int64_t n) {
    if (n * (int64_t)sizeof(T) <= BYTES) return;
    held = __builtin_malloc((size_t)n * sizeof(T) + 64);
    if (held == nullptr) __builtin_trap();
    data = (T*)(((uintptr_t)held + 63) / 64 * 64);
  }
  INLINE ~Row() { __builtin_free(held); }
  Row(const Row&) = delete;
};
// Several kernels in one range: each has a stretch of it, its sizes, and its pointers among P.
struct Stretch {
  void (*run)(void* const*, int64_t, int64_t, const int64_t*);
  int64_t start, stop;
  const int64_t* sizes;
  const uint16_t* pointers;
  int64_t count;
};
INLINE void run_part(const Stretch& s, void* const* P, int64_t begin, int64_t end) {
  if (begin >= end) return;
  void* own[256];
  for (int64_t k = 0; k < s.count; ++k) own[k] = P[s.pointers[k]];
  s.run(own, begin, end, s.sizes);
}
static inline void run_bundle(const Stretch* parts, int64_t n, void* const* P, int64_t begin, int64_t end) {
  for (const Stretch* s = parts; s < parts + n; ++s)
    run_part(*s, P, max(begin, s->start) - s->start, min(end, s->stop) - s->start);
}
// The same share of each kernel: they fill one buffer, and threads that fill neighbouring elements wait for each other.
static inline void run_shares(const Stretch* parts, int64_t n, void* const* P, int64_t begin, int64_t end) {
  const int64_t total = max(parts[n - 1].stop, (int64_t)1);
  for (const Stretch* s = parts; s < parts + n; ++s) {
    const int64_t size = s->stop - s->start;
    run_part(*s, P, (__int128)size * begin / total, (__int128)size * end / total);
  }
}

// One block of columns, whole or cut short.
template <int W, int WHOLE, class F> INLINE void one_vector(int64_t n, F f) {
  if constexpr (WHOLE > 0) f(Full{});
  else if (n >= W) f(Full{});
  else f(Part{n});
}
// Columns [begin, end) in groups of four vectors, then one by one: f(column, Int<vectors>, lanes).
template <int W, int WHOLE, class F> INLINE void each_group(int64_t begin, int64_t end, F f) {
  int64_t j = begin;
  for (; j + 4 * W <= end; j += 4 * W) f(j, Int<4>{}, Full{});
  if constexpr (WHOLE < 4) {
    for (; j + W <= end; j += W) f(j, Int<1>{}, Full{});
  }
  if constexpr (WHOLE == 0) {
    if (j < end) f(j, Int<1>{}, Part{end - j});
  }
}
// f(column, Int<k>) for each vector of a group.
template <int W, int N, class F> INLINE void in_group(int64_t first, F f) {
  f(first, Int<0>{});
  if constexpr (N > 1) {
    f(first + W, Int<1>{});
    f(first + 2 * W, Int<2>{});
    f(first + 3 * W, Int<3>{});
  }
}
// f(column, number, lanes) for each vector of columns [begin, end).
template <int W, int WHOLE, class F> INLINE void each_column(int64_t begin, int64_t end, F f) {
  int64_t j = begin;
  int u = 0;
  for (; j + W <= end; j += W, ++u) f(j, u, Full{});
  if constexpr (WHOLE == 0) {
    if (j < end) f(j, u, Part{end - j});
  }
}
template <class V, int N> INLINE void fill_all(V (&to)[N], V x) {
  for (int k = 0; k < N; ++k) to[k] = x;
}

}  // namespace fg
