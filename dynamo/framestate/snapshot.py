"""The snapshot at a graph break, taken of the interpreters of the frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from dynamo import breaks
from dynamo.bytecode.liveness import live_before
from dynamo.bytecode.opcodes import stack_effect
from dynamo.continuations.parts import Item, Pushed, parameters_of
from dynamo.continuations.resume import pushed_by_call
from dynamo.errors import Unsupported
from dynamo.framestate.frame_state import (
    Caught,
    FrameState,
    Method,
    Operand,
    PushedByCall,
    Resumed,
    Snapshot,
    StackItem,
    ValueId,
)
from dynamo.framestate.heap import make_heap
from dynamo.guards.sources import LocalSource
from dynamo.values.base import Value
from dynamo.values.builder import Lazy
from dynamo.values.builtins.table import BuiltinMethod
from dynamo.values.effects.lifetimes import (
    SuspendedGenerator,
    is_finalizable,
    must_stay_alive,
    path_to,
    reachable,
)
from dynamo.values.functions.cell import CellValue
from dynamo.values.objects.exception_objects import ExceptionValue
from dynamo.values.recipes import Made
from dynamo.values.scalars.constant import ConstantMethodValue
from dynamo.values.stack_items import (
    NULL,
    RESULT,
    UNBOUND,
    CatchContinuation,
    PreviousException,
    ReturnContinuation,
)

if TYPE_CHECKING:
    from dynamo.bytecode import Instruction
    from dynamo.interp.interpreter import Interpreter
    from dynamo.interp.output import OutputGraph
    from dynamo.interp.root import Stop

# Instructions whose operands stay on the stack.
_KEEP_ALL = frozenset(["WITH_EXCEPT_START"])
# Instructions on a local variable.
_OF_LOCALS = frozenset(["LOAD_FAST", "STORE_FAST", "DELETE_FAST", "LOAD_FAST_AND_CLEAR"])
# Instructions on a cell or its contents.
_OF_CELLS = frozenset(
    ["LOAD_DEREF", "STORE_DEREF", "DELETE_DEREF", "LOAD_CLOSURE", "LOAD_CLASSDEREF", "MAKE_CELL"]
    + ["LOAD_FROM_DICT_OR_DEREF", "LOAD_FAST_AND_CLEAR"]
)


def take_snapshot(stop: Stop) -> Snapshot:
    """The program where capture stopped.

    Raises Unsupported where a frame cannot be left.
    """
    assert stop.instr is not None, "a break stands before an instruction"
    return _Taker(stop.chain[0].output, stop).take(stop.instr)


class _Taker:
    """Takes one snapshot; `values` are those that the frames name."""

    def __init__(self, output: OutputGraph, stop: Stop) -> None:
        self.output = output
        self.stop = stop
        self.values: dict[ValueId, Operand] = {}
        # By id, the values that others may hold once the instruction has run.
        self.shown = reachable(output, stop.chain[-1].stack)

    def take(self, instr: Instruction) -> Snapshot:
        chain = self.stop.chain
        callees = [*chain[1:], None]
        frames = tuple(
            self._frame(tx, level, callee) for level, (tx, callee) in enumerate(zip(chain, callees))
        )
        _keep_left(self.output, [self.values[value] for f in frames for value in f.roots()])
        needed = [value for value in self._needed(chain[-1], frames[-1]) if value is not None]
        resumed = [frame.resumes.value for frame in frames if frame.resumes is not None]
        simple = self.stop.loop is None and not any(frame.pushed.caught for frame in frames)
        method = self._method(chain[-1], frames[-1])
        return Snapshot(
            frames,
            make_heap(self.output, self.values.values(), resumed, ends=simple),
            instr,
            self.stop.reason,
            self.stop.loop,
            frozenset(map(id, needed)),
            method,
            bool(self.output.op_count),
        )

    def _id(self, value: Operand) -> ValueId:
        self.values[id(value)] = value
        return id(value)

    def _frame(self, tx: Interpreter, level: int, callee: Interpreter | None) -> FrameState:
        """`callee` is the next inner frame; None: the instruction that breaks is this frame's."""
        instr, output, shown = tx.current, self.output, self.shown
        behind = instr.index + 1
        # The generator whose resumption is to be executed again; None: there is no such thing.
        resumption = None if callee is None or callee.pushed is not None else callee.resumption
        stack = tx.stack if resumption is None else [*tx.stack, *resumption.operands]
        split = len(stack) - (0 if callee is not None else _popped(instr))  # operands are above
        handler = _handler_of(instr)
        depth = handler.depth if handler is not None else 0
        # Items that are needed again after the instruction took its operands.
        keep_all = callee is None and instr.op in _KEEP_ALL
        live = live_before(tx.code)
        # Python keeps variables that nothing reads any more: so do we where that can be noticed.
        kept_alive = {
            name for name, value in tx.locals.items() if must_stay_alive(output, value, shown)
        }
        # The locals that the instruction itself or anything after it (its handler, too) may read.
        read = live[instr.index]
        named = {n: value for n, value in tx.locals.items() if n in read or n in kept_alive}
        cells = {
            name: cell
            for name, cell in tx.cells.items()
            if level or name in read or must_stay_alive(output, cell, shown)
        }
        outer: dict[str, Any] = {}
        if level == 0:
            _check_cells(tx, stack)
            outer = self._of_compiled_frame(tx, named)
        previous = [value.exception for value in stack if isinstance(value, PreviousException)]
        return FrameState(
            code=tx.code,
            namespace=tx.f_globals,
            level=level,
            instr=instr,
            following=tx.program[behind][1] if behind < len(tx.program) else None,
            stack=tuple(map(self._item, stack)),
            split=split,
            kept_count=len(stack) if keep_all else max(split, depth),
            live=live,
            locals={name: self._id(value) for name, value in named.items()},
            cells={name: self._id(cell) for name, cell in cells.items()},
            kept_alive=frozenset(kept_alive),
            also_held=tuple(self._id(value) for value in previous if value is not None),
            handler=handler,
            hidden=tx.hidden,
            raised_at=tx.raised_at(instr, above=1),
            line_left=tx.line_left(instr, above=1),
            resumes=self._resumed(None if resumption is None else resumption.generator),
            pushed=PushedByCall() if resumption is not None else self._pushed(tx, callee),
            **outer,
        )

    def _of_compiled_frame(self, tx: Interpreter, named: dict[str, Any]) -> dict[str, Any]:
        own = {name: cell for name, cell in tx.cells.items() if cell.local_name == name}
        arguments = self.output.root_frame.arguments
        return {
            "moved": tuple(name for name, value in named.items() if not _in_place(name, value)),
            "dropped": tuple(_dropped_arguments(tx, arguments, named)),
            "arguments": frozenset(arguments),
            "own_cells": {name: self._id(cell) for name, cell in own.items()},
            "bound_variables": frozenset(tx.locals),
            "bound_cells": frozenset(tx.cells),
        }

    def _item(self, value: Value | Lazy) -> StackItem:
        if value is NULL:
            return StackItem(Item.NULL)
        if value is UNBOUND:
            return StackItem(Item.UNBOUND)
        ends = is_finalizable(self.output, value)
        if isinstance(value, PreviousException):
            return StackItem(Item.HANDLING, self._id(value.handled), ends)
        return StackItem(Item.VALUE, self._id(value), ends)

    def _resumed(self, generator: Any) -> Resumed | None:
        if generator is None:
            return None
        make, operands = generator.recipe_when_finished()
        exhausted = Made(make, *operands)
        return Resumed(self._id(generator), exhausted)

    def _pushed(self, tx: Interpreter, callee: Interpreter | None) -> PushedByCall:
        pushed = _pushed_by(tx, callee)
        values: list[Value | Lazy] = []
        for value in pushed:
            if isinstance(value, ReturnContinuation):
                values += value.operands
            elif value is not RESULT and value is not NULL:
                values.append(value)
        caught = next((value for value in pushed if isinstance(value, CatchContinuation)), None)
        return PushedByCall(
            tuple(_form(value) for value in pushed),
            tuple(map(self._id, values)),
            None if caught is None else Caught(caught.error, caught.function, len(caught.operands)),
        )

    def _needed(self, tx: Interpreter, inner: FrameState) -> list[Any]:
        """The operands to make real objects: those that the instruction takes, reads or drops."""
        op = inner.instr.op
        if self.stop.loop is not None:
            named = [tx.locals[name] for name in inner.locals]
            return [*tx.stack, *named, *tx.cells.values()]
        needed: list[Any] = [*tx.stack[inner.split :]]
        if op == "RETURN_VALUE":
            needed += tx.locals.values()
            needed += [tx.cells.get(name) for name in inner.code.co_cellvars]
        elif op in _OF_LOCALS:
            needed.append(tx.locals.get(inner.instr.argval))
        if op in _OF_CELLS:
            needed.append(tx.cells.get(inner.instr.argval))
        return needed

    def _method(self, tx: Interpreter, inner: FrameState) -> Method | None:
        """The callee, if the call is obj.method of a C method: Python does not bind such a method,
        and its errors name the class that defines it instead of the object's.
        """
        operands = tx.stack[inner.split :]
        if inner.instr.op != "CALL" or len(operands) < 2 or inner.split < inner.kept_count:
            return None
        method = operands[0]
        if not isinstance(method, (BuiltinMethod, ConstantMethodValue)):
            return None
        if method.unbound is None or operands[1] is not NULL:
            return None
        return Method(method.unbound, method.name, self._id(method.receiver))


