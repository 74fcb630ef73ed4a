"""Constants: literals, and immutable torch objects that behave like literals (dtype, device,
layout, ...).
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.sources import Source
from dynamo.values import late_bound
from dynamo.values.base import TailCallable, Value
from dynamo.values.classes.lookup import type_holds
from dynamo.values.dummy_operands import fail_as
from dynamo.values.objects.exceptions import RaisedException, call_real
from dynamo.values.recipes import Attribute, Existing, Recipe

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

LITERAL_TYPES: tuple[type, ...] = (
    int,
    float,
    bool,
    complex,
    str,
    bytes,
    type(None),
    type(Ellipsis),
    type(NotImplemented),
    types.CodeType,
)
# Immutable objects of torch, compared by value.
TORCH_LITERAL_TYPES: tuple[type, ...] = (
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
    torch.finfo,
    torch.iinfo,
)
CONSTANT_TYPES = frozenset(LITERAL_TYPES + TORCH_LITERAL_TYPES)
_CONSTANT_IDS = frozenset(map(id, CONSTANT_TYPES))


def is_constant_type(kind: type) -> bool:
    """By identity: a metaclass of the program's may hash and compare in its own way."""
    return id(kind) in _CONSTANT_IDS


def is_literal(obj: Any) -> bool:
    """A literal, or a tuple, frozenset or slice of literals (the constants of code
    objects).
    """
    kind = type(obj)
    if is_constant_type(kind):
        return True
    if kind in (tuple, frozenset):
        return all(is_literal(item) for item in obj)
    return kind is slice and all(is_literal(part) for part in (obj.start, obj.stop, obj.step))


def is_number_to_torch(kind: type) -> bool:
    """Whether torch takes numpy scalars of this type for Python's numbers wherever it asks for
    numbers. Others it takes for arrays here, and there not at all.
    """
    return kind is np.float64 or issubclass(kind, np.integer)


