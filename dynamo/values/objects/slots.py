"""Methods of C types called on symbolic values: object.__setattr__(x, ...), dict.get(d, ...),
type.mro(cls).
"""

from __future__ import annotations

import random
import types
import typing
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.values.base import Value, is_none
from dynamo.values.builtins.table import (
    TABLE,
    attribute_name,
    callable_name,
    fold,
    real_object,
)
from dynamo.values.classes.classes import (
    ClassValue,
    builtin_init,
    construct,
    new_instance,
)
from dynamo.values.classes.instance_checks import plain_instance
from dynamo.values.classes.lookup import class_lookup
from dynamo.values.classes.super_objects import SuperValue
from dynamo.values.containers.containers import MutableSequence
from dynamo.values.containers.dicts import DictValue
from dynamo.values.containers.sets import SetValue
from dynamo.values.dummy_operands import fail_as
from dynamo.values.functions.function import FunctionValue, MethodValue
from dynamo.values.functions.functional import PureObjectValue
from dynamo.values.iterators.generator import Resumable
from dynamo.values.late_bound import bound_late
from dynamo.values.objects.builtin_object import BuiltinObject
from dynamo.values.objects.descriptors import bind, class_told
from dynamo.values.objects.exception_objects import ExceptionValue
from dynamo.values.objects.exceptions import call_handler
from dynamo.values.objects.immutable_objects import ImmutableValue
from dynamo.values.objects.objects import ObjectValue
from dynamo.values.objects.reflection import (
    FIELDS,
    UNBOUND,
    check_new,
    check_receiver,
    is_overridden,
)
from dynamo.values.objects.storage_slots import container_init, past_override, storage_slot
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.scalars.operators import guard_distinct
from dynamo.values.tensors.tensor import SPECIAL_METHODS

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

NOT_IMPLEMENTED = ConstantValue(NotImplemented)


@bound_late
def call_slot(
    tx: Interpreter,
    receiver: Value,
    name: str,
    found: Any,
    args: Sequence[Value],
    kwargs: dict[str, Value],
) -> Value:
    """receiver.name(*args, **kwargs), where `found` (if known) is the C method that Python would
    call.
    """
    check_receiver(receiver, name, found, len(args), kwargs)
    result = _dispatch(tx, receiver, name, found, args, kwargs)
    return ConstantValue(None) if result is None else result


def _dispatch(
    tx: Interpreter,
    receiver: Value,
    name: str,
    found: Any,
    args: Sequence[Value],
    kwargs: dict[str, Value],
) -> Value | None:
    if name == "__get__" and isinstance(receiver, FunctionValue) and args:
        unbound = args[0].is_constant() and args[0].as_constant() is None
        return receiver if unbound else MethodValue(receiver, args[0])
    if name == "__get__" and isinstance(receiver, MethodValue) and args:
        if not receiver.binds_again:
            return receiver
        return receiver.function.call_method(tx, name, args, kwargs)
    if name == "__get__" and args and receiver.python_type() in FIELDS:
        return _read_field(tx, receiver, *args)
    if isinstance(receiver, ClassValue):
        return _class_slot(tx, receiver, name, found, args, kwargs)
    if isinstance(receiver, ExceptionValue) and hasattr(receiver, f"py_{name}"):
        return call_handler(tx, name, getattr(receiver, f"py_{name}"), args, kwargs)
    if isinstance(receiver, ObjectValue):
        return _object_slot(tx, receiver, name, found, args, kwargs)
    if found is object.__init__ and not args and not kwargs:  # that of a tensor's subclass calls
        return None
    if is_overridden(receiver, name, found):
        raise Unsupported(breaks.UncapturedCall(f"{receiver.python_type().__name__}.{name}"))
    if past_override(receiver, name, found):
        raise Unsupported(breaks.UncapturedCall(f"dict.{name} of a subclass"))
    if isinstance(receiver, BuiltinObject) and receiver.method(name) is not None:
        return receiver.call_method(tx, name, args, kwargs)
    if name == "__init__" and not _is_filled(receiver):
        given = args or kwargs or isinstance(receiver, SuperValue)
        if given and receiver.python_type().__init__ is not object.__init__:  # type: ignore[misc]
            raise Unsupported(breaks.UncapturedCall(f"{receiver.python_type().__name__}.__init__"))
        return None
    if isinstance(receiver, PureObjectValue | ImmutableValue):
        return receiver.call_method(tx, name, args, kwargs)
    if receiver.is_constant() or isinstance(receiver, BuiltinObject):
        handler = _CONTAINER_SLOTS.get(name)
        if handler is not None and isinstance(receiver, BuiltinObject):
            return call_handler(tx, name, handler, [receiver, *args], kwargs)
    if receiver.is_constant() or receiver.is_symbolic() or isinstance(receiver, Resumable):
        return receiver.call_method(tx, name, args, kwargs)
    handler = _OBJECT_SLOTS.get(name)
    of_object = found is None or getattr(found, "__objclass__", object) is object
    known = of_object or name not in _COMPARISONS
    if handler is not None and known and name not in ("__setattr__", "__delattr__"):
        return call_handler(tx, name, handler, [receiver, *args], kwargs)
    if found is not None and hasattr(receiver, "call_inherited"):  # a tensor
        return receiver.call_inherited(tx, name, args, kwargs)
    if isinstance(found, types.MethodDescriptorType) and found in TABLE:
        return call_handler(tx, name, TABLE[found], [receiver, *args], kwargs)
    raise Unsupported(breaks.UncapturedCall(f"{receiver.python_type().__name__}.{name}"))


