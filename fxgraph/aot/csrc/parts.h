// A graph in parts, parsed once from the dict that fxgraph/aot/split.py makes: compiled parts, control flow whose bodies
// are compiled, and nodes that Python runs. Values are kept in numbered slots while a call runs.
#pragma once

#include <torch/csrc/python_headers.h>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace framegraph {

using Slots = std::vector<uint32_t>;

// The properties of an earlier part's tensor, as capture saw them, for which a part was compiled.
struct Expected {
  uint32_t slot;
  at::ScalarType dtype;
  bool requires_grad;
  std::vector<int64_t> numbers;     // sizes, then strides
  PyObject* computed = nullptr;     // gives those of the numbers in `given`, if they vary
  std::vector<std::pair<uint32_t, int64_t>> given;  // a slot, and -1, or the dimension of its tensor
};

// An operand for which a body was compiled.
struct Operand {
  PyObject* number = nullptr;  // no tensor
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;
  bool requires_grad = false;
  std::vector<int64_t> size, stride;
};

struct BodyVariant {
  bool grad;  // grad mode
  std::vector<Operand> operands;
  PyObject* function;
  Slots taken;  // positions of the operands that it takes
};

struct Body {
  PyObject* suited;  // (operands in a tuple) -> (function, positions of the operands that it takes)
  size_t most;       // variants
  std::vector<BodyVariant> variants;
};

struct PartStep {
  // Item: of a tuple. Branch: a predicate, then operands. Loop: a predicate, carried tensors, then operands. While: the
  // same without a predicate, which a body of its own gives.
  enum Kind : uint8_t { Compiled, Item, Branch, Loop, While, Plain };
  Kind kind;
  Slots inputs, outputs, dead;  // dead: values without a later use
  PyObject* function = nullptr;  // Compiled: called with the values in `given`
  Slots given;
  PyObject* plain = nullptr;  // inputs -> a tuple of outputs, one operation after the other
  std::vector<Expected> expected;
  Py_ssize_t item = 0;
  size_t carried = 0;
  std::vector<Body> bodies;
  bool without_grad = false;  // Branch, While: for grad mode off, or tensors without gradients
};

struct Parts {
  size_t slots = 0;
  Slots inputs;                                       // of a call
  std::vector<std::pair<uint32_t, PyObject*>> bound;  // parameters, buffers and constants
  std::vector<PartStep> steps;
  Slots results;
  PyObject* arrange = nullptr;  // results -> the return value of a call; null: a tuple of them

  Parts() = default;
  ~Parts();
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  // Throws on a malformed dict.
  void load(PyObject* spec);

  int traverse(visitproc visit, void* arg) const;

 private:
  template <class Visit>
  int visit(Visit visitor) const;
};

// Runs the parts on `args` (borrowed, one per input). Throws C++ exceptions, python_error among them. Needs the GIL.
PyObject* run_parts(Parts& parts, PyObject* const* args);

}  // namespace framegraph
