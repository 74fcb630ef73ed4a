"""The layout of images between convolutions.

A device's library (LIBRARIES) computes convolutions with channels innermost, and reorders images
that it is given otherwise, before and after each. So a graph keeps its images that way between
convolutions, and reorders at its ends, where that moves fewer elements in all. Weights are among
them: those that lie otherwise aten copies in each call, which on a GPU takes the library no more
than it does itself; those that are packed (pack.py) nobody reorders.

before                              after
    a = aten.convolution(x, w)          y = aten.clone(x, memory_format=channels_last)
    b = aten.relu(a)                    a = aten.convolution(y, w)      | channels innermost
    c = aten.convolution(b, v)          b = aten.relu(a)                | channels innermost
    return (c,)                         c = aten.convolution(b, v)      | channels innermost
                                        d = aten.clone(c, memory_format=contiguous_format)
                                        return (d,)

A graph with its backward is laid out before it is cut in two, so that values saved between the
parts have the layout that both read. There a convolution whose weight has more elements than its
images stays as it is, unless code of ours computes it (convolutions_training.py and the like).

Operators whose result depends on the order of elements in memory (views, random numbers), and
results of the graph, are given the program's own layout.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from fxgraph.aot import FunctionalGraph
from fxgraph.aot.partition import RELAID
from fxgraph.args import leaves, map_aggregate
from fxgraph.graph import Graph
from fxgraph.node import Node
from fxgraph.sizes import Undecided, hint
from inductor import costs
from inductor.lowering.symbolic import GraphSizes
from inductor.rewriter import GraphRewriter

aten = torch.ops.aten
TO_IMAGES = [0, 3, 1, 2]  # the order of dimensions of images whose channels are innermost
_HALF = frozenset([torch.bfloat16, torch.float16])


@dataclass(frozen=True)
class Library:
    """A device's library of convolutions. dtypes: which it computes with channels innermost, as it
    is set; none where it is off. weights: whether a weight is reordered for such images alone.
    groups: whether it is as good at groups of several channels. statistics: whether kernels that
    sum up each channel are as fast: on a GPU a channel is a program's if it lies in one piece, and
    the work of several kernels otherwise.
    """

    dtypes: Callable[[], frozenset[torch.dtype]]
    weights: bool
    groups: bool
    statistics: bool


def _of_onednn() -> frozenset[torch.dtype]:
    on = torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled
    return _HALF | {torch.float32} if on else frozenset()


def _of_cudnn() -> frozenset[torch.dtype]:
    """The types that tensor cores multiply. MIOpen, of ROCm, is given the program's layout."""
    if not torch.backends.cudnn.enabled or torch.version.hip is not None:
        return frozenset()
    return _HALF | {torch.float32} if convolutions_allow_tf32() else _HALF


def convolutions_allow_tf32() -> bool:
    """Whether torch computes convolutions of float32 in TF32 on a GPU."""
    try:
        return bool(torch._C._get_cudnn_allow_tf32())
    except RuntimeError:  # set by torch's newer settings
        return torch._C._get_fp32_precision_getter("cuda", "conv") == "tf32"


LIBRARIES: dict[str, Library] = {
    "cpu": Library(_of_onednn, weights=True, groups=True, statistics=True),
    "cuda": Library(_of_cudnn, weights=False, groups=False, statistics=False),
}
# Besides pointwise operators: those that read an element by its indices alone.
_ANY_LAYOUT = frozenset(
    getattr(packet, overload)
    for packet in (
        aten._adaptive_avg_pool2d,
        aten._native_batch_norm_legit_functional,
        aten._native_batch_norm_legit_no_training,
        aten.amax,
        aten.avg_pool2d,
        aten.cat,
        aten.constant_pad_nd,
        aten.hardswish,
        aten.max_pool2d_with_indices,
        aten.max_pool2d_with_indices_backward,
        aten.mean,
        aten.sum,
        aten.upsample_bilinear2d,
        aten.upsample_nearest2d,
    )
    for overload in packet.overloads()
)
# Operators that sum up each channel of a batch.
_STATISTICS = frozenset([aten._native_batch_norm_legit_functional.default])


