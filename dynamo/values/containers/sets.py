"""set and frozenset: a dict from hash key to Value, in insertion order.

A real set iterates in hash order, which also depends on how it came to its members (collisions, the
size of its table). A set of constants therefore has a real set beside it that goes through the same
operations. Where there is none (members that hash by identity, a set from outside that the frame
changed), asking for the order of more than one member is a graph break.
"""

from __future__ import annotations

import functools
import itertools
import operator
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.sources import CallSource, Source
from dynamo.plans import BreakBefore, Retry
from dynamo.values.base import Value
from dynamo.values.builder import builder
from dynamo.values.containers.containers import SequenceValue, TupleValue
from dynamo.values.containers.dicts import DictValue
from dynamo.values.containers.hash_keys import (
    calls_methods,
    check_hashes,
    is_stale,
    key_of,
    refuse_stale,
    sought_key,
    unhashable,
)
from dynamo.values.containers.outside_items import refuse_many
from dynamo.values.iterators.stored_iterators import SetIterator
from dynamo.values.late_bound import bound_late
from dynamo.values.objects.builtin_object import BuiltinObject, refill
from dynamo.values.objects.exceptions import RaisedException, raise_python
from dynamo.values.recipes import TUPLE, Existing, Made, MethodCall, Part, Recipe, exact
from dynamo.values.scalars.constant import ConstantValue, is_literal
from dynamo.values.scalars.symbol import is_among
from dynamo.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from dynamo.framestate.materialise import Codegen
    from dynamo.interp.interpreter import Interpreter


Members = dict[Hashable, Value]


class NoOrder(Part):
    """Members whose order was supposed not to be seen: the object would have one of its own."""

    def __init__(self, stop: BreakBefore) -> None:
        self.stop = stop

    def push(self, codegen: Codegen) -> None:
        raise Retry(codegen.output.plan.breaking(self.stop))


