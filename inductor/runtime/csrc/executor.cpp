#include "executor.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ScalarOps.h>
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/as_strided.h>
#include <ATen/record_function.h>
#include <ATen/ops/empty_strided.h>
#include <c10/util/DimVector.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

namespace framegraph {
namespace {

using c10::IValue;

// Outputs from this size on live in pooled memory: malloc would leave holes between them, and map and fault fresh pages
// for the largest on each call.
constexpr int64_t kPooledOutput = int64_t{64} << 10;

// The GIL, given up for a stretch of steps and taken back where Python is needed.
class Gil {
 public:
  void release() {
    if (saved_ == nullptr) saved_ = PyEval_SaveThread();
  }
  void acquire() {
    if (saved_ != nullptr) PyEval_RestoreThread(std::exchange(saved_, nullptr));
  }
  ~Gil() { acquire(); }

 private:
  PyThreadState* saved_ = nullptr;
};

// Dispatch below autograd: results never require grad, and the plan itself keeps the version counters.
struct BelowAutograd {
  c10::impl::ExcludeDispatchKeyGuard autograd{c10::autograd_dispatch_keyset_with_ADInplaceOrView};
  c10::impl::ExcludeDispatchKeyGuard autocast{c10::autocast_dispatch_keyset};
};

// Strides are equal wherever they matter: not in dimensions of one element, nor in an empty tensor.
bool same_layout(const at::Tensor& tensor, const std::vector<int64_t>& size, const std::vector<int64_t>& stride) {
  const auto strides = tensor.strides();
  if (strides.equals(stride)) return true;
  for (size_t d = 0; d < size.size(); ++d) {
    if (size[d] == 0) return true;
  }
  for (size_t d = 0; d < size.size(); ++d) {
    if (size[d] != 1 && strides[d] != stride[d]) return false;
  }
  return true;
}

// A device without a number is any of its type; of the CPU there is one.
bool same_device(c10::Device given, c10::Device wanted) {
  return given.type() == wanted.type() && (wanted.is_cpu() || !wanted.has_index() || given.index() == wanted.index());
}

// Where operators alone read a tensor, its device is left to them: seeds of attention are on the host outside of a
// capture, whatever torch's shape functions say.
bool fits(const at::Tensor& tensor, const Value& value) {
  return tensor.scalar_type() == value.dtype && tensor.sizes().equals(value.size) &&
         same_layout(tensor, value.size, value.stride) && (!value.pointer || same_device(tensor.device(), value.device));
}

[[noreturn]] void misfit(const char* what, const at::Tensor& tensor, const Value& value) {
  TORCH_CHECK(false, "framegraph: ", what, " '", value.name, "' is ", tensor.scalar_type(), tensor.sizes(), " with strides ",
              tensor.strides(), " on ", tensor.device(), ", but this plan was compiled for ", value.dtype,
              c10::IntArrayRef(value.size), " with strides ", c10::IntArrayRef(value.stride), " on ", value.device);
}

// A tensor of the value's shape over a storage.
at::Tensor over(c10::Storage storage, const Value& value, int64_t offset) {
  const c10::DispatchKey key = c10::computeDispatchKey(value.dtype, c10::kStrided, storage.device());
  auto made = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key),
                                                       c10::scalarTypeToTypeMeta(value.dtype));
  made.unsafeGetTensorImpl()->set_sizes_and_strides(value.size, value.stride, offset);
  return made;
}

// The registers of a call, and everything that is filled from them.
class Sizes {
 public:
  Sizes(const Program& program, State& state) : program_(program), state_(state) {}

  // Stage 0. The numbers of the last call with this state stand if the arguments are the same.
  void read(PyObject* const* args) {
    if (program_.stages.empty()) return;
    bool same = std::exchange(state_.known, false);
    for (uint32_t r : program_.stages[0]) {
      const Register& item = program_.registers[r];
      if (item.kind != Register::Int && item.kind != Register::Dim) continue;
      const int64_t value = argument(item, args);
      same = same && state_.registers[r] == value;
      state_.registers[r] = value;
    }
    if (!same) compute(0);
    state_.known = true;
  }

