"""Where the NULL of a call goes, on versions that push it before they evaluate the callable.

    PUSH_NULL               LOAD_FAST table
    LOAD_FAST table         LOAD_FAST key
    LOAD_FAST key     ->    BINARY_SUBSCR
    BINARY_SUBSCR           PUSH_NULL
    CALL 0                  CALL 0

    PUSH_NULL               LOAD_CONST defaults
    LOAD_CONST defaults     MAKE_FUNCTION
    MAKE_FUNCTION     ->    SWAP 2
    SWAP 2                  PUSH_NULL
    CALL 1                  SWAP 2
                            CALL 1

A NULL at depth d is overdue ("pending") from its PUSH_NULL to the point from which no path writes
slot d + 1, the callable's, before the call. Sets of depths are bit masks. Expressions may contain
branches, so this is a small data flow problem: forward which NULLs are on the stack, backward which
callables are still to be written and which NULLs are used by a call at all, forward where to put
the canonical PUSH_NULL: as early as possible, by path. Where paths meet, the instruction may have
one before it that only some of the jumps to it take.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dynamo.bytecode.opcodes import NO_FALLTHROUGH, stack_effect

if TYPE_CHECKING:
    from dynamo.bytecode.normalize import Instruction

_CALLS = frozenset({"CALL", "CALL_KW", "CALL_FUNCTION_EX"})


class MisplacedNull(Exception):
    """A NULL that does not belong to a call as compilers make them."""


def bits(mask: int) -> tuple[int, ...]:
    return tuple(i for i in range(mask.bit_length()) if mask >> i & 1)


class NullFlow:
    """The analysis for a list of instructions whose `index` is set; lists below are by index."""

    def __init__(self, draft: list[Instruction]) -> None:
        self.draft = draft
        count = len(draft)
        self.depth: list[int | None] = [None] * count
        self.present = [0] * count  # NULLs of calls on the stack before the instruction
        self.unwritten = [0] * count  # those of them whose callable is still to be written
        self.called = [0] * count  # those of them that a call will take
        self.pending: list[int | None] = [None] * count  # those without a canonical PUSH_NULL yet
        self.insert = [0] * count  # those whose canonical PUSH_NULL goes before the instruction
        self.jumps_to_insert = [False] * count  # whether a jump goes to that PUSH_NULL
        self._find_present()
        self._look_ahead()
        self._find_pending()

    def _successors(self, instr: Instruction) -> Iterator[Instruction]:
        if instr.target is not None:
            yield instr.target
        if instr.op not in NO_FALLTHROUGH:
            yield self.draft[instr.index + 1]

    def _find_present(self) -> None:
        todo: list[tuple[int, int, int]] = [(0, 0, 0)]
        while todo:
            i, depth, mask = todo.pop()
            while self.depth[i] is None:
                self.depth[i], self.present[i] = depth, mask
                instr = self.draft[i]
                op, handler, target = instr.op, instr.handler, instr.target
                if handler is not None and self.depth[handler.target.index] is None:
                    below = mask & ((1 << handler.depth) - 1)
                    at_handler = handler.depth + handler.push_lasti + 1
                    todo.append((handler.target.index, at_handler, below))
                popped, pushed = stack_effect(op, instr.arg)
                low = depth - popped
                if mask >> low:
                    if op not in _CALLS or mask >> low != 1:
                        raise MisplacedNull(f"{instr} at offset {instr.offset}")
                    mask &= (1 << low) - 1
                if op == "PUSH_NULL":
                    mask |= 1 << depth
                if target is not None and self.depth[target.index] is None:
                    jump_popped, jump_pushed = stack_effect(op, instr.arg, True)
                    todo.append((target.index, depth - jump_popped + jump_pushed, mask))
                if op in NO_FALLTHROUGH:
                    break
                depth = low + pushed
                i += 1

    def _look_ahead(self) -> None:
        unwritten, called, present = self.unwritten, self.called, self.present
        changed = True
        while changed:
            changed = False
            for instr in reversed(self.draft):
                i = instr.index
                mask, depth = present[i], self.depth[i]
                if not mask or depth is None:
                    continue
                low = depth - stack_effect(instr.op, instr.arg)[0]
                written = 1 << (low - 1) if low else 0
                taken = mask >> low << low
                for successor in self._successors(instr):
                    written |= unwritten[successor.index]
                    taken |= called[successor.index]
                if instr.handler is not None:
                    written |= unwritten[instr.handler.target.index]
                    taken |= called[instr.handler.target.index]
                if (written & mask, taken & mask) != (unwritten[i], called[i]):
                    unwritten[i], called[i] = written & mask, taken & mask
                    changed = True

    def _find_pending(self) -> None:
        # (from, to, NULLs that are pending on the way); from is -1 at the start and for handlers.
        todo: list[tuple[int, int, int]] = [(-1, 0, 0)]
        falls: list[tuple[int, bool]] = []  # falling through to i: does it meet the PUSH_NULL?
        while todo:
            source, i, arriving = todo.pop()
            instr, depth = self.draft[i], self.depth[i]
            arriving &= self.present[i]
            done = arriving & self.called[i] & ~self.unwritten[i]
            if done and (depth is None or done != 1 << (depth - 2 - self._above(instr))):
                raise MisplacedNull(f"callable is not on top before {instr}")
            if source >= 0 and self.draft[source].target is instr:
                self.jumps_to_insert[source] = bool(done)
            else:
                falls.append((i, bool(done)))
            self.insert[i] |= done
            pending = arriving & ~done
            if self.pending[i] is not None:
                if self.pending[i] != pending:
                    raise MisplacedNull(f"paths disagree before {instr}")
                continue
            self.pending[i] = pending
            if instr.handler is not None:
                todo.append((-1, instr.handler.target.index, pending))
            if instr.op == "PUSH_NULL":
                assert depth is not None
                pending |= 1 << depth
            todo += [(i, successor.index, pending) for successor in self._successors(instr)]
        for i, meets in falls:
            if self.insert[i] and not meets:
                raise MisplacedNull(f"paths disagree before {self.draft[i]}")

    def _above(self, instr: Instruction) -> int:
        """The number of arguments that a swap has put above the callable."""
        return instr.arg if self.is_swapped(instr) else 0

    def is_swapped(self, instr: Instruction) -> bool:
        """Whether the instruction is the call of a generic function's type parameters: its
        arguments, the defaults, were evaluated before the function that gets them was made.
        """
        before = self.draft[max(instr.index - 1, 0)]
        return instr.op == "CALL" and before.op == "SWAP" and before.arg == instr.arg + 1 <= 3
