#include "node.h"

#include "../../csrc/tensors.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/grad_mode.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/python_cpp_function.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <sstream>
#include <utility>

namespace framegraph {
namespace {

// A lock that is never waited for with the GIL: its holder may be waiting for the GIL in a hook.
class Lock {
 public:
  explicit Lock(std::mutex& mutex) {
    std::optional<pybind11::gil_scoped_release> without;
    // At exit the check says yes to a thread that has given the GIL up, and nobody else runs.
    if (Py_IsInitialized() && PyGILState_Check()) without.emplace();
    lock_ = std::unique_lock<std::mutex>(mutex);
  }

 private:
  std::unique_lock<std::mutex> lock_;
};

// Whether compiled code can read the tensor: neither a wrapper of a transform or subclass, nor sparse.
bool is_plain(const at::Tensor& tensor) {
  constexpr auto kWrapped = c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::FuncTorchBatched,
                                                 c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::Functionalize,
                                                 c10::DispatchKey::Batched, c10::DispatchKey::ZeroTensor});
  return tensor.layout() == at::kStrided && !tensor.key_set().has_any(kWrapped);
}

// The tangent with the strides that the backward was compiled for.
at::Tensor fitted(const at::Tensor& tangent, const Layout& wanted) {
  if (wanted.varies) return tangent.resolve_conj().resolve_neg();
  if (tangent.strides().equals(wanted.stride) && !tangent.is_conj() && !tangent.is_neg()) return tangent;
  at::Tensor made = at::empty_strided(wanted.size, wanted.stride, wanted.options);
  made.copy_(tangent);
  return made;
}

// Whether `input.data = x` has left a saved input as the backward was compiled for it.
bool fits(const at::Tensor& saved, const Layout& wanted) {
  if (wanted.varies) return true;
  if (!is_plain(saved) || !saved.sizes().equals(wanted.size) || saved.dtype() != wanted.options.dtype()) return false;
  if (saved.device() != wanted.options.device()) return false;
  for (size_t d = 0; d < wanted.size.size(); ++d) {
    if (wanted.size[d] > 1 && saved.stride(static_cast<int64_t>(d)) != wanted.stride[d]) return false;
  }
  return true;
}

// How often the tensor was written; inference tensors do not say.
uint32_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : static_cast<uint32_t>(tensor._version());
}

py::list optional_tensors(const variable_list& tensors) {
  py::list list;
  for (const at::Tensor& tensor : tensors) {
    list.append(tensor.defined() ? py::reinterpret_steal<py::object>(THPVariable_Wrap(tensor)) : py::none());
  }
  return list;
}

// Puts the results of a Python function into `found`; `places` are their numbers there.
void put(const py::object& results, const std::vector<uint32_t>& places, variable_list& found) {
  if (std::vector<at::Tensor>* bare = Tensors::of(results.ptr())) {
    TORCH_CHECK(bare->size() == places.size(), "a compiled backward returned ", bare->size(), " gradients instead of ",
                places.size());
    for (size_t i = 0; i < places.size(); ++i) found[places[i]] = std::move((*bare)[i]);
    return;
  }
  const auto items = py::reinterpret_steal<py::object>(PySequence_Fast(results.ptr(), "gradients are no sequence"));
  if (!items) throw python_error();
  TORCH_CHECK(static_cast<size_t>(PySequence_Fast_GET_SIZE(items.ptr())) == places.size(), "a compiled backward returned ",
              PySequence_Fast_GET_SIZE(items.ptr()), " gradients instead of ", places.size());
  for (size_t i = 0; i < places.size(); ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(items.ptr(), static_cast<Py_ssize_t>(i));
    if (item != Py_None) found[places[i]] = THPVariable_Unpack(item);
  }
}

}  // namespace

CompiledNode::CompiledNode(Step* step, uint32_t number)
    : step_(step), number_(number), saved_(step->held->saved.size()), dead_(segment().tangents.size()) {
  Py_INCREF(step);
  given_.reserve(training().statics.size());
}

CompiledNode::~CompiledNode() {
  if (!Py_IsInitialized()) return;  // at exit, when Python is gone
  pybind11::gil_scoped_acquire gil;
  Py_DECREF(step_);
}

