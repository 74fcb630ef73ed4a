"""Convolutions that generated code computes, where images have channels innermost.

before                                  after
    y = aten.convolution(x, w, b)           p = <w in panels>                 | a derived static
                                            a = aten.view(aten.permute(x, [0, 2, 3, 1]), ...)
                                            m = framegraph.panel_mm(a, p, channels)
                                            y = aten.permute(aten.view(m + b, ...), [0, 3, 1, 2])

    z = aten.convolution(y, v, c)           q = <v, channels innermost>       | a derived static
        | a weight for each channel         z = framegraph.depthwise_convolution(y, q, ...) + c

Of one pixel: an image is a matrix with a row for each; in bfloat16, too, by pairs (panels.py).
Depthwise: loops over the window, written out. Of 3x3 windows: winograd.py. Of any windows, in
bfloat16: windows.py. Readers of the result join the kernel: relu and clamps too, whose results for
NaN differ in the library.

Measured with AVX2, 2 threads (GFLOP/s of the library with a packed weight, of generated code):
    4x32x64x64   -> 16    73  117        4x384x8x8    -> 96    88  135
    4x144x16x16  -> 32    54  103        4x160x4x4    -> 960   66  120
    1x64x56x56   -> 256  101  127        1x1024x14x14 -> 256  102  133
and depthwise, of 3x3 but the last (µs):
    4x32x64x64   315  270    4x96x64x64, stride 2  301  206    4x144x32x32     391  246
    4x192x16x16  177  93     4x384x8x8             122  49     1x240x14x14, 5x5 146  84
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from fxgraph.aot import FunctionalGraph
from fxgraph.node import Node
from inductor import costs, panel_sample, windows, winograd
from inductor.costs import room_for_copies
from inductor.derive import PREPARED, closure
from inductor.layout import TO_IMAGES
from inductor.measure import Budget
from inductor.pack import PACKED, is_innermost, is_packable, packs_convolutions
from inductor.panels import Builder, has_pairs, panel_bytes
from inductor.registration import operator
from inductor.rewriter import GraphRewriter

TO_ROWS = [0, 2, 3, 1]  # the order of dimensions
MAX_WINDOW = 25  # elements of a window that a loop's body writes out

aten = torch.ops.aten


def _depthwise(
    x: torch.Tensor,
    weight: torch.Tensor,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
) -> torch.Tensor:
    """weight: (height, width, channels)."""
    per_channel = weight.permute(2, 0, 1).unsqueeze(1)
    settings = (stride, padding, dilation, False, [0, 0], x.shape[1])
    y = aten.convolution.default(x, per_channel, None, *settings)
    return y.contiguous(memory_format=torch.channels_last)


depthwise_convolution = operator(
    "depthwise_convolution(Tensor x, Tensor weight, int[] stride, int[] padding, int[] dilation) "
    "-> Tensor",
    _depthwise,
)


def generated_convolutions(
    functional: FunctionalGraph, sources: Mapping[Node, int], *, libraries: bool = True
) -> tuple[FunctionalGraph, str] | None:
    """The graph with these convolutions by generated code, and a note; None if there is none, or no
    compiler. libraries: whether the others may be left to one.
    """
    gm = functional.graph_module
    if panel_sample.identity() is None:
        return None
    budget = Budget(costs.WINDOW_SECONDS) if libraries and packs_convolutions() else None
    run = _Rewrite(_found(gm.graph.nodes, sources, budget))
    if not run.kinds:
        return None
    run.rewrite(gm.graph)
    count = Counter(run.kinds.values())
    note = (
        f"pack: generated code computes {count[PIXEL]} convolutions of one pixel, as products, "
        f"{count[DEPTHWISE]} depthwise ones, and {count[WINDOW] + count[PAIRS]} of other windows"
    )
    return functional.with_graph(run.graph), note


PIXEL, DEPTHWISE, WINDOW, PAIRS = "pixel", "depthwise", "window", "pairs"  # kinds


def _found(
    nodes: Iterable[Node], sources: Mapping[Node, int], budget: Budget | None
) -> dict[Node, str]:
    """The kinds of the convolutions, as far as there is room for their weights. budget: for
    measuring windows, if the library is an alternative.
    """
    static = closure(nodes, sources)
    room = room_for_copies()
    choices = windows.Choices(budget) if budget is not None else None
    kinds: dict[Node, str] = {}
    copied: set[Node] = set()
    for node in nodes:
        if not is_packable(node, static, *PACKED):
            continue
        if not all(is_innermost(one.meta["val"]) for one in (node, node.args[0])):
            continue
        kind, weight = _kind(node, budget, choices), node.args[1]
        if kind is None:
            continue
        if weight not in copied:
            columns, *inner = weight.meta["val"].shape
            needed = panel_bytes(math.prod(inner), columns, weight.meta["val"].dtype)
            needed += needed if kind == WINDOW else 0
            if kind == PAIRS:
                needed = windows.panel_bytes_of(weight.meta["val"].shape)
            if needed > room:
                continue
            room -= needed
            copied.add(weight)
        kinds[node] = kind
    return kinds


def _kind(node: Node, budget: Budget | None, choices: windows.Choices | None) -> str | None:
    half = node.meta["val"].dtype == torch.bfloat16  # what widen.py leaves so
    _, weight, _, stride, padding, _, _, _, groups = node.args
    if is_of_one_pixel(weight, stride, padding, groups):
        return PIXEL if has_pairs() or not half else None
    if half:
        if choices is None or not windows.is_of_pairs(node):
            return None
        return PAIRS if choices.is_faster(node) else None
    if is_depthwise(node):
        return DEPTHWISE
    if budget is not None and winograd.is_winograd(node) and winograd.is_faster(node, budget):
        return WINDOW
    return None


def is_of_one_pixel(
    weight: Node, stride: Iterable[int], padding: Iterable[int], groups: int
) -> bool:
    window = list(weight.meta["val"].shape[2:])
    return groups == 1 and window == [1, 1] == list(stride) and list(padding) == [0, 0]


def is_depthwise(node: Node) -> bool:
    """Whether loops over the window of each channel compute the convolution."""
    image, weight, *_, groups = node.args
    channels, inner, height, width = weight.meta["val"].shape
    each = groups == channels == image.meta["val"].shape[1] and inner == 1
    return each and height * width <= MAX_WINDOW


class _Rewrite(GraphRewriter):
    """Puts generated kernels in the place of convolutions."""

    def __init__(self, kinds: Mapping[Node, str]) -> None:
        super().__init__()
        self.kinds = kinds
        self._build = Builder(self.graph)
        self._rows: dict[Node, Node] = {}  # an image -> a row for each pixel
        self._weights: dict[tuple[Node, str], Node] = {}  # a weight, a kind of kernel

    def add(self, node: Node) -> None:
        kind = self.kinds.get(node)
        if kind is None:
            super().add(node)
        else:
            self.new[node] = self._of_channels(node) if kind == DEPTHWISE else self._rows_of(node)

    def _rows_of(self, node: Node) -> Node:
        """The convolution as a product: a row for each pixel of the result."""
        image, weight, bias, stride, padding, dilation = node.args[:6]
        build, columns = self._build, weight.meta["val"].shape[0]
        _, _, height, width = node.meta["val"].shape
        panels = self._weight(weight, self.kinds[node])
        if self.kinds[node] == PIXEL:
            made = build.panel_mm(self._in_rows(image), panels, columns, node.meta)
        elif self.kinds[node] == PAIRS:
            args = (self.new[image], panels, self.new[weight])
            settings = (list(stride), list(padding), list(dilation))
            made = build.call(windows.window_mm, (*args, *settings), node.meta)
        else:
            used = self.new[image], panels, self.new[weight], list(padding)
            made = build.call(winograd.winograd_mm, used, node.meta)
        if bias is not None:
            made = build.add(made, build.cast(self.new[bias], torch.float32, bias.meta), node.meta)
        made = build.cast(made, node.meta["val"].dtype, node.meta)
        made = build.view(made, [-1, height, width, columns], node.meta)
        return build.permute(made, TO_IMAGES, node.meta)

    def _in_rows(self, image: Node) -> Node:
        if image not in self._rows:
            channels = image.meta["val"].shape[1]
            made = self._build.permute(self.new[image], TO_ROWS, image.meta)
            made = self._build.view(made, [-1, channels], image.meta)
            self._rows[image] = made
        return self._rows[image]

    def _weight(self, weight: Node, kind: str) -> Node:
        """As the kernel of that kind reads it."""
        if (weight, kind) not in self._weights:
            made = _PREPARE[kind](self._build, self.new[weight], weight.meta)
            self._weights[weight, kind] = made
        return self._weights[weight, kind]

    def _of_channels(self, node: Node) -> Node:
        image, weight, bias, stride, padding, dilation = node.args[:6]
        args = (self.new[image], self._weight(weight, DEPTHWISE), stride, padding, dilation)
        made = self._build.call(depthwise_convolution, args, node.meta)
        if bias is not None:
            shaped = self._build.view(self.new[bias], [1, -1, 1, 1], bias.meta)
            made = self._build.add(made, shaped, node.meta)
        return made


def _in_panels(build: Builder, weight: Node, meta: dict[str, Any]) -> Node:
    columns, inner = weight.meta["val"].shape[:2]
    made = build.view(weight, [columns, inner], meta)
    made = build.permute(made, [1, 0], meta)
    return build.panels(made, meta, pairs=weight.meta["val"].dtype == torch.bfloat16)


def _innermost(build: Builder, weight: Node, meta: dict[str, Any]) -> Node:
    """(height, width, channels)"""
    channels, _, height, width = weight.meta["val"].shape
    made = build.view(weight, [channels, height, width], meta)
    made = build.permute(made, [1, 2, 0], meta)
    made = build.call(aten.clone.default, (made,), meta, memory_format=torch.contiguous_format)
    made.meta[PREPARED] = True
    return made


_PREPARE: dict[str, Callable[[Builder, Node, dict[str, Any]], Node]] = {
    PIXEL: _in_panels,
    DEPTHWISE: _innermost,
    WINDOW: winograd.transformed,
    PAIRS: windows.weight_in_panels,
}
