#include "derivation.h"

#include <c10/core/InferenceMode.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <iterator>
#include <unordered_set>

namespace framegraph {
namespace {

// Words sampled of a large source: almost each is on a page of its own, whose address takes long to find.
constexpr size_t kSampled = 64;

uint64_t passes = 0;   // rounds of looking at sources
uint64_t replays = 0;  // of graphs of the program's

uint64_t sampled(const char* data, size_t bytes) {
  const size_t step = (bytes - sizeof(uint64_t)) / (kSampled - 1);
  Lanes lanes;
  for (size_t i = 0; i < kSampled; i += 4, data += 4 * step) lanes.mix(data, step);
  return lanes.hash();
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
  Counter counter(impl->version_counter());
  const uint64_t writes = content ? content->version(pass, counter) : 0;
  const uint32_t version = has_version(tensor) ? counter.version() : 0;
  return {impl->storage().getWeakStorageImpl(), data, std::move(counter), version, sample(tensor, data), std::move(content),
          writes, tensor.is_cpu() ? 0 : replays};
}

bool same(const Look& seen, const at::Tensor& tensor, uint64_t pass) {
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const c10::VariableVersion& counter = impl->version_counter();
  if (!has_version(tensor) || !seen.counter.is(counter)) return false;
  if (counter.current_version() != seen.version) return false;
  const void* data = impl->data();
  return data == seen.data && impl->unsafe_storage().unsafeGetStorageImpl() == seen.storage._unsafe_get_target() &&
         sample(tensor, data) == seen.sample && (tensor.is_cpu() || replays == seen.replays) &&
         (!seen.content || seen.content->version(pass, seen.counter) == seen.writes);
}

// Those whose sources may end before them.
std::unordered_set<Derivation*>& derivations() {
  static auto* all = new std::unordered_set<Derivation*>();  // not destroyed at exit, when plans may still be
  return *all;
}

}  // namespace

void note_replay() { ++replays; }

void drop_past() {
  std::vector<std::shared_ptr<const Derived>> gone;  // ends last: a tensor's end may let other threads run
  for (Derivation* derivation : derivations()) derivation->drop_past(gone);
}

bool Derived::holds(c10::ArrayRef<const at::Tensor*> sources) const {
  const uint64_t pass = ++passes;
  for (size_t i = 0; i < sources.size(); ++i) {
    if (!same(looks[i], *sources[i], pass)) return false;
  }
  return true;
}

bool Derived::is_of_the_past() const {
  return std::any_of(looks.begin(), looks.end(), [](const Look& look) { return look.storage.expired(); });
}

Derivation::Derivation(PyObject* make, std::vector<uint32_t> sources, PyObject* capturing, size_t most)
    : make_(make), capturing_(capturing), sources_(std::move(sources)), most_(most) {
  if (most_ != 0) derivations().insert(this);
}

Derivation::~Derivation() {
  derivations().erase(this);
  Py_DECREF(make_);
  Py_XDECREF(capturing_);
}

// Kept tensors are found by their sources' addresses. Others may have these later: `holds` tells.
uint64_t Derivation::key_of(c10::ArrayRef<const at::Tensor*> sources) const {
  uint64_t key = 0;
  if (most_ == 0) return key;
  for (const at::Tensor* source : sources) {
    key = mixed(key, reinterpret_cast<uintptr_t>(source->unsafeGetTensorImpl()->data()));
  }
  return key;
}

std::shared_ptr<const Derived> Derivation::get(c10::ArrayRef<const at::Tensor*> sources) {
  if (capturing_ != nullptr) {
    const auto answer = py::reinterpret_steal<py::object>(PyObject_CallNoArgs(capturing_));
    if (!answer) throw python_error();
    if (answer.is(py::handle(Py_True))) return made(sources);
  }
  const uint64_t key = key_of(sources);
  const auto found = kept_.find(key);
  if (found != kept_.end()) {
    if (C10_LIKELY(found->second->holds(sources))) return found->second;
    const std::shared_ptr<const Derived> old = std::move(found->second);
    kept_.erase(found);  // first, so that old and new are not in memory at once
  }
  std::shared_ptr<const Derived> fresh = made(sources);
  keep(key, fresh);
  return fresh;
}

std::shared_ptr<const Derived> Derivation::last(c10::ArrayRef<const at::Tensor*> sources) {
  const auto found = kept_.find(key_of(sources));
  return found == kept_.end() ? get(sources) : found->second;
}

bool Derivation::has_room_for(c10::ArrayRef<const at::Tensor*> sources) {
  if (!is_full() || kept_.count(key_of(sources)) != 0) return true;
  framegraph::drop_past();
  return !is_full();
}

void Derivation::drop_past(std::vector<std::shared_ptr<const Derived>>& gone) {
  for (auto each = kept_.begin(); each != kept_.end();) {
    if (!each->second->is_of_the_past()) {
      ++each;
      continue;
    }
    gone.push_back(std::move(each->second));
    each = kept_.erase(each);
  }
}

void Derivation::keep(uint64_t key, const std::shared_ptr<const Derived>& fresh) {
  if (most_ != 0) framegraph::drop_past();
  if (is_full()) return;
  // What another thread has made meanwhile goes when `kept_` is whole: a tensor's end may let other threads run.
  const std::shared_ptr<const Derived> replaced = std::exchange(kept_[key], fresh);
}

std::shared_ptr<const Derived> Derivation::made(c10::ArrayRef<const at::Tensor*> sources) const {
  auto result = std::make_shared<Derived>();
  std::vector<py::object> held;
  std::vector<PyObject*> args;
  const uint64_t pass = ++passes;
  for (const at::Tensor* source : sources) {
    result->looks.push_back(look(*source, pass));
    held.push_back(py::reinterpret_steal<py::object>(THPVariable_Wrap(*source)));
    if (!held.back()) throw python_error();
    args.push_back(held.back().ptr());
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
