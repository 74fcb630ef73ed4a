#include "executor.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/as_strided.h>
#include <ATen/record_function.h>
#include <ATen/ops/empty_strided.h>
#include <torch/csrc/autograd/python_variable.h>

#include <cstring>
#include <optional>
#include <string>
#include <utility>

namespace framegraph {
namespace {

using c10::IValue;

// Outputs from this size on live in pooled memory: malloc would map and fault fresh pages for them on each call.
constexpr int64_t kPooledOutput = int64_t{1} << 20;

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

bool fits(const at::Tensor& tensor, const Value& value) {
  return tensor.scalar_type() == value.dtype && tensor.sizes().equals(value.size) &&
         same_layout(tensor, value.size, value.stride) && tensor.device().type() == value.device.type();
}

[[noreturn]] void misfit(const char* what, const at::Tensor& tensor, const Value& value) {
  TORCH_CHECK(false, "framegraph: ", what, " '", value.name, "' is ", tensor.scalar_type(), tensor.sizes(), " with strides ",
              tensor.strides(), " on ", tensor.device(), ", but this plan was compiled for ", value.dtype,
              c10::IntArrayRef(value.size), " with strides ", c10::IntArrayRef(value.stride), " on ", value.device);
}

// A CPU tensor of the value's shape over a storage.
at::Tensor over(c10::Storage storage, const Value& value, int64_t offset) {
  auto made = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), c10::scalarTypeToTypeMeta(value.dtype));
  made.unsafeGetTensorImpl()->set_sizes_and_strides(value.size, value.stride, offset);
  return made;
}

class Run {
 public:
  Run(const Program& program, State& state, PyObject* const* args)
      : program_(program), state_(state), args_(args), arena_(program.arena_bytes) {}

  // Leaves the state empty before the arena goes back, so that no tensor of this call keeps it.
  ~Run() {
    for (at::Tensor& tensor : state_.tensors) tensor.reset();
    state_.stack.clear();
  }

  PyObject* operator()() {
    bind();
    {
      std::optional<BelowAutograd> guard;
      if (program_.dispatches) guard.emplace();
      Gil gil;
      if (program_.release_gil) gil.release();
      for (const Instruction& instruction : program_.code) step(instruction, gil);
    }
    return outputs();
  }

 private:
  // Checks the tensors passed and bound, and reads their addresses.
  void bind() {
    state_.base.back() = arena_.data();
    for (uint32_t v : program_.input_values) bind(v, "input");
    for (uint32_t v : program_.static_values) bind(v, "parameter or buffer");
    for (uint32_t v : program_.mutated) begin_mutation(tensor(v));
  }

  void bind(uint32_t v, const char* what) {
    const Value& value = program_.values[v];
    const at::Tensor& given = tensor(v);
    if (C10_UNLIKELY(!fits(given, value))) misfit(what, given, value);
    if (!value.pointer) return;
    // Reading must not materialise a copy-on-write tensor, writing must.
    c10::TensorImpl* impl = given.unsafeGetTensorImpl();
    void* data = value.written ? impl->mutable_data() : const_cast<void*>(impl->data());
    state_.base[v] = static_cast<char*>(data);
  }

  // What eager's in-place ops do to the tensor besides writing to it.
  static void begin_mutation(const at::Tensor& tensor) {
    TORCH_CHECK(!(tensor.requires_grad() && c10::GradMode::is_enabled()), tensor.is_leaf() ? "a leaf" : "a",
                " Variable that requires grad is being used in an in-place operation.");
    tensor.unsafeGetTensorImpl()->bump_version();
  }

  const at::Tensor& tensor(uint32_t v) {
    const Value& value = program_.values[v];
    if (value.kind == ValueKind::Input) return THPVariable_Unpack(args_[value.where]);
    if (value.kind == ValueKind::Static) return THPVariable_Unpack(program_.statics[value.where]);
    at::Tensor& made = state_.tensors[v];
    if (!made.defined()) {
      if (value.kind == ValueKind::Arena) made = arena_window(value);
      if (value.kind == ValueKind::View) made = view(value);
    }
    return made;
  }