_FIELDS_OF_CLASSES = (vars(type)["__mro__"], vars(type)["__dict__"])


def _read_field(
    tx: Interpreter, descriptor: Value, owner: Value, cls: Value | None = None
) -> Value:
    """descriptor.__get__(owner, cls) of a field of C or a slot: what type(owner) has under that
    name; of a class alone, the descriptor.
    """
    if is_none(owner) and cls is not None and not is_none(cls):
        return descriptor
    known, found = descriptor.identity()
    if known and not issubclass(owner.python_type(), found.__objclass__):
        fail_as(tx, found.__get__, owner)
    if known and class_lookup(owner.python_type(), found.__name__) is found:
        if found in _FIELDS_OF_CLASSES:
            return owner.getattr(tx, found.__name__)
        if isinstance(owner, ObjectValue):
            return bind(tx, owner, found, found.__name__)
    raise Unsupported(breaks.UncapturedCall(f"{descriptor.python_type().__name__}.__get__"))


# -- instances ------------------------------------------------------------------------------------
def _object_slot(
    tx: Interpreter,
    receiver: ObjectValue,
    name: str,
    found: Any,
    args: Sequence[Value],
    kwargs: dict[str, Value],
) -> Value | None:
    if name == "__init__":
        builtin_init(tx, receiver, args, kwargs)
        return None
    if name == "__new__" and args and isinstance(args[0], ClassValue):
        if isinstance(found, types.BuiltinFunctionType):
            check_new(args[0].cls, found)
        return new_instance(tx, args[0].cls, args[1:], kwargs)
    storage = receiver.storage
    of_object = found is not None and getattr(found, "__objclass__", None) is object
    if storage is not None and not of_object:
        return storage_slot(tx, receiver, name, found, args, kwargs)
    if name == "__eq__" and issubclass(receiver.cls, types.SimpleNamespace):
        return _namespace_eq(tx, receiver, args[0])
    handler = _OBJECT_SLOTS.get(name)
    if handler is not None and (of_object or name not in _COMPARISONS):
        return call_handler(tx, name, handler, [receiver, *args], kwargs)
    if isinstance(receiver, ExceptionValue) and name == "__str__":
        return ConstantValue(receiver.text())
    if found is vars(typing)["_idfunc"]:  # calls of a NewType
        return args[0]
    if issubclass(receiver.cls, random.Random):
        rule = TABLE.get(getattr(random.Random, name, None))
        if rule is not None:
            return call_handler(tx, name, rule, [receiver, *args], kwargs)
    known, real = receiver.identity()
    if name == "__call__" and known and hasattr(real, "__qualname__"):
        raise Unsupported(breaks.UncapturedCall(callable_name(real)))
    raise Unsupported(breaks.UncapturedCall(f"{receiver.cls.__name__}.{name}"))


def _namespace_eq(tx: Interpreter, receiver: ObjectValue, other: Value) -> Value | None:
    if not issubclass(other.python_type(), types.SimpleNamespace):
        return NOT_IMPLEMENTED
    mine, theirs = (v.getattr(tx, "__dict__") for v in (receiver, other))
    return mine.compare(tx, "==", theirs)


def _eq(tx, receiver, other):
    return ConstantValue(True) if guard_distinct(tx, receiver, other) else NOT_IMPLEMENTED


def _ne(tx, receiver, other):
    if class_lookup(receiver.python_type(), "__eq__") is vars(object)["__eq__"]:
        return ConstantValue(False) if guard_distinct(tx, receiver, other) else NOT_IMPLEMENTED
    answer = receiver.compare(tx, "==", other)
    return NOT_IMPLEMENTED if answer is None else ConstantValue(not answer.truth(tx))


