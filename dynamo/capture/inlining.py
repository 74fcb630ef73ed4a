"""Calls of Python functions, interpreted in a child interpreter of the caller's."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from types import FunctionType
from typing import TYPE_CHECKING

from dynamo import breaks
from dynamo.bytecode import normalize
from dynamo.capture.interpreter import RESULT, Interpreter
from dynamo.config import config
from dynamo.errors import Unsupported
from dynamo.resume import is_called
from dynamo.values.base import Value
from dynamo.values.builder import Lazy
from dynamo.values.exceptions import raise_python

if TYPE_CHECKING:
    from dynamo.values.function import FunctionValue


# A function that names one of these may look at its own frame.
SEES_ITS_FRAME = frozenset(["locals", "vars", "dir", "eval", "exec"])


def _can_be_continued(function: FunctionValue) -> bool:
    """Whether the rest of a call can be a function of its own.

    Not so what we trace instead of a builtin: a break there is one of the builtin's. And what
    changes the filters of warnings has to do so in one go: captured warnings are given later.
    """
    package = (function.globals.get("__name__") or "").partition(".")[0]
    return package not in ("dynamo", "warnings") and SEES_ITS_FRAME.isdisjoint(
        function.code.co_names
    )


def is_continuation(function: Value | Lazy) -> bool:
    """Whether the call goes on in the middle of a callee."""
    function = function.obj if isinstance(function, Lazy) else getattr(function, "function", None)
    return type(function) is FunctionType and is_called(function.__code__)


def push_call(
    tx: Interpreter, function: Value, args: Sequence[Value], kwargs: dict[str, Value]
) -> None:
    """Push function(*args, **kwargs), which is all that is left of the current instruction."""
    tx.push(finish_call(tx, function, args, kwargs))


def finish_call(
    tx: Interpreter,
    function: Value,
    args: Sequence[Value],
    kwargs: dict[str, Value],
    pushed: Sequence[Value] = (RESULT,),
) -> Value:
    """function(*args, **kwargs), after which the current instruction only pushes `pushed`."""
    while True:
        step = function.forwards(tx, args, kwargs)
        if step is None:
            break
        function, args, kwargs = step
    if function.is_plain_function():
        return inline_call(tx, function, args, kwargs, pushed)  # type: ignore[arg-type]
    if tuple(pushed) == (RESULT,):
        return function.call_last(tx, args, kwargs)
    return function.call(tx, args, kwargs)


def returns_none(code: types.CodeType) -> bool:
    """Whether a function returns nothing but None."""
    program = normalize(code)
    returns = [i.index for i in program if i.op == "RETURN_VALUE"]
    before = [program[index - 1] for index in returns]
    return all(i.op == "LOAD_CONST" and i.argval is None for i in before)


def inline_call(
    tx: Interpreter,
    function: FunctionValue,
    args: Sequence[Value],
    kwargs: dict[str, Value],
    pushed: Sequence[Value] | None = None,
) -> Value:
    """function(*args, **kwargs); a generator function gives a suspended GeneratorValue.

    pushed: see Interpreter.pushed.
    """
    from dynamo.values.generator import GeneratorValue

    if tx.depth >= config.inline_depth_limit:
        raise Unsupported(breaks.InlineDepth(config.inline_depth_limit))
    code = function.code
    child = Interpreter(tx.output, code, function.globals, tx, function.source)
    child.locals.update(bind_arguments(tx, function, args, kwargs))
    child.cells.update(zip(code.co_freevars, function.closure(tx)))
    if code.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        raise Unsupported(breaks.UnsupportedGenerator(code.co_name))
    if code.co_flags & inspect.CO_GENERATOR:
        return tx.output.side_effects.track_new(GeneratorValue(child, (function, args, kwargs)))
    if pushed is not None and _can_be_continued(function):
        child.pushed = pushed
    child.run()
    assert child.result is not None, "the frame returned"
    return child.result


def bind_arguments(
    tx: Interpreter, function: FunctionValue, args: Sequence[Value], kwargs: dict[str, Value]
) -> dict[str, Value]:
    """The callee's locals at entry, by Python's rules; a wrong call raises TypeError in the
    captured code.
    """
    from dynamo.values.containers import TupleValue
    from dynamo.values.dicts import DictValue

    code = function.code
    name = f"{function.name}()"
    n_args, n_kwonly = code.co_argcount, code.co_kwonlyargcount
    positional = code.co_varnames[:n_args]
    kwonly = code.co_varnames[n_args : n_args + n_kwonly]
    bound: dict[str, Value] = dict(zip(positional, args))
    extra_names = list(code.co_varnames[n_args + n_kwonly :])
    if code.co_flags & inspect.CO_VARARGS:
        bound[extra_names.pop(0)] = TupleValue(list(args[n_args:]))
    elif len(args) > n_args:
        raise_python(
            tx,
            TypeError,
            f"{name} takes {_count(n_args, 'positional argument')} but {len(args)} "
            f"{'was' if len(args) == 1 else 'were'} given",
        )
    by_keyword = {*positional[code.co_posonlyargcount :], *kwonly}
    rest: dict[str, Value] = {}
    for key, value in kwargs.items():
        if key in by_keyword:
            if key in bound:
                raise_python(tx, TypeError, f"{name} got multiple values for argument {key!r}")
            bound[key] = value
        else:
            rest[key] = value
    if code.co_flags & inspect.CO_VARKEYWORDS:
        bound[extra_names[0]] = DictValue.of(tx, rest)
    elif rest:
        key = next(iter(rest))
        raise_python(tx, TypeError, f"{name} got an unexpected keyword argument {key!r}")
    _fill_defaults(tx, function, bound, positional, kwonly)
    return bound


def _fill_defaults(
    tx: Interpreter,
    function: FunctionValue,
    bound: dict[str, Value],
    positional: Sequence[str],
    kwonly: Sequence[str],
) -> None:
    missing = [name for name in positional if name not in bound]
    if missing:
        first_default = len(positional) - function.default_count(tx)
        lacking = [n for n in missing if positional.index(n) < first_default]
        if lacking:
            _raise_missing(tx, function, lacking, "positional")
        for name in missing:
            bound[name] = function.default(tx, positional.index(name) - first_default)
    lacking = []
    for name in kwonly:
        if name in bound:
            continue
        value = function.keyword_default(tx, name)
        if value is None:
            lacking.append(name)
        else:
            bound[name] = value
    if lacking:
        _raise_missing(tx, function, lacking, "keyword-only")


def _raise_missing(
    tx: Interpreter, function: FunctionValue, names: Sequence[str], kind: str
) -> None:
    quoted = [repr(n) for n in names]
    listed = (
        " and ".join(quoted) if len(quoted) < 3 else f"{', '.join(quoted[:-1])}, and {quoted[-1]}"
    )
    raise_python(
        tx,
        TypeError,
        f"{function.name}() missing {_count(len(names), f'required {kind} argument')}: {listed}",
    )


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
