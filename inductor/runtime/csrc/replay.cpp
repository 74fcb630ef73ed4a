#include "replay.h"

#include <torch/csrc/python_headers.h>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/empty_strided.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <optional>
#include <string>
#include <vector>

#include "../../../fxgraph/csrc/callable.h"
#include "../../../fxgraph/csrc/tensors.h"
#include "content.h"

namespace framegraph {
namespace {

// Results in one piece of memory, of which `kept` holds all that they take.
struct Group {
  at::Tensor kept;
  bool copied;  // handed out as a copy

  // Whether anyone but `kept` has the memory. A storage that is an object in Python, too, counts as one who has.
  bool alive() const { return kept.storage().use_count() > 1; }

  // A tensor to hand out, with a version counter of its own.
  at::Tensor fresh() const {
    if (!copied) return kept.variable_data();
    at::Tensor copy = at::empty_strided(kept.sizes(), kept.strides(), kept.options());
    copy.copy_(kept);
    return copy;
  }
};

// Where a tensor is in another.
struct Window {
  enum Detached : uint8_t { None, Base, View, Data };  // as OutputSpec's
  std::vector<int64_t> size, stride;
  int64_t offset;
  Detached detached;

  at::Tensor of(const at::Tensor& given) const {
    const at::Tensor base = detached == Base ? given.detach() : given;
    at::Tensor found = at::as_strided(base, size, stride, base.storage_offset() + offset);
    if (detached == Data) return found.variable_data();
    return detached == View ? found.detach() : found;
  }
};

struct Result {
  enum Kind : uint8_t { Constant, Fresh, Argument };
  Kind kind;
  size_t index;  // of a group, or of an argument
  std::optional<Window> window;
  PyObject* constant;  // strong
};

// A tensor that the graph writes, and the bumps of its version counter.
struct Written {
  PyObject* bound;  // strong; null: an argument
  size_t index;
  int64_t bumps;
};

std::optional<Window> parse_window(const py::handle& item) {
  if (item.is_none()) return std::nullopt;
  const auto data = item.cast<py::tuple>();
  const auto detached = data[3].cast<std::string>();
  return Window{data[0].cast<std::vector<int64_t>>(), data[1].cast<std::vector<int64_t>>(), data[2].cast<int64_t>(),
                detached == "base"   ? Window::Base
                : detached == "view" ? Window::View
                : detached == "data" ? Window::Data
                                     : Window::None};
}

const at::Tensor& tensor_of(PyObject* object) {
  TORCH_CHECK_TYPE(THPVariable_Check(object), "a tensor is expected, got ", Py_TYPE(object)->tp_name);
  return THPVariable_Unpack(object);
}

// What a graph is called with: Tensors, or any sequence.
class Arguments {
 public:
  explicit Arguments(PyObject* given) : bare_(Tensors::of(given)) {
    if (bare_ != nullptr) return;
    items_ = py::reinterpret_steal<py::object>(PySequence_Fast(given, "the arguments of a graph are no sequence"));
    if (!items_) throw python_error();
  }

  const at::Tensor& tensor(size_t i) const {
    if (bare_ == nullptr) return tensor_of(item(i));
    TORCH_CHECK_INDEX(i < bare_->size(), "no argument ", i);
    return (*bare_)[i];
  }

  // A new reference.
  PyObject* object(size_t i) const { return bare_ != nullptr ? THPVariable_Wrap(tensor(i)) : Py_NewRef(item(i)); }

 private:
  PyObject* item(size_t i) const {
    TORCH_CHECK_INDEX(i < static_cast<size_t>(PySequence_Fast_GET_SIZE(items_.ptr())), "no argument ", i);
    return PySequence_Fast_GET_ITEM(items_.ptr(), static_cast<Py_ssize_t>(i));
  }

  const std::vector<at::Tensor>* bare_;
  py::object items_;
};

struct Made {
  bool tensors = true;  // all results are, or None
  std::vector<Group> groups;
  std::vector<Result> results;
  std::vector<Written> written;

  Made() = default;
  Made(const Made&) = delete;
  Made& operator=(const Made&) = delete;
  ~Made() {
    for (const Result& result : results) Py_XDECREF(result.constant);
    for (const Written& one : written) Py_XDECREF(one.bound);
  }

  void load(PyObject* spec) {
    const auto data = py::reinterpret_borrow<py::dict>(spec);
    for (py::handle item : data["groups"]) {
      const auto pair = item.cast<py::tuple>();
      groups.push_back({tensor_of(py::object(pair[0]).ptr()), pair[1].cast<bool>()});
    }
    for (py::handle item : data["results"]) {
      const auto row = item.cast<py::tuple>();
      const auto kind = row[0].cast<std::string>();
      if (kind == "constant") {
        results.push_back({Result::Constant, 0, std::nullopt, py::object(row[1]).release().ptr()});
        tensors = tensors && (results.back().constant == Py_None || THPVariable_Check(results.back().constant));
        continue;
      }
      const bool fresh = kind == "fresh";
      results.push_back({fresh ? Result::Fresh : Result::Argument, row[1].cast<size_t>(), parse_window(row[2]), nullptr});
      TORCH_CHECK_INDEX(!fresh || results.back().index < groups.size(), "no group ", results.back().index);
    }
    for (py::handle item : data["written"]) {
      const auto row = item.cast<py::tuple>();
      PyObject* const bound = py::object(row[0]).ptr();
      if (bound == Py_None) {
        written.push_back({nullptr, row[1].cast<size_t>(), row[2].cast<int64_t>()});
      } else {
        tensor_of(bound);
        written.push_back({Py_NewRef(bound), 0, row[2].cast<int64_t>()});
      }
    }
  }

