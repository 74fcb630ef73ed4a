"""Placement of a snapshot's frame during emission: which locals of the new code hold its parts."""

from __future__ import annotations

from collections.abc import Callable
from types import CellType, CodeType
from typing import TYPE_CHECKING, Any

from dynamo.continuations.parts import Item, parameters_of
from dynamo.continuations.resume import origin, pushed_by_call
from dynamo.framestate.frame_state import FrameState, StackItem, ValueId
from dynamo.framestate.virtual_objects import over_cells

if TYPE_CHECKING:
    from dynamo.bytecode import Instruction
    from dynamo.framestate.materialise import Codegen
    from dynamo.framestate.virtual_objects import VirtualObjects

# A stack item of the rewritten frame: its kind, and the local that holds it.
Kept = tuple[Item, str]


class KeptFrame:
    """`kept`: the items of the stack; `kept_alive`: see FrameState, less what a loop ends."""

    def __init__(self, state: FrameState, virtual_objects: VirtualObjects) -> None:
        self.state = state
        self.virtual_objects = virtual_objects
        self.level = state.level
        self.code = state.code
        self.namespace = state.namespace
        self.instr = state.instr
        self.handler = state.handler
        self.hidden = state.hidden
        self.pushed = state.pushed
        self.caught = state.pushed.caught
        self.resumes = state.resumes
        self.split = state.split
        self.live = state.live
        self.kept_alive = state.kept_alive
        self.kept: list[Kept] = []
        self.virtual_cells: list[Any] | None = None  # see VirtualObjects.cells

    # -- locals of the rewritten frame ----------------------------------------------------------
    def local(self, name: str) -> str:
        """The local that holds a variable of this frame."""
        return f".{self.level}.{name}" if self.level else name

    @property
    def closure(self) -> str:
        return f".{self.level}.closure"

    def pushed_locals(self) -> list[str]:
        """The locals of the values that the call pushes besides its result."""
        return [f".{self.level}.pushed{i}" for i in range(len(self.pushed.values))]

    def kept_in_call(self) -> list[str]:
        """The locals that the frame goes on with behind its current call.

        The results of the call in a continuation's prologue are passed apart (see PushedByCall).
        """
        own = parameters_of(pushed_by_call(self.code, self.instr) or ())
        return self.names_at(self.instr, set(self.state.locals).difference(own))

    def names_at(self, target: Instruction, bound: set[str]) -> list[str]:
        """The variables bound now that the frame still needs at `target`: in the order in which the
        function drops them at its end.
        """
        function = origin(self.code)
        code = self.code if function is None or function.code is None else function.code
        slots = {name: at for at, name in enumerate(code.co_varnames)}
        names = bound & (self.live[target.index] | self.kept_alive)
        return sorted(names, key=lambda name: (slots.get(name, len(slots)), name))

    def ending(self, depth: int) -> list[str]:
        """The locals of the values with a finalizer that an exception takes off the stack, down to
        `depth`.
        """
        above = list(zip(self.state.stack, self.kept))[depth:]
        return [
            local
            for found, (_, local) in reversed(above)
            if local and found.ends and local not in self.virtual_objects.slots
        ]

    # -- emission -------------------------------------------------------------------------------
    def keep_stack(self, codegen: Codegen) -> None:
        self.kept = [
            self._keep(codegen, found, f".{self.level}.stack{i}")
            for i, found in enumerate(self.state.stack[: self.state.kept_count])
        ]

    def _keep(self, codegen: Codegen, found: StackItem, local: str) -> Kept:
        if found.value is None:
            return found.item, ""
        self.virtual_objects.store(codegen, found.value, local)
        return found.item, local

    def keep_pushed(self, codegen: Codegen) -> None:
        for value, local in zip(self.pushed.values, self.pushed_locals()):
            self.virtual_objects.store(codegen, value, local)

    def keep_inlined(self, codegen: Codegen) -> None:
        """The variables of a frame that the rewritten frame does not have itself."""
        for name, value in self.state.locals.items():
            if name in self.state.cell_names:
                self.virtual_objects.push(codegen, value)
                codegen.store_fast(self.local(name))
            else:
                self.virtual_objects.store(codegen, value, self.local(name))
        cells = [self.state.cells.get(name) for name in self.state.cell_names]
        present = [cell for cell in cells if cell is not None]
        if len(present) == len(cells):
            self.virtual_cells = self.virtual_objects.cells(codegen, present, self.level)
        if self.virtual_cells is None:
            self._keep_cells(codegen, cells)

    def _keep_cells(self, codegen: Codegen, cells: list[ValueId | None]) -> None:
        for cell in cells:
            if cell is None:  # the slot has another use inside of a comprehension
                codegen.load_callable(lambda: codegen.load_const(CellType))
                codegen.call(0)
            else:
                self.virtual_objects.push(codegen, cell)
        if cells:
            codegen.build_tuple(len(cells))
            codegen.store_fast(self.closure)

    def function(self, code: CodeType) -> Any:
        """The callable for a caller's continuation: a function over this frame's cells, made here,
        or in the continuation if the cells are virtual.
        """
        if self.virtual_cells is None or not code.co_freevars:
            return self, code
        return over_cells(code, self.namespace, self.virtual_cells)

    def restore(self, codegen: Codegen) -> Callable[[], None]:
        """Push the variables of the compiled frame itself that have to be stored again. The
        function that is returned stores them.
        """
        state, restored = self.state, []
        for name in state.moved:
            value = state.locals[name]
            taken = name not in state.cell_names and self.virtual_objects.takes(
                codegen, value, name
            )
            if not taken:
                self.virtual_objects.push(codegen, value)
                restored.append(name)
        virtual = [name for name in self.code.co_cellvars if self._is_virtual_cell(codegen, name)]
        emptied = [name for name in virtual if name in state.arguments]  # it is still in the cell

        def store() -> None:
            for name in emptied:
                codegen.delete_deref(name)
            for name in reversed(restored):
                codegen.store_fast(name)

        return store

    def _is_virtual_cell(self, codegen: Codegen, name: str) -> bool:
        cell = self.state.own_cells.get(name)
        if cell is None:  # a comprehension has it
            return False
        read = name in self.state.cells
        return self.virtual_objects.takes_cell(codegen, cell, name, read=read)
