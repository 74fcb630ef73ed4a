"""Loops of very many turns without an operation, which run natively as a whole.

    y = x.cos()                               a graph
    for i in range(10**6):
        n += i % 7                     ->     the loop, as it is
    return (y * n).sin()                      a graph

Capture follows a loop until it takes too long. Of the loops around the step that is one too many,
the outermost that has had no operation since it was entered is left to Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dynamo import breaks
from dynamo.bytecode.loops import Loop, keeps_bound, loop_around
from dynamo.plans import BreakBefore

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter
    from dynamo.interp.root import Stop


class LoopEntry(NamedTuple):
    """Facts about a frame when a loop of it was entered last: the step of its first turn, the count
    of nodes, and the fast locals that had a value.
    """

    step: int
    nodes: int
    bound: frozenset[str]

    @classmethod
    def of(cls, tx: Interpreter) -> LoopEntry:
        return cls(tx.output.steps, tx.output.node_count, frozenset(tx.locals))


def before_long_loop(stop: Stop) -> BreakBefore | None:
    """The break before the loop that takes too long, which then runs natively."""
    if not isinstance(stop.reason, breaks.LoopLimit) or stop.loop:
        return None
    for frame in stop.chain:
        for loop in _around(frame):
            entry = frame.loop_entries.get(loop.head.index)
            if entry is None or entry.nodes != frame.output.node_count:
                continue
            if keeps_bound(frame.code, loop, entry.bound):
                return BreakBefore(entry.step, stop.reason, stop.user_stack, loop=loop)
    return None


def _around(frame: Interpreter) -> list[Loop]:
    """The loops around the frame's instruction that can run as a whole, the outermost first."""
    found, index = [], frame.current.index
    while (loop := loop_around(frame.code, index)) is not None:
        found.append(loop)
        index = loop.head.index - 1
    return found[::-1]
