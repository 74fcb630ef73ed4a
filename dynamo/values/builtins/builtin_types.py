"""Calls of built-in container types and of functions over iterables: list(...), zip(...),
sorted(...), itertools.
"""

from __future__ import annotations

import collections
import enum
import inspect
import itertools
import types
from typing import TYPE_CHECKING, Any

import torch

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.polyfills import library as polyfills
from dynamo.values import late_bound
from dynamo.values.base import Forwarded, Value, is_none
from dynamo.values.builtins.program_code import call_natively
from dynamo.values.builtins.table import TABLE, handles
from dynamo.values.classes.lookup import type_holds
from dynamo.values.classes.metaclasses import MetaclassInstance
from dynamo.values.containers.containers import (
    DequeValue,
    ListValue,
    SequenceValue,
    SizeValue,
    TupleValue,
)
from dynamo.values.containers.dicts import (
    DefaultDictValue,
    DictValue,
    DictView,
    OrderedDictValue,
)
from dynamo.values.containers.mapping_proxies import MappingProxyValue
from dynamo.values.containers.ranges import RangeIterator, RangeValue, SliceValue, range_of
from dynamo.values.containers.sets import FrozenSetValue, SetValue
from dynamo.values.containers.sorting import sort_in_place
from dynamo.values.dummy_operands import fail_as
from dynamo.values.functions.function import MethodValue
from dynamo.values.iterators import iterators
from dynamo.values.iterators.generator import Resumable, next_method
from dynamo.values.iterators.native_iterators import CalledIterator, ReversedTextIterator
from dynamo.values.iterators.stored_iterators import ReversedDictIterator, ReversedIterator
from dynamo.values.objects.descriptors import MISSING, guarded_lookup
from dynamo.values.objects.exceptions import call_real, raise_python
from dynamo.values.objects.objects import ObjectValue
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.scalars.operators import as_index, binary_op, compare_op

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter


def new(tx: Interpreter, value: Value) -> Any:
    """A mutable object that the captured code just made."""
    return tx.output.side_effects.track_new(value)


# -- containers -----------------------------------------------------------------------------------
@handles(list)
def _list(tx, iterable=None):
    return new(tx, ListValue([] if iterable is None else list(iterable.each_hinted(tx))))


@handles(tuple)
def _tuple(tx, iterable=None):
    if type(iterable) is TupleValue:
        return iterable
    if type(iterable) is ListValue and iterable.varying is not None:
        result = TupleValue([])
        result.lose_items(iterable.varying)
        return result
    return TupleValue([] if iterable is None else list(iterable.each_hinted(tx)))


@handles(set)
def _set(tx, iterable=None):
    return new(
        tx, SetValue.of(tx, []) if iterable is None else SetValue.from_iterable(tx, iterable)
    )


@handles(frozenset)
def _frozenset(tx, iterable=None):
    if type(iterable) is FrozenSetValue:
        return iterable
    return (
        FrozenSetValue.of(tx, [])
        if iterable is None
        else FrozenSetValue.from_iterable(tx, iterable)
    )


@handles(dict)
def _dict(tx, /, *args, **kwargs):
    if len(args) > 1:
        fail_as(tx, dict, *args)
    result = new(tx, DictValue({}))
    result.py_update(tx, *args, **kwargs)
    return result


@handles(collections.OrderedDict)
def _ordered_dict(tx, /, *args, **kwargs):
    if len(args) > 1:
        fail_as(tx, collections.OrderedDict, *args)
    result = new(tx, OrderedDictValue({}))
    result.py_update(tx, *args, **kwargs)
    return result


@handles(collections.defaultdict)
def _defaultdict(tx, factory=None, /, *args, **kwargs):
    if not is_none(factory) and not TABLE[callable](tx, factory).as_constant():
        fail_as(tx, collections.defaultdict, factory)
    if len(args) > 1:
        fail_as(tx, collections.defaultdict, ConstantValue(None), *args)
    result = new(tx, DefaultDictValue({}, factory=factory))
    result.py_update(tx, *args, **kwargs)
    return result


@handles(collections.deque)
def _deque(tx, iterable=None, maxlen=None):
    if maxlen is not None and maxlen.is_constant():
        call_real(tx, collections.deque, (), maxlen.as_constant())
    elif maxlen is not None and not issubclass(maxlen.python_type(), int):
        fail_as(tx, collections.deque, TupleValue([]), maxlen)
    limit = None if is_none(maxlen) else as_index(tx, maxlen)
    call_real(tx, collections.deque, (), limit)
    return new(tx, DequeValue([] if iterable is None else iterable.unpack(tx), maxlen=limit))


