// The type Parts: parsing, and its life as a Python object.
#include "parts.h"

#include <torch/csrc/Dtype.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <string>
#include <utility>

#include "../../csrc/torch_version.h"

namespace framegraph {
namespace {

PyObject* kept_object(py::handle item) { return item.is_none() ? nullptr : item.inc_ref().ptr(); }

Slots slots_of(py::handle data, const char* key) { return data[key].cast<Slots>(); }

Expected parse_expected(const py::dict& data) {
  Expected made{data["slot"].cast<uint32_t>(), reinterpret_cast<THPDtype*>(py::object(data["dtype"]).ptr())->scalar_type,
                data["requires_grad"].cast<bool>(), data["numbers"].cast<std::vector<int64_t>>()};
  made.computed = kept_object(data["computed"]);
  made.given = slots_of(data, "given");
  return made;
}

PartStep::Kind kind_of(const std::string& name) {
  static const char* const names[] = {"compiled", "item", "branch", "loop", "while", "plain"};
  for (uint8_t i = 0; i < 6; ++i) {
    if (name == names[i]) return static_cast<PartStep::Kind>(i);
  }
  TORCH_CHECK(false, "unknown step ", name);
}

PartStep parse_part(const py::dict& data) {
  PartStep step{kind_of(data["kind"].cast<std::string>()), slots_of(data, "inputs"), slots_of(data, "outputs"),
                slots_of(data, "dead")};
  step.function = kept_object(data["function"]);
  step.given = slots_of(data, "given");
  step.plain = kept_object(data["plain"]);
  for (py::handle item : data["expected"]) step.expected.push_back(parse_expected(item.cast<py::dict>()));
  step.item = data["item"].cast<Py_ssize_t>();
  step.carried = data["carried"].cast<size_t>();
  for (py::handle item : data["bodies"]) {
    const auto pair = item.cast<py::tuple>();
    step.bodies.push_back({kept_object(pair[0]), pair[1].cast<size_t>(), {}});
  }
  step.without_grad = data["without_grad"].cast<bool>();
  return step;
}

}  // namespace

void Parts::load(PyObject* spec) {
  auto data = py::reinterpret_borrow<py::dict>(spec);
  slots = data["slots"].cast<size_t>();
  inputs = slots_of(data, "inputs");
  for (py::handle item : data["bound"]) {
    const auto pair = item.cast<py::tuple>();
    bound.emplace_back(pair[0].cast<uint32_t>(), py::object(pair[1]).release().ptr());
  }
  for (py::handle item : data["steps"]) steps.push_back(parse_part(item.cast<py::dict>()));
  results = slots_of(data, "results");
  arrange = kept_object(data["arrange"]);
}

// Calls `visitor` with each object that is held, until it returns another number than 0.
template <class Visit>
int Parts::visit(Visit visitor) const {
  const auto one = [&](PyObject* object) { return object == nullptr ? 0 : visitor(object); };
  if (int found = one(arrange)) return found;
  for (const auto& item : bound) {
    if (int found = one(item.second)) return found;
  }
  for (const PartStep& step : steps) {
    if (int found = one(step.function)) return found;
    if (int found = one(step.plain)) return found;
    for (const Expected& item : step.expected) {
      if (int found = one(item.computed)) return found;
    }
    for (const Body& body : step.bodies) {
      if (int found = one(body.suited)) return found;
      for (const BodyVariant& variant : body.variants) {
        if (int found = one(variant.function)) return found;
        for (const Operand& operand : variant.operands) {
          if (int found = one(operand.number)) return found;
        }
      }
    }
  }
  return 0;
}

Parts::~Parts() {
  visit([](PyObject* object) {
    Py_DECREF(object);
    return 0;
  });
}

namespace {

struct PartsObject {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyObject* dict;
  PyObject* weakrefs;
  Parts* parts;
};

PyObject* parts_call(PyObject* object, PyObject* const* args, size_t flags, PyObject* kwnames) {
  HANDLE_TH_ERRORS
  auto* self = reinterpret_cast<PartsObject*>(object);
  TORCH_CHECK(self->parts != nullptr, "framegraph: this graph was cleared");
  const auto count = static_cast<size_t>(PyVectorcall_NARGS(flags));
  TORCH_CHECK_TYPE(count == self->parts->inputs.size(), "this graph takes ", self->parts->inputs.size(),
                   " arguments, got ", count);
  TORCH_CHECK_TYPE(kwnames == nullptr || PyTuple_GET_SIZE(kwnames) == 0, "a graph takes no keyword arguments");
  const auto held = py::reinterpret_borrow<py::object>(object);
  return run_parts(*self->parts, args);
  END_HANDLE_TH_ERRORS
}

PyObject* parts_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  HANDLE_TH_ERRORS
  PyObject* spec = nullptr;
  static const char* names[] = {"parts", nullptr};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!", const_cast<char**>(names), &PyDict_Type, &spec)) return nullptr;
  auto parts = std::make_unique<Parts>();
  parts->load(spec);
  auto* self = reinterpret_cast<PartsObject*>(type->tp_alloc(type, 0));
  if (self == nullptr) return nullptr;
  self->vectorcall = parts_call;
  self->parts = parts.release();
  return reinterpret_cast<PyObject*>(self);
  END_HANDLE_TH_ERRORS
}

int parts_traverse(PyObject* object, visitproc visit, void* arg) {
  auto* self = reinterpret_cast<PartsObject*>(object);
  Py_VISIT(self->dict);
  if (self->parts == nullptr) return 0;
  return self->parts->visit([&](PyObject* held) { return visit(held, arg); });
}

int parts_clear(PyObject* object) {
  auto* self = reinterpret_cast<PartsObject*>(object);
  Py_CLEAR(self->dict);
  delete std::exchange(self->parts, nullptr);
  return 0;
}

void parts_dealloc(PyObject* object) {
  auto* self = reinterpret_cast<PartsObject*>(object);
  PyObject_GC_UnTrack(object);
  if (self->weakrefs != nullptr) PyObject_ClearWeakRefs(object);
  parts_clear(object);
  Py_TYPE(object)->tp_free(object);
}

PyGetSetDef parts_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyTypeObject PartsType = [] {
  PyTypeObject type = {PyVarObject_HEAD_INIT(nullptr, 0)};
  type.tp_name = "fxgraph.aot._autograd.Parts";
  type.tp_doc = "A graph in parts. Made by fxgraph.aot.split; called with the inputs that vary.";
  type.tp_basicsize = sizeof(PartsObject);
  type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL;
  type.tp_new = parts_new;
  type.tp_dealloc = parts_dealloc;
  type.tp_traverse = parts_traverse;
  type.tp_clear = parts_clear;
  type.tp_call = PyVectorcall_Call;
  type.tp_vectorcall_offset = offsetof(PartsObject, vectorcall);
  type.tp_dictoffset = offsetof(PartsObject, dict);
  type.tp_weaklistoffset = offsetof(PartsObject, weakrefs);
  type.tp_getset = parts_getset;
  return type;
}();

}  // namespace

bool add_parts_type(PyObject* module) {
  return PyType_Ready(&PartsType) == 0 &&
         PyModule_AddObjectRef(module, "Parts", reinterpret_cast<PyObject*>(&PartsType)) == 0;
}

}  // namespace framegraph
