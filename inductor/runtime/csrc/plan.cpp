// The Python module inductor.runtime._plan: the types Plan, Library and Replay, and the arena pool's controls.
#include <torch/csrc/python_headers.h>

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <memory>
#include <vector>

#include "../../../fxgraph/csrc/callable.h"
#include "../../../fxgraph/csrc/built_from.h"
#include "arena.h"
#include "driver.h"
#include "executor.h"
#include "library.h"
#include "program.h"
#include "replay.h"

namespace framegraph {
namespace {

constexpr size_t kIdleStates = 8;  // per plan; more calls at once than this build their state anew

struct Linked {
  Program program;
  std::vector<std::unique_ptr<State>> idle;  // guarded by the GIL

  void load(PyObject* spec) { program.load(spec); }
  int traverse(visitproc visit, void* arg) const { return program.traverse(visit, arg); }
};

using Plan = Callable<Linked>;

// A State taken from the plan's idle list, put back at the end of the call.
class StateLease {
 public:
  explicit StateLease(Linked& plan) : plan_(plan) {
    if (plan.idle.empty()) {
      state_ = std::make_unique<State>(plan.program);
    } else {
      state_ = std::move(plan.idle.back());
      plan.idle.pop_back();
    }
  }
  ~StateLease() {
    if (plan_.idle.size() < kIdleStates) plan_.idle.push_back(std::move(state_));
  }
  State& operator*() { return *state_; }

 private:
  Linked& plan_;
  std::unique_ptr<State> state_;
};

// Throws unless the arguments are those that a call takes.
void check_arguments(const Program& program, PyObject* const* args, size_t count) {
  const size_t wanted = program.input_count;
  const std::vector<bool>& numbers = program.number_inputs;
  TORCH_CHECK_TYPE(count == wanted, "this plan takes ", wanted, numbers.empty() ? " tensors" : " arguments", ", got ",
                   count);
  for (size_t i = 0; i < count; ++i) {
    const bool number = !numbers.empty() && numbers[i];
    TORCH_CHECK_TYPE(number ? PyLong_Check(args[i]) != 0 : THPVariable_Check(args[i]), "argument ", i, " of a plan is ",
                     number ? "an int" : "a tensor", ", got ", Py_TYPE(args[i])->tp_name);
  }
}

// Whether copies of the arguments' weights have no room beside those of other modules.
bool lacks_room(const Program& program, PyObject* const* args) {
  Derivation* derivation = program.derivation.get();
  return C10_UNLIKELY(derivation != nullptr && derivation->is_full()) && !derivation->has_room_for(program.sources(args));
}

PyObject* plan_call(PyObject* object, PyObject* const* args, size_t flags, PyObject* kwnames) {
  HANDLE_TH_ERRORS
  Linked& plan = Plan::called(object, kwnames);
  const auto count = static_cast<size_t>(PyVectorcall_NARGS(flags));
  check_arguments(plan.program, args, count);
  if (lacks_room(plan.program, args)) {
    const auto other = py::reinterpret_steal<py::object>(PyObject_GetAttrString(object, "unpacked"));
    return other ? PyObject_Vectorcall(other.ptr(), args, count, nullptr) : nullptr;
  }
  StateLease state(plan);
  return execute(plan.program, *state, args);
  END_HANDLE_TH_ERRORS
}

PyObject* plan_keep(PyObject* object, PyObject* const* args, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  Linked& plan = Plan::called(object);
  check_arguments(plan.program, args, static_cast<size_t>(count));
  StateLease state(plan);
  return execute_keeping(plan.program, *state, args);
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
  Linked& plan = Plan::called(object);
  TORCH_CHECK_TYPE(PyList_CheckExact(list), "a plan takes over the items of a list, got ", Py_TYPE(list)->tp_name);
  Owned args;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) args.items.push_back(Py_NewRef(PyList_GET_ITEM(list, i)));
  check_arguments(plan.program, args.items.data(), args.items.size());
  if (PyList_SetSlice(list, 0, PyList_GET_SIZE(list), nullptr) < 0) throw python_error();
  StateLease state(plan);
  return execute_owning(plan.program, *state, args.items);
  END_HANDLE_TH_ERRORS
}

PyObject* plan_bound(PyObject* object, PyObject*) {
  HANDLE_TH_ERRORS
  const Program& program = Plan::called(object).program;
  std::vector<const void*> found;
  const auto add = [&](const at::Tensor& tensor) {
    found.push_back(tensor.has_storage() ? tensor.const_data_ptr() : tensor.unsafeGetTensorImpl());
  };
  for (PyObject* tensor : program.statics) add(THPVariable_Unpack(tensor));
  if (program.derivation != nullptr) {
    TORCH_CHECK(program.derivation->is_of_statics(), "framegraph: parameters of this plan are not bound");
    for (const at::Tensor& tensor : program.derivation->get(program.sources(nullptr))->tensors) add(tensor);
  }
  return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(found.data()),
                                   static_cast<Py_ssize_t>(found.size() * sizeof(void*)));
  END_HANDLE_TH_ERRORS
}

