// Vectors of FG_LANES lanes: the functions of vec.h again, in a namespace of their own. Included by vec.h.

constexpr int W = FG_LANES;
template <class T> struct vec_of { typedef T type __attribute__((vector_size(sizeof(T) * W))); };
// These are no vectors of themselves; named so that overloads for them can compete with the general ones.
template <> struct vec_of<bool> { typedef int8_t type __attribute__((vector_size(W))); };
template <> struct vec_of<bf16> { typedef uint16_t type __attribute__((vector_size(2 * W))); };
template <> struct vec_of<f16> { typedef uint16_t type __attribute__((vector_size(2 * W))); };
template <class T> using vec = typename vec_of<T>::type;
typedef vec<int32_t> mask;

// Keeps the templates for vectors from competing with those for numbers.
template <class V> struct vector_type {};
template <> struct vector_type<vec<float>> { typedef int ok; };
template <> struct vector_type<vec<double>> { typedef int ok; };
template <> struct vector_type<vec<int64_t>> { typedef int ok; };
template <> struct vector_type<vec<int32_t>> { typedef int ok; };
template <> struct vector_type<vec<int16_t>> { typedef int ok; };
template <> struct vector_type<vec<int8_t>> { typedef int ok; };
template <> struct vector_type<vec<uint8_t>> { typedef int ok; };
template <class V> using is_vector = typename vector_type<V>::ok;

// The integer of a vector's element size, for lane masks of that width.
template <int N> struct int_of;
template <> struct int_of<1> { typedef int8_t type; };
template <> struct int_of<2> { typedef int16_t type; };
template <> struct int_of<4> { typedef int32_t type; };
template <> struct int_of<8> { typedef int64_t type; };
template <class V> struct lanes_of { typedef vec<typename int_of<sizeof(V) / W>::type> type; };

// A difference of a number and a vector is one broadcast; lane by lane it would be as many as there are lanes.
template <class V, class T> INLINE V fill(T x) { return x - V{}; }
#define FG_SPLAT(T) INLINE vec<T> splat(T x) { return fill<vec<T>>(x); }
FG_SPLAT(float) FG_SPLAT(double) FG_SPLAT(int64_t) FG_SPLAT(int32_t) FG_SPLAT(int16_t) FG_SPLAT(int8_t)
FG_SPLAT(uint8_t)
INLINE mask splat(bool x) { return fill<mask>(x ? -1 : 0); }
template <class V> INLINE V lit(float c) { return fill<V>(c); }
template <class V> INLINE V ilit(int32_t c) { return fill<V>(c); }
INLINE vec<int32_t> to_bits(vec<float> x) { return (vec<int32_t>)x; }
INLINE vec<float> from_bits(vec<int32_t> x) { return (vec<float>)x; }
INLINE vec<float> to_float(vec<int32_t> x) { return __builtin_convertvector(x, vec<float>); }

// lane l -> base + l * step
template <class T> INLINE vec<T> iota(int64_t base, int64_t step) {
  vec<T> r;
  LANES r[l] = (T)(base + l * step);
  return r;
}
// The same of a constant vector: a sum and a product of vectors, which wrap as unsigned ones do.
template <class T, class U> INLINE vec<T> integer_iota(int64_t base, int64_t step) {
  vec<T> lanes;
  LANES lanes[l] = (T)l;
  return (vec<T>)((vec<U>)lanes * (U)step + (U)base);
}
template <> INLINE vec<int32_t> iota<int32_t>(int64_t base, int64_t step) {
  return integer_iota<int32_t, uint32_t>(base, step);
}
template <> INLINE vec<int64_t> iota<int64_t>(int64_t base, int64_t step) {
  return integer_iota<int64_t, uint64_t>(base, step);
}
template <class T, class F> INLINE vec<T> each_lane(F f) {
  vec<T> r;
  LANES r[l] = f(l);
  return r;
}

// Bit l of a mask is lane l.
#if defined(FG_AVX512) && FG_LANES == 16
INLINE uint32_t mask_bits(mask m) { return (uint16_t)__builtin_ia32_cvtd2mask512(m); }
#define FG_MASK_BITS
#elif defined(FG_AVX512) && FG_LANES == 8
INLINE uint32_t mask_bits(mask m) { return (uint8_t)__builtin_ia32_cvtd2mask256(m); }
#define FG_MASK_BITS
#elif defined(FG_GCC) && defined(__AVX2__) && FG_LANES == 8
INLINE uint32_t mask_bits(mask m) { return (uint32_t)__builtin_ia32_movmskps256((vec<float>)m); }
#define FG_MASK_BITS
#elif defined(FG_GCC) && defined(__AVX2__) && FG_LANES == 4
INLINE uint32_t mask_bits(mask m) { return (uint32_t)__builtin_ia32_movmskps((vec<float>)m); }
#define FG_MASK_BITS
#endif
#if defined(FG_MASK_BITS)
INLINE bool any_lanes(mask x) { return mask_bits(x) != 0; }
INLINE bool all_lanes(mask x) { return mask_bits(x) == (1u << W) - 1; }
#else
INLINE bool any_lanes(mask x) {
  int32_t some = 0;
  LANES some |= x[l];
  return some != 0;
}
INLINE bool all_lanes(mask x) { return !any_lanes(~x); }
#endif

INLINE mask first_lanes(int64_t n) { return iota<int32_t>(0, 1) < fill<mask>((int32_t)n); }