def _keep_left(output: OutputGraph, roots: list[Operand]) -> None:
    """Have exceptions keep the suspended generators that only frames of their tracebacks hold."""
    finalizable = [w for w in output.finalizable.values() if isinstance(w, SuspendedGenerator)]
    raised = [v for v in output.side_effects.tracked if isinstance(v, ExceptionValue) and v.left]
    if not (finalizable and raised):
        return
    for value in raised:
        value.keep(output, ())
    alive = output.side_effects.reachable(root for root in roots if isinstance(root, Value))
    alone = [w for w in finalizable if id(w.generator) not in alive]
    for value in raised:
        held = [w.generator for w in alone if path_to(output, value.left, w) is not None]
        value.keep(output, held)


def _check_cells(tx: Interpreter, stack: list[Any]) -> None:
    """Refuse a break inside of a comprehension, or at its start, if a variable or cell of the
    comprehension hides a cell of the compiled frame: the continuation takes these cells along.
    """
    begins = tx.current.op == "STORE_FAST" and not isinstance(stack[-1], CellValue)
    for name in (*tx.code.co_cellvars, *tx.code.co_freevars):
        cell = tx.cells.get(name)
        replaced = cell is None or (cell.source is None and cell.local_name is None)
        if replaced or name in tx.locals or (begins and name == tx.current.argval):
            raise Unsupported(breaks.CannotReconstruct(f"the comprehension's variable {name!r}"))


