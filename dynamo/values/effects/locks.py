"""threading.Lock and RLock from outside: held while the rewritten frame writes the captured
effects.

Effects of the captured code under a lock are writes, which the rewritten frame makes together: the
frame acquires the lock before them, and releases it after them.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.sources import Source
from dynamo.values.base import Value
from dynamo.values.builder import builder
from dynamo.values.objects.builtin_object import BuiltinObject
from dynamo.values.recipes import MethodCall, Recipe
from dynamo.values.scalars.constant import ConstantValue

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

LOCK, RLOCK = type(threading.Lock()), type(threading.RLock())
_ACQUIRE, _RELEASE = MethodCall("acquire"), MethodCall("release")


class LockValue(BuiltinObject):
    """A lock. `depth`: the acquisitions beyond those at the frame's entry."""

    def __init__(self, real: Any, source: Source) -> None:
        super().__init__(source)
        self.real = real
        self.depth = 0
        self.found_held = False  # the first that happened to it was that it was let go

    def identity(self) -> tuple[bool, Any]:
        return True, self.real

    def py_acquire(self, tx: Interpreter) -> Value:
        self._used(tx)
        if self.depth > 0 and isinstance(self.real, LOCK):
            raise Unsupported(breaks.UncapturedCall("acquire of a lock that is held"))
        self.depth += 1
        return ConstantValue(True)

    def py_release(self, tx: Interpreter) -> None:
        self.found_held |= self not in tx.output.side_effects.locks
        if self.depth - 1 < -self.found_held:
            raise Unsupported(breaks.UncapturedCall("release of a lock that is not held"))
        self._used(tx)
        self.depth -= 1

    def py___enter__(self, tx: Interpreter) -> Value:
        return self.py_acquire(tx)

    def py___exit__(self, tx: Interpreter, kind: Value, error: Value, trace: Value) -> None:
        self.py_release(tx)

    def _used(self, tx: Interpreter) -> None:
        effects = tx.output.side_effects
        effects.touch()
        if self not in effects.locks:
            effects.locks.append(self)

    def takes(self) -> list[Recipe]:
        """The calls before the writes."""
        return [(_ACQUIRE, [self])] * (0 if self.found_held else max(self.depth, 1))

    def releases(self) -> list[Recipe]:
        """The calls after the writes; a lock that is held at a graph break stays so."""
        return [(_RELEASE, [self])] * (-self.depth if self.found_held else int(self.depth == 0))


@builder(LOCK, RLOCK)
def build_lock(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    if source is None:
        source = tx.output.install("lock", obj)
    tx.guard(source, "type", type(obj))
    return tx.output.remember(obj, source, LockValue(obj, source))