@handles(types.MappingProxyType)
def _mapping_proxy(tx, mapping):
    if isinstance(mapping, DictValue):
        return MappingProxyValue(mapping)
    if mapping.is_constant() or mapping.python_type_is(list, tuple):
        fail_as(tx, types.MappingProxyType, mapping)
    raise Unsupported(breaks.UncapturedCall("types.MappingProxyType"))


@handles(torch.Size)
def _size(tx, iterable=None):
    items = [] if iterable is None else iterable.unpack(tx)
    if not all(item.is_symbolic() or item.python_type_is(int, bool) for item in items):
        raise Unsupported(breaks.UncapturedCall("torch.Size"))
    return SizeValue(items)


@handles(range)
def _range(tx, *args):
    return range_of(tx, args)


@handles(slice)
def _slice(tx, *args):
    none = ConstantValue(None)
    call_real(tx, slice, *[None for _ in args])
    parts = [none, *args, none] if len(args) == 1 else [*args, none][:3]
    return SliceValue(*parts)


@handles(types.SimpleNamespace)
def _namespace(tx, /, **kwargs):
    result = new(tx, ObjectValue(types.SimpleNamespace))
    tx.output.side_effects.mark(result)
    for name, value in kwargs.items():
        tx.output.side_effects.store_attr(result, name, value)
    return result


@handles(types.MethodType)
def _method(tx, function, receiver):
    if is_none(receiver) or not TABLE[callable](tx, function).as_constant():
        raise Unsupported(breaks.UncapturedCall("types.MethodType"))
    return MethodValue(function, receiver)


# -- iteration ------------------------------------------------------------------------------------
@handles(iter)
def _iter(tx, owner, sentinel=None):
    if sentinel is not None:
        if not TABLE[callable](tx, owner).as_constant():
            raise Unsupported(breaks.UncapturedCall("iter"))
        return iterators.CallIterator(owner, sentinel)
    return owner.iterate(tx)


@handles(next)
def _next(tx, iterator, default=None):
    if not type_holds(iterator.python_type(), "__next__"):
        fail_as(tx, next, iterator)
    if default is None and isinstance(iterator, Resumable):
        return next_method(iterator, tx)
    if default is None and iterator.has_special(tx, "__next__"):
        return iterator.call_method(tx, "__next__", [], {})
    item = iterator.next_value(tx)
    if item is not None:
        return item
    if default is None:
        raise_python(tx, StopIteration)
    return default


@handles(enumerate)
def _enumerate(tx, iterable, start=None):
    varies = start is not None and start.is_symbolic() and start.python_type() is int
    number = start if varies else ConstantValue(0 if start is None else as_index(tx, start))
    return iterators.EnumerateIterator(iterable.iterate(tx), number)


@handles(zip)
def _zip(tx, *iterables, strict=None):
    inners = [i.iterate(tx) for i in iterables]
    return iterators.ZipIterator(inners, strict is not None and strict.truth(tx))


@handles(map)
def _map(tx, function, /, *iterables):
    if not iterables:
        call_real(tx, map, None)
    return iterators.MapIterator(function, [i.iterate(tx) for i in iterables])


@handles(filter)
def _filter(tx, function, iterable):
    return iterators.FilterIterator(function, iterable.iterate(tx))


@handles(reversed)
def _reversed(tx, owner):
    if isinstance(owner, ObjectValue):
        if owner.is_python_special(tx, "__reversed__"):
            return owner.special(tx, "__reversed__")
        if guarded_lookup(tx, owner, "__getitem__") is MISSING:
            fail_as(tx, reversed, owner)
        return tx.wrap(polyfills.reversed_items), [owner], {}
    if isinstance(owner, SequenceValue):
        return ReversedIterator(owner)
    if owner.python_type() in (enum.EnumMeta,):
        members = owner.unpack(tx)[::-1]
        return CalledIterator(types.GeneratorType, reversed, [owner], members)
    if isinstance(owner, MetaclassInstance):
        reverse = owner.special(tx, "__reversed__")
        if reverse is None and owner.has_special(tx, "__getitem__"):
            raise Unsupported(breaks.UncapturedCall("reversed"))
        if reverse is not None:
            return reverse
    if isinstance(owner, RangeValue):
        return RangeIterator(owner.real[::-1])
    if isinstance(owner, DictView):
        return ReversedDictIterator(owner.owner, owner.kind)
    if isinstance(owner, MappingProxyValue):
        return _reversed(tx, owner.target)
    if isinstance(owner, DictValue):
        return ReversedDictIterator(owner, "keys")
    if owner.is_constant() and isinstance(owner.as_constant(), (str, bytes)):
        return ReversedTextIterator(tx, owner, owner)
    if hasattr(owner, "fake"):
        return owner.call_method(tx, "__reversed__", [], {})  # a tensor, flipped
    if type_holds(owner.python_type(), "__getitem__"):
        raise Unsupported(breaks.UncapturedCall("reversed"))
    fail_as(tx, reversed, owner)


