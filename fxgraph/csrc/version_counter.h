// A counter of versions, which a tensor shares with its views and what is detached from it.
#pragma once

#include <c10/core/TensorImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <cstring>

namespace framegraph {

// torch tells of a counter but its number: it is a pointer to an object that is counted. Weak: where memory is watched for
// writes, those who share a counter are counted (inductor/runtime/csrc/content.h); and no other counter gets its address
// meanwhile.
class Counter {
 public:
  explicit Counter(const c10::VariableVersion& counter)
      : held_(c10::intrusive_ptr<c10::intrusive_ptr_target>::unsafe_reclaim_from_nonowning(target_of(counter))) {}

  static const void* address_of(const c10::VariableVersion& counter) { return target_of(counter); }

  bool is(const c10::VariableVersion& counter) const { return address() == target_of(counter); }
  bool is(const Counter& other) const { return address() == other.address(); }
  const void* address() const { return held_._unsafe_get_target(); }
  size_t users() const { return held_.use_count(); }

  // The last one, after the last tensor has ended.
  uint32_t version() const {
    alignas(c10::VariableVersion) char bits[sizeof(c10::VariableVersion)];
    const void* target = address();
    std::memcpy(bits, &target, sizeof target);
    return reinterpret_cast<const c10::VariableVersion*>(bits)->current_version();
  }

 private:
  static c10::intrusive_ptr_target* target_of(const c10::VariableVersion& counter) {
    static_assert(sizeof counter == sizeof(c10::intrusive_ptr_target*));
    c10::intrusive_ptr_target* target;
    std::memcpy(&target, &counter, sizeof target);
    return target;
  }

  c10::weak_intrusive_ptr<c10::intrusive_ptr_target> held_;
};

}  // namespace framegraph
