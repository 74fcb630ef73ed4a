"""The C objects that those of polyfill classes stand for: an iterator that leaves the frame is one
of them, in the same state.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from dynamo.polyfills.library import MISSING, CompareKey, Group, GroupBy, ReversedItems

_Grouper: Any = type(next(itertools.groupby((0,)))[1])


def _grouped(source: Iterator[Any], key: Any, found: Any, target: Any, item: Any) -> Iterator[Any]:
    """Python code of ours that it calls would show in tracebacks: its keys come from an iterator,
    the known ones first, the others made as the items are drawn.
    """
    if found is MISSING and target is MISSING:
        return itertools.groupby(source, key)
    pending = item is not MISSING
    begins = pending and found is target  # nothing was asked of the group yet
    drawn = [(item, found)] if pending else []
    if not begins and target is not MISSING:
        drawn = [(None, target), *drawn]
    first, first_keys = zip(*drawn)
    items, keyed = itertools.tee(source)
    keys = itertools.chain(first_keys, keyed if key is None else map(key, keyed))
    made = itertools.groupby(itertools.chain(first, items), functools.partial(next, keys))
    if target is not MISSING:
        _, group = next(made)
        if not begins:
            next(group)
            if pending:
                next(group, None)
    return made


def _group(parent: Any, target: Any, current: bool) -> Iterator[Any]:
    if current:
        return _Grouper(parent, target)
    group = next(itertools.groupby((0,)))[1]
    list(group)
    return group


def _compare_key(compare: Any, obj: Any) -> Any:
    return functools.cmp_to_key(compare)(obj)


@dataclass(frozen=True)
class RealIterator:
    """make: gives the real one, of the values of `attributes`; None: it would ask the program."""

    kind: type
    make: Callable[..., Any] | None
    attributes: tuple[str, ...] = ()


# By id: a metaclass may make a class unhashable.
REAL: dict[int, RealIterator] = {
    id(ReversedItems): RealIterator(reversed, None),
    id(GroupBy): RealIterator(
        itertools.groupby, _grouped, ("source", "key", "found", "target", "item")
    ),
    id(Group): RealIterator(_Grouper, _group, ("parent", "target", "current")),
    id(CompareKey): RealIterator(
        type(functools.cmp_to_key(max)(0)), _compare_key, ("compare", "obj")
    ),
}
