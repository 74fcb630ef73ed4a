"""The base of iterators, and the iterators over the items of one container.

Each iterator knows its position, and how to be made again where it stands: `recipe_of_rest()` is
the recipe of one that is not at its end; at its end an iterator is made from its type alone.
"""

from __future__ import annotations

import collections
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.polyfills import builtins as builtin_polyfills
from dynamo.polyfills.rematerialise import Drawn
from dynamo.values.base import Value
from dynamo.values.builtins.program_code import ITERATION, calls, runs
from dynamo.values.iterators.exhausted_iterators import NoItems, ended
from dynamo.values.objects.builtin_object import BuiltinObject
from dynamo.values.objects.exceptions import RaisedException, is_exception, raise_python
from dynamo.values.recipes import LIST, Made, Recipe, operand_values
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.scalars.operators import equal
from dynamo.values.stack_items import CatchContinuation

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter
    from dynamo.values.containers.containers import DequeValue, SequenceValue
    from dynamo.values.containers.dicts import DictValue
    from dynamo.values.containers.sets import FrozenSetValue


class IteratorValue(BuiltinObject):
    """Base class; subclasses define `step` (the next item, or None) and `recipe`."""

    kind: type = type(iter([]))
    remembers_end = True  # False: asked again behind its end, it asks those that it is made of
    exhausted = False
    calls = False  # whether a step does more to its operands than to ask them for items
    _drawn: DrawnIterator | None = None  # see ask
    is_drawn = False  # by a generator, with which it stays virtual behind a graph break
    of_loop = False  # nothing but a `for` has the iterator

    def python_type(self) -> type:
        return self.kind

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

    def step_runs_code(self) -> bool:
        if self.calls or self.exhausted:
            return self.calls
        try:
            operands = self.children()
        except Unsupported:
            return False
        return any(runs(v, ITERATION) or v.step_runs_code() for v in operands)

    @functools.cached_property
    def steps_call(self) -> bool:
        """Whether a step calls functions of the program's that are no generators: in the iterators
        that it asks, too.
        """
        try:
            operands = () if self.calls else self.children()
        except Unsupported:
            return False
        return self.calls or any(map(steps_call, operands))

    def ask(self, tx: Interpreter, inner: Value) -> Value | None:
        """The next item of the inner iterator. A graph break can stand in there: made again then,
        this asks again. Where the inner one calls functions of the program, a generator draws the
        item.
        """
        drawn = None
        if calls_itself(inner) and self._may_draw() and tx.resumption_of(self) is not None:
            drawn = self._drawn = DrawnIterator(drawing(tx, inner), inner)
        self.asking = inner if drawn is None else drawn
        item = self.asking.next_value(tx)
        self.asking = None
        if drawn is not None:
            self._drawn = None
        return item

    def _may_draw(self) -> bool:
        """Whether no generator draws an item for this one: a function may ask it once more."""
        return self._drawn is None or not self._drawn.is_drawing

    def rest_of(self, inner: Value) -> Value:
        """The items that an inner iterator has left, where a break may stand in it."""
        if self._drawn is not None and self._drawn.inner is inner:
            return self._drawn.undrawn()
        return inner.undrawn() if isinstance(inner, DrawnIterator) else inner

    def contains(self, tx: Interpreter, item: Value) -> Value:
        while (value := self.next_value(tx)) is not None:
            if equal(tx, value, item):
                return ConstantValue(True)
        return ConstantValue(False)

    def spoiled(self) -> bool:
        """Whether the iterator would differ once the rewritten frame writes the recorded changes:
        the frame makes all values before.
        """
        return False

    def children(self) -> Sequence[Value]:
        return () if self.exhausted else list(operand_values(self.recipe_of_rest()[1], Value))

    def recipe(self) -> Recipe:
        if self.exhausted:
            return partial(ended, self.python_type()), []
        if self.spoiled():
            what = f"{self.python_type().__name__} of a container that the frame changes"
            raise Unsupported(breaks.CannotReconstruct(what))
        return self.recipe_of_rest()

    def recipe_of_rest(self) -> Recipe:
        """The recipe of an iterator which is not exhausted."""
        raise Unsupported(breaks.CannotReconstruct(self.describe()))

    def py___next__(self, tx):
        item = self.next_value(tx)
        if item is None:
            raise_python(tx, StopIteration)
        return item


class DrawnIterator(IteratorValue):
    """The iterator `inner`, whose next item comes from a generator that has begun to draw it, in
    the place of which others ask this one: behind a graph break, the generator goes on.
    """

    kind = Drawn
    remembers_end = False

    def __init__(self, generator: Any, inner: Value) -> None:
        super().__init__()
        self.generator = generator
        self.inner = inner
        if isinstance(inner, IteratorValue):
            inner.is_drawn = True

    @property
    def is_drawing(self) -> bool:
        return not (self.generator.frame.done or self.generator.frame.yielded)

    def step(self, tx: Interpreter) -> Value | None:
        begun = self.is_drawing and not self.generator.running
        return self.ask(tx, self.generator if begun else self.inner)

    def undrawn(self) -> Value:
        return self if self.is_drawing else self.rest_of(self.inner)

    def recipe_of_rest(self) -> Recipe:
        return Drawn, [self.generator, self.rest_of(self.inner)]


