"""Sequences and sets: list, tuple, named tuple, torch.Size, deque, range, slice, set, frozenset.

A container from outside is guarded by type, and by length once that is asked for; items become
Values when they are used. One made by the frame holds its items and is built again from them.
Methods are the functions named `py_<method>`.
"""

from __future__ import annotations

import collections
import functools
import itertools
import math
import operator
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from dynamo import breaks
from dynamo.config import config
from dynamo.errors import Unsupported
from dynamo.guards.sources import AttrSource, ItemSource, SequenceItemSource, Source
from dynamo.values.base import Value
from dynamo.values.builder import builder, special_builder
from dynamo.values.classes.lookup import type_holds
from dynamo.values.containers.hash_keys import key_of, unhashable
from dynamo.values.containers.named_tuples import field_names, is_named_tuple
from dynamo.values.containers.outside_items import OutsideItems, refuse_long
from dynamo.values.containers.ranges import SliceValue
from dynamo.values.containers.sorting import sort_in_place
from dynamo.values.dummy_operands import fail_as, fail_naming
from dynamo.values.iterators.stored_iterators import (
    DequeIterator,
    ReversedIterator,
    SequenceIterator,
)
from dynamo.values.late_bound import bound_late
from dynamo.values.objects.builtin_object import BuiltinObject, Pending, refill
from dynamo.values.objects.descriptors import assume_lookup, class_lookup
from dynamo.values.objects.exceptions import call_real, raise_python
from dynamo.values.objects.objects import class_attribute
from dynamo.values.recipes import LIST, SLICE, STORE_ITEM, TUPLE, Made, Recipe, exact
from dynamo.values.scalars.constant import ConstantValue, is_literal
from dynamo.values.scalars.operators import COMPARE_FUNCTIONS, as_index, compare_op, equal
from dynamo.values.scalars.symbol import is_among, number_of, number_value

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter
    from dynamo.values.containers.varying_items import VaryingItems


