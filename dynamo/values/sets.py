"""set and frozenset: a dict from hash key to Value, in insertion order.

A real set iterates in hash order; where the frame iterates over a set whose members are not known
constants, that order
is not known while capturing, and the iteration is a graph break. Sets of constants iterate in the
real set's own order.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from dynamo.errors import Unsupported
from dynamo.sources import CallSource, Source
from dynamo.values.base import Value
from dynamo.values.builder import builder
from dynamo.values.builtin_object import BuiltinObject, refill
from dynamo.values.constant import ConstantValue, is_literal
from dynamo.values.exceptions import raise_python
from dynamo.values.keys import key_of, unhashable

if TYPE_CHECKING:
    from dynamo.capture.interpreter import Interpreter
    from dynamo.reconstruct import Codegen


class FrozenSetValue(BuiltinObject):
    cls: type = frozenset

    def __init__(self, members: dict[Hashable, Value], source: Source | None = None) -> None:
        super().__init__(source)
        self.members = members

    @classmethod
    def of(cls, tx: Interpreter, items: Iterable[Value]) -> Any:
        members: dict[Hashable, Value] = {}
        for item in items:
            members.setdefault(key_of(tx, item), item)
        return cls(members)

    def python_type(self) -> type:
        return self.cls

    def children(self) -> Sequence[Value]:
        return list(self.members.values())

    def as_constant(self) -> Any:
        return self.cls(v.as_constant() for v in self.members.values())

    def length(self, tx: Interpreter) -> int:
        return len(self.members)

    def hash_key(self, tx: Interpreter) -> Hashable:
        return frozenset(self.members)

    def ordered(self) -> list[Value]:
        """The members in the order in which the real set iterates, as far as that is known."""
        try:
            real = {v.as_constant(): v for v in self.members.values()}
        except Unsupported:
            return list(self.members.values())
        return [real[x] for x in self.cls(real)]

    def unpack(self, tx: Interpreter) -> list[Value]:
        return self.ordered()

    def iterate(self, tx: Interpreter) -> Value:
        from dynamo.values.iterators import ItemsIterator

        return ItemsIterator(self.ordered())

    def contains(self, tx: Interpreter, item: Value) -> Value:
        return ConstantValue(key_of(tx, item) in self.members)

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

    def _gather(self, tx: Interpreter, others: Sequence[Value]) -> list[dict[Hashable, Value]]:
        return [gather(tx, other) for other in others]

    def py_copy(self, tx):
        return type(self)(dict(self.members))

    def py_union(self, tx, *others):
        members = dict(self.members)
        for other in self._gather(tx, others):
            members.update(_without(other, members))
        return type(self)(members)

    def py_intersection(self, tx, *others):
        gathered = self._gather(tx, others)
        return type(self)(
            {k: v for k, v in self.members.items() if all(k in other for other in gathered)}
        )

    def py_difference(self, tx, *others):
        gathered = self._gather(tx, others)
        return type(self)(
            {k: v for k, v in self.members.items() if not any(k in other for other in gathered)}
        )

    def py_symmetric_difference(self, tx, other):
        (theirs,) = self._gather(tx, [other])
        return type(self)({**_without(self.members, theirs), **_without(theirs, self.members)})

    def py_issubset(self, tx, other):
        (theirs,) = self._gather(tx, [other])
        return ConstantValue(all(k in theirs for k in self.members))

    def py_issuperset(self, tx, other):
        (theirs,) = self._gather(tx, [other])
        return ConstantValue(all(k in self.members for k in theirs))

    def py_isdisjoint(self, tx, other):
        (theirs,) = self._gather(tx, [other])
        return ConstantValue(not any(k in self.members for k in theirs))

    def reconstruct(self, codegen: Codegen) -> None:
        codegen.load_callable(lambda: codegen.load_const(frozenset))
        self.emit_tuple(codegen)
        codegen.call(1)

    def emit_tuple(self, codegen: Codegen) -> None:
        for member in self.members.values():
            codegen(member)
        codegen.build_tuple(len(self.members))


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


def _without(members: dict[Hashable, Value], other: dict[Hashable, Value]) -> dict[Hashable, Value]:
    return {k: v for k, v in members.items() if k not in other}


def gather(tx: Interpreter, value: Value) -> dict[Hashable, Value]:
    """The members of any iterable, by key."""
    if isinstance(value, FrozenSetValue):
        return value.members
    return {key_of(tx, item): item for item in value.unpack(tx)}


def member_keys(tx: Interpreter, value: Value) -> Iterable[Hashable] | None:
    """The hash keys of a set or of a dict's keys() or items(); None for other values."""
    if isinstance(value, FrozenSetValue):
        return value.members.keys()
    if value.python_type() in (type({}.keys()), type({}.items())):
        return gather(tx, value).keys()
    return None


