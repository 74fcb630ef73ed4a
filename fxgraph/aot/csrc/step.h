// One compiled training graph: what a call of it needs, parsed once from the dict that fxgraph/aot/training.py makes.
// Immutable afterwards, but for the backward variants, which the GIL guards; shared by all calls and their nodes.
#pragma once

#include <torch/csrc/python_headers.h>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace framegraph {

// One result of the torch-level graph; see fxgraph.aot.functional.OutputSpec.
struct Output {
  enum Kind : uint8_t { Value, Input, AliasOfInput, Same, AliasOfOutput, AliasOfValue, Constant };
  Kind kind;
  uint32_t index;
  bool view;      // size, stride and offset describe a view of the source
  bool detached;  // does not require grad, whatever it is a view of
  torch::autograd::CreationMeta creation;
  std::vector<int64_t> size, stride;
  int64_t offset;
  PyObject* constant;
};

// Where a tensor that the backward needs is found after the forward.
struct Saved {
  enum From : uint8_t { Input, Value, Kept };
  From from;
  uint32_t index;
};

// What the backward was compiled for.
struct Tangent {
  std::vector<int64_t> size, stride;
  at::TensorOptions options;
};

// The backward for one set of tangents that arrive.
struct Variant {
  PyObject* backward;  // called with one list, which it may empty: what is saved, then the tangents
  std::vector<uint32_t> saved, tangents, gradients;  // numbers into those of the graph
};

struct Training {
  std::string name;
  PyObject* forward = nullptr;  // takes the inputs that vary, returns values and what is kept
  PyObject* eager = nullptr;    // takes all inputs: the torch-level graph, for calls that must not be compiled
  PyObject* derive = nullptr;   // (inputs, tangents or None) -> gradients, as autograd operations
  PyObject* specialize = nullptr;  // (tangents that arrive) -> (backward, saved, tangents, gradients)
  std::vector<PyObject*> statics;  // by input: the tensor bound to it, or nullptr where each call passes one
  size_t varying = 0;
  size_t values = 0;  // how many of the forward's results are values; the rest is kept
  std::vector<Saved> saved;
  std::vector<uint32_t> differentiable;  // values, in the order of the tangents
  std::vector<Tangent> tangents;
  std::vector<uint32_t> gradients;  // inputs, in the order of the node's edges
  std::vector<std::vector<uint32_t>> frees;  // by tangent: the tangents that eager cannot use again after its backward
  std::vector<Output> outputs;
  std::vector<uint32_t> written;                    // inputs
  std::vector<std::pair<uint32_t, uint32_t>> same;  // inputs that were the same memory when traced
  std::map<std::vector<bool>, Variant> variants;

  Training() = default;
  ~Training();
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  // Throws on a malformed dict.
  void load(PyObject* spec);

  int traverse(visitproc visit, void* arg) const;

  // The backward for these tangents, made if it is not there. Needs the GIL.
  const Variant& variant(const std::vector<bool>& present);
};

// The Python object that a backend returns.
struct Step {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyObject* dict;
  PyObject* weakrefs;
  Training* training;
};

// Runs the graph on `args` (borrowed, one tensor per input that varies). Throws C++ exceptions, python_error among them.
PyObject* call_step(Step* step, PyObject* const* args);

}  // namespace framegraph
