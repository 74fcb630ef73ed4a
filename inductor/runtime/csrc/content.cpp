#include "content.h"

#include <ATen/MapAllocator.h>
#include <c10/core/CPUAllocator.h>
#include <torch/csrc/Storage.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <iterator>
#include <unordered_map>
#include <utility>

#include "arena.h"

namespace framegraph {
namespace {

// The memory of a tensor that a write may go unseen in; null for little of the host's, and for devices but GPUs.
c10::StorageImpl* large_memory(const at::Tensor& tensor) {
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (!impl->has_storage() || !impl->unsafe_storage()) return nullptr;
  c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  const bool on_gpu = storage->device_type() == c10::DeviceType::CUDA;
  if (!on_gpu && storage->device_type() != c10::DeviceType::CPU) return nullptr;
  const c10::SymInt bytes = storage->sym_nbytes();  // symbolic in torch's own traces
  return bytes.maybe_as_int().value_or(0) > (on_gpu ? 0 : static_cast<int64_t>(kWhole)) ? storage : nullptr;
}

// Of all its bytes; none of a GPU's.
std::optional<uint64_t> hash_of_memory(const c10::StorageImpl& storage) {
  if (storage.device_type() != c10::DeviceType::CPU) return std::nullopt;
  return hash_of(static_cast<const char*>(storage.data()), storage.nbytes());
}

bool is_foreign(const c10::DataPtr& memory) {
  const c10::DeleterFnPtr deleter = memory.get_deleter();
  if (memory.get() == nullptr || deleter == c10::GetCPUAllocator()->raw_deleter() || is_of_results(deleter)) return false;
  // Of parts of a mapped file each is one tensor's; those of other memory are written through the whole.
  const c10::DataPtr* whole = &memory;
  while (whole->get_deleter() != nullptr && whole->get_deleter() == deleter_of_parts()) {
    whole = &static_cast<const c10::StorageImpl*>(whole->get_context())->data_ptr();
  }
  const auto* mapped = at::MapAllocator::fromDataPtr(*whole);
  return mapped == nullptr || (mapped->flags() & (at::ALLOCATOR_MAPPED_SHARED | at::ALLOCATOR_MAPPED_SHAREDMEM)) != 0;
}

}  // namespace

c10::DeleterFnPtr deleter_of_parts() {
  static const c10::DeleterFnPtr known = [] {
    const py::object whole = py::module_::import("torch").attr("UntypedStorage")(8);
    const py::object part = whole[py::slice(0, 4, 1)];
    const c10::Storage& storage = THPStorage_Unpack(part.ptr());
    const bool refers = storage.data_ptr().get_context() == THPStorage_Unpack(whole.ptr()).unsafeGetStorageImpl();
    return refers ? storage.data_ptr().get_deleter() : nullptr;
  }();
  return known;
}

uint64_t hash_of(const char* data, size_t bytes) {
  Lanes lanes;
  size_t at = 0;
  for (; at + 32 <= bytes; at += 32) lanes.mix(data + at, 8);
  for (; at < bytes; ++at) lanes.values[0] = mixed(lanes.values[0], static_cast<unsigned char>(data[at]));
  return lanes.hash();
}

// Those of derived tensors' sources, and of memory with an alias that was handed out before anything was derived.
class Contents {
 public:
  Content* find(c10::StorageImpl* storage) {
    const auto found = all_.find(storage);
    return found == all_.end() ? nullptr : found->second.get();
  }

  const std::shared_ptr<Content>& at(c10::StorageImpl* storage) {
    if (all_.size() >= most_) {
      for (auto each = all_.begin(); each != all_.end();) {
        each = each->second->is_needed() ? std::next(each) : all_.erase(each);
      }
      most_ = std::max(kFewest, 2 * all_.size());
    }
    // The weak reference of an entry keeps any other storage from its address.
    std::shared_ptr<Content>& content = all_[storage];
    if (content == nullptr) content = std::make_shared<Content>(storage);
    return content;
  }

