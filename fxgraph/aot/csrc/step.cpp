#include "step.h"

#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/functions/tensor.h>
#include <torch/csrc/autograd/python_cpp_function.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <tuple>

#include "../../csrc/built_from.h"

namespace framegraph {
namespace {

using Numbers = std::vector<uint32_t>;

PyObject* owned(py::handle item) { return item.inc_ref().ptr(); }

Output parse_output(const py::tuple& item) {
  Output out{};
  out.kind = static_cast<Output::Kind>(item[0].cast<int>());
  out.index = item[1].cast<uint32_t>();
  out.view = !item[2].is_none();
  if (out.view) {
    out.size = item[2].cast<std::vector<int64_t>>();
    out.stride = item[3].cast<std::vector<int64_t>>();
    out.offset = item[4].cast<int64_t>();
  }
  out.detached = item[5].cast<bool>();
  const auto creation = item[6].cast<int>();
  out.tracked = creation >= 0;
  out.creation = static_cast<torch::autograd::CreationMeta>(std::max(creation, 0));
  out.constant = out.kind == Output::Constant ? owned(item[7]) : nullptr;
  out.varies = !item[8].is_none();
  out.first = out.varies ? item[8].cast<size_t>() : 0;
  if (!item[9].is_none()) out.steps = parse_steps(item[9]);
  out.own_version = item[10].cast<bool>();
  return out;
}

Layout parse_layout(py::handle given) {
  if (given.is_none()) return {true, {}, {}, {}};
  const auto item = given.cast<py::tuple>();
  const auto dtype = reinterpret_cast<THPDtype*>(item[2].ptr())->scalar_type;
  const auto device = reinterpret_cast<THPDevice*>(item[3].ptr())->device;
  return {false, item[0].cast<std::vector<int64_t>>(), item[1].cast<std::vector<int64_t>>(),
          at::TensorOptions(device).dtype(dtype)};
}

Segment parse_segment(const py::dict& data) {
  Segment segment;
  segment.values = data["values"].cast<Numbers>();
  for (py::handle item : data["tangents"]) segment.tangents.push_back(parse_layout(item));
  for (py::handle item : data["gradients"]) {
    const auto pair = item.cast<std::pair<bool, uint32_t>>();
    segment.gradients.push_back({pair.first, pair.second});
  }
  segment.reached = data["reached"].cast<std::vector<std::vector<bool>>>();
  segment.saved = data["saved"].cast<Numbers>();
  segment.frees = data["frees"].cast<std::vector<Numbers>>();
  for (py::handle item : data["watched"]) {
    const auto parts = item.cast<std::tuple<bool, uint32_t, Numbers>>();
    segment.watched.push_back({std::get<0>(parts), std::get<1>(parts), std::get<2>(parts)});
  }
  return segment;
}

std::vector<Saved> parse_places(py::handle items) {
  std::vector<Saved> places;
  for (py::handle item : items) {
    const auto pair = item.cast<std::pair<int, uint32_t>>();
    places.push_back({static_cast<Saved::From>(pair.first), pair.second});
  }
  return places;
}

}  // namespace

void Training::load(PyObject* spec) {
  auto data = py::reinterpret_borrow<py::dict>(spec);
  name = data["name"].cast<std::string>();
  forward = owned(data["forward"]);
  eager = owned(data["eager"]);
  derive = owned(data["derive"]);
  specialize = owned(data["specialize"]);
  for (py::handle item : data["statics"]) {
    TORCH_CHECK_TYPE(item.is_none() || THPVariable_Check(item.ptr()), "a static input is no tensor");
    statics.push_back(item.is_none() ? nullptr : owned(item));
    varying += item.is_none();
  }
  values = data["values"].cast<size_t>();
  saved = parse_places(data["saved"]);
  for (py::handle item : data["layouts"]) layouts.push_back(parse_layout(item));
  versions = data["versions"].cast<Numbers>();
  for (py::handle item : data["segments"]) segments.push_back(parse_segment(item.cast<py::dict>()));
  cuts = data["cuts"].cast<Numbers>();
  rebased = data["rebased"].cast<Numbers>();
  whole = data["whole"].cast<Numbers>();
  for (py::handle item : data["outputs"]) outputs.push_back(parse_output(item.cast<py::tuple>()));
  numbers = owned(data["numbers"]);
  told = parse_places(data["told"]);
  written = data["written"].cast<Numbers>();
  same = data["same"].cast<std::vector<std::pair<uint32_t, uint32_t>>>();
}

Training::~Training() {
  for (PyObject* object : {forward, eager, derive, specialize, numbers}) Py_XDECREF(object);
  for (PyObject* tensor : statics) Py_XDECREF(tensor);
  for (Output& out : outputs) Py_XDECREF(out.constant);
  for (Segment& segment : segments) {
    for (auto& item : segment.variants) {
      Py_XDECREF(item.second.backward);
      Py_XDECREF(item.second.plain);
    }
  }
}

int Training::traverse(visitproc visit, void* arg) const {
  for (PyObject* object : {forward, eager, derive, specialize, numbers}) Py_VISIT(object);
  for (PyObject* tensor : statics) Py_VISIT(tensor);
  for (const Output& out : outputs) Py_VISIT(out.constant);
  for (const Segment& segment : segments) {
    for (const auto& item : segment.variants) {
      Py_VISIT(item.second.backward);
      Py_VISIT(item.second.plain);
    }
  }
  return 0;
}

const Variant& Training::variant(uint32_t number, const std::vector<bool>& present) {
  auto& variants = segments[number].variants;
  const auto known = variants.find(present);
  if (known != variants.end()) return known->second;
  py::list arriving;
  for (size_t k = 0; k < present.size(); ++k) {
    if (present[k]) arriving.append(k);
  }
  // Another thread may make it meanwhile; the first one stays.
  auto made = py::reinterpret_steal<py::object>(
      PyObject_CallFunctionObjArgs(specialize, py::int_(number).ptr(), arriving.ptr(), nullptr));
  if (!made) throw python_error();
  const auto parts = made.cast<py::tuple>();
  Variant variant{parts[0].ptr(), parts[1].cast<Numbers>(), parts[2].cast<Numbers>(), parts[3].cast<Numbers>()};
  for (py::handle item : parts[4]) {
    const auto pair = item.cast<py::tuple>();
    variant.views.emplace_back(pair[0].cast<uint32_t>(), parse_steps(pair[1]));
  }
  variant.receivers = parts[5].cast<std::vector<std::pair<uint32_t, uint32_t>>>();
  variant.plain = parts[6].ptr();
  variant.takes_tensors = py::getattr(variant.backward, "takes_tensors", py::none()).ptr() == Py_True;
  const auto [place, fresh] = variants.emplace(present, std::move(variant));
  if (fresh) {
    Py_INCREF(place->second.backward);
    Py_INCREF(place->second.plain);
  }
  return place->second;
}

namespace {

PyObject* step_call(PyObject* object, PyObject* const* args, size_t flags, PyObject* kwnames) {
  HANDLE_TH_ERRORS
  const Training& training = Step::called(object, kwnames);
  const auto count = static_cast<size_t>(PyVectorcall_NARGS(flags));
  TORCH_CHECK_TYPE(count == training.varying, "this graph takes ", training.varying, " tensors, got ", count);
  for (size_t i = 0; i < count; ++i) {
    TORCH_CHECK_TYPE(THPVariable_Check(args[i]), "a graph takes tensors, got ", Py_TYPE(args[i])->tp_name);
  }
  return call_step(Step::of(object), args);
  END_HANDLE_TH_ERRORS
}

PyTypeObject StepType = Step::type<step_call>(
    "fxgraph.aot._autograd.Step",
    "A compiled training graph. Made by fxgraph.aot.training; called with the tensors that vary.");

// A `with torch.no_grad()` leaves gradients off if a signal's handler raises within its __enter__ or __exit__.
PyObject* without_grad(PyObject*, PyObject* const* args, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(count > 0, "without_grad takes a function and its arguments");
  torch::autograd::AutoGradMode mode(false);
  return PyObject_Vectorcall(args[0], args + 1, static_cast<size_t>(count - 1), nullptr);
  END_HANDLE_TH_ERRORS
}

// The node of a write to a view, which stands inside the CopySlices node of the base's history; None for other nodes.
PyObject* written_by(PyObject*, PyObject* object) {
  HANDLE_TH_ERRORS
  using namespace torch::autograd;
  if (!THPCppFunction_Check(object)) Py_RETURN_NONE;
  auto* node = dynamic_cast<CopySlices*>(reinterpret_cast<THPCppFunction*>(object)->cdata.get());
  if (node == nullptr || !node->fn) Py_RETURN_NONE;
  return functionToPyObject(node->fn);
  END_HANDLE_TH_ERRORS
}

PyMethodDef methods[] = {
    {"without_grad", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(without_grad)), METH_FASTCALL,
     "without_grad(function, *args): function(*args) with gradients off."},
    {"written_by", written_by, METH_O, "written_by(node): the node of a write to a view inside CopySlices, or None."},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef module_def = {PyModuleDef_HEAD_INIT, "_autograd", "Compiled training graphs, and graphs in parts.", -1,
                          methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

bool register_node_type();              // node.cpp
bool add_parts_type(PyObject* module);  // parts.cpp
bool add_tensors_type(PyObject* module);  // tensors.cpp

}  // namespace framegraph

PyMODINIT_FUNC PyInit__autograd() {
  using namespace framegraph;
  PyObject* module = PyModule_Create(&module_def);
  if (module == nullptr) return nullptr;
  if (!add_type(module, &StepType, "Step") || !register_node_type() || !add_parts_type(module) ||
      !add_tensors_type(module)) {
    Py_DECREF(module);
    return nullptr;
  }
  return module;
}
