"""Opcodes of generators: suspending and delegating."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.interp.registry import handler
from dynamo.values.base import Value, is_none
from dynamo.values.iterators.generator import GeneratorValue, Resumable
from dynamo.values.objects.exceptions import RaisedException, is_exception
from dynamo.values.scalars.constant import ConstantValue

if TYPE_CHECKING:
    from dynamo.bytecode import Instruction
    from dynamo.interp.interpreter import Interpreter


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


def stop_iteration_error(tx: Interpreter) -> None:
    """A StopIteration that leaves a generator becomes RuntimeError; the generator's resumption sees
    to it.
    """


_CALLS = ("CALL", "CALL_KW", "CALL_FUNCTION_EX")


# -- delegating -----------------------------------------------------------------------------------
@handler
def GET_YIELD_FROM_ITER(tx: Interpreter, instr: Instruction) -> None:
    value = tx.pop()
    if isinstance(value, GeneratorValue):
        made = tx.program[instr.index - 1][1].op in _CALLS and value.frame.parent is tx
        value.is_delegate_alone = made and not value.started
    elif issubclass(value.python_type(), types.CoroutineType):
        raise Unsupported(breaks.UncapturedCall("yield from a coroutine"))
    tx.push(value if isinstance(value, GeneratorValue) else value.iterate(tx))


@handler
def SEND(tx: Interpreter, instr: Instruction) -> None:
    """receiver value -- receiver yielded, or jump with receiver result when it returns."""
    sent = tx.pop()
    receiver = tx.peek()
    if isinstance(receiver, Resumable):
        tx.resumes(receiver, [ConstantValue(None)])
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
    try:
        if receiver.python_type_is(types.CoroutineType):  # from outside
            raise Unsupported(breaks.OutsideIterator(receiver.describe()))
        if not is_none(sent):
            return receiver.call_method(tx, "send", [sent], {}), ConstantValue(None)
        if "__next__" in vars(receiver.python_type()) and receiver.has_special(tx, "__next__"):
            return receiver.call_method(tx, "__next__", [], {}), ConstantValue(None)
        return receiver.next_value(tx), ConstantValue(None)
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
def CLEANUP_THROW(tx: Interpreter, instr: Instruction) -> None:
    """receiver last exception -- none value: a StopIteration from a delegate ends `yield from`."""
    exception = tx.peek()
    if not issubclass(exception.python_type(), StopIteration):
        tx.raise_exception(exception)
    del tx.stack[-3:]
    tx.push(ConstantValue(None))
    tx.push(exception.getattr(tx, "value"))