std::string CompiledNode::name() const { return training().name + "Backward"; }

void CompiledNode::hold(const at::Tensor& given) {
  const uint32_t version = version_of(given);
  if (!given.requires_grad() || given.is_leaf()) {
    given_.push_back({given, {}, version});
  } else {
    given_.push_back({given.tensor_data(), torch::autograd::impl::gradient_edge(given), version});
  }
}

variable_list Arrival::apply(variable_list&& tangents) {
  const at::Tensor& tangent = tangents[0];
  variable_list found(num_outputs(), tangent);
  if (view_ && tangent.defined()) found[0] = at::zeros({}, tangent.options()).expand_symint(tangent.sym_sizes());
  return found;
}

void CompiledNode::hold_before(const at::Tensor& given, torch::autograd::Edge edge) {
  given_.push_back({given.tensor_data(), std::move(edge), version_of(given)});
}

void CompiledNode::save(uint32_t number, const at::Tensor& tensor, bool output) {
  const Saved::From from = training().saved[number].from;
  const bool given = from == Saved::Input || from == Saved::Held;
  if (given && training().layouts[number].varies && is_plain(tensor)) {
    seen_[number] = {false, tensor.sizes().vec(), tensor.strides().vec(), tensor.options()};
  }
  if (output) own_.insert(number);
  if (from != Saved::Held) saved_[number] = torch::autograd::SavedVariable(tensor, output);
}

// The node that gives a saved output its history again; none for an input, or an output of an earlier segment, of which
// autograd refuses one that has been detached in place since.
NodePtr CompiledNode::unpacked_for(uint32_t number) {
  return own_.count(number) != 0 ? getptr() : nullptr;
}

Witness::Witness(const at::Tensor& tensor)
    : counter(torch::autograd::impl::version_counter(tensor)),
      version(static_cast<uint32_t>(tensor._version())) {
  std::ostringstream text;
  text << "[" << tensor.toString() << " " << tensor.sizes() << "]";
  if (tensor.grad_fn()) text << ", which is output " << tensor.output_nr() << " of " << tensor.grad_fn()->name() << ",";
  description = text.str();
}

void CompiledNode::watch(const at::Tensor& tensor) { witnesses_.emplace_back(tensor); }

// Raises eager's error where a saved tensor has been written since.
void CompiledNode::check(const std::vector<bool>& present) const {
  for (size_t i = 0; i < witnesses_.size(); ++i) {
    const auto& users = segment().watched[i].tangents;
    const Witness& seen = witnesses_[i];
    if (std::none_of(users.begin(), users.end(), [&](uint32_t k) { return present[k]; })) continue;
    TORCH_CHECK(seen.counter.version() == seen.version,
                "one of the variables needed for gradient computation has been modified by an inplace operation: ",
                seen.description, " is at version ", seen.counter.version(), "; expected version ", seen.version,
                " instead. Hint: ",
                torch::autograd::AnomalyMode::is_enabled()
                    ? "the backtrace further above shows the operation that failed to compute its gradient. The variable "
                      "in question was changed in there or anywhere later. Good luck!"
                    : "enable anomaly detection to find the operation that failed to compute its gradient, with "
                      "torch.autograd.set_detect_anomaly(True).");
  }
}

// The same for what this node saves, where no hooks of saved tensors have taken it over.
void CompiledNode::check_saved() {
  for (uint32_t i : segment().saved) {
    if (!saved_[i].has_hooks()) saved_[i].unpack(unpacked_for(i));
  }
}

namespace {

// The node that the engine is about to call in this thread, to free its saved values afterwards.
thread_local const Node* called_last = nullptr;

bool is_to_free(const Node* node) { return std::exchange(called_last, nullptr) == node; }

bool all(const std::vector<bool>& flags) { return std::find(flags.begin(), flags.end(), false) == flags.end(); }

}  // namespace

void CompiledNode::will_release_variables() { called_last = this; }
void Departure::will_release_variables() { called_last = this; }

// The tangents that cannot be used again after a backward of those that are present.
std::vector<bool> CompiledNode::dead_after(const std::vector<bool>& present) const {
  std::vector<bool> dead = dead_;
  for (size_t k = 0; k < present.size(); ++k) {
    if (!present[k]) continue;
    for (uint32_t other : segment().frees[k]) dead[other] = true;
  }
  return dead;
}

