// Writes that move no version counter, to memory that tensors are derived from: through `.data` or an array of numpy.
// Of a GPU's memory nothing is read: each question is answered as after a write while an alias may be alive, and once
// after its address was asked for.
#pragma once

#include <torch/csrc/python_headers.h>

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>

namespace framegraph {

// The bytes up to which a source is compared whole each time: its content needs no version.
constexpr size_t kWhole = 4096;

inline uint64_t word(const char* at) {
  uint64_t value = 0;
  std::memcpy(&value, at, sizeof value);
  return value;
}

inline uint64_t mixed(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
  return hash ^ (hash >> 32);
}

// Hashes side by side: one alone waits for its products.
struct Lanes {
  std::array<uint64_t, 4> values{1, 2, 3, 4};

  // Four words, `step` bytes from one to the next.
  void mix(const char* data, size_t step) {
    for (size_t lane = 0; lane < 4; ++lane) values[lane] = mixed(values[lane], word(data + lane * step));
  }
  uint64_t hash() const { return mixed(mixed(mixed(values[0], values[1]), values[2]), values[3]); }
};

uint64_t hash_of(const char* data, size_t bytes);

// The memory of a storage, with a version that such writes move. While an alias may write, asking for the version
// reads all of the memory; before and after, nothing. The GIL guards the members.
class Content {
 public:
  explicit Content(c10::StorageImpl* storage);

  // pass: a number of the asking round; a second question of a round reads nothing.
  uint64_t version(uint64_t pass);

 private:
  friend std::shared_ptr<Content> derived_content(const at::Tensor& tensor);
  friend void hand_out(const at::Tensor& tensor, bool holds_tensor);
  friend void note_write(const at::Tensor& tensor);
  friend class Contents;

  bool is_needed() const;

  c10::weak_intrusive_ptr<c10::StorageImpl> storage_;
  bool derived_ = false;  // whether tensors are, or were, derived from it
  bool open_ = false;     // whether an alias may be alive
  size_t holders_ = 0;    // of the storage, before that alias
  std::optional<uint64_t> hash_;
  uint64_t version_ = 0;
  uint64_t pass_ = 0;
};

// The content of a tensor that something is derived from; null for little memory.
std::shared_ptr<Content> derived_content(const at::Tensor& tensor);

// A graph writes the tensor without a new version, as eager does through `.data`.
void note_write(const at::Tensor& tensor);

// Watches the attributes of tensors that hand such aliases out, from now on.
void watch_aliases();

}  // namespace framegraph
