"""Classes that the captured code makes.

The body of the class statement is captured like a function. While capturing, the class exists: a
real class with real functions in it, so that lookups and instances work as for any class. Each
object in it stands for a Value (OutputGraph.values_by_id leads back), and its functions are
captured when they are called. The rewritten frame makes a class of its own in each call, from the
same Values.
"""

from __future__ import annotations

import abc
import builtins
import collections
import dataclasses
import functools
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.values.base import Value, is_none
from dynamo.values.builtins.table import handles, real_kind
from dynamo.values.classes.classes import ClassValue
from dynamo.values.classes.lookup import type_holds
from dynamo.values.containers.containers import ListValue, TupleValue
from dynamo.values.containers.dicts import DictValue
from dynamo.values.functions.cell import CellValue
from dynamo.values.functions.function import NestedFunctionValue
from dynamo.values.objects.descriptors import class_told, is_trusted_class
from dynamo.values.objects.exceptions import call_real
from dynamo.values.objects.objects import ObjectValue
from dynamo.values.recipes import DICT, TUPLE, Existing, Made, Named, Part, Recipe, exact
from dynamo.values.scalars.constant import ConstantValue

if TYPE_CHECKING:
    from dynamo.framestate.materialise import Codegen
    from dynamo.interp.interpreter import Interpreter

# Metaclasses that make a class of a namespace, and do nothing else that the program can see.
_METACLASSES = (type, abc.ABCMeta, type(torch.autograd.Function))
# How a named tuple's class holds a field.
_FIELD: type = vars(collections)["_tuplegetter"]


class NewClassValue(ClassValue):
    """A class that the frame makes. `cls` exists only while capturing."""

    is_weakly_held = True  # by its bases, which know their subclasses

    def __init__(self, cls: type, made_by: Recipe, parts: Sequence[Value]) -> None:
        super().__init__(cls)
        self.made_by = made_by
        self.parts = parts
        self.steps: list[tuple[Any, dict[str, Any]]] = []  # decorators, with keyword arguments

    def children(self) -> Sequence[Value]:
        return self.parts

    def _class_attr(self, tx: Interpreter, name: str, found: Any) -> Value:
        if isinstance(found, _FIELD):  # the frame's class will have another, which can be changed
            raise Unsupported(breaks.AttributeAccess(self.describe(), name))
        return super()._class_attr(tx, name, found)

    # The results would hold the class of ours.
    def getitem(self, tx: Interpreter, key: Value) -> Value:
        raise Unsupported(breaks.ItemAccess(self.describe()))

    def binary(self, tx: Interpreter, op: str, other: Value, reflected: bool) -> Value | None:
        raise Unsupported(breaks.NotConstant(self.describe()))

    def recipe(self) -> Recipe:
        if not self.steps:
            return self.made_by
        make, parts = self.made_by
        return decorated, [Made(make, *parts), exact(tuple(self.steps))]


def decorated(cls: Any, steps: Sequence[tuple[Any, dict[str, Any]]]) -> Any:
    for function, kwargs in steps:
        cls = function(cls, **kwargs)
    return cls


def make_class(
    abstract: tuple[Any, ...],
    metaclass: Any,
    name: str,
    bases: tuple,
    namespace: dict[str, Any],
    kwargs: dict[str, Any],
) -> Any:
    """metaclass(name, bases, namespace, **kwargs); `abstract`: functions to be marked before."""
    for function in abstract:
        abc.abstractmethod(function)
    return metaclass(name, bases, namespace, **kwargs)


def _new_class(
    tx: Interpreter, cls: type, made_by: Recipe, parts: Sequence[Value]
) -> NewClassValue:
    value = NewClassValue(cls, made_by, parts)
    tx.output.side_effects.track_new(value)
    tx.output.remember(cls, None, value)
    tx.output.guards.assume_class(cls).made_by_frame = True
    tx.output.side_effects.made_classes[id(cls)] = value
    return value


# -- the statement --------------------------------------------------------------------------------
@handles(builtins.__build_class__)
def _build_class(tx, body, name, *bases, metaclass=None, **kwargs):
    label = name.as_constant()
    real_bases = tuple(_known(label, base) for base in bases)
    given = type if metaclass is None else _known(label, metaclass)
    resolved, meta = _resolve(label, real_bases, given)
    if not isinstance(body, NestedFunctionValue):
        raise _refused(label, "its body is not known")
    namespace = tx.run_class_body(body)
    cell = namespace.pop("__classcell__", None)
    qualified = namespace.get("__qualname__")
    if not (cell is None or isinstance(cell, CellValue)):
        raise _refused(label, "__classcell__ is not a cell")
    if qualified is not None and not qualified.python_type_is(str):
        raise _refused(label, "its qualified name is not a text")
    if resolved is not real_bases:
        namespace["__orig_bases__"] = TupleValue(list(bases))
    constants = {key: value.as_constant() for key, value in kwargs.items()}
    made = from_namespace(tx, meta, label, resolved, namespace, constants)
    if isinstance(cell, CellValue):
        cell.store(tx, made)
    return made


