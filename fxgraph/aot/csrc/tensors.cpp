#include "../../csrc/tensors.h"

#include <memory>

#include "../../csrc/callable.h"

namespace framegraph {
namespace {

std::vector<at::Tensor>& tensors_in(PyObject* object) { return *reinterpret_cast<Tensors*>(object)->held; }

PyObject* tensors_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  HANDLE_TH_ERRORS
  static const char* names[] = {"items", nullptr};
  PyObject* given = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O", const_cast<char**>(names), &given)) return nullptr;
  auto held = std::make_unique<std::vector<at::Tensor>>();
  if (given != nullptr) {
    const auto items = py::reinterpret_steal<py::object>(PySequence_Fast(given, "tensors are no sequence"));
    if (!items) throw python_error();
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.ptr()); ++i) {
      PyObject* item = PySequence_Fast_GET_ITEM(items.ptr(), i);
      TORCH_CHECK_TYPE(item == Py_None || THPVariable_Check(item), "a tensor is expected, got ", Py_TYPE(item)->tp_name);
      held->push_back(item == Py_None ? at::Tensor() : THPVariable_Unpack(item));
    }
  }
  auto* self = reinterpret_cast<Tensors*>(type->tp_alloc(type, 0));
  if (self == nullptr) return nullptr;
  self->held = held.release();
  return reinterpret_cast<PyObject*>(self);
  END_HANDLE_TH_ERRORS
}

void tensors_dealloc(PyObject* object) {
  delete reinterpret_cast<Tensors*>(object)->held;
  Py_TYPE(object)->tp_free(object);
}

Py_ssize_t tensors_length(PyObject* object) { return static_cast<Py_ssize_t>(tensors_in(object).size()); }

PyObject* tensors_item(PyObject* object, Py_ssize_t i) {
  HANDLE_TH_ERRORS
  if (i < 0 || i >= tensors_length(object)) {
    PyErr_SetString(PyExc_IndexError, "no tensor of this number");
    return nullptr;
  }
  return THPVariable_Wrap(tensors_in(object)[static_cast<size_t>(i)]);
  END_HANDLE_TH_ERRORS
}

PyObject* tensors_clear(PyObject* object, PyObject*) {
  std::vector<at::Tensor> gone;  // a destructor may come back here
  gone.swap(tensors_in(object));
  Py_RETURN_NONE;
}

PyMethodDef tensors_methods[] = {{"clear", tensors_clear, METH_NOARGS, "clear(): let go of all tensors."},
                                 {nullptr, nullptr, 0, nullptr}};

PySequenceMethods tensors_sequence = [] {
  PySequenceMethods methods = {};
  methods.sq_length = tensors_length;
  methods.sq_item = tensors_item;
  return methods;
}();

PyTypeObject TensorsType = [] {
  PyTypeObject type = {PyVarObject_HEAD_INIT(nullptr, 0)};
  type.tp_name = "fxgraph.aot._autograd.Tensors";
  type.tp_doc = "Tensors(items=()): a sequence of tensors, or None, that are no objects in Python until they are asked for.";
  type.tp_basicsize = sizeof(Tensors);
  type.tp_flags = Py_TPFLAGS_DEFAULT;
  type.tp_new = tensors_new;
  type.tp_dealloc = tensors_dealloc;
  type.tp_as_sequence = &tensors_sequence;
  type.tp_methods = tensors_methods;
  return type;
}();

}  // namespace

bool add_tensors_type(PyObject* module) { return add_type(module, &TensorsType, "Tensors"); }

}  // namespace framegraph
