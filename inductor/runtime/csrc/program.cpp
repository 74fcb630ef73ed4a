#include "program.h"

#include "arena.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/List.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/jit/python/pybind_utils.h>

#include <algorithm>
#include <tuple>
#include <utility>

namespace framegraph {
namespace {

using c10::IValue;
using c10::TypeKind;

// A 1-tuple (value,) in an argument tree stands for a tensor of the plan.
bool is_reference(py::handle item) {
  return PyTuple_CheckExact(item.ptr()) && PyTuple_GET_SIZE(item.ptr()) == 1;
}

int32_t reference(py::handle item) {
  return item.cast<py::tuple>()[0].cast<int32_t>();
}

bool is_tensor(const c10::TypePtr& type) {
  return type->kind() == TypeKind::TensorType;
}

c10::TypePtr without_optional(const c10::TypePtr& type) {
  return type->kind() == TypeKind::OptionalType ? type->expectRef<c10::OptionalType>().getElementType() : type;
}

// A pair (register, 0) stands for a number that each call computes.
bool is_register(py::handle item) {
  return PyTuple_CheckExact(item.ptr()) && PyTuple_GET_SIZE(item.ptr()) == 2;
}

bool has_register(py::handle items) {
  if (!PyList_Check(items.ptr())) return is_register(items);
  for (py::handle item : items.cast<py::list>()) {
    if (is_register(item)) return true;
  }
  return false;
}

Number parse_number(py::handle item) {
  if (is_register(item)) return {0, item.cast<py::tuple>()[0].cast<int32_t>()};
  return {item.cast<int64_t>(), -1};
}

std::vector<Number> parse_numbers(py::handle items) {
  std::vector<Number> result;
  for (py::handle item : items) result.push_back(parse_number(item));
  return result;
}

std::vector<int64_t> known(const std::vector<Number>& numbers) {
  std::vector<int64_t> result;
  for (const Number& number : numbers) result.push_back(number.value);
  return result;
}

IValue number(py::handle item) {
  if (PyBool_Check(item.ptr())) return item.cast<bool>();
  if (PyLong_Check(item.ptr())) return item.cast<int64_t>();
  if (PyFloat_Check(item.ptr())) return item.cast<double>();
  TORCH_CHECK(PyComplex_Check(item.ptr()), "not a number: ", py::repr(item).cast<std::string>());
  return c10::complex<double>(PyComplex_RealAsDouble(item.ptr()), PyComplex_ImagAsDouble(item.ptr()));
}

// Schemas call dtypes, layouts, memory formats and quantisation schemes ints.
int64_t integer(py::handle item) {
  if (PyLong_Check(item.ptr())) return item.cast<int64_t>();
  return torch::jit::toIValue(item, c10::IntType::get()).toInt();
}

template <class T, class Convert>
IValue list_of(py::handle item, int32_t fixed, Convert convert) {
  c10::List<T> result;
  if (PyList_Check(item.ptr())) {
    for (py::handle element : item.cast<py::list>()) result.push_back(convert(element));
  } else {  // a scalar stands for a list of the schema's fixed length: stride=2 for int[2]
    for (int32_t i = 0; i < std::max(fixed, 1); ++i) result.push_back(convert(item));
  }
  return result;
}

IValue constant(py::handle item, const c10::TypePtr& declared, int32_t fixed);

IValue constant_list(py::handle item, const c10::TypePtr& element, int32_t fixed) {
  switch (element->kind()) {
    case TypeKind::IntType:
    case TypeKind::SymIntType:
      return list_of<int64_t>(item, fixed, integer);
    case TypeKind::FloatType:
      return list_of<double>(item, fixed, [](py::handle e) { return e.cast<double>(); });
    case TypeKind::BoolType:
      return list_of<bool>(item, fixed, [](py::handle e) { return e.cast<bool>(); });
    case TypeKind::StringType:
      return list_of<std::string>(item, fixed, [](py::handle e) { return e.cast<std::string>(); });
    default:
      break;
  }
  c10::impl::GenericList result(element);
  for (py::handle e : item.cast<py::list>()) result.push_back(constant(e, element, 0));
  return result;
}

// A constant argument as the schema's type wants it.
IValue constant(py::handle item, const c10::TypePtr& declared, int32_t fixed) {
  if (item.is_none()) {  // attention's backward declares a bias that there need not be
    return declared->kind() == TypeKind::TensorType ? IValue(at::Tensor()) : IValue();
  }
  const c10::TypePtr type = without_optional(declared);
  switch (type->kind()) {
    case TypeKind::TensorType: {  // a Python number where a tensor is declared: x + 1
      at::Tensor scalar = c10::scalar_to_tensor(number(item).toScalar());
      scalar.unsafeGetTensorImpl()->set_wrapped_number(true);
      return scalar;
    }
    case TypeKind::NumberType:
      return number(item);
    case TypeKind::IntType:
    case TypeKind::SymIntType:
      return integer(item);
    case TypeKind::FloatType:
    case TypeKind::SymFloatType:
      return item.cast<double>();
    case TypeKind::BoolType:
    case TypeKind::SymBoolType:
      return item.cast<bool>();
    case TypeKind::StringType:
      return item.cast<std::string>();
    case TypeKind::ListType:
      return constant_list(item, type->expectRef<c10::ListType>().getElementType(), fixed);
    default:  // devices, generators, script objects, and arguments of the schema's type Any
      return torch::jit::toIValue(item, type);
  }
}

std::vector<int32_t> references(py::handle items) {
  std::vector<int32_t> values;
  for (py::handle item : items.cast<py::list>()) values.push_back(item.is_none() ? -1 : reference(item));
  return values;
}

// The patch for an argument that is, or contains, numbers of the call.
Patch number_patch(py::handle item, const c10::TypePtr& type, uint32_t position, const c10::Argument& argument) {
  if (PyList_Check(item.ptr())) {
    const auto element = without_optional(type->expectRef<c10::ListType>().getElementType())->kind();
    TORCH_CHECK(element == TypeKind::IntType || element == TypeKind::SymIntType, "sizes in argument ", argument.name());
    return {Patch::IntList, position, {}, parse_numbers(item)};
  }
  std::vector<Number> numbers{parse_number(item)};
  switch (type->kind()) {
    case TypeKind::TensorType:
      return {Patch::NumberTensor, position, {}, std::move(numbers)};
    case TypeKind::FloatType:
    case TypeKind::SymFloatType:
      return {Patch::Float, position, {}, std::move(numbers)};
    case TypeKind::BoolType:
    case TypeKind::SymBoolType:
      return {Patch::Bool, position, {}, std::move(numbers)};
    case TypeKind::ListType:  // a size stands for a list of the schema's fixed length
      numbers.resize(static_cast<size_t>(std::max(argument.N() ? *argument.N() : 1, 1)), numbers[0]);
      return {Patch::IntList, position, {}, std::move(numbers)};
    default:
      return {Patch::Int, position, {}, std::move(numbers)};
  }
}

// Puts one argument on the template stack: a constant now, or a patch for each call.
void push_argument(AtenCall& call, py::handle item, const c10::Argument& argument) {
  const auto position = static_cast<uint32_t>(call.stack.size());
  const c10::TypePtr type = without_optional(argument.type());
  if (is_reference(item)) {
    TORCH_CHECK(is_tensor(type) || type->kind() == TypeKind::AnyType, "argument ", argument.name(), " of ", call.op.schema().name(), " is no tensor");
    call.patches.push_back({Patch::Tensor, position, {reference(item)}, {}});
    call.stack.emplace_back();
    return;
  }
  if (has_register(item)) {
    call.patches.push_back(number_patch(item, type, position, argument));
    call.stack.emplace_back();
    return;
  }
  if (type->kind() == TypeKind::ListType && PyList_Check(item.ptr())) {
    const c10::TypePtr element = type->expectRef<c10::ListType>().getElementType();
    if (is_tensor(without_optional(element))) {
      const auto kind = is_tensor(element) ? Patch::TensorList : Patch::OptionalTensorList;
      call.patches.push_back({kind, position, references(item), {}});
      call.stack.emplace_back();
      return;
    }
  }
  call.stack.push_back(constant(item, argument.type(), argument.N() ? *argument.N() : 0));
}

AtenCall parse_aten(const py::tuple& step) {
  AtenCall call{c10::Dispatcher::singleton().findSchemaOrThrow(step[1].cast<std::string>().c_str(),
                                                               step[2].cast<std::string>().c_str()),
                {}, {}, step[5].cast<std::vector<int32_t>>(), {}, 0};
  for (py::handle item : step[6].cast<py::list>()) {
    auto bind = item.cast<std::tuple<uint32_t, uint32_t, int32_t>>();
    call.binds.push_back({std::get<0>(bind), std::get<1>(bind), std::get<2>(bind)});
  }
  auto args = step[3].cast<py::list>();
  auto kwargs = step[4].cast<py::dict>();
  const auto& schema = call.op.schema();
  for (const c10::Argument& result : schema.returns()) call.fresh = call.fresh && result.alias_info() == nullptr;
  size_t used = 0;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    if (i < args.size()) {
      push_argument(call, args[i], argument);
      ++used;
    } else if (kwargs.contains(argument.name())) {
      push_argument(call, kwargs[py::str(argument.name())], argument);
      ++used;
    } else {
      TORCH_CHECK(argument.default_value(), schema.name(), " misses argument ", argument.name());
      call.stack.push_back(*argument.default_value());
    }
  }
  TORCH_CHECK(used == args.size() + kwargs.size(), schema.name(), " got arguments that it does not take");
  return call;
}

// Notes which numbers of a value each call computes.
void parse_dynamic(Program& program, uint32_t index, const py::tuple& item) {
  DynamicValue dynamic{index, 0, parse_numbers(item[3]), parse_numbers(item[4]), parse_number(item[6]),
                       parse_number(item[7]), parse_number(item[8])};
  std::vector<Number> all{dynamic.where, dynamic.offset, dynamic.nbytes};
  all.insert(all.end(), dynamic.size.begin(), dynamic.size.end());
  all.insert(all.end(), dynamic.stride.begin(), dynamic.stride.end());
  bool any = false;
  for (const Number& number : all) {
    if (number.reg < 0) continue;
    any = true;
    dynamic.stage = std::max(dynamic.stage, program.registers.at(static_cast<size_t>(number.reg)).stage);
  }
  if (!any) return;
  program.values[index].dynamic = static_cast<int32_t>(program.dynamic.size());
  program.dynamic.push_back(std::move(dynamic));
}

Register parse_register(const py::tuple& item) {
  static const std::pair<const char*, Register::Kind> kinds[] = {
      {"int", Register::Int}, {"dim", Register::Dim}, {"result", Register::Result}, {"const", Register::Const}};
  Register made{item[0].cast<uint32_t>(), Register::Computed, item[2].cast<int64_t>(), item[3].cast<int64_t>(), {}};
  const auto name = item[1].cast<std::string>();
  const auto* found = std::find_if(std::begin(kinds), std::end(kinds), [&](auto& k) { return name == k.first; });
  if (found != std::end(kinds)) {
    made.kind = found->second;
  } else {
    TORCH_CHECK(integers::op_named(name.c_str(), &made.op), "unknown register kind ", name);
  }
  return made;
}

Value parse_value(const py::tuple& item) {
  static const std::pair<const char*, ValueKind> kinds[] = {
      {"input", ValueKind::Input}, {"static", ValueKind::Static}, {"derived", ValueKind::Derived},
      {"own", ValueKind::Own},     {"arena", ValueKind::Arena},   {"produced", ValueKind::Produced},
      {"view", ValueKind::View}};
  Value value{};
  const auto kind = item[0].cast<std::string>();
  const auto* found = std::find_if(std::begin(kinds), std::end(kinds), [&](auto& k) { return kind == k.first; });
  TORCH_CHECK(found != std::end(kinds), "unknown value kind ", kind);
  value.kind = found->second;
  value.name = item[1].cast<std::string>();
  value.dtype = static_cast<c10::ScalarType>(integer(item[2]));
  value.size = known(parse_numbers(item[3]));
  value.stride = known(parse_numbers(item[4]));
  value.device = reinterpret_cast<THPDevice*>(item[5].ptr())->device;
  value.where = parse_number(item[6]).value;
  value.offset = parse_number(item[7]).value;
  value.nbytes = parse_number(item[8]).value;
  value.layout = item[9].cast<bool>();
  value.alone = item[10].cast<bool>();
  return value;
}

Output parse_output(const py::tuple& item) {
  const auto kind = item[0].cast<std::string>();
  Output out{};
  if (kind == "constant") {
    out.kind = Output::Constant;
    out.constant = py::object(item[1]).release().ptr();
    return out;
  }
  if (kind == "number") {
    out.kind = Output::Int;
    out.offset = parse_number(item[1]);
    return out;
  }
  out.value = item[1].cast<uint32_t>();
  out.kind = kind == "same"       ? Output::Same
             : kind == "view"     ? Output::View
             : kind == "reshaped" ? Output::Reshaped
                                  : Output::Tensor;
  if (out.kind == Output::View || out.kind == Output::Reshaped) {
    out.size = parse_numbers(item[2]);
    out.stride = parse_numbers(item[3]);
    out.offset = parse_number(item[4]);
    const auto detached = item[5].cast<std::string>();
    out.of_detached = detached == "base";
    out.detached = detached == "view";
    out.data = detached == "data";
  }
  return out;
}

// The value of a (value, byte offset) pair that is addressed when the plan runs; -1 is the array of sizes.
uint32_t parse_base(Program& program, py::handle item) {
  const auto index = item.cast<int64_t>();
  if (index < 0) return static_cast<uint32_t>(program.values.size()) + 1;
  Value& value = program.values.at(static_cast<size_t>(index));
  TORCH_CHECK(value.kind != ValueKind::View, "link.py resolves views of kernel arguments");
  value.pointer = true;
  // All arena windows are addressed from the arena's start.
  return static_cast<uint32_t>(value.kind == ValueKind::Arena ? program.values.size() : static_cast<size_t>(index));
}

// (value, byte offset) pairs; a computed offset is noted by the argument's number.
uint32_t parse_addresses(Program& program, py::handle items, std::vector<std::pair<uint32_t, uint32_t>>& computed) {
  uint32_t count = 0;
  for (py::handle item : items.cast<py::list>()) {
    auto pair = item.cast<py::tuple>();
    const Number offset = parse_number(pair[1]);
    if (offset.reg >= 0) computed.emplace_back(count, static_cast<uint32_t>(offset.reg));
    program.kernel_args.push_back({parse_base(program, pair[0]), offset.value});
    ++count;
  }
  return count;
}

void parse_kernel(Program& program, const py::tuple& step) {
  DynamicKernel dynamic{parse_number(step[3]), parse_number(step[4]), {}};
  KernelCall call{reinterpret_cast<Kernel>(step[1].cast<uintptr_t>()),
                  static_cast<uint32_t>(program.kernel_args.size()), 0, dynamic.total.value,
                  std::max<int64_t>(1, dynamic.grain.value), -1, step[5].cast<std::string>()};
  call.arg_count = parse_addresses(program, step[2], dynamic.offsets);
  if (dynamic.total.reg >= 0 || dynamic.grain.reg >= 0 || !dynamic.offsets.empty()) {
    call.dynamic = static_cast<int32_t>(program.dynamic_kernels.size());
    program.dynamic_kernels.push_back(std::move(dynamic));
  }
  program.max_kernel_args = std::max<size_t>(program.max_kernel_args, call.arg_count);
  program.kernels.push_back(std::move(call));
}

void parse_launch(Program& program, const py::tuple& step) {
  LaunchCall call{device_code(step[1].ptr()), nullptr, parse_number(step[5]),
                  static_cast<uint32_t>(program.kernel_args.size()), 0, static_cast<uint32_t>(program.slot_count), 0,
                  parse_numbers(step[4]), {}, step[6].cast<std::string>()};
  call.arg_count = parse_addresses(program, step[3], call.offsets);
  for (py::handle item : step[3].cast<py::list>()) {
    program.values[item.cast<py::tuple>()[0].cast<size_t>()].aligned |= call.code->aligned;
  }
  program.slot_count += call.arg_count + call.numbers.size() + call.code->hidden;
  auto& devices = program.devices;
  const auto found = std::find(devices.begin(), devices.end(), call.code->context);
  call.stream = static_cast<uint32_t>(found - devices.begin());
  if (found == devices.end()) devices.push_back(call.code->context);
  if (!step[2].is_none()) call.careful = py::object(step[2]).release().ptr();
  program.launches.push_back(std::move(call));
}

void parse_step(Program& program, const py::tuple& step) {
  const auto kind = step[0].cast<std::string>();
  if (kind == "alloc" || kind == "free") {
    const auto v = step[1].cast<uint32_t>();
    program.code.push_back({kind == "alloc" ? Op::Alloc : Op::Free, v});
    if (kind == "free") program.values.at(v).let_go = true;
  } else if (kind == "kernel") {
    program.code.push_back({Op::Kernel, static_cast<uint32_t>(program.kernels.size())});
    parse_kernel(program, step);
  } else if (kind == "launch") {
    program.code.push_back({Op::Launch, static_cast<uint32_t>(program.launches.size())});
    parse_launch(program, step);
  } else if (kind == "aten") {
    program.code.push_back({Op::Aten, static_cast<uint32_t>(program.atens.size())});
    program.atens.push_back(parse_aten(step));
  } else if (kind == "check") {
    program.code.push_back({Op::Check, static_cast<uint32_t>(program.checks.size())});
    auto found = step[1].cast<py::tuple>();
    program.checks.push_back({parse_base(program, found[0]), parse_number(found[1]), step[2].cast<bool>(),
                              step[3].cast<std::string>(), parse_numbers(step[4])});
  } else {
    TORCH_CHECK(kind == "call", "unknown step kind ", kind);
    program.code.push_back({Op::Call, static_cast<uint32_t>(program.calls.size())});
    program.calls.push_back({py::object(step[1]).release().ptr(), py::object(step[2]).release().ptr(),
                             py::object(step[3]).release().ptr(),
                             step[4].cast<std::vector<int32_t>>()});
  }
}

}  // namespace

