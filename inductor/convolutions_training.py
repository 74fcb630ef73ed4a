"""Training's convolutions by generated code, where they measure faster than the library's.

before                                   after
    y = aten.convolution(x, w, ...)          p = framegraph.winograd_panels(w, False)
                                             y = <framegraph.winograd_mm(x, p, w, [1, 1])>

    dx, dw, _ = aten.convolution_backward(   q = framegraph.winograd_panels(w, True)
        dy, x, w, ...)                       dx = <framegraph.winograd_mm(dy, q, w, [1, 1], True)>
                                             dw = framegraph.weight_gradient(x, dy, ..., True)

3x3 windows at every pixel are transformed (winograd.py): the images' gradient is a convolution with
the mirrored weight, and the weight's gradient takes 16 multiplications in place of 36 for the
products of a window with four results, as forwards (codegen/training.cpp). Weights change between
steps, so that each transforms them. Of other windows, the gradients of weights that have more
elements than their images are generated: sums of products of shifted images.

Measured with AVX-512 on Zen 5, one thread (µs of the library, of this: forward; the weight's
transform; the weight's gradient):
    4x64x32x32  -> 64            1320  630    10  1380   690
    4x128x16x16 -> 128           1270  570    50  1300   690
    4x256x8x8   -> 256           1380  550   220  1650   800
    4x512x4x4   -> 512           2140  630  2670  2820  1480
    4x128x16x16 -> 256, stride 2                   900   770
    4x256x8x8   -> 512, stride 2                  1580   990
Inside a step of ResNet-18 the last library's takes 9700: its memory is new in each call.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch

from fxgraph.aot import FunctionalGraph
from fxgraph.node import Node
from fxgraph.sizes import Undecided, hint
from inductor import costs, panel_sample, winograd
from inductor.codegen import weight_gradient as gradient_kernel
from inductor.ir import WeightGradient
from inductor.layout import TO_IMAGES, is_laid_out
from inductor.lowering.symbolic import GraphSizes
from inductor.measure import Budget, Candidate, fastest
from inductor.pack import constant
from inductor.panels import PANEL, Builder
from inductor.registration import operator as own_operator
from inductor.rewriter import GraphRewriter
from inductor.runtime import toolchain
from inductor.sample_plan import buffer, sample_plan, window

MOST_PLACES = 9  # of a window (training.h)

aten = torch.ops.aten


def _panels(weight: torch.Tensor, transposed: bool) -> torch.Tensor:
    """The weight, transformed, in panels; zeros where no kernel reads them."""
    columns, channels = weight.shape[:2]
    if transposed:
        columns, channels = channels, columns
    return weight.new_zeros((winograd.POSITIONS * columns // PANEL, channels, PANEL))


def _gradient(
    x: torch.Tensor,
    gradient: torch.Tensor,
    window: list[int],
    stride: list[int],
    padding: list[int],
    winograd: bool,
) -> torch.Tensor:
    """Of the weight (columns, channels, *window). winograd: by the transforms, of windows of 3x3
    and steps of 1.
    """
    weight = _gradient_meta(x, gradient, window, stride, padding, winograd)
    settings: Any = stride, padding, [1, 1], False, [0, 0], 1, [False, True, False]
    made = aten.convolution_backward.default(gradient, x, weight, None, *settings)[1]
    return made.contiguous()


def _gradient_meta(
    x: torch.Tensor,
    gradient: torch.Tensor,
    window: list[int],
    stride: list[int],
    padding: list[int],
    winograd: bool,
) -> torch.Tensor:
    return x.new_empty((gradient.shape[1], x.shape[1], *window))


winograd_panels = own_operator("winograd_panels(Tensor weight, bool transposed) -> Tensor", _panels)
weight_gradient = own_operator(
    "weight_gradient(Tensor x, Tensor gradient, int[] window, int[] stride, int[] padding, "
    "bool winograd) -> Tensor",
    _gradient,
    _gradient_meta,
)


def generated_training(functional: FunctionalGraph) -> tuple[FunctionalGraph, str] | None:
    """The graph, a part of one that is differentiated, with its convolutions of 3x3 windows by
    generated code, and a note; None if there are none, or the library's are as fast.
    """
    gm = functional.graph_module
    kinds = {node: kind for node in gm.graph.nodes if (kind := _kind(node)) is not None}
    if not kinds or panel_sample.identity() is None:
        return None
    run = _Rewrite(kinds, Budget(costs.TRAINED_SECONDS))
    run.rewrite(gm.graph)
    if not run.products + run.gradients:
        return None
    run.graph.eliminate_dead_code()
    note = (
        f"convolutions: generated code computes {run.products} of 3x3 windows, and "
        f"{run.gradients} gradients of weights"
    )
    return functional.with_graph(run.graph), note


def is_generated(node: Node) -> bool:
    """Whether generated code will compute this convolution, or the gradient of the weight of this
    backward of one, once its images have channels innermost.
    """
    kind = _kind(node)
    if kind is None or panel_sample.identity() is None:
        return False
    budget = Budget(costs.TRAINED_SECONDS)
    if node.target is aten.convolution.default:
        return _has_many_tiles(node.meta["val"]) and _is_ahead(PRODUCT, budget)
    return bool(node.args[-1][1]) and _is_ahead(kind, budget)


PRODUCT, WINOGRAD, WINDOW = "product", "winograd", "window"  # kinds of measurements


def _kind(node: Node) -> str | None:
    """WINOGRAD: of 3x3 windows at every pixel. WINDOW: a backward of other windows."""
    if node.target is aten.convolution.default:
        x, weight, _, stride, padding, dilation, transposed, _, groups = node.args
        images = [node, x]
    elif node.target is aten.convolution_backward.default:
        gradient, x, weight, _, stride, padding, dilation, transposed, _, groups, _ = node.args
        images = [gradient, x]
    else:
        return None
    vals = [used.meta["val"] for used in (*images, weight)]
    known = [n for val in vals for n in val.shape[1:]]
    if (
        transposed
        or any(val.dtype != torch.float32 or val.device.type != "cpu" for val in vals)
        or any(val.dim() != 4 or val.layout is not torch.strided for val in vals)
        or not all(isinstance(n, int) and n > 0 for n in [*known, *weight.meta["val"].shape])
        or _images(vals[0]) == 0
    ):
        return None
    if winograd.is_of_windows(weight, stride, dilation, groups):
        return WINOGRAD if all(0 <= n <= 2 for n in padding) else None
    if node.target is aten.convolution.default or groups != 1 or list(dilation) != [1, 1]:
        return None
    columns, channels, *window = weight.meta["val"].shape
    elements = sum(_images(val) * math.prod(val.shape[1:]) for val in vals[:2])
    fits = columns % PANEL == channels % PANEL == 0 and 1 < math.prod(window) <= MOST_PLACES
    return WINDOW if fits and weight.meta["val"].numel() > elements else None


def _images(val: torch.Tensor) -> int:
    """As the call that compiles has them; 0 if their number is not known."""
    try:
        return hint(GraphSizes().of(val.shape[0]))
    except Undecided:
        return 0


def _has_many_tiles(result: torch.Tensor) -> bool:
    _, _, height, width = result.shape
    return _images(result) * -(-height // 2) * -(-width // 2) >= costs.TRAINED_TILES


class _Rewrite(GraphRewriter):
    """Puts generated kernels in the place of convolutions and their backwards."""

    def __init__(self, kinds: Mapping[Node, str], budget: Budget) -> None:
        super().__init__()
        self.products = self.gradients = 0
        self._kinds = kinds
        measured = {*kinds.values(), *([PRODUCT] if WINOGRAD in kinds.values() else [])}
        self._ahead = {kind for kind in sorted(measured) if _is_ahead(kind, budget)}
        self._build = Builder(self.graph)
        self._innermost: dict[Node, Node] = {}
        self._parts: dict[Node, list[Node | None]] = {}  # a backward -> its results

    def add(self, node: Node) -> None:
        if node.target is operator.getitem and node.args[0] in self._parts:
            part = self._parts[node.args[0]][node.args[1]]
            if part is not None:
                self.new[node] = part
                return
        made = None
        if node in self._kinds:
            forward = node.target is aten.convolution.default
            made = self._convolution(node) if forward else self._backward(node)
        self.new[node] = made or self.graph.node_copy(node, self.new.__getitem__)

    def _convolution(self, node: Node) -> Node | None:
        x, weight, bias, _, padding = node.args[:5]
        if PRODUCT not in self._ahead or not _has_many_tiles(node.meta["val"]):
            return None
        return self._image(x, weight, bias, list(padding), False, node.meta["val"], node.meta)

    def _image(
        self,
        x: Node,
        weight: Node,
        bias: Node | None,
        padding: list[int],
        transposed: bool,
        val: torch.Tensor,
        meta: dict[str, Any],
    ) -> Node:
        """A convolution, in the layout of `val`."""
        build = self._build
        self.products += 1
        new = self.new[weight]
        panels = build.call(winograd_panels, (new, transposed), weight.meta)
        args = (self._channels_innermost(x), panels, new, padding, *[True] * transposed)
        made = build.call(winograd.winograd_mm, args, meta)
        if bias is not None:
            made = build.add(made, self.new[bias], meta)
        _, channels, height, width = val.shape
        made = build.view(made, [-1, height, width, channels], meta)
        made = build.permute(made, TO_IMAGES, meta)
        if is_laid_out(val, torch.channels_last):
            return made
        return build.call(aten.clone.default, (made,), meta, memory_format=torch.contiguous_format)

    def _channels_innermost(self, image: Node) -> Node:
        if image not in self._innermost:
            new, layout = self.new[image], torch.channels_last
            if not is_laid_out(image.meta["val"], layout):
                new = self._build.call(aten.clone.default, (new,), image.meta, memory_format=layout)
            self._innermost[image] = new
        return self._innermost[image]

    def _backward(self, node: Node) -> Node | None:
        gradient, x, weight, *rest, mask = node.args
        stride, padding, vals, kind = rest[1], list(rest[2]), node.meta["val"], self._kinds[node]
        parts: list[Node | None] = [None, None, None]
        transforms = kind == WINOGRAD and PRODUCT in self._ahead
        if mask[0] and transforms and _has_many_tiles(gradient.meta["val"]):
            meta = {**node.meta, "val": vals[0]}
            mirrored = [2 - n for n in padding]
            parts[0] = self._image(gradient, weight, None, mirrored, True, vals[0], meta)
        if mask[1] and kind in self._ahead:
            self.gradients += 1
            both = self._channels_innermost(x), self._channels_innermost(gradient)
            window = list(weight.meta["val"].shape[2:])
            args = (*both, window, list(stride), padding, kind == WINOGRAD)
            meta = {**node.meta, "val": _outermost(vals[1])}
            made = self._build.call(weight_gradient, args, meta)
            parts[1] = self._laid_out_as(vals[1], made)
        if parts == [None, None, None]:
            return None
        self._parts[node] = parts
        left = [wanted and part is None for wanted, part in zip(mask, parts, strict=True)]
        images = [self.new[gradient], self.new[x]]
        if left[0]:  # the library takes a large weight in the program's layout
            images = [self._outermost(one) for one in (gradient, x)]
        args = (*images, self.new[weight], *rest, left)
        made = self.graph.call_function(node.target, args)
        made.meta = {**node.meta, "val": tuple(
            v if one else None for v, one in zip(vals, left, strict=True)
        )}  # fmt: skip
        if left[0]:
            made.meta["val"] = (_outermost(vals[0]), *made.meta["val"][1:])
            image = self.graph.call_function(operator.getitem, (made, 0))
            image.meta = {**node.meta, "val": made.meta["val"][0]}
            parts[0] = self._laid_out_as(vals[0], image)
        return made

    def _laid_out_as(self, val: torch.Tensor, made: Node) -> Node:
        """Lay a result with its channels outside out as `val`."""
        layout = torch.channels_last
        if not is_laid_out(val, layout):
            return made
        meta = {**made.meta, "val": val}
        return self._build.call(aten.clone.default, (made,), meta, memory_format=layout)

    def _outermost(self, image: Node) -> Node:
        """The image with its channels outside."""
        val, new = image.meta["val"], self.new[image]
        if is_laid_out(val, torch.contiguous_format):
            return new
        layout = torch.contiguous_format
        return self._build.call(aten.clone.default, (new,), image.meta, memory_format=layout)


def _outermost(val: torch.Tensor) -> torch.Tensor:
    with val.fake_mode:  # type: ignore[attr-defined]
        return torch.empty_like(val, memory_format=torch.contiguous_format)


# --- which is faster ------------------------------------------------------------------------------
# Of each measurement: images, channels, columns, pixels of a side, step of the window.
_SIZES = {
    PRODUCT: (4, 128, 128, 16, 1),
    WINOGRAD: (4, 128, 128, 16, 1),
    WINDOW: (4, 256, 512, 8, 2),
}


def _is_ahead(kind: str, budget: Budget) -> bool:
    """Whether generated code takes less time than the library here: measured once for a machine,
    of one size, since the two take about the same share of each other's time for all.
    """
    images, channels, columns, side, step = _SIZES[kind]
    settings: Any = [step, step], [1, 1], [1, 1], False, [0, 0], 1

    def full(*size: int) -> torch.Tensor:
        return constant(size)

    def library() -> Callable[[], object]:
        x, w = full(images, channels, side, side), full(columns, channels, 3, 3)
        if kind == PRODUCT:
            return lambda: aten.convolution.default(x, w, None, *settings)
        y, mask = full(images, columns, side // step, side // step), [False, True, False]
        return lambda: aten.convolution_backward.default(y, x, w, None, *settings, mask)

    def generated() -> Callable[[], object]:
        x, y = full(images, side, side, channels), full(images, side // step, side // step, columns)
        if kind == PRODUCT:
            return winograd.sample(x, columns, (1, 1), budget)
        return _sample(x, y, step, kind == WINOGRAD, budget)

    key = f"convolution of training, {kind}, generated by {panel_sample.identity()}"
    candidates: dict[str, Candidate] = {"aten": library, "generated": generated}
    choice = fastest(key, candidates, budget, ahead=costs.TRAINED_AHEAD)
    return choice is not None and choice.name == "generated"


_SOURCE = """#include "training.h"