def drawing(tx: Interpreter, iterator: Value) -> Any:
    """The generator that draws the next item, in front of its FOR_ITER: `iter` is not asked."""
    generator: Any = tx.wrap(builtin_polyfills.draw).call(tx, [iterator], {})
    frame = generator.frame
    frame.push(iterator)
    frame.index = next(i for i, (_, at) in enumerate(frame.program) if at.op == "FOR_ITER")
    return generator


def calls_itself(value: Value) -> bool:
    """Whether a step of the iterator calls a function of the program's, which is no generator."""
    if not isinstance(value, IteratorValue):
        return runs(value, ("__next__",))
    return value.calls and calls(getattr(value, "function", None))


def steps_call(value: Value) -> bool:
    return value.steps_call if isinstance(value, IteratorValue) else runs(value, ("__next__",))


class SequenceIterator(IteratorValue):
    """iter() of a list, tuple or deque: live, as Python's."""

    def __init__(self, owner: SequenceValue, position: int = 0) -> None:
        super().__init__()
        self.owner = owner
        self.position = position

    def python_type(self) -> type:
        return type(iter(self.owner.cls())) if self.owner.cls in (list, tuple) else self.kind

    def step(self, tx: Interpreter) -> Value | None:
        if self.position >= self.owner.size:
            return None
        self.position += 1
        return self.owner.item(tx, self.position - 1)

    def count_left(self) -> int:
        return self.owner.size - self.position

    def spoiled(self) -> bool:
        return self.position > self.owner.length_before_writes()

    def recipe_of_rest(self) -> Recipe:
        if self.position == 0:
            return plain_iter(self.owner), [self.owner]
        return iterator_at, [self.owner, ConstantValue(self.position)]


class DequeIterator(SequenceIterator):
    kind: type = type(iter(collections.deque()))
    remembers_end = False

    owner: DequeValue

    def __init__(self, owner: DequeValue) -> None:
        super().__init__(owner)
        self.state = owner.state

    def step(self, tx: Interpreter) -> Value | None:
        if self.owner.state != self.state:
            raise_python(tx, RuntimeError, "deque mutated during iteration")
        return super().step(tx)

    def spoiled(self) -> bool:
        return self.owner.rewritten()

    def children(self) -> Sequence[Value]:
        return [self.owner]

    def recipe_of_rest(self) -> Recipe:
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
            return plain_iter(self.owner), [self.owner]
        return _skipped, [self.owner, ConstantValue(self.position)]


_SEQUENCES = (list, tuple, str, bytes)


def plain_iter(owner: Value) -> Callable[..., Any]:
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
        self.position = owner.size - 1
        deque: Any = owner if issubclass(owner.cls, collections.deque) else None
        self.deque = deque
        self.state = 0 if deque is None else deque.state
        self.remembers_end = self.deque is None

    def python_type(self) -> type:
        cls = self.owner.cls
        plain = cls if issubclass(cls, (list, collections.deque)) else tuple
        return type(reversed(plain()))

    def step(self, tx: Interpreter) -> Value | None:
        if self.position < 0:
            return None
        if self.deque is not None and self.deque.state != self.state:
            self.exhausted = True
            raise_python(tx, RuntimeError, "deque mutated during iteration")
        if self.position >= self.owner.size:
            return None
        self.position -= 1
        return self.owner.item(tx, self.position + 1)

    def spoiled(self) -> bool:
        if self.deque is not None:
            return self.deque.rewritten()
        return self.position >= self.owner.length_before_writes()

    def recipe_of_rest(self) -> Recipe:
        if self.deque is not None:
            if self.deque.state != self.state:
                raise Unsupported(breaks.CannotReconstruct("an iterator whose deque has changed"))
            drawn = self.owner.size - 1 - self.position
            return self.python_type(), [self.owner, ConstantValue(drawn)]
        if self.owner.cls not in (list, tuple):
            return reversed, [Made(LIST, *self.owner.contents[: self.position + 1])]
        if self.position == self.owner.size - 1 and self.owner.holder is None:
            return reversed, [self.owner]
        return reversed_at, [self.owner, ConstantValue(self.position)]


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
        return value if self.view == "values" else tx.new_tuple([key, value])

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
        view = self.owner.view(self.view)
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


_ENDS_ITEMS = (IndexError, StopIteration)


class ItemProtocolIterator(IteratorValue):
    """iter() of an object that has only __getitem__."""

    kind = type(iter(NoItems()))
    calls = True

    def __init__(self, owner: Value) -> None:
        super().__init__()
        self.owner = owner
        self.position = 0

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
