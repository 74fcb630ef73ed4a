"""The C iterators that remember their end, as exhausted ones."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any


class NoItems:
    def __getitem__(self, index: int) -> Any:
        raise IndexError


# One of each type that remembers its end.
_ENTRIES: tuple[Any, ...] = ({}, {}.values(), {}.items())
_PLAIN: tuple[Any, ...] = ([], (), "", "\u00e9", b"", set(), collections.OrderedDict(), *_ENTRIES)
_REVERSIBLE: tuple[Any, ...] = ([], (), collections.deque(), *_ENTRIES)
_ANY: tuple[Any, ...] = (
    *(partial(iter, empty) for empty in _PLAIN),
    *(partial(reversed, empty) for empty in _REVERSIBLE),
    partial(iter, int, 0),
    partial(iter, NoItems()),
    partial(itertools.takewhile, bool, (0,)),
    partial(itertools.islice, (), 0),
    partial(itertools.permutations, ()),
    partial(itertools.combinations, (), 0),
    partial(itertools.combinations_with_replacement, (), 0),
    *(partial(kind, ()) for kind in (itertools.cycle, itertools.pairwise)),
    *([partial(itertools.batched, (), 1)] if hasattr(itertools, "batched") else ()),
    itertools.chain,
    itertools.zip_longest,
    itertools.product,
)
_MAKERS: dict[type, Callable[[], Iterator[Any]]] = {type(make()): make for make in _ANY}


def ended(kind: type) -> Iterator[Any]:
    """An iterator of this type at its end."""
    made = _MAKERS[kind]()
    collections.deque(made, maxlen=0)
    return made
