"""`for` loops that can run as a whole: entered at their FOR_ITER, left behind their end."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from types import CodeType

from dynamo.bytecode.cache import InstructionMap
from dynamo.bytecode.liveness import live_before
from dynamo.bytecode.normalize import Instruction, normalize
from dynamo.bytecode.opcodes import NO_FALLTHROUGH

# Instructions by which a loop is left without its end in this frame.
_LEAVES = frozenset(["RETURN_VALUE", "YIELD_VALUE", "SEND", "RETURN_GENERATOR"])


@dataclass(frozen=True)
class Loop:
    """head: its FOR_ITER; body: the indices of the instructions that may run, handlers included.
    stored, deleted: the fast locals for which it may do that.
    """

    head: Instruction
    body: frozenset[int]
    stored: frozenset[str]
    deleted: frozenset[str]

    @property
    def end(self) -> Instruction:
        assert self.head.target is not None, "jumps have targets"
        return self.head.target


_loops: InstructionMap[Loop | None] = InstructionMap()  # by their heads


def loop_around(code: CodeType, index: int) -> Loop | None:
    """The innermost loop around a canonical instruction, if that loop can run as a whole."""
    program = normalize(code)
    back = [i for i in program[index:] if i.target is not None and i.target.index <= index]
    heads = [jump.target.index for jump in back if jump.target is not None]
    if not heads:
        return None
    head = max(heads)
    return _loops.computed(code, head, lambda: _loop_at(program, head))


def in_loop(code: CodeType, index: int) -> bool:
    """Whether some loop is around a canonical instruction."""
    jumps = normalize(code)[index:]
    return any(i.target is not None and i.target.index <= index for i in jumps)


def _loop_at(program: list[Instruction], index: int) -> Loop | None:
    head = program[index]
    if head.op != "FOR_ITER" or head.target is None:
        return None
    found: set[int] = set()
    coming = [index + 1]
    while coming:
        at = coming.pop()
        if at in found or at in (index, head.target.index):
            continue
        instr = program[at]
        if instr.op in _LEAVES:
            return None
        found.add(at)
        if instr.op not in NO_FALLTHROUGH:
            coming.append(at + 1)
        if instr.target is not None:
            coming.append(instr.target.index)
        if instr.handler is not None:
            coming.append(instr.handler.target.index)
    stored = frozenset(program[at].argval for at in found if program[at].op == "STORE_FAST")
    deleted = frozenset(program[at].argval for at in found if program[at].op == "DELETE_FAST")
    return Loop(head, frozenset(found), stored, deleted)


def keeps_bound(code: CodeType, loop: Loop, bound: Set[str]) -> bool:
    """Whether the fast locals that are read behind the loop have a value there if they are `bound`
    before it, and none otherwise.
    """
    live = live_before(code)[loop.end.index]
    return not (live & loop.deleted) and (live & loop.stored) <= bound
