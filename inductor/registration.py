"""Operators of this package: generated code computes them, and aten, where there is no compiler."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

_library = torch.library.Library("framegraph", "FRAGMENT")


def operator(
    schema: str,
    compute: Callable[..., torch.Tensor | tuple[torch.Tensor, ...]],
    meta: Callable[..., torch.Tensor | tuple[torch.Tensor, ...]] | None = None,
    devices: Iterable[str] = ("CPU",),
) -> Any:
    """An operator of that schema. meta: its result without values, if `compute` gives none such."""
    _library.define(schema)
    name = schema.partition("(")[0]
    for device in devices:
        _library.impl(name, compute, device)
    _library.impl(name, meta or compute, "Meta")
    return getattr(torch.ops.framegraph, name).default
