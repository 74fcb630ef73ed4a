"""Functions of the standard library said in Python: captured like user code wherever the original
is called. Functions in C that need no class are in builtins.py, whose frames are hidden.
"""

from __future__ import annotations

import collections
import copy
import copyreg
import dataclasses
import functools
import itertools
import types
from collections.abc import Callable
from typing import Any

from dynamo.polyfills import builtins

MISSING = object()


class ReversedItems:
    """reversed() of an object with __len__ and __getitem__."""

    def __init__(self, sequence):
        self.sequence = sequence
        self.index = len(sequence) - 1

    def __iter__(self):
        return self

    def __next__(self):
        if self.index >= 0:
            try:
                item = self.sequence[self.index]
            except (IndexError, StopIteration):
                pass
            else:
                self.index -= 1
                return item
        self.index, self.sequence = -1, ()
        raise StopIteration

    def __length_hint__(self):
        return 0 if len(self.sequence) <= self.index else self.index + 1


def reversed_items(sequence):
    return ReversedItems(sequence)


class GroupBy:
    """itertools.groupby: a group ends when the outer iterator moves on."""

    def __init__(self, iterable, key):
        self.source = iter(iterable)
        self.key = key
        self.found = self.target = MISSING  # the key drawn last, and that of the group
        self.item = MISSING
        self.group = None  # the last one given

    def __iter__(self):
        return self

    def draw(self):
        item = next(self.source)
        self.found = item if self.key is None else self.key(item)
        self.item = item

    def __next__(self):
        if self.group is not None:
            self.group.current = False
            self.group = None
        while self.found is MISSING or (
            self.target is not MISSING and (self.target is self.found or self.target == self.found)
        ):
            self.draw()
        self.target = self.found
        self.group = Group(self, self.target)
        return self.found, self.group


class Group:
    def __init__(self, parent, target):
        self.parent = parent
        self.target = target
        self.current = True

    def __iter__(self):
        return self

    def __next__(self):
        parent = self.parent
        if not self.current:
            raise StopIteration
        if parent.item is MISSING:
            parent.draw()
        if not (self.target is parent.found or self.target == parent.found):
            raise StopIteration
        item = parent.item
        parent.item = parent.found = MISSING
        return item


def groupby(iterable, key=None):
    return GroupBy(iterable, key)


def shallow_copy(x, reduction):
    """copy.copy(x), given `reduction`, the result of x.__reduce_ex__(4)."""
    if isinstance(reduction, str):
        return x
    return copy._reconstruct(x, None, *reduction)


def deep_rule(x):
    """The rule of copy.deepcopy for x (see copying.py, which answers calls of this)."""
    raise NotImplementedError


def reduced(x):
    """x.__reduce_ex__(4) (see copying.py, which answers calls of this)."""
    raise NotImplementedError


def copied_tensor(x):
    """copy.deepcopy(x) of a tensor (see tensor_copies.py, which answers calls of this)."""
    raise NotImplementedError


def deep_copy(x, memo):
    rule = deep_rule(x)
    if rule == "atomic":
        return x
    if memo is None:
        memo = {}
    if id(x) in memo:
        return memo[id(x)]
    if rule == "list":
        result = memo[id(x)] = []
        for item in x:
            result.append(copy.deepcopy(item, memo))
    elif rule == "dict":
        result = memo[id(x)] = {}
        for key, value in x.items():
            result[copy.deepcopy(key, memo)] = copy.deepcopy(value, memo)
    elif rule == "tuple":
        result = deep_copy_tuple(x, memo)
    elif rule == "method":
        result = type(x)(x.__func__, copy.deepcopy(x.__self__, memo))
    elif rule == "tensor":
        result = copied_tensor(x)
    elif rule == "immutable":
        result = copy.copy(x)
    elif rule == "own":
        result = x.__deepcopy__(memo)
    else:
        reduction = reduced(x)
        if isinstance(reduction, str):
            return x
        result = copy._reconstruct(x, memo, *reduction)
    if result is not x:
        memo[id(x)] = result
        if id(memo) in memo:
            memo[id(memo)].append(x)  # copied objects live as long as the memo
        else:
            memo[id(memo)] = [x]
    return result


def deep_copy_tuple(x, memo):
    items = [copy.deepcopy(item, memo) for item in x]
    if id(x) in memo:
        return memo[id(x)]
    for old, new in zip(x, items):
        if old is not new:
            return tuple(items)
    return x


