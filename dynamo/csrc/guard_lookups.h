// The part of the lookups guard (guard_lookups.cpp) that shares the watcher of dicts with guard_program.cpp.
#pragma once

#include <Python.h>

namespace guards {

void init_lookups();

// Called for every change of a watched dict, before it.
void lookups_in_dict_changed(PyObject* dict, bool dies);
// Whether lookups guards rely on the dict being watched.
bool holds_lookups(PyObject* dict);
// Has the process's watcher of dicts watch this one; false, without an exception, if it cannot.
bool watch_dict(PyObject* dict);

}  // namespace guards
