"""The two sides of a conditional jump, and the instruction at which they meet again; the iterations
of a loop that it begins or ends.

if p:          POP_JUMP_IF_FALSE p, to L     # sides: from the next instruction, and from L
    y = f(x)   ...
else:          JUMP to M
    y = g(x)   L: ...
return y       M: ...                        # where they meet: the nearest instruction through
                                             # which every way to the end of the frame leads

while p:       POP_JUMP_IF_FALSE p, to E     # an iteration: from L to the jump at its end, of which
one
    x = f(x)   L: ...                        # way leads to L again and the other to E
               POP_JUMP_IF_TRUE p, to L
               E: ...

The compiler copies a short end of a function to each place from which it would jump there. Copies
count as one: sides meet at the first of them, whichever they run.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from types import CodeType
from typing import Any, NamedTuple

from dynamo.bytecode.cache import CodeMap, InstructionMap
from dynamo.bytecode.normalize import Instruction, normalize
from dynamo.bytecode.opcodes import NO_FALLTHROUGH

# Instructions that suspend the frame, or have effects outside.
_REFUSED = frozenset(
    ["YIELD_VALUE", "SEND", "RETURN_GENERATOR", "GET_AWAITABLE", "GET_YIELD_FROM_ITER"]
    + ["STORE_GLOBAL", "DELETE_GLOBAL", "STORE_DEREF", "DELETE_DEREF", "BEFORE_ASYNC_WITH"]
)
_LARGEST = 5000  # instructions, of code that people write

_meetings: InstructionMap[int | None] = InstructionMap()
_turns: InstructionMap[Turn | None] = InstructionMap()
_counted: InstructionMap[Turn | None] = InstructionMap()
_deciding: InstructionMap[bool] = InstructionMap()
_originals: CodeMap[list[int]] = CodeMap()


def meeting_of(code: CodeType, jump: Instruction) -> int | None:
    """The index of the instruction at which both sides of `jump` meet; that behind the last one
    where each of them returns. None: neither branch can be separated from the code around it.
    """
    return _meetings.computed(
        code, jump.index, lambda: _meeting(normalize(code), jump, originals(code))
    )


def originals(code: CodeType) -> list[int]:
    """By the index of an instruction, that of the first copy of the same end of the function; its
    own, where there is none. One more, for the way out of the frame.
    """
    return _originals.computed(code, lambda: _first_copies(normalize(code)))


def _first_copies(program: Sequence[Instruction]) -> list[int]:
    found = list(range(len(program) + 1))
    first: dict[tuple[Any, ...], int] = {}
    for end in program:
        following = -1
        for instr in reversed(program[: end.index + 1]) if end.op == "RETURN_VALUE" else ():
            if instr.target is not None or (instr.op in NO_FALLTHROUGH and instr is not end):
                break
            # Equal names and constants of one code are one object.
            key = (instr.op, instr.arg, id(instr.argval), instr.positions, id(instr.handler))
            following = found[instr.index] = first.setdefault((*key, following), instr.index)
    return found


def leads_to(code: CodeType, start: int, end: int) -> bool:
    """Whether nothing but jumps is between two instructions."""
    program, first = normalize(code), originals(code)
    return first[_landing(program, start)] == first[_landing(program, end)]


def decides_jump(code: CodeType, instr: Instruction) -> bool:
    """Whether the value that `instr` pushes is only compared, or tested for truth, for a
    conditional jump, as far as the next few instructions tell.
    """
    program = normalize(code)
    for following in program[instr.index + 1 : instr.index + _FEW]:
        if following.op in _POPPING:
            return True
        if following.op not in _BEFORE_JUMPS:
            return False
    return False


def is_compared_with_none(code: CodeType, instr: Instruction) -> bool:
    """Whether the value that `instr` pushes is only asked whether it is None."""
    following = normalize(code)[instr.index + 1 : instr.index + 3]
    ops = [one.op for one in following]
    if ops[:1] in (["POP_JUMP_IF_NONE"], ["POP_JUMP_IF_NOT_NONE"]):
        return True
    return ops == ["LOAD_CONST", "IS_OP"] and following[0].argval is None


_FEW = 12
_BEFORE_JUMPS = frozenset(
    ["LOAD_FAST", "LOAD_CONST", "LOAD_GLOBAL", "LOAD_DEREF", "LOAD_ATTR", "LOAD_METHOD", "CALL"]
    + ["COMPARE_OP", "UNARY_NOT", "TO_BOOL", "NOP", "PUSH_NULL"]
)


def decides_turns(code: CodeType, jump: Instruction) -> bool:
    """Whether one way of a conditional jump comes back to it, in a loop, and the other does not."""
    return _deciding.computed(code, jump.index, lambda: _decides_turns(normalize(code), jump))


def _decides_turns(program: Sequence[Instruction], jump: Instruction) -> bool:
    back = [_leads_back(program, start, jump.index) for start in _following(program, jump)]
    return any(back) and not all(back)


def _leads_back(program: Sequence[Instruction], start: int, index: int) -> bool:
    todo, found = [start], {len(program)}
    while todo:
        at = todo.pop()
        if at == index:
            return True
        if at not in found:
            found.add(at)
            todo += _following(program, program[at])
    return False


class Turn(NamedTuple):
    """The iterations of a loop, as a conditional jump sees it that goes into one or out of the
    loop.

    start, end: the first instruction, and the jump at the end. exit: where execution goes on behind
    the loop. continues: the truth with which the jump goes into an iteration; again: the same of
    the jump at the end. stored: the locals that an iteration assigns or deletes. entry: further
    jumps before the first iteration, which go there or out of the loop, as those of `p and q`, and
    begins: the instruction behind the jump; exits: such jumps before the one at the end.
    """

    start: int
    end: int
    exit: int
    continues: bool
    again: bool
    stored: frozenset[str]
    begins: int = -1
    entry: tuple[Further, ...] = ()
    exits: tuple[Further, ...] = ()


class Further(NamedTuple):
    """A further jump of a condition: its place, the truth with which it does not leave the loop,
    and the instruction to which it goes then.
    """

    place: int
    goes_on: bool
    next: int


def turn_of(code: CodeType, jump: Instruction) -> Turn | None:
    """The iterations of the loop that `jump` begins or ends; None if it does neither, or if there
    are other ways out of them.
    """
    return _turns.computed(code, jump.index, lambda: _turn(normalize(code), jump, originals(code)))


def _turn(program: Sequence[Instruction], jump: Instruction, first: list[int]) -> Turn | None:
    if len(program) > _LARGEST:
        return None
    ways = _ways(program, jump, first)
    if ways is None:
        return None
    for truth in (False, True):
        out = ways[not truth]
        entry: tuple[Further, ...] = ()
        for further in (None, *_further(program, ways[truth], out, first)):
            entry += () if further is None else (further,)
            start = ways[truth] if further is None else further.next
            turn = None if start == out else _turn_from(program, jump, start, out, first)
            if turn is not None:
                return turn._replace(continues=truth, begins=ways[truth], entry=entry)
    return None


def _turn_from(
    program: Sequence[Instruction], jump: Instruction, start: int, out: int, first: list[int]
) -> Turn | None:
    """The iterations that begin at `start`, of a loop that goes on at `out`."""
    for end in program[jump.index :]:
        again = _ways(program, end, first)
        if again is None or start not in again or again[not again.index(start)] != out:
            continue
        body = _between(program, start, end.index, {i for i, one in enumerate(first) if one == out})
        if body is None:
            continue
        leaving = {
            i
            for i in body - {end.index}
            if any(first[_landing(program, n)] == out for n in _following(program, program[i]))
        }
        exits = _last(program, leaving, end, out, first)
        if exits is None or jump.index in body - leaving - {end.index}:
            continue
        stored = {program[i].argval for i in body if program[i].op in _STORES}
        goes_on = bool(again.index(start))
        return Turn(start, end.index, out, True, goes_on, frozenset(stored), exits=exits)
    return None


def _last(
    program: Sequence[Instruction], leaving: set[int], end: Instruction, out: int, first: list[int]
) -> tuple[Further, ...] | None:
    """The jumps that leave an iteration, in order, if nothing but the rest of a condition stands
    between the first of them and `end`.
    """
    exits: list[Further] = []
    for index in sorted(leaving):
        further = _as_further(program, program[index], out, first)
        if further is None or (exits and _reached(program, exits[-1].next) != index):
            return None
        exits.append(further)
    if exits and _reached(program, exits[-1].next) != end.index:
        return None
    return tuple(exits)


def _further(
    program: Sequence[Instruction], start: int, out: int, first: list[int]
) -> list[Further]:
    """The jumps of a condition from `start` on that go out of the loop."""
    found: list[Further] = []
    while len(found) < _FEW:
        index = _reached(program, start)
        further = None if index is None else _as_further(program, program[index], out, first)
        if further is None or further in found:
            break
        found.append(further)
        start = further.next
    return found


def _as_further(
    program: Sequence[Instruction], jump: Instruction, out: int, first: list[int]
) -> Further | None:
    ways = _ways(program, jump, first)
    if ways is None or ways.count(out) != 1:
        return None
    goes_on = not ways.index(out)
    return Further(jump.index, goes_on, ways[goes_on])


def _reached(program: Sequence[Instruction], start: int) -> int | None:
    """The conditional jump to which instructions from `start` lead that assign no name."""
    for instr in program[start:]:
        if instr.op in _POPPING:
            return instr.index
        if instr.target is not None or instr.op in NO_FALLTHROUGH or instr.op in _REFUSED:
            return None
        if instr.op.startswith(("STORE_", "DELETE_")) or instr.op in _STORES:
            return None
    return None


def counted_turn_of(code: CodeType, head: Instruction) -> Turn | None:
    """The iterations of the `for` loop of a FOR_ITER, all of which lead back there; None if some
    leave the loop. (No truth stands at their end.)
    """
    return _counted.computed(code, head.index, lambda: _counted_turn(normalize(code), head))


def _counted_turn(program: Sequence[Instruction], head: Instruction) -> Turn | None:
    if len(program) > _LARGEST or head.target is None:
        return None
    start, out = head.index + 1, head.target.index
    body = _between(program, start, head.index)
    if body is None or out in body:
        return None
    stored = {program[i].argval for i in body if program[i].op in _STORES}
    return Turn(start, head.index, out, True, True, frozenset(stored))


_STORES = frozenset(["STORE_FAST", "DELETE_FAST", "LOAD_FAST_AND_CLEAR"])
_POPPING = {"POP_JUMP_IF_FALSE": True, "POP_JUMP_IF_TRUE": False}  # and the next instruction


def _ways(
    program: Sequence[Instruction], jump: Instruction, first: list[int]
) -> tuple[int, int] | None:
    """Where a jump leads on False and on True, past unconditional jumps; None for what is no jump
    that pops a truth.
    """
    falls = _POPPING.get(jump.op)
    if falls is None or jump.target is None:
        return None
    starts = jump.index + 1, jump.target.index
    one, other = (first[_landing(program, start)] for start in starts)
    return (other, one) if falls else (one, other)


def _landing(program: Sequence[Instruction], index: int) -> int:
    for _ in program:
        if index == len(program):  # out of the frame
            break
        instr = program[index]
        if instr.op == "NOP":
            index += 1
        elif instr.op == "JUMP" and instr.target is not None:
            index = instr.target.index
        else:
            break
    return index


def _between(
    program: Sequence[Instruction], start: int, end: int, out: Container[int] = ()
) -> set[int] | None:
    """The instructions from `start` to the jump `end`, if all ways lead there, or to `out`."""
    todo, found = [start], {end}
    while todo:
        index = todo.pop()
        if index in found or _landing(program, index) in out:
            continue
        if index == len(program) or program[index].op in _REFUSED:
            return None
        found.add(index)
        todo += _following(program, program[index])
    return found


def _meeting(program: Sequence[Instruction], jump: Instruction, first: list[int]) -> int | None:
    if len(program) > _LARGEST:
        return None
    meeting = _common_end(program, jump, first)
    ends = {meeting, len(program)}
    sides = _reachable(program, jump, ends, first)
    if any(program[i].op in _REFUSED for i in sides):
        return None
    # Only a `for` may lead back to the jump: its iterations are in a side, one in another.
    heads = {i for i in sides if program[i].op == "FOR_ITER"}
    return None if jump.index in _reachable(program, jump, ends | heads, first) else meeting


def _reachable(
    program: Sequence[Instruction], jump: Instruction, ends: set[int], first: list[int]
) -> set[int]:
    """The instructions of both ways from a jump to `ends`."""
    todo, found = _following(program, jump), set()
    while todo:
        index = first[todo.pop()]
        if index not in found and index not in ends:
            found.add(index)
            todo += _following(program, program[index])
    return found


def _following(program: Sequence[Instruction], instr: Instruction) -> list[int]:
    """Where execution may go from `instr` but for exceptions; len(program): out of the frame."""
    if instr.op == "RETURN_VALUE":
        return [len(program)]
    found = [] if instr.op in NO_FALLTHROUGH else [instr.index + 1]
    return found if instr.target is None else [*found, instr.target.index]


def _common_end(program: Sequence[Instruction], jump: Instruction, first: list[int]) -> int:
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
                common &= behind[first[index]]
            common |= 1 << instr.index
            if common != behind[instr.index]:
                behind[instr.index], changed = common, True
    candidates = behind[jump.index] & ~(1 << jump.index)
    # The nearest one has all the others behind itself.
    found = [i for i in range(count + 1) if candidates >> i & 1]
    return max(found, key=lambda i: bin(behind[i]).count("1"))