class FrozenSetValue(BuiltinObject):
    """`real`: a set of the members' constants with the same history, which gives the order; None
    where the order is not known.
    """

    cls: type = frozenset
    order_known = False  # that of a set from outside is guarded
    reader: Interpreter | None = None  # literals from outside, until `members` are asked for

    def __init__(self, members: Members, source: Source | None = None, real: Any = None) -> None:
        super().__init__(source)
        self.members = members
        self.real = real
        self.in_order = False  # from outside and unchanged: `members` are in the real order
        # Iterated in the order of insertion: the break instead, if the set becomes an object.
        self.supposed: BreakBefore | None = None

    @classmethod
    def of(cls, tx: Interpreter, items: Iterable[Value]) -> Any:
        """The set that has got the items one after the other."""
        items = list(items)
        return cls.gathered(_Gathered(_by_key(tx, items), real_constants(items)))

    @classmethod
    def from_iterable(cls, tx: Interpreter, iterable: Value) -> Any:
        """set(iterable)."""
        return cls.gathered(gather(tx, iterable))

    @classmethod
    def gathered(cls, content: _Gathered) -> Any:
        return cls(
            dict(content.members), real=None if content.real is None else cls.cls(content.real)
        )

    @classmethod
    def of_literals(cls, tx: Interpreter, real: Any, source: Source) -> Any:
        """A set of literals from outside; its type is guarded by the caller."""
        value = cls({}, source, real)
        del value.members
        value.reader = tx
        return value

    @functools.cached_property
    def members(self) -> Members:
        """The members; a set from outside is guarded as a whole from here on."""
        tx = self.reader
        assert tx is not None
        refuse_many(tx, len(self.real))  # type: ignore[arg-type]
        _guard_literal_set(tx, self.real, self.source)  # type: ignore[arg-type]
        tx.output.token_keys.came_from_outside(frozenset(self.real))
        self.reader = None
        return {x: tx.wrap(x) for x in self.real}

    def python_type(self) -> type:
        return self.cls

    def load_all(self, tx: Interpreter) -> Members:
        return self.members

    def children(self) -> Sequence[Value]:
        return [] if self.reader is not None else list(self.members.values())

    def as_constant(self) -> Any:
        """In the order of the real set, where that is known."""
        if self.source is None and self.real is not None:
            copy = detached(self.real)
            if copy is not None:
                return copy
        return self.cls(v.as_constant() for v in self.members.values())

    def length(self, tx: Interpreter) -> int:
        if self.reader is None:
            return len(self.members)
        tx.guard(self.source, "length", len(self.real))
        return len(self.real)

    def hash_key(self, tx: Interpreter) -> Hashable:
        return frozenset(self.members)

    def known_real(self, tx: Interpreter) -> Any:
        """`real`, for a use that depends on its order."""
        # The storage of an instance of a subclass has the order of that.
        source = self.source if self.holder is None else self.holder.source
        if source is not None and self.real is not None and not self.order_known:
            self.order_known = True
            if len(self.members) > 1:
                _guard_order(tx, self, source)
        return self.real

    def ordered(self, tx: Interpreter) -> list[Value]:
        """The members in the order in which the real set iterates."""
        self._refuse_weak_members()
        members = list(self.members.values())
        if len(members) < 2 or self.in_order:
            return members
        real = self.known_real(tx)
        if real is None:
            reason = breaks.SetOrder(self.describe())
            if self.source is not None or not all(map(_has_no_place, members)):
                raise Unsupported(reason)
            self.supposed = tx.output.checks.breaking_at(tx, reason)
            return members
        return in_real_order(members, real)

    def _refuse_weak_members(self) -> None:
        """References that a set lets go of when their objects end, which the garbage collector may
        do between the guards and the first look into the set (weakref.WeakSet).
        """
        for member in self.members.values() if self.source is not None else ():
            reference = member.identity()[1]
            if isinstance(reference, weakref.ref) and reference.__callback__ is not None:
                raise Unsupported(breaks.ObjectDies("what a set refers to weakly"))

    def unpack(self, tx: Interpreter) -> list[Value]:
        return self.ordered(tx)

    def iterate(self, tx: Interpreter) -> Value:
        return SetIterator(self, self.ordered(tx))

    def contains(self, tx: Interpreter, item: Value) -> Value:
        varies = item.is_symbolic()
        if varies and self.reader is None and all(map(is_literal, self.members)):
            among = is_among(tx, item, map(tx.constant, self.members))
            if among is not None:
                return among
        key = sought_key(tx, item, self.members) if varies else _sought_key(tx, item)
        if self.reader is None or not is_literal(key):
            return ConstantValue(key in self.members)
        found = key in self.real
        tx.guard(self.source, "contains", (key, found))
        return ConstantValue(found)

    def compare(self, tx: Interpreter, op: str, other: Value) -> Value | None:
        keys = member_keys(tx, other)
        if keys is None:
            return None
        mine, theirs = set(self.members), set(keys)
        results = {
            "==": mine == theirs,
            "!=": mine != theirs,
            "<": mine < theirs,
            "<=": mine <= theirs,
            ">": mine > theirs,
            ">=": mine >= theirs,
        }
        return ConstantValue(results[op])

    def binary(self, tx: Interpreter, op: str, other: Value, reflected: bool) -> Value | None:
        if reflected or not hasattr(other, "members") or op not in _SET_METHODS:
            return None
        return getattr(self, f"py_{_SET_METHODS[op]}")(tx, other)

    def _combine(self, tx: Interpreter, method: str, others: Sequence[Value]) -> Any:
        """self.method(*others), as a new set."""
        gathered = self._gather(tx, method, others)
        members = _COMBINED[method](self.members, gathered)
        reals = [self.known_real(tx), *(other.real for other in gathered)]
        known = all(real is not None for real in reals)
        return type(self)(members, real=getattr(self.cls, method)(*reals) if known else None)

    def _gather(self, tx: Interpreter, method: str, others: Sequence[Value]) -> list[_Gathered]:
        return gather_as(tx, method, self.members, others)[1]

    def _ask(self, tx: Interpreter, method: str, other: Value) -> Value:
        return ConstantValue(gather_as(tx, method, self.members, [other])[0])

    def py_copy(self, tx):
        return self if self.cls is frozenset else self.plain_copy(tx)

    def plain_copy(self, tx):
        return self._combine(tx, "copy", [])

    def py_union(self, tx, *others):
        return self._combine(tx, "union", others)

    def py_intersection(self, tx, *others):
        return self._combine(tx, "intersection", others)

    def py_difference(self, tx, *others):
        return self._combine(tx, "difference", others)

    def py_symmetric_difference(self, tx, other):
        return self._combine(tx, "symmetric_difference", [other])

    def py_issubset(self, tx, other):
        return self._ask(tx, "issubset", other)

    def py_issuperset(self, tx, other):
        return self._ask(tx, "issuperset", other)

    def py_isdisjoint(self, tx, other):
        return self._ask(tx, "isdisjoint", other)

    def recipe(self) -> Recipe:
        if self.supposed is None and type(self.real) is frozenset and is_literal(self.real):
            return Existing(self.real), []
        return self.cls, [self.members_part()]

    def hashes_objects(self) -> bool:
        return calls_methods(self.members)

    def members_part(self) -> Part:
        """An iterable that makes an empty set this one, with its order."""
        if self.supposed is not None:
            return NoOrder(self.supposed)
        check_hashes(self.members)
        made_of = self._order()
        if isinstance(made_of, frozenset):
            return exact(made_of)
        members = Made(TUPLE, *made_of)
        # Keys of a dict make a larger table.
        return Made(dict.fromkeys, members) if isinstance(made_of, dict) else members

    def _order(self) -> list[Value] | dict[Value, None] | frozenset:
        """The iterable: members in an order that gives the order of iteration, as a list or the
        keys of a dict, or a literal set.
        """
        members = list(self.members.values())
        if self.real is None or len(members) < 2:
            return members
        wanted = list(self.real)
        for order in (members, in_real_order(members, self.real)):
            constants = [_constant(member) for member in order]
            if list(self.cls(constants)) == wanted:
                return order
            if list(self.cls(dict.fromkeys(constants))) == wanted:
                return dict.fromkeys(order)
        literal = frozenset(self.real)
        if is_literal(literal) and list(self.cls(literal)) == wanted:
            return literal
        raise Unsupported(breaks.CannotReconstruct(f"{self.describe()} (its order)"))


