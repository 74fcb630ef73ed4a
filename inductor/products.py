"""Matrix products by generated code or by a library: the fastest here, as measured (measure.py).

before                              after
    b = aten.permute(w, [1, 0])         p = <w in panels>                  | a derived static
    y = aten.addmm(bias, x, b)          a = framegraph.panel_mm(x, p, columns)
                                        y = aten.add(a, bias)

    generated  a kernel of ours, the weight a derived static in panels (panels.py); readers
               of the result join the kernel; of inference alone
    direct     a kernel of ours, of matrices as they are (matrices.py); readers of the result
               element by element join the kernel
    packed     oneDNN, its weight a derived static in the library's own layout; of inference alone
    plain      oneDNN, which reorders the weight in each call; of float32 alone
    aten       as it is: most often MKL; of bfloat16 oneDNN

A weight that is a copy of half precision or int8 stays as narrow in panels: a product of
few rows takes the time that its weight takes to be read. Products of bfloat16 that widen.py leaves
as they are, since the processor has instructions for them, have the same candidates, of panels of
pairs; the sums of generated ones are rounded to bfloat16 once, as the library's.

Which of them is fastest depends on the processor: MKL uses AVX-512 on some only. Measured with
AVX2, 2 threads (µs of a call: aten, packed, generated): 1x768x3072 278, 137, 85; 16x384x1536 262,
201, 143; 256x384x1536 3560, 3231, 1925. With AVX-512 on Zen 4, one thread: 1x384x1536 57, 52, 33;
8x768x3072 984, 623, 472; 240x1536x384 2890, 2600, 2530.

Weights of int8 by matrices of bfloat16, with AMX, two threads, 4096x4096, read from memory (µs of a
product in float32, in bfloat16, by int8 of float32, by int8 of bfloat16): one row 2910, 1049, 690,
653; 16 rows 4434, 1216, 2547, 1144.

A product's epilogue stays in a kernel of our own: the library's gelu after a product takes with
AVX2 five times as long as a pass of its own (512x768x3072, 1 thread: 19 ms, 2.5 ms).

A number of rows that varies, or of factors in each sum (gradients of weights), is measured as the
call that compiles has it, and leaves generated code and aten: oneDNN makes code for each size that
comes. Other sizes that vary stay with aten.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from fxgraph.aot import FunctionalGraph
from fxgraph.node import Node
from fxgraph.sizes import Undecided, hint
from inductor import costs, matrices, panel_sample
from inductor.costs import room_for_copies
from inductor.derive import PREPARED, closure
from inductor.lowering.symbolic import GraphSizes
from inductor.matrices import are_multiplied, matrix_mm
from inductor.measure import Budget, Candidate, Choice, fastest
from inductor.pack import NONE, has_onednn
from inductor.panels import (
    NARROW,
    Builder,
    has_pairs,
    is_multiplied,
    is_plain,
    panel_bytes,
    widens_few,
)
from inductor.rewriter import GraphRewriter
from inductor.runtime.plan import dtype_name

aten = torch.ops.aten
mkldnn = torch.ops.mkldnn
_TRANSPOSED = (aten.t.default, aten.permute.default, aten.transpose.int)


class Product:
    """A node `x @ w`, plus a bias of one row or None. rows, inner: as the call that compiles has
    them, if they vary. source: w itself, or the tensor of which w is an exact copy, but for
    `views`, outermost first.
    """

    def __init__(self, node: Node, x: Node, w: Node, bias: Node | None) -> None:
        self.node, self.x, self.w, self.bias = node, x, w, bias
        self.source, self.views = _narrow_source(w)
        given, sizes = x.meta["val"].shape, GraphSizes()
        self.rows, self.inner = (hint(sizes.of(size)) for size in given)
        self.columns: int = w.meta["val"].shape[1]
        self._fixed = [isinstance(size, int) for size in given]
        self.varies = not all(self._fixed)

    def __str__(self) -> str:
        rows, inner = (
            f"{size}{'' if fixed else ' (varies)'}"
            for size, fixed in zip((self.rows, self.inner), self._fixed, strict=True)
        )
        return f"{rows}x{inner}x{self.columns}{self.of_narrow}"

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weight in generated code."""
        return self.source.meta["val"].dtype

    @property
    def in_pairs(self) -> bool:
        few = not self.varies and widens_few(self.rows, self.dtype)
        return self.operands == torch.bfloat16 and not few

    @property
    def multiplied(self) -> torch.dtype:
        """The dtype of x in generated code."""
        return torch.bfloat16 if self.in_pairs else torch.float32

    @property
    def operands(self) -> torch.dtype:
        """Of both operands, in the graph."""
        return self.w.meta["val"].dtype

    @property
    def of_narrow(self) -> str:
        return "" if self.dtype == torch.float32 else f" of {dtype_name(self.dtype)}"

    @property
    def panel_bytes(self) -> int:
        return panel_bytes(self.inner, self.columns, self.dtype)

    @property
    def stays(self) -> bool:
        """Whether generated code reads the matrices as they are."""
        return are_multiplied(self.x.meta["val"], self.w.meta["val"])

    @property
    def work(self) -> int:
        return self.rows * self.inner * self.columns


