// A linked plan in the form that the executor runs. Built once from Python data (program.cpp), immutable afterwards,
// shared by all threads; everything that changes during a call is in executor.cpp's State.
#pragma once

#include <torch/csrc/python_headers.h>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <string>
#include <vector>

#include "library.h"

namespace framegraph {

// Where the memory of a value comes from.
enum class ValueKind : uint8_t {
  Input,     // an argument of the call
  Static,    // a bound parameter, buffer or constant
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
  int64_t where = 0;      // Input/Static: its index; Arena: byte offset; View: the base value
  int64_t offset = 0;     // View: elements from the base's first element
  int64_t nbytes = 0;     // from the first to past the last element
  bool pointer = false;   // some kernel takes its address, or that of a view of it
  bool written = false;   // some step writes it
  bool layout = false;    // someone relies on its strides: a kernel, or a view of it
  bool alone = false;     // Produced: kernels write over it, so nothing else may share its memory
  std::string name;       // for messages
};

enum class Op : uint8_t { Alloc, Free, Kernel, Aten, Call, Check };

struct Instruction {
  Op op;
  uint32_t index;  // Alloc, Free: the value; else into kernels, atens, calls or checks
};

struct KernelCall {
  Kernel function;
  uint32_t first_arg, arg_count;  // into Program::kernel_args
  int64_t total, grain;
};

struct KernelArg {
  uint32_t value;
  int64_t offset;  // bytes
};

// One slot of the boxed stack that is filled on each call.
struct Patch {
  enum Kind : uint8_t { Tensor, TensorList, OptionalTensorList };
  Kind kind;
  uint32_t position;
  std::vector<int32_t> values;  // -1: None
};

struct AtenCall {
  c10::OperatorHandle op;
  std::vector<c10::IValue> stack;  // constants in place, None where a patch goes
  std::vector<Patch> patches;
  std::vector<int32_t> results;  // -1: dropped
};

// A Python callable; `args` is a tree in which a 1-tuple (value,) stands for a tensor.
struct PythonCall {
  PyObject* function;
  PyObject* args;
  PyObject* kwargs;
  std::vector<int32_t> results;
};

// What a kernel found wrong with the data: an int64 that is kPassed, or something to report.
struct CheckPoint {
  static constexpr int64_t kPassed = INT64_MIN;
  KernelArg found;
  bool index_error;     // IndexError, else RuntimeError
  std::string message;  // "{}" in it stands for what was found
};

struct Output {
  enum Kind : uint8_t { Tensor, Same, View, Constant };
  Kind kind;
  uint32_t value = 0;
  std::vector<int64_t> size, stride;
  int64_t offset = 0;
  PyObject* constant = nullptr;
};

struct Program {
  std::vector<Value> values;
  std::vector<Instruction> code;
  std::vector<KernelCall> kernels;
  std::vector<KernelArg> kernel_args;
  std::vector<AtenCall> atens;
  std::vector<PythonCall> calls;
  std::vector<CheckPoint> checks;
  std::vector<Output> outputs;
  std::vector<PyObject*> statics;  // tensors, strong
  std::vector<uint32_t> input_values, static_values;
  std::vector<uint32_t> mutated;         // inputs and statics that the plan writes
  PyObject* library = nullptr;           // keeps the kernels' code loaded
  size_t arena_bytes = 0;
  size_t max_kernel_args = 0;
  bool dispatches = false;   // has Aten or Call instructions
  bool release_gil = false;  // runs long enough for other threads to care

  Program() = default;
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Fills an empty program from the dict made by inductor/runtime/link.py. Throws on a malformed one.
  void load(PyObject* spec);

  int traverse(visitproc visit, void* arg) const;
};

}  // namespace framegraph
