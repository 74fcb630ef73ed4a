"""Attributes of classes and instances: lookup through the MRO, and the descriptor protocol."""

from __future__ import annotations

import collections
import functools
import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from torch.nn.modules.lazy import LazyModuleMixin

from dynamo import _hook, breaks
from dynamo.bytecode import versions
from dynamo.errors import Unsupported
from dynamo.guards.classes import is_special, is_trusted_class, may_appear
from dynamo.guards.sources import (
    AttrSource,
    CallSource,
    ItemSource,
    SequenceItemSource,
    Source,
    TypeSource,
)
from dynamo.polyfills.protocols import keep_attribute
from dynamo.values import late_bound
from dynamo.values.base import Value
from dynamo.values.classes.class_stores import StoredClassAttr, stored_class_attr
from dynamo.values.classes.lookup import (
    MISSING,
    class_lookup,
    is_native,
    reads_by_function,
    type_holds,
)
from dynamo.values.functions.function import MethodValue
from dynamo.values.late_bound import bound_late
from dynamo.values.objects.exceptions import call_real, raise_python
from dynamo.values.objects.reflection import known_dict, no_attribute
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.stack_items import ReturnContinuation

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

# Methods of C types (dict.get, object.__init__): no Python code to capture.
SLOT_TYPES = (types.WrapperDescriptorType, types.MethodDescriptorType, types.BuiltinFunctionType)


@bound_late
def attribute_of_type(tx: Interpreter, value: Value, name: str) -> Value:
    """`value.name` of an instance of a C type: the type's attribute, bound to the value."""
    kind = value.python_type()
    if is_absent(value, kind, name):
        no_attribute(tx, kind, name)
    found = class_lookup(kind, name)
    if name == "__class__":
        return class_told(tx, value)
    if not isinstance(found, _READABLE):
        raise Unsupported(breaks.AttributeAccess(value.describe(), name))
    return bind(tx, value, found, name)


@bound_late
def is_absent(value: Value, kind: type, name: str) -> bool:
    """Whether an instance of a C type has no such attribute; a break where only the object says."""
    if type_holds(kind, name):
        return False
    if kind.__dictoffset__ or any(type_holds(kind, n) for n in _ASKED) or kind is super:
        raise Unsupported(breaks.AttributeAccess(value.describe(), name))
    return True


_ASKED = ("__getattr__", "__dict__")


def is_data_descriptor(found: Any) -> bool:
    return hasattr(type(found), "__set__") or hasattr(type(found), "__delete__")


def deleter_only(found: Any) -> Any:
    """The `__delete__` of a data descriptor without `__set__`: a store through it fails."""
    has_set = class_lookup(type(found), "__set__") is not MISSING
    return MISSING if has_set else class_lookup(type(found), "__delete__")


# Descriptors of C types that need nothing of the instance but its type.
_READABLE = (*SLOT_TYPES, types.ClassMethodDescriptorType, str, types.NoneType, staticmethod)


def class_told(tx: Interpreter, value: Value, cls: type | None = None) -> Value:
    """The class of `value` as the program sees it: its type, or its own `__class__`."""
    kind = value.python_type()
    if issubclass(kind, LazyModuleMixin):
        tx.output.classes_known.append(value)
    return class_value(tx, kind if cls is None else cls, value.source)


def class_value(tx: Interpreter, cls: type, instance_source: Source | None) -> Value:
    """The Value of an instance's class; reached through the instance if by nothing shorter."""
    entry = tx.output.values_by_id.get(id(cls))
    if entry is not None:
        return entry[1]
    source: Source | None = None if instance_source is None else TypeSource(instance_source)
    tx.output.guards.assume_class(cls)
    tx.output.guards.assume_class(type(cls))
    if source is None and not is_trusted_class(cls):  # its contents can be changed
        source = tx.output.install(cls.__name__, cls)
    value = late_bound.ClassValue(cls, source)
    if source is not None:
        tx.output.side_effects.track_existing(value)
    return tx.output.remember(cls, source, value)


def class_attr_source(tx: Interpreter, value: Value, name: str) -> Source | None:
    """The source of `type(value).name`."""
    source = class_value(tx, value.python_type(), value.source).source
    return None if source is None else AttrSource(source, name)