_SET_METHODS = {
    "|": "union",
    "&": "intersection",
    "-": "difference",
    "^": "symmetric_difference",
    "|=": "update",
    "&=": "intersection_update",
    "-=": "difference_update",
    "^=": "symmetric_difference_update",
}


def _union(mine: Members, others: Sequence[_Gathered]) -> Members:
    members = dict(mine)
    for other in others:
        members.update(_without(other.members, members))
    return members


def _intersection(mine: Members, others: Sequence[_Gathered]) -> Members:
    """Of two equal members, that of the iterable that Python goes through: the smaller set."""
    kept = dict(mine)
    for other in others:
        if other.is_set and len(other.members) > len(kept):
            kept = {k: v for k, v in kept.items() if k in other.members}
        else:
            kept = {k: v for k, v in other.members.items() if k in kept}
    return kept


def _difference(mine: Members, others: Sequence[_Gathered]) -> Members:
    return {k: v for k, v in mine.items() if not any(k in other.members for other in others)}


def _symmetric_difference(mine: Members, others: Sequence[_Gathered]) -> Members:
    (theirs,) = others
    return {**_without(mine, theirs.members), **_without(theirs.members, mine)}


# The members that an operation gives; an update of a set gives the same.
_COMBINED: dict[str, Callable[[Members, Sequence[_Gathered]], Members]] = {
    "copy": lambda mine, others: dict(mine),
    "union": _union,
    "intersection": _intersection,
    "difference": _difference,
    "symmetric_difference": _symmetric_difference,
}
_COMBINED |= {
    "update": _COMBINED["union"],
    **{f"{name}_update": rule for name, rule in _COMBINED.items()},
}


