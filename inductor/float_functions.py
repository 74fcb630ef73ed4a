"""Python's functions of floats, as operators on float64 tensors without dimensions.

Where Python raises, a check in the graph has raised before, or one of `RAISES` does.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch

from fxgraph.node import Node
from fxgraph.sym_node import (
    choose,
    sym_divide,
    sym_exp,
    sym_floordiv,
    sym_greatest,
    sym_least,
    sym_log,
    sym_log10,
    sym_rounded,
)

aten = torch.ops.aten
Apply = Callable[..., Node]  # an operator and its arguments -> its node
Function = Callable[..., Node]  # of an Apply and nodes


def _of(target: Any) -> Function:
    return lambda apply, *args: apply(target, *args)


def _floordiv(apply: Apply, a: Node, b: Node) -> Node:
    return apply(aten.div.Tensor_mode, a, b, rounding_mode="floor")


def _mod(apply: Apply, a: Node, b: Node) -> Node:
    """A rest of zero has the sign of the divisor, too."""
    return apply(aten.copysign.Tensor, apply(aten.remainder.Tensor, a, b), b)


def _extreme(compare: Any) -> Function:
    """The first of equal numbers, and of a nan and a number."""
    return lambda apply, a, b: apply(aten.where.self, apply(compare, b, a), b, a)


_SPLITTER = 2.0**27 + 1


def _halves(apply: Apply, number: Node) -> tuple[Node, Node]:
    """Two doubles of 26 bits whose sum is the number (Veltkamp)."""
    scaled = apply(aten.mul.Tensor, number, _SPLITTER)
    high = apply(aten.sub.Tensor, scaled, apply(aten.sub.Tensor, scaled, number))
    return high, apply(aten.sub.Tensor, number, high)


def _shifted(apply: Apply, number: Node, power: Node) -> tuple[Node, Node]:
    """number * power, rounded, and the rest that rounding has lost (Dekker)."""
    product = apply(aten.mul.Tensor, number, power)
    (a, b), (c, d) = _halves(apply, number), _halves(apply, power)
    rest = apply(aten.sub.Tensor, apply(aten.mul.Tensor, a, c), product)
    for left, right in ((a, d), (b, c), (b, d)):
        rest = apply(aten.add.Tensor, rest, apply(aten.mul.Tensor, left, right))
    return product, rest


def _rounded(apply: Apply, number: Node, decimals: int) -> Node:
    """As Python rounds: to the decimal that is nearest to the double's exact value. A number with
    no digit behind these is one.
    """
    power = apply(aten.full_like.default, number, 10.0**decimals)
    product, rest = _shifted(apply, number, power)
    whole = apply(aten.round.default, product)
    apart = apply(aten.abs.default, apply(aten.sub.Tensor, product, whole))
    half = apply(aten.eq.Scalar, apart, 0.5)
    for sign, function in ((aten.gt.Scalar, aten.ceil), (aten.lt.Scalar, aten.floor)):
        beside = apply(aten.logical_and.default, half, apply(sign, rest, 0.0))
        whole = apply(aten.where.self, beside, apply(function.default, product), whole)
    short = apply(aten.lt.Scalar, apply(aten.abs.default, product), 2.0**53)
    return apply(aten.where.self, short, apply(aten.div.Tensor, whole, power), number)


ARITHMETIC: dict[Any, Function] = {
    operator.neg: _of(aten.neg.default),
    operator.add: _of(aten.add.Tensor),
    operator.sub: _of(aten.sub.Tensor),
    operator.mul: _of(aten.mul.Tensor),
    operator.truediv: _of(aten.div.Tensor),
    operator.floordiv: _floordiv,
    operator.mod: _mod,
    operator.pow: _of(aten.pow.Tensor_Tensor),
    sym_divide: _of(aten.div.Tensor),
    sym_floordiv: _floordiv,
    sym_exp: _of(aten.exp.default),
    sym_log: _of(aten.log.default),
    sym_log10: _of(aten.log10.default),
    abs: _of(aten.abs.default),
    sym_least: _extreme(aten.lt.Tensor),
    sym_greatest: _extreme(aten.gt.Tensor),
    sym_rounded: _rounded,
    **{
        getattr(torch, f"_sym_{name}"): _of(getattr(aten, name).default)
        for name in ("sqrt", "log2", "sin", "cos", "tan", "tanh", "sinh", "cosh")
        + ("asin", "acos", "atan")
    },
}
COMPARISONS: dict[Any, Function] = {
    getattr(operator, name): _of(getattr(aten, name).Tensor)
    for name in ("eq", "ne", "lt", "le", "gt", "ge")
}
# Of conditions, tensors of bool.
LOGIC: dict[Any, Function] = {
    torch.sym_not: _of(aten.logical_not.default),
    operator.and_: _of(aten.logical_and.default),
    operator.or_: _of(aten.logical_or.default),
}
CHOICE: dict[Any, Function] = {choose: _of(aten.where.self)}
ROUNDINGS: dict[Any, Function] = {
    math.floor: _of(aten.floor.default),
    math.ceil: _of(aten.ceil.default),
    math.trunc: _of(aten.trunc.default),
    round: _of(aten.round.default),  # halves to even numbers, as Python's
}


def _is_infinite(apply: Apply, number: Node) -> Node:
    return apply(aten.eq.Scalar, apply(aten.abs.default, number), math.inf)


def _of_infinity(apply: Apply, result: Node, number: Node) -> Node:
    return _is_infinite(apply, number)


def _overflows(apply: Apply, result: Node, *numbers: Node) -> Node:
    """An infinite result of finite numbers."""
    found = _is_infinite(apply, result)
    for number in numbers:
        finite = apply(aten.logical_not.default, _is_infinite(apply, number))
        found = apply(aten.logical_and.default, found, finite)
    return found


def _is_no_integer(apply: Apply, result: Node, number: Node) -> Node:
    """Of 64 bits."""
    fits = apply(aten.lt.Scalar, apply(aten.abs.default, number), 2.0**63)
    return apply(aten.logical_not.default, fits)


# Of an Apply, a function's result and its numbers: whether Python raises.
RAISES: dict[Any, Function] = {
    operator.pow: _overflows,
    **{getattr(torch, f"_sym_{name}"): _of_infinity for name in ("sin", "cos", "tan")},
    **dict.fromkeys(ROUNDINGS, _is_no_integer),
}
