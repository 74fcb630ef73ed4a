"""Writes of a side of a branch to objects from outside of it: taken back at its end, and made
behind the branch, with what both sides leave.

    if x.sum() > 0:                         branch = higher_order.branch(gt, body_0, body_1, ...)
        self.scale = self.scale * x.max()   self.scale = branch[0]
    else:                            ->
        self.scale = self.scale * 0.9

Attributes (of tensors: the gradient), the items of dicts under keys that stay where they are, and
the items of lists. A list of the frame's of which there are more behind one side has varying items
from then on.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from dynamo.interp.side_tensors import Rewritten, paired_tensors, rewritten_tensors
from dynamo.interp.sides import Refused, State, call_in_side, full, run_until, side_scope
from dynamo.torch.modules import ModuleTable, ModuleValue
from dynamo.torch.subgraph import Subgraph
from dynamo.values.base import Value
from dynamo.values.containers.containers import ListValue, TupleValue
from dynamo.values.containers.dicts import DictValue, OrderedDictValue
from dynamo.values.containers.ranges import RangeIterator
from dynamo.values.containers.varying_items import VaryingItems, is_plain
from dynamo.values.effects.side_effects import DELETED, SERIALS
from dynamo.values.iterators.stored_iterators import SequenceIterator
from dynamo.values.objects.builtin_object import Pending
from dynamo.values.objects.objects import ObjectValue
from dynamo.values.tensors.tensor import TensorValue
from fxgraph import Node

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter
    from dynamo.plans import BreakBefore

_MOST_TURNS = 4  # of a loop that are sides, each within that before
_OBJECTS = (ObjectValue, ModuleValue)
_DICTS = (DictValue, OrderedDictValue, ModuleTable)
Items = VaryingItems | list[Value | Pending]
_KINDS = frozenset([*_OBJECTS, *_DICTS, ListValue, TensorValue])


@dataclass
class Written:
    """The writes of a side to an object: attributes, items of a dict (by the hash of the key: key
    and value), and the known items of a list.
    """

    owner: Any
    attributes: dict[str, Value] = field(default_factory=dict)
    entries: dict[Hashable, tuple[Value, Value]] = field(default_factory=dict)
    items: Items | None = None


class _Before:
    """The state of an object in front of a side's first change of it."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        mutation = owner.mutation
        self.dirty, self.attrs = mutation.dirty, dict(mutation.attrs)
        self.moved = set(mutation.moved)
        self.state: dict[str, Any] = {}
        if isinstance(owner, ListValue):
            self.behind, self.items = owner.behind, _items_of(owner)
        elif isinstance(owner, DictValue):
            changes = None if owner.changes is None else owner.changes.copy()
            self.state = {"entries": dict(owner.entries), "real": owner.real}
            self.state |= {"state": owner.state, "changes": changes}

    def written(self) -> Written:
        owner = self.owner
        found = Written(owner)
        for name, value in owner.mutation.attrs.items():
            if value is not self.attrs.get(name):
                found.attributes[name] = value
        gone = DELETED in found.attributes.values() or owner.mutation.moved != self.moved
        if isinstance(owner, ListValue):
            found.items = _items_of(owner)
            gone |= owner.behind is not self.behind  # the other side may not ask for all items
        elif isinstance(owner, DictValue):
            gone |= owner.state != self.state["state"]
            found.entries = dict(self._entries())
        if gone:
            raise Refused(f"a side adds to {owner.describe()}, or deletes from it")
        return found

    def _entries(self) -> Iterator[tuple[Hashable, Any]]:
        """The entries that were assigned, not only read."""
        changes = self.owner.changes
        for hashed, entry in self.owner.entries.items():
            known = self.state["entries"].get(hashed)
            if known is not None and entry[1] is known[1]:
                continue
            if changes is not None:
                assigned = changes.assigned(hashed)
            else:  # the frame's own dict, which may hold items that nobody has asked for
                pending = known is not None and isinstance(known[1], Pending)
                assigned = not pending or entry[1].source is not known[1].source
            if assigned:
                yield hashed, entry

    def restore(self) -> None:
        mutation = self.owner.mutation
        mutation.dirty, mutation.attrs, mutation.moved = self.dirty, self.attrs, self.moved
        if isinstance(self.owner, ListValue):
            if self.behind is not self.owner.behind:
                self.owner.behind = self.behind
                del self.owner.contents
            _set_items(self.owner, self.items)
        for name, value in self.state.items():
            setattr(self.owner, name, value)


