#include "derivation.h"

#include <c10/core/InferenceMode.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

namespace framegraph {
namespace {

// Words sampled of a large source: almost each is on a page of its own, whose address takes long to find.
constexpr size_t kSampled = 64;

uint64_t passes = 0;   // rounds of looking at sources
uint64_t replays = 0;  // of graphs of the program's

uint64_t sampled(const char* data, size_t bytes) {
  uint64_t hash = 0;
  for (size_t i = 0; i < kSampled; ++i) hash = mixed(hash, word(data + i * (bytes - sizeof hash) / (kSampled - 1)));
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
  const size_t bytes = data == nullptr || !tensor.is_cpu() ? 0 : extent(tensor);
  const auto* first = static_cast<const char*>(data);
  return bytes <= kWhole ? hash_of(first, bytes) : sampled(first, bytes);
}

// Inference tensors have no version that would tell of a write.
bool has_version(const at::Tensor& tensor) { return !tensor.unsafeGetTensorImpl()->is_inference(); }

Look look(const at::Tensor& tensor, uint64_t pass) {
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const void* data = impl->data();
  const bool watched = extent(tensor) > kWhole || !tensor.is_cpu();
  std::shared_ptr<Content> content = watched ? derived_content(tensor) : nullptr;
  const uint64_t writes = content ? content->version(pass) : 0;
  return {impl->storage().getWeakStorageImpl(), data,
          has_version(tensor) ? impl->version_counter().current_version() : 0, sample(tensor, data),
          std::move(content), writes, tensor.is_cpu() ? 0 : replays};
}

bool same(const Look& seen, const at::Tensor& tensor, uint64_t pass) {
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (!has_version(tensor) || impl->version_counter().current_version() != seen.version) return false;
  const void* data = impl->data();
  return data == seen.data && impl->unsafe_storage().unsafeGetStorageImpl() == seen.storage._unsafe_get_target() &&
         sample(tensor, data) == seen.sample && (tensor.is_cpu() || replays == seen.replays) &&
         (!seen.content || seen.content->version(pass) == seen.writes);
}

}  // namespace

void note_replay() { ++replays; }

std::shared_ptr<const Derived> Derivation::get(const std::vector<PyObject*>& statics) {
  if (capturing_ != nullptr) {
    const auto answer = py::reinterpret_steal<py::object>(PyObject_CallNoArgs(capturing_));
    if (!answer) throw python_error();
    if (answer.is(py::handle(Py_True))) return made(statics);
  }
  if (C10_LIKELY(current_ != nullptr && holds(statics))) return current_;
  current_.reset();  // first, so that old and new are not in memory at once
  std::shared_ptr<const Derived> fresh = made(statics);
  // What another thread has made meanwhile goes when `current_` is whole: a tensor's end may let other threads run.
  const std::shared_ptr<const Derived> replaced = std::exchange(current_, fresh);
  return fresh;
}

bool Derivation::holds(const std::vector<PyObject*>& statics) const {
  const uint64_t pass = ++passes;
  for (size_t i = 0; i < sources_.size(); ++i) {
    if (!same(current_->looks[i], THPVariable_Unpack(statics[sources_[i]]), pass)) return false;
  }
  return true;
}

std::shared_ptr<const Derived> Derivation::made(const std::vector<PyObject*>& statics) const {
  auto result = std::make_shared<Derived>();
  std::vector<PyObject*> args;
  const uint64_t pass = ++passes;
  for (uint32_t source : sources_) {
    args.push_back(statics[source]);
    result->looks.push_back(look(THPVariable_Unpack(statics[source]), pass));
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
