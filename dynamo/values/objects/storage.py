"""Storage of instances of subclasses of built-in types in the built-in base, as a plain Value: a
container, or the constant that a str, int, float, ... subclass is.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.sources import AttrSource, CallSource, Source
from dynamo.values.base import Value
from dynamo.values.classes.builtin_bases import PLAIN, literal_base
from dynamo.values.containers.containers import DequeValue, ListValue, TupleValue
from dynamo.values.containers.dicts import DefaultDictValue, DictValue, OrderedDictValue
from dynamo.values.containers.sets import FrozenSetValue, SetValue
from dynamo.values.late_bound import bound_late
from dynamo.values.recipes import LIST, Made, Recipe, exact
from dynamo.values.scalars.constant import ConstantValue

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter
    from dynamo.values.objects.objects import ObjectValue


def new_storage(cls: type) -> Value | None:
    """Empty storage for a new instance of `cls`; None if it has no mutable built-in container as
    its base.
    """
    for base in cls.__mro__:
        if base in _EMPTY:
            return _EMPTY[base]()
    return None


def _empty_dict(make: type[DictValue]) -> Callable[[], Value]:
    return lambda: make({})


_EMPTY: dict[type, Callable[[], Value]] = {
    collections.OrderedDict: _empty_dict(OrderedDictValue),
    collections.defaultdict: _empty_dict(DefaultDictValue),
    dict: _empty_dict(DictValue),
    list: lambda: ListValue([]),
    collections.deque: lambda: DequeValue([]),
    set: lambda: SetValue({}, real=set()),
}


def immutable_storage(
    tx: Interpreter, cls: type, args: Sequence[Value], kwargs: dict[str, Value]
) -> Value | None:
    """The content that base.__new__(cls, *args) stores, for a base whose instances are made with
    their content; None for other classes.
    """
    # By a method that takes the arguments, too.
    initialized = any("__init__" in vars(base) for base in cls.__mro__[:-1])
    if issubclass(cls, (tuple, frozenset)) and (len(args) > 1 or kwargs) and not initialized:
        raise Unsupported(breaks.NotCallable(f"class {cls.__qualname__} with these arguments"))
    if issubclass(cls, tuple):
        return TupleValue(args[0].unpack(tx) if args else [])
    if issubclass(cls, frozenset):
        return FrozenSetValue.from_iterable(tx, args[0]) if args else FrozenSetValue.of(tx, [])
    base = literal_base(cls)
    if base is None:
        return None
    return ConstantValue(base_constant(tx.wrap(base).call(tx, args, kwargs)))


def base_constant(value: Value) -> Any:
    """The literal of a value, or of an instance of a literal's subclass."""
    storage = getattr(value, "storage", None)
    return (value if storage is None else storage).as_constant()


@bound_late
def wrap_storage(tx: Interpreter, value: ObjectValue) -> Value | None:
    """The storage of an instance from outside."""
    real, source, cls = value.real, value.source, value.cls
    storage: Any
    if issubclass(cls, dict):
        storage = new_storage(cls)
        storage.real, storage.source = real, source
        if isinstance(storage, DefaultDictValue):
            storage.factory = tx.wrap(real.default_factory, _attr(source, "default_factory"))
    elif issubclass(cls, list):
        storage = ListValue.from_real(tx, real, source)
    elif issubclass(cls, collections.deque):
        storage = DequeValue.from_real(tx, real, source)
        storage.maxlen = tx.wrap(real.maxlen, _attr(source, "maxlen")).as_constant()
    elif issubclass(cls, tuple):
        storage = TupleValue.from_real(tx, real, source)
        storage.holder = value
        return storage
    elif issubclass(cls, (set, frozenset)):
        storage = _wrap_set(tx, cls, real, source)
    elif (base := literal_base(cls)) is not None:
        plain = PLAIN[base]
        held = tx.wrap(plain(real), CallSource(source, plain, base.__name__))  # type: ignore[arg-type]
        return ConstantValue(held.as_constant(), held.source)  # not a symbol
    else:
        return None
    # The changes of the storage are replayed by the object.
    storage.mutation, storage.holder = value.mutation, value
    return storage


def _attr(source: Source | None, name: str) -> Source | None:
    return None if source is None else AttrSource(source, name)


def _wrap_set(tx: Interpreter, cls: type, real: Any, source: Source | None) -> FrozenSetValue:
    """The members, guarded through a plain copy."""
    base: Any = set if issubclass(cls, set) else frozenset
    copied = base(real)
    storage: Any = tx.wrap(
        copied, None if source is None else CallSource(source, base, base.__name__)
    )
    if isinstance(storage, ConstantValue):
        storage = FrozenSetValue.of(tx, storage.unpack(tx))
    storage.load_all(tx)
    if list(copied) != list(real):
        storage.real = None
    storage.source, storage.keeps_table = None, False
    return storage


def _pairs(items: Any) -> Any:
    return items.items() if isinstance(items, dict) else items


def fill_ordered(obj: collections.OrderedDict, items: Any) -> None:
    collections.OrderedDict.clear(obj)
    for key, item in _pairs(items):
        collections.OrderedDict.__setitem__(obj, key, item)


def fill_dict(obj: dict, items: Any) -> None:
    dict.clear(obj)
    dict.update(obj, items)


def fill_defaultdict(obj: collections.defaultdict, factory: Any, items: Any) -> None:
    object.__setattr__(obj, "default_factory", factory)
    fill_dict(obj, items)


def fill_list(obj: list, items: list[Any]) -> None:
    list.__setitem__(obj, slice(None), items)


def fill_deque(obj: collections.deque, maxlen: int | None, items: list[Any]) -> None:
    collections.deque.__init__(obj, items, maxlen)


def fill_set(obj: set, items: Any) -> None:
    set.clear(obj)
    set.update(obj, items)


@bound_late
def fill_storage(value: ObjectValue) -> Sequence[Recipe]:
    """The writes that fill the object's storage, past any method that the class overrides."""
    storage = value.storage
    immutable = isinstance(storage, (TupleValue, ConstantValue)) or type(storage) is FrozenSetValue
    if isinstance(storage, DictValue) and storage.changes is not None:
        return storage.changes.writes(value, storage.cls)
    if immutable or (isinstance(storage, DictValue) and storage.real is not None):
        return []
    if isinstance(storage, DequeValue) and not (value.mutation.new or storage.state):
        return storage.replacement(value)
    if isinstance(storage, OrderedDictValue):
        return [(fill_ordered, [value, storage.content()])]
    if isinstance(storage, DefaultDictValue):
        return [(fill_defaultdict, [value, storage.factory, storage.content()])]
    if isinstance(storage, DictValue):
        return [(fill_dict, [value, storage.content()])]
    if isinstance(storage, SetValue):
        return [(fill_set, [value, storage.members_part()])]
    items = Made(LIST, *storage.contents)  # type: ignore[union-attr]
    if isinstance(storage, DequeValue):
        return [(fill_deque, [value, exact(storage.maxlen), items])]
    return [(fill_list, [value, items])]
