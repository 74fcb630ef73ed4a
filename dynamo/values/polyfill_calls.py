"""Instructions that call the program's functions from C, run as polyfills.

    def f(xs):                             sorted(xs, key=g) is captured as one instruction: its
        return sorted(xs, key=g)           handler calls g. Where the graph breaks inside of g, the
    #                      ^ breaks        frame would break at the whole call of sorted.

Then the frame is captured again, and in this instruction `sort_new` of polyfills/builtins.py takes
the place of `sorted`: a Python function like any other, whose call of g is an instruction of its
own, so that the break stands in g, and sorted goes on behind it. Its frames are hidden from the
user.
"""

from __future__ import annotations

import copy
import functools
import inspect
import operator
import re
import string
import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dynamo.errors import Unsupported
from dynamo.polyfills import builtins as builtin_polyfills
from dynamo.values.base import Value
from dynamo.values.constant import ConstantValue
from dynamo.values.containers import TupleValue
from dynamo.values.descriptors import class_lookup
from dynamo.values.dicts import DictValue
from dynamo.values.function import UserFunctionValue
from dynamo.values.objects import ObjectValue
from dynamo.values.stack_items import RESULT, ReturnContinuation

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

# What is called -> the function that says it in Python.
CALLS: dict[Any, Callable[..., Any]] = {
    list: builtin_polyfills.make_list,
    tuple: builtin_polyfills.make_tuple,
    set: builtin_polyfills.make_set,
    any: builtin_polyfills.any_of,
    all: builtin_polyfills.all_of,
    sum: builtin_polyfills.sum_of,
    min: builtin_polyfills.smallest,
    max: builtin_polyfills.largest,
    sorted: builtin_polyfills.sort_new,
    functools.reduce: builtin_polyfills.reduce,
    hasattr: builtin_polyfills.has_attribute,
    print: builtin_polyfills.show,
    range: builtin_polyfills.make_range,
}
# Python functions that have handlers: their own code is captured for objects that have the method.
_IN_PYTHON = {copy.copy: "__copy__", copy.deepcopy: "__deepcopy__"}
# Methods of built-in types, by their name.
METHODS: dict[tuple[type, str], Callable[..., Any]] = {
    (list, "sort"): builtin_polyfills.sort_by,
    (list, "extend"): builtin_polyfills.extend,
    (list, "count"): builtin_polyfills.count_in,
    (list, "index"): builtin_polyfills.index_in,
    (list, "remove"): builtin_polyfills.remove_from,
    (tuple, "count"): builtin_polyfills.count_in,
    (tuple, "index"): builtin_polyfills.index_in,
    (str, "join"): builtin_polyfills.join,
}
_EQUAL: dict[type, Callable[..., Any]] = {
    list: builtin_polyfills.equal_lists,
    tuple: builtin_polyfills.equal_tuples,
}
# These ask for a length first, which says nothing where these methods are missing.
_HINTED = frozenset(
    [
        builtin_polyfills.make_list,
        builtin_polyfills.make_tuple,
        builtin_polyfills.sort_new,
        builtin_polyfills.join,
        builtin_polyfills.extend,
    ]
)
_HINTS = ("__len__", "__length_hint__")


def wants_polyfill(tx: Interpreter) -> bool:
    """Whether the current instruction, which has a polyfill, is to run as that."""
    if tx.began in tx.output.plan.polyfilled:
        return True
    tx.polyfill_step = tx.began
    return False


def run_polyfill(
    tx: Interpreter,
    function: Callable[..., Any],
    args: Sequence[Value],
    kwargs: dict[str, Value] | None = None,
    pushed: Sequence[Value] | None = None,
) -> Value | None:
    """What the current instruction gives, by function(*args, **kwargs) of polyfills/builtins.py,
    if it is to run as a polyfill; None where it is not.

    pushed: what it pushes of that, and then is done (see Interpreter.pushed).
    """
    if not wants_polyfill(tx):
        return None

    wanted = (RESULT,) if pushed is None else pushed
    return tx.finish_call(tx.wrap(function), args, kwargs or {}, wanted)


def polyfill_call(
    tx: Interpreter, function: Any, args: Sequence[Value], kwargs: dict[str, Value]
) -> Value | None:
    """function(*args, **kwargs), which is all that the current instruction does."""
    if function in _IN_PYTHON and _has_method(args, _IN_PYTHON[function]) and wants_polyfill(tx):
        return tx.finish_call(UserFunctionValue(function), args, kwargs)
    said = CALLS.get(function)
    if said is None or not args or not _fits(said, len(args), tuple(kwargs)):
        return None
    if said in _HINTED and asks_length(tx, args[0]):
        return None
    if said is builtin_polyfills.show and not all(
        value.python_type_is(str) for value in kwargs.values()
    ):
        return None
    return run_polyfill(tx, said, args, kwargs)


def _has_method(args: Sequence[Value], name: str) -> bool:
    found = class_lookup(args[0].python_type(), name) if args else None
    return isinstance(found, types.FunctionType)


def polyfill_construct(
    tx: Interpreter, cls: Value, new: Value, args: Sequence[Value], kwargs: dict[str, Value]
) -> Value:
    """type.__call__(cls, *args, **kwargs), where `new` is the class's __new__."""
    named = tx.output.side_effects.track_new(DictValue.of(tx, kwargs))
    operands = [cls, new, TupleValue(list(args)), named]
    return tx.finish_call(tx.wrap(builtin_polyfills.construct), operands, {})