def channels_innermost(
    functional: FunctionalGraph,
    packed: Collection[Node] = (),
    generated: Callable[[Node], bool] = lambda convolution: True,
) -> tuple[FunctionalGraph, str] | None:
    """The graph with its images that way, and a note on it; None where the program's stays.

    packed: convolutions whose weights will be in the library's layout if the images are.
    generated: whether kernels of ours may compute a convolution, of images that lie so alone.
    """
    gm = functional.graph_module
    if not any(map(_is_convolution, gm.graph.nodes)):
        return None
    rewrite = _Rewrite(packed, generated)
    rewrite.rewrite(gm.graph)
    if rewrite.saved <= rewrite.spent + rewrite.margin:
        return None
    note = (
        f"layout: channels innermost, which reorders {rewrite.spent} elements in a call "
        f"in place of the {rewrite.saved} around {rewrite.convolutions} convolutions"
    )
    return functional.with_graph(rewrite.graph), note


def joint_channels_innermost(
    graph: Graph, visible: Iterable[Node], generated: Callable[[Node], bool]
) -> tuple[Graph, Callable[[Node], Node]] | None:
    """A graph and its backward with its images that way, and a map from old nodes to new: those in
    `visible` and placeholders keep the program's layout. None where all do.

    generated: whether generated code will compute a convolution, or its backward.
    """
    rewrite = _JointRewrite(generated)
    if not any(map(rewrite.is_worth, graph.nodes)):
        return None
    for node in graph.nodes:
        rewrite.add(node)
    for node in visible:
        rewrite.plain(node)
    if rewrite.saved <= rewrite.spent:
        return None
    return rewrite.graph, rewrite.plain


def _is_convolution(node: Node) -> bool:
    if node.target is not aten.convolution.default or node.args[6]:  # transposed
        return False
    if not _is_of_library(node.meta["val"], node.args[1].meta["val"], node.args[8]):
        return False
    return _is_image(node.meta["val"]) and _is_image(node.args[0].meta["val"])


def _is_of_library(val: torch.Tensor, weight: torch.Tensor, groups: Any) -> bool:
    """Whether the device's library prefers channels innermost, for such weights."""
    library = LIBRARIES.get(val.device.type)
    if library is None or val.dtype not in library.dtypes():
        return False
    return library.groups or groups == 1 or weight.shape[1] == 1


def _is_image(val: Any) -> bool:
    """Whether a value has four dimensions, of known size but for the first, of which the channels
    are outside.
    """
    if not isinstance(val, torch.Tensor) or val.dim() != 4:
        return False
    if val.device.type not in LIBRARIES or val.layout is not torch.strided:
        return False
    if not all(isinstance(n, int) for n in val.shape[1:]) or not _images(val):
        return False
    return is_laid_out(val, torch.contiguous_format)


def is_laid_out(val: torch.Tensor, layout: torch.memory_format) -> bool:
    """is_contiguous of images whose number may vary, without a guard on the number."""
    if isinstance(val.shape[0], int):
        return val.is_contiguous(memory_format=layout)
    if _images(val) is None:
        return False
    _, c, h, w = val.shape
    innermost = layout is torch.channels_last
    wanted = (1, c * w, c) if innermost else (h * w, w, 1)
    steps = [c * h * w, *wanted]
    return all(
        isinstance(step, int) and (step == expected or size == 1)
        for step, expected, size in zip(val.stride(), steps, (0, c, h, w), strict=True)
    )


def _images(val: torch.Tensor) -> int | None:
    """How many there are, in the call that compiles if their number varies."""
    try:
        return hint(GraphSizes().of(val.shape[0]))
    except Undecided:
        return None


def _elements(val: torch.Tensor) -> int:
    return (_images(val) or 0) * math.prod(val.shape[1:])


def _reordered(val: Any) -> Any:
    """The value with channels innermost, if it is an image that is laid out otherwise."""
    if not _is_image(val) or is_laid_out(val, torch.channels_last):
        return val
    n, c, h, w = val.shape
    with val.fake_mode:
        return torch.empty_strided(
            (n, c, h, w), (c * h * w, 1, c * w, c), dtype=val.dtype, device=val.device
        )