class SequenceValue(BuiltinObject):
    """Base of list, tuple and deque. `contents` holds Values and Pending items; read these through
    `size`, `item` and `items`.
    """

    cls: type = object
    behind: OutsideItems | None = None  # until `contents` are asked for
    varying: VaryingItems | None = None  # in the place of `contents`

    def __init__(self, items: Iterable[Value | Pending], source: Source | None = None) -> None:
        super().__init__(source)
        self.contents = list(items)

    @classmethod
    def from_real(cls, tx: Interpreter, real: Sequence[Any], source: Source | None) -> Any:
        """A sequence from outside; its type is guarded by the caller."""
        value = cls((), source)
        del value.contents
        value.behind = OutsideItems(tx, real, cls.cls)
        return value

    @functools.cached_property
    def contents(self) -> list[Value | Pending]:
        """All items, of a sequence from outside: its length is guarded."""
        if self.varying is not None:
            self.varying.refuse()
        behind = self.behind
        assert behind is not None
        tx, items = behind.tx, behind.appended
        refuse_long(tx, self)
        tx.guard(self.source, "length", behind.length)
        outside: list[Value | Pending] = []
        for i, x in enumerate(self.cls.__iter__(behind.real)):  # type: ignore[attr-defined]
            if (value := behind.used.get(i)) is not None:
                outside.append(value)
            elif type(x) is torch.SymInt:
                outside.append(tx.wrap(x))
            else:
                outside.append(Pending(tx, x, self.item_source(i)))
        items[:0] = outside
        self.behind = None
        return items

    @property
    def size(self) -> int:
        """How many items there are; that of a sequence from outside is guarded."""
        behind = self.behind
        if behind is None:
            return len(self.contents)
        behind.tx.guard(self.source, "length", behind.length)
        return behind.length + len(behind.appended)

    def lose_items(self, varying: VaryingItems) -> None:
        """Know no more of the items than this."""
        vars(self).pop("contents", None)
        self.varying = varying

    def item_source(self, index: int) -> Source | None:
        if self.source is None:
            return None
        return SequenceItemSource(self.source, index, self.overridden_base(self.cls))

    def python_type(self) -> type:
        return self.cls

    def children(self) -> Sequence[Value]:
        if self.varying is not None:
            return [self.varying]
        if self.behind is None:
            return [v for v in self.contents if isinstance(v, Value)]
        appended = (v for v in self.behind.appended if isinstance(v, Value))
        return [*self.behind.used.values(), *appended]

    def unwrapped_objects(self) -> Iterable[Any]:
        if self.varying is not None:
            return []
        if self.behind is None:
            return [v.real for v in self.contents if isinstance(v, Pending)]
        return list(self.behind.real)

    def item(self, tx: Interpreter, index: int) -> Value:
        behind = self.behind
        if behind is not None:
            if (last := behind.last(index)) is not None:
                return last
            place = index if index >= 0 else index + self.size
            if place < behind.length:
                found = behind.used.get(place)
                return self._use(behind, place) if found is None else found
        value = self.contents[index]
        if isinstance(value, Pending):
            value = self.contents[index] = value.wrap()
        return value

    def _use(self, behind: OutsideItems, place: int) -> Value:
        """The item of a sequence from outside, which becomes a Value now."""
        base: Any = self.cls
        real = base.__getitem__(behind.real, place)
        source = None if type(real) is torch.SymInt else self.item_source(place)
        behind.used[place] = value = behind.tx.wrap(real, source)
        return value

    def wrapped(self) -> list[Value]:
        """All items, as Values."""
        contents = self.contents
        for i, value in enumerate(contents):
            if isinstance(value, Pending):
                contents[i] = value.wrap()
        return list(contents)  # type: ignore[arg-type]

    def items(self, tx: Interpreter) -> list[Value]:
        return self.wrapped()

    def unpack(self, tx: Interpreter) -> list[Value]:
        return self.items(tx)

    def as_constant(self) -> Any:
        return self.make_real([v.as_constant() for v in self.wrapped()])

    def as_proxy(self) -> Any:
        return self.make_real([v.as_proxy() for v in self.wrapped()])

    def make_real(self, items: list[Any]) -> Any:
        return self.cls(items)

    def length(self, tx: Interpreter) -> int:
        return self.size

    def length_value(self, tx: Interpreter) -> Value:
        if self.varying is not None:
            return self.varying.length_value(tx)
        varying = None if self.behind is None else self.behind.length_value(self.source)
        return super().length_value(tx) if varying is None else varying

    def iterate(self, tx: Interpreter) -> Value:
        return SequenceIterator(self)

    def rebuilt(self, items: list[Any]) -> SequenceValue:
        """A new sequence of the plain type, for slices and operators."""
        return type(self)(items)

    def getitem(self, tx: Interpreter, key: Value) -> Value:
        if isinstance(key, SliceValue):
            chosen = call_real(tx, operator.getitem, range(self.size), key.as_slice(tx))
            return self.rebuilt([self.contents[i] for i in chosen])
        return self.item(tx, self.position(tx, key, operator.getitem))

    def position(self, tx: Interpreter, key: Value, function: Any, *rest: Value) -> int:
        """The index of the item at `key`; for an unsuitable key, the exception of function(self,
        key).
        """
        if not _has_index(key):
            fail_as(tx, function, self, key, *rest)
        index = as_index(tx, key)
        surely = self.behind is not None and self.behind.surely_has(index, self.source)
        if not (surely or -self.size <= index < self.size):
            fail_as(tx, function, self, ConstantValue(index), *rest)
        return index

    @property
    def plain_name(self) -> str:
        return "tuple" if issubclass(self.cls, tuple) else self.cls.__name__

    def live_items(self, tx: Interpreter) -> Iterator[Value]:
        """The items one by one, where the loop's body may change the sequence."""
        i = 0
        while i < self.size:
            yield self.item(tx, i)
            i += 1

    def contains(self, tx: Interpreter, item: Value) -> Value:
        refuse_long(tx, self)
        if item.is_symbolic() and (found := is_among(tx, item, self.live_items(tx))) is not None:
            return found
        return ConstantValue(any(equal(tx, v, item) for v in self.live_items(tx)))

    def compare(self, tx: Interpreter, op: str, other: Value) -> Value | None:
        if not isinstance(other, SequenceValue) or self.plain_name != other.plain_name:
            return None
        if op in ("==", "!=") and self.size != other.size:
            return ConstantValue(op == "!=")
        refuse_long(tx, self, other)
        i = 0
        while i < min(self.size, other.size):
            if not equal(tx, self.item(tx, i), other.item(tx, i)):
                break
            i += 1
        sizes = self.size, other.size
        if i >= min(sizes):
            return ConstantValue(COMPARE_FUNCTIONS[op](*sizes))
        if op in ("==", "!="):
            return ConstantValue(op == "!=")
        return compare_op(tx, op, self.item(tx, i), other.item(tx, i))

    def binary(self, tx: Interpreter, op: str, other: Value, reflected: bool) -> Value | None:
        if op == "+" and not reflected:
            if isinstance(other, SequenceValue) and other.plain_name == self.plain_name:
                return self.rebuilt([*self.contents, *other.contents])
        elif op == "*" and _repeats(other):
            return self.rebuilt(self.repeated(tx, as_index(tx, other)))
        return None

    def repeated(self, tx: Interpreter, times: int) -> list[Any]:
        """The contents times `times`, if capture can hold them."""
        if self.size * times > config.loop_limit:
            raise Unsupported(breaks.LoopLimit(config.loop_limit))
        return self.contents * times

    def py_index(self, tx, item, start=None, stop=None):
        first = 0 if start is None else as_index(tx, start)
        last = self.size if stop is None else as_index(tx, stop)
        for i in range(self.size)[first:last]:
            if i < self.size and equal(tx, self.item(tx, i), item):
                return ConstantValue(i)
        fail_naming(tx, self.cls.index, self, item)

    def py_count(self, tx, item):
        return ConstantValue(sum(equal(tx, v, item) for v in self.live_items(tx)))

    def py___reversed__(self, tx):
        return ReversedIterator(self)

    def length_before_writes(self) -> int:
        """The length when the rewritten frame has made its values, and has not written changes."""
        return 0 if self.filled_later() else self.size


