// The checks of plain Python values. Tensors are in guard_tensor.cpp, global state in guard_globals.cpp.
#include <algorithm>

#include "guard_program.h"

namespace guards {

namespace {

// The n-th item of a payload tuple, borrowed.
PyObject* part(PyObject* payload, Py_ssize_t index) {
  if (!PyTuple_Check(payload) || PyTuple_GET_SIZE(payload) <= index) {
    PyErr_SetString(PyExc_TypeError, "the payload of this guard kind is a tuple");
    throw PythonError();
  }
  return PyTuple_GET_ITEM(payload, index);
}

bool truth(PyObject* object) {
  int result = PyObject_IsTrue(object);
  if (result < 0) throw PythonError();
  return result;
}

bool is_plain_dict(PyObject* value) {
  return PyDict_CheckExact(value) || PyODict_CheckExact(value);
}

class TypeLeaf : public Leaf {
 public:
  TypeLeaf(PyObject* payload, Liveness* liveness) : type_(payload, liveness) {
    if (!PyType_Check(payload)) {
      PyErr_SetString(PyExc_TypeError, "the payload of a 'type' guard is a type");
      throw PythonError();
    }
  }
  int check(PyObject* value) const override {
    return reinterpret_cast<PyObject*>(Py_TYPE(value)) == type_.address();
  }
  std::string expected() const override { return "has type " + type_.text(); }
  std::string difference(PyObject* value) const override {
    return "type was " + type_.text() + ", is " +
           short_repr(reinterpret_cast<PyObject*>(Py_TYPE(value)));
  }
  Verdict record(PyObject* value, Recorder& recorder) const override {
    if (!check(value)) return Verdict::Fail;
    return recorder.type_of(value) ? Verdict::Covered : Verdict::Residual;
  }
  int traverse(visitproc visit, void* arg) const override { return type_.traverse(visit, arg); }

 private:
  Held type_;
};

class IdLeaf : public Leaf {
 public:
  IdLeaf(PyObject* payload, Liveness* liveness) : object_(payload, liveness) {}
  int check(PyObject* value) const override { return object_.is(value); }
  std::string expected() const override { return "is the object " + object_.text(); }
  std::string difference(PyObject* value) const override {
    return "was the object " + object_.text() + ", is another: " + short_repr(value);
  }
  Verdict record(PyObject* value, Recorder& recorder) const override {
    if (!check(value)) return Verdict::Fail;
    return object_.has_mark() ? recorder.every_time(this, value) : Verdict::Covered;
  }
  int traverse(visitproc visit, void* arg) const override { return object_.traverse(visit, arg); }

 private:
  Held object_;
};

// None of some tensors that other guards of the tree compare with: where those hold, the addresses are theirs.
class NotAmongLeaf : public Leaf {
 public:
  explicit NotAmongLeaf(PyObject* payload) {
    Ref ids = Ref::steal(checked(PySequence_Tuple(payload)));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(ids.get()); i++) {
      addresses_.push_back(PyLong_AsVoidPtr(PyTuple_GET_ITEM(ids.get(), i)));
      if (PyErr_Occurred()) throw PythonError();
    }
    std::sort(addresses_.begin(), addresses_.end());
  }
  int check(PyObject* value) const override {
    return !std::binary_search(addresses_.begin(), addresses_.end(), static_cast<void*>(value));
  }
  std::string expected() const override {
    return "is none of the " + std::to_string(addresses_.size()) + " parameters and buffers";
  }
  std::string difference(PyObject*) const override {
    return "was a tensor of its own, is a parameter or buffer";
  }

 private:
  std::vector<void*> addresses_;
};

class ConstantLeaf : public Leaf {
 public:
  explicit ConstantLeaf(PyObject* payload)
      : constant_(Ref::borrow(payload)), immutable_(is_immutable_constant(payload)) {}
  int check(PyObject* value) const override {
    if (value == constant_.get() && immutable_) return 1;
    return exactly_equal(constant_.get(), value);
  }
  std::string expected() const override { return "== " + short_repr(constant_.get()); }
  std::string difference(PyObject* value) const override {
    std::string was = short_repr(constant_.get()), now = short_repr(value);
    if (Py_TYPE(value) != Py_TYPE(constant_.get())) {
      was += std::string(" (") + Py_TYPE(constant_.get())->tp_name + ")";
      now += std::string(" (") + Py_TYPE(value)->tp_name + ")";
    }
    return "was " + was + ", is " + now;
  }
  bool runs_python() const override { return !immutable_; }
  Verdict record(PyObject* value, Recorder& recorder) const override {
    // An equal value of the same immutable type stays equal.
    if (!immutable_) return Verdict::Residual;
    int equal = check(value);
    if (equal < 0) PyErr_Clear();
    if (equal != 1) return Verdict::Fail;
    recorder.same_constant(value);
    return Verdict::Covered;
  }
  int traverse(visitproc visit, void* arg) const override {
    Py_VISIT(constant_.get());
    return 0;
  }

