// One compiled training graph: the data of its calls, parsed once from the dict that fxgraph/aot/training.py makes.
// Immutable afterwards, but for the backward variants, which the GIL guards; shared by all calls and their nodes.
#pragma once

#include <torch/csrc/python_headers.h>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "../../csrc/callable.h"
#include "view_steps.h"

namespace framegraph {

// One result of the torch-level graph; see fxgraph.aot.functional.OutputSpec.
struct Output {
  enum Kind : uint8_t { Value, Input, AliasOfInput, Same, AliasOfOutput, AliasOfValue, Constant };
  Kind kind;
  uint32_t index;
  bool view;      // size, stride and offset describe a view of the source
  bool tracked;   // autograd knows it as a view
  bool detached;  // does not require grad, whatever it is a view of
  bool own_version;  // `.data`
  torch::autograd::CreationMeta creation;
  bool varies;    // these three change from call to call: `first` is where they begin among the call's numbers
  std::vector<int64_t> size, stride;
  int64_t offset;
  size_t first;
  ViewSteps steps;  // the same view by torch's own operators, where these are known
  PyObject* constant;
};

// Where a tensor that the backward needs is found after the forward.
struct Saved {
  // Memory: of an input, whatever becomes its data; Held: an input whatever is written to it.
  enum From : uint8_t { Input, Value, Kept, Memory, Held };
  From from;
  uint32_t index;
};

// The layout of a tensor for which the backward was compiled.
struct Layout {
  bool varies;  // sizes change from call to call: the backward itself sees to the strides
  std::vector<int64_t> size, stride;
  at::TensorOptions options;
};

// The backward for one set of tangents that arrive.
struct Variant {
  PyObject* backward;  // called with one list, which it may empty: saved values, then the tangents; None: computes nothing
  std::vector<uint32_t> saved;                // numbers into those of the graph
  std::vector<uint32_t> tangents, gradients;  // positions in the segment's
  std::vector<std::pair<uint32_t, ViewSteps>> views;      // of a tangent, which are handed on
  std::vector<std::pair<uint32_t, uint32_t>> receivers;  // the gradient that a view is
  PyObject* plain;  // as `backward`, for inputs that have other sizes or types now
  bool takes_tensors;  // `backward` is called with Tensors in place of the list
};

// The value whose gradient a backward returns.
struct Target {
  bool output;  // an output that the graph goes on to use, else an input
  uint32_t index;
};

// A tensor of the caller's that eager saves: overwritten, it makes the backward of these tangents an error.
struct Watched {
  bool value;
  uint32_t index;
  std::vector<uint32_t> tangents;  // positions in the segment's
};

// The part of a graph behind one node of autograd's: it ends at the outputs which the graph itself goes on to use, so
// that their gradients can be seen, and changed by hooks.
struct Segment {
  std::vector<uint32_t> values;    // those with a gradient, in the order of the tangents
  std::vector<Layout> tangents;
  std::vector<Target> gradients;  // in the order of the node's edges; the last ones may be those without one
  std::vector<std::vector<bool>> reached;  // by gradient: whether each tangent reaches it
  std::vector<uint32_t> saved;     // numbers into those of the graph
  std::vector<std::vector<uint32_t>> frees;  // by tangent: those that eager cannot use again after its backward
  std::vector<Watched> watched;
  std::map<std::vector<bool>, Variant> variants;

  bool partial(size_t gradient) const {  // not all tangents reach it
    const auto& flags = reached[gradient];
    return std::find(flags.begin(), flags.end(), false) != flags.end();
  }
};

struct Training {
  std::string name;
  PyObject* forward = nullptr;  // takes the inputs that vary, returns values and those kept for the backward; Tensors, too
  PyObject* eager = nullptr;    // takes all inputs: the torch-level graph, for calls that must not be compiled
  PyObject* derive = nullptr;   // (segment, inputs, cuts, tangents or None, kept or None) -> gradients
  PyObject* specialize = nullptr;  // (segment, tangents that arrive) -> the items of a Variant
  std::vector<PyObject*> statics;  // by input: the tensor bound to it, or nullptr where each call passes one
  size_t varying = 0;
  size_t values = 0;  // how many of the forward's results are values; the rest is kept
  std::vector<Saved> saved;
  std::vector<Layout> layouts;  // of the same
  std::vector<uint32_t> versions;  // by value: how often the graph has written it
  std::vector<Segment> segments;   // each before those that use its outputs
  std::vector<uint32_t> cuts;      // the outputs where segments end
  std::vector<uint32_t> rebased;   // written inputs that get this graph as their history; numbered behind the values
  std::vector<uint32_t> whole;     // those of them that must be no views
  std::vector<Output> outputs;
  PyObject* numbers = nullptr;  // gives those of the outputs that vary, of the numbers in `told`; None if there are none
  std::vector<Saved> told;
  std::vector<uint32_t> written;                    // inputs
  std::vector<std::pair<uint32_t, uint32_t>> same;  // inputs that were the same memory when traced

  Training() = default;
  ~Training();
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  // Throws on a malformed dict.
  void load(PyObject* spec);

  int traverse(visitproc visit, void* arg) const;

  // The segment's backward for these tangents, made if it is not there. Needs the GIL.
  const Variant& variant(uint32_t segment, const std::vector<bool>& present);
};

using Step = Callable<Training>;  // the Python object that a backend returns

// Runs the graph on `args` (borrowed, one tensor per input that varies). Throws C++ exceptions, python_error among them.
PyObject* call_step(Step* step, PyObject* const* args);

}  // namespace framegraph
