"""isinstance() and issubclass(): whom Python asks, and in which order.

A metaclass with a check of its own in Python is captured like any code. Abstract base classes are
asked while capturing, and their answer is guarded: a later register() changes it.
"""

from __future__ import annotations

import _abc  # type: ignore[import-not-found]
import abc
import types
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules.lazy import LazyModuleMixin

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.classes import HEAP_TYPE, TRUSTED_PACKAGES
from dynamo.values.base import Value
from dynamo.values.builtins.table import handles, real_object
from dynamo.values.classes.lookup import MISSING
from dynamo.values.objects.descriptors import (
    SLOT_TYPES,
    class_attr_source,
    class_lookup,
    class_value,
    is_trusted_class,
)
from dynamo.values.objects.exceptions import call_real
from dynamo.values.objects.objects import ObjectValue
from dynamo.values.scalars.constant import ConstantValue

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

_OBJECT_CLASS = vars(object)["__class__"]
_ABC_CHECKS = {
    "__instancecheck__": vars(abc.ABCMeta)["__instancecheck__"],
    "__subclasscheck__": vars(abc.ABCMeta)["__subclasscheck__"],
}


@handles(isinstance)
def _isinstance(tx, owner, info):
    return ConstantValue(is_instance(tx, owner, info))


@handles(issubclass)
def _issubclass(tx, cls, info):
    return ConstantValue(is_subclass(tx, cls, info))


@handles(_abc._abc_instancecheck)
def _abc_instancecheck(tx, cls, owner):
    return ConstantValue(_abstract_instance(tx, owner, cls, _abstract_class(cls)))


@handles(_abc._abc_subclasscheck)
def _abc_subclasscheck(tx, cls, sub):
    return ConstantValue(_abstract_subclass(tx, sub, cls, _abstract_class(cls)))


def _abstract_class(cls: Value) -> Any:
    real = real_object(cls)
    if (
        not isinstance(real, type) or class_lookup(real, "_abc_impl") is MISSING
    ):  # the caches of ABCMeta
        raise Unsupported(breaks.UncapturedCall("ABCMeta's check of a plain class"))
    return real


def is_instance(tx: Interpreter, owner: Value, info: Value) -> bool:
    """isinstance(owner, info)"""
    alternatives = _alternatives(tx, info)
    if alternatives is not None:
        return any(is_instance(tx, owner, item) for item in alternatives)
    cls = _real_class(info, "__instancecheck__")
    kind = owner.python_type()
    if issubclass(type(cls), type) and issubclass(kind, LazyModuleMixin):
        tx.output.classes_known.append(owner)
    if kind is cls:
        return True
    check = class_lookup(type(cls), "__instancecheck__")
    if _is_users(check):
        source = class_attr_source(tx, info, "__instancecheck__")
        answer = tx.call_at_end(info, "__instancecheck__", tx.wrap(check, source), [info, owner])
        return answer.truth(tx)
    if check is _ABC_CHECKS["__instancecheck__"]:
        return _abstract_instance(tx, owner, info, cls)
    if type(cls) in _FLAGS and issubclass(kind, torch.Tensor):
        return _flagged_instance(tx, owner, cls)
    if issubclass(type(cls), type) and isinstance(check, SLOT_TYPES) and not _is_tensor_type(cls):
        return plain_instance(tx, owner, cls)
    return _instance_natively(tx, owner, info, cls)


def is_subclass(tx: Interpreter, sub: Value, info: Value) -> bool:
    """issubclass(sub, info)"""
    alternatives = _alternatives(tx, info)
    if alternatives is not None:
        return any(is_subclass(tx, sub, item) for item in alternatives)
    cls = _real_class(info, "__subclasscheck__")
    check = class_lookup(type(cls), "__subclasscheck__")
    if _is_users(check):
        source = class_attr_source(tx, info, "__subclasscheck__")
        answer = tx.call_at_end(info, "__subclasscheck__", tx.wrap(check, source), [info, sub])
        return answer.truth(tx)
    if check is _ABC_CHECKS["__subclasscheck__"]:
        return _abstract_subclass(tx, sub, info, cls)
    return call_real(tx, issubclass, _real_class(sub, "__subclasscheck__"), cls)


def plain_instance(tx: Interpreter, owner: Value, cls: type) -> bool:
    """type.__instancecheck__(cls, owner)"""
    return any(cls in kind.__mro__ for kind in _classes_of(tx, owner))


def _classes_of(tx: Interpreter, owner: Value) -> list[type]:
    """The type, and the class that the object claims as its own."""
    kind = owner.python_type()
    if not isinstance(owner, ObjectValue):
        return [kind]
    getter = class_lookup(kind, "__getattribute__")
    own = class_lookup(kind, "__class__")
    if own is _OBJECT_CLASS and not isinstance(getter, types.FunctionType):
        return [kind]
    claimed = real_object(owner.getattr(tx, "__class__"))
    return [kind, claimed] if isinstance(claimed, type) and claimed is not kind else [kind]


# By the metaclass: the attribute with which a tensor counts as one of the class.
_FLAGS: dict[type, str] = {
    type(torch.nn.Parameter): "_is_param",
    type(torch.nn.Buffer): "_is_buffer",
}


def _flagged_instance(tx: Interpreter, owner: Value, cls: type) -> bool:
    """Whether a tensor is a parameter or a buffer: by its class, or by an attribute of its own."""
    flag = _FLAGS[type(cls)]
    if cls in (torch.nn.Parameter, torch.nn.Buffer) and owner.hasattr(tx, flag):
        return issubclass(owner.python_type(), cls) or owner.getattr(tx, flag).truth(tx)
    return issubclass(owner.python_type(), cls)


