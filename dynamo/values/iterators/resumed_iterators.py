"""Iterators of loops with a graph break inside, in the continuation that goes on with the loop.

The continuation gets the real iterator. If the rest of the loop breaks again, it asks natively for
each item, so that one graph serves all iterations (breaks.NextTurn). Otherwise the rest of the loop
is captured as if the loop began there: where the iterator stands is guarded, and the rewritten
frame moves it on; so, too, where the break is in no loop, with iterators of which a
generator is made again at the start: at this place they have come as far in each call.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dynamo import breaks
from dynamo.bytecode.loops import in_loop
from dynamo.continuations.parts import REMATERIALISED
from dynamo.errors import Unsupported
from dynamo.guards.sources import CallSource, LocalSource, Source
from dynamo.values.base import Value
from dynamo.values.builder import builder
from dynamo.values.containers.dicts import DictValue
from dynamo.values.containers.ranges import RangeIterator
from dynamo.values.iterators.stored_iterators import (
    DictIterator,
    IteratorValue,
    SequenceIterator,
    SetIterator,
)
from dynamo.values.objects.objects import build_object
from dynamo.values.recipes import Recipe, exact
from dynamo.values.scalars.constant import ConstantValue

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter
    from dynamo.interp.root import Stop

_DICT_ITERATORS: dict[type, str] = {
    type(iter({}.keys())): "keys",
    type(iter({}.values())): "values",
    type(iter({}.items())): "items",
}
_SEQUENCE_ITERATORS: tuple[type, ...] = (type(iter([])), type(iter(())))
_RANGE_ITERATOR = type(iter(range(0)))
_SET_ITERATOR: type = type(iter(set()))
_OVER_TABLES = (*_DICT_ITERATORS, _SET_ITERATOR)


class ResumedIterator(IteratorValue):
    """`rest`: the symbolic iterator over the rest; None: not asked for an item yet."""

    def __init__(self, real: Iterator[Any], source: Source) -> None:
        super().__init__()
        self.source = source
        self.real = real
        self.rest: Value | None = None
        self.taken = 0  # how often it was asked

    def python_type(self) -> type:
        return type(self.real)

    def describe(self) -> str:
        assert self.source is not None
        return f"{type(self.real).__name__} object {self.source.name}"

    def next_value(self, tx: Interpreter) -> Value | None:
        if self.exhausted:
            return None
        if self.rest is None:
            self.rest = self._open(tx)
        tx.output.side_effects.mark(self)
        self.taken += 1
        item = self.rest.next_value(tx)
        self.exhausted = item is None
        return item

    @property
    def is_rematerialised(self) -> bool:
        """Whether something is made of it at the start of the continuation
        (resume_parts.Rematerialised).
        """
        return isinstance(self.source, LocalSource) and self.source.local.startswith(REMATERIALISED)

    def recipe_of_rest(self) -> Recipe:
        return iter, []

    def children(self) -> list[Value]:
        return [] if self.rest is None else [self.rest]

    def _open(self, tx: Interpreter) -> Value:
        if not tx.output.plan.unrolls or not _can_be_opened(self.real):
            raise Unsupported(breaks.NotIterable(self.describe()))
        assert self.source is not None
        tx.output.unrolled.append(self)
        position = ConstantValue(position_of(self.real))
        tx.guard(CallSource(self.source, position_of, "position"), "constant", position.value)
        iterated = iterated_by(self.real)
        owner: Any = tx.wrap(iterated, CallSource(self.source, iterated_by, "iterated"))
        if isinstance(iterated, range):
            return RangeIterator(iterated, position.value)
        if isinstance(iterated, set | frozenset):
            return SetIterator(owner, owner.ordered(tx))
        if type(self.real) not in _DICT_ITERATORS:
            return SequenceIterator(owner, position.value)
        if tx.output.side_effects.is_dirty(owner) or not isinstance(owner, DictValue):
            raise Unsupported(breaks.NotIterable(self.describe()))  # Python may notice
        rest = DictIterator(owner, _DICT_ITERATORS[type(self.real)])
        rest.position = position.value
        return rest

    def fill(self) -> Sequence[Recipe]:
        return [(advance, [self, exact(None if self.exhausted else self.taken)])]


def breaks_again(opened: Iterable[ResumedIterator], stop: Stop) -> bool:
    """Whether the break is one of loops that go on over these iterators."""
    unfinished = [iterator for iterator in opened if not iterator.exhausted]
    if not unfinished:
        return False
    if not all(iterator.is_rematerialised for iterator in unfinished):
        return True
    return any(in_loop(frame.code, frame.current.index) for frame in stop.chain)


def _can_be_opened(real: Iterator[Any]) -> bool:
    """Whether the iterator has items left, and its iterable is of a built-in type."""
    if real.__length_hint__() == 0:  # type: ignore[attr-defined]
        return False
    iterated = iterated_by(real)
    if type(iterated) in (set, frozenset):
        return position_of(real) == 0  # behind changes of the set, no number tells the place
    return type(iterated) in (list, tuple, range, dict)


def iterated_by(real: Iterator[Any]) -> Any:
    """The iterable of a built-in iterator; None: exhausted."""
    if type(real) not in _OVER_TABLES:
        return real.__reduce__()[1][0]  # type: ignore[index]
    tables = (dict, set, frozenset)
    return next((held for held in gc.get_referents(real) if isinstance(held, tables)), None)


def position_of(real: Iterator[Any]) -> int:
    """The number of items that were taken; -1: all of them, or some of a set."""
    if type(real) is _SET_ITERATOR:
        owner, rest = iterated_by(real), real.__reduce__()[1][0]  # type: ignore[index]
        fresh = owner is not None and len(rest) == len(owner)
        return 0 if fresh and all(map(operator.is_, rest, owner)) else -1
    if type(real) in _DICT_ITERATORS:
        owner = iterated_by(real)
        return -1 if owner is None else len(owner) - real.__length_hint__()  # type: ignore
    made: Any = real.__reduce__()
    return (made[2] or 0) if len(made) > 2 else 0


def advance(real: Iterator[Any], count: int | None) -> None:
    """Take `count` items, or all of them (None). The program has seen any exception of that."""
    with contextlib.suppress(RuntimeError):
        for _ in itertools.islice(real, count):
            pass


@builder(*_SEQUENCE_ITERATORS, _RANGE_ITERATOR, *_OVER_TABLES)
def build_iterator(tx: Interpreter, obj: Iterator[Any], source: Source | None) -> Value:
    """Other iterators from outside are asked natively for their items."""
    if not isinstance(source, LocalSource) or source.local[0] != ".":
        return build_object(tx, obj, source)
    tx.guard(source, "type", type(obj))
    value = ResumedIterator(obj, source)
    tx.output.side_effects.track_existing(value)
    return tx.output.remember(obj, source, value)
