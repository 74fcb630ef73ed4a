"""Calls of Python functions, interpreted in a child interpreter of the caller's."""

from __future__ import annotations

import inspect
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import torch

from dynamo import breaks
from dynamo.bytecode.cache import CodeMap
from dynamo.config import config
from dynamo.errors import Unsupported
from dynamo.polyfills import frame_kind
from dynamo.values.base import Value
from dynamo.values.builder import Lazy
from dynamo.values.containers.containers import TupleValue
from dynamo.values.containers.dicts import DictValue
from dynamo.values.iterators.generator import GeneratorValue
from dynamo.values.objects.exceptions import raise_python
from dynamo.values.stack_items import RESULT
from dynamo.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter
    from dynamo.values.functions.function import FunctionValue

_ASYNCHRONOUS = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
# A function that names one of these may look at its own frame.
SEES_ITS_FRAME = frozenset(["locals", "vars", "dir", "eval", "exec"])


def _can_be_continued(function: FunctionValue) -> bool:
    """Whether the rest of a call can be a function of its own.

    Not so what we trace instead of a builtin: a break there is one of the builtin's. And what
    changes the filters of warnings has to do so in one go: captured warnings are given later.
    """
    kind = frame_kind(function.globals)
    if kind is not None:
        return kind.breakable
    package = (function.globals.get("__name__") or "").partition(".")[0]
    return package not in ("dynamo", "warnings") and not parameters_of(function.code).sees_its_frame


class Parameters(NamedTuple):
    """The parameters of a function, as calls read them of its code, whose attributes make new
    tuples at each read.
    """

    positional: tuple[str, ...]
    keyword_only: tuple[str, ...]
    starred: str | None  # of *args
    double_starred: str | None  # of **kwargs
    by_keyword: frozenset[str]
    free: tuple[str, ...]
    only_positional: bool  # there are no others than `positional`
    sees_its_frame: bool


_parameters: CodeMap[Parameters] = CodeMap()


def parameters_of(code: types.CodeType) -> Parameters:
    """The parameters of functions with this code."""
    return _parameters.computed(code, lambda: _parameters_of(code))


def _parameters_of(code: types.CodeType) -> Parameters:
    names, count, kwonly = code.co_varnames, code.co_argcount, code.co_kwonlyargcount
    more = list(names[count + kwonly :])
    starred = more.pop(0) if code.co_flags & inspect.CO_VARARGS else None
    double_starred = more.pop(0) if code.co_flags & inspect.CO_VARKEYWORDS else None
    by_keyword = frozenset(names[code.co_posonlyargcount : count + kwonly])
    plain = not kwonly and starred is None and double_starred is None
    sees_its_frame = not SEES_ITS_FRAME.isdisjoint(code.co_names)
    parts = names[:count], names[count : count + kwonly], starred, double_starred
    return Parameters(*parts, by_keyword, code.co_freevars, plain, sees_its_frame)


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
        return function.tail_call(tx, args, kwargs)
    return function.call(tx, args, kwargs)


def inline_call(
    tx: Interpreter,
    function: FunctionValue,
    args: Sequence[Value],
    kwargs: dict[str, Value],
    pushed: Sequence[Value] | None = None,
) -> Value:
    """function(*args, **kwargs); of a generator function, a suspended GeneratorValue.

    pushed: see Interpreter.pushed.
    """
    if tx.depth >= config.inline_depth_limit:
        raise Unsupported(breaks.InlineDepth(config.inline_depth_limit))
    code = function.code
    if code.co_flags & _ASYNCHRONOUS:
        raise Unsupported(breaks.MadeCoroutine(code.co_qualname))
    if code.co_name == "forward":
        _refuse_packed(tx, function, args, kwargs)
    child = tx.child(function)
    child.locals = bind_arguments(tx, function, args, kwargs)  # type: ignore[assignment]
    free = parameters_of(code).free
    if free:
        child.cells.update(zip(free, function.closure(tx)))
    if code.co_flags & inspect.CO_GENERATOR:
        tx.output.has_generators = True
        return tx.output.side_effects.track_new(GeneratorValue(child, (function, args, kwargs)))
    child.held_by_caller = pushed
    if pushed is not None and _can_be_continued(function):
        child.pushed = pushed
    hooks = tx.output.context.hooks
    if hooks is None:
        child.run()
    else:
        with hooks.call(child):
            child.run()
    assert child.result is not None, "the frame returned"
    return child.result


