"""Assumptions about symbols, as programs that csrc/guard_shapes.cpp evaluates.

x.size(0) == y.size(1), asked in line 7      ->     READ 0, READ 1, EQ
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import sympy
from sympy import Integer
from sympy.logic.boolalg import Boolean

from dynamo.guards.sources import (
    ComputedSource,
    Source,
    TensorSizeSource,
    TensorStrideSource,
    readable_name,
)
from fxgraph import expressions
from fxgraph.expressions import (
    BIT_FUNCTIONS,
    FORMS,
    REAL_FUNCTIONS,
    ROUNDINGS,
    difference_of,
    is_integral,
    relation,
)
from fxgraph.symbols import ShapeEnv, ShapeGuard

if TYPE_CHECKING:
    from dynamo.guards.shapes import FrameSymbols

# NumberInputs as in inductor/runner/integers.h, then csrc/guard_shapes.cpp.
_UNARY = [
    "not",
    "neg",
    "tofloat",
    "abs",
    "sqrt",
    "exp",
    "log",
    "log2",
    "log10",
    "sin",
    "cos",
    "tan",
] + ["tanh", "sinh", "cosh", "asin", "acos", "atan", "floor", "ceil", "trunc", "round"]
_NAMES = (
    ["add", "sub", "mul", "pow", "floordiv", "mod", "max", "min", "eq", "ne", "le", "ge", "lt"]
    + ["gt", "and", "or", "bitand", "bitor", "bitxor", "lshift", "rshift"]
    + ["read", "int", "float", "choose", "truediv", *_UNARY]
)
OPS = {name: number for number, name in enumerate(_NAMES)}
_READS = {"int": 0, "float": 1, "size": 2, "stride": 3}
_OF_NAMES = {
    "and": "bitand",
    "or": "bitor",
    "xor": "bitxor",
    "float": "tofloat",
    **{
        name: name
        for name in (*REAL_FUNCTIONS, *ROUNDINGS, *BIT_FUNCTIONS)
        if name in OPS and name not in ("and", "or")
    },
}
Code = list[tuple[int, int]]


class ShapePayload:
    """The payload of a "shapes" guard.

    reads: (source of the tensor or number, kind, dimension, readable name, how it is computed).
    The source of a computed number is None: its function, then the reads of its operands.
    conditions: (code, text).
    """

    def __init__(self, symbols: FrameSymbols) -> None:
        self.env = symbols.env
        self.reads: list[tuple[Source | None, int, int, str, tuple[Any, ...]]] = []
        self.conditions: list[tuple[Code, str]] = []
        self._read_of: dict[sympy.Symbol, int] = {}
        self._above: list[Boolean] = []  # guards that a tighter range says
        self._add_reads(symbols.read)
        for guard in needed(self.env):
            if guard.condition not in self._above:
                self._add(guard.condition, _asked(guard))

    def __bool__(self) -> bool:
        return bool(self.conditions)

    def _add_reads(self, reads: Iterable[tuple[Any, Source]]) -> None:
        later = []
        for value, source in reads:
            expr = value.node._expr
            index = len(self.reads)
            self.reads.append(self._read(source))
            if expr.is_Symbol and expr not in self._read_of:
                self._read_of[expr] = index
                self._add_range(expr)
            else:
                later.append((index, expr, source))
        for index, expr, source in later:
            text = f"{readable_name(source)} == {self.env.describe(expr)}"
            code = [(OPS["read"], index), *self._code(expr), (OPS["eq"], 0)]
            self.conditions.append((code, text))

    def _read(self, source: Source) -> tuple[Source | None, int, int, str, tuple[Any, ...]]:
        name = readable_name(source)
        if isinstance(source, TensorSizeSource):
            return source.origin, _READS["size"], source.dim, name, ()
        if isinstance(source, TensorStrideSource):
            return source.origin, _READS["stride"], source.dim, name, ()
        known = next(info for info in self.env.symbols.values() if info.source == source)
        kind = _READS["float" if known.is_float else "int"]
        if isinstance(source, ComputedSource):
            of_source = {self.env.symbols[symbol].source: n for symbol, n in self._read_of.items()}
            return None, kind, 0, name, (source.function, *map(of_source.get, source.operands))
        return source, kind, 0, name, ()

    def _add_range(self, symbol: sympy.Symbol) -> None:
        info = self.env.symbols[symbol]
        low, high = info.declared
        if low is not None:
            # The question whether a size is 1 is the most frequent one, and costs nothing.
            above = relation("ne", symbol, Integer(low))
            asked = next((g for g in self.env.guards if g.condition == above), None)
            if asked is not None:
                self._above.append(above)
            least = low + bool(asked)
            if least or not isinstance(info.source, TensorSizeSource):
                self._add(relation("ge", symbol, Integer(least)), _asked(asked) if asked else "")
        if high is not None:
            self._add(relation("le", symbol, Integer(high)), " (given with the mark)")

    def _add(self, condition: Boolean, why: str) -> None:
        try:
            self.conditions.append((self._code(condition), f"{self.env.describe(condition)}{why}"))
        except KeyError:  # a function that guards do not know: of these very numbers
            for symbol in sorted(condition.free_symbols, key=str):
                value = sympy.sympify(self.env.symbols[symbol].hint)
                self._add(sympy.Eq(symbol, value, evaluate=False), why)

    def _code(self, expr: Any) -> Code:
        if expr.is_Symbol:
            return [(OPS["read"], self._read_of[expr])]
        if expr.is_Integer:
            return [(OPS["int"], int(expr))]
        if expr.is_Float:
            return [(OPS["float"], struct.unpack("q", struct.pack("d", float(expr)))[0])]
        if expr in (sympy.true, sympy.false):
            return [(OPS["int"], int(bool(expr)))]
        if isinstance(expr, expressions.Truth):
            return [*self._code(expr.args[0]), (OPS["int"], 0), (OPS["ne"], 0)]
        form, args = FORMS[type(expr)], list(expr.args)
        name = form.name.lower()
        if form.functions is not None:
            name, args = _OF_NAMES[args[0].name], args[1:]
        code = self._code(args[0])
        if name in _UNARY:
            return [*code, (OPS[name], 0)]
        if name == "choose":
            return [*code, *self._code(args[1]), *self._code(args[2]), (OPS[name], 0)]
        for arg in args[1:]:
            code += [*self._code(arg), (OPS[name], 0)]
        return code


def _asked(guard: ShapeGuard) -> str:
    if guard.where is None:
        return ""
    return f" (asked at {guard.where}{': ' + guard.line if guard.line else ''})"


def needed(env: ShapeEnv) -> list[ShapeGuard]:
    """The guards without those that follow from others."""
    kept: dict[Boolean, ShapeGuard] = {}
    for guard in env.guards:
        condition = guard.condition
        if condition in kept or _follows(env, condition):
            continue
        kept[condition] = guard
    return list(kept.values())


def _follows(env: ShapeEnv, condition: Boolean) -> bool:
    if not isinstance(condition, sympy.Le | sympy.Ge) or not is_integral(condition):
        return False
    _, difference = difference_of(condition)
    constant, rest = difference.as_coeff_Add()
    tightest = env.tightest(rest)
    if tightest is not None and tightest < -int(constant):
        return True
    # Of a symbol that has become a constant.
    return env.simplify(condition) == sympy.true


__all__ = ["OPS", "ShapePayload", "needed"]
