"""Opcodes of generators and coroutines: suspending, delegating, awaiting."""

from __future__ import annotations

import inspect
import types
from typing import TYPE_CHECKING, Any

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.interp.registry import handler
from dynamo.polyfills.type_names import type_name
from dynamo.values.base import Value
from dynamo.values.constant import ConstantValue
from dynamo.values.coroutine import (
    AsyncGeneratorValue,
    AsyncYield,
    CoroutineValue,
    async_iterator,
    awaitable,
    is_iterable_coroutine,
)
from dynamo.values.descriptors import MISSING, class_lookup
from dynamo.values.exception_objects import make_exception
from dynamo.values.exceptions import RaisedException, is_exception, raise_python
from dynamo.values.generator import GeneratorValue, Resumable, is_none
from dynamo.values.lookup import type_holds
from dynamo.values.objects import ObjectValue
from dynamo.values.stack_items import RESULT

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


def async_gen_wrap(tx: Interpreter) -> None:
    """value -- (a wrapper that distinguishes the generator's yield from values that it awaits)"""
    tx.push(AsyncYield(tx.pop()))


def stop_iteration_error(tx: Interpreter) -> None:
    """A StopIteration that leaves a generator becomes RuntimeError; the generator's resumption sees
    to it.
    """


# -- delegating -----------------------------------------------------------------------------------
@handler
def GET_YIELD_FROM_ITER(tx: Interpreter, instr: Instruction) -> None:
    value = tx.pop()
    if isinstance(value, CoroutineValue):
        if not tx.code.co_flags & (inspect.CO_COROUTINE | inspect.CO_ITERABLE_COROUTINE):
            text = "cannot 'yield from' a coroutine object in a non-coroutine generator"
            raise_python(tx, TypeError, text)
        tx.push(value)
    else:
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


# -- awaiting -------------------------------------------------------------------------------------
@handler
def GET_AWAITABLE(tx: Interpreter, instr: Instruction) -> None:
    tx.push(awaitable(tx, tx.pop(), instr.arg))


@handler
def GET_AITER(tx: Interpreter, instr: Instruction) -> None:
    tx.push(async_iterator(tx, tx.pop()))


@handler
def GET_ANEXT(tx: Interpreter, instr: Instruction) -> None:
    iterator = tx.peek()
    kind = iterator.python_type()
    if not type_holds(kind, "__anext__"):
        text = f"'async for' requires an iterator with __anext__ method, got {kind.__name__}"
        raise_python(tx, TypeError, text)
    step = iterator.call_method(tx, "__anext__", [], {})
    tx.push(step if isinstance(iterator, AsyncGeneratorValue) else _awaited_step(tx, step))


def _awaited_step(tx: Interpreter, step: Value) -> Value:
    """Whatever goes wrong there is the cause of a TypeError."""
    try:
        return awaitable(tx, step, 3)
    except RaisedException as error:
        name = step.python_type().__name__
        text = f"'async for' received an invalid object from __anext__: {name}"
        changed: Any = make_exception(tx, TypeError, [ConstantValue(text)])
        for link in ("__cause__", "__context__"):
            changed.setattr(tx, link, error.value)
        raised = RaisedException(changed)
        raised.linked = True
        raise raised from None


@handler
def END_ASYNC_FOR(tx: Interpreter, instr: Instruction) -> None:
    """iterator exception --: the end of the loop, or an exception of the iterator's."""
    exception = tx.pop()
    if not issubclass(exception.python_type(), StopAsyncIteration):
        error = RaisedException(exception)
        error.linked = True
        raise error
    tx.pop()


@handler
def BEFORE_ASYNC_WITH(tx: Interpreter, instr: Instruction) -> None:
    """manager -- exit awaitable"""
    manager = tx.pop()
    kind = manager.python_type()
    for name in ("__aenter__", "__aexit__"):
        if class_lookup(kind, name) is MISSING:
            text = "object does not support the asynchronous context manager protocol"
            raise_python(tx, TypeError, f"{type_name(kind)!r} {text}")
    if isinstance(manager, ObjectValue):
        enter, leave = (manager.special_method(tx, name) for name in ("__aenter__", "__aexit__"))
        assert enter is not None and leave is not None, "the class has both"
        entered = tx.finish_call(enter, [], {}, (leave, RESULT))
    else:
        leave = manager.getattr(tx, "__aexit__")
        entered = manager.call_method(tx, "__aenter__", [], {})
    tx.push(leave)
    tx.push(entered)


__all__ = ["async_gen_wrap", "is_iterable_coroutine", "stop_iteration_error"]