def products_of(nodes: Any) -> list[Product]:
    """The products that not only aten can compute."""
    return [p for p in map(_product, nodes) if p is not None]


def _product(node: Node) -> Product | None:
    bias = None
    if node.target is aten.mm.default:
        x, w = node.args
    elif node.target is aten.addmm.default and not node.kwargs:
        bias, x, w = node.args
    else:
        return None
    val, left, right = (one.meta["val"] for one in (node, x, w))
    sizes = [*left.stride(), right.shape[1], *right.stride(), *val.stride()]
    of_library = all(is_plain(one, torch.bfloat16) for one in (val, left, right))
    if not (of_library or all(map(is_multiplied, (val, left, right)))):
        return None
    if not all(isinstance(n, int) for n in sizes):
        return None
    if not _is_in_rows(val) or (bias is not None and not _is_row(bias.meta["val"], val)):
        return None
    try:
        return Product(node, x, w, bias)
    except Undecided:
        return None


def _narrow_source(w: Node) -> tuple[Node, list[Node]]:
    """The narrower tensor of which w is an exact copy, and the views around the copy; w itself if
    there is none.
    """
    views: list[Node] = []
    found, found_views = w, 0
    node, dtype = w, w.meta["val"].dtype
    while True:
        if node.target in _TRANSPOSED:
            views.append(node)
        elif node.target is not aten._to_copy.default or set(node.kwargs) != {"dtype"}:
            return found, views[:found_views]
        node = node.args[0]
        val = node.meta["val"]
        if val.dtype != dtype:
            if val.layout is not torch.strided or not _is_held(val.dtype, dtype):
                return found, views[:found_views]
            found, found_views, dtype = node, len(views), val.dtype


def _is_held(narrow: torch.dtype, dtype: torch.dtype) -> bool:
    """Whether the dtype holds every value of the narrow one, of which weights may be."""
    wide = (torch.float32,) if narrow != torch.int8 else (torch.float32, *NARROW)
    return narrow in NARROW and dtype in wide and narrow != dtype


def _is_in_rows(val: torch.Tensor) -> bool:
    return val.stride() == (max(1, val.shape[1]), 1)


def _is_row(bias: torch.Tensor, result: torch.Tensor) -> bool:
    if not is_plain(bias, result.dtype) or bias.dim() != 1 or not isinstance(bias.shape[0], int):
        return False
    return bias.shape == result.shape[1:] and bias.is_contiguous()


# Operators and the kind of tensor that decides which of their kernels runs.
_KERNELS = (
    ("mkldnn::_reorder_linear_weight", "CPU"),
    ("mkldnn::_linear_pointwise", "CPU"),
    ("mkldnn::_linear_pointwise", "MkldnnCPU"),
)


def choose_products(
    functional: FunctionalGraph, sources: Mapping[Node, int] | None, *, seconds: float, exact: bool
) -> tuple[FunctionalGraph, list[str]] | None:
    """The graph with its products by the fastest code, and notes; None if that is aten for all.

    sources: the static inputs that weights may be packed from; None if nothing is packed. seconds:
    for measuring. exact: whether large products are measured as they are.
    """
    gm = functional.graph_module
    static = closure(gm.graph.nodes, sources) if sources else {}
    products = [
        p for p in products_of(gm.graph.nodes) if p.w in static or p.work >= costs.LEAST_PRODUCT
    ]
    if not products:
        return None
    choose = _Choices(Budget(seconds), exact, panel_sample.identity())
    for product in products:
        choose.add(product, product.w in static)
    chosen = {node: (p, c.name) for node, (p, c) in choose.made.items() if c.name != "aten"}
    if not chosen:
        return functional, choose.notes()
    run = _Choose(chosen)
    run.rewrite(gm.graph)
    run.graph.eliminate_dead_code()  # transposed weights
    return functional.with_graph(run.graph), choose.notes()


# --- which code -----------------------------------------------------------------------------------


