"""One frame at a graph break: what it keeps, and in which locals of the rewritten frame.

A break stands in the compiled frame itself (level 0) or in a callee that was inlined into it; then
the frames between them, which are all in the middle of a call, go on, too.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CellType, CodeType
from typing import TYPE_CHECKING, Any

import torch

from dynamo import breaks
from dynamo.bytecode.liveness import live_before
from dynamo.bytecode.opcodes import stack_effect
from dynamo.continuations.parts import Item, Pushed, parameters_of
from dynamo.continuations.resume import origin, pushed_by_call
from dynamo.errors import Unsupported
from dynamo.framestate.virtual_objects import over_cells
from dynamo.guards.sources import LocalSource
from dynamo.values.base import Value
from dynamo.values.builder import Lazy
from dynamo.values.cell import CellValue
from dynamo.values.lifetimes import is_finalizable, must_stay_alive, reachable
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
    from dynamo.framestate.materialise import Codegen
    from dynamo.framestate.virtual_objects import VirtualObjects
    from dynamo.interp.interpreter import Interpreter
    from dynamo.interp.root import Stop

# A stack item of the rewritten frame: what it is, and the local that holds it.
Kept = tuple[Item, str]

# Their operands stay on the stack.
_KEEP_ALL = frozenset(["WITH_EXCEPT_START"])


class FrameState:
    """`callee` is the next inner frame; None: the instruction that breaks is this frame's.

    shown: by id, what may be held by others once the instruction has run. Nothing but this is left
    of the interpreter for break codegen: variables and all_cells are those of the frame, locals and
    cells those of them that the continuation needs.
    """

    virtual_objects: VirtualObjects  # of the break, in all frames

    def __init__(
        self,
        tx: Interpreter,
        level: int,
        callee: Interpreter | None,
        shown: dict[int, Value | Lazy],
    ) -> None:
        self.output = tx.output
        self.code = tx.code
        self.namespace = tx.f_globals
        self.hidden = tx.hidden
        self.variables = tx.locals
        self.all_cells = tx.cells
        self.level = level
        self.instr = tx.current
        behind = self.instr.index + 1
        self.following = tx.program[behind][1] if behind < len(tx.program) else None
        # Of what the instruction raises again: the place, and the line.
        self.raised_at = tx.raised_at(self.instr, above=1)
        self.line_left = tx.line_left(self.instr, above=1)
        # The generator whose resumption is to be executed again; None: there is no such thing.
        resumption = None if callee is None or callee.pushed is not None else callee.resumption
        self.resumes: Any = None if resumption is None else resumption.generator
        self.stack = tx.stack if resumption is None else [*tx.stack, *resumption.operands]
        popped = 0 if callee is not None else _popped(tx)
        self.split = len(self.stack) - popped  # operands are above
        self.handler = _handler_of(self.instr)
        depth = self.handler.depth if self.handler is not None else 0
        # Items that are needed again after the instruction took its operands.
        keep_all = callee is None and self.instr.op in _KEEP_ALL
        self.kept_count = len(self.stack) if keep_all else max(self.split, depth)
        self.kept: list[Kept] = []
        # What the instruction itself or anything after it (its handler, too) may read.
        self.live = live_before(self.code)
        live = self.live[self.instr.index]
        # Python keeps variables that nothing reads any more: so do we where that can be noticed.
        self.kept_alive = {
            name for name, value in tx.locals.items() if must_stay_alive(tx.output, value, shown)
        }
        self.locals = {
            name: value
            for name, value in tx.locals.items()
            if name in live or name in self.kept_alive
        }
        self.virtual_cells: list[Any] | None = None  # see VirtualObjects.cells
        self.cells = {
            name: cell
            for name, cell in tx.cells.items()
            if level or name in live or must_stay_alive(tx.output, cell, shown)
        }
        if level == 0:
            self._check_cells()
        self.pushed = None if resumption is not None else _pushed(tx, callee)

    def _check_cells(self) -> None:
        """A comprehension that has a variable, or a cell, in the place of one of the compiled
        frame's own cells cannot be left there, nor where it begins: the continuation takes these
        cells along.
        """
        begins = self.instr.op == "STORE_FAST" and not isinstance(self.stack[-1], CellValue)
        for name in self._cell_names:
            cell = self.all_cells.get(name)
            replaced = cell is None or (cell.source is None and cell.local_name is None)
            if replaced or name in self.variables or (begins and name == self.instr.argval):
                text = f"the comprehension's variable {name!r}"
                raise Unsupported(breaks.CannotReconstruct(text))

    def roots(self) -> list[Value]:
        """What stays alive beyond the graph."""
        held = [*self.stack, *self.locals.values(), *self.cells.values(), *(self.pushed or ())]
        return [value for value in held if isinstance(value, Value)]

    def exception(self) -> Value | None:
        """The exception that is being handled here."""
        for value in reversed(self.stack):
            if isinstance(value, PreviousException):
                return value.handled
        return None

    # -- locals of the rewritten frame ----------------------------------------------------------
    def local(self, name: str) -> str:
        """The local that holds a variable of this frame."""
        return f".{self.level}.{name}" if self.level else name

    @property
    def closure(self) -> str:
        return f".{self.level}.closure"

    def pushed_locals(self) -> list[str]:
        """The locals of what the call pushes besides its result."""
        return [f".{self.level}.pushed{i}" for i in range(len(self._pushed_values()))]

    def _pushed_values(self) -> list[Value | Lazy]:
        """What the call pushes is made of, besides its result."""
        values: list[Value | Lazy] = []
        for value in self.pushed or ():
            if isinstance(value, ReturnContinuation):
                values += value.operands
            elif value is not RESULT and value is not NULL:
                values.append(value)
        return values

    @property
    def pushed_form(self) -> tuple[Pushed, ...]:
        return tuple(_form(value) for value in self.pushed or ())

    @property
    def caught(self) -> CatchContinuation | None:
        """What the current call makes of an exception."""
        return next(
            (value for value in self.pushed or () if isinstance(value, CatchContinuation)), None
        )

    def kept_in_call(self) -> list[str]:
        """The locals that the frame goes on with behind its current call.

        What the call in a continuation's prologue pushes is passed apart (see `_pushed`).
        """
        own = parameters_of(pushed_by_call(self.code, self.instr) or ())
        return self.names_at(self.instr, set(self.locals).difference(own))

    def keep_stack(self, codegen: Codegen) -> None:
        self.kept = [
            self._keep(codegen, value, f".{self.level}.stack{i}")
            for i, value in enumerate(self.stack[: self.kept_count])
        ]

    def ending(self, depth: int) -> list[str]:
        """The locals of what an exception takes off the stack, down to `depth`, and whose end is
        noticed.
        """
        above = list(zip(self.stack, self.kept))[depth:]
        exhausted = [
            local
            for value, (_, local) in reversed(above)
            if local
            and local not in self.virtual_objects.slots
            and is_finalizable(self.output, value)
        ]
        return exhausted

    def _keep(self, codegen: Codegen, value: Value | Lazy, local: str) -> Kept:
        if value is NULL:
            return Item.NULL, ""
        if value is UNBOUND:
            return Item.UNBOUND, ""
        handling = isinstance(value, PreviousException)
        kept = value.handled if isinstance(value, PreviousException) else value
        self.virtual_objects.store(codegen, kept, local)
        return Item.HANDLING if handling else Item.VALUE, local

    def keep_inlined(self, codegen: Codegen) -> None:
        """The variables of a frame that the rewritten frame does not have itself."""
        for name, value in self.locals.items():
            if name in self._cell_names:
                codegen(value)
                codegen.store_fast(self.local(name))
            else:
                self.virtual_objects.store(codegen, value, self.local(name))
        cells: list[Any] = [self.cells.get(name) for name in self._cell_names]
        if None not in cells:
            self.virtual_cells = self.virtual_objects.cells(codegen, cells, self.level)
        if self.virtual_cells is None:
            self._keep_cells(codegen, cells)

    def _keep_cells(self, codegen: Codegen, cells: list[Any]) -> None:
        for cell in cells:
            if cell is None:  # the slot has another use inside of a comprehension
                codegen.load_callable(lambda: codegen.load_const(CellType))
                codegen.call(0)
            else:
                codegen(cell)
        if self._cell_names:
            codegen.build_tuple(len(self._cell_names))
            codegen.store_fast(self.closure)

    @property
    def _cell_names(self) -> tuple[str, ...]:
        return (*self.code.co_cellvars, *self.code.co_freevars)

    def function(self, code: CodeType) -> Any:
        """What a caller's continuation gets to call: a function over this frame's cells, which is
        made here, or there if the cells are virtual.
        """
        if self.virtual_cells is None or not code.co_freevars:
            return self, code
        return over_cells(code, self.namespace, self.virtual_cells)

    def restore(self, codegen: Codegen) -> Callable[[], None]:
        """Push the variables of the compiled frame itself that have to be stored again. The
        function that is returned stores them.
        """
        restored = []
        for name in self.moved_locals():
            value = self.locals[name]
            if name in self._cell_names or not self.virtual_objects.takes(codegen, value, name):
                codegen(value)
                restored.append(name)
        arguments = self.output.root_frame.arguments
        virtual = [name for name in self.code.co_cellvars if self._is_virtual_cell(codegen, name)]
        emptied = [name for name in virtual if name in arguments]  # the argument is still in it

        def store() -> None:
            for name in emptied:
                codegen.delete_deref(name)
            for name in reversed(restored):
                codegen.store_fast(name)

        return store

    def _is_virtual_cell(self, codegen: Codegen, name: str) -> bool:
        cell = self.all_cells.get(name)
        if cell is None or cell.local_name != name:  # a comprehension has it
            return False
        return self.virtual_objects.takes_cell(codegen, cell, name, read=name in self.cells)

    def keep_pushed(self, codegen: Codegen) -> None:
        for value, local in zip(self._pushed_values(), self.pushed_locals()):
            self.virtual_objects.store(codegen, value, local)

    def names_at(self, target: Instruction, bound: set[str]) -> list[str]:
        """Which of the variables that have a value there the frame goes on with at `target`: in the
        order in which the function lets go of them at its end.
        """
        function = origin(self.code)
        code = self.code if function is None or function.code is None else function.code
        slots = {name: at for at, name in enumerate(code.co_varnames)}
        names = bound & (self.live[target.index] | self.kept_alive)
        return sorted(names, key=lambda name: (slots.get(name, len(slots)), name))

    def dropped_arguments(self) -> list[str]:
        """Arguments of the compiled frame that it does not hold any more, and tensors that nothing
        reads.
        """
        dropped = []
        for name, argument in self.output.root_frame.arguments.items():
            value = self.variables.get(name)
            if name in self.locals or name in self.code.co_cellvars:
                continue
            replaced = value is None or not _in_place(name, value)
            if replaced or (isinstance(value, Value) and isinstance(argument.obj, torch.Tensor)):
                dropped.append(name)
        return dropped

    def moved_locals(self) -> list[str]:
        """Variables of the compiled frame itself that have to be stored again."""
        return [name for name, value in self.locals.items() if not _in_place(name, value)]


class Snapshot:
    """The program at a graph break: the only input of break codegen, besides the graph and the side
    effects of the attempt.

    frames: from the compiled one to the one whose instruction breaks. loop: begins there and runs
    natively as a whole.
    """

    def __init__(self, stop: Stop) -> None:
        callees = [*stop.chain[1:], None]
        shown = reachable(stop.chain[-1].stack)
        self.frames = [
            FrameState(tx, level, callee, shown)
            for level, (tx, callee) in enumerate(zip(stop.chain, callees))
        ]
        assert stop.instr is not None, "a break stands before an instruction"
        self.instr = stop.instr
        self.reason = stop.reason
        self.loop = stop.loop


def _handler_of(instr: Instruction) -> Any:
    """The user's handler around an instruction: not those with which later versions surround each
    generator, and each `await`; what they do is done otherwise (rematerialise.left_generator).
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


def _popped(tx: Interpreter) -> int:
    if tx.current.op == "FOR_ITER":
        return 1
    return stack_effect(tx.current.op, tx.current.arg)[0]


def _pushed(tx: Interpreter, callee: Interpreter | None) -> list[Value | Lazy] | None:
    """What the current call pushes; None: it is not calling."""
    if callee is None:
        return None
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
