"""The iterators of itertools that are made of others: they draw from them as the C ones do, and are
made again as what they are.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from dynamo import breaks
from dynamo.config import config
from dynamo.errors import Unsupported
from dynamo.polyfills import builtins as builtin_polyfills
from dynamo.polyfills.rematerialise import (
    accumulated,
    dropping_nothing,
    pairs_from,
    zip_longest_again,
)
from dynamo.values.base import Value, is_none
from dynamo.values.builtins.polyfill_calls import run_polyfill
from dynamo.values.builtins.program_code import ADDITION, call_natively, calls, runs
from dynamo.values.builtins.table import TABLE, handles
from dynamo.values.containers.containers import ListValue, TupleValue
from dynamo.values.containers.ranges import SliceValue
from dynamo.values.dummy_operands import fail_as
from dynamo.values.iterators.iterators import CountIterator, FilterIterator, FunctionIterator
from dynamo.values.iterators.stored_iterators import IteratorValue, steps_call
from dynamo.values.objects.exceptions import RaisedException, call_real
from dynamo.values.recipes import Recipe
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.scalars.operators import binary_op

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter


class StarmapIterator(FunctionIterator):
    kind = itertools.starmap

    def step(self, tx: Interpreter) -> Value | None:
        if steps_call(self.inner):
            pushed = tx.tail_pushes(self, "__next__")
            if pushed is not None:
                operands = [self.function, self.inner]
                return run_polyfill(tx, builtin_polyfills.next_starred, operands, pushed=pushed)
        args = self.ask(tx, self.inner)
        if args is None:
            return None
        return tx.call_at_end(self, "__next__", self.function, args.unpack(tx))


class TakewhileIterator(FunctionIterator):
    kind = itertools.takewhile

    def step(self, tx: Interpreter) -> Value | None:
        item = self.ask(tx, self.inner)
        if item is None:
            return None
        pushed = tx.tail_pushes(self, "__next__")
        if pushed is not None and calls(self.function):
            operands = [self, self.function, item]
            return run_polyfill(tx, builtin_polyfills.next_taken, operands, pushed=pushed)
        if not call_natively(tx, self.function, [item]).truth(tx):
            self.exhausted = True
            return None
        return item

    def set_state(self, state: Value) -> None:
        self.exhausted = state.as_constant()


class DropwhileIterator(FunctionIterator):
    kind = itertools.dropwhile
    started = False

    def step(self, tx: Interpreter) -> Value | None:
        pushed = tx.tail_pushes(self, "__next__")
        runs_code = calls(self.function) or self.inner.step_runs_code()
        if pushed is not None and not self.started and runs_code:
            operands = [self, self.function, self.inner]
            return run_polyfill(tx, builtin_polyfills.next_not_dropped, operands, pushed=pushed)
        while (item := self.ask(tx, self.inner)) is not None:
            if self.started:
                return item
            if not call_natively(tx, self.function, [item]).truth(tx):
                self.started = True
                return item
        return None

    def set_state(self, state: Value) -> None:
        self.started = state.as_constant()

    def recipe_of_rest(self) -> Recipe:
        if self.started:
            return dropping_nothing, [self.rest_of(self.inner)]
        return super().recipe_of_rest()


class FilterfalseIterator(FilterIterator):
    kind = itertools.filterfalse
    wanted = False


class CompressIterator(IteratorValue):
    kind = itertools.compress
    calls = True
    remembers_end = False

    def __init__(self, data: Value, selectors: Value) -> None:
        super().__init__()
        self.data = data
        self.selectors = selectors

    def step(self, tx: Interpreter) -> Value | None:
        while (item := self.ask(tx, self.data)) is not None:
            chosen = self.selectors.next_value(tx)
            if chosen is None:
                return None
            if chosen.truth(tx):
                return item
        return None

    def recipe_of_rest(self) -> Recipe:
        return itertools.compress, [self.rest_of(self.data), self.selectors]


class PairwiseIterator(IteratorValue):
    kind = itertools.pairwise

    def __init__(self, inner: Value) -> None:
        super().__init__()
        self.inner = inner
        self.first: Value | None = None

    def step(self, tx: Interpreter) -> Value | None:
        try:
            if self.first is None:
                self.first = self.ask(tx, self.inner)
                if self.first is None:
                    return None
            left, self.first = self.first, self.ask(tx, self.inner)
        except RaisedException:
            self.exhausted = True
            raise
        return None if self.first is None else TupleValue([left, self.first])

    def recipe_of_rest(self) -> Recipe:
        if self.first is None:
            return itertools.pairwise, [self.rest_of(self.inner)]
        return pairs_from, [self.first, self.rest_of(self.inner)]


class AccumulateIterator(IteratorValue):
    """`initial`: the item before the first one, until it has been given."""

    kind = itertools.accumulate
    calls = True
    remembers_end = False

    def __init__(self, inner: Value, function: Value | None, initial: Value | None) -> None:
        super().__init__()
        self.inner = inner
        self.function = function
        self.initial = initial
        self.total: Value | None = None

    def step(self, tx: Interpreter) -> Value | None:
        if self.initial is not None:
            self.total, self.initial = self.initial, None
            return self.total
        item = self.ask(tx, self.inner)
        if item is None:
            return None
        if self.total is None:
            self.total = item
            return item
        pushed = tx.tail_pushes(self, "__next__")
        if pushed is not None and self._runs_code(self.total, item):
            function = tx.wrap(operator.add) if self.function is None else self.function
            operands = [self, function, self.total, item]
            return run_polyfill(tx, builtin_polyfills.next_total, operands, pushed=pushed)
        if self.function is None:
            self.total = binary_op(tx, "+", self.total, item)
        else:
            self.total = call_natively(tx, self.function, [self.total, item])
        return self.total

    def _runs_code(self, total: Value, item: Value) -> bool:
        if self.function is not None:
            return calls(self.function)
        return any(runs(value, ADDITION) for value in (total, item))

    def set_state(self, state: Value) -> None:
        self.total = state

    def recipe_of_rest(self) -> Recipe:
        none = ConstantValue(None)
        function = none if self.function is None else self.function
        if self.total is None:
            return _accumulating, [self.rest_of(self.inner), function, self.initial or none]
        if is_none(self.total):
            raise Unsupported(breaks.CannotReconstruct("an accumulate() that has come to None"))
        return accumulated, [self.rest_of(self.inner), function, self.total]


def _accumulating(inner: Iterator[Any], function: Any, initial: Any) -> Iterator[Any]:
    return itertools.accumulate(inner, function, initial=initial)


class ZipLongestIterator(IteratorValue):
    kind = itertools.zip_longest

    def __init__(self, inners: Sequence[Value], fill: Value) -> None:
        super().__init__()
        self.inners: list[Value | None] = list(inners)  # None: at its end
        self.padding = fill
        self.taken: list[Value] = []  # of the row that comes next, as of zip

    def step(self, tx: Interpreter) -> Value | None:
        while len(self.taken) < len(self.inners):
            place = len(self.taken)
            inner = self.inners[place]
            try:
                item = None if inner is None else self._ask_for_row(tx, inner)
            except RaisedException:
                self.exhausted, self.taken = True, []
                raise
            if item is None:
                self.inners[place] = None
                if not any(self.inners):
                    self.taken = []
                    return None
                item = self.padding
            self.taken.append(item)
        row, self.taken = self.taken, []
        return TupleValue(row) if row else None

    def recipe_of_rest(self) -> Recipe:
        none = ConstantValue(None)
        inners = [none if inner is None else self.rest_of(inner) for inner in self.inners]
        counts = [self.padding, ConstantValue(len(self.taken))]
        return zip_longest_again, [*counts, *self.taken, *inners]

    def _ask_for_row(self, tx: Interpreter, inner: Value) -> Value | None:
        """As ask; behind padding no break can stand: a row of nothing else is none."""
        padded = None in self.inners[: len(self.taken)]
        return inner.next_value(tx) if padded else self.ask(tx, inner)


class CycleIterator(IteratorValue):
    kind = itertools.cycle

    def __init__(self, inner: Value) -> None:
        super().__init__()
        self.inner = inner
        self.saved: list[Value] = []
        self.position: int | None = None  # None: still in the first round

    def step(self, tx: Interpreter) -> Value | None:
        if self.position is None:
            item = self.ask(tx, self.inner)
            if item is not None:
                self.saved.append(item)
                return item
            self.position = 0
        if not self.saved:
            return None
        item = self.saved[self.position % len(self.saved)]
        self.position += 1
        return item

    def recipe_of_rest(self) -> Recipe:
        return _cycle_after, [
            self.rest_of(self.inner),
            ListValue(self.saved),
            ConstantValue(-1 if self.position is None else self.position),
        ]


def _cycle_after(inner: Iterator[Any], saved: list[Any], position: int) -> Iterator[Any]:
    """A cycle that has given `saved` and, after the first round, `position` items more."""
    in_first_round = position < 0
    made = itertools.cycle(itertools.chain(saved, inner) if in_first_round else saved)
    for _ in range(len(saved) if in_first_round else position % len(saved)):
        next(made)
    return made


class IsliceIterator(IteratorValue):
    kind = itertools.islice

    def __init__(self, inner: Value, start: int, stop: int | None, stride: int) -> None:
        super().__init__()
        self.inner = inner
        self.stop, self.stride = stop, stride
        self.taken = 0  # items drawn from `inner` so far
        self.wanted = start  # position of the next item to give

    @classmethod
    def of(cls, tx: Interpreter, inner: Value, bounds: Sequence[Value]) -> IsliceIterator:
        none = ConstantValue(None)
        parts = [none, *bounds, none] if len(bounds) == 1 else [*bounds, none][:3]
        call_real(tx, itertools.islice, (), *(p.as_constant() for p in bounds if p.is_constant()))
        window = SliceValue(parts[0], parts[1], parts[2]).as_slice(tx)
        return cls(inner, window.start or 0, window.stop, window.step or 1)

    def step(self, tx: Interpreter) -> Value | None:
        try:
            return self._advance(tx)
        except RaisedException:
            self.exhausted = True  # by the inner iterator
            raise

    def _advance(self, tx: Interpreter) -> Value | None:
        if self.stop is not None and self.wanted >= self.stop:
            self._draw_until(tx, self.stop)
            return None
        if not self._draw_until(tx, self.wanted):
            return None
        item = self.ask(tx, self.inner)
        self.taken += 1
        self.wanted += self.stride
        return item

    def _draw_until(self, tx: Interpreter, position: int) -> bool:
        while self.taken < position:
            if self.ask(tx, self.inner) is None:
                return False
            self.taken += 1
        return True

    def recipe_of_rest(self) -> Recipe:
        stop = None if self.stop is None else max(self.stop - self.taken, 0)
        start = self.wanted - self.taken
        if stop is not None:
            start = min(start, stop)
        numbers = [ConstantValue(start), ConstantValue(stop), ConstantValue(self.stride)]
        return itertools.islice, [self.rest_of(self.inner), *numbers]


class CombinatoricIterator(IteratorValue):
    """product(), permutations(), ...: the real one, over positions in the pools."""

    def __init__(
        self, kind: Any, pools: Sequence[Sequence[Value]], make: Callable[..., Iterator[Any]]
    ) -> None:
        super().__init__()
        self.kind = kind
        self.pools = [TupleValue(pool) for pool in pools]
        self.make = make  # pools -> the iterator
        self.rows = make(*(range(len(pool)) for pool in pools))
        self.position = 0

    def step(self, tx: Interpreter) -> Value | None:
        if self.position >= config.loop_limit:
            raise Unsupported(breaks.LoopLimit(config.loop_limit))
        row = next(self.rows, None)
        if row is None:
            return None
        self.position += 1
        pools = itertools.cycle(self.pools)
        return TupleValue([pool.item(tx, i) for pool, i in zip(pools, row)])

    def recipe_of_rest(self) -> Recipe:
        return partial(_combining, self.make, self.position), self.pools


def _combining(make: Callable[..., Iterator[Any]], position: int, *pools: Any) -> Iterator[Any]:
    made = make(*pools)
    for _ in range(position):
        next(made)
    return made


@handles(builtin_polyfills.set_state)
def _set_state(tx, iterator, state):
    if isinstance(iterator, (TakewhileIterator, DropwhileIterator, AccumulateIterator)):
        tx.output.side_effects.touch(iterator)
        iterator.set_state(state)
    else:  # behind a break, an object of C: nothing reads the state in this graph
        tx.output.side_effects.call_later(builtin_polyfills.set_state, iterator, state)
    return ConstantValue(None)


# -- calls ----------------------------------------------------------------------------------------
@handles(itertools.islice)
def _islice(tx, iterable, *bounds):
    known = [bound.as_constant() if bound.is_constant() else None for bound in bounds]
    call_real(tx, itertools.islice, (), *known)  # checked before the iterable
    return IsliceIterator.of(tx, iterable.iterate(tx), bounds)


@handles(itertools.cycle)
def _cycle(tx, iterable):
    return CycleIterator(iterable.iterate(tx))


@handles(itertools.starmap)
def _starmap(tx, function, iterable, /):
    return StarmapIterator(function, iterable.iterate(tx))


@handles(itertools.takewhile)
def _takewhile(tx, predicate, iterable, /):
    return TakewhileIterator(predicate, iterable.iterate(tx))


@handles(itertools.dropwhile)
def _dropwhile(tx, predicate, iterable, /):
    return DropwhileIterator(predicate, iterable.iterate(tx))


@handles(itertools.filterfalse)
def _filterfalse(tx, function, iterable, /):
    return FilterfalseIterator(function, iterable.iterate(tx))


@handles(itertools.compress)
def _compress(tx, data, selectors):
    return CompressIterator(data.iterate(tx), selectors.iterate(tx))


@handles(itertools.pairwise)
def _pairwise(tx, iterable, /):
    return PairwiseIterator(iterable.iterate(tx))


@handles(itertools.accumulate)
def _accumulate(tx, iterable, func=None, *, initial=None):
    function, first = (None if is_none(value) else value for value in (func, initial))
    return AccumulateIterator(iterable.iterate(tx), function, first)


@handles(itertools.zip_longest)
def _zip_longest_call(tx, *iterables, fillvalue=None):
    inners = [iterable.iterate(tx) for iterable in iterables]
    return ZipLongestIterator(inners, ConstantValue(None) if fillvalue is None else fillvalue)


def _combinatoric(function: Any) -> Any:
    def call(tx, *args, **kwargs):
        options = {k: v.as_constant() for k, v in kwargs.items()}
        of_many = function is itertools.product
        given, rest = (args, ()) if of_many else (args[:1], args[1:])
        numbers = [value.as_constant() for value in rest]
        if of_many:  # complains of its options before it asks for an iterator
            call_real(tx, function, **options)
        pools = [value.unpack(tx) for value in given]

        def make(*iterables: Any) -> Any:
            return function(*iterables, *numbers, **options)

        call_real(tx, make, *(() for _ in pools))  # complains of the other arguments
        return CombinatoricIterator(function, pools, make)

    return call


for _function in (
    itertools.product,
    itertools.permutations,
    itertools.combinations,
    itertools.combinations_with_replacement,
):
    TABLE[_function] = _combinatoric(_function)


@handles(itertools.count)
def _count(tx, start=None, step=None):
    given = [ConstantValue(0) if start is None else start, step or ConstantValue(1)]
    numbers = ("__index__", "__int__", "__float__", "__complex__")
    for value in given:
        if not any(hasattr(value.python_type(), name) for name in numbers):
            fail_as(tx, itertools.count, *given)
    return CountIterator(*given)