PyMethodDef plan_methods[] = {
    {"take", plan_take, METH_O,
     "take(arguments) -> tuple: a call that empties the list `arguments`, and lets each tensor go after its last use."},
    {"keep", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(plan_keep)), METH_FASTCALL,
     "keep(*inputs) -> (results, memory): a call whose temporaries stay where they are while the tensor `memory` lives."},
    {"bound", plan_bound, METH_NOARGS,
     "bound() -> bytes: the addresses of the static inputs, and of what is derived of them, which is made if need be."},
    {nullptr, nullptr, 0, nullptr}};

PyTypeObject PlanType = Plan::type<plan_call>(
    "inductor.runtime._plan.Plan",
    "A linked plan: call it with the tensors that vary, get a tuple. Made by inductor.runtime.link.link().", plan_methods);

PyObject* arena_limit(PyObject*, PyObject* bytes) {
  const size_t limit = PyLong_AsSize_t(bytes);
  if (limit == static_cast<size_t>(-1) && PyErr_Occurred()) return nullptr;
  set_arena_limit(limit);
  Py_RETURN_NONE;
}

PyObject* idle_bytes(PyObject*, PyObject*) { return PyLong_FromSize_t(idle_arena_bytes()); }

PyObject* replayed(PyObject*, PyObject*) {
  note_replay();
  Py_RETURN_NONE;
}

PyObject* collected(PyObject*, PyObject* const* args, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  if (count > 0 && PyUnicode_Check(args[0]) && PyUnicode_CompareWithASCIIString(args[0], "stop") == 0) drop_past();
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

PyObject* memory_of(PyObject*, PyObject* tensor) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(THPVariable_Check(tensor), "a tensor is expected, got ", Py_TYPE(tensor)->tp_name);
  const c10::Storage& storage = THPVariable_Unpack(tensor).storage();
  return Py_BuildValue("(nnn)", reinterpret_cast<Py_ssize_t>(storage.unsafeGetStorageImpl()),
                       static_cast<Py_ssize_t>(storage.nbytes()), static_cast<Py_ssize_t>(storage.use_count()));
  END_HANDLE_TH_ERRORS
}

PyObject* foreign(PyObject*, PyObject* tensor) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(THPVariable_Check(tensor), "a tensor is expected, got ", Py_TYPE(tensor)->tp_name);
  return PyBool_FromLong(has_foreign_memory(THPVariable_Unpack(tensor)));
  END_HANDLE_TH_ERRORS
}

PyMethodDef module_methods[] = {
    {"has_foreign_memory", foreign, METH_O,
     "has_foreign_memory(tensor) -> bool: whether others than torch may write its memory (arrays, other processes)."},
    {"memory_of", memory_of, METH_O,
     "memory_of(tensor) -> (identity, bytes, users) of its storage, without the Python object that would be a user."},
    {"collected", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(collected)), METH_FASTCALL,
     "collected(phase, info): a callback of gc: at the end, lets go what is derived from parameters that are gone."},
    {"moved", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(moved)), METH_FASTCALL,
     "moved(arguments, where: dict[int, int], besides: dict[int, Any]) -> list[int]: the keys of `where`, but for those of "
     "`besides`, whose argument is at another address."},
    {"set_arena_limit", arena_limit, METH_O, "set_arena_limit(bytes): the most memory that idle arenas may hold."},
    {"note_replay", replayed, METH_NOARGS, "note_replay(): a graph of the program's own is replayed, which writes memory."},
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
  // binds_static: a plan holds its parameters and buffers, and is called with the other inputs.
  if (!add_library_type(module) || !add_driver_types(module) || !add_replay_type(module) ||
      !add_type(module, &PlanType, "Plan") || PyDict_SetItemString(PlanType.tp_dict, "binds_static", Py_True) < 0) {
    Py_DECREF(module);
    return nullptr;
  }
  watch_aliases();
  return module;
}
