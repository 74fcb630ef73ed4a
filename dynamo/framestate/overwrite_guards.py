"""Guards on objects that a frame overwrites without having read them: nothing of the program may
observe the end of such an object.

Capture examines the object that is overwritten while it captures (values/effects/lifetimes.py). A
later call may overwrite another object: the guard examines that one.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable, Iterator, Sequence
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

import torch

from dynamo.guards.sources import GlobalsSource, Source
from dynamo.values.base import Value
from dynamo.values.containers.containers import DequeValue, SequenceValue
from dynamo.values.containers.dicts import DictValue
from dynamo.values.effects.lifetimes import BY_CAPTURE, observable_parts, old_attributes, old_items
from dynamo.values.functions.cell import CellValue, is_empty
from dynamo.values.objects.builtin_object import Pending
from dynamo.values.scalars.constant import CONSTANT_TYPES, is_literal

if TYPE_CHECKING:
    from dynamo.interp.output import OutputGraph

_FEW = 64  # items of a container
_SEQUENCES = (list, collections.deque)
# Guards after which the end of a value is noticed by nobody, or by few (a tensor's).
_TELLING = frozenset(["constant", "none", "tensor", "static_tensor"])


Taken = Callable[[Any], list[Any]]


def guard_overwrites(output: OutputGraph) -> None:
    """Guard all places that the frame overwrites."""
    if output.context.export:
        return
    for source, real, keys, taken in _overwritten(output):
        if any(observable_parts(taken(real), BY_CAPTURE)):
            continue
        unnoticed = _end_is_unobserved(taken)
        if keys:
            output.guard(source, "unnoticed", (tuple(keys), unnoticed))
        else:
            output.guard(source, "predicate", unnoticed)


def _in_dict(real: Any, names: Sequence[str]) -> bool:
    """Whether attributes of these names are in the object's dict, if there are any."""
    kind = type(real)
    if issubclass(kind, (type, torch.Tensor, dict)) or not kind.__dictoffset__:
        return False
    found = (vars(cls).get(name) for cls in type.mro(kind) for name in names)
    return not any(type(member) is MemberDescriptorType for member in found)


def _end_is_unobserved(taken: Taken) -> Callable[[Any], bool]:
    def overwritten_ends_unobserved(real: Any) -> bool:
        return not any(observable_parts(taken(real)))

    return overwritten_ends_unobserved


# (source of the owner, the owner now, the keys that are overwritten if it is a dict, how the
# overwritten object is read from the owner).
Overwritten = tuple[Source, Any, Sequence[Any], Taken]


def _overwritten(output: OutputGraph) -> Iterator[Overwritten]:
    effects = output.side_effects
    known = _known_sources(output)
    for value in effects.tracked:
        mutation, source, real = value.mutation, value.source, value.outside
        if mutation.new or not mutation.dirty or source is None or real is None:
            continue
        yield from _contents_of(value, source, real, known)
        own_source = getattr(value, "own_source", None)
        names = list(mutation.attrs)
        if own_source is not None:
            names = [name for name in names if own_source(name) not in known]
        if names:
            yield source, real, names if _in_dict(real, names) else (), _attributes(names)
    namespaces: dict[int, tuple[dict, Source, list[str]]] = {}
    for (key, name), (namespace, origin, _) in effects.globals.items():
        namespaces.setdefault(key, (namespace, origin or GlobalsSource(), []))[2].append(name)
    for namespace, origin, names in namespaces.values():
        yield origin, namespace, names, _items(names)


def _contents_of(
    value: Value, source: Source, real: Any, known: set[Source | None]
) -> Iterator[Overwritten]:
    """The contents of a cell or a container, or of an instance of a subclass of one."""
    held = getattr(value, "storage", None)
    held = value if held is None else held
    if isinstance(held, CellValue):
        yield source, real, (), _cell_contents
    elif isinstance(held, DictValue):
        keys = [key for key in _dropped_keys(held, real) if held.item_source(key) not in known]
        if keys:
            yield source, real, keys, _items(keys)
    elif isinstance(held, DequeValue) and held.behind is not None:
        if held.maxlen is not None:
            yield source, real, (), _driven_out(held.maxlen, len(held.behind.appended))
    elif isinstance(held, SequenceValue):
        plain: Any = next((base for base in _SEQUENCES if issubclass(type(real), base)), None)
        if plain is not None:
            dropped = _dropped_places(held, list(plain.__iter__(real)))
            places = [i for i in dropped if held.item_source(i) not in known]
            if places:
                yield source, real, (), _items_at(plain, places)


def _known_sources(output: OutputGraph) -> set[Source | None]:
    """Where literals and tensors are that the frame has read."""
    return {
        guard.source
        for guard in output.guards
        if guard.kind in _TELLING or (guard.kind == "type" and guard.payload in CONSTANT_TYPES)
    }


def _driven_out(most: int, appended: int) -> Taken:
    """The items that leave a deque of at most so many, when others are appended."""

    def taken(real: collections.deque) -> list[Any]:
        extra = collections.deque.__len__(real) + appended - most
        return list(itertools.islice(collections.deque.__iter__(real), max(extra, 0)))

    return taken


def _dropped_places(value: SequenceValue, real: Sequence[Any]) -> Iterator[int]:
    """The indices of items that the frame took out."""
    if value.behind is not None:
        return
    unread = {item.source for item in value.contents if isinstance(item, Pending)}
    read = {id(item.outside) for item in value.contents if isinstance(item, Value)} - {id(None)}
    for i in range(min(len(real), _FEW)):
        if value.item_source(i) not in unread and id(real[i]) not in read:
            yield i


def _dropped_keys(value: DictValue, real: dict) -> Iterator[Any]:
    """The keys whose items the frame took out, or replaced."""
    # Keys that are compared by code of the user's are not looked up: capture is over.
    entries = {key: entry for key, entry in value.entries.items() if is_literal(key)}
    for key, obj in itertools.islice(dict.items(real), _FEW):
        if not is_literal(key):
            continue
        entry = entries.get(key)
        if entry is None:
            kept = value.real is not None  # not looked at
        elif isinstance(entry[1], Pending):
            kept = entry[1].real is obj
        else:
            kept = obj is not None and entry[1].outside is obj
        if not kept:
            yield key


def _cell_contents(cell: Any) -> list[Any]:
    return [] if is_empty(cell) else [cell.cell_contents]


def _items_at(plain: Any, places: list[int]) -> Taken:
    """Past methods that a subclass overrides."""
    return lambda items: [plain.__getitem__(items, i) for i in places if i < plain.__len__(items)]


def _items(keys: list[Any]) -> Taken:
    return lambda real: old_items(real, keys)


def _attributes(names: list[str]) -> Taken:
    return lambda real: old_attributes(real, names)
