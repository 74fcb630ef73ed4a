// Attribute lookup that is recorded: only what the type, its version and the instance dict decide.
#include "guard_program.h"

namespace guards {

namespace {

// A class written in Python can get __get__ and __set__ later.
bool is_changeable(PyObject* object) {
  return PyType_HasFeature(Py_TYPE(object), Py_TPFLAGS_HEAPTYPE);
}

// Attribute lookup of `type` begins as object.__getattribute__ does (a __getattr__ comes later).
bool finds_generically(PyTypeObject* type) {
  static PyObject* name = PyUnicode_InternFromString("__getattribute__");
  static PyObject* generic = _PyType_Lookup(&PyBaseObject_Type, name);
  static PyObject* of_module = _PyType_Lookup(&PyModule_Type, name);
  if (type->tp_getattro == PyObject_GenericGetAttr) return true;
  PyObject* found = _PyType_Lookup(type, name);
  return found != nullptr && (found == generic || found == of_module);
}

}  // namespace

bool may_be_descriptor(PyObject* object) {
  return is_changeable(object) || Py_TYPE(object)->tp_descr_get != nullptr;
}

Found Recorder::find_attribute(PyObject* object, PyObject* name) {
  constexpr Found unknown = {Found::Unknown, nullptr};
  PyTypeObject* type = Py_TYPE(object);
  if (PyType_Check(object) || !finds_generically(type)) return unknown;
  PyObject* in_type = _PyType_Lookup(type, name);
  if (in_type != nullptr && (is_changeable(in_type) || Py_TYPE(in_type)->tp_descr_set != nullptr))
    return unknown;
  if (!type_of(object) || !attributes_of_type(type)) return unknown;
  PyObject** slot = compat_dict_slot(object);
  if (slot != nullptr) {
    // A dict that does not exist yet could come to be without a trace.
    PyObject* dict = instance_dict(object);
    bool safe = true;
    PyObject* item = dict == nullptr ? nullptr : plain_dict_item(dict, name, &safe);
    if (dict == nullptr || !safe || !dict_content(dict)) return unknown;
    if (item != nullptr) return {Found::InInstance, item};
  }
  if (in_type != nullptr) return {Found::InClass, in_type};
  return {Found::Nowhere, nullptr};
}

}  // namespace guards
