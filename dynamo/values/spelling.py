"""Instructions that call functions of the program's in C, spelled out in Python.

    def f(xs):                             sorted(xs, key=g) is captured as one instruction: its
        return sorted(xs, key=g)           handler calls g. Where the graph breaks inside of g, the
    #                      ^ breaks        frame would break at the whole call of sorted.

Then the frame is captured again, and in this instruction `sort_new` of values/spelled.py takes the
place of `sorted`: a Python function like any other, whose call of g is an instruction of its own,
so that the break stands in g, and sorted goes on behind it. Its frames are hidden from the user.
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
from dynamo.values import spelled
from dynamo.values.base import Value

if TYPE_CHECKING:
    from dynamo.capture.interpreter import Interpreter

# What is called -> the function that says it in Python.
CALLS: dict[Any, Callable[..., Any]] = {
    list: spelled.make_list,
    tuple: spelled.make_tuple,
    set: spelled.make_set,
    any: spelled.any_of,
    all: spelled.all_of,
    sum: spelled.sum_of,
    min: spelled.smallest,
    max: spelled.largest,
    sorted: spelled.sort_new,
    functools.reduce: spelled.reduce,
    hasattr: spelled.has_attribute,
    print: spelled.show,
    range: spelled.make_range,
}
# Python functions that have handlers: their own code is captured for objects that have the method.
_IN_PYTHON = {copy.copy: "__copy__", copy.deepcopy: "__deepcopy__"}
# Methods of built-in types, by their name.
METHODS: dict[tuple[type, str], Callable[..., Any]] = {
    (list, "sort"): spelled.sort_by,
    (list, "extend"): spelled.extend,
    (list, "count"): spelled.count_in,
    (list, "index"): spelled.index_in,
    (list, "remove"): spelled.remove_from,
    (tuple, "count"): spelled.count_in,
    (tuple, "index"): spelled.index_in_tuple,
    (str, "join"): spelled.join,
}
_EQUAL: dict[type, Callable[..., Any]] = {list: spelled.equal_lists, tuple: spelled.equal_tuples}
# These ask for a length first, which says nothing where these methods are missing.
_HINTED = frozenset(
    [spelled.make_list, spelled.make_tuple, spelled.sort_new, spelled.join, spelled.extend]
)
_HINTS = ("__len__", "__length_hint__")


def is_wanted(tx: Interpreter) -> bool:
    """Whether the current instruction, which can be spelled out, is to be."""
    if tx.began in tx.output.spelled:
        return True
    tx.spellable = tx.began
    return False


def spell(
    tx: Interpreter,
    function: Callable[..., Any],
    args: Sequence[Value],
    kwargs: dict[str, Value] | None = None,
    pushed: Sequence[Value] | None = None,
) -> Value | None:
    """What the current instruction gives, by function(*args, **kwargs) of values/spelled.py, if it
    is to be spelled out; None where it is not.

    pushed: what it pushes of that, and then is done (see Interpreter.pushed).
    """
    if not is_wanted(tx):
        return None
    from dynamo.capture.inlining import finish_call
    from dynamo.capture.interpreter import RESULT

    wanted = (RESULT,) if pushed is None else pushed
    return finish_call(tx, tx.wrap(function), args, kwargs or {}, wanted)


def spell_call(
    tx: Interpreter, function: Any, args: Sequence[Value], kwargs: dict[str, Value]
) -> Value | None:
    """function(*args, **kwargs), which is all that the current instruction does."""
    if function in _IN_PYTHON and _has_method(args, _IN_PYTHON[function]) and is_wanted(tx):
        from dynamo.capture.inlining import finish_call
        from dynamo.values.function import UserFunctionValue

        return finish_call(tx, UserFunctionValue(function), args, kwargs)
    said = CALLS.get(function)
    if said is None or not args or not _fits(said, len(args), tuple(kwargs)):
        return None
    if said in _HINTED and asks_length(tx, args[0]):
        return None
    if said is spelled.show and not all(value.python_type_is(str) for value in kwargs.values()):
        return None
    return spell(tx, said, args, kwargs)


def _has_method(args: Sequence[Value], name: str) -> bool:
    from dynamo.values.descriptors import class_lookup

    found = class_lookup(args[0].python_type(), name) if args else None
    return isinstance(found, types.FunctionType)


def spell_construct(
    tx: Interpreter, cls: Value, new: Value, args: Sequence[Value], kwargs: dict[str, Value]
) -> Value:
    """type.__call__(cls, *args, **kwargs), where `new` is the class's __new__."""
    from dynamo.capture.inlining import finish_call
    from dynamo.values.containers import TupleValue
    from dynamo.values.dicts import DictValue

    named = tx.output.side_effects.track_new(DictValue.of(tx, kwargs))
    operands = [cls, new, TupleValue(list(args)), named]
    return finish_call(tx, tx.wrap(spelled.construct), operands, {})


