"""Expressions over symbols as data: "s0" is a symbol, 3 a number, ["Add", "s0", 3] their sum."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import sympy
import torch
from sympy.core.symbol import Str

from fxgraph import expressions
from fxgraph.stored.errors import StoredError
from fxgraph.symbols import ShapeEnv

# Longer powers than any size has: they only cost time.
_POWERS = 16
_DEPTH = 64

_SUMS: dict[str, Any] = {"Add": sympy.Add, "Mul": sympy.Mul}
_FUNCTIONS: dict[str, Any] = {
    "Pow": sympy.Pow,
    "FloorDiv": expressions.FloorDiv,
    "Mod": expressions.Mod,
    "Max": expressions.Max,
    "Min": expressions.Min,
    "Truth": expressions.Truth,
    "Choose": expressions.Choose,
}
# The first argument is the name of one of these functions.
_NAMED: dict[str, tuple[Any, Mapping[str, Any]]] = {
    "Bits": (expressions.Bits, expressions.BIT_FUNCTIONS),
    "Real": (expressions.Real, expressions.REAL_FUNCTIONS),
    "Rounded": (expressions.Rounded, expressions.ROUNDINGS),
}
_CONDITIONS: dict[str, Any] = {
    "Eq": sympy.Eq,
    "Ne": sympy.Ne,
    "Le": sympy.Le,
    "Ge": sympy.Ge,
    "Lt": sympy.Lt,
    "Gt": sympy.Gt,
    "And": sympy.And,
    "Or": sympy.Or,
    "Not": sympy.Not,
}
_NAMES = {
    kind: name
    for name, kind in [
        *_SUMS.items(),
        *_FUNCTIONS.items(),
        *_CONDITIONS.items(),
        *((name, kind) for name, (kind, _) in _NAMED.items()),
    ]
}
_ARITY = {"Pow": 2, "FloorDiv": 2, "Mod": 2, "Max": 2, "Min": 2, "Truth": 1, "Choose": 3, "Not": 1}


def to_data(expr: Any) -> Any:
    """The data of an expression or condition."""
    if expr.is_Symbol:
        return expr.name
    if expr in (sympy.true, sympy.false):
        return bool(expr)
    if expr.is_Integer:
        return int(expr)
    if expr.is_Float:
        return {"float": float(expr).hex()}
    name = _NAMES.get(type(expr))
    if name is None:
        raise StoredError(f"an expression of the kind {type(expr).__name__}: {expr}")
    args = [arg.name if isinstance(arg, Str) else to_data(arg) for arg in expr.args]
    return [name, *args]


def from_data(data: Any, symbols: Mapping[str, sympy.Symbol], depth: int = 0) -> Any:
    """The expression or condition that `to_data` wrote."""
    if depth > _DEPTH:
        raise StoredError("an expression is nested too deep")
    if isinstance(data, bool):
        return sympy.true if data else sympy.false
    if isinstance(data, int):
        return sympy.Integer(data)
    if isinstance(data, str):
        if data not in symbols:
            raise StoredError(f"no symbol {data!r}")
        return symbols[data]
    if isinstance(data, dict) and list(data) == ["float"]:
        return sympy.Float(float.fromhex(data["float"]))
    if not isinstance(data, list) or not data or not isinstance(data[0], str):
        raise StoredError(f"not an expression: {str(data)[:80]}")
    return _call(data[0], data[1:], lambda arg: from_data(arg, symbols, depth + 1))


def _call(name: str, data: list[Any], read: Callable[[Any], Any]) -> Any:
    if name in _NAMED:
        kind, known = _NAMED[name]
        if not data or data[0] not in known:
            raise StoredError(f"no function {str(data[:1])[:80]}")
        return kind(Str(data[0]), *map(read, data[1:]))
    args = [read(arg) for arg in data]
    if len(args) != _ARITY.get(name, len(args) if name in ("Add", "Mul", "And", "Or") else 2):
        raise StoredError(f"{name} of {len(args)} arguments")
    if name == "Pow" and not (args[1].is_Integer and 0 <= args[1] <= _POWERS):
        raise StoredError("a power of no size")
    if name in _CONDITIONS:
        return _CONDITIONS[name](*args, evaluate=False)
    kind = _SUMS.get(name) or _FUNCTIONS.get(name)
    if kind is None:
        raise StoredError(f"no function {name!r}")
    return kind(*args)


# -- numbers of tensors ---------------------------------------------------------------------------
def number_of(value: Any) -> Any:
    """The data of an int, float, bool, or of a torch.SymInt and its kin."""
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        data = to_data(value.node.expr)
        return data if isinstance(data, int) else {"expr": data}
    return value


def number_from(data: Any, env: ShapeEnv | None, symbols: Mapping[str, sympy.Symbol]) -> Any:
    """The int, or torch.SymInt over the symbols of `env`, by name."""
    if isinstance(data, int) and not isinstance(data, bool):
        return data
    if env is None or not isinstance(data, dict) or list(data) != ["expr"]:
        raise StoredError(f"not a number: {str(data)[:80]}")
    return env.symint(from_data(data["expr"], symbols))


_EVALUATE: dict[str, Callable[..., Any]] = {
    "Add": lambda *args: sum(args),
    "Mul": lambda *args: math.prod(args),
    "Pow": operator.pow,
    "FloorDiv": operator.floordiv,
    "Mod": operator.mod,
    "Max": max,
    "Min": min,
    "Truth": int,
    "Choose": lambda condition, yes, no: yes if condition else no,
    "And": lambda *args: all(args),
    "Or": lambda *args: any(args),
    "Not": operator.not_,
    **{name: getattr(operator, name.lower()) for name in ("Eq", "Ne", "Le", "Ge", "Lt", "Gt")},
}


def evaluator(data: Any) -> Callable[[Mapping[str, Any]], Any]:
    """A function from the values of symbols, by name, to that of an expression's data (which
    `from_data` has read).
    """
    if isinstance(data, str):
        return operator.itemgetter(data)
    if not isinstance(data, list):
        value = float.fromhex(data["float"]) if isinstance(data, dict) else data
        return lambda values: value
    name, *args = data
    if name in _NAMED:
        function: Any = _NAMED[name][1][args.pop(0)]
    else:
        function = _EVALUATE[name]
    parts = [evaluator(arg) for arg in args]
    return lambda values: function(*[part(values) for part in parts])
