"""Training's convolutions of each channel by a window of its own, by generated code.

before                                   after
    y = aten.convolution(x, w, ...)          v = <w, channels innermost>
                                             y = framegraph.trained_depthwise(x, v, ...)

    dx, dw, _ = aten.convolution_backward(   g = framegraph.depthwise_gradient(x, dy, v, ...)
        dy, x, w, ...)                       dx, dw = g[0], <aten.sum(g[1], [0])>

Images have channels innermost. Both gradients are made in one pass over the result's, row by row,
while the rows of the image are in the cache (codegen/depthwise.cpp).

Measured with AVX-512 on a Xeon with AMX, one thread, windows of 3x3 (us of the library, of this:
forward, backward):
    4x32x64x64            306  163     598  287        4x144x32x32    354  204    736  388
    4x96x64x64, step 2    439  301    1044  612        4x192x16x16    151   39    313  108
    4x144x32x32, step 2   254  102     533  234        4x384x8x8       87   21    182   52
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from fxgraph.aot import FunctionalGraph
from fxgraph.node import Node
from inductor import costs, panel_sample
from inductor.codegen import depthwise as kernel
from inductor.ir import Depthwise, DepthwiseGradient
from inductor.layout import TO_IMAGES
from inductor.measure import Budget, Candidate, fastest
from inductor.pack import constant
from inductor.panels import PANEL, is_multiplied
from inductor.pixels_training import ConvolutionRewriter, is_in_rows
from inductor.registration import operator as own_operator
from inductor.runtime import toolchain
from inductor.sample_plan import SampleKernel, buffer, sample_kernels, window

SIDE = 3  # of a window, at most: wider ones do not fit into registers (depthwise.cpp)
PARTS = 16  # of images, at most, whose sums for a weight's gradient are apart
SAMPLE = 4, 144, 32  # of the measurement: images, channels, pixels of a side

aten = torch.ops.aten


def _places(weight: torch.Tensor) -> torch.Tensor:
    """(channels, 1, height, width) of (height, width, channels)."""
    return weight.permute(2, 0, 1).unsqueeze(1)


def _convolution(
    x: torch.Tensor,
    weight: torch.Tensor,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
) -> torch.Tensor:
    """weight: (height, width, channels)."""
    settings = (stride, padding, dilation, False, [0, 0], x.shape[1])
    y = aten.convolution.default(x, _places(weight), None, *settings)
    return y.contiguous(memory_format=torch.channels_last)


def _gradient(
    x: torch.Tensor,
    gradient: torch.Tensor,
    weight: torch.Tensor,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    parts: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Of the images, and of the weight: (parts, height, width, channels), whose sum it is."""
    settings: Any = stride, padding, dilation, False, [0, 0], x.shape[1], [True, True, False]
    found = aten.convolution_backward.default(gradient, x, _places(weight), None, *settings)
    image, whole = _gradient_meta(x, gradient, weight, stride, padding, dilation, parts)
    whole.zero_()[0].copy_(found[1].squeeze(1).permute(1, 2, 0))
    return image.copy_(found[0]), whole


