// The type Parts: parsing, and its life as a Python object.
#include "parts.h"

#include <torch/csrc/Dtype.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <string>
#include <utility>

#include "../../csrc/callable.h"
#include "../../csrc/built_from.h"

namespace framegraph {
namespace {

PyObject* kept_object(py::handle item) { return item.is_none() ? nullptr : item.inc_ref().ptr(); }

Slots slots_of(py::handle data, const char* key) { return data[key].cast<Slots>(); }

Expected parse_expected(const py::dict& data) {
  Expected made{data["slot"].cast<uint32_t>(), reinterpret_cast<THPDtype*>(py::object(data["dtype"]).ptr())->scalar_type,
                data["requires_grad"].cast<bool>(), data["numbers"].cast<std::vector<int64_t>>()};
  made.computed = kept_object(data["computed"]);
  made.given = data["given"].cast<std::vector<std::pair<uint32_t, int64_t>>>();
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

int Parts::traverse(visitproc visitor, void* arg) const {
  return visit([&](PyObject* held) { return visitor(held, arg); });
}

Parts::~Parts() {
  visit([](PyObject* object) {
    Py_DECREF(object);
    return 0;
  });
}

namespace {

PyObject* parts_call(PyObject* object, PyObject* const* args, size_t flags, PyObject* kwnames) {
  HANDLE_TH_ERRORS
  Parts& parts = Callable<Parts>::called(object, kwnames);
  const auto count = static_cast<size_t>(PyVectorcall_NARGS(flags));
  TORCH_CHECK_TYPE(count == parts.inputs.size(), "this graph takes ", parts.inputs.size(), " arguments, got ", count);
  const auto held = py::reinterpret_borrow<py::object>(object);
  return run_parts(parts, args);
  END_HANDLE_TH_ERRORS
}

PyTypeObject PartsType = Callable<Parts>::type<parts_call>(
    "fxgraph.aot._autograd.Parts",
    "A graph in parts. Made by fxgraph.aot.split; called with the inputs that vary.");

}  // namespace

bool add_parts_type(PyObject* module) { return add_type(module, &PartsType, "Parts"); }

}  // namespace framegraph
