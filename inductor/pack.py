"""Weights of convolutions in the library's own layout, which it otherwise makes in every call.

before                                     after
    a = aten.convolution(x, w, b, ...)         p = mkldnn._reorder_convolution_weight(w, ...)
    b = aten.hardswish(a)                      b = mkldnn._convolution_pointwise(x, p, b, ...,
                                                                                 "hardswish")

The reordered weight is a derived static. The library computes epilogues while an element is in a
register. Not so relu, clamps and hardsigmoid: of NaN it makes a number.

Measured with AVX2, 2 threads, images with channels innermost (ms of a call: aten with the weight as
it is; with channels innermost; packed):
    4x512x4x4   -> 512, 3x3   4.79  3.74  2.00        4x64x32x32   -> 64, 3x3      2.09  1.82  1.72
    1x512x7x7   -> 512, 3x3   4.90  2.91  1.55        1x64x56x56   -> 256, 1x1     0.63  0.62  0.63
    4x256x8x8   -> 256, 3x3   2.00  1.65  1.55        4x144x32x32, 3x3 depthwise   0.23  0.21  0.23
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from fxgraph.aot import FunctionalGraph
from fxgraph.graph_module import GraphModule
from fxgraph.node import Node
from inductor.derive import PREPARED, closure
from inductor.layout import is_laid_out
from inductor.lowering.symbolic import likely
from inductor.rewriter import GraphRewriter

aten = torch.ops.aten
mkldnn = torch.ops.mkldnn
Attribute = tuple[str, list[Any], str]  # name, scalars and algorithm, as the library takes them
# Epilogues of the library's convolutions -> its attribute, given the operator's other arguments
_EPILOGUES: dict[Any, Callable[..., Attribute]] = {
    aten.gelu.default: lambda approximate="none": ("gelu", [], approximate),
    aten.hardswish.default: lambda: ("hardswish", [], ""),
    aten.leaky_relu.default: lambda slope=0.01: ("leaky_relu", [slope], ""),
    aten.sigmoid.default: lambda: ("sigmoid", [], ""),
    aten.silu.default: lambda: ("swish", [], ""),
    aten.tanh.default: lambda: ("tanh", [], ""),
}
NONE: Attribute = ("none", [], "")


def packed_weights(gm: GraphModule, sources: Mapping[Node, int]) -> frozenset[Node]:
    """The convolutions whose weights can be packed, where their images have channels innermost."""
    nodes = gm.graph.nodes
    if (
        not any(node.target is aten.convolution.default for node in nodes)
        or not packs_convolutions()
    ):
        return frozenset()
    static, dtypes = closure(nodes, sources), packed_dtypes()
    return frozenset(node for node in nodes if is_packable(node, static, *dtypes))


# Types that the library computes with weights in its own layout. (Of half precision only what
# widen.py leaves as it is.)
PACKED = (torch.float32, torch.bfloat16)


def is_packable(node: Node, static: Mapping[Node, Any], *dtypes: torch.dtype) -> bool:
    """Whether the node is a convolution of images of one of these dtypes with a static weight."""
    if node.target is not aten.convolution.default:
        return False
    image, weight, bias, stride, padding, dilation, transposed, _, _ = node.args
    used = [n.meta["val"] for n in (node, image, weight, bias) if n is not None]
    result, images, *weights = (val.shape for val in used)
    known = [result[1:], images[1:], *weights]  # the number of images may vary
    return (
        not transposed
        and weight in static
        and (bias is None or bias.meta["val"].is_contiguous())  # the library looks at no strides
        and len(stride) == len(padding) == len(dilation) == 2
        and all(isinstance(n, int) for n in (*stride, *padding, *dilation))
        and node.meta["val"].dtype in dtypes
        and all(val.dtype == used[0].dtype and val.device.type == "cpu" for val in used)
        and all(isinstance(n, int) and n > 0 for size in known for n in size)
        and not (type(images[0]) is int and images[0] == 0)
    )


# Operators and the kind of tensor that decides which of their kernels runs.
_KERNELS = (
    ("mkldnn::_reorder_convolution_weight", "CPU"),
    ("mkldnn::_convolution_pointwise", "MkldnnCPU"),
)


def packed_dtypes() -> tuple[torch.dtype, ...]:
    """The dtypes of weights that the library lays out on this processor: without instructions for
    bfloat16 it refuses such a weight, though not such a convolution.
    """
    return PACKED if torch.ops.mkldnn._is_mkldnn_bf16_supported() else PACKED[:1]


def packs_convolutions() -> bool:
    """Whether oneDNN is there, and computes convolutions with weights in its own layout."""
    return has_onednn(_KERNELS)


def has_onednn(kernels: tuple[tuple[str, str], ...]) -> bool:
    """Whether oneDNN is there and enabled, and this torch has these kernels of it: pairs of an
    operator and the dispatch key.
    """
    library = torch.backends.mkldnn
    return library.is_available() and bool(library.enabled) and _has_kernels(kernels)


@functools.cache
def _has_kernels(kernels: tuple[tuple[str, str], ...]) -> bool:
    try:
        return all(map(torch._C._dispatch_has_kernel_for_dispatch_key, *zip(*kernels)))
    except RuntimeError:  # no such operator
        return False


def pack_convolutions(
    functional: FunctionalGraph, sources: Mapping[Node, int]
) -> tuple[FunctionalGraph, str] | None:
    """The graph with packed weights, where images have channels innermost, and a note."""
    gm = functional.graph_module
    run = _Pack(
        node
        for node in packed_weights(gm, sources)
        if all(is_innermost(n.meta["val"]) for n in (node, node.args[0]))
    )
    if not run.convolutions:
        return None
    run.rewrite(gm.graph)
    note = f"pack: weights of {len(run.convolutions)} convolutions in the library's layout"
    if run.epilogues:
        note += f", which computes {run.epilogues} operators after them"
    return functional.with_graph(run.graph), note


def constant(size: Sequence[int], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """For measuring: no random numbers, which would draw on the program's generator."""
    return torch.full(tuple(size), 0.5, dtype=dtype, device="cpu")


