"""Emitter: writes code for the running Python version.

One method per thing to do, named as the canonical op; each leaves the real stack as this version
wants it. A call is `load_callable(load)`, arguments, `call(n)`; or `load_method(name)`, arguments,
`call(n)`. Where operands come from a canonical stack (callable, self_or_null, ...), bring them into
this version's order with `normalize.real_order` first.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import CodeType
from typing import Any

from dynamo.bytecode import versions
from dynamo.bytecode.assemble import LABEL, CodeShape, assemble
from dynamo.bytecode.decode import NO_POSITIONS, Native, Positions, Region
from dynamo.bytecode.native import native_form
from dynamo.bytecode.normalize import Instruction

SUSPENDING = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR

Label = Native


class Emitter:
    """Collects instructions; `assemble` makes them a code object, and uses them up."""

    def __init__(self) -> None:
        self.natives: list[Native] = []
        self._positions: Positions = NO_POSITIONS
        self._regions: list[Region] = []
        self._labels: dict[int, Label] = {}  # by id of the canonical instruction it stands for
        # See dynamo.sources.share_loads: source -> the local for it, and the locals in use.
        self.shared_loads: dict[Any, str] = {}
        self.stored_loads: list[str] = []
        # Targets of weak references (TargetSource) -> the local that holds each; loaded sources.
        self.targets: dict[Any, str] = {}
        self.loaded_targets: dict[Any, None] = {}

    # -- writing --------------------------------------------------------------------------------
    def emit(self, op: str, value: Any = 0, flags: int = 0, target: Label | None = None) -> None:
        """Append one native instruction of this version."""
        self.natives.append(
            Native(
                op, value, flags, target=target, positions=self._positions,
                handler=self._regions[-1] if self._regions else None,
            )
        )  # fmt: skip

    def set_location(self, lineno: int | None, positions: Positions | None = None) -> None:
        """Set the line (or exact positions) of the following instructions; None: no line."""
        self._positions = positions or (lineno, lineno, None, None)
        if lineno is None and positions is None:
            self._positions = NO_POSITIONS

    def native(self, instr: Instruction) -> None:
        """Copy one canonical instruction of other code, with its line.

        Jumps go to `label_of(instr.target)`, which the caller places. Exception regions are not
        copied (see `exception_region`). The operands must be in real order. The tuple of names of
        CALL_KW must not be on the stack: it comes from `instr`, and the LOAD_CONST that canonical
        code has for it must not be copied.
        """
        before, self._positions = self._positions, instr.positions
        for op, value, flags, target in native_form(instr):
            self.emit(op, value, flags, self.label_of(target) if target is not None else None)
        self._positions = before

    # -- control flow ---------------------------------------------------------------------------
    def label(self) -> Label:
        """A new label, to be jumped to and `place`d once."""
        return Native(LABEL)

    def label_of(self, instr: Instruction) -> Label:
        """The label that stands for an instruction of copied code."""
        return self._labels.setdefault(id(instr), Native(LABEL))

    def place(self, label: Label) -> None:
        self.natives.append(label)

    def jump(self, label: Label) -> None:
        self.emit("JUMP", target=label)

    def pop_jump_if_true(self, label: Label) -> None:
        self.to_bool()
        self.emit("POP_JUMP_IF_TRUE", target=label)

    def pop_jump_if_false(self, label: Label) -> None:
        self.to_bool()
        self.emit("POP_JUMP_IF_FALSE", target=label)

    def pop_jump_if_none(self, label: Label) -> None:
        self.emit("POP_JUMP_IF_NONE", target=label)

    def pop_jump_if_not_none(self, label: Label) -> None:
        self.emit("POP_JUMP_IF_NOT_NONE", target=label)

    def for_iter(self, exhausted: Label) -> None:
        """Push the next item of the iterator on top, or pop that and jump to `exhausted`."""
        if not versions.FOR_ITER_LANDING:
            self.emit("FOR_ITER", target=exhausted)
            return
        landing, body = self.label(), self.label()
        self.emit("FOR_ITER", target=landing)
        self.jump(body)
        self.place(landing)
        for op in versions.FOR_ITER_LANDING:
            self.emit(op)
        self.jump(exhausted)
        self.place(body)

    def return_value(self) -> None:
        self.emit("RETURN_VALUE")

    @contextmanager
    def exception_region(
        self, handler: Label, depth: int | None = None, push_lasti: bool = False
    ) -> Iterator[None]:
        """Protect the instructions emitted inside: their exceptions go to `handler`.

        The stack is then cut to `depth` items (None: as many as at the start of the region); then
        lasti, with `push_lasti`, and the exception are pushed. Place the handler outside the
        region; it starts with PUSH_EXC_INFO unless it hands the exception on (see resume.py).
        """
        self._regions.append(Region(handler, depth, push_lasti))
        try:
            yield
        finally:
            self._regions.pop()

    def push_exc_info(self) -> None:
        """exception -- previous exception; the exception is now the one being handled."""
        self.emit("PUSH_EXC_INFO")

    def pop_except(self) -> None:
        """previous --; the exception being handled is `previous` again."""
        self.emit("POP_EXCEPT")

    def reraise(self) -> None:
        """exception -- (raised with its traceback)."""
        self.emit("RERAISE", 0)

    # -- locals, cells, names, constants --------------------------------------------------------
    def load_fast(self, name: str) -> None:
        """Push a local; UnboundLocalError where it has no value."""
        self.emit("LOAD_FAST_CHECK" if versions.HAS_LOAD_FAST_CHECK else "LOAD_FAST", name)

    def load_fast_and_clear(self, name: str) -> None:
        """Push a local that has a value and unbind it, so that only the stack holds the object."""
        if versions.HAS_LOAD_FAST_AND_CLEAR:
            self.emit("LOAD_FAST_AND_CLEAR", name)
        else:
            self.emit("LOAD_FAST", name)
            self.emit("DELETE_FAST", name)

    def store_fast(self, name: str) -> None:
        self.emit("STORE_FAST", name)

    def delete_fast(self, name: str) -> None:
        self.emit("DELETE_FAST", name)

    def load_deref(self, name: str) -> None:
        self.emit("LOAD_DEREF", name)

    def store_deref(self, name: str) -> None:
        self.emit("STORE_DEREF", name)

    def delete_deref(self, name: str) -> None:
        self.emit("DELETE_DEREF", name)

    def load_closure(self, name: str) -> None:
        """Push the cell itself."""
        self.emit("LOAD_CLOSURE" if versions.HAS_LOAD_CLOSURE else "LOAD_FAST", name)

    def load_const(self, value: Any) -> None:
        """Push an object, any object: it becomes a constant of the code."""
        self.emit("LOAD_CONST", value)

    def load_global(self, name: str) -> None:
        self.emit("LOAD_GLOBAL", name)

    def store_global(self, name: str) -> None:
        self.emit("STORE_GLOBAL", name)

    def delete_global(self, name: str) -> None:
        self.emit("DELETE_GLOBAL", name)

    def import_name(self, name: str) -> None:
        """level fromlist -- module."""
        self.emit("IMPORT_NAME", name)

    # -- attributes and items -------------------------------------------------------------------
    def load_attr(self, name: str) -> None:
        self.emit("LOAD_ATTR", name)

    def load_super_attr(self, name: str, two_arguments: bool) -> None:
        """super class self -- value, where this version has an instruction for that."""
        self.emit("LOAD_SUPER_ATTR", name, two_arguments * versions.SUPER_TWO_ARGUMENTS)

    def store_attr(self, name: str) -> None:
        """value object --."""
        self.emit("STORE_ATTR", name)

    def delete_attr(self, name: str) -> None:
        self.emit("DELETE_ATTR", name)

    def load_method(self, name: str) -> None:
        """object -- (the items that `call` needs below its arguments)."""
        if versions.LOAD_ATTR_LOADS_METHODS:
            self.emit("LOAD_ATTR", name, 1)
        else:
            self.emit("LOAD_METHOD", name)

    def binary_subscr(self) -> None:
        self.emit("BINARY_SUBSCR")

    def store_subscr(self) -> None:
        """value container key --."""
        self.emit("STORE_SUBSCR")

    def delete_subscr(self) -> None:
        self.emit("DELETE_SUBSCR")

    # -- calls ----------------------------------------------------------------------------------
    def load_callable(self, load: Callable[[], None]) -> None:
        """Push a callable by `load`, with the NULL of a plain call where this version wants one."""
        if versions.NULL_BELOW_CALLABLE:
            self.push_null()
            load()
        else:
            load()
            self.push_null()

    def push_null(self) -> None:
        self.emit("PUSH_NULL")

    def call(self, n: int) -> None:
        """Call with n positional arguments."""
        self.emit("CALL", n)

    def call_kw(self, n: int, names: Sequence[str]) -> None:
        """Call with n arguments in all, the last len(names) of them by keyword."""
        names = tuple(names)
        if versions.HAS_KW_NAMES:
            self.emit("KW_NAMES", names)
            self.emit("CALL", n)
        else:
            self.load_const(names)
            self.emit("CALL_KW", n)

    def make_function(self, code: CodeType) -> None:
        """Push a new function over `code`, whose free variables are cells of this frame."""
        for name in code.co_freevars:
            self.load_closure(name)
        if code.co_freevars:
            self.build_tuple(len(code.co_freevars))
        self.load_const(code)
        closure = 8 if code.co_freevars else 0
        if not versions.HAS_SET_FUNCTION_ATTRIBUTE:
            self.emit("MAKE_FUNCTION", closure)
            return
        self.emit("MAKE_FUNCTION")
        if closure:
            self.emit("SET_FUNCTION_ATTRIBUTE", closure)

    # -- operators ------------------------------------------------------------------------------
    def binary_op(self, symbol: str) -> None:
        self.emit("BINARY_OP", versions.BINARY_SYMBOLS.index(symbol))

    def unary_not(self) -> None:
        self.to_bool()
        self.emit("UNARY_NOT")

    def compare_op(self, symbol: str) -> None:
        self.emit("COMPARE_OP", versions.compare_operand(symbol))

    def is_op(self, invert: bool = False) -> None:
        self.emit("IS_OP", int(invert))

    def contains_op(self, invert: bool = False) -> None:
        self.emit("CONTAINS_OP", int(invert))

    def to_bool(self) -> None:
        """Make the top a bool, where conditional jumps of this version need that; else nothing."""
        if versions.HAS_TO_BOOL:
            self.emit("TO_BOOL")

    # -- containers -----------------------------------------------------------------------------
    def build_tuple(self, n: int) -> None:
        self.emit("BUILD_TUPLE", n)

    def build_list(self, n: int) -> None:
        self.emit("BUILD_LIST", n)

    def build_map(self, n: int) -> None:
        """n pairs of key and value."""
        self.emit("BUILD_MAP", n)

    def build_slice(self, n: int) -> None:
        self.emit("BUILD_SLICE", n)

    def unpack_sequence(self, n: int) -> None:
        """sequence -- items, the first one on top."""
        self.emit("UNPACK_SEQUENCE", n)

    # -- stack ----------------------------------------------------------------------------------
    def pop_top(self) -> None:
        self.emit("POP_TOP")

    def copy(self, n: int) -> None:
        """Push the n-th item again (1: the top)."""
        self.emit("COPY", n)

    def swap(self, n: int) -> None:
        """Exchange the top with the n-th item (2: the one below it)."""
        self.emit("SWAP", n)

    # -- code objects ---------------------------------------------------------------------------
    def assemble(
        self, template: CodeType, *, name: str | None = None, qualname: str | None = None,
        argcount: int | None = None, posonlyargcount: int | None = None,
        kwonlyargcount: int | None = None, varnames: Sequence[str] | None = None,
        freevars: Sequence[str] | None = None, cellvars: Sequence[str] | None = None,
        flags: int | None = None, firstlineno: int | None = None, docstring: str | None = None,
    ) -> CodeType:  # fmt: skip
        """A code object like `template` in all that is not given, with the emitted instructions.

        The start of the frame (cells, free variables, RESUME) is written here. Locals that occur
        and are no variables of the template are appended to co_varnames.
        """
        old = CodeShape.of(template)

        def pick(new: Any, default: Any) -> Any:
            return default if new is None else new

        shape = CodeShape(
            name=pick(name, old.name),
            qualname=pick(qualname, old.qualname),
            filename=old.filename,
            firstlineno=pick(firstlineno, old.firstlineno),
            flags=pick(flags, old.flags),
            argcount=pick(argcount, old.argcount),
            posonlyargcount=pick(posonlyargcount, old.posonlyargcount),
            kwonlyargcount=pick(kwonlyargcount, old.kwonlyargcount),
            varnames=tuple(pick(varnames, old.varnames)),
            cellvars=tuple(pick(cellvars, old.cellvars)),
            freevars=tuple(pick(freevars, old.freevars)),
            docstring=pick(docstring, old.docstring),
        )
        return assemble([*frame_prologue(shape), *self.natives], shape)


def frame_prologue(shape: CodeShape) -> list[Native]:
    """The first instructions of a frame: make its cells, copy its function's free variables.

    A generator is given to the caller before RESUME: there a debugger may make an object of the
    frame, and the copy of the frame that a generator keeps must have none.
    """
    line: Positions = (shape.firstlineno, shape.firstlineno, 0, 0)
    prologue = []
    if shape.freevars:
        prologue.append(Native("COPY_FREE_VARS", len(shape.freevars)))
    prologue += [Native("MAKE_CELL", name) for name in shape.cellvars]
    if shape.flags & SUSPENDING:
        prologue += [Native("RETURN_GENERATOR", positions=line), Native("POP_TOP", positions=line)]
    prologue.append(Native("RESUME", 0, positions=line))
    return prologue
