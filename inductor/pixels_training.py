"""Training's convolutions of one pixel, as products, where images have channels innermost.

before                                   after
    y = aten.convolution(x, w, b)            y = aten.view(aten.mm(<rows of x>, aten.permute(<w>)))
                                             y = aten.permute(y, [0, 3, 1, 2]) + b

    dx, dw, db = aten.convolution_backward(  dx = <aten.mm(<rows of dy>, <w>)>
        dy, x, w, ...)                       dw = <aten.mm(aten.permute(<rows of dy>), <rows of x>)>
                                             db = aten.sum(dy, [0, 2, 3])

An image is a matrix with a row for each pixel. Products lie in the plan's memory, and the fastest
code for each is chosen (products.py); the library's convolution reorders a weight in each step, and
gives the weight's gradient in a layout of its own.

Measured with AVX-512 on a Xeon with AMX, one thread (us of the library: forward and backward; of
aten's products):
    4x32x64x64  -> 16     916   607        4x384x8x8  -> 64     349  255
    4x144x32x32 -> 24    1125   806        4x96x8x8   -> 576    622  525
    4x32x16x16  -> 192    325   265        4x960x4x4  -> 320   1211  799
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from fxgraph.aot import FunctionalGraph
from fxgraph.node import Node
from inductor import costs, matrices, panel_sample
from inductor.convolutions import TO_ROWS, is_of_one_pixel
from inductor.layout import TO_IMAGES
from inductor.measure import Budget, Candidate, fastest
from inductor.pack import constant, is_innermost
from inductor.panels import Builder, has_pairs, is_plain
from inductor.rewriter import GraphRewriter

SAMPLE = 4, 144, 32, 16  # of the measurement: images, channels, columns, pixels of a side

aten = torch.ops.aten


def pixels_as_products(functional: FunctionalGraph) -> tuple[FunctionalGraph, str] | None:
    """The graph, a part of one that is differentiated, with these convolutions as products, and a
    note; None if there are none.
    """
    gm = functional.graph_module
    found = {node for node in gm.graph.nodes if is_of_pixels(node) and is_in_rows(node)}
    if not found:
        return None
    run = _Rewrite(found)
    run.rewrite(gm.graph)
    run.graph.eliminate_dead_code()
    note = f"convolutions: {len(found)} of one pixel or their backwards, as products"
    return functional.with_graph(run.graph), note


def is_of_pixels(node: Node) -> bool:
    """Whether products will compute this convolution, or backward of one, once its images have
    channels innermost.
    """
    if node.target is aten.convolution.default:
        x, weight, _, stride, padding, _, transposed, _, groups = node.args
        images = [node.meta["val"], x.meta["val"]]
    elif node.target is aten.convolution_backward.default:
        gradient, x, weight, _, stride, padding, _, transposed, _, groups, _ = node.args
        images = [gradient.meta["val"], x.meta["val"]]
    else:
        return False
    vals = [*images, weight.meta["val"]]
    dtypes = [torch.float32, *[torch.bfloat16] * has_pairs()]
    if transposed or any(val.dim() != 4 or not is_plain(val, *dtypes) for val in vals):
        return False
    known = [n for val in images for n in val.shape[1:]] + [*vals[2].shape]
    if not all(isinstance(n, int) and n > 0 for n in known):
        return False
    if len({val.dtype for val in vals}) != 1 or panel_sample.identity() is None:
        return False
    return is_of_one_pixel(weight, stride, padding, groups) and _is_ahead(vals[0].dtype)


def is_in_rows(node: Node) -> bool:
    """Whether its images have channels innermost, as has the one of its results."""
    forward = node.target is aten.convolution.default
    made = node.meta["val"] if forward else node.meta["val"][0]
    used = [one.meta["val"] for one in node.args[: 1 if forward else 2]]
    return all(val is None or is_innermost(val) for val in (made, *used))


class ConvolutionRewriter(GraphRewriter):
    """Puts code of ours in the place of convolutions and of the parts of their backwards."""

    def __init__(self, found: set[Node]) -> None:
        super().__init__()
        self._found = found
        self._build = Builder(self.graph)

    def add(self, node: Node) -> None:
        if node.target is operator.getitem and node.args[0] in self._found:
            backward, part = node.args
            make = (self._image_gradient, self._weight_gradient, self._sum)[part]
            self.new[node] = make(backward, node.meta)
        elif node not in self._found:
            super().add(node)
        elif node.target is aten.convolution.default:
            self.new[node] = self._convolution(node)
        elif (made := self._backward(node)) is not None:
            self.new[node] = made

    def _convolution(self, node: Node) -> Node:
        raise NotImplementedError

    def _backward(self, node: Node) -> Node | None:
        """The node that the parts of a backward are taken from, if there is one."""
        return None

    def _image_gradient(self, backward: Node, meta: dict[str, Any]) -> Node:
        raise NotImplementedError

    def _weight_gradient(self, backward: Node, meta: dict[str, Any]) -> Node:
        raise NotImplementedError

    def _sum(self, backward: Node, meta: dict[str, Any]) -> Node:
        args = (self.new[backward.args[0]], [0, 2, 3])
        return self._build.call(aten.sum.dim_IntList, args, meta)


class _Rewrite(ConvolutionRewriter):
    def __init__(self, found: set[Node]) -> None:
        super().__init__(found)
        self._rows: dict[Node, Node] = {}  # an image -> a row for each pixel

    def _convolution(self, node: Node) -> Node:
        x, weight, bias = node.args[:3]
        build, meta = self._build, node.meta
        turned = build.permute(self._matrix(weight), [1, 0], meta)
        made = build.call(aten.mm.default, (self._in_rows(x), turned), meta)
        if bias is not None:
            made = build.add(made, self.new[bias], meta)
        return self._image(made, node.meta["val"], meta)

    def _image_gradient(self, backward: Node, meta: dict[str, Any]) -> Node:
        gradient, _, weight = backward.args[:3]
        args = (self._in_rows(gradient), self._matrix(weight))
        made = self._build.call(aten.mm.default, args, meta)
        return self._image(made, meta["val"], meta)

    def _weight_gradient(self, backward: Node, meta: dict[str, Any]) -> Node:
        gradient, x = backward.args[:2]
        build, val = self._build, meta["val"]
        turned = build.permute(self._in_rows(gradient), [1, 0], meta)
        made = build.call(aten.mm.default, (turned, self._in_rows(x)), meta)
        made = build.view(made, list(val.shape), meta)
        if made.meta["val"].stride() == val.stride():
            return made
        layout = torch.channels_last  # whose steps over one place differ
        return build.call(aten.clone.default, (made,), meta, memory_format=layout)

    def _in_rows(self, image: Node) -> Node:
        if image not in self._rows:
            channels = image.meta["val"].shape[1]
            made = self._build.permute(self.new[image], TO_ROWS, image.meta)
            self._rows[image] = self._build.view(made, [-1, channels], image.meta)
        return self._rows[image]

    def _matrix(self, weight: Node) -> Node:
        """A row for each column of the result."""
        size, build = list(weight.meta["val"].shape[:2]), self._build
        return build.call(aten.reshape.default, (self.new[weight], size), weight.meta)

    def _image(self, rows: Node, val: torch.Tensor, meta: dict[str, Any]) -> Node:
        _, channels, height, width = val.shape
        made = self._build.view(rows, [-1, height, width, channels], meta)
        return self._build.permute(made, TO_IMAGES, meta)


def _is_ahead(dtype: torch.dtype) -> bool:
    """Whether generated products of a step take less time than the library here: measured once for
    a machine, of one size.
    """
    images, channels, columns, side = SAMPLE
    settings: Any = [1, 1], [0, 0], [1, 1], False, [0, 0], 1
    budget = Budget(costs.TRAINED_SECONDS)

    def image(size: int) -> torch.Tensor:
        return constant((images, side, side, size)).to(dtype)

    def library() -> Callable[[], object]:
        x, y = (image(n).permute(TO_IMAGES) for n in (channels, columns))
        w, mask = constant((columns, channels, 1, 1)).to(dtype), [True, True, False]
        forward, backward = aten.convolution.default, aten.convolution_backward.default
        return lambda: (forward(x, w, None, *settings), backward(y, x, w, None, *settings, mask))

    def products() -> Callable[[], object]:
        x, y = (image(n).flatten(0, 2) for n in (channels, columns))
        w = constant((columns, channels)).to(dtype)
        made = [matrices.sample(*both, budget) for both in ((x, w.t()), (y, w), (y.t(), x))]
        return lambda: [one() for one in made]

    key = f"training's convolution of a pixel, {dtype}, direct by {panel_sample.identity()}"
    candidates: dict[str, Candidate] = {"products": products, "library": library}
    choice = fastest(key, candidates, budget, ahead=costs.TRAINED_AHEAD)
    return choice is None or choice.name == "products"
