"""From the graph's torch.SymInts (fxgraph/symbols.py) to sizes (fxgraph/sizes.py)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Container
from math import prod
from typing import Any

import sympy
import torch

from fxgraph import expressions
from fxgraph.expressions import relation
from fxgraph.sizes import (
    Extent,
    Size,
    Symbol,
    Undecided,
    bits,
    ceil_div,
    divided,
    hint,
    largest,
    modulo,
    read_name,
    smallest,
)

UNKNOWN_HINT = 1024  # a size that depends on data


def likely(value: Any) -> int:
    """A size at compile time, for choices that are right for any size."""
    try:
        return hint(GraphSizes().of(value))
    except Undecided:
        return UNKNOWN_HINT


MOST = 1 << 30  # of a size that varies: positions of paddings and their bounds have 32 bits


def bound_sizes(gm: Any) -> None:
    """Guard that the sizes of inputs are at most MOST: vectors compare twice as many positions in
    32 bits as in 64. A graph for larger sizes is one of its own, without this bound.
    """
    env: Any = getattr(gm.meta.get("fake_mode"), "shape_env", None)
    for symbol, info in () if env is None else list(env.symbols.items()):
        size = info.source is not None and info.low is not None and info.low >= 0
        if size and info.high is None and info.hint is not None and info.hint <= MOST:
            env.evaluate(relation("le", symbol, sympy.Integer(MOST)))


class GraphSizes:
    """The sizes of one graph: equal symbols are one Symbol. values: of names that are no
    symbols, since they are computed of others. given: of expressions (see `give`).
    """

    def __init__(
        self,
        symbols: dict[str, Symbol] | None = None,
        values: dict[str, Extent] | None = None,
        given: dict[Any, Extent] | None = None,
    ) -> None:
        self.symbols = {} if symbols is None else symbols
        self.values = {} if values is None else values
        self.given = {} if given is None else given
        self._known: dict[Any, Extent] = {}

    def of(self, value: Any) -> Any:
        """An int or torch.SymInt as a size; any other value as it is.

        Raises Undecided for an expression that sizes have no form of.
        """
        if isinstance(value, torch.SymInt):
            env = value.node.shape_env
            return self._size(env.simplify(value.node.expr), env)
        if isinstance(value, torch.SymFloat | torch.SymBool):
            raise Undecided(f"{value}, which is no integer")
        return value

    def all(self, values: Any) -> tuple[Extent, ...]:
        return tuple([n if type(n) is int else self.of(n) for n in values])

    def give(self, value: Any) -> None:
        """Have a symbol for a number that is read or passed, where sizes have no other form of it:
        one that is made of floats.
        """
        try:
            self.of(value)
        except Undecided:
            if not isinstance(value, torch.SymInt):
                raise
            name = f"r{len(self.given)}"
            # Without bounds: checks of the graph itself tell them.
            made = self.symbols[name] = Symbol(name, None, None, UNKNOWN_HINT)
            self.given[value.node._expr] = self.given[value.node.expr] = Size.of(made)

    def _size(self, expr: Any, env: Any) -> Extent:
        known = self._known.get(expr, self.given.get(expr))
        if known is None:
            known = self._known[expr] = self._converted(expr, env)
        return known

    def _converted(self, expr: Any, env: Any) -> Extent:
        if expr.is_Integer:
            if not -(2**63) <= int(expr) < 2**63:
                raise Undecided(f"{expr}, which has more than 64 bits")
            return int(expr)
        if expr.is_Symbol:
            return self._symbol(expr, env)
        if isinstance(expr, expressions.Rounded):
            return self._rounded(expr, env)
        if isinstance(expr, expressions.Bits):
            return bits(_SIGNS[expr.args[0].name], *(self._size(arg, env) for arg in expr.args[1:]))
        if isinstance(expr, expressions.Truth):
            return self._truth(expr.args[0], env)
        if isinstance(expr, expressions.Choose):
            holds = self._truth(expr.args[0], env)
            yes, no = (self._size(arg, env) for arg in expr.args[1:])
            return holds * (yes - no) + no
        rule = _RULES.get(type(expr))
        if rule is None:
            raise Undecided(f"sizes like {expr}")
        return rule([self._size(arg, env) for arg in expr.args])

    def _rounded(self, expr: Any, env: Any) -> Extent:
        """floor(2.0 * s0) and the like, where doubles are exact (below 2**52)."""
        kind, inner = expr.args[0].name, expr.args[1]
        whole = self._whole(inner, env)
        if whole is not None:
            return whole
        parts = self._fraction(inner, env)
        if parts is None or kind not in ("floor", "trunc", "ceil") or not parts[0] >= 0:
            raise Undecided(f"sizes like {expr}")
        return ceil_div(*parts) if kind == "ceil" else divided(*parts)

    def _whole(self, expr: Any, env: Any) -> Extent | None:
        """The size that a float is, exactly; None if it may have a fraction."""
        if expr.is_Float or expr.is_Integer:
            return int(expr) if float(expr).is_integer() else None
        if not isinstance(expr, expressions.Real):
            return self._size(expr, env) if expr.is_integer else None
        combine = _OF_WHOLE.get(expr.args[0].name)
        args = [self._whole(arg, env) for arg in expr.args[1:]]
        return None if combine is None or None in args else combine(*args)

    def _fraction(self, expr: Any, env: Any) -> tuple[Extent, int] | None:
        """(a, b) with the float being a / b, a positive number b; rounding it is then exact."""
        if not isinstance(expr, expressions.Real) or len(expr.args) != 3:
            return None
        name: str = expr.args[0].name
        left, right = expr.args[1], expr.args[2]
        if name == "mul":
            for one, other in ((left, right), (right, left)):
                a = self._whole(one, env)
                top, bottom = float(other).as_integer_ratio() if other.is_Float else (0, 1)
                if a is not None and top > 0 and bottom <= 1 << 20 and top <= 1 << 20:
                    return a * top, bottom
        if name == "truediv":
            a, b = self._whole(left, env), self._whole(right, env)
            if a is not None and isinstance(b, int) and b > 0:
                return a, b
        return None

    def read(self, value: torch.SymInt) -> str | None:
        """The name by which checks know this number, if it depends on data and any is checked."""
        env, symbol = value.node.shape_env, value.node._expr
        if not env.assertions:
            return None
        symbol = env.first_name(symbol)
        if not symbol.is_Symbol or env.symbols[symbol].hint is not None:
            return None
        name = read_name(symbol.name)
        if name not in self.values:
            self.symbols.setdefault(name, Symbol(name, None, None, UNKNOWN_HINT))
        return name

    def names(self, value: Any) -> list[str]:
        """The names of a number that depends on data: its own, and that under which checks know
        it. None of another number.
        """
        if not isinstance(value, torch.SymInt) or not value.node._expr.is_Symbol:
            return []
        env = value.node.shape_env
        symbol = env.first_name(value.node._expr)
        if not symbol.is_Symbol or env.symbols[symbol].hint is not None:
            return []
        return [symbol.name, read_name(symbol.name)]

    def truth(self, value: Any, bound: Container[str]) -> Extent:
        """A bool or torch.SymBool that is checked, as 1 or 0: from the numbers read, whatever the
        check itself has told of them (see read_name). Raises Undecided as `of` does.

        bound: the names that have a value.
        """
        if not isinstance(value, torch.SymBool):
            return int(value)
        env = value.node.shape_env
        read = GraphSizes(self.symbols, self.values, self.given)
        for symbol in value.node._expr.free_symbols:
            name = read_name(env.first_name(symbol).name)
            if name in self.values:
                read._known[symbol] = self.values[name]
            elif env.symbols[symbol].hint is None and (name in bound or symbol.name not in bound):
                made = self.symbols.setdefault(name, Symbol(name, None, None, UNKNOWN_HINT))
                read._known[symbol] = Size.of(made)
            else:
                read._known[symbol] = self._size(env.simplify(symbol), env)
        return read._truth(value.node._expr, env)

    def _truth(self, expr: Any, env: Any) -> Extent:
        if expr in (sympy.true, sympy.false):
            return int(bool(expr))
        if isinstance(expr, sympy.Not):
            return 1 - self._truth(expr.args[0], env)
        if isinstance(expr, sympy.And | sympy.Or):
            combine = smallest if isinstance(expr, sympy.And) else largest
            return functools.reduce(combine, [self._truth(arg, env) for arg in expr.args])
        if not isinstance(expr, sympy.Rel) or not all(arg.is_integer for arg in expr.args):
            raise Undecided(f"whether {expr}")
        a, b = (self._size(arg, env) for arg in expr.args)
        return _COMPARISONS[type(expr)](a, b)

    def _symbol(self, symbol: Any, env: Any) -> Extent:
        if not symbol.is_integer:
            raise Undecided(f"{symbol}, which is no integer")
        if symbol.name in self.values:
            return self.values[symbol.name]
        low, high = env.bounds(symbol)
        seen = env.hint(symbol)
        if seen is None:
            seen = max(UNKNOWN_HINT, low or 0) if high is None else high
        made = Symbol(symbol.name, low, high, int(seen))
        return Size.of(self.symbols.setdefault(symbol.name, made))


def _power(args: list[Extent]) -> Extent:
    base, power = args
    if not isinstance(power, int) or power < 0:
        raise Undecided("a power of sizes")
    return base**power


def _at_least(a: Extent, b: Extent) -> Extent:
    """1 where a >= b, else 0."""
    return smallest(largest(a - b + 1, 0), 1)


_COMPARISONS: dict[Any, Callable[[Extent, Extent], Extent]] = {
    sympy.Ge: _at_least,
    sympy.Gt: lambda a, b: _at_least(a, b + 1),
    sympy.Le: lambda a, b: _at_least(b, a),
    sympy.Lt: lambda a, b: _at_least(b, a + 1),
    sympy.Eq: lambda a, b: _at_least(a, b) * _at_least(b, a),
    sympy.Ne: lambda a, b: 1 - _at_least(a, b) * _at_least(b, a),
}

# Functions of floats that give integers for integers.
_OF_WHOLE: dict[str, Callable[..., Extent]] = {
    "float": lambda a: a,
    "neg": lambda a: -a,
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
}

_SIGNS = {"and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>", "pow": "**"}

_RULES: dict[Any, Callable[[list[Extent]], Extent]] = {
    sympy.Add: lambda args: sum(args),
    sympy.Mul: lambda args: prod(args),  # type: ignore[arg-type]
    sympy.Pow: _power,
    expressions.FloorDiv: lambda args: divided(*args),
    expressions.Mod: lambda args: modulo(*args),
    expressions.Max: lambda args: largest(*args),
    expressions.Min: lambda args: smallest(*args),
}
