"""Opcodes that call, make functions, and suspend generators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dynamo import breaks
from dynamo.capture.inlining import is_continuation, push_call
from dynamo.capture.interpreter import NULL
from dynamo.capture.registry import handler
from dynamo.errors import Unsupported
from dynamo.values.base import Value
from dynamo.values.constant import ConstantValue
from dynamo.values.exceptions import RaisedException, is_exception, raise_python
from dynamo.values.function import NestedFunctionValue
from dynamo.values.generator import GeneratorValue

if TYPE_CHECKING:
    from dynamo.bytecode import Instruction
    from dynamo.capture.interpreter import Interpreter


def _pop_callable(tx: Interpreter, args: list[Value]) -> tuple[Value, list[Value]]:
    """callable self_or_null -- : the callable and the arguments with self in front."""
    self_or_null = tx.pop()
    function = tx.pop()
    return function, args if self_or_null is NULL else [self_or_null, *args]


@handler
def CALL(tx: Interpreter, instr: Instruction) -> None:
    if is_continuation(tx.stack[-instr.arg - 2]):
        args = tx.stack[len(tx.stack) - instr.arg :]  # not looked at on the way
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
    if instr.arg:
        mapping = tx.pop()
        for key in mapping.iterate(tx).unpack(tx):
            if not (key.is_constant() and isinstance(key.as_constant(), str)):
                raise_python(tx, TypeError, "keywords must be strings")
            kwargs[key.as_constant()] = mapping.getitem(tx, key)
    args = tx.pop().unpack(tx)
    function, args = _pop_callable(tx, args)
    push_call(tx, function, args, kwargs)


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


@handler
def SET_FUNCTION_ATTRIBUTE(tx: Interpreter, instr: Instruction) -> None:
    """attribute function -- function"""
    function = tx.pop()
    value = tx.pop()
    field = {"kwdefaults": "keyword_defaults", "closure": "closure_tuple"}
    setattr(function, field.get(instr.argval, instr.argval), value)
    tx.push(function)


# -- generators -----------------------------------------------------------------------------------
@handler
def RETURN_GENERATOR(tx: Interpreter, instr: Instruction) -> None:
    """The body starts when it is resumed for the first time: what is pushed here is popped at
    once.
    """
    tx.push(ConstantValue(None))


@handler
def YIELD_VALUE(tx: Interpreter, instr: Instruction) -> None:
    tx.result = tx.pop()
    tx.yielded = True


@handler
def GET_YIELD_FROM_ITER(tx: Interpreter, instr: Instruction) -> None:
    value = tx.pop()
    tx.push(value if isinstance(value, GeneratorValue) else value.iterate(tx))


@handler
def SEND(tx: Interpreter, instr: Instruction) -> None:
    """receiver value -- receiver yielded, or jump with receiver result when it returns."""
    sent = tx.pop()
    receiver = tx.peek()
    if isinstance(receiver, GeneratorValue):
        item = receiver.resume(tx, sent)
        result: Value = receiver.return_value
    else:
        item, result = _send_to_iterator(tx, receiver, sent)
    if item is not None:
        tx.push(item)
        return
    tx.push(result)
    tx.jump(instr)


def _send_to_iterator(tx: Interpreter, receiver: Value, sent: Value) -> tuple[Value | None, Value]:
    if sent.is_constant() and sent.as_constant() is None:
        return receiver.next_value(tx), ConstantValue(None)
    try:
        return receiver.call_method(tx, "send", [sent], {}), ConstantValue(None)
    except RaisedException as error:
        if not is_exception(error, StopIteration):
            raise
        return None, error.value.getattr(tx, "value")


@handler
def END_SEND(tx: Interpreter, instr: Instruction) -> None:
    result = tx.pop()
    tx.pop()
    tx.push(result)


@handler
def CALL_INTRINSIC_1(tx: Interpreter, instr: Instruction) -> None:
    if instr.argval == "STOPITERATION_ERROR":
        _stop_iteration_error(tx)
        return
    raise Unsupported(breaks.UnsupportedOpcode(f"{instr.op} {instr.argval}"))


def _stop_iteration_error(tx: Interpreter) -> None:
    """A StopIteration that leaves a generator becomes RuntimeError; the generator's resumption sees
    to it.
    """


@handler
def CLEANUP_THROW(tx: Interpreter, instr: Instruction) -> None:
    """receiver last exception -- none value: a StopIteration from a delegate ends `yield from`."""
    exception = tx.peek()
    if not issubclass(exception.python_type(), StopIteration):
        tx.raise_exception(exception)
    del tx.stack[-3:]
    tx.push(ConstantValue(None))
    tx.push(exception.getattr(tx, "value"))
