// The steps from a value to what it holds.
#include "guard_program.h"

namespace guards {

namespace {

Py_ssize_t index_of(PyObject* key) {
  Py_ssize_t index = PyLong_AsSsize_t(key);
  if (index < 0) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a negative index in an accessor");
    throw PythonError();
  }
  return index;
}

PyObject* closure_cell(const Frame& frame, Py_ssize_t index) {
  if (frame.closure == nullptr || !PyTuple_Check(frame.closure)) return nullptr;
  if (index >= PyTuple_GET_SIZE(frame.closure)) return nullptr;
  PyObject* cell = PyTuple_GET_ITEM(frame.closure, index);
  return PyCell_Check(cell) ? cell : nullptr;
}

PyObject* type_error(const char* wanted, PyObject* base) {
  return PyErr_Format(PyExc_TypeError, "not %s but %.100s", wanted, Py_TYPE(base)->tp_name);
}

// dict[key] as a new reference; KeyError if it is missing.
PyObject* dict_item(PyObject* dict, PyObject* key) {
  PyObject* item = PyDict_GetItemWithError(dict, key);
  if (item == nullptr && !PyErr_Occurred()) PyErr_SetObject(PyExc_KeyError, key);
  return Py_XNewRef(item);
}

// ---- roots ------------------------------------------------------------------------------------

class Local : public Accessor {
 public:
  explicit Local(PyObject* key) : index_(index_of(key)) {}
  PyObject* get(PyObject*, const Frame& frame) const override {
    return index_ < frame.local_count ? Py_XNewRef(frame.locals[index_]) : nullptr;
  }

 private:
  Py_ssize_t index_;
};

class Closure : public Accessor {
 public:
  Closure(PyObject* key, bool contents) : index_(index_of(key)), contents_(contents) {}
  PyObject* get(PyObject*, const Frame& frame) const override {
    PyObject* cell = closure_cell(frame, index_);
    if (cell == nullptr) return nullptr;
    return contents_ ? Py_XNewRef(PyCell_GET(cell)) : Py_NewRef(cell);
  }

 private:
  Py_ssize_t index_;
  bool contents_;
};

// The dict of the frame's globals: base of all `Global`s.
class Globals : public Accessor {
 public:
  PyObject* get(PyObject*, const Frame& frame) const override { return Py_XNewRef(frame.globals); }
};

class Module : public Accessor {
 public:
  explicit Module(PyObject* key) : name_(Ref::borrow(key)) {}
  PyObject* get(PyObject*, const Frame&) const override {
    return dict_item(PyImport_GetModuleDict(), name_.get());
  }

 private:
  Ref name_;
};

class Global : public Accessor {
 public:
  explicit Global(PyObject* key) : name_(Ref::borrow(key)) {}
  PyObject* get(PyObject* globals, const Frame& frame) const override {
    PyObject* item = PyDict_GetItemWithError(globals, name_.get());
    if (item != nullptr || PyErr_Occurred() || frame.builtins == nullptr) return Py_XNewRef(item);
    return dict_item(frame.builtins, name_.get());
  }
  Verdict record(PyObject* globals, const Frame& frame, Recorder& recorder,
                 Ref* value) const override {
    bool safe = true;
    PyObject* item = plain_dict_item(globals, name_.get(), &safe);
    if (!safe || !recorder.dict_content(globals)) return Verdict::Residual;
    if (item == nullptr) {
      if (frame.builtins == nullptr || !PyDict_CheckExact(frame.builtins)) return Verdict::Residual;
      item = plain_dict_item(frame.builtins, name_.get(), &safe);
      if (!safe || !recorder.dict_content(frame.builtins)) return Verdict::Residual;
      recorder.uses_builtins(frame.builtins);
    }
    *value = Ref::borrow(item);
    return item == nullptr ? Verdict::Fail : Verdict::Covered;
  }