Present::Present(const variable_list& tangents) : flags(tangents.size()) {
  for (size_t k = 0; k < flags.size(); ++k) {
    flags[k] = tangents[k].defined();
    plain = plain && (!flags[k] || is_plain(tangents[k]));
  }
}

variable_list CompiledNode::apply(variable_list&& tangents) {
  const bool frees = is_to_free(this);
  bool hand_over = false;
  const Present present(tangents);
  {
    Lock lock(mutex_);
    for (size_t k = 0; k < dead_.size(); ++k) {
      TORCH_CHECK(!(present.flags[k] && dead_[k]), torch::autograd::ERR_BACKWARD_TWICE);
    }
    check(present.flags);
    if (frees) freeing_.emplace_back(torch::autograd::get_current_graph_task_id(), present.flags);
    // A hook that raises after the backward leaves it to be done again.
    hand_over = frees && post_hooks().empty() && all(dead_after(present.flags));
  }
  variable_list found = differentiated(present, std::move(tangents), hand_over);
  if (!departures_.empty()) to_depart(present.flags, found);
  return found;
}

variable_list CompiledNode::differentiated(const Present& present, variable_list&& tangents, bool hand_over) {
  if (!present.any() || num_outputs() == 0) return variable_list(num_outputs());
  pybind11::gil_scoped_acquire gil;
  if (c10::GradMode::is_enabled() || !present.plain) return derive(tangents);
  return run(step_->held->variant(number_, present.flags), std::move(tangents), hand_over);
}

void CompiledNode::depart(Departure* departure) {
  departures_.emplace_back(departure->gradients().front(), departure);
}

namespace {

// Whether the engine is to call the node in the backward of this thread, if its turn comes.
bool is_to_be_called(Node* node) {
  const auto* wanted = torch::autograd::get_current_graph_task_exec_info();
  if (wanted == nullptr || wanted->empty()) return true;
  const auto found = wanted->find(node);
  return found != wanted->end() && found->second.should_execute();
}

// The gradients that leave by this way.
variable_list taken(const Departure& departure, variable_list& found) {
  variable_list gradients;
  for (uint32_t n : departure.gradients()) gradients.push_back(std::move(found[n]));
  return gradients;
}

}  // namespace

// Keeps those of `found` that the engine will ask for.
void CompiledNode::to_depart(const std::vector<bool>& present, variable_list& found) {
  const auto gradients = std::make_shared<Departing>();
  for (const auto& [gradient, departure] : departures_) {
    const auto& reached = segment().reached[gradient];
    bool asks = false;
    for (size_t k = 0; k < present.size(); ++k) asks = asks || (present[k] && reached[k]);
    if (asks && is_to_be_called(departure)) gradients->emplace(departure, taken(*departure, found));
  }
  Lock lock(mutex_);
  const int task = torch::autograd::get_current_graph_task_id();
  if (const Underway* known = underway_of(task)) {
    for (const auto& [gone, none] : *known->gradients.lock()) gradients->erase(gone);
    end(task);
  }
  if (!gradients->empty()) begin({task, true, gradients});
}

// The backward's gradients, if any depart in it before the node, or are left behind.
Underway* CompiledNode::underway_of(int task) {
  for (Underway& one : underway_) {
    if (one.task == task) return &one;
  }
  return nullptr;
}

void CompiledNode::begin(Underway now) {
  end(-1);
  torch::autograd::Engine::get_default_engine().queue_callback([owned = now.gradients.lock()] {});
  underway_.push_back(std::move(now));
}

// Forgets the task, and those that are over.
void CompiledNode::end(int task) {
  const auto over = [&](const Underway& one) { return one.task == task || one.gradients.expired(); };
  underway_.erase(std::remove_if(underway_.begin(), underway_.end(), over), underway_.end());
}

