// One call of a Step: the compiled forward, the node, and the results of the torch-level graph.
#include <ATen/SavedTensorHooks.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/as_strided.h>
#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/PyInterpreter.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/autograd/grad_mode.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "../../csrc/tensors.h"
#include "node.h"

namespace framegraph {
namespace {

// From the tensor's first byte to one past its last, gaps included.
std::pair<int64_t, int64_t> span(const at::Tensor& tensor) {
  const auto size = static_cast<int64_t>(tensor.element_size());
  const auto start = static_cast<int64_t>(reinterpret_cast<intptr_t>(tensor.const_data_ptr()));
  int64_t last = 0;
  for (int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
  return {start, start + (last + 1) * size};
}

// Storages over memory of another library (two arrays of numpy may be views of one) cannot be resized; only these may
// share addresses with other storages.
bool shares_storage(const at::Tensor& one, const at::Tensor& other) {
  if (one.storage().is_alias_of(other.storage())) return true;
  const bool foreign = !one.storage().resizable() || !other.storage().resizable();
  return foreign && one.is_cpu() && other.is_cpu();
}

bool overlap(const at::Tensor& one, const at::Tensor& other) {
  if (one.numel() == 0 || other.numel() == 0 || !shares_storage(one, other)) return false;
  const auto [a, b] = span(one);
  const auto [c, d] = span(other);
  return a < d && c < b;
}

class Call {
 public:
  Call(Step* step, PyObject* const* args) : step_(step), graph_(*step->held) {
    objects_.reserve(graph_.statics.size());
    size_t next = 0;
    for (PyObject* bound : graph_.statics) objects_.push_back(bound == nullptr ? args[next++] : bound);
    varying_ = args;
  }

  PyObject* operator()() {
    if (is_watched() || (!graph_.written.empty() && !shares_memory_as_traced()) || !rebases()) return eagerly();
    torch::autograd::AutoGradMode with_grad(true);  // the trace holds the graph's own grad mode
    {
      at::RecordFunction range(at::RecordScope::FUNCTION);
      if (range.isActive()) range.before(graph_.name, static_cast<int64_t>(at::sequence_number::peek()));
      forward();
    }
    if (graph_.numbers != Py_None) numbers();
    made_.resize(graph_.outputs.size());
    for (uint32_t number = 0; number < graph_.segments.size(); ++number) make_node(number);
    return outputs();
  }

 private:
  const at::Tensor& input(size_t i) const { return THPVariable_Unpack(objects_[i]); }

  // Whether the operators of this call are observed one by one: the user's hooks see the tensors that eager saves for
  // the backward (torch's own, of checkpoint and save_on_cpu, take any tensors), and transforms need eager's operators.
  bool is_watched() const {
    if (c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerFrontMode)) return true;
    if (torch::autograd::ForwardADLevel::try_get_by_idx(0) != nullptr) {
      for (size_t i = 0; i < objects_.size(); ++i) {
        if (input(i)._fw_grad(0).defined()) return true;
      }
    }
    const auto hooks = at::SavedTensorDefaultHooks::get_hooks(true);
    if (!hooks) return false;
    const py::handle pack(hooks->first.ptr(getPyInterpreter()));
    const auto module = py::str(py::getattr(pack, "__module__", py::str(""))).cast<std::string>();
    return module.rfind("torch.", 0) != 0;
  }

  // Whether written inputs share memory with others exactly as when the graph was traced.
  bool shares_memory_as_traced() const {
    std::vector<uint32_t> first(objects_.size());
    for (uint32_t i = 0; i < first.size(); ++i) first[i] = i;
    for (const auto& [one, other] : graph_.same) {
      first[other] = first[one];
      if (input(one).data_ptr() != input(other).data_ptr()) return false;
    }
    std::vector<uint32_t> varying;  // bound ones share memory as ever
    for (uint32_t i = 0; i < first.size(); ++i) {
      if (graph_.statics[i] == nullptr) varying.push_back(i);
    }
    const auto meets = [&](uint32_t w, uint32_t i) { return first[i] != first[w] && overlap(input(w), input(i)); };
    for (uint32_t w : graph_.written) {
      for (uint32_t i : varying) {
        if (meets(w, i)) return false;
      }
      if (graph_.statics[w] != nullptr) continue;
      for (uint32_t i = 0; i < first.size(); ++i) {
        if (graph_.statics[i] != nullptr && meets(w, i)) return false;
      }
    }
    return true;
  }

  // Whether autograd allows the rebased inputs to be written.
  bool rebases() const {
    const auto is_free = [](const at::TensorBase& tensor) { return !(tensor.is_leaf() && tensor.requires_grad()); };
    return std::all_of(graph_.rebased.begin(), graph_.rebased.end(), [&](uint32_t i) {
      const at::Tensor& tensor = input(i);
      if (tensor.is_inference() || !is_free(tensor)) return false;
      if (!tensor.is_view()) return true;
      if (std::find(graph_.whole.begin(), graph_.whole.end(), i) != graph_.whole.end()) return false;
      const auto* meta = torch::autograd::impl::get_view_autograd_meta(tensor);
      if (meta->get_creation_meta() != torch::autograd::CreationMeta::DEFAULT) return false;
      return tensor.requires_grad() && is_free(tensor._base());
    });
  }

  PyObject* eagerly() {
    return PyObject_Vectorcall(graph_.eager, objects_.data(), objects_.size(), nullptr);
  }

  // Nodes for the gradients that not all tangents reach, one for those that the same ones do; these edges are cut. The
  // last results' gradients depart first, as in eager, where results are computed in their order.
  std::vector<NodePtr> depart(const Segment& segment, torch::autograd::edge_list& edges) {
    std::map<std::vector<bool>, std::vector<uint32_t>, std::greater<>> groups;
    for (uint32_t n = 0; n < edges.size(); ++n) {
      if (segment.partial(n) && edges[n].is_valid()) groups[segment.reached[n]].push_back(n);
    }
    std::vector<NodePtr> made;
    for (auto& [reached, gradients] : groups) {
      torch::autograd::edge_list behind;
      for (uint32_t n : gradients) behind.push_back(std::exchange(edges[n], {}));
      made.push_back(own(new Departure(std::move(gradients))));
      made.back()->set_next_edges(std::move(behind));
      for (uint32_t value : segment.values) made.back()->add_input_metadata(values_[value]);
    }
    return made;
  }

  // Ties the segment's values to a node, and gives it the backward's saved values.
  void make_node(uint32_t number) {
    const Segment& segment = graph_.segments[number];
    torch::autograd::edge_list edges;
    bool any = false;
    for (const Target& target : segment.gradients) {
      edges.push_back(target.output ? edge_of(made(target.index)) : edge_before(target.index));
      any = any || edges.back().is_valid();
    }
    // A result without any gradient (a norm that counts) is a function of its inputs, still.
    if (!any && !segment.gradients.empty()) return;
    const std::vector<NodePtr> departures = depart(segment, edges);  // created first: the engine calls them last
    auto* node = new CompiledNode(step_, number);
    const NodePtr owner = own(node);
    owner->set_next_edges(std::move(edges));
    for (const NodePtr& departure : departures) {
      static_cast<Departure&>(*departure).of(node, owner);
      node->depart(static_cast<Departure*>(departure.get()));
    }
    for (size_t k = 0; k < segment.values.size(); ++k) {
      const at::Tensor& value = values_[segment.values[k]];
      const auto place = static_cast<uint32_t>(owner->add_input_metadata(value));
      const bool view = segment.values[k] >= graph_.values && value.is_view();
      if (segment.values.size() == 1 && !view) {
        follow(segment.values[k], {owner, place});
        continue;
      }
      const NodePtr arrival = own(new Arrival(node, view));
      torch::autograd::edge_list behind;
      if (view) behind.push_back(edge_before(graph_.rebased[segment.values[k] - graph_.values]));
      behind.emplace_back(owner, place);
      for (const NodePtr& departure : departures) {
        const uint32_t gradient = static_cast<Departure&>(*departure).gradients().front();
        if (segment.reached[gradient][k]) behind.emplace_back(departure, place);
      }
      arrival->set_next_edges(std::move(behind));
      follow(segment.values[k], {arrival, arrival->add_input_metadata(value)});
    }
    const auto& own_values = segment.values;
    for (uint32_t i : segment.saved) {
      const Saved& place = graph_.saved[i];
      const bool output = place.from == Saved::Value &&
                          std::find(own_values.begin(), own_values.end(), place.index) != own_values.end();
      node->save(i, saved(place), output);
    }
    for (const Watched& item : segment.watched) node->watch(item.value ? values_[item.index] : input(item.index));
    for (uint32_t i = 0; i < objects_.size(); ++i) {
      if (is_rebased(i)) {
        node->hold_before(input(i), edge_before(i));
      } else {
        node->hold(input(i));
      }
    }
    for (uint32_t i : graph_.cuts) {
      if (made_[i].defined()) node->hold(made_[i]);
    }
  }

  static torch::autograd::Edge edge_of(const at::Tensor& tensor) {
    return tensor.requires_grad() ? torch::autograd::impl::gradient_edge(tensor) : torch::autograd::Edge();
  }

  bool is_rebased(uint32_t i) const {
    return std::find(graph_.rebased.begin(), graph_.rebased.end(), i) != graph_.rebased.end();
  }

  // To where the gradient of an input goes, as it was given.
  torch::autograd::Edge edge_before(uint32_t i) const {
    const auto place = std::find(graph_.rebased.begin(), graph_.rebased.end(), i) - graph_.rebased.begin();
    return static_cast<size_t>(place) < before_.size() ? before_[place] : edge_of(input(i));
  }

  // Makes a node the history of a value, or of a written input.
  void follow(uint32_t value, torch::autograd::Edge edge) {
    if (value < graph_.values) {
      torch::autograd::impl::set_gradient_edge(values_[value], std::move(edge));
    } else {
      torch::autograd::impl::rebase_history(values_[value], std::move(edge));
    }
  }

  // A written input may have the node that saves this in its history: the memory alone is saved.
  at::Tensor saved(const Saved& place) const {
    const bool given = place.from == Saved::Input || place.from == Saved::Held;
    if (given && !is_rebased(place.index)) return input(place.index);
    if (given || place.from == Saved::Memory) return input(place.index).tensor_data();
    return place.from == Saved::Value ? values_[place.index] : result(graph_.values + place.index);
  }

  // An output that a later segment uses; the one that the caller will get.
  const at::Tensor& made(uint32_t number) {
    const Output& out = graph_.outputs[number];
    at::Tensor& tensor = made_[number];
    if (tensor.defined()) return tensor;
    switch (out.kind) {
      case Output::Input:
        return tensor = input(out.index);
      case Output::AliasOfInput:
        return tensor = viewed(input(out.index), out);
      case Output::AliasOfOutput:
        return tensor = viewed(made(out.index), out);
      default:
        return tensor = out.view ? viewed(values_[out.index], out) : values_[out.index];
    }
  }

  void forward() {
    for (uint32_t i : graph_.rebased) before_.push_back(edge_of(input(i)));
    torch::autograd::AutoGradMode no_grad(false);
    c10::impl::ExcludeDispatchKeyGuard without_autocast(c10::autocast_dispatch_keyset);
    take(py::reinterpret_steal<py::object>(PyObject_Vectorcall(graph_.forward, varying_, graph_.varying, nullptr)));
    for (size_t i = 0; i < graph_.values; ++i) values_.push_back(result(i));
    for (uint32_t i : graph_.rebased) values_.push_back(input(i));
    for (size_t i = 0; i < graph_.values; ++i) {
      if (graph_.versions[i] != 0) {
        torch::autograd::impl::set_version_counter(values_[i], c10::VariableVersion(graph_.versions[i]));
      }
    }
  }

  void take(const py::object& results) {
    if (!results) throw python_error();
    if (std::vector<at::Tensor>* bare = Tensors::of(results.ptr())) {
      results_.swap(*bare);
      return;
    }
    const auto items =
        py::reinterpret_steal<py::object>(PySequence_Fast(results.ptr(), "a compiled forward returned no tuple"));
    if (!items) throw python_error();
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.ptr()); ++i) {
      PyObject* item = PySequence_Fast_GET_ITEM(items.ptr(), i);
      results_.push_back(THPVariable_Check(item) ? THPVariable_Unpack(item) : at::Tensor());
    }
  }

