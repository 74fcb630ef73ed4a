"""dict, OrderedDict, defaultdict, Counter's base, dict views, and the instance dict seen as a dict.

A dict maps a hash key (values/containers/hash_keys.py) to an Entry. One from outside is read
lazily: looking up a constant key guards that key alone; assigning to one guards only that nobody
notices the end of what it replaces, so that a record that grows with every call does not recompile.
Anything that depends on all keys (iteration, length, equality) guards the list of keys.
"""

from __future__ import annotations

import collections
import itertools
import operator
import types
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.sources import AttrSource, DictItemSource, DictKeySource, DictValueSource, Source
from dynamo.polyfills.protocols import keep_item
from dynamo.polyfills.type_names import type_name
from dynamo.values import late_bound
from dynamo.values.base import Value
from dynamo.values.builder import builder
from dynamo.values.classes.lookup import type_holds
from dynamo.values.containers.containers import TupleValue
from dynamo.values.containers.dict_changes import DictChanges
from dynamo.values.containers.dict_order import guarded_order
from dynamo.values.containers.hash_keys import (
    FEW,
    calls_methods,
    check_hashes,
    is_stale,
    key_of,
    refuse_stale,
    sought_key,
    unhashable,
)
from dynamo.values.containers.identity_keys import IdentityKey
from dynamo.values.containers.mapping_proxies import MappingProxyValue
from dynamo.values.containers.outside_items import refuse_many, varying_length
from dynamo.values.dummy_operands import fail_as
from dynamo.values.iterators.stored_iterators import DictIterator
from dynamo.values.late_bound import bound_late
from dynamo.values.objects.builtin_object import BuiltinObject, Pending, refill
from dynamo.values.objects.exceptions import RaisedException, raise_python
from dynamo.values.recipes import DICT, TUPLE, Made, Recipe
from dynamo.values.scalars.constant import ConstantValue, is_literal
from dynamo.values.scalars.operators import equal
from dynamo.values.stack_items import ReturnContinuation

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

Entry = tuple["Value | Pending", "Value | Pending"]
_MISSING = object()


