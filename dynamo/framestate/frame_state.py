"""The program at a graph break, as break codegen gets it: frames over a heap of recipes.

A break stands in the compiled frame itself (level 0) or in a callee that was inlined into it; then
the frames between them, which are all in the middle of a call, go on, too. Frames name values by
ids; the heap says how each is made. Nothing here knows of an interpreter
(framestate/snapshot.py takes the snapshot), and nothing changes any more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple

from dynamo.continuations.parts import Item, Pushed
from dynamo.values.recipes import Part

if TYPE_CHECKING:
    from dynamo.bytecode import Instruction

ValueId = int
# The operands of Codegen.operand: a value, a Lazy, or a Part.
Operand = Any
_NO_NAMES: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Closure:
    """An operand: a function over cells. whole: the value that stands for the function where no
    cell is virtual.
    """

    code: CodeType
    namespace: dict[str, Any]
    cells: tuple[ValueId, ...]
    whole: Part | None = None


@dataclass(frozen=True)
class Composed:
    """An operand that is made of others, in a continuation or, by `whole`, in bytecode."""

    make: Callable[..., Any]
    operands: tuple[Any, ...]
    whole: Part


@dataclass(frozen=True)
class Virtual:
    """The form of a value in a continuation: make(*operands), captured there.

    operands: ids of values, Closures, Composed ones, other Parts. held: the ids of what the value
    holds. code: of a generator, as it goes on. drained: which of the operands the value takes its
    items from that are iterators unknown to capture in a continuation. contents: of a cell, which
    may be empty.
    """

    make: Callable[..., Any]
    operands: tuple[Any, ...] = ()
    held: tuple[ValueId, ...] = ()
    text: str = ""
    is_generator: bool = False
    is_cell: bool = False
    code: CodeType | None = None
    drained: frozenset[int] = frozenset()
    contents: ValueId | None = None

    @property
    def is_empty_cell(self) -> bool:
        return self.is_cell and self.contents is None


@dataclass(frozen=True)
class Heap:
    """The values of a snapshot, by their ids.

    operands: how each is pushed. virtual: those that a continuation can make itself, where they
    are, or hold, generators. finalizable: those whose end the program notices.
    """

    operands: Mapping[ValueId, Operand]
    virtual: Mapping[ValueId, Virtual] = field(default_factory=dict)
    finalizable: frozenset[ValueId] = frozenset()


class StackItem(NamedTuple):
    """An item of a canonical stack; `value` is the exception that is being handled for
    Item.HANDLING. ends: the value is, or holds, a finalizable object.
    """

    item: Item
    value: ValueId | None = None
    ends: bool = False


@dataclass(frozen=True)
class Resumed:
    """The generator that a frame resumes again. exhausted: the operand that stands for its end."""

    value: ValueId
    exhausted: Operand


@dataclass(frozen=True)
class Caught:
    """The answer of a call to an exception of class `error`: function(*values), of `count` values;
    None for a function ends the loop.
    """

    error: type[BaseException] | tuple[type[BaseException], ...]
    function: Callable[..., Any] | None
    count: int


@dataclass(frozen=True)
class PushedByCall:
    """The result that the current call of a frame pushes: `form`, made of the result and of
    `values`.
    """

    form: tuple[Pushed, ...] = ()
    values: tuple[ValueId, ...] = ()
    caught: Caught | None = None


@dataclass(frozen=True)
class FrameState:
    """A frame at a break.

    stack: with the operands of the instruction at `split` and above; the lowest `kept_count` items
    are needed after it. handler: the user's, around the instruction. locals: the variables that
    the continuation needs; kept_alive: those of them that live on although nothing reads them.
    cells: the frame's cells that it needs. also_held: exceptions that were handled before those on
    the stack. raised_at, line_left: of what the instruction raises again.

    Of the compiled frame alone: moved: variables that have to be stored again; dropped: arguments
    that it holds no more; arguments: the names of all; own_cells: those of its cells that are still
    in their places; bound_variables, bound_cells: the names that have a value, or a cell.
    """

    code: CodeType
    namespace: dict[str, Any]
    level: int
    instr: Instruction
    following: Instruction | None
    stack: tuple[StackItem, ...]
    split: int
    kept_count: int
    live: Sequence[frozenset[str]]
    locals: Mapping[str, ValueId]
    cells: Mapping[str, ValueId]
    kept_alive: frozenset[str] = _NO_NAMES
    also_held: tuple[ValueId, ...] = ()
    handler: Any = None
    hidden: bool = False
    raised_at: int = 0
    line_left: int | None = None
    resumes: Resumed | None = None
    pushed: PushedByCall = PushedByCall()
    moved: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    arguments: frozenset[str] = _NO_NAMES
    own_cells: Mapping[str, ValueId] = field(default_factory=dict)
    bound_variables: frozenset[str] = _NO_NAMES
    bound_cells: frozenset[str] = _NO_NAMES

    @property
    def cell_names(self) -> tuple[str, ...]:
        return (*self.code.co_cellvars, *self.code.co_freevars)

    @property
    def operands(self) -> tuple[StackItem, ...]:
        """The operands of the instruction."""
        return self.stack[self.split :]

    def exception(self) -> ValueId | None:
        """The exception that is being handled here."""
        handled = [found.value for found in self.stack if found.item is Item.HANDLING]
        return handled[-1] if handled else None

    def roots(self) -> list[ValueId]:
        """The values that stay alive beyond the graph."""
        on_stack = [found.value for found in self.stack if found.value is not None]
        named = [*self.locals.values(), *self.cells.values()]
        return [*on_stack, *self.also_held, *named, *self.pushed.values]


class Method(NamedTuple):
    """A method of C that the instruction calls of a receiver."""

    unbound: Any
    name: str
    receiver: ValueId


@dataclass(frozen=True)
class Snapshot:
    """The program at a graph break: all that break codegen reads.

    frames: from the compiled one to the one whose instruction breaks. loop: begins there and runs
    natively as a whole. needed: the values that the instruction takes, reads or lets go of, which
    have to be objects. method: the method that the instruction calls, if any. has_operations: the
    graph has some.
    """

    frames: tuple[FrameState, ...]
    heap: Heap
    instr: Instruction
    reason: Any
    loop: Any = None
    needed: frozenset[ValueId] = frozenset()
    method: Method | None = None
    has_operations: bool = True
