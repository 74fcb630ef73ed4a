"""Single functions of the standard library: folded, said in Python, or never looked into."""

from __future__ import annotations

import _string  # type: ignore[import-not-found]
import bisect
import collections
import dataclasses
import enum
import functools
import importlib.util
import inspect
import math
import operator
import os
import pickle
import re
import sys
import traceback
import types
import typing
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.classes import HEAP_TYPE
from dynamo.guards.sources import AttrSource, ModuleSource
from dynamo.polyfills import builtins as builtin_polyfills
from dynamo.values.base import Value, is_none
from dynamo.values.builtins.pure_modules import twins
from dynamo.values.builtins.table import (
    PURE_FUNCTIONS,
    TABLE,
    fold,
    handles,
    polyfill,
)
from dynamo.values.classes.lookup import type_holds
from dynamo.values.containers.containers import ListValue, SequenceValue, TupleValue
from dynamo.values.containers.ranges import RangeValue
from dynamo.values.dummy_operands import fail_as
from dynamo.values.functions.functional import METHODS_OF_PURE, PureObjectValue
from dynamo.values.iterators.native_iterators import CalledIterator
from dynamo.values.objects.exception_objects import TracebackValue
from dynamo.values.objects.exceptions import call_real
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.scalars.literals import from_constant
from dynamo.values.scalars.operators import binary_op
from dynamo.values.scalars.symbol import place_among
from dynamo.values.scalars.symbolic_text import SymbolicText, substituted, text_of_text

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

# Functions that make classes: natively, as a whole.
_MAKE_CLASSES = (
    collections.namedtuple,
    typing.NamedTuple,
    typing.NewType,
    dataclasses.make_dataclass,
    vars(dataclasses)["_process_class"],
    vars(enum.EnumType)["_create_"],
    types.new_class,
    functools.total_ordering,
)
_PATH_FUNCTIONS = ("_path_normpath", "_path_splitroot")
# Functions whose results do not change while the process lives.
PURE_FUNCTIONS |= {
    sys.intern,
    sys.getdefaultencoding,
    sys.getfilesystemencoding,
    inspect.getdoc,
    os.fspath,
    *(f for name, f in vars(sys.modules[os.name]).items() if name.startswith(_PATH_FUNCTIONS)),
}


def never_captured(function: Any) -> Callable[..., None]:
    def refuse(tx: Interpreter, *args: Value, **kwargs: Value) -> None:
        raise Unsupported(breaks.UncapturedCall(f"{function.__module__}.{function.__qualname__}"))

    return refuse


for _maker in _MAKE_CLASSES:
    if isinstance(_maker, types.FunctionType):
        TABLE[_maker] = never_captured(_maker)


def _on_heap(function: Any, twin: Any) -> Callable[..., Value]:
    def call(tx: Interpreter, heap: Value, *args: Value) -> Value:
        takes = function.__name__ in ("heappop", "heapreplace", "_heappop_max", "_heapreplace_max")
        if heap.is_constant() or (takes and isinstance(heap, ListValue) and not heap.contents):
            fail_as(tx, function, heap, *args)
        return polyfill(tx, twin, heap, *args)

    return call


for _original, _twin in twins("heapq", "_heapq").items():
    TABLE[_original] = _on_heap(_original, _twin)


def _bisected(function: Any, twin: Any) -> Callable[..., Value]:
    def call(tx: Interpreter, *args: Value, **kwargs: Value) -> Value:
        if function in (bisect.bisect_left, bisect.bisect_right) and len(args) == 2 and not kwargs:
            numbers, number = args
            if isinstance(numbers, SequenceValue) and number.is_symbolic():
                after = function is bisect.bisect_right
                found = place_among(tx, number, numbers.live_items(tx), after)
                if found is not None:
                    return found
        return polyfill(tx, twin, *args, **kwargs)

    return call


for _original, _twin in twins("bisect", "_bisect").items():
    TABLE[_original] = _bisected(_original, _twin)


