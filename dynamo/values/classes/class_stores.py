"""Attributes that the captured code stores in classes, as their instances see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.values import late_bound
from dynamo.values.base import Value
from dynamo.values.classes.lookup import MISSING, class_lookup
from dynamo.values.functions.function import FunctionValue, MethodValue

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter


class StoredClassAttr:
    """An object that captured code stored in a class: bound by an instance that reads the
    attribute.
    """

    def __init__(self, held: Value) -> None:
        self.held = held

    def bind(self, tx: Interpreter, value: Value, name: str) -> Value:
        if isinstance(self.held, FunctionValue):
            return MethodValue(self.held, value)
        kind = self.held.python_type()
        if class_lookup(kind, "__get__") is not MISSING and not issubclass(kind, type):
            raise Unsupported(breaks.AttributeAccess(value.describe(), name))
        return self.held


def stored_class_attr(tx: Interpreter, cls: type, name: str) -> StoredClassAttr | None:
    """The attribute of a class that the captured code changed, if no other class hides it."""
    for index, owner in enumerate(cls.__mro__):
        changed = tx.output.side_effects.class_stores.get((id(owner), name))
        if changed is not None:
            late_bound.assume_absent(tx, cls.__mro__[:index], name)
            return StoredClassAttr(changed)
        if name in owner.__dict__:
            return None
    return None