def polyfill_method(
    tx: Interpreter, owner: Value, name: str, args: Sequence[Value], kwargs: dict[str, Value]
) -> Value | None:
    """owner.name(*args, **kwargs) of a built-in type."""
    if name == "format" and owner.python_type_is(str) and owner.is_constant():
        return _polyfill_format(tx, owner.as_constant(), args, kwargs)
    try:
        said = METHODS.get((owner.python_type(), name))
    except Unsupported:
        return None
    if said is None or not _fits(said, 1 + len(args), tuple(kwargs)):
        return None
    if said in _HINTED and asks_length(tx, args[0]):
        return None
    if said is builtin_polyfills.sort_by:
        known = [kwargs[name].is_constant() for name in kwargs]
        if known != [name == "reverse" for name in kwargs]:
            return None
    return run_polyfill(tx, said, [owner, *args], kwargs)


def polyfill_contains(
    tx: Interpreter, item: Value, container: Value, negated: bool
) -> Value | None:
    """`item in container`, where that compares with one item after the other."""
    if isinstance(container, ObjectValue):
        if container.is_python_special(tx, "__contains__"):
            return None
    elif not container.python_type_is(list, tuple):
        return None
    pushed = [_finished(operator.not_)] if negated else None
    return run_polyfill(tx, builtin_polyfills.find, [container, item], pushed=pushed)


def polyfill_equal(tx: Interpreter, op: str, left: Value, right: Value) -> Value | None:
    """left == right of two lists or tuples, and their !="""
    if op not in ("==", "!=") or left.is_constant():
        return None
    for kind, said in _EQUAL.items():
        if left.python_type_is(kind) and right.python_type_is(kind):
            pushed = None if op == "==" else [_finished(operator.not_)]
            return run_polyfill(tx, said, [left, right], pushed=pushed)
    return None


def _finished(function: Callable[..., Any], *operands: Value) -> Value:
    return ReturnContinuation(function, operands)


_PERCENT = re.compile(r"%([-#0 +]*\d*(?:\.\d+)?)(.)", re.DOTALL)


def polyfill_percent(tx: Interpreter, left: Value, right: Value) -> Value | None:
    """`left % right` of a text that asks for nothing but texts, by their places."""
    if not left.python_type_is(str) or not left.is_constant() or right.is_constant():
        return None
    text, asked = left.as_constant(), []
    for flags, kind in _PERCENT.findall(text):
        if kind not in "sra%" or (kind == "%" and flags):
            return None
        asked += [] if kind == "%" else [kind]
    is_tuple = right.python_type_is(tuple)
    if not is_tuple and issubclass(right.python_type(), tuple):
        return None
    if (not is_tuple and len(asked) != 1) or not wants_polyfill(tx):
        return None
    plain = _PERCENT.sub(
        lambda found: "%" + found[1] + found[2].replace("r", "s").replace("a", "s"), text
    )
    values = right if is_tuple else TupleValue([right])
    return run_polyfill(
        tx, builtin_polyfills.percent, [ConstantValue(plain), ConstantValue(tuple(asked)), values]
    )


def _polyfill_format(
    tx: Interpreter, text: str, args: Sequence[Value], kwargs: dict[str, Value]
) -> Value | None:
    """text.format(*args, **kwargs) without attributes, items and nested fields."""
    if not wants_polyfill(tx):
        return None
    pieces: list[tuple] = []
    try:
        for literal, field, spec, kind in string.Formatter().parse(text):
            key: Any = field
            if field is not None and (field == "" or field.isdecimal()):
                key = int(field) if field else sum(isinstance(p[1], int) for p in pieces)
            pieces.append((literal, key, kind, spec))
    except ValueError:
        return None
    fields = [field for _, field, _, _ in string.Formatter().parse(text) if field is not None]
    numbered = {field == "" for field in fields if field == "" or field.isdecimal()}
    known = all(p[1] in kwargs or p[1] is None or p[1] in range(len(args)) for p in pieces)
    if not known or len(numbered) > 1 or any("{" in (p[3] or "") for p in pieces):
        return None
    named = tx.output.side_effects.track_new(DictValue.of(tx, kwargs))
    operands = [ConstantValue(tuple(pieces)), TupleValue(list(args)), named]
    return run_polyfill(tx, builtin_polyfills.format_text, operands)


def polyfill_unpack(tx: Interpreter, value: Value, before: int, after: int | None) -> Value | None:
    """before + after variables, or (after is None) no more than `before`; and one with a star
    between them.
    """
    if (after is not None and asks_length(tx, value)) or not wants_polyfill(tx):
        return None
    count = before if after is None else before + 1 + after
    places = [ConstantValue(place) for place in reversed(range(count))]
    pushed = [_finished(builtin_polyfills.item_at, place) for place in places]
    if after is None:
        return run_polyfill(
            tx, builtin_polyfills.unpack, [value, ConstantValue(before)], pushed=pushed
        )
    numbers = [ConstantValue(before), ConstantValue(after)]
    return run_polyfill(tx, builtin_polyfills.unpack_rest, [value, *numbers], pushed=pushed)


def asks_length(tx: Interpreter, iterable: Value) -> bool:
    """Whether a method of the program's says how many items there are."""
    return any(iterable.has_special(tx, name) for name in _HINTS)


@functools.cache
def _fits(function: Callable[..., Any], count: int, names: tuple[str, ...]) -> bool:
    """Whether it can be called like that: C has words of its own for what does not fit."""
    if (
        function in (builtin_polyfills.smallest, builtin_polyfills.largest)
        and count > 1
        and "default" in names
    ):
        return False
    try:
        inspect.signature(function).bind(*[None] * count, **dict.fromkeys(names))
    except TypeError:
        return False
    return True
