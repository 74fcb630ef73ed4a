// Runs a Program: one State per call in flight.
#pragma once

#include <memory>
#include <vector>

#include "arena.h"
#include "program.h"

namespace framegraph {

// What one call changes. Reused between calls; holds no tensors while idle.
struct State {
  explicit State(const Program& program)
      : tensors(program.values.size()), base(program.values.size() + 1), pointers(program.max_kernel_args) {}

  std::vector<at::Tensor> tensors;  // by value: Own, Produced, and whatever had to become a tensor
  std::vector<char*> base;          // by value: the first element; last: the arena
  std::vector<void*> pointers;      // arguments of the kernel that runs
  std::vector<c10::IValue> stack;   // arguments of the aten op that runs
};

// Runs the program on `args` (borrowed, one tensor per Input) and returns the tuple of outputs. Throws C++ exceptions,
// python_error among them. Needs the GIL.
PyObject* execute(const Program& program, State& state, PyObject* const* args);

}  // namespace framegraph
