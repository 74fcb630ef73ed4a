"""Arguments that fake tensors take where the operation itself does not: a dimension out of range,
floats for their bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

_DIMENSIONS = frozenset(
    ["softmax", "log_softmax", "softmin", "gumbel_softmax", "sort", "argsort", "slice_scatter"]
)
_OF_BITS = frozenset(
    ["and", "or", "xor", "iand", "ior", "ixor", "rand", "ror", "rxor", "masked_fill"]
    + [f"bitwise_{name}" for name in ("and", "or", "xor", "left_shift", "right_shift")]
)


def refuse_misfits(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise where eager execution of the operation `name` would, whatever the values are."""
    plain = name.partition(".")[0].strip("_")
    if plain in _OF_BITS:
        operands = [a for a in (*args, *kwargs.values()) if isinstance(a, torch.Tensor)]
        asked = operands[1:2] if plain == "masked_fill" else operands
        if any(tensor.is_floating_point() for tensor in asked):
            raise TypeError(f"{name} of floats")
    elif plain in _DIMENSIONS and args and isinstance(args[0], torch.Tensor):
        place = {"slice_scatter": 2, "gumbel_softmax": 4}.get(plain, 1)
        rank = max(args[0].ndim, 1)
        for dim in (kwargs.get("dim"), *args[place : place + 1]):
            if type(dim) is int and not -rank <= dim < rank:
                raise IndexError(f"{name} over dimension {dim}")