void Program::load(PyObject* spec) {
  auto data = py::reinterpret_borrow<py::dict>(spec);
  for (py::handle item : data["registers"]) {
    registers.push_back(parse_register(item.cast<py::tuple>()));
    const uint32_t stage = registers.back().stage;
    if (stages.size() <= stage) stages.resize(stage + 1);
    stages[stage].push_back(static_cast<uint32_t>(registers.size() - 1));
  }
  sizes = parse_numbers(data["sizes"]);
  for (py::handle item : data["values"]) {
    values.push_back(parse_value(item.cast<py::tuple>()));
    if (!registers.empty()) {
      parse_dynamic(*this, static_cast<uint32_t>(values.size() - 1), item.cast<py::tuple>());
    }
  }
  for (py::handle item : data["statics"]) {
    TORCH_CHECK_TYPE(THPVariable_Check(item.ptr()), "a static input is no tensor");
    statics.push_back(item.inc_ref().ptr());
  }
  for (py::handle item : data["steps"]) parse_step(*this, item.cast<py::tuple>());
  for (py::handle item : data["outputs"]) outputs.push_back(parse_output(item.cast<py::tuple>()));
  mutated = data["mutated"].cast<std::vector<std::pair<uint32_t, uint32_t>>>();
  for (const auto& item : mutated) values.at(item.first).written = true;
  first_write = data["first_write"].cast<uint32_t>();
  if (!data["derivation"].is_none()) {
    auto [make, sources, capturing, most] =
        data["derivation"].cast<std::tuple<py::object, std::vector<uint32_t>, py::object, size_t>>();
    for (uint32_t source : sources) {
      const ValueKind kind = values.at(source).kind;
      TORCH_CHECK_INDEX(kind == ValueKind::Static || kind == ValueKind::Input, "value ", source, " is no input");
    }
    PyObject* asked = capturing.is_none() ? nullptr : capturing.release().ptr();
    derivation = std::make_unique<Derivation>(make.release().ptr(), std::move(sources), asked, most);
  }
  arena_bytes = parse_number(data["arena_bytes"]);
  arena_device = reinterpret_cast<THPDevice*>(data["arena_device"].cast<py::object>().ptr())->device;
  release_gil = data["release_gil"].cast<bool>();
  library = py::object(data["library"]).release().ptr();
  dispatches = !atens.empty() || !calls.empty();
  for (uint32_t v = 0; v < values.size(); ++v) {
    if (values[v].kind == ValueKind::Input) input_values.push_back(v);
    if (values[v].kind == ValueKind::Static) static_values.push_back(v);
    if (values[v].kind == ValueKind::Derived) derived_values.push_back(v);
  }
  const auto numbers = data["number_inputs"].cast<std::vector<uint32_t>>();
  input_count = input_values.size() + numbers.size();
  if (!numbers.empty()) number_inputs.resize(input_count);
  for (uint32_t position : numbers) number_inputs.at(position) = true;
  for (AtenCall& call : atens) {
    for (const Bind& bind : call.binds) call.stage = registers.at(bind.reg).stage;
  }
}

