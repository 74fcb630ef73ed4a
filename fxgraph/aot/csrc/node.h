// The node of autograd's graph for one call of a Step.
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <mutex>
#include <string>
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

class CompiledNode : public Node {
 public:
  explicit CompiledNode(Step* step);
  ~CompiledNode() override;

  std::string name() const override;
  void release_variables() override;

  void hold(const at::Tensor& input);  // each input, in order
  void save(const at::Tensor& tensor, bool output);

 protected:
  variable_list apply(variable_list&& tangents) override;

 private:
  variable_list run(const Variant& variant, const variable_list& tangents);
  variable_list derive(const variable_list& tangents);
  PyObject* arguments(const Variant& variant, const variable_list& tangents);
  const Training& training() const { return *step_->training; }

  Step* step_;  // strong
  std::vector<torch::autograd::SavedVariable> saved_;
  std::vector<Given> given_;
  std::vector<bool> used_;  // the tangents of the latest backward
  std::vector<bool> dead_;  // the tangents that cannot be used again, since eager would have freed what they need
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
