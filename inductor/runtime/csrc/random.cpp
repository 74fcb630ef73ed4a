// Draws of zeros and ones that equal at::bernoulli_'s, the generator's state afterwards included.
//
// ATen draws one element at a time from a Mersenne Twister. Here its 624 words are made, tempered and compared in loops
// of vectors. An element takes two words, the first of which is the higher half of a number of 53 bits.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <mutex>

namespace framegraph {
namespace {

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__)
#define FRAMEGRAPH_VECTORS __attribute__((optimize("O3"), target_clones("avx512f", "avx2", "default")))
#else
#define FRAMEGRAPH_VECTORS
#endif

constexpr int kWords = at::MERSENNE_STATE_N, kShift = at::MERSENNE_STATE_M;

inline uint32_t twisted(uint32_t high, uint32_t low) {
  const uint32_t mixed = (high & 0x80000000u) | (low & 0x7fffffffu);
  return (mixed >> 1) ^ ((0u - (low & 1u)) & at::MATRIX_A);
}

// The generator's next words, in place.
FRAMEGRAPH_VECTORS void next_words(uint32_t* words) {
  for (int i = 0; i < kWords - kShift; ++i) words[i] = words[i + kShift] ^ twisted(words[i], words[i + 1]);
  for (int i = kWords - kShift; i < kWords - 1; ++i)
    words[i] = words[i + kShift - kWords] ^ twisted(words[i], words[i + 1]);
  words[kWords - 1] = words[kShift - 1] ^ twisted(words[kWords - 1], words[0]);
}

FRAMEGRAPH_VECTORS void temper(const uint32_t* words, uint32_t* out, int count) {
  for (int i = 0; i < count; ++i) {
    uint32_t y = words[i];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    out[i] = y ^ (y >> 18);
  }
}

// Bits of each element: those of one where its number is below the limit, else zero.
template <typename Bits>
inline void compare(const uint32_t* words, int64_t limit, Bits one, Bits* out, int count) {
  for (int i = 0; i < count; ++i) {
    const uint64_t number = (static_cast<uint64_t>(words[2 * i] & 0x1fffffu) << 32) | words[2 * i + 1];
    out[i] = static_cast<int64_t>(number) < limit ? one : Bits{0};
  }
}

FRAMEGRAPH_VECTORS void compare8(const uint32_t* words, int64_t limit, uint8_t one, uint8_t* out, int count) {
  compare(words, limit, one, out, count);
}
FRAMEGRAPH_VECTORS void compare16(const uint32_t* words, int64_t limit, uint16_t one, uint16_t* out, int count) {
  compare(words, limit, one, out, count);
}
FRAMEGRAPH_VECTORS void compare32(const uint32_t* words, int64_t limit, uint32_t one, uint32_t* out, int count) {
  compare(words, limit, one, out, count);
}
FRAMEGRAPH_VECTORS void compare64(const uint32_t* words, int64_t limit, uint64_t one, uint64_t* out, int count) {
  compare(words, limit, one, out, count);
}

template <typename Bits>
using Compare = void (*)(const uint32_t*, int64_t, Bits, Bits*, int);

template <typename Bits>
void fill(at::CPUGeneratorImpl* generator, int64_t limit, Bits one, Bits* out, int64_t count, Compare<Bits> compared) {
  std::lock_guard<std::mutex> lock(generator->mutex_);
  at::mt19937 engine = generator->engine();
  at::mt19937_data_pod state = engine.data();
  std::array<uint32_t, kWords + 1> drawn;  // after one that the block before had left over
  int kept = 0;
  int64_t wanted = 2 * count;  // words to be taken from the generator
  while (wanted > 0) {
    if (state.left_ == 1) {
      next_words(state.state_.data());
      state.left_ = kWords + 1;
      state.next_ = 0;
    }
    const int taken = static_cast<int>(std::min<int64_t>(wanted, state.left_ - 1));
    temper(state.state_.data() + state.next_, drawn.data() + kept, taken);
    state.left_ -= taken;
    state.next_ += taken;
    wanted -= taken;
    const int whole = (kept + taken) / 2;
    compared(drawn.data(), limit, one, out, whole);
    out += whole;
    kept = (kept + taken) % 2;
    if (kept) drawn[0] = drawn[2 * whole];
  }
  engine.set_data(state);
  generator->set_engine(engine);
}

template <typename Bits, typename Value>
void fill_as(at::CPUGeneratorImpl* generator, int64_t limit, const at::Tensor& out, Compare<Bits> compared) {
  static_assert(sizeof(Bits) == sizeof(Value));
  const Value one(1);
  Bits bits;
  std::memcpy(&bits, &one, sizeof(bits));
  fill<Bits>(generator, limit, bits, static_cast<Bits*>(out.mutable_data_ptr()), out.numel(), compared);
}

at::Tensor& bernoulli_out(double p, std::optional<at::Generator> given, at::Tensor& out) {
  TORCH_CHECK(0 <= p && p <= 1, "bernoulli_ expects p to be in [0, 1], but got p=", p);
  TORCH_CHECK(out.is_non_overlapping_and_dense(), "framegraph::bernoulli writes memory without gaps");
  auto* generator = at::get_generator_or_default<at::CPUGeneratorImpl>(given, at::detail::getDefaultCPUGenerator());
  const auto limit = static_cast<int64_t>(std::ceil(std::ldexp(p, 53)));
  switch (out.scalar_type()) {
    case at::kBool: fill_as<uint8_t, bool>(generator, limit, out, compare8); break;
    case at::kHalf: fill_as<uint16_t, at::Half>(generator, limit, out, compare16); break;
    case at::kBFloat16: fill_as<uint16_t, at::BFloat16>(generator, limit, out, compare16); break;
    case at::kFloat: fill_as<uint32_t, float>(generator, limit, out, compare32); break;
    case at::kDouble: fill_as<uint64_t, double>(generator, limit, out, compare64); break;
    default: TORCH_CHECK(false, "framegraph::bernoulli of ", out.scalar_type());
  }
  return out;
}

at::Tensor bernoulli(at::IntArrayRef size, double p, at::ScalarType dtype, std::optional<at::Generator> generator) {
  at::Tensor out = at::empty(size, at::TensorOptions().dtype(dtype));
  return bernoulli_out(p, generator, out);
}

TORCH_LIBRARY_FRAGMENT(framegraph, m) {
  m.def("bernoulli(int[] size, float p, ScalarType dtype, *, Generator? generator=None) -> Tensor", bernoulli,
        {at::Tag::nondeterministic_seeded});
  m.def("bernoulli.out(int[] size, float p, ScalarType dtype, *, Generator? generator=None, Tensor(a!) out) -> Tensor(a!)",
        [](at::IntArrayRef, double p, at::ScalarType, std::optional<at::Generator> generator, at::Tensor& out)
            -> at::Tensor& { return bernoulli_out(p, generator, out); },
        {at::Tag::nondeterministic_seeded});
}

}  // namespace
}  // namespace framegraph
