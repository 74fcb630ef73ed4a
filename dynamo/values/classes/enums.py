"""Members of enums."""

from __future__ import annotations

import enum
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.sources import AttrSource, DictItemSource, InstanceDictSource, Source
from dynamo.polyfills.type_names import type_name
from dynamo.values.base import Value
from dynamo.values.builder import special_builder, subclass_builder
from dynamo.values.classes.lookup import type_holds
from dynamo.values.objects.descriptors import (
    MISSING,
    bind,
    class_attr_source,
    class_lookup,
    guard_class_attr,
    is_data_descriptor,
)
from dynamo.values.objects.exceptions import call_real, can_read, raise_python
from dynamo.values.objects.objects import build_object
from dynamo.values.objects.reflection import refuse_changed
from dynamo.values.scalars.constant import ConstantValue, is_literal
from dynamo.values.scalars.operators import COMPARE_FUNCTIONS, SWAPPED, constant_or_none

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter


@subclass_builder(enum.Enum)
def build_enum_member(tx: Interpreter, obj: enum.Enum, source: Source | None) -> Value:
    if not _is_complete(obj):
        return build_object(tx, obj, source)
    tx.guard(source, "id", obj)
    return EnumValue(obj, source)


def _is_complete(member: Any) -> bool:
    """Whether the enum holds the member: before, its own methods fill it like any object."""
    held = vars(member)
    if "_sort_order_" in held:
        return True
    value = held.get("_value_")  # of a combination of flags: it has no place in the order
    return isinstance(value, int) and type(member)._value2member_map_.get(value) is member


# The metaclass of pybind11's classes, which reads attributes as `type` does.
NATIVE_META = type(torch._C._SDPBackend)
NATIVE_GETTER = vars(NATIVE_META)["__getattribute__"]


def _is_native_member(obj: Any) -> bool:
    cls = type(obj)
    if type(cls) is not NATIVE_META or "__entries" not in vars(cls):
        return False
    return any(member is obj for member in cls.__members__.values())


@special_builder(_is_native_member)
def build_native_member(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    """A member of an enum of C++."""
    tx.guard(source, "id", obj)
    return NativeMemberValue(obj, source)


class SingletonValue(ConstantValue):
    """An immutable object that exists once, with comparisons by the operators of its type."""

    def identity(self) -> tuple[bool, Any]:
        return True, self.value

    def compare(self, tx: Interpreter, op: str, other: Value) -> Value | None:
        if other.is_symbolic() and (found := other.compare(tx, SWAPPED[op], self)) is not None:
            return found
        known, real = constant_or_none(other)
        if not known:
            return None
        return ConstantValue(call_real(tx, COMPARE_FUNCTIONS[op], self.value, real))


class NativeMemberValue(SingletonValue):
    """A member of an enum of C++."""

    def as_proxy(self) -> Any:
        raise Unsupported(breaks.NotGraphArgument(self.describe()))

    def getattr(self, tx: Interpreter, name: str) -> Value:
        if name in ("name", "value"):
            return ConstantValue(getattr(self.value, name))
        return super().getattr(tx, name)


_BOUND = (types.FunctionType, property)
_NAME_AND_VALUE = {name: vars(enum.Enum)[name] for name in ("name", "value")}


class EnumValue(SingletonValue):
    """A member of an enum: a constant whose methods are captured, not run."""

    def describe(self) -> str:
        return f"{type(self.value).__qualname__}.{vars(self.value).get('_name_')}"

    def getattr(self, tx: Interpreter, name: str) -> Value:
        found = class_lookup(type(self.value), name)
        if name in _NAME_AND_VALUE and found is _NAME_AND_VALUE[name]:
            name, found = f"_{name}_", MISSING
        if name == "__dict__":  # to change it is to change the member
            raise Unsupported(breaks.AttributeAccess(self.describe(), name))
        if not is_data_descriptor(found):
            held = vars(self.value)
            refuse_changed(tx, self, held, name)
            place = self._place(tx)
            if name in held:
                return tx.wrap(held[name], DictItemSource(InstanceDictSource(place), name))
            tx.guard(place, "no_instance_attr", name)
        getter = class_lookup(type(found), "__get__")
        if isinstance(getter, types.FunctionType) or type(found) in _BOUND:
            return bind(tx, self, found, name)
        if found is MISSING and type_holds(type(self.value), "__getattr__"):
            raise Unsupported(breaks.AttributeAccess(self.describe(), name))
        if found is MISSING or getter is MISSING:
            guard_class_attr(tx, self, name, found)
        if found is MISSING:
            text = f"{type_name(type(self.value))!r} object has no attribute {name!r}"
            raise_python(tx, AttributeError, text)
        try:
            real = getattr(self.value, name)
        except AttributeError as error:
            raise_python(tx, AttributeError, *error.args)
        if getattr(real, "__self__", None) is self.value:
            return super().getattr(tx, name)
        if getter is MISSING:
            return tx.wrap(real, class_attr_source(tx, self, name))
        return tx.wrap(real, None if is_literal(real) else AttrSource(self._place(tx), name))

    def hasattr(self, tx: Interpreter, name: str) -> bool:
        return can_read(tx, self, name)

    def _place(self, tx: Interpreter) -> Source:
        """The source of the member, whose attributes can be changed."""
        return self.source or tx.output.install(type(self.value).__name__, self.value)

    def call_method(
        self, tx: Interpreter, name: str, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> Value:
        if isinstance(class_lookup(type(self.value), name), types.FunctionType):
            return self.getattr(tx, name).call(tx, args, kwargs)
        return super().call_method(tx, name, args, kwargs)
