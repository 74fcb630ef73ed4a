// One call of a Step: the compiled forward, the node, and what the torch-level graph returns.
#include <ATen/SavedTensorHooks.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/as_strided.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/PyInterpreter.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/autograd/grad_mode.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <utility>

#include "node.h"

namespace framegraph {
namespace {

// From the tensor's first byte to one past its last, gaps included.
std::pair<int64_t, int64_t> span(const at::Tensor& tensor) {
  const auto size = static_cast<int64_t>(tensor.element_size());
  const int64_t start = tensor.storage_offset() * size;
  int64_t last = 0;
  for (int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
  return {start, start + (last + 1) * size};
}

bool overlap(const at::Tensor& one, const at::Tensor& other) {
  if (one.numel() == 0 || other.numel() == 0 || !one.storage().is_alias_of(other.storage())) return false;
  const auto [a, b] = span(one);
  const auto [c, d] = span(other);
  return a < d && c < b;
}

class Call {
 public:
  Call(Step* step, PyObject* const* args) : step_(step), graph_(*step->training) {
    objects_.reserve(graph_.statics.size());
    size_t next = 0;
    for (PyObject* bound : graph_.statics) objects_.push_back(bound == nullptr ? args[next++] : bound);
    varying_ = args;
  }

  PyObject* operator()() {
    if (is_watched() || (!graph_.written.empty() && !shares_memory_as_traced())) return eagerly();
    torch::autograd::AutoGradMode with_grad(true);  // the graph's own grad mode is in what was traced
    make_node();
    {
      at::RecordFunction range(at::RecordScope::FUNCTION);
      if (range.isActive()) range.before(graph_.name, sequence());
      forward();
    }
    if (node_) keep();
    return outputs();
  }

 private:
  const at::Tensor& input(size_t i) const { return THPVariable_Unpack(objects_[i]); }

  // Whether somebody follows the operators of this call one by one: the user's hooks see what eager saves for backward
  // (torch's own, of checkpoint and save_on_cpu, do with anything), and transforms need them.
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
    for (uint32_t w : graph_.written) {
      for (uint32_t i = 0; i < first.size(); ++i) {
        const bool bound = graph_.statics[i] != nullptr && graph_.statics[w] != nullptr;
        if (first[i] != first[w] && !bound && overlap(input(w), input(i))) return false;
      }
    }
    return true;
  }

  PyObject* eagerly() {
    return PyObject_Vectorcall(graph_.eager, objects_.data(), objects_.size(), nullptr);
  }

  void make_node() {
    torch::autograd::edge_list edges;
    bool any = false;
    for (uint32_t i : graph_.gradients) {
      const bool wanted = input(i).requires_grad();
      edges.push_back(wanted ? torch::autograd::impl::gradient_edge(input(i)) : torch::autograd::Edge());
      any = any || wanted;
    }
    if (!any) return;
    auto* made = new CompiledNode(step_);
    node_ = own(made);
    compiled_ = made;
    node_->set_next_edges(std::move(edges));
  }

  int64_t sequence() const { return node_ ? static_cast<int64_t>(node_->sequence_nr()) : -1; }

  void forward() {
    torch::autograd::AutoGradMode no_grad(false);
    c10::impl::ExcludeDispatchKeyGuard without_autocast(c10::autocast_dispatch_keyset);
    results_ = py::reinterpret_steal<py::object>(
        PyObject_Vectorcall(graph_.forward, varying_, graph_.varying, nullptr));
    if (!results_) throw python_error();
    results_ = py::reinterpret_steal<py::object>(PySequence_Fast(results_.ptr(), "a compiled forward returned no tuple"));
    if (!results_) throw python_error();
    for (size_t i = 0; i < graph_.values; ++i) values_.push_back(result(i));
  }

  // A result as a tensor of its own; run op by op, it may be a view of what only the graph knew.
  at::Tensor result(size_t i) const {
    PyObject* item = PySequence_Fast_GET_ITEM(results_.ptr(), static_cast<Py_ssize_t>(i));
    if (item == Py_None) return {};
    const at::Tensor& tensor = THPVariable_Unpack(item);
    return tensor.is_view() || tensor.requires_grad() ? tensor.variable_data() : tensor;
  }

  // Ties the values to the node, and gives it what the backward needs.
  void keep() {
    for (uint32_t i : graph_.differentiable) {
      at::Tensor& value = values_[i];
      torch::autograd::impl::set_gradient_edge(value, {node_, node_->add_input_metadata(value)});
    }
    for (const Saved& place : graph_.saved) {
      if (place.from == Saved::Input) compiled_->save(input(place.index), false);
      if (place.from == Saved::Value) compiled_->save(values_[place.index], is_differentiable(place.index));
      if (place.from == Saved::Kept) compiled_->save(result(graph_.values + place.index), false);
    }
    for (size_t i = 0; i < objects_.size(); ++i) compiled_->hold(input(i));
  }

  bool is_differentiable(uint32_t value) const {
    const auto& all = graph_.differentiable;
    return std::find(all.begin(), all.end(), value) != all.end();
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
        PyObject* item = output(out, tuple.ptr());
        if (item == nullptr) throw python_error();
        PyTuple_SET_ITEM(tuple.ptr(), static_cast<Py_ssize_t>(i), item);
      }
    }
    return tuple.release().ptr();
  }

  PyObject* output(const Output& out, PyObject* done) {
    switch (out.kind) {
      case Output::Value:
        return out.view ? viewed(values_[out.index], out) : THPVariable_Wrap(values_[out.index]);
      case Output::AliasOfValue:
        return viewed(values_[out.index], out);
      case Output::Input:
        return Py_NewRef(objects_[out.index]);
      case Output::AliasOfInput:
        return viewed(input(out.index), out);
      case Output::Constant:
        return out.view ? viewed(THPVariable_Unpack(out.constant), out) : Py_NewRef(out.constant);
      case Output::Same:
        return Py_NewRef(PyTuple_GET_ITEM(done, out.index));
      case Output::AliasOfOutput:
        return viewed(THPVariable_Unpack(PyTuple_GET_ITEM(done, out.index)), out);
    }
    return nullptr;
  }

  static PyObject* viewed(const at::Tensor& base, const Output& out) {
    using torch::autograd::CreationMeta;
    const bool no_grad = out.creation == CreationMeta::NO_GRAD_MODE;
    torch::autograd::AutoGradMode mode(!no_grad);
    const at::Tensor source = out.detached && !no_grad && base.requires_grad() ? base.detach() : base;
    at::Tensor view = at::as_strided(source, out.size, out.stride, base.storage_offset() + out.offset);
    if (out.creation == CreationMeta::MULTI_OUTPUT_NODE) {
      torch::autograd::impl::get_view_autograd_meta(view)->set_creation_meta(out.creation);
    }
    return THPVariable_Wrap(std::move(view));
  }

  Step* step_;
  const Training& graph_;
  PyObject* const* varying_;
  std::vector<PyObject*> objects_;  // borrowed; every input
  NodePtr node_;
  CompiledNode* compiled_ = nullptr;
  py::object results_;
  std::vector<at::Tensor> values_;
};

}  // namespace

PyObject* call_step(Step* step, PyObject* const* args) { return Call(step, args)(); }

}  // namespace framegraph
