"""Python's arithmetic of symbols, beyond the operators of expressions."""

from __future__ import annotations

from typing import Any

import torch

# The text of Python's error, by operator and whether an operand is a float.
BY_ZERO = {
    ("/", False): "division by zero",
    ("/", True): "float division by zero",
    ("//", False): "integer division or modulo by zero",
    ("//", True): "float floor division by zero",
    ("%", False): "integer modulo by zero",
    ("%", True): "float modulo",
}


def masked(left: Any, right: Any) -> Any:
    """A size's last bits (`n & 7`), or all but these (`n & -8`), as a remainder."""
    number, mask = (right, left) if isinstance(left, int) else (left, right)
    if type(mask) is not int or not isinstance(number, torch.SymInt):
        return None
    if mask >= 0 and mask & (mask + 1) == 0:
        return number % (mask + 1)
    return number - number % -mask if mask < 0 and -mask & (-mask - 1) == 0 else None
