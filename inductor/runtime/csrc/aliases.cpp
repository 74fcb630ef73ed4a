// Watches what hands out aliases of a tensor's memory whose writes its version does not tell of.
#include <ATen/PythonTorchFunctionTLS.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <utility>

#include "content.h"

namespace framegraph {
namespace {

getter torch_data = nullptr;
setter torch_assign = nullptr;
PyCFunctionWithKeywords torch_numpy = nullptr;
PyCFunction torch_address = nullptr;
PyCFunction torch_storage = nullptr;
PyCFunctionWithKeywords torch_set = nullptr;

using FastFunction = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);
FastFunction torch_versions = nullptr;
PyCFunctionWithKeywords torch_capsules[2] = {nullptr, nullptr};
PyCFunctionWithKeywords torch_versions_of_tuple = nullptr;  // of torch before 2.12

PyObject* parameter_class() {
  static PyObject* found = py::object(py::module_::import("torch.nn").attr("Parameter")).release().ptr();
  return found;
}

template <typename Function>
PyCFunction as_method(Function* function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

// Before torch's own function, which may also be asked by a subclass's __torch_function__.
void hand_out_of(PyObject* self) {
  if (THPVariable_Check(self)) hand_out(THPVariable_Unpack(self));
}

PyObject* watched_data(PyObject* self, void* closure) {
  hand_out_of(self);
  return torch_data(self, closure);
}

// Null if the tensor has none.
c10::Storage storage_of(PyObject* tensor) {
  if (!THPVariable_Check(tensor)) return {};
  c10::TensorImpl* impl = THPVariable_Unpack(tensor).unsafeGetTensorImpl();
  return impl->has_storage() ? impl->unsafe_storage() : c10::Storage();
}

int watched_assign(PyObject* self, PyObject* value, void* closure) {
  HANDLE_TH_ERRORS
  const c10::Storage old = storage_of(self);
  const int result = torch_assign(self, value, closure);
  if (result == 0 && value != nullptr && THPVariable_Check(self) && THPVariable_Check(value)) {
    note_moved(THPVariable_Unpack(self), THPVariable_Unpack(value), old);
  }
  return result;
  END_HANDLE_TH_ERRORS_RET(-1)
}

// `tensor.set_(other)`, of a tensor or a storage.
PyObject* watched_set(PyObject* self, PyObject* args, PyObject* kwargs) {
  HANDLE_TH_ERRORS
  const c10::Storage old = storage_of(self);
  PyObject* result = torch_set(self, args, kwargs);
  if (result == nullptr || !THPVariable_Check(self)) return result;
  const bool of_tensor = PyTuple_GET_SIZE(args) > 0 && THPVariable_Check(PyTuple_GET_ITEM(args, 0));
  note_moved(THPVariable_Unpack(self), THPVariable_Unpack(of_tensor ? PyTuple_GET_ITEM(args, 0) : self), old);
  return result;
  END_HANDLE_TH_ERRORS
}

PyObject* watched_storage(PyObject* self, PyObject* nothing) {
  hand_out_of(self);
  return torch_storage(self, nothing);
}

// Whether torch's functions take a tensor as it is: with no mode to be asked first, which is to see the tensor itself,
// and of a subclass inside of its __torch_function__.
bool is_taken_as_it_is(PyObject* self) {
  if (at::impl::torch_function_mode_enabled()) return false;
  if (THPVariable_CheckExact(self) || reinterpret_cast<PyObject*>(Py_TYPE(self)) == parameter_class()) return true;
  const py::object enabled = py::module_::import("torch._C").attr("_is_torch_function_enabled")();
  return !enabled.is(py::handle(Py_True));
}

// The tensor as an array or a capsule is to hold it: an alias with a counter of versions of its own, as long as that
// lives, so that the memory has a holder of which nothing tells. Itself, where torch refuses it or makes a copy.
py::object exported(PyObject* self) {
  const at::Tensor& tensor = THPVariable_Unpack(self);
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (!tensor.is_cpu() || tensor.layout() != at::kStrided || impl->is_python_dispatch() || !impl->has_storage() ||
      impl->is_inference()) {
    return py::reinterpret_borrow<py::object>(self);
  }
  const at::Tensor alias(impl->shallow_copy_and_detach(c10::VariableVersion(0), false));
  PyObject* made = THPVariable_Wrap(alias);
  if (made == nullptr) throw python_error();
  return py::reinterpret_steal<py::object>(made);
}

// numpy(*, force=False), which refuses what gradients are recorded of.
bool gives_array(PyObject* self, PyObject* kwargs) {
  if (!THPVariable_Check(self) || !is_taken_as_it_is(self)) return false;
  if (!c10::GradMode::is_enabled() || !THPVariable_Unpack(self).requires_grad()) return true;
  PyObject* force = kwargs == nullptr ? nullptr : PyDict_GetItemString(kwargs, "force");
  return force == Py_True;
}

PyObject* watched_array(PyObject* self, PyObject* args, PyObject* kwargs) {
  HANDLE_TH_ERRORS
  hand_out_of(self);
  if (!gives_array(self, kwargs)) return torch_numpy(self, args, kwargs);
  return torch_numpy(exported(self).ptr(), args, kwargs);
  END_HANDLE_TH_ERRORS
}

// A capsule of DLPack. args: the tensor alone.
template <int number>
PyObject* watched_capsule(PyObject* module, PyObject* args, PyObject* kwargs) {
  HANDLE_TH_ERRORS
  if (PyTuple_GET_SIZE(args) != 1 || !THPVariable_Check(PyTuple_GET_ITEM(args, 0))) {
    return torch_capsules[number](module, args, kwargs);
  }
  hand_out_of(PyTuple_GET_ITEM(args, 0));
  const py::tuple others = py::make_tuple(exported(PyTuple_GET_ITEM(args, 0)));
  return torch_capsules[number](module, others.ptr(), kwargs);
  END_HANDLE_TH_ERRORS
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

// The entry in torch's tables of a built-in function; null where torch has made it of something else.
PyMethodDef* function_of(const char* module, const char* name) {
  const py::object found = py::getattr(py::module_::import(module), name, py::none());
  return PyCFunction_Check(found.ptr()) ? reinterpret_cast<PyCFunctionObject*>(found.ptr())->m_ml : nullptr;
}

PyCFunctionWithKeywords exchanged(PyMethodDef* method, PyCFunctionWithKeywords function) {
  const auto old = reinterpret_cast<void (*)()>(method->ml_meth);
  method->ml_meth = as_method(function);
  return reinterpret_cast<PyCFunctionWithKeywords>(old);
}

void watch_functions() {
  constexpr int kKeywords = METH_VARARGS | METH_KEYWORDS;
  if (PyMethodDef* method = function_of("torch._C._autograd", "_unsafe_set_version_counter")) {
    if (method->ml_flags == (METH_FASTCALL | METH_KEYWORDS)) {
      torch_versions = reinterpret_cast<FastFunction>(reinterpret_cast<void (*)()>(method->ml_meth));
      method->ml_meth = as_method(watched_versions);
    } else if (method->ml_flags == kKeywords) {
      torch_versions_of_tuple = exchanged(method, watched_versions_of_tuple);
    }
  }
  PyMethodDef* capsule = function_of("torch._C", "_to_dlpack");
  if (capsule != nullptr && capsule->ml_flags == kKeywords) torch_capsules[0] = exchanged(capsule, watched_capsule<0>);
  capsule = function_of("torch._C", "_to_dlpack_versioned");
  if (capsule != nullptr && capsule->ml_flags == kKeywords) torch_capsules[1] = exchanged(capsule, watched_capsule<1>);
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
  // What asks Python once is asked here: a thread that waits for another to have asked would hold the GIL.
  parameter_class();
  deleter_of_parts();
  torch_data = std::exchange(data->d_getset->get, watched_data);
  torch_assign = std::exchange(data->d_getset->set, watched_assign);
  if (PyMethodDef* method = method_of_tensors("numpy", METH_VARARGS | METH_KEYWORDS)) {
    torch_numpy = exchanged(method, watched_array);
  }
  if (PyMethodDef* method = method_of_tensors("data_ptr", METH_NOARGS)) {
    torch_address = std::exchange(method->ml_meth, watched_address);
  }
  if (PyMethodDef* method = method_of_tensors("untyped_storage", METH_NOARGS)) {
    torch_storage = std::exchange(method->ml_meth, watched_storage);
  }
  if (PyMethodDef* method = method_of_tensors("set_", METH_VARARGS | METH_KEYWORDS)) {
    torch_set = exchanged(method, watched_set);
  }
  watch_functions();
}

}  // namespace framegraph