@handles(bytes)
def _bytes(tx, source=None, *rest, **kwargs):
    args = [] if source is None else [source, *rest]
    if isinstance(source, (SequenceValue, RangeValue)) and not rest and not kwargs:
        return fold(tx, bytes, [ListValue(list(source.unpack(tx)))], {})
    if not all(value.is_constant() for value in (*args, *kwargs.values())):
        raise Unsupported(breaks.UncapturedCall("bytes"))
    return fold(tx, bytes, args, kwargs)


# A second reference to an object of another type is written as one.
_PICKLED_BY_VALUE = (int, float, bool, types.NoneType)


@handles(pickle.dumps)
def _pickled(tx, value, *args, **kwargs):
    """A flat container, as in keys of caches, whose parts are certainly no object twice."""
    real = value.as_constant()
    parts = list(real) if type(real) in (dict, list, tuple) else [real]
    parts += real.values() if type(real) is dict else []
    texts = [part for part in parts if type(part) not in _PICKLED_BY_VALUE]
    if any(type(text) is not str for text in texts) or len(set(texts)) < len(texts):
        raise Unsupported(breaks.UncapturedCall("pickle.dumps"))
    options = {name: option.as_constant() for name, option in kwargs.items()}
    return ConstantValue(pickle.dumps(real, *(arg.as_constant() for arg in args), **options))


@handles(traceback.clear_frames)
def _clear_frames(tx, tb):
    """Clear nothing: frames of exceptions that the captured code raised hold only values that live
    on.
    """
    if not is_none(tb) and (not isinstance(tb, TracebackValue) or tb.kept or tb.tail is not None):
        raise Unsupported(breaks.UncapturedCall("traceback.clear_frames"))
    return ConstantValue(None)


# -- math -----------------------------------------------------------------------------------------
@handles(math.prod)
def _prod(tx, iterable, *, start=None):
    return tx.wrap(builtin_polyfills.prod), [iterable, start or ConstantValue(1)], {}


def _numbers(tx: Interpreter, iterable: Value) -> list[Value]:
    """The items, as far as they are asked for: to the first that is no number."""
    items: list[Value] = []
    for item in iterable.each(tx):
        items.append(item)
        if not hasattr(item.python_type(), "__float__") and not item.python_type_is(int):
            break
    return items


def _over_numbers(function: Any) -> Callable[..., Value]:
    """A function of iterables of numbers, folded."""

    def call(tx: Interpreter, *iterables: Value) -> Value:
        lists = [ListValue(_numbers(tx, i)) for i in iterables]
        return fold(tx, function, lists, {})

    return call


for _function in (math.fsum, math.dist, getattr(math, "sumprod", None)):
    if _function is not None:
        TABLE[_function] = _over_numbers(_function)


@handles(sys.getrecursionlimit)
def _recursion_limit(tx):
    limit = sys.getrecursionlimit()

    def gives_the_captured_limit(function: Any) -> bool:
        return function() == limit

    source = AttrSource(ModuleSource("sys"), "getrecursionlimit")
    tx.guard(source, "predicate", gives_the_captured_limit)
    return ConstantValue(limit)


# -- operator -------------------------------------------------------------------------------------
_ITERATED = ("__iter__", "__getitem__")


def _search(function: Any, said: Any) -> Any:
    def search(tx, container, item, /):
        if not any(type_holds(container.python_type(), name) for name in _ITERATED):
            fail_as(tx, function, container, item)
        return tx.wrap(said), [container, item], {}

    return search


TABLE[operator.countOf] = _search(operator.countOf, builtin_polyfills.count_in)
TABLE[operator.indexOf] = _search(operator.indexOf, builtin_polyfills.index_of)


@handles(importlib.import_module)
def _import_module(tx, name, package=None):
    """Of a module that is loaded: loading one is a graph break, as by a statement."""
    text, base = name.as_constant(), None if package is None else package.as_constant()
    try:
        full = importlib.util.resolve_name(text, base)
    except (AttributeError, ImportError):
        raise Unsupported(breaks.UncapturedCall("importlib.import_module")) from None
    if sys.modules.get(full) is None:
        raise Unsupported(breaks.ModuleImport(full))
    return tx.wrap(sys.modules[full], ModuleSource(full))