def bind(tx: Interpreter, value: Value, found: Any, name: str) -> Value:
    """The value of `value.name`, given that the type holds `found` under that name (descriptor
    protocol).
    """
    binder = _BINDERS.get(type(found))
    if binder is not None:
        return binder(tx, value, found, name)
    if is_native(found, property):
        return _bind_property(tx, value, found, name)
    if isinstance(found, StoredClassAttr):
        return found.bind(tx, value, name)
    tx.output.guards.assume_class(type(found))
    getter = class_lookup(type(found), "__get__")
    if isinstance(getter, types.FunctionType):
        descriptor = class_attr(tx, value, found, name)
        owner = class_value(tx, value.python_type(), value.source)
        method = tx.wrap(getter, class_attr_source(tx, descriptor, "__get__"))
        return tx.call_at_end(value, name, method, [descriptor, value, owner])
    if getter is not MISSING and not isinstance(found, type):
        raise Unsupported(breaks.AttributeAccess(value.describe(), name))
    return class_attr(tx, value, found, name)


def class_attr(tx: Interpreter, value: Value, found: Any, name: str) -> Value:
    """A plain class attribute."""
    guard_class_attr(tx, value, name, found, read_later=True)
    has_get = class_lookup(type(found), "__get__") is not MISSING
    source = None if has_get else class_attr_source(tx, value, name)
    return tx.wrap(found, source)


def guard_class_attr(
    tx: Interpreter, value: Value, name: str, found: Any, read_later: bool = False
) -> None:
    """Guard the attribute `name` of the type of `value`: once for all instances of the type.
    read_later: mere data is guarded where it is read, by the source of the class attribute.
    """
    cls = value.python_type()
    read_later = read_later and found is not MISSING and _is_data(found)
    if found is not MISSING:
        tx.output.guards.assume_class(type(found))
    guarded = tx.output.guarded_class_attrs
    key = (id(cls), name, read_later)
    if key in guarded:
        return
    guarded.add(key)
    if is_trusted_class(cls):
        return
    if is_special(name):
        tx.output.guards.assume_class(cls)
        return
    if value.source is not None and _is_replaced(tx, value.source, name, found):
        tx.guard(value.source, "type_attr_type", (name, types.FunctionType))
        tx.guard(AttrSource(TypeSource(value.source), name), "function_code", found)
    elif value.source is not None and read_later:
        tx.guard(value.source, "type_attr_type", (name, type(found)))
    elif value.source is not None:
        payload = (name, None) if found is MISSING else (name, found, True)
        tx.guard(value.source, "type_attr", payload)
    else:
        assume_lookup(tx, cls, name, found)


def _is_replaced(tx: Interpreter, instance: Source, name: str, found: Any) -> bool:
    """Whether the class held another method of the same code in an earlier compilation: whichever
    comes next, its contents are guarded where they are read.
    """
    if type(found) is not types.FunctionType:
        return False
    return tx.output.symbols.has_changed_object(found, AttrSource(TypeSource(instance), name))


def _is_data(found: Any) -> bool:
    return not isinstance(found, type) and class_lookup(type(found), "__get__") is MISSING


def assume_lookup(tx: Interpreter, cls: type, name: str, found: Any) -> None:
    """Guard the result of class_lookup(cls, name); of mere data, which is guarded where it is
    read, that it is no descriptor.
    """
    assumptions = tx.output.guards.assume_class(cls)
    if found is MISSING or class_lookup(type(found), "__get__") is not MISSING:
        assumptions.assume(name, found)
    else:
        assumptions.assume_data(name, type(found))


def guarded_lookup(tx: Interpreter, value: Value, name: str) -> Any:
    """class_lookup(type(value), name), guarded."""
    output, cls = tx.output, value.python_type()
    if output.side_effects.class_stores:
        stored = stored_class_attr(tx, cls, name)
        if stored is not None:
            return stored
    elif (known := output.guarded_lookups.get((id(cls), name))) is not None:
        return known[1]
    found = class_lookup(cls, name)
    guard_class_attr(tx, value, name, found, read_later=True)
    if not may_appear(name):
        output.guarded_lookups[id(cls), name] = cls, found
    return found


def raw_class_source(
    tx: Interpreter, value: Value, cls: type, name: str, after: type | None = None
) -> Source | None:
    """The source of the result of class_lookup(cls, name), behind `after`, unbound; guards the
    lookup.

    `cls` is the class of `value`, or `value` itself if that is a class.
    """
    source = class_value(tx, cls, value.source if value.python_type() is cls else None).source
    if source is None:
        return None
    mro_source = AttrSource(source, "__mro__")
    start = 0 if after is None else cls.__mro__.index(after) + 1
    for index, owner in enumerate(cls.__mro__[start:], start):
        owner_source = SequenceItemSource(mro_source, index)
        namespace = AttrSource(owner_source, "__dict__")
        tx.guard(owner_source, "id", owner)
        if name in owner.__dict__:
            return ItemSource(namespace, name)
        if is_trusted_class(owner):
            class_lookup(owner, name)  # recorded
        else:
            tx.guard(namespace, "contains", (name, False))
    return None