 private:
  Ref constant_;
  bool immutable_;
};

class LengthLeaf : public Leaf {
 public:
  explicit LengthLeaf(PyObject* payload) : length_(PyLong_AsSsize_t(payload)) {
    if (length_ == -1 && PyErr_Occurred()) throw PythonError();
  }
  int check(PyObject* value) const override {
    Py_ssize_t now = length(value);
    return now < 0 ? -1 : now == length_;
  }
  std::string expected() const override { return "has length " + std::to_string(length_); }
  std::string difference(PyObject* value) const override {
    Py_ssize_t now = length(value);
    std::string text = "length was " + std::to_string(length_) + ", ";
    return text + (now < 0 ? "cannot be read: " + take_error_text() : "is " + std::to_string(now));
  }
  Verdict record(PyObject* value, Recorder& recorder) const override {
    bool list = PyList_CheckExact(value), dict = is_plain_dict(value);
    if (!list && !dict && !PyTuple_CheckExact(value)) return Verdict::Residual;
    if (length(value) != length_) return Verdict::Fail;
    if (!dict && (list || !recorder.is_pinned()))
      recorder.number(&reinterpret_cast<PyVarObject*>(value)->ob_size);
    if (dict && !recorder.dict_content(value)) return Verdict::Residual;
    return Verdict::Covered;
  }

 private:
  static Py_ssize_t length(PyObject* value) {
    if (PyList_CheckExact(value) || PyTuple_CheckExact(value)) return Py_SIZE(value);
    if (is_plain_dict(value)) return PyDict_GET_SIZE(value);
    return PyObject_Size(value);
  }
  Py_ssize_t length_;
};

class DictKeysLeaf : public Leaf {
 public:
  DictKeysLeaf(PyObject* payload, Liveness* liveness)
      : keys_(Ref::steal(checked(PySequence_List(payload)))) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(keys_.get()); i++) {
      PyObject* key = PyList_GET_ITEM(keys_.get(), i);
      bool constant = is_immutable_constant(key);
      identities_.push_back(constant ? Held() : Held(key, liveness));
      // Only the identity of the others is kept, weakly.
      if (!constant) PyList_SetItem(keys_.get(), i, Py_NewRef(Py_None));
    }
  }
  int check(PyObject* value) const override {
    if (PyDict_CheckExact(value)) return check_dict(value);
    Ref now = Ref::steal(PySequence_List(value));
    if (!now) return -1;
    size_t n = identities_.size();
    if (static_cast<size_t>(PyList_GET_SIZE(now.get())) != n) return 0;
    for (size_t i = 0; i < n; i++)
      if (int same = same_key(i, PyList_GET_ITEM(now.get(), i)); same != 1) return same;
    return 1;
  }
  std::string expected() const override { return "has keys " + keys_text(); }
  std::string difference(PyObject* value) const override {
    Ref now = Ref::steal(PySequence_List(value));
    if (!now) return "keys cannot be read: " + take_error_text();
    return "keys were " + keys_text() + ", are " + short_repr(now.get());
  }
  Verdict record(PyObject* value, Recorder& recorder) const override {
    // An OrderedDict can be reordered without a change of its storage.
    if (!PyDict_CheckExact(value)) return Verdict::Residual;
    int same = check_dict(value);
    if (same < 0) PyErr_Clear();
    if (same != 1) return Verdict::Fail;
    return recorder.dict_order(value) ? Verdict::Covered : Verdict::Residual;
  }
  int traverse(visitproc visit, void* arg) const override {
    for (const Held& held : identities_)
      if (int stop = held.traverse(visit, arg)) return stop;
    Py_VISIT(keys_.get());
    return 0;
  }

 private:
  int same_key(size_t index, PyObject* key) const {
    if (identities_[index].address() != nullptr) return identities_[index].is(key);
    return exactly_equal(PyList_GET_ITEM(keys_.get(), static_cast<Py_ssize_t>(index)), key);
  }
  int check_dict(PyObject* dict) const {
    size_t n = identities_.size(), i = 0;
    if (static_cast<size_t>(PyDict_GET_SIZE(dict)) != n) return 0;
    Py_ssize_t position = 0;
    PyObject *key, *item;
    while (i < n && PyDict_Next(dict, &position, &key, &item))
      if (int same = same_key(i++, key); same != 1) return same;
    return i == n;
  }
  std::string keys_text() const {
    std::string text = "[";
    for (size_t i = 0; i < identities_.size(); i++) {
      PyObject* key = PyList_GET_ITEM(keys_.get(), static_cast<Py_ssize_t>(i));
      text += (i ? ", " : "") + (identities_[i].address() ? identities_[i].text() : short_repr(key));
      if (text.size() > 200) return text + ", ...]";
    }
    return text + "]";
  }

  Ref keys_;                      // the constant ones, None in place of the others
  std::vector<Held> identities_;  // empty for the constant ones
};