def _dropped_arguments(
    tx: Interpreter, arguments: dict[str, Lazy], named: dict[str, Any]
) -> list[str]:
    """Arguments of the compiled frame that it does not hold any more, and tensors that nothing
    reads.
    """
    dropped = []
    for name, argument in arguments.items():
        value = tx.locals.get(name)
        if name in named or name in tx.code.co_cellvars:
            continue
        replaced = value is None or not _in_place(name, value)
        if replaced or (isinstance(value, Value) and isinstance(argument.obj, torch.Tensor)):
            dropped.append(name)
    return dropped


def _handler_of(instr: Instruction) -> Any:
    """The user's handler around an instruction, without the handlers of later versions around each
    generator, whose work is done otherwise (rematerialise.left_generator).
    """
    handler = instr.handler
    while handler is not None and handler.target.op in ("CLEANUP_THROW", "CALL_INTRINSIC_1"):
        passes_on = handler.target.op == "CLEANUP_THROW"
        handler = handler.target.handler if passes_on else None
    return handler


def _form(value: Value | Lazy) -> Pushed:
    if isinstance(value, ReturnContinuation):
        return value.form
    return Item.NULL if value is NULL else value is RESULT


def _in_place(name: str, value: Value | Lazy) -> bool:
    """An argument that still has its first value."""
    source = value.source
    return isinstance(source, LocalSource) and source.local == name and not source.is_cell


def _popped(instr: Instruction) -> int:
    return 1 if instr.op == "FOR_ITER" else stack_effect(instr.op, instr.arg)[0]


def _pushed_by(tx: Interpreter, callee: Interpreter | None) -> list[Value | Lazy]:
    """The values that the current call pushes."""
    if callee is None:
        return []
    assert callee.pushed is not None, "a break stands below calls that only push"
    own = pushed_by_call(tx.code, tx.current)
    if own is None or own == (True,):
        return list(callee.pushed)
    values = iter([tx.locals[name] for name in parameters_of(own)])
    pushed: list[Value | Lazy] = []
    for item in own:
        if isinstance(item, tuple):
            function, count, *error = item
            operands = [next(values) for _ in range(count)]  # not looked at: that may run code
            made = (
                CatchContinuation(error[0], function, operands)
                if error
                else ReturnContinuation(function, operands)
            )
            pushed.append(made)
        else:
            plain = NULL if item is Item.NULL else RESULT
            pushed.append(plain if item else next(values))
    return pushed