# -- the second argument --------------------------------------------------------------------------
def _alternatives(tx: Interpreter, info: Value) -> list[Value] | None:
    """The classes of a tuple or of a union; None for a class."""
    if issubclass(info.python_type(), tuple):
        return info.unpack(tx)
    known, real = info.identity()
    if known and type(real) is types.UnionType:
        return [tx.wrap(part) for part in real.__args__]
    return None


def _real_class(info: Value, method: str) -> Any:
    """The object whose method is called; an object that only looks like a class is asked
    natively.
    """
    known, real = info.identity()
    if not known:
        return real_object(info)
    check = class_lookup(type(real), method)
    if isinstance(info, ObjectValue) and not isinstance(check, types.FunctionType):
        raise Unsupported(breaks.UncapturedCall("isinstance"))
    return real


def _package(obj: Any) -> str:
    return (getattr(obj, "__module__", None) or "").partition(".")[0]


def _is_trusted(cls: Any) -> bool:
    return is_trusted_class(cls) if isinstance(cls, type) else _package(cls) in TRUSTED_PACKAGES


def _is_users(function: Any) -> bool:
    """Written in Python, and worth looking into: that of collections.abc.ByteString warns."""
    known = TRUSTED_PACKAGES - {"collections"}
    return isinstance(function, types.FunctionType) and _package(function) not in known


def _is_tensor_type(cls: Any) -> bool:
    return type(cls) is type(torch.FloatTensor)


# -- abstract base classes ------------------------------------------------------------------------
def _abstract_instance(tx: Interpreter, owner: Value, info: Value, cls: Any) -> bool:
    """ABCMeta.__instancecheck__(cls, owner)"""
    check = class_lookup(type(cls), "__subclasscheck__")
    kinds = _classes_of(tx, owner)
    if _is_users(check):
        sources = class_attr_source(tx, info, "__subclasscheck__")
        function = tx.wrap(check, sources)
        values = [class_value(tx, kind, owner.source) for kind in kinds]
        if len(values) > 1:
            raise Unsupported(breaks.UncapturedCall("isinstance"))
        operands = [info, *values]
        return tx.call_at_end(info, "__instancecheck__", function, operands).truth(tx)
    _refuse_hooks(cls)
    result = any(call_real(tx, issubclass, kind, cls) for kind in kinds)
    if _may_change(owner.python_type(), cls, result):
        _guard_answer(tx, owner, info, cls, isinstance, result)
    return result


def _abstract_subclass(tx: Interpreter, sub: Value, info: Value, cls: Any) -> bool:
    """ABCMeta.__subclasscheck__(cls, sub)"""
    _refuse_hooks(cls)
    kind = _real_class(sub, "__subclasscheck__")
    result = call_real(tx, issubclass, kind, cls)
    if _may_change(kind, cls, result):
        _guard_answer(tx, sub, info, cls, issubclass, result)
    return result


def _may_change(kind: Any, cls: Any, result: bool) -> bool:
    """Whether a later register() changes the answer."""
    if not _is_trusted(cls):
        return True
    return not result and isinstance(kind, type) and not is_trusted_class(kind)


def _refuse_hooks(cls: Any) -> None:
    """Code of the user's that the check would run while capturing."""
    for name in ("__subclasshook__", "__subclasses__"):
        found = class_lookup(cls, name)
        function = getattr(found, "__func__", found)
        ours = _package(function) in TRUSTED_PACKAGES
        if isinstance(function, types.FunctionType) and not ours:
            raise Unsupported(breaks.UncapturedCall(f"{cls.__name__}.{name}"))


def _guard_answer(
    tx: Interpreter, asked: Value, info: Value, cls: Any, check: Any, result: bool
) -> None:
    """Guard the answer of a class that may get other members."""
    if asked.source is not None:

        def answers_as_captured(value: Any) -> bool:
            return check(value, cls) is result

        tx.guard(asked.source, "predicate", answers_as_captured)
    elif info.source is not None:
        kind = real_object(asked) if check is issubclass else asked.python_type()

        def holds_as_captured(value: Any) -> bool:
            return issubclass(kind, value) is result

        tx.guard(info.source, "predicate", holds_as_captured)


# -- everything else ------------------------------------------------------------------------------
def _instance_natively(tx: Interpreter, owner: Value, info: Value, cls: Any) -> bool:
    """Types of typing and torch, which have checks of their own."""
    kind = owner.python_type()
    real, fake = getattr(owner, "real", None), getattr(owner, "fake", None)
    if real is not None and not tx.output.side_effects.is_dirty(owner):
        result = call_real(tx, isinstance, real, cls)
        if not _is_trusted(cls):
            _guard_answer(tx, owner, info, cls, isinstance, result)
        return result
    if fake is not None and _is_tensor_type(cls):
        return fake.type() == f"{cls.__module__}.{cls.__name__}"
    if fake is not None and isinstance(cls, type):
        return issubclass(kind, cls) or bool(isinstance(fake, cls))
    protocol = getattr(cls, "_is_protocol", False)
    try:
        result = issubclass(kind, cls)
    except TypeError:
        if not protocol:
            call_real(tx, isinstance, None, cls)
        raise Unsupported(breaks.UncapturedCall("isinstance of a protocol")) from None
    if protocol and not result and (kind.__dictoffset__ or kind.__flags__ & HEAP_TYPE):
        # Its own attributes count, too.
        raise Unsupported(breaks.UncapturedCall("isinstance of a protocol"))
    return result
