// The nodes of autograd's graph for one segment of one call of a Step.
//
// A segment of several tangents has a node of its own, an Arrival, for each: autograd calls the hooks of those results
// alone at which gradients arrive. Gradients that not all tangents reach leave by a Departure, behind the arrivals of
// those that do: it is not called, nor the hooks of the tensors, in a backward of others. Created before the node, with
// the same devices and streams, it is called behind it.
//
//   y -> Arrival 0 ---> CompiledNode -> x
//                  \-> Departure ------> w, which y depends on and z does not
//   z -> Arrival 1 ---> CompiledNode
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "../../csrc/version_counter.h"
#include "step.h"

namespace framegraph {

using torch::autograd::Node;
using torch::autograd::variable_list;
using NodePtr = decltype(torch::autograd::Edge::function);  // which smart pointer depends on torch's version

// An input as second derivatives need it. Of one with a history the value alone is held: the tensor itself may come to
// have this node in its own history, by a later write.
struct Given {
  at::Tensor tensor;
  torch::autograd::Edge edge;  // not set for leaves
  uint32_t version;
};

// A tensor that must not be written before the backward, though the compiled one does not need it.
struct Witness {
  explicit Witness(const at::Tensor& tensor);

  Counter counter;
  uint32_t version;
  std::string description;
};

class Departure;

using Departing = std::map<const Departure*, variable_list>;

// The gradients that depart in one backward; several may be underway, of other threads or of hooks. The engine's task
// owns them: with histories of their own, which may hold the node, they end with a backward whose hooks raise.
struct Underway {
  int task;
  bool ran;  // the node
  std::weak_ptr<Departing> gradients;  // still to depart; before the node ran: those gone, empty
};

// Which tangents arrived, and whether compiled code can read them.
struct Present {
  explicit Present(const variable_list& tangents);
  bool any() const { return std::find(flags.begin(), flags.end(), true) != flags.end(); }
  std::vector<bool> flags;
  bool plain = true;
};

class CompiledNode : public Node {
 public:
  CompiledNode(Step* step, uint32_t segment);
  ~CompiledNode() override;

  std::string name() const override;
  void will_release_variables() override;
  void release_variables() override;

  void hold(const at::Tensor& given);  // each input, then each cut so far, in order
  void hold_before(const at::Tensor& given, torch::autograd::Edge edge);  // an input whose history was this one
  void save(uint32_t number, const at::Tensor& tensor, bool output);
  NodePtr unpacked_for(uint32_t number);
  void watch(const at::Tensor& tensor);  // each of the segment's watched, in order
  void depart(Departure* departure);

  variable_list departing(const Departure& departure, variable_list&& tangents);

 protected:
  variable_list apply(variable_list&& tangents) override;

 private:
  variable_list differentiated(const Present& present, variable_list&& tangents, bool hand_over);
  void to_depart(const std::vector<bool>& present, variable_list& found);
  Underway* underway_of(int task);
  void begin(Underway now);
  void end(int task);
  variable_list run(const Variant& variant, variable_list&& tangents, bool hand_over);
  variable_list saved_now(std::vector<Given>& given);
  variable_list derive(const variable_list& tangents);
  const Layout& layout(uint32_t number) const;
  PyObject* arguments(const Variant& variant, variable_list&& tangents, bool hand_over, bool& fitting);
  void free_after(const std::vector<bool>& present);
  std::vector<bool> dead_after(const std::vector<bool>& present) const;
  void check(const std::vector<bool>& present) const;
  void check_saved();
  const Training& training() const { return *step_->held; }
  const Segment& segment() const { return training().segments[number_]; }

  Step* step_;  // strong
  uint32_t number_;  // of the segment
  std::vector<torch::autograd::SavedVariable> saved_;  // by number; those of other segments are empty
  std::set<uint32_t> own_;  // those that are outputs of this node
  std::map<uint32_t, Layout> seen_;  // of the saved inputs whose layouts vary: those of this call
  bool freed_ = false;
  std::vector<Given> given_;
  std::vector<Witness> witnesses_;
  std::vector<std::pair<int, std::vector<bool>>> freeing_;  // the tangents of a backward that frees, by task
  std::vector<std::pair<uint32_t, Departure*>> departures_;  // by first gradient; alive while a tangent reaches them
  std::vector<Underway> underway_;
  std::vector<bool> dead_;  // the tangents that cannot be used again, since eager would have freed their operands
};

class Arrival : public Node {
 public:
  // view: the value is a written view. Autograd hands the first result to its base, for the elements as they were.
  Arrival(CompiledNode* node, bool view) : node_(node), view_(view) {}
  std::string name() const override { return node_->name(); }

 protected:
  variable_list apply(variable_list&& tangents) override;

 private:
  CompiledNode* node_;  // behind the first of the edges to nodes
  bool view_;
};

class Departure : public Node {
 public:
  explicit Departure(std::vector<uint32_t> gradients) : gradients_(std::move(gradients)) {}
  std::string name() const override { return node_->name(); }
  void of(CompiledNode* node, NodePtr owner) { node_ = node, owner_ = std::move(owner); }
  const std::vector<uint32_t>& gradients() const { return gradients_; }  // in the order of the edges
  const NodePtr& owner() const { return owner_; }
  void will_release_variables() override;

 protected:
  variable_list apply(variable_list&& tangents) override { return node_->departing(*this, std::move(tangents)); }

 private:
  CompiledNode* node_ = nullptr;
  NodePtr owner_;  // of the same
  std::vector<uint32_t> gradients_;
};

template <class Pointer = NodePtr>
Pointer own(Node* node) {
  if constexpr (std::is_same_v<Pointer, std::shared_ptr<Node>>) {
    return Pointer(node, [](auto* dead) { deleteNode(dead); });
  } else {
    return Pointer::unsafe_steal_from_new(node);
  }
}

}  // namespace framegraph
