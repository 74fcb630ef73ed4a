"""Operations of C that call the program's functions, said in Python: sorted(xs, key=g) is captured
as `sort_new` of polyfills/builtins.py, a function like any other, whose call of g is an instruction
of its own. A graph break in g stands there, and sorted goes on behind the break. The frames of
polyfills are hidden from the user.

Where no operand can reach the program's code (values/builtins/program_code.py), there is no
polyfill: the handler answers from storage.
"""

from __future__ import annotations

import collections
import copy
import functools
import inspect
import itertools
import operator
import re
import string
import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from dynamo.polyfills import builtins as builtin_polyfills
from dynamo.values.base import Value
from dynamo.values.builtins import program_code
from dynamo.values.builtins.program_code import type_runs
from dynamo.values.classes.lookup import type_holds
from dynamo.values.containers.containers import TupleValue
from dynamo.values.containers.dicts import DictValue
from dynamo.values.functions.function import UserFunctionValue
from dynamo.values.late_bound import bound_late
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.stack_items import RESULT, ReturnContinuation

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

Arguments = Sequence[Value]
Condition = Callable[[Arguments, dict[str, Value]], bool]


def _iterates(args: Arguments, kwargs: dict[str, Value]) -> bool:
    return program_code.iterates(args[0])


def _iterates_into_set(args: Arguments, kwargs: dict[str, Value]) -> bool:
    return program_code.iterates_into_set(args[0])


def _draws(args: Arguments, kwargs: dict[str, Value]) -> bool:
    """The argument is a generator, or an iterator that runs code; not a class of the program's."""
    return args[0].step_runs_code()


def _any_has(*methods: str) -> Condition:
    """A condition: one of the arguments, or of their items, has such a method."""
    return lambda args, kwargs: program_code.any_runs(args, methods)


def _iterates_or_has(*methods: str) -> Condition:
    has = _any_has(*methods)
    return lambda args, kwargs: any(map(program_code.iterates, args)) or has(args, kwargs)


def _chooses(method: str) -> Condition:
    has = _iterates_or_has(method)
    return lambda args, kwargs: has(args, kwargs) or _key_runs(args, kwargs)


def _key_runs(args: Arguments, kwargs: dict[str, Value]) -> bool:
    """Whether the key of the items is computed by code of the program: `key`, or a method that a
    built-in one asks.
    """
    key = kwargs.get("key")
    if key is None or key.is_constant():
        return False
    return program_code.calls(key) or any(map(program_code.reaches_objects, args))


def _sorts(args: Arguments, kwargs: dict[str, Value]) -> bool:
    return _iterates(args, kwargs) or _key_runs(args[:1], kwargs)


def _calls_first(args: Arguments, kwargs: dict[str, Value]) -> bool:
    return program_code.calls(args[0]) or any(map(program_code.iterates, args[1:2]))


def _reads(args: Arguments, kwargs: dict[str, Value]) -> bool:
    name = args[1]
    return name.python_type_is(str) and name.is_constant() and reads_code(args[0], name)


def reads_code(owner: Value, name: Value) -> bool:
    """Whether getattr(owner, name) runs code of the program."""
    return program_code.reads(owner, name.as_constant())


# Callable -> its polyfill, and the condition under which that is needed.
CALLS: dict[Any, tuple[Callable[..., Any], Condition]] = {
    list: (builtin_polyfills.make_list, _iterates),
    tuple: (builtin_polyfills.make_tuple, _iterates),
    set: (builtin_polyfills.make_set, _iterates_into_set),
    frozenset: (builtin_polyfills.make_frozenset, _draws),
    dict: (builtin_polyfills.make_dict, _draws),
    collections.OrderedDict: (builtin_polyfills.make_ordered, _draws),
    collections.deque: (builtin_polyfills.make_deque, _draws),
    any: (builtin_polyfills.any_of, _iterates_or_has(*program_code.TRUTH)),
    all: (builtin_polyfills.all_of, _iterates_or_has(*program_code.TRUTH)),
    sum: (builtin_polyfills.sum_of, _iterates_or_has(*program_code.ADDITION)),
    min: (builtin_polyfills.smallest, _chooses("__lt__")),
    max: (builtin_polyfills.largest, _chooses("__gt__")),
    sorted: (builtin_polyfills.sort_new, _sorts),
    functools.reduce: (builtin_polyfills.reduce, _calls_first),
    hasattr: (builtin_polyfills.has_attribute, _reads),
    print: (builtin_polyfills.show, _any_has(*program_code.TEXT)),
    range: (builtin_polyfills.make_range, _any_has("__index__")),
}


def _first_has(method: str) -> Condition:
    return lambda args, kwargs: _has_method(args, method)


def _substitutes(args: Arguments, kwargs: dict[str, Value]) -> bool:
    """A call of a pattern's sub or subn, or those of re, with a function."""
    repl = kwargs.get("repl", args[1] if len(args) > 1 else None)
    return repl is not None and issubclass(repl.python_type(), Callable)  # type: ignore[arg-type]