 private:
  Ref name_;
};

// ---- containers -------------------------------------------------------------------------------

class InstanceDict : public Accessor {
 public:
  PyObject* get(PyObject* base, const Frame&) const override {
    PyObject* dict = compat_instance_dict(base);
    return dict != nullptr ? Py_NewRef(dict) : PyObject_GenericGetDict(base, nullptr);
  }
  Verdict record(PyObject* base, const Frame&, Recorder& recorder, Ref* value) const override {
    PyObject* dict = recorder.instance_dict(base);
    if (dict == nullptr) return Verdict::Residual;
    *value = Ref::borrow(dict);
    return Verdict::Covered;
  }
};

class DictItem : public Accessor {
 public:
  explicit DictItem(PyObject* key) : key_(Ref::borrow(key)) {}
  PyObject* get(PyObject* base, const Frame&) const override {
    return PyDict_Check(base) ? dict_item(base, key_.get()) : type_error("a dict", base);
  }
  Verdict record(PyObject* base, const Frame&, Recorder& recorder, Ref* value) const override {
    if (!PyDict_Check(base)) return Verdict::Fail;
    bool safe = true;
    PyObject* item = plain_dict_item(base, key_.get(), &safe);
    if (!safe) return Verdict::Residual;
    if (item == nullptr) return Verdict::Fail;
    if (!recorder.dict_content(base)) return Verdict::Residual;
    *value = Ref::borrow(item);
    return Verdict::Covered;
  }
  int traverse(visitproc visit, void* arg) const override {
    Py_VISIT(key_.get());
    return 0;
  }

 private:
  Ref key_;
};

// The n-th key or value in the dict's own storage, which neither a subclass's iteration nor the
// order of an OrderedDict changes: that which compiled code loads.
class DictEntry : public Accessor {
 public:
  DictEntry(PyObject* key, bool wants_key) : index_(index_of(key)), wants_key_(wants_key) {}
  PyObject* get(PyObject* base, const Frame&) const override {
    if (!PyDict_Check(base)) return type_error("a dict", base);
    return Py_XNewRef(entry(base));
  }
  Verdict record(PyObject* base, const Frame&, Recorder& recorder, Ref* value) const override {
    if (!PyDict_CheckExact(base) || !recorder.dict_order(base)) return Verdict::Residual;
    *value = Ref::borrow(entry(base));
    return *value ? Verdict::Covered : Verdict::Fail;
  }

 private:
  PyObject* entry(PyObject* dict) const {
    Py_ssize_t position = 0, i = 0;
    PyObject *key, *item;
    while (PyDict_Next(dict, &position, &key, &item))
      if (i++ == index_) return wants_key_ ? key : item;
    return nullptr;
  }
  Py_ssize_t index_;
  bool wants_key_;
};

class SequenceItem : public Accessor {
 public:
  explicit SequenceItem(PyObject* key) : index_(index_of(key)) {}
  PyObject* get(PyObject* base, const Frame&) const override {
    if (PyTuple_Check(base))
      return index_ < PyTuple_GET_SIZE(base) ? Py_NewRef(PyTuple_GET_ITEM(base, index_)) : nullptr;
    if (PyList_Check(base))
      return index_ < PyList_GET_SIZE(base) ? Py_NewRef(PyList_GET_ITEM(base, index_)) : nullptr;
    return type_error("a list or tuple", base);
  }
  Verdict record(PyObject* base, const Frame& frame, Recorder& recorder,
                 Ref* value) const override {
    *value = Ref::steal(get(base, frame));
    PyErr_Clear();
    if (!*value) return Verdict::Fail;
    if (PyTuple_Check(base) && recorder.is_base_pinned()) return Verdict::Covered;
    recorder.number(&reinterpret_cast<PyVarObject*>(base)->ob_size);
    PyObject** items = PySequence_Fast_ITEMS(base);
    if (PyList_Check(base)) recorder.pointer(&reinterpret_cast<PyListObject*>(base)->ob_item, items);
    recorder.pointer(&items[index_], value->get());
    recorder.unpinned();
    return Verdict::Covered;
  }