class ContainsLeaf : public Leaf {
 public:
  explicit ContainsLeaf(PyObject* payload)
      : key_(Ref::borrow(part(payload, 0))), present_(truth(part(payload, 1))) {}
  int check(PyObject* value) const override {
    int found = PyDict_Check(value) ? PyDict_Contains(value, key_.get())
                                    : PySequence_Contains(value, key_.get());
    return found < 0 ? -1 : (found != 0) == present_;
  }
  std::string expected() const override {
    return (present_ ? "contains " : "does not contain ") + short_repr(key_.get());
  }
  std::string difference(PyObject*) const override {
    return present_ ? "no longer contains " + short_repr(key_.get())
                    : "now contains " + short_repr(key_.get());
  }
  bool runs_python() const override { return true; }
  Verdict record(PyObject* value, Recorder& recorder) const override {
    if (!PyDict_Check(value)) return Verdict::Residual;
    bool safe = true;
    PyObject* item = plain_dict_item(value, key_.get(), &safe);
    if (!safe) return Verdict::Residual;
    if ((item != nullptr) != present_) return Verdict::Fail;
    return recorder.dict_content(value) ? Verdict::Covered : Verdict::Residual;
  }
  int traverse(visitproc visit, void* arg) const override {
    Py_VISIT(key_.get());
    return 0;
  }

 private:
  Ref key_;
  bool present_;
};

class HasAttrLeaf : public Leaf {
 public:
  explicit HasAttrLeaf(PyObject* payload)
      : name_(Ref::borrow(part(payload, 0))), present_(truth(part(payload, 1))) {}
  int check(PyObject* value) const override {
    Ref attribute = Ref::steal(PyObject_GetAttr(value, name_.get()));
    if (!attribute) {
      if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return -1;
      PyErr_Clear();
    }
    return static_cast<bool>(attribute) == present_;
  }
  std::string expected() const override {
    return (present_ ? "has attribute " : "has no attribute ") + short_repr(name_.get());
  }
  std::string difference(PyObject*) const override {
    return (present_ ? "no longer has attribute " : "now has attribute ") + short_repr(name_.get());
  }
  bool runs_python() const override { return true; }
  Verdict record(PyObject* value, Recorder& recorder) const override {
    if (PyType_Check(value)) return Verdict::Residual;
    Found found = recorder.find_attribute(value, name_.get());
    if (found.where == Found::Unknown) return Verdict::Residual;
    bool present = found.where != Found::Nowhere;
    // A descriptor may raise AttributeError; a plain function only binds.
    if (found.where == Found::InClass && !PyFunction_Check(found.object) &&
        may_be_descriptor(found.object))
      return Verdict::Residual;
    if (!present && has_fallback(value)) return Verdict::Residual;
    return present == present_ ? Verdict::Covered : Verdict::Fail;
  }

 private:
  // Classes, and modules, may define what to do about a missing attribute.
  static bool has_fallback(PyObject* value) {
    static PyObject* name = PyUnicode_InternFromString("__getattr__");
    return PyModule_Check(value) || _PyType_Lookup(Py_TYPE(value), name) != nullptr;
  }

  Ref name_;
  bool present_;
};

class NoInstanceAttrLeaf : public Leaf {
 public:
  explicit NoInstanceAttrLeaf(PyObject* payload) : name_(Ref::borrow(payload)) {}
  int check(PyObject* value) const override {
    PyObject* dict = compat_instance_dict(value);
    if (dict == nullptr) return 1;  // no dict at all, as with __slots__
    int found = PyDict_Contains(dict, name_.get());
    return found < 0 ? -1 : !found;
  }
  std::string expected() const override {
    return "has no instance attribute " + short_repr(name_.get());
  }
  std::string difference(PyObject*) const override {
    return "now has an instance attribute " + short_repr(name_.get());
  }
  Verdict record(PyObject* value, Recorder& recorder) const override {
    PyObject* dict = recorder.instance_dict(value);
    if (dict == nullptr) return Verdict::Residual;
    bool safe = true;
    PyObject* item = plain_dict_item(dict, name_.get(), &safe);
    if (!safe) return Verdict::Residual;
    if (item != nullptr) return Verdict::Fail;
    return recorder.dict_content(dict) ? Verdict::Covered : Verdict::Residual;
  }

