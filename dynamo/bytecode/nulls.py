"""Where the NULL of a call goes, on versions that push it before they evaluate the callable.

    PUSH_NULL               LOAD_FAST table
    LOAD_FAST table         LOAD_FAST key
    LOAD_FAST key     ->    BINARY_SUBSCR
    BINARY_SUBSCR           PUSH_NULL
    CALL 0                  CALL 0

A NULL at depth d is overdue ("pending") from its PUSH_NULL to the point from which no path writes
slot d + 1, the callable's, before the call. Sets of depths are bit masks. Expressions may contain
branches, so this is a small data flow problem: forward which NULLs are on the stack, backward which
callables are still to be written, forward where to put the canonical PUSH_NULL.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dynamo.bytecode.opcodes import NO_FALLTHROUGH, stack_effect

if TYPE_CHECKING:
    from dynamo.bytecode.normalize import Instruction

_CALLS = frozenset({"CALL", "CALL_KW", "CALL_FUNCTION_EX"})
_PASS_THROUGH = frozenset({"JUMP", "NOP"})


class MisplacedNull(Exception):  # noqa: N818
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
        self.pending: list[int | None] = [None] * count  # those without a canonical PUSH_NULL yet
        self.insert = [0] * count  # those whose canonical PUSH_NULL goes before the instruction
        self._find_present()
        self._find_unwritten()
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

    def _find_unwritten(self) -> None:
        unwritten, present = self.unwritten, self.present
        changed = True
        while changed:
            changed = False
            for instr in reversed(self.draft):
                i = instr.index
                mask, depth = present[i], self.depth[i]
                if not mask or depth is None:
                    continue
                low = depth - stack_effect(instr.op, instr.arg)[0]
                ahead = 1 << (low - 1) if low else 0
                for successor in self._successors(instr):
                    ahead |= unwritten[successor.index]
                if instr.handler is not None:
                    ahead |= unwritten[instr.handler.target.index]
                if ahead & mask != unwritten[i]:
                    unwritten[i] = ahead & mask
                    changed = True

    def _find_pending(self) -> None:
        todo: list[tuple[int, int]] = [(0, 0)]
        while todo:
            i, pending = todo.pop()
            pending &= self.present[i]
            if self.pending[i] is not None:
                if self.pending[i] != pending:
                    raise MisplacedNull(f"paths disagree before {self.draft[i]}")
                continue
            self.pending[i] = pending
            instr, depth = self.draft[i], self.depth[i]
            done = pending & ~self.unwritten[i]
            if done and instr.op not in _PASS_THROUGH:
                if depth is None or done != 1 << (depth - 2):
                    raise MisplacedNull(f"callable is not on top before {instr}")
                self.insert[i] = done
                pending &= ~done
            if instr.handler is not None:
                todo.append((instr.handler.target.index, pending))
            if instr.op == "PUSH_NULL":
                assert depth is not None
                pending |= 1 << depth
            todo += [(successor.index, pending) for successor in self._successors(instr)]
