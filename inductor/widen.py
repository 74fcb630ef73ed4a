"""Operators of half precision in float32, on processors that are slow at the other.

before                                  after
    y = aten.mm(x, w)    | bfloat16         a = aten._to_copy(x, dtype=float32)
                                            b = aten._to_copy(w, dtype=float32)
                                            c = aten.mm(a, b)
                                            y = aten._to_copy(c, dtype=bfloat16)

Without instructions for it, the library computes products of half precision by plain loops; its
sums are of float32, too, rounded once. The copies join the kernels around them, and that of a
weight is a derived static; generated products read the weight as it is (products.py). Which way is
faster is a property of the processor: measured once for each kind of operator on small samples
(measure.py).

An instruction that multiplies pairs of bfloat16 is no reason by itself: Zen 4 and 5 multiply pairs
twice as fast as float32, Intel's Emerald Rapids half as fast, but for one row, which the bytes of
the weight bound (512x768x768, one thread, GFLOP/s by float32, by a weight of bfloat16 that is
widened and by pairs: 179, 145, 87). With AMX (codegen/product_amx.h) pairs take a tenth of that
time: one thread, GFLOP/s of aten, oneDNN with a packed weight, generated in bfloat16, generated in
float32: 256x384x1536 1220, 1454, 1640, 177; 16x384x1536 253, 562, 1180, 160; 64x256x256 367, 409,
2000, 135. Convolutions follow the library (packed, channels innermost, us in float32, bfloat16):
4x64x32x32 -> 64, 3x3 1489, 191; 4x512x4x4 -> 512, 3x3 2512, 746. A small product tells nothing of
a large one: aten's takes as it is and in float32 with all copies, us, one thread: mm of 32x64x128
15, 11; 64x256x512 33, 107; 512x256x768 127, 1092.

Measured with AVX2, 1 thread (µs of a call as it is; in float32 with all copies): mm of 64x256x512
24850, 372; with a transposed weight 1527, 362; bmm of 12x128x64x128 32881, 460; convolution of
2x32x32x32, 3x3, float16 34291, 549. Attention is no slower in half precision (867, 781), but its
backward: with AMX, 1 thread (heads, queries x keys x size) 6, 197x197x64 2494, 1554; 12, 128x128x64
3873, 1632; 128, 49x49x32 18438, 3593; 12, 256x256x64 5633, 5538; 12, 1024x1024x64 48070, 65757.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch

from fxgraph.aot import FunctionalGraph
from fxgraph.args import map_aggregate
from fxgraph.node import Node
from fxgraph.sizes import Undecided, hint
from inductor import attention_backward, costs, panel_sample
from inductor.convolutions import is_depthwise
from inductor.costs import room_for_copies
from inductor.derive import PREPARED, closure
from inductor.lowering.symbolic import GraphSizes
from inductor.measure import Budget, fastest
from inductor.pack import (
    constant,
    is_packable,
    packed_dtypes,
    packed_sample,
    packs_convolutions,
)
from inductor.panels import has_pairs
from inductor.rewriter import GraphRewriter

aten = torch.ops.aten
_FLASH_BACKWARD = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
_HALF = frozenset([torch.bfloat16, torch.float16])
_GENERATED = ", generated"  # in the name of a kind
_DEPTHWISE = "depthwise, generated"
_IN_LAYOUT = ", packed"
_LARGE = "large by "  # before the order of a product
_FLOAT32, _PRODUCTS = "float32", "products"  # ways; the latter also in the name of a kind
_ATTENTION = "attention backward"
_LONGEST = 512  # queries and keys of a sample


def widen(
    functional: FunctionalGraph, sources: Iterable[Node], *, always: bool = False
) -> tuple[FunctionalGraph, str] | None:
    """The graph with those operators in float32 that are faster so, and a note; None without any.

    sources: the static inputs that copies are kept of. always: whether faster or not, unmeasured.
    """
    gm = functional.graph_module
    kinds = {node: kind for node in gm.graph.nodes if (kind := _kind(node)) is not None}
    if not kinds:
        return None
    static = closure(gm.graph.nodes, sources)
    if panel_sample.identity() is not None:
        kinds = {node: _generated_kind(node, kind, static) for node, kind in kinds.items()}
    budget = Budget(costs.WIDEN_SECONDS)
    faster = {kind: _FLOAT32 if always else _way(kind, budget) for kind in set(kinds.values())}
    chosen = {node: way for node, kind in kinds.items() if (way := faster[kind]) is not None}
    if not chosen:
        return None
    run = _Widen(chosen, static)
    run.rewrite(gm.graph)
    notes = []
    for way, text in ((_FLOAT32, "in float32"), (_PRODUCTS, "by products")):
        dtypes = sorted({_dtype_name(kinds[node]) for node, one in chosen.items() if one == way})
        count = list(chosen.values()).count(way)
        if count:
            notes.append(f"{count} operators of {' and '.join(dtypes)} {text}, which is faster")
    return functional.with_graph(run.graph), f"widen: {', '.join(notes)}"


def _dtype_name(kind: tuple[Any, ...]) -> str:
    return str(kind[0]).removeprefix("torch.")


# --- kinds of operators, and which way is faster --------------------------------------------------


def _kind(node: Node) -> tuple[Any, ...] | None:
    """dtype, name, and everything else on which the library's way depends; None for operators left
    alone.
    """
    found = _KINDS.get(node.target)
    if found is None or (node.kwargs and found[0] != _ATTENTION):
        return None
    name, about = found
    tensors: list[Any] = [used.meta.get("val") for used in node.all_input_nodes]
    if not all(isinstance(val, torch.Tensor) for val in tensors):
        return None
    dtypes = {val.dtype for val in tensors}
    if name == _ATTENTION:  # logarithms of sums are of float32, a mask may be
        dtypes -= {torch.float32}
    if len(dtypes) != 1 or not dtypes <= _HALF or all(map(_is_small, tensors)):
        return None
    if any(val.device.type != "cpu" or val.layout is not torch.strided for val in tensors):
        return None
    told = about(node)
    return None if told is None else (*dtypes, name, *told)


def _generated_kind(node: Node, kind: tuple[Any, ...], static: Any) -> tuple[Any, ...]:
    """The kind of a node of a static weight: of a product of the weight as it is and a depthwise
    convolution, which generated code can compute in float32, and of a convolution whose weight can
    be in the library's layout.
    """
    if node.target is aten.convolution.default:
        if not is_packable(node, static, kind[0]):
            return kind
        if is_depthwise(node):
            return (*kind[:2], _DEPTHWISE)
        packs = packs_convolutions() and kind[0] in packed_dtypes()
        return (*kind[:2], f"{kind[2]}{_IN_LAYOUT}") if packs else kind
    if kind[1] != "mm" or node.args[-1] not in static:
        return kind
    return (*kind[:2], f"{kind[2].removeprefix(_LARGE)}{_GENERATED}")  # samples are large


def _is_small(val: Any) -> bool:
    """Whether a tensor is known to be small; one of a size that varies is not."""
    return (
        all(isinstance(n, int) for n in val.shape) and math.prod(val.shape) < costs.WIDENED_ELEMENTS
    )


def _order(node: Node) -> tuple[str]:
    """Of the second matrix; whether the first has one row, for which libraries have loops; and
    whether, where a library has instructions, its call takes less time than the work.
    """
    *_, a, b = node.args
    rows, columns = b.meta["val"].stride()[-2:]
    dense = [isinstance(step, int) and step == 1 for step in (rows, columns)]
    order = "columns" if dense == [True, False] else "rows"
    height = a.meta["val"].shape[-2]
    if isinstance(height, int) and height == 1:
        return (f"one row by {order}",)
    return (f"{_LARGE}{order}" if _is_large(a.meta["val"], b.meta["val"]) else order,)


def _is_large(a: Any, b: Any) -> bool:
    supported = {
        torch.bfloat16: torch.ops.mkldnn._is_mkldnn_bf16_supported,
        torch.float16: torch.ops.mkldnn._is_mkldnn_fp16_supported,
    }
    if a.dtype not in supported or not supported[a.dtype]():
        return False
    try:
        sizes = [hint(GraphSizes().of(n)) for n in (*a.shape, b.shape[-1])]
    except Undecided:
        return True
    return math.prod(sizes) >= costs.LEAST_PRODUCT


def _groups(node: Node) -> tuple[str]:
    *_, groups = (arg for arg in node.args if isinstance(arg, int))
    return ("grouped" if groups > 1 else "dense",)


def _lengths(node: Node) -> tuple[str] | None:
    """Queries, keys and elements of a head, as samples have them."""
    q, k = (used.meta["val"] for used in node.args[1:3])
    try:
        sizes = [hint(GraphSizes().of(n)) for n in (q.shape[2], k.shape[2], q.shape[3])]
    except Undecided:
        return None
    lengths = "x".join(str(max(1, min(n, _LONGEST))) for n in sizes)
    return (f"{lengths}, {_PRODUCTS}" if attention_backward.has_products(node) else lengths,)


_KINDS: dict[Any, tuple[str, Callable[[Node], tuple[str] | None]]] = {
    aten.mm.default: ("mm", _order),
    aten.addmm.default: ("mm", _order),
    aten.bmm.default: ("bmm", _order),
    aten.convolution.default: ("convolution", _groups),
    aten.convolution_backward.default: ("convolution", _groups),
    _FLASH_BACKWARD: (_ATTENTION, _lengths),
}


def _way(kind: tuple[Any, ...], budget: Budget) -> str | None:
    """The way that is faster than the operator as it is, if any."""
    dtype, name, about = kind
    if about == _DEPTHWISE:  # ahead of the library in float32, which is ahead of that in half
        return _FLOAT32
    candidates = {
        "as it is": lambda: _sample(dtype, name, about),
        _FLOAT32: lambda: _sample(torch.float32, name, about, through=dtype),
    }
    if about.endswith(_PRODUCTS):
        candidates[_PRODUCTS] = lambda: attention_backward.sample(*_numbers(about))
    key = f"widen {_dtype_name(kind)} {name} {about}"
    if about.endswith(_IN_LAYOUT):
        candidates = {
            "as it is": lambda: _packed_sample(dtype, about),
            _FLOAT32: lambda: _packed_sample(torch.float32, about, through=dtype),
        }
    if about.endswith(_GENERATED):
        candidates[_FLOAT32] = lambda: _generated_sample(dtype, about, budget)
        if dtype == torch.bfloat16 and has_pairs():
            candidates["as it is"] = lambda: _generated_sample(dtype, about, budget, pairs=True)
        key += f" by {panel_sample.identity()}"
    choice = fastest(key, candidates, budget, ahead=costs.FLOAT32_AHEAD)
    return choice.name if choice is not None and choice.name != "as it is" else None


def _numbers(about: str) -> list[int]:
    return [int(n) for n in about.removesuffix(f", {_PRODUCTS}").split("x")]


def _sample(
    dtype: torch.dtype, name: str, about: str, through: torch.dtype | None = None
) -> Callable[[], object]:
    """A sample call of that kind; `through`: the dtype of inputs and results, if another."""

    def full(*size: int) -> torch.Tensor:
        return torch.full(size, 0.5, dtype=through or dtype, device="cpu")

    if name == _ATTENTION:
        return _attention_sample(through or dtype, dtype, *_numbers(about))
    if name == "convolution":
        groups = 32 if about == "grouped" else 1
        x, w = full(1, 32, 16, 16), full(32, 32 // groups, 3, 3)

        def compute(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            return torch.conv2d(x, w, padding=1, groups=groups)
    else:
        batch = (4,) if name == "bmm" else ()
        rows, inner, columns = _sizes_of_product(about)
        x, w = full(*batch, rows, inner), full(*batch, inner, columns)
        if about.endswith("columns"):
            w = w.mT.contiguous().mT

        def compute(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            return torch.matmul(x, w)

    if through is None:
        return lambda: compute(x, w)
    return lambda: compute(x.to(dtype), w.to(dtype)).to(through)


def _attention_sample(
    given: torch.dtype, dtype: torch.dtype, queries: int, keys: int, size: int
) -> Callable[[], object]:
    """The backward of two heads, of tensors that are given in one dtype, computed in another."""
    q, k = (torch.full((1, 2, n, size), 0.5, dtype=given, device="cpu") for n in (queries, keys))
    out, logarithm = aten._scaled_dot_product_flash_attention_for_cpu(q, k, k)

    def compute() -> torch.Tensor:
        tensors = [tensor.to(dtype) for tensor in (q, q, k, k, out)]
        found = _FLASH_BACKWARD(*tensors, logarithm, 0.0, False)
        return [gradient.to(given) for gradient in found][-1]

    return compute


def _packed_sample(
    dtype: torch.dtype, about: str, through: torch.dtype | None = None
) -> Callable[[], object]:
    """A convolution of images with channels innermost, its weight in the library's layout."""
    channels, size = 64, [1, 64, 28, 28]
    groups = channels // 4 if about.startswith("grouped") else 1
    settings = ([1, 1], [1, 1], [1, 1], groups)  # padding, stride, dilation
    convolve = packed_sample(size, (channels, channels // groups, 3, 3), dtype, settings)
    if through is None:
        return convolve
    x = constant(size, through).to(memory_format=torch.channels_last)

    def compute() -> torch.Tensor:
        x.to(dtype)
        return convolve().to(through)

    return compute


def _generated_sample(
    dtype: torch.dtype, about: str, budget: Budget, pairs: bool = False
) -> Callable[[], object]:
    """`pairs`: by instructions that multiply the matrices as they are (panels.py)."""
    rows, inner, columns = _sizes_of_product(about)
    x = torch.full((rows, inner), 0.5, dtype=dtype, device="cpu")
    weight = torch.full((inner, columns), 0.5, dtype=dtype, device="cpu")
    multiply = panel_sample.sample(x if pairs else x.float(), weight, budget)

    def compute() -> torch.Tensor:
        if not pairs:
            x.float()
        return multiply().to(dtype)

    return compute


def _sizes_of_product(about: str) -> tuple[int, int, int]:
    if about.startswith("one row"):
        return 1, 512, 512
    # Of generated code, enough work to tell apart the rates of two instructions.
    if about.endswith(_GENERATED):
        return 48, 256, 512
    return (64, 256, 512) if about.startswith(_LARGE) else (32, 64, 128)


# --- the new graph --------------------------------------------------------------------------------


class _Widen(GraphRewriter):
    """Widens operators. chosen: their ways. `static`: nodes of the old graph, computed from
    parameters alone.
    """

    def __init__(self, chosen: dict[Node, str], static: Any) -> None:
        super().__init__()
        self._chosen = {node for node, way in chosen.items() if way == _FLOAT32}
        self._of_products = {node for node, way in chosen.items() if way == _PRODUCTS}
        self._gradients: dict[Node, list[Node]] = {}
        copied = {w for n in self._chosen for w in n.all_input_nodes if w in static}
        wide = sum(w.meta["val"].numel() for w in copied) * torch.float32.itemsize
        self._kept = copied if wide <= room_for_copies() else set()
        self._wide: dict[Node, Node] = {}

    def add(self, node: Node) -> None:
        if node in self._chosen:
            made = self.graph.node_copy(node, self._widened)
            made.meta["val"] = map_aggregate(node.meta["val"], _float32)
            several = not isinstance(made.meta["val"], torch.Tensor)
            self.new[node] = made if several else self._narrowed(node, made)
        elif node.target is operator.getitem and node.args[0] in self._chosen:
            made = self.graph.node_copy(node, self.new.__getitem__)
            made.meta["val"] = _float32(node.meta["val"])
            is_tensor = isinstance(made.meta["val"], torch.Tensor)
            self.new[node] = self._narrowed(node, made) if is_tensor else made
        elif node in self._of_products:
            given = [self.new[x] for x in node.args[:6]]  # type: ignore[index]
            self._gradients[node] = attention_backward.by_products(self.graph, node, given)
        elif node.target is operator.getitem and node.args[0] in self._of_products:
            made = self._gradients[node.args[0]][node.args[1]]  # type: ignore[index]
            self.new[node] = self._narrowed(node, made)
        else:
            super().add(node)

    def _widened(self, node: Node) -> Node:
        if node.meta["val"].dtype == torch.float32:
            return self.new[node]
        if node not in self._wide:
            made = self._cast(self.new[node], torch.float32)
            made.meta = {**node.meta, "val": _float32(node.meta["val"])}
            if node in self._kept:
                made.meta[PREPARED] = True
            self._wide[node] = made
        return self._wide[node]

    def _narrowed(self, node: Node, made: Node) -> Node:
        narrow = self._cast(made, node.meta["val"].dtype)
        narrow.meta = dict(node.meta)
        return narrow

    def _cast(self, node: Node, dtype: torch.dtype) -> Node:
        return self.graph.call_function(aten._to_copy.default, (node,), {"dtype": dtype})


def _float32(val: Any) -> Any:
    if not isinstance(val, torch.Tensor):
        return val
    with val.fake_mode:  # type: ignore[attr-defined]
        return val.to(torch.float32)
