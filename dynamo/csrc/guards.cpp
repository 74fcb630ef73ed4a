// dynamo._guards: the GuardTree type and the C table for the frame hook.
#include "../../fxgraph/csrc/built_from.h"
#include "guard_api.h"
#include "guard_lookups.h"
#include "guard_program.h"

namespace guards {

namespace {

struct TreeObject {
  PyObject_HEAD
  Tree* tree;
};

PyTypeObject tree_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

Tree* tree_of(PyObject* self) { return reinterpret_cast<TreeObject*>(self)->tree; }

PyObject* to_unicode(const std::string& text) {
  return PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
}

// ---- the C table ------------------------------------------------------------------------------

int api_check(PyObject* self, PyObject* const* fast_locals, Py_ssize_t n, PyObject* globals,
              PyObject* builtins, PyObject* closure) {
  Frame frame;
  frame.locals = fast_locals;
  frame.local_count = n;
  frame.globals = globals;
  frame.builtins = builtins;
  frame.closure = closure;
  // A guard may run code that drops the last reference to the tree.
  Ref alive = Ref::borrow(self);
  return tree_of(self)->check(frame);
}

int api_is_valid(PyObject* self) { return all_live(tree_of(self)->liveness_state()); }

int api_is_tree(PyObject* object) { return PyObject_TypeCheck(object, &tree_type); }

const GuardApi api = {GUARD_API_VERSION, api_check, api_is_valid, api_is_tree};

// ---- the Python type --------------------------------------------------------------------------

PyObject* tree_new(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject *nodes, *guards;
  if (!PyArg_ParseTuple(args, "OO:GuardTree", &nodes, &guards)) return nullptr;
  std::unique_ptr<Tree> tree;
  try {
    tree = std::make_unique<Tree>(nodes, guards);
  } catch (const PythonError&) {
    return nullptr;
  }
  PyObject* self = type->tp_alloc(type, 0);
  if (self != nullptr) reinterpret_cast<TreeObject*>(self)->tree = tree.release();
  return self;
}

int tree_traverse(PyObject* self, visitproc visit, void* arg) {
  return tree_of(self) == nullptr ? 0 : tree_of(self)->traverse(visit, arg);
}

void tree_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  delete tree_of(self);
  Py_TYPE(self)->tp_free(self);
}

// The arguments of check() and explain_failure().
struct FrameArguments {
  Frame frame;
  bool parse(PyObject* args) {
    PyObject *locals, *closure = Py_None, *builtins = Py_None;
    if (!PyArg_ParseTuple(args, "O!O!|OO", &PyTuple_Type, &locals, &PyDict_Type, &frame.globals,
                          &builtins, &closure))
      return false;
    frame.locals = reinterpret_cast<PyTupleObject*>(locals)->ob_item;
    frame.local_count = PyTuple_GET_SIZE(locals);
    frame.closure = closure == Py_None ? nullptr : closure;
    frame.builtins = builtins == Py_None ? nullptr : builtins;
    if (frame.builtins == nullptr || PyDict_Check(frame.builtins)) return true;
    PyErr_SetString(PyExc_TypeError, "builtins: a dict or None");
    return false;
  }
};

PyObject* tree_check(PyObject* self, PyObject* args) {
  FrameArguments arguments;
  if (!arguments.parse(args)) return nullptr;
  int result = tree_of(self)->check(arguments.frame);
  return result < 0 ? nullptr : PyBool_FromLong(result);
}

PyObject* tree_explain(PyObject* self, PyObject* args) {
  FrameArguments arguments;
  if (!arguments.parse(args)) return nullptr;
  Ref alive = Ref::borrow(self);
  std::string text;
  try {
    text = tree_of(self)->explain(arguments.frame);
  } catch (const PythonError&) {
    return nullptr;
  }
  Ref lines = Ref::steal(PyList_New(0));
  if (!lines || text.empty()) return lines.release();
  Ref line = Ref::steal(to_unicode(text));
  if (!line || PyList_Append(lines.get(), line.get()) < 0) return nullptr;
  return lines.release();
}

PyObject* tree_describe(PyObject* self, PyObject*) {
  Ref lines = Ref::steal(PyList_New(0));
  if (!lines) return nullptr;
  for (const std::string& text : tree_of(self)->describe()) {
    Ref line = Ref::steal(to_unicode(text));
    if (!line || PyList_Append(lines.get(), line.get()) < 0) return nullptr;
  }
  return lines.release();
}

PyObject* tree_str(PyObject* self) { return to_unicode(tree_of(self)->print()); }

PyObject* tree_stats(PyObject* self, PyObject*) {
  Tree* tree = tree_of(self);
  return Py_BuildValue("{s:K,s:K,s:K,s:K}", "checks", tree->checks, "recordings", tree->recordings,
                       "replays", tree->replays, "walks", tree->walks);
}

PyObject* tree_is_valid(PyObject* self, void*) { return PyBool_FromLong(api_is_valid(self)); }

PyObject* tree_get_skips(PyObject* self, void*) {
  return PyBool_FromLong(tree_of(self)->use_programs);
}

int tree_set_skips(PyObject* self, PyObject* value, void*) {
  int use = value == nullptr ? 0 : PyObject_IsTrue(value);
  if (use < 0) return -1;
  tree_of(self)->use_programs = use;
  return 0;
}

PyMethodDef tree_methods[] = {
    {"check", tree_check, METH_VARARGS,
     "check(locals: tuple, globals: dict, builtins: dict | None, closure: tuple | None) -> bool"},
    {"explain_failure", tree_explain, METH_VARARGS,
     "Arguments as for check: a list with the text of the first guard that fails, or empty."},
    {"describe", tree_describe, METH_NOARGS, "All guards, a line for each."},
    {"stats", tree_stats, METH_NOARGS,
     "How many checks ran, and how often a subtree was recorded, replayed, walked."},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef tree_getset[] = {
    {"is_valid", tree_is_valid, nullptr,
     "False once an object that the guards refer to has died: no check passes again.", nullptr},
    {"skips_unchanged", tree_get_skips, tree_set_skips,
     "Whether containers that have not changed are skipped (default True).", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

bool init_tree_type() {
  tree_type.tp_name = "dynamo._guards.GuardTree";
  tree_type.tp_doc = "GuardTree(nodes, guards): see dynamo.guards.GuardSet.build.";
  tree_type.tp_basicsize = sizeof(TreeObject);
  tree_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC;
  tree_type.tp_new = tree_new;
  tree_type.tp_dealloc = tree_dealloc;
  tree_type.tp_traverse = tree_traverse;
  tree_type.tp_str = tree_str;
  tree_type.tp_methods = tree_methods;
  tree_type.tp_getset = tree_getset;
  return PyType_Ready(&tree_type) == 0;
}

PyMethodDef module_methods[] = {
    {"accumulates", accumulates, METH_O,
     "accumulates(tensor) -> bool: what a guard of this kind asks of it."},
    {"mark_tensor", mark_tensor, METH_O,
     "mark_tensor(tensor) -> its version counter, as an object for has_mark; None of inference tensors."},
    {"has_mark", has_mark, METH_VARARGS, "has_mark(tensor, mark) -> bool"},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module_def = {PyModuleDef_HEAD_INIT, "dynamo._guards",
                          "The guard tree, in C++ against torch.", -1, module_methods};

}  // namespace

}  // namespace guards

PyMODINIT_FUNC PyInit__guards() {
  using namespace guards;
  // torch's types must exist before a tensor is looked at.
  Ref torch = Ref::steal(PyImport_ImportModule("torch"));
  if (!torch || !init_tree_type() || !init_liveness() || !init_watchers()) return nullptr;
  init_lookups();
  Ref module = Ref::steal(PyModule_Create(&module_def));
  if (!module || !init_global_state(module.get())) return nullptr;
  auto* type = reinterpret_cast<PyObject*>(&tree_type);
  if (PyModule_AddObjectRef(module.get(), "GuardTree", type) < 0) return nullptr;
  Ref capsule = Ref::steal(PyCapsule_New(const_cast<GuardApi*>(&api), GUARD_API_CAPSULE, nullptr));
  if (!capsule || PyModule_AddObjectRef(module.get(), "_C_API", capsule.get()) < 0) return nullptr;
  return module.release();
}
