// Loads and stores of the vectors of vec_lanes.h, which includes it.

template <class T> INLINE vec<T> raw_load(const T* p, Full) {
  vec<T> r;
  __builtin_memcpy(&r, p, sizeof r);
  return r;
}
template <class T> INLINE void raw_store(T* p, vec<T> x, Full) { __builtin_memcpy(p, &x, sizeof x); }

// Masked moves touch no memory outside their lanes. Dispatched on the size of an element and of the vector. What tells
// the lanes is a bit each (AVX-512) or the sign of an integer of the element's size (AVX2).
template <int ELEMENT, int BYTES> struct moves { static constexpr bool exist = false; };
#if defined(FG_AVX512)
#define FG_MOVES(ELEMENT, BYTES, INT, LOAD, STORE, BITS)                                          \
  template <> struct moves<ELEMENT, BYTES> {                                                       \
    static constexpr bool exist = true;                                                            \
    typedef INT V __attribute__((vector_size(BYTES)));                                             \
    static INLINE BITS lanes(Part k) { return (BITS)((1u << k.n) - 1); }                           \
    static INLINE BITS lanes(mask m) { return (BITS)mask_bits(m); }                                \
    static INLINE V load(const void* p, BITS m) { return (V)__builtin_ia32_##LOAD((const INT*)p, V{}, m); } \
    static INLINE void store(void* p, V x, BITS m) { __builtin_ia32_##STORE((INT*)p, x, m); }      \
  };
#if FG_LANES == 16
FG_MOVES(4, 64, int, loaddqusi512_mask, storedqusi512_mask, uint16_t)
FG_MOVES(2, 32, short, loaddquhi256_mask, storedquhi256_mask, uint16_t)
FG_MOVES(1, 16, char, loaddquqi128_mask, storedquqi128_mask, uint16_t)
#else
FG_MOVES(8, 64, long long, loaddqudi512_mask, storedqudi512_mask, uint8_t)
FG_MOVES(4, 32, int, loaddqusi256_mask, storedqusi256_mask, uint8_t)
FG_MOVES(2, 16, short, loaddquhi128_mask, storedquhi128_mask, uint8_t)
#endif
#undef FG_MOVES
#elif defined(FG_GCC) && defined(__AVX2__)
#define FG_MOVES(ELEMENT, BYTES, INT, LOAD, STORE)                                                \
  template <> struct moves<ELEMENT, BYTES> {                                                       \
    static constexpr bool exist = true;                                                            \
    typedef INT V __attribute__((vector_size(BYTES)));                                             \
    static INLINE V lanes(mask m) { return __builtin_convertvector(m, V); }                        \
    static INLINE V lanes(Part k) { return lanes(first_lanes(k.n)); }                              \
    static INLINE V load(const void* p, V m) { return (V)__builtin_ia32_##LOAD((const V*)p, m); }  \
    static INLINE void store(void* p, V x, V m) { __builtin_ia32_##STORE((V*)p, m, x); }           \
  };
#if FG_LANES == 8
FG_MOVES(4, 32, int, maskloadd256, maskstored256)
#else
FG_MOVES(8, 32, long long, maskloadq256, maskstoreq256)
FG_MOVES(4, 16, int, maskloadd, maskstored)
#endif
#undef FG_MOVES
#endif
template <class T> using moves_of = moves<sizeof(T), sizeof(T) * W>;

template <class T> INLINE vec<T> raw_load(const T* p, Part k) {
  typedef moves_of<T> M;
  if constexpr (M::exist) {
    return (vec<T>)M::load(p, M::lanes(k));
  } else {
    vec<T> r{};
    if constexpr (sizeof r <= 16 && little_endian) {
      const Words all = load_bytes(p, k.n * sizeof(T));
      __builtin_memcpy(&r, &all, sizeof r);
    } else {
      LANES if (l < k.n) r[l] = p[l];
    }
    return r;
  }
}
// Masked stores of AVX2 take more than ten cycles on some processors.
#if defined(FG_AVX512)
constexpr int LEAST_MASKED = 0;
#else
constexpr int LEAST_MASKED = 64;
#endif
template <class T> INLINE void raw_store(T* p, vec<T> x, Part k) {
  typedef moves_of<T> M;
  if constexpr (M::exist && sizeof x >= LEAST_MASKED) {
    M::store(p, (typename M::V)x, M::lanes(k));
  } else if constexpr (sizeof x <= 32 && little_endian) {
    Words parts[2]{};
    __builtin_memcpy(parts, &x, sizeof x);
    int64_t n = k.n * sizeof(T);
    char* to = (char*)p;
    if (sizeof x == 32 && n >= 16) {
      __builtin_memcpy(to, parts, 16);
      to += 16, n -= 16, parts[0] = parts[1];
    }
    if (sizeof x < 32 || n) store_bytes(to, parts[0], n);
  } else {
    LANES if (l < k.n) p[l] = x[l];
  }
}

template <class T, class L> INLINE vec<T> load(const T* p, L k) { return raw_load(p, k); }
template <class L> INLINE vec<float> load(const bf16* p, L k) { return from_bf16(raw_load((const uint16_t*)p, k)); }
template <class L> INLINE vec<float> load(const f16* p, L k) { return from_f16(raw_load((const uint16_t*)p, k)); }
template <class L> INLINE mask load(const bool* p, L k) {
  return __builtin_convertvector(raw_load((const int8_t*)p, k) != 0, mask);
}
template <class T, class L> INLINE void store(T* p, vec<T> x, L k) { raw_store(p, x, k); }
template <class L> INLINE void store(bf16* p, vec<float> x, L k) { raw_store((uint16_t*)p, bf16_bits(x), k); }
template <class L> INLINE void store_rounded(bf16* p, vec<float> x, L k) {
  raw_store((uint16_t*)p, upper_halves((vec<uint32_t>)x), k);
}
template <class L> INLINE void store(f16* p, vec<float> x, L k) { raw_store((uint16_t*)p, f16_bits(x), k); }
template <class L> INLINE void store(bool* p, mask x, L k) {
  raw_store((int8_t*)p, caster<int8_t>::run(-x), k);
}

// What is computed with of elements as they lie in memory.
template <class T> INLINE vec<T> widened(vec<T> x, const T*) { return x; }
INLINE vec<float> widened(vec<uint16_t> x, const bf16*) { return from_bf16(x); }
INLINE vec<float> widened(vec<uint16_t> x, const f16*) { return from_f16(x); }
INLINE mask widened(vec<int8_t> x, const bool*) { return __builtin_convertvector(x != 0, mask); }

// The lane type of a loaded element: a mask for bool, float for the half types.
template <class T> struct lane_of { typedef vec<T> type; };
template <> struct lane_of<bool> { typedef mask type; };
template <> struct lane_of<bf16> { typedef vec<float> type; };
template <> struct lane_of<f16> { typedef vec<float> type; };
template <class T> INLINE auto lane_value(const T& x) { return get(x); }
INLINE int32_t lane_value(const bool& x) { return x ? -1 : 0; }

INLINE int lane_count(Full) { return W; }
INLINE int lane_count(Part k) { return (int)k.n; }

// Lane l reads p[at(l)], where m (if given) holds; other lanes are 0.
template <class T, class F> INLINE auto gather(const T* p, Full, F at) {
  typename lane_of<T>::type r{};
  LANES r[l] = lane_value(p[at(l)]);
  return r;
}
template <class T, class F> INLINE auto gather(const T* p, Part k, F at) {
  typename lane_of<T>::type r{};
  for (int l = 0; l < (int)k.n; ++l) r[l] = lane_value(p[at(l)]);
  return r;
}
// Every K-th element, from K whole loads, of which the last ends at the last one needed.
template <int K, class T> INLINE auto load_every(const T* p, Full) {
#if defined(FG_GCC)
  typedef decltype(load(p, Full{})) V;
  V r = load(p, Full{});
  _Pragma("GCC unroll 8") for (int part = 1; part < K; ++part) {
    const int last = (K - 1) * (W - 1), from = part < K - 1 ? part * W : last;
    typename lanes_of<V>::type pick;
    LANES {
      const bool here = K * l >= from && (part == K - 1 || K * l < from + W);
      pick[l] = here ? W + K * l - from : part == 1 && K * l < W ? K * l : l;
    }
    r = (V)__builtin_shuffle(r, load(p + from, Full{}), pick);
  }
  return r;
#else
  return gather(p, Full{}, [](int64_t l) { return K * l; });
#endif
}
template <int K, class T> INLINE auto load_every(const T* p, Part k) {
  return gather(p, k, [](int64_t l) { return K * l; });
}
// Backwards: lane l reads p[-l].
template <class V> INLINE V backwards(V x) {
  V r;
  LANES r[l] = x[W - 1 - l];
  return r;
}
template <class T> INLINE auto load_reversed(const T* p, Full) {
#if defined(FG_GCC)
  return backwards(load(p - (W - 1), Full{}));
#else
  return gather(p, Full{}, [](int64_t l) { return -l; });
#endif
}
template <class T> INLINE auto load_reversed(const T* p, Part k) {
#if defined(FG_GCC)
  const auto x = load(p - (k.n - 1), k);
  return __builtin_shuffle(x, iota<typename int_of<sizeof(x) / W>::type>(k.n - 1, -1));
#else
  return gather(p, k, [](int64_t l) { return -l; });
#endif
}
// Borders of images are few: most vectors lie inside of a mask or outside.
template <class T, class L, class F> INLINE auto gather_if(mask m, const T* p, L k, F at) {
  typename lane_of<T>::type r{};
  m = some(k, m);
  if (!any_lanes(m)) return r;
  LANES if (m[l]) r[l] = lane_value(p[at(l)]);
  return r;
}
#if defined(FG_MASK_BITS)
// The lanes of m, which are some, by one load from the first to the last: elements between two of a buffer are of it as
// well. STEP: 1, or -1 where lane l reads p[-l].
template <int STEP, class T> INLINE auto load_span(mask m, const T* p) {
  const uint32_t bits = mask_bits(m);
  const int first = __builtin_ctz(bits), last = 31 - __builtin_clz(bits);
  const auto x = load(STEP == 1 ? p + first : p - last, Part{last - first + 1});
  const auto from = iota<typename int_of<sizeof(x) / W>::type>(STEP == 1 ? -first : last, STEP);
  return select(m, __builtin_shuffle(x, from), decltype(x + 0){});
}
#endif
template <class T, class L> INLINE auto load_if(mask m, const T* p, L k) {
  typedef moves_of<T> M;
  if constexpr (M::exist) {
    return widened((vec<T>)M::load(p, M::lanes(some(k, m))), p);
  } else {
    if (all_lanes(m)) return load(p, k);
#if defined(FG_MASK_BITS)
    m = some(k, m);
    typename lane_of<T>::type r{};
    if (any_lanes(m)) r = load_span<1>(m, p);
    return r;
#else
    return gather_if(m, p, k, [](int64_t l) { return l; });
#endif
  }
}
template <class T, class L> INLINE auto load_reversed_if(mask m, const T* p, L k) {
  typedef moves_of<T> M;
  if constexpr (M::exist) {
    m = some(k, m);
    typename lane_of<T>::type r{};
    if (any_lanes(m)) r = backwards(widened((vec<T>)M::load(p - (W - 1), M::lanes(backwards(m))), p));
    return r;
  } else {
    if (all_lanes(m)) return load_reversed(p, k);
#if defined(FG_MASK_BITS)
    m = some(k, m);
    typename lane_of<T>::type r{};
    if (any_lanes(m)) r = load_span<-1>(m, p);
    return r;
#else
    return gather_if(m, p, k, [](int64_t l) { return -l; });
#endif
  }
}
// One element for all lanes of m.
template <class T, class L> INLINE auto load_same_if(mask m, const T* p, L k) {
  typename lane_of<T>::type r{};
  if (any_lanes(some(k, m))) r = select(m, splat(get(*p)), r);
  return r;
}
// One mask for all lanes.
template <class T, class L> INLINE auto load_if(bool m, const T* p, L k) {
  typename lane_of<T>::type r{};
  if (m) r = load(p, k);
  return r;
}
template <int K, class T, class L> INLINE auto load_every_if(bool m, const T* p, L k) {
  typename lane_of<T>::type r{};
  if (m) r = load_every<K>(p, k);
  return r;
}
template <class T, class L> INLINE auto load_reversed_if(bool m, const T* p, L k) {
  typename lane_of<T>::type r{};
  if (m) r = load_reversed(p, k);
  return r;
}
template <class T, class L, class F> INLINE auto gather_if(bool m, const T* p, L k, F at) {
  typename lane_of<T>::type r{};
  if (m) r = gather(p, k, at);
  return r;
}
// A gather whose lanes, where `whole`, are STEP elements apart: where no quotient of its index changes within the vector.
template <int STEP, class T, class L, class F> INLINE auto load_run(bool whole, const T* p, L k, F at) {
  if (whole) {
    if constexpr (STEP == 1) return load(p + at(0), k);
    else if constexpr (STEP == -1) return load_reversed(p + at(0), k);
    else return splat(get(p[at(0)]));
  }
  return gather(p, k, at);
}
template <int STEP, class M, class T, class L, class F>
INLINE auto load_run_if(M m, bool whole, const T* p, L k, F at) {
  if constexpr (STEP == 1) {
    if (whole) return load_if(m, p + at(0), k);
  } else if constexpr (STEP == -1) {
    if (whole) return load_reversed_if(m, p + at(0), k);
  }
  return gather_if(m, p, k, at);
}
template <class T, class V, class L, class F> INLINE void scatter(T* p, V x, L k, F at) {
  for (int l = 0; l < lane_count(k); ++l) put(p + at(l), x[l]);
}
// Each lane in turn is combined with the element at its place, which may be that of a lane before.
template <class T, class V, class L, class F, class C>
INLINE void scatter(T* p, V x, L k, F at, C combine) {
  for (int l = 0; l < lane_count(k); ++l) {
    T* place = p + at(l);
    put(place, combine(get(*place), (T)x[l]));
  }
}