def _known(label: str, value: Value) -> Any:
    known, real = value.identity()
    if not known:
        raise _refused(label, f"{value.describe()} is not known while capturing")
    return real


def _refused(label: str, why: str) -> Unsupported:
    return Unsupported(breaks.ClassStatement(label, why))


def _resolve(label: str, bases: tuple, given: Any) -> tuple[tuple, type]:
    """The bases as classes, and the metaclass."""
    for base in bases:
        outside = not isinstance(base, type) and not is_trusted_class(type(base))
        if outside and not isinstance(base, types.GenericAlias):
            raise _refused(label, f"its base {base!r} is not a class")
    try:
        resolved = types.resolve_bases(bases)
    except TypeError as error:  # of a base that refuses: raised where the statement runs
        raise _refused(label, str(error)) from None
    if not all(isinstance(base, type) for base in resolved):
        raise _refused(label, "one of its bases is not a class")
    if not isinstance(given, type):  # a function, with any result
        raise _refused(label, f"its metaclass {given!r} is not a class")
    meta = given
    for base in resolved:
        if issubclass(type(base), meta):
            meta = type(base)
    if meta not in _METACLASSES:
        raise _refused(label, f"its metaclass {meta.__name__} is not looked into")
    for cls in (cls for base in resolved for cls in base.__mro__):
        if "__init_subclass__" in vars(cls) and not is_trusted_class(cls):
            raise _refused(label, f"{cls.__name__} defines __init_subclass__")
    return resolved, meta


def from_namespace(
    tx: Interpreter,
    meta: type,
    label: str,
    bases: tuple[type, ...],
    namespace: dict[str, Value],
    kwargs: dict[str, Any],
) -> NewClassValue:
    """meta(label, bases, namespace, **kwargs), for one of _METACLASSES."""
    if not all(type(key) is str for key in namespace):
        raise _refused(label, "it has a name that compares itself")
    for key, value in namespace.items():
        if _has_set_name(value):
            raise _refused(label, f"the class of {key!r} defines __set_name__")
        if issubclass(meta, abc.ABCMeta) and not _says_if_abstract(tx, value):
            raise _refused(label, f"{key!r} may be an abstract method")
    real = {key: real_of(tx, label, value) for key, value in namespace.items()}
    cls = call_real(tx, meta, label, bases, real, **kwargs)
    base_values = [tx.wrap(base) for base in bases]

    names = [part for key, value in namespace.items() for part in (exact(key), value)]
    made_by = (
        make_class,
        [
            AbstractFunctions(tx, list(namespace.values())),
            Made(Existing(meta, meta.__name__)),
            exact(label),
            Made(TUPLE, *base_values),
            Made(DICT, *names),
            exact(kwargs),
        ],
    )
    return _new_class(tx, cls, made_by, [*base_values, *namespace.values()])


class AbstractFunctions(Part):
    """A tuple of the functions marked by abc.abstractmethod: ABCMeta looks at the mark."""

    def __init__(self, tx: Interpreter, values: Sequence[Value]) -> None:
        self.tx = tx
        self.values = values

    def push(self, codegen: Codegen) -> None:
        parts = [
            p for v in self.values for p in (v.args if isinstance(v, DescriptorValue) else [v])
        ]
        codegen.make(TUPLE, [p for p in parts if _is_true(_abstract_mark(self.tx, p))])


def _is_true(value: Value | None) -> bool:
    return value is not None and value.is_constant() and value.as_constant() is True


def _abstract_mark(tx: Interpreter, value: Value) -> Value | None:
    """The `__isabstractmethod__` that the captured code stored in a function."""
    stored = tx.output.side_effects.stored_attrs(value).get("__isabstractmethod__")
    return stored if isinstance(stored, Value) else None


def _says_if_abstract(tx: Interpreter, value: Value) -> bool:
    """Whether ABCMeta finds the same in the dummy for `value` as in `value`."""
    parts = value.args if isinstance(value, DescriptorValue) else [value]
    marks = [mark for part in parts if (mark := _abstract_mark(tx, part)) is not None]
    if not all(mark.python_type_is(bool) for mark in marks):
        return False
    return not isinstance(value, ObjectValue) or not value.hasattr(tx, "__isabstractmethod__")


def _has_set_name(value: Value) -> bool:
    if isinstance(value, (DescriptorValue, NestedFunctionValue)) or value.is_constant():
        return False
    if isinstance(value, FieldValue):  # which passes it on
        default = value.kwargs.get("default")
        return default is not None and _has_set_name(default)
    return hasattr(value.python_type(), "__set_name__")


