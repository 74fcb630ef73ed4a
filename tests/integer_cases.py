"""Pairs of integers and what Python's operators give for them: for evaluators in C++."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator

LEAST, MOST = -(2**63), 2**63 - 1
# All pairs of small ones, and those near the ends of what has 64 bits, or a float has exactly.
_EDGES = [
    LEAST,
    LEAST + 1,
    MOST - 1,
    MOST,
    2**62,
    -(2**62),
    2**32,
    3037000500,
    2**53 + 1,
    62,
    63,
    64,
]
VALUES = [*range(-7, 9), *_EDGES]
# By their names in plans (inductor/runner/integers.h).
OPERATORS: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "pow": operator.pow,
    "//": operator.floordiv,
    "%": operator.mod,
    "max": max,
    "min": min,
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
    "and": lambda a, b: bool(a and b),
    "or": lambda a, b: bool(a or b),
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "<<": operator.lshift,
    ">>": operator.rshift,
}


def expected(name: str, a: int, b: int) -> int | None:
    """What Python gives, or None where that is an exception, no integer or too large."""
    if b > 64 and (name == "pow" and abs(a) > 1 or name == "<<" and a):
        return None  # Python would fill the memory
    try:
        value = OPERATORS[name](a, b)
    except (ArithmeticError, ValueError):
        return None
    return int(value) if isinstance(value, int) and LEAST <= value <= MOST else None


def cases(name: str) -> Iterator[tuple[int, int, int | None]]:
    for a in VALUES:
        for b in VALUES:
            yield a, b, expected(name, a, b)
