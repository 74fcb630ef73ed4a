"""The base class of values of built-in types: methods by name, recorded changes, items that are
wrapped when used.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.sources import Source
from dynamo.values.base import Value
from dynamo.values.classes.lookup import MISSING, class_lookup, type_holds
from dynamo.values.dummy_operands import dummy_operand, fail_as
from dynamo.values.effects.side_effects import SERIALS
from dynamo.values.objects.exceptions import call_handler, call_real
from dynamo.values.objects.reflection import no_attribute
from dynamo.values.recipes import MethodCall, Part, Recipe
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.scalars.operators import COMPARE_DUNDERS, DUNDER_STEMS, binary_dunder

if TYPE_CHECKING:
    from dynamo.framestate.materialise import Codegen
    from dynamo.interp.interpreter import Interpreter


class Pending(Part):
    """An item from outside that is not used yet: the real object and its source."""

    __slots__ = ("real", "source", "tx")

    def __init__(self, tx: Interpreter, real: Any, source: Source | None) -> None:
        self.tx = tx
        self.real = real
        self.source = source

    def push(self, codegen: Codegen) -> None:
        codegen.pending(self.real, self.source)

    def wrap(self) -> Value:
        """The item is used now: its Value, with its guards."""
        return self.tx.wrap(self.real, self.source)


class BuiltinObject(Value):
    """A value of a built-in type whose methods are the `py_*` functions of its class."""

    def __init__(self, source: Source | None = None) -> None:
        super().__init__(source)
        self.serial = next(SERIALS)

    def overridden_base(self, base: Any) -> type | None:
        """`base` if this holds the items of an object whose class has a __getitem__ of its own."""
        cls = None if self.holder is None else self.holder.python_type()
        own = cls is not None and class_lookup(cls, "__getitem__") is not base.__getitem__
        return base if own else None

    def method(self, name: str) -> Callable[..., Value] | None:
        if name.startswith("__") and not type_holds(self.python_type(), name):
            return None  # not shared by all Values
        return getattr(self, f"py_{name}", None)

    def call_method(
        self, tx: Interpreter, name: str, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> Value:
        function = self.method(name)
        if function is None:
            return self.getattr(tx, name).call(tx, args, kwargs)
        result = call_handler(tx, name, function, args, kwargs)
        return ConstantValue(None) if result is None else result

    def getattr(self, tx: Interpreter, name: str) -> Value:
        if self.method(name) is not None:
            found = class_lookup(self.python_type(), name)
            return tx.builtin_method(self, name, None if found is MISSING else found)
        return super().getattr(tx, name)

    def setattr(self, tx: Interpreter, name: str, value: Value) -> None:
        no_attribute(tx, self.python_type(), name)

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        fail_as(tx, operator.call, self)

    def getitem(self, tx: Interpreter, key: Value) -> Value:
        fail_as(tx, operator.getitem, self, key)

    def setitem(self, tx: Interpreter, key: Value, value: Value) -> None:
        fail_as(tx, operator.setitem, self, key, value)

    def delitem(self, tx: Interpreter, key: Value) -> None:
        fail_as(tx, operator.delitem, self, key)

    def changing(self, tx: Interpreter) -> None:
        """Call before every change."""
        if self.mutation is None:
            tx.output.side_effects.touch(self)
        else:
            tx.output.side_effects.mark(self)

    # Operators called as methods.
    def py___len__(self, tx):
        return self.length_value(tx)

    def py___iter__(self, tx):
        return self.iterate(tx)

    def py___contains__(self, tx, item):
        return self.contains(tx, item)

    def py___getitem__(self, tx, key):
        return self.getitem(tx, key)

    def py___setitem__(self, tx, key, value):
        self.setitem(tx, key, value)

    def py___delitem__(self, tx, key):
        self.delitem(tx, key)

    def filled_later(self) -> bool:
        """Whether the rewritten frame makes the object empty, and fills it when all values are
        made.
        """
        mutation = self.mutation
        if mutation is None or not (mutation.new and mutation.dirty):
            return False
        return self.is_made_bare or self.holder is not None

    def fill(self) -> Sequence[Recipe]:
        raise Unsupported(breaks.CannotReconstruct(self.describe()))

    def rewritten(self) -> bool:
        """Whether writing the changes spoils an iterator that is made before."""
        dirty = self.mutation is not None and self.mutation.dirty
        outside = self.source is not None or self.holder is not None
        return self.filled_later() or (outside and dirty)

    def compared(self, tx: Interpreter, op: str, other: Value) -> Value:
        result = self.compare(tx, op, getattr(other, "storage", None) or other)
        return ConstantValue(NotImplemented) if result is None else result

    def combined(self, tx: Interpreter, op: str, other: Value, reflected: bool) -> Value:
        result = self.binary(tx, op, getattr(other, "storage", None) or other, reflected)
        return self.refused(tx, op, other, reflected) if result is None else result

    def refused(self, tx: Interpreter, op: str, other: Value, reflected: bool) -> Value:
        """The result of an operator's method for an unsuitable operand: numbers and sets return
        NotImplemented, sequences raise.
        """
        slot = getattr(self.python_type(), binary_dunder(op, reflected), None)
        if op[0] in "+*" and slot is not None:
            call_real(tx, slot, dummy_operand(self), dummy_operand(other))
        return ConstantValue(NotImplemented)


def _comparison(op: str) -> Callable[..., Value]:
    return lambda self, tx, other: self.compared(tx, op, other)


def _combination(op: str, reflected: bool) -> Callable[..., Value]:
    return lambda self, tx, other: self.combined(tx, op, other, reflected)


for _op, _dunder in COMPARE_DUNDERS.items():
    setattr(BuiltinObject, f"py_{_dunder}", _comparison(_op))
for _op in DUNDER_STEMS:
    setattr(BuiltinObject, f"py_{binary_dunder(_op, False)}", _combination(_op, False))
    setattr(BuiltinObject, f"py_{binary_dunder(_op, True)}", _combination(_op, True))
    setattr(BuiltinObject, f"py_{binary_dunder(_op + '=', False)}", _combination(_op + "=", False))


def refill(value: Value, add: str, contents: Part) -> list[Recipe]:
    """value.clear(); value.<add>(contents)."""
    return [(MethodCall("clear"), [value]), (MethodCall(add), [value, contents])]