class _Rewrite(GraphRewriter):
    """The new graph as it grows; and how many elements the library need no longer reorder in a call
    (`saved`), how many are reordered on top (`spent`).
    """

    def __init__(self, packed: Collection[Node], generated: Callable[[Node], bool]) -> None:
        super().__init__()
        self._packed = packed
        self._is_generated = generated
        self.convolutions = 0
        self.saved = 0
        self.spent = 0
        self._without_margin = False  # kernels of ours, or a GPU's, may read the images
        self._pixels = 0  # convolutions of one pixel, without steps
        self._moved: set[Node] = set()  # of the new graph: not in the program's layout
        self._copies: dict[tuple[Node, torch.memory_format], Node] = {}

    def add(self, node: Node) -> None:
        if _is_convolution(node):
            image = node.args[0]
            made = self.graph.node_copy(
                node, lambda used: self._innermost(used) if used is image else self.plain(used)
            )
            self._count(node)
            self._move(made)
        elif self._follows(node):
            size = getattr(node.meta.get("val"), "shape", None)
            made = self.graph.node_copy(
                node, lambda used: self._innermost(used) if _has(used, size) else self.new[used]
            )
            self._move(made)
        else:
            made = self.graph.node_copy(node, self.plain)
        self.new[node] = made

    def _count(self, convolution: Node) -> None:
        image, weight = (used.meta["val"] for used in convolution.args[:2])
        self.convolutions += 1
        self._pixels += weight.shape[2:] == (1, 1) and list(convolution.args[3]) == [1, 1]
        self.saved += _elements(image) + _elements(convolution.meta["val"])
        if not LIBRARIES[image.device.type].weights:
            self._without_margin = True
            return
        self._without_margin |= self._is_generated(convolution)
        if convolution in self._packed:
            self.saved += weight.numel()
        elif not weight.is_contiguous(memory_format=torch.channels_last):
            self.spent += weight.numel()  # aten has it in the image's layout first

    @property
    def margin(self) -> int:
        """Elements to be saved on top. The library reorders large images into blocks faster than a
        copy does: a packed weight alone does not pay for the copies at both ends of a layer. Nor
        does it for products of small images' pixels (2x16x32x32 -> 32, us: 70; the library 55).
        """
        small = self.spent < costs.LARGE_IMAGES and self._pixels < self.convolutions
        return 0 if self._without_margin or small else self.spent // 16

    def _follows(self, node: Node) -> bool:
        """Whether the node reads reordered images, and may."""
        if not any(self.new[used] in self._moved for used in node.all_input_nodes):
            return False
        if not isinstance(node.target, torch._ops.OpOverload):
            return node.target is operator.getitem
        tags, schema = node.target.tags, node.target._schema
        if schema.is_mutable or torch.Tag.nondeterministic_seeded in tags:
            return False
        if node.target is aten._to_copy.default:
            return node.kwargs.keys() == {"dtype"}
        if node.target in _STATISTICS:
            device = node.all_input_nodes[0].meta["val"].device
            return LIBRARIES[device.type].statistics
        return torch.Tag.pointwise in tags or node.target in _ANY_LAYOUT

    def _move(self, made: Node) -> None:
        """Give the images of the result the other layout."""
        val = made.meta.get("val")
        if made.target is operator.getitem:
            source, number = made.args
            made.meta["val"] = source.meta["val"][number]
        else:
            made.meta["val"] = map_aggregate(val, _reordered)
        if any(a is not b for a, b in zip(leaves(made.meta["val"]), leaves(val), strict=True)):
            self._moved.add(made)

    def _innermost(self, node: Node) -> Node:
        new, val = self.new[node], node.meta["val"]
        if new in self._moved or _reordered(val) is val:
            return new
        return self._copy(node, new, torch.channels_last)

    def plain(self, node: Node) -> Node:
        """The node in the program's layout."""
        new = self.new[node]
        return self._copy(node, new, torch.contiguous_format) if new in self._moved else new

    def _copy(self, node: Node, new: Node, layout: torch.memory_format) -> Node:
        key = new, layout
        if key not in self._copies:
            copied = self.graph.call_function(aten.clone.default, (new,), {"memory_format": layout})
            val = node.meta["val"]
            copied.meta = dict(new.meta)
            copied.meta["val"] = _reordered(val) if layout is torch.channels_last else val
            copied.meta[RELAID] = True
            if layout is torch.channels_last:
                self._moved.add(copied)
            self.spent += _elements(val)
            self._copies[key] = copied
        return self._copies[key]


