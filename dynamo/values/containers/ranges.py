"""range and slice."""

from __future__ import annotations

import operator
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

from dynamo import breaks
from dynamo.config import config
from dynamo.errors import Unsupported
from dynamo.guards.sources import AttrSource, Source
from dynamo.values.base import Value
from dynamo.values.builder import builder
from dynamo.values.containers.hash_keys import key_of
from dynamo.values.iterators.stored_iterators import IteratorValue, iterator_at
from dynamo.values.objects.builtin_object import BuiltinObject
from dynamo.values.objects.exceptions import call_real
from dynamo.values.recipes import SLICE, Recipe
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.scalars.operators import as_index, binary_op, compare_op

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter


class SliceValue(BuiltinObject):
    """slice(start, stop, step); its parts may be symbolic."""

    is_guarded_distinct = True

    def __init__(
        self, start: Value, stop: Value, step: Value, source: Source | None = None
    ) -> None:
        super().__init__(source)
        self.parts = (start, stop, step)

    def python_type(self) -> type:
        return slice

    def as_constant(self) -> Any:
        return slice(*(p.as_constant() for p in self.parts))

    def as_proxy(self) -> Any:
        return slice(*(p.as_proxy() for p in self.parts))

    def as_slice(self, tx: Interpreter) -> slice:
        """The real slice of indices known while capturing."""
        return slice(*(self._bound(tx, part) for part in self.parts))

    def _bound(self, tx: Interpreter, part: Value) -> int | None:
        if not part.is_constant():
            return as_index(tx, part)
        real = part.as_constant()
        if real is not None and not hasattr(real, "__index__"):
            call_real(tx, operator.getitem, [], slice(real))
        return None if real is None else operator.index(real)

    def getattr(self, tx: Interpreter, name: str) -> Value:
        names = ("start", "stop", "step")
        return self.parts[names.index(name)] if name in names else super().getattr(tx, name)

    def py_indices(self, tx, length):
        return tx.from_constant(call_real(tx, self.as_slice(tx).indices, as_index(tx, length)))

    def hash_key(self, tx: Interpreter) -> Hashable:
        call_real(tx, hash, slice(0))  # before 3.12, slices have no hash
        return (SliceValue, *(key_of(tx, part) for part in self.parts))

    def compare(self, tx: Interpreter, op: str, other: Value) -> Value | None:
        if not isinstance(other, SliceValue):
            return None
        return tx.new_tuple(self.parts).compare(tx, op, tx.new_tuple(other.parts))

    def recipe(self) -> Recipe:
        return SLICE, self.parts


class RangeValue(BuiltinObject):
    """A range of ints known while capturing."""

    is_guarded_distinct = True

    def __init__(self, real: range, source: Source | None = None) -> None:
        super().__init__(source)
        self.real = real

    def python_type(self) -> type:
        return range

    def as_constant(self) -> Any:
        return self.real

    def as_proxy(self) -> Any:
        return self.real

    def identity(self) -> tuple[bool, Any]:
        return (False, None)

    def length(self, tx: Interpreter) -> int:
        return call_real(tx, len, self.real)

    def truth(self, tx: Interpreter) -> bool:
        return bool(self.real)

    def hash_key(self, tx: Interpreter) -> Hashable:
        return self.real

    def unpack(self, tx: Interpreter) -> list[Value]:
        if self.real[config.loop_limit :]:
            raise Unsupported(breaks.LoopLimit(config.loop_limit))
        return [ConstantValue(i) for i in self.real]

    def iterate(self, tx: Interpreter) -> Value:
        return RangeIterator(self.real)

    def getattr(self, tx: Interpreter, name: str) -> Value:
        if name in ("start", "stop", "step"):
            return ConstantValue(getattr(self.real, name))
        return super().getattr(tx, name)

    def getitem(self, tx: Interpreter, key: Value) -> Value:
        if isinstance(key, SliceValue):
            return RangeValue(call_real(tx, operator.getitem, self.real, key.as_slice(tx)))
        index = key.as_constant() if key.is_constant() else as_index(tx, key)
        return ConstantValue(call_real(tx, operator.getitem, self.real, index))

    def contains(self, tx: Interpreter, item: Value) -> Value:
        if item.is_symbolic() and item.python_type() is int and self.real.step == 1:
            start, stop = ConstantValue(self.real.start), ConstantValue(self.real.stop)
            above, below = compare_op(tx, "<=", start, item), compare_op(tx, "<", item, stop)
            return binary_op(tx, "&", above, below)
        return ConstantValue(item.as_constant() in self.real)

    def setattr(self, tx: Interpreter, name: str, value: Value) -> None:
        call_real(tx, setattr, self.real, name, None)

    def compare(self, tx: Interpreter, op: str, other: Value) -> Value | None:
        if op not in ("==", "!=") or not isinstance(other, RangeValue):
            return None
        return ConstantValue((self.real == other.real) is (op == "=="))

    def py_index(self, tx, item):
        return ConstantValue(call_real(tx, self.real.index, item.as_constant()))

    def py_count(self, tx, item):
        return ConstantValue(self.real.count(item.as_constant()))

    def recipe(self) -> Recipe:
        return range, [ConstantValue(n) for n in (self.real.start, self.real.stop, self.real.step)]


