"""Calls of builtins that end in one call of the program's code, as all that is left of the current
instruction: str(x) is type(x).__str__(x) and a check of the result. A break inside of the
method stands there (Interpreter.in_tail_position).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dynamo.polyfills import builtins as builtin_polyfills
from dynamo.polyfills.protocols import (
    after_binary,
    checked,
    checked_bool,
    checked_format,
    checked_iterator,
    checked_length,
    checked_repr,
    checked_str,
    contained,
    negated_bool,
    same,
)
from dynamo.values.base import Value
from dynamo.values.builtins.polyfill_calls import reads_code, run_polyfill
from dynamo.values.builtins.tail_reads import prepare_default, tail_read
from dynamo.values.objects.exception_objects import name_attribute
from dynamo.values.objects.exceptions import RaisedException
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.scalars.operators import (
    BINARY_FUNCTIONS,
    COMPARE_FUNCTIONS,
    binary_op,
    compare_op,
)
from dynamo.values.stack_items import NULL, RESULT, CatchContinuation, ReturnContinuation

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

# Builtins that call a special method of their first argument, and the continuation that takes the
# result (None: nothing). Of several methods, the first that the type has is called.
_SPECIALS: dict[Any, dict[str, Callable[..., Any] | None]] = {
    len: {"__len__": checked_length},
    bool: {"__bool__": checked_bool},
    iter: {"__iter__": checked_iterator},
    abs: {"__abs__": None},
    round: {"__round__": None},
    reversed: {"__reversed__": None},
    math.ceil: {"__ceil__": None},
    math.floor: {"__floor__": None},
    math.trunc: {"__trunc__": None},
    operator.not_: {"__bool__": negated_bool},
    operator.truth: {"__bool__": checked_bool},
    str: {"__str__": checked_str, "__repr__": checked_str},
    repr: {"__repr__": checked_repr},
    format: {"__format__": checked_format, "__str__": checked_str, "__repr__": checked_str},
}
# Builtins that want a number: method -> the type of its result.
_CONVERSIONS: dict[Any, dict[str, type]] = {
    int: {"__int__": int, "__index__": int},
    float: {"__float__": float, "__index__": int},
    complex: {"__complex__": complex, "__float__": float, "__index__": int},
    operator.index: {"__index__": int},
    hash: {"__hash__": int},
}
_MORE_ARGUMENTS = frozenset([round, format])
_BINARY: dict[Any, str] = {function: symbol for symbol, function in BINARY_FUNCTIONS.items()}
_COMPARE: dict[Any, str] = {function: symbol for symbol, function in COMPARE_FUNCTIONS.items()}


def tail_call_builtin(tx: Interpreter, function: Any, args: Sequence[Value]) -> Value | None:
    """function(*args), which is all that the current instruction does; None: it goes its usual way,
    for which this has prepared.
    """
    if not args:
        return None
    if function in _SPECIALS and (len(args) == 1 or function in _MORE_ARGUMENTS):
        _end_with(tx, args[0], _SPECIALS[function])
    elif function in _CONVERSIONS:
        if len(args) == 1:
            _end_with_check(tx, function, args[0])
    elif function in _BINARY and len(args) == 2:
        return binary_op(tx, _BINARY[function], args[0], args[1], last=True)
    elif function in _COMPARE and len(args) == 2:
        return compare_op(tx, _COMPARE[function], args[0], args[1], last=True)
    elif function in _OTHERS:
        return _OTHERS[function](tx, *args)
    return None


def _end_with(tx: Interpreter, value: Value, methods: dict[str, Callable[..., Any] | None]) -> None:
    for name, finish in methods.items():
        tx.in_tail_position(value, name, [RESULT if finish is None else ReturnContinuation(finish)])


def _end_with_check(tx: Interpreter, function: Any, value: Value) -> None:
    for name, kind in _CONVERSIONS[function].items():
        operands = [value, *map(tx.wrap, (name, function, kind))]
        tx.in_tail_position(value, name, [ReturnContinuation(checked, operands)])


def _getattr(tx: Interpreter, owner: Value, *rest: Value) -> Value | None:
    if len(rest) not in (1, 2):
        return None
    name, *default = rest
    if not name.is_constant() or type(name.as_constant()) is not str:
        return None
    if default:
        if prepare_default(tx, owner, name.as_constant(), *default) or not reads_code(owner, name):
            return None
        return run_polyfill(tx, builtin_polyfills.get_or_default, [owner, name, *default])

    try:
        return tail_read(tx, owner, name.as_constant())
    except RaisedException as error:
        name_attribute(tx, error.value, owner, name.as_constant())
        raise


def _setattr(tx: Interpreter, owner: Value, *rest: Value) -> None:
    tx.in_tail_position(owner, "__setattr__", [ConstantValue(None)])


def _delattr(tx: Interpreter, owner: Value, *rest: Value) -> None:
    tx.in_tail_position(owner, "__delattr__", [ConstantValue(None)])


def _next(tx: Interpreter, iterator: Value, *default: Value) -> None:
    if not default:
        _end_with(tx, iterator, {"__next__": None})
    elif len(default) == 1:
        tx.in_tail_position(iterator, "__next__", [CatchContinuation(StopIteration, same, default)])
    if tx.current.op == "CALL" and tx.current.arg == 1 + len(default):
        tx.resumes(iterator, [tx.wrap(next), NULL, iterator, *default])


def _divmod(tx: Interpreter, left: Value, *rest: Value) -> None:
    if len(rest) == 1:
        reflected = () if type(left) is not type(rest[0]) else ((True, "__rdivmod__"),)
        operands = [ConstantValue("divmod()"), left, rest[0], ConstantValue(reflected)]
        tx.in_tail_position(left, "__divmod__", [ReturnContinuation(after_binary, operands)])


def _pow(tx: Interpreter, *args: Value) -> Value | None:
    return binary_op(tx, "**", *args, last=True) if len(args) == 2 else None


def _asks_class(method: str) -> Callable[..., None]:
    def prepare(tx: Interpreter, *args: Value) -> None:
        if len(args) == 2:
            tx.in_tail_position(args[1], method, [ReturnContinuation(contained)])

    return prepare


_OTHERS: dict[Any, Callable[..., Value | None]] = {
    getattr: _getattr,
    setattr: _setattr,
    delattr: _delattr,
    next: _next,
    divmod: _divmod,
    pow: _pow,
    isinstance: _asks_class("__instancecheck__"),
    issubclass: _asks_class("__subclasscheck__"),
}
