"""Opcodes that decide where execution goes: jumps, loops, with blocks, exceptions, return."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.classes import HEAP_TYPE
from dynamo.guards.sources import LocalSource
from dynamo.interp.checks import assume_truth
from dynamo.interp.conditionals import (
    run_conditional,
    run_counted_loop,
    run_loop_over_rows,
)
from dynamo.interp.empty_regions import run_masked_region, run_region
from dynamo.interp.guessed_branches import guessed_before, guessed_number, guessed_truth
from dynamo.interp.inlining import finish_call, push_call
from dynamo.interp.long_loops import LoopEntry
from dynamo.interp.loops_on_places import run_loop_on_places
from dynamo.interp.registry import handler
from dynamo.polyfills.protocols import checked_bool, checked_iterator
from dynamo.values.base import Value, is_none
from dynamo.values.classes.lookup import type_holds
from dynamo.values.containers.containers import ListValue, TupleValue
from dynamo.values.containers.ranges import RangeValue, SymbolicRangeIterator
from dynamo.values.iterators.stored_iterators import ItemProtocolIterator, IteratorValue
from dynamo.values.objects.descriptors import MISSING, class_lookup
from dynamo.values.objects.exceptions import caught_classes, is_caught, new_raised, raise_python
from dynamo.values.objects.objects import ObjectValue
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.scalars.symbol import SymbolValue, condition_of
from dynamo.values.stack_items import (
    RESULT,
    CatchContinuation,
    PreviousException,
    ReturnContinuation,
)
from dynamo.values.tensors.captured_scalars import truth_in_graph
from dynamo.values.tensors.deferred_places import DeferredPlaces
from dynamo.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from dynamo.bytecode import Instruction
    from dynamo.interp.interpreter import Interpreter


# -- jumps ----------------------------------------------------------------------------------------
@handler
def JUMP(tx: Interpreter, instr: Instruction) -> None:
    tx.jump(instr)


CONDITIONAL_JUMPS = frozenset(
    ["POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE", "JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP"]
)


@handler
def TO_BOOL(tx: Interpreter, instr: Instruction) -> None:
    """A following conditional jump asks for the truth itself, so that a break stands at the
    jump.
    """
    if tx.program[tx.index][1].op in CONDITIONAL_JUMPS:
        return
    value = tx.pop()
    tx.in_tail_position(value, "__bool__", [ReturnContinuation(checked_bool)])
    tx.push(value.truth_value(tx))


_CHECKED_BOOL = (ReturnContinuation(checked_bool),)


def _jump_if(tx: Interpreter, instr: Instruction, wanted: bool) -> None:
    """A conditional jump that pops."""
    value = tx.pop()
    if type(value) is ConstantValue:
        if bool(value.value) is wanted:
            tx.jump(instr)
        return
    tx.in_tail_position(value, "__bool__", _CHECKED_BOOL)
    value = value.as_condition()
    if value.is_deferred or value.is_symbolic():
        assumed = assume_truth(tx, instr, value)
        if assumed is not None:
            if assumed is wanted:
                tx.jump(instr)
            return
    if value.is_deferred:
        guessed = guessed_before(tx, value)
        if guessed is None:
            ways = [run_conditional, run_masked_region]
            if tx.output.conditionals.come_last():
                ways.reverse()
            if any(way(tx, instr, value, wanted) for way in ways):
                return
            if run_conditional(tx, instr, value, wanted, on_data=True):
                return
            guessed = guessed_truth(tx, value)
        if guessed is not None:
            if guessed is wanted:
                tx.jump(instr)
            return
    elif run_region(tx, instr, value, wanted) or _branches_on_number(tx, instr, value, wanted):
        return
    if _truth(tx, instr, value) is wanted:
        tx.jump(instr)


def _truth(tx: Interpreter, instr: Instruction, value: Value) -> bool:
    guessed = guessed_number(tx, instr, value)
    return value.truth(tx) if guessed is None else guessed


def _branches_on_number(
    tx: Interpreter, instr: Instruction, value: Value, wanted: bool, kept: Sequence[Value] = ()
) -> bool:
    """Whether a jump on a number from data is a conditional of the graph."""
    if not isinstance(value, SymbolValue) or not tx.output.conditionals.are_enabled(tx):
        return False
    truth = truth_in_graph(tx, value)
    if truth is None:
        return False
    sides = tx, instr, truth, wanted, kept, condition_of(value)
    return run_conditional(*sides) or run_conditional(*sides, on_data=True)


def _jump_or_pop(tx: Interpreter, instr: Instruction, wanted: bool) -> None:
    """A conditional jump that pops where it is not made."""
    value = tx.pop()
    if value.is_deferred and (
        run_conditional(tx, instr, value, wanted, [value])
        or run_conditional(tx, instr, value, wanted, [value], on_data=True)
    ):
        return
    if _branches_on_number(tx, instr, value, wanted, [value]):
        return
    if _truth(tx, instr, value) is wanted:
        tx.push(value)
        tx.jump(instr)


@handler
def POP_JUMP_IF_TRUE(tx: Interpreter, instr: Instruction) -> None:
    _jump_if(tx, instr, True)


@handler
def POP_JUMP_IF_FALSE(tx: Interpreter, instr: Instruction) -> None:
    _jump_if(tx, instr, False)


@handler
def POP_JUMP_IF_NONE(tx: Interpreter, instr: Instruction) -> None:
    if is_none(tx.pop()):
        tx.jump(instr)


@handler
def POP_JUMP_IF_NOT_NONE(tx: Interpreter, instr: Instruction) -> None:
    if not is_none(tx.pop()):
        tx.jump(instr)


@handler
def JUMP_IF_TRUE_OR_POP(tx: Interpreter, instr: Instruction) -> None:
    _jump_or_pop(tx, instr, True)


@handler
def JUMP_IF_FALSE_OR_POP(tx: Interpreter, instr: Instruction) -> None:
    _jump_or_pop(tx, instr, False)


@handler
def RETURN_VALUE(tx: Interpreter, instr: Instruction) -> None:
    tx.result = tx.pop()
    tx.done = True


# -- loops ----------------------------------------------------------------------------------------


@handler
def GET_ITER(tx: Interpreter, instr: Instruction) -> None:
    value = tx.pop()
    if type(value) is TensorValue and run_loop_over_rows(tx, instr, value):
        return
    tx.in_tail_position(value, "__iter__", [ReturnContinuation(checked_iterator)])
    try:
        iterator = value.iterate(tx)
    except Unsupported:
        kind = value.python_type()
        if not type_holds(kind, "__next__") or kind.__flags__ & HEAP_TYPE:
            raise
        iterator = value  # iterators that C defines are their own; the loop asks for the items
    is_made = isinstance(value, TupleValue | ListValue | RangeValue)
    if is_made or isinstance(iterator, ItemProtocolIterator | SymbolicRangeIterator):
        assert isinstance(iterator, IteratorValue)
        iterator.of_loop = iterator is not value
    tx.loop_entries[instr.index + 1] = LoopEntry.of(tx)
    tx.push(iterator)


_ENDS_LOOP = (CatchContinuation(StopIteration),)


@handler
def FOR_ITER(tx: Interpreter, instr: Instruction) -> None:
    iterator = tx.peek()
    if type(iterator) is DeferredPlaces:
        run_loop_on_places(tx, instr, iterator)
        return
    if type(iterator) is SymbolicRangeIterator and run_counted_loop(tx, instr, iterator):
        return
    tx.in_tail_position(iterator, "__next__", _ENDS_LOOP)
    tx.resumes(iterator)
    try:
        item = iterator.next_value(tx)
    except Unsupported as error:
        if iterator.source is None or getattr(error, "user_stack", None) is not None:
            raise
        of_break = isinstance(iterator.source, LocalSource) and iterator.source.local[0] == "."
        reason = breaks.NextTurn if of_break else breaks.OutsideIterator
        raise Unsupported(reason(iterator.describe())) from error
    if item is None:
        tx.pop()
        tx.jump(instr)
    else:
        tx.push(item)


# -- with -----------------------------------------------------------------------------------------
@handler
def BEFORE_WITH(tx: Interpreter, instr: Instruction) -> None:
    """manager -- exit entered: special methods are looked up on the type."""
    manager = tx.pop()
    kind = manager.python_type()
    for name in ("__enter__", "__exit__"):
        if class_lookup(kind, name) is MISSING:  # Python has words for each
            raise Unsupported(breaks.UncapturedCall(f"{kind.__name__}.{name}"))
    if isinstance(manager, ObjectValue):
        enter, leave = (manager.special_method(tx, name) for name in ("__enter__", "__exit__"))
        assert enter is not None and leave is not None, "the class has both"
        entered = finish_call(tx, enter, [], {}, (leave, RESULT))
    else:
        leave = manager.getattr(tx, "__exit__")
        tx.in_tail_position(manager, "__enter__", (leave, RESULT))
        entered = manager.call_method(tx, "__enter__", [], {})
    tx.push(leave)
    tx.push(entered)


@handler
def WITH_EXCEPT_START(tx: Interpreter, instr: Instruction) -> None:
    """exit lasti previous exception -- ... result of exit(type, exception, traceback)."""
    exception = tx.peek()
    leave = tx.peek(4)
    kind = tx.wrap(exception.python_type())
    traceback = exception.getattr(tx, "__traceback__")
    push_call(tx, leave, [kind, exception, traceback], {})


# -- exceptions -----------------------------------------------------------------------------------
@handler
def PUSH_EXC_INFO(tx: Interpreter, instr: Instruction) -> None:
    exception = tx.pop()
    tx.push(PreviousException(tx.exc_info, exception))
    tx.push(exception)
    tx.exc_info = exception


@handler
def POP_EXCEPT(tx: Interpreter, instr: Instruction) -> None:
    previous = tx.pop()
    tx.exc_info = previous.exception  # type: ignore[attr-defined]


@handler
def CHECK_EXC_MATCH(tx: Interpreter, instr: Instruction) -> None:
    classes = caught_classes(tx, tx.pop())
    tx.push(ConstantValue(is_caught(tx.peek().python_type(), classes)))


@handler
def RERAISE(tx: Interpreter, instr: Instruction) -> None:
    tx.raise_exception(tx.pop())


@handler
def RAISE_VARARGS(tx: Interpreter, instr: Instruction) -> None:
    if instr.arg == 0:
        handled = tx.handled_exception()
        if handled is None:
            raise_python(tx, RuntimeError, "No active exception to reraise")
        tx.raise_exception(handled)
    cause = tx.pop() if instr.arg == 2 else None
    exception = _instance(tx, tx.pop())
    if cause is not None:
        if not is_none(cause):
            cause = _instance(tx, cause, "exception causes must derive from BaseException")
        exception.setattr(tx, "__cause__", cause)
    tx.raise_exception(exception)


def _instance(
    tx: Interpreter, value: Value, otherwise: str = "exceptions must derive from BaseException"
) -> Value:
    """raise E and raise E(...) both raise an instance."""
    known, cls = value.identity()
    if known and isinstance(cls, type):
        if issubclass(cls, BaseException):
            return new_raised(tx, value)
        raise_python(tx, TypeError, otherwise)
    if not issubclass(value.python_type(), BaseException):
        raise_python(tx, TypeError, otherwise)
    return value
