"""Classes as objects of their metaclass: its special methods, and attributes that the class does
not have.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.values.base import Value
from dynamo.values.objects.descriptors import MISSING, class_attr_source, class_lookup
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.scalars.operators import COMPARE_DUNDERS, UNARY_DUNDERS, as_index, binary_dunder

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

_OWN = (type, enum.EnumType)


def meta_special(cls: type, name: str) -> Any:
    """The special method of the class as an object, where the metaclass has one that `type` and
    EnumType do not have; MISSING: it has not.
    """
    meta = type(cls)
    if meta in _OWN:
        return MISSING
    found = class_lookup(meta, name)
    return MISSING if any(found is class_lookup(own, name) for own in _OWN) else found


class MetaclassInstance(Value):
    """A class, as an instance of its metaclass."""

    cls: type

    def has_special(self, tx: Interpreter, name: str) -> bool:
        return meta_special(self.cls, name) is not MISSING

    def special(self, tx: Interpreter, name: str, *args: Value) -> Value | None:
        """The result of the metaclass's special method; None without such a method."""
        found = meta_special(self.cls, name)
        if found is MISSING:
            return None
        if not isinstance(found, types.FunctionType):
            raise Unsupported(breaks.UncapturedCall(f"{type(self.cls).__name__}.{name}"))
        function = tx.wrap(found, class_attr_source(tx, self, name))
        return tx.call_at_end(self, name, function, [self, *args])

    def call_method(
        self, tx: Interpreter, name: str, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> Value:
        special = name.startswith("__") and not kwargs and self.special(tx, name, *args)
        return special or super().call_method(tx, name, args, kwargs)

    def truth(self, tx: Interpreter) -> bool:
        answer = self.special(tx, "__bool__")
        if answer is None:
            return not self.has_special(tx, "__len__") or self.length(tx) != 0
        if not answer.python_type_is(bool):
            raise Unsupported(breaks.UncapturedCall(f"{type(self.cls).__name__}.__bool__"))
        return answer.truth(tx)

    def length(self, tx: Interpreter) -> int:
        answer = self.special(tx, "__len__")
        return super().length(tx) if answer is None else as_index(tx, answer)

    def contains(self, tx: Interpreter, item: Value) -> Value:
        answer = self.special(tx, "__contains__", item)
        if answer is None:
            return super().contains(tx, item)
        return ConstantValue(answer.truth(tx))

    def iterate(self, tx: Interpreter) -> Value:
        answer = self.special(tx, "__iter__")
        return super().iterate(tx) if answer is None else answer

    def binary(self, tx: Interpreter, op: str, other: Value, reflected: bool) -> Value | None:
        return _implemented(self.special(tx, binary_dunder(op, reflected), other))

    def compare(self, tx: Interpreter, op: str, other: Value) -> Value | None:
        if op == "!=" and self.has_special(tx, "__eq__") and not self.has_special(tx, "__ne__"):
            raise Unsupported(breaks.UncapturedCall(f"{type(self.cls).__name__}.__ne__"))
        return _implemented(self.special(tx, COMPARE_DUNDERS[op], other))

    def unary(self, tx: Interpreter, op: str) -> Value | None:
        return self.special(tx, UNARY_DUNDERS[op])

    def hash_key(self, tx: Interpreter) -> Hashable:
        if any(self.has_special(tx, name) for name in ("__eq__", "__hash__")):
            raise Unsupported(breaks.UncapturedCall(f"{type(self.cls).__name__}.__hash__"))
        return super().hash_key(tx)


def _implemented(answer: Value | None) -> Value | None:
    given_up = (
        answer is not None and answer.is_constant() and (answer.as_constant() is NotImplemented)
    )
    return None if given_up else answer