def _items_of(owner: ListValue) -> Items:
    return list(owner.known) if owner.varying is None else owner.varying


def _set_items(owner: ListValue, items: Items) -> None:
    if isinstance(items, VaryingItems):
        owner.lose_items(items)
        return
    if owner.varying is not None:  # by a branch in the side
        owner.contents, owner.varying = [], None
    owner.known[:] = items


class Journal:
    """The objects from outside that a side changes."""

    def __init__(self) -> None:
        self._before: dict[int, _Before] = {}

    def admits(self, value: Any) -> bool:
        """Whether the coming change of the value can be taken back."""
        if id(value) in self._before:
            return True
        if type(value) not in _KINDS or value.holder is not None:
            return False
        if isinstance(value, ObjectValue) and value.storage is not None:
            return False
        self._before[id(value)] = _Before(value)
        return True

    def written(self) -> dict[int, Written]:
        return {key: before.written() for key, before in self._before.items()}

    def take_back(self) -> None:
        for before in self._before.values():
            before.restore()


@dataclass
class Side:
    """The record of one side. result: its return value, if the frame ends with the side. written:
    objects from outside, by the id of the Value. tensors: those from outside, by their nodes there.
    """

    graph: Subgraph
    stack: list[Any]
    locals: dict[str, Any]
    result: Value | None
    written: dict[int, Written]
    tensors: dict[Node, Rewritten]


def captured(
    tx: Interpreter, state: State, start: tuple[int, Sequence[Value]], meeting: int
) -> Side:
    """A side from the instruction start[0], with start[1] on the stack."""
    journal = Journal()
    try:
        with side_scope(tx, state, may_fail=True) as graph:
            tx.index = start[0]
            copies = _copied_iterators(tx)
            tx.stack += start[1]
            with tx.output.side_effects.journaled(journal.admits):
                run_until(tx, meeting)
            _put_back(tx, copies)
            written = journal.written()
            tensors = rewritten_tensors(tx, graph)
    finally:
        journal.take_back()
    result = tx.result if tx.done else None
    return Side(graph, list(tx.stack), dict(tx.locals), result, written, tensors)


def _copied_iterators(tx: Interpreter) -> dict[int, tuple[Any, Any]]:
    """Have copies of iterators, which a side may ask, in the places of those that loops around it
    have alone. By their places: the copies and the others.
    """
    copies: dict[int, tuple[Any, Any]] = {}
    stack: list[Any] = tx.stack
    for place, value in enumerate(stack):
        alone = type(value) in (SequenceIterator, RangeIterator) and value.of_loop
        if alone and value.count_left() <= _MOST_TURNS:
            stack[place] = copied = copy.copy(value)
            copied.serial = next(SERIALS)
            copies[place] = copied, value
    return copies


def _put_back(tx: Interpreter, copies: dict[int, tuple[Any, Any]]) -> None:
    stack: list[Any] = [] if tx.done else tx.stack
    for place, (copied, value) in copies.items():
        if place < len(stack) and stack[place] is copied:
            if copied.position != value.position:
                raise Refused("the sides are in different iterations of a loop")
            stack[place] = value


