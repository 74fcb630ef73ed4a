"""Iterators: each knows its position, and how to be made again where it stands.

`recipe_of_rest()` is the recipe of one that is not at its end; at its end an iterator is made from
its type alone.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.polyfills import builtins as builtin_polyfills
from dynamo.polyfills.rematerialise import chain_after, map_again, zip_again
from dynamo.values.base import Value
from dynamo.values.builtin_object import BuiltinObject
from dynamo.values.constant import ConstantValue
from dynamo.values.containers import DequeValue, ListValue, SequenceValue, TupleValue
from dynamo.values.dicts import DictView
from dynamo.values.exceptions import RaisedException, is_exception, raise_python
from dynamo.values.exhausted_iterators import NoItems, ended
from dynamo.values.operators import binary_op, equal
from dynamo.values.polyfill_calls import run_polyfill
from dynamo.values.ranges import RangeValue
from dynamo.values.recipes import Recipe
from dynamo.values.stack_items import CatchContinuation

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter
    from dynamo.values.dicts import DictValue
    from dynamo.values.sets import FrozenSetValue


class IteratorValue(BuiltinObject):
    """Base class; subclasses define `step` (the next item, or None) and `recipe`."""

    kind: type = type(iter([]))
    remembers_end = True  # False: asked again behind its end, it asks those that it is made of
    exhausted = False

    def python_type(self) -> type:
        return self.kind

    def truth(self, tx: Interpreter) -> bool:
        return True

    def iterate(self, tx: Interpreter) -> Value:
        return self

    def next_value(self, tx: Interpreter) -> Value | None:
        if self.exhausted:
            return None
        tx.output.side_effects.touch(self)
        try:
            item = self.step(tx)
        except RaisedException as error:
            if is_exception(error, StopIteration):  # of a function that C called: no item
                return None
            raise
        if item is None:
            self.exhausted = self.exhausted or self.remembers_end
        return item

    def step(self, tx: Interpreter) -> Value | None:
        raise NotImplementedError(type(self))

    def ask(self, tx: Interpreter, inner: Value) -> Value | None:
        """The next item of what this is made of. A graph break can stand in there: made again then,
        this asks again.
        """
        self.asking = inner
        item = inner.next_value(tx)
        self.asking = None
        return item

    def contains(self, tx: Interpreter, item: Value) -> Value:
        while (value := self.next_value(tx)) is not None:
            if equal(tx, value, item):
                return ConstantValue(True)
        return ConstantValue(False)

    def spoiled(self) -> bool:
        """Whether it would be another once the rewritten frame writes what was changed: it makes
        all values before.
        """
        return False

    def children(self) -> Sequence[Value]:
        return () if self.exhausted else self.recipe_of_rest()[1]

    def recipe(self) -> Recipe:
        if self.exhausted:
            return partial(ended, self.python_type()), []
        if self.spoiled():
            what = f"{self.python_type().__name__} of a container that the frame changes"
            raise Unsupported(breaks.CannotReconstruct(what))
        return self.recipe_of_rest()

    def recipe_of_rest(self) -> Recipe:
        """That of an iterator which is not exhausted."""
        raise Unsupported(breaks.CannotReconstruct(self.describe()))

    def py___next__(self, tx):
        item = self.next_value(tx)
        if item is None:
            raise_python(tx, StopIteration)
        return item


class SequenceIterator(IteratorValue):
    """iter() of a list, tuple or deque: live, as Python's."""

    def __init__(self, owner: SequenceValue, position: int = 0) -> None:
        super().__init__()
        self.owner = owner
        self.position = position

    def python_type(self) -> type:
        return type(iter(self.owner.cls())) if self.owner.cls in (list, tuple) else self.kind

    def step(self, tx: Interpreter) -> Value | None:
        if self.position >= len(self.owner.contents):
            return None
        self.position += 1
        return self.owner.item(tx, self.position - 1)

    def spoiled(self) -> bool:
        return self.position > self.owner.length_before_writes()

    def recipe_of_rest(self) -> Recipe:
        if self.position == 0:
            return _plain_iter(self.owner), [self.owner]
        return iterator_at, [self.owner, ConstantValue(self.position)]


