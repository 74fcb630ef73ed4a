"""Opcodes that call, make functions, and the intrinsics."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.interp.inlining import push_call
from dynamo.interp.opcodes.data import mapping_keys, shown_name
from dynamo.interp.opcodes.generators import stop_iteration_error
from dynamo.interp.registry import handler
from dynamo.polyfills import builtins as builtin_polyfills
from dynamo.polyfills.type_names import type_name
from dynamo.values.base import Value
from dynamo.values.builtins.polyfill_calls import asks_length, run_polyfill
from dynamo.values.builtins.program_code import iterates
from dynamo.values.classes.lookup import type_holds
from dynamo.values.containers.dicts import DictValue
from dynamo.values.functions.function import NestedFunctionValue, StealingCallValue
from dynamo.values.objects.exceptions import raise_python
from dynamo.values.objects.objects import ObjectValue
from dynamo.values.stack_items import NULL

if TYPE_CHECKING:
    from dynamo.bytecode import Instruction
    from dynamo.interp.interpreter import Interpreter


def _pop_callable(tx: Interpreter, args: list[Value]) -> tuple[Value, list[Value]]:
    """callable self_or_null -- : the callable and the arguments with self in front."""
    self_or_null = tx.pop()
    function = tx.pop()
    return function, args if self_or_null is NULL else [self_or_null, *args]


@handler
def CALL(tx: Interpreter, instr: Instruction) -> None:
    if isinstance(tx.stack[-instr.arg - 2], StealingCallValue):
        # Not looked at on the way to the continuation.
        args: list[Any] = tx.stack[len(tx.stack) - instr.arg :]
        del tx.stack[len(tx.stack) - instr.arg :]
    else:
        args = tx.popn(instr.arg)
    function, args = _pop_callable(tx, args)
    push_call(tx, function, args, {})


@handler
def CALL_KW(tx: Interpreter, instr: Instruction) -> None:
    names = [name.as_constant() for name in tx.pop().unpack(tx)]
    values = tx.popn(instr.arg)
    split = len(values) - len(names)
    function, args = _pop_callable(tx, values[:split])
    push_call(tx, function, args, dict(zip(names, values[split:])))


@handler
def CALL_FUNCTION_EX(tx: Interpreter, instr: Instruction) -> None:
    kwargs: dict[str, Value] = {}
    called = tx.peek(3 + instr.arg)
    if instr.arg:
        mapping = tx.pop()
        for key in mapping_keys(tx, mapping, called):
            if not key.is_constant() and issubclass(key.python_type(), str):
                raise Unsupported(breaks.NotConstant(key.describe()))
            if not (key.is_constant() and isinstance(key.as_constant(), str)):
                raise_python(tx, TypeError, "keywords must be strings")
            kwargs[key.as_constant()] = mapping.getitem(tx, key)
    items = tx.pop()
    kind = items.python_type()
    if not type_holds(kind, "__iter__") and not type_holds(kind, "__getitem__"):
        text = f"argument after * must be an iterable, not {type_name(kind)}"
        raise_python(tx, TypeError, f"{shown_name(tx, called)} {text}")
    if type_holds(kind, "__next__") or isinstance(items, ObjectValue):
        made = _polyfill_starred(tx, items, kwargs)
        if made is not None:
            tx.push(made)
            return
    args = items.unpack(tx)
    function, args = _pop_callable(tx, args)
    push_call(tx, function, args, kwargs)


def _polyfill_starred(tx: Interpreter, items: Value, kwargs: dict[str, Value]) -> Value | None:
    if tx.stack[-1] is not NULL or not iterates(items) or asks_length(tx, items):
        return None
    function, _ = _pop_callable(tx, [])
    named = tx.output.side_effects.track_new(DictValue.of(tx, kwargs))
    return run_polyfill(tx, builtin_polyfills.call_starred, [function, items, named])


# -- functions ------------------------------------------------------------------------------------
@handler
def MAKE_FUNCTION(tx: Interpreter, instr: Instruction) -> None:
    flags = instr.argval or ()
    code = tx.pop().as_constant()
    extras = {
        name: tx.pop()
        for name in ("closure", "annotations", "kwdefaults", "defaults")
        if name in flags
    }
    function = NestedFunctionValue(
        code,
        tx.f_globals,
        defaults=extras.get("defaults"),
        keyword_defaults=extras.get("kwdefaults"),
        annotations=extras.get("annotations"),
        closure=extras.get("closure"),
    )
    tx.push(tx.output.side_effects.track_new(function))
    # No break in between: a function that has no closure yet must not be made.
    while (following := tx.program[tx.index][1]).op == "SET_FUNCTION_ATTRIBUTE":
        SET_FUNCTION_ATTRIBUTE(tx, following)
        tx.index += 1


@handler
def SET_FUNCTION_ATTRIBUTE(tx: Interpreter, instr: Instruction) -> None:
    """attribute function -- function"""
    function, value = tx.pop(), tx.pop()
    if not isinstance(function, NestedFunctionValue):  # made natively, behind a break there
        raise Unsupported(breaks.AttributeMutation(function.describe(), instr.argval))
    field = {"kwdefaults": "keyword_defaults", "closure": "closure_tuple"}
    setattr(function, field.get(instr.argval, instr.argval), value)
    tx.push(function)


# -- intrinsics -----------------------------------------------------------------------------------
INTRINSICS: dict[str, Callable[[Interpreter], None]] = {
    "STOPITERATION_ERROR": stop_iteration_error,
}


@handler("CALL_INTRINSIC_1", "CALL_INTRINSIC_2")
def call_intrinsic(tx: Interpreter, instr: Instruction) -> None:
    function = INTRINSICS.get(instr.argval)
    if function is None:
        raise Unsupported(breaks.UnsupportedOpcode(f"{instr.op} {instr.argval}"))
    function(tx)
