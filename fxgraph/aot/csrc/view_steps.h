// A view as a list of steps, each an operator of torch's own; see fxgraph/aot/view_steps.py.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace framegraph {

struct ViewStep {
  enum Kind : uint8_t { View, Reshape, Expand, Permute, Slice, Select, Squeeze, Unsqueeze };
  Kind kind;
  std::vector<int64_t> numbers;  // sizes, dimensions; of a slice: dimension, start, end, step
};

using ViewSteps = std::vector<ViewStep>;

inline ViewSteps parse_steps(py::handle items) {
  ViewSteps steps;
  for (const auto& [kind, numbers] : items.cast<std::vector<std::pair<int, std::vector<int64_t>>>>()) {
    steps.push_back({static_cast<ViewStep::Kind>(kind), numbers});
  }
  return steps;
}

inline at::Tensor step_of(const at::Tensor& tensor, const ViewStep& step) {
  const auto& numbers = step.numbers;
  switch (step.kind) {
    case ViewStep::View:
      return tensor.view(numbers);
    case ViewStep::Reshape:
      return tensor.reshape(numbers);
    case ViewStep::Expand:
      return tensor.expand(numbers);
    case ViewStep::Permute:
      return tensor.permute(numbers);
    case ViewStep::Slice:
      return tensor.slice(numbers[0], numbers[1], numbers[2], numbers[3]);
    case ViewStep::Select:
      return tensor.select(numbers[0], numbers[1]);
    case ViewStep::Squeeze:
      return tensor.squeeze(numbers);
    case ViewStep::Unsqueeze:
      return tensor.unsqueeze(numbers[0]);
  }
  return tensor;
}

inline at::Tensor view_by(const at::Tensor& tensor, const ViewSteps& steps) {
  at::Tensor view = tensor;
  for (const ViewStep& step : steps) view = step_of(view, step);
  return view;
}

}  // namespace framegraph
