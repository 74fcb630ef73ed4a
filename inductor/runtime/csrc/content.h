// Writes that move no version counter of a tensor, to memory that others are derived from: through `.data`, an array of
// numpy, a buffer that parameters are views of. Of a GPU's memory nothing is read: each question is answered as after a
// write while an alias may be alive, and once after its address was asked for.
#pragma once

#include <torch/csrc/python_headers.h>

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "../../../fxgraph/csrc/version_counter.h"

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

// The memory of a storage, with a version that writes move. Each tensor on the memory shares one of the counters known
// here, whose versions are read; where the storage has more holders than these, or memory that others may write, asking
// for the version reads all of the memory. A counter may be split, shared with tensors on other memory: what is detached
// from a parameter stays behind where that is moved. Of those who share it, the tensor that is asked for alone is sure
// to be here. The GIL guards the members.
class Content {
 public:
  explicit Content(c10::StorageImpl* storage);

  // asked: the counter of a tensor on this memory. pass: a number of the asking round; a second question of a round
  // reads nothing. The storage is alive.
  uint64_t version(uint64_t pass, const Counter& asked);

  // A tensor that shares the counter is on this memory.
  void add(const c10::VariableVersion& counter, bool split = false);

 private:
  friend std::shared_ptr<Content> derived_content(const at::Tensor& tensor);
  friend void hand_out(const at::Tensor& tensor);
  friend void note_moved(const at::Tensor& tensor, const at::Tensor& value, const c10::Storage& old);
  friend void note_write(const at::Tensor& tensor);
  friend class Contents;

  struct Sharing {
    Counter counter;
    uint32_t version;
    bool split;
  };

  bool is_needed() const;
  // Reads the versions.
  void settle();
  // How many tensors share the counters and are sure to be here.
  size_t users(const Counter& asked);
  bool has_unknown_holders(const Counter& asked);

  c10::weak_intrusive_ptr<c10::StorageImpl> storage_;
  std::vector<Sharing> counters_;
  const void* data_ = nullptr;  // when `foreign_` was told of it
  bool foreign_ = false;
  bool derived_ = false;  // whether tensors are, or were, derived from it
  bool open_ = false;     // whether something may have written since the version was asked for
  std::optional<uint64_t> hash_;
  uint64_t version_ = 0;
  uint64_t pass_ = 0;
};

// Whether the memory of a tensor is the host's and torch has not allocated it, or shares it between processes: arrays
// of numpy, buffers and other processes write there, of which nothing tells.
bool has_foreign_memory(const at::Tensor& tensor);

// The content of a tensor that something is derived from; null for little memory.
std::shared_ptr<Content> derived_content(const at::Tensor& tensor);

// An alias of the tensor's memory, which another counter counts the writes of, or none, is about to be made.
void hand_out(const at::Tensor& tensor);

// The memory of `value` is the tensor's from now on, whose storage was `old`; null if it had none.
void note_moved(const at::Tensor& tensor, const at::Tensor& value, const c10::Storage& old);

// A graph writes the tensor without a new version, as eager does through `.data`.
void note_write(const at::Tensor& tensor);

// What frees a part of a storage (`storage[8:16]`, as tensors of a mapped file are made), whose context is the whole;
// null if torch makes parts otherwise.
c10::DeleterFnPtr deleter_of_parts();

// Watches the attributes of tensors that hand such aliases out, from now on.
void watch_aliases();

}  // namespace framegraph
