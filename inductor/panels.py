"""Weights in panels, and the operator that multiplies by them.

before                              after
    y = aten.mm(x, w)                   p = aten.clone(aten.permute(aten.view(w, ...), [1, 0, 2]))
                                        y = framegraph.panel_mm(x, p, columns)

A panel holds PANEL columns of w, row after row: (panels, inner, PANEL), the last filled up with
zeros. It is a derived static (derive.py). Generated code computes the operator (codegen/panels.py),
and whatever reads the result in the same pass; without a C++ compiler, aten does.
"""

from __future__ import annotations

from typing import Any

import torch

PANEL = 16  # columns: as many as the widest vector has lanes

_library = torch.library.Library("framegraph", "FRAGMENT")
_library.define("panel_mm(Tensor x, Tensor weight, SymInt columns) -> Tensor")
panel_mm = torch.ops.framegraph.panel_mm.default


def _panel_mm(x: torch.Tensor, weight: torch.Tensor, columns: int) -> torch.Tensor:
    panels, inner, _ = weight.shape
    return x @ weight.permute(1, 0, 2).reshape(inner, panels * PANEL)[:, :columns]


def _panel_mm_meta(x: torch.Tensor, weight: torch.Tensor, columns: int) -> torch.Tensor:
    return x.new_empty((x.shape[0], columns))


_library.impl("panel_mm", _panel_mm, "CPU")
_library.impl("panel_mm", _panel_mm_meta, "Meta")

aten = torch.ops.aten


def panel_steps(inner: int, columns: int) -> list[tuple[Any, list[Any], dict[str, Any]]]:
    """The operators that put a weight (inner, columns) into panels: each with the arguments that
    come after the result of the one before.
    """
    panels = -(-columns // PANEL)
    padding = panels * PANEL - columns
    steps: list[tuple[Any, list[Any], dict[str, Any]]] = [
        (aten.view.default, [[inner, panels, PANEL]], {}),
        (aten.permute.default, [[1, 0, 2]], {}),
        (aten.clone.default, [], {"memory_format": torch.contiguous_format}),
    ]
    if padding:
        steps.insert(0, (aten.constant_pad_nd.default, [[0, padding]], {}))
    return steps


def in_panels(weight: torch.Tensor) -> torch.Tensor:
    """A weight (inner, columns) in panels."""
    for target, args, kwargs in panel_steps(*weight.shape):
        weight = target(weight, *args, **kwargs)
    return weight


def panel_bytes(val: torch.Tensor) -> int:
    """Of a weight (inner, columns) in panels."""
    inner, columns = val.shape
    return -(-columns // PANEL) * PANEL * inner * val.dtype.itemsize
