"""Numbers of data that are an int in some calls and a float in others: `max(0, x.sum().item())`.

Arithmetic with floats and with tensors of floats, comparisons and functions of `math` take an int
for the float of its value, which the graph has. Arithmetic with ints gives further such numbers.
Anything else breaks the graph.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.values.base import Value
from dynamo.values.late_bound import bound_late
from dynamo.values.recipes import Recipe
from dynamo.values.scalars.operators import BINARY_FUNCTIONS, binary_op, compare_op, unary_op
from dynamo.values.scalars.symbol import call_on_symbols, is_exact, number_of, number_value
from fxgraph.sym_node import MOST_EXACT, choose, is_exact_as_float
from fxgraph.symbolic_values import depends_on_data, is_symbolic

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter


class MixedNumber(Value):
    """The int `whole` where `is_int`, a condition of the graph, holds, else the float `real`, which
    is the float of `whole` there.
    """

    def __init__(self, tx: Interpreter, is_int: Any, whole: Any, real: Any) -> None:
        super().__init__()
        self.is_int = is_int
        self.whole = whole
        self.real = number_value(tx, real)
        self._parts = [*(number_value(tx, number) for number in (is_int, whole)), self.real]
        self.alternatives = self._parts[1:]

    def describe(self) -> str:
        return "a number that is an int or a float by the data"

    def refuse(self) -> NoReturn:
        raise Unsupported(breaks.DataDependentValue(self.describe()))

    def recipe(self) -> Recipe:
        return _either, self._parts

    def as_tensor(self, tx: Interpreter, beside: torch.Tensor) -> Value:
        """The number that arithmetic with `beside` takes for this one."""
        if not beside.dtype.is_floating_point:
            self.refuse()
        return self.real

    def binary(self, tx: Interpreter, op: str, other: Value, reflected: bool) -> Value | None:
        op, fake = op.removesuffix("="), getattr(other, "fake", None)
        if op not in ("+", "-", "*", "/") and not (
            op == "**" and self._has_power(other, reflected)
        ):
            self.refuse()
        if isinstance(fake, torch.Tensor):
            number = self.as_tensor(tx, fake)
            return binary_op(tx, op, *((other, number) if reflected else (number, other)))
        parts = _parts(other)
        if parts is None:
            self.refuse()
        number = other.real if isinstance(other, MixedNumber) else other
        made = binary_op(tx, op, *((number, self.real) if reflected else (self.real, number)))
        is_int = _and(self.is_int, parts[0])
        if op == "/" or is_int is False:
            return made
        pair = (parts[1], self.whole) if reflected else (self.whole, parts[1])
        return self._mixed(tx, is_int, BINARY_FUNCTIONS[op](*pair), made)

    def _has_power(self, exponent: Value, reflected: bool) -> bool:
        number = number_of(exponent)
        known = type(number) in (int, float) and not is_symbolic(self.whole)
        return known and number >= 0 and not reflected

    def _mixed(self, tx: Interpreter, is_int: Any, whole: Any, real: Value) -> Value:
        """The result of arithmetic. The float of an int has no -0.0."""
        number = number_of(real)
        known = not is_symbolic(whole) and abs(whole) <= MOST_EXACT
        if not (known or _is_exact_as_float(whole)) or not is_exact(number):
            self.refuse()
        return MixedNumber(tx, is_int, whole, choose(is_int, torch.sym_float(whole), number))

    def unary(self, tx: Interpreter, op: str) -> Value | None:
        if op != "-":
            self.refuse()
        return self._mixed(tx, self.is_int, -self.whole, unary_op(tx, op, self.real))

    def compare(self, tx: Interpreter, op: str, other: Value) -> Value | None:
        parts = _parts(other)
        if parts is None:
            self.refuse()
        return compare_op(tx, op, self.real, number_value(tx, parts[2]))

    def as_condition(self) -> Value:
        return self.real

    def truth(self, tx: Interpreter) -> bool:
        return self.real.truth(tx)

    def truth_value(self, tx: Interpreter, negated: bool = False) -> Value:
        return self.real.truth_value(tx, negated)


def _either(is_int: bool, whole: int, real: float) -> int | float:
    """The number, once the graph has run."""
    return whole if is_int else real


# (whether a number is an int, that int, the float of its value)
_Parts = tuple[Any, Any, Any]


def _parts(value: Value) -> _Parts | None:
    """None: no number, or an int that floats may not hold."""
    if isinstance(value, MixedNumber):
        return value.is_int, value.whole, number_of(value.real)
    number = number_of(value)
    if type(number) is int or isinstance(number, torch.SymInt):
        return (True, number, torch.sym_float(number)) if _is_exact_as_float(number) else None
    if not isinstance(number, float | torch.SymFloat) or not is_exact(number):
        return None
    return False, 0, number


def _is_exact_as_float(number: Any) -> bool:
    if is_symbolic(number):
        return is_exact_as_float(number.node.shape_env, number.node.expr)
    return abs(number) <= MOST_EXACT


def _and(one: Any, other: Any) -> Any:
    if one is False or other is False:
        return False
    return other if one is True else one if other is True else one & other


# -- functions ------------------------------------------------------------------------------------
# Functions to which an int and the float of its value are one number.
_OF_FLOATS = frozenset(
    [float, int, bool, round]
    + [math.sqrt, math.exp, math.log, math.log2, math.log10, math.sin, math.cos, math.tanh]
    + [math.floor, math.ceil, math.trunc, math.isnan, math.isinf, math.isfinite]
)


def call_on_numbers(
    tx: Interpreter, function: Any, args: Sequence[Value], kwargs: dict[str, Value]
) -> Value | None:
    """A call of a pure function of numbers, of which some are symbols or mixed; None: as of
    constants.
    """
    if function in (min, max) and not kwargs:
        made = _extreme(tx, operator.lt if function is min else operator.gt, args)
        if made is not None:
            return made
    if len(args) == 1 and not kwargs and isinstance(args[0], MixedNumber):
        if function not in _OF_FLOATS:
            args[0].refuse()
        return tx.wrap(function).call(tx, [args[0].real], {})
    return call_on_symbols(tx, function, args, kwargs)


def _extreme(
    tx: Interpreter, better: Callable[[Any, Any], Any], args: Sequence[Value]
) -> Value | None:
    """min or max of ints and floats of which some depend on data; None: of other arguments."""
    if not any(isinstance(arg, MixedNumber) or depends_on_data(number_of(arg)) for arg in args):
        return None
    parts = [part for arg in args if (part := _parts(arg)) is not None]
    if len(parts) < len(args) or all(part[0] is parts[0][0] for part in parts):
        return None
    is_int, whole, real = parts[0]
    for one_is_int, one, number in parts[1:]:
        wins = better(number, real)
        whole = (
            one if is_int is False else whole if one_is_int is False else choose(wins, one, whole)
        )
        is_int, real = choose(wins, one_is_int, is_int), choose(wins, number, real)
    return MixedNumber(tx, is_int, whole, real)


@bound_late
def extreme_of_numbers(tx: Interpreter, function: Any, one: Value, other: Value) -> Value | None:
    """min or max of two items of an iterable, by the rule of arguments; None: of other values."""
    args = [one, other]
    if not any(isinstance(arg, MixedNumber) or is_symbolic(number_of(arg)) for arg in args):
        return None
    return call_on_numbers(tx, function, args, {})
