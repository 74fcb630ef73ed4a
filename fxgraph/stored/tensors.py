"""Shapes of tensors as data."""

from __future__ import annotations

from typing import Any

import torch

from fxgraph.stored.errors import StoredError
from fxgraph.stored.expressions import number_of


def tensor_to_data(tensor: torch.Tensor) -> dict[str, Any]:
    """Dtype, size, stride and device."""
    if tensor.layout is not torch.strided or tensor.is_conj() or tensor.is_neg():
        raise StoredError(f"a tensor of layout {tensor.layout} cannot be saved")
    return {
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "size": [number_of(n) for n in tensor.shape],
        "stride": [number_of(n) for n in tensor.stride()],
        "device": str(tensor.device),
    }


def dtype_of(name: Any) -> torch.dtype:
    """The dtype of this name."""
    dtype = getattr(torch, name, None) if isinstance(name, str) else None
    if not isinstance(dtype, torch.dtype):
        raise StoredError(f"no dtype {str(name)[:80]!r}")
    return dtype