def _without(members: Members, other: Members) -> Members:
    return {k: v for k, v in members.items() if k not in other}


def _has_no_place(member: Value) -> bool:
    """Whether a tensor of the graph is not in memory yet: its address is open."""
    return isinstance(member, TensorValue) and member.source is None


@dataclass(frozen=True)
class _Gathered:
    """The members that an iterable gives to a set: members by key, and a real iterable of the same
    kind that gives their constants (sets take sets, dicts and other iterables in different ways).
    """

    members: Members
    real: Any
    is_set: bool = False


def _by_key(tx: Interpreter, items: Iterable[Value]) -> Members:
    members: Members = {}
    for item in items:
        members.setdefault(key_of(tx, item), item)
    return members


@bound_late
def gather(tx: Interpreter, value: Value) -> _Gathered:
    """The members of any iterable."""
    value = _set_itself(value)
    if isinstance(value, FrozenSetValue):
        return _Gathered(value.members, value.known_real(tx), is_set=True)
    items: list[Value] = []
    for _ in _keys_of_each(tx, value, items):
        pass
    real: Any = real_constants(items)
    literal = value.is_constant() and isinstance(value.as_constant(), frozenset)
    if literal:
        real = value.as_constant()
    elif real is not None and isinstance(value, DictValue):
        real = dict.fromkeys(real)
    return _Gathered(_by_key(tx, items), real, is_set=literal)


def _set_itself(value: Value) -> Value:
    """The set that an object of a subclass is, whose own `__iter__` sets do not ask."""
    held = getattr(value, "storage", None)
    return held if isinstance(held, FrozenSetValue) else value


def _keys_of_each(tx: Interpreter, value: Value, taken: list[Value]) -> Iterator[Hashable]:
    """The keys of the items, one by one; the items that were asked for go to `taken`."""
    for item in value.each(tx):
        taken.append(item)
        yield key_of(tx, item)


def gather_as(
    tx: Interpreter, method: str, mine: Members, others: Sequence[Value]
) -> tuple[Any, list[_Gathered]]:
    """set.method(mine, *others): the answer for the keys, and the items taken from each of the
    others. A real set is asked, which knows at which item of an iterator it has seen enough.
    """
    taken: list[list[Value] | _Gathered] = []
    keys: list[Any] = []
    for other in others if method == "isdisjoint" else map(_set_itself, others):
        if type(other).unpack is not Value.unpack:
            content = gather(tx, other)
            taken.append(content)
            keys.append(set(content.members) if _is_set(other) else tuple(content.members))
        else:
            items: list[Value] = []
            taken.append(items)
            keys.append(_keys_of_each(tx, other.iterate(tx), items))
    answer = getattr(set(mine), method)(*keys)
    found = [
        one if isinstance(one, _Gathered) else _Gathered(_by_key(tx, one), real_constants(one))
        for one in taken
    ]
    return answer, found


def _is_set(value: Value) -> bool:
    literal = value.is_constant() and isinstance(value.as_constant(), frozenset)
    return literal or isinstance(value, (FrozenSetValue, DictValue))


def _as_gathered(value: Value, content: _Gathered) -> Value:
    """A value with the same items that can be iterated again: an iterator is exhausted by now."""
    if isinstance(value, (FrozenSetValue, SequenceValue, DictValue)):
        return value
    return TupleValue(list(content.members.values()))


def _sought_key(tx: Interpreter, item: Value) -> Hashable:
    """The key of a sought item: a set counts as a frozenset."""
    held = _set_itself(item)
    if isinstance(held, SetValue) and item.python_type().__hash__ is None:
        return frozenset(held.members)
    return key_of(tx, item)


def _constant(value: Value) -> Any:
    """The real object, if its hash is the same when the compiled code runs."""
    known, real = value.identity()
    return real if known and isinstance(real, type) else value.as_constant()


