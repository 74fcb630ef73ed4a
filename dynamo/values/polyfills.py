"""C functions said in Python: captured like user code wherever the original is called."""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import itertools

_MISSING = object()


def reversed_items(sequence):
    for i in range(len(sequence) - 1, -1, -1):
        yield sequence[i]


def accumulate(iterable, func=None, *, initial=None):
    iterator = iter(iterable)
    total = initial
    if initial is None:
        try:
            total = next(iterator)
        except StopIteration:
            return
    yield total
    for element in iterator:
        total = total + element if func is None else func(total, element)
        yield total


def starmap(function, iterable):
    for args in iterable:
        yield function(*args)


def takewhile(predicate, iterable):
    for item in iterable:
        if not predicate(item):
            break
        yield item


def dropwhile(predicate, iterable):
    iterator = iter(iterable)
    for item in iterator:
        if not predicate(item):
            yield item
            break
    yield from iterator


def filterfalse(predicate, iterable):
    for item in iterable:
        if not (item if predicate is None else predicate(item)):
            yield item


def compress(data, selectors):
    for item, chosen in zip(data, selectors):
        if chosen:
            yield item


def pairwise(iterable):
    iterator = iter(iterable)
    try:
        left = next(iterator)
    except StopIteration:
        return
    for right in iterator:
        yield left, right
        left = right


def zip_longest(*iterables, fillvalue=None):
    iterators = [iter(i) for i in iterables]
    live = [True] * len(iterators)
    while True:
        row = []
        for i, iterator in enumerate(iterators):
            item = fillvalue
            if live[i]:
                try:
                    item = next(iterator)
                except StopIteration:
                    live[i] = False
            row.append(item)
        if not any(live):
            return
        yield tuple(row)


def groupby(iterable, key=None):
    """A group ends when the outer iterator moves on."""
    source = iter(iterable)
    state = {"turn": 0}  # and the item that was drawn last, with its key
    target = _MISSING

    def draw():
        for item in source:
            state["item"], state["key"] = item, item if key is None else key(item)
            return True
        return False

    def group(turn):
        while state["turn"] == turn and (state["key"] is target or state["key"] == target):
            yield state["item"]
            if not draw():
                return

    if not draw():
        return
    while True:
        target = state["key"]
        state["turn"] += 1
        yield target, group(state["turn"])
        state["turn"] += 1
        while state["key"] is target or state["key"] == target:
            if not draw():
                return


def batched(iterable, n, *, strict=False):
    if n < 1:
        raise ValueError("n must be at least one")
    iterator = iter(iterable)
    while batch := tuple(itertools.islice(iterator, n)):
        if strict and len(batch) != n:
            raise ValueError("batched(): incomplete batch")
        yield batch


def reduce(function, iterable, initial=_MISSING):
    iterator = iter(iterable)
    if initial is _MISSING:
        try:
            total = next(iterator)
        except StopIteration:
            raise TypeError("reduce() of empty iterable with no initial value") from None
    else:
        total = initial
    for item in iterator:
        total = function(total, item)
    return total


def count_elements(mapping, iterable):
    for item in iterable:
        mapping[item] = mapping.get(item, 0) + 1


def shallow_copy(x):
    if isinstance(x, (list, dict, set, collections.deque)) and hasattr(type(x), "copy"):
        return x.copy()
    if isinstance(
        x, (int, float, complex, bool, str, bytes, tuple, frozenset, type, type(None), range, slice)
    ):
        return x
    cls = type(x)
    if hasattr(cls, "__copy__"):
        return cls.__copy__(x)
    result = cls.__new__(cls)
    result.__dict__.update(x.__dict__)
    return result


def deep_copy(x, memo=None):
    if memo is None:
        memo = []
    for original, copied in memo:
        if original is x:
            return copied
    if isinstance(x, (int, float, complex, bool, str, bytes, type, type(None), range)):
        return x
    cls = type(x)
    if cls is tuple:
        return tuple([deep_copy(item, memo) for item in x])
    if cls is list:
        result = []
        memo.append((x, result))
        for item in x:
            result.append(deep_copy(item, memo))
        return result
    if isinstance(x, dict) and not hasattr(x, "__dict__"):
        result = x.copy()
        result.clear()
        memo.append((x, result))
        for key, value in x.items():
            result[deep_copy(key, memo)] = deep_copy(value, memo)
        return result
    if isinstance(x, set):
        return {deep_copy(item, memo) for item in x}
    if hasattr(cls, "__deepcopy__"):
        return x.__deepcopy__({})
    result = cls.__new__(cls)
    memo.append((x, result))
    for name, value in x.__dict__.items():
        result.__dict__[name] = deep_copy(value, memo)
    return result


def dataclass_fields(instance_or_class):
    table = instance_or_class.__dataclass_fields__
    return tuple([f for f in table.values() if f._field_type is dataclasses._FIELD])


def dataclass_asdict(obj, *, dict_factory=dict):
    if hasattr(type(obj), "__dataclass_fields__"):
        pairs = [(f.name, dataclass_asdict(getattr(obj, f.name))) for f in dataclass_fields(obj)]
        return dict_factory(pairs)
    if isinstance(obj, (list, tuple)):
        return type(obj)([dataclass_asdict(item) for item in obj])
    if isinstance(obj, dict):
        return type(obj)([(dataclass_asdict(k), dataclass_asdict(v)) for k, v in obj.items()])
    return copy.deepcopy(obj)


class CompareKey:
    """What functools.cmp_to_key makes of one item."""

    def __init__(self, compare, item):
        self.compare = compare
        self.item = item

    def __lt__(self, other):
        return self.compare(self.item, other.item) < 0

    def __eq__(self, other):
        return self.compare(self.item, other.item) == 0


def cmp_to_key(compare):
    return functools.partial(CompareKey, compare)


SUBSTITUTES = {
    itertools.accumulate: accumulate,
    itertools.starmap: starmap,
    itertools.takewhile: takewhile,
    itertools.dropwhile: dropwhile,
    itertools.filterfalse: filterfalse,
    itertools.compress: compress,
    itertools.pairwise: pairwise,
    itertools.zip_longest: zip_longest,
    itertools.groupby: groupby,
    functools.reduce: reduce,
    functools.cmp_to_key: cmp_to_key,
    vars(collections)["_count_elements"]: count_elements,
    copy.copy: shallow_copy,
    copy.deepcopy: deep_copy,
    dataclasses.fields: dataclass_fields,
    dataclasses.asdict: dataclass_asdict,
}
if hasattr(itertools, "batched"):
    SUBSTITUTES[itertools.batched] = batched
