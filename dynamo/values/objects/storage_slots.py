"""Methods of built-in types called on instances of user subclasses: they work on the storage, past
anything that the subclass overrides.
"""

from __future__ import annotations

import collections
import itertools
import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.polyfills import library as polyfills
from dynamo.values.base import Value, is_none
from dynamo.values.builtins.table import TABLE, polyfill
from dynamo.values.classes.builtin_bases import is_written_as_it_is
from dynamo.values.containers.containers import DequeValue, ListValue, TupleValue
from dynamo.values.containers.dicts import DefaultDictValue, DictValue, OrderedDictValue, pairs_of
from dynamo.values.containers.sets import FrozenSetValue, SetValue
from dynamo.values.iterators.native_iterators import TextIterator
from dynamo.values.objects.builtin_object import BuiltinObject
from dynamo.values.objects.descriptors import MISSING, class_lookup
from dynamo.values.objects.exceptions import RaisedException, call_handler
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.scalars.operators import COMPARE_DUNDERS, DUNDER_STEMS

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter
    from dynamo.values.objects.objects import ObjectValue

# Special method -> (operator, reflected).
_OPERATORS = {f"__{stem}__": (symbol, False) for symbol, stem in DUNDER_STEMS.items()}
_OPERATORS |= {f"__r{stem}__": (symbol, True) for symbol, stem in DUNDER_STEMS.items()}
_OPERATORS |= {f"__i{stem}__": (f"{symbol}=", False) for symbol, stem in DUNDER_STEMS.items()}
_COMPARISONS = {dunder: symbol for symbol, dunder in COMPARE_DUNDERS.items()}
# Methods of a deque that make another one of the instance's class.
_DEQUE_COPIES = frozenset(["__add__", "__mul__", "__rmul__", "copy", "__copy__"])
_DICT_COPIES = frozenset(["__or__", "__ror__", "copy", "__copy__"])  # the same of these dicts


def past_override(value: Value, name: str, found: Any) -> bool:
    """Whether `found` is the own method of dict or tuple on a subclass of C that has another of the
    name.
    """
    owner = getattr(found, "__objclass__", None)
    if owner is tuple:
        return value.python_type_is(torch.Size) and name in vars(torch.Size)
    if owner is not dict:
        return False
    if isinstance(value, OrderedDictValue):
        return name in vars(collections.OrderedDict)
    return isinstance(value, DefaultDictValue) and name in vars(collections.defaultdict)


def bare(value: Value) -> Value:
    """The operand as C code sees it: of an instance of a subclass, its storage."""
    storage = getattr(value, "storage", None)
    return value if storage is None else storage


def storage_slot(
    tx: Interpreter,
    receiver: ObjectValue,
    name: str,
    found: Any,
    args: Sequence[Value],
    kwargs: dict[str, Value],
) -> Value | None:
    """Base.name(receiver, *args, **kwargs)."""
    storage: Any = receiver.storage
    of_class = isinstance(storage, DequeValue) and name in _DEQUE_COPIES
    if name in _DICT_COPIES and isinstance(storage, DictValue):
        of_class |= isinstance(storage, (OrderedDictValue, DefaultDictValue))
        of_class |= class_lookup(receiver.cls, "__iter__") is not dict.__iter__  # asked for keys()
    made = polyfills.CLASS_COPIES.get((getattr(found, "__objclass__", None), name))
    if made is not None and _is_made_by_class(receiver.cls, made, args):
        return polyfill(tx, made, receiver, *args)
    if of_class or past_override(storage, name, found):
        raise Unsupported(breaks.UncapturedCall(f"{receiver.cls.__name__}.{name}"))
    handler = _HANDLERS.get(name)
    if handler is not None:
        return call_handler(tx, name, handler, [storage, *args], kwargs)
    if isinstance(storage, ConstantValue):
        if name == "__iter__" and not args and not kwargs:
            return TextIterator(tx, receiver, storage)
        operands = [bare(arg) for arg in args]
        foreign = not all(operand.is_constant() for operand in operands)
        if (
            foreign
            and len(args) == 1
            and _is_number(storage)
            and (name in _OPERATORS or name in _COMPARISONS)
        ):
            return ConstantValue(NotImplemented)
        try:
            result = storage.call_method(tx, name, operands, kwargs)
        except RaisedException:
            if operands != list(args):  # the error may name their class
                raise Unsupported(
                    breaks.UncapturedCall(f"{receiver.cls.__name__}.{name}")
                ) from None
            raise
        return receiver if is_written_as_it_is(storage, name) else result
    if name in _COMPARISONS and len(args) == 1:
        return _answer(tx, storage.compare(tx, _COMPARISONS[name], bare(args[0])), receiver)
    if name in _OPERATORS and len(args) == 1:
        op, reflected = _OPERATORS[name]
        return _operator(tx, receiver, op, reflected, args[0])
    if (
        name == "__getitem__"
        and len(args) == 1
        and class_lookup(receiver.cls, "__missing__") is not MISSING
    ):
        item = storage.lookup(tx, args[0]) if hasattr(storage, "lookup") else None
        return item if item is not None else receiver.special(tx, "__missing__", args[0])
    if name in ("update", "setdefault", "pop") and isinstance(storage, OrderedDictValue):
        return _ordered_dict_method(tx, receiver, storage, name, args, kwargs)
    result = storage.call_method(tx, name, args, kwargs)
    return _answer(tx, result, receiver)