  // Computes the registers of a stage, then the numbers that need no later one.
  void compute(uint32_t stage) {
    for (uint32_t r : program_.stages[stage]) operate(program_.registers[r], state_.registers[r]);
    const int64_t* registers = state_.registers.data();
    for (size_t i = 0; i < program_.dynamic.size(); ++i) {
      if (program_.dynamic[i].stage == stage) fill(program_.dynamic[i], state_.values[i], registers);
    }
    for (size_t i = 0; i < program_.sizes.size(); ++i) state_.sizes[i] = program_.sizes[i].get(registers);
  }

 private:
  static int64_t argument(const Register& item, PyObject* const* args) {
    if (item.kind == Register::Dim) {
      const at::Tensor& tensor = THPVariable_Unpack(args[item.a]);
      TORCH_CHECK(item.b < tensor.dim(), "framegraph: argument ", item.a, " has ", tensor.dim(), " dimensions");
      return tensor.size(item.b);
    }
    const auto value = static_cast<int64_t>(PyLong_AsLongLong(args[item.a]));
    if (value == -1 && PyErr_Occurred() != nullptr) throw python_error();
    return value;
  }

  void operate(const Register& item, int64_t& result) const {
    if (item.kind == Register::Const) result = item.a;
    if (item.kind != Register::Computed) return;
    const int64_t a = state_.registers[static_cast<size_t>(item.a)], b = state_.registers[static_cast<size_t>(item.b)];
    const bool fits = integers::compute(item.op, a, b, &result);
    // A divisor of 0 stands where nothing is computed.
    if (!fits && b == 0) result = 0;
    TORCH_CHECK(fits || b == 0, "framegraph: an integer of compiled code does not fit into 64 bits: ", a, " ",
                integers::name_of(item.op), " ", b);
  }

  static void fill(const DynamicValue& item, Value& value, const int64_t* registers) {
    for (size_t d = 0; d < item.size.size(); ++d) {
      value.size[d] = item.size[d].get(registers);
      value.stride[d] = item.stride[d].get(registers);
    }
    value.where = item.where.get(registers);
    value.offset = item.offset.get(registers);
    value.nbytes = std::max<int64_t>(0, item.nbytes.get(registers));
  }

  const Program& program_;
  State& state_;
};

class Run {
 public:
  Run(const Program& program, State& state, PyObject* const* args)
      : program_(program), state_(state), args_(args), arena_(arena_bytes(), program.arena_device) {}

  // Takes the tensors over from `args`, which are null afterwards.
  Run(const Program& program, State& state, std::vector<PyObject*>& args) : Run(program, state, args.data()) {
    owns_ = true;
    for (uint32_t v : program.input_values) {
      const Value& value = program.values[v];
      PyObject* const given = args[static_cast<size_t>(value.where)];
      const at::Tensor& tensor = THPVariable_Unpack(given);
      // One that is let go while the plan runs must not take its Python object with it: that needs the GIL.
      state.tensors[v] = value.let_go ? tensor.tensor_data() : tensor;
    }
    for (PyObject*& given : args) Py_CLEAR(given);
  }

  // Leaves the state empty before the arena goes back, so that no tensor of this call keeps it.
  // Of a call that a device graph captures.
  void keep() { keeps_ = true; }

  ~Run() {
    for (at::Tensor& tensor : state_.tensors) tensor.reset();
    state_.stack.clear();
  }

  PyObject* operator()() {
    bind();
    for (size_t i = 0; i < program_.devices.size(); ++i) {
      state_.streams[i] = program_.devices[i]->driver->stream(program_.devices[i]->device);
    }
    {
      std::optional<BelowAutograd> guard;
      if (program_.dispatches) guard.emplace();
      Gil gil;
      if (program_.release_gil) gil.release();
      for (uint32_t i = 0; i < program_.code.size(); ++i) {
        if (i == program_.first_write) begin_mutations();
        step(program_.code[i], gil);
      }
      if (program_.code.empty()) begin_mutations();
    }
    return outputs();
  }

  // The whole arena, which goes back when this tensor dies.
  at::Tensor arena() const {
    if (!arena_.storage()) return {};
    Value whole{};
    whole.dtype = at::kByte;
    whole.size = {static_cast<int64_t>(arena_.storage().nbytes())};
    whole.stride = {1};
    return over(c10::Storage(arena_.storage()), whole, 0);
  }

