// The Python module inductor.runtime._plan: the types Plan and Library, and the arena pool's controls.
#include <torch/csrc/python_headers.h>

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <memory>
#include <vector>

#include "../../../fxgraph/csrc/torch_version.h"
#include "arena.h"
#include "driver.h"
#include "executor.h"
#include "library.h"
#include "program.h"

namespace framegraph {
namespace {

constexpr size_t kIdleStates = 8;  // per plan; more calls at once than this build their state anew

struct Plan {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyObject* dict;
  PyObject* weakrefs;
  Program* program;
  std::vector<std::unique_ptr<State>>* idle;  // guarded by the GIL
};

// A State taken from the plan's idle list, put back at the end of the call.
class StateLease {
 public:
  explicit StateLease(Plan* plan) : plan_(plan) {
    if (plan->idle->empty()) {
      state_ = std::make_unique<State>(*plan->program);
    } else {
      state_ = std::move(plan->idle->back());
      plan->idle->pop_back();
    }
  }
  ~StateLease() {
    if (plan_->idle->size() < kIdleStates) plan_->idle->push_back(std::move(state_));
  }
  State& operator*() { return *state_; }

 private:
  Plan* plan_;
  std::unique_ptr<State> state_;
};

// Throws unless the arguments are those that a call takes.
void check_arguments(const Plan* self, PyObject* const* args, size_t count) {
  TORCH_CHECK(self->program != nullptr, "framegraph: this plan was cleared");
  const size_t wanted = self->program->input_count;
  const std::vector<bool>& numbers = self->program->number_inputs;
  TORCH_CHECK_TYPE(count == wanted, "this plan takes ", wanted, numbers.empty() ? " tensors" : " arguments", ", got ",
                   count);
  for (size_t i = 0; i < count; ++i) {
    const bool number = !numbers.empty() && numbers[i];
    TORCH_CHECK_TYPE(number ? PyLong_Check(args[i]) != 0 : THPVariable_Check(args[i]), "argument ", i, " of a plan is ",
                     number ? "an int" : "a tensor", ", got ", Py_TYPE(args[i])->tp_name);
  }
}

PyObject* plan_call(PyObject* object, PyObject* const* args, size_t flags, PyObject* kwnames) {
  HANDLE_TH_ERRORS
  auto* self = reinterpret_cast<Plan*>(object);
  check_arguments(self, args, static_cast<size_t>(PyVectorcall_NARGS(flags)));
  TORCH_CHECK_TYPE(kwnames == nullptr || PyTuple_GET_SIZE(kwnames) == 0, "a plan takes no keyword arguments");
  StateLease state(self);
  return execute(*self->program, *state, args);
  END_HANDLE_TH_ERRORS
}

PyObject* plan_keep(PyObject* object, PyObject* const* args, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  auto* self = reinterpret_cast<Plan*>(object);
  check_arguments(self, args, static_cast<size_t>(count));
  StateLease state(self);
  return execute_keeping(*self->program, *state, args);
  END_HANDLE_TH_ERRORS
}

// References that are dropped at the end of a scope.
struct Owned {
  std::vector<PyObject*> items;
  ~Owned() {
    for (PyObject* item : items) Py_XDECREF(item);
  }
};

PyObject* plan_take(PyObject* object, PyObject* list) {
  HANDLE_TH_ERRORS
  auto* self = reinterpret_cast<Plan*>(object);
  TORCH_CHECK_TYPE(PyList_CheckExact(list), "a plan takes over the items of a list, got ", Py_TYPE(list)->tp_name);
  Owned args;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) args.items.push_back(Py_NewRef(PyList_GET_ITEM(list, i)));
  check_arguments(self, args.items.data(), args.items.size());
  if (PyList_SetSlice(list, 0, PyList_GET_SIZE(list), nullptr) < 0) throw python_error();
  StateLease state(self);
  return execute_owning(*self->program, *state, args.items);
  END_HANDLE_TH_ERRORS
}

PyObject* plan_bound(PyObject* object, PyObject*) {
  HANDLE_TH_ERRORS
  auto* self = reinterpret_cast<Plan*>(object);
  TORCH_CHECK(self->program != nullptr, "framegraph: this plan was cleared");
  std::vector<const void*> found;
  const auto add = [&](const at::Tensor& tensor) {
    found.push_back(tensor.has_storage() ? tensor.const_data_ptr() : tensor.unsafeGetTensorImpl());
  };
  for (PyObject* tensor : self->program->statics) add(THPVariable_Unpack(tensor));
  if (self->program->derivation != nullptr) {
    for (const at::Tensor& tensor : self->program->derivation->get(self->program->statics)->tensors) add(tensor);
  }
  return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(found.data()),
                                   static_cast<Py_ssize_t>(found.size() * sizeof(void*)));
  END_HANDLE_TH_ERRORS
}