def _is_made_by_class(cls: type, made: Callable[..., Any], args: Sequence[Value]) -> bool:
    """Whether a polyfill says what C does: a class may make objects of another one."""
    plain = isinstance(class_lookup(cls, "__new__"), types.BuiltinFunctionType)
    deques = all(issubclass(arg.python_type(), collections.deque) for arg in args)
    return plain and deques and made.__code__.co_argcount == 1 + len(args)


def _is_number(value: ConstantValue) -> bool:
    return isinstance(value.as_constant(), (int, float, complex))


def _answer(tx: Interpreter, result: Value | None, receiver: ObjectValue) -> Value:
    if result is None:
        return ConstantValue(NotImplemented)
    if result is not receiver.storage:
        return result
    # An immutable object returns itself only if it is of the plain type.
    if isinstance(result, TupleValue):
        return TupleValue(list(result.contents))
    return result.plain_copy(tx) if type(result) is FrozenSetValue else receiver


def _operator(
    tx: Interpreter, receiver: ObjectValue, op: str, reflected: bool, other: Value
) -> Value:
    storage: Any = receiver.storage
    operand = bare(other)
    if isinstance(storage, FrozenSetValue) and isinstance(operand, FrozenSetValue) and reflected:
        storage, operand = operand, storage
        result = storage.binary(tx, op, operand, False)
    else:
        result = storage.binary(tx, op, operand, reflected)
    if type(storage) is FrozenSetValue and result is storage:
        return storage
    if result is None and isinstance(storage, BuiltinObject):
        return storage.refused(tx, op, operand, reflected)
    return _answer(tx, result, receiver)


def _ordered_dict_method(tx, receiver, storage, name, args, kwargs):
    """OrderedDict's update and setdefault go through __setitem__, which a subclass may override."""
    if not receiver.has_special(tx, "__setitem__") or name == "pop":
        return storage.call_method(tx, name, args, kwargs)

    if name == "update":
        fill_mapping(tx, receiver, args, kwargs)
        return None
    if storage.lookup(tx, args[0]) is None:
        receiver.setitem(tx, args[0], args[1] if len(args) > 1 else ConstantValue(None))
    return storage.lookup(tx, args[0])


def container_init(tx, storage, *args, **kwargs):
    """list.__init__, dict.__init__, ... on an instance's storage."""
    if isinstance(storage, (ListValue, SetValue)) and (len(args) > 1 or kwargs):
        raise Unsupported(breaks.UncapturedCall(f"{storage.cls.__name__}.__init__"))
    if isinstance(storage, DequeValue):
        call_handler(tx, "deque.__init__", _deque_init, [storage, *args], kwargs)
    elif isinstance(storage, (ListValue, SetValue)):
        storage.py_clear(tx)
        if args:
            (storage.py_extend if isinstance(storage, ListValue) else storage.py_update)(
                tx, args[0]
            )
    elif isinstance(storage, DefaultDictValue):
        set_factory(tx, storage, args[0] if args else ConstantValue(None))
        call_handler(tx, "defaultdict.__init__", storage.py_update, args[1:], kwargs)
    elif isinstance(storage, DictValue):
        call_handler(tx, "dict.__init__", storage.py_update, args, kwargs)


def set_factory(tx: Interpreter, storage: DefaultDictValue, factory: Value) -> None:
    """The first argument of defaultdict.__init__."""
    callable_ = TABLE[callable](tx, factory)
    if not is_none(factory) and callable_ is not None and not callable_.as_constant():
        raise Unsupported(breaks.UncapturedCall("defaultdict.__init__"))
    storage.setattr(tx, "default_factory", factory)


def _deque_init(tx, storage, iterable=None, maxlen=None):
    storage.py_clear(tx)
    storage.maxlen = None if maxlen is None else maxlen.as_constant()
    if iterable is not None:
        storage.py_extend(tx, iterable)


def _reversed(tx, storage):
    return TABLE[reversed](tx, storage)


def _reduce(tx, storage, *args):
    raise Unsupported(breaks.UncapturedCall("__reduce__"))


_HANDLERS: dict[str, Callable[..., Value | None]] = {
    "__init__": container_init,
    "__reversed__": _reversed,
    "__copy__": lambda tx, storage: storage.py_copy(tx),
    "__reduce__": _reduce,
    "__reduce_ex__": _reduce,
}


def fill_mapping(
    tx: Interpreter, instance: Value, args: Sequence[Value], kwargs: dict[str, Value]
) -> None:
    """dict(...) into the storage; OrderedDict goes through an overridden __setitem__, as Python
    does.
    """
    if len(args) > 1:
        raise Unsupported(breaks.UncapturedCall(f"{instance.python_type().__name__}.__init__"))
    storage = instance.storage  # type: ignore[attr-defined]
    ordered = issubclass(instance.python_type(), collections.OrderedDict)
    pairs = pairs_of(tx, args[0], ordered) if args else ()
    added = ((ConstantValue(k), v) for k, v in kwargs.items())
    for key, value in itertools.chain(pairs, added):
        (instance if ordered else storage).setitem(tx, key, value)
