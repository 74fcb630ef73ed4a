"""The symbols of a graph as data: their ranges, and assumptions about them."""

from __future__ import annotations

import re
from typing import Any

import sympy

from fxgraph.aot import FunctionalGraph
from fxgraph.expressions import is_condition
from fxgraph.stored.errors import StoredError
from fxgraph.stored.expressions import from_data, to_data
from fxgraph.symbols import ShapeEnv, ShapeGuard, SymbolInfo, integer_symbol

_NAME = re.compile(r"[sf][0-9]{1,6}")


def env_to_data(env: ShapeEnv | None) -> dict[str, Any]:
    """Symbols of inputs in the order in which they were made, guards in the order of assumption,
    and whether graphs make symbols for numbers that depend on data.
    """
    if env is None:
        return {"symbols": [], "guards": [], "data": False}
    inputs = [info for info in env.symbols.values() if not _is_data(info)]
    unknown = [info.name for info in inputs if info.hint is None]
    if unknown:
        raise StoredError(f"nothing may be assumed of {', '.join(unknown)}, which guards need")
    symbols = [
        {
            "name": info.symbol.name,
            "label": info.name,
            "hint": info.hint if not info.is_float else {"float": float(info.hint or 0).hex()},
            "low": info.declared[0],
            "high": info.declared[1],
        }
        for info in inputs
    ]
    guards = [
        {"condition": to_data(guard.condition), "text": env.describe(guard.condition)}
        for guard in env.guards
    ]
    return {"symbols": symbols, "guards": guards, "data": len(inputs) < len(env.symbols)}


def _is_data(info: SymbolInfo) -> bool:
    """Whether the value of the symbol is read from a tensor, and not from an input."""
    return info.hint is None and info.source is None


def env_from_data(data: Any) -> ShapeEnv | None:
    """A ShapeEnv with these symbols, that assumes these guards; None where nothing varies."""
    if not data["symbols"] and data["guards"]:
        raise StoredError("conditions on sizes, and no size that varies")
    if not data["symbols"] and not data.get("data"):
        return None
    env = ShapeEnv()
    for row in data["symbols"]:
        env.declare(_symbol(row))
    names = {symbol.name: symbol for symbol in env.symbols}
    if len(names) != len(data["symbols"]):
        raise StoredError("two symbols have one name")
    for row in data["guards"]:
        condition = from_data(row["condition"], names)
        if not is_condition(condition):
            raise StoredError(f"not a condition: {condition}")
        if env.hint(condition) is not True:
            raise StoredError(f"{condition} does not hold for the sizes that it was saved with")
        env.assume(condition)
    return env


def assumed(graph: FunctionalGraph, data: Any) -> list[ShapeGuard]:
    """The assumptions of a graph read from data about sizes, besides the guards in the data of its
    symbols.
    """
    env = graph.graph_module.meta["fake_mode"].shape_env
    return [] if env is None else env.guards[len(data["guards"]) :]


def names_from_data(data: Any, graphs: Any = None) -> dict[str, sympy.Symbol]:
    """The symbols by name, for reading expressions as text: those of inputs, and those that nodes
    of graphs define.
    """
    rows = [row for graph in (graphs or {}).values() for row in graph.get("nodes", ())]
    found = {n: sympy.Symbol(n) for row in rows for _, n in row.get("data", ()) if type(n) is str}
    return found | {row["name"]: _symbol(row).symbol for row in data["symbols"]}


def _symbol(row: Any) -> SymbolInfo:
    name, low, high, hint = row["name"], row["low"], row["high"], row["hint"]
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise StoredError(f"not the name of a symbol: {str(name)[:80]!r}")
    if name[0] == "f":
        hint = float.fromhex(hint["float"])
        symbol = sympy.Symbol(name, real=True)
        return SymbolInfo(symbol, hint, None, None, str(row["label"]))
    if not _is_range(low, hint, high):
        raise StoredError(f"the range of {name} is not one: {low}, {hint}, {high}")
    return SymbolInfo(
        integer_symbol(name, low), hint, low, high, str(row["label"]), None, (low, high)
    )


def _is_range(low: Any, hint: Any, high: Any) -> bool:
    numbers = [n for n in (low, hint, high) if n is not None]
    plain = all(type(n) is int and abs(n) < 2**62 for n in numbers)
    return plain and hint is not None and numbers == sorted(numbers)
