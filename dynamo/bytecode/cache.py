"""A dictionary keyed by code objects: by identity, and without keeping them alive.

Code objects compare and hash by content (slowly, and two equal ones may need different entries), so
neither a dict nor WeakKeyDictionary will do. Values must not refer strongly to their key.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import CodeType
from typing import Generic, TypeVar

T = TypeVar("T")
_watched: dict[int, weakref.ref[CodeType]] = {}  # by their own ids


class CodeMap(Generic[T]):
    def __init__(self) -> None:
        self._entries: dict[int, tuple[weakref.ref[CodeType], T]] = {}

    def get(self, code: CodeType) -> T | None:
        entry = self._entries.get(id(code))
        return entry[1] if entry is not None and entry[0]() is code else None

    def set(self, code: CodeType, value: T) -> T:
        key, entries = id(code), self._entries

        def forget(ref: weakref.ref[CodeType]) -> None:
            entry = entries.get(key)
            if entry is not None and entry[0] is ref:
                del entries[key]

        entries[key] = (weakref.ref(code, forget), value)
        return value

    def __len__(self) -> int:
        return len(self._entries)


def when_gone(code: CodeType, call: Callable[[], None]) -> None:
    """call() when `code` is freed. (weakref.finalize is Python code of another module, which would
    be captured where it runs, and its registry is searched as a whole.)
    """

    def gone(ref: weakref.ref[CodeType]) -> None:
        del _watched[id(ref)]
        call()

    ref = weakref.ref(code, gone)
    _watched[id(ref)] = ref
