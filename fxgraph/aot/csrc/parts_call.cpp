// One call of a graph in parts.
#include "parts.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>

namespace framegraph {
namespace {

bool is_plain_tensor(PyObject* value) {
  return THPVariable_CheckExact(value) && THPVariable_Unpack(value).layout() == at::kStrided;
}

// Whether a mode or a transform is to see the operators themselves.
bool modes_watch() {
  return c10::impl::TorchDispatchModeTLS::stack_len() > 0 || at::impl::PythonTorchFunctionTLS::stack_len() > 0 ||
         c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerFrontMode);
}

bool truth(PyObject* predicate) {
  if (THPVariable_CheckExact(predicate)) {
    const at::Tensor& tensor = THPVariable_Unpack(predicate);
    if (tensor.is_cpu() && tensor.layout() == at::kStrided && tensor.scalar_type() == at::kBool && tensor.numel() == 1) {
      return *static_cast<const bool*>(tensor.const_data_ptr());
    }
    pybind11::gil_scoped_release without_gil;  // a device may have to compute it first
    return tensor.is_nonzero();
  }
  const int found = PyObject_IsTrue(predicate);
  if (found < 0) throw python_error();
  return found != 0;
}

bool is_alike(const Operand& wanted, PyObject* given) {
  if (wanted.number != nullptr) {
    return Py_TYPE(given) == Py_TYPE(wanted.number) && PyObject_RichCompareBool(given, wanted.number, Py_EQ) == 1;
  }
  if (!THPVariable_CheckExact(given)) return false;
  const at::Tensor& tensor = THPVariable_Unpack(given);
  return tensor.scalar_type() == wanted.dtype && tensor.requires_grad() == wanted.requires_grad &&
         tensor.device() == wanted.device && tensor.sizes().equals(wanted.size) &&
         tensor.strides().equals(wanted.stride);
}

Operand operand_of(PyObject* given) {
  Operand made;
  if (!THPVariable_Check(given)) {
    made.number = Py_NewRef(given);
    return made;
  }
  const at::Tensor& tensor = THPVariable_Unpack(given);
  made.dtype = tensor.scalar_type();
  made.device = tensor.device();
  made.requires_grad = tensor.requires_grad();
  made.size = tensor.sizes().vec();
  made.stride = tensor.strides().vec();
  return made;
}

using Objects = std::vector<py::object>;
using Borrowed = std::vector<PyObject*>;

py::object owned_result(PyObject* result) {
  if (result == nullptr) throw python_error();
  return py::reinterpret_steal<py::object>(result);
}

py::object called(PyObject* function, const Borrowed& args) {
  return owned_result(PyObject_Vectorcall(function, args.data(), args.size(), nullptr));
}

class PartsCall {
 public:
  PartsCall(Parts& parts, PyObject* const* args) : parts_(parts), values_(parts.slots) {
    for (const auto& [slot, object] : parts.bound) values_[slot] = py::reinterpret_borrow<py::object>(object);
    for (uint32_t slot : parts.inputs) values_[slot] = py::reinterpret_borrow<py::object>(*args++);
  }

  PyObject* operator()() {
    for (PartStep& step : parts_.steps) {
      run(step);
      for (uint32_t slot : step.dead) values_[slot] = py::object();
    }
    if (parts_.arrange != nullptr) return called(parts_.arrange, at_slots(parts_.results)).release().ptr();
    py::tuple results(parts_.results.size());
    for (size_t i = 0; i < parts_.results.size(); ++i) results[i] = values_[parts_.results[i]];
    return results.release().ptr();
  }

 private:
  void run(PartStep& step) {
    switch (step.kind) {
      case PartStep::Compiled:
        return compiled(step);
      case PartStep::Item: {
        PyObject* of = values_[step.inputs[0]].ptr();
        values_[step.outputs[0]] = owned_result(PySequence_GetItem(of, step.item));
        return;
      }
      case PartStep::Plain:
        return plainly(step);
      default:
        return control_flow(step);
    }
  }

  Borrowed at_slots(const Slots& slots) const {
    Borrowed found;
    found.reserve(slots.size());
    for (uint32_t slot : slots) found.push_back(values_[slot].ptr());
    return found;
  }

  void compiled(const PartStep& step) {
    for (const Expected& item : step.expected) {
      if (!holds(item)) return plainly(step);
    }
    keep(step, called(step.function, at_slots(step.given)));
  }

  void plainly(const PartStep& step) { keep(step, called(step.plain, at_slots(step.inputs))); }

  void keep(const PartStep& step, const py::object& results) {
    const auto items = owned_result(PySequence_Fast(results.ptr(), "a part of a graph returned no tuple"));
    const auto count = static_cast<size_t>(PySequence_Fast_GET_SIZE(items.ptr()));
    TORCH_CHECK(count == step.outputs.size(), "a part of a graph returned ", count, " results, not ",
                step.outputs.size());
    for (size_t i = 0; i < count; ++i) {
      PyObject* item = PySequence_Fast_GET_ITEM(items.ptr(), static_cast<Py_ssize_t>(i));
      values_[step.outputs[i]] = py::reinterpret_borrow<py::object>(item);
    }
  }

