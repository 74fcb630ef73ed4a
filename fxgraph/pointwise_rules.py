"""Shape rules for pointwise operators of several tensors whose sizes are symbols.

torch's ask of each size whether it is 1, which code for all sizes must not depend on. Here sizes
are joined by their form: equal ones, and plain ones of 1. All tensors are in row-major order, and
so is the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as KIND
from torch._prims_common import elementwise_dtypes

from fxgraph.shape_rules import Meta, aten
from fxgraph.size_forms import broadcast, contiguous, row_major

_NUMBERS = (int, float, bool)


def _joined(tensors: list[torch.Tensor], dtype: torch.dtype) -> list[Meta] | None:
    device = tensors[0].device
    if any(t.device != device or not row_major(t) for t in tensors):
        return None
    size = broadcast([t.shape for t in tensors])
    strides = None if size is None else contiguous(size)
    if size is None or strides is None:
        return None
    return [(dtype, tuple(size), tuple(strides), 0, device)]


def _promoting(kind: Any) -> Callable[..., list[Meta] | None]:
    """Of tensors and plain numbers; the result's type by promotion of this kind."""

    def rule(*args: Any) -> list[Meta] | None:
        tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
        if not all(isinstance(arg, torch.Tensor) or type(arg) in _NUMBERS for arg in args):
            return None
        if not tensors:  # torch.add(1, 2) is a tensor
            return None
        return _joined(tensors, elementwise_dtypes(*args, type_promotion_kind=kind)[1])

    return rule


def _where(condition: torch.Tensor, x: Any, y: Any) -> list[Meta] | None:
    if condition.dtype != torch.bool:
        return None
    dtype = elementwise_dtypes(x, y, type_promotion_kind=KIND.NO_OPMATH)[1]
    return _joined([condition, x, y], dtype)


def _masked_fill(x: torch.Tensor, mask: torch.Tensor, value: Any) -> list[Meta] | None:
    if isinstance(value, torch.Tensor) and value.dim():
        return None
    return _joined([x, mask], x.dtype) if mask.dtype == torch.bool else None


def _overloads(names: str, kind: Any, *overloads: str) -> dict[Any, Any]:
    rule = _promoting(kind)
    return {
        getattr(getattr(aten, name), overload): rule
        for name in names.split()
        for overload in overloads
        if overload in getattr(aten, name).overloads()
    }


POINTWISE: dict[Any, Any] = {
    **_overloads("add sub mul remainder", KIND.DEFAULT, "Tensor"),
    **_overloads("maximum minimum", KIND.DEFAULT, "default"),
    **_overloads("div", KIND.INT_TO_FLOAT, "Tensor"),
    **_overloads("eq ne lt le gt ge", KIND.ALWAYS_BOOL, "Tensor", "Scalar"),
    **_overloads("logical_and logical_or logical_xor logical_not", KIND.ALWAYS_BOOL, "default"),
    **_overloads("bitwise_and bitwise_or bitwise_xor", KIND.DEFAULT, "Tensor"),
    **_overloads("bitwise_not", KIND.DEFAULT, "default"),
    aten.where.self: _where,
    aten.masked_fill.Scalar: _masked_fill,
    aten.masked_fill.Tensor: _masked_fill,
}
