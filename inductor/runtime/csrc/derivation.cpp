#include "derivation.h"

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

namespace framegraph {
namespace {

constexpr size_t kWhole = 4096;  // bytes up to which all of a source is sampled
constexpr size_t kFewest = 64, kMost = 1024;  // words sampled of a larger one; one of each outermost slice, if that many

// Sampled words, of all sources, from which on threads share the sources: almost each word is on a page of its own, whose
// address takes long to find.
constexpr size_t kShared = 2048;

uint64_t word(const char* at) {
  uint64_t value = 0;
  std::memcpy(&value, at, sizeof value);
  return value;
}

uint64_t mixed(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
  return hash ^ (hash >> 32);
}

uint64_t whole(const char* data, size_t bytes) {
  std::array<uint64_t, 4> lanes{1, 2, 3, 4};  // side by side: one alone waits for its products
  size_t at = 0;
  for (; at + 32 <= bytes; at += 32) {
    for (size_t lane = 0; lane < 4; ++lane) lanes[lane] = mixed(lanes[lane], word(data + at + 8 * lane));
  }
  for (; at < bytes; ++at) lanes[0] = mixed(lanes[0], static_cast<unsigned char>(data[at]));
  return mixed(mixed(mixed(lanes[0], lanes[1]), lanes[2]), lanes[3]);
}

size_t words_of(const at::Tensor& tensor) {
  return std::clamp(tensor.dim() > 0 ? static_cast<size_t>(tensor.size(0)) : 1, kFewest, kMost);
}

uint64_t sampled(const char* data, size_t bytes, size_t count) {
  uint64_t hash = 0;
  for (size_t i = 0; i < count; ++i) hash = mixed(hash, word(data + i * (bytes - sizeof hash) / (count - 1)));
  return hash;
}

// Bytes from a tensor's first element to past its last.
size_t extent(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return 0;
  int64_t last = 0;
  for (int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
  return static_cast<size_t>(last + 1) * tensor.element_size();
}

uint64_t sample(const at::Tensor& tensor, const void* data) {
  const size_t bytes = data == nullptr ? 0 : extent(tensor);
  const auto* first = static_cast<const char*>(data);
  if (bytes <= kWhole) return whole(first, bytes);
  return sampled(first, bytes, words_of(tensor));
}

// Inference tensors have no version that would tell of a write.
bool has_version(const at::Tensor& tensor) { return !tensor.unsafeGetTensorImpl()->is_inference(); }

Look look(const at::Tensor& tensor) {
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const void* data = impl->data();
  return {impl->storage().getWeakStorageImpl(), data,
          has_version(tensor) ? impl->version_counter().current_version() : 0, sample(tensor, data)};
}

bool same(const Look& seen, const at::Tensor& tensor) {
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (!has_version(tensor) || impl->version_counter().current_version() != seen.version) return false;
  const void* data = impl->data();
  return data == seen.data && impl->unsafe_storage().unsafeGetStorageImpl() == seen.storage._unsafe_get_target() &&
         sample(tensor, data) == seen.sample;
}

}  // namespace

std::shared_ptr<const Derived> Derivation::get(const std::vector<PyObject*>& statics) {
  if (C10_LIKELY(current_ != nullptr && holds(statics))) return current_;
  current_.reset();  // first, so that old and new are not in memory at once
  auto fresh = made(statics);
  current_ = fresh;
  return fresh;
}

bool Derivation::holds(const std::vector<PyObject*>& statics) const {
  std::atomic<bool> changed{false};
  const auto check = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end && !changed.load(std::memory_order_relaxed); ++i) {
      const auto at = static_cast<size_t>(i);
      if (!same(current_->looks[at], THPVariable_Unpack(statics[sources_[at]]))) changed = true;
    }
  };
  const auto all = static_cast<int64_t>(sources_.size());
  at::parallel_for(0, all, current_->sampled_words < kShared ? std::max<int64_t>(all, 1) : 1, check);
  return !changed;
}

std::shared_ptr<const Derived> Derivation::made(const std::vector<PyObject*>& statics) const {
  auto result = std::make_shared<Derived>();
  std::vector<PyObject*> args;
  for (uint32_t source : sources_) {
    args.push_back(statics[source]);
    const at::Tensor& tensor = THPVariable_Unpack(statics[source]);
    result->looks.push_back(look(tensor));
    if (extent(tensor) > kWhole) result->sampled_words += words_of(tensor);
  }
  const c10::InferenceMode versions(false);  // the results serve calls in other modes too
  auto tensors = py::reinterpret_steal<py::object>(PyObject_Vectorcall(make_, args.data(), args.size(), nullptr));
  if (!tensors) throw python_error();
  for (py::handle tensor : tensors) {
    TORCH_CHECK_TYPE(THPVariable_Check(tensor.ptr()), "a derived static is no tensor");
    result->tensors.push_back(THPVariable_Unpack(tensor.ptr()));
  }
  return result;
}

}  // namespace framegraph
