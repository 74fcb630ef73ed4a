// Names that capture looked up in modules and classes of torch, the standard library and builtins, and the guard that
// they still lead to the same objects.
//
// One leaf stands for all lookups of a frame. While nothing has changed it compares versions: on 3.11 one tag for each
// dict and class, since 3.12 one number for the whole process, which watchers of the dicts and classes count up. After
// a change it looks the names up again, only in what has changed, and remembers the new versions if they all hold.
#include <unordered_map>

#include "guard_compat.h"
#include "guard_lookups.h"
#include "guard_tree.h"

namespace guards {

namespace {

constexpr uint64_t kNever = UINT64_MAX;  // no version

// The tag of the class, which each change of it or of a base replaces; kNever if it has none.
uint64_t class_version(PyTypeObject* type) {
  unsigned tag = compat_type_version(type);
  return tag == 0 ? kNever : tag;
}

#if COMPAT_DICT_WATCHERS

uint64_t changes = 0;       // of all watched dicts and classes
int class_watcher_id = -1;  // <0: all ids are taken, and every check looks at every class

// The number of the last change of each watched dict. Never freed: dicts die until the very end of the process.
std::unordered_map<PyObject*, uint64_t>& last_changes() {
  static auto* map = new std::unordered_map<PyObject*, uint64_t>();
  return *map;
}

int class_changed(PyTypeObject*) {
  changes++;
  return 0;
}

#endif

struct Lookup {
  Ref name;
  Held found;  // nothing: the name was not there
};

// A dict or a class, and what was found in it.
class Holder {
 public:
  Holder(PyObject* object, Liveness* liveness) : is_class_(PyType_Check(object)) {
    if (!is_class_ && !PyDict_Check(object)) {
      PyErr_SetString(PyExc_TypeError, "names are looked up in dicts and classes");
      throw PythonError();
    }
    if (is_class_) {
      held_ = Held(object, liveness);
      name_ = type()->tp_name;
    } else {
      dict_ = Ref::borrow(object);
      PyObject* name = PyDict_GetItemString(object, "__name__");
      name_ = name != nullptr && PyUnicode_Check(name) ? utf8(name) : "a dict";
    }
  }

  void add(PyObject* name, PyObject* found, Liveness* liveness) {
    lookups_.push_back({Ref::borrow(name), found == nullptr ? Held() : Held(found, liveness)});
  }

  PyTypeObject* type() const { return reinterpret_cast<PyTypeObject*>(held_.address()); }

  // Whether the version is the one that was verified last.
  bool is_unchanged() const {
    if (is_class_) return type()->tp_version_tag == verified_;
    return version_of_dict() == verified_ && is_verified();
  }

  // 1: all names lead to what they led to, 0: no, -1: an exception is set. Remembers the version that it holds for.
  int verify() {
    uint64_t version = is_class_ ? kNever : version_of_dict();
    for (const Lookup& lookup : lookups_) {
      PyObject* now = find(lookup);
      if (now == nullptr && PyErr_Occurred()) return -1;
      if (!lookup.found.is(now)) return 0;
    }
    verified_ = is_class_ ? class_version(type()) : version;
    return 1;
  }

  bool is_verified() const { return verified_ != kNever; }
  void forget() { verified_ = kNever; }

  // Has the process-wide count of changes include those of this holder. False: it cannot.
  bool watch() {
#if COMPAT_DICT_WATCHERS
    if (is_class_) return class_watcher_id >= 0 && PyType_Watch(class_watcher_id, held_.address()) == 0;
    auto& known = last_changes();
    if (known.find(dict_.get()) == known.end()) {
      if (!watch_dict(dict_.get())) return false;
      known.emplace(dict_.get(), changes);
    }
    last_change_ = &known.find(dict_.get())->second;
#endif
    return true;
  }

  // "torch.sin was <a>, is <b>"; "" if all names hold.
  std::string difference() const {
    for (const Lookup& lookup : lookups_) {
      PyObject* now = find(lookup);
      PyErr_Clear();
      if (lookup.found.is(now)) continue;
      Ref kept = Ref::borrow(now);  // its repr may run any code
      std::string was = lookup.found.address() == nullptr ? "not there" : lookup.found.text();
      return name_ + "." + utf8(lookup.name.get()) + " was " + was + ", is " +
             (now == nullptr ? "not there" : short_repr(kept.get()));
    }
    return "";
  }

  size_t size() const { return lookups_.size(); }

  const std::string& name() const { return name_; }

