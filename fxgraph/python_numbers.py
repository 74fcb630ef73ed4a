"""Python's functions of numbers that depend on data, as an operator of the graph.

    n = t.item()               n = t.item()
    k = math.isqrt(n)    ->    k = framegraph.python_number("math.isqrt", [scalar_tensor(n)], int64)
    y = x[:k]                  y = x[: k.item()]

One operator serves every function of ints and floats that graphs have no arithmetic for
(fxgraph/expressions.py): it calls Python's own. Where that raises, or has a result of another type
or of more than 64 bits, the operator fails, and the frame runs again, eagerly.
"""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

DTYPES: dict[type, torch.dtype] = {int: torch.int64, float: torch.float64, bool: torch.bool}
# Name in graphs -> function. Those of other things than numbers have no result here (`sampled`).
FUNCTIONS: dict[str, Callable[..., Any]] = {
    f"{owner.__name__}.{name}": getattr(owner, name)
    for owner, names in (
        (math, [name for name in vars(math) if callable(getattr(math, name))]),
        (builtins, ["pow", "round", "min", "max"]),
        (operator, ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow"]),
        (operator, ["lshift", "rshift", "and_", "or_", "xor"]),
        (operator, ["eq", "ne", "lt", "le", "gt", "ge"]),
        (int, ["bit_length", "bit_count", "is_integer", "as_integer_ratio", "__round__"]),
        (float, ["is_integer", "as_integer_ratio", "__round__"]),
    )
    for name in names
    if hasattr(owner, name)  # int.is_integer: from Python 3.12
}
_NAMES = {function: name for name, function in FUNCTIONS.items()}
_NATURAL = frozenset(
    [f"math.{name}" for name in ("isqrt", "gcd", "lcm", "comb", "perm", "factorial")]
    + ["int.bit_length", "int.bit_count"]
)
_OF_ONE_TYPE = frozenset(["builtins.min", "builtins.max"])  # the result is one of the operands


def name_of(function: Any) -> str | None:
    """The name by which a graph calls a function of numbers; None for another function."""
    try:
        return _NAMES.get(function)
    except TypeError:  # unhashable
        return None


def is_natural(name: str) -> bool:
    """Whether no result of the function is negative."""
    return name in _NATURAL


def sampled(name: str, operands: Sequence[Any]) -> tuple[list[Any], torch.dtype] | None:
    """Numbers of which the function has a result, and the dtype of that; None: there are none, or
    the result is no number. operands: numbers, or the types of those that depend on data.
    """
    if name in _OF_ONE_TYPE and len({_type(one) for one in operands}) > 1:
        return None
    for sample in (1, 0, 2):
        numbers = [one(sample) if isinstance(one, type) else one for one in operands]
        try:
            found = FUNCTIONS[name](*numbers)
        except (ArithmeticError, ValueError, TypeError):
            continue
        return (numbers, DTYPES[type(found)]) if type(found) in DTYPES else None
    return None


def _type(operand: Any) -> type:
    return operand if isinstance(operand, type) else type(operand)


class Computation:
    """A function of the values of symbols: `function` of operands that are numbers, or functions of
    these values. item: which number of a tuple; a bool is 0 or 1.
    """

    def __init__(
        self, function: Callable[..., Any], operands: Sequence[Any], item: int | None
    ) -> None:
        self.function, self.operands, self.item = function, operands, item

    def __call__(self, *values: Any) -> Any:
        operands = [part(*values) if callable(part) else part for part in self.operands]
        made = self.function(*operands)
        made = made if self.item is None else made[self.item]
        return int(made) if type(made) is bool else made


_library = torch.library.Library("framegraph", "FRAGMENT")
_library.define("python_number(str function, Tensor[] operands, ScalarType dtype) -> Tensor")


def _compute(function: str, operands: Sequence[torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    try:
        made: Any = FUNCTIONS[function](*(operand.item() for operand in operands))
    except (ArithmeticError, ValueError, TypeError) as error:
        raise RuntimeError(f"{function}: {error}") from error
    kind = type(made)
    if DTYPES.get(kind) is not dtype or (kind is int and not -(1 << 63) <= made < 1 << 63):
        raise RuntimeError(f"{function} has another result than graphs hold")
    return torch.full((), made, dtype=dtype, device="cpu")


def _meta(function: str, operands: Sequence[torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    return operands[0].new_empty((), dtype=dtype)


_library.impl("python_number", _compute, "CPU")
_library.impl("python_number", _meta, "Meta")
python_number = torch.ops.framegraph.python_number.default