def spell_method(
    tx: Interpreter, owner: Value, name: str, args: Sequence[Value], kwargs: dict[str, Value]
) -> Value | None:
    """owner.name(*args, **kwargs) of a built-in type."""
    if name == "format" and owner.python_type_is(str) and owner.is_constant():
        return _spell_format(tx, owner.as_constant(), args, kwargs)
    try:
        said = METHODS.get((owner.python_type(), name))
    except Unsupported:
        return None
    if said is None or not _fits(said, 1 + len(args), tuple(kwargs)):
        return None
    if said in _HINTED and asks_length(tx, args[0]):
        return None
    if said is spelled.sort_by:
        known = [kwargs[name].is_constant() for name in kwargs]
        if known != [name == "reverse" for name in kwargs]:
            return None
    return spell(tx, said, [owner, *args], kwargs)


def spell_contains(tx: Interpreter, item: Value, container: Value, negated: bool) -> Value | None:
    """`item in container`, where that compares with one item after the other."""
    from dynamo.values.objects import ObjectValue

    if isinstance(container, ObjectValue):
        if container.is_python_special(tx, "__contains__"):
            return None
    elif not container.python_type_is(list, tuple):
        return None
    return spell(tx, spelled.find_not if negated else spelled.find, [container, item])


def spell_equal(tx: Interpreter, op: str, left: Value, right: Value) -> Value | None:
    """left == right of two lists or tuples, and their !="""
    if op not in ("==", "!=") or left.is_constant():
        return None
    for kind, said in _EQUAL.items():
        if left.python_type_is(kind) and right.python_type_is(kind):
            pushed = None if op == "==" else [_finished(operator.not_)]
            return spell(tx, said, [left, right], pushed=pushed)
    return None


def _finished(function: Callable[..., Any], *operands: Value) -> Value:
    from dynamo.capture.interpreter import Finished

    return Finished(function, operands)


_PERCENT = re.compile(r"%([-#0 +]*\d*(?:\.\d+)?)(.)", re.DOTALL)


def spell_percent(tx: Interpreter, left: Value, right: Value) -> Value | None:
    """`left % right` of a text that asks for nothing but texts, by their places."""
    from dynamo.values.constant import ConstantValue
    from dynamo.values.containers import TupleValue

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
    if (not is_tuple and len(asked) != 1) or not is_wanted(tx):
        return None
    plain = _PERCENT.sub(
        lambda found: "%" + found[1] + found[2].replace("r", "s").replace("a", "s"), text
    )
    values = right if is_tuple else TupleValue([right])
    return spell(tx, spelled.percent, [ConstantValue(plain), ConstantValue(tuple(asked)), values])


def _spell_format(
    tx: Interpreter, text: str, args: Sequence[Value], kwargs: dict[str, Value]
) -> Value | None:
    """text.format(*args, **kwargs) without attributes, items and nested fields."""
    from dynamo.values.constant import ConstantValue
    from dynamo.values.containers import TupleValue
    from dynamo.values.dicts import DictValue

    if not is_wanted(tx):
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
    return spell(tx, spelled.format_text, operands)


def spell_unpack(tx: Interpreter, value: Value, before: int, after: int | None) -> Value | None:
    """before + after variables, or (after is None) no more than `before`; and one with a star
    between them.
    """
    from dynamo.values.constant import ConstantValue

    if (after is not None and asks_length(tx, value)) or not is_wanted(tx):
        return None
    count = before if after is None else before + 1 + after
    places = [ConstantValue(place) for place in reversed(range(count))]
    pushed = [_finished(spelled.item_at, place) for place in places]
    if after is None:
        return spell(tx, spelled.unpack, [value, ConstantValue(before)], pushed=pushed)
    numbers = [ConstantValue(before), ConstantValue(after)]
    return spell(tx, spelled.unpack_rest, [value, *numbers], pushed=pushed)


def asks_length(tx: Interpreter, iterable: Value) -> bool:
    """Whether a method of the program's says how many items there are."""
    return any(iterable.has_special(tx, name) for name in _HINTS)


@functools.cache
def _fits(function: Callable[..., Any], count: int, names: tuple[str, ...]) -> bool:
    """Whether it can be called like that: C has words of its own for what does not fit."""
    if function in (spelled.smallest, spelled.largest) and count > 1 and "default" in names:
        return False
    try:
        inspect.signature(function).bind(*[None] * count, **dict.fromkeys(names))
    except TypeError:
        return False
    return True