class DequeIterator(SequenceIterator):
    kind: type = type(iter(collections.deque()))
    remembers_end = False

    def __init__(self, owner: DequeValue) -> None:
        super().__init__(owner)
        self.state = owner.state

    def step(self, tx: Interpreter) -> Value | None:
        assert isinstance(self.owner, DequeValue)
        if self.owner.state != self.state:
            raise_python(tx, RuntimeError, "deque mutated during iteration")
        return super().step(tx)

    def spoiled(self) -> bool:
        return self.owner.rewritten()

    def children(self) -> Sequence[Value]:
        return [self.owner]

    def recipe_of_rest(self) -> Recipe:
        assert isinstance(self.owner, DequeValue)
        if self.owner.state != self.state:
            raise Unsupported(breaks.CannotReconstruct("an iterator whose deque has changed"))
        return self.kind, [self.owner, ConstantValue(self.position)]


class SetIterator(IteratorValue):
    """Over a set, in the order that it had when the iteration began."""

    kind: type = type(iter(set()))

    def __init__(self, owner: FrozenSetValue, items: list[Value]) -> None:
        super().__init__()
        self.owner = owner
        self.items = items
        self.keys = list(owner.members)
        self.position = 0
        self.failed = False  # for good

    def step(self, tx: Interpreter) -> Value | None:
        members = self.owner.members
        if self.failed or len(members) != len(self.items):
            self.failed = True
            raise_python(tx, RuntimeError, "Set changed size during iteration")
        if any(key not in members for key in self.keys):
            raise Unsupported(breaks.SetOrder(self.owner.describe()))
        if self.position >= len(self.items):
            return None
        self.position += 1
        return self.items[self.position - 1]

    def spoiled(self) -> bool:
        return self.owner.rewritten()

    def children(self) -> Sequence[Value]:
        return [self.owner, *self.items]

    def recipe_of_rest(self) -> Recipe:
        if self.failed or list(self.owner.members) != self.keys:
            raise Unsupported(breaks.CannotReconstruct("an iterator whose set has changed"))
        if self.position == 0:
            return _plain_iter(self.owner), [self.owner]
        return _skipped, [self.owner, ConstantValue(self.position)]


_SEQUENCES = (list, tuple, str, bytes)


def _plain_iter(owner: Value) -> Callable[..., Any]:
    """iter() past any `__iter__` of the class of which `owner` is the built-in part."""
    cls: Any = owner.python_type()
    return iter if owner.holder is None else cls.__iter__


def iterator_at(sequence: Any, position: int) -> Iterator[Any]:
    """iter(sequence) after `position` items."""
    built_in = next((base for base in _SEQUENCES if isinstance(sequence, base)), None)
    iterator = iter(sequence) if built_in is None else built_in.__iter__(sequence)
    if hasattr(iterator, "__setstate__"):
        iterator.__setstate__(position)
        return iterator
    return itertools.islice(iterator, position, None)


def reversed_at(sequence: Any, position: int) -> Iterator[Any]:
    """reversed(sequence) whose next item is sequence[position]."""
    built_in = isinstance(sequence, list)
    iterator: Any = list.__reversed__(sequence) if built_in else reversed(sequence)
    iterator.__setstate__(position)
    return iterator


class ReversedIterator(IteratorValue):
    def __init__(self, owner: SequenceValue) -> None:
        super().__init__()
        self.owner = owner
        self.position = len(owner.contents) - 1
        self.state = owner.state if isinstance(owner, DequeValue) else 0
        self.remembers_end = not isinstance(owner, DequeValue)

    def python_type(self) -> type:
        owner = self.owner
        plain = owner.cls if isinstance(owner, (ListValue, DequeValue)) else tuple
        return type(reversed(plain()))

    def step(self, tx: Interpreter) -> Value | None:
        if self.position < 0:
            return None
        if isinstance(self.owner, DequeValue) and self.owner.state != self.state:
            self.exhausted = True
            raise_python(tx, RuntimeError, "deque mutated during iteration")
        if self.position >= len(self.owner.contents):
            return None
        self.position -= 1
        return self.owner.item(tx, self.position + 1)

    def spoiled(self) -> bool:
        if isinstance(self.owner, DequeValue):
            return self.owner.rewritten()
        return self.position >= self.owner.length_before_writes()

    def recipe_of_rest(self) -> Recipe:
        if isinstance(self.owner, DequeValue):
            if self.owner.state != self.state:
                raise Unsupported(breaks.CannotReconstruct("an iterator whose deque has changed"))
            drawn = len(self.owner.contents) - 1 - self.position
            return self.python_type(), [self.owner, ConstantValue(drawn)]
        if type(self.owner) not in (ListValue, TupleValue):
            return reversed, [ListValue(self.owner.contents[: self.position + 1])]
        if self.position == len(self.owner.contents) - 1 and self.owner.holder is None:
            return reversed, [self.owner]
        return reversed_at, [self.owner, ConstantValue(self.position)]


