"""A graph break in the rewritten frame: restore, run the instruction natively, then continue.

locals and cells: stored where the user's code has them.
the stack: what is below the instruction's operands is kept in temporary locals.
the instruction: runs natively on its operands; if it stands in a try or with block, what it
    raises goes to a continuation that starts at the handler.
the continuation: takes the stack and the live locals as arguments, cells through its closure.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from dynamo.bytecode.liveness import live_before
from dynamo.bytecode.normalize import real_order
from dynamo.bytecode.opcodes import NO_FALLTHROUGH, stack_effect
from dynamo.capture.control import SkipFrame
from dynamo.capture.handlers_flow import PreviousException
from dynamo.capture.interpreter import NULL, UNBOUND
from dynamo.reconstruct import Codegen
from dynamo.resume import CannotResume, Item, make_resume_code, origin
from dynamo.sources import LocalSource
from dynamo.values.base import Value
from dynamo.values.builder import Lazy

if TYPE_CHECKING:
    from dynamo.bytecode import Instruction
    from dynamo.capture.root import RootInterpreter, Stop

SideEffectsEmitter = Callable[[Sequence[Value]], None]
# A stack item of the rewritten frame: what it is, and the local that holds it.
Kept = tuple[Item, str]

_CONDITIONAL = {
    "POP_JUMP_IF_TRUE": "pop_jump_if_true",
    "POP_JUMP_IF_FALSE": "pop_jump_if_false",
    "POP_JUMP_IF_NONE": "pop_jump_if_none",
    "POP_JUMP_IF_NOT_NONE": "pop_jump_if_not_none",
}
# Their operands stay on the stack.
_KEEP_ALL = frozenset(["WITH_EXCEPT_START"])
# Not executed: what they do is done by the layout of the continuation's stack.
_NO_NATIVE = frozenset(["POP_EXCEPT"])
_OR_POP = {"JUMP_IF_TRUE_OR_POP": "pop_jump_if_true", "JUMP_IF_FALSE_OR_POP": "pop_jump_if_false"}


class Next(tuple):
    """(function, arguments): the call with which a continuation wants to be continued."""


class BreakEmitter:
    """Emits everything after the graph call for a frame that breaks at `stop.instr`."""

    def __init__(self, root: RootInterpreter, stop: Stop, instr: Instruction) -> None:
        self.root = root
        self.stop = stop
        self.instr = instr
        self.is_continuation = origin(root.code) is not None
        self.stack = root.stack
        self.split = len(root.stack) - self._popped()  # operands are above
        depth = self.instr.handler.depth if self.instr.handler is not None else 0
        # Items that are needed again after the instruction took its operands.
        self.kept = len(root.stack) if self.instr.op in _KEEP_ALL else max(self.split, depth)
        # What the instruction itself or anything after it (its handler, too) may read.
        self.live = live_before(root.code)
        live = self.live[self.instr.index]
        self.locals = {name: value for name, value in root.locals.items() if name in live}
        self.cells = [cell for name, cell in root.cells.items() if name in live]

    def _popped(self) -> int:
        if self.instr.op == "FOR_ITER":
            return 1
        return stack_effect(self.instr.op, self.instr.arg)[0]

    # -- restoring ------------------------------------------------------------------------------
    def emit(self, codegen: Codegen, side_effects: SideEffectsEmitter) -> None:
        if self.instr.lineno is not None:
            codegen.set_location(self.instr.lineno)
        kept = [self._push_kept(codegen, i, v) for i, v in enumerate(self.stack[: self.kept])]
        for _, local in reversed(kept):
            if local:
                codegen.store_fast(local)
        self._push_operands(codegen, kept)
        restored = [name for name, value in self.locals.items() if not self._in_place(name, value)]
        for name in restored:
            codegen(self.locals[name])
        side_effects(self._roots())
        for name in reversed(restored):
            codegen.store_fast(name)
        self._clear_temporaries(codegen)
        self._perform(codegen, kept)

    def _roots(self) -> list[Value]:
        """What stays alive beyond the graph."""
        held = [*self.root.stack, *self.locals.values(), *self.cells]
        return [value for value in held if isinstance(value, Value)]

    @staticmethod
    def _in_place(name: str, value: Value | Lazy) -> bool:
        """An argument that still has its first value."""
        source = value.source
        return isinstance(source, LocalSource) and source.local == name and not source.is_cell

    @staticmethod
    def _push_kept(codegen: Codegen, index: int, value: Value | Lazy) -> Kept:
        if value is NULL:
            return Item.NULL, ""
        if value is UNBOUND:
            return Item.UNBOUND, ""
        if isinstance(value, PreviousException):
            codegen(value.handled)
            return Item.HANDLING, f"__stack_{index}"
        codegen(value)
        return Item.VALUE, f"__stack_{index}"

    def _push_operands(self, codegen: Codegen, kept: list[Kept]) -> None:
        """The operands, in the order that this version's instruction wants."""
        if self.instr.op in _NO_NATIVE:
            return
        places = list(range(self.split, len(self.stack)))
        if self.instr.op == "CALL_KW":
            places.pop()  # the names come with the instruction itself
        elif self.instr.op == "RERAISE":
            places = places[-1:]
        for place in real_order(places, lambda place: self.stack[place] is NULL):
            value = self.stack[place]
            if value is NULL:
                codegen.push_null()
            elif isinstance(value, PreviousException):
                codegen.load_const(None)  # only its place matters to the instruction
            elif place < len(kept):
                codegen.load_fast(kept[place][1])
            else:
                codegen(value)

    def _clear_temporaries(self, codegen: Codegen) -> None:
        """What the frame made for itself must not live longer than the user's variables do."""
        names = [*codegen.temporaries, *codegen.output_locals]
        for name in names:
            codegen.delete_fast(name)

    # -- the instruction ------------------------------------------------------------------------
    def _perform(self, codegen: Codegen, kept: list[Kept]) -> None:
        op, below = self.instr.op, kept[: self.split]
        if op == "RERAISE":
            with self._handled(codegen, kept):
                codegen.reraise()
        elif op in NO_FALLTHROUGH and op != "JUMP":
            with self._handled(codegen, kept):
                codegen.native(self.instr)
        elif op in _CONDITIONAL:
            self._conditional(codegen, kept)
        elif op in _OR_POP:
            self._jump_or_pop(codegen, kept)
        elif op == "FOR_ITER":
            self._for_iter(codegen, kept)
        elif op == "JUMP":
            self._continue(codegen, self.instr.target, below)
        else:
            results = self._special_results(codegen, kept)
            if results is None:
                with self._handled(codegen, kept):
                    codegen.native(self.instr)
                results = self._store_results(codegen)
            self._continue(codegen, self._next(), [*below, *results])

    def _next(self) -> Instruction:
        return self.root.program[self.instr.index + 1][1]

    def _special_results(self, codegen: Codegen, kept: list[Kept]) -> list[Kept] | None:
        """Instructions whose results could not be kept in locals as they are; None: not one of
        them.

        Breaks stand at these only where a break was moved to an earlier place.
        """
        op, name = self.instr.op, self.instr.argval
        if op == "PUSH_NULL":
            return [(Item.NULL, "")]
        if op == "POP_EXCEPT":
            return []
        if op == "PUSH_EXC_INFO":
            codegen.store_fast("__handled")
            return [(Item.HANDLING, "__handled"), (Item.VALUE, "__handled")]
        if op == "LOAD_FAST_AND_CLEAR":
            if name not in self.root.locals:
                return [(Item.UNBOUND, "")]
            codegen.load_fast(name)
        elif op == "LOAD_CONST":
            codegen.load_const(name)
        elif op == "LOAD_METHOD":
            with self._handled(codegen, kept):
                codegen.load_attr(name)
            return [*self._store_results(codegen, 1), (Item.NULL, "")]
        elif op == "WITH_EXCEPT_START":
            with self._handled(codegen, kept):
                codegen.native(self.instr)
            result = self._store_results(codegen, 1)
            for _ in range(4):
                codegen.pop_top()
            return [*kept[self.split :], *result]
        else:
            return None
        return self._store_results(codegen, 1)

    @contextlib.contextmanager
    def _handled(self, codegen: Codegen, kept: list[Kept]) -> Iterator[None]:
        """The user's exception handler around what is emitted inside."""
        handler = self.instr.handler
        if handler is None:
            yield
            return
        caught, after = codegen.label(), codegen.label()
        with codegen.exception_region(caught, depth=0):
            yield
        if self.instr.op not in NO_FALLTHROUGH:
            codegen.jump(after)
        codegen.place(caught)
        codegen.store_fast("__exception")
        stack = kept[: handler.depth]
        if handler.push_lasti:
            codegen.load_const(self.instr.offset // 2)
            codegen.store_fast("__lasti")
            stack.append((Item.VALUE, "__lasti"))
        stack.append((Item.VALUE, "__exception"))
        self._continue(codegen, handler.target, stack)
        if self.instr.op not in NO_FALLTHROUGH:
            codegen.place(after)

    def _store_results(self, codegen: Codegen, pushed: int | None = None) -> list[Kept]:
        """Results of the instruction, from the real stack to locals."""
        if pushed is None:
            pushed = stack_effect(self.instr.op, self.instr.arg)[1]
        names = [f"__result_{i}" for i in range(pushed)]
        for name in reversed(names):
            codegen.store_fast(name)
        return [(Item.VALUE, name) for name in names]

    def _bound(self) -> set[str]:
        """Locals that have a value after the instruction."""
        bound = set(self.locals)
        if self.instr.op == "STORE_FAST":
            bound.add(self.instr.argval)
        elif self.instr.op in ("DELETE_FAST", "LOAD_FAST_AND_CLEAR"):
            bound.discard(self.instr.argval)
        return bound

    def _conditional(self, codegen: Codegen, kept: list[Kept]) -> None:
        jumped, below = codegen.label(), kept[: self.split]
        with self._handled(codegen, kept):
            getattr(codegen, _CONDITIONAL[self.instr.op])(jumped)
        self._continue(codegen, self._next(), below)
        codegen.place(jumped)
        self._continue(codegen, self.instr.target, below)

    def _jump_or_pop(self, codegen: Codegen, kept: list[Kept]) -> None:
        jumped, below = codegen.label(), kept[: self.split]
        condition = (Item.VALUE, "__condition")
        with self._handled(codegen, kept):
            codegen.copy(1)
            codegen.store_fast("__condition")
            getattr(codegen, _OR_POP[self.instr.op])(jumped)
        self._continue(codegen, self._next(), below)
        codegen.place(jumped)
        self._continue(codegen, self.instr.target, [*below, condition])

    def _for_iter(self, codegen: Codegen, kept: list[Kept]) -> None:
        exhausted, below = codegen.label(), kept[: self.split]
        with self._handled(codegen, kept):
            codegen.for_iter(exhausted)
        codegen.store_fast("__item")
        codegen.store_fast("__iterator")
        stack = [*below, (Item.VALUE, "__iterator"), (Item.VALUE, "__item")]
        self._continue(codegen, self._next(), stack)
        codegen.place(exhausted)
        self._continue(codegen, self.instr.target, below)

    # -- the continuation -----------------------------------------------------------------------
    def _continue(
        self, codegen: Codegen, target: Instruction | None, stack: Sequence[Kept]
    ) -> None:
        """return continuation(*stack, *locals)

        A continuation returns the call instead, as a Next, to the function's own frame, which makes
        it: a loop with a
        break inside does not nest deeper with every turn.
        """
        assert target is not None, "jumps have targets"
        code = self.root.code
        names = sorted(self.live[target.index] & self._bound())
        try:
            resume = make_resume_code(
                code, target.index, stack=[item for item, _ in stack], local_names=names
            )
        except CannotResume:
            raise SkipFrame from None
        if resume is code and not self.root.output.op_count:
            raise SkipFrame  # each turn of this loop would be a call that gains nothing
        if resume.co_freevars:

            def load() -> None:
                codegen.make_function(resume, resume.co_freevars)
        else:
            function = self.root.output.continuation(resume, self.root.f_globals)

            def load() -> None:
                function.load(codegen.emit)

        if self.is_continuation:
            codegen.load_callable(lambda: codegen.load_const(Next))
            load()
        else:
            codegen.load_callable(load)
        held = [local for _, local in stack if local]
        for local in [*held, *names]:
            codegen.load_fast(local)
        for local in dict.fromkeys(held):
            codegen.delete_fast(local)
        count = len(held) + len(names)
        if self.is_continuation:
            codegen.build_tuple(count)
            codegen.build_tuple(2)
            codegen.call(1)
            codegen.return_value()
            return
        raised = codegen.label()
        with codegen.exception_region(raised, depth=0):
            codegen.call(count)
            self._run_continuations(codegen)
        codegen.return_value()
        codegen.place(raised)
        self._leave_traceback(codegen)

    def _run_continuations(self, codegen: Codegen) -> None:
        """while type(result) is Next: result = result[0](*result[1])"""
        again, end = codegen.label(), codegen.label()
        codegen.place(again)
        codegen.store_fast("__result")
        codegen.load_callable(lambda: codegen.load_const(type))
        codegen.load_fast("__result")
        codegen.call(1)
        codegen.load_const(Next)
        codegen.is_op()
        codegen.pop_jump_if_false(end)
        codegen.load_callable(lambda: self._push_part(codegen, 0))
        self._push_part(codegen, 1)
        codegen.load_const(None)
        codegen.store_fast("__result")
        codegen.call_function_ex(False)
        codegen.jump(again)
        codegen.place(end)
        codegen.load_fast("__result")

    @staticmethod
    def _leave_traceback(codegen: Codegen) -> None:
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

    @staticmethod
    def _push_part(codegen: Codegen, index: int) -> None:
        codegen.load_fast("__result")
        codegen.load_const(index)
        codegen.binary_subscr()