  bool holds(const Expected& item) const {
    PyObject* given = values_[item.slot].ptr();
    if (!THPVariable_Check(given)) return false;
    const at::Tensor& tensor = THPVariable_Unpack(given);
    if (tensor.layout() != at::kStrided) return false;
    if (tensor.scalar_type() != item.dtype || tensor.requires_grad() != item.requires_grad) return false;
    const auto size = tensor.sizes(), stride = tensor.strides();
    if (item.computed == nullptr) return are_numbers(item.numbers, size, stride);
    Objects sizes;  // which `told` borrows
    Borrowed told;
    for (const auto& [slot, dim] : item.given) {
      PyObject* value = values_[slot].ptr();
      if (dim >= 0) {
        if (!THPVariable_Check(value) || THPVariable_Unpack(value).dim() <= dim) return false;
        sizes.push_back(py::int_(THPVariable_Unpack(value).size(dim)));
        value = sizes.back().ptr();
      }
      told.push_back(value);
    }
    return are_numbers(called(item.computed, told).cast<std::vector<int64_t>>(), size, stride);
  }

  static bool are_numbers(const std::vector<int64_t>& numbers, at::IntArrayRef size, at::IntArrayRef stride) {
    return numbers.size() == 2 * size.size() && std::equal(size.begin(), size.end(), numbers.begin()) &&
           std::equal(stride.begin(), stride.end(), numbers.begin() + static_cast<std::ptrdiff_t>(size.size()));
  }

  void control_flow(PartStep& step) {
    Borrowed given = at_slots(step.inputs);
    const size_t first = step.kind == PartStep::While ? 0 : 1;  // behind the predicate
    const bool watches_grad = step.without_grad && c10::GradMode::is_enabled();
    bool suited = !modes_watch();
    for (size_t i = first; suited && i < given.size(); ++i) {
      suited = is_plain_tensor(given[i]) ? !(watches_grad && THPVariable_Unpack(given[i]).requires_grad())
                                         : PyLong_Check(given[i]) || PyFloat_Check(given[i]);
    }
    if (!suited) return plainly(step);
    const Borrowed operands(given.begin() + static_cast<std::ptrdiff_t>(first), given.end());
    if (step.kind == PartStep::Branch) {
      values_[step.outputs[0]] = run_body(step.bodies[truth(given[0]) ? 0 : 1], operands);
    } else {
      py::object predicate;
      if (step.kind == PartStep::Loop) predicate = py::reinterpret_borrow<py::object>(given[0]);
      values_[step.outputs[0]] = looped(step, std::move(predicate), operands);
    }
  }

  // A body of a Loop returns the carried values, then the next predicate.
  static py::object looped(PartStep& step, py::object predicate, Borrowed operands) {
    const bool apart = step.kind == PartStep::While;
    Body& body = step.bodies[apart ? 1 : 0];
    Objects carried;
    bool ran = false;
    while (true) {
      if (apart) predicate = py::tuple(run_body(step.bodies[0], operands))[0];
      if (!truth(predicate.ptr())) break;
      if (PyErr_CheckSignals() != 0) throw python_error();
      const py::tuple results(run_body(body, operands));
      TORCH_CHECK(results.size() == step.carried + !apart, "the body of a loop returned ", results.size(), " results");
      carried.clear();
      for (size_t i = 0; i < step.carried; ++i) {
        carried.emplace_back(results[i]);
        operands[i] = carried.back().ptr();
      }
      if (!apart) predicate = results[step.carried];
      ran = true;
    }
    py::tuple made(step.carried);
    for (size_t i = 0; i < step.carried; ++i) {
      if (ran || !apart) {
        made[i] = py::reinterpret_borrow<py::object>(operands[i]);
      } else {  // torch's operator gives no input back
        made[i] = owned_result(THPVariable_Wrap(THPVariable_Unpack(operands[i]).clone()));
      }
    }
    return made;
  }

  // The results of a body, in a tuple.
  static py::object run_body(Body& body, const Borrowed& operands) {
    py::object results = call_suited(body, operands);
    if (THPVariable_Check(results.ptr())) return py::make_tuple(results);
    if (PyTuple_CheckExact(results.ptr())) return results;
    return owned_result(PySequence_Tuple(results.ptr()));
  }

  static py::object call_suited(Body& body, const Borrowed& operands) {
    const bool grad = c10::GradMode::is_enabled();
    for (const BodyVariant& known : body.variants) {
      if (known.grad != grad || known.operands.size() != operands.size()) continue;
      bool alike = true;
      for (size_t i = 0; alike && i < operands.size(); ++i) alike = is_alike(known.operands[i], operands[i]);
      if (alike) return call_taking(known.function, known.taken, operands);
    }
    py::tuple given(operands.size());
    for (size_t i = 0; i < operands.size(); ++i) given[i] = py::reinterpret_borrow<py::object>(operands[i]);
    PyObject* const argument = given.ptr();
    const auto found = owned_result(PyObject_Vectorcall(body.suited, &argument, 1, nullptr)).cast<py::tuple>();
    const py::object function = found[0];
    const auto taken = found[1].cast<Slots>();
    if (body.variants.size() < body.most) {
      BodyVariant made{grad, {}, Py_NewRef(function.ptr()), taken};
      for (PyObject* operand : operands) made.operands.push_back(operand_of(operand));
      body.variants.push_back(std::move(made));
    }
    return call_taking(function.ptr(), taken, operands);
  }

  static py::object call_taking(PyObject* function, const Slots& taken, const Borrowed& operands) {
    const auto held = py::reinterpret_borrow<py::object>(function);  // a variant is no more where it was, then
    Borrowed given;
    given.reserve(taken.size());
    for (uint32_t i : taken) given.push_back(operands[i]);
    return called(function, given);
  }

  Parts& parts_;
  Objects values_;
};

}  // namespace

PyObject* run_parts(Parts& parts, PyObject* const* args) { return PartsCall(parts, args)(); }

}  // namespace framegraph
