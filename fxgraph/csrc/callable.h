// A Python type whose objects hold a C++ object and are called: with a __dict__, weak references, and garbage
// collection of the references in the C++ object.
//
// Held has load(PyObject* dict), which throws on a malformed one, and traverse(visitproc, void*).
#pragma once

#include <torch/csrc/python_headers.h>

#include <torch/csrc/Exceptions.h>

#include <memory>
#include <utility>

namespace framegraph {

template <class Held>
struct Callable {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyObject* dict;
  PyObject* weakrefs;
  Held* held;  // null once the garbage collector has cleared the object

  static Callable* of(PyObject* object) { return reinterpret_cast<Callable*>(object); }

  // Throws if there is nothing to call any more, or for keyword arguments.
  static Held& called(PyObject* object, PyObject* kwnames = nullptr) {
    Held* held = of(object)->held;
    TORCH_CHECK(held != nullptr, "framegraph: this graph was cleared");
    TORCH_CHECK_TYPE(kwnames == nullptr || PyTuple_GET_SIZE(kwnames) == 0, "a compiled graph takes no keyword arguments");
    return *held;
  }

  template <vectorcallfunc call>
  static PyTypeObject type(const char* name, const char* doc, PyMethodDef* methods = nullptr) {
    static PyGetSetDef getset[] = {{"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
                                   {nullptr, nullptr, nullptr, nullptr, nullptr}};
    PyTypeObject type = {PyVarObject_HEAD_INIT(nullptr, 0)};
    type.tp_name = name;
    type.tp_doc = doc;
    type.tp_basicsize = sizeof(Callable);
    type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL;
    type.tp_new = create<call>;
    type.tp_dealloc = dealloc;
    type.tp_traverse = traverse;
    type.tp_clear = clear;
    type.tp_call = PyVectorcall_Call;
    type.tp_vectorcall_offset = offsetof(Callable, vectorcall);
    type.tp_dictoffset = offsetof(Callable, dict);
    type.tp_weaklistoffset = offsetof(Callable, weakrefs);
    type.tp_methods = methods;
    type.tp_getset = getset;
    return type;
  }

 private:
  template <vectorcallfunc call>
  static PyObject* create(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
    HANDLE_TH_ERRORS
    PyObject* spec = nullptr;
    static const char* names[] = {"spec", nullptr};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!", const_cast<char**>(names), &PyDict_Type, &spec)) return nullptr;
    auto held = std::make_unique<Held>();
    held->load(spec);
    auto* self = of(type->tp_alloc(type, 0));
    if (self == nullptr) return nullptr;
    self->vectorcall = call;
    self->held = held.release();
    return reinterpret_cast<PyObject*>(self);
    END_HANDLE_TH_ERRORS
  }

  static int traverse(PyObject* object, visitproc visit, void* arg) {
    Py_VISIT(of(object)->dict);
    return of(object)->held == nullptr ? 0 : of(object)->held->traverse(visit, arg);
  }

  static int clear(PyObject* object) {
    Py_CLEAR(of(object)->dict);
    delete std::exchange(of(object)->held, nullptr);
    return 0;
  }

  static void dealloc(PyObject* object) {
    PyObject_GC_UnTrack(object);
    if (of(object)->weakrefs != nullptr) PyObject_ClearWeakRefs(object);
    clear(object);
    Py_TYPE(object)->tp_free(object);
  }
};

// Makes the type ready and adds it to the module as NAME; false with a Python error set on failure.
inline bool add_type(PyObject* module, PyTypeObject* type, const char* name) {
  return PyType_Ready(type) == 0 && PyModule_AddObjectRef(module, name, reinterpret_cast<PyObject*>(type)) == 0;
}

}  // namespace framegraph
