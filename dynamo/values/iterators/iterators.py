"""Iterators made of other iterators and of functions: enumerate, zip, map, filter, chain, tee."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dynamo.polyfills import builtins as builtin_polyfills
from dynamo.polyfills.rematerialise import chain_after, map_again, zip_again
from dynamo.values.base import Value
from dynamo.values.builtins.polyfill_calls import run_polyfill
from dynamo.values.builtins.program_code import call_natively, calls, iterates
from dynamo.values.containers.containers import TupleValue
from dynamo.values.iterators.stored_iterators import IteratorValue, SequenceIterator, steps_call
from dynamo.values.objects.exceptions import RaisedException, is_exception, raise_python
from dynamo.values.recipes import Recipe
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.scalars.operators import binary_op, equal

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter


class EnumerateIterator(IteratorValue):
    kind = enumerate
    remembers_end = False

    def __init__(self, inner: Value, number: Value) -> None:
        super().__init__()
        self.inner = inner
        self.number = number

    def step(self, tx: Interpreter) -> Value | None:
        item = self.ask(tx, self.inner)
        if item is None:
            return None
        number = self.number
        if number.is_constant():
            self.number = ConstantValue(number.as_constant() + 1)
        else:
            self.number = binary_op(tx, "+", number, ConstantValue(1))
        return TupleValue([number, item])

    def recipe_of_rest(self) -> Recipe:
        return enumerate, [self.rest_of(self.inner), self.number]


class ZipIterator(IteratorValue):
    kind = zip
    remembers_end = False

    def __init__(self, inners: Sequence[Value], strict: bool = False) -> None:
        super().__init__()
        self.inners = inners
        self.strict = strict
        self.taken: list[Value] = []  # of the row that comes next

    def step(self, tx: Interpreter) -> Value | None:
        if not (self.strict or self.taken) and any(map(steps_call, self.inners)):
            pushed = tx.tail_pushes(self, "__next__")
            if pushed is not None:
                operands = [TupleValue(self.inners)]
                return run_polyfill(tx, builtin_polyfills.next_row, operands, pushed=pushed)
        row = _row(tx, self)
        if len(row) < len(self.inners):
            self._check_strict(tx, len(row))
            return None
        return TupleValue(row) if row else None

    def _check_strict(self, tx: Interpreter, number: int) -> None:
        if not self.strict:
            return
        if number:
            raise_python(tx, ValueError, _strict_message(number, "shorter"))
        for later in range(1, len(self.inners)):
            if self.inners[later].next_value(tx) is not None:
                raise_python(tx, ValueError, _strict_message(later, "longer"))

    def recipe_of_rest(self) -> Recipe:
        inners = [self.rest_of(inner) for inner in self.inners]
        if not (self.strict or self.taken):
            return zip, inners
        counts = [ConstantValue(self.strict), ConstantValue(len(self.taken))]
        return zip_again, [*counts, *self.taken, *inners]


def _strict_message(number: int, word: str) -> str:
    others = "argument 1" if number == 1 else f"arguments 1-{number}"
    return f"zip() argument {number + 1} is {word} than {others}"


def _row(tx: Interpreter, rows: ZipIterator | MapIterator) -> list[Value]:
    """The next items of its iterators, up to one that has none. A graph break may stand in the
    middle: the items taken before come with it.
    """
    while len(rows.taken) < len(rows.inners):
        try:
            item = rows.ask(tx, rows.inners[len(rows.taken)])
        except RaisedException:
            rows.taken = []
            raise
        if item is None:
            break
        rows.taken.append(item)
    row, rows.taken = rows.taken, []
    return row


class MapIterator(IteratorValue):
    kind = map
    calls = True
    remembers_end = False

    def __init__(self, function: Value, inners: Sequence[Value]) -> None:
        super().__init__()
        self.function = function
        self.inners = inners
        self.taken: list[Value] = []  # as of zip

    def step(self, tx: Interpreter) -> Value | None:
        if not self.taken and any(map(steps_call, self.inners)):
            pushed = tx.tail_pushes(self, "__next__")
            if pushed is not None:
                asked: Value = TupleValue(self.inners)
                said = builtin_polyfills.next_mapped
                if len(self.inners) == 1:
                    asked, said = self.inners[0], builtin_polyfills.next_mapped_of_one
                return run_polyfill(tx, said, [self.function, asked], pushed=pushed)
        args = _row(tx, self)
        if len(args) < len(self.inners):
            return None
        return tx.call_at_end(self, "__next__", self.function, args)

    def recipe_of_rest(self) -> Recipe:
        inners = [self.rest_of(inner) for inner in self.inners]
        if not self.taken:
            return map, [self.function, *inners]
        return map_again, [self.function, ConstantValue(len(self.taken)), *self.taken, *inners]


class FunctionIterator(IteratorValue):
    """Base class: kind(function, inner), which calls the function with items of `inner`."""

    calls = True
    remembers_end = False

    def __init__(self, function: Value, inner: Value) -> None:
        super().__init__()
        self.function = function
        self.inner = inner

    def recipe_of_rest(self) -> Recipe:
        return self.kind, [self.function, self.rest_of(self.inner)]


class FilterIterator(FunctionIterator):
    kind: type = filter
    wanted = True

    def step(self, tx: Interpreter) -> Value | None:
        pushed = tx.tail_pushes(self, "__next__")
        if pushed is not None and (calls(self.function) or self.inner.step_runs_code()):
            said = builtin_polyfills.next_kept if self.wanted else builtin_polyfills.next_left_out
            return run_polyfill(tx, said, [self.function, self.inner], pushed=pushed)
        while (item := self.ask(tx, self.inner)) is not None:
            verdict = item
            if not (self.function.is_constant() and self.function.as_constant() is None):
                verdict = call_natively(tx, self.function, [item])
            if verdict.truth(tx) is self.wanted:
                return item
        return None


class CountIterator(IteratorValue):
    kind = itertools.count

    def __init__(self, start: Value, step: Value) -> None:
        super().__init__()
        self.current = start
        self.increment = step

    def step(self, tx: Interpreter) -> Value | None:
        value = self.current
        self.current = binary_op(tx, "+", value, self.increment)
        return value

    def recipe_of_rest(self) -> Recipe:
        return itertools.count, [self.current, self.increment]


class RepeatIterator(IteratorValue):
    kind = itertools.repeat
    remembers_end = False

    def __init__(self, item: Value, times: int | None) -> None:
        super().__init__()
        self.item = item
        self.times = times

    def step(self, tx: Interpreter) -> Value | None:
        if self.times is not None:
            if self.times <= 0:
                return None
            self.times -= 1
        return self.item

    def recipe_of_rest(self) -> Recipe:
        times = [] if self.times is None else [ConstantValue(self.times)]
        return itertools.repeat, [self.item, *times]


class TeeBuffer(Value):
    """The buffer that the iterators of one tee() share: the source of items, and those drawn so
    far.

    Made again, it is one more of these iterators, at the first item.
    """

    def __init__(self, inner: Value) -> None:
        super().__init__()
        self.inner = inner
        self.items: list[Value] = []
        self.drawing = False

    def children(self) -> Sequence[Value]:
        return [self.inner, *self.items]

    def recipe(self) -> Recipe:
        return _teed, [TupleValue(self.items), self.inner]

    def item(self, tx: Interpreter, index: int) -> Value | None:
        if index >= len(self.items):
            item = self._draw(tx)
            if item is None:
                return None
            self.items.append(item)
        return self.items[index]

    def _draw(self, tx: Interpreter) -> Value | None:
        if self.drawing:
            raise_python(tx, RuntimeError, "cannot re-enter the tee iterator")
        self.drawing = True
        try:
            return self.inner.next_value(tx)
        finally:
            self.drawing = False


_TEED: Iterator[Any] = itertools.tee(())[0]
# Whether tee() of an iterator of tee() gives that iterator itself first, as older releases do.
IS_FIRST_OF_ITS_COPIES = itertools.tee(_TEED)[0] is _TEED


class TeeIterator(IteratorValue):
    kind: type = type(_TEED)
    remembers_end = False

    def __init__(self, buffer: TeeBuffer, position: int = 0) -> None:
        super().__init__()
        self.buffer = buffer
        self.position = position

    def step(self, tx: Interpreter) -> Value | None:
        item = self.buffer.item(tx, self.position)
        self.position += item is not None
        return item

    def recipe_of_rest(self) -> Recipe:
        return _tee_at, [self.buffer, ConstantValue(self.position)]

    def py___copy__(self, tx):
        return TeeIterator(self.buffer, self.position)


def _teed(items: tuple[Any, ...], inner: Iterator[Any]) -> Any:
    return itertools.tee(itertools.chain(items, inner) if items else inner, 1)[0]


def _tee_at(first: Any, position: int) -> Iterator[Any]:
    made = first.__copy__()
    for _ in range(position):
        next(made)
    return made


class ChainIterator(IteratorValue):
    """chain(*iterables) and chain.from_iterable(iterables)."""

    kind = itertools.chain

    def __init__(self, outer: Value) -> None:
        super().__init__()
        self.outer = outer  # an iterator of iterables
        self.inner: Value | None = None

    def step_runs_code(self) -> bool:
        outer = self.outer
        waiting = outer.owner.children() if isinstance(outer, SequenceIterator) else ()
        return super().step_runs_code() or any(map(iterates, waiting))

    def step(self, tx: Interpreter) -> Value | None:
        while True:
            if self.inner is None:
                try:
                    iterable = self.ask(tx, self.outer)
                    if iterable is None:
                        return None
                    self.inner = iterable.iterate(tx)
                except RaisedException:
                    self.exhausted = True
                    raise
            item = self.ask(tx, self.inner)
            if item is not None:
                return item
            self.inner = None

    def recipe_of_rest(self) -> Recipe:
        if self.inner is None:
            return itertools.chain.from_iterable, [self.rest_of(self.outer)]
        return chain_after, [self.rest_of(self.inner), self.outer]


class CallIterator(IteratorValue):
    """iter(callable, sentinel)."""

    kind = type(iter(int, 0))
    calls = True

    def __init__(self, function: Value, sentinel: Value) -> None:
        super().__init__()
        self.function = function
        self.sentinel = sentinel

    def step(self, tx: Interpreter) -> Value | None:
        try:
            item = tx.call_function(self.function, [], {})
        except RaisedException as error:
            if not is_exception(error, StopIteration):
                raise
            return None
        if self.exhausted:  # by the function itself
            return None
        return None if equal(tx, self.sentinel, item) else item

    def recipe_of_rest(self) -> Recipe:
        return iter, [self.function, self.sentinel]
