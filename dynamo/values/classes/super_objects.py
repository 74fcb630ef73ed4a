"""super() as a value."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.sources import AttrSource, CallSource, Source
from dynamo.polyfills import builtins as builtin_polyfills
from dynamo.values.base import Value, is_none
from dynamo.values.builder import builder
from dynamo.values.builtins.table import BuiltinMethod, SlotValue, handles, real_object
from dynamo.values.classes.classes import ClassValue, class_by_name
from dynamo.values.classes.lookup import MISSING, class_lookup, is_native, type_holds
from dynamo.values.dummy_operands import fail_as
from dynamo.values.functions.function import MethodValue
from dynamo.values.objects.descriptors import (
    SLOT_TYPES,
    assume_lookup,
    bind,
    bind_to_class,
    class_value,
    is_trusted_class,
    raw_class_source,
)
from dynamo.values.objects.exceptions import can_read, raise_python
from dynamo.values.objects.objects import ClassOf
from dynamo.values.objects.reflection import C_DESCRIPTORS, no_attribute
from dynamo.values.recipes import Attribute, Recipe
from dynamo.values.scalars.constant import ConstantValue

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter


class SuperValue(Value):
    """super(cls, obj)."""

    calls_getters_last = True

    def __init__(self, after: type, receiver: Value) -> None:
        super().__init__()
        self.after = after
        self.receiver = receiver

    def python_type(self) -> type:
        return super

    def getattr(self, tx: Interpreter, name: str) -> Value:
        if name == "__class__":  # of the super object itself
            return tx.wrap(super)
        receiver = self.receiver
        start, on_class = self._start()
        found = self._found(tx, start, name)
        if found is MISSING:
            return self._own(tx, name)
        if name == "__new__" and isinstance(found, staticmethod):
            return tx.wrap(found.__func__)
        if isinstance(found, SLOT_TYPES) and isinstance(receiver, ClassValue) and not on_class:
            return BuiltinMethod(receiver, name, found)
        if isinstance(found, types.FunctionType):
            function = tx.wrap(found, self._source(tx, start, name, found))
            if on_class:
                return function

            return MethodValue(function, receiver)
        if name == "__new__":
            return SlotValue(found, start)
        is_slot = isinstance(receiver, ClassValue) and type(found) in _SLOT_DESCRIPTORS
        if is_slot or (on_class and isinstance(found, C_DESCRIPTORS)):
            raise Unsupported(breaks.AttributeAccess(self.describe(), name))
        if hasattr(receiver, "getattr_inherited") and _is_data_of_tensor(name, found):
            return receiver.getattr_inherited(tx, name)
        if isinstance(found, SLOT_TYPES) or type(found) in _SLOT_DESCRIPTORS:
            return bind(tx, receiver, found, name)
        return self._bound(tx, name, found, self._source(tx, start, name, found), on_class)

    def _own(self, tx: Interpreter, name: str) -> Value:
        """An attribute of the super object itself."""
        own = {"__self__": self.receiver, "__thisclass__": tx.wrap(self.after)}
        if name in own:
            return own[name]
        if type_holds(super, name):
            raise Unsupported(breaks.AttributeAccess(self.describe(), name))
        no_attribute(tx, super, name)

    def _bound(
        self, tx: Interpreter, name: str, found: Any, source: Source | None, on_class: bool
    ) -> Value:
        """found.__get__(receiver); `source` leads to `found` in the class."""

        def part(attr: str) -> Source | None:
            return None if source is None else AttrSource(source, attr)

        receiver = self.receiver
        owner = receiver if on_class else class_value(tx, receiver.python_type(), receiver.source)
        if is_native(found, staticmethod):
            return tx.wrap(found.__func__, part("__func__"))
        if is_native(found, classmethod):
            return bind_to_class(tx, found, owner, part("__func__"))
        if is_native(found, property):
            if on_class:
                return tx.wrap(found, source)
            return tx.call_at_end(self, name, tx.wrap(found.fget, part("fget")), [receiver])
        if isinstance(found, types.ClassMethodDescriptorType):
            return BuiltinMethod(owner, found.__name__, found)
        getter = class_lookup(type(found), "__get__")
        if getter is MISSING or isinstance(found, type):
            return tx.wrap(found, source)
        if not isinstance(getter, types.FunctionType):
            raise Unsupported(breaks.AttributeAccess(self.describe(), type(found).__name__))
        instance = ConstantValue(None) if on_class else receiver
        args = [tx.wrap(found, source), instance, owner]
        return tx.call_at_end(self, name, tx.wrap(getter), args)

    def _start(self) -> tuple[type, bool]:
        """The class whose MRO is searched, and whether the receiver is that class itself."""
        receiver = self.receiver
        if isinstance(receiver, ClassValue) and self.after in receiver.cls.__mro__:
            return receiver.cls, True
        return receiver.python_type(), False

    def _found(self, tx: Interpreter, start: type, name: str) -> Any:
        behind = _behind(start, self.after)
        owner = next((owner for owner in behind if name in vars(owner)), None)
        stores = tx.output.side_effects.class_stores
        if stores and any((id(one), name) in stores for one in behind):
            raise Unsupported(breaks.AttributeAccess(self.describe(), name))
        if owner is not None:
            return class_lookup(owner, name)
        for owner in behind:
            assume_lookup(tx, owner, name, MISSING)
        return MISSING

    def _source(self, tx: Interpreter, start: type, name: str, found: Any) -> Source | None:
        """The function, through the class that defines it: by name, or by the receiver's MRO."""
        behind = _behind(start, self.after)
        owner = next((c for c in behind if c.__dict__.get(name) is found), None)
        if owner is None:
            return None
        if all(map(is_trusted_class, behind[: behind.index(owner) + 1])):
            source = class_by_name(owner)
            return None if source is None else AttrSource(source, name)
        return raw_class_source(tx, self.receiver, start, name, self.after)

    def hasattr(self, tx: Interpreter, name: str) -> bool:
        start = self._start()[0]
        found = self._found(tx, start, name)
        for owner in _behind(start, self.after):
            tx.output.guards.assume_class(owner).assume(name, class_lookup(owner, name))
        if not hasattr(type(found), "__set__"):
            return found is not MISSING or type_holds(super, name)
        return can_read(tx, self, name)

    def recipe(self) -> Recipe:
        return super, [ClassOf(self.after), self.receiver]