def _repeats(value: Value) -> bool:
    """Whether a sequence takes the value for how often to repeat its items: tensors multiply."""
    return _has_index(value) and not hasattr(value, "fake")


def _has_index(value: Value) -> bool:
    """Whether operator.index takes the value."""
    try:
        cls = value.python_type()
    except Unsupported:
        return False
    return type_holds(cls, "__index__")


class TupleValue(SequenceValue):
    cls: type = tuple

    def recipe(self) -> Recipe:
        return TUPLE, self.contents

    def hash_key(self, tx: Interpreter) -> Hashable:
        return tuple(key_of(tx, v) for v in self.items(tx))

    def rebuilt(self, items: list[Any]) -> SequenceValue:
        return TupleValue(items)

    def getitem(self, tx: Interpreter, key: Value) -> Value:
        found = super().getitem(tx, key)
        whole = isinstance(key, SliceValue) and type(self) is TupleValue
        return self if whole and found.contents == self.contents else found  # type: ignore[attr-defined]

    def binary(self, tx: Interpreter, op: str, other: Value, reflected: bool) -> Value | None:
        """Tuples that would be equal to an operand are that operand."""
        result = super().binary(tx, op, other, reflected)
        if type(self) is TupleValue and isinstance(result, TupleValue):
            for operand in (self, other):
                if type(operand) is TupleValue and operand.contents == result.contents:
                    return operand
        return result

    def setitem(self, tx: Interpreter, key: Value, value: Value) -> None:
        fail_as(tx, operator.setitem, self, key, value)

    def delitem(self, tx: Interpreter, key: Value) -> None:
        fail_as(tx, operator.delitem, self, key)