namespace fg {
extern "C" void sample(void* const* P, int64_t begin, int64_t end) {
  const int64_t* const n = (const int64_t*)P[3];
  const auto of = [&](int i) { return (const float*)P[i]; };
  const KIND a = {of(0), of(1), (float*)P[2], n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8],
                  n[9]REST};
  train(a, begin, end);
}
}
"""


def _sample(
    x: torch.Tensor, gradient: torch.Tensor, step: int, winograd: bool, budget: Budget
) -> Callable[[], object]:
    """Such a gradient of a weight of 3x3 windows. x, gradient: with channels innermost."""
    kind = "WinogradGradient" if winograd else "WindowGradient"
    rest = "" if winograd else ", n[10], n[11], n[12], n[13]"
    with budget.pause():
        made = toolchain.load_library(_SOURCE.replace("KIND", kind).replace("REST", rest))
    out = buffer("out", x.new_empty((gradient.shape[3], x.shape[3], 3, 3)))
    given = {"x": x, "gradient": gradient}
    one, other = (window(name, tensor) for name, tensor in given.items())
    call = WeightGradient("sample", one, other, (3, 3), (step, step), (1, 1), winograd, out)
    numbers = gradient_kernel.numbers(call)["sizes"]
    cut = gradient_kernel.units(call), gradient_kernel.grain(call)
    return sample_plan(made, given, out, numbers, *cut)