@bound_late
class DictValue(BuiltinObject):
    """`entries` is complete unless `real` is set: then only the items read so far are there."""

    cls: type = dict
    can_be_bare = True
    # Values in place of the keys, by their places, where no guard compares those (take_tokens).
    key_tokens: Sequence[Value] | None = None

    def __init__(
        self, entries: dict[Hashable, Entry], source: Source | None = None, real: dict | None = None
    ) -> None:
        super().__init__(source)
        self.entries = entries
        self.real = real
        self.asks_keys: bool | None = None  # see _asks_keys
        self.state = 0  # grows when keys come, go or move: iterators notice
        self.changes: DictChanges | None = None  # of a dict from outside, once it is loaded

    @classmethod
    def of(cls, tx: Interpreter, items: dict[str, Value]) -> DictValue:
        """A dict that the frame made, with constant keys."""
        return cls({k: (ConstantValue(k), v) for k, v in items.items()})

    def python_type(self) -> type:
        return self.cls

    def children(self) -> Sequence[Value]:
        held = [v for entry in self.entries.values() for v in entry if isinstance(v, Value)]
        return held if self.changes is None else [*held, *self.changes.values()]

    def unwrapped_objects(self) -> Iterable[Any]:
        if self.real is not None:
            pairs = dict.items(self.real)
            kept = [v for k, v in pairs if not (is_literal(k) and k in self.entries)]
            return [*dict.keys(self.real), *kept]
        return [v.real for entry in self.entries.values() for v in entry if isinstance(v, Pending)]

    def hash_key(self, tx: Interpreter) -> Hashable:
        return unhashable(tx, self)

    # -- reading --------------------------------------------------------------------------------
    def load_all(self, tx: Interpreter) -> dict[Hashable, Entry]:
        """All entries; guards the keys of a dict from outside."""
        if self.real is None:
            return self.entries
        refuse_many(tx, dict.__len__(self.real))
        real, known = self.real, self.entries
        self.real = None
        if self.changes is None:
            self.changes = DictChanges()
        entries: dict[Hashable, Entry] = {}
        pairs = list(dict.items(real))
        order = self.real_order(tx, real)
        if self.key_tokens is None:
            tx.guard(self.source, "dict_keys", [pairs[i][0] for i in order])
        else:
            tx.guard(self.source, "length", len(pairs))
        for i in order:
            key, item = pairs[i]
            if self.key_tokens is not None:
                assert self.source is not None, "a dict with tokens is from outside"
                item = Pending(tx, item, DictValueSource(self.source, i))
                entries[IdentityKey(self.key_tokens[i])] = (self.key_tokens[i], item)
            elif is_literal(key):
                tx.output.token_keys.came_from_outside(key)
                found = known.get(key)
                value = self.pending(tx, item, self.item_source(key)) if found is None else found[1]
                entries[key] = (ConstantValue(key), value)
            else:
                key_value, value_source = self._keyed_by_object(tx, key, i)
                value = Pending(tx, item, value_source)
                hashed = _key_from_outside(tx, key_value)
                if hashed in entries or is_stale(hashed, key, real):
                    refuse_stale(key_value)
                entries[hashed] = (key_value, value)
        for hashed, entry in known.items():
            entries.setdefault(hashed, entry)  # new keys, assigned before
        self.entries = entries
        return entries

    def real_order(self, tx: Interpreter, real: dict) -> Sequence[int]:
        """The places of the entries of a dict from outside, in the order of its iteration."""
        return range(dict.__len__(real))

    def pending(self, tx: Interpreter, real: Any, source: Source | None) -> Pending:
        """An item that was not used yet."""
        return Pending(tx, real, source)

    def item_source(self, key: Hashable) -> Source | None:
        return (
            None
            if self.source is None
            else DictItemSource(self.source, key, self.overridden_base(dict))
        )

    def _keyed_by_object(self, tx: Interpreter, key: Any, i: int) -> tuple[Value, Source | None]:
        if self.source is None:
            return tx.wrap(key, None), None
        return tx.wrap(key, DictKeySource(self.source, i)), DictValueSource(self.source, i)

    def lookup(self, tx: Interpreter, key: Value) -> Value | None:
        """The value under `key`, or None. No __missing__."""
        hashed = self._sought(tx, key)
        if self.real is not None:
            if not is_literal(hashed) or self._asks_keys():
                self.load_all(tx)
            elif hashed not in self.entries:
                return self._lookup_real(tx, hashed)
        entry = self.entries.get(hashed)
        return None if entry is None else self._value_of(hashed, entry)

    def take_tokens(self, tx: Interpreter, make: Callable[[int], Value]) -> bool:
        """Whether the keys of a dict from outside stay unknown: `make(place)` stands for each.
        False where the frame has asked for keys or items before.
        """
        if self.key_tokens is None:
            if self.real is None or self.entries or self.source is None:
                return False
            self.key_tokens = [make(place) for place in range(dict.__len__(self.real))]
        self.load_all(tx)
        return True

    def delete_token(self, tx: Interpreter, place: int, key: Value) -> None:
        """Delete the item that stood at the place, if it still does; `key` makes its key."""
        assert self.key_tokens is not None
        hashed = IdentityKey(self.key_tokens[place])
        entry = self.entries.get(hashed)
        if entry is None:
            return
        self._value_of(hashed, entry)
        self.changing(tx)
        self.state += 1
        del self.entries[hashed]
        if self.changes is not None:
            self.changes.delete(hashed, key)

    def _compare_tokens(self, hashed: Hashable) -> None:
        """Break where a key that is known would be compared with keys that are not."""
        if self.key_tokens is not None and not isinstance(hashed, IdentityKey):
            raise Unsupported(breaks.NotConstant(f"the keys of {self.describe()}"))

    def _sought(self, tx: Interpreter, key: Value) -> Hashable:
        hashed = self._sought_key(tx, key)
        self._compare_tokens(hashed)
        return hashed

    def _sought_key(self, tx: Interpreter, key: Value) -> Hashable:
        few = (
            key.is_symbolic()
            and dict.__len__(self.entries if self.real is None else self.real) <= FEW
        )
        return sought_key(tx, key, self.load_all(tx)) if few else key_of(tx, key)

    def _value_of(self, hashed: Hashable, entry: Entry) -> Value:
        key, value = entry
        if isinstance(value, Pending):
            value = value.wrap()
            self.entries[hashed] = (key, value)
        return value

    def _asks_keys(self) -> bool:
        """A lookup may call methods of the program: to be captured, not run on the real dict."""
        if self.asks_keys is None:
            self.asks_keys = any(map(_compares_itself, dict.keys(self.real or {})))
        return self.asks_keys

    def _lookup_real(self, tx: Interpreter, key: Hashable) -> Value | None:
        assert self.real is not None
        found = dict.get(self.real, key, _MISSING)
        if found is _MISSING:
            tx.guard(self.source, "contains", (key, False))
            return None
        value = self.pending(tx, found, self.item_source(key)).wrap()
        self.entries[key] = (ConstantValue(key), value)
        return value

    def keys(self, tx: Interpreter) -> list[Value]:
        return [self.key_of_entry(hashed) for hashed in self.load_all(tx)]

    def key_of_entry(self, hashed: Hashable) -> Value:
        key = self.entries[hashed][0]
        assert isinstance(key, Value)  # never pending: hashing it made it a Value
        return key

    def values(self, tx: Interpreter) -> list[Value]:
        return [self._value_of(h, e) for h, e in list(self.load_all(tx).items())]

    def pairs(self, tx: Interpreter) -> list[Value]:
        keys, values = self.keys(tx), self.values(tx)
        return [TupleValue(pair) for pair in zip(keys, values)]

    def constant_keys(self, tx: Interpreter) -> dict[str, Value]:
        """For ** arguments: name -> value."""
        names = self.keys(tx)
        if any(k.python_type() is not str for k in names):
            raise_python(tx, TypeError, "keywords must be strings")
        return {k.as_constant(): v for k, v in zip(names, self.values(tx))}

    def as_constant(self) -> Any:
        return self.make_real({k.as_constant(): v.as_constant() for k, v in self._wrapped()})

    def make_real(self, items: dict) -> Any:
        return self.cls(items)

    def as_proxy(self) -> Any:
        return {k.as_constant(): v.as_proxy() for k, v in self._wrapped()}

    def _wrapped(self) -> list[tuple[Value, Value]]:
        if self.real is not None:
            raise Unsupported(breaks.NotConstant(self.describe()))
        pairs = list(self.entries.items())
        return [(self.key_of_entry(h), self._value_of(h, entry)) for h, entry in pairs]

    def length_value(self, tx: Interpreter) -> Value:
        if self.real is not None and self.changes is None:
            return varying_length(tx, self.real, self.source) or super().length_value(tx)
        return super().length_value(tx)

    def length(self, tx: Interpreter) -> int:
        if self.real is not None and self.changes is None:
            tx.guard(self.source, "length", dict.__len__(self.real))
            return dict.__len__(self.real)
        return len(self.load_all(tx))

    def unpack(self, tx: Interpreter) -> list[Value]:
        return self.keys(tx)

    def iterate(self, tx: Interpreter) -> Value:
        return DictIterator(self, "keys")

    def contains(self, tx: Interpreter, item: Value) -> Value:
        hashed = self._sought(tx, item)
        alone = is_literal(hashed) and not self._asks_keys()
        if self.real is not None and alone and hashed not in self.entries:
            found = dict.__contains__(self.real, hashed)
            tx.guard(self.source, "contains", (hashed, found))
            return ConstantValue(found)
        if self.real is not None and hashed not in self.entries:
            self.load_all(tx)
        return ConstantValue(hashed in self.entries)

    def getitem(self, tx: Interpreter, key: Value) -> Value:
        value = self.lookup(tx, key)
        return self.missing(tx, key) if value is None else value

    def missing(self, tx: Interpreter, key: Value) -> Value:
        raise_python(tx, KeyError, key)

    def compare(self, tx: Interpreter, op: str, other: Value) -> Value | None:
        if op not in ("==", "!=") or not isinstance(other, DictValue):
            return None
        return ConstantValue(self._same_items(tx, other) is (op == "=="))

    def _same_items(self, tx: Interpreter, other: DictValue) -> bool:
        mine, theirs = self.load_all(tx), other.load_all(tx)
        self._compare_tokens(None)
        other._compare_tokens(None)
        if len(mine) != len(theirs):
            return False
        for hashed, entry in list(mine.items()):
            found = theirs.get(hashed)
            if found is None:
                return False
            if not equal(tx, other._value_of(hashed, found), self._value_of(hashed, entry)):
                return False
        return True

    # -- changing -------------------------------------------------------------------------------
    def changing(self, tx: Interpreter) -> None:
        self.load_all(tx)
        super().changing(tx)

    def assigning(self, tx: Interpreter, key: Value) -> None:
        """Prepare for `put`. The items of a dict from outside need not be known for that."""
        hashed = key_of(tx, key)
        plain = type(self) is DictValue and self.real is not None and self.source is not None
        if plain and is_literal(hashed) and not self._asks_keys():
            super().changing(tx)
            if self.changes is None:
                self.changes = DictChanges()
        else:
            self.changing(tx)

    def put(self, tx: Interpreter, key: Value, value: Value) -> None:
        """self[key] = value, the change already being recorded."""
        hashed = key_of(tx, key)
        self._compare_tokens(hashed)
        known = self.entries.get(hashed)
        held = self.real is not None and dict.__contains__(self.real, hashed)
        self.state += known is None and not held
        self.entries[hashed] = (key if known is None else known[0], value)
        if self.changes is not None:
            self.changes.set(hashed, key, value)

    def setitem(self, tx: Interpreter, key: Value, value: Value) -> None:
        self.assigning(tx, key)
        self.put(tx, key, value)

    def delitem(self, tx: Interpreter, key: Value) -> None:
        if self.lookup(tx, key) is None:
            raise_python(tx, KeyError, key)
        self.changing(tx)
        self.state += 1
        hashed = key_of(tx, key)
        del self.entries[hashed]
        if self.changes is not None:
            self.changes.delete(hashed, key)

    def binary(self, tx: Interpreter, op: str, other: Value, reflected: bool) -> Value | None:
        if op == "|=":
            self.py_update(tx, other)
            return self
        if op != "|" or not isinstance(other, DictValue) or (reflected and self.cls is dict):
            return None
        left, right = (other, self) if reflected else (self, other)
        result = self.fresh(dict(left.load_all(tx)))
        result.py_update(tx, right)
        return result

    def fresh(self, entries: dict[Hashable, Entry]) -> DictValue:
        self._compare_tokens(None)
        return type(self)(entries)

    def py_copy(self, tx):
        return self.fresh(dict(self.load_all(tx)))

    def py_get(self, tx, key, default=None):
        value = self.lookup(tx, key)
        if value is None:
            return ConstantValue(None) if default is None else default
        return value

    def view(self, kind: str) -> DictView:
        """keys(), values() or items()."""
        return DictView(self, kind)

    def py_keys(self, tx):
        return DictView(self, "keys")

    def py_values(self, tx):
        return DictView(self, "values")

    def py_items(self, tx):
        return DictView(self, "items")

    def py_setdefault(self, tx, key, default=None):
        value = self.lookup(tx, key)
        if value is not None:
            return value
        value = ConstantValue(None) if default is None else default
        self.setitem(tx, key, value)
        return value

    def py_pop(self, tx, key, default=None):
        value = self.lookup(tx, key)
        if value is None:
            if default is None:
                raise_python(tx, KeyError, key)
            return default
        self.delitem(tx, key)
        return value

    def py_popitem(self, tx):
        if not self.load_all(tx):
            fail_as(tx, self.cls.popitem, self)
        hashed = next(reversed(self.entries))
        key, value = self.key_of_entry(hashed), self._value_of(hashed, self.entries[hashed])
        self.delitem(tx, key)
        if self.changes is not None:
            self.changes.popped()
        return TupleValue([key, value])

    def py_clear(self, tx):
        self.changing(tx)
        self.state += 1
        self.entries = {}
        if self.changes is not None:
            self.changes.clear()

    def py_update(self, tx, other=None, /, **named):
        ordered = issubclass(self.cls, collections.OrderedDict)
        pairs = () if other is None else pairs_of(tx, other, ordered)
        added = ((ConstantValue(name), value) for name, value in named.items())
        for key, value in itertools.chain(pairs, added):
            self.assigning(tx, key)
            self.put(tx, key, value)

    # -- code -----------------------------------------------------------------------------------
    def made_items(self) -> list[Any]:
        """The keys and items that the object is made with; the others are written later."""
        return [] if self.is_made_bare else self.keys_and_items()

    def keys_and_items(self) -> list[Any]:
        """The keys and items, in turn."""
        if self.real is not None:
            raise Unsupported(breaks.CannotReconstruct(self.describe()))
        check_hashes(self.entries)
        return [part for entry in self.entries.values() for part in entry]

    def content(self) -> Made:
        """The argument of dict.update(): pairs, where keys are not to be hashed yet."""
        if not self.hashes_objects():
            return Made(DICT, *self.keys_and_items())
        check_hashes(self.entries)
        return Made(TUPLE, *(Made(TUPLE, *entry) for entry in self.entries.values()))

    def rewritten(self) -> bool:
        return self.filled_later() or (self.source is not None and self.state != 0)

    def hashes_objects(self) -> bool:
        changed = self.changes is not None and self.changes.hashes_objects
        return changed or (self.real is None and calls_methods(self.entries))

    def recipe(self) -> Recipe:
        return DICT, self.made_items()

    def fill(self) -> Sequence[Recipe]:
        if self.changes is not None:
            return self.changes.writes(self, None)
        return refill(self, "update", self.content())


