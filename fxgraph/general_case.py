"""Questions about sizes from data whose answers choose among ways to one result.

    x[mask].flip(0)          # torch's rule: are there any elements?
    x[mask].cumsum(0)        # its backward: is there more than one?

The way that is right for many elements is right for none and for one, too: it is taken, and nothing
is assumed. Questions of the user's own code are not answered so.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import sympy
import torch

from fxgraph.expressions import Real, negated, relation

# Functions whose rules ask whether there are any elements.
_OPERATORS = frozenset(["flip", "fliplr", "flipud", "logsumexp", "conv1d", "conv2d", "conv3d"])
# Nodes of autograd that ask for elements, or how a matrix lies in memory.
_BACKWARDS = frozenset(
    ["CumsumBackward0", "ConvolutionBackward0", "RepeatBackward0"]
    + ["MmBackward0", "AddmmBackward0", "LogSigmoidBackward0"]
)
# Nodes that ask for degrees of freedom, as a float. Of one element that is its own mean both of
# their formulas are nan.
_SPREADS = frozenset(f"{name}Backward0" for name in ("Var", "Std", "VarMean", "StdMean"))
# Nodes that add up a gradient over the dimensions in which an operand of size 1 was broadcast.
_BROADCAST = frozenset(
    f"{name}Backward{number}"
    for name in ("Add", "Sub", "Mul", "Div", "Where", "Expand", "Addcmul", "Lerp", "Sum", "Mean")
    for number in range(4)
)


@contextlib.contextmanager
def general_case(env: Any, target: Any, args: Sequence[Any] = ()) -> Iterator[None]:
    """Inside, `target` runs on fake tensors with sizes of `env`. args: those of capture; kernels of
    devices need not take nothing.
    """
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    taken = env is not None and name in _OPERATORS
    if not taken or any(isinstance(t, torch.Tensor) and t.device.type != "cpu" for t in args):
        yield
        return
    with taking_general_case(env):
        yield


@contextlib.contextmanager
def taking_general_case(env: Any) -> Iterator[None]:
    """Inside, there are elements: torch asks before memory of fake tensors is counted."""
    if env is None:
        yield
        return
    before, env.takes_general_case = env.takes_general_case, True
    try:
        yield
    finally:
        env.takes_general_case = before


def answer(env: Any, condition: Any) -> bool | None:
    """The answer for many elements; None where the question is another."""
    node = torch._C._current_autograd_node()
    if node is not None and node.name() in _SPREADS and _are_degrees(env, condition):
        return False
    asked: tuple[Any, ...] = (sympy.Eq, sympy.Ne)
    if node is not None and node.name() in _BACKWARDS:
        asked += (sympy.Le, sympy.Ge)
    elif node is not None and node.name() in _BROADCAST and getattr(condition, "rhs", None) == 1:
        pass
    elif not env.takes_general_case or getattr(condition, "rhs", None) != 0:
        return None
    if not isinstance(condition, asked) or not condition.rhs.is_number:
        return None
    low, _ = env.bounds(condition.lhs)
    return isinstance(condition, sympy.Ne | sympy.Ge) if low is not None and low >= 0 else None


def _are_degrees(env: Any, condition: Any) -> bool:
    """Whether a condition is `float(count) - correction <= 0`, of a correction in use: 0 or 1."""
    if not isinstance(condition, sympy.Le) or not condition.rhs.is_zero:
        return False
    freedom = condition.lhs
    if not isinstance(freedom, Real) or freedom.args[0].name != "sub":
        return False
    _, total, correction = freedom.args
    counted = isinstance(total, Real) and total.args[0].name == "float"
    if not counted or not correction.is_number or float(correction) not in (0.0, 1.0):
        return False
    low, _ = env.bounds(total.args[1])
    return low is not None and low >= 0


def usual(condition: Any) -> Any:
    """A condition on data, or its opposite: the one that holds where there are many elements, and
    sizes fit together. None: neither is more usual.
    """
    if isinstance(condition, sympy.And | sympy.Or):
        parts = [usual(part) for part in condition.args]
        if None in parts:
            return None
        holds = all if isinstance(condition, sympy.And) else any
        as_they_are = holds(map(operator.eq, parts, condition.args))
        return condition if as_they_are else negated(condition)
    if isinstance(condition, sympy.Not):
        return usual(condition.args[0])
    if not isinstance(condition, sympy.Rel):
        return None
    left, right = condition.args
    if isinstance(condition, sympy.Eq | sympy.Ne):
        few = right.is_number and right <= _FEW
        if right.is_number and not few and not left.is_Symbol:
            return None  # n - 3 == 0, or n == 3
        return condition if isinstance(condition, sympy.Ne) == few else negated(condition)
    if not right.is_number or not _grows(left):
        return None
    many = isinstance(condition, sympy.Ge | sympy.Gt)
    return condition if many else negated(condition)


def of_remainder(env: Any, condition: Any) -> Any:
    """A condition on a size, as one on the rest of a known total, where that rest is a size too:
    of 32 rows in two parts, the first has 32 where the second has none.
    """
    if not isinstance(condition, sympy.Eq | sympy.Ne) or not condition.rhs.is_number:
        return condition
    for symbol, value in env.replacements.items():
        rest = value + condition.lhs - condition.rhs
        if rest.is_number and rest <= _FEW < condition.rhs:
            return relation("eq" if isinstance(condition, sympy.Eq) else "ne", symbol, rest)
    return condition


def tells_elements(env: Any, condition: Any) -> bool | None:
    """Whether a condition holds where there are elements, and only there, or (False) only where
    there are none; None: it tells something else.
    """
    if not isinstance(condition, sympy.Rel) or not condition.rhs.is_number:
        return None
    size, bound = condition.args
    low, _ = env.bounds(size)
    if low is None or low < 0:
        return None
    if isinstance(condition, sympy.Ne | sympy.Gt) and bound == 0:
        return True
    if isinstance(condition, sympy.Eq | sympy.Le) and bound == 0:
        return False
    return isinstance(condition, sympy.Ge) if bound == 1 and condition.func in _AROUND_ONE else None


_AROUND_ONE = (sympy.Ge, sympy.Lt)
_FEW = 1  # elements


def _grows(expr: Any) -> bool:
    """Whether an expression grows with its symbols."""
    return not any(part.could_extract_minus_sign() for part in sympy.Add.make_args(expr))