# -- Values as real objects -----------------------------------------------------------------------
class DummyAttribute:
    """The stand-in, while capturing, for a class attribute that is known as a Value alone."""


class UnhashableDummyAttribute(DummyAttribute):
    """dataclasses.dataclass asks whether a default can be hashed."""

    __hash__ = None  # type: ignore[assignment]


def real_of(tx: Interpreter, label: str, value: Value) -> Any:
    """An object to be found in the class `label`, which leads back to `value`."""
    for obj, known in tx.output.values_by_id.values():
        if known is value:
            return obj
    is_known, real = value.identity()
    if is_known:
        return real
    if isinstance(value, TupleValue) and value.python_type() is tuple:
        return tuple(real_of(tx, label, item) for item in value.unpack(tx))
    if isinstance(value, NestedFunctionValue):
        real = _real_function(tx, label, value)
    elif isinstance(value, DescriptorValue):
        real = value.kind(*(real_of(tx, label, arg) for arg in value.args))
    elif isinstance(value, CellValue):
        real = types.CellType()
    elif isinstance(value, ListValue) and value.python_type() is list:
        real = [real_of(tx, label, item) for item in value.unpack(tx)]
    elif isinstance(value, DictValue) and value.python_type() is dict:
        keys = value.iterate(tx).unpack(tx)
        real = {k.as_constant(): real_of(tx, label, value.getitem(tx, k)) for k in keys}
    elif isinstance(value, FieldValue):
        real = dataclasses.field(**{k: real_of(tx, label, v) for k, v in value.kwargs.items()})
    else:
        real = _dummy(label, value)
    tx.output.remember(real, None, value)
    return real


def _dummy(label: str, value: Value) -> Any:
    kind = value.python_type()
    if any(type_holds(kind, name) for name in ("__get__", "__set__", "__delete__")):
        raise _refused(label, f"{value.describe()} is a descriptor")
    return UnhashableDummyAttribute() if kind.__hash__ is None else DummyAttribute()


def _real_function(tx: Interpreter, label: str, value: NestedFunctionValue) -> Any:
    count = value.default_count(tx)
    defaults = tuple(real_of(tx, label, value.default(tx, i)) for i in range(count))
    cells = tuple(real_of(tx, label, cell) for cell in value.closure(tx))
    code = value.code
    function = types.FunctionType(code, value.globals, code.co_name, defaults or None, cells)
    function.__qualname__ = value.name
    if value.keyword_defaults is not None:
        function.__kwdefaults__ = real_of(tx, label, value.keyword_defaults)
    for name, held in tx.output.side_effects.stored_attrs(value).items():
        if isinstance(held, Value):
            setattr(function, name, real_of(tx, label, held))
    return function