class RangeIterator(IteratorValue):
    remembers_end = False

    def __init__(self, whole: range, position: int = 0) -> None:
        super().__init__()
        self.whole = whole
        self.position = position

    def python_type(self) -> type:
        return type(iter(self.whole))

    def step(self, tx: Interpreter) -> Value | None:
        rest = self.whole[self.position :]
        if not rest:
            return None
        self.position += 1
        return ConstantValue(rest[0])

    def recipe_of_rest(self) -> Recipe:
        return iterator_at, [RangeValue(self.whole), ConstantValue(self.position)]


class DictIterator(IteratorValue):
    """Over keys, values or items of a dict; a change of size during iteration raises, as Python
    does.
    """

    backwards = False

    def __init__(self, owner: DictValue, view: str) -> None:
        super().__init__()
        self.owner = owner
        self.view = view
        self.position = 0
        self.keys: list[Any] | None = None
        self.state = owner.state
        self.failed = False  # for good

    def python_type(self) -> type:
        return type(iter(getattr(self.owner.cls(), self.view)()))

    def step(self, tx: Interpreter) -> Value | None:
        entries = self.owner.load_all(tx)
        if self.keys is None:
            self.keys = list(entries)[::-1] if self.backwards else list(entries)
        if issubclass(self.owner.cls, collections.OrderedDict) and self.position >= len(self.keys):
            return None  # whatever was changed
        if self.failed or self.owner.state != self.state or len(entries) != len(self.keys):
            self._changed(tx, len(entries) != len(self.keys))
        if self.position >= len(self.keys):
            return None
        hashed = self.keys[self.position]
        self.position += 1
        key = self.owner.key_of_entry(hashed)
        if self.view == "keys":
            return key
        value = self.owner._value_of(hashed, entries[hashed])
        return value if self.view == "values" else TupleValue([key, value])

    def _changed(self, tx: Interpreter, size: bool) -> None:
        if issubclass(self.owner.cls, collections.OrderedDict):
            self.exhausted = True
            raise_python(tx, RuntimeError, "OrderedDict mutated during iteration")
        if size or self.failed:
            self.failed = True
            raise_python(tx, RuntimeError, "dictionary changed size during iteration")
        # Whether that is noticed, and which keys come, depends on the places in the table.
        raise Unsupported(breaks.NotIterable(f"{self.owner.describe()}, whose keys change"))

    def spoiled(self) -> bool:
        return self.owner.rewritten()

    def children(self) -> Sequence[Value]:
        return [self.owner]

    def recipe_of_rest(self) -> Recipe:
        if self.failed or self.owner.state != self.state:
            raise Unsupported(breaks.CannotReconstruct("an iterator whose dict has changed"))

        view = DictView(self.owner, self.view)
        if self.position == 0:
            return iter, [view]
        return _skipped, [view, ConstantValue(self.position)]


class ReversedDictIterator(DictIterator):
    backwards = True

    def python_type(self) -> type:
        return type(reversed(getattr(self.owner.cls(), self.view)()))

    def recipe_of_rest(self) -> Recipe:
        _, (view, *_) = super().recipe_of_rest()
        return _skipped_backwards, [view, ConstantValue(self.position)]


def _skipped(iterable: Any, count: int) -> Iterator[Any]:
    """iter(iterable) of a set or a view of a dict after `count` items."""
    built_in = next((base for base in (set, frozenset) if isinstance(iterable, base)), None)
    iterator = iter(iterable) if built_in is None else built_in.__iter__(iterable)
    for _ in range(count):
        next(iterator)
    return iterator


def _skipped_backwards(view: Any, count: int) -> Iterator[Any]:
    iterator = reversed(view)
    for _ in range(count):
        next(iterator)
    return iterator


class EnumerateIterator(IteratorValue):
    kind = enumerate
    remembers_end = False

    def __init__(self, inner: Value, count: int) -> None:
        super().__init__()
        self.inner = inner
        self.count = count

    def step(self, tx: Interpreter) -> Value | None:
        item = self.ask(tx, self.inner)
        if item is None:
            return None
        self.count += 1
        return TupleValue([ConstantValue(self.count - 1), item])

    def recipe_of_rest(self) -> Recipe:
        return enumerate, [self.inner, ConstantValue(self.count)]


