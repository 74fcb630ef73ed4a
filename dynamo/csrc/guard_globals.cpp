// The global state that the meaning of a torch program depends on, and its guard.
#include <ATen/Context.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/autocast_mode.h>
#include <c10/core/AutogradState.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/PyInterpreter.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/tensor/python_tensor.h>

#include <array>

#include "guard_tree.h"

namespace guards {

namespace {

// Everything that is compared as a number. The names are those of reports.
enum Field {
  kGradMode,
  kInferenceMode,
  kForwardGradMode,
  kAutocastCpu,
  kAutocastCuda,
  kAutocastCpuDtype,
  kAutocastCudaDtype,
  kAutocastCache,
  kDefaultDtype,
  kDefaultBackend,
  kDeterministic,
  kMatmulPrecision,
  kKernels,
  kTorchFunctionDisabled,
  kFunctionModes,
  kDispatchModes,
  kIncludedKeys,
  kExcludedKeys,
  kFieldCount
};

constexpr std::array<const char*, kFieldCount> kFieldNames = {
    "grad mode",
    "inference mode",
    "forward-mode autograd",
    "autocast for cpu",
    "autocast for cuda",
    "autocast dtype for cpu",
    "autocast dtype for cuda",
    "autocast cache",
    "default dtype",
    "default backend",
    "deterministic algorithms",
    "float32 matmul precision",
    "switches for kernels",
    "disabling of __torch_function__",
    "number of torch function modes",
    "number of torch dispatch modes",
    "included dispatch keys",
    "excluded dispatch keys",
};

using Fields = std::array<uint64_t, kFieldCount>;

// A build for CPU only need not look at the settings for CUDA, which takes as long as all the rest.
bool built_with_cuda = true;

uint64_t matmul_precision() {
  const at::Context& context = at::globalContext();
  // "Not set anywhere" means IEEE; torch.set_float32_matmul_precision("highest") sets it explicitly.
  auto precision = [&context](at::Float32Backend backend, at::Float32Op op) {
    at::Float32Precision now = context.float32Precision(backend, op);
    if (now == at::Float32Precision::NONE) now = at::Float32Precision::IEEE;
    return static_cast<uint64_t>(now);
  };
  uint64_t cpu = precision(at::Float32Backend::MKLDNN, at::Float32Op::MATMUL);
  if (!built_with_cuda) return cpu;
  return cpu | precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL) << 8 |
         precision(at::Float32Backend::CUDA, at::Float32Op::CONV) << 16;
}

// The switches by which composite operators choose between kernels; the choice is made when a graph is traced.
uint64_t kernel_switches(const at::Context& context) {
  uint64_t bits = context.userEnabledMkldnn() | context.userEnabledMathSDP() << 1 |
                  context.userEnabledFlashSDP() << 2 | context.userEnabledMemEfficientSDP() << 3 |
                  context.allowFP16BF16ReductionMathSDP() << 4;
  if (!built_with_cuda) return bits;
  return bits | context.userEnabledCuDNN() << 5 | context.userEnabledCuDNNSDP() << 6 |
         context.userEnabledOverrideableSDP() << 7;
}

// Of torch.set_default_tensor_type.
uint64_t default_backend() {
  if (!built_with_cuda) return static_cast<uint64_t>(c10::DispatchKey::CPU);
  return static_cast<uint64_t>(torch::tensors::get_default_dispatch_key());
}

void read(Fields& now) {
  const c10::AutogradState& autograd = c10::AutogradState::get_tls_state();
  now[kGradMode] = autograd.get_grad_mode();
  now[kInferenceMode] = autograd.get_inference_mode();
  // Tensors may have tangents where a level of it is entered.
  bool level = torch::autograd::ForwardADLevel::try_get_by_idx(0) != nullptr;
  now[kForwardGradMode] = (autograd.get_fw_grad_mode() ? 1 : 0) | (level ? 2 : 0);
  // Autocast is on where its key is not excluded.
  c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
  now[kAutocastCpu] = !keys.excluded_.has(c10::DispatchKey::AutocastCPU);
  now[kAutocastCuda] = !keys.excluded_.has(c10::DispatchKey::AutocastCUDA);
  now[kAutocastCpuDtype] = static_cast<uint64_t>(at::autocast::get_autocast_dtype(at::kCPU));
  now[kAutocastCudaDtype] = static_cast<uint64_t>(at::autocast::get_autocast_dtype(at::kCUDA));
  now[kAutocastCache] = at::autocast::is_autocast_cache_enabled();
  now[kDefaultDtype] = static_cast<uint64_t>(c10::get_default_dtype_as_scalartype());
  now[kDefaultBackend] = default_backend();
  const at::Context& context = at::globalContext();
  now[kDeterministic] = (context.deterministicAlgorithms() ? 1 : 0) |
                        (context.deterministicAlgorithmsWarnOnly() ? 2 : 0) |
                        (context.deterministicFillUninitializedMemory() ? 4 : 0);
  now[kMatmulPrecision] = matmul_precision();
  now[kKernels] = kernel_switches(context);
  now[kTorchFunctionDisabled] =
      static_cast<uint64_t>(at::impl::PythonTorchFunctionTLS::get_disabled_state());
  now[kFunctionModes] = static_cast<uint64_t>(at::impl::PythonTorchFunctionTLS::stack_len());
  // Entering the first mode includes this key.
  bool modes = keys.included_.has(c10::DispatchKey::Python);
  now[kDispatchModes] =
      modes ? static_cast<uint64_t>(c10::impl::TorchDispatchModeTLS::stack_len()) : 0;
  // torch leaves the key of dense tensors included when a wrapper of tensors has changed its shape in place. It is the
  // lowest of all, so that any other key of an operator's tensors wins.
  now[kIncludedKeys] = keys.included_.remove(c10::DispatchKey::Dense).raw_repr();
  now[kExcludedKeys] = keys.excluded_.raw_repr();
}

std::string field_text(Field field, uint64_t value) {
  switch (field) {
    case kAutocastCpuDtype:
    case kAutocastCudaDtype:
    case kDefaultDtype:
      return c10::toString(static_cast<at::ScalarType>(value));
    case kDeterministic:
      return std::string(value & 1 ? "on" : "off") + (value & 2 ? ", warn only" : "") +
             (value & 4 ? ", filling" : "");
    case kForwardGradMode:
      return std::string(value & 1 ? "on" : "off") + (value & 2 ? ", in a level" : "");
    case kDefaultBackend:
      return c10::toString(static_cast<c10::DispatchKey>(value));
    case kIncludedKeys:
    case kExcludedKeys:
      return c10::toString(c10::DispatchKeySet(c10::DispatchKeySet::RAW, value));
    case kMatmulPrecision:
    case kKernels:
    case kTorchFunctionDisabled:
    case kFunctionModes:
    case kDispatchModes:
      return std::to_string(value);
    default:
      return value ? "on" : "off";
  }
}

PyObject* mode_at(bool function, int64_t index) {
  if (function)
    return at::impl::PythonTorchFunctionTLS::get_stack_at(index)->ptr(getPyInterpreter());
  return c10::impl::TorchDispatchModeTLS::get_stack_at(index)->ptr(getPyInterpreter());
}

// A snapshot of the global state, immutable.
struct GlobalState {
  PyObject_HEAD
  Fields fields;
  PyObject* modes;  // tuple: torch function modes, then dispatch modes, outermost first
};

PyTypeObject state_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

Py_ssize_t mode_count(const Fields& fields) {
  return static_cast<Py_ssize_t>(fields[kFunctionModes] + fields[kDispatchModes]);
}

PyObject* current_mode(const Fields& fields, Py_ssize_t index) {
  auto functions = static_cast<Py_ssize_t>(fields[kFunctionModes]);
  return index < functions ? mode_at(true, index) : mode_at(false, index - functions);
}

// `with torch.device(d)` makes a new mode each time: those are equal if their devices are.
bool is_device_mode(PyObject* mode) {
  auto* type = reinterpret_cast<PyObject*>(Py_TYPE(mode));
  Ref name = Ref::steal(PyObject_GetAttrString(type, "__qualname__"));
  Ref module = Ref::steal(name ? PyObject_GetAttrString(type, "__module__") : nullptr);
  if (!module) PyErr_Clear();
  return module && PyUnicode_Check(name.get()) && PyUnicode_Check(module.get()) &&
         utf8(name.get()) == "DeviceContext" && utf8(module.get()) == "torch.utils._device";
}

int same_mode(PyObject* a, PyObject* b) {
  if (a == b) return 1;
  if (Py_TYPE(a) != Py_TYPE(b) || !is_device_mode(a)) return 0;
  Ref left = Ref::steal(PyObject_GetAttrString(a, "device"));
  Ref right = Ref::steal(left ? PyObject_GetAttrString(b, "device") : nullptr);
  return right ? PyObject_RichCompareBool(left.get(), right.get(), Py_EQ) : -1;
}

int same_modes(const GlobalState* state) {
  for (Py_ssize_t i = 0; i < mode_count(state->fields); i++) {
    Ref now = Ref::borrow(current_mode(state->fields, i));
    int same = same_mode(PyTuple_GET_ITEM(state->modes, i), now.get());
    if (same != 1) return same;
  }
  return 1;
}

int check_state(const GlobalState* state) {
  Fields now;
  try {
    read(now);
  } catch (const std::exception&) {
    return PyErr_Occurred() ? -1 : 0;
  }
  if (now != state->fields) return 0;
  return mode_count(now) == 0 ? 1 : same_modes(state);
}

std::string state_difference(const GlobalState* state) {
  Fields now;
  try {
    read(now);
  } catch (const std::exception& error) {
    PyErr_Clear();
    return std::string("cannot be read: ") + error.what();
  }
  for (int i = 0; i < kFieldCount; i++) {
    auto field = static_cast<Field>(i);
    if (now[i] != state->fields[i])
      return std::string(kFieldNames[i]) + " was " + field_text(field, state->fields[i]) + ", is " +
             field_text(field, now[i]);
  }
  for (Py_ssize_t i = 0; i < mode_count(now); i++) {
    PyObject* was = PyTuple_GET_ITEM(state->modes, i);
    Ref mode = Ref::borrow(current_mode(now, i));
    if (same_mode(was, mode.get()) != 1) {
      PyErr_Clear();
      return "mode was " + short_repr(was) + ", is " + short_repr(mode.get());
    }
  }
  return "";
}

std::string state_text(const GlobalState* state) {
  std::string text;
  for (int i = 0; i < kIncludedKeys; i++)
    text += std::string(i ? ", " : "") + kFieldNames[i] + " " +
            field_text(static_cast<Field>(i), state->fields[i]);
  return text;
}

// ---- the Python type --------------------------------------------------------------------------

PyObject* state_new(PyTypeObject* type, PyObject*, PyObject*) {
  Ref ref = Ref::steal(type->tp_alloc(type, 0));
  if (!ref) return nullptr;
  auto* state = reinterpret_cast<GlobalState*>(ref.get());
  new (&state->fields) Fields();
  try {
    read(state->fields);
  } catch (const std::exception& error) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, error.what());
    return nullptr;
  }
  state->modes = PyTuple_New(mode_count(state->fields));
  if (state->modes == nullptr) return nullptr;
  for (Py_ssize_t i = 0; i < mode_count(state->fields); i++)
    PyTuple_SET_ITEM(state->modes, i, Py_NewRef(current_mode(state->fields, i)));
  return ref.release();
}