 private:
  Py_ssize_t index_;
};

class CellContents : public Accessor {
 public:
  PyObject* get(PyObject* base, const Frame&) const override {
    return PyCell_Check(base) ? Py_XNewRef(PyCell_GET(base)) : type_error("a cell", base);
  }
  Verdict record(PyObject* base, const Frame&, Recorder& recorder, Ref* value) const override {
    if (!PyCell_Check(base) || PyCell_GET(base) == nullptr) return Verdict::Fail;
    *value = Ref::borrow(PyCell_GET(base));
    recorder.pointer(&reinterpret_cast<PyCellObject*>(base)->ob_ref, value->get());
    recorder.unpinned();
    return Verdict::Covered;
  }
};

class TypeOf : public Accessor {
 public:
  PyObject* get(PyObject* base, const Frame&) const override {
    return Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(base)));
  }
  Verdict record(PyObject* base, const Frame& frame, Recorder& recorder,
                 Ref* value) const override {
    if (!recorder.type_of(base)) return Verdict::Residual;
    *value = Ref::steal(get(base, frame));
    if (PyType_HasFeature(Py_TYPE(base), Py_TPFLAGS_HEAPTYPE)) recorder.unpinned();
    return Verdict::Covered;
  }
};

// ---- steps that run Python code ---------------------------------------------------------------

class GetItem : public Accessor {
 public:
  explicit GetItem(PyObject* key) : key_(Ref::borrow(key)) {}
  PyObject* get(PyObject* base, const Frame&) const override {
    return PyObject_GetItem(base, key_.get());
  }
  int traverse(visitproc visit, void* arg) const override {
    Py_VISIT(key_.get());
    return 0;
  }

 private:
  Ref key_;
};

class Call : public Accessor {
 public:
  explicit Call(PyObject* key) : function_(Ref::borrow(key)) {}
  PyObject* get(PyObject* base, const Frame&) const override {
    return PyObject_CallOneArg(function_.get(), base);
  }
  int traverse(visitproc visit, void* arg) const override {
    Py_VISIT(function_.get());
    return 0;
  }

 private:
  Ref function_;
};

// base.name. Where nothing but a lookup in the type and the instance dict is involved it can be recorded.
class GetAttr : public Accessor {
 public:
  explicit GetAttr(PyObject* key) : name_(Ref::borrow(key)) {
    if (!PyUnicode_CheckExact(key)) {
      PyErr_SetString(PyExc_TypeError, "the name of an attribute is a str");
      throw PythonError();
    }
  }
  PyObject* get(PyObject* base, const Frame&) const override {
    if (is_name("grad") && is_tensor(base)) return tensor_grad(base);
    return PyObject_GetAttr(base, name_.get());
  }
  Verdict record(PyObject* base, const Frame&, Recorder& recorder, Ref* value) const override {
    if (PyFunction_Check(base)) return record_function(base, recorder, value);
    if (PyMethod_Check(base)) return record_method(base, recorder, value);
    if (PyModule_Check(base) && is_name("__dict__")) return record_dict(base, recorder, value);
    if (PyType_Check(base)) return record_type(base, recorder, value);
    return record_instance(base, recorder, value);
  }

 private:
  Verdict record_function(PyObject* base, Recorder& recorder, Ref* value) const {
    auto* function = reinterpret_cast<PyFunctionObject*>(base);
    const std::pair<const char*, PyObject**> fields[] = {
        {"__code__", &function->func_code},         {"__closure__", &function->func_closure},
        {"__defaults__", &function->func_defaults}, {"__kwdefaults__", &function->func_kwdefaults},
        {"__globals__", &function->func_globals},
    };
    for (auto [field, address] : fields) {
      if (!is_name(field)) continue;
      *value = Ref::borrow(*address != nullptr ? *address : Py_None);
      recorder.pointer(address, *address);
      recorder.unpinned();
      return Verdict::Covered;
    }
    return record_instance(base, recorder, value);
  }