def reduce_object(x, slot_names, own_getstate, own_newargs):
    """object.__reduce_ex__(x, 4)."""
    cls = type(x)
    args = ()
    if hasattr(cls, "__getnewargs_ex__"):
        args, kwargs = x.__getnewargs_ex__()
        return copyreg.__newobj_ex__, (cls, args, kwargs), object_state(x, slot_names, own_getstate)
    if isinstance(x, tuple) and not own_newargs:
        args = (tuple(x),)
    elif hasattr(cls, "__getnewargs__"):
        args = x.__getnewargs__()
    items = iter(x) if isinstance(x, list) else None
    pairs = iter(x.items()) if isinstance(x, dict) else None
    state = object_state(x, slot_names, own_getstate)
    return copyreg.__newobj__, (cls, *args), state, items, pairs


def plain_methods(x, told):
    """Break unless `told` are object's own methods of x (see copying.py, which answers calls)."""
    raise NotImplementedError


def reduce_heard(x):
    """object.__reduce_ex__(x, 4), and the look-up of that: the class has a __getattribute__ of its
    own, but neither slots nor another method for copies.
    """
    names = "__reduce_ex__", "__reduce__", "__getstate__"
    plain_methods(x, [getattr(x, name, None) for name in names])
    state = object.__getattribute__(x, "__dict__")
    return copyreg.__newobj__, (type(x),), state or None, None, None


def object_state(x, slot_names=(), own_getstate=None):
    """x.__getstate__(); None for `own_getstate`: x is of a C container's type itself, and the names
    are those of its attributes, which are set one by one.
    """
    if own_getstate is None:
        return (None, {name: getattr(x, name) for name in slot_names}) if slot_names else None
    if own_getstate:
        return x.__getstate__()
    state = (x.__dict__ or None) if hasattr(x, "__dict__") else None
    slots = {name: getattr(x, name) for name in slot_names if hasattr(x, name)}
    return (state, slots) if slots else state


# The __reduce__ of C containers: (x, the arguments of object_state besides) -> the result.
REDUCTIONS = {
    slice: lambda x, *how: (slice, (x.start, x.stop, x.step)),
    set: lambda x, *how: (type(x), (list(x),), object_state(x, *how)),
    frozenset: lambda x, *how: (type(x), (list(x),), object_state(x, *how)),
    collections.deque: lambda x, *how: (
        type(x),
        () if x.maxlen is None else ((), x.maxlen),
        object_state(x, *how),
        iter(x),
    ),
    collections.OrderedDict: lambda x, *how: (
        type(x),
        (),
        object_state(x, *how),
        None,
        iter(x.items()),
    ),
    collections.defaultdict: lambda x, *how: (
        type(x),
        () if x.default_factory is None else (x.default_factory,),
        None,
        None,
        iter(x.items()),
    ),
    types.SimpleNamespace: lambda x, *how: (type(x), (), x.__dict__),
}


def copy_deque(x):
    return type(x)(x) if x.maxlen is None else type(x)(x, x.maxlen)


def join_deques(x, other):
    result = copy_deque(x)
    collections.deque.extend(result, other)
    return result


def copy_ordered(x):
    result = type(x)()
    for key in collections.OrderedDict.__iter__(x):
        result[key] = x[key]
    return result


def copy_defaultdict(x):
    return type(x)(x.default_factory, x)


# Methods of C containers that make another object of the instance's class, by calls of that.
CLASS_COPIES: dict[Any, Callable[..., Any]] = {
    (collections.deque, "copy"): copy_deque,
    (collections.deque, "__copy__"): copy_deque,
    (collections.deque, "__add__"): join_deques,
    (collections.OrderedDict, "copy"): copy_ordered,
    (collections.defaultdict, "copy"): copy_defaultdict,
    (collections.defaultdict, "__copy__"): copy_defaultdict,
}


def dataclass_fields(instance_or_class):
    try:
        table = instance_or_class.__dataclass_fields__
    except AttributeError:
        raise TypeError("must be called with a dataclass type or instance") from None
    return tuple([f for f in table.values() if f._field_type is dataclasses._FIELD])


class CompareKey:
    """A key of functools.cmp_to_key."""

    __slots__ = ("compare", "obj")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, compare, obj):
        self.compare = compare
        self.obj = obj

    def __lt__(self, other):
        return self.compare(self.obj, other.obj) < 0

    def __gt__(self, other):
        return self.compare(self.obj, other.obj) > 0

    def __eq__(self, other):
        return self.compare(self.obj, other.obj) == 0

    def __le__(self, other):
        return self.compare(self.obj, other.obj) <= 0

    def __ge__(self, other):
        return self.compare(self.obj, other.obj) >= 0


def cmp_to_key(compare):
    return functools.partial(CompareKey, compare)


SUBSTITUTES = {
    itertools.groupby: groupby,
    functools.reduce: builtins.reduce,
    functools.cmp_to_key: cmp_to_key,
    vars(collections)["_count_elements"]: builtins.count_elements,
    dataclasses.fields: dataclass_fields,
}