  at::Tensor arena_window(const Value& value) {
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
        return kernel(program_.kernels[instruction.index]);
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

  void allocate(uint32_t v) {
    const Value& value = program_.values[v];
    at::Tensor& made = state_.tensors[v];
    if (value.device.is_cpu() && value.nbytes >= kPooledOutput) {
      made = over(pooled_storage(static_cast<size_t>(value.nbytes)), value, 0);
    } else if (value.device.is_cpu()) {
      made = at::Tensor(at::detail::empty_strided_cpu(value.size, value.stride, value.dtype));
    } else {
      made = at::empty_strided(value.size, value.stride, at::TensorOptions(value.device).dtype(value.dtype));
    }
    if (value.pointer) state_.base[v] = static_cast<char*>(made.unsafeGetTensorImpl()->mutable_data());
  }

  void kernel(const KernelCall& call) {
    void** pointers = state_.pointers.data();
    const KernelArg* args = program_.kernel_args.data() + call.first_arg;
    for (uint32_t i = 0; i < call.arg_count; ++i) pointers[i] = state_.base[args[i].value] + args[i].offset;
    if (call.total <= call.grain) {
      if (call.total > 0) call.function(pointers, 0, call.total);
      return;
    }
    at::parallel_for(0, call.total, call.grain,
                     [&](int64_t begin, int64_t end) { call.function(pointers, begin, end); });
  }

  void check(const CheckPoint& point) {
    int64_t found = 0;
    std::memcpy(&found, state_.base[point.found.value] + point.found.offset, sizeof found);
    if (C10_LIKELY(found == CheckPoint::kPassed)) return;
    std::string text = point.message;
    const size_t hole = text.find("{}");
    if (hole != std::string::npos) text.replace(hole, 2, std::to_string(found));
    TORCH_CHECK_INDEX(!point.index_error, text);
    TORCH_CHECK(false, text);
  }

  void aten(const AtenCall& call) {
    auto& stack = state_.stack;
    stack = call.stack;
    for (const Patch& patch : call.patches) stack[patch.position] = argument(patch);
    call.op.callBoxed(&stack);
    size_t next = 0;
    for (IValue& result : stack) {
      if (result.isTensorList()) {
        for (at::Tensor item : result.toTensorList()) take(call.results, next++, std::move(item));
      } else {
        const bool tensor = result.isTensor();
        take(call.results, next++, tensor ? std::move(result).toTensor() : at::Tensor());
      }
    }
    stack.clear();
    TORCH_CHECK(next >= call.results.size(), call.op.schema().name(), " returned ", next, " tensors, but the plan names ",
                call.results.size());
  }

  IValue argument(const Patch& patch) {
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
    const Value& value = program_.values[v];
    if (result.defined() && (value.pointer || value.layout)) {
      if (C10_UNLIKELY(result.scalar_type() != value.dtype || !result.sizes().equals(value.size))) {
        misfit("result", result, value);
      }
      const bool shared = value.alone && (result.use_count() > 1 || result.storage().use_count() > 1);
      if (shared || !same_layout(result, value.size, value.stride)) result = restride(result, value);
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

  PyObject* output(const Output& out) {
    if (out.kind == Output::Constant) return Py_NewRef(out.constant);
    if (out.kind == Output::View) {
      const at::Tensor& base = tensor(out.value);
      return THPVariable_Wrap(at::as_strided(base, out.size, out.stride, base.storage_offset() + out.offset));
    }
    const Value& value = program_.values[out.value];
    if (value.kind == ValueKind::Input) return Py_NewRef(args_[value.where]);
    if (value.kind == ValueKind::Static) return Py_NewRef(program_.statics[value.where]);
    return THPVariable_Wrap(tensor(out.value));
  }

  const Program& program_;
  State& state_;
  PyObject* const* args_;
  ArenaLease arena_;
};

}  // namespace

PyObject* execute(const Program& program, State& state, PyObject* const* args) {
  RECORD_FUNCTION("framegraph::plan", c10::ArrayRef<const c10::IValue>());
  return Run(program, state, args)();
}

}  // namespace framegraph
