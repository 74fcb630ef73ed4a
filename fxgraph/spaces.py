"""torch.linspace of a number of steps that varies, as an operator of the graph.

torch.linspace reads its number of steps, so that a graph of it holds for one alone. The operator
takes a symbol: traced over fake tensors it is arithmetic, run with numbers torch.linspace itself,
whose last bits depend on the width of its kernel's vectors.
"""

from __future__ import annotations

from typing import Any

import torch

_library = torch.library.Library("framegraph", "FRAGMENT")
_library.define(
    "linspace(Scalar start, Scalar end, SymInt steps, ScalarType dtype, Device device) -> Tensor"
)


def _linspace(
    start: Any, end: Any, steps: Any, dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    if isinstance(steps, int):
        return torch.linspace(start, end, steps, dtype=dtype, device=device)
    at = torch.arange(steps, device=device)
    step = (end - start) / torch.sym_max(steps - 1, 1)
    first = at.to(dtype) * step + start
    last = end - (steps - 1 - at).to(dtype) * step
    return torch.where(at < torch.sym_max(steps // 2, 1), first, last)


_library.impl("linspace", _linspace, "CompositeImplicitAutograd")
linspace = torch.ops.framegraph.linspace.default