def _compares_itself(key: Any) -> bool:
    if type(key) in (tuple, frozenset):
        return any(map(_compares_itself, key))
    return not is_literal(key) and isinstance(type(key).__eq__, types.FunctionType)


def _key_from_outside(tx: Interpreter, key: Value) -> Hashable:
    """The key of an entry from outside, hashed long ago: an error of hashing now breaks the
    graph.
    """
    try:
        return key_of(tx, key)
    except RaisedException:
        raise Unsupported(breaks.UncapturedCall(f"__hash__ of {key.describe()}")) from None


def pairs_of(tx: Interpreter, value: Value, ordered: bool = False) -> Iterator[tuple[Value, Value]]:
    """The content of dict(value), or of OrderedDict(value): the items of a mapping, or an iterable
    of pairs.
    """
    storage = dict_storage(value)
    if storage is not None:
        yield from list(zip(storage.keys(tx), storage.values(tx)))
        return
    if value.hasattr(tx, "keys"):
        for key in value.call_method(tx, "keys", [], {}).each(tx):
            yield key, value.getitem(tx, key)
        return
    if value.is_constant() and not hasattr(value.as_constant(), "__iter__"):
        fail_as(tx, dict, value)
    for number, item in enumerate(value.each(tx)):
        pair = _pair(tx, item, number, collections.OrderedDict if ordered else dict)
        yield pair[0], pair[1]