PyObject* plan_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  HANDLE_TH_ERRORS
  PyObject* spec = nullptr;
  static const char* names[] = {"program", nullptr};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!", const_cast<char**>(names), &PyDict_Type, &spec)) return nullptr;
  auto program = std::make_unique<Program>();
  program->load(spec);
  auto* self = reinterpret_cast<Plan*>(type->tp_alloc(type, 0));
  if (self == nullptr) return nullptr;
  self->vectorcall = plan_call;
  self->program = program.release();
  self->idle = new std::vector<std::unique_ptr<State>>;
  return reinterpret_cast<PyObject*>(self);
  END_HANDLE_TH_ERRORS
}

int plan_traverse(PyObject* object, visitproc visit, void* arg) {
  auto* self = reinterpret_cast<Plan*>(object);
  Py_VISIT(self->dict);
  return self->program == nullptr ? 0 : self->program->traverse(visit, arg);
}

int plan_clear(PyObject* object) {
  auto* self = reinterpret_cast<Plan*>(object);
  Py_CLEAR(self->dict);
  delete std::exchange(self->program, nullptr);
  return 0;
}

void plan_dealloc(PyObject* object) {
  auto* self = reinterpret_cast<Plan*>(object);
  PyObject_GC_UnTrack(object);
  if (self->weakrefs != nullptr) PyObject_ClearWeakRefs(object);
  plan_clear(object);
  delete self->idle;
  Py_TYPE(object)->tp_free(object);
}

PyMethodDef plan_methods[] = {
    {"take", plan_take, METH_O,
     "take(arguments) -> tuple: a call that empties the list `arguments`, and lets each tensor go after its last use."},
    {"keep", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(plan_keep)), METH_FASTCALL,
     "keep(*inputs) -> (results, memory): a call whose temporaries stay where they are while the tensor `memory` lives."},
    {"bound", plan_bound, METH_NOARGS,
     "bound() -> bytes: the addresses of the static inputs, and of what is derived of them, which is made if need be."},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef plan_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyTypeObject PlanType = [] {
  PyTypeObject type = {PyVarObject_HEAD_INIT(nullptr, 0)};
  type.tp_name = "inductor.runtime._plan.Plan";
  type.tp_doc = "A linked plan: call it with the tensors that vary, get a tuple. Made by inductor.runtime.link.link().";
  type.tp_basicsize = sizeof(Plan);
  type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL;
  type.tp_new = plan_new;
  type.tp_dealloc = plan_dealloc;
  type.tp_traverse = plan_traverse;
  type.tp_clear = plan_clear;
  type.tp_call = PyVectorcall_Call;
  type.tp_vectorcall_offset = offsetof(Plan, vectorcall);
  type.tp_dictoffset = offsetof(Plan, dict);
  type.tp_weaklistoffset = offsetof(Plan, weakrefs);
  type.tp_methods = plan_methods;
  type.tp_getset = plan_getset;
  return type;
}();

PyObject* arena_limit(PyObject*, PyObject* bytes) {
  const size_t limit = PyLong_AsSize_t(bytes);
  if (limit == static_cast<size_t>(-1) && PyErr_Occurred()) return nullptr;
  set_arena_limit(limit);
  Py_RETURN_NONE;
}

PyObject* idle_bytes(PyObject*, PyObject*) { return PyLong_FromSize_t(idle_arena_bytes()); }

PyObject* memory_of(PyObject*, PyObject* tensor) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(THPVariable_Check(tensor), "a tensor is expected, got ", Py_TYPE(tensor)->tp_name);
  const c10::Storage& storage = THPVariable_Unpack(tensor).storage();
  return Py_BuildValue("(nnn)", reinterpret_cast<Py_ssize_t>(storage.unsafeGetStorageImpl()),
                       static_cast<Py_ssize_t>(storage.nbytes()), static_cast<Py_ssize_t>(storage.use_count()));
  END_HANDLE_TH_ERRORS
}

PyMethodDef module_methods[] = {
    {"memory_of", memory_of, METH_O,
     "memory_of(tensor) -> (identity, bytes, users) of its storage, without the Python object that would be a user."},
    {"set_arena_limit", arena_limit, METH_O, "set_arena_limit(bytes): the most memory that idle arenas may hold."},
    {"idle_arena_bytes", idle_bytes, METH_NOARGS, "idle_arena_bytes() -> int: memory held by idle arenas."},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef module_def = {PyModuleDef_HEAD_INIT, "_plan", "The C++ plan executor.", -1, module_methods,
                          nullptr, nullptr, nullptr, nullptr};

}  // namespace
}  // namespace framegraph

PyMODINIT_FUNC PyInit__plan() {
  using namespace framegraph;
  PyObject* module = PyModule_Create(&module_def);
  if (module == nullptr) return nullptr;
  // binds_static: a plan holds its parameters and buffers, and is called with what varies.
  if (!add_library_type(module) || !add_driver_types(module) || PyType_Ready(&PlanType) < 0 ||
      PyDict_SetItemString(PlanType.tp_dict, "binds_static", Py_True) < 0 ||
      PyModule_AddObjectRef(module, "Plan", reinterpret_cast<PyObject*>(&PlanType)) < 0) {
    Py_DECREF(module);
    return nullptr;
  }
  return module;
}
