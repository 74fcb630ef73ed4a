/* What differs between CPython versions for the guard tree: compat.h's part for C++, which cannot include the
 * interpreter's internal headers. No other file of the guard tree looks at PY_VERSION_HEX. */
#ifndef FRAMEGRAPH_GUARD_COMPAT_H
#define FRAMEGRAPH_GUARD_COMPAT_H

#include <Python.h>

/* How to see that a dict has changed: 3.11 has a version tag, unique over all dicts and changed by each write;
 * 3.12 deprecates it and has callbacks. */
#if PY_VERSION_HEX >= 0x030c0000
#define COMPAT_DICT_WATCHERS 1
#else
#define COMPAT_DICT_WATCHERS 0
static inline const uint64_t *compat_dict_version(PyObject *dict)
{
    return &((PyDictObject *)dict)->ma_version_tag;
}
#endif

/* Since 3.13 the dict of an instance may share the values that are stored inline in the instance, and setting an
 * attribute of the instance then changes the dict without a callback (seen on 3.13.0). Returns the number of values,
 * NULL for unset ones, that such a dict shares: 0 for any other dict. `*header` holds their number and validity. */
static inline size_t compat_shared_values(PyObject *dict, const void **header, PyObject ***values)
{
#if PY_VERSION_HEX >= 0x030d0000
    struct shared_values {
        uint8_t capacity, size, embedded, valid;
        PyObject *values[1];
    } *shared = (struct shared_values *)((PyDictObject *)dict)->ma_values;
    if (shared == NULL || !shared->embedded) {
        return 0;
    }
    *header = shared;
    *values = shared->values;
    return shared->capacity;
#else
    (void)dict, (void)header, (void)values;
    return 0;
#endif
}

/* The tag that changes when an attribute of a type, or of a base of it, does; 0: the type has none. */
static inline unsigned compat_type_version(PyTypeObject *type)
{
#if PY_VERSION_HEX >= 0x030c0000
    if (!PyUnstable_Type_AssignVersionTag(type)) {
        return 0;
    }
#else
    if (!PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG)) {
        return 0;
    }
#endif
    return type->tp_version_tag;
}

/* Where an object keeps its dict; NULL for an object without. The dict is made if it exists only as inline values. */
static inline PyObject **compat_dict_slot(PyObject *object)
{
    return _PyObject_GetDictPtr(object);
}

/* The instance dict, borrowed; NULL (no exception) if there is none. */
static inline PyObject *compat_instance_dict(PyObject *object)
{
    PyObject **slot = compat_dict_slot(object);
    return slot == NULL ? NULL : *slot;
}

#endif