def real_constants(values: Iterable[Value]) -> list[Any] | None:
    try:
        return [_constant(value) for value in values]
    except Unsupported:
        return None


def detached(real: Any) -> Any:
    """A copy of a real set for a set of the frame's own; None if the order would differ."""
    copy = real.copy()
    return copy if list(copy) == list(real) else None


def in_real_order(members: list[Value], real: Iterable[Any]) -> list[Value]:
    """`members` as a real set of their constants iterates."""
    by_constant = {_constant(member): member for member in members}
    return [by_constant[x] for x in real]


_SET_VIEWS: tuple[type, ...] = (type({}.keys()), type({}.items()))  # and those of OrderedDict


def member_keys(tx: Interpreter, value: Value) -> Iterable[Hashable] | None:
    """The hash keys of a set or of a dict's keys() or items(); None for other values. (A frozenset
    of literals is a constant where it is a literal or a key.)"""
    if isinstance(value, FrozenSetValue):
        return value.members.keys()
    if value.is_constant() and isinstance(value.as_constant(), frozenset):
        return gather(tx, value).members.keys()
    if issubclass(value.python_type(), _SET_VIEWS):
        return gather(tx, value).members.keys()
    return None


@bound_late
class SetValue(FrozenSetValue):
    """`keeps_table`: the set comes from outside, where the changes of `history` are made once
    more.
    """

    cls = set
    can_be_bare = True
    keeps_table = False
    history: tuple[tuple[str, tuple[Value, ...]], ...] = ()

    def record(self, method: str, *args: Value) -> None:
        """A change of a set from outside, to be made again as it was made: the order of a set
        depends on how it came to its members.
        """
        if self.keeps_table:
            self.history = (*self.history, (method, tuple(map(snapshot, args))))

    def hash_key(self, tx: Interpreter) -> Hashable:
        return unhashable(tx, self)

    def changing(self, tx: Interpreter) -> None:
        """The real set's table is not known for a set from outside."""
        self.load_all(tx)
        if self.holder is not None:
            self.known_real(tx)  # which goes through the same changes
        super().changing(tx)
        self.in_order = False
        if self.source is not None:
            self.real = None

    def py_add(self, tx, item):
        key = key_of(tx, item)
        self.changing(tx)
        self.record("add", item)
        self.members.setdefault(key, item)
        constants = real_constants([item])
        if constants is None:
            self.real = None
        elif self.real is not None:
            self.real.add(constants[0])

    def py_discard(self, tx, item):
        key = _sought_key(tx, item)
        self.changing(tx)
        self.record("discard", item)
        member = self.members.pop(key, None)
        if member is not None and self.real is not None:
            self.real.discard(_constant(member))

    def py_remove(self, tx, item):
        if _sought_key(tx, item) not in self.members:
            raise_python(tx, KeyError, item)
        self.py_discard(tx, item)

    def py_pop(self, tx):
        if not self.members:
            raise_python(tx, KeyError, "pop from an empty set")
        members = list(self.members.values())
        if len(members) == 1:
            item = members[0]
            self.py_remove(tx, item)
            return item
        if self.source is not None or self.real is None:
            raise Unsupported(breaks.SetOrder(self.describe()))
        constants = {_constant(member): member for member in members}
        self.changing(tx)
        item = constants[self.real.pop()]
        del self.members[key_of(tx, item)]
        return item

    def py_clear(self, tx):
        self.changing(tx)
        self.members = {}
        self.keeps_table = False
        if self.source is None:
            self.real = set()

    def _become(self, tx: Interpreter, method: str, others: Sequence[Value]) -> SetValue:
        """self.method(*others), which changes the set itself."""
        try:
            gathered = self._gather(tx, method, others)
        except RaisedException:  # with a part of the changes made
            raise Unsupported(breaks.UncapturedCall(f"set.{method}")) from None
        self.changing(tx)
        self.record(method, *map(_as_gathered, others, gathered))
        self.members = _COMBINED[method](self.members, gathered)
        reals = [other.real for other in gathered]
        if self.real is not None and all(real is not None for real in reals):
            getattr(self.real, method)(*reals)
        else:
            self.real = None
        return self

    def py_update(self, tx, *others):
        return self._become(tx, "update", others)

    def py_intersection_update(self, tx, *others):
        return self._become(tx, "intersection_update", others)

    def py_difference_update(self, tx, *others):
        return self._become(tx, "difference_update", others)

    def py_symmetric_difference_update(self, tx, other):
        return self._become(tx, "symmetric_difference_update", [other])

    def call_method(
        self, tx: Interpreter, name: str, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> Value:
        result = super().call_method(tx, name, args, kwargs)
        return ConstantValue(None) if name.endswith("update") else result

    def recipe(self) -> Recipe:
        return (set, []) if self.is_made_bare else super().recipe()

    def fill(self) -> Sequence[Recipe]:
        """The same changes once more: the table stays the set's own."""
        if not self.keeps_table:
            return refill(self, "update", self.members_part())
        return [(MethodCall(method), [self, *args]) for method, args in self._changes()]

    def _changes(self) -> list[tuple[str, tuple[Value, ...]]]:
        """The history, with consecutive additions joined into one call."""
        changes: list[tuple[str, tuple[Value, ...]]] = []
        for method, calls in itertools.groupby(self.history, key=operator.itemgetter(0)):
            if method == "add":
                changes.append(("update", (TupleValue([args[0] for _, args in calls]),)))
            else:
                changes.extend(calls)
        return changes


def snapshot(value: Value) -> Value:
    """The current state of a change's argument: a copy of a container."""
    if isinstance(value, FrozenSetValue):
        real = None if value.real is None else detached(value.real)
        return type(value)(dict(value.members), real=real)
    if isinstance(value, SequenceValue):
        return TupleValue(list(value.contents))
    if isinstance(value, DictValue):
        return DictValue(dict(value.entries))
    return value


@builder(set, frozenset)
def build_set(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    """A set from outside: literal members are guarded one by one as they are looked for, or as a
    whole (and their order where it matters), other members one by one, by position.
    """
    make = SetValue if type(obj) is set else FrozenSetValue
    tx.guard(source, "type", type(obj))
    if source is None:
        value = make({x: tx.wrap(x) for x in obj}, None, detached(obj))
    elif all(map(is_literal, obj)):
        value = make.of_literals(tx, obj, source)
    else:
        items = tx.wrap(tuple(obj), CallSource(source, tuple, "tuple")).unpack(tx)
        members = {key_of(tx, item): item for item in items}
        for key, item, real in zip(members, items, obj):
            if len(members) != len(items) or is_stale(key, real, obj):
                refuse_stale(item)
        value = make(members, source)
        value.in_order = True
    if isinstance(value, SetValue):
        value.keeps_table = True
        tx.output.side_effects.track_existing(value)
    return tx.output.remember(obj, source, value)


def _guard_literal_set(tx: Interpreter, obj: Any, source: Source) -> None:
    kind, expected = type(obj), frozenset(obj)

    # 1, 1.0 and True are equal, and one member.
    texts = None if all(type(x) is str for x in obj) else set(map(repr, obj))

    def same_members(value: Any) -> bool:
        if type(value) is not kind or value != expected:
            return False
        return texts is None or set(map(repr, value)) == texts

    same_members.__name__ = f"equals {kind.__name__} {sorted(map(repr, expected))}"
    tx.guard(source, "predicate", same_members)


def _guard_order(tx: Interpreter, value: FrozenSetValue, source: Source) -> None:
    """Equal sets may iterate in different orders."""
    expected, base = tuple(value.real), cast(Any, value.cls)

    def same_order(value: Any) -> bool:
        return tuple(base.__iter__(value)) == expected

    same_order.__name__ = f"iterates in the order {expected!r}"
    tx.guard(source, "predicate", same_order)