class SizeValue(TupleValue):
    """torch.Size with static entries."""

    cls = torch.Size

    def rebuilt(self, items: list[Any]) -> SequenceValue:
        return SizeValue(items)

    def binary(self, tx: Interpreter, op: str, other: Value, reflected: bool) -> Value | None:
        """A tuple on either side of + gives a torch.Size, which holds only integers."""
        if op != "+" or not isinstance(other, TupleValue):
            return super().binary(tx, op, other, reflected)
        items = other.items(tx)
        if not all(item.python_type_is(int) for item in items):
            raise Unsupported(breaks.UncapturedCall("torch.Size.__add__"))
        parts = (other, self) if reflected else (self, other)
        return SizeValue([item for part in parts for item in part.contents])

    def py_numel(self, tx):
        sizes = [number_of(item) for item in self.items(tx)]
        if None in sizes:  # numpy's number, or a member of an IntEnum
            raise Unsupported(breaks.UncapturedCall("torch.Size.numel"))
        return number_value(tx, math.prod(sizes))

    def as_proxy(self) -> Any:
        return tuple(v.as_proxy() for v in self.wrapped())

    def recipe(self) -> Recipe:
        return torch.Size, [Made(TUPLE, *self.contents)]


class NamedTupleValue(TupleValue):
    """An instance of a collections.namedtuple / typing.NamedTuple class, or of a structseq such as
    torch.return_types.max.
    """

    def __init__(self, cls: type, items: Iterable[Any], source: Source | None = None) -> None:
        super().__init__(items, source)
        self.cls = cls

    @property
    def fields(self) -> Sequence[str]:
        return field_names(self.cls)

    def make_real(self, items: list[Any]) -> Any:
        return self.cls(*items) if hasattr(self.cls, "_fields") else self.cls(items)

    def getattr(self, tx: Interpreter, name: str) -> Value:
        if name in self.fields:
            assume_lookup(tx, self.cls, name, class_lookup(self.cls, name))
            return self.item(tx, self.fields.index(name))
        if self.method(name) is not None:
            return super().getattr(tx, name)
        return class_attribute(tx, self, name)

    def hasattr(self, tx: Interpreter, name: str) -> bool:
        return name in self.fields or type_holds(self.cls, name)

    def setattr(self, tx: Interpreter, name: str, value: Value) -> None:
        real = self.make_real([None] * len(self.contents))
        call_real(tx, setattr, real, name, None)
        raise Unsupported(breaks.AttributeMutation(self.describe(), name))

    def delattr(self, tx: Interpreter, name: str) -> None:
        real = self.make_real([None] * len(self.contents))
        call_real(tx, delattr, real, name)
        raise Unsupported(breaks.AttributeMutation(self.describe(), name))

    def recipe(self) -> Recipe:
        items = Made(TUPLE, *self.contents)
        if hasattr(self.cls, "_fields"):
            return tuple.__new__, [exact(self.cls), items]
        return self.cls, [items]  # a structseq


class MutableSequence(SequenceValue):
    """The base class of list and deque."""

    can_be_bare = True

    def hash_key(self, tx: Interpreter) -> Hashable:
        return unhashable(tx, self)

    def setitem(self, tx: Interpreter, key: Value, value: Value) -> None:
        index = self.position(tx, key, operator.setitem, value)
        self.changing(tx)
        self.contents[index] = value

    def delitem(self, tx: Interpreter, key: Value) -> None:
        index = self.position(tx, key, operator.delitem)
        self.restructuring(tx)
        del self.contents[index]

    def restructuring(self, tx: Interpreter) -> None:
        """Call before every change that moves items."""
        self.changing(tx)

    def binary(self, tx: Interpreter, op: str, other: Value, reflected: bool) -> Value | None:
        if op == "+=":
            self.py_extend(tx, other)
            return self
        if op == "*=" and _repeats(other):
            self.restructuring(tx)
            self.contents = self.repeated(tx, as_index(tx, other))
            return self
        return super().binary(tx, op, other, reflected)

    def py_append(self, tx, item):
        self.restructuring(tx)
        self.contents.append(item)

    def py_extend(self, tx, other):
        self._append_each(tx, other, other.each(tx))

    def _append_each(self, tx: Interpreter, other: Value, items: Iterable[Value]) -> None:
        """`items` of `other`, which may look at those that were added before."""
        itself = getattr(other, "storage", None) is self
        for item in self.items(tx) if itself else items:
            self.py_append(tx, item)

    def py_insert(self, tx, index, item):
        where = as_index(tx, index)
        self.restructuring(tx)
        self.contents.insert(where, item)

    def py_pop(self, tx, index=None):
        last = ConstantValue(-1) if index is None else index
        position = self.position(tx, last, self.cls.pop) if self.contents else -1
        if not self.contents:
            fail_as(tx, self.cls.pop, self)
        item = self.item(tx, position)
        self.restructuring(tx)
        del self.contents[position]
        return item

    def py_remove(self, tx, item):
        for i, own in enumerate(self.live_items(tx)):
            if equal(tx, own, item):
                self.restructuring(tx)
                del self.contents[i : i + 1]
                return
        fail_as(tx, self.cls.remove, self, item)

    def py_clear(self, tx):
        self.restructuring(tx)
        self.contents.clear()

    def py_reverse(self, tx):
        self.changing(tx)
        self.contents.reverse()

    def py_copy(self, tx):
        return self.rebuilt(list(self.contents))

    def made_items(self) -> Sequence[Any]:
        """The items that the object is made with; the others are written later."""
        return [] if self.is_made_bare else self.contents


