"""Reflection of types and functions of C: names, attributes, receivers, parameters.

A call that its C function refuses is a graph break: Python itself raises, in its own words.
"""

from __future__ import annotations

import types
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, NoReturn

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.sources import AttrSource
from dynamo.polyfills.type_names import type_name
from dynamo.values import late_bound
from dynamo.values.base import Value
from dynamo.values.classes.builtin_bases import builtin_base
from dynamo.values.classes.lookup import MISSING, class_lookup
from dynamo.values.functions.arity import fits
from dynamo.values.objects.exceptions import call_real, raise_python

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter
    from dynamo.values.containers.dicts import DictValue
    from dynamo.values.objects.objects import ObjectValue

UNBOUND = (types.WrapperDescriptorType, types.MethodDescriptorType)
FIELDS = (types.MemberDescriptorType, types.GetSetDescriptorType)
C_DESCRIPTORS = (*UNBOUND, *FIELDS)
# Types of C whose attributes are read in ways of their own.
_READING = (type, types.ModuleType, types.MethodType, types.GenericAlias, super)
_BOUND = (types.BuiltinMethodType, types.MethodWrapperType)


def read_attribute(tx: Interpreter, owner: Value, real: Any, name: str) -> Value:
    """owner.name, of an object that exists, as the object's own type reads it."""
    found = call_real(tx, getattr, real, name)
    held = class_lookup(type(real), name)
    # Not cls.__new__, which has cls for its receiver, too.
    if isinstance(found, _BOUND) and found.__self__ is real and isinstance(held, UNBOUND):
        return tx.builtin_method(owner, name, held)
    return tx.wrap(found, None if owner.source is None else AttrSource(owner.source, name))


def leaves_binding(cls: type) -> bool:
    """Whether obj.method() of such an object calls the C method without binding it first."""
    reader = class_lookup(cls, "__getattribute__")
    generic = isinstance(reader, types.WrapperDescriptorType)
    generic = generic and reader.__objclass__ not in _READING
    return generic and class_lookup(cls, "__getattr__") is MISSING


def no_attribute(tx: Interpreter, cls: type, name: str) -> NoReturn:
    """Raise the AttributeError of an instance of `cls` without the attribute."""
    raise_python(tx, AttributeError, f"{type_name(cls)!r} object has no attribute {name!r}")


def is_overridden(receiver: Value, name: str, found: Any) -> bool:
    """Whether `found` is a method of object that the value's own type of C replaces."""
    if not isinstance(found, UNBOUND) or found.__objclass__ is not object:
        return False
    return class_lookup(receiver.python_type(), name) is not found


def check_receiver(
    receiver: Value, name: str, found: Any, count: int, keywords: Collection[str]
) -> None:
    """Break where the method of a C type refuses the object or the number of arguments."""
    kind = receiver.python_type()
    if isinstance(found, UNBOUND):
        if found.__objclass__ in kind.__mro__ and fits(found, 1 + count, keywords):
            return
    elif found is None:
        found = getattr(kind, name, None)
        if not isinstance(found, UNBOUND) or fits(found, 1 + count, keywords):
            return
    elif not isinstance(found, types.BuiltinFunctionType) or fits(found, count, keywords):
        return
    raise Unsupported(breaks.UncapturedCall(f"{kind.__name__}.{name}"))


def check_new(cls: type, new: Any) -> None:
    """Break where the `__new__` of a C type refuses to make instances of another's subclass."""
    maker, base = new.__self__, builtin_base(cls)
    of_exceptions = issubclass(maker, BaseException) and maker in cls.__mro__
    if not of_exceptions and base.__new__ is not new and base.__new__ != new:
        raise Unsupported(breaks.UncapturedCall(f"{maker.__name__}.__new__"))


def refuse_changed(tx: Interpreter, value: Value, own: dict[str, Any], name: str) -> None:
    """The instance dict of `value` came to the frame as a dict, too, and was changed as such, or it
    is another object's, too, by which it was changed.
    """
    known = tx.output.values_by_id.get(id(own))
    if tx.output.side_effects.changed_dicts.get(id(own), value) is not value:
        raise Unsupported(breaks.AttributeAccess(value.describe(), name))
    if known is not None and tx.output.side_effects.is_dirty(known[1]):
        raise Unsupported(breaks.AttributeAccess(value.describe(), name))


def note_changed(tx: Interpreter, value: Value, own: dict[str, Any], name: str) -> None:
    """Note a coming store to an attribute of `value`, which holders of its dict would see."""
    known = id(own) in tx.output.values_by_id
    if known or tx.output.side_effects.changed_dicts.setdefault(id(own), value) is not value:
        raise Unsupported(breaks.AttributeMutation(value.describe(), name))


def _own_dict(owner: Any) -> dict[str, Any] | None:
    """The instance dict of an object from outside; an exception tells whether it was asked for."""
    return None if issubclass(owner.cls, BaseException) else owner.instance_dict()


def note_holder(tx: Interpreter, owner: Any) -> None:
    """Note a coming change of an attribute of `owner`, which others find by its instance dict."""
    own = _own_dict(owner)
    if own is not None:
        tx.output.side_effects.changed_dicts.setdefault(id(own), owner)


def known_dict(tx: Interpreter, owner: Any) -> Value | None:
    """`owner.__dict__` where that is more than a view of the attributes of `owner`: of the object
    by which the frame changed them, a dict that the frame was given, or the one that the frame
    made the object's (`self.__dict__ = shared`).
    """
    effects = tx.output.side_effects
    held: Any = effects.load_attr(owner, "__dict__")
    if held is None:
        own = _own_dict(owner)
        known = own is not None and id(own) in tx.output.values_by_id
        if not known and (own is None or effects.changed_dicts.get(id(own), owner) is owner):
            return None
        held = tx.wrap(own, owner.dict_source())
    if isinstance(held, late_bound.InstanceDictValue) and held.owner is owner:
        return None
    return held


def shared_dict(tx: Interpreter, owner: Any) -> DictValue | None:
    """The entries of `known_dict`, which may be those of a subclass, and of `owner` itself."""
    held = known_dict(tx, owner)
    return None if held is None else _entries(held, owner)


def _entries(held: Value, owner: Value) -> DictValue:
    entries = getattr(held, "storage", held)
    if not isinstance(entries, late_bound.DictValue):
        raise Unsupported(breaks.AttributeAccess(owner.describe(), "__dict__"))
    return entries


def take_dict(tx: Interpreter, owner: ObjectValue, held: Value) -> None:
    """Let a new object have its attributes in `held`, as `owner.__dict__ = held` does."""
    effects = tx.output.side_effects
    stored = [name for name in effects.stored_attrs(owner) if name != "__dict__"]
    fields = all(isinstance(class_lookup(owner.cls, name), FIELDS) for name in stored)
    if not (effects.is_new(owner) and fields):
        raise Unsupported(breaks.AttributeMutation(owner.describe(), "__dict__"))
    _entries(held, owner)
    effects.store_attr(owner, "__dict__", held)