std::vector<const at::Tensor*> Program::sources(PyObject* const* args) const {
  std::vector<const at::Tensor*> found;
  for (uint32_t v : derivation->sources()) {
    const auto place = static_cast<size_t>(values[v].where);
    found.push_back(&THPVariable_Unpack(values[v].kind == ValueKind::Static ? statics[place] : args[place]));
  }
  return found;
}

Program::Program() { expect_another_plan(); }

Program::~Program() {
  for (PyObject* tensor : statics) Py_DECREF(tensor);
  for (PythonCall& call : calls) {
    Py_DECREF(call.function);
    Py_DECREF(call.args);
    Py_DECREF(call.kwargs);
  }
  for (LaunchCall& call : launches) Py_XDECREF(call.careful);
  for (Output& out : outputs) Py_XDECREF(out.constant);
  Py_XDECREF(library);
}

int Program::traverse(visitproc visit, void* arg) const {
  for (PyObject* tensor : statics) Py_VISIT(tensor);
  for (const PythonCall& call : calls) {
    Py_VISIT(call.function);
    Py_VISIT(call.args);
    Py_VISIT(call.kwargs);
  }
  for (const LaunchCall& call : launches) Py_VISIT(call.careful);
  for (const Output& out : outputs) Py_VISIT(out.constant);
  return derivation == nullptr ? 0 : derivation->traverse(visit, arg);
}

}  // namespace framegraph
