"""What instances of dict, list, set and tuple subclasses store in their built-in base, as a plain
container Value.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dynamo.values.base import Value
from dynamo.values.containers import ListValue, SequenceValue, TupleValue
from dynamo.values.dicts import DefaultDictValue, DictValue, OrderedDictValue

if TYPE_CHECKING:
    from dynamo.capture.interpreter import Interpreter
    from dynamo.reconstruct import Codegen
    from dynamo.values.objects import ObjectValue


def new_storage(cls: type) -> Value | None:
    """Empty storage for a new instance of `cls`; None if it has no built-in container as its
    base.
    """
    for base, make in _STORAGE.items():
        if issubclass(cls, base):
            return make()
    return None


def _empty_list() -> Value:
    return ListValue([])


def _empty_dict(make: type[DictValue]) -> Callable[[], Value]:
    return lambda: make({})


_STORAGE: dict[type, Callable[[], Value]] = {
    collections.OrderedDict: _empty_dict(OrderedDictValue),
    collections.defaultdict: _empty_dict(DefaultDictValue),
    dict: _empty_dict(DictValue),
    list: _empty_list,
}


def wrap_storage(tx: Interpreter, value: ObjectValue) -> Value | None:
    """The storage of an instance from outside."""
    real, source = value.real, value.source
    if isinstance(real, dict):
        storage = new_storage(type(real))
        assert isinstance(storage, DictValue)
        storage.real, storage.source = real, source
    elif isinstance(real, list):
        storage = ListValue.from_real(tx, real, source)
    elif isinstance(real, tuple):
        return TupleValue.from_real(tx, real, source)
    else:
        return None
    # The changes of the storage are replayed by the object.
    storage.mutation = value.mutation
    return storage


def fill_ordered(obj: collections.OrderedDict, items: dict[Any, Any]) -> None:
    collections.OrderedDict.clear(obj)
    for key, item in items.items():
        collections.OrderedDict.__setitem__(obj, key, item)


def fill_dict(obj: dict, items: dict[Any, Any]) -> None:
    dict.clear(obj)
    dict.update(obj, items)


def fill_list(obj: list, items: list[Any]) -> None:
    list.__setitem__(obj, slice(None), items)


def replay_storage(codegen: Codegen, value: ObjectValue) -> Callable[[], None]:
    """Emit what fills the object's storage, past any method that the class overrides."""
    storage, emit = value.storage, codegen
    if isinstance(storage, TupleValue) or (
        isinstance(storage, DictValue) and storage.real is not None
    ):
        return lambda: None
    if isinstance(storage, OrderedDictValue):
        fill: Callable[..., None] = fill_ordered
    else:
        fill = fill_list if isinstance(storage, SequenceValue) else fill_dict
    emit.load_callable(lambda: emit.load_const(fill))
    codegen(value)
    if isinstance(storage, SequenceValue):
        emit.build_list(storage.emit_items(codegen))
    elif isinstance(storage, DictValue):
        storage.emit_dict(codegen)

    def write() -> None:
        emit.call(2)
        emit.pop_top()

    return write