# -- descriptors ----------------------------------------------------------------------------------
class DescriptorValue(Value):
    """A property, static method, ... that the frame makes: kind(*args)."""

    def __init__(self, kind: Any, args: Sequence[Value]) -> None:
        super().__init__()
        self.kind = kind
        self.args = list(args)

    def python_type(self) -> type:
        return self.kind

    def forwards(
        self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> tuple[Value, Sequence[Value], dict[str, Value]] | None:
        return (self.args[0], args, kwargs) if self.kind is staticmethod else None

    def getattr(self, tx: Interpreter, name: str) -> Value:
        if self.kind is property and name in _PROPERTY_PARTS:
            return PropertyChange(self, _PROPERTY_PARTS[name])
        if self.kind in (staticmethod, classmethod) and name in ("__func__", "__wrapped__"):
            return self.args[0]
        return super().getattr(tx, name)

    def hasattr(self, tx: Interpreter, name: str) -> bool:
        if self.kind is property and name == "__name__":  # which is its getter's, if that has one
            raise Unsupported(breaks.AttributeAccess(self.describe(), name))
        return super().hasattr(tx, name)

    def recipe(self) -> Recipe:
        return self.kind, [NamedFirst(arg) for arg in self.args]


class NamedFirst(Part):
    """A function that has its stored name and text already: descriptors copy these when they are
    made, before the function's attributes are replayed.
    """

    def __init__(self, function: Value) -> None:
        self.function = function

    def operands(self) -> Sequence[Value]:
        return [self.function]

    def push(self, codegen: Codegen) -> None:
        stored = codegen.output.side_effects.stored_attrs(self.function)
        early = {
            name: value
            for name in functools.WRAPPER_ASSIGNMENTS
            if isinstance(value := stored.get(name), Value) and value.is_constant()
        }
        codegen(self.function)
        for name, value in early.items():
            codegen.copy(1)
            codegen(value)
            codegen.swap(2)
            codegen.store_attr(name)


_PROPERTY_PARTS = {"getter": 0, "setter": 1, "deleter": 2}


class PropertyChange(Value):
    """property.setter and its like, not yet called."""

    def __init__(self, owner: DescriptorValue, index: int) -> None:
        super().__init__()
        self.owner = owner
        self.index = index

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        parts = [*self.owner.args, *[ConstantValue(None)] * 4][:4]
        if not is_none(args[0]):
            parts[self.index] = args[0]
        # A text of the property's own stays; else it is the getter's.
        return DescriptorValue(property, parts[:3] if is_none(parts[3]) else parts)


class FieldValue(Value):
    """dataclasses.field(**kwargs) in a class body."""

    def __init__(self, kwargs: dict[str, Value]) -> None:
        super().__init__()
        self.kwargs = kwargs

    def python_type(self) -> type:
        return dataclasses.Field

    def recipe(self) -> Recipe:
        return Named(dataclasses.field, self.kwargs), list(self.kwargs.values())


@handles(dataclasses.field)
def _field(tx, **kwargs):
    given = set(kwargs)
    call_real(tx, dataclasses.field, **dict.fromkeys(given))  # raises where they do not fit
    if "metadata" in given:  # the field shows the mapping as it becomes
        raise Unsupported(breaks.UncapturedCall("dataclasses.field"))
    return FieldValue(kwargs)


def _descriptor(kind: Any) -> None:
    @handles(kind)
    def make(tx, *args):
        call_real(tx, kind, *[None for _ in args])
        return DescriptorValue(kind, args)


for _kind in (property, staticmethod, classmethod, functools.cached_property):
    _descriptor(_kind)


# -- other ways to make a class -------------------------------------------------------------------
def build_type(tx: Interpreter, name: Value, bases: Value, namespace: Value) -> Value:
    """type(name, bases, namespace)"""
    label = name.as_constant()
    plain = bases.python_type_is(tuple) and isinstance(namespace, DictValue)
    if type(label) is not str or not plain:
        raise Unsupported(breaks.UncapturedCall("type()"))
    real_bases = tuple(_known(label, base) for base in bases.unpack(tx))
    resolved, meta = _resolve(label, real_bases, type)
    keys = namespace.iterate(tx).unpack(tx)
    held = {key.as_constant(): namespace.getitem(tx, key) for key in keys}
    held.setdefault("__module__", ConstantValue(tx.f_globals.get("__name__")))
    return from_namespace(tx, meta, label, resolved, held, {})


@handles(collections.namedtuple)
def _namedtuple(tx, *args, **kwargs):
    constants = [arg.as_constant() for arg in args]
    named = {key: value.as_constant() for key, value in kwargs.items()}
    named.setdefault("module", tx.f_globals.get("__name__"))
    cls = call_real(tx, collections.namedtuple, *constants, **named)

    call = exact((collections.namedtuple, tuple(constants), named))
    return _new_class(tx, cls, (call_with, [call]), ())


def call_with(call: tuple[Any, tuple, dict[str, Any]]) -> Any:
    function, args, kwargs = call
    return function(*args, **kwargs)


class DecoratorValue(Value):
    """dataclass(frozen=True): a decorator of classes, with its arguments."""

    def __init__(self, function: Any, kwargs: dict[str, Any]) -> None:
        super().__init__()
        self.function = function
        self.kwargs = kwargs

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        return _decorate(tx, self.function, args[0], self.kwargs)


def _decorate(tx: Interpreter, function: Any, cls: Value, kwargs: dict[str, Any]) -> Value:
    """function(cls, **kwargs), which changes a class that the frame makes, or makes another."""
    if not isinstance(cls, NewClassValue) or cls.mutation.attrs:
        raise Unsupported(breaks.UncapturedCall(function.__qualname__))
    try:
        real = function(cls.cls, **kwargs)
    except Exception:  # whose words would be about the class of ours
        raise Unsupported(breaks.UncapturedCall(function.__qualname__)) from None
    tx.output.side_effects.touch()
    if real is cls.cls:
        cls.steps.append((function, kwargs))
        return cls
    return _new_class(tx, real, (decorated, [cls, exact(((function, kwargs),))]), (cls,))


@handles(dataclasses.dataclass)
def _dataclass(tx, cls=None, **kwargs):
    constants = {key: value.as_constant() for key, value in kwargs.items()}
    if cls is None or is_none(cls):
        return DecoratorValue(dataclasses.dataclass, constants)
    return _decorate(tx, dataclasses.dataclass, cls, constants)


@handles(type)
def _type(tx, owner, *rest, **kwargs):
    if rest:
        if kwargs or len(rest) != 2:
            raise Unsupported(breaks.UncapturedCall("type()"))
        return build_type(tx, owner, *rest)
    if kwargs:
        raise Unsupported(breaks.UncapturedCall("type()"))
    return class_told(tx, owner, real_kind(owner))
