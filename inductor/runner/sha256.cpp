#include "sha256.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace fg {
namespace {

// The first 32 bits of the fractional part of a root of a prime, which is below 2**9.
uint32_t fraction(long double root) { return static_cast<uint32_t>((root - std::floor(root)) * 4294967296.0L); }

struct Tables {
  std::array<uint32_t, 8> start;
  std::array<uint32_t, 64> rounds;

  Tables() {
    size_t count = 0;
    for (int n = 2; count < rounds.size(); ++n) {
      bool prime = true;
      for (int d = 2; d * d <= n; ++d) prime = prime && n % d != 0;
      if (!prime) continue;
      if (count < start.size()) start[count] = fraction(std::sqrt(static_cast<long double>(n)));
      rounds[count++] = fraction(std::cbrt(static_cast<long double>(n)));
    }
  }
};

const Tables kTables;

uint32_t turned(uint32_t x, int by) { return (x >> by) | (x << (32 - by)); }

void add_block(std::array<uint32_t, 8>& state, const unsigned char* block) {
  uint32_t w[64];
  for (int i = 0; i < 16; ++i) {
    w[i] = uint32_t{block[4 * i]} << 24 | uint32_t{block[4 * i + 1]} << 16 | uint32_t{block[4 * i + 2]} << 8 |
           uint32_t{block[4 * i + 3]};
  }
  for (int i = 16; i < 64; ++i) {
    const uint32_t a = turned(w[i - 15], 7) ^ turned(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const uint32_t b = turned(w[i - 2], 17) ^ turned(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + a + w[i - 7] + b;
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (int i = 0; i < 64; ++i) {
    const uint32_t one = h + (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) + ((e & f) ^ (~e & g)) +
                         kTables.rounds[static_cast<size_t>(i)] + w[i];
    const uint32_t two = (turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + one, d = c, c = b, b = a, a = one + two;
  }
  const uint32_t sums[] = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) state[i] += sums[i];
}

#if defined(__x86_64__)
bool has_instructions() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool shuffles = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & (1u << 9)) != 0 && (c & (1u << 19)) != 0;
  return shuffles && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & (1u << 29)) != 0;
}

// The same with the processor's instructions, which keep the state as a, b, e, f and c, d, g, h.
__attribute__((target("sha,sse4.1,ssse3"))) void add_blocks(std::array<uint32_t, 8>& state, const unsigned char* at,
                                                            size_t count) {
  const __m128i order = _mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3);
  const auto as_int = [](uint32_t x) { return static_cast<int>(x); };
  __m128i abef = _mm_set_epi32(as_int(state[0]), as_int(state[1]), as_int(state[4]), as_int(state[5]));
  __m128i cdgh = _mm_set_epi32(as_int(state[2]), as_int(state[3]), as_int(state[6]), as_int(state[7]));
  for (; count > 0; --count, at += 64) {
    const __m128i first = abef, second = cdgh;
    __m128i w[4];
    for (int i = 0; i < 16; ++i) {
      __m128i& next = w[i & 3];
      if (i < 4) {
        next = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at) + i), order);
      } else {
        const __m128i last = w[(i + 3) & 3], nearly = w[(i + 2) & 3];
        next = _mm_add_epi32(_mm_sha256msg1_epu32(next, w[(i + 1) & 3]), _mm_alignr_epi8(last, nearly, 4));
        next = _mm_sha256msg2_epu32(next, last);
      }
      const auto* rounds = reinterpret_cast<const __m128i*>(kTables.rounds.data()) + i;
      const __m128i message = _mm_add_epi32(next, _mm_loadu_si128(rounds));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, message);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(message, 0x0E));
    }
    abef = _mm_add_epi32(abef, first);
    cdgh = _mm_add_epi32(cdgh, second);
  }
  alignas(16) uint32_t one[4], two[4];
  _mm_store_si128(reinterpret_cast<__m128i*>(one), abef);
  _mm_store_si128(reinterpret_cast<__m128i*>(two), cdgh);
  state = {one[3], one[2], two[3], two[2], one[1], one[0], two[1], two[0]};
}
#endif

void add(std::array<uint32_t, 8>& state, const unsigned char* at, size_t count) {
#if defined(__x86_64__)
  static const bool fast = has_instructions();
  if (fast) return add_blocks(state, at, count);
#endif
  for (; count > 0; --count, at += 64) add_block(state, at);
}

}  // namespace

std::string sha256(const void* data, size_t size) {
  auto state = kTables.start;
  const auto* at = static_cast<const unsigned char*>(data);
  const size_t left = size % 64;
  add(state, at, size / 64);
  at += size - left;
  unsigned char tail[128] = {};
  if (left > 0) std::memcpy(tail, at, left);
  tail[left] = 0x80;
  const size_t end = left < 56 ? 64 : 128;
  for (size_t i = 0; i < 8; ++i) tail[end - 1 - i] = static_cast<unsigned char>((uint64_t{size} * 8) >> (8 * i));
  add(state, tail, end / 64);
  std::string text;
  for (uint32_t word : state) {
    for (int shift = 28; shift >= 0; shift -= 4) text += "0123456789abcdef"[(word >> shift) & 15];
  }
  return text;
}

}  // namespace fg
