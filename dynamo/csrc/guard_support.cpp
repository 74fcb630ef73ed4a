#include "guard_support.h"

#include <cstring>

namespace guards {

// ---- liveness and weak holding ----------------------------------------------------------------

namespace {

constexpr size_t kReprLimit = 120;
constexpr int kReprDepth = 4;  // of containers within containers

PyObject* object_died(PyObject* self, PyObject*) {
  reinterpret_cast<Liveness*>(self)->dead = true;
  Py_RETURN_NONE;
}

PyMethodDef object_died_def = {"object_died", object_died, METH_O, nullptr};

int liveness_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(reinterpret_cast<Liveness*>(self)->callback);
  return 0;
}

int liveness_clear(PyObject* self) {
  Py_CLEAR(reinterpret_cast<Liveness*>(self)->callback);
  return 0;
}

void liveness_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  liveness_clear(self);
  delete reinterpret_cast<Liveness*>(self)->tensors;
  Py_TYPE(self)->tp_free(self);
}

PyTypeObject liveness_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

}  // namespace

bool init_liveness() {
  liveness_type.tp_name = "dynamo._guards.Liveness";
  liveness_type.tp_basicsize = sizeof(Liveness);
  liveness_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC;
  liveness_type.tp_dealloc = liveness_dealloc;
  liveness_type.tp_traverse = liveness_traverse;
  liveness_type.tp_clear = liveness_clear;
  return PyType_Ready(&liveness_type) == 0;
}

Ref make_liveness() {
  Ref ref = Ref::steal(checked(PyType_GenericAlloc(&liveness_type, 0)));
  auto* liveness = reinterpret_cast<Liveness*>(ref.get());
  liveness->dead = false;
  liveness->tensors = new std::vector<std::shared_ptr<const TensorMark>>();
  liveness->callback = checked(PyCFunction_New(&object_died_def, ref.get()));
  return ref;
}

bool all_live(Liveness* liveness) {
  for (const auto& mark : *liveness->tensors)
    if (!mark->is_in_use()) liveness->dead = true;
  return !liveness->dead;
}

Held::Held(PyObject* object, Liveness* liveness)
    : object_(object), liveness_(liveness), type_name_(Py_TYPE(object)->tp_name) {
  mark_ = tensor_mark(object);
  if (mark_ != nullptr) {
    liveness->tensors->push_back(mark_);
    return;
  }
  keep_ = Ref::steal(PyWeakref_NewRef(object, liveness->callback));
  if (!keep_) {
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw PythonError();
    PyErr_Clear();
    keep_ = Ref::borrow(object);
  }
}

std::string Held::text() const {
  if (object_ == nullptr) return "nothing";
  if (mark_ != nullptr) return "a tensor of type " + type_name_;
  if (keep_.get() != object_ && liveness_->dead) return "an object of type " + type_name_;
  return short_repr(object_);
}

int Held::traverse(visitproc visit, void* arg) const {
  Py_VISIT(keep_.get());
  return 0;
}

// ---- text -------------------------------------------------------------------------------------

std::string utf8(PyObject* text) {
  Py_ssize_t size = 0;
  const char* data = text == nullptr ? nullptr : PyUnicode_AsUTF8AndSize(text, &size);
  if (data == nullptr) {
    PyErr_Clear();
    return "?";
  }
  return std::string(data, static_cast<size_t>(size));
}

