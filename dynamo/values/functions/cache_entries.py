"""Entries of a functools.lru_cache, read without a call of the cache, which would count as a hit.

The cache has no such method, but shows the garbage collector its entries: the least recently
used entry first; last its dict, the function, the mark in front of keywords, two types, and its
attributes.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dynamo._hook import answered

Elements = tuple[Any, ...]  # a key: the arguments, the mark in front of keywords, and the keywords


class _Mark:
    """In front of keywords."""

    def __repr__(self) -> str:
        return "KEYWORDS"


KEYWORDS = _Mark()


class _Absent:
    """In the place of an answer."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = _Absent()


def elements(args: Sequence[Any], kwargs: dict[str, Any], types: Sequence[type]) -> Elements:
    """The key of a call, the way `entries` tells those of a cache; types: of all arguments, if the
    cache tells by them, too.
    """
    key = [*args]
    if kwargs:
        key.append(KEYWORDS)
        for item in kwargs.items():
            key += item
    return (*key, *types)


def entries(cache: Any) -> list[tuple[Elements, Any]]:
    """(key, answer) of each, the one that goes first being the first."""
    *listed, table, _, mark, _, _, _ = gc.get_referents(cache)
    if cache.cache_parameters()["maxsize"] is None:
        found = list(table.items())
    else:
        found = list(zip(listed[1::3], listed[2::3]))  # after the type of the cache, or of a link
    return [(_elements_of(key, mark), answer) for key, answer in found]


def _elements_of(key: Any, mark: Any) -> Elements:
    if type(key) in (int, str):
        return (key,)
    return tuple(KEYWORDS if item is mark else item for item in key)


def answer_to(cache: Any, wanted: Elements) -> Any:
    """The cached result for a key of literals and of objects that are compared by identity, or
    ABSENT.
    """
    *listed, table, _, mark, _, _, _ = gc.get_referents(cache)
    key: Any = tuple(mark if item is KEYWORDS else item for item in wanted)
    if len(key) == 1 and type(key[0]) in (int, str) and not cache.cache_parameters()["typed"]:
        key = key[0]
    if key not in table:
        return ABSENT
    if cache.cache_parameters()["maxsize"] is None:
        return table[key]
    for at in reversed(range(1, len(listed) - 1, 3)):  # those that were asked for lately come last
        if _equal(_elements_of(listed[at], mark), wanted):
            return listed[at + 1]
    return ABSENT


_TUPLES = frozenset([tuple, torch.Size])  # equal with equal elements
_LITERALS = frozenset([int, float, complex, bool, str, bytes])


def _equal(held: Elements, wanted: Elements) -> bool:
    if len(held) != len(wanted):
        return False
    for one, other in zip(held, wanted):
        if type(one) in _TUPLES and type(other) in _TUPLES:
            same = _equal(one, other)
        else:
            same = one is other or (
                type(one) in _LITERALS and type(other) in _LITERALS and one == other
            )
        if not same:
            return False
    return True


@functools.cache
def readable() -> bool:
    """Whether this Python's caches are as described above."""
    made: list[Any] = []
    for maxsize in (4, None):
        cache: Any = functools.lru_cache(maxsize)(lambda *args, **kwargs: (args, kwargs))
        cache(1), cache("b", c=2), cache(1.5), cache(1)
        made.append(entries(cache))
        if cache.cache_info()[:2] != (1, 3):
            return False
    first: Any = ((1,), ((1,), {}))
    second: Any = (("b", KEYWORDS, "c", 2), (("b",), {"c": 2}))
    last: Any = ((1.5,), ((1.5,), {}))
    key: Elements = ("b", KEYWORDS, "c", 2)
    found = [answer_to(cache, key)]
    return made == [[second, last, first], [first, second, last]] and found == [(("b",), {"c": 2})]


class HasRoom:
    """Whether a cache (once cleared) takes `wanted` more answers without an eviction."""

    def __init__(self, wanted: int, cleared: bool = False) -> None:
        self.wanted = wanted
        self.cleared = cleared
        self.__name__ = f"the cache has room for {wanted} more"

    def __call__(self, cache: Any) -> bool:
        info = cache.cache_info()
        held = 0 if self.cleared else info.currsize
        return info.maxsize is None or held + self.wanted <= info.maxsize


# -- in the rewritten frame -----------------------------------------------------------------------
def _arguments(names: tuple[str, ...], values: tuple) -> tuple[tuple, dict[str, Any]]:
    positional = len(values) - len(names)
    return values[:positional], dict(zip(names, values[positional:]))


def hit(cache: Callable[..., Any], names: tuple[str, ...], *values: Any) -> None:
    """Count a hit of the program's call in the cache."""
    args, kwargs = _arguments(names, values)
    cache(*args, **kwargs)


def store(cache: Any, names: tuple[str, ...], answer: Any, *values: Any) -> None:
    """Store `answer`, the result of the cache's captured function."""
    args, kwargs = _arguments(names, values)
    answered(cache.__wrapped__, answer, cache, args, kwargs)


def clear(cache: Any) -> None:
    cache.cache_clear()