class UnboundSuper(Value):
    """super(cls), which programs initialise: `super(Dataset).__init__()` makes it the super() of
    the calling frame, and does nothing to the frame's object.
    """

    def __init__(self, after: type) -> None:
        super().__init__()
        self.parts: list[Any] = [ClassOf(after)]

    def python_type(self) -> type:
        return super

    def describe(self) -> str:
        return "super() of a class alone"

    def getattr(self, tx: Interpreter, name: str) -> Value:
        if len(self.parts) == 2:
            return SuperValue(real_object(self.parts[0]), self.parts[1]).getattr(tx, name)
        if name == "__init__":
            return SuperInitialiser(self)
        raise Unsupported(breaks.AttributeAccess(self.describe(), name))

    def recipe(self) -> Recipe:
        return super, self.parts


class SuperInitialiser(Value):
    """super(cls).__init__."""

    def __init__(self, owner: UnboundSuper) -> None:
        super().__init__()
        self.owner = owner

    def describe(self) -> str:
        return f"{self.owner.describe()}, __init__"

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        if args or kwargs:
            raise Unsupported(breaks.UncapturedCall(self.describe()))
        cls, receiver = _super_arguments(tx)
        _check_super(tx, real_object(cls), receiver)
        self.owner.parts = [cls, receiver]
        return ConstantValue(None)

    def recipe(self) -> Recipe:
        return Attribute("__init__"), [self.owner]