 private:
  size_t arena_bytes() {
    Sizes(program_, state_).read(args_);
    return static_cast<size_t>(number(program_.arena_bytes));
  }

  int64_t number(const Number& n) const { return n.get(state_.registers.data()); }

  const Value& value(uint32_t v) const {
    const Value& known = program_.values[v];
    return C10_LIKELY(known.dynamic < 0) ? known : state_.values[static_cast<size_t>(known.dynamic)];
  }

  // Checks the tensors passed and bound, and reads their addresses.
  void bind() {
    state_.base[program_.values.size()] = arena_.data();
    state_.base.back() = reinterpret_cast<char*>(state_.sizes.data());
    for (uint32_t v : program_.input_values) bind(v, "input");
    for (uint32_t v : program_.static_values) bind(v, "parameter or buffer");
    if (program_.derivation != nullptr) bind_derived();
    for (const auto& [v, bumps] : program_.mutated) check_mutation(tensor(v), bumps);
  }

  void bind(uint32_t v, const char* what) {
    const Value& value = this->value(v);
    const at::Tensor& given = tensor(v);
    // A result of an operator that another operator alone reads, as the forward plan kept the result for this one, is
    // theirs: torch's shape functions tell of some (indices of embedding_bag) another size.
    const bool checked = value.pointer || value.layout || !owns_;
    if (checked && !depends_on_results(v) && C10_UNLIKELY(!fits(given, value))) misfit(what, given, value);
    if (!value.pointer) return;
    // Reading must not materialise a copy-on-write tensor, writing must.
    c10::TensorImpl* impl = given.unsafeGetTensorImpl();
    void* data = value.written ? impl->mutable_data() : const_cast<void*>(impl->data());
    TORCH_CHECK(data != nullptr || given.numel() == 0, "framegraph: ", what, " '", value.name, "' has no memory");
    state_.base[v] = static_cast<char*>(data);
    if (value.aligned && !is_aligned(data)) take_care();
  }

