// Runs a Program: one State per call in flight.
#pragma once

#include <memory>
#include <vector>

#include "arena.h"
#include "program.h"

namespace framegraph {

// The variables of one call. Reused between calls; holds no tensors while idle.
struct State {
  explicit State(const Program& program)
      : tensors(program.values.size()),
        base(program.values.size() + 2),
        pointers(program.max_kernel_args),
        slots(program.slot_count),
        streams(program.devices.size()),
        registers(program.registers.size()),
        sizes(program.sizes.size()) {
    for (const DynamicValue& item : program.dynamic) values.push_back(program.values[item.value]);
    for (const LaunchCall& call : program.launches) {
      uint64_t* numbers = slots.data() + call.first_slot + call.arg_count;
      for (const Number& number : call.numbers) *numbers++ = static_cast<uint64_t>(number.value);
    }
    for (uint64_t& slot : slots) parameters.push_back(&slot);
  }

  std::vector<at::Tensor> tensors;  // by value: Own, Produced, owned Input, and whatever had to become a tensor
  std::vector<char*> base;          // by value: the first element; then the arena, then `sizes`
  std::vector<void*> pointers;      // arguments of the kernel that runs
  std::vector<uint64_t> slots;      // parameters of all launches; known numbers are there once and for all
  std::vector<void*> parameters;    // their addresses
  std::vector<void*> streams;       // by device
  std::vector<c10::IValue> stack;   // arguments of the aten op that runs
  std::vector<int64_t> registers;   // kept from call to call: the same sizes are not computed again
  std::vector<int64_t> sizes;       // the kernels' array of sizes
  std::vector<Value> values;        // those with computed numbers, as they are in this call
  bool known = false;               // whether the registers of stage 0 are those of the last call
};

// Runs the program on `args` (borrowed, one tensor per Input) and returns the tuple of outputs. Throws C++ exceptions,
// python_error among them. Needs the GIL.
PyObject* execute(const Program& program, State& state, PyObject* const* args);

// The same; returns a pair of the outputs and a tensor of the arena (None without one), which stays as it is while that
// tensor lives.
PyObject* execute_keeping(const Program& program, State& state, PyObject* const* args);

// The same as execute, of references that the program takes over, leaving null: it lets each tensor go after its last use.
PyObject* execute_owning(const Program& program, State& state, std::vector<PyObject*>& args);

}  // namespace framegraph
