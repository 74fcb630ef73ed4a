"""Weights in panels, and the operator that multiplies by them.

before                              after
    y = aten.mm(x, w)                   p = aten.clone(aten.permute(aten.view(w, ...), [1, 0, 2]))
                                        y = framegraph.panel_mm(x, p, columns)

A panel holds PANEL columns of w, row after row: (panels, inner, PANEL), the last filled up with
zeros. Its elements may be narrower than those of x (NARROW). It is a derived static (derive.py).

Panels of pairs, (panels, half of inner rounded up, PANEL, 2), hold two rows side by side, as
instructions that multiply pairs of bfloat16 and add both products to a float32 read them: of
vectors, and of AMX's tiles, 16 rows of a panel of pairs. x is of bfloat16 then, and y of float32.

Generated code computes the operator (codegen/panels.py), and whatever reads the result in the same
pass; without a C++ compiler, aten does.
"""

from __future__ import annotations

from typing import Any

import torch

from fxgraph.aot.fake import fake_result
from fxgraph.graph import Graph
from fxgraph.node import Node
from inductor.derive import PREPARED
from inductor.registration import operator

PANEL = 16  # columns: as many as the widest vector has lanes
LEAST_PAIR_ROWS = 3  # of products by int8
# Narrower elements of weights that products read: float32 holds them exactly.
NARROW = frozenset([torch.bfloat16, torch.float16, torch.int8])


def _panel_mm(x: torch.Tensor, weight: torch.Tensor, columns: int) -> torch.Tensor:
    if weight.dim() == 4:
        x = x.to(torch.float32)
        weight = weight.transpose(2, 3).flatten(1, 2)[:, : x.shape[1]]
    panels, inner, _ = weight.shape
    wide = weight.to(x.dtype)
    return x @ wide.permute(1, 0, 2).reshape(inner, panels * PANEL)[:, :columns]


def _panel_mm_meta(x: torch.Tensor, weight: torch.Tensor, columns: int) -> torch.Tensor:
    dtype = torch.float32 if weight.dim() == 4 else x.dtype
    return x.new_empty((x.shape[0], columns), dtype=dtype)


panel_mm = operator(
    "panel_mm(Tensor x, Tensor weight, SymInt columns) -> Tensor", _panel_mm, _panel_mm_meta
)

aten = torch.ops.aten


def panel_steps(
    inner: int, columns: int, pairs: bool
) -> list[tuple[Any, list[Any], dict[str, Any]]]:
    """The operators that put a weight (inner, columns) into panels: each with the arguments that
    come after the result of the one before.
    """
    panels = -(-columns // PANEL)
    padding = panels * PANEL - columns
    odd = inner % 2 if pairs else 0
    size, order = [inner, panels, PANEL], [1, 0, 2]
    if pairs:
        size, order = [(inner + odd) // 2, 2, panels, PANEL], [2, 0, 3, 1]
    steps: list[tuple[Any, list[Any], dict[str, Any]]] = [
        (aten.view.default, [size], {}),
        (aten.permute.default, [order], {}),
        (aten.clone.default, [], {"memory_format": torch.contiguous_format}),
    ]
    if padding or odd:
        steps.insert(0, (aten.constant_pad_nd.default, [[0, padding, 0, odd]], {}))
    return steps


def has_pairs() -> bool:
    """Whether this processor multiplies pairs of bfloat16."""
    return bool(torch.cpu._is_avx512_bf16_supported())


def widens_few(rows: Any, weight: torch.dtype) -> bool:
    """Whether products of bfloat16 by such a weight are no faster by pairs: the time of few rows is
    that of making the weight's elements wider, to float32 sooner than to pairs.
    """
    return weight == torch.int8 and isinstance(rows, int) and rows < LEAST_PAIR_ROWS


def in_panels(weight: torch.Tensor, pairs: bool = False) -> torch.Tensor:
    """A weight (inner, columns) in panels."""
    inner, columns = weight.shape
    for target, args, kwargs in panel_steps(inner, columns, pairs):
        weight = target(weight, *args, **kwargs)
    return weight


class Builder:
    """Adds calls of operators to a graph. meta: of the node in whose place a result stands."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def call(self, target: Any, args: tuple[Any, ...], meta: dict[str, Any], **kwargs: Any) -> Node:
        made = self.graph.call_function(target, args, kwargs)
        vals = [arg.meta["val"] if isinstance(arg, Node) else arg for arg in args]
        made.meta = {**meta, "val": fake_result(target, *vals, **kwargs)}
        return made

    def cast(self, value: Node, dtype: torch.dtype, meta: dict[str, Any]) -> Node:
        """The value in that dtype: itself, if it has it."""
        if value.meta["val"].dtype == dtype:
            return value
        return self.call(aten._to_copy.default, (value,), meta, dtype=dtype)

    def panel_mm(self, x: Node, weight: Node, columns: int, meta: dict[str, Any]) -> Node:
        return self.call(panel_mm, (x, weight, columns), meta)

    def add(self, x: Node, y: Node, meta: dict[str, Any]) -> Node:
        return self.call(aten.add.Tensor, (x, y), meta)

    def stack(self, values: list[Node], dim: int, meta: dict[str, Any]) -> Node:
        made = self.graph.call_function(aten.stack.default, (values, dim))
        vals = [value.meta["val"] for value in values]
        with vals[0].fake_mode:
            made.meta = {**meta, "val": torch.stack(vals, dim)}
        return made

    def view(self, x: Node, size: list[int], meta: dict[str, Any]) -> Node:
        return self.call(aten.view.default, (x, size), meta)

    def permute(self, x: Node, order: list[int], meta: dict[str, Any]) -> Node:
        return self.call(aten.permute.default, (x, order), meta)

    def panels(self, weight: Node, meta: dict[str, Any], pairs: bool = False) -> Node:
        """A weight (inner, columns) in panels, for a derived static."""
        inner, columns = weight.meta["val"].shape
        for target, args, kwargs in panel_steps(inner, columns, pairs):
            weight = self.call(target, (weight, *args), meta, **kwargs)
        weight.meta[PREPARED] = True
        return weight


def is_plain(val: torch.Tensor, *dtypes: torch.dtype) -> bool:
    """Whether generated products read such a tensor: on the CPU, strided, of one of the dtypes."""
    return val.dtype in dtypes and val.device.type == "cpu" and val.layout is torch.strided


def is_multiplied(val: torch.Tensor) -> bool:
    return is_plain(val, torch.float32)


def panel_bytes(inner: int, columns: int, dtype: torch.dtype) -> int:
    """Of a weight (inner, columns) in panels."""
    return -(-columns // PANEL) * PANEL * inner * dtype.itemsize