// A departure is called before the node, or without it, where the engine is not to call the node at all, or a tangent
// that does not reach the gradient is late: it has a backward to itself then. A node that is not called is freed at
// the end of a backward that frees: other departures may still have to run it.
variable_list CompiledNode::departing(const Departure& departure, variable_list&& tangents) {
  const bool frees = is_to_free(&departure);
  const Present present(tangents);
  if (!present.any()) return variable_list(departure.num_outputs());
  const bool called = is_to_be_called(this);
  {
    Lock lock(mutex_);
    const int task = torch::autograd::get_current_graph_task_id();
    Underway* known = underway_of(task);
    if (known != nullptr && known->ran) {
      const auto gradients = known->gradients.lock();
      variable_list found = std::move(gradients->at(&departure));
      gradients->erase(&departure);
      if (gradients->empty()) end(task);
      return found;
    }
    for (size_t k = 0; k < dead_.size(); ++k) {
      TORCH_CHECK(!(present.flags[k] && dead_[k]), torch::autograd::ERR_BACKWARD_TWICE);
    }
    check(present.flags);
    if (called && known == nullptr) {
      begin({task, false, std::make_shared<Departing>()});
      known = &underway_.back();
    }
    if (called) known->gradients.lock()->emplace(&departure, variable_list());
  }
  variable_list found = differentiated(present, std::move(tangents), false);
  if (frees && !called) {
    torch::autograd::Engine::get_default_engine().queue_callback(
        [this, owner = departure.owner(), used = present.flags] { free_after(used); });
  }
  return taken(departure, found);
}

// hand_over: no argument of the backward is kept here, so that it can free each tensor after the last use.
variable_list CompiledNode::run(const Variant& variant, variable_list&& tangents, bool hand_over) {
  c10::impl::ExcludeDispatchKeyGuard without_autocast(c10::autocast_dispatch_keyset);
  variable_list found(num_outputs());
  variable_list views;
  for (const auto& [tangent, steps] : variant.views) views.push_back(view_by(tangents[tangent], steps));
  for (const auto& [gradient, view] : variant.receivers) found[gradient] = views[view];
  if (variant.backward == Py_None) return found;
  bool fitting = true;
  auto given = py::reinterpret_steal<py::object>(arguments(variant, std::move(tangents), hand_over, fitting));
  PyObject* backward = fitting ? variant.backward : variant.plain;
  auto results = py::reinterpret_steal<py::object>(PyObject_CallOneArg(backward, given.ptr()));
  if (!results) throw python_error();
  put(results, variant.gradients, found);
  return found;
}

// The layout of a saved input that the backward takes in this call.
const Layout& CompiledNode::layout(uint32_t number) const {
  const auto seen = seen_.find(number);
  return seen == seen_.end() ? training().layouts[number] : seen->second;
}

// The list, or Tensors, that a backward takes; `fitting` is cleared where an input is not as the compiled one takes it.
PyObject* CompiledNode::arguments(const Variant& variant, variable_list&& tangents, bool hand_over, bool& fitting) {
  const variable_list mine = std::move(tangents);
  variable_list tensors;
  tensors.reserve(variant.saved.size() + variant.tangents.size());
  {
    std::vector<torch::autograd::SavedVariable> saved;
    std::vector<Given> given;
    pybind11::gil_scoped_release without_gil;
    std::lock_guard<std::mutex> lock(mutex_);
    TORCH_CHECK(!freed_, torch::autograd::ERR_BACKWARD_TWICE);
    for (uint32_t i : variant.saved) {
      const Saved& place = training().saved[i];
      const bool held = place.from == Saved::Held;
      tensors.push_back(held ? given_[place.index].tensor : saved_[i].unpack(unpacked_for(i)));
      if (held || place.from == Saved::Input) fitting = fitting && fits(tensors.back(), layout(i));
    }
    if (hand_over) {
      freed_ = true;
      saved.swap(saved_);
      given.swap(given_);
    }
  }
  for (uint32_t k : variant.tangents) tensors.push_back(fitted(mine[k], segment().tangents[k]));
  if (variant.takes_tensors && fitting) return Tensors::make(std::move(tensors)).release().ptr();
  auto list = py::reinterpret_steal<py::object>(PyList_New(static_cast<Py_ssize_t>(tensors.size())));
  if (!list) throw python_error();
  for (size_t i = 0; i < tensors.size(); ++i) {
    PyObject* item = THPVariable_Wrap(std::move(tensors[i]));
    if (item == nullptr) throw python_error();
    PyList_SET_ITEM(list.ptr(), static_cast<Py_ssize_t>(i), item);
  }
  return list.release().ptr();
}

