// Recording and replaying of unchanged containers; what makes it sound stands in guard_program.h.
#include "guard_program.h"

#include <algorithm>
#include <unordered_map>

#include "guard_lookups.h"

namespace guards {

// ---- dict watchers ----------------------------------------------------------------------------

#if COMPAT_DICT_WATCHERS

namespace {

struct Watch {
  Program* program;
  Node* node;
};

int watcher_id = -1;

// Never freed: dicts die until the very end of the process.
std::unordered_map<PyObject*, std::vector<Watch>>& watches() {
  static auto* map = new std::unordered_map<PyObject*, std::vector<Watch>>();
  return *map;
}

int dict_changed(PyDict_WatchEvent event, PyObject* dict, PyObject*, PyObject*) {
  lookups_in_dict_changed(dict, event == PyDict_EVENT_DEALLOCATED);
  auto found = watches().find(dict);
  if (found == watches().end()) return 0;
  for (const Watch& watch : found->second) {
    if (watch.program->valid) watch.program->invalidated_by = watch.node;
    watch.program->valid = false;
    if (event == PyDict_EVENT_DEALLOCATED) {
      auto& watched = watch.program->watched;
      watched.erase(std::remove(watched.begin(), watched.end(), dict), watched.end());
    }
  }
  if (event == PyDict_EVENT_DEALLOCATED) watches().erase(found);
  return 0;
}

bool watch(PyObject* dict, Program* program, Node* node) {
  if (!watch_dict(dict)) return false;
  watches()[dict].push_back({program, node});
  program->watched.push_back(dict);
  return true;
}

void unwatch(PyObject* dict, Program* program) {
  auto found = watches().find(dict);
  if (found == watches().end()) return;
  auto& list = found->second;
  list.erase(std::remove_if(list.begin(), list.end(),
                            [program](const Watch& w) { return w.program == program; }),
             list.end());
  if (!list.empty()) return;
  watches().erase(found);
  if (holds_lookups(dict)) return;
  if (PyDict_Unwatch(watcher_id, dict) < 0) PyErr_Clear();
}

}  // namespace

bool watch_dict(PyObject* dict) {
  if (watcher_id >= 0 && PyDict_Watch(watcher_id, dict) == 0) return true;
  PyErr_Clear();
  return false;
}

bool init_watchers() {
  watcher_id = PyDict_AddWatcher(dict_changed);
  // All ids may be taken: programs are then never recorded, and every check walks.
  if (watcher_id < 0) PyErr_Clear();
  return true;
}

Program::~Program() {
  for (PyObject* dict : watched) unwatch(dict, this);
}

#else

bool init_watchers() { return true; }

Program::~Program() = default;

#endif

// ---- replay -----------------------------------------------------------------------------------

Node* Program::changed(const Frame& frame, Node* root_node) const {
  if (!valid) return invalidated_by != nullptr ? invalidated_by : root_node;
  if (builtins != nullptr && builtins != frame.builtins) return root_node;
  size_t n = words.size();
  for (size_t i = 0; i < n; i++)
    if (!words[i].holds()) return word_nodes[i];
  return nullptr;
}

// ---- recording --------------------------------------------------------------------------------

void Recorder::word(uintptr_t address, uintptr_t expected) {
  if (!seen_.insert(reinterpret_cast<const void*>(address)).second) return;
  program_.words.push_back({address, expected});
  program_.word_nodes.push_back(current_);
}

void Recorder::pointer(const void* address, const void* now) {
  word(reinterpret_cast<uintptr_t>(address), reinterpret_cast<uintptr_t>(now));
}

// Records the values that a dict shares with its instance. They are compared by their addresses.
bool Recorder::shared_values(PyObject* dict) {
  const void* header = nullptr;
  PyObject** values = nullptr;
  size_t n = compat_shared_values(dict, &header, &values);
  if (n == 0) return false;
  unpinned();
  auto* owner = reinterpret_cast<PyDictObject*>(dict);
  if (seen_.count(&owner->ma_values)) return true;
  pointer(&owner->ma_values, header);
  word(reinterpret_cast<uintptr_t>(header), *static_cast<const uintptr_t*>(header));
  for (size_t i = 0; i < n; i++)
    if (values[i] != nullptr) pointer(&values[i], values[i]);
  return true;
}

// The keys and their order.
bool Recorder::dict_order(PyObject* dict) { return !shared_values(dict) && dict_content(dict); }

bool Recorder::dict_content(PyObject* dict) {
  shared_values(dict);
#if COMPAT_DICT_WATCHERS
  if (!seen_.insert(dict).second) return true;
  return watch(dict, &program_, current_);
#else
  const uint64_t* version = compat_dict_version(dict);
  word(reinterpret_cast<uintptr_t>(version), *version);
  return true;
#endif
}

bool Recorder::type_of(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  // The class of an instance of a builtin type cannot be changed, but for modules.
  if (PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE) || PyModule_Check(object))
    pointer(&object->ob_type, type);
  return true;
}

