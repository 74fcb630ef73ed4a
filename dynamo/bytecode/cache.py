"""Dictionaries keyed by objects: by identity, and without keeping them alive.

Code objects compare and hash by content (slowly, and two equal ones may need different entries),
modules by whatever the program defines, so neither a dict nor WeakKeyDictionary will do. Values
must not refer strongly to their key.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import CodeType
from typing import Generic, TypeVar

K = TypeVar("K")
T = TypeVar("T")
_watched: dict[int, weakref.ref[CodeType]] = {}  # by their own ids


class IdentityMap(Generic[K, T]):
    def __init__(self) -> None:
        self._entries: dict[int, tuple[weakref.ref[K], T]] = {}

    def get(self, item: K) -> T | None:
        entry = self._entries.get(id(item))
        return entry[1] if entry is not None and entry[0]() is item else None

    def set(self, item: K, value: T) -> T:
        key, entries = id(item), self._entries

        def forget(ref: weakref.ref[K]) -> None:
            entry = entries.get(key)
            if entry is not None and entry[0] is ref:
                del entries[key]

        entries[key] = (weakref.ref(item, forget), value)
        return value

    def computed(self, item: K, compute: Callable[[], T]) -> T:
        """The value of an item, computed on the first call."""
        entry = self._entries.get(id(item))
        if entry is not None and entry[0]() is item:
            return entry[1]
        return self.set(item, compute())

    def __len__(self) -> int:
        return len(self._entries)


class CodeMap(IdentityMap[CodeType, T]):
    """Keyed by code objects."""


class InstructionMap(Generic[T]):
    """Keyed by code objects and the indices of their instructions."""

    def __init__(self) -> None:
        self._codes: CodeMap[dict[int, T]] = CodeMap()

    def computed(self, code: CodeType, index: int, compute: Callable[[], T]) -> T:
        known = self._codes.computed(code, dict)
        if index not in known:
            known[index] = compute()
        return known[index]


def when_gone(code: CodeType, call: Callable[[], None]) -> None:
    """call() when `code` is freed. (weakref.finalize is Python code of another module, which would
    be captured where it runs, and its registry is searched as a whole.)
    """

    def gone(ref: weakref.ref[CodeType]) -> None:
        del _watched[id(ref)]
        call()

    ref = weakref.ref(code, gone)
    _watched[id(ref)] = ref
