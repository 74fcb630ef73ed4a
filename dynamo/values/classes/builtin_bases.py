"""Inheritance of the program's classes from C types."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from dynamo.guards.classes import HEAP_TYPE, IMMUTABLE_TYPE


def builtin_base(cls: type) -> type:
    """The C type whose storage instances of `cls` have."""
    while cls.__flags__ & (HEAP_TYPE | IMMUTABLE_TYPE) == HEAP_TYPE and cls.__base__ is not None:
        cls = cls.__base__
    return cls


# Literals: additions of a subclass are in the instance dict and in the class.
PLAIN: dict[type, Callable[[Any], Any]] = {
    int: int.__int__,
    float: float.__float__,
    complex: complex.__complex__,
    str: str.__str__,
    bytes: bytes.__bytes__,
}


def literal_base(cls: type) -> type | None:
    """The literal type that a user's class derives from."""
    if not cls.__flags__ & HEAP_TYPE:
        return None
    return next((base for base in cls.__mro__ if base in PLAIN), None)


# The methods that a class may define and still be its base to C code.
_HARMLESS = frozenset(
    ["__new__", "__init__", "__init_subclass__", "__class_getitem__", "__getattr__", "__setattr__"]
    + ["__module__", "__qualname__", "__doc__", "__annotations__", "__static_attributes__"]
    + ["__dict__", "__weakref__", "__slots__", "__orig_bases__", "__parameters__"]
    + ["__firstlineno__", "__copy__", "__deepcopy__"]
)


@functools.cache
def keeps_methods(cls: type) -> bool:
    """Whether a literal's subclass overrides none of the literal's special methods."""
    classes = cls.__mro__[: cls.__mro__.index(literal_base(cls) or cls)]
    names = (name for owner in classes for name in vars(owner))
    return all(name in _HARMLESS or not name.startswith("__") for name in names)


def is_written_as_it_is(text: Any, name: str) -> bool:
    """Whether this method of a str writes its text without a change: it gives the str itself then,
    also that of a subclass.
    """
    mark = _MARKS.get(name)
    whole = text.as_constant() if mark is not None else None
    return isinstance(whole, str) and whole != "" and not any(char in whole for char in mark or "")


# The fields that a template needs for any change, by the method that fills it.
_MARKS = {"format": "{}", "format_map": "{}", "__mod__": "%"}