// By saved value of the segment, what the forward computed; undefined for inputs, of which those in `given` that have a
// history get the data that they have now.
variable_list CompiledNode::saved_now(std::vector<Given>& given) {
  variable_list kept;
  pybind11::gil_scoped_release without_gil;
  std::lock_guard<std::mutex> lock(mutex_);
  for (uint32_t i : segment().saved) {
    const Saved& place = training().saved[i];
    const bool computed = place.from == Saved::Value || place.from == Saved::Kept;
    kept.emplace_back();
    if (freed_ || (!computed && place.from != Saved::Input)) continue;
    at::Tensor tensor = saved_[i].unpack(unpacked_for(i));
    if (computed) {
      kept.back() = tensor.detach();
    } else if (given[place.index].edge.is_valid()) {
      given[place.index].tensor = tensor.tensor_data();
      given[place.index].version = version_of(tensor);
    }
  }
  return kept;
}

// The gradients as operations that autograd records, or that take tensors which compiled code cannot.
variable_list CompiledNode::derive(const variable_list& tangents) {
  py::list inputs, cuts;
  variable_list kept;
  {
    std::vector<Given> given;
    {
      Lock lock(mutex_);
      given = given_;
      if (!freed_) check_saved();
    }
    TORCH_CHECK(!given.empty(), torch::autograd::ERR_BACKWARD_TWICE);
    kept = saved_now(given);
    for (size_t i = 0; i < given.size(); ++i) {
      TORCH_CHECK(version_of(given[i].tensor) == given[i].version,
                  "one of the variables needed for gradient computation has been modified by an inplace operation: an "
                  "input or output of ", training().name, ", whose second derivative is asked for");
      at::Tensor tensor = given[i].tensor;
      if (given[i].edge.is_valid()) tensor = torch::autograd::make_variable(tensor, given[i].edge);
      auto& list = i < training().statics.size() ? inputs : cuts;
      list.append(py::reinterpret_steal<py::object>(THPVariable_Wrap(std::move(tensor))));
    }
  }
  const py::list given = optional_tensors(tangents), computed = optional_tensors(kept);
  auto results = py::reinterpret_steal<py::object>(
      PyObject_CallFunctionObjArgs(training().derive, py::int_(number_).ptr(), inputs.ptr(), cuts.ptr(), given.ptr(),
                                   computed.ptr(), nullptr));
  if (!results) throw python_error();
  std::vector<uint32_t> places(num_outputs());
  std::iota(places.begin(), places.end(), 0);
  variable_list found(num_outputs());
  put(results, places, found);
  return found;
}

// Called behind `apply`, and when the node is deleted.
void CompiledNode::release_variables() {
  std::vector<bool> used;
  {
    Lock lock(mutex_);
    const int task = torch::autograd::get_current_graph_task_id();
    const auto mine = std::find_if(freeing_.begin(), freeing_.end(), [&](const auto& one) { return one.first == task; });
    if (mine == freeing_.end()) return;
    used = std::move(mine->second);
    freeing_.erase(mine);
  }
  free_after(used);
}

void CompiledNode::free_after(const std::vector<bool>& present) {
  std::vector<torch::autograd::SavedVariable> saved;
  std::vector<Given> given;
  Lock lock(mutex_);
  dead_ = dead_after(present);
  if (!all(dead_)) return;
  freed_ = true;
  saved.swap(saved_);
  given.swap(given_);
}

// The Python type of the node: the name that users see in print.
bool register_node_type() {
  static PyTypeObject type = {PyVarObject_HEAD_INIT(nullptr, 0)};
  if (torch::autograd::_initFunctionPyTypeObject(type, "fxgraph.aot._autograd.CompiledBackward", nullptr, nullptr) ==
      nullptr) {
    return false;
  }
  for (const std::type_info* node : {&typeid(CompiledNode), &typeid(Arrival), &typeid(Departure)}) {
    torch::autograd::registerCppFunction(*node, &type);
  }
  return true;
}

}  // namespace framegraph