class ListValue(MutableSequence):
    """A list. The items of an outside list to which the frame only appends are not read: a list
    that grows with every call does not recompile.
    """

    cls = list
    touched = False  # a change was recorded since this was reset
    length_outside = 0

    @classmethod
    def from_real(cls, tx: Interpreter, real: Sequence[Any], source: Source | None) -> Any:
        value = super().from_real(tx, real, source)
        value.length_outside = value.behind.length
        return value

    def length_before_writes(self) -> int:
        size = super().length_before_writes()  # which guards that of a list from outside
        return size if self.source is None else self.length_outside

    @property
    def known(self) -> list[Value | Pending]:
        """The items that are known without a look at those outside: the last ones."""
        return self.contents if self.behind is None else self.behind.appended

    def py_append(self, tx, item):
        self.restructuring(tx)
        if self.varying is not None:
            self.varying = self.varying.longer(item)
            return
        self.known.append(item)

    def py_extend(self, tx, other):
        self._append_each(tx, other, other.each_hinted(tx))

    def setitem(self, tx: Interpreter, key: Value, value: Value) -> None:
        if isinstance(key, SliceValue):
            if isinstance(value, ConstantValue) and not hasattr(value.as_constant(), "__iter__"):
                fail_as(tx, operator.setitem, self, key, value)
            items = value.unpack(tx)
            where = key.as_slice(tx)
            changed = list(self.contents)
            call_real(tx, operator.setitem, changed, where, items)
            self.changing(tx)
            self.contents = changed
            return
        super().setitem(tx, key, value)

    def delitem(self, tx: Interpreter, key: Value) -> None:
        if isinstance(key, SliceValue):
            changed = list(self.contents)
            call_real(tx, operator.delitem, changed, key.as_slice(tx))
            self.changing(tx)
            self.contents = changed
            return
        super().delitem(tx, key)

    def py_sort(self, tx, *, key=None, reverse=None):
        items = self.items(tx)
        self.changing(tx)
        self.contents, self.touched = [], False  # as the program sees it while it is being sorted
        try:
            sort_in_place(tx, items, key, reverse)
            changed, touched = bool(self.contents), self.touched
        finally:
            self.contents = list(items)
        if changed or touched:  # whether Python notices depends on its memory
            raise Unsupported(breaks.ItemMutation(f"{self.describe()} during its sort"))

    def changing(self, tx: Interpreter) -> None:
        super().changing(tx)
        self.touched = True

    def recipe(self) -> Recipe:
        return LIST, self.made_items()

    def fill(self) -> Sequence[Recipe]:
        """self[:] = items, or self.extend(items) if that is all that is known."""
        if self.behind is not None:
            return [(list.extend, [self, Made(LIST, *self.known)])]
        whole = Made(SLICE, exact(None), exact(None))
        return [(STORE_ITEM, [Made(LIST, *self.contents), self, whole])]