def rows_of(size: Sequence[int]) -> tuple[int, ...]:
    """The size of images (images, channels, height, width) with channels last."""
    images, channels, height, width = size
    return images, height, width, channels


def packed_sample(
    size: Sequence[int], of_weight: Sequence[int], dtype: torch.dtype, settings: Any
) -> Callable[[], torch.Tensor]:
    """Such a convolution of images with channels innermost, for measuring (measure.py). settings:
    padding, stride, dilation, groups.
    """
    x = constant(size, dtype).to(memory_format=torch.channels_last)
    w = mkldnn._reorder_convolution_weight(constant(of_weight, dtype), *settings, list(size))

    def convolve() -> torch.Tensor:
        y: torch.Tensor = mkldnn._convolution_pointwise(x, w, None, *settings, *NONE)
        return y

    return convolve


def is_innermost(val: torch.Tensor) -> bool:
    return is_laid_out(val, torch.channels_last)


class _Pack(GraphRewriter):
    """Puts convolutions with packed weights in the place of plain ones."""

    def __init__(self, convolutions: Iterable[Node]) -> None:
        super().__init__()
        self.convolutions = frozenset(convolutions)
        self.epilogues = 0
        self._packed: dict[Any, Node] = {}

    def add(self, node: Node) -> None:
        before = node.args[0] if node.target in _EPILOGUES else None
        if node in self.convolutions:
            if _epilogue(node) is None:
                self.new[node] = self._convolution(node, node, NONE)
        elif isinstance(before, Node) and before in self.convolutions and before not in self.new:
            self.epilogues += 1
            attribute = _EPILOGUES[node.target](*node.args[1:], **node.kwargs)
            self.new[node] = self._convolution(before, node, attribute)
        else:
            super().add(node)

    def _convolution(self, node: Node, result: Node, attribute: Attribute) -> Node:
        image, weight, bias, stride, padding, dilation, _, _, groups = node.args
        settings = (padding, stride, dilation, groups)
        args = (
            self.new[image],
            self._weight(weight, settings, image.meta["val"].shape),
            bias and self.new[bias],
            *settings,
            *attribute,
        )
        made = self.graph.call_function(mkldnn._convolution_pointwise.default, args)
        made.meta = dict(result.meta)
        return made

    def _weight(self, weight: Node, settings: Any, size: Iterable[int]) -> Node:
        size = [n if isinstance(n, int) else likely(n) for n in size]
        key = (weight, str(settings), tuple(size))
        if key not in self._packed:
            target = mkldnn._reorder_convolution_weight.default
            made = self.graph.call_function(target, (self.new[weight], *settings, list(size)))
            made.meta = {**weight.meta, PREPARED: True}
            self._packed[key] = made
        return self._packed[key]


def _epilogue(convolution: Node) -> Node | None:
    """The operator that alone reads the result, if the library can compute it in the same pass."""
    users = list(convolution.users)
    if len(users) != 1 or users[0].target not in _EPILOGUES:
        return None
    same = users[0].args[0] is convolution and (
        str(users[0].meta["val"].stride()) == str(convolution.meta["val"].stride())
    )
    return users[0] if same and users[0].meta["val"].dtype == torch.float32 else None