int state_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(reinterpret_cast<GlobalState*>(self)->modes);
  return 0;
}

void state_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  Py_XDECREF(reinterpret_cast<GlobalState*>(self)->modes);
  Py_TYPE(self)->tp_free(self);
}

PyObject* state_check(PyObject* self, PyObject*) {
  int result = check_state(reinterpret_cast<GlobalState*>(self));
  if (result < 0 && settle_error() < 0) return nullptr;
  return PyBool_FromLong(result == 1);
}

PyObject* state_differs(PyObject* self, PyObject*) {
  std::string text = state_difference(reinterpret_cast<GlobalState*>(self));
  return PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
}

PyObject* state_repr(PyObject* self) {
  std::string text = "GlobalState(" + state_text(reinterpret_cast<GlobalState*>(self)) + ")";
  return PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
}

PyObject* state_grad_mode(PyObject* self, void*) {
  return PyBool_FromLong(reinterpret_cast<GlobalState*>(self)->fields[kGradMode] != 0);
}

PyMethodDef state_methods[] = {
    {"check", state_check, METH_NOARGS, "Is the global state as it was?"},
    {"difference", state_differs, METH_NOARGS, "What differs, as text; empty if nothing does."},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef state_getset[] = {
    {"grad_mode", state_grad_mode, nullptr, "Was grad mode enabled?", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

// ---- leaves -----------------------------------------------------------------------------------

class GlobalsLeaf : public Leaf {
 public:
  explicit GlobalsLeaf(PyObject* payload) : state_(Ref::borrow(payload)) {
    if (Py_TYPE(payload) != &state_type) {
      PyErr_SetString(PyExc_TypeError, "the payload of a 'globals' guard is a GlobalState");
      throw PythonError();
    }
  }
  int check(PyObject*) const override { return check_state(state()); }
  std::string expected() const override { return state_text(state()); }
  std::string difference(PyObject*) const override { return state_difference(state()); }
  int traverse(visitproc visit, void* arg) const override {
    Py_VISIT(state_.get());
    return 0;
  }

 private:
  const GlobalState* state() const { return reinterpret_cast<const GlobalState*>(state_.get()); }
  Ref state_;
};

class GradModeLeaf : public Leaf {
 public:
  explicit GradModeLeaf(PyObject* payload) : enabled_(payload == Py_True) {}
  int check(PyObject*) const override { return c10::GradMode::is_enabled() == enabled_; }
  std::string expected() const override { return std::string("grad mode ") + text(enabled_); }
  std::string difference(PyObject*) const override {
    return std::string("grad mode was ") + text(enabled_) + ", is " + text(!enabled_);
  }

 private:
  static const char* text(bool on) { return on ? "on" : "off"; }
  bool enabled_;
};

}  // namespace

std::unique_ptr<Leaf> make_global_leaf(const std::string& kind, PyObject* payload) {
  if (kind == "globals") return std::make_unique<GlobalsLeaf>(payload);
  if (kind == "grad_mode") return std::make_unique<GradModeLeaf>(payload);
  return nullptr;
}

bool init_global_state(PyObject* module) {
  Ref version = Ref::steal(PyImport_ImportModule("torch.version"));
  Ref cuda = Ref::steal(version ? PyObject_GetAttrString(version.get(), "cuda") : nullptr);
  Ref hip = Ref::steal(cuda ? PyObject_GetAttrString(version.get(), "hip") : nullptr);
  if (!hip) return false;
  built_with_cuda = cuda.get() != Py_None || hip.get() != Py_None;
  state_type.tp_name = "dynamo._guards.GlobalState";
  state_type.tp_doc = "A snapshot of grad mode, autocast, default dtype, modes and the like, as they are now.";
  state_type.tp_basicsize = sizeof(GlobalState);
  state_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC;
  state_type.tp_traverse = state_traverse;
  state_type.tp_new = state_new;
  state_type.tp_dealloc = state_dealloc;
  state_type.tp_repr = state_repr;
  state_type.tp_methods = state_methods;
  state_type.tp_getset = state_getset;
  return PyType_Ready(&state_type) == 0 &&
         PyModule_AddObjectRef(module, "GlobalState", reinterpret_cast<PyObject*>(&state_type)) == 0;
}

}  // namespace guards
