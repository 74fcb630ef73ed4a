"""Graphs for plans that run without torch: products and convolutions by generated code alone.

before                                  after
    y = aten.mm(x, w)                       y = framegraph.panel_mm(x, <w in panels>, columns)
    z = aten.bmm(a, b)                      z = aten.sum(a[:, :, :, None] * b[:, None], 2)
    y = aten.convolution(x, w, b)           m = <a row for each pixel: the window around it>
                                            y = framegraph.panel_mm(m, <w in panels>, channels) + b

Nothing is measured: there is nothing to choose from. Nodes that these do not serve
(transposed convolutions, complex numbers) stay with aten, and the plan needs torch.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch

from fxgraph.aot import FunctionalGraph
from fxgraph.aot.recurrent import recurrent_layer
from fxgraph.node import Node
from inductor.panels import Builder, is_plain
from inductor.rewriter import GraphRewriter
from inductor.standalone_layers import encoder_layer, recurrent

aten = torch.ops.aten
_LOOPED = frozenset([torch.float32, torch.float64])
_LONGEST = 4096  # rows whose running sums are made one by one


def without_libraries(functional: FunctionalGraph) -> tuple[FunctionalGraph, str] | None:
    """The graph with its products and convolutions by generated code, and a note; None if it has
    none.
    """
    run = Rewrite()
    run.rewrite(functional.graph_module.graph)
    if not run.count:
        return None
    run.graph.eliminate_dead_code()
    note = f"standalone: {run.count} products and convolutions by generated code"
    return functional.with_graph(run.graph), note


class Rewrite(GraphRewriter):
    """Puts generated kernels in the place of operators of libraries."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self._build = Builder(self.graph)
        self._panels: dict[Any, Node] = {}
        self._several: dict[Node, tuple[Node, ...]] = {}  # of nodes with several results
        self._meta: dict[str, Any] = {}  # of the node that is replaced, without its value

    def add(self, node: Node) -> None:
        rule = _RULES.get(node.target) if node.op == "call_function" else None
        self._meta = {key: value for key, value in node.meta.items() if key != "val"}
        made: Node | tuple[Node, ...] | None = None
        if rule is not None and not node.kwargs and _is_plain(node):
            made = rule(self, node, *node.args)
        if node.target is operator.getitem and node.args[0] in self._several:
            made = self._several[node.args[0]][node.args[1]]
        elif made is None:
            super().add(node)
            return
        else:
            self.count += 1
        if isinstance(made, tuple):
            self._several[node] = made
            return
        made.meta = dict(node.meta)  # the strides that are promised, however it lies
        self.new[node] = made

    # -- products ---------------------------------------------------------------------------------
    def mm(self, node: Node, a: Node, b: Node) -> Node | None:
        return self._product(self.new[a], b, node.meta)

    def addmm(self, node: Node, bias: Node, a: Node, b: Node) -> Node | None:
        product = self._product(self.new[a], b, node.meta)
        return product and self._build.add(product, self.new[bias], node.meta)

    def _product(self, a: Node, b: Node, meta: dict[str, Any]) -> Node | None:
        """a @ b; `b` is of the old graph."""
        inner, columns = b.meta["val"].shape
        known = isinstance(inner, int) and isinstance(columns, int) and inner and columns
        if known and meta["val"].dtype is torch.float32:
            if b not in self._panels:
                self._panels[b] = self._build.panels(self.new[b], b.meta)
            return self._build.panel_mm(a, self._panels[b], columns, meta)
        return self._sum(a, self.new[b], meta)

    def bmm(self, node: Node, a: Node, b: Node) -> Node | None:
        return self._sum(self.new[a], self.new[b], node.meta)

    def baddbmm(self, node: Node, bias: Node, a: Node, b: Node) -> Node | None:
        product = self._sum(self.new[a], self.new[b], node.meta)
        return product and self._build.add(product, self.new[bias], node.meta)

    def _sum(self, a: Node, b: Node, meta: dict[str, Any]) -> Node | None:
        """The product as a loop over the inner dimension."""
        if meta["val"].dtype not in _LOOPED:
            return None
        call = self._build.call
        left = call(aten.unsqueeze.default, (a, -1), meta)
        right = call(aten.unsqueeze.default, (b, -3), meta)
        product = call(aten.mul.Tensor, (left, right), meta)
        return call(aten.sum.dim_IntList, (product, [-2]), meta)

    def linear(self, x: Node, w: Node, bias: Node | None = None) -> Node:
        """Rows by a weight (columns, inner) of the old graph, plus a bias of the new one."""
        columns = w.meta["val"].shape[0]
        if (w, "turned") not in self._panels:
            turned = self.call(aten.permute.default, self.new[w], [1, 0])
            self._panels[w, "turned"] = self._build.panels(turned, turned.meta)
        made = self._build.panel_mm(x, self._panels[w, "turned"], columns, self._meta)
        return made if bias is None else self.call(aten.add.Tensor, made, bias)

    # -- running sums ----------------------------------------------------------------------------
    def cumsum(self, node: Node, x: Node, dim: int) -> Node | None:
        """A sum for each element, of the elements up to that one: a square of additions, for short
        rows.
        """
        val = x.meta["val"]
        count = val.shape[dim] if val.dim() else None
        if not isinstance(count, int) or count > _LONGEST or not count:
            return None
        dim = dim % val.dim()
        call, last = self.call, val.dim() - 1
        row = self._build.cast(self.new[x], node.meta["val"].dtype, self._meta)
        row = call(aten.transpose.int, row, dim, last) if dim != last else row
        square = call(aten.unsqueeze.default, row, -2)
        square = call(aten.expand.default, square, [*[-1] * last, count, count])
        numbers = self._numbers(count, row.meta["val"].fake_mode)
        until = call(aten.le.Tensor, numbers, call(aten.unsqueeze.default, numbers, 1))
        made = call(aten.sum.dim_IntList, call(aten.where.ScalarOther, until, square, 0), [-1])
        return call(aten.transpose.int, made, dim, last) if dim != last else made

    def _numbers(self, count: int, mode: Any) -> Node:
        made = self.graph.call_function(aten.arange.default, (count,))
        with mode:
            made.meta = {**self._meta, "val": torch.arange(count)}
        return made

    # -- convolutions -----------------------------------------------------------------------------
    def convolution(
        self, node: Node, x: Node, weight: Node, bias: Node | None, stride: list[int],
        padding: list[int], dilation: list[int], transposed: bool, _: Any, groups: int,
    ) -> Node | None:  # fmt: skip
        """Of images, or of signals as images of one row."""
        val, filters = x.meta["val"], weight.meta["val"]
        spatial = val.dim() - 2
        sizes = (*val.shape[1:], *filters.shape)
        if transposed or spatial not in (1, 2) or val.dtype not in _LOOPED:
            return None
        if not all(isinstance(n, int) for n in sizes) or 0 in sizes:
            return None
        settings = [list(one) for one in (stride, padding, dilation)]
        if any(len(one) != spatial for one in settings):
            settings = [one * spatial if len(one) == 1 else one for one in settings]
        image, w = self.new[x], self.new[weight]
        if spatial == 1:
            image = self.call(aten.unsqueeze.default, image, 2)
            w = self.call(aten.unsqueeze.default, w, 2)
            settings = [[plain, *one] for plain, one in zip((1, 0, 1), settings, strict=True)]
        if groups > 1 and groups == image.meta["val"].shape[1] == w.meta["val"].shape[0]:
            made = self._depthwise(image, w, settings)
        else:
            made = self._by_group(image, w, weight, settings, groups)
        if bias is not None:
            made = self.call(aten.add.Tensor, made, self.new[bias])
        made = self.call(aten.permute.default, made, [0, 3, 1, 2])
        if spatial == 1:
            made = self.call(aten.squeeze.dim, made, 2)
        return made

    def _by_group(
        self, image: Node, w: Node, key: Node, settings: list[list[int]], groups: int
    ) -> Node:
        """(images, height, width, channels): each group's product, side by side."""
        channels = image.meta["val"].shape[1]
        filters, inner = w.meta["val"].shape[:2]
        each = filters // groups
        found = []
        for group in range(groups):
            part, some = image, w
            if groups > 1:
                some = self._slice(w, 0, group * each, (group + 1) * each)
                part = self._slice(image, 1, group * inner, (group + 1) * inner)
            found.append(self._product_of_windows(part, some, (key, group), settings))
        assert channels == inner * groups
        return found[0] if groups == 1 else self.call(aten.cat.default, found, 3)

    def _depthwise(self, image: Node, w: Node, settings: list[list[int]]) -> Node:
        """(images, height, width, channels): for each channel, the sum over its window."""
        windows, (high, broad) = self._windows(image, w, settings)
        channels, _, height, width = w.meta["val"].shape
        window = height * width
        windows = self.call(aten.reshape.default, windows, [-1, high, broad, window, channels])
        weight = self.call(aten.reshape.default, w, [channels, window])
        weight = self.call(aten.permute.default, weight, [1, 0])
        product = self.call(aten.mul.Tensor, windows, weight)
        return self.call(aten.sum.dim_IntList, product, [3])

    def _product_of_windows(
        self, image: Node, w: Node, key: Any, settings: list[list[int]]
    ) -> Node:
        """A matrix product: a row for each pixel of the result, a column for each filter."""
        windows, (high, broad) = self._windows(image, w, settings)
        filters, channels, height, width = w.meta["val"].shape
        inner = height * width * channels
        matrix = self.call(aten.reshape.default, windows, [-1, inner])
        flat = self.call(aten.permute.default, w, [2, 3, 1, 0])
        flat = self.call(aten.reshape.default, flat, [inner, filters])
        if w.meta["val"].dtype is torch.float32:
            if key not in self._panels:
                self._panels[key] = self._build.panels(flat, flat.meta)
            made = self._build.panel_mm(matrix, self._panels[key], filters, self._meta)
        else:
            summed = self._sum(matrix, flat, flat.meta)
            assert summed is not None
            made = summed
        return self.call(aten.view.default, made, [-1, high, broad, filters])

    def _windows(
        self, image: Node, w: Node, settings: list[list[int]]
    ) -> tuple[Node, tuple[int, int]]:
        """The input windows of the result's pixels, channels innermost; and the height and width of
        the result.
        """
        (down, across), (above, beside), (far, wide) = settings
        _, _, rows, columns = image.meta["val"].shape
        _, _, height, width = w.meta["val"].shape
        high = (rows + 2 * above - far * (height - 1) - 1) // down + 1
        broad = (columns + 2 * beside - wide * (width - 1) - 1) // across + 1
        if above or beside:
            image = self._padded(image, above, beside)
        image = self.call(aten.permute.default, image, [0, 2, 3, 1])
        if (height, width) == (1, 1):
            windows = self._slice(self._slice(image, 1, 0, None, down), 2, 0, None, across)
        else:
            windows = self._gathered(image, (height, width), (high, broad), settings)
        return windows, (high, broad)

    def _padded(self, image: Node, above: int, beside: int) -> Node:
        edges = [beside, beside, above, above]
        made = self.graph.call_function(aten.constant_pad_nd.default, (image, edges, 0.0))
        val = image.meta["val"]
        images, channels, rows, columns = val.shape
        size = (images, channels, rows + 2 * above, columns + 2 * beside)
        with val.fake_mode:
            made.meta = {**self._meta, "val": val.new_empty(size)}
        return made

    def _gathered(
        self, image: Node, window: tuple[int, int], size: tuple[int, int], settings: Any
    ) -> Node:
        """(images, height, width, window, channels) of (images, height, width, channels)."""
        (down, across), _, (far, wide) = settings
        if far == wide == 1:
            views = self.call(aten.unfold.default, image, 1, window[0], down)
            views = self.call(aten.unfold.default, views, 2, window[1], across)
            return self.call(aten.permute.default, views, [0, 1, 2, 4, 5, 3])
        parts = []
        for i in range(window[0]):
            for j in range(window[1]):
                part = self._slice(image, 1, i * far, i * far + down * (size[0] - 1) + 1, down)
                part = self._slice(part, 2, j * wide, j * wide + across * (size[1] - 1) + 1, across)
                parts.append(part)
        return self.call(aten.cat.default, parts, 3)

    def _slice(self, x: Node, dim: int, start: int, end: int | None, step: int = 1) -> Node:
        size = x.meta["val"].shape[dim]
        if start == 0 and step == 1 and (end is None or end == size):
            return x
        return self.call(aten.slice.Tensor, x, dim, start, size if end is None else end, step)

    def call(self, target: Any, first: Any, *args: Any) -> Node:
        if not isinstance(first, list):
            return self._build.call(target, (first, *args), self._meta)
        made = self._build.graph.call_function(target, (first, *args))
        vals = [node.meta["val"] for node in first]
        with vals[0].fake_mode:
            made.meta = {**self._meta, "val": target(vals, *args)}
        return made


def _is_plain(node: Node) -> bool:
    vals = [used.meta.get("val") for used in node.all_input_nodes]
    return all(isinstance(val, torch.Tensor) and is_plain(val, val.dtype) for val in vals)


_RULES: Mapping[Any, Callable[..., Node | tuple[Node, ...] | None]] = {
    aten.mm.default: Rewrite.mm,
    aten.addmm.default: Rewrite.addmm,
    aten.bmm.default: Rewrite.bmm,
    aten.baddbmm.default: Rewrite.baddbmm,
    aten._transformer_encoder_layer_fwd.default: encoder_layer,
    recurrent_layer: recurrent,
    aten.cumsum.default: Rewrite.cumsum,
    aten.convolution.default: Rewrite.convolution,
}