def _pair(tx: Interpreter, item: Value, number: int, cls: type[dict]) -> list[Value]:
    """The key and value of item `number`, or the exception of cls(items) for another kind of
    item.
    """

    def made_of(real: Any) -> Any:
        return cls([((), ())] * number + [real])

    kind, fake = item.python_type(), getattr(item, "fake", None)
    if not type_holds(kind, "__iter__") and not type_holds(kind, "__getitem__"):
        fail_as(tx, made_of, item)
    if isinstance(fake, torch.Tensor) and fake.ndim == 0:
        fail_as(tx, made_of, item)
    pair = item.unpack(tx)
    if len(pair) != 2:
        fail_as(tx, made_of, TupleValue(pair))
    return pair


def dict_storage(value: Value) -> DictValue | None:
    """The DictValue behind a dict or an instance of a dict subclass whose iteration is dict's
    own.
    """
    if isinstance(value, DictValue):
        return value
    storage = getattr(value, "storage", None)
    if (
        isinstance(storage, DictValue)
        and getattr(value.python_type(), "__iter__", None) in _DICT_ITERS
    ):
        return storage
    return None


_DICT_ITERS = (dict.__iter__, collections.OrderedDict.__iter__)


class OrderedDictValue(DictValue):
    """A dict with attributes: nn.Module.state_dict hangs its metadata on its result."""

    cls = collections.OrderedDict

    def __init__(
        self,
        entries: dict[Hashable, Entry],
        source: Source | None = None,
        real: dict | None = None,
    ) -> None:
        super().__init__(entries, source, real)
        self.outside = real

    def real_order(self, tx: Interpreter, real: dict) -> Sequence[int]:
        return guarded_order(tx, self, real)  # type: ignore[arg-type]

    def getattr(self, tx: Interpreter, name: str) -> Value:
        stored = tx.output.side_effects.load_attr(self, name)
        if isinstance(stored, Value):
            return stored
        if type_holds(collections.OrderedDict, name):
            return super().getattr(tx, name)
        present = self.outside is not None and hasattr(self.outside, name)
        tx.guard(self.source, "has_attr", (name, present))
        if not present:
            text = f"{type_name(self.cls)!r} object has no attribute {name!r}"
            raise_python(tx, AttributeError, text)
        source = None if self.source is None else AttrSource(self.source, name)
        return tx.wrap(getattr(self.outside, name), source)

    def hasattr(self, tx: Interpreter, name: str) -> bool:
        if isinstance(tx.output.side_effects.load_attr(self, name), Value):
            return True
        if type_holds(collections.OrderedDict, name):
            return True
        present = self.outside is not None and hasattr(self.outside, name)
        tx.guard(self.source, "has_attr", (name, present))
        return present

    def setattr(self, tx: Interpreter, name: str, value: Value) -> None:
        if type_holds(collections.OrderedDict, name):
            raise Unsupported(breaks.AttributeMutation(self.describe(), name))
        if self.mutation is None:
            tx.output.side_effects.track_new(self)
        tx.output.side_effects.store_attr(self, name, value)

    def fill(self) -> Sequence[Recipe]:
        made_whole = self.mutation.new and not self.is_made_bare
        items = super().fill() if self.real is None and not made_whole else ()
        return [*items, *self.mutation.attribute_stores(self)]

    def py_pop(self, tx, key, default=None):
        return super().py_pop(tx, key, default)

    def compare(self, tx: Interpreter, op: str, other: Value) -> Value | None:
        if op in ("==", "!=") and isinstance(other, OrderedDictValue):
            same = self._same_items(tx, other) and list(self.entries) == list(other.entries)
            return ConstantValue(same is (op == "=="))
        return super().compare(tx, op, other)

    def py_move_to_end(self, tx, key, last=None):
        hashed = key_of(tx, key)
        if self.lookup(tx, key) is None:
            raise_python(tx, KeyError, key)
        self.changing(tx)
        self.state += 1
        entry, at_end = self.entries.pop(hashed), last is None or last.truth(tx)
        if at_end:
            self.entries[hashed] = entry
        else:
            self.entries = {hashed: entry, **self.entries}
        if self.changes is not None:
            self.changes.move(key, at_end)

    def py_popitem(self, tx, last=None):
        if last is None or last.truth(tx) or not self.load_all(tx):
            return super().py_popitem(tx)
        key = self.key_of_entry(next(iter(self.entries)))
        value = self.getitem(tx, key)
        self.delitem(tx, key)
        return TupleValue([key, value])

    def recipe(self) -> Recipe:
        return collections.OrderedDict, [Made(DICT, *self.made_items())]