 private:
  Ref name_;
};

// The same code in the same globals, whose address is compared: the function that is the payload need not live on.
class FunctionCodeLeaf : public Leaf {
 public:
  FunctionCodeLeaf(PyObject* payload, Liveness* liveness) {
    if (!PyFunction_Check(payload)) {
      PyErr_SetString(PyExc_TypeError, "the payload of a 'function_code' guard is a function");
      throw PythonError();
    }
    code_ = Held(PyFunction_GET_CODE(payload), liveness);
    globals_ = PyFunction_GET_GLOBALS(payload);
  }
  int check(PyObject* value) const override {
    return PyFunction_Check(value) && code_.is(PyFunction_GET_CODE(value)) &&
           PyFunction_GET_GLOBALS(value) == globals_;
  }
  std::string expected() const override { return "has the code " + code_.text(); }
  std::string difference(PyObject* value) const override {
    if (!PyFunction_Check(value)) return "was a function, is " + short_repr(value);
    if (code_.is(PyFunction_GET_CODE(value))) return "has the same code, but other globals";
    return "code was " + code_.text() + ", is " + short_repr(PyFunction_GET_CODE(value));
  }
  Verdict record(PyObject* value, Recorder& recorder) const override {
    if (!check(value)) return Verdict::Fail;
    // A function's globals stay what they are.
    recorder.pointer(&reinterpret_cast<PyFunctionObject*>(value)->func_code, code_.address());
    return Verdict::Covered;
  }
  int traverse(visitproc visit, void* arg) const override { return code_.traverse(visit, arg); }

 private:
  Held code_;
  PyObject* globals_;
};

// The object at an address, which nothing of ours keeps alive.
class AddressLeaf : public Leaf {
 public:
  explicit AddressLeaf(PyObject* payload) : address_(PyLong_AsVoidPtr(payload)) {
    if (PyErr_Occurred()) throw PythonError();
  }
  int check(PyObject* value) const override { return value == address_; }
  std::string expected() const override { return "is the same object"; }
  std::string difference(PyObject*) const override { return "is another object"; }

 private:
  void* address_;
};

class TypeAttrLeaf : public Leaf {
 public:
  TypeAttrLeaf(PyObject* payload, Liveness* liveness) : name_(Ref::borrow(part(payload, 0))) {
    bool found = PyTuple_GET_SIZE(payload) > 2 ? truth(part(payload, 2))
                                               : part(payload, 1) != Py_None;
    if (found) object_ = Held(part(payload, 1), liveness);
  }
  int check(PyObject* value) const override {
    return object_.is(_PyType_Lookup(Py_TYPE(value), name_.get()));
  }
  std::string expected() const override {
    return "has class attribute " + short_repr(name_.get()) + ": " + object_.text();
  }
  std::string difference(PyObject* value) const override {
    PyObject* now = _PyType_Lookup(Py_TYPE(value), name_.get());
    return "class attribute " + short_repr(name_.get()) + " was " + object_.text() + ", is " +
           short_repr(now);
  }
  Verdict record(PyObject* value, Recorder& recorder) const override {
    if (!check(value)) return Verdict::Fail;
    bool pinned = recorder.type_of(value) && recorder.attributes_of_type(Py_TYPE(value));
    return pinned ? Verdict::Covered : Verdict::Residual;
  }
  int traverse(visitproc visit, void* arg) const override { return object_.traverse(visit, arg); }

 private:
  Ref name_;
  Held object_;
};

class TypeAttrTypeLeaf : public Leaf {
 public:
  TypeAttrTypeLeaf(PyObject* payload, Liveness* liveness)
      : name_(Ref::borrow(part(payload, 0))), type_(part(payload, 1), liveness) {}
  int check(PyObject* value) const override {
    PyObject* found = _PyType_Lookup(Py_TYPE(value), name_.get());
    return found != nullptr && type_.is(reinterpret_cast<PyObject*>(Py_TYPE(found)));
  }
  std::string expected() const override {
    return "has class attribute " + short_repr(name_.get()) + " of type " + type_.text();
  }
  std::string difference(PyObject* value) const override {
    PyObject* now = _PyType_Lookup(Py_TYPE(value), name_.get());
    return "class attribute " + short_repr(name_.get()) + " was of type " + type_.text() + ", is " +
           short_repr(now);
  }
  Verdict record(PyObject* value, Recorder& recorder) const override {
    if (!check(value)) return Verdict::Fail;
    bool pinned = recorder.type_of(value) && recorder.attributes_of_type(Py_TYPE(value));
    return pinned ? Verdict::Covered : Verdict::Residual;
  }
  int traverse(visitproc visit, void* arg) const override { return type_.traverse(visit, arg); }

