"""Convolutions of one pixel on a GPU, as matrix products, where images have channels innermost.

before                                      after
    y = aten.convolution(x, w, b)               rows = aten.view(aten.permute(x, [0, 2, 3, 1]), ...)
                                                m = aten.addmm(b, rows, <w>)
                                                y = aten.permute(aten.view(m, ...), [0, 3, 1, 2])
    dx, dw, db = aten.convolution_backward(     dx: as y, of the rows of g and of w
        g, x, w, ...)                           dw = aten.mm(aten.permute(<rows of g>), rows)
                                                db: the sum of g, as before

An image is a matrix with a row for each pixel, without a copy. A product is by the library or by
our template (lowering/device_products.py), in which kernels of elements that read the result (batch
norm, relu, a sum) join.

Of float32 only where torch computes products as it computes convolutions: with TF32, or without.
"""

from __future__ import annotations

import operator

import torch

from fxgraph.aot import FunctionalGraph
from fxgraph.node import Node
from inductor import devices
from inductor.convolutions import TO_ROWS, is_of_one_pixel
from inductor.layout import TO_IMAGES, convolutions_allow_tf32
from inductor.lowering.device_products import allows_tf32
from inductor.pack import is_innermost
from inductor.panels import Builder
from inductor.rewriter import GraphRewriter

aten = torch.ops.aten
_HALF = frozenset([torch.bfloat16, torch.float16])


def convolutions_as_products(functional: FunctionalGraph) -> tuple[FunctionalGraph, str] | None:
    """The graph with these convolutions, and their backwards, as products, and a note; None if it
    has none.
    """
    gm = functional.graph_module
    found = [node for node in gm.graph.nodes if _is_product(node)]
    if not found:
        return None
    run = _Rewrite(found)
    run.rewrite(gm.graph)
    run.graph.eliminate_dead_code()
    note = f"products: {len(found)} convolutions of one pixel"
    return functional.with_graph(run.graph), note


def _is_product(node: Node) -> bool:
    if node.target is aten.convolution.default:
        image, weight, _, stride, padding, _, transposed, _, groups = node.args
        images = [node, image]
    elif node.target is aten.convolution_backward.default:
        gradient, image, weight, _, stride, padding, _, transposed, _, groups, mask = node.args
        images = [gradient, image]
        if not any(mask[:2]):
            return False
    else:
        return False
    vals = [used.meta["val"] for used in (*images, weight)]
    dtype = vals[0].dtype
    return (
        all(val.dim() == 4 and val.dtype == dtype and devices.is_gpu(val.device) for val in vals)
        and (dtype in _HALF or (dtype == torch.float32 and _are_equally_exact()))
        and not transposed
        and is_of_one_pixel(weight, stride, padding, groups)
        and all(isinstance(n, int) and n > 0 for val in vals for n in val.shape[1:])
        and all(map(is_innermost, vals[:2]))
    )


def _are_equally_exact() -> bool:
    return convolutions_allow_tf32() == allows_tf32()


class _Rewrite(GraphRewriter):
    """Puts products in the place of convolutions and of their backwards."""

    def __init__(self, found: list[Node]) -> None:
        super().__init__()
        self._found = frozenset(found)
        self._build = Builder(self.graph)
        self._rows: dict[Node, Node] = {}  # an image -> a row for each pixel
        self._parts: dict[Node, list[Node | None]] = {}  # a backward -> its results

    def add(self, node: Node) -> None:
        if node in self._found:
            forward = node.target is aten.convolution.default
            self.new[node] = self._convolution(node) if forward else self._backward(node)
            return
        if node.target is operator.getitem and node.args[0] in self._parts:
            part = self._parts[node.args[0]][node.args[1]]
            if part is not None:
                self.new[node] = part
                return
        super().add(node)

    def _convolution(self, node: Node) -> Node:
        image, weight, bias = node.args[:3]
        build = self._build
        columns = build.permute(self._matrix(weight), [1, 0], weight.meta)
        rows = self._in_rows(image)
        if bias is None:
            made = build.call(aten.mm.default, (rows, columns), node.meta)
        else:
            made = build.call(aten.addmm.default, (self.new[bias], rows, columns), node.meta)
        return self._image(made, node.meta["val"], node)

    def _backward(self, node: Node) -> Node:
        gradient, image, weight, *rest, mask = node.args
        build, vals = self._build, node.meta["val"]
        parts: list[Node | None] = [None, None, None]
        if mask[0]:
            meta = {**node.meta, "val": vals[0]}
            args = (self._in_rows(gradient), self._matrix(weight))
            parts[0] = self._image(build.call(aten.mm.default, args, meta), vals[0], node)
        if mask[1]:
            meta = {**node.meta, "val": vals[1]}
            turned = build.permute(self._in_rows(gradient), [1, 0], gradient.meta)
            made = build.call(aten.mm.default, (turned, self._in_rows(image)), meta)
            parts[1] = build.view(made, [*vals[1].shape], meta)
        self._parts[node] = parts
        used = (self.new[gradient], self.new[image], self.new[weight])
        args = (*used, *rest, [False, False, mask[2]])
        made = self.graph.call_function(node.target, args)  # the sum alone, if that is wanted
        made.meta = {**node.meta, "val": (None, None, vals[2])}
        return made

    def _in_rows(self, image: Node) -> Node:
        if image not in self._rows:
            channels = image.meta["val"].shape[1]
            made = self._build.permute(self.new[image], TO_ROWS, image.meta)
            self._rows[image] = self._build.view(made, [-1, channels], image.meta)
        return self._rows[image]

    def _matrix(self, weight: Node) -> Node:
        return self._build.view(self.new[weight], [*weight.meta["val"].shape[:2]], weight.meta)

    def _image(self, rows: Node, val: torch.Tensor, node: Node) -> Node:
        _, channels, height, width = val.shape
        meta = {**node.meta, "val": val}
        made = self._build.view(rows, [-1, height, width, channels], meta)
        return self._build.permute(made, TO_IMAGES, meta)


__all__ = ["convolutions_as_products"]
