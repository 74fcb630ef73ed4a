"""Gradients of the weights that cut images into patches, as products.

before                                   after
    _, dw, db = aten.convolution_backward(   rows = aten.view(aten.clone(aten.permute(aten.view(x,
        dy, x, w, ...)                           [-1, c, h, p, w, q]), [0, 2, 4, 1, 3, 5])), ...)
                                             dw = aten.view(aten.mm(aten.permute(<rows of dy>),
                                                                    rows), ...)
                                             db = aten.sum(dy, [0, 2, 3])

Windows that tile an image are its elements in another order. The library has few channels to put
side by side, and sums over all pixels by slow code in bfloat16. Measured with AMX, one thread
(images -> columns; us of the library, of the copy and the product by aten):
    1x3x224x224 -> 384, 16x16   float32 1189, 822     bfloat16 2402, 435
    8x3x224x224 -> 384, 16x16   float32 7255, 6523    bfloat16 10644, 2629
    2x3x128x128 -> 64, 4x4      float32 474, 340      bfloat16 429, 347
Windows of two elements side by side are left to the library: their copy takes longer than a
product saves (2x64x32x32 -> 128, 2x2: float32 552, 902).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from typing import Any

import torch

from fxgraph.aot import FunctionalGraph
from fxgraph.node import Node
from inductor.convolutions import TO_ROWS
from inductor.layout import TO_IMAGES, is_laid_out
from inductor.pack import is_innermost
from inductor.panels import Builder, is_plain
from inductor.rewriter import GraphRewriter

LEAST_WIDTH = 4  # of a window

aten = torch.ops.aten
# The gradient's layout -> the order of dimensions of (n, c, h, p, w, q) in its rows.
_ORDERS = {
    torch.contiguous_format: [0, 2, 4, 1, 3, 5],
    torch.channels_last: [0, 2, 4, 3, 5, 1],
}
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def gradients_of_patches(functional: FunctionalGraph) -> tuple[FunctionalGraph, str] | None:
    """The graph with these gradients as products, and a note; None if there are none."""
    gm = functional.graph_module
    found = {node for node in gm.graph.nodes if _is_of_patches(node)}
    if not found:
        return None
    run = _Rewrite(found)
    run.rewrite(gm.graph)
    note = f"convolutions: {len(found)} gradients of weights of patches, as products"
    return functional.with_graph(run.graph), note


def _is_of_patches(node: Node) -> bool:
    if node.target is not aten.convolution_backward.default:
        return False
    gradient, x, weight, _, stride, padding, dilation, transposed, _, groups, mask = node.args
    vals = [used.meta["val"] for used in (gradient, x, weight)]
    if any(val.dim() != 4 or not is_plain(val, *_DTYPES) for val in vals):
        return False
    if len({val.dtype for val in vals}) != 1 or mask[0] or not mask[1] or transposed or groups != 1:
        return False
    known = [n for val in vals for n in val.shape[1:]] + [vals[2].shape[0]]
    if not all(isinstance(n, int) and n > 0 for n in known):
        return False
    window = list(vals[2].shape[2:])
    plain = window == list(stride) and {*padding} == {0} and {*dilation} == {1}
    tiled = all(n % size == 0 for n, size in zip(vals[1].shape[2:], window, strict=True))
    laid_out = any(is_laid_out(node.meta["val"][1], layout) for layout in _ORDERS)
    wanted = all(user.target is operator.getitem and mask[user.args[1]] for user in node.users)
    return plain and tiled and laid_out and wanted and window[1] >= LEAST_WIDTH


class _Rewrite(GraphRewriter):
    def __init__(self, found: set[Node]) -> None:
        super().__init__()
        self._found = found
        self._build = Builder(self.graph)

    def add(self, node: Node) -> None:
        if node.target is operator.getitem and node.args[0] in self._found:
            convolution, part = node.args
            make = self._sum if part == 2 else self._gradient
            self.new[node] = make(convolution, node.meta)
        elif node not in self._found:
            super().add(node)

    def _sum(self, convolution: Node, meta: Mapping[str, Any]) -> Node:
        gradient = self.new[convolution.args[0]]
        return self._build.call(aten.sum.dim_IntList, (gradient, [0, 2, 3]), dict(meta))

    def _gradient(self, convolution: Node, meta: Mapping[str, Any]) -> Node:
        build, about = self._build, dict(meta)
        gradient, x, weight = convolution.args[:3]
        columns, channels, *window = weight.meta["val"].shape
        _, _, height, width = gradient.meta["val"].shape
        split = [-1, channels, height, window[0], width, window[1]]
        val = convolution.meta["val"][1]
        layout = next(layout for layout in _ORDERS if is_laid_out(val, layout))
        tiles = build.permute(build.view(self.new[x], split, about), _ORDERS[layout], about)
        rows = build.view(self._copy(tiles, about), [-1, channels * math.prod(window)], about)
        pixels = build.permute(self.new[gradient], TO_ROWS, about)
        if not is_innermost(gradient.meta["val"]):
            pixels = self._copy(pixels, about)
        turned = build.permute(build.view(pixels, [-1, columns], about), [1, 0], about)
        made = build.call(aten.mm.default, (turned, rows), about)
        if layout is torch.contiguous_format:
            return build.view(made, [columns, channels, *window], about)
        return build.permute(
            build.view(made, [columns, *window, channels], about), TO_IMAGES, about
        )

    def _copy(self, made: Node, about: dict[str, Any]) -> Node:
        layout = torch.contiguous_format
        return self._build.call(aten.clone.default, (made,), about, memory_format=layout)