RECURRENT = "torch.nn.modules.rnn"
PACKED = torch.nn.utils.rnn.PackedSequence


def packed_argument(namespace: dict, code: types.CodeType) -> int | None:
    """The argument of a recurrent layer's forward that may be a packed sequence. If it was packed
    outside of the graph, sizes are data, and the layer's work stays outside, too.
    """
    recurrent = namespace.get("__name__") == RECURRENT and code.co_name == "forward"
    return code.co_varnames.index("input") if recurrent and "input" in code.co_varnames else None


def _refuse_packed(
    tx: Interpreter, function: FunctionValue, args: Sequence[Value], kwargs: dict[str, Value]
) -> None:
    index = packed_argument(function.globals, function.code)
    if index is None:
        return
    value: Value | Lazy | None = args[index] if index < len(args) else kwargs.get("input")
    if isinstance(value, Lazy):
        value = value.realize(tx)
    if value is None or not value.python_type_is(PACKED):
        return
    batch_sizes = value.getattr(tx, "batch_sizes")
    known = tx.output.known_tensors
    if not isinstance(batch_sizes, TensorValue) or known.first_of(batch_sizes.fake) is None:
        raise Unsupported(breaks.DynamicShapeOp(f"{function.name} of a packed sequence"))


def bind_arguments(
    tx: Interpreter, function: FunctionValue, args: Sequence[Value], kwargs: dict[str, Value]
) -> dict[str, Value]:
    """The callee's locals at entry, by Python's rules; a wrong call raises TypeError in the
    captured code.
    """
    parameters = parameters_of(function.code)
    positional = parameters.positional
    n_args = len(positional)
    bound: dict[str, Value] = dict(zip(positional, args))
    if parameters.only_positional and not kwargs and len(args) == n_args:
        return bound
    if parameters.starred is not None:
        bound[parameters.starred] = TupleValue(list(args[n_args:]))
    elif len(args) > n_args:
        _raise_wrong_call(tx, function, args, kwargs)
    rest: dict[str, Value] = {}
    for key, value in kwargs.items():
        if key not in parameters.by_keyword:
            rest[key] = value
        elif key in bound:
            _raise_wrong_call(tx, function, args, kwargs)
        else:
            bound[key] = value
    if parameters.double_starred is not None:
        bound[parameters.double_starred] = DictValue.of(tx, rest)
    elif rest:
        _raise_wrong_call(tx, function, args, kwargs)
    if not _fill_defaults(tx, function, bound, positional, parameters.keyword_only):
        _raise_wrong_call(tx, function, args, kwargs)
    return bound


def _fill_defaults(
    tx: Interpreter,
    function: FunctionValue,
    bound: dict[str, Value],
    positional: Sequence[str],
    kwonly: Sequence[str],
) -> bool:
    """False if an argument is missing."""
    missing = [i for i, name in enumerate(positional) if name not in bound]
    if missing:
        first_default = len(positional) - function.default_count(tx)
        if missing[0] < first_default:
            return False
        for i in missing:
            bound[positional[i]] = function.default(tx, i - first_default)
    for name in kwonly:
        if name in bound:
            continue
        value = function.keyword_default(tx, name)
        if value is None:
            return False
        bound[name] = value
    return True


def _raise_wrong_call(
    tx: Interpreter, function: FunctionValue, args: Sequence[Value], kwargs: dict[str, Value]
) -> NoReturn:
    """Raise the TypeError of a call with unsuitable arguments, in this Python's words: a function
    of the same code fails in the same way before its body.
    """
    code = function.code
    kwonly = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    defaults = (None,) * function.default_count(tx)
    cells = tuple(types.CellType() for _ in code.co_freevars)
    same = types.FunctionType(code, {}, code.co_name, defaults, cells)
    same.__qualname__ = function.name
    with_default = [name for name in kwonly if function.keyword_default(tx, name) is not None]
    same.__kwdefaults__ = dict.fromkeys(with_default)
    try:
        same(*[None] * len(args), **dict.fromkeys(kwargs))
    except TypeError as error:
        raise_python(tx, TypeError, str(error))
    raise AssertionError(f"{function.name} accepts the call")
