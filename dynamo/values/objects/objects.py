"""Instances of user classes, with Python's attribute protocol: type lookup, data descriptors,
instance dict, __getattr__.

Special methods are looked up on the type, and captured like any Python function. What a built-in
base class stores (the items of a dict subclass, of a list subclass) is in `storage`, a plain
container Value.
"""

from __future__ import annotations

import operator
import sys
import types
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.sources import (
    AttrSource,
    DictItemSource,
    InstanceDictSource,
    Source,
)
from dynamo.values import late_bound
from dynamo.values.base import Value
from dynamo.values.builder import fallback_builder
from dynamo.values.classes.builtin_bases import builtin_base, keeps_methods
from dynamo.values.containers.hash_keys import (
    EqualityKey,
    hash_of,
    key_of,
    unhashable,
    without_effects,
)
from dynamo.values.dummy_operands import fail_as
from dynamo.values.effects.side_effects import DELETED
from dynamo.values.iterators.real_iterators import REAL, RealIterator
from dynamo.values.iterators.stored_iterators import ItemProtocolIterator
from dynamo.values.objects.descriptors import (
    MISSING,
    SLOT_TYPES,
    bind,
    class_attr,
    class_attr_source,
    class_lookup,
    deleter_only,
    guarded_lookup,
    is_data_descriptor,
    is_native,
    is_slot,
    is_trusted_class,
    own_attr_source,
    reads_by_function,
    refuse_property,
)
from dynamo.values.objects.exceptions import (
    RaisedException,
    call_real,
    can_read,
    is_exception,
    raise_python,
)
from dynamo.values.objects.identity_numbers import TokenValue
from dynamo.values.objects.reflection import no_attribute, note_holder, shared_dict, take_dict
from dynamo.values.recipes import (
    DELETE_ITEM,
    STORE_ITEM,
    Made,
    Part,
    Recipe,
    attribute_stores,
    exact,
    stores,
)
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.scalars.operators import (
    COMPARE_DUNDERS,
    UNARY_DUNDERS,
    as_index,
    binary_dunder,
    binary_op,
    compare_op,
    equal,
)

if TYPE_CHECKING:
    from dynamo.framestate.materialise import Codegen
    from dynamo.interp.interpreter import Interpreter
    from dynamo.values.containers.dicts import DictValue


_MANAGED_DICT = 1 << 4
_CONTAINERS = (dict, list, tuple, set, frozenset, str, bytes, int, float, BaseException)


def _has_dict(cls: type) -> bool:
    """Asking an object of C code for its dict makes one, which functools.partial notices."""
    return bool(cls.__flags__ & _MANAGED_DICT) or issubclass(cls, _CONTAINERS)


