"""A graph break in the rewritten frame: restore, run the instruction natively, then continue.

locals and cells: stored where the user's code has them.
the stack: items below the instruction's operands are kept in temporary locals.
the instruction: runs natively on its operands; if it stands in a try or with block, what it
    raises goes to a continuation that starts at the handler.
the continuation: takes the stack and the live locals as arguments, cells through its closure.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from dynamo import _hook, breaks
from dynamo.bytecode.normalize import real_order
from dynamo.bytecode.opcodes import NO_FALLTHROUGH, stack_effect
from dynamo.continuations import shim_frames
from dynamo.continuations.exception_groups import split_now
from dynamo.continuations.parts import Callee, Item, Rematerialisations
from dynamo.continuations.resume import (
    CannotResume,
    after_call,
    end_of_loop,
    has_room,
    is_called,
    make_call_code,
    make_loop_code,
    make_resume_code,
    origin,
    pushed_by_call,
)
from dynamo.continuations.shim_frames import TRUTH, calling, handing_on, performing, while_handling
from dynamo.errors import Unsupported
from dynamo.framestate.frame_state import Operand, Snapshot
from dynamo.framestate.kept_frame import Kept, KeptFrame
from dynamo.framestate.tracebacks import drop_entries, leave_traceback, return_call
from dynamo.framestate.virtual_objects import Exhausted, VirtualObject, VirtualObjects
from dynamo.plans import EmissionPlan, SkipFrame
from dynamo.polyfills.rematerialise import left_generator

if TYPE_CHECKING:
    from dynamo.bytecode import Instruction
    from dynamo.framestate.materialise import Codegen

# Writes the side effects, of which those of new objects only where one of these holds them.
SideEffectsEmitter = Callable[[Sequence[Operand]], None]
# The arguments of a continuation: values of locals, or functions to be made.
Argument = str | tuple[KeptFrame, CodeType] | Exhausted | VirtualObject
_HANDLED = ".handled"
# Instructions that call the program's functions, or raise: these see the handled exception.
_SEES_HANDLED = frozenset(
    ["CALL", "CALL_KW", "CALL_FUNCTION_EX", "RAISE_VARARGS", "IMPORT_NAME", "GET_ITER"]
    + ["LOAD_ATTR", "STORE_ATTR", "DELETE_ATTR", "BINARY_OP", "COMPARE_OP", "CONTAINS_OP"]
    + ["BINARY_SUBSCR", "STORE_SUBSCR", "DELETE_SUBSCR", "BINARY_SLICE", "STORE_SLICE"]
    + ["UNPACK_SEQUENCE", "UNPACK_EX", "LOAD_GLOBAL", "BEFORE_WITH", "WITH_EXCEPT_START"]
)

_CONDITIONAL = {
    "POP_JUMP_IF_TRUE": "pop_jump_if_true",
    "POP_JUMP_IF_FALSE": "pop_jump_if_false",
    "POP_JUMP_IF_NONE": "pop_jump_if_none",
    "POP_JUMP_IF_NOT_NONE": "pop_jump_if_not_none",
}
# Not executed: the layout of the continuation's stack has their effect.
_NO_NATIVE = frozenset(["POP_EXCEPT"])
_OR_POP = {"JUMP_IF_TRUE_OR_POP": "pop_jump_if_true", "JUMP_IF_FALSE_OR_POP": "pop_jump_if_false"}


class BreakCodegen:
    """Emits everything after the graph call for a frame that breaks, from its snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.heap = snapshot.heap
        self.instr = snapshot.instr
        resumed = [frame.resumes.value for frame in snapshot.frames if frame.resumes is not None]
        self.virtual_objects = VirtualObjects(snapshot.heap, resumed, snapshot.reason)
        self.frames = [KeptFrame(state, self.virtual_objects) for state in snapshot.frames]
        self.outer, self.inner = self.frames[0], self.frames[-1]
        self.nested = len(self.frames) > 1
        self.returns_next = origin(self.outer.code) is not None and not is_called(self.outer.code)
        handled = [state.exception() for state in snapshot.frames]
        # The exception that sys.exc_info() shows to the instruction.
        self.handled = next((value for value in reversed(handled) if value is not None), None)
        # Operands wait in locals, not on the stack, where the instruction is not executed at once.
        self.apart = self.nested or (self.handled is not None and self.instr.op in _SEES_HANDLED)

    # -- restoring ------------------------------------------------------------------------------
    def emit(self, codegen: Codegen, plan: EmissionPlan, side_effects: SideEffectsEmitter) -> None:
        """Raises Retry where another emission is needed, Unsupported where the frames cannot be
        left here, and SkipFrame where nothing is gained.
        """
        self.virtual_objects.start(plan)
        if self.outer.instr.lineno is not None:
            codegen.set_location(self.outer.instr.lineno)
        for frame in self.frames:
            frame.keep_stack(codegen)
            frame.keep_pushed(codegen)
        for frame in self.frames[1:]:
            frame.keep_inlined(codegen)
        if self.apart and self.handled is not None:
            self.virtual_objects.push(codegen, self.handled)
            codegen.store_fast(_HANDLED)
        operands = self._push_operands(codegen)
        restore = self.outer.restore(codegen)
        roots = [value for state in self.snapshot.frames for value in state.roots()]
        side_effects(self.virtual_objects.roots(roots))
        restore()
        for name in self.outer.state.dropped:
            codegen.delete_fast(name)
        self._clear_temporaries(codegen)
        self._perform(codegen, operands)
        self.virtual_objects.finish(codegen)

    def _push_operands(self, codegen: Codegen) -> list[str]:
        """The operands, in the order that this version's instruction wants: on the stack, or in
        the locals whose names are returned ("": a NULL).
        """
        if self.instr.op in _NO_NATIVE:
            return []
        stack, kept = self.inner.state.stack, self.inner.kept
        places = list(range(self.inner.split, len(stack)))
        if self.instr.op == "CALL_KW":
            places.pop()  # the names come with the instruction itself
        elif self.instr.op == "RERAISE":
            places = places[-1:]
        elif self.instr.op == "DICT_MERGE":
            places = [*(places[0] + below for below in shim_frames.BELOW_MERGED), *places]
        locals_: list[str] = []
        method, push = self.snapshot.method, self.virtual_objects.push
        if method is not None:
            codegen.load_object(method.unbound, method.name)
            self._store_operand(codegen, locals_)
            push(codegen, method.receiver)
            self._store_operand(codegen, locals_)
            places = places[2:]
        for place in real_order(places, lambda place: stack[place].item is Item.NULL):
            found = stack[place]
            if found.item is Item.NULL:
                locals_.append("")
                if not self.apart:
                    codegen.push_null()
                continue
            if found.item is Item.HANDLING:
                codegen.load_const(None)  # only its place matters to the instruction
            elif place < len(kept):
                codegen.load_fast(kept[place][1])
            elif found.item is Item.UNBOUND:  # which STORE_FAST puts back after a comprehension
                raise Unsupported(breaks.CannotReconstruct("a variable without a value"))
            else:
                assert found.value is not None, "operands have values"
                push(codegen, found.value)
            self._store_operand(codegen, locals_)
        return locals_

    def _store_operand(self, codegen: Codegen, locals_: list[str]) -> None:
        """Store the operand on the stack in a local, if operands wait there."""
        if self.apart:
            locals_.append(f".operand{len(locals_)}")
            codegen.store_fast(locals_[-1])

    def _clear_temporaries(self, codegen: Codegen) -> None:
        """Delete the temporaries of the rewritten frame, which must not live longer than the user's
        variables.
        """
        names = [*codegen.temporaries, *codegen.output_locals]
        for name in names:
            codegen.delete_fast(name)
        codegen.emit.targets = {}

    # -- the instruction ------------------------------------------------------------------------
    def _perform(self, codegen: Codegen, operands: list[str]) -> None:
        op, kept = self.instr.op, self.inner.kept
        below = kept[: self.inner.split]
        if op == "RERAISE":
            left = self.inner.state.line_left
            if left is not None and not self.nested:
                codegen.set_location(left)
            with self._handled(codegen):
                codegen.reraise()
        elif op in NO_FALLTHROUGH and op != "JUMP":
            with self._handled(codegen):
                self._native_handling(codegen, lambda: self._native(codegen, operands))
            if self.nested:
                codegen.return_value()  # not reached
        elif op in _CONDITIONAL:
            self._conditional(codegen, operands)
        elif op in _OR_POP:
            self._jump_or_pop(codegen, operands)
        elif self.snapshot.loop is not None:
            self._whole_loop(codegen, operands)
        elif op == "FOR_ITER":
            self._for_iter(codegen, operands)
        elif op == "JUMP":
            self._continue(codegen, self.instr.target, below)
        else:
            results = self._special_results(codegen, operands) if not self.nested else None
            if results is None:
                with self._handled(codegen):
                    results = self._results(codegen, operands)
            following, nulls = self._behind()
            self._continue(codegen, following, [*below, *results, *nulls])

    def _next(self) -> Instruction:
        following = self.inner.state.following
        assert following is not None, "the instruction falls through"
        return following

    def _behind(self) -> tuple[Instruction, list[Kept]]:
        """Where the frame goes on behind an instruction that may be a continuation's own call, and
        the NULLs that are pushed before.
        """
        code = self.inner.code
        if pushed_by_call(code, self.instr) != (True,):
            return self._next(), []
        following, nulls = after_call(code, self.instr)
        return following, [(Item.NULL, "")] * nulls

    def _native(self, codegen: Codegen, operands: list[str]) -> None:
        """Execute the instruction. Nested, that leaves one value (see shim_frames.performing)."""
        if not self.nested:
            for local in operands if self.apart else ():
                if local:
                    codegen.load_fast_and_clear(local)
                else:
                    codegen.push_null()
            shim_frames.execute(codegen, self.instr)
            return
        names = [local for local in operands if local]
        if self.handled is not None:
            names.append(_HANDLED)
        first = self._shim([not local for local in operands], self.handled is not None)
        codegen.set_location(None, self.outer.instr.positions)
        codegen.load_callable(lambda: codegen.load_const(_hook.call_stealing_args))
        codegen.load_const(first)
        for local in names:
            codegen.load_fast_and_clear(local)
        codegen.call(1 + len(names))

    def _native_handling(self, codegen: Codegen, body: Callable[[], None]) -> None:
        """Emit `body` with the exception that the instruction finds as the one being handled."""
        if self.apart and not self.nested:
            while_handling(codegen, lambda: codegen.load_fast_and_clear(_HANDLED), body, None)
        else:
            body()

    def _shim(self, nulls: list[bool], handling: bool) -> Callable[..., Any]:
        inner = self.inner
        function: Callable[..., Any]
        if inner.hidden and not handling:
            assert self.instr.op == "FOR_ITER", "hidden frames break only there"
            function, count = _hook.next_item, 1
        else:
            function = performing(inner.code, inner.namespace, self.instr, nulls, handling)
            count = function.__code__.co_argcount
        for frame in reversed(self.frames[1:]):
            if frame is not inner and not frame.hidden:
                function = calling(frame.code, frame.namespace, frame.instr, function, count)
            generator = self.frames[frame.level - 1].resumes
            if generator is not None and self._is_left(frame.level):
                function = left_generator(function)
        return function

    def _is_left(self, level: int) -> bool:
        """Whether a StopIteration of the instruction leaves the generator at `level`."""
        frames = self.frames[level:]
        caught = [frame.caught.error for frame in frames if frame.caught is not None]
        return all(frame.handler is None for frame in frames) and not any(
            issubclass(StopIteration, errors) for errors in caught
        )

    def _between(self) -> list[KeptFrame]:
        """The frames that the user sees between the compiled one and the one that breaks."""
        return [frame for frame in self.frames[1:-1] if not frame.hidden]

    def _results(self, codegen: Codegen, operands: list[str]) -> list[Kept]:
        """Execute the instruction; its results, in locals."""
        pushed = stack_effect(self.instr.op, self.instr.arg)[1]
        names = [f"__result_{i}" for i in range(pushed)]
        if not self.nested:

            def body() -> None:
                self._native(codegen, operands)
                for name in reversed(names):
                    codegen.store_fast(name)

            self._native_handling(codegen, body)
            return [(Item.VALUE, name) for name in names]
        self._native(codegen, operands)
        if self.instr.op == "LOAD_METHOD":
            codegen.store_fast(names[0])
            return [(Item.VALUE, names[0]), (Item.NULL, "")]
        if pushed == 0:
            codegen.pop_top()
        elif pushed > 1:
            codegen.unpack_sequence(pushed)
        for name in names:
            codegen.store_fast(name)
        return [(Item.VALUE, name) for name in names]

    def _special_results(self, codegen: Codegen, operands: list[str]) -> list[Kept] | None:
        """Instructions whose results could not be kept in locals as they are; None: not one of
        them.

        Breaks stand at these only where a break was moved to an earlier place.
        """
        op, name, kept = self.instr.op, self.instr.argval, self.inner.kept
        if op == "PUSH_NULL":
            return [(Item.NULL, "")]
        if op == "POP_EXCEPT":
            return []
        if op == "PUSH_EXC_INFO":
            codegen.store_fast("__handled")
            return [(Item.HANDLING, "__handled"), (Item.VALUE, "__handled")]
        if op == "LOAD_FAST_AND_CLEAR":
            if name in self.outer.state.bound_cells:
                codegen.load_closure(name)
            elif name in self.outer.state.bound_variables:
                codegen.load_fast(name)
            else:
                return [(Item.UNBOUND, "")]
        elif op == "LOAD_CONST":
            codegen.load_const(name)
        elif op == "LOAD_METHOD":
            with self._handled(codegen):
                codegen.load_attr(name)
            return [*self._store_result(codegen), (Item.NULL, "")]
        elif op == "LOAD_SUPER_METHOD":
            with self._handled(codegen):
                codegen.load_super_attr(*name)
            return [*self._store_result(codegen), (Item.NULL, "")]
        elif op == "CHECK_EG_MATCH":
            return self._split_group(codegen, kept)
        elif op == "WITH_EXCEPT_START":
            with self._handled(codegen):
                self._native_handling(codegen, lambda: self._call_exit(codegen, operands))
            return [*kept[self.inner.split :], (Item.VALUE, "__result_0")]
        else:
            return None
        return self._store_result(codegen)

    def _call_exit(self, codegen: Codegen, operands: list[str]) -> None:
        self._native(codegen, operands)
        codegen.store_fast("__result_0")
        for _ in operands:
            codegen.pop_top()

    @staticmethod
    def _store_result(codegen: Codegen) -> list[Kept]:
        codegen.store_fast("__result_0")
        return [(Item.VALUE, "__result_0")]

    def _split_group(self, codegen: Codegen, kept: list[Kept]) -> list[Kept]:
        """Split the group for `except*`; the matching part becomes the exception that is being
        handled.
        """
        with self._handled(codegen):
            codegen.store_fast("__classes")
            codegen.store_fast("__group")
            codegen.load_callable(lambda: codegen.load_const(split_now))
            codegen.load_fast_and_clear("__group")
            codegen.load_fast_and_clear("__classes")
            codegen.call(2)
        codegen.unpack_sequence(2)
        codegen.store_fast("__result_0")
        codegen.store_fast("__result_1")
        handled = next((name for item, name in reversed(kept) if item is Item.HANDLING), None)
        if handled is not None:
            nothing = codegen.label()
            codegen.load_fast("__result_1")
            codegen.pop_jump_if_none(nothing)
            codegen.load_fast("__result_1")
            codegen.store_fast(handled)
            codegen.place(nothing)
        return [(Item.VALUE, "__result_0"), (Item.VALUE, "__result_1")]

    @contextlib.contextmanager
    def _handled(
        self, codegen: Codegen, frames: Sequence[KeptFrame] | None = None
    ) -> Iterator[None]:
        """Protect the instructions emitted inside by the user's innermost exception handler (of
        `frames`), and within that by the handlers for exceptions of special methods.
        """
        frames = self.frames if frames is None else frames
        frame = next((f for f in reversed(frames) if f.handler is not None), None)
        level = -1 if frame is None else frame.level
        catching = [f for f in reversed(self.frames[:-1]) if f.caught and f.level >= level]
        ending = self._ending(frame)
        if frame is None and not (
            catching or ending or self.virtual_objects.has_observable_finalizer
        ):
            yield
            return
        caught, after = codegen.label(), codegen.label()
        with codegen.exception_region(caught, depth=0):
            yield
        falls_through = self.instr.op not in NO_FALLTHROUGH
        if falls_through:
            codegen.jump(after)
        elif self.nested:
            codegen.return_value()  # not reached
        codegen.place(caught)
        for catcher in catching:
            self._catch(codegen, catcher)
        for local in ending:
            codegen.delete_fast(local)
        if frame is None:
            self.virtual_objects.end(codegen, passed=False, raised=True)
            codegen.reraise()
        else:
            self._handle(codegen, frame)
        if falls_through:
            codegen.place(after)

    def _ending(self, handling: KeptFrame | None) -> list[str]:
        """The locals that end with the stacks that an exception leaves."""
        if handling is None:
            return [local for frame in reversed(self.frames) for local in frame.ending(0)]
        handler = handling.handler
        assert handler is not None
        left = reversed(self.frames[handling.level + 1 :])
        return [
            *(local for frame in left for local in frame.ending(0)),
            *handling.ending(handler.depth),
        ]

    def _handle(self, codegen: Codegen, frame: KeptFrame) -> None:
        """exception -- (goes on at the handler in `frame`)"""
        handler = frame.handler
        assert handler is not None
        drop_entries(codegen, sum(not above.hidden for above in self.frames[: frame.level]))
        codegen.store_fast("__exception")
        stack = frame.kept[: handler.depth]
        if handler.push_lasti:
            codegen.load_const(frame.state.raised_at)
            codegen.store_fast("__lasti")
            stack.append((Item.VALUE, "__lasti"))
        stack.append((Item.VALUE, "__exception"))
        self._continue(codegen, handler.target, stack, frame, raised=True)

    def _catch(self, codegen: Codegen, frame: KeptFrame) -> None:
        """exception -- exception; an exception that the call in `frame` catches continues behind
        the call.
        """
        caught, other = frame.caught, codegen.label()
        assert caught is not None
        codegen.store_fast("__exception")
        codegen.load_callable(lambda: codegen.load_const(isinstance))
        codegen.load_fast("__exception")
        codegen.load_const(caught.error)
        codegen.call(2)
        codegen.pop_jump_if_false(other)
        codegen.delete_fast("__exception")
        below = frame.kept[: frame.split]
        if caught.function is None:
            self._continue(codegen, end_of_loop(frame.code, frame.instr), below[:-1], frame)
        else:
            codegen.load_callable(lambda: codegen.load_const(caught.function))
            for local in frame.pushed_locals():
                codegen.load_fast(local)
            codegen.call(caught.count)
            codegen.store_fast("__result_0")
            following, nulls = after_call(frame.code, frame.instr)
            nulls += frame.pushed.form.count(Item.NULL)  # of LOAD_METHOD
            stack = [*below, (Item.VALUE, "__result_0"), *[(Item.NULL, "")] * nulls]
            self._continue(codegen, following, stack, frame)
        codegen.place(other)
        codegen.load_fast_and_clear("__exception")

    def _bound(self, frame: KeptFrame) -> set[str]:
        """Locals that have a value after the instruction."""
        bound = set(frame.state.locals)
        if self.instr.op == "STORE_FAST":
            bound.add(self.instr.argval)
        elif self.instr.op in ("DELETE_FAST", "LOAD_FAST_AND_CLEAR"):
            bound.discard(self.instr.argval)
        return bound

    def _conditional(self, codegen: Codegen, operands: list[str]) -> None:
        jumped, below = codegen.label(), self.inner.kept[: self.inner.split]
        jump = getattr(codegen, _CONDITIONAL[self.instr.op])
        if self.nested and self.instr.op in TRUTH:
            with self._handled(codegen):
                self._native(codegen, operands)
            jump(jumped)
        else:
            for local in operands:
                codegen.load_fast_and_clear(local)
            with self._handled(codegen):
                jump(jumped)
        self._continue(codegen, self._next(), below)
        codegen.place(jumped)
        self._continue(codegen, self.instr.target, below)

    def _jump_or_pop(self, codegen: Codegen, operands: list[str]) -> None:
        jumped, below = codegen.label(), self.inner.kept[: self.inner.split]
        condition = (Item.VALUE, "__condition")
        if self.nested:
            codegen.load_fast(operands[0])
            codegen.store_fast("__condition")
            with self._handled(codegen):
                self._native(codegen, operands)
            getattr(codegen, _OR_POP[self.instr.op])(jumped)
        else:
            with self._handled(codegen):
                codegen.copy(1)
                codegen.store_fast("__condition")
                getattr(codegen, _OR_POP[self.instr.op])(jumped)
        self._continue(codegen, self._next(), below)
        codegen.place(jumped)
        self._continue(codegen, self.instr.target, [*below, condition])

    def _for_iter(self, codegen: Codegen, operands: list[str]) -> None:
        exhausted, below = codegen.label(), self.inner.kept[: self.inner.split]
        if self.nested:
            codegen.load_fast(operands[0])
            codegen.store_fast("__iterator")
            with self._handled(codegen):
                self._native(codegen, operands)
            codegen.copy(1)
            codegen.store_fast("__item")
            codegen.pop_jump_if_false(exhausted)
            codegen.load_fast("__item")
            codegen.unpack_sequence(1)
            codegen.store_fast("__item")
        else:
            with self._handled(codegen):
                codegen.for_iter(exhausted)
            codegen.store_fast("__item")
            codegen.store_fast("__iterator")
        stack = [*below, (Item.VALUE, "__iterator"), (Item.VALUE, "__item")]
        self._continue(codegen, self._next(), stack)
        codegen.place(exhausted)
        self._continue(codegen, self.instr.target, below)

    # -- a whole loop -----------------------------------------------------------------------------
    def _whole_loop(self, codegen: Codegen, operands: list[str]) -> None:
        """locals = loop(*stack, *locals), with the hook off; then the rest of the frame."""
        inner, end = self.inner, self.instr.target
        assert end is not None, "jumps have targets"
        below, bound = inner.kept[: inner.split], set(inner.state.locals)
        if any(item is Item.HANDLING for item, _ in below):
            raise Unsupported(self.snapshot.reason)
        iterator = operands[0] if self.apart else "__iterator"
        if not self.apart:
            codegen.store_fast(iterator)
        names = sorted(inner.live[self.instr.index] & bound)
        results = sorted(inner.live[end.index] & bound)
        try:
            code = make_loop_code(
                inner.code,
                self.instr.index,
                stack=[*(item for item, _ in below), Item.VALUE],
                local_names=names,
                results=results,
            )
        except CannotResume:
            raise Unsupported(self.snapshot.reason) from None
        ended = {*names} - {*results}  # with the loop
        inner.kept_alive = inner.state.kept_alive - ended
        kept = [local for _, local in below if local]
        with self._raised_in_loop(codegen):
            if self.nested:
                codegen.set_location(None, self.outer.instr.positions)
            count = len(kept) + 1 + len(names)
            self._load_loop(codegen, code, count)
            for local in kept:
                codegen.load_fast(local)
            for local in (iterator, *map(inner.local, names)):
                codegen.load_fast_and_clear(local)
            codegen.call(count + (not self.nested or bool(self._between())))
        codegen.unpack_sequence(len(results))
        for name in results:
            codegen.store_fast(inner.local(name))
        self._continue(codegen, end, below)

    def _load_loop(self, codegen: Codegen, code: CodeType, count: int) -> None:
        """Push the callee; the loop is the first argument of the function that hides this frame,
        which contains the loop, and the shim frames in between.
        """

        def load() -> None:
            codegen.load_callable(lambda: codegen.load_const(_hook.disabled))
            self._push_loop(codegen, code)
            codegen.call(1)

        between = self._between()
        if not self.nested:
            codegen.load_callable(lambda: codegen.load_const(_hook.trampoline))
            load()
            return
        if not between:
            codegen.load_callable(load)
            return
        caller = between[-1]
        function = handing_on(caller.code, caller.namespace, caller.instr, count)
        for frame in reversed(between[:-1]):
            names = function.__code__.co_argcount
            function = calling(frame.code, frame.namespace, frame.instr, function, names)
        first = _hook.disabled(function)
        codegen.load_callable(lambda: codegen.load_const(first))
        self._push_loop(codegen, code)

    def _push_loop(self, codegen: Codegen, code: CodeType) -> None:
        inner = self.inner
        if not code.co_freevars:
            codegen.load_const(FunctionType(code, inner.namespace))
        elif self.nested:
            self._push_callee(codegen, inner, code)
        else:
            codegen.make_function(code)

    @contextlib.contextmanager
    def _raised_in_loop(self, codegen: Codegen) -> Iterator[None]:
        """The handlers of the callers around the loop, which has its own inside."""
        if self.nested:
            with self._handled(codegen, self.frames[:-1]):
                yield
            return
        raised, after = codegen.label(), codegen.label()
        with codegen.exception_region(raised, depth=0):
            yield
        codegen.jump(after)
        codegen.place(raised)
        leave_traceback(codegen)
        codegen.place(after)

    # -- the continuation -----------------------------------------------------------------------
    def _continue(
        self,
        codegen: Codegen,
        target: Instruction | None,
        stack: Sequence[Kept],
        frame: KeptFrame | None = None,
        raised: bool = False,
    ) -> None:
        """return trampoline(continuation, *stack, *locals)

        A continuation returns the call instead, as a TailCall, to the function's own frame, which
        makes it: a loop with a break inside does not nest deeper with every iteration. Nothing of
        what is passed stays in this frame: the continuation alone holds it, as the function did.
        raised: it handles an exception.
        """
        assert target is not None, "jumps have targets"
        frame = frame or self.inner
        names = frame.names_at(target, self._bound(frame))
        try:
            resume, passed, made = self._chain_code(frame, target, stack, names)
        except CannotResume:
            if self.nested:
                raise Unsupported(self.snapshot.reason) from None
            raise SkipFrame from None
        same = resume is self.outer.code and not made
        if same and not self.snapshot.has_operations:
            raise SkipFrame  # each iteration of this loop would be a call that gains nothing
        self.virtual_objects.end(codegen, passed=True, raised=raised)
        codegen.load_callable(
            lambda: codegen.load_const(_hook.TailCall if self.returns_next else _hook.trampoline)
        )
        if resume.co_freevars:
            codegen.make_function(resume)
        else:
            codegen.load_continuation(resume, self.outer.namespace)
        for i, argument in enumerate(passed):
            if isinstance(argument, Exhausted):
                argument.push(codegen)
            elif isinstance(argument, tuple):
                self._push_callee(codegen, *argument)
            elif argument in passed[i + 1 :]:
                codegen.load_fast(argument)
            else:
                codegen.load_fast_and_clear(argument)
        if self.returns_next:
            codegen.call(1 + len(passed))
            codegen.return_value()
            return
        return_call(codegen, 1 + len(passed))

    def _chain_code(
        self, frame: KeptFrame, target: Instruction, stack: Sequence[Kept], names: list[str]
    ) -> tuple[CodeType, list[Argument], Rematerialisations]:
        """The continuation of the compiled frame, which continues its callees down to `frame`; its
        arguments (locals, or functions to be made); and its rematerialised values.
        """
        make = partial(
            make_resume_code,
            frame.code,
            target.index,
            stack=[item for item, _ in stack],
            local_names=names,
        )
        passed: list[Argument] = [local for _, local in stack if local]
        passed += [frame.local(name) for name in names]
        rests = self._left_by_exception(frame)
        for callee, caller in zip(reversed(self.frames[1:]), reversed(self.frames[:-1])):
            if callee.level > frame.level:
                continue
            code = make(called=True)
            function = callee.function(code)
            below = caller.kept[: caller.split]
            names = caller.kept_in_call()
            own: list[Argument] = [local for _, local in below if local]
            own += [caller.local(name) for name in names]
            place: dict[str, Any] = {"stack": [item for item, _ in below], "local_names": names}
            if caller.resumes is not None:
                rests[caller.resumes.value] = self.virtual_objects.rest(code, function, passed)
                make = partial(make_resume_code, caller.code, caller.instr.index, **place)
                passed = own
                continue
            inner = Callee(code, callee.namespace, len(passed), caller.pushed.form)
            make = partial(make_call_code, caller.code, caller.instr.index, callee=inner, **place)
            functions = [function] if code.co_freevars else []
            passed = [*own, *functions, *passed, *caller.pushed_locals()]
        made, arguments = self.virtual_objects.split(passed, rests)
        code, index = make.args
        if not has_room(code, index, made):
            self.virtual_objects.give_up()
        cells = frozenset(self.virtual_objects.own)
        return make(made=made, own_cells=cells), arguments, made

    def _left_by_exception(self, frame: KeptFrame) -> dict[int, VirtualObject | Exhausted]:
        """The generators that have ended where the break goes on in `frame`: by the exception that
        it handles.
        """
        left = [above.resumes for above in self.frames[frame.level : -1]]
        return {found.value: Exhausted(found.exhausted) for found in left if found is not None}

    def _push_callee(self, codegen: Codegen, callee: KeptFrame, code: CodeType) -> None:
        """A function over an inlined frame's continuation and cells."""
        if not code.co_freevars:
            codegen.load_continuation(code, callee.namespace)
            return
        codegen.load_callable(lambda: codegen.load_const(FunctionType))
        codegen.load_const(code)
        codegen.load_globals(callee.namespace)
        codegen.load_const(code.co_name)
        codegen.load_const(None)
        codegen.load_fast(callee.closure)
        codegen.call(5)