def _order(tx, receiver, other):
    return NOT_IMPLEMENTED


def _getattribute(tx, receiver, name):
    if isinstance(receiver, ObjectValue):
        return receiver.generic_getattr(tx, attribute_name(tx, name))
    return receiver.getattr(tx, attribute_name(tx, name))


SPECIAL_METHODS["__getattribute__"] = _getattribute


def _setattr(tx, receiver, name, value):
    receiver.generic_setattr(tx, attribute_name(tx, name), value)


def _delattr(tx, receiver, name):
    receiver.generic_delattr(tx, attribute_name(tx, name))


def _nothing(tx, receiver):
    return None


def _class(tx, receiver):
    return class_told(tx, receiver)


# Methods that C types other than object implement in ways of their own.
_COMPARISONS = frozenset(["__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"])
_OBJECT_SLOTS: dict[str, Callable[..., Value | None]] = {
    "__eq__": _eq,
    "__ne__": _ne,
    "__lt__": _order,
    "__le__": _order,
    "__gt__": _order,
    "__ge__": _order,
    "__getattribute__": _getattribute,
    "__setattr__": _setattr,
    "__delattr__": _delattr,
    "__init_subclass__": _nothing,
    "__subclasshook__": _order,
    "__class__": _class,
}


def _is_filled(receiver: Value) -> bool:
    """Whether the __init__ of the value's type sets its content."""
    return isinstance(receiver, (DictValue, MutableSequence, SetValue))


# -- containers -----------------------------------------------------------------------------------
def _container_reversed(tx, storage):
    return TABLE[reversed](tx, storage)


_CONTAINER_SLOTS: dict[str, Callable[..., Value | None]] = {
    "__init__": container_init,
    "__reversed__": _container_reversed,
    "__copy__": lambda tx, storage: storage.py_copy(tx),
}


# -- classes --------------------------------------------------------------------------------------
def _class_slot(
    tx: Interpreter,
    receiver: ClassValue,
    name: str,
    found: Any,
    args: Sequence[Value],
    kwargs: dict[str, Value],
) -> Value | None:
    cls = receiver.cls
    handler = TABLE.get(getattr(cls, name, None))
    if handler is not None:
        return call_handler(tx, name, handler, args, kwargs)
    if name == "__call__":
        return construct(tx, receiver, args, kwargs)
    if name == "mro":
        return tx.wrap(type.mro(cls))
    if name == "__subclasses__":
        tx.guard(receiver.source, "predicate", _has_subclasses_of(cls))
        return tx.wrap(type.__subclasses__(cls))
    if name == "fromkeys" and issubclass(cls, dict):
        return call_handler(tx, name, _fromkeys, [receiver, *args], kwargs)
    if name in ("__instancecheck__", "__subclasscheck__"):
        if name == "__instancecheck__":
            return ConstantValue(plain_instance(tx, args[0], cls))
        if not isinstance(args[0], ClassValue):
            raise Unsupported(breaks.UncapturedCall(f"type.{name}"))
        return ConstantValue(cls in real_object(args[0]).__mro__)
    if name == "__init_subclass__" and not args and not kwargs:
        return None
    of_type = found is None or getattr(found, "__objclass__", None) is type
    if name == "__init__" and len(args) == 3 and of_type:
        return None
    if name in ("__eq__", "__ne__") or (name == "__getattribute__" and of_type):
        return call_handler(tx, name, _OBJECT_SLOTS[name], [receiver, *args], kwargs)
    if cls in (str, bytes, int, float) and not isinstance(found, UNBOUND):
        return fold(tx, getattr(cls, name), args, kwargs)
    raise Unsupported(breaks.UncapturedCall(f"{cls.__name__}.{name}"))


def _has_subclasses_of(cls: type) -> Callable[[type], bool]:
    subclasses: list[type] = type.__subclasses__(cls)
    held = [weakref.ref(subclass) for subclass in subclasses]

    def check(now: type) -> bool:
        subclasses: list[type] = type.__subclasses__(now)
        pairs = zip(held, subclasses)
        return len(subclasses) == len(held) and all(ref() is found for ref, found in pairs)

    return check


def _fromkeys(tx: Interpreter, receiver: ClassValue, keys: Value, value: Value | None = None):
    result = receiver.call(tx, [], {})
    for key in keys.each(tx):
        result.setitem(tx, key, ConstantValue(None) if value is None else value)
    return result