class ObjectValue(Value):
    """An instance. `real`: the object, if from outside; None: the frame makes it."""

    is_made_bare = True
    is_guarded_distinct = True
    frames: tuple = ()  # of an exception: where it was raised, see ExceptionValue

    def __init__(
        self,
        cls: type,
        source: Source | None = None,
        real: Any = None,
        storage: Value | None = None,
    ) -> None:
        super().__init__(source)
        self.cls = cls
        self.real = real
        self.storage = storage
        self.new_args: Sequence[Value] = ()  # for __new__ of an object that the frame makes

    def python_type(self) -> type:
        return self.cls

    def identity(self) -> tuple[bool, Any]:
        return (True, self.real) if self.real is not None else (False, None)

    def describe(self) -> str:
        where = f" {self.source.name}" if self.source is not None else ""
        return f"{self.cls.__name__} object{where}"

    def link_context(self, tx: Interpreter, handled: Value | None) -> None:
        """Refuse to raise an exception from outside whose context would change."""
        if handled is not None and handled is not self:
            raise Unsupported(breaks.AttributeMutation(self.describe(), "__context__"))

    def hashes_objects(self) -> bool:
        return self.storage is not None and self.storage.hashes_objects()

    def _is_hashed_early(self) -> bool:
        """Whether methods that hash keys may run before these are filled: where the object is made
        with its items, or another container hashes this one.
        """
        own = isinstance(class_lookup(self.cls, "__hash__"), types.FunctionType)
        return own or self.storage is None or not self.storage.can_be_bare

    def children(self) -> Sequence[Value]:
        storage = () if self.storage is None else (self.storage,)
        return (*storage, *self.new_args)

    def unwrapped_objects(self) -> Iterable[Any]:
        stored = {} if self.mutation is None else self.mutation.attrs
        own = (self.instance_dict() or {}) if _has_dict(self.cls) else {}
        attributes = [obj for name, obj in own.items() if name not in stored]
        return (
            attributes if self.storage is None else [*attributes, *self.storage.unwrapped_objects()]
        )

    def as_proxy(self) -> Any:
        if self.storage is not None:
            return self.storage.as_proxy()
        return super().as_proxy()

    def as_constant(self) -> Any:
        """The literal that C code sees in an instance of a subclass, if the subclass keeps the
        literal's methods.
        """
        if isinstance(self.storage, ConstantValue) and keeps_methods(self.cls):
            return self.storage.as_constant()
        return super().as_constant()

    # -- attributes -----------------------------------------------------------------------------
    def getattr(self, tx: Interpreter, name: str) -> Value:
        if self._overrides(tx, "__getattribute__"):
            return self._or_fallback(
                tx, name, lambda: self.special(tx, "__getattribute__", ConstantValue(name))
            )
        return self.getattr_or_fallback(tx, name)

    def _overrides(self, tx: Interpreter, name: str) -> bool:
        """A Python class has a method of its own for access to attributes."""
        found = guarded_lookup(tx, self, name)  # which keeps the class
        if isinstance(found, types.FunctionType):
            return True
        key = id(self.cls), name, id(found)
        known = tx.output.overridden.get(key)
        if known is None:
            owner = next(cls for cls in self.cls.__mro__ if name in vars(cls))
            known = builtin_base(owner) is not owner and found is not getattr(object, name)
            if not tx.output.side_effects.class_stores:
                tx.output.overridden[key] = known
        return known

    def getter(self, tx: Interpreter, name: str) -> Value | None:
        """Of a property."""
        if type(self).getattr is not ObjectValue.getattr:
            return None
        found = guarded_lookup(tx, self, name)
        plain = type(found) is property and isinstance(found.fget, types.FunctionType)
        if not plain or not self.reads_plainly(tx):
            return None
        source = class_attr_source(tx, self, name)
        return tx.wrap(found.fget, None if source is None else AttrSource(source, "fget"))

    def reads_plainly(self, tx: Interpreter) -> bool:
        """Whether reading an attribute calls no method of the class for access to attributes."""
        own = self._overrides(tx, "__getattribute__")
        return not own and guarded_lookup(tx, self, "__getattr__") is MISSING

    def fallback(self, tx: Interpreter) -> Any:
        """The class's function `__getattr__`; None where there is none, or a wrapped one."""
        found = guarded_lookup(tx, self, "__getattr__")
        return found if isinstance(found, types.FunctionType) else None

    def getattr_or_fallback(self, tx: Interpreter, name: str) -> Value:
        """object.__getattribute__, and __getattr__ if that finds nothing."""
        return self._or_fallback(tx, name, lambda: self.generic_getattr(tx, name))

    def _or_fallback(self, tx: Interpreter, name: str, read: Callable[[], Value]) -> Value:
        fallback = guarded_lookup(tx, self, "__getattr__")
        try:
            return read()
        except RaisedException as error:
            if fallback is MISSING or not is_exception(error, AttributeError):
                raise
        return self.special(tx, "__getattr__", ConstantValue(name))

    def generic_getattr(self, tx: Interpreter, name: str) -> Value:
        """object.__getattribute__."""
        found = guarded_lookup(tx, self, name)
        if is_data_descriptor(found) and hasattr(type(found), "__get__"):
            return bind(tx, self, found, name)
        own = self.own_attr(tx, name)
        if own is not None:
            return own
        if found is not MISSING:
            return bind(tx, self, found, name)
        no_attribute(tx, self.cls, name)

    def instance_dict(self) -> dict[str, Any] | None:
        """The real instance dict; None if there is none."""
        if self.real is None:
            return None
        if issubclass(self.cls, BaseException) and len(BaseException.__reduce__(self.real)) == 2:
            return {}  # an exception tells whether its dict was ever asked for
        try:
            return object.__getattribute__(self.real, "__dict__")
        except AttributeError:
            return None

    def own_attr(self, tx: Interpreter, name: str) -> Value | None:
        """The attribute in the instance dict; guards its absence."""
        stored = tx.output.side_effects.load_attr(self, name)
        if stored is not None:
            return stored if isinstance(stored, Value) else None
        shared = shared_dict(tx, self)
        if shared is not None:
            return shared.lookup(tx, ConstantValue(name))
        own = self.instance_dict()
        if own is None:
            return None
        if name in own:
            return tx.wrap(own[name], self.own_source(name))
        tx.guard(self.source, "no_instance_attr", name)
        return None

    def _changes_dict(self, tx: Interpreter, found: Any) -> DictValue | None:
        """The dict to store an attribute in or delete it from, where other holders of the instance
        dict see that; else note the coming change. `found`: what the class has of that name.
        """
        if isinstance(found, types.MemberDescriptorType):
            return None
        shared = shared_dict(tx, self)
        if shared is not None:
            return shared
        note_holder(tx, self)
        return None

    def own_source(self, name: str) -> Source | None:
        return None if self.source is None else DictItemSource(self.dict_source(), name)

    def dict_source(self) -> Source:
        assert self.source is not None, "a new object's dict is known"
        own = own_attr_source(self, "__dict__") if reads_by_function(self.cls) else None
        return own or InstanceDictSource(self.source)

    def hasattr(self, tx: Interpreter, name: str) -> bool:
        return can_read(tx, self, name)

    def setattr(self, tx: Interpreter, name: str, value: Value) -> None:
        if self._overrides(tx, "__setattr__"):
            self.special(tx, "__setattr__", ConstantValue(name), value)
        else:
            self.generic_setattr(tx, name, value)

    def generic_setattr(self, tx: Interpreter, name: str, value: Value) -> None:
        """object.__setattr__."""
        found = guarded_lookup(tx, self, name)
        if is_native(found, property, "__set__"):
            if found.fset is None:
                refuse_property(tx, self, found.__set__, None)
                text = f"property {name!r} of {self.cls.__qualname__!r} object has no setter"
                raise_python(tx, AttributeError, text)
            source = class_attr_source(tx, self, name)
            source = None if source is None else AttrSource(source, "fset")
            setter = tx.wrap(found.fset, source)
            tx.call_at_end(self, "__setattr__", setter, [self, value])
            return
        setter = MISSING if found is MISSING else class_lookup(type(found), "__set__")
        if isinstance(setter, types.FunctionType):
            descriptor = class_attr(tx, self, found, name)
            function = tx.wrap(setter, class_attr_source(tx, descriptor, "__set__"))
            tx.call_at_end(self, "__setattr__", function, [descriptor, self, value])
            return
        if name == "__dict__" and isinstance(found, types.GetSetDescriptorType):
            take_dict(tx, self, value)
            return
        unknown = setter is not MISSING and not is_slot(found)
        if unknown or isinstance(deleter_only(found), types.FunctionType):
            raise Unsupported(breaks.AttributeMutation(self.describe(), name))
        if not self.has_instance_dict() and not isinstance(found, types.MemberDescriptorType):
            if found is not MISSING:  # read-only, which Python says in other words
                raise Unsupported(breaks.AttributeMutation(self.describe(), name))
            bare = type(self.cls.__name__, (), {"__slots__": ()})()
            call_real(tx, setattr, bare, name, None)
        shared = self._changes_dict(tx, found)
        if shared is not None:
            shared.setitem(tx, ConstantValue(name), value)
        else:
            tx.output.side_effects.store_attr(self, name, value)

    def has_instance_dict(self) -> bool:
        return self.cls.__dictoffset__ != 0

    def delattr(self, tx: Interpreter, name: str) -> None:
        if self._overrides(tx, "__delattr__"):
            self.special(tx, "__delattr__", ConstantValue(name))
        else:
            self.generic_delattr(tx, name)

    def generic_delattr(self, tx: Interpreter, name: str) -> None:
        """object.__delattr__."""
        found = guarded_lookup(tx, self, name)
        if is_native(found, property, "__delete__"):
            if found.fdel is None:
                refuse_property(tx, self, found.__delete__)
                text = f"property {name!r} of {self.cls.__qualname__!r} object has no deleter"
                raise_python(tx, AttributeError, text)
            source = class_attr_source(tx, self, name)
            source = None if source is None else AttrSource(source, "fdel")
            tx.call_at_end(self, "__delattr__", tx.wrap(found.fdel, source), [self])
            return
        deleter = MISSING if found is MISSING else class_lookup(type(found), "__delete__")
        if isinstance(deleter, types.FunctionType):
            descriptor = class_attr(tx, self, found, name)
            function = tx.wrap(deleter, class_attr_source(tx, descriptor, "__delete__"))
            tx.call_at_end(self, "__delattr__", function, [descriptor, self])
            return
        if isinstance(found, types.GetSetDescriptorType):
            raise Unsupported(breaks.AttributeMutation(self.describe(), name))
        if isinstance(found, types.MemberDescriptorType):
            try:
                bind(tx, self, found, name)
            except RaisedException:  # in words of its own
                raise Unsupported(breaks.AttributeMutation(self.describe(), name)) from None
        elif found is not MISSING and is_data_descriptor(found):
            raise Unsupported(breaks.AttributeMutation(self.describe(), name))
        elif self.own_attr(tx, name) is None:
            if found is not MISSING and not self.has_instance_dict():  # in words of its own
                raise Unsupported(breaks.AttributeMutation(self.describe(), name))
            no_attribute(tx, self.cls, name)
        shared = self._changes_dict(tx, found)
        if shared is not None:
            shared.delitem(tx, ConstantValue(name))
        else:
            tx.output.side_effects.delete_attr(self, name)

    # -- special methods ------------------------------------------------------------------------
    def has_special(self, tx: Interpreter, name: str) -> bool:
        found = guarded_lookup(tx, self, name)
        return found is not MISSING and found is not None and not isinstance(found, SLOT_TYPES)

    def special_method(self, tx: Interpreter, name: str) -> Value | None:
        """The special method, looked up on the type as Python does; None if missing."""
        found = guarded_lookup(tx, self, name)
        if found is MISSING:
            return None
        self._refuse_disabled(found, name)
        return bind(tx, self, found, name)

    def _refuse_disabled(self, found: Any, name: str) -> None:
        """A special method that is None, or a slot of another class, refuses the operation in words
        of its own.
        """
        owner = (
            getattr(found, "__objclass__", self.cls) if isinstance(found, SLOT_TYPES) else self.cls
        )
        foreign = owner not in self.cls.__mro__
        if found is None or foreign:
            raise Unsupported(breaks.UncapturedCall(f"{self.cls.__name__}.{name}"))

    def special(self, tx: Interpreter, name: str, *args: Value) -> Value:
        method = self.special_method(tx, name)
        if method is None:
            raise Unsupported(breaks.UncapturedCall(f"{self.cls.__name__}.{name}"))
        return tx.call_at_end(self, name, method, args)

    def is_python_special(self, tx: Interpreter, name: str) -> bool:
        """The type has the special method, and not just `object`'s."""
        found = guarded_lookup(tx, self, name)
        self._refuse_disabled(found, name)
        return found is not MISSING and found is not getattr(object, name, None)

    def forwards(
        self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> tuple[Value, Sequence[Value], dict[str, Value]] | None:
        return self._call_method(tx), args, kwargs

    def _call_method(self, tx: Interpreter) -> Value:
        method = self.special_method(tx, "__call__")
        if method is None:
            fail_as(tx, operator.call, self)
        if isinstance(method, ObjectValue):  # whose own __call__ may be that object again
            raise Unsupported(breaks.UncapturedCall(f"{self.cls.__name__}.__call__"))
        return method

    def call_method(
        self, tx: Interpreter, name: str, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> Value:
        """self.name(...); a special method is looked up on the type, as Python does."""
        special = name.startswith("__") and name.endswith("__")
        method = self.special_method(tx, name) if special else None
        if method is None:
            method = self.getattr(tx, name)
        return tx.call_at_end(self, name, method, args, kwargs)

    def truth(self, tx: Interpreter) -> bool:
        if self.is_python_special(tx, "__bool__"):
            answer = self.special(tx, "__bool__")
            if not answer.python_type_is(bool):
                raise Unsupported(breaks.UncapturedCall(f"{self.cls.__name__}.__bool__"))
            return answer.truth(tx)
        sized = self.is_python_special(tx, "__len__")
        return self.length_value(tx).truth(tx) if sized else True

    def length(self, tx: Interpreter) -> int:
        return as_index(tx, self.length_value(tx))

    def length_value(self, tx: Interpreter) -> Value:
        if not self.is_python_special(tx, "__len__"):
            fail_as(tx, len, self)
        answer = self.special(tx, "__len__")
        symbolic = answer.is_symbolic() and answer.python_type_is(int)
        if symbolic and compare_op(tx, ">=", answer, ConstantValue(0)).truth(tx):
            return answer
        length = as_index(tx, answer)
        if not 0 <= length <= sys.maxsize:
            raise Unsupported(breaks.UncapturedCall(f"{self.cls.__name__}.__len__"))
        return ConstantValue(length)

    def getitem(self, tx: Interpreter, key: Value) -> Value:
        if guarded_lookup(tx, self, "__getitem__") is MISSING:
            fail_as(tx, operator.getitem, self, key)
        return self.special(tx, "__getitem__", key)

    def setitem(self, tx: Interpreter, key: Value, value: Value) -> None:
        self.special(tx, "__setitem__", key, value)

    def delitem(self, tx: Interpreter, key: Value) -> None:
        self.special(tx, "__delitem__", key)

    def iterate(self, tx: Interpreter) -> Value:
        if self.special_method(tx, "__iter__") is not None:
            iterator = self.special(tx, "__iter__")
            if not hasattr(iterator.python_type(), "__next__"):
                raise Unsupported(breaks.UncapturedCall(f"{self.cls.__name__}.__iter__"))
            return iterator
        if guarded_lookup(tx, self, "__getitem__") is not MISSING:
            return ItemProtocolIterator(self)
        fail_as(tx, iter, self)

    def each_hinted(self, tx: Interpreter) -> Iterator[Value]:
        iterator = self.iterate(tx)
        self._ask_length(tx)
        return iterator.each(tx)

    def _ask_length(self, tx: Interpreter) -> None:
        """Call the object's length as list() does for a size hint; a TypeError is ignored. Trusted
        classes have no observable effects there.
        """
        asked = [n for n in ("__len__", "__length_hint__") if self.is_python_special(tx, n)]
        if not asked or is_trusted_class(self.cls):
            return
        try:
            if asked[0] == "__len__":
                self.length(tx)
                return
            answer = self.special(tx, "__length_hint__")
        except RaisedException as error:
            if not is_exception(error, TypeError):
                raise
            return
        if not answer.is_constant() or answer.as_constant() is NotImplemented:
            return
        call_real(tx, operator.length_hint, _Hinted(answer.as_constant()))

    def next_value(self, tx: Interpreter) -> Value | None:
        if guarded_lookup(tx, self, "__next__") is MISSING:
            fail_as(tx, next, self)
        try:
            return self.special(tx, "__next__")
        except RaisedException as error:
            if is_exception(error, StopIteration):
                return None
            raise

    def contains(self, tx: Interpreter, item: Value) -> Value:
        if self.is_python_special(tx, "__contains__"):
            return ConstantValue(self.special(tx, "__contains__", item).truth(tx))
        if all(guarded_lookup(tx, self, n) is MISSING for n in ("__iter__", "__getitem__")):
            fail_as(tx, operator.contains, self, item)
        iterator = self.iterate(tx)
        while (value := iterator.next_value(tx)) is not None:
            if equal(tx, value, item):
                return ConstantValue(True)
        return ConstantValue(False)

    def hash_key(self, tx: Interpreter) -> Hashable:
        found = guarded_lookup(tx, self, "__hash__")
        if found is None:
            return unhashable(tx, self)
        if self.storage is not None and isinstance(found, SLOT_TYPES):
            key = key_of(tx, self.storage)
            compared = not isinstance(guarded_lookup(tx, self, "__eq__"), SLOT_TYPES)
            return EqualityKey(tx, self, hash(key)) if compared else key
        if self.is_python_special(tx, "__hash__"):
            with without_effects(tx, "__hash__", self):
                answer = self.special(tx, "__hash__")
            if isinstance(answer, TokenValue):
                return EqualityKey(tx, self, hash(answer.number(tx)), exact=False)
            hashed = answer.as_constant()
            if type(hashed) is not int:
                raise Unsupported(breaks.UncapturedCall(f"{self.cls.__name__}.__hash__"))
            return EqualityKey(tx, self, hash_of(hashed))
        return super().hash_key(tx)

    def _answer(self, tx: Interpreter, name: str, *args: Value) -> Value | None:
        """The result of an operator's method; None for a missing method or NotImplemented."""
        if not self.is_python_special(tx, name):
            return None
        result = self.special(tx, name, *args)
        if result.is_constant() and result.as_constant() is NotImplemented:
            return None
        return result

    def binary(self, tx: Interpreter, op: str, other: Value, reflected: bool) -> Value | None:
        answer = self._answer(tx, binary_dunder(op, reflected), other)
        if answer is None and reflected and other.is_constant():
            # By the method of a literal's type: an instance of its subclass is on the right.
            storage = self.storage
            return binary_op(tx, op, other, storage) if type(storage) is ConstantValue else None
        return answer

    def compare(self, tx: Interpreter, op: str, other: Value) -> Value | None:
        if op == "!=" and not self.is_python_special(tx, "__ne__"):
            same = self._answer(tx, "__eq__", other)
            return None if same is None else ConstantValue(not same.truth(tx))
        return self._answer(tx, COMPARE_DUNDERS[op], other)

    def unary(self, tx: Interpreter, op: str) -> Value | None:
        return self._answer(tx, UNARY_DUNDERS[op])

    # -- code -----------------------------------------------------------------------------------
    def recipe(self) -> Recipe:
        """A bare object of the class."""
        if self.hashes_objects() and self._is_hashed_early():
            what = f"{self.describe()} (its keys are hashed by methods)"
            raise Unsupported(breaks.CannotReconstruct(what))
        real = REAL.get(id(self.cls))
        if real is not None:
            return self._real_recipe(real)
        new = class_lookup(self.cls, "__new__") if self.storage is None else MISSING
        base_new = new.__func__ if isinstance(new, staticmethod) else builtin_base(self.cls).__new__
        if isinstance(base_new, types.FunctionType):
            base_new = builtin_base(self.cls).__new__
        return base_new, [ClassOf(self.cls), *self.new_args]

    def _real_recipe(self, real: RealIterator) -> Recipe:
        if real.make is None:
            what = f"{real.kind.__name__}() of an object with items"
            raise Unsupported(breaks.CannotReconstruct(what))
        return real.make, [self.mutation.attrs[name] for name in real.attributes]

    def fill(self) -> Sequence[Recipe]:
        if id(self.cls) in REAL:
            return []
        writes: list[Recipe] = []
        for name, value in () if self.mutation is None else self.mutation.stores():
            if value is not DELETED:
                writes += self._stores(name, value)
            elif not self.mutation.new:
                writes += self._stores(name, None)
        return writes if self.storage is None else [*writes, *late_bound.fill_storage(self)]

    def _stores(self, name: str, value: Value | None) -> list[Recipe]:
        """The writes that store the attribute, or (None) delete it."""
        found = class_lookup(self.cls, name)
        kinds = (types.MemberDescriptorType, types.GetSetDescriptorType)
        if found is not MISSING and is_data_descriptor(found) and not isinstance(found, kinds):
            # Past the class's descriptor of that name.
            namespace = Made(object.__getattribute__, self, exact("__dict__"))
            return stores(STORE_ITEM, DELETE_ITEM, value, [namespace, exact(name)])
        plain = found is MISSING or not isinstance(found, types.GetSetDescriptorType)
        plain = plain and class_lookup(self.cls, "__setattr__") is object.__setattr__
        if value is None:
            plain = plain and class_lookup(self.cls, "__delattr__") is object.__delattr__
        if plain:
            return attribute_stores(self, name, value)
        if value is not None:
            return [(object.__setattr__, [self, exact(name), value])]
        return [
            (object.__setattr__, [self, exact(name), exact(None)]),
            (object.__delattr__, [self, exact(name)]),
        ]


class _Hinted:
    """Answers so, for Python to judge."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def __length_hint__(self) -> Any:
        return self.answer


class ClassOf(Part):
    """A class as an operand: from its source if it has one."""

    def __init__(self, cls: type) -> None:
        self.cls = cls

    def push(self, codegen: Codegen) -> None:
        entry = codegen.output.values_by_id.get(id(self.cls))
        if entry is not None and (entry[1].source is not None or entry[1].mutation is not None):
            codegen(entry[1])
        else:
            codegen.load_object(self.cls, self.cls.__name__)


def class_attribute(tx: Interpreter, value: Value, name: str) -> Value:
    """`value.name` where only the type can have it (values without an instance dict)."""
    found = class_lookup(value.python_type(), name)
    if found is MISSING:
        no_attribute(tx, value.python_type(), name)
    return bind(tx, value, found, name)


@fallback_builder
def build_object(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    return object_of_kind(tx, ObjectValue, obj, source)


def object_of_kind(
    tx: Interpreter, kind: type[ObjectValue], obj: Any, source: Source | None
) -> Value:
    """Any object: its type is guarded, its attributes when they are read."""
    if source is None:
        source = tx.output.install(type(obj).__name__, obj)
    tx.guard(source, "type", type(obj))
    tx.output.objects_override |= class_lookup(type(obj), "__torch_function__") is not MISSING
    value = kind(type(obj), source, obj)
    own = (value.instance_dict() or ()) if _has_dict(type(obj)) else ()
    if not all(type(name) is str for name in own):  # it may compare itself
        raise Unsupported(breaks.UnknownObject(type(obj).__name__))
    tx.output.side_effects.track_existing(value)
    tx.output.remember(obj, source, value)
    value.storage = late_bound.wrap_storage(tx, value)
    return value
