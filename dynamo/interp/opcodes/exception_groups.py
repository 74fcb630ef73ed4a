"""Opcodes of `except*`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dynamo.interp.registry import handler
from dynamo.values.base import Value
from dynamo.values.exception_groups import NONE, match_group, prepare_reraise
from dynamo.values.exceptions import caught_classes
from dynamo.values.stack_items import PreviousException

if TYPE_CHECKING:
    from dynamo.bytecode import Instruction
    from dynamo.interp.interpreter import Interpreter


@handler
def CHECK_EG_MATCH(tx: Interpreter, instr: Instruction) -> None:
    """group classes -- rest match: the clause handles `match`, which is then what sys.exc_info()
    finds.
    """
    classes = caught_classes(tx, tx.pop())
    match, rest = match_group(tx, tx.pop(), classes)
    tx.push(rest)
    tx.push(match)
    if match is not NONE:
        _handle(tx, match)


def _handle(tx: Interpreter, match: Value) -> None:
    tx.exc_info = match
    for i in reversed(range(len(tx.stack))):
        saved = tx.stack[i]
        if isinstance(saved, PreviousException):
            tx.stack[i] = PreviousException(saved.exception, match)
            return


def prep_reraise_star(tx: Interpreter) -> None:
    """original exceptions -- exception_or_none"""
    original, exceptions = tx.popn(2)
    tx.push(prepare_reraise(tx, original, exceptions.unpack(tx)))