  Verdict record_method(PyObject* base, Recorder& recorder, Ref* value) const {
    if (is_name("__func__")) {
      *value = Ref::borrow(PyMethod_GET_FUNCTION(base));
    } else if (is_name("__self__")) {
      *value = Ref::borrow(PyMethod_GET_SELF(base));
    } else {
      return Verdict::Residual;
    }
    if (!recorder.is_base_pinned()) {
      auto* method = reinterpret_cast<PyMethodObject*>(base);
      recorder.pointer(is_name("__func__") ? &method->im_func : &method->im_self, value->get());
      recorder.unpinned();
    }
    return Verdict::Covered;
  }

  static Verdict record_dict(PyObject* base, Recorder& recorder, Ref* value) {
    // A subclass of the module type may define __getattribute__ or a __dict__ of its own.
    if (!PyModule_CheckExact(base) || !recorder.type_of(base)) return Verdict::Residual;
    *value = Ref::borrow(recorder.instance_dict(base));
    return *value ? Verdict::Covered : Verdict::Residual;
  }

  bool is_name(const char* name) const {
    return PyUnicode_CompareWithASCIIString(name_.get(), name) == 0;
  }

  // An attribute of a class that no metaclass has a say in and that is found as it is.
  Verdict record_type(PyObject* base, Recorder& recorder, Ref* value) const {
    auto* type = reinterpret_cast<PyTypeObject*>(base);
    if (Py_TYPE(base) != &PyType_Type || _PyType_Lookup(&PyType_Type, name_.get()) != nullptr)
      return Verdict::Residual;
    PyObject* attribute = _PyType_Lookup(type, name_.get());
    if (attribute == nullptr) return Verdict::Residual;
    // Functions and properties, looked up in the class, give themselves.
    bool as_it_is = PyFunction_Check(attribute) || Py_TYPE(attribute) == &PyProperty_Type;
    if (!as_it_is && may_be_descriptor(attribute)) return Verdict::Residual;
    *value = Ref::borrow(attribute);
    // __class__ of a heap type can change: then its metaclass is another.
    bool pinned = recorder.type_of(base) && recorder.attributes_of_type(type);
    return pinned ? Verdict::Covered : Verdict::Residual;
  }

  Verdict record_instance(PyObject* base, Recorder& recorder, Ref* value) const {
    Found found = recorder.find_attribute(base, name_.get());
    bool plain = found.where == Found::InInstance ||
                 (found.where == Found::InClass && !may_be_descriptor(found.object));
    if (!plain) return Verdict::Residual;
    *value = Ref::borrow(found.object);
    return Verdict::Covered;
  }

  Ref name_;
};

}  // namespace

std::unique_ptr<Accessor> make_accessor(const std::string& kind, PyObject* key) {
  if (kind == "local") return std::make_unique<Local>(key);
  if (kind == "closure") return std::make_unique<Closure>(key, true);
  if (kind == "closure_cell") return std::make_unique<Closure>(key, false);
  if (kind == "globals") return std::make_unique<Globals>();
  if (kind == "global") return std::make_unique<Global>(key);
  if (kind == "module") return std::make_unique<Module>(key);
  if (kind == "getattr") return std::make_unique<GetAttr>(key);
  if (kind == "instance_dict") return std::make_unique<InstanceDict>();
  if (kind == "dict_item") return std::make_unique<DictItem>(key);
  if (kind == "dict_key") return std::make_unique<DictEntry>(key, true);
  if (kind == "dict_value") return std::make_unique<DictEntry>(key, false);
  if (kind == "sequence_item") return std::make_unique<SequenceItem>(key);
  if (kind == "getitem") return std::make_unique<GetItem>(key);
  if (kind == "type") return std::make_unique<TypeOf>();
  if (kind == "cell_contents") return std::make_unique<CellContents>();
  if (kind == "call") return std::make_unique<Call>(key);
  return nullptr;
}

}  // namespace guards
