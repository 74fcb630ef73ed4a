"""Iterators over objects that are no containers here: texts, the results of a pure function one by
one, and batches.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from dynamo.values.base import Value
from dynamo.values.builtins.table import TABLE
from dynamo.values.containers.containers import TupleValue
from dynamo.values.iterators.stored_iterators import (
    IteratorValue,
    ReversedIterator,
    SequenceIterator,
    iterator_at,
    reversed_at,
)
from dynamo.values.late_bound import bound_late
from dynamo.values.objects.exceptions import RaisedException, call_real, raise_python
from dynamo.values.recipes import LIST, Made, Part, Recipe
from dynamo.values.scalars.constant import ConstantValue

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter


@bound_late
class TextIterator(SequenceIterator):
    """iter() of a str or bytes, or of an instance of a subclass."""

    def __init__(self, tx: Interpreter, text: Value, literal: Value) -> None:
        super().__init__(TupleValue(literal.unpack(tx)))
        self.text = text
        self.literal = literal.as_constant()

    def python_type(self) -> type:
        plain = type(self.literal)
        if plain is str and not isinstance(self.text, ConstantValue):
            return type(iter("\u00e9"))
        return type(iter(self.literal))

    def spoiled(self) -> bool:
        return False

    def recipe_of_rest(self) -> Recipe:
        return iterator_at, [self.text, ConstantValue(self.position)]


class ReversedTextIterator(ReversedIterator):
    """reversed() of a str or bytes."""

    def __init__(self, tx: Interpreter, text: Value, literal: Value) -> None:
        super().__init__(TupleValue(literal.unpack(tx)))
        self.text = text

    def spoiled(self) -> bool:
        return False

    def recipe_of_rest(self) -> Recipe:
        return reversed_at, [self.text, ConstantValue(self.position)]


class CalledIterator(SequenceIterator):
    """The iterator of a pure function, whose items are known; `make` calls the function again."""

    def __init__(self, kind: type, make: Callable[..., Any], args: Sequence[Value], items: Any):
        super().__init__(TupleValue(items))
        self.kind = kind
        self.make = make
        self.args = args

    def python_type(self) -> type:
        return self.kind

    def children(self) -> Sequence[Value]:
        return [*self.args, *self.owner.wrapped()]

    def recipe_of_rest(self) -> Recipe:
        return partial(_called, self.make, self.position), self.args

    def recipe(self) -> Recipe:
        if self.exhausted:
            return partial(_to_its_end, self.make), self.args
        return super().recipe()


def _called(make: Callable[..., Any], position: int, *args: Any) -> Iterator[Any]:
    made = make(*args)
    for _ in range(position):
        next(made)
    return made


def _to_its_end(make: Callable[..., Any], *args: Any) -> Iterator[Any]:
    made = make(*args)
    collections.deque(made, maxlen=0)
    return made


class BatchedIterator(IteratorValue):
    """itertools.batched(), of Pythons that have it."""

    kind = getattr(itertools, "batched", IteratorValue)

    def __init__(self, inner: Value, size: int, options: dict[str, Any]) -> None:
        super().__init__()
        self.inner = inner
        self.size = size
        self.options = options
        self.taken: list[Value] = []  # of the batch that comes next, as of zip

    def step(self, tx: Interpreter) -> Value | None:
        try:
            while len(self.taken) < self.size and (item := self.ask(tx, self.inner)) is not None:
                self.taken.append(item)
        except RaisedException:
            self.exhausted, self.taken = True, []
            raise
        batch, self.taken = self.taken, []
        if batch and len(batch) < self.size and self.options.get("strict"):
            self.exhausted = True
            raise_python(tx, ValueError, "batched(): incomplete batch")
        return TupleValue(batch) if batch else None

    def recipe_of_rest(self) -> Recipe:
        rest: Value | Part = self.rest_of(self.inner)
        if self.taken:
            rest = Made(itertools.chain, Made(LIST, *self.taken), rest)
        return partial(self.kind, n=self.size, **self.options), [rest]


def _batched(tx, iterable, n, **options):
    strict = {name: value.truth(tx) for name, value in options.items()}
    size = n.as_constant()
    call_real(tx, BatchedIterator.kind, (), size, **strict)
    return BatchedIterator(iterable.iterate(tx), size, strict)


if hasattr(itertools, "batched"):
    TABLE[itertools.batched] = _batched