 private:
  static constexpr size_t kFewest = 1024;
  std::unordered_map<c10::StorageImpl*, std::shared_ptr<Content>> all_;
  size_t most_ = kFewest;
};

namespace {

Contents& contents() {
  static auto* all = new Contents();  // not destroyed at exit, when tensors may still be
  return *all;
}

}  // namespace

Content::Content(c10::StorageImpl* storage)
    : storage_(c10::intrusive_ptr<c10::StorageImpl>::unsafe_reclaim_from_nonowning(storage)) {}

namespace {

size_t holders_of(const c10::StorageImpl& storage) {
  // Its object in Python holds it even where nothing refers to that.
  return c10::raw::intrusive_ptr::use_count(const_cast<c10::StorageImpl*>(&storage)) -
         (storage.pyobj_slot()->has_unique_reference() ? 1 : 0);
}

}  // namespace

bool Content::is_needed() const {
  if (storage_.expired()) return false;
  return derived_ || std::any_of(counters_.begin(), counters_.end(), [](const Sharing& s) { return s.counter.users() > 0; });
}

void Content::add(const c10::VariableVersion& counter, bool split) {
  if (!counter.enabled()) return;  // of an inference tensor
  const auto is_it = [&](const Sharing& s) { return s.counter.is(counter); };
  const auto found = std::find_if(counters_.begin(), counters_.end(), is_it);
  if (found != counters_.end()) {
    found->split = found->split || split;
    return;
  }
  settle();
  const auto is_gone = [](const Sharing& s) { return s.counter.users() == 0; };
  counters_.erase(std::remove_if(counters_.begin(), counters_.end(), is_gone), counters_.end());
  counters_.push_back({Counter(counter), counter.current_version(), split});
}

void Content::settle() {
  for (Sharing& each : counters_) {
    const uint32_t now = each.counter.version();
    if (now == each.version) continue;
    each.version = now;
    ++version_;
    hash_.reset();
  }
}

size_t Content::users(const Counter& asked) {
  size_t sure = 0;
  for (Sharing& each : counters_) {
    if (!each.split) {
      sure += each.counter.users();
    } else if (each.counter.is(asked)) {
      each.split = each.counter.users() > 1;
      ++sure;
    }
  }
  return sure;
}

bool Content::has_unknown_holders(const Counter& asked) {
  const c10::StorageImpl* storage = storage_._unsafe_get_target();
  if (storage->data() != data_) {
    data_ = storage->data();
    foreign_ = storage->device_type() == c10::DeviceType::CPU && is_foreign(storage->data_ptr());
  }
  settle();
  const size_t holders = holders_of(*storage);
  if (users(asked) > holders) {  // some have been moved unseen
    for (Sharing& each : counters_) each.split = true;
  }
  return holders > users(asked) || foreign_;
}

uint64_t Content::version(uint64_t pass, const Counter& asked) {
  if (pass == pass_) {
    users(asked);  // whose counter may be split no more
    return version_;
  }
  pass_ = pass;
  const bool unknown = has_unknown_holders(asked);
  if (C10_LIKELY(!unknown && !open_)) {
    hash_.reset();
    return version_;
  }
  const std::optional<uint64_t> now = hash_of_memory(*storage_._unsafe_get_target());
  // Without a hash of before, who has come since may have written.
  if (!now || now != hash_) ++version_;
  hash_ = now;
  open_ = unknown;
  return version_;
}

bool has_foreign_memory(const at::Tensor& tensor) {
  const c10::StorageImpl* storage = large_memory(tensor);
  return storage != nullptr && storage->device_type() == c10::DeviceType::CPU && is_foreign(storage->data_ptr());
}

std::shared_ptr<Content> derived_content(const at::Tensor& tensor) {
  c10::StorageImpl* storage = large_memory(tensor);
  if (storage == nullptr) return nullptr;
  const std::shared_ptr<Content>& content = contents().at(storage);
  content->derived_ = true;
  content->add(tensor.unsafeGetTensorImpl()->version_counter());
  return content;
}

void hand_out(const at::Tensor& tensor) {
  c10::StorageImpl* storage = large_memory(tensor);
  if (storage == nullptr) return;
  Content& content = *contents().at(storage);
  content.add(tensor.unsafeGetTensorImpl()->version_counter());
  if (!content.derived_) return;
  content.settle();
  if (!content.hash_) content.hash_ = hash_of_memory(*storage);
  content.open_ = true;
}

void note_moved(const at::Tensor& tensor, const at::Tensor& value, const c10::Storage& old) {
  const c10::VariableVersion& counter = tensor.unsafeGetTensorImpl()->version_counter();
  if (!counter.enabled()) return hand_out(value);
  c10::StorageImpl* storage = large_memory(value);
  if (storage == old.unsafeGetStorageImpl()) return;
  const bool shared = Counter(counter).users() > 1;
  if (storage != nullptr) {
    Content& content = *contents().at(storage);
    content.add(value.unsafeGetTensorImpl()->version_counter());
    content.add(counter, shared);
  }
  if (!old) return;
  const bool known = contents().find(old.unsafeGetStorageImpl()) != nullptr;
  if (known || shared) contents().at(old.unsafeGetStorageImpl())->add(counter, /*split=*/true);
}

void note_write(const at::Tensor& tensor) {
  c10::StorageImpl* storage = large_memory(tensor);
  if (storage == nullptr) return;
  Content* content = contents().find(storage);
  if (content == nullptr) return;
  ++content->version_;
  content->hash_.reset();
}

}  // namespace framegraph