class DefaultDictValue(DictValue):
    cls = collections.defaultdict

    def __init__(
        self,
        entries: dict[Hashable, Entry],
        source: Source | None = None,
        real: dict | None = None,
        factory: Value | None = None,
    ) -> None:
        super().__init__(entries, source, real)
        self.factory = factory if factory is not None else ConstantValue(None)

    def children(self) -> Sequence[Value]:
        return [*super().children(), self.factory]

    def make_real(self, items: dict) -> Any:
        known, factory = self.factory.identity()
        return self.cls(factory if known else self.factory.as_constant(), items)

    def fresh(self, entries: dict[Hashable, Entry]) -> DictValue:
        return DefaultDictValue(entries, factory=self.factory)

    def getattr(self, tx: Interpreter, name: str) -> Value:
        return self.factory if name == "default_factory" else super().getattr(tx, name)

    def setattr(self, tx: Interpreter, name: str, value: Value) -> None:
        if name != "default_factory":
            super().setattr(tx, name, value)
        if self.source is not None:
            raise Unsupported(breaks.AttributeMutation(self.describe(), name))
        self.changing(tx)
        self.factory = value

    def missing(self, tx: Interpreter, key: Value) -> Value:
        if self.factory.is_constant():
            return super().missing(tx, key)
        kept = ReturnContinuation(keep_item, [self, key])
        value = tx.call_at_end(self, "__missing__", self.factory, [], instead=kept)
        self.setitem(tx, key, value)
        return value

    def py___missing__(self, tx, key):
        return self.missing(tx, key)

    def recipe(self) -> Recipe:
        return collections.defaultdict, [self.factory, Made(DICT, *self.made_items())]


