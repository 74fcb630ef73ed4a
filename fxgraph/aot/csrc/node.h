// The node of autograd's graph for one segment of one call of a Step.
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <mutex>
#include <string>
#include <utility>
#include <vector>

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
  c10::VariableVersion counter;
  uint32_t version;
  std::string description;
};

class CompiledNode : public Node {
 public:
  CompiledNode(Step* step, uint32_t segment);
  ~CompiledNode() override;

  std::string name() const override;
  void will_release_variables() override;
  void release_variables() override;

  void hold(const at::Tensor& given);  // each input, then each cut so far, in order
  void save(uint32_t number, const at::Tensor& tensor, bool output);
  void watch(const at::Tensor& tensor);  // each of the segment's watched, in order

 protected:
  variable_list apply(variable_list&& tangents) override;

 private:
  variable_list run(const Variant& variant, variable_list&& tangents, bool hand_over);
  variable_list derive(const variable_list& tangents);
  PyObject* arguments(const Variant& variant, variable_list&& tangents, bool hand_over);
  std::vector<bool> dead_after(const std::vector<bool>& present) const;
  void check(const std::vector<bool>& present) const;
  const Training& training() const { return *step_->held; }
  const Segment& segment() const { return training().segments[number_]; }

  Step* step_;  // strong
  uint32_t number_;  // of the segment
  std::vector<torch::autograd::SavedVariable> saved_;  // by number; those of other segments are empty
  bool freed_ = false;
  std::vector<Given> given_;
  std::vector<Witness> witnesses_;
  std::vector<bool> used_;  // the tangents of the latest backward
  std::vector<bool> dead_;  // the tangents that cannot be used again, since eager would have freed their operands
};

template <class Pointer = NodePtr>
Pointer own(CompiledNode* node) {
  if constexpr (std::is_same_v<Pointer, std::shared_ptr<Node>>) {
    return Pointer(node, [](auto* dead) { deleteNode(dead); });
  } else {
    return Pointer::unsafe_steal_from_new(node);
  }
}

}  // namespace framegraph