 private:
  Ref name_;
  Held type_;
};

class PredicateLeaf : public Leaf {
 public:
  explicit PredicateLeaf(PyObject* payload) : function_(Ref::borrow(payload)) {}
  int check(PyObject* value) const override {
    Ref result = Ref::steal(PyObject_CallOneArg(function_.get(), value));
    return result ? PyObject_IsTrue(result.get()) : -1;
  }
  std::string expected() const override { return "satisfies " + name(); }
  std::string difference(PyObject* value) const override {
    return "no longer satisfies " + name() + ", is " + short_repr(value);
  }
  bool runs_python() const override { return true; }
  int traverse(visitproc visit, void* arg) const override {
    Py_VISIT(function_.get());
    return 0;
  }

 private:
  std::string name() const {
    Ref name = Ref::steal(PyObject_GetAttrString(function_.get(), "__name__"));
    if (!name) PyErr_Clear();
    return name && PyUnicode_Check(name.get()) ? utf8(name.get()) : short_repr(function_.get());
  }
  Ref function_;
};

// A predicate about what is under these keys of a dict, or of an object's own: it is not asked about literals, nor about
// tensors that nobody refers to weakly.
class UnnoticedLeaf : public PredicateLeaf {
 public:
  explicit UnnoticedLeaf(PyObject* payload)
      : PredicateLeaf(part(payload, 1)), names_(Ref::borrow(part(payload, 0))) {
    part(names_.get(), 0);
  }
  int check(PyObject* value) const override {
    PyObject* dict = PyDict_Check(value) ? value : compat_instance_dict(value);
    if (dict == nullptr) return PredicateLeaf::check(value);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names_.get()); i++) {
      PyObject* item = PyDict_GetItemWithError(dict, PyTuple_GET_ITEM(names_.get(), i));
      if (item == nullptr && PyErr_Occurred()) return -1;
      if (item != nullptr && !is_harmless(item)) return PredicateLeaf::check(value);
    }
    return 1;
  }

 private:
  static bool is_harmless(PyObject* item) {
    if (item == Py_None || PyBool_Check(item)) return true;
    if (PyLong_CheckExact(item) || PyFloat_CheckExact(item) || PyUnicode_CheckExact(item)) return true;
    return is_plain_tensor(item) && *PyObject_GET_WEAKREFS_LISTPTR(item) == nullptr;
  }
  Ref names_;
};

}  // namespace

std::unique_ptr<Leaf> make_leaf(const std::string& kind, PyObject* payload, Liveness* liveness) {
  if (kind == "type") return std::make_unique<TypeLeaf>(payload, liveness);
  if (kind == "id") return std::make_unique<IdLeaf>(payload, liveness);
  if (kind == "address") return std::make_unique<AddressLeaf>(payload);
  if (kind == "not_among") return std::make_unique<NotAmongLeaf>(payload);
  if (kind == "none") return std::make_unique<IdLeaf>(Py_None, liveness);
  if (kind == "constant") return std::make_unique<ConstantLeaf>(payload);
  if (kind == "length") return std::make_unique<LengthLeaf>(payload);
  if (kind == "dict_keys") return std::make_unique<DictKeysLeaf>(payload, liveness);
  if (kind == "contains") return std::make_unique<ContainsLeaf>(payload);
  if (kind == "has_attr") return std::make_unique<HasAttrLeaf>(payload);
  if (kind == "no_instance_attr") return std::make_unique<NoInstanceAttrLeaf>(payload);
  if (kind == "function_code") return std::make_unique<FunctionCodeLeaf>(payload, liveness);
  if (kind == "type_attr") return std::make_unique<TypeAttrLeaf>(payload, liveness);
  if (kind == "type_attr_type") return std::make_unique<TypeAttrTypeLeaf>(payload, liveness);
  if (kind == "unnoticed") return std::make_unique<UnnoticedLeaf>(payload);
  if (kind == "predicate") return std::make_unique<PredicateLeaf>(payload);
  if (auto leaf = make_tensor_leaf(kind, payload, liveness)) return leaf;
  if (auto leaf = make_lookups_leaf(kind, payload, liveness)) return leaf;
  if (auto leaf = make_class_leaf(kind, payload, liveness)) return leaf;
  return make_global_leaf(kind, payload);
}

}  // namespace guards
