"""Dummy operands: real objects in place of symbolic values where only types and sizes matter.

The type and words of a wrong operation's error are Python's own, and change from version
to version: `fail_as` has Python itself fail, on objects of the same types.
"""

from __future__ import annotations

import collections
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.classes import HEAP_TYPE
from dynamo.polyfills.type_names import type_name
from dynamo.values.base import Value
from dynamo.values.objects.exceptions import call_real

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter


class _Item:
    """An item of a container: equal to nothing but itself."""


def dummy_operand(value: Value) -> Any:
    """An object of the type of `value`: the constant itself, a container of as many items."""
    if value.is_constant():
        return value.as_constant()
    cls = value.python_type()
    contents = getattr(value, "contents", None)  # of sequences
    if isinstance(contents, list):
        if issubclass(cls, collections.deque):
            return cls([_Item() for _ in contents], value.maxlen)  # type: ignore[attr-defined]
        if cls is torch.Size:
            return cls([0] * len(contents))
        return (tuple if issubclass(cls, tuple) else list)(_Item() for _ in contents)
    if cls is slice:
        return slice(*map(dummy_operand, value.parts))  # type: ignore[attr-defined]
    if cls is range:
        return value.as_constant()
    if cls in _EMPTY:
        return cls()
    if cls in _MADE:
        return _MADE[cls]
    if cls.__flags__ & HEAP_TYPE:
        # Not the object itself: operators of the user's class would be called once more.
        return type(type_name(cls), (), {"__module__": cls.__module__})()
    known, real = value.identity()
    if known:
        return real
    raise Unsupported(breaks.UncapturedCall(f"an operator of {cls.__name__}"))


_EMPTY = frozenset(
    [dict, set, frozenset, bytearray, collections.OrderedDict, collections.defaultdict]
)
_VIEWS: tuple[Any, ...] = ({}.keys(), {}.values(), {}.items(), types.MappingProxyType({}))
_LONE: tuple[Any, ...] = (iter([]), iter(()), (_ for _ in ()), *_VIEWS, zip())
_MADE: dict[type, Any] = {type(made): made for made in (*_LONE, map(str, ()), dummy_operand)}


def fail_naming(
    tx: Interpreter, function: Callable[..., Any], owner: Value, item: Value
) -> NoReturn:
    """As fail_as, of a function whose words have the text of the item."""
    if not (item.is_constant() or issubclass(owner.python_type(), tuple)):  # that has not
        raise Unsupported(breaks.UncapturedCall(f"{function.__qualname__}: its error"))
    fail_as(tx, function, owner, item)


def fail_as(tx: Interpreter, function: Callable[..., Any], *values: Value) -> NoReturn:
    """Raise in the program the exception of the real function for such values."""
    call_real(tx, function, *map(dummy_operand, values))
    name = getattr(function, "__qualname__", repr(function))
    raise Unsupported(breaks.UncapturedCall(name))
