"""Generators that the captured code drops while they are suspended in `try` or `with`.

Python closes a generator when its last reference goes away, and closing runs its `finally` blocks.
Values are not counted; instead, as long as such generators exist (OutputGraph.suspended), each
instruction is followed by a look whether they can still be reached.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dynamo import breaks
from dynamo.capture.side_effects import DELETED
from dynamo.errors import Unsupported
from dynamo.values.base import Value
from dynamo.values.exceptions import RaisedException

if TYPE_CHECKING:
    from dynamo.capture.interpreter import Interpreter
    from dynamo.capture.output import OutputGraph

Path = list[Value]  # from a root to the generator, each held by the one before


def close_dropped(tx: Interpreter) -> None:
    """Close the suspended generators that nothing holds any more."""
    frames = _frames(tx)
    if frames is None:
        return
    output = tx.output
    for generator in list(output.suspended):
        path = output.suspended[generator]
        if path is not None and _holds(frames, path):
            continue
        path = path_to(_roots(output, frames), generator)
        if path is not None:
            output.suspended[generator] = path
            continue
        try:
            generator.close(tx)  # type: ignore[attr-defined]
        except RaisedException:
            raise Unsupported(breaks.UncapturedCall(f"{generator.describe()}.close")) from None
        output.suspended.pop(generator, None)


def holds_suspended(output: OutputGraph, value: Any) -> bool:
    """Whether dropping `value` may close a generator."""
    if not output.suspended or not isinstance(value, Value):
        return False
    return any(path_to([value], generator) is not None for generator in output.suspended)


def _frames(tx: Interpreter) -> list[Interpreter] | None:
    """The frames from here to the root; None where one of them calls from inside of a handler,
    which holds values that no frame shows.
    """
    frames = [tx]
    while frames[-1].parent is not None:
        if frames[-1].pushed is None:
            return None
        frames.append(frames[-1].parent)
    return frames


def _held(frame: Interpreter) -> Iterable[Any]:
    waiting = frame.pushed or ()  # in the caller's hands
    if frame.done:
        return (frame.result, *waiting)
    return (*frame.stack, *frame.locals.values(), *frame.cells.values(), frame.exc_info, *waiting)


def _roots(output: OutputGraph, frames: list[Interpreter]) -> list[Value]:
    effects = output.side_effects
    roots = [value for frame in frames for value in _held(frame)]
    roots += [v for v in effects.tracked if v.mutation.dirty and not v.mutation.new]
    roots += [new for _, _, new in effects.globals.values() if new is not DELETED]
    roots += [value for call in effects.calls for value in call.values()]
    return [value for value in roots if isinstance(value, Value)]


def _neighbours(value: Value) -> list[Value]:
    attrs = () if value.mutation is None else value.mutation.attrs.values()
    return [v for v in (*value.children(), *attrs) if isinstance(v, Value)]


def path_to(roots: Iterable[Value], target: Value) -> Path | None:
    """How one of `roots` holds `target`; None: it does not."""
    found: dict[int, tuple[Value, Value | None]] = {}
    todo: list[tuple[Value, Value | None]] = [(root, None) for root in roots]
    while todo:
        value, holder = todo.pop()
        if id(value) in found:
            continue
        found[id(value)] = (value, holder)
        if value is target:
            path = [value]
            while holder is not None:
                path.append(holder)
                holder = found[id(holder)][1]
            return path[::-1]
        todo.extend((neighbour, value) for neighbour in _neighbours(value))
    return None


def _holds(frames: list[Interpreter], path: Path) -> bool:
    """Whether a path that was found before is still there."""
    first = path[0]
    if not any(value is first for frame in frames for value in _held(frame)):
        return False
    pairs = itertools.pairwise(path)
    return all(any(item is held for item in _neighbours(holder)) for holder, held in pairs)
