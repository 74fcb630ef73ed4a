#include "content.h"

#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <utility>

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

size_t holders_of(c10::StorageImpl* storage) { return c10::raw::intrusive_ptr::use_count(storage); }

}  // namespace

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
      for (auto each = all_.begin(); each != all_.end();) each = each->second->is_needed() ? std::next(each) : all_.erase(each);
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

bool Content::is_needed() const {
  const auto storage = storage_.lock();
  return storage && (derived_ || holders_of(storage.get()) - 1 > holders_);
}

uint64_t Content::version(uint64_t pass) {
  if (!open_ || pass == pass_) return version_;
  pass_ = pass;
  const auto storage = storage_.lock();
  if (!storage) return version_;
  const std::optional<uint64_t> now = hash_of_memory(*storage);
  if (!now || (hash_ && now != hash_)) ++version_;
  hash_ = now;
  open_ = holders_of(storage.get()) - 1 > holders_;
  return version_;
}

std::shared_ptr<Content> derived_content(const at::Tensor& tensor) {
  c10::StorageImpl* storage = large_memory(tensor);
  if (storage == nullptr) return nullptr;
  const std::shared_ptr<Content>& content = contents().at(storage);
  content->derived_ = true;
  return content;
}

void hand_out(const at::Tensor& tensor, bool holds_tensor) {
  c10::StorageImpl* storage = large_memory(tensor);
  if (storage == nullptr) return;
  Content& content = *contents().at(storage);
  // An array holds the tensor that it was asked of, which may be an alias that nobody else holds.
  const size_t holders = holders_of(storage) - (holds_tensor ? 1 : 0);
  if (content.open_) {
    content.holders_ = std::min(content.holders_, std::max<size_t>(holders, 1));
    return;
  }
  content.open_ = true;
  content.holders_ = std::max<size_t>(holders, 1);
  content.hash_.reset();
  if (content.derived_) content.hash_ = hash_of_memory(*storage);
}

void note_write(const at::Tensor& tensor) {
  c10::StorageImpl* storage = large_memory(tensor);
  if (storage == nullptr) return;
  Content* content = contents().find(storage);
  if (content == nullptr) return;
  ++content->version_;
  content->hash_.reset();
}

namespace {

getter torch_data = nullptr;
PyCFunctionWithKeywords torch_numpy = nullptr;
PyCFunction torch_address = nullptr;

using FastFunction = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);
FastFunction torch_versions = nullptr;
PyCFunctionWithKeywords torch_versions_of_tuple = nullptr;  // of torch before 2.12

// Before torch's own function, which may also be asked by a subclass's __torch_function__.
void hand_out_of(PyObject* self, bool holds_tensor) {
  if (THPVariable_Check(self)) hand_out(THPVariable_Unpack(self), holds_tensor);
}

PyObject* watched_data(PyObject* self, void* closure) {
  hand_out_of(self, false);
  return torch_data(self, closure);
}

PyObject* watched_array(PyObject* self, PyObject* args, PyObject* kwargs) {
  hand_out_of(self, true);
  return torch_numpy(self, args, kwargs);
}

// Whoever asks for an address of a GPU may give it to a kernel that writes there: Triton's launcher, ctypes, CuPy.
PyObject* watched_address(PyObject* self, PyObject* nothing) {
  if (THPVariable_Check(self) && THPVariable_Unpack(self).is_cuda()) note_write(THPVariable_Unpack(self));
  return torch_address(self, nothing);
}

// Whoever puts versions back has written in between: sharding, which fills parameters before they are used.
void note_writes(PyObject* written) {
  if (THPVariable_Check(written)) return note_write(THPVariable_Unpack(written));
  if (!PyTuple_Check(written) && !PyList_Check(written)) return;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(written); ++i) {
    PyObject* tensor = PySequence_Fast_GET_ITEM(written, i);
    if (THPVariable_Check(tensor)) note_write(THPVariable_Unpack(tensor));
  }
}

PyObject* watched_versions(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  if (count > 0) note_writes(args[0]);
  return torch_versions(self, args, count, names);
}

PyObject* watched_versions_of_tuple(PyObject* self, PyObject* args, PyObject* kwargs) {
  if (PyTuple_GET_SIZE(args) > 0) note_writes(PyTuple_GET_ITEM(args, 0));
  return torch_versions_of_tuple(self, args, kwargs);
}

template <typename Function>
PyCFunction as_method(Function* function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

void watch_versions() {
  const py::object found = py::module_::import("torch._C._autograd").attr("_unsafe_set_version_counter");
  if (!PyCFunction_Check(found.ptr())) return;
  PyMethodDef* method = reinterpret_cast<PyCFunctionObject*>(found.ptr())->m_ml;
  const auto old = reinterpret_cast<void (*)()>(method->ml_meth);
  if (method->ml_flags == (METH_FASTCALL | METH_KEYWORDS)) {
    torch_versions = reinterpret_cast<FastFunction>(old);
    method->ml_meth = as_method(watched_versions);
  } else if (method->ml_flags == (METH_VARARGS | METH_KEYWORDS)) {
    torch_versions_of_tuple = reinterpret_cast<PyCFunctionWithKeywords>(old);
    method->ml_meth = as_method(watched_versions_of_tuple);
  }
}

// A built-in attribute of torch.Tensor; null where torch has made it of something else.
template <typename Descriptor>
Descriptor* attribute_of_tensors(const char* name, PyTypeObject& kind) {
  PyObject* found = PyObject_GetAttrString(THPVariableClass, name);  // its class keeps it alive
  if (found == nullptr) PyErr_Clear();
  Py_XDECREF(found);
  return found != nullptr && Py_IS_TYPE(found, &kind) ? reinterpret_cast<Descriptor*>(found) : nullptr;
}

PyMethodDef* method_of_tensors(const char* name, int flags) {
  auto* found = attribute_of_tensors<PyMethodDescrObject>(name, PyMethodDescr_Type);
  return found != nullptr && found->d_method->ml_flags == flags ? found->d_method : nullptr;
}

}  // namespace

// Replaced are the functions in torch's tables, which descriptors read at each access: what programs see, and capture
// compares, stays as it is.
void watch_aliases() {
  auto* data = attribute_of_tensors<PyGetSetDescrObject>("data", PyGetSetDescr_Type);
  if (torch_data != nullptr || data == nullptr) return;
  torch_data = std::exchange(data->d_getset->get, watched_data);
  if (PyMethodDef* method = method_of_tensors("numpy", METH_VARARGS | METH_KEYWORDS)) {
    torch_numpy = reinterpret_cast<PyCFunctionWithKeywords>(reinterpret_cast<void (*)()>(method->ml_meth));
    method->ml_meth = as_method(watched_array);
  }
  if (PyMethodDef* method = method_of_tensors("data_ptr", METH_NOARGS)) {
    torch_address = std::exchange(method->ml_meth, watched_address);
  }
  watch_versions();
}

}  // namespace framegraph
