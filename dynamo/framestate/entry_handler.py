"""The user's exception handler around the place where a continuation begins.

    with torch.no_grad():
        print(loss)                  a graph break
        loss = loss * scale          the continuation's graph

Whatever ends that graph (memory runs out, Ctrl-C, a backend of the user's fails), the block was
entered before: its handler is to leave it. No instruction is known at which the graph ended, so the
handler starts as if the continuation's first one had raised the exception.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from types import CodeType
from typing import TYPE_CHECKING

from dynamo import _hook
from dynamo.bytecode.emit import Emitter
from dynamo.continuations.parts import Callee, Item, Rematerialisations
from dynamo.continuations.resume import (
    CannotResume,
    Start,
    is_called,
    make_call_code,
    make_resume_code,
    parameter_names,
    start_of,
)
from dynamo.framestate.tracebacks import return_call

if TYPE_CHECKING:
    from dynamo.bytecode import Instruction
    from dynamo.framestate.materialise import Codegen


# The code of a continuation that handles an exception, and the locals that are its arguments.
_Handling = tuple[CodeType, list[str]]


class EntryHandler:
    """`resumed`: the continuation that handles the exception. It takes the values of the locals
    `passed`.
    """

    def __init__(self, code: CodeType, handling: _Handling) -> None:
        self.code = code
        self.resumed, self.passed = handling

    @classmethod
    def of(cls, code: CodeType) -> EntryHandler | None:
        """The innermost handler around the begin of a frame, or of the callee in which the frame
        begins; None for one that begins outside of all.
        """
        try:
            handling = _handling(code)
        except (CannotResume, ValueError):
            return None
        return None if handling is None else cls(code, handling)

    def raising(self, error: BaseException) -> CodeType:
        """The code of a frame that has the handler handle the exception, at its first run."""
        emit = Emitter()
        emit.set_location(self.code.co_firstlineno)
        emit.load_callable(lambda: emit.load_const([error].pop))
        emit.call(0)
        self.handle(emit)
        return emit.assemble(self.code)

    @contextlib.contextmanager
    def protects(self, codegen: Codegen) -> Iterator[None]:
        """Hand exceptions of the instructions emitted inside to the handler."""
        caught, after = codegen.label(), codegen.label()
        with codegen.exception_region(caught, depth=0):
            yield
        codegen.jump(after)
        codegen.place(caught)
        self.handle(codegen)
        codegen.place(after)

    def handle(self, codegen: Codegen | Emitter) -> None:
        """exception -- (goes on in the handler)"""
        codegen.store_fast("__exception")
        if "__lasti" in self.passed:
            codegen.load_const(0)  # nobody looks at the instruction's place
            codegen.store_fast("__lasti")
        trampoline = _hook.trampoline if is_called(self.code) else _hook.TailCall
        codegen.load_callable(lambda: codegen.load_const(trampoline))
        codegen.make_function(self.resumed)
        for name in self.passed:
            codegen.load_fast_and_clear(name)
        return_call(codegen, 1 + len(self.passed))


def _handling(code: CodeType) -> _Handling | None:
    """Raises CannotResume, or ValueError, where the handler cannot be entered."""
    begin = start_of(code)
    if begin is None:
        return None
    instr, start = begin
    inner = None if start.callee is None else _handling(start.callee.code)
    if inner is not None:
        return _in_callee(code, instr, start, inner)
    handler = instr.handler
    if handler is None:
        return None
    stack = [*start.stack[: handler.depth], *[Item.VALUE] * (handler.push_lasti + 1)]
    given = ["__lasti", "__exception"] if handler.push_lasti else ["__exception"]
    takes = dict(zip((f".stack{i}" for i in range(handler.depth, len(stack))), given))
    parameters = [takes.get(n, n) for n in parameter_names(stack, start.local_names)]
    resumed = make_resume_code(
        code,
        handler.target.index,
        stack=stack,
        local_names=start.local_names,
        called=is_called(code),
        made=_moved(start, parameters),
        own_cells=start.own_cells,
    )
    return resumed, _passed(resumed, takes)


def _in_callee(code: CodeType, instr: Instruction, start: Start, inner: _Handling) -> _Handling:
    """The continuation whose callee handles the exception."""
    callee, (handling, passed) = start.callee, inner
    assert callee is not None
    if handling.co_freevars:
        raise CannotResume  # the callee's cells are in a function that the frame was given
    own = callee.code.co_varnames
    arguments = [f".argument{own.index(name)}" if name in own else name for name in passed]
    takes = {f".argument{i}": name for i, name in enumerate(arguments)}
    pushed = [name for name in start.parameters if name.startswith(".pushed")]
    parameters = [*parameter_names(start.stack, start.local_names), *arguments, *pushed]
    resumed = make_call_code(
        code,
        instr.index,
        stack=start.stack,
        local_names=start.local_names,
        callee=Callee(handling, callee.namespace, len(passed), callee.pushed),
        called=is_called(code),
        made=_moved(start, parameters),
        own_cells=start.own_cells,
    )
    return resumed, _passed(resumed, takes)


def _moved(start: Start, parameters: list[str]) -> Rematerialisations:
    """The values that the continuation makes, in their places among other parameters."""
    moved = []
    for item in start.made:
        names = [start.parameters[place] for place in item.places]
        places = tuple(parameters.index(name) for name in names if name in parameters)
        if item.places and not places:
            raise CannotResume  # the handler does not have the value, which ends
        moved.append(replace(item, places=places))
    return tuple(moved)


def _passed(resumed: CodeType, takes: dict[str, str]) -> list[str]:
    return [takes.get(name, name) for name in resumed.co_varnames[: resumed.co_argcount]]
