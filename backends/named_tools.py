"""The tools of torch that the code of a backend names, as far as functions and classes lead."""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Iterator
from typing import Any

_TOOLS = ("torch.fx", "torch._dynamo", "torch._functorch", "torch._inductor", "functorch")
_MOST = 200


def names_tools(backend: Any) -> bool:
    """Whether the code reads or imports anything of these modules."""
    seen: dict[int, Any] = {}
    rest = [backend]
    while rest and len(seen) < _MOST:
        value = rest.pop()
        if id(value) in seen:
            continue
        seen[id(value)] = value
        with contextlib.suppress(Exception):  # of the program's attributes and classes
            if _is_tool(value):
                return True
            rest += _read_by(value) if isinstance(value, types.FunctionType) else _parts(value)
    return False


def _is_tool(value: Any) -> bool:
    """Whether an object is of a tool, or its own code names one."""
    if any(_is_below(name, _TOOLS) for name in _modules_of(value)):
        return True
    return isinstance(value, types.FunctionType) and _imports(value.__code__)


def _modules_of(value: Any) -> list[Any]:
    """The names of the modules that an object is of, or is."""
    if isinstance(value, types.ModuleType):
        return [value.__name__]
    if isinstance(value, types.FunctionType | types.MethodType):
        return [value.__module__]
    return [base.__module__ for base in (value if isinstance(value, type) else type(value)).__mro__]


def _is_below(name: Any, tools: tuple[str, ...]) -> bool:
    return isinstance(name, str) and any(f"{name}.".startswith(f"{tool}.") for tool in tools)


def _imports(code: types.CodeType) -> bool:
    names = _names(code)
    if any(_is_below(name, _TOOLS) for name in names):
        return True
    return "torch" in names and not _OF_TORCH.isdisjoint(names)


_OF_TORCH = {tool.partition(".")[2] for tool in _TOOLS} - {""}


def _read_by(function: types.FunctionType) -> Iterator[Any]:
    """The objects with code, and those of tools, in the globals and cells that it reads."""
    for name in _names(function.__code__):
        if name in function.__globals__ and _is_followed(function.__globals__[name]):
            yield function.__globals__[name]
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # empty
            if _is_followed(cell.cell_contents):
                yield cell.cell_contents


def _names(code: types.CodeType) -> set[str]:
    inner = [_names(one) for one in code.co_consts if type(one) is types.CodeType]
    return set(code.co_names).union(*inner)


def _parts(value: Any) -> list[Any]:
    """The code that a call of it may run: of an object or class of the program, its functions."""
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, types.MethodType):
        return [value.__func__, value.__self__]
    cls = value if isinstance(value, type) else type(value)
    if _is_below(cls.__module__, ("builtins", "torch")):
        return []
    held = [one for base in cls.__mro__ for one in vars(base).values()]
    if not isinstance(value, type):
        held += getattr(value, "__dict__", {}).values()
    return [one for one in held if isinstance(one, _WITH_CODE) and _is_followed(one)]


_WITH_CODE = (types.FunctionType, types.MethodType, type)


def _is_followed(value: Any) -> bool:
    """Whether its code may be what a backend runs: not so of data, torch's operators, and ours, or
    of objects that do not tell their class.
    """
    try:
        return _may_run(value)
    except Exception:
        return False


def _may_run(value: Any) -> bool:
    if type(value).__module__ == "builtins" and not isinstance(value, _WITH_CODE):
        return isinstance(value, types.ModuleType)
    modules = _modules_of(value)
    return any(_is_below(name, _TOOLS) for name in modules) or not _is_below(modules[0], _OTHERS)


_OTHERS = ("torch", "dynamo", "fxgraph", "inductor", "backends")