@bound_late
def assume_absent(tx: Interpreter, classes: Sequence[type], name: str) -> None:
    """Guard that these classes do not hold the attribute themselves."""
    for cls in classes:
        if is_trusted_class(cls):
            class_lookup(cls, name)  # recorded
        else:
            source = class_value(tx, cls, None).source
            if source is not None:  # else made by the frame
                tx.guard(AttrSource(source, "__dict__"), "contains", (name, False))


def _bind_function(tx: Interpreter, value: Value, found: Any, name: str) -> Value:
    return MethodValue(tx.wrap(found, class_attr_source(tx, value, name)), value)


def _bind_hooked(tx: Interpreter, value: Value, found: Any, name: str) -> Value:
    """A compiled or disabled callable: a method where the original is a function."""
    is_function = isinstance(function_behind(found), types.FunctionType)
    return (_bind_function if is_function else class_attr)(tx, value, found, name)


_HOOKED = (_hook.Compiled, _hook.Scoped)


def function_behind(found: Any) -> Any:
    """The callable that is compiled or disabled; any other one itself."""
    while isinstance(found, _HOOKED):
        found = found.__wrapped__
    return found


def refuse_property(
    tx: Interpreter, value: Value, accessor: Callable[..., Any], *args: Any
) -> None:
    """Raise the error of a property without this accessor, in Python's words where an object exists
    to ask: not every property knows its name.
    """
    real = getattr(value, "real", None)
    if real is not None:
        call_real(tx, accessor, real, *args)


def _bind_property(tx: Interpreter, value: Value, found: property, name: str) -> Value:
    if found.fget is None:
        refuse_property(tx, value, found.__get__)
        type_name = value.python_type().__qualname__
        raise_python(tx, AttributeError, f"property {name!r} of {type_name!r} object has no getter")
    source = class_attr_source(tx, value, name)
    if source is not None:
        source = AttrSource(source, "fget")
    return tx.call_at_end(value, name, tx.wrap(found.fget, source), [value])


def _bind_static(tx: Interpreter, value: Value, found: staticmethod, name: str) -> Value:
    return tx.wrap(found.__func__, class_attr_source(tx, value, name))


def _bind_class(tx: Interpreter, value: Value, found: classmethod, name: str) -> Value:
    source = class_attr_source(tx, value, name)
    if source is not None:
        source = AttrSource(source, "__func__")
    owner = class_value(tx, value.python_type(), value.source)
    return bind_to_class(tx, found, owner, source)


def bind_to_class(
    tx: Interpreter, found: classmethod, owner: Value, function_source: Source | None
) -> Value:
    """found.__get__(None, owner); `function_source` leads to found.__func__."""
    function: Any = found.__func__
    is_function = isinstance(function_behind(function), types.FunctionType)
    if not is_function and versions.CLASSMETHOD_CHAINS and hasattr(type(function), "__get__"):
        raise Unsupported(breaks.AttributeAccess(owner.describe(), repr(function)))
    return MethodValue(tx.wrap(function, function_source), owner)


def is_slot(found: Any) -> bool:
    """A member of __slots__: those of C types may be read-only."""
    is_member = isinstance(found, types.MemberDescriptorType)
    return is_member and "__slots__" in vars(found.__objclass__)


class _Unset:
    __slots__ = ("slot",)
    slot: Any


def slot_owner_name(cls: type) -> str:
    """The class's name as this Python writes it where a slot is empty."""
    try:
        _ = _Unset().slot
    except AttributeError as error:
        if __name__ in str(error):
            module = "" if cls.__module__ in ("builtins", "__main__") else f"{cls.__module__}."
            return f"{module}{cls.__qualname__}"
    return cls.__name__


def _bind_slot_member(tx: Interpreter, value: Any, found: Any, name: str) -> Value:
    """__slots__: storage of the instance itself."""
    if name == "__dict__":  # of types.SimpleNamespace
        return _bind_getset(tx, value, found, name)
    held = _storage_part(tx, value, found, name)
    if held is not None:
        return held
    stored = tx.output.side_effects.load_attr(value, name)
    if isinstance(stored, Value):
        return stored
    real = getattr(value, "real", None)
    if stored is None and real is not None:
        try:
            content = found.__get__(real)
        except AttributeError:
            if reads_by_function(value.python_type()):
                raise Unsupported(breaks.AttributeAccess(value.describe(), name)) from None
            tx.guard(value.source, "has_attr", (name, False))
        else:
            return tx.wrap(content, own_attr_source(value, name))
    type_name = slot_owner_name(value.python_type())
    raise_python(tx, AttributeError, f"{type_name!r} object has no attribute {name!r}")