// The lanes of m that take part.
INLINE mask some(Full, mask m) { return m; }
INLINE mask some(Part k, mask m) { return m & first_lanes(k.n); }

// --- selection and comparison --------------------------------------------------------------------

template <class V, is_vector<V> = 0> INLINE V select(mask c, V a, V b) {
  return __builtin_convertvector(c, typename lanes_of<V>::type) ? a : b;
}
template <class V, is_vector<V> = 0> INLINE V keep(Full, V now, V) { return now; }
template <class V, is_vector<V> = 0> INLINE V keep(Part k, V now, V before) { return select(first_lanes(k.n), now, before); }

#define FG_VCOMPARE(NAME, OP)                                                                     \
  template <class V, is_vector<V> = 0> INLINE mask NAME(V a, V b) { return __builtin_convertvector(a OP b, mask); }
FG_VCOMPARE(eq, ==) FG_VCOMPARE(ne, !=) FG_VCOMPARE(lt, <) FG_VCOMPARE(le, <=) FG_VCOMPARE(gt, >) FG_VCOMPARE(ge, >=)
INLINE mask logical_and(mask a, mask b) { return a & b; }
INLINE mask logical_or(mask a, mask b) { return a | b; }
INLINE mask logical_xor(mask a, mask b) { return a ^ b; }
INLINE mask logical_not(mask a) { return ~a; }

// --- arithmetic ----------------------------------------------------------------------------------

template <class V, is_vector<V> = 0> INLINE V add(V a, V b) { return a + b; }
template <class V, is_vector<V> = 0> INLINE V sub(V a, V b) { return a - b; }
template <class V, is_vector<V> = 0> INLINE V mul(V a, V b) { return a * b; }
template <class V, is_vector<V> = 0> INLINE V neg(V a) { return -a; }
template <class V, is_vector<V> = 0> INLINE V bit_and(V a, V b) { return a & b; }
template <class V, is_vector<V> = 0> INLINE V bit_or(V a, V b) { return a | b; }
template <class V, is_vector<V> = 0> INLINE V bit_xor(V a, V b) { return a ^ b; }
template <class V, is_vector<V> = 0> INLINE V bit_not(V a) { return ~a; }
template <class V, is_vector<V> = 0> INLINE V abs(V x) { return x < 0 ? -x : x; }
INLINE vec<float> abs(vec<float> x) { return from_bits(to_bits(x) & 0x7fffffff); }
INLINE vec<double> abs(vec<double> x) { return (vec<double>)((vec<int64_t>)x & 0x7fffffffffffffffLL); }
template <class V, is_vector<V> = 0> INLINE V maximum(V a, V b) { return ((a > b) | (a != a)) ? a : b; }
template <class V, is_vector<V> = 0> INLINE V minimum(V a, V b) { return ((a < b) | (a != a)) ? a : b; }
template <class V, is_vector<V> = 0> INLINE V fmax(V a, V b) { return ((b > a) | (a != a)) ? b : a; }
template <class V, is_vector<V> = 0> INLINE V fmin(V a, V b) { return ((b < a) | (a != a)) ? b : a; }
template <class V, is_vector<V> = 0> INLINE V relu(V x) { return x < 0 ? V{} : x; }
template <class V, is_vector<V> = 0> INLINE V sign(V x) { return x > 0 ? V{} + 1 : x < 0 ? V{} - 1 : V{}; }
template <class V, is_vector<V> = 0> INLINE V reciprocal(V x) { return (V{} + 1) / x; }
INLINE vec<float> copysign(vec<float> x, vec<float> s) {
  return from_bits((to_bits(x) & 0x7fffffff) | (to_bits(s) & (int32_t)0x80000000));
}
INLINE mask isinf(vec<float> x) { return abs(x) == lit<vec<float>>(__builtin_inff()); }
INLINE mask isinf(vec<double> x) { return eq(abs(x), splat((double)__builtin_inff())); }
INLINE mask signbit(vec<float> x) { return to_bits(x) < 0; }
INLINE mask signbit(vec<double> x) { return lt((vec<int64_t>)x, vec<int64_t>{}); }
INLINE vec<float> div(vec<float> a, vec<float> b) { return a / b; }
INLINE vec<double> div(vec<double> a, vec<double> b) { return a / b; }

// Lane by lane, for functions without a vector instruction, or rare ones.
#define FG_EACH1(NAME)                                                                            \
  template <class V, is_vector<V> = 0> INLINE V NAME##_lanes(V x) {                                                  \
    V r;                                                                                           \
    LANES r[l] = fg::NAME(x[l]);                                                                   \
    return r;                                                                                      \
  }
#define FG_EACH2(NAME)                                                                            \
  template <class V, is_vector<V> = 0> INLINE V NAME(V x, V y) {                                                     \
    V r;                                                                                           \
    LANES r[l] = fg::NAME(x[l], y[l]);                                                             \
    return r;                                                                                      \
  }
