// A linked plan in the form that the executor runs. Built once from Python data (program.cpp), shared by all threads,
// immutable afterwards but for the derived statics; everything that changes during a call is in executor.cpp's State.
#pragma once

#include <torch/csrc/python_headers.h>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "../../runner/integers.h"
#include "derivation.h"
#include "driver.h"
#include "library.h"

namespace framegraph {

// A number of the plan: known, or computed for each call in a register.
struct Number {
  int64_t value = 0;
  int32_t reg = -1;

  int64_t get(const int64_t* registers) const { return reg < 0 ? value : registers[reg]; }
};

// How a register is computed; see inductor/runtime/size_program.py.
struct Register {
  enum Kind : uint8_t { Int, Dim, Result, Const, Computed };
  uint32_t stage;
  Kind kind;
  int64_t a, b;     // Computed: registers
  integers::Op op;  // Computed
};

// Where the memory of a value comes from.
enum class ValueKind : uint8_t {
  Input,     // an argument of the call
  Static,    // a bound parameter, buffer or constant
  Derived,   // made of static ones, and kept
  Own,       // a tensor of its own, made by an Alloc instruction
  Arena,     // a window of the call's arena
  Produced,  // the result of an Aten or Call instruction
  View,      // a strided window of another value
};

struct Value {
  ValueKind kind;
  c10::ScalarType dtype;
  c10::Device device = c10::Device(c10::DeviceType::CPU);
  std::vector<int64_t> size, stride;
  int64_t where = 0;      // Input/Static/Derived: its index; Arena: byte offset; View: the base value
  int64_t offset = 0;     // View: elements from the base's first element
  int64_t nbytes = 0;     // from the first to past the last element
  bool pointer = false;   // some kernel takes its address, or that of a view of it
  bool written = false;   // some step writes it
  bool layout = false;    // someone relies on its strides: a kernel, or a view of it
  bool let_go = false;    // Input: has a Free instruction, for calls that own their arguments
  bool alone = false;     // Produced: kernels write over it, so nothing else may share its memory
  bool aligned = false;   // a device kernel relies on an aligned address
  int32_t dynamic = -1;   // into Program::dynamic, if some of its numbers are computed for each call
  std::string name;       // for messages
};

// The numbers of a value that a call computes; the value itself is kept in State.
struct DynamicValue {
  uint32_t value;
  uint32_t stage;  // by which all are known
  std::vector<Number> size, stride;
  Number where, offset, nbytes;
};

enum class Op : uint8_t { Alloc, Free, Kernel, Launch, Aten, Call, Check };

struct Instruction {
  Op op;
  uint32_t index;  // Alloc, Free: the value; else into kernels, launches, atens, calls or checks
};

struct KernelCall {
  Kernel function;
  uint32_t first_arg, arg_count;  // into Program::kernel_args
  int64_t total, grain;
  int32_t dynamic;   // into Program::dynamic_kernels, or -1
  std::string name;  // in profiles
};

struct KernelArg {
  uint32_t value;
  int64_t offset;  // bytes
};

// The numbers of a kernel call that are computed for each call of the plan.
struct DynamicKernel {
  Number total, grain;
  std::vector<std::pair<uint32_t, uint32_t>> offsets;  // argument, register of its offset
};

// A kernel on a device. Its parameters are State's slots from `first_slot` on: addresses, numbers, hidden ones.
struct LaunchCall {
  std::shared_ptr<const DeviceCode> code;
  PyObject* careful;  // () -> DeviceKernel that takes any addresses, or None
  Number programs;
  uint32_t first_arg, arg_count;  // into Program::kernel_args
  uint32_t first_slot;
  uint32_t stream;  // into Program::devices
  std::vector<Number> numbers;
  std::vector<std::pair<uint32_t, uint32_t>> offsets;  // argument, register of its offset
  std::string name;                                    // in profiles
  mutable std::shared_ptr<const DeviceCode> careful_code{};  // made when first needed; guarded by the GIL
};

// One slot of the boxed stack that is filled on each call.
struct Patch {
  enum Kind : uint8_t { Tensor, TensorList, OptionalTensorList, Int, IntList, Float, Bool, NumberTensor };
  Kind kind;
  uint32_t position;
  std::vector<int32_t> values;  // -1: None
  std::vector<Number> numbers;
};

// A result of an operator, or one of its sizes, that is the value of a symbol.
struct Bind {
  uint32_t reg;
  uint32_t result;
  int32_t dim;  // -1: the result itself
};

struct AtenCall {
  c10::OperatorHandle op;
  std::vector<c10::IValue> stack;  // constants in place, None where a patch goes
  std::vector<Patch> patches;
  std::vector<int32_t> results;  // -1: dropped
  std::vector<Bind> binds;
  uint32_t stage = 0;  // of the registers that the binds give values for
  bool fresh = true;   // by its schema, no result is in the memory of an argument
};

// A Python callable; `args` is a tree in which a 1-tuple (value,) stands for a tensor, a pair (register, 0) for an int.
struct PythonCall {
  PyObject* function;
  PyObject* args;
  PyObject* kwargs;
  std::vector<int32_t> results;
};

// A kernel's finding about wrong data: an int64 that is kPassed, or a number to report.
struct CheckPoint {
  static constexpr int64_t kPassed = INT64_MIN;
  uint32_t value;
  Number offset;            // bytes
  bool index_error;         // IndexError, else RuntimeError
  std::string message;      // "{}" in it stands for the number found, "{0}", "{1}", ... for `sizes`
  std::vector<Number> sizes;
};

struct Output {
  enum Kind : uint8_t { Tensor, Same, View, Reshaped, Constant, Int };
  Kind kind;
  uint32_t value = 0;
  std::vector<Number> size, stride;
  Number offset;  // Int: the number
  bool of_detached = false;  // View: of what detach() makes of the value
  bool detached = false;     // View: detach() of the view
  bool data = false;         // View: `.data` of the view
  PyObject* constant = nullptr;
};

struct Program {
  std::vector<Value> values;
  std::vector<Instruction> code;
  std::vector<KernelCall> kernels;
  std::vector<KernelArg> kernel_args;
  std::vector<LaunchCall> launches;
  std::vector<std::shared_ptr<const DeviceContext>> devices;  // that launches are on
  size_t slot_count = 0;                                      // parameters of all launches
  std::vector<AtenCall> atens;
  std::vector<PythonCall> calls;
  std::vector<CheckPoint> checks;
  std::vector<Output> outputs;
  std::vector<PyObject*> statics;  // tensors, strong
  std::vector<uint32_t> input_values, static_values, derived_values;
  std::unique_ptr<Derivation> derivation;  // of the Derived values, if there are any
  std::vector<Register> registers;
  std::vector<std::vector<uint32_t>> stages;  // the registers to compute in each, in order
  std::vector<DynamicValue> dynamic;
  std::vector<DynamicKernel> dynamic_kernels;
  std::vector<Number> sizes;         // the kernels' array of sizes
  std::vector<bool> number_inputs;   // by argument of the call: whether it is an int; empty: none is
  size_t input_count = 0;            // arguments of a call
  std::vector<std::pair<uint32_t, uint32_t>> mutated;  // inputs and statics that the plan writes, and how often they
                                                       // would be in eager, as the version counter sees it
  uint32_t first_write = 0;              // the instruction that does, before the others
  PyObject* library = nullptr;           // keeps the kernels' code loaded
  Number arena_bytes;
  c10::Device arena_device = c10::Device(c10::DeviceType::CPU);
  size_t max_kernel_args = 0;
  bool dispatches = false;   // has Aten or Call instructions
  bool release_gil = false;  // runs long enough for other threads to care

  Program();
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Fills an empty program from the dict made by inductor/runtime/link.py. Throws on a malformed one.
  void load(PyObject* spec);

  int traverse(visitproc visit, void* arg) const;

  // The sources of the derivation, in a call with these arguments.
  std::vector<const at::Tensor*> sources(PyObject* const* args) const;
};

}  // namespace framegraph
