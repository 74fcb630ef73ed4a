// What a replay of a device graph gives its caller: `Replay(spec)`, see inductor/runtime/device_graph.py.
#pragma once

#include <Python.h>

namespace framegraph {

// moved(arguments, where: dict[int, int], besides: dict[int, Any]) -> list[int]: see replay.cpp's table of methods.
PyObject* moved(PyObject* module, PyObject* const* args, Py_ssize_t count);

// Adds the Replay type to the module; false with a Python error set on failure.
bool add_replay_type(PyObject* module);

}  // namespace framegraph