  // The sizes, strides and offsets of the outputs where these vary.
  void numbers() {
    py::tuple given(graph_.told.size());
    for (size_t i = 0; i < given.size(); ++i) {
      const at::Scalar number = saved(graph_.told[i]).item();
      given[i] = number.isFloatingPoint() ? py::object(py::float_(number.toDouble())) : py::int_(number.toLong());
    }
    const auto found = py::reinterpret_steal<py::object>(PyObject_CallObject(graph_.numbers, given.ptr()));
    if (!found) throw python_error();
    numbers_ = found.cast<std::vector<int64_t>>();
  }

  // A result as a tensor of its own; run op by op, it may be a view of a tensor inside the graph.
  at::Tensor result(size_t i) const {
    const at::Tensor& tensor = results_.at(i);
    if (!tensor.defined()) return {};
    return tensor.is_view() || tensor.requires_grad() ? tensor.variable_data() : tensor;
  }

  PyObject* outputs() {
    const size_t count = graph_.outputs.size();
    auto tuple = py::reinterpret_steal<py::object>(PyTuple_New(static_cast<Py_ssize_t>(count)));
    if (!tuple) throw python_error();
    // Views of outputs come last, since the output they look at may stand behind them.
    for (const bool late : {false, true}) {
      for (size_t i = 0; i < count; ++i) {
        const Output& out = graph_.outputs[i];
        if ((out.kind == Output::Same || out.kind == Output::AliasOfOutput) != late) continue;
        PyObject* item = made_[i].defined() ? THPVariable_Wrap(made_[i]) : output(out, tuple.ptr());
        if (item == nullptr) throw python_error();
        PyTuple_SET_ITEM(tuple.ptr(), static_cast<Py_ssize_t>(i), item);
      }
    }
    return tuple.release().ptr();
  }