# -- behind the branch ----------------------------------------------------------------------------
class PairedWrite(NamedTuple):
    """A place outside, and the values that both sides leave there. name: of an attribute. key: of
    an item of a dict. Neither: all known items of a list, as tuples; or the lengths that both leave
    with the graph break at the branch instead, broken. A tensor has no name: `owner` tells of it.
    """

    owner: Any
    one: Value
    other: Value
    name: str | None = None
    key: Value | None = None
    broken: BreakBefore | None = None

    def store(self, tx: Interpreter, value: Value) -> None:
        owner = self.owner
        if isinstance(owner, Rewritten):
            assert isinstance(value, TensorValue), "what sides leave of a tensor"
            owner.store(tx, value)
        elif self.name is not None:
            tx.output.side_effects.store_attr(owner, self.name, value)
        elif self.key is not None:
            owner.assigning(tx, self.key)
            owner.put(tx, self.key, value)
        elif self.broken is not None:
            assert isinstance(value, TensorValue), "a length"
            owner.changing(tx)
            owner.lose_items(VaryingItems(tx.output, value, self.broken))
            conditionals = tx.output.conditionals
            conditionals.varied = conditionals.varied or self.broken
        else:
            owner.changing(tx)
            owner.known[:] = value.unpack(tx)


def paired_writes(tx: Interpreter, first: Side, second: Side) -> Iterator[PairedWrite]:
    """The writes of two sides, with the value from before where one side does not write."""
    sides = (first.graph, first.tensors), (second.graph, second.tensors)
    for tensor, (kept, changed) in paired_tensors(tx, sides):
        yield PairedWrite(tensor, kept, changed)
    for key, written in {**second.written, **first.written}.items():
        owner = written.owner
        one, other = (side.written.get(key) or Written(owner) for side in (first, second))
        both = one, other
        if _common(one, other) != _common(other, one):
            raise Refused(f"the sides change {owner.describe()} in different order")
        for name in {**one.attributes, **other.attributes}:
            left, right = (s.attributes.get(name) or _own_attr(tx, owner, name) for s in both)
            if not _are_one_tensor(left, right, _found_attr(tx, owner, name)):
                yield PairedWrite(owner, left, right, name=name)
        for hashed, (key_value, _) in {**one.entries, **other.entries}.items():
            left, right = (
                s.entries[hashed][1] if hashed in s.entries else owner.lookup(tx, key_value)
                for s in both
            )
            yield PairedWrite(owner, left, right, key=key_value)
        if isinstance(owner, ListValue):
            items = [_items_of(owner) if s.items is None else s.items for s in both]
            yield _paired_items(tx, owner, items, (first, second))


def _paired_items(
    tx: Interpreter, owner: ListValue, items: Sequence[Items], sides: Sequence[Side]
) -> PairedWrite:
    known = [part for part in items if not isinstance(part, VaryingItems)]
    if len(known) == 2 and len(known[0]) == len(known[1]):
        return PairedWrite(owner, TupleValue(known[0]), TupleValue(known[1]))
    made_here = owner.source is None and owner.mutation is not None and owner.mutation.new
    if not made_here or not all(map(is_plain, itertools.chain(*known))):
        raise Refused(f"the sides leave {owner.describe()} of different lengths")
    one, other = (_length(tx, side.graph, part) for side, part in zip(sides, items))
    return PairedWrite(owner, one, other, broken=tx.output.conditionals.open[0])


def _length(tx: Interpreter, side: Subgraph, items: Items) -> TensorValue:
    """How many items a side leaves, as a tensor that the side makes."""
    if isinstance(items, VaryingItems):
        return call_in_side(tx, side, torch.add, items.addends())
    return full(tx, side, len(items), torch.int64, torch.device("cpu"))


def _common(one: Written, other: Written) -> list[str]:
    """The attributes that both write, in the order of the first."""
    return [name for name in one.attributes if name in other.attributes]


def _are_one_tensor(*values: Value | None) -> bool:
    """Whether all are one tensor, which a side may have written: `self.seen += 1`."""
    fakes = {id(value.fake) if type(value) is TensorValue else None for value in values}
    return len(fakes) == 1 and None not in fakes


def _own_attr(tx: Interpreter, owner: Any, name: str) -> Value:
    value = _found_attr(tx, owner, name)
    if value is None:
        raise Refused(f"one side alone sets {name!r} of {owner.describe()}")
    return value


def _found_attr(tx: Interpreter, owner: Any, name: str) -> Value | None:
    if not isinstance(owner, TensorValue):
        return owner.own_attr(tx, name)  # type: ignore[no-any-return]
    if name != "grad":
        raise Refused("a side hangs an attribute on a tensor")
    return owner.getattr(tx, name)
