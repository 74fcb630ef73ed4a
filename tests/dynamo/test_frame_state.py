"""Frame states alone are what break codegen reads: snapshots built by hand become code, and the
code generator imports nothing of interpreters or Values.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from dynamo import breaks
from dynamo.bytecode import normalize
from dynamo.bytecode.emit import Emitter
from dynamo.bytecode.liveness import live_before
from dynamo.bytecode.opcodes import stack_effect
from dynamo.continuations.parts import Item
from dynamo.errors import Unsupported
from dynamo.framestate.break_codegen import BreakCodegen
from dynamo.framestate.frame_state import (
    Composed,
    FrameState,
    Heap,
    PushedByCall,
    Snapshot,
    StackItem,
    Virtual,
)
from dynamo.framestate.materialise import Codegen
from dynamo.guards.sources import INSTALLED, InstalledSource
from dynamo.plans import EmissionPlan, Retry, SkipFrame
from dynamo.values.recipes import LIST, TUPLE, Made, exact

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import structure

ROOM = "dynamo.framestate"
READERS = [f"{ROOM}.{name}" for name in ("frame_state", "kept_frame", "virtual_objects")]
REASON = breaks.UncapturedCall("a call")
LOG: list[Any] = []


class NoCapture:
    """What Codegen needs of an attempt: a place for installed objects."""

    def __init__(self) -> None:
        self.emission = EmissionPlan()
        self.hoisted_calls: list[Any] = []
        self.installed: dict[str, Any] = {}

    def install(self, prefix: str, obj: Any) -> InstalledSource:
        name = f"{prefix}_{len(self.installed)}"
        self.installed[name] = obj
        return InstalledSource(name)

    def continuation(self, code: types.CodeType, namespace: dict[str, Any]) -> InstalledSource:
        return self.install("resume", types.FunctionType(code, namespace))


def frame_at(function: Any, op: str, argval: Any = None, **fields: Any) -> FrameState:
    """The frame of `function` at its first instruction of this name. fields: of the FrameState."""
    code = function.__code__
    program = [*normalize(code), None]
    instr = next(i for i in program[:-1] if i.op == op and argval in (None, i.argval))
    stack = fields.setdefault("stack", ())
    popped = stack_effect(op, instr.arg)[0]
    return FrameState(
        **{
            "code": code,
            "namespace": function.__globals__,
            "level": 0,
            "instr": instr,
            "following": program[instr.index + 1],
            "split": len(stack) - popped,
            "kept_count": len(stack) - popped,
            "live": live_before(code),
            "locals": {},
            "cells": {},
            "handler": instr.handler,
            **fields,
        }
    )


def emitted(snapshot: Snapshot, plan: EmissionPlan | None = None) -> Any:
    """The function that the snapshot becomes."""
    output, emit = NoCapture(), Emitter()
    held: list[Any] = []
    codegen = Codegen(output, emit)  # type: ignore[arg-type]
    BreakCodegen(snapshot).emit(codegen, plan or EmissionPlan(), held.extend)
    outer = snapshot.frames[0]
    code = emit.assemble(outer.code)
    namespace = {**outer.namespace, INSTALLED: output.installed}
    made = types.FunctionType(code, namespace)
    made.__dict__["held"] = held
    return made


def add(x, y):
    total = x + y
    return total * 10


def test_an_instruction_and_the_rest_of_its_frame():
    stack = (StackItem(Item.VALUE, 1), StackItem(Item.VALUE, 2))
    frame = frame_at(add, "BINARY_OP", "+", stack=stack)
    snapshot = Snapshot((frame,), Heap({1: exact(3), 2: exact(4)}), frame.instr, REASON)
    # The arguments are not read: operands are what the heap says.
    assert emitted(snapshot)(0, 0) == 70


def pair(x):
    label = [x, x]
    return label, [*label, len(label)]


def test_values_are_made_by_the_recipes_of_the_heap():
    frame = frame_at(
        pair, "CALL", stack=(StackItem(Item.VALUE, 1), StackItem(Item.VALUE, 3),
                             StackItem(Item.VALUE, 4), StackItem(Item.NULL),
                             StackItem(Item.VALUE, 2)),
        locals={"label": 2}, moved=("label",),
    )  # fmt: skip
    heap = Heap(
        {
            1: Made(TUPLE, exact("first")),
            2: Made(LIST, exact(1), exact(2)),
            3: Made(LIST, exact(7)),
            4: exact(len),
        }
    )
    snapshot = Snapshot((frame,), heap, frame.instr, REASON)
    assert emitted(snapshot)(None) == (("first",), [7, 2])


def outer(x):
    return inner(x) + 1


def inner(x):
    y = x * 2
    return abs(y) * y


def test_a_break_in_a_callee_goes_on_in_both_frames():
    call = next(i for i in normalize(inner.__code__) if i.op == "CALL")
    below = frame_at(
        outer, "CALL", stack=(), split=0, kept_count=0, pushed=PushedByCall(form=(True,))
    )
    assert call.arg == 1
    above = frame_at(
        inner, "CALL", level=1, locals={"y": 1},
        stack=(StackItem(Item.VALUE, 2), StackItem(Item.NULL), StackItem(Item.VALUE, 1)),
    )  # fmt: skip
    heap = Heap({1: exact(-4), 2: exact(abs)})
    snapshot = Snapshot((below, above), heap, above.instr, REASON)
    assert emitted(snapshot)(None) == 4 * -4 + 1


def guarded(x):
    try:
        return 1 / x
    except ZeroDivisionError as error:
        return type(error).__name__


def test_an_exception_of_the_instruction_goes_to_the_handler():
    stack = (StackItem(Item.VALUE, 1), StackItem(Item.VALUE, 2))
    frame = frame_at(guarded, "BINARY_OP", "/", stack=stack)
    assert frame.handler is not None
    values = {1: exact(1), 2: exact(0)}
    assert emitted(Snapshot((frame,), Heap(values), frame.instr, REASON))(5) == "ZeroDivisionError"
    values = {1: exact(1), 2: exact(4)}
    assert emitted(Snapshot((frame,), Heap(values), frame.instr, REASON))(5) == 0.25


def items(*values):
    LOG.append("made")
    return iter(values)


def pair_of(*values):
    return values


def holder_snapshot() -> Snapshot:
    """The variable `held` is virtual: a tuple of an iterator over 5, and of a tuple of both. (As
    objects, they are said to be empty tuples.)
    """

    def function(held):
        total = abs(-3)
        return total, held

    frame = frame_at(
        function, "CALL", locals={"held": 1}, moved=("held",),
        stack=(StackItem(Item.VALUE, 4), StackItem(Item.NULL), StackItem(Item.VALUE, 5)),
    )  # fmt: skip
    virtual = {
        1: Virtual(pair_of, (2, Composed(pair_of, (2, 3), Made(TUPLE))), (2, 3), "a tuple"),
        2: Virtual(items, (3,), (), "an iterator", is_generator=True, code=items.__code__),
    }
    operands = {1: Made(TUPLE), 2: Made(TUPLE), 3: exact(5), 4: exact(abs), 5: exact(-3)}
    return Snapshot((frame,), Heap(operands, virtual), frame.instr, REASON)


def test_what_holds_a_generator_is_made_by_the_continuation():
    snapshot = holder_snapshot()
    LOG.clear()
    made = emitted(snapshot)
    total, (iterator, (same, five)) = made(None)
    assert (total, same is iterator, list(iterator), five, LOG) == (3, True, [5], 5, ["made"])
    operands = snapshot.heap.operands
    assert operands[1] not in made.held and operands[3] in made.held  # the first is no object here


def test_what_escapes_is_an_object():
    snapshot = holder_snapshot()
    made = emitted(snapshot, EmissionPlan(escaping=frozenset([1])))
    assert made(None) == (3, ())
    assert snapshot.heap.operands[1] in made.held


def test_a_virtual_object_that_holds_itself_escapes():
    snapshot = holder_snapshot()
    virtual = {**snapshot.heap.virtual, 1: Virtual(pair_of, (2, 1), (2, 1), "a tuple")}
    heap = dataclasses.replace(snapshot.heap, virtual=virtual)
    with pytest.raises(Retry) as raised:
        emitted(dataclasses.replace(snapshot, heap=heap))
    assert raised.value.plan == EmissionPlan(escaping=frozenset([1]))


def test_a_frame_that_returns_needs_no_continuation():
    def function(x):
        return x

    frame = frame_at(function, "RETURN_VALUE", stack=(StackItem(Item.VALUE, 1),))
    assert emitted(Snapshot((frame,), Heap({1: exact(2)}), frame.instr, REASON))(None) == 2


def test_a_frame_that_has_not_begun_is_skipped():
    start = frame_at(add, "RESUME")
    start = dataclasses.replace(start, following=start.instr)
    with pytest.raises(SkipFrame):
        emitted(Snapshot((start,), Heap({}), start.instr, REASON))


def test_a_snapshot_does_not_change():
    frame = frame_at(add, "BINARY_OP", "+", stack=(StackItem(Item.VALUE, 1),) * 2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        frame.level = 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        Snapshot((frame,), Heap({}), frame.instr, REASON).frames = ()


def test_a_frame_that_cannot_be_left_says_the_reason_of_the_break():
    below = frame_at(outer, "RESUME", stack=(), pushed=PushedByCall(form=(True,)))
    above = frame_at(inner, "RESUME", level=1)
    above = dataclasses.replace(above, following=above.instr)
    with pytest.raises(Unsupported) as raised:
        emitted(Snapshot((below, above), Heap({}), above.instr, REASON))
    assert raised.value.reason is REASON


@functools.cache
def edges() -> dict[str, set[str]]:
    """Modules of dynamo -> those that they import."""
    made: dict[str, set[str]] = {}
    for found in structure.all_imports():
        made.setdefault(found.importer, set()).add(found.imported)
    return made


def imported_by(module: str) -> set[str]:
    """All modules of ours that an import of `module` leads to, but for packages."""
    seen: set[str] = set()
    todo = [module]
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += edges().get(name, ())
    return seen


@pytest.mark.parametrize("module", [f"{ROOM}.break_codegen", *READERS])
def test_break_codegen_knows_no_interpreter(module):
    rooms = ("dynamo.interp", "dynamo.torch", "dynamo.values", "dynamo.api")
    known = {name for name in imported_by(module) if name.startswith(rooms)}
    assert known <= {"dynamo.values.recipes"}
