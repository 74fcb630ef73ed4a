// A loaded kernel library: `Library(path)` opens it, `address(symbol)` finds a kernel.
#pragma once

#include <Python.h>

#include <cstdint>

namespace framegraph {

// A generated function: runs [begin, end) of the kernel's parallel extent over the pointers in `ptrs`.
using Kernel = void (*)(void* const* ptrs, int64_t begin, int64_t end);

// Adds the Library type to the module; false with a Python error set on failure.
bool add_library_type(PyObject* module);

}  // namespace framegraph
