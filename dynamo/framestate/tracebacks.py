"""Code of rewritten frames that keeps our own entries out of the user's tracebacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dynamo.bytecode.emit import Emitter
    from dynamo.framestate.materialise import Codegen


def drop_entries(codegen: Codegen, count: int) -> None:
    """exception -- exception, without the callers' entries in its traceback: not yet there.

    They may not have been made: near the recursion limit, or where C made the exception so late
    that its __init__ is the first frame.
    """
    if not count:
        return
    too_few, end = codegen.label(), codegen.label()
    codegen.copy(1)
    codegen.load_attr("__traceback__")
    for _ in range(count):
        codegen.load_attr("tb_next")
        codegen.copy(1)
        codegen.pop_jump_if_none(too_few)
    codegen.swap(2)
    codegen.copy(1)
    codegen.store_fast("__exception")
    codegen.store_attr("__traceback__")
    codegen.load_fast_and_clear("__exception")
    codegen.jump(end)
    codegen.place(too_few)
    codegen.pop_top()
    codegen.place(end)


def return_call(codegen: Codegen | Emitter, count: int) -> None:
    """callable, *arguments -- (returns what the call returns, or raises as the call does)"""
    failed = codegen.label()
    with codegen.exception_region(failed, depth=0):
        codegen.call(count)
    codegen.return_value()
    codegen.place(failed)
    leave_traceback(codegen)


def leave_traceback(codegen: Codegen | Emitter) -> None:
    """exception -- (raised, without this frame's entry if another frame's follows)

    A continuation is the same function for the user: its entry shows the line that raised.
    """
    own = codegen.label()
    codegen.copy(1)
    codegen.load_attr("__traceback__")
    codegen.load_attr("tb_next")
    codegen.store_fast("__traceback")
    codegen.load_fast("__traceback")
    codegen.pop_jump_if_none(own)
    codegen.copy(1)
    codegen.load_fast("__traceback")
    codegen.swap(2)
    codegen.store_attr("__traceback__")
    codegen.place(own)
    codegen.delete_fast("__traceback")
    codegen.reraise()
