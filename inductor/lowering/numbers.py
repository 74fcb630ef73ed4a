"""Numbers of the program in kernels: rounded as eager rounds, or refused as eager refuses."""

from __future__ import annotations

import math

import torch

from fxgraph.sizes import Size
from inductor.lowering.registry import NotLowered
from inductor.ops import COMPUTE_TYPES

Number = bool | int | float
# Types whose every number is one of both half types.
FIT_HALF = (torch.bool, torch.int8, torch.uint8)


def half_number(value: Number, dtype: torch.dtype) -> Number:
    """The number as an operand of a half type has it: rounded, if it is too large to infinity."""
    if dtype == COMPUTE_TYPES[dtype] or isinstance(value, Size):
        return value
    return torch.tensor(float(value)).to(dtype).item()


def rounded(value: Number, dtype: torch.dtype) -> Number:
    """The number that is stored in memory of this dtype; kernels compute in wider ones."""
    if not isinstance(value, Number):
        return value
    try:
        stored = torch.tensor(value, dtype=dtype).item()
    except (RuntimeError, OverflowError) as error:
        raise NotLowered("eager raises: the number does not fit") from error
    if isinstance(stored, float) and math.isinf(stored) and not math.isinf(value):
        raise NotLowered("eager raises: the number does not fit")
    return stored