class DequeValue(MutableSequence):
    """A deque. As of a list, the items of an outside one to which the frame only appends are not
    read: those that are driven out leave it when the frame ends.
    """

    cls = collections.deque

    def __init__(
        self,
        items: Iterable[Any],
        source: Source | None = None,
        maxlen: int | None = None,
    ) -> None:
        super().__init__(items, source)
        self.maxlen = maxlen
        self.state = 0  # grows with every change that iterators do not survive
        self.before: list[Any] | None = None  # the items before the first change
        self._trim(left=True)

    def item_source(self, index: int) -> Source | None:
        if self.overridden_base(collections.deque) is not None:
            raise Unsupported(breaks.ItemAccess(self.describe()))
        return None if self.source is None else ItemSource(self.source, index)

    @functools.cached_property
    def contents(self) -> list[Value | Pending]:
        """All items, without those that later ones drove out."""
        items = super().contents
        return items if self.maxlen is None else items[max(len(items) - self.maxlen, 0) :]

    @property
    def only_longer(self) -> bool:
        """Whether the frame appended to an outside deque that has a length at most, and has not
        asked for all items.
        """
        return self.maxlen is not None and self.behind is not None and bool(self.behind.appended)

    @property
    def size(self) -> int:
        return len(self.contents) if self.only_longer else super().size

    def item(self, tx: Interpreter, index: int) -> Value:
        if self.only_longer:
            assert self.contents is not None  # from now on
        return super().item(tx, index)

    def _trim(self, left: bool) -> None:
        if self.maxlen is not None and len(self.contents) > self.maxlen:
            extra = len(self.contents) - self.maxlen
            self.contents = self.contents[extra:] if left else self.contents[: self.maxlen]

    def make_real(self, items: list[Any]) -> Any:
        return collections.deque(items, self.maxlen)

    def rebuilt(self, items: list[Any]) -> SequenceValue:
        return DequeValue(items, maxlen=self.maxlen)

    def getattr(self, tx: Interpreter, name: str) -> Value:
        return ConstantValue(self.maxlen) if name == "maxlen" else super().getattr(tx, name)

    def setattr(self, tx: Interpreter, name: str, value: Value) -> None:
        fail_as(tx, setattr, self, ConstantValue(name), value)

    def changing(self, tx: Interpreter) -> None:
        super().changing(tx)
        if self.before is None:
            self.before = list(self.contents)

    def restructuring(self, tx: Interpreter) -> None:
        super().restructuring(tx)
        self.state += 1

    def rewritten(self) -> bool:
        return self.filled_later() or (self.source is not None and self.state != 0)

    def replacement(self, target: Value) -> list[Recipe]:
        """The write of a deque whose items alone were replaced: iterators over it go on, which they
        would not do over a deque that was filled again.
        """
        pairs = enumerate(zip(self.before or (), self.contents))
        places = tuple(i for i, (old, new) in pairs if new is not old)
        items = Made(TUPLE, *(self.contents[i] for i in places))
        return [(replace_items, [target, exact(places), items])]

    def getitem(self, tx: Interpreter, key: Value) -> Value:
        if isinstance(key, SliceValue):
            fail_as(tx, operator.getitem, self, key)
        return super().getitem(tx, key)

    def iterate(self, tx: Interpreter) -> Value:
        return DequeIterator(self)

    def live_items(self, tx: Interpreter) -> Iterator[Value]:
        state = self.state
        for item in super().live_items(tx):
            yield item
            if self.state != state:
                raise_python(tx, RuntimeError, "deque mutated during iteration")

    def py_index(self, tx, item, start=None, stop=None):
        where = slice(*(None if bound is None else as_index(tx, bound) for bound in (start, stop)))
        chosen = range(len(self.contents))[where]
        # The items first: the last one, too, may have changed the deque.
        for own, i in zip(itertools.islice(self.live_items(tx), chosen.start, None), chosen):
            if equal(tx, own, item):
                return ConstantValue(i)
        fail_naming(tx, collections.deque.index, self, item)

    def py_insert(self, tx, index, item):
        if len(self.contents) == self.maxlen:
            fail_as(tx, collections.deque.insert, self, index, item)
        super().py_insert(tx, index, item)

    def py_pop(self, tx):
        return super().py_pop(tx)

    def binary(self, tx: Interpreter, op: str, other: Value, reflected: bool) -> Value | None:
        result = super().binary(tx, op, other, reflected)
        if self.behind is None:
            self._trim(left=True)
        return result

    def py_remove(self, tx, item):
        state = self.state
        for i in range(len(self.contents)):
            found = equal(tx, self.item(tx, i), item)
            if self.state != state:
                raise Unsupported(breaks.ItemMutation(f"{self.describe()} during its remove()"))
            if found:
                self.restructuring(tx)
                del self.contents[i]
                return
        fail_naming(tx, collections.deque.remove, self, item)

    def py_append(self, tx, item):
        behind = self.behind
        if behind and (self.maxlen is None or behind.length + len(behind.appended) < self.maxlen):
            super().changing(tx)
            self.state += 1
            behind.appended.append(item)
            return
        super().py_append(tx, item)
        self._trim(left=True)

    def py_appendleft(self, tx, item):
        self.restructuring(tx)
        self.contents.insert(0, item)
        self._trim(left=False)

    def py_extendleft(self, tx, other):
        for item in other.each(tx):
            self.py_appendleft(tx, item)

    def py_popleft(self, tx):
        if not self.contents:
            fail_as(tx, collections.deque.popleft, self)
        return MutableSequence.py_pop(self, tx, ConstantValue(0))

    def py_rotate(self, tx, count=None):
        steps = 1 if count is None else as_index(tx, count)
        if len(self.contents) > 1:
            self.restructuring(tx)
            steps %= len(self.contents)
            self.contents = self.contents[-steps:] + self.contents[:-steps]

    def recipe(self) -> Recipe:
        return collections.deque, [Made(LIST, *self.made_items()), exact(self.maxlen)]

    def fill(self) -> Sequence[Recipe]:
        if self.behind is not None:
            return [(collections.deque.extend, [self, Made(LIST, *self.behind.appended)])]
        if not (self.mutation.new or self.state):
            return self.replacement(self)
        return refill(self, "extend", Made(LIST, *self.contents))