  PyObject* output(const Output& out, PyObject* done) {
    switch (out.kind) {
      case Output::Value:
        return out.view ? wrapped(values_[out.index], out) : THPVariable_Wrap(values_[out.index]);
      case Output::AliasOfValue:
        return wrapped(values_[out.index], out);
      case Output::Input:
        return Py_NewRef(objects_[out.index]);
      case Output::AliasOfInput:
        return wrapped(input(out.index), out);
      case Output::Constant:
        return out.view ? wrapped(THPVariable_Unpack(out.constant), out) : Py_NewRef(out.constant);
      case Output::Same:
        return Py_NewRef(PyTuple_GET_ITEM(done, out.index));
      case Output::AliasOfOutput:
        return wrapped(THPVariable_Unpack(PyTuple_GET_ITEM(done, out.index)), out);
    }
    return nullptr;
  }

  PyObject* wrapped(const at::Tensor& base, const Output& out) const { return THPVariable_Wrap(viewed(base, out)); }

  at::Tensor viewed(const at::Tensor& base, const Output& out) const {
    using torch::autograd::CreationMeta;
    const bool no_grad = out.creation == CreationMeta::NO_GRAD_MODE;
    torch::autograd::AutoGradMode mode(!no_grad);
    const bool detach = out.detached && !no_grad && base.requires_grad();
    const at::Tensor source = detach && out.tracked ? base.detach() : base;
    at::IntArrayRef size(out.size), stride(out.stride);
    int64_t offset = out.offset;
    if (out.varies) {
      const size_t rank = size.size();
      const at::IntArrayRef row = at::IntArrayRef(numbers_).slice(out.first, 2 * rank + 1);
      size = row.slice(0, rank), stride = row.slice(rank, rank), offset = row.back();
    }
    at::Tensor view = out.steps.empty() ? at::as_strided(source, size, stride, base.storage_offset() + offset)
                                        : view_by(source, out.steps);
    if (out.own_version) return view.variable_data();
    if (!out.tracked && (out.detached || !view.requires_grad())) return view.detach();
    if (out.creation == CreationMeta::MULTI_OUTPUT_NODE) {
      torch::autograd::impl::get_view_autograd_meta(view)->set_creation_meta(out.creation);
    }
    return view;
  }

  Step* step_;
  const Training& graph_;
  PyObject* const* varying_;
  std::vector<PyObject*> objects_;  // borrowed; every input
  std::vector<at::Tensor> results_;  // of the forward
  std::vector<at::Tensor> values_;  // then the rebased inputs
  torch::autograd::edge_list before_;  // of those: the histories that they came with
  std::vector<int64_t> numbers_;
  std::vector<at::Tensor> made_;  // by output: those that segments had to make first
};

}  // namespace

PyObject* call_step(Step* step, PyObject* const* args) { return Call(step, args)(); }

}  // namespace framegraph
