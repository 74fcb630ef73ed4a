// A class as capture asked it: its MRO, the special methods in it, and what lookups of other names found.
#include <vector>

#include "guard_compat.h"
#include "guard_tree.h"

namespace guards {

namespace {

using Items = std::vector<std::pair<Ref, Held>>;

Items held_items(PyObject* dict, Liveness* liveness) {
  Items items;
  Py_ssize_t position = 0;
  PyObject *name, *object;
  while (PyDict_Next(dict, &position, &name, &object))
    items.emplace_back(Ref::borrow(name), Held(object, liveness));
  return items;
}

int traverse_items(const Items& items, visitproc visit, void* arg) {
  for (const auto& [name, object] : items)
    if (int stop = object.traverse(visit, arg)) return stop;
  return 0;
}

// What one class of an MRO holds under special names.
struct Owner {
  Held type;
  Items specials;
};

class ClassLeaf : public Leaf {
 public:
  // payload: (class, ((owner, {special name: object}), ...), {name: what a lookup finds}, {name: the type of what a
  // lookup finds}, names that nothing has, special names not to look at)
  ClassLeaf(PyObject* payload, Liveness* liveness) : liveness_(liveness) {
    if (!PyTuple_Check(payload)) {
      PyErr_SetString(PyExc_TypeError, "the payload of a 'class' guard is a tuple");
      throw PythonError();
    }
    PyObject *type, *owners, *found, *data, *absent, *ignored;
    if (!PyArg_ParseTuple(payload, "O!O!O!O!O!O!", &PyType_Type, &type, &PyTuple_Type, &owners, &PyDict_Type, &found,
                          &PyDict_Type, &data, &PyTuple_Type, &absent, &PyFrozenSet_Type, &ignored))
      throw PythonError();
    type_ = Held(type, liveness);
    absent_ = Ref::borrow(absent);
    ignored_ = Ref::borrow(ignored);
    PyObject* mro = reinterpret_cast<PyTypeObject*>(type)->tp_mro;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(mro); i++) mro_.push_back(PyTuple_GET_ITEM(mro, i));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(owners); i++)
      add_owner(PyTuple_GET_ITEM(owners, i), liveness);
    found_ = held_items(found, liveness);
    data_ = held_items(data, liveness);
  }

  int check(PyObject*) const override {
    if (liveness_->dead) return 0;
    PyTypeObject* type = this->type();
    if (version_ != 0 && type->tp_version_tag == version_) return 1;
    if (!same_mro() || !same_lookups()) return 0;
    for (const Owner& owner : owners_)
      if (!same_specials(owner)) return PyErr_Occurred() ? -1 : 0;
    version_ = compat_type_version(type);
    return 1;
  }
  std::string expected() const override { return ""; }
  std::string difference(PyObject*) const override {
    std::string what = liveness_->dead ? " no longer exists" : " has other bases or special methods";
    return "the class " + type_.text() + what;
  }
  int traverse(visitproc visit, void* arg) const override {
    if (int stop = type_.traverse(visit, arg)) return stop;
    for (const Owner& owner : owners_) {
      if (int stop = owner.type.traverse(visit, arg)) return stop;
      if (int stop = traverse_items(owner.specials, visit, arg)) return stop;
    }
    if (int stop = traverse_items(found_, visit, arg)) return stop;
    return traverse_items(data_, visit, arg);
  }

 private:
  PyTypeObject* type() const { return reinterpret_cast<PyTypeObject*>(type_.address()); }

  void add_owner(PyObject* row, Liveness* liveness) {
    PyObject *type, *specials;
    if (!PyArg_ParseTuple(row, "O!O!", &PyType_Type, &type, &PyDict_Type, &specials)) throw PythonError();
    owners_.push_back({Held(type, liveness), held_items(specials, liveness)});
  }

  bool same_mro() const {
    PyObject* mro = type()->tp_mro;
    if (mro == nullptr || static_cast<size_t>(PyTuple_GET_SIZE(mro)) != mro_.size()) return false;
    for (size_t i = 0; i < mro_.size(); i++)
      if (PyTuple_GET_ITEM(mro, static_cast<Py_ssize_t>(i)) != mro_[i]) return false;
    return true;
  }

  // A lookup gives a class without a version tag one.
  bool same_lookups() const {
    for (const auto& [name, object] : found_)
      if (!object.is(_PyType_Lookup(type(), name.get()))) return false;
    for (const auto& [name, kind] : data_) {
      PyObject* now = _PyType_Lookup(type(), name.get());
      if (now == nullptr || !kind.is(reinterpret_cast<PyObject*>(Py_TYPE(now)))) return false;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(absent_.get()); i++)
      if (_PyType_Lookup(type(), PyTuple_GET_ITEM(absent_.get(), i)) != nullptr) return false;
    return true;
  }

  bool same_specials(const Owner& owner) const {
    // A key that compares itself may end the class.
    Ref dict = Ref::borrow(reinterpret_cast<PyTypeObject*>(owner.type.address())->tp_dict);
    for (const auto& [name, object] : owner.specials)
      if (!object.is(PyDict_GetItemWithError(dict.get(), name.get()))) return false;
    size_t count = 0;
    Py_ssize_t position = 0;
    PyObject* key;
    while (PyDict_Next(dict.get(), &position, &key, nullptr)) count += is_special(key);
    return count == owner.specials.size();
  }

  bool is_special(PyObject* key) const {
    if (!PyUnicode_CheckExact(key)) return false;
    Py_ssize_t length = PyUnicode_GET_LENGTH(key);
    if (length <= 4) return false;
    for (Py_ssize_t at : {Py_ssize_t(0), Py_ssize_t(1), length - 2, length - 1})
      if (PyUnicode_READ_CHAR(key, at) != '_') return false;
    return PySet_Contains(ignored_.get(), key) == 0;
  }

  Liveness* liveness_;
  Held type_;
  std::vector<PyObject*> mro_;  // alive while the class is, and its MRO the same
  std::vector<Owner> owners_;
  Items found_, data_;
  Ref absent_, ignored_;
  mutable unsigned version_ = 0;  // of the class when all this was last seen to hold
};

}  // namespace

std::unique_ptr<Leaf> make_class_leaf(const std::string& kind, PyObject* payload, Liveness* liveness) {
  if (kind == "class") return std::make_unique<ClassLeaf>(payload, liveness);
  return nullptr;
}

}  // namespace guards