class _JointRewrite(_Rewrite):
    """Of a graph with its backward."""

    def __init__(self, generated: Callable[[Node], bool]) -> None:
        super().__init__((), generated)

    def add(self, node: Node) -> None:
        if self.is_worth(node):
            self._add_convolution(node)
        elif (source := _convolution_of(node)) is None or self.is_worth(source):
            super().add(node)
            if source is not None and source is not node:
                self._add_weight_gradient(node, source)
        else:
            self._add_plain(node)

    def _add_convolution(self, node: Node) -> None:
        forward = node.target is aten.convolution.default
        images = node.args[: 1 if forward else 2]
        made = self.graph.node_copy(
            node, lambda used: self._innermost(used) if used in images else self.plain(used)
        )
        self.convolutions += 1
        self.saved += sum(map(_elements, _images_of(node)))
        self._move(made)
        if not forward and self._is_generated(node):  # the weight's gradient stays as it is
            made.meta["val"] = (made.meta["val"][0], *node.meta["val"][1:])
        self.new[node] = made

    def _add_weight_gradient(self, node: Node, backward: Node) -> None:
        """Give the weight's gradient eager's strides where a single channel or pixel makes the
        layout ambiguous: there, the library's choice is visible to the caller.
        """
        made = self.new[node]
        if node.args[1] != 1 or made in self._moved or self._is_generated(backward):
            return
        _, channels, *window = node.meta["val"].shape
        if channels == 1 or window == [1, 1]:
            layout = torch.contiguous_format
            copied = self.graph.call_function(
                aten.clone.default, (made,), {"memory_format": layout}
            )
            copied.meta = dict(made.meta)
            self.new[node] = copied

    def _add_plain(self, node: Node) -> None:
        """A convolution of a large weight, or a result of its backward. The image is reordered:
        its readers read others, too.
        """
        made = self.new[node] = self.graph.node_copy(node, self.plain)
        forward = node.target is aten.convolution.default
        of_image = node.target is operator.getitem and node.args[1] == 0
        if (forward or of_image) and _reordered(node.meta["val"]) is not node.meta["val"]:
            self.new[node] = reordered = self._copy(node, made, torch.channels_last)
            self._copies[reordered, torch.contiguous_format] = made

    def is_worth(self, node: Node) -> bool:
        """Whether the node is a convolution, or the backward of one, that takes images that way."""
        if node.target is aten.convolution.default:
            transposed, weight = node.args[6], node.args[1]
        elif node.target is aten.convolution_backward.default:
            transposed, weight = node.args[7], node.args[2]
        else:
            return False
        images = _images_of(node)
        val = weight.meta["val"]
        if _is_misread(node, val):
            return False
        groups = node.args[8 if node.target is aten.convolution.default else 9]
        if transposed or not all(map(_is_image, images)):
            return False
        if not _is_of_library(val, val, groups):
            return False
        if not LIBRARIES[val.device.type].weights:
            return True
        if self._is_generated(node) or val.is_contiguous(memory_format=torch.channels_last):
            return True
        return val.numel() < sum(map(_elements, images))


def _is_misread(node: Node, weight: torch.Tensor) -> bool:
    """Whether the library sums the weight's gradient over wrong places of images whose channels are
    innermost: oneDNN with AVX2, for windows of one place, with steps, of less than eight channels.
    """
    if node.target is not aten.convolution_backward.default or weight.device.type != "cpu":
        return False
    one = all(type(size) is int and size == 1 for size in weight.shape[2:])
    return one and max(node.args[4]) > 1 and weight.shape[1] < 8


def _convolution_of(node: Node) -> Node | None:
    """The convolution, or the backward of one, that the node is or takes a result of."""
    source = node.args[0] if node.target is operator.getitem else node
    kinds = (aten.convolution.default, aten.convolution_backward.default)
    return source if isinstance(source, Node) and source.target in kinds else None


def _images_of(convolution: Node) -> list[torch.Tensor]:
    """The images of a convolution, input and output, or of its backward, gradient and image."""
    if convolution.target is aten.convolution.default:
        return [convolution.args[0].meta["val"], convolution.meta["val"]]
    return [used.meta["val"] for used in convolution.args[:2]]


def _has(node: Node, size: torch.Size | None) -> bool:
    """Whether the value is an image of that size."""
    val: Any = node.meta.get("val")
    return size is not None and _is_image(val) and str(val.shape) == str(size)
