// fxgraph.aot._autograd.Tensors: a sequence of tensors that are no objects in Python until they are asked for. A graph
// and its backward hand each other hundreds; objects would be made, looked at by Python's garbage collector, and dropped.
#pragma once

#include <torch/csrc/python_headers.h>

#include <ATen/core/Tensor.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <utility>
#include <vector>

namespace framegraph {

struct Tensors {
  PyObject_HEAD
  std::vector<at::Tensor>* held;  // never null; an undefined one stands for None

  // The type, of the extension that has it. Needs the GIL, as all of this.
  static PyTypeObject* type() {
    static PyObject* found = nullptr;
    if (found == nullptr) {
      const auto module = py::reinterpret_steal<py::object>(PyImport_ImportModule("fxgraph.aot._autograd"));
      if (!module) throw python_error();
      found = PyObject_GetAttrString(module.ptr(), "Tensors");
      if (found == nullptr) throw python_error();
    }
    return reinterpret_cast<PyTypeObject*>(found);
  }

  // The object's tensors, or null for one of another type.
  static std::vector<at::Tensor>* of(PyObject* object) {
    return Py_IS_TYPE(object, type()) ? reinterpret_cast<Tensors*>(object)->held : nullptr;
  }

  static py::object make(std::vector<at::Tensor>&& tensors) {
    auto made = py::reinterpret_steal<py::object>(PyObject_CallNoArgs(reinterpret_cast<PyObject*>(type())));
    if (!made) throw python_error();
    *reinterpret_cast<Tensors*>(made.ptr())->held = std::move(tensors);
    return made;
  }
};

}  // namespace framegraph