class _Choices:
    """The choice for each product of a graph. code: the identity of generated code, if there is a
    compiler for it.
    """

    def __init__(self, budget: Budget, exact: bool, code: str | None) -> None:
        self.made: dict[Node, tuple[Product, Choice]] = {}
        self._budget, self._exact, self._code = budget, exact, code
        self._has_library = has_onednn(_KERNELS)
        self._room = room_for_copies()
        self._copied: set[Node] = set()
        self._unmeasured = 0

    def add(self, product: Product, static: bool) -> None:
        w = product.w
        static = static and (w in self._copied or product.panel_bytes <= self._room)
        choice = self._choice(product, static)
        if choice is None:
            self._unmeasured += 1
            return
        self.made[product.node] = product, choice
        if choice.name in ("generated", "packed") and w not in self._copied:
            self._copied.add(w)
            self._room -= product.panel_bytes

    def notes(self) -> list[str]:
        lines: dict[str, int] = {}
        for product, choice in self.made.values():
            text = f"{product} by {choice.name}" + (f" ({choice})" if choice.times else "")
            lines[text] = lines.get(text, 0) + 1
        notes = [f"products: {count} of {text}" for text, count in lines.items()]
        if self._unmeasured:
            notes.append(f"products: {self._unmeasured} by aten, for want of time to measure")
        return notes

    def _choice(self, product: Product, static: bool) -> Choice | None:
        generates = static and self._code is not None and (not product.in_pairs or has_pairs())
        if product.work < costs.LEAST_PRODUCT:  # the call of a library costs more than the work
            return Choice("generated" if generates else "aten", {})
        rows, inner, columns = product.rows, product.inner, product.columns
        if not self._exact:
            rows, inner, columns = representative(rows, inner, columns)
        as_it_is = (rows, inner, columns) == (product.rows, product.inner, product.columns)
        if generates:
            rows = panel_sample.height(rows)
        candidates = self._candidates(product, (rows, inner, columns), static, generates)
        x, w = _samples(product, (rows, inner, columns))
        kinds = {", static": static, ", varies": product.varies, ", for larger": not as_it_is}
        kind = "".join(name for name, holds in kinds.items() if holds)
        key = f"{dtype_name(product.operands)} {x} @ {w}{kind}"
        if "direct" in candidates:
            key += f", direct by {self._code}"
        if generates:
            key += f", generated by {self._code}{product.of_narrow}"
        if len(candidates) == 1:
            return Choice(next(iter(candidates)), {})
        ahead = (
            costs.LIBRARY_AHEAD
            if not generates
            else costs.PRODUCT_AHEAD
            if as_it_is
            else costs.SAMPLE_AHEAD
        )
        choice = fastest(key, candidates, self._budget, ahead=ahead)
        if choice is not None:
            return _in_planned_memory(choice)
        if generates and (product.rows <= costs.UNMEASURED_ROWS or not self._lags("generated")):
            return Choice("generated", {})
        if "direct" in candidates and self._lags("direct") is False:
            return Choice("direct", {})
        return None

    def _lags(self, name: str) -> bool | None:
        """Whether another was the fastest for most of the graph's products with which the candidate
        was measured; None if there is none.
        """
        measured = [c for _, c in self.made.values() if name in c.times]
        if not measured:
            return None
        return 2 * sum(c.name != name for c in measured) > len(measured)

    def _candidates(
        self, product: Product, sizes: tuple[int, int, int], static: bool, generates: bool
    ) -> dict[str, Candidate]:
        """The preferred one first."""
        x, w = _samples(product, sizes)
        found: dict[str, Candidate] = {}
        if generates:
            found["generated"] = lambda: panel_sample.sample(
                x().contiguous().to(product.multiplied), w().to(product.dtype), self._budget
            )
        found["aten"] = lambda: _aten(x(), w())
        if not static and self._code is not None and product.stays:
            found["direct"] = lambda: matrices.sample(x(), w(), self._budget)
        if not self._has_library or product.varies:
            return found
        if static:
            found["packed"] = lambda: _library(
                x(), mkldnn._reorder_linear_weight(w().t(), sizes[0])
            )
        # Of bfloat16, aten calls oneDNN too, with memory that a plan gives.
        if product.operands == torch.float32:
            found["plain"] = lambda: _library(x(), w().t())
        return found


def _in_planned_memory(choice: Choice) -> Choice:
    """Another choice for "plain", whose result has memory of its own, if that takes hardly longer:
    which of them is the first by little, noise decides.
    """
    if choice.name != "plain":
        return choice
    limit = choice.times.get("plain", 0.0) / costs.PLANNED_MEMORY
    planned = [name for name in ("aten", "direct") if choice.times.get(name, math.inf) <= limit]
    return replace(choice, name=min(planned, key=choice.times.__getitem__)) if planned else choice


def _samples(product: Product, sizes: tuple[int, int, int]) -> tuple[_Sample, _Sample]:
    rows, inner, columns = sizes
    x, w = product.x.meta["val"], product.w.meta["val"]
    return _Sample(x.stride(), (rows, inner), x.dtype), _Sample(
        w.stride(), (inner, columns), w.dtype
    )