  int traverse(visitproc visit, void* arg) const {
    for (const Result& result : results) Py_VISIT(result.constant);
    for (const Written& one : written) Py_VISIT(one.bound);
    return 0;
  }
};

using Replay = Callable<Made>;

// The results of one call.
class Call {
 public:
  Call(const Made& made, PyObject* arguments) : made_(made), arguments_(arguments) {
    fresh_.reserve(made_.groups.size());
    {
      c10::AutoGradMode no_grad(false);
      for (const Group& group : made_.groups) fresh_.push_back(group.fresh());
    }
    for (const Written& one : made_.written) {
      const at::Tensor& tensor = one.bound == nullptr ? arguments_.tensor(one.index) : tensor_of(one.bound);
      if (tensor.is_inference()) continue;
      for (int64_t i = 0; i < one.bumps; ++i) tensor.unsafeGetTensorImpl()->bump_version();
      if (one.bumps == 0) note_write(tensor);
    }
  }

  PyObject* tuple() const {
    auto found = py::reinterpret_steal<py::object>(PyTuple_New(static_cast<Py_ssize_t>(made_.results.size())));
    if (!found) throw python_error();
    for (size_t i = 0; i < made_.results.size(); ++i) {
      PyObject* item = object(made_.results[i]);
      if (item == nullptr) throw python_error();
      PyTuple_SET_ITEM(found.ptr(), static_cast<Py_ssize_t>(i), item);
    }
    return found.release().ptr();
  }

  PyObject* tensors() const {
    std::vector<at::Tensor> found;
    found.reserve(made_.results.size());
    for (const Result& result : made_.results) {
      if (result.kind != Result::Constant) {
        found.push_back(tensor(result));
      } else {
        found.push_back(result.constant == Py_None ? at::Tensor() : tensor_of(result.constant));
      }
    }
    return Tensors::make(std::move(found)).release().ptr();
  }

 private:
  // Of all kinds but Constant.
  at::Tensor tensor(const Result& result) const {
    const at::Tensor& whole = result.kind == Result::Fresh ? fresh_[result.index] : arguments_.tensor(result.index);
    return result.window ? result.window->of(whole) : whole;
  }

  // A new reference.
  PyObject* object(const Result& result) const {
    if (result.kind == Result::Constant) return Py_NewRef(result.constant);
    if (result.kind == Result::Argument && !result.window) return arguments_.object(result.index);
    return THPVariable_Wrap(tensor(result));
  }

  const Made& made_;
  Arguments arguments_;
  std::vector<at::Tensor> fresh_;
};

PyObject* replay_call(PyObject* object, PyObject* const* args, size_t flags, PyObject* kwnames) {
  HANDLE_TH_ERRORS
  const Made& made = Replay::called(object, kwnames);
  const auto count = PyVectorcall_NARGS(flags);
  TORCH_CHECK_TYPE(count == 1 || count == 2, "a replay takes one sequence of arguments");
  const int bare = count == 2 ? PyObject_IsTrue(args[1]) : 0;
  if (bare < 0) throw python_error();
  const Call call(made, args[0]);
  return bare == 1 && made.tensors ? call.tensors() : call.tuple();
  END_HANDLE_TH_ERRORS
}

PyObject* replay_alive(PyObject* object, PyObject*) {
  HANDLE_TH_ERRORS
  const std::vector<Group>& groups = Replay::called(object).groups;
  py::list found;
  for (size_t i = 0; i < groups.size(); ++i) {
    if (groups[i].alive()) found.append(i);
  }
  return found.release().ptr();
  END_HANDLE_TH_ERRORS
}

PyMethodDef replay_methods[] = {
    {"alive", replay_alive, METH_NOARGS, "alive() -> list[int]: the groups whose memory someone else has, too."},
    {nullptr, nullptr, 0, nullptr}};

PyTypeObject ReplayType = Replay::type<replay_call>(
    "inductor.runtime._plan.Replay",
    "Replay(spec): call it with the arguments behind a replay of a device graph, get the tuple of its results; with True\n"
    "behind the arguments, Tensors, if all results are tensors or None.\n\n"
    "groups: pairs (tensor, whether it is handed out as a copy). results: (\"constant\", value), (\"fresh\", group, window)\n"
    "or (\"argument\", position, window); window: None or (size, stride, offset, detached). written: (tensor or None,\n"
    "position of an argument, bumps of the version counter).",
    replay_methods);

}  // namespace

PyObject* moved(PyObject*, PyObject* const* args, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(count == 3 && PyDict_Check(args[1]) && PyDict_Check(args[2]), "moved(arguments, where, besides)");
  const Arguments arguments(args[0]);
  py::list found;
  Py_ssize_t place = 0;
  PyObject *key = nullptr, *address = nullptr;
  while (PyDict_Next(args[1], &place, &key, &address)) {
    const int besides = PyDict_Contains(args[2], key);
    if (besides < 0) throw python_error();
    if (besides == 1) continue;
    const size_t k = PyLong_AsSize_t(key);
    const size_t known = PyLong_AsSize_t(address);
    if (PyErr_Occurred() != nullptr) throw python_error();
    if (reinterpret_cast<size_t>(arguments.tensor(k).data_ptr()) != known) found.append(py::reinterpret_borrow<py::object>(key));
  }
  return found.release().ptr();
  END_HANDLE_TH_ERRORS
}

bool add_replay_type(PyObject* module) { return add_type(module, &ReplayType, "Replay"); }

}  // namespace framegraph
