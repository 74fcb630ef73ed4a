#include "library.h"

#include "../../../fxgraph/csrc/callable.h"

#include <dlfcn.h>

#include <vector>

namespace framegraph {
namespace {

struct Library {
  PyObject_HEAD
  void* handle;
};

PyObject* library_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"path", nullptr};
  PyObject* path = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&", const_cast<char**>(names), PyUnicode_FSConverter, &path)) {
    return nullptr;
  }
  void* handle = dlopen(PyBytes_AS_STRING(path), RTLD_NOW | RTLD_LOCAL);
  Py_DECREF(path);
  if (handle == nullptr) {
    const char* why = dlerror();
    PyErr_SetString(PyExc_OSError, why ? why : "dlopen failed");
    return nullptr;
  }
  auto* self = reinterpret_cast<Library*>(type->tp_alloc(type, 0));
  if (self == nullptr) {
    dlclose(handle);
    return nullptr;
  }
  self->handle = handle;
  return reinterpret_cast<PyObject*>(self);
}

void library_dealloc(PyObject* object) {
  dlclose(reinterpret_cast<Library*>(object)->handle);
  Py_TYPE(object)->tp_free(object);
}

void* find(PyObject* object, PyObject* symbol) {
  const char* name = PyUnicode_AsUTF8(symbol);
  if (name == nullptr) return nullptr;
  void* address = dlsym(reinterpret_cast<Library*>(object)->handle, name);
  if (address == nullptr) PyErr_Format(PyExc_AttributeError, "the kernel library has no symbol %R", symbol);
  return address;
}

PyObject* library_address(PyObject* self, PyObject* symbol) {
  void* address = find(self, symbol);
  return address == nullptr ? nullptr : PyLong_FromVoidPtr(address);
}

PyObject* library_call(PyObject* self, PyObject* args) {
  PyObject *symbol = nullptr, *pointers = nullptr;
  long long begin = 0, end = 0;
  if (!PyArg_ParseTuple(args, "UO!LL", &symbol, &PyTuple_Type, &pointers, &begin, &end)) return nullptr;
  void* address = find(self, symbol);
  if (address == nullptr) return nullptr;
  std::vector<void*> raw(static_cast<size_t>(PyTuple_GET_SIZE(pointers)));
  for (size_t i = 0; i < raw.size(); ++i) {
    raw[i] = PyLong_AsVoidPtr(PyTuple_GET_ITEM(pointers, static_cast<Py_ssize_t>(i)));
    if (raw[i] == nullptr && PyErr_Occurred()) return nullptr;
  }
  Py_BEGIN_ALLOW_THREADS
  reinterpret_cast<Kernel>(address)(raw.data(), begin, end);
  Py_END_ALLOW_THREADS
  Py_RETURN_NONE;
}

PyMethodDef library_methods[] = {
    {"address", library_address, METH_O, "address(symbol) -> int: where a kernel is; AttributeError if absent."},
    {"call", library_call, METH_VARARGS,
     "call(symbol, pointers: tuple[int, ...], begin, end): run one kernel on raw pointers, in this thread."},
    {nullptr, nullptr, 0, nullptr}};

PyTypeObject LibraryType = [] {
  PyTypeObject type = {PyVarObject_HEAD_INIT(nullptr, 0)};
  type.tp_name = "inductor.runtime._plan.Library";
  type.tp_doc = "Library(path): a shared library of kernels, closed when nothing refers to it.";
  type.tp_basicsize = sizeof(Library);
  type.tp_flags = Py_TPFLAGS_DEFAULT;
  type.tp_new = library_new;
  type.tp_dealloc = library_dealloc;
  type.tp_methods = library_methods;
  return type;
}();

}  // namespace

bool add_library_type(PyObject* module) { return add_type(module, &LibraryType, "Library"); }

}  // namespace framegraph