bool Recorder::attributes_of_type(PyTypeObject* type) {
  unsigned tag = compat_type_version(type);
  if (tag == 0) return false;
  word(reinterpret_cast<uintptr_t>(&type->tp_version_tag) | 1, tag);
  return true;
}

PyObject* Recorder::instance_dict(PyObject* object) {
  PyObject** slot = compat_dict_slot(object);
  if (slot == nullptr || *slot == nullptr) return nullptr;
  pointer(slot, *slot);
  return *slot;
}

Verdict Recorder::every_time(const Leaf* leaf, PyObject* value) {
  program_.leaves.emplace_back(leaf, value);
  return Verdict::Covered;
}

bool Recorder::leaves(Node& node, PyObject* value) {
  for (auto& leaf : node.leaves) {
    current_ = &node;
    Verdict verdict = node.is_volatile ? Verdict::Residual : leaf->record(value, *this);
    if (verdict == Verdict::Fail) {
      leaf->failures++;
      return false;
    }
    if (verdict == Verdict::Residual) program_.residuals.push_back({leaf.get(), nullptr, value});
  }
  return true;
}

bool Recorder::child(Node& parent, Node& node, PyObject* base, bool pinned) {
  Ref value;
  current_ = &parent;
  base_pinned_ = pinned;
  pinned_ = true;
  Verdict verdict = parent.is_volatile ? Verdict::Residual
                                       : node.accessor->record(base, frame_, *this, &value);
  if (verdict == Verdict::Residual) {
    program_.residuals.push_back({nullptr, &node, base});
    return true;
  }
  if (verdict == Verdict::Fail) return false;
  pinned = pinned_;
  if (!pinned) pointer(&value.get()->ob_type, Py_TYPE(value.get()));
  if (!leaves(node, value.get())) return false;
  if (node.slot >= 0) program_.slots.emplace_back(node.slot, value.get());
  return children(node, value.get(), pinned);
}

bool Recorder::children(Node& node, PyObject* value, bool pinned) {
  for (size_t i = 0; i < node.children.size(); i++) {
    if (child(node, *node.children[i], value, pinned)) continue;
    node.children[i]->failures++;
    if (i > 0 && node.children[i]->failures > node.children[i - 1]->failures)
      std::swap(node.children[i], node.children[i - 1]);
    return false;
  }
  return true;
}

bool Recorder::program(Node& node, PyObject* value) {
  current_ = &node;
  pointer(&value->ob_type, Py_TYPE(value));
  return children(node, value, /*pinned=*/false);
}

namespace {

// A key whose hash and comparison run no Python code.
bool is_plain_key(PyObject* key) {
  return PyUnicode_CheckExact(key) || PyLong_CheckExact(key) || PyBytes_CheckExact(key) ||
         PyBool_Check(key) || PyFloat_CheckExact(key) || key == Py_None;
}

// A lookup compares with a stored key if their hashes are equal: could that run Python code?
bool has_only_plain_keys(PyObject* dict) {
  Py_ssize_t position = 0;
  PyObject *key, *item;
  while (PyDict_Next(dict, &position, &key, &item))
    if (!is_plain_key(key) && Py_TYPE(key)->tp_richcompare != PyBaseObject_Type.tp_richcompare)
      return false;
  return true;
}

}  // namespace

PyObject* plain_dict_item(PyObject* dict, PyObject* key, bool* safe) {
  *safe = is_plain_key(key) && has_only_plain_keys(dict);
  if (!*safe) return nullptr;
  PyObject* item = PyDict_GetItemWithError(dict, key);
  if (item == nullptr && PyErr_Occurred()) {
    PyErr_Clear();
    *safe = false;
  }
  return item;
}

}  // namespace guards