class ZipIterator(IteratorValue):
    kind = zip
    remembers_end = False

    def __init__(self, inners: Sequence[Value], strict: bool = False) -> None:
        super().__init__()
        self.inners = inners
        self.strict = strict
        self.taken: list[Value] = []  # of the row that comes next

    def step(self, tx: Interpreter) -> Value | None:
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
        if not (self.strict or self.taken):
            return zip, self.inners
        counts = [ConstantValue(self.strict), ConstantValue(len(self.taken))]
        return zip_again, [*counts, *self.taken, *self.inners]


def _strict_message(number: int, word: str) -> str:
    others = "argument 1" if number == 1 else f"arguments 1-{number}"
    return f"zip() argument {number + 1} is {word} than {others}"


def _row(tx: Interpreter, rows: ZipIterator | MapIterator) -> list[Value]:
    """The next items of its iterators, up to one that has none. A graph break may stand in the
    middle: what was taken before comes with it.
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
    remembers_end = False

    def __init__(self, function: Value, inners: Sequence[Value]) -> None:
        super().__init__()
        self.function = function
        self.inners = inners
        self.taken: list[Value] = []  # as of zip

    def step(self, tx: Interpreter) -> Value | None:
        args = _row(tx, self)
        if len(args) < len(self.inners):
            return None
        return tx.call_at_end(self, "__next__", self.function, args)

    def recipe_of_rest(self) -> Recipe:
        if not self.taken:
            return map, [self.function, *self.inners]
        return map_again, [self.function, ConstantValue(len(self.taken)), *self.taken, *self.inners]


class FilterIterator(IteratorValue):
    kind: type = filter
    remembers_end = False
    wanted = True

    def __init__(self, function: Value, inner: Value) -> None:
        super().__init__()
        self.function = function
        self.inner = inner

    def step(self, tx: Interpreter) -> Value | None:
        pushed = tx.tail_pushes(self, "__next__")
        if pushed is not None and not self.function.is_constant():
            said = builtin_polyfills.next_kept if self.wanted else builtin_polyfills.next_left_out
            made = run_polyfill(tx, said, [self.function, self.inner], pushed=pushed)
            if made is not None:
                return made
        while (item := self.ask(tx, self.inner)) is not None:
            verdict = item
            if not (self.function.is_constant() and self.function.as_constant() is None):
                verdict = tx.call_function(self.function, [item], {})
            if verdict.truth(tx) is self.wanted:
                return item
        return None

    def recipe_of_rest(self) -> Recipe:
        return filter, [self.function, self.inner]


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
    """What the iterators of one tee() share: where items come from, and those drawn so far.

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


class TeeIterator(IteratorValue):
    kind: type = type(itertools.tee(())[0])
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

    def step(self, tx: Interpreter) -> Value | None:
        while True:
            if self.inner is None:
                iterable = self.ask(tx, self.outer)
                if iterable is None:
                    return None
                self.inner = iterable.iterate(tx)
            item = self.ask(tx, self.inner)
            if item is not None:
                return item
            self.inner = None

    def recipe_of_rest(self) -> Recipe:
        if self.inner is None:
            return itertools.chain.from_iterable, [self.outer]
        return chain_after, [self.inner, self.outer]


class CallIterator(IteratorValue):
    """iter(callable, sentinel)."""

    kind = type(iter(int, 0))

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


_ENDS_ITEMS = (IndexError, StopIteration)


class ItemProtocolIterator(IteratorValue):
    """iter() of an object that has only __getitem__."""

    kind = type(iter(NoItems()))

    def __init__(self, owner: Value, position: int = 0) -> None:
        super().__init__()
        self.owner = owner
        self.position = position
        self.of_loop = False  # nothing but a `for` has it

    def step(self, tx: Interpreter) -> Value | None:
        position = ConstantValue(self.position)
        if self.of_loop and tx.tail_pushes(self, "__next__") is not None:
            # Counted early: nobody sees where it stands while an item is asked for.
            self.position += 1
            tx.in_tail_position(self.owner, "__getitem__", [CatchContinuation(_ENDS_ITEMS)])
        try:
            item = self.owner.getitem(tx, position)
        except RaisedException as error:
            self.position = position.as_constant()
            if is_exception(error, *_ENDS_ITEMS):
                return None
            raise
        self.position = position.as_constant() + 1
        return item

    def recipe_of_rest(self) -> Recipe:
        return iterator_at, [self.owner, ConstantValue(self.position)]