namespace {

// Whether the class has a __repr__ in Python, other than that of enums.
bool has_repr_in_python(PyTypeObject* type) {
  static PyObject* repr = PyUnicode_InternFromString("__repr__");
  PyObject* found = repr == nullptr ? nullptr : _PyType_Lookup(type, repr);
  if (found == nullptr || !PyFunction_Check(found)) return false;
  PyObject* module = PyFunction_GetModule(found);
  return module == nullptr || !PyUnicode_Check(module) || utf8(module) != "enum";
}

bool runs_program(PyObject* object, int depth);

// Whether the repr() of an item of a container may run the program's code, or goes deep.
bool items_run_program(PyObject* object, int depth) {
  if (depth == 0) return true;
  if (PyDict_Check(object)) {
    PyObject *key, *value;
    Py_ssize_t place = 0;
    while (PyDict_Next(object, &place, &key, &value))
      if (runs_program(key, depth - 1) || runs_program(value, depth - 1)) return true;
    return false;
  }
  Ref items = Ref::steal(PySequence_List(object));
  if (!items) {
    PyErr_Clear();
    return true;
  }
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items.get()); i++)
    if (runs_program(PyList_GET_ITEM(items.get(), i), depth - 1)) return true;
  return false;
}

bool is_container(PyObject* object) {
  return PyDict_CheckExact(object) || PyList_CheckExact(object) || PyTuple_CheckExact(object) ||
         PyAnySet_CheckExact(object);
}

bool runs_program(PyObject* object, int depth) {
  if (is_tensor(object) || has_repr_in_python(Py_TYPE(object))) return true;
  return is_container(object) && items_run_program(object, depth);
}

// The text of an object whose repr() may run the program's code; "" for other objects.
std::string repr_without_program(PyObject* object) {
  if (is_container(object) && items_run_program(object, kReprDepth)) {
    const Py_ssize_t size = PyObject_Size(object);
    return std::string("a ") + Py_TYPE(object)->tp_name + " of " + std::to_string(size) +
           (size == 1 ? " item" : " items");
  }
  if (PyModule_Check(object)) {
    PyObject* names = PyModule_GetDict(object);
    PyObject* name = names == nullptr ? nullptr : PyDict_GetItemString(names, "__name__");
    return "<module '" + (name != nullptr && PyUnicode_Check(name) ? utf8(name) : "?") + "'>";
  }
  if (!has_repr_in_python(Py_TYPE(object))) return "";
  if (!PyType_Check(object)) return std::string("<") + Py_TYPE(object)->tp_name + " object>";
  return std::string("<class '") + reinterpret_cast<PyTypeObject*>(object)->tp_name + "'>";
}

}  // namespace

std::string short_repr(PyObject* object) {
  if (object == nullptr) return "nothing";
  std::string text = tensor_summary(object);
  if (text.empty()) text = repr_without_program(object);
  if (!text.empty()) return text;
  Ref repr = Ref::steal(PyObject_Repr(object));
  if (!repr) {
    PyErr_Clear();
    return std::string("an object of type ") + Py_TYPE(object)->tp_name;
  }
  text = utf8(repr.get());
  if (text.size() > kReprLimit) {
    size_t end = kReprLimit;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) end--;
    text = text.substr(0, end) + "...";
  }
  return text;
}

std::string take_error_text() {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  if (type == nullptr) return "";
  PyErr_NormalizeException(&type, &value, &traceback);
  std::string text = reinterpret_cast<PyTypeObject*>(type)->tp_name;
  Ref message = Ref::steal(value == nullptr ? nullptr : PyObject_Str(value));
  if (!message) PyErr_Clear();
  if (message) text += ": " + utf8(message.get());
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
  return text;
}

bool is_interrupt() {
  return !PyErr_ExceptionMatches(PyExc_Exception) || PyErr_ExceptionMatches(PyExc_MemoryError);
}

int settle_error() {
  if (!PyErr_Occurred()) return 0;
  if (is_interrupt()) return -1;
  PyErr_Clear();
  return 0;
}

// ---- constants --------------------------------------------------------------------------------