# Python functions that have handlers, and when their own code is captured.
_IN_PYTHON: dict[Any, Condition] = {
    copy.copy: _first_has("__copy__"),
    copy.deepcopy: _first_has("__deepcopy__"),
    re.sub: _substitutes,
    re.subn: _substitutes,
}


def _compares(args: Arguments, kwargs: dict[str, Value]) -> bool:
    """The second argument is compared with the items of the first."""
    return bool(program_code.stored(args[0])) and program_code.any_runs(
        args[:2], program_code.EQUALITY
    )


def _iterates_second(args: Arguments, kwargs: dict[str, Value]) -> bool:
    return program_code.iterates(args[1])


def _draws_second(args: Arguments, kwargs: dict[str, Value]) -> bool:
    return args[1].step_runs_code()


# Methods of built-in types, by their name.
METHODS: dict[tuple[type, str], tuple[Callable[..., Any], Condition]] = {
    (list, "sort"): (builtin_polyfills.sort_by, _sorts),
    (list, "extend"): (builtin_polyfills.extend, _iterates_second),
    (collections.deque, "extend"): (builtin_polyfills.extend, _draws_second),
    (set, "update"): (builtin_polyfills.add_all, _draws_second),
    (dict, "update"): (builtin_polyfills.update, _draws_second),
    (collections.OrderedDict, "update"): (builtin_polyfills.update, _draws_second),
    (list, "count"): (builtin_polyfills.count_in, _compares),
    (list, "index"): (builtin_polyfills.index_in, _compares),
    (list, "remove"): (builtin_polyfills.remove_from, _compares),
    (tuple, "count"): (builtin_polyfills.count_in, _compares),
    (tuple, "index"): (builtin_polyfills.index_in, _compares),
    (str, "join"): (builtin_polyfills.join, _iterates_second),
    (re.Pattern, "sub"): (builtin_polyfills.substitute, _substitutes),
    (re.Pattern, "subn"): (builtin_polyfills.substitute_counted, _substitutes),
}
_EQUAL: dict[type, Callable[..., Any]] = {
    list: builtin_polyfills.equal_lists,
    tuple: builtin_polyfills.equal_tuples,
}
# Polyfills that ask for a length first, which says nothing where these methods are missing.
_HINTED = frozenset(
    [
        builtin_polyfills.make_list,
        builtin_polyfills.make_tuple,
        builtin_polyfills.join,
        builtin_polyfills.extend,
    ]
)
_HINTS = ("__len__", "__length_hint__")


def run_polyfill(
    tx: Interpreter,
    function: Callable[..., Any] | Value,
    args: Arguments,
    kwargs: dict[str, Value] | None = None,
    pushed: Sequence[Value] = (RESULT,),
    last: bool = True,
) -> Value:
    """function(*args, **kwargs) of polyfills/builtins.py, or of a Value.

    last: the current instruction pushes `pushed` then, and is done (see Interpreter.pushed).
    """
    called = function if isinstance(function, Value) else tx.wrap(function)
    if not last:
        return tx.inline(called, args, kwargs)
    return tx.finish_call(called, args, kwargs or {}, pushed)


def polyfill_call(
    tx: Interpreter, function: Any, args: Arguments, kwargs: dict[str, Value], last: bool
) -> Value | None:
    """function(*args, **kwargs) by a polyfill, if one is needed. last: see run_polyfill."""
    if function in _IN_PYTHON and _IN_PYTHON[function](args, kwargs):
        return run_polyfill(tx, UserFunctionValue(function), args, kwargs, last=last)
    if function is itertools.product and any(value.step_runs_code() for value in args):
        named = tx.output.side_effects.track_new(DictValue.of(tx, kwargs))
        operands = [TupleValue(args), named]
        return run_polyfill(tx, builtin_polyfills.product_of, operands, last=last)
    found = CALLS.get(function)
    if found is None or not args or not _fits(found[0], len(args), tuple(kwargs)):
        return None
    said, is_needed = found
    if not is_needed(args, kwargs) or (said in _HINTED and asks_length(tx, args[0])):
        return None
    if said is builtin_polyfills.sum_of and len(args) == 1 and not kwargs:
        said = builtin_polyfills.sum_numbers
    if said is builtin_polyfills.show and not all(
        value.python_type_is(str) for value in kwargs.values()
    ):
        return None
    return run_polyfill(tx, said, args, kwargs, last=last)


def _has_method(args: Arguments, name: str) -> bool:
    kind = program_code.kind_of(args[0]) if args else None
    return kind is not None and not issubclass(kind, torch.Tensor) and type_runs(kind, (name,))


def polyfill_construct(
    tx: Interpreter,
    cls: Value,
    new: Value,
    args: Sequence[Value],
    kwargs: dict[str, Value],
    last: bool,
) -> Value:
    """type.__call__(cls, *args, **kwargs), where `new` is the class's __new__, a Python function.

    last: see run_polyfill.
    """
    named = tx.output.side_effects.track_new(DictValue.of(tx, kwargs))
    operands = [cls, new, TupleValue(list(args)), named]
    return run_polyfill(tx, builtin_polyfills.construct, operands, last=last)