def _behind(start: type, after: type) -> tuple[type, ...]:
    """The part of an MRO in which super(after, ...) looks."""
    return start.__mro__[start.__mro__.index(after) + 1 :]


def _is_data_of_tensor(name: str, found: Any) -> bool:
    """Whether the attribute is torch.Tensor's own, no method."""
    is_data = isinstance(found, (property, types.GetSetDescriptorType))
    return is_data and found is class_lookup(torch.Tensor, name)


_SLOT_DESCRIPTORS = (types.MemberDescriptorType, types.GetSetDescriptorType)
_NAMES = ("__thisclass__", "__self__", "__self_class__")
_PARTS = {name: vars(super)[name].__get__ for name in _NAMES}


@builder(super)
def build_super(tx: Interpreter, obj: super, source: Source | None) -> Value:
    """super() from outside. Its class, its object and the class of that are read past the classes
    that it searches.
    """
    after, held, start = (part(obj) for part in _PARTS.values())
    if held is None or (start is not held and start is not type(held)):
        raise Unsupported(breaks.UnknownObject("super"))
    sources = [
        None if source is None else CallSource(source, part, f"{name} of ")
        for name, part in _PARTS.items()
    ]
    tx.guard(source, "type", super)
    tx.guard(sources[0], "id", after)
    value = SuperValue(after, tx.wrap(held, sources[1]))
    value.source = source
    return tx.output.remember(obj, source, value)


@handles(builtin_polyfills.inherits)
def _inherits(tx: Interpreter, kind: Value, cls: Value) -> Value:
    (kind_is_known, real_kind), (is_known, real) = kind.identity(), cls.identity()
    if not (is_known and kind_is_known):
        raise Unsupported(breaks.NotConstant(kind.describe()))
    return ConstantValue(real in real_kind.__mro__)


@handles(super)
def _super(tx, cls=None, owner=None):
    if cls is None:
        cls, owner = _super_arguments(tx)
    if owner is not None and is_none(owner):  # as good as no object at all
        raise Unsupported(breaks.UncapturedCall("super(cls, None)"))
    after = real_object(cls)
    if not isinstance(after, type):
        fail_as(tx, super, cls)
    if owner is None:
        return UnboundSuper(after)
    _check_super(tx, after, owner)
    return SuperValue(after, owner)


def _check_super(tx: Interpreter, after: type, owner: Value) -> None:
    """The object has to be an instance of the class, or a subclass."""
    kind = owner.python_type()
    if after in kind.__mro__ or (isinstance(owner, ClassValue) and after in owner.cls.__mro__):
        return
    if hasattr(owner, "storage"):  # it may claim to be of another class
        raise Unsupported(breaks.UncapturedCall("super"))
    fail_as(tx, lambda value: super(after, value), owner)


def _super_arguments(tx: Interpreter) -> tuple[Value, Any]:
    """The arguments that super() without arguments takes from its frame."""
    if not tx.code.co_argcount:
        raise_python(tx, RuntimeError, "super(): no arguments")
    name = tx.code.co_varnames[0]
    unset = name not in tx.locals and name not in tx.cells
    owner = None if unset else first_argument(tx, name)
    if owner is None:
        raise_python(tx, RuntimeError, "super(): arg[0] deleted")
    cell = tx.cells.get("__class__")
    if cell is None:
        raise_python(tx, RuntimeError, "super(): __class__ cell not found")
    cls = cell.load(tx)
    if cls is None:
        raise_python(tx, RuntimeError, "super(): empty __class__ cell")
    if not isinstance(found := real_object(cls), type):
        name = type(found).__name__
        raise_python(tx, RuntimeError, f"super(): __class__ is not a type ({name})")
    return cls, owner


def first_argument(tx: Interpreter, name: str) -> Any:
    """The first argument of the running frame, which may live in a cell."""
    if name in tx.cells:
        return tx.cells[name].load(tx)
    value = tx.locals[name]
    if isinstance(value, Value):
        return value
    value = tx.locals[name] = value.realize(tx)
    return value
