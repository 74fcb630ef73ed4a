"""Objects of the program that custom operators take whole (torch._library.opaque_object)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._library import opaque_object

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.values.base import Value
from dynamo.values.containers.containers import SequenceValue
from dynamo.values.objects.objects import ObjectValue

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter


class OpaqueArgument(Value):
    """The object itself, as an argument of a node."""

    def __init__(self, real: Any) -> None:
        super().__init__()
        self.real = real

    def python_type(self) -> type:
        return type(self.real)

    def as_proxy(self) -> Any:
        return self.real


def _is_opaque(cls: type) -> bool:
    """Whether operators take objects of the class: those registered, and objects of torch's C++
    classes, such as the packed weights of quantised modules.
    """
    return cls is torch.ScriptObject or opaque_object.is_opaque_type(cls)


def opaque_argument(tx: Interpreter, value: Value) -> Value:
    """The operator's argument. An object is guarded by its identity; one of a type that is compared
    by value, by its value.
    """
    if isinstance(value, SequenceValue) and value.varying is None:
        return _opaque_items(tx, value)
    if not isinstance(value, ObjectValue) or not _is_opaque(value.cls):
        return value
    by_value = opaque_object.is_opaque_value_type(value.cls)
    if value.real is None and by_value:
        return OpaqueArgument(_made(tx, value))
    if value.real is None or value.source is None or tx.output.side_effects.is_dirty(value):
        raise Unsupported(breaks.NotGraphArgument(value.describe()))
    if by_value:
        tx.guard(value.source, "type", value.cls)
        tx.guard(value.source, "predicate", lambda now, first=value.real: bool(now == first))
    else:
        tx.guard(value.source, "id", value.real)
    return OpaqueArgument(value.real)


def _opaque_items(tx: Interpreter, value: SequenceValue) -> Value:
    """The same sequence, or one of objects."""
    items = value.items(tx)
    if not any(isinstance(item, ObjectValue) and _is_opaque(item.cls) for item in items):
        return value
    given = [opaque_argument(tx, item) for item in items]
    return OpaqueArgument([item.as_proxy() for item in given])


def _made(tx: Interpreter, value: ObjectValue) -> Any:
    """A real object like one that the frame made, of literal attributes."""
    plain = value.cls.__new__ is object.__new__ and value.storage is None
    if not plain or value.mutation is None or "__slots__" in vars(value.cls):
        raise Unsupported(breaks.NotGraphArgument(value.describe()))
    made: Any = object.__new__(value.cls)
    for name, attribute in value.mutation.attrs.items():
        vars(made)[name] = attribute.as_constant()
    return made