def _gradient_meta(
    x: torch.Tensor,
    gradient: torch.Tensor,
    weight: torch.Tensor,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    parts: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    image = torch.empty_like(x, memory_format=torch.channels_last)
    return image, x.new_empty((parts, *weight.shape))


trained_depthwise = own_operator(
    "trained_depthwise(Tensor x, Tensor weight, int[] stride, int[] padding, int[] dilation) "
    "-> Tensor",
    _convolution,
)
depthwise_gradient = own_operator(
    "depthwise_gradient(Tensor x, Tensor gradient, Tensor weight, int[] stride, int[] padding, "
    "int[] dilation, int parts) -> (Tensor, Tensor)",
    _gradient,
    _gradient_meta,
)


def generated_depthwise(functional: FunctionalGraph) -> tuple[FunctionalGraph, str] | None:
    """The graph, a part of one that is differentiated, with these convolutions by generated code,
    and a note; None if there are none.
    """
    gm = functional.graph_module
    found = {node for node in gm.graph.nodes if is_of_channels(node) and is_in_rows(node)}
    if not found:
        return None
    run = _Rewrite(found)
    run.rewrite(gm.graph)
    run.graph.eliminate_dead_code()
    note = f"convolutions: generated code computes {len(found)} depthwise ones or their backwards"
    return functional.with_graph(run.graph), note


def is_of_channels(node: Node) -> bool:
    """Whether generated code will compute this convolution, or backward of one, once its images
    have channels innermost.
    """
    if node.target is aten.convolution.default:
        x, weight, _, _, _, _, transposed, _, groups = node.args
        images = [node.meta["val"], x.meta["val"]]
    elif node.target is aten.convolution_backward.default:
        gradient, x, weight, _, _, _, _, transposed, _, groups, mask = node.args
        images = [gradient.meta["val"], x.meta["val"]]
        if not mask[1]:
            return False
    else:
        return False
    vals = [*images, weight.meta["val"]]
    if transposed or any(val.dim() != 4 or not is_multiplied(val) for val in vals):
        return False
    known = [n for val in images for n in val.shape[1:]] + [*vals[2].shape]
    if not all(isinstance(n, int) and n > 0 for n in known):
        return False
    channels, inner, *sides = vals[2].shape
    if not groups == channels == vals[1].shape[1] or inner != 1 or channels % PANEL:
        return False
    return max(sides) <= SIDE and panel_sample.identity() is not None and _is_ahead()


class _Rewrite(ConvolutionRewriter):
    def _convolution(self, node: Node) -> Node:
        x, weight, bias, stride, padding, dilation = node.args[:6]
        build, meta = self._build, node.meta
        args = (self.new[x], self._innermost(weight), *map(list, (stride, padding, dilation)))
        made = build.call(trained_depthwise, args, meta)
        if bias is not None:
            column = build.view(self.new[bias], [1, -1, 1, 1], meta)
            made = build.add(made, column, meta)
        return made

    def _backward(self, node: Node) -> Node:
        gradient, x, weight, _, stride, padding, dilation = node.args[:7]
        images = x.meta["val"].shape[0]
        parts = min(images, PARTS) if isinstance(images, int) else PARTS
        args = (self.new[x], self.new[gradient], self._innermost(weight))
        settings = map(list, (stride, padding, dilation))
        return self._build.call(depthwise_gradient, (*args, *settings, parts), node.meta)

    def _part(self, backward: Node, number: int, meta: dict[str, Any]) -> Node:
        made = self.graph.call_function(operator.getitem, (self.new[backward], number))
        made.meta = {**meta, "val": self.new[backward].meta["val"][number]}
        return made

    def _image_gradient(self, backward: Node, meta: dict[str, Any]) -> Node:
        return self._part(backward, 0, meta)

    def _weight_gradient(self, backward: Node, meta: dict[str, Any]) -> Node:
        build, val = self._build, meta["val"]
        made = self._part(backward, 1, meta)
        made = build.call(aten.sum.dim_IntList, (made, [0]), meta)
        made = build.permute(made, [2, 0, 1], meta)
        made = build.call(aten.clone.default, (made,), meta, memory_format=torch.contiguous_format)
        made = build.view(made, list(val.shape), meta)
        if made.meta["val"].stride() == val.stride():
            return made
        layout = torch.channels_last  # whose steps over one place differ
        return build.call(aten.clone.default, (made,), meta, memory_format=layout)

    def _innermost(self, weight: Node) -> Node:
        """(height, width, channels)"""
        build, meta = self._build, weight.meta
        channels, _, height, width = meta["val"].shape
        made = build.call(aten.reshape.default, (self.new[weight], [channels, height, width]), meta)
        made = build.permute(made, [1, 2, 0], meta)
        layout = torch.contiguous_format
        return build.call(aten.clone.default, (made,), meta, memory_format=layout)


# --- which is faster ------------------------------------------------------------------------------


def _is_ahead() -> bool:
    """Whether generated code takes less time than the library here: measured once for a machine,
    of one size, since the two take about the same share of each other's time for all.
    """
    images, channels, side = SAMPLE
    settings: Any = [1, 1], [1, 1], [1, 1], False, [0, 0], channels
    budget = Budget(costs.TRAINED_SECONDS)

    def image() -> torch.Tensor:
        return constant((images, side, side, channels))

    def library() -> Callable[[], object]:
        x, y = image().permute(TO_IMAGES), image().permute(TO_IMAGES)
        w, mask = constant((channels, 1, 3, 3)), [True, True, False]
        forward, backward = aten.convolution.default, aten.convolution_backward.default
        return lambda: (forward(x, w, None, *settings), backward(y, x, w, None, *settings, mask))

    def generated() -> Callable[[], object]:
        return _sample(image(), image(), constant((3, 3, channels)), budget)

    key = f"depthwise convolution of training, generated by {panel_sample.identity()}"
    candidates: dict[str, Candidate] = {"generated": generated, "library": library}
    choice = fastest(key, candidates, budget, ahead=costs.TRAINED_AHEAD)
    return choice is None or choice.name == "generated"


_SOURCE = """#include "depthwise.h"

namespace fg {
extern "C" void sample(void* const* P, int64_t begin, int64_t end) {
  const int64_t* const s = (const int64_t*)P[4];
  const auto of = [&](int i) { return (const float*)P[i]; };
  const Places n = {s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], s[8], s[9], s[10], s[11], s[12],
                    s[13]};
  if (s[14] == 0) depthwise(Depthwise{of(0), of(2), (float*)P[3], n}, begin, end);
  else {
    float* const image = (float*)P[3];
    const int64_t images = n.images * n.height * n.width * n.channels;
    depthwise(DepthwiseGradient{of(0), of(1), of(2), image, image + images, n, s[14], s[15]}, begin,
              end);
  }
}
}
"""


def _sample(
    x: torch.Tensor, gradient: torch.Tensor, weight: torch.Tensor, budget: Budget
) -> Callable[[], object]:
    """A convolution, and the backward of one, of windows of 3x3 at every pixel. x, gradient: with
    channels innermost.
    """
    with budget.pause():
        made = toolchain.load_library(_SOURCE)
    given = {"x": x, "gradient": gradient, "weight": weight}
    of_x, of_gradient, of_weight = (window(name, tensor) for name, tensor in given.items())
    settings = (1, 1), (1, 1), (1, 1)
    out, image = buffer("out", torch.empty_like(x)), buffer("image", torch.empty_like(x))
    parts = buffer("parts", weight.new_empty((len(x), *weight.shape)))
    both = buffer("both", x.new_empty((x.numel() + len(x) * weight.numel(),)))
    forward = Depthwise("sample", of_x, of_weight, *settings, out)
    backward = DepthwiseGradient("sample", of_x, of_gradient, of_weight, *settings, parts, image)
    calls = [
        SampleKernel(
            tuple(given), target, [*kernel.numbers(step)["sizes"], *more],
            kernel.units(step), kernel.grain(step),
        )
        for step, target, more in ((forward, out, [0, 0]), (backward, both, []))
    ]  # fmt: skip
    return sample_kernels(made, given, calls)