def _bind_getset(tx: Interpreter, value: Any, found: Any, name: str) -> Value:
    if name == "__dict__":
        return known_dict(tx, value) or late_bound.InstanceDictValue(value)
    if name == "__class__":
        return class_told(tx, value)
    held = _storage_part(tx, value, found, name)
    if held is not None:
        return held
    real = getattr(value, "real", None)
    if real is None:
        raise Unsupported(breaks.AttributeAccess(value.describe(), name))
    try:
        held = found.__get__(real)
    except Exception:  # raised natively again, as by a released memoryview
        raise Unsupported(breaks.AttributeAccess(value.describe(), name)) from None
    return tx.wrap(held, own_attr_source(value, name))


def own_attr_source(value: Value, name: str) -> Source | None:
    """Where object.__getattribute__ finds `name`: neither guards nor rewritten code may call that
    of the program.
    """
    if value.source is None:
        return None
    if reads_by_function(value.python_type()):
        return CallSource(value.source, plain_reader(name), f"own attribute {name!r} of ")
    return AttrSource(value.source, name)


@functools.cache
def plain_reader(name: str) -> Callable[[Any], Any]:
    return lambda obj: object.__getattribute__(obj, name)


# The fields of C containers besides their items.
_CONTAINER_FIELDS = frozenset(
    [collections.deque.maxlen, vars(collections.defaultdict)["default_factory"]]
)


def _storage_part(tx: Interpreter, value: Any, found: Any, name: str) -> Value | None:
    """An attribute of the literal (complex.real) or container in an instance of a subclass."""
    storage = getattr(value, "storage", None)
    if storage is None:
        return None
    if found in _CONTAINER_FIELDS:
        return storage.getattr(tx, name)
    if not storage.is_constant():
        return None
    literal = storage.as_constant()
    return tx.wrap(found.__get__(literal)) if isinstance(literal, found.__objclass__) else None


_ANY_FIELD = vars(collections.namedtuple("_ANY_FIELD", "field"))["field"]


def _bind_field(tx: Interpreter, value: Any, found: Any, name: str) -> Value:
    """A field of a subclass of a named tuple."""
    return value.storage.getitem(tx, ConstantValue(found.__reduce__()[1][0]))


def _bind_slot(tx: Interpreter, value: Value, found: Any, name: str) -> Value:
    of_methods = types.MethodDescriptorType | types.WrapperDescriptorType
    if isinstance(found, of_methods) and not issubclass(value.python_type(), found.__objclass__):
        raise Unsupported(breaks.AttributeAccess(value.describe(), name))
    return tx.builtin_method(value, name, found)


def _bind_class_slot(tx: Interpreter, value: Value, found: Any, name: str) -> Value:
    """A class method of a C type."""
    owner = class_value(tx, value.python_type(), value.source)
    return _bind_slot(tx, owner, found, name)


def _bind_cached_property(tx: Interpreter, value: Value, found: Any, name: str) -> Value:
    source = raw_class_source(tx, value, value.python_type(), name)
    if source is not None:
        source = AttrSource(source, "func")
    kept = ReturnContinuation(keep_attribute, [value, ConstantValue(found.attrname)])
    result = tx.call_at_end(value, name, tx.wrap(found.func, source), [value], instead=kept)
    tx.output.side_effects.store_attr(value, found.attrname, result)
    return result


def _bind_partial_method(tx: Interpreter, value: Value, found: Any, name: str) -> Value:
    source = raw_class_source(tx, value, value.python_type(), name)
    if not isinstance(found.func, types.FunctionType):
        raise Unsupported(breaks.AttributeAccess(value.describe(), name))

    inner = None if source is None else AttrSource(source, "func")
    method = MethodValue(tx.wrap(found.func, inner), value)
    return late_bound.partial_method(tx, method, found, source)


def _binders() -> dict[type, Callable[..., Value]]:
    import functools

    return {
        types.FunctionType: _bind_function,
        property: _bind_property,
        staticmethod: _bind_static,
        classmethod: _bind_class,
        types.MemberDescriptorType: _bind_slot_member,
        types.GetSetDescriptorType: _bind_getset,
        type(_ANY_FIELD): _bind_field,
        functools.cached_property: _bind_cached_property,
        functools.partialmethod: _bind_partial_method,
        functools._lru_cache_wrapper: _bind_function,
        types.ClassMethodDescriptorType: _bind_class_slot,
        **dict.fromkeys(SLOT_TYPES, _bind_slot),
        **dict.fromkeys(_HOOKED, _bind_hooked),
    }


_BINDERS = _binders()