class ConstantValue(Value):
    """A real Python value that is immutable and compared by value."""

    def __init__(self, value: Any, source: Source | None = None) -> None:
        self.source = source  # no call of the base class: these are most of all values
        self.value = value

    def python_type(self) -> type:
        return type(self.value)

    def is_constant(self) -> bool:
        return True

    def as_constant(self) -> Any:
        return self.value

    def as_proxy(self) -> Any:
        if is_number_to_torch(type(self.value)):
            return self.value.item()
        if isinstance(self.value, np.generic):
            raise Unsupported(breaks.NotGraphArgument(f"the numpy scalar {self.value!r}"))
        return self.value

    def describe(self) -> str:
        try:
            text = repr(self.value)
        except ValueError:  # more digits than int() is allowed to write
            text = hex(self.value)
        return text if len(text) <= 60 else f"{text[:57]}..."

    def getattr(self, tx: Interpreter, name: str) -> Value:
        if name == "__class__":
            return tx.wrap(type(self.value))
        found = call_real(tx, getattr, self.value, name)
        if is_constant_type(type(found)):
            return ConstantValue(found)
        if is_literal(found):
            return tx.from_constant(found)
        if isinstance(found, np.dtype | np.generic | type):
            return tx.wrap(found)
        if callable(found):
            return ConstantMethodValue(self, name)
        raise Unsupported(breaks.AttributeAccess(self.describe(), name))

    def hasattr(self, tx: Interpreter, name: str) -> bool:
        return hasattr(self.value, name)

    def setattr(self, tx: Interpreter, name: str, value: Value) -> None:
        if is_constant_type(type(self.value)):
            call_real(tx, setattr, self.value, name, None)
        super().setattr(tx, name, value)

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        if not callable(self.value):
            call_real(tx, self.value)
        return super().call(tx, args, kwargs)

    def call_method(
        self, tx: Interpreter, name: str, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> Value:
        """Run a method of a literal, which is pure, on constants, and wrap the result."""
        method = call_real(tx, getattr, self.value, name)
        if name == "__exit__" and isinstance(self.value, torch.device):
            return ConstantValue(call_real(tx, method, None, None, None))
        if name == "__iter__" and not args and not kwargs:
            return self.iterate(tx)
        if name == "join" and isinstance(self.value, str) and len(args) == 1 and not kwargs:
            kind = args[0].python_type()
            if not type_holds(kind, "__iter__") and not type_holds(kind, "__getitem__"):
                fail_as(tx, method, args[0])
            items = args[0].unpack(tx)
            if any(item.python_type() is not str for item in items):
                return ConstantValue(call_real(tx, method, [item.as_constant() for item in items]))
            return late_bound.concatenated(items, self.value)
        take: Callable[..., Any] = constant_argument
        if name in ("format", "format_map") and isinstance(self.value, str):
            take = late_bound.shown
            if ".__" in self.value:  # of the object itself, not of one with its text
                raise Unsupported(breaks.UncapturedCall(f"str.{name}"))
            text = late_bound.format_method(self.value, args, kwargs) if name == "format" else None
            if text is not None:
                return text
        real_args = [take(tx, a) for a in args]
        real_kwargs = {k: take(tx, v) for k, v in kwargs.items()}
        try:
            result = call_real(tx, method, *real_args, **real_kwargs)
        except RaisedException:
            if any(type(real) is not value.python_type() for real, value in zip(real_args, args)):
                raise Unsupported(
                    breaks.UncapturedCall(f"{type(self.value).__name__}.{name}")
                ) from None
            raise
        if hasattr(result, "__next__"):  # each call gives another iterator (code.co_positions)
            raise Unsupported(breaks.UncapturedCall(f"{type(self.value).__name__}.{name}"))
        if name == "maketrans":
            return tx.from_constant(result)
        return tx.wrap(result)

    def truth(self, tx: Interpreter) -> bool:
        return bool(self.value)

    def length(self, tx: Interpreter) -> int:
        return call_real(tx, len, self.value)

    def getitem(self, tx: Interpreter, key: Value) -> Value:
        if key.has_special(tx, "__index__"):
            key = ConstantValue(late_bound.as_index(tx, key))
        return tx.wrap(call_real(tx, lambda: self.value[constant_argument(tx, key)]))

    def contains(self, tx: Interpreter, item: Value) -> Value:
        return ConstantValue(call_real(tx, lambda: constant_argument(tx, item) in self.value))

    def iterate(self, tx: Interpreter) -> Value:
        return late_bound.TextIterator(tx, self, self)

    def unpack(self, tx: Interpreter) -> list[Value]:
        return [tx.wrap(item) for item in call_real(tx, lambda: list(self.value))]

    def recipe(self) -> Recipe:
        return Existing(
            self.value, None if is_literal(self.value) else type(self.value).__name__
        ), []


class ConstantMethodValue(TailCallable):
    """A bound method of a constant ("abc".join, dtype.is_complex, ...)."""

    is_guarded_distinct = True

    def __init__(self, receiver: ConstantValue, name: str) -> None:
        super().__init__()
        self.receiver = receiver
        self.name = name
        self.unbound: Any = None  # as that of a BuiltinMethod

    def python_type(self) -> type:
        return type(getattr(self.receiver.value, self.name))

    def describe(self) -> str:
        return f"{self.receiver.describe()}.{self.name}"

    def call_or_tail_call(
        self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value], last: bool
    ) -> Value:
        made = late_bound.polyfill_method(tx, self.receiver, self.name, args, kwargs, last)
        return self.receiver.call_method(tx, self.name, args, kwargs) if made is None else made

    def recipe(self) -> Recipe:
        return Attribute(self.name), [self.receiver]


def constant_argument(tx: Interpreter, value: Value) -> Any:
    """The real object behind an argument of a pure function; a graph break if there is none."""
    known, obj = value.identity()
    if known:
        return obj
    if hasattr(value, "load_all"):
        value.load_all(tx)  # a dict or set from outside: its items are guarded
    return value.as_constant()