def representative(rows: int, inner: int, columns: int) -> tuple[int, int, int]:
    """Sizes that are measured in place of these: with less work, if that is much."""
    sizes = [rows, inner, columns]
    if rows * inner * columns <= costs.LARGEST_PRODUCT:
        return rows, inner, columns
    sizes = [1 << (n.bit_length() - 1) for n in sizes]
    while sizes[0] * sizes[1] * sizes[2] > costs.LARGEST_PRODUCT:
        # Rows first: libraries split them in blocks of far less than 128.
        largest = 0 if sizes[0] > 128 else max((1, 2), key=sizes.__getitem__)
        if sizes[largest] == 1:
            largest = 0
        sizes[largest] //= 2
    return sizes[0], sizes[1], sizes[2]


class _Sample:
    """A matrix with an input's order of elements in memory; no random one, which would draw on the
    program's generator.
    """

    def __init__(self, stride: tuple[int, ...], size: tuple[int, int], dtype: torch.dtype) -> None:
        self.size, self._dtype = size, dtype
        self.order = (
            "rows" if stride[1] == 1 else "columns" if stride[0] == 1 else f"strides {stride}"
        )

    def __str__(self) -> str:
        return f"{self.size[0]}x{self.size[1]} by {self.order}"

    def __call__(self) -> torch.Tensor:
        rows, columns = self.size
        if self.order == "columns":
            return _matrix(columns, rows, self._dtype).t()
        return _matrix(rows, columns, self._dtype)


def _matrix(rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.full((rows, columns), 0.5, dtype=dtype, device="cpu")


def _aten(x: torch.Tensor, w: torch.Tensor) -> Callable[[], object]:
    out = _matrix(x.shape[0], w.shape[1], x.dtype)  # plans give a product its memory
    return lambda: torch.mm(x, w, out=out)


def _library(x: torch.Tensor, w: torch.Tensor) -> Callable[[], object]:
    return lambda: mkldnn._linear_pointwise(x, w, None, *NONE)


# --- the new graph --------------------------------------------------------------------------------


class _Choose(GraphRewriter):
    """Puts the chosen kernels in the place of products."""

    def __init__(self, chosen: Mapping[Node, tuple[Product, str]]) -> None:
        super().__init__()
        self._chosen = chosen
        self._build = Builder(self.graph)
        self._packed: dict[tuple[Node, int | torch.dtype], Node] = {}

    def add(self, node: Node) -> None:
        if node in self._chosen:
            self.new[node] = self._product(node)
        else:
            super().add(node)

    def _product(self, node: Node) -> Node:
        product, name = self._chosen[node]
        if name == "generated":
            return self._generated(product)
        if name == "direct":
            return self._direct(product)
        weight = self._transposed(product.w)
        if name == "packed":
            weight = self._weight(weight, product)
        bias = product.bias and self.new[product.bias]
        args = (self.new[product.x], weight, bias, *NONE)
        made = self.graph.call_function(mkldnn._linear_pointwise.default, args)
        made.meta = dict(node.meta)
        return made

    def _generated(self, product: Product) -> Node:
        build, w, meta = self._build, product.w, product.node.meta
        key = w, product.multiplied
        if key not in self._packed:
            made = self.new[product.source]
            for view in reversed(product.views):
                made = build.call(view.target, (made, *view.args[1:]), w.meta)
            self._packed[key] = build.panels(made, w.meta, product.in_pairs)
        x = build.cast(self.new[product.x], product.multiplied, meta)
        made = build.panel_mm(x, self._packed[key], product.columns, meta)
        if product.bias is not None:
            made = build.add(made, build.cast(self.new[product.bias], torch.float32, meta), meta)
        return build.cast(made, product.operands, meta)

    def _direct(self, product: Product) -> Node:
        build, meta = self._build, product.node.meta
        made = build.call(matrix_mm, (self.new[product.x], self.new[product.w]), meta)
        if product.bias is not None:
            made = build.add(made, build.cast(self.new[product.bias], torch.float32, meta), meta)
        return build.cast(made, product.operands, meta)

    def _transposed(self, w: Node) -> Node:
        """The weight as the library takes it: a row for each column of the result."""
        if w.target is aten.t.default or (
            w.target is aten.permute.default and list(w.args[1]) == [1, 0]
        ):
            return self.new[w.args[0]]
        return self._build.permute(self.new[w], [1, 0], w.meta)

    def _weight(self, weight: Node, product: Product) -> Node:
        key = product.w, product.rows
        if key not in self._packed:
            target = mkldnn._reorder_linear_weight.default
            made = self.graph.call_function(target, (weight, product.rows))
            made.meta = {**weight.meta, PREPARED: True}
            self._packed[key] = made
        return self._packed[key]