_VIEW_OPERATORS = {"|": operator.or_, "&": operator.and_, "-": operator.sub, "^": operator.xor}


class DictView(BuiltinObject):
    """dict.keys(), .values(), .items(): live."""

    def __init__(self, owner: DictValue, kind: str, source: Source | None = None) -> None:
        super().__init__(source)
        self.owner, self.kind = owner, kind

    def python_type(self) -> type:
        return type(getattr(self.owner.python_type()(), self.kind)())

    def getattr(self, tx: Interpreter, name: str) -> Value:
        return MappingProxyValue(self.owner) if name == "mapping" else super().getattr(tx, name)

    def length(self, tx: Interpreter) -> int:
        return self.owner.length(tx)

    def unpack(self, tx: Interpreter) -> list[Value]:
        owner = self.owner
        read = {"keys": owner.keys, "values": owner.values, "items": owner.pairs}[self.kind]
        return read(tx)

    def iterate(self, tx: Interpreter) -> Value:
        return DictIterator(self.owner, self.kind)

    def contains(self, tx: Interpreter, item: Value) -> Value:
        if self.kind == "keys":
            return self.owner.contains(tx, item)
        return ConstantValue(any(equal(tx, v, item) for v in self.unpack(tx)))

    def _as_set(self, tx: Interpreter) -> Value:
        set_value: Any = late_bound.SetValue
        return set_value.of(tx, self.unpack(tx))

    def compare(self, tx: Interpreter, op: str, other: Value) -> Value | None:
        return None if self.kind == "values" else self._as_set(tx).compare(tx, op, other)

    def binary(self, tx: Interpreter, op: str, other: Value, reflected: bool) -> Value | None:
        if self.kind == "values" or op not in _VIEW_OPERATORS:
            return None
        gather = late_bound.gather
        others = gather(tx, other)
        sides = [self._as_set(tx), late_bound.SetValue(dict(others.members))]
        mine = gather(tx, self).real
        reals = [None if mine is None else dict.fromkeys(mine).keys(), others.real]
        if reflected:
            sides.reverse()
            reals.reverse()
        result = sides[0].binary(tx, op, sides[1], False)
        assert isinstance(result, late_bound.SetValue)
        if op == "&":
            result.members = self._kept_of_equal(tx, other, others, result.members)
        known = self.kind == "keys" and None not in reals
        result.real = _VIEW_OPERATORS[op](*reals) if known else None
        return result

    def _kept_of_equal(self, tx: Interpreter, other: Value, others: Any, common: Any) -> Any:
        """The members of an intersection: of two equal ones, that which Python comes across."""
        as_set: Any = self._as_set(tx)
        mine, theirs = as_set.members, others.members
        of_set = other.python_type() is set and len(mine) <= len(theirs)
        of_view = isinstance(other, DictView) and len(mine) < len(theirs)
        kept = mine if of_set or of_view else theirs
        return {key: kept[key] for key in common}

    def py_isdisjoint(self, tx, other):
        return self._as_set(tx).py_isdisjoint(tx, other)

    def recipe(self) -> Recipe:
        return getattr(self.owner.cls, self.kind), [self.owner]  # past any that a subclass has