def replace_items(target: collections.deque, places: Sequence[int], items: Sequence[Any]) -> None:
    """target[place] = item for each, past any method of a subclass."""
    for place, item in zip(places, items):
        collections.deque.__setitem__(target, place, item)


# -- builders: containers from outside ----------------------------------------------------------
SEQUENCE_CLASSES: dict[type, type[SequenceValue]] = {
    list: ListValue,
    tuple: TupleValue,
    torch.Size: SizeValue,
}


@builder(list, tuple, torch.Size)
def build_sequence(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    if source is None and isinstance(obj, tuple) and is_literal(obj):
        return tx.from_constant(obj)
    tx.guard(source, "type", type(obj))
    value = SEQUENCE_CLASSES[type(obj)].from_real(tx, obj, source)
    if isinstance(obj, list):
        tx.output.side_effects.track_existing(value)
    return tx.output.remember(obj, source, value)


@builder(collections.deque)
def build_deque(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    tx.guard(source, "type", collections.deque)
    value = DequeValue.from_real(tx, obj, source)
    if obj.maxlen is not None or source is not None:
        maxlen_source = None if source is None else AttrSource(source, "maxlen")
        value.maxlen = tx.wrap(obj.maxlen, maxlen_source).as_constant()
    tx.output.side_effects.track_existing(value)
    return tx.output.remember(obj, source, value)


def is_struct_tuple(obj: Any) -> bool:
    return is_named_tuple(type(obj))


@special_builder(is_struct_tuple)
def build_named_tuple(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    tx.guard(source, "type", type(obj))
    value = NamedTupleValue(type(obj), [], source)
    value.contents = [
        Pending(tx, x, value.item_source(i)) for i, x in enumerate(tuple.__iter__(obj))
    ]
    return tx.output.remember(obj, source, value)


@bound_late
def sequence_like(tx: Interpreter, result: Any, items: list[Value]) -> Value:
    """The items of an operation's result in a list or tuple of its kind."""
    if type(result) is list:
        return tx.output.side_effects.track_new(ListValue(items))
    return TupleValue(items) if type(result) is tuple else NamedTupleValue(type(result), items)