#define FG_EACH(NAME)                                                                             \
  FG_EACH1(NAME)                                                                                   \
  INLINE vec<float> NAME(vec<float> x) { return NAME##_lanes(x); }                                 \
  INLINE vec<double> NAME(vec<double> x) { return NAME##_lanes(x); }
#define FG_EACH_DOUBLE(NAME)                                                                      \
  FG_EACH1(NAME)                                                                                   \
  INLINE vec<double> NAME(vec<double> x) { return NAME##_lanes(x); }
// By a vector function of SLEEF where there is one, else lane by lane. Its address is found when the kernel's library is
// loaded, if the kernel uses it. WHOLE: lane by lane where a result is infinite or NaN, since SLEEF's is so too early.
template <class V> constexpr char letter = 'i';
template <> constexpr char letter<vec<float>> = 'f';
template <> constexpr char letter<vec<double>> = 'd';
template <class V> constexpr bool has_sleef = letter<V> != 'i' && sizeof(V) <= 4 * FG_WIDE;
template <class V> INLINE bool is_whole(V x) {
#if defined(FG_AVX512)
  constexpr int infinite_or_nan = 0x99;
  if constexpr (sizeof(V) == 64 && letter<V> == 'f') return !__builtin_ia32_fpclassps512_mask(x, infinite_or_nan, (uint16_t)-1);
  if constexpr (sizeof(V) == 64 && letter<V> == 'd') return !__builtin_ia32_fpclasspd512_mask(x, infinite_or_nan, (uint8_t)-1);
#endif
  return all_lanes(__builtin_convertvector(x - x == 0, mask));
}
#define FG_SLEEF1(NAME, ACCURACY, WHOLE)                                                          \
  FG_EACH1(NAME)                                                                                   \
  template <class V> struct NAME##_found { static V (*const f)(V); };                              \
  template <class V> V (*const NAME##_found<V>::f)(V) = (V (*)(V))sleef(#NAME, letter<V>, W, ACCURACY); \
  template <class V, is_vector<V> = 0> INLINE V NAME(V x) {                                        \
    if constexpr (has_sleef<V>)                                                                    \
      if (NAME##_found<V>::f != nullptr) {                                                         \
        const V r = NAME##_found<V>::f(x);                                                         \
        if (!WHOLE || is_whole(r)) return r;                                                       \
      }                                                                                            \
    return NAME##_lanes(x);                                                                        \
  }
#define FG_SLEEF2(NAME, ACCURACY, WHOLE)                                                          \
  template <class V> struct NAME##_found { static V (*const f)(V, V); };                           \
  template <class V>                                                                               \
  V (*const NAME##_found<V>::f)(V, V) = (V (*)(V, V))sleef(#NAME, letter<V>, W, ACCURACY);         \
  template <class V, is_vector<V> = 0> INLINE V NAME(V x, V y) {                                   \
    V r;                                                                                           \
    if constexpr (has_sleef<V>)                                                                    \
      if (NAME##_found<V>::f != nullptr) {                                                         \
        r = NAME##_found<V>::f(x, y);                                                              \
        if (!WHOLE || is_whole(r)) return r;                                                       \
      }                                                                                            \
    LANES r[l] = fg::NAME(x[l], y[l]);                                                             \
    return r;                                                                                      \
  }
FG_SLEEF1(exp2, "_u10", false) FG_SLEEF1(log2, "_u10", false) FG_SLEEF1(log10, "_u10", false) FG_SLEEF1(tan, "_u10", false)
FG_SLEEF1(asin, "_u10", false) FG_SLEEF1(acos, "_u10", false) FG_SLEEF1(atan, "_u10", false) FG_SLEEF1(sinh, "_u10", true)
FG_SLEEF1(cosh, "_u10", true) FG_SLEEF1(asinh, "_u10", true) FG_SLEEF1(acosh, "_u10", true) FG_SLEEF1(atanh, "_u10", false)
FG_SLEEF1(lgamma, "_u10", false)
// Of double; those of float are in vec_math.h.
FG_SLEEF1(sin, "_u10", false) FG_SLEEF1(cos, "_u10", false) FG_SLEEF1(exp, "_u10", false) FG_SLEEF1(log, "_u10", false)
FG_SLEEF1(tanh, "_u10", false) FG_SLEEF1(erf, "_u10", false) FG_SLEEF1(expm1, "_u10", false) FG_SLEEF1(log1p, "_u10", false)
FG_SLEEF1(erfc, "_u15", false)
FG_EACH_DOUBLE(sigmoid)
FG_SLEEF2(fmod, "", true) FG_SLEEF2(pow, "_u10", false) FG_SLEEF2(atan2, "_u10", false) FG_SLEEF2(hypot, "_u05", false)
FG_EACH2(div) FG_EACH2(div_trunc) FG_EACH2(copysign) FG_EACH2(shift_left) FG_EACH2(shift_right)
FG_EACH1(sqrt) FG_EACH1(floor) FG_EACH1(ceil) FG_EACH1(trunc) FG_EACH1(round)

#if defined(FG_AVX512)
// One instruction each. The builtins are the compiler's own names behind <immintrin.h>.
#if FG_LANES == 16
#define FG_ROUNDING(NAME, MODE)                                                                   \
  INLINE vec<float> NAME(vec<float> x) {                                                           \
    return __builtin_ia32_rndscaleps_mask(x, MODE, x, (uint16_t)-1, 4);                            \
  }                                                                                                \
  INLINE vec<double> NAME(vec<double> x) { return NAME##_lanes(x); }
INLINE vec<float> sqrt(vec<float> x) { return __builtin_ia32_sqrtps512_mask(x, x, (uint16_t)-1, 4); }
INLINE vec<double> sqrt(vec<double> x) { return sqrt_lanes(x); }
INLINE vec<float> fma(vec<float> a, vec<float> b, vec<float> c) {
  return __builtin_ia32_vfmaddps512_mask(a, b, c, (uint16_t)-1, 4);
}
INLINE vec<float> scale(vec<float> x, vec<float> n) {
  return __builtin_ia32_scalefps512_mask(x, n, x, (uint16_t)-1, 4);
}
// The instruction returns its second operand where one is NaN.
INLINE vec<float> no_more(vec<float> x, float c) {
  return __builtin_ia32_minps512_mask(lit<vec<float>>(c), x, x, (uint16_t)-1, 4);
}
INLINE vec<float> no_less(vec<float> x, float c) {
  return __builtin_ia32_maxps512_mask(lit<vec<float>>(c), x, x, (uint16_t)-1, 4);
}
#else
#define FG_ROUNDING(NAME, MODE)                                                                   \
  INLINE vec<float> NAME(vec<float> x) { return __builtin_ia32_rndscaleps_256_mask(x, MODE, x, (uint8_t)-1); } \
  INLINE vec<double> NAME(vec<double> x) {                                                         \
    return __builtin_ia32_rndscalepd_mask(x, MODE, x, (uint8_t)-1, 4);                             \
  }
INLINE vec<float> sqrt(vec<float> x) { return __builtin_ia32_sqrtps256(x); }
INLINE vec<double> sqrt(vec<double> x) { return __builtin_ia32_sqrtpd512_mask(x, x, (uint8_t)-1, 4); }
INLINE vec<float> fma(vec<float> a, vec<float> b, vec<float> c) { return __builtin_ia32_vfmaddps256(a, b, c); }
INLINE vec<float> scale(vec<float> x, vec<float> n) {
  return __builtin_ia32_scalefps256_mask(x, n, x, (uint8_t)-1);
}
INLINE vec<float> no_more(vec<float> x, float c) { return __builtin_ia32_minps256(lit<vec<float>>(c), x); }
INLINE vec<float> no_less(vec<float> x, float c) { return __builtin_ia32_maxps256(lit<vec<float>>(c), x); }
#endif
#else
#if defined(FG_GCC) && defined(__FMA__)
// One instruction each as well. g++ finds it if it is written lane by lane, too, but takes a third of a kernel's time.
#if FG_LANES == 8
#define FG_AVX(NAME) __builtin_ia32_##NAME##s256
#define FG_ROUND_DOUBLE(NAME, MODE) NAME##_lanes(x)
#else
#define FG_AVX(NAME) __builtin_ia32_##NAME##s
#define FG_ROUND_DOUBLE(NAME, MODE) __builtin_ia32_roundpd256(x, MODE)
#endif
#define FG_ROUNDING(NAME, MODE)                                                                   \
  INLINE vec<float> NAME(vec<float> x) { return FG_AVX(roundp)(x, MODE); }                         \
  INLINE vec<double> NAME(vec<double> x) { return FG_ROUND_DOUBLE(NAME, MODE); }
INLINE vec<float> sqrt(vec<float> x) { return FG_AVX(sqrtp)(x); }
INLINE vec<float> fma(vec<float> a, vec<float> b, vec<float> c) { return FG_AVX(vfmaddp)(a, b, c); }
#if FG_LANES == 8
INLINE vec<double> sqrt(vec<double> x) { return sqrt_lanes(x); }
#else
INLINE vec<double> sqrt(vec<double> x) { return __builtin_ia32_sqrtpd256(x); }
#endif
#else
#define FG_ROUNDING(NAME, MODE)                                                                   \
  INLINE vec<float> NAME(vec<float> x) { return NAME##_lanes(x); }                                 \
  INLINE vec<double> NAME(vec<double> x) { return NAME##_lanes(x); }
INLINE vec<float> sqrt(vec<float> x) { return sqrt_lanes(x); }
INLINE vec<double> sqrt(vec<double> x) { return sqrt_lanes(x); }
INLINE vec<float> fma(vec<float> a, vec<float> b, vec<float> c) {
  vec<float> r;
  LANES r[l] = __builtin_fmaf(a[l], b[l], c[l]);
  return r;
}
#endif
INLINE vec<float> no_more(vec<float> x, float c) { return lit<vec<float>>(c) < x ? lit<vec<float>>(c) : x; }
INLINE vec<float> no_less(vec<float> x, float c) { return lit<vec<float>>(c) > x ? lit<vec<float>>(c) : x; }
INLINE vec<float> scale(vec<float> x, vec<float> n) {  // in two steps, since 2^n alone may be out of range
  vec<int32_t> k = __builtin_convertvector(n, vec<int32_t>), h = k >> 1;
  return x * from_bits((h + 127) << 23) * from_bits((k - h + 127) << 23);
}
#endif
// NaN in either operand is the result: the instruction has that for b alone.
#if defined(FG_AVX512) && FG_LANES == 16
INLINE vec<float> maximum(vec<float> a, vec<float> b) {
  return a != a ? a : __builtin_ia32_maxps512_mask(a, b, b, (uint16_t)-1, 4);
}
INLINE vec<float> minimum(vec<float> a, vec<float> b) {
  return a != a ? a : __builtin_ia32_minps512_mask(a, b, b, (uint16_t)-1, 4);
}
// A chain of comparisons, as of a window's elements, takes g++ 10 s: it looks through all of them at each.
#elif defined(__AVX__) && FG_LANES == 8
INLINE vec<float> maximum(vec<float> a, vec<float> b) { return a != a ? a : __builtin_ia32_maxps256(a, b); }
INLINE vec<float> minimum(vec<float> a, vec<float> b) { return a != a ? a : __builtin_ia32_minps256(a, b); }
#endif
#if defined(FG_AVX512) || (defined(FG_GCC) && defined(__FMA__))
INLINE vec<float> mul_add(vec<float> a, vec<float> b, vec<float> c) { return fma(a, b, c); }
#else
INLINE vec<float> mul_add(vec<float> a, vec<float> b, vec<float> c) {
  vec<float> r;
  LANES r[l] = fg::mul_add(a[l], b[l], c[l]);
  return r;
}
#endif
#if defined(FG_GCC) && defined(__FMA__) && FG_LANES == 4
INLINE vec<double> mul_add(vec<double> a, vec<double> b, vec<double> c) { return __builtin_ia32_vfmaddpd256(a, b, c); }
#else
INLINE vec<double> mul_add(vec<double> a, vec<double> b, vec<double> c) {
  vec<double> r;
  LANES r[l] = fg::mul_add(a[l], b[l], c[l]);
  return r;
}
#endif
FG_ROUNDING(floor, 9) FG_ROUNDING(ceil, 10) FG_ROUNDING(trunc, 11) FG_ROUNDING(round, 8)
template <class V, is_vector<V> = 0> INLINE V rsqrt(V x) { return (V{} + 1) / sqrt(x); }
// fg::float_remainder and fg::float_div_floor for vectors; of integers lane by lane.
template <class V, is_vector<V> = 0> INLINE V remainder(V a, V b) {
  if constexpr (letter<V> != 'i') {
    const V m = fmod(a, b);
    return ((m != 0) & ((b < 0) != (m < 0))) ? m + b : m;
  } else {
    V r;
    LANES r[l] = fg::remainder(a[l], b[l]);
    return r;
  }
}
template <class V, is_vector<V> = 0> INLINE V div_floor(V a, V b) {
  if constexpr (letter<V> != 'i') {
    const V m = fmod(a, b), exact = a / b;
    V q = (a - m) / b;
    q = ((m != 0) & ((b < 0) != (m < 0))) ? q - 1 : q;
    V f = floor(q);
    f = q - f > 0.5f ? f + 1 : f;
    return b == 0 ? exact : q == 0 ? copysign(V{}, exact) : f;
  } else {
    V r;
    LANES r[l] = fg::div_floor(a[l], b[l]);
    return r;
  }
}

#define FG_VEC vec<float>
#define FG_IVEC vec<int32_t>
#if defined(FG_AVX512) && FG_LANES == 16
// Pieces of ERF_STEP around its multiples, each a polynomial in steps, the last one 1: without a division, which takes as
// long as all else. Weighted minimax fits in double precision, rounded.
#define FG_ERF
constexpr float ERF_STEP = 0.27f;
alignas(64) static const float ERF[6][16] = {
    {0, 0.297418207f, 0.55493927f, 0.748003304f, 0.873326182f, 0.943762183f, 0.978038073f, 0.992479324f,
     0.997747123f, 0.999410808f, 0.999865651f, 0.999973357f, 0.99999541f, 0.999999285f, 0.999999881f, 1},
    {0.304662377f, 0.283242762f, 0.227603316f, 0.158080474f, 0.0948981494f, 0.0492398962f, 0.0220829118f,
     0.00856003258f, 0.00286796875f, 0.000830526289f, 0.000207879886f, 4.49730032e-05f, 8.40953271e-06f,
     1.35916719e-06f, 1.89869567e-07f, 0},
    {2.38826097e-08f, -0.0206478275f, -0.03318391f, -0.0345719419f, -0.027672464f, -0.0179482456f, -0.0096592661f,
     -0.00436823489f, -0.00167256978f, -0.000544867304f, -0.000151518543f, -3.60524791e-05f, -7.35282583e-06f,
     -1.28704926e-06f, -1.93553262e-07f, 0},
    {-0.0074036466f, -0.00587982358f, -0.00230558915f, 0.00119906256f, 0.00307339919f, 0.00316484203f,
     0.00228002155f, 0.00127808517f, 0.000580626656f, 0.000218158413f, 6.85938357e-05f, 1.81835494e-05f,
     4.08464712e-06f, 7.80337984e-07f, 1.27123258e-07f, 0},
    {1.72270404e-06f, 0.000709932123f, 0.000967484841f, 0.000706212944f, 0.000226075717f, -0.000137422481f,
     -0.000261790352f, -0.000219420413f, -0.000128983404f, -5.87639588e-05f, -2.15963755e-05f, -6.53571806e-06f,
     -1.64876678e-06f, -3.4948701e-07f, -6.25893648e-08f, 0},
    {0.000158985538f, 0.000109017688f, -5.00462966e-06f, -8.70599833e-05f, -9.28330992e-05f, -4.87900215e-05f,
     -4.02512205e-06f, 1.66949831e-05f, 1.72382424e-05f, 1.0553993e-05f, 4.75233765e-06f, 1.68229622e-06f,
     4.82745065e-07f, 1.14230886e-07f, 2.25294894e-08f, 0},
};
INLINE vec<float> erf(vec<float> x) {
  const auto piece = [](int power, vec<int32_t> of) __attribute__((always_inline)) {
    const vec<float> all = *(const vec<float>*)ERF[power];
    return (vec<float>)__builtin_ia32_permvarsf512_mask(all, of, all, (uint16_t)-1);
  };
  const vec<float> at = no_more(abs(x) * lit<vec<float>>(1 / ERF_STEP), 15.49f);
  const vec<float> rounding = lit<vec<float>>(0x1.8p23f), moved = at + rounding;  // its lowest bits are the multiple
  const vec<int32_t> of = to_bits(moved);
  const vec<float> t = at - (moved - rounding);
  vec<float> y = piece(5, of);
  for (int power = 4; power >= 0; --power) y = fma(y, t, piece(power, of));
  return from_bits(to_bits(y) | (to_bits(x) & INT32_MIN));
}
#endif
#include "vec_math.h"
#undef FG_ERF
#undef FG_VEC
#undef FG_IVEC
#undef FG_ROUNDING
#undef FG_ROUND_DOUBLE
#undef FG_AVX

// --- conversion ----------------------------------------------------------------------------------

// Floats to narrow integers by 32 bits, from which they wrap; between integers by twice the width or half of it at a
// time: by more, compilers convert one lane after another.
template <class T> struct caster {
  template <class V> static INLINE vec<T> run(V x) {
    constexpr int from = sizeof(x[0]), to = sizeof(T);
    if constexpr (wraps<T, decltype(x[0] + 0)>)
      return run(__builtin_convertvector(x, vec<int32_t>));
    else if constexpr (from == 1 && to > 1)
      return run(__builtin_convertvector(x, vec<int16_t>));
    else if constexpr ((from == 2 && to > 4) || (from == 2 && to == 4 && T(0.5) != T(0)) || (from == 8 && to < 4))
      return run(__builtin_convertvector(x, vec<int32_t>));
    else if constexpr (from == 4 && to == 1)
      return run(__builtin_convertvector(x, vec<int16_t>));
    else
      return __builtin_convertvector(x, vec<T>);
  }
};
template <> struct caster<bool> {
  template <class V> static INLINE mask run(V x) { return x != V{} ? mask{} - 1 : mask{}; }
};
template <class T, class V, is_vector<V> = 0> INLINE auto cast(V x) { return caster<T>::run(x); }
INLINE mask nonzero(vec<float> x) { return x != vec<float>{}; }
template <class V, is_vector<V> = 0> INLINE mask nonzero(V x) { return __builtin_convertvector(x != V{}, mask); }
template <class T> INLINE vec<T> cast_mask(mask m) { return select(m, splat((T)1), vec<T>{}); }

INLINE vec<float> from_bf16(vec<uint16_t> x) {
#if defined(FG_GCC) && defined(__AVX2__) && FG_LANES == 8
  typedef short words __attribute__((vector_size(16)));
  return (vec<float>)((vec<uint32_t>)__builtin_ia32_pmovzxwd256((words)x) << 16);  // it converts halves by itself
#elif defined(FG_AVX512) && FG_LANES == 16
  typedef short words __attribute__((vector_size(32)));
  typedef int dwords __attribute__((vector_size(64)));
  return (vec<float>)((vec<uint32_t>)__builtin_ia32_pmovzxwd512_mask((words)x, dwords{}, -1) << 16);
#endif
  return from_bits((vec<int32_t>)(__builtin_convertvector(x, vec<uint32_t>) << 16));
}
// The bits of x, of which the upper half are those of the number of bf16.
INLINE vec<uint32_t> rounded_to_bf16(vec<float> x) {
  vec<uint32_t> b = (vec<uint32_t>)x;
  return x != x ? b | 0x400000 : b + 0x7fff + ((b >> 16) & 1);
}
INLINE vec<uint16_t> upper_halves(vec<uint32_t> b) {
#if defined(FG_AVX512) && FG_LANES == 16
  typedef int dwords __attribute__((vector_size(64)));
  typedef short words __attribute__((vector_size(32)));
  return (vec<uint16_t>)__builtin_ia32_pmovdw512_mask((dwords)(b >> 16), words{}, -1);
#elif defined(FG_GCC) && defined(__AVX2__) && !defined(FG_AVX512) && FG_LANES == 8
  typedef int dwords __attribute__((vector_size(32)));
  typedef long long quads __attribute__((vector_size(32)));
  const quads both = (quads)__builtin_ia32_packusdw256((dwords)(b >> 16), (dwords)(b >> 16));
  const quads packed = __builtin_shuffle(both, quads{0, 2, 0, 2});  // a conversion clears the upper halves first
  vec<uint16_t> r;
  __builtin_memcpy(&r, &packed, sizeof r);
  return r;
#endif
  return __builtin_convertvector(b >> 16, vec<uint16_t>);
}
INLINE vec<uint16_t> bf16_bits(vec<float> x) { return upper_halves(rounded_to_bf16(x)); }
#if defined(FG_AVX512) && FG_LANES == 16
INLINE vec<float> from_f16(vec<uint16_t> x) {
  typedef short words __attribute__((vector_size(32)));
  return (vec<float>)__builtin_ia32_vcvtph2ps512_mask((words)x, vec<float>{}, (uint16_t)-1, 4);
}
INLINE vec<uint16_t> f16_bits(vec<float> x) {
  typedef short words __attribute__((vector_size(32)));
  return (vec<uint16_t>)__builtin_ia32_vcvtps2ph512_mask(x, 0, words{}, (uint16_t)-1);
}
#elif defined(__F16C__) && FG_LANES == 8
INLINE vec<float> from_f16(vec<uint16_t> x) {
  typedef short words __attribute__((vector_size(16)));
  return (vec<float>)__builtin_ia32_vcvtph2ps256((words)x);
}
INLINE vec<uint16_t> f16_bits(vec<float> x) { return (vec<uint16_t>)__builtin_ia32_vcvtps2ph256(x, 0); }
#elif defined(__F16C__) && FG_LANES == 4
INLINE vec<float> from_f16(vec<uint16_t> x) {
  typedef short words __attribute__((vector_size(16)));
  words all{};
  __builtin_memcpy(&all, &x, sizeof x);
  return (vec<float>)__builtin_ia32_vcvtph2ps(all);
}
INLINE vec<uint16_t> f16_bits(vec<float> x) {
  const auto all = __builtin_ia32_vcvtps2ph(x, 0);
  vec<uint16_t> r;
  __builtin_memcpy(&r, &all, sizeof r);
  return r;
}
#else
INLINE vec<float> from_f16(vec<uint16_t> x) {
  vec<uint32_t> h = __builtin_convertvector(x, vec<uint32_t>);
  vec<uint32_t> b = (vec<uint32_t>)((vec<float>)((h & 0x7fff) << 13) * 0x1p112f);
  b |= (h & 0x7c00) == 0x7c00 ? vec<uint32_t>{} + 0x7f800000u : vec<uint32_t>{};
  return (vec<float>)(b | ((h & 0x8000) << 16));
}
INLINE vec<uint16_t> f16_bits(vec<float> x) {
  vec<uint32_t> b = (vec<uint32_t>)x, s = (b >> 16) & 0x8000, m = b & 0x7fffffff;
  vec<uint32_t> normal = (m + 0xfff + ((m >> 13) & 1) - (112u << 23)) >> 13;
  vec<uint32_t> small = (vec<uint32_t>)((vec<float>)m + 0.5f) - 0x3f000000;
  vec<uint32_t> r = m < 0x38800000 ? small : normal;
  r = m >= 0x477ff000 ? vec<uint32_t>{} + 0x7c00 : r;
  r = m > 0x7f800000 ? 0x7e00 | ((m >> 13) & 0x3ff) : r;
  return __builtin_convertvector(r | s, vec<uint16_t>);
}
#endif
INLINE vec<float> round_bf16(vec<float> x) { return (vec<float>)(rounded_to_bf16(x) & 0xffff0000); }
INLINE vec<float> round_f16(vec<float> x) { return from_f16(f16_bits(x)); }

#include "vec_memory.h"

// --- squares -------------------------------------------------------------------------------------

// Lanes of x where l & N is 0, and those of y that are N lower.
template <int N, class V> INLINE V low_halves(V x, V y) {
#if defined(FG_GCC)
  typename lanes_of<V>::type from;
  LANES from[l] = l & N ? W + l - N : l;
  return __builtin_shuffle(x, y, from);
#else
  V r;
  LANES r[l] = l & N ? y[l - N] : x[l];
  return r;
#endif
}
template <int N, class V> INLINE V high_halves(V x, V y) {
#if defined(FG_GCC)
  typename lanes_of<V>::type from;
  LANES from[l] = l & N ? W + l : l + N;
  return __builtin_shuffle(x, y, from);
#else
  V r;
  LANES r[l] = l & N ? y[l] : x[l + N];
  return r;
#endif
}
template <int N, class V> INLINE void transpose_blocks(V (&rows)[W]) {
  for (int k = 0; k < W; ++k) {
    if (k & N) continue;
    V x = rows[k], y = rows[k + N];
    rows[k] = low_halves<N>(x, y);
    rows[k + N] = high_halves<N>(x, y);
  }
}
template <class V> INLINE void transpose(V (&rows)[W]) {
  if constexpr (W > 8) transpose_blocks<8>(rows);
  if constexpr (W > 4) transpose_blocks<4>(rows);
  if constexpr (W > 2) transpose_blocks<2>(rows);
  transpose_blocks<1>(rows);
}
// p[N * l + k] = x[k][l]
template <int N, class T, class V, class L> INLINE void store_interleaved(T* p, const V (&x)[N], L lanes) {
#if defined(FG_GCC)
  if (lane_count(lanes) == W) {
    _Pragma("GCC unroll 8") for (int part = 0; part < N; ++part) {
      V made = x[0];
      _Pragma("GCC unroll 8") for (int k = 1; k < N; ++k) {  // lane l is of x[(part * W + l) % N]
        typename lanes_of<V>::type from;
        LANES {
          const int at = part * W + l;
          from[l] = at % N == k ? W + at / N : k == 1 && at % N == 0 ? at / N : l;
        }
        made = (V)__builtin_shuffle(made, x[k], from);
      }
      store(p + part * W, made, Full{});
    }
    return;
  }
#endif
  for (int l = 0; l < lane_count(lanes); ++l) {
    for (int k = 0; k < N; ++k) put(p + N * l + k, x[k][l]);
  }
}
// rows[q][l] = p[q + l * step], for l of `lanes` and q of `across`
template <class V, class T, class L, class A> INLINE void load_tile(V (&rows)[W], const T* p, int64_t step, L lanes, A across) {
  LANES rows[l] = l < lane_count(lanes) ? load(p + l * step, across) : V{};
  transpose(rows);
}
template <class V, class T, class L, class A> INLINE void store_tile(T* p, int64_t step, V (&rows)[W], L lanes, A across) {
  transpose(rows);
  LANES if (l < lane_count(lanes)) store(p + l * step, rows[l], across);
}

// --- reductions ----------------------------------------------------------------------------------

// The lanes of x in other places: lane l holds lane l ^ N of x.
template <int N, class V> INLINE V swapped(V x) {
#if defined(FG_GCC)
  typename lanes_of<V>::type from;
  LANES from[l] = l ^ N;
  return __builtin_shuffle(x, from);
#else
  V r;
  LANES r[l] = x[l ^ N];
  return r;
#endif
}
// All lanes combined pairwise, halves first.
template <class V, class F> INLINE V across(V x, F step) {
  if constexpr (W > 8) x = step(x, swapped<8>(x));
  if constexpr (W > 4) x = step(x, swapped<4>(x));
  if constexpr (W > 2) x = step(x, swapped<2>(x));
  return step(x, swapped<1>(x));
}
template <class V, is_vector<V> = 0> INLINE auto sum_lanes(V x) { return across(x, [](V a, V b) { return a + b; })[0]; }
template <class V, is_vector<V> = 0> INLINE auto prod_lanes(V x) { return across(x, [](V a, V b) { return a * b; })[0]; }
template <class V, is_vector<V> = 0> INLINE auto max_lanes(V x) { return across(x, [](V a, V b) { return maximum(a, b); })[0]; }
template <class V, is_vector<V> = 0> INLINE auto min_lanes(V x) { return across(x, [](V a, V b) { return minimum(a, b); })[0]; }
template <class V, is_vector<V> = 0> INLINE mask arg_greater(V x, V best) { return ~le(x, best) & eq(best, best); }
template <class V, is_vector<V> = 0> INLINE mask arg_less(V x, V best) { return ~ge(x, best) & eq(best, best); }
template <class V, class P, is_vector<V> = 0> INLINE mask arg_greater(V x, P i, V best, P at) {
  return arg_greater(x, best) | ((eq(x, best) | (ne(x, x) & ne(best, best))) & lt(i, at));
}
template <class V, class P, is_vector<V> = 0> INLINE mask arg_less(V x, P i, V best, P at) {
  return arg_less(x, best) | ((eq(x, best) | (ne(x, x) & ne(best, best))) & lt(i, at));
}
template <class V, class P, is_vector<V> = 0> INLINE void arg_step(mask better, V& best, P& at, V x, P i) {
  best = select(better, x, best);
  at = select(better, i, at);
}
// The least position among the lanes that hold the extreme value, or NaN.
template <class V, class P> INLINE int64_t least_where(mask hit, V x, P at) {
  typedef decltype(+at[0]) T;
  const P never = P{} + (T)(sizeof(T) == 8 ? INT64_MAX : INT32_MAX);
  return min_lanes(select(hit | ne(x, x), at, never));
}
template <class V, class P, is_vector<V> = 0> INLINE int64_t argmax_lanes(V x, P at) {
  return least_where(eq(x, across(x, [](V a, V b) { return maximum(a, b); })), x, at);
}
template <class V, class P, is_vector<V> = 0> INLINE int64_t argmin_lanes(V x, P at) {
  return least_where(eq(x, across(x, [](V a, V b) { return minimum(a, b); })), x, at);
}

// Sines of x and of a quarter turn more. x = n pi/2 + r with |r| <= pi/4: pi/2 in three parts, of which a fused product
// leaves exact differences as long as n is small; others lane by lane.
#if defined(__FMA__) || defined(__aarch64__)
INLINE vec<float> sine(vec<float> x, int32_t quarters) {
  typedef vec<float> V;
  V n = round(x * lit<V>(0.636619772f));
  V r = fma(n, lit<V>(-1.57079637f), x);
  r = fma(n, lit<V>(4.37113883e-8f), r);
  r = fma(n, lit<V>(1.71512449e-15f), r);
  V s = r * r;
  V odd = lit<V>(-1.9515295891e-4f);
  odd = fma(odd, s, lit<V>(8.3321608736e-3f));
  odd = fma(odd, s, lit<V>(-0.16666654611f));
  odd = fma(odd * s, r, r);
  V even = lit<V>(2.443315711809948e-5f);
  even = fma(even, s, lit<V>(-1.388731625493765e-3f));
  even = fma(even, s, lit<V>(4.166664568298827e-2f));
  even = fma(even, s * s, fma(s, lit<V>(-0.5f), lit<V>(1.0f)));
  vec<int32_t> turns = __builtin_convertvector(n, vec<int32_t>) + quarters;
  V y = select((turns & 1) != 0, even, odd);
  return from_bits(to_bits(y) ^ ((turns & 2) << 30));
}
INLINE bool has_far(vec<float> x) { return any_lanes(~(abs(x) <= lit<vec<float>>(32768.0f))); }
INLINE vec<float> sin(vec<float> x) {
  if (__builtin_expect(has_far(x), 0)) return sin_lanes(x);
  return select(x == vec<float>{}, x, sine(x, 0));  // keeps -0.0
}
INLINE vec<float> cos(vec<float> x) {
  if (__builtin_expect(has_far(x), 0)) return cos_lanes(x);
  return sine(x, 1);
}
#else
INLINE vec<float> sin(vec<float> x) { return sin_lanes(x); }
INLINE vec<float> cos(vec<float> x) { return cos_lanes(x); }
#endif

#undef FG_MASK_BITS
#undef FG_SPLAT
#undef FG_VCOMPARE
#undef FG_EACH
#undef FG_EACH1
#undef FG_EACH2
#undef FG_EACH_DOUBLE
#undef FG_SLEEF1
#undef FG_SLEEF2