class SetValue(FrozenSetValue):
    cls = set

    def hash_key(self, tx: Interpreter) -> Hashable:
        return unhashable(tx, self)

    def py_add(self, tx, item):
        key = key_of(tx, item)
        self.changing(tx)
        self.members.setdefault(key, item)

    def py_discard(self, tx, item):
        key = key_of(tx, item)
        self.changing(tx)
        self.members.pop(key, None)

    def py_remove(self, tx, item):
        key = key_of(tx, item)
        if key not in self.members:
            raise_python(tx, KeyError, item)
        self.changing(tx)
        del self.members[key]

    def py_pop(self, tx):
        if not self.members:
            raise_python(tx, KeyError, "pop from an empty set")
        item = self.ordered()[0]
        self.py_remove(tx, item)
        return item

    def py_clear(self, tx):
        self.changing(tx)
        self.members = {}

    def _become(self, tx: Interpreter, result: FrozenSetValue) -> SetValue:
        self.changing(tx)
        self.members = result.members
        return self

    def py_update(self, tx, *others):
        return self._become(tx, self.py_union(tx, *others))

    def py_intersection_update(self, tx, *others):
        return self._become(tx, self.py_intersection(tx, *others))

    def py_difference_update(self, tx, *others):
        return self._become(tx, self.py_difference(tx, *others))

    def py_symmetric_difference_update(self, tx, other):
        return self._become(tx, self.py_symmetric_difference(tx, other))

    def call_method(
        self, tx: Interpreter, name: str, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> Value:
        result = super().call_method(tx, name, args, kwargs)
        return ConstantValue(None) if name.endswith("update") else result

    def reconstruct(self, codegen: Codegen) -> None:
        for member in self.members.values():
            codegen(member)
        codegen.build_set(len(self.members))

    def replay(self, codegen: Codegen) -> Callable[[], None]:
        return refill(codegen, self, "update", lambda: self.emit_tuple(codegen))


@builder(set, frozenset)
def build_set(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    """A set from outside: literal members are guarded as a whole, other members one by one, by
    position.
    """
    make = SetValue if type(obj) is set else FrozenSetValue
    if source is None or all(is_literal(x) for x in obj):
        _guard_literal_set(tx, obj, source)
        value = make({x: tx.wrap(x) for x in obj}, source)
    else:
        tx.guard(source, "type", type(obj))
        items = tx.wrap(tuple(obj), CallSource(source, tuple, "tuple")).unpack(tx)
        value = make({key_of(tx, item): item for item in items}, source)
    if make is SetValue:
        tx.output.side_effects.track_existing(value)
    return tx.output.remember(obj, source, value)


def _guard_literal_set(tx: Interpreter, obj: Any, source: Source | None) -> None:
    kind, expected = type(obj), frozenset(obj)

    def same_members(value: Any) -> bool:
        return type(value) is kind and value == expected

    same_members.__name__ = f"equals {kind.__name__} {sorted(map(repr, expected))}"
    tx.guard(source, "predicate", same_members)
