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

/* Whether an instance of a class with a dict may have attributes in it: told without making the dict of one that has
 * none. Since 3.11 such an instance has, before its header, a pointer to its dict, and until that is made to the values
 * of its attributes, whose number stands two bytes before them; 3.12 keeps both pointers in one word, with a bit that
 * tells them apart; 3.13 keeps values inside the instance, of classes that are not extended in C. */
static inline int compat_may_have_attributes(PyObject *object)
{
    if (!PyType_HasFeature(Py_TYPE(object), Py_TPFLAGS_MANAGED_DICT)) {
        return 1;
    }
#if PY_VERSION_HEX >= 0x030d0000
    return PyType_HasFeature(Py_TYPE(object), Py_TPFLAGS_INLINE_VALUES) || ((PyObject **)object)[-3] != NULL;
#elif PY_VERSION_HEX >= 0x030c0000
    const char *word = ((char **)object)[-3];
    if (word == NULL || !((uintptr_t)word & 1)) {
        return word != NULL;
    }
    return *(const uint8_t *)(word + 1 - 2) != 0;
#else
    const char *values = ((char **)object)[-4];
    return ((PyObject **)object)[-3] != NULL || (values != NULL && *(const uint8_t *)(values - 2) != 0);
#endif
}

/* The instance dict, borrowed; NULL (no exception) if there is none. */
static inline PyObject *compat_instance_dict(PyObject *object)
{
    PyObject **slot = compat_dict_slot(object);
    return slot == NULL ? NULL : *slot;
}

#endif