  int traverse(visitproc visit, void* arg) const {
    Py_VISIT(dict_.get());
    if (int stop = held_.traverse(visit, arg)) return stop;
    for (const Lookup& lookup : lookups_) {
      Py_VISIT(lookup.name.get());
      if (int stop = lookup.found.traverse(visit, arg)) return stop;
    }
    return 0;
  }

 private:
  PyObject* find(const Lookup& lookup) const {
    if (is_class_) return _PyType_Lookup(type(), lookup.name.get());
    return PyDict_GetItemWithError(dict_.get(), lookup.name.get());
  }

  uint64_t version_of_dict() const {
#if COMPAT_DICT_WATCHERS
    return last_change_ == nullptr ? kNever : *last_change_;
#else
    return *compat_dict_version(dict_.get());
#endif
  }

  bool is_class_;
  Ref dict_;   // one of the two
  Held held_;
  std::string name_;  // for reports
  std::vector<Lookup> lookups_;
  uint64_t verified_ = kNever;
#if COMPAT_DICT_WATCHERS
  const uint64_t* last_change_ = nullptr;  // in last_changes(), for as long as the dict lives
#endif
};

class LookupsLeaf : public Leaf {
 public:
  LookupsLeaf(PyObject* payload, Liveness* liveness) : liveness_(liveness) {
    Ref rows = Ref::steal(checked(PySequence_List(payload)));
    std::unordered_map<PyObject*, size_t> known;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(rows.get()); i++) {
      PyObject *object, *name, *found = nullptr;
      if (!PyArg_ParseTuple(PyList_GET_ITEM(rows.get(), i), "OU|O", &object, &name, &found))
        throw PythonError();
      auto [at, is_new] = known.emplace(object, holders_.size());
      if (is_new) holders_.emplace_back(object, liveness);
      holders_[at->second].add(name, found, liveness);
    }
    for (Holder& holder : holders_) watches_all_ &= holder.watch();
    PyErr_Clear();  // of a watcher that there was no more room for
  }

  int check(PyObject*) const override {
    if (liveness_->dead) return 0;
    return is_unchanged() ? 1 : verify();
  }

  std::string expected() const override {
    size_t count = 0;
    std::string names;
    for (const Holder& holder : holders_) {
      count += holder.size();
      names += (names.empty() ? "" : ", ") + holder.name();
    }
    return std::to_string(count) + " names lead to what they led to, in " + names;
  }

  std::string difference(PyObject*) const override {
    if (liveness_->dead) return "a class or an object no longer exists";
    for (const Holder& holder : holders_)
      if (std::string text = holder.difference(); !text.empty()) return text;
    return "";
  }

  int traverse(visitproc visit, void* arg) const override {
    for (const Holder& holder : holders_)
      if (int stop = holder.traverse(visit, arg)) return stop;
    return 0;
  }

 private:
  bool is_unchanged() const {
#if COMPAT_DICT_WATCHERS
    return verified_ == changes;
#else
    for (const Holder& holder : holders_)
      if (!holder.is_unchanged()) return false;
    return true;
#endif
  }

  // Names are read without running Python code unless a dict has keys that compare themselves; what changes meanwhile
  // has a version that is not remembered.
  int verify() const {
#if COMPAT_DICT_WATCHERS
    uint64_t now = changes;
#endif
    bool all_verified = watches_all_;
    for (Holder& holder : holders_) {
      if (!holder.is_unchanged()) {
        int result = holder.verify();
        if (result != 1) {
          holder.forget();
          return result;
        }
      }
      all_verified &= holder.is_verified();
    }
#if COMPAT_DICT_WATCHERS
    verified_ = all_verified ? now : kNever;
#endif
    return 1;
  }

  Liveness* liveness_;
  mutable std::vector<Holder> holders_;
  bool watches_all_ = true;
#if COMPAT_DICT_WATCHERS
  mutable uint64_t verified_ = kNever;
#endif
};

}  // namespace

#if COMPAT_DICT_WATCHERS

void lookups_in_dict_changed(PyObject* dict, bool dies) {
  auto found = last_changes().find(dict);
  if (found == last_changes().end()) return;
  found->second = ++changes;
  if (dies) last_changes().erase(found);
}

bool holds_lookups(PyObject* dict) { return last_changes().count(dict) != 0; }

void init_lookups() {
  class_watcher_id = PyType_AddWatcher(class_changed);
  if (class_watcher_id < 0) PyErr_Clear();
}

#else

void init_lookups() {}

#endif

std::unique_ptr<Leaf> make_lookups_leaf(const std::string& kind, PyObject* payload, Liveness* liveness) {
  if (kind == "lookups") return std::make_unique<LookupsLeaf>(payload, liveness);
  return nullptr;
}

}  // namespace guards