DICT_CLASSES: dict[type, type[DictValue]] = {
    dict: DictValue,
    collections.OrderedDict: OrderedDictValue,
    collections.defaultdict: DefaultDictValue,
}


def make_dict(tx: Interpreter, pairs: Iterable[tuple[Value, Value]]) -> DictValue:
    """A dict that the frame makes of keys and values (BUILD_MAP)."""
    result = DictValue({})
    for key, value in pairs:
        result.put(tx, key, value)
    return result


@builder(dict, collections.OrderedDict)
def build_dict(tx: Interpreter, obj: dict, source: Source | None) -> Value:
    owner = tx.output.side_effects.changed_dicts.get(id(obj))
    if owner is not None:
        return late_bound.changed_attributes(tx, obj, source, owner)
    tx.guard(source, "type", type(obj))
    value = DICT_CLASSES[type(obj)]({}, source, real=obj)
    tx.output.side_effects.track_existing(value)
    return tx.output.remember(obj, source, value)


@builder(collections.defaultdict)
def build_defaultdict(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    tx.guard(source, "type", collections.defaultdict)
    factory_source = None if source is None else AttrSource(source, "default_factory")
    factory = tx.wrap(obj.default_factory, factory_source)
    value = DefaultDictValue({}, source, real=obj, factory=factory)
    tx.output.side_effects.track_existing(value)
    return tx.output.remember(obj, source, value)