@handles(operator.call)
def _call(tx, function, /, *args, **kwargs):
    return function, args, kwargs


def _concatenation(function: Any, symbol: str) -> Callable[..., Value]:
    """operator.concat and iconcat: `+` between sequences, and nothing but that."""

    def concatenate(tx, left, right):
        kinds = [value.python_type() for value in (left, right)]
        if isinstance(left, SequenceValue) and symbol == "+":  # nobody asks the right one
            fits = issubclass(kinds[1], left.cls)
        else:
            # As C sees sequences: tensors and arrays are none to it, or refuse.
            refuse = (dict, np.ndarray, torch.Tensor)
            fits = all(hasattr(k, "__getitem__") and not issubclass(k, refuse) for k in kinds)
        if not fits and not any(kind.__flags__ & HEAP_TYPE for kind in kinds):
            fail_as(tx, function, left, right)
        if not fits:
            raise Unsupported(breaks.UncapturedCall(f"operator.{function.__name__}"))
        return binary_op(tx, symbol, left, right)

    return concatenate


TABLE[operator.concat] = _concatenation(operator.concat, "+")
TABLE[operator.iconcat] = _concatenation(operator.iconcat, "+=")


@handles(operator.length_hint)
def _length_hint(tx, value, default=None):
    whole = default is None or default.python_type_is(int)
    if not whole or not type_holds(value.python_type(), "__len__"):
        raise Unsupported(breaks.UncapturedCall("operator.length_hint"))
    return ConstantValue(value.length(tx))


# -- regular expressions --------------------------------------------------------------------------
def pattern_method(tx: Interpreter, pattern: PureObjectValue, name: str, args: Any, kwargs: Any):
    """Methods whose results are made of matches; None: not one of them."""
    if name == "finditer":
        constants = [a.as_constant() for a in args], {k: v.as_constant() for k, v in kwargs.items()}
        find = partial(pattern.real.finditer, *constants[0], **constants[1])
        found = call_real(tx, lambda: list(find()))
        return CalledIterator(type(find()), find, [], [tx.wrap(match) for match in found])
    if name == "sub" and not kwargs and len(args) == 2 and isinstance(args[1], SymbolicText):
        real = pattern.real
        if type(args[0]) is ConstantValue:
            given = [real.pattern, real.flags, args[0].as_constant()]
            return text_of_text(substituted, args[1], given)
    return None


METHODS_OF_PURE[re.Pattern] = pattern_method


def _through_pattern(name: str) -> Callable[..., Value]:
    """re.sub(pattern, ...) is re.compile(pattern).sub(...)."""

    def call(tx, pattern, *args, flags=None, **kwargs):
        if not isinstance(pattern, PureObjectValue):
            flags = [] if flags is None else [flags]
            pattern = fold(tx, re.compile, [pattern, *flags], {})
        return pattern.call_method(tx, name, args, kwargs)

    return call


for _name in ("sub", "subn"):
    TABLE[getattr(re, _name)] = _through_pattern(_name)


@handles(_string.formatter_parser)
def _formatter_parser(tx, template):
    rows = call_real(tx, lambda: list(_string.formatter_parser(template.as_constant())))
    return TupleValue([from_constant(row) for row in rows]).iterate(tx)


@handles(_string.formatter_field_name_split)
def _field_name_split(tx, name):
    first, rest = call_real(tx, _string.formatter_field_name_split, name.as_constant())
    rows = [from_constant(row) for row in rest]
    return TupleValue([ConstantValue(first), TupleValue(rows).iterate(tx)])


@handles(re.finditer)
def _finditer(tx, pattern, string, flags=None):
    return _through_pattern("finditer")(tx, pattern, string, flags=flags)