@handles(sorted)
def _sorted(tx, iterable, *, key=None, reverse=None):
    items = list(iterable.unpack(tx))
    sort_in_place(tx, items, key, reverse)
    return new(tx, ListValue(items))


@handles(sum)
def _sum(tx, iterable, start=None):
    total = ConstantValue(0) if start is None else start
    if total.python_type_is(str, bytes, bytearray):
        iterable.iterate(tx)
        call_real(tx, sum, (), total.as_constant())
    numbers = []
    items = iterable.each(tx)
    item = None
    if _is_number(total):  # since 3.12, floats are summed with compensation
        for item in items:
            if not _is_number(item):
                break
            numbers.append(item.as_constant())
            item = None
        total = ConstantValue(call_real(tx, sum, numbers, total.as_constant()))
    for addend in items if item is None else itertools.chain((item,), items):
        total = binary_op(tx, "+", total, addend)
    return total


def _is_number(value: Value) -> bool:
    return value.is_constant() and value.python_type_is(int, float, complex, bool)


@handles(any)
def _any(tx, iterable):
    iterator = iterable.iterate(tx)
    while (item := iterator.next_value(tx)) is not None:
        if item.truth(tx):
            return ConstantValue(True)
    return ConstantValue(False)


@handles(all)
def _all(tx, iterable):
    iterator = iterable.iterate(tx)
    while (item := iterator.next_value(tx)) is not None:
        if not item.truth(tx):
            return ConstantValue(False)
    return ConstantValue(True)


def _extreme(name: str, op: str) -> Any:
    real = max if name == "max" else min

    def choose(tx, *args, key=None, default=None):
        if not args or (len(args) > 1 and default is not None):
            call_real(tx, real, *range(len(args)), **({} if default is None else {"default": 0}))
        best = None
        for item in args if len(args) > 1 else args[0].each(tx):
            keyed = item if is_none(key) else call_natively(tx, key, [item])
            if best is None:
                best = item, keyed
                continue
            chosen = (
                late_bound.extreme_of_numbers(tx, real, best[0], item) if is_none(key) else None
            )
            if chosen is not None:
                best = chosen, chosen
                continue
            better = compare_op(tx, op, keyed, best[1])
            chosen = late_bound.chosen_extreme(tx, better, item, best[0]) if is_none(key) else None
            if chosen is not None:
                best = chosen, chosen
            elif better.truth(tx):
                best = item, keyed
        if best is not None:
            return best[0]
        if default is None:
            call_real(tx, real, ())
        return default

    return choose


TABLE[min] = _extreme("min", "<")
TABLE[max] = _extreme("max", ">")


# -- itertools ------------------------------------------------------------------------------------
@handles(itertools.chain)
def _chain(tx, *iterables):
    return iterators.ChainIterator(TupleValue(iterables).iterate(tx))


@handles(itertools.chain.from_iterable)
def _chain_from(tx, iterables):
    return iterators.ChainIterator(iterables.iterate(tx))


@handles(itertools.repeat)
def _repeat(tx, item, times=None):
    return iterators.RepeatIterator(item, None if times is None else as_index(tx, times))


@handles(itertools.tee)
def _tee(tx, iterable, n=None):
    count = 2 if n is None else as_index(tx, n)
    call_real(tx, itertools.tee, (), count)
    if not count:
        return TupleValue([])  # of anything
    iterator = iterable.iterate(tx)
    if isinstance(iterator, iterators.TeeIterator):
        first = [iterator][: iterators.IS_FIRST_OF_ITS_COPIES]
        return TupleValue([*first, *(iterator.py___copy__(tx) for _ in range(count - len(first)))])
    if type_holds(iterator.python_type(), "__copy__"):
        raise Unsupported(breaks.UncapturedCall("itertools.tee"))
    buffer = iterators.TeeBuffer(iterator)
    return TupleValue([iterators.TeeIterator(buffer) for _ in range(count)])


def _by_polyfill(function: Any) -> Any:
    signature = inspect.signature(function)

    def call(tx: Interpreter, *args: Value, **kwargs: Value) -> Forwarded:
        try:
            signature.bind(*args, **kwargs)
        except TypeError:  # the original has its own words for that
            raise Unsupported(breaks.UncapturedCall(function.__name__)) from None
        return tx.wrap(function), args, kwargs

    return call


for _original, _substitute in polyfills.SUBSTITUTES.items():
    TABLE[_original] = _by_polyfill(_substitute)