  static bool is_aligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % DeviceCode::kAlignment == 0; }

  // From here on launches are of kernels that take any addresses.
  void take_care() {
    if (careful_) return;
    for (const LaunchCall& call : program_.launches) {
      if (!call.code->aligned || call.careful_code != nullptr) continue;
      TORCH_CHECK(call.careful != nullptr, "framegraph: ", call.name, " takes aligned tensors only");
      const auto kernel = py::reinterpret_steal<py::object>(PyObject_CallNoArgs(call.careful));
      if (!kernel) throw python_error();
      auto code = device_code(kernel.ptr());
      TORCH_CHECK(!code->aligned && code->hidden == call.code->hidden && code->context == call.code->context,
                  "framegraph: another form of ", call.name, " does not stand in for it");
      call.careful_code = std::move(code);
    }
    careful_ = true;
  }

  // Whether sizes of an input are known only when an operator has run (a gradient of elements chosen by data): those are
  // checked then.
  bool depends_on_results(uint32_t v) const {
    const int32_t place = program_.values[v].dynamic;
    return place >= 0 && program_.dynamic[static_cast<size_t>(place)].stage > 0;
  }

  void check_inputs(uint32_t stage) {
    for (uint32_t v : program_.input_values) {
      const int32_t place = program_.values[v].dynamic;
      if (place < 0 || program_.dynamic[static_cast<size_t>(place)].stage != stage) continue;
      if (tensor(v).defined() && !fits(tensor(v), value(v))) misfit("input", tensor(v), value(v));
    }
  }

  void bind_derived() {
    Derivation& derivation = *program_.derivation;
    c10::SmallVector<const at::Tensor*, 16> sources;
    for (uint32_t v : derivation.sources()) sources.push_back(&tensor(v));
    derived_ = keeps_ ? derivation.last(sources) : derivation.get(sources);
    TORCH_CHECK(derived_->tensors.size() == program_.derived_values.size(), "framegraph: ", derived_->tensors.size(),
                " derived statics, but the plan names ", program_.derived_values.size());
    for (uint32_t v : program_.derived_values) {
      if (!value(v).pointer) continue;
      state_.base[v] = static_cast<char*>(const_cast<void*>(tensor(v).const_data_ptr()));
      if (value(v).aligned && !is_aligned(state_.base[v])) take_care();
    }
  }

  static void check_mutation(const at::Tensor& tensor, uint32_t bumps) {
    TORCH_CHECK(bumps == 0 || !(tensor.requires_grad() && c10::GradMode::is_enabled()),
                tensor.is_leaf() ? "a leaf" : "a",
                " Variable that requires grad is being used in an in-place operation.");
  }

  // The effects of eager's in-place ops on tensors besides the writes; a call that fails before has changed none.
  void begin_mutations() {
    for (const auto& [v, bumps] : program_.mutated) {
      for (uint32_t i = 0; i < bumps; ++i) tensor(v).unsafeGetTensorImpl()->bump_version();
      if (bumps == 0) note_write(tensor(v));
    }
  }

  const at::Tensor& tensor(uint32_t v) {
    const Value& value = this->value(v);
    if (value.kind == ValueKind::Input && !owns_) return THPVariable_Unpack(args_[value.where]);
    if (value.kind == ValueKind::Static) return THPVariable_Unpack(program_.statics[value.where]);
    if (value.kind == ValueKind::Derived) return derived_->tensors[static_cast<size_t>(value.where)];
    at::Tensor& made = state_.tensors[v];
    if (!made.defined()) {
      if (value.kind == ValueKind::Arena) made = arena_window(value);
      if (value.kind == ValueKind::View) made = view(value);
    }
    return made;
  }

  at::Tensor arena_window(const Value& value) {
    // Without elements it has no place in the arena, which may have no memory at all.
    if (value.nbytes == 0) return fresh(value);
    return over(c10::Storage(arena_.storage()), value, value.where / static_cast<int64_t>(c10::elementSize(value.dtype)));
  }

  at::Tensor view(const Value& value) {
    const at::Tensor& base = tensor(static_cast<uint32_t>(value.where));
    return at::as_strided(base, value.size, value.stride, base.storage_offset() + value.offset);
  }

  void step(const Instruction& instruction, Gil& gil) {
    switch (instruction.op) {
      case Op::Alloc:
        return allocate(instruction.index);
      case Op::Free:
        return state_.tensors[instruction.index].reset();
      case Op::Kernel:
        if (C10_UNLIKELY(profiled_)) return profiled_kernel(program_.kernels[instruction.index]);
        return kernel(program_.kernels[instruction.index]);
      case Op::Launch:
        if (C10_UNLIKELY(profiled_)) return profiled_launch(program_.launches[instruction.index]);
        return launch(program_.launches[instruction.index]);
      case Op::Aten:
        return aten(program_.atens[instruction.index]);
      case Op::Check:
        return check(program_.checks[instruction.index]);
      case Op::Call:
        gil.acquire();
        call(program_.calls[instruction.index]);
        if (program_.release_gil) gil.release();
        return;
    }
  }

  // A tensor from torch's allocator.
  static at::Tensor fresh(const Value& value) {
    if (value.device.is_cpu()) return at::Tensor(at::detail::empty_strided_cpu(value.size, value.stride, value.dtype));
    return at::empty_strided(value.size, value.stride, at::TensorOptions(value.device).dtype(value.dtype));
  }

  void allocate(uint32_t v) {
    const Value& value = this->value(v);
    at::Tensor& made = state_.tensors[v];
    const bool pooled = value.device.is_cpu() && value.nbytes >= kPooledOutput;
    made = pooled ? over(pooled_storage(static_cast<size_t>(value.nbytes)), value, 0) : fresh(value);
    if (value.pointer) state_.base[v] = static_cast<char*>(made.unsafeGetTensorImpl()->mutable_data());
  }

  void profiled_kernel(const KernelCall& call) {
    RECORD_FUNCTION(call.name, c10::ArrayRef<const c10::IValue>());
    kernel(call);
  }

  void kernel(const KernelCall& call) {
    void** pointers = state_.pointers.data();
    const KernelArg* args = program_.kernel_args.data() + call.first_arg;
    for (uint32_t i = 0; i < call.arg_count; ++i) pointers[i] = state_.base[args[i].value] + args[i].offset;
    int64_t total = call.total, grain = call.grain;
    if (call.dynamic >= 0) {
      const DynamicKernel& dynamic = program_.dynamic_kernels[static_cast<size_t>(call.dynamic)];
      total = number(dynamic.total);
      grain = std::max<int64_t>(1, number(dynamic.grain));
      for (const auto& [argument, reg] : dynamic.offsets) {
        pointers[argument] = static_cast<char*>(pointers[argument]) + state_.registers[reg];
      }
    }
    if (total <= grain) {
      if (total > 0) call.function(pointers, 0, total);
      return;
    }
    at::parallel_for(0, total, grain, [&](int64_t begin, int64_t end) { call.function(pointers, begin, end); });
  }

  void profiled_launch(const LaunchCall& call) {
    RECORD_FUNCTION(call.name, c10::ArrayRef<const c10::IValue>());
    launch(call);
  }

  void launch(const LaunchCall& call) {
    const DeviceCode& code = careful_ && call.careful_code != nullptr ? *call.careful_code : *call.code;
    uint64_t* slots = state_.slots.data() + call.first_slot;
    const KernelArg* args = program_.kernel_args.data() + call.first_arg;
    for (uint32_t i = 0; i < call.arg_count; ++i) {
      slots[i] = reinterpret_cast<uint64_t>(state_.base[args[i].value]) + static_cast<uint64_t>(args[i].offset);
    }
    for (const auto& [argument, reg] : call.offsets) slots[argument] += static_cast<uint64_t>(state_.registers[reg]);
    for (size_t i = 0; i < call.numbers.size(); ++i) {
      if (call.numbers[i].reg >= 0) slots[call.arg_count + i] = static_cast<uint64_t>(number(call.numbers[i]));
    }
    context_.enter(*code.context);
    code.launch(number(call.programs), state_.streams[call.stream], state_.parameters.data() + call.first_slot);
  }

  void check(const CheckPoint& point) {
    int64_t found = 0;
    std::memcpy(&found, state_.base[point.value] + number(point.offset), sizeof found);
    if (C10_LIKELY(found == CheckPoint::kPassed)) return;
    std::string text = point.message;
    const size_t hole = text.find("{}");
    if (hole != std::string::npos) text.replace(hole, 2, std::to_string(found));
    for (size_t i = 0; i < point.sizes.size(); ++i) {
      const std::string name = "{" + std::to_string(i) + "}";
      const size_t at = text.find(name);
      if (at != std::string::npos) text.replace(at, name.size(), std::to_string(number(point.sizes[i])));
    }
    TORCH_CHECK_INDEX(!point.index_error, text);
    TORCH_CHECK(false, text);
  }

  void aten(const AtenCall& call) {
    auto& stack = state_.stack;
    stack = call.stack;
    for (const Patch& patch : call.patches) stack[patch.position] = argument(patch);
    call.op.callBoxed(&stack);
    if (!call.binds.empty()) define(call);
    size_t next = 0;
    for (IValue& result : stack) {
      if (result.isTensorList()) {
        for (at::Tensor item : result.toTensorList()) take(call.results, next++, apart(call, std::move(item)));
      } else {
        const bool tensor = result.isTensor();
        take(call.results, next++, tensor ? apart(call, std::move(result).toTensor()) : at::Tensor());
      }
    }
    stack.clear();
    TORCH_CHECK(next >= call.results.size(), call.op.schema().name(), " returned ", next, " tensors, but the plan names ",
                call.results.size());
  }

  // A copy of a result in the memory of an argument, where the schema does not say so: that memory may be used again
  // before the result is read.
  at::Tensor apart(const AtenCall& call, at::Tensor result) {
    if (!call.fresh || !result.defined() || !result.has_storage()) return result;
    if (C10_LIKELY(result.use_count() == 1 && result.storage().use_count() == 1)) return result;
    for (const Patch& patch : call.patches) {
      for (int32_t v : patch.values) {
        if (v < 0) continue;
        const at::Tensor& given = tensor(static_cast<uint32_t>(v));
        if (given.has_storage() && given.is_alias_of(result)) return result.clone();
      }
    }
    return result;
  }

  // Gives symbols their values from the results on the stack.
  void define(const AtenCall& call) {
    for (const Bind& bind : call.binds) {
      const IValue& result = state_.stack.at(bind.result);
      int64_t& reg = state_.registers[bind.reg];
      if (bind.dim >= 0) {
        reg = result.toTensor().size(bind.dim);
      } else if (result.isBool()) {
        reg = result.toBool();
      } else {
        reg = result.isScalar() ? result.toScalar().toLong() : result.toInt();
      }
    }
    Sizes(program_, state_).compute(call.stage);
    check_inputs(call.stage);
  }

  IValue numbers(const Patch& patch) {
    const int64_t first = number(patch.numbers[0]);
    switch (patch.kind) {
      case Patch::Int:
        return first;
      case Patch::Float:
        return static_cast<double>(first);
      case Patch::Bool:
        return first != 0;
      case Patch::NumberTensor: {
        at::Tensor scalar = c10::scalar_to_tensor(first);
        scalar.unsafeGetTensorImpl()->set_wrapped_number(true);
        return scalar;
      }
      default:
        break;
    }
    c10::List<int64_t> list;
    list.reserve(patch.numbers.size());
    for (const Number& n : patch.numbers) list.push_back(number(n));
    return list;
  }

  IValue argument(const Patch& patch) {
    if (!patch.numbers.empty()) return numbers(patch);
    if (patch.kind == Patch::Tensor) return tensor(patch.values[0]);
    if (patch.kind == Patch::TensorList) {
      c10::List<at::Tensor> list;
      list.reserve(patch.values.size());
      for (int32_t v : patch.values) list.push_back(tensor(v));
      return list;
    }
    c10::List<std::optional<at::Tensor>> list;
    list.reserve(patch.values.size());
    for (int32_t v : patch.values) list.push_back(v < 0 ? std::nullopt : std::optional<at::Tensor>(tensor(v)));
    return list;
  }

  // Keeps one result, in the layout that the rest of the plan was compiled for.
  void take(const std::vector<int32_t>& results, size_t index, at::Tensor result) {
    if (index >= results.size() || results[index] < 0) return;
    const auto v = static_cast<uint32_t>(results[index]);
    const Value& value = this->value(v);
    // Of no elements, the mask of dropout has the type of its input: the backward's plan is for bools.
    if (C10_UNLIKELY(result.defined() && result.scalar_type() != value.dtype && result.numel() == 0)) {
      result = result.to(value.dtype);
    }
    if (result.defined() && (value.pointer || value.layout)) {
      if (C10_UNLIKELY(result.scalar_type() != value.dtype || !result.sizes().equals(value.size))) {
        misfit("result", result, value);
      }
      const bool shared = value.alone && (result.use_count() > 1 || result.storage().use_count() > 1);
      // The gradients of constant functions are tensors of zeros without memory; subclasses that wrap tensors have none.
      const bool bare = result._is_zerotensor() || result.key_set().has(c10::DispatchKey::Python);
      if (shared || bare || !same_layout(result, value.size, value.stride) ||
          (value.aligned && !careful_ && !is_aligned(result.const_data_ptr()))) {
        result = restride(result, value);
      }
      if (value.pointer) state_.base[v] = static_cast<char*>(result.unsafeGetTensorImpl()->mutable_data());
    }
    state_.tensors[v] = std::move(result);
  }

  static at::Tensor restride(const at::Tensor& result, const Value& value) {
    at::Tensor copy = at::empty_strided(value.size, value.stride, result.options());
    copy.copy_(result);
    return copy;
  }

  // An argument tree with its references replaced by tensors; a new reference.
  py::object with_tensors(py::handle tree) {
    if (PyTuple_CheckExact(tree.ptr())) {
      const auto v = PyLong_AsLong(PyTuple_GET_ITEM(tree.ptr(), 0));
      if (PyTuple_GET_SIZE(tree.ptr()) == 2) return py::int_(state_.registers[static_cast<size_t>(v)]);
      return py::reinterpret_steal<py::object>(THPVariable_Wrap(tensor(static_cast<uint32_t>(v))));
    }
    if (!PyList_CheckExact(tree.ptr())) return py::reinterpret_borrow<py::object>(tree);
    py::list copy;
    for (py::handle item : py::reinterpret_borrow<py::list>(tree)) copy.append(with_tensors(item));
    return copy;
  }

  void call(const PythonCall& call) {
    py::tuple args(with_tensors(call.args));
    py::dict kwargs;
    for (auto item : py::reinterpret_borrow<py::dict>(call.kwargs)) kwargs[item.first] = with_tensors(item.second);
    auto result = py::reinterpret_steal<py::object>(PyObject_Call(call.function, args.ptr(), kwargs.ptr()));
    if (!result) throw python_error();
    if (result.is_none()) result = py::tuple();
    const py::tuple results = THPVariable_Check(result.ptr()) ? py::make_tuple(result) : py::tuple(result);
    TORCH_CHECK(results.size() >= call.results.size(), "a Python step returned ", results.size(),
                " tensors, but the plan names ", call.results.size());
    for (size_t i = 0; i < call.results.size(); ++i) {
      TORCH_CHECK_TYPE(THPVariable_Check(results[i].ptr()), "a Python step returned something that is no tensor");
      take(call.results, i, THPVariable_Unpack(results[i].ptr()));
    }
  }

  // Outputs are made outside of the guards, so that views are tracked as eager's are.
  PyObject* outputs() {
    const auto count = static_cast<Py_ssize_t>(program_.outputs.size());
    auto result = py::reinterpret_steal<py::object>(PyTuple_New(count));
    if (!result) throw python_error();
    for (Py_ssize_t i = 0; i < count; ++i) {
      PyObject* item = output(program_.outputs[static_cast<size_t>(i)]);
      if (item == nullptr) throw python_error();
      PyTuple_SET_ITEM(result.ptr(), i, item);
    }
    return result.release().ptr();
  }

  c10::DimVector all(const std::vector<Number>& numbers) const {
    c10::DimVector result;
    for (const Number& n : numbers) result.push_back(number(n));
    return result;
  }

  PyObject* output(const Output& out) {
    if (out.kind == Output::Constant) return Py_NewRef(out.constant);
    if (out.kind == Output::View) {
      const at::Tensor& value = tensor(out.value);
      const at::Tensor base = out.of_detached ? value.detach() : value;
      const at::Tensor view =
          at::as_strided(base, all(out.size), all(out.stride), base.storage_offset() + number(out.offset));
      if (out.data) return THPVariable_Wrap(view.variable_data());
      return THPVariable_Wrap(out.detached ? view.detach() : view);
    }
    if (out.kind == Output::Reshaped) {
      // No view for autograd: the tensor under it leaves the plan in this shape alone.
      c10::impl::ExcludeDispatchKeyGuard autograd{c10::autograd_dispatch_keyset_with_ADInplaceOrView};
      const at::Tensor& made = tensor(out.value);
      return THPVariable_Wrap(
          at::as_strided(made, all(out.size), all(out.stride), made.storage_offset() + number(out.offset)));
    }
    if (out.kind == Output::Int) return PyLong_FromLongLong(number(out.offset));
    const Value& value = program_.values[out.value];
    if (value.kind == ValueKind::Input && !owns_) return Py_NewRef(args_[value.where]);
    if (value.kind == ValueKind::Static) return Py_NewRef(program_.statics[value.where]);
    return THPVariable_Wrap(tensor(out.value));
  }

  const Program& program_;
  State& state_;
  PyObject* const* args_;
  bool owns_ = false;
  bool careful_ = false;  // launches are of kernels that take any addresses
  ContextScope context_;
  const bool profiled_ = at::hasCallbacks();  // somebody records functions: kernels are told of, too
  std::shared_ptr<const Derived> derived_;
  bool keeps_ = false;
  ArenaLease arena_;
};

}  // namespace

PyObject* execute(const Program& program, State& state, PyObject* const* args) {
  RECORD_FUNCTION("framegraph::plan", c10::ArrayRef<const c10::IValue>());
  return Run(program, state, args)();
}

PyObject* execute_keeping(const Program& program, State& state, PyObject* const* args) {
  RECORD_FUNCTION("framegraph::plan", c10::ArrayRef<const c10::IValue>());
  Run run(program, state, args);
  run.keep();
  const auto results = py::reinterpret_steal<py::object>(run());
  const auto arena = py::reinterpret_steal<py::object>(THPVariable_Wrap(run.arena()));
  return py::make_tuple(results, arena).release().ptr();
}

PyObject* execute_owning(const Program& program, State& state, std::vector<PyObject*>& args) {
  RECORD_FUNCTION("framegraph::plan", c10::ArrayRef<const c10::IValue>());
  return Run(program, state, args)();
}

}  // namespace framegraph