class SymbolicRange(RangeValue):
    """range(start, stop) of symbolic numbers. Only a reader of its items, or of their number
    while capturing, needs the numbers themselves.
    """

    def __init__(self, tx: Interpreter, start: Value, stop: Value) -> None:
        BuiltinObject.__init__(self, None)
        self.tx = tx
        self.start, self.stop = start, stop

    @property
    def real(self) -> range:  # type: ignore[override]
        return range(as_index(self.tx, self.start), as_index(self.tx, self.stop))

    def truth(self, tx: Interpreter) -> bool:
        return compare_op(tx, "<", self.start, self.stop).truth(tx)

    def length_value(self, tx: Interpreter) -> Value:
        some = self.truth(tx)
        return binary_op(tx, "-", self.stop, self.start) if some else ConstantValue(0)

    def getattr(self, tx: Interpreter, name: str) -> Value:
        known = {"start": self.start, "stop": self.stop, "step": ConstantValue(1)}
        return known[name] if name in known else super().getattr(tx, name)

    def getitem(self, tx: Interpreter, key: Value) -> Value:
        if key.is_constant() and type(key.as_constant()) is int:
            end = self.start if key.as_constant() >= 0 else self.stop
            found = binary_op(tx, "+", end, key)
            if self._holds(tx, found):
                return found
        return super().getitem(tx, key)

    def contains(self, tx: Interpreter, item: Value) -> Value:
        if item.python_type() is not int:
            return super().contains(tx, item)
        return ConstantValue(self._holds(tx, item))

    def _holds(self, tx: Interpreter, number: Value) -> bool:
        above = compare_op(tx, "<=", self.start, number).truth(tx)
        return above and compare_op(tx, "<", number, self.stop).truth(tx)

    def iterate(self, tx: Interpreter) -> Value:
        return SymbolicRangeIterator(self)

    def recipe(self) -> Recipe:
        return range, [self.start, self.stop]


def range_of(tx: Interpreter, args: Sequence[Value]) -> RangeValue:
    """range(*args)"""
    if not 1 <= len(args) <= 3:
        call_real(tx, range, *[0 for _ in args])
    varies = len(args) in (1, 2) and any(arg.is_symbolic() for arg in args)
    if varies and all(arg.python_type() is int for arg in args):
        return SymbolicRange(tx, *([ConstantValue(0), *args][-2:]))
    return RangeValue(call_real(tx, range, *[as_index(tx, arg) for arg in args]))


@builder(range)
def build_range(tx: Interpreter, obj: range, source: Source | None) -> Value:
    tx.guard(source, "type", range)
    for part in _parts(tx, obj, source):
        as_index(tx, part)  # a symbol is guarded to be the number that it is now
    return tx.output.remember(obj, source, RangeValue(obj, source))


@builder(slice)
def build_slice(tx: Interpreter, obj: slice, source: Source | None) -> Value:
    tx.guard(source, "type", slice)
    start, stop, step = _parts(tx, obj, source)
    return tx.output.remember(obj, source, SliceValue(start, stop, step, source))


def _parts(tx: Interpreter, obj: Any, source: Source | None) -> list[Value]:
    return [
        tx.wrap(getattr(obj, name), None if source is None else AttrSource(source, name))
        for name in ("start", "stop", "step")
    ]


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

    def count_left(self) -> int:
        return len(self.whole) - self.position

    def recipe_of_rest(self) -> Recipe:
        return iterator_at, [RangeValue(self.whole), ConstantValue(self.position)]


class SymbolicRangeIterator(RangeIterator):
    """The first iteration of a loop needs to know that there is one; only the second one needs the
    numbers. A loop that breaks the graph in its first iteration does so for every length.
    """

    def __init__(self, of: SymbolicRange) -> None:
        IteratorValue.__init__(self)
        self.of = of
        self.position = 0

    @property
    def whole(self) -> range:  # type: ignore[override]
        return self.of.real

    def python_type(self) -> type:
        return type(iter(range(0)))

    def step(self, tx: Interpreter) -> Value | None:
        if self.position:
            return super().step(tx)
        if not self.of.truth(tx):
            return None
        self.position = 1
        return self.of.start

    def recipe_of_rest(self) -> Recipe:
        return iterator_at, [self.of, ConstantValue(self.position)]
