"""The two sides of a conditional jump, and the instruction at which they meet again.

if p:          POP_JUMP_IF_FALSE p, to L     # sides: from the next instruction, and from L
    y = f(x)   ...
else:          JUMP to M
    y = g(x)   L: ...
return y       M: ...                        # where they meet: the nearest instruction through
                                             # which every way to the end of the frame leads
"""

from __future__ import annotations

from collections.abc import Sequence
from types import CodeType

from dynamo.bytecode.cache import CodeMap
from dynamo.bytecode.normalize import Instruction, normalize
from dynamo.bytecode.opcodes import NO_FALLTHROUGH

# What suspends the frame, or is seen from outside of it.
_REFUSED = frozenset(
    ["YIELD_VALUE", "SEND", "RETURN_GENERATOR", "GET_AWAITABLE", "GET_YIELD_FROM_ITER"]
    + ["STORE_GLOBAL", "DELETE_GLOBAL", "STORE_DEREF", "DELETE_DEREF", "BEFORE_ASYNC_WITH"]
)
_LARGEST = 5000  # instructions, of code that people write

_meetings: CodeMap[dict[int, int | None]] = CodeMap()


def meeting_of(code: CodeType, jump: Instruction) -> int | None:
    """The index of the instruction at which both sides of `jump` meet; that behind the last one
    where each of them returns. None: no side can be taken apart from what is around it.
    """
    known = _meetings.get(code)
    if known is None:
        known = _meetings.set(code, {})
    if jump.index not in known:
        known[jump.index] = _meeting(normalize(code), jump)
    return known[jump.index]


def _meeting(program: Sequence[Instruction], jump: Instruction) -> int | None:
    if len(program) > _LARGEST:
        return None
    meeting = _common_end(program, jump)
    todo, sides = _following(program, jump), set()
    while todo:
        index = todo.pop()
        if index in sides or index in (meeting, len(program)):
            continue
        sides.add(index)
        instr = program[index]
        if instr.op in _REFUSED:
            return None
        todo += _following(program, instr)
    return None if jump.index in sides else meeting


def _following(program: Sequence[Instruction], instr: Instruction) -> list[int]:
    """Where execution may go from `instr` but for exceptions; len(program): out of the frame."""
    if instr.op == "RETURN_VALUE":
        return [len(program)]
    found = [] if instr.op in NO_FALLTHROUGH else [instr.index + 1]
    return found if instr.target is None else [*found, instr.target.index]


def _common_end(program: Sequence[Instruction], jump: Instruction) -> int:
    """The nearest instruction that postdominates `jump`. Ways that end by raising do not count."""
    count = len(program)
    every = (1 << (count + 1)) - 1
    # Bit i of behind[k]: all ways from k lead through i.
    behind = [every] * count + [1 << count]
    changed = True
    while changed:
        changed = False
        for instr in reversed(program):
            common = every
            for index in _following(program, instr):
                common &= behind[index]
            common |= 1 << instr.index
            if common != behind[instr.index]:
                behind[instr.index], changed = common, True
    candidates = behind[jump.index] & ~(1 << jump.index)
    # The nearest one has all the others behind itself.
    found = [i for i in range(count + 1) if candidates >> i & 1]
    return max(found, key=lambda i: bin(behind[i]).count("1"))