namespace {

bool same_float(double a, double b) {
  if (a != a || b != b) return a != a && b != b;
  return std::memcmp(&a, &b, sizeof a) == 0;
}

int equal_sequences(PyObject* a, PyObject* b) {
  Py_ssize_t n = PySequence_Fast_GET_SIZE(a);
  if (n != PySequence_Fast_GET_SIZE(b)) return 0;
  for (Py_ssize_t i = 0; i < n && i < PySequence_Fast_GET_SIZE(b); i++) {
    Ref item = Ref::borrow(PySequence_Fast_GET_ITEM(b, i));
    int equal = exactly_equal(PySequence_Fast_GET_ITEM(a, i), item.get());
    if (equal != 1) return equal;
  }
  return n == PySequence_Fast_GET_SIZE(b);
}

int equal_slices(PyObject* a, PyObject* b) {
  auto *left = reinterpret_cast<PySliceObject*>(a), *right = reinterpret_cast<PySliceObject*>(b);
  int equal = exactly_equal(left->start, right->start);
  if (equal == 1) equal = exactly_equal(left->stop, right->stop);
  if (equal == 1) equal = exactly_equal(left->step, right->step);
  return equal;
}

// Sets, by their items, and dicts, in order: through sequences; this is not a hot path.
int equal_sets(PyObject* a, PyObject* b) {
  int equal = PyObject_RichCompareBool(a, b, Py_EQ);
  if (equal != 1) return equal;
  Ref left = Ref::steal(PySequence_List(a)), right = Ref::steal(PySequence_List(b));
  if (!left || !right) return -1;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(left.get()); i++) {
    int found = 0;
    for (Py_ssize_t j = 0; j < PyList_GET_SIZE(right.get()) && !found; j++) {
      found = exactly_equal(PyList_GET_ITEM(left.get(), i), PyList_GET_ITEM(right.get(), j));
      if (found < 0) return -1;
    }
    if (!found) return 0;
  }
  return 1;
}

int equal_dicts(PyObject* a, PyObject* b) {
  Ref left = Ref::steal(PyDict_Items(a)), right = Ref::steal(PyDict_Items(b));
  if (!left || !right) return -1;
  return equal_sequences(left.get(), right.get());
}

}  // namespace

int exactly_equal(PyObject* payload, PyObject* value) {
  PyTypeObject* type = Py_TYPE(payload);
  if (type != Py_TYPE(value)) return 0;
  if (type == &PyFloat_Type)
    return same_float(PyFloat_AS_DOUBLE(payload), PyFloat_AS_DOUBLE(value));
  if (type == &PyComplex_Type) {
    Py_complex a = PyComplex_AsCComplex(payload), b = PyComplex_AsCComplex(value);
    return same_float(a.real, b.real) && same_float(a.imag, b.imag);
  }
  if (PyTuple_Check(payload) || PyList_CheckExact(payload)) {
    if (payload == value && is_immutable_constant(payload)) return 1;
    return equal_sequences(payload, value);
  }
  if (payload == value) return 1;
  if (type == &PySlice_Type) return equal_slices(payload, value);
  if (type == &PyFrozenSet_Type || type == &PySet_Type) return equal_sets(payload, value);
  if (type == &PyDict_Type) return equal_dicts(payload, value);
  return PyObject_RichCompareBool(payload, value, Py_EQ);
}

bool is_immutable_constant(PyObject* value) {
  PyTypeObject* type = Py_TYPE(value);
  if (type == &PyLong_Type || type == &PyFloat_Type || type == &PyUnicode_Type ||
      type == &PyBool_Type || type == &PyBytes_Type || type == &PyComplex_Type ||
      type == &PyRange_Type || type == &PyCode_Type || value == Py_None || value == Py_Ellipsis ||
      value == Py_NotImplemented)
    return true;
  if (type == &PyTuple_Type) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); i++)
      if (!is_immutable_constant(PyTuple_GET_ITEM(value, i))) return false;
    return true;
  }
  if (type == &PySlice_Type) {
    auto* slice = reinterpret_cast<PySliceObject*>(value);
    return is_immutable_constant(slice->start) && is_immutable_constant(slice->stop) &&
           is_immutable_constant(slice->step);
  }
  return is_immutable_torch_constant(value);
}

}  // namespace guards
