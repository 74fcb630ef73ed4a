"""Expressions over symbols as data: "s0" is a symbol, 3 a number, ["Add", "s0", 3] their sum."""

from __future__ import annotations

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

_FORMS = {form.name: form for form in expressions.FORMS.values()}


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
    form = expressions.FORMS.get(type(expr))
    if form is None:
        raise StoredError(f"an expression of the kind {type(expr).__name__}: {expr}")
    args = [arg.name if isinstance(arg, Str) else to_data(arg) for arg in expr.args]
    return [form.name, *args]


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
    form = _FORMS.get(name)
    if form is None:
        raise StoredError(f"no function {name!r}")
    if form.functions is not None:
        if not data or data[0] not in form.functions:
            raise StoredError(f"no function {str(data[:1])[:80]}")
        return form.kind(Str(data[0]), *map(read, data[1:]))
    args = [read(arg) for arg in data]
    if len(args) < 2 if form.arity is None else len(args) != form.arity:
        raise StoredError(f"{name} of {len(args)} arguments")
    if name == "Pow" and not (args[1].is_Integer and 0 <= args[1] <= _POWERS):
        raise StoredError("a power of no size")
    return form.kind(*args, evaluate=False) if form.is_condition else form.kind(*args)


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
    form = _FORMS[name]
    function: Any = form.value if form.functions is None else form.functions[args.pop(0)]
    parts = [evaluator(arg) for arg in args]
    return lambda values: form.applied(function, [part(values) for part in parts])
