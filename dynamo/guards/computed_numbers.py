"""Numbers that Python's functions make of symbols, and for which expressions have no form:

    k = math.isqrt(x.shape[0])        s1 = math.isqrt(s0), before the guards and before the graph
    return x[:k]                      x[:s1]

Such a number is a symbol like one of an argument. Guards compute it from the numbers they have
read, and the rewritten frame once more; where the function raises, the guard fails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from dynamo.guards.sources import ComputedSource
from fxgraph.expression_nodes import function_of
from fxgraph.expressions import evaluate
from fxgraph.python_numbers import DTYPES, Computation, is_natural, name_of
from fxgraph.symbolic_values import is_symbolic

if TYPE_CHECKING:
    from dynamo.guards.shapes import FrameSymbols


class ComputedNumbers:
    """The computed symbols of a frame."""

    def __init__(self, symbols: FrameSymbols) -> None:
        self.symbols = symbols
        self._made: dict[Any, Any] = {}

    def result(self, function: Callable[..., Any], numbers: Sequence[Any]) -> Any:
        """The symbolic result of a pure function of numbers, some of them symbols: a number, or a
        tuple of numbers. None: it is that of the numbers of this call.
        """
        symbols = self.symbols
        if name_of(function) is None or symbols.output.context.export or not symbols.active:
            return None
        operands = tuple(n.node.expr if is_symbolic(n) else n for n in numbers)
        key = (function, *((type(n), repr(n)) for n in operands))
        if key not in self._made:
            self._made[key] = self._make(function, operands, [is_symbolic(n) for n in numbers])
        return self._made[key]

    def _make(self, function: Callable[..., Any], operands: tuple, varies: list[bool]) -> Any:
        env = self.symbols.env
        exprs = [expr for expr, symbolic in zip(operands, varies) if symbolic]
        free = sorted(set().union(*(expr.free_symbols for expr in exprs)), key=str)
        sources = tuple(env.symbols[symbol].source for symbol in free)
        if not free or any(one is None or one.made_by_frame or one.weak for one in sources):
            return None
        hints = {symbol: env.symbols[symbol].hint for symbol in free}
        parts = [
            function_of(one, free) if symbolic else one for one, symbolic in zip(operands, varies)
        ]
        found = [
            _value(function, operands, varies, values)
            for values in (hints, {**hints, **self._small(free)})
        ]
        if any(type(one) is not type(found[0]) for one in found):
            return None
        shown = ", ".join(
            env.describe(one) if symbolic else repr(one) for one, symbolic in zip(operands, varies)
        )
        label = f"{name_of(function)}({shown})"
        if type(found[0]) is not tuple:
            return self._symbol(Computation(function, parts, None), sources, label, found)
        made = [
            self._symbol(Computation(function, parts, i), sources, f"{label}[{i}]", both)
            for i, both in enumerate(zip(*found))
        ]
        return None if None in made else tuple(made)

    def _small(self, free: Sequence[Any]) -> dict[Any, Any]:
        small = self.symbols.small
        return {symbol: small[symbol] for symbol in free if symbol in small}

    def _symbol(
        self, computation: Computation, sources: tuple, label: str, found: Sequence[Any]
    ) -> Any:
        """The symbol of a result that is found[0] for the hints of the symbols, and found[1] for
        the numbers of this call.
        """
        symbols, kinds = self.symbols, {type(one) for one in found}
        if (
            len(kinds) > 1
            or not kinds <= DTYPES.keys()
            or not all(type(one) is bool or fits_symbol(one) for one in found)
        ):
            return None
        if symbols.is_full():
            return None
        function: Any = computation
        name, source = name_of(computation.function), ComputedSource(function, sources, label)
        if kinds == {float}:
            made: Any = symbols.env.new_float(found[0], label, source)
        else:
            low = 0 if kinds == {bool} or is_natural(str(name)) else None
            high = 1 if kinds == {bool} else None
            made = symbols.env.new_symbol(int(found[0]), label, low, high, source)
        if found[0] != found[1]:
            symbols.small[made.node.expr] = int(found[1])
        symbols.read.append((made, source))
        return made != 0 if kinds == {bool} else made


def _value(function: Any, operands: tuple, varies: list[bool], values: dict[Any, Any]) -> Any:
    """The result for these values of the symbols; None where the function raises."""
    try:
        given = [
            evaluate(one, values) if symbolic else one for one, symbolic in zip(operands, varies)
        ]
        return function(*given)
    except Exception:  # of the numbers of this call, which the frame then asks for
        return None


def fits_symbol(value: Any) -> bool:
    """An int in 63 bits, or a float that sympy can stand for: zero has a sign in Python only.
    Operators refuse a float beyond float32, which only a constant has them do.
    """
    if type(value) is int:
        return -(2**62) < value < 2**62
    return 0.0 < abs(value) <= _LARGEST


_LARGEST = torch.finfo(torch.float32).max
