"""The kinds of values that a function is compiled for: what two compilations have to have alike to
share code. Guards decide whether code serves a call; kinds keep apart what would not share.
"""

from __future__ import annotations

import functools
import itertools
import types
from collections.abc import Callable, Iterable
from typing import Any

import torch

_PLAIN = frozenset(
    [int, float, complex, bool, str, bytes, type(None), type(...), torch.dtype, torch.device]
)
_DEPTH = 4
_MOST_PARTS = 512
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE, of classes made by class statements


class Kinds:
    """The kinds of several values. holds_parameters: they hold parameters, or may."""

    def __init__(self) -> None:
        self.holds_parameters = False
        self._left = _MOST_PARTS

    def of(self, value: Any, depth: int = _DEPTH) -> Any:
        """The kind of a value; None: of one that compiled code might hold strongly."""
        cls = type(value)
        self._left -= 1
        if cls in _PLAIN:
            return "plain"
        if depth < 0 or self._left < 0:
            self.holds_parameters = True
            return cls if self._left >= 0 else None
        if issubclass(cls, torch.Tensor):  # isinstance() would ask the object for its class
            return self._of_tensor(value)
        if issubclass(cls, torch.nn.Module):
            structure = structure_of(value)
            self.holds_parameters = (
                self.holds_parameters
                or structure is None
                or any(len(part) > 2 for part in structure)
            )
            return structure
        if issubclass(cls, type):
            return cls, id(value)
        if cls is types.BuiltinFunctionType:  # a method's object may be anything
            of_module = isinstance(value.__self__, types.ModuleType | type | None)
            return (cls, id(value)) if of_module else None
        held = _HELD.get(cls)
        if held is not None:
            kinds = [self.of(one, depth - 1) for one in held(value)]
            code = value.__code__ if cls is types.FunctionType else None
            return None if None in kinds else (cls, id(code), *kinds)
        parts = _PARTS.get(cls) or (_attributes if cls.__flags__ & _HEAP_TYPE else None)
        if parts is not None and (cls.__weakrefoffset__ or cls in _PARTS):
            return cls, self._of_parts(parts(value), depth)
        self.holds_parameters = True
        return cls if cls.__weakrefoffset__ else None

    def _of_tensor(self, value: torch.Tensor) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            self.holds_parameters = self.holds_parameters or isinstance(value, torch.nn.Parameter)
            return type(value), value.dtype, value.device

    def _of_parts(self, parts: Iterable[tuple[Any, Any]], depth: int) -> Any:
        """The kinds of an object's parts, by name."""
        found: list[Any] = []
        for name, part in parts:
            if self._left < 0:
                break
            kind = self.of(part, depth - 1)
            found.append((name, type(part) if kind is None else kind))
        self.holds_parameters = self.holds_parameters or self._left < 0
        return tuple(found)


def _held_by_function(function: types.FunctionType) -> list[Any]:
    defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    return [*map(_contents, function.__closure__ or ()), *defaults]


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # empty
        return ...


# Objects that the code compiled for a value reads at once.
_HELD: dict[type, Callable[[Any], Iterable[Any]]] = {
    types.FunctionType: _held_by_function,
    types.MethodType: lambda method: (method.__func__, method.__self__),
    functools.partial: lambda made: (made.func, *made.args, *made.keywords.values()),
}


def _attributes(value: Any) -> Iterable[tuple[Any, Any]]:
    """The instance dict, read without the program's methods, which would notice."""
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return ()
    return _items(found) if type(found) is dict else ()


def _items(values: dict[Any, Any]) -> Iterable[tuple[Any, Any]]:
    first = itertools.islice(values.items(), _MOST_PARTS)
    return [(key if type(key) is str else type(key), value) for key, value in list(first)]


_PARTS: dict[type, Callable[[Any], Iterable[tuple[Any, Any]]]] = {
    list: enumerate,
    tuple: enumerate,
    dict: _items,
}


def structure_of(module: torch.nn.Module) -> tuple[Any, ...] | None:
    """Names and classes of submodules, and types and sizes of parameters and buffers; read without
    the program's methods, which would notice. None: of a module that will change.
    """
    found: list[Any] = []
    seen: set[int] = set()
    rest: list[tuple[str, Any]] = [("", module)]
    with torch._C.DisableTorchFunctionSubclass():
        while rest:
            name, part = rest.pop()
            found.append((name, type(part)))
            if id(part) in seen or not issubclass(type(part), torch.nn.Module):
                continue
            seen.add(id(part))
            members = object.__getattribute__(part, "__dict__")
            if not members.keys() >= {"_parameters", "_buffers", "_modules"}:
                return None  # Module.__init__ did not run yet
            for key, tensor in [*members["_parameters"].items(), *members["_buffers"].items()]:
                if torch.nn.parameter.is_lazy(tensor) or getattr(tensor, "is_nested", False):
                    return None
                if tensor is not None:
                    found.append((f"{name}.{key}", tensor.shape, tensor.dtype, tensor.device))
            rest += [(f"{name}.{key}", child) for key, child in members["_modules"].items()]
    return tuple(found)
