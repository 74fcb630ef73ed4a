"""Nested arguments: tuples, lists, dicts and slices whose leaves are nodes or constants."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

LEAF_TYPES = frozenset({int, float, bool, str, type(None)})


def map_aggregate(arg: Any, fn: Callable[[Any], Any]) -> Any:
    """Rebuild the nest `arg` with `fn` applied to every leaf. Named tuples keep their class."""
    kind = type(arg)
    if kind in LEAF_TYPES:
        return fn(arg)
    if isinstance(arg, tuple):
        items = [map_aggregate(item, fn) for item in arg]
        return kind(*items) if hasattr(arg, "_fields") else tuple(items)
    if isinstance(arg, list):
        return [map_aggregate(item, fn) for item in arg]
    if isinstance(arg, dict):
        items = [(key, map_aggregate(value, fn)) for key, value in arg.items()]
        return OrderedDict(items) if kind is OrderedDict else dict(items)
    if kind is slice:
        return slice(
            map_aggregate(arg.start, fn), map_aggregate(arg.stop, fn), map_aggregate(arg.step, fn)
        )
    return fn(arg)


def leaves(arg: Any) -> Iterator[Any]:
    """Every leaf of the nest `arg`, in order."""
    kind = type(arg)
    if kind in LEAF_TYPES:
        yield arg
    elif isinstance(arg, (tuple, list)):
        for item in arg:
            yield from leaves(item)
    elif isinstance(arg, dict):
        for item in arg.values():
            yield from leaves(item)
    elif kind is slice:
        yield from (arg.start, arg.stop, arg.step)
    else:
        yield arg