@bound_late
def polyfill_method(
    tx: Interpreter,
    owner: Value,
    name: str,
    args: Sequence[Value],
    kwargs: dict[str, Value],
    last: bool,
) -> Value | None:
    """owner.name(*args, **kwargs) of a built-in type by a polyfill, if one is needed."""
    if name == "format" and owner.python_type_is(str) and owner.is_constant():
        return _polyfill_format(tx, owner.as_constant(), args, kwargs, last)
    kind = program_code.kind_of(owner)
    found = None if kind is None else METHODS.get((kind, name))
    operands = [owner, *args]
    if found is None or not _fits(found[0], len(operands), tuple(kwargs)):
        return None
    said, is_needed = found
    if not is_needed(operands, kwargs) or (said in _HINTED and asks_length(tx, args[0])):
        return None
    if said is builtin_polyfills.sort_by:
        known = [kwargs[name].is_constant() for name in kwargs]
        if known != [name == "reverse" for name in kwargs]:
            return None
    return run_polyfill(tx, said, operands, kwargs, last=last)


def polyfill_contains(
    tx: Interpreter, item: Value, container: Value, negated: bool
) -> Value | None:
    """`item in container`, where that compares with one item after the other."""
    if container.python_type_is(list, tuple):
        if not program_code.any_runs([item, container], program_code.EQUALITY):
            return None
    elif not _is_searched(container) or not program_code.iterates(container):
        return None
    pushed = [_finished(operator.not_)] if negated else (RESULT,)
    return run_polyfill(tx, builtin_polyfills.find, [container, item], pushed=pushed)


def _is_searched(container: Value) -> bool:
    """Whether `in` has nothing but the container's items to ask."""
    kind = program_code.kind_of(container)
    if kind is None or type_holds(kind, "__contains__"):
        return False
    return type_holds(kind, "__iter__") or type_holds(kind, "__getitem__")


def polyfill_equal(tx: Interpreter, op: str, left: Value, right: Value) -> Value | None:
    """left == right of two lists or tuples, and their !="""
    if op not in ("==", "!=") or left.is_constant():
        return None
    for kind, said in _EQUAL.items():
        if (
            left.python_type_is(kind)
            and right.python_type_is(kind)
            and program_code.any_runs([left, right], program_code.EQUALITY)
        ):
            pushed = (RESULT,) if op == "==" else [_finished(operator.not_)]
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
    texts = right.children() if is_tuple else [right]
    if (not is_tuple and len(asked) != 1) or not _have_texts(texts):
        return None
    plain = _PERCENT.sub(
        lambda found: "%" + found[1] + found[2].replace("r", "s").replace("a", "s"), text
    )
    values = right if is_tuple else TupleValue([right])
    return run_polyfill(
        tx, builtin_polyfills.percent, [ConstantValue(plain), ConstantValue(tuple(asked)), values]
    )


def _have_texts(values: Sequence[Value]) -> bool:
    """Whether one of the values has methods for its text."""
    return any(program_code.runs(value, program_code.TEXT) for value in values)


def _polyfill_format(
    tx: Interpreter, text: str, args: Arguments, kwargs: dict[str, Value], last: bool
) -> Value | None:
    """text.format(*args, **kwargs) without attributes, items and nested fields."""
    if not _have_texts([*args, *kwargs.values()]):
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
    return run_polyfill(tx, builtin_polyfills.format_text, operands, last=last)


def polyfill_unpack(tx: Interpreter, value: Value, before: int, after: int | None) -> Value | None:
    """before + after variables, or (after is None) no more than `before`; and one with a star
    between them.
    """
    if not program_code.iterates(value) or (after is not None and asks_length(tx, value)):
        return None
    count = before if after is None else before + 1 + after
    places = [ConstantValue(place) for place in reversed(range(count))]
    pushed = [_finished(builtin_polyfills.item_at, place) for place in places]
    if after is None:
        return run_polyfill(
            tx, builtin_polyfills.unpack, [value, ConstantValue(before)], pushed=pushed
        )
    numbers = [ConstantValue(before), ConstantValue(after)]
    generated = value.python_type_is(types.GeneratorType)
    said = builtin_polyfills.unpack_generated if generated else builtin_polyfills.unpack_rest
    return run_polyfill(tx, said, [value, *numbers], pushed=pushed)


def asks_length(tx: Interpreter, iterable: Value) -> bool:
    """Whether a method of the program's says how many items there are."""
    return any(iterable.has_special(tx, name) for name in _HINTS)


@functools.cache
def _fits(function: Callable[..., Any], count: int, names: tuple[str, ...]) -> bool:
    """Whether the function can be called like that: C raises errors of its own for unsuitable
    calls.
    """
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
