"""Objects whose attributes are another thread's, the event loop's, or change as the program runs:
capture does not look in.
"""

from __future__ import annotations

import threading
import types
from typing import TYPE_CHECKING, Any

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.sources import AttrSource
from dynamo.values.base import Value
from dynamo.values.builder import builder, subclass_builder

if TYPE_CHECKING:
    from dynamo.guards.sources import Source
    from dynamo.interp.interpreter import Interpreter


class UnseenValue(Value):
    """An object that is only passed on."""

    def __init__(self, real: Any, source: Source | None) -> None:
        super().__init__(source)
        self.real = real

    def python_type(self) -> type:
        return type(self.real)

    def identity(self) -> tuple[bool, Any]:
        return True, self.real

    def getattr(self, tx: Interpreter, name: str) -> Value:
        raise Unsupported(breaks.AttributeAccess(self.describe(), name))

    def hasattr(self, tx: Interpreter, name: str) -> bool:
        raise Unsupported(breaks.AttributeAccess(self.describe(), name))


class ThreadLocalValue(UnseenValue):
    """A threading.local: what this thread put into it is read, and guarded, by attribute."""

    def getattr(self, tx: Interpreter, name: str) -> Value:
        if not self.hasattr(tx, name):
            return super().getattr(tx, name)
        assert self.source is not None, "it was installed"
        return tx.wrap(getattr(self.real, name), AttrSource(self.source, name))

    def hasattr(self, tx: Interpreter, name: str) -> bool:
        if type(self.real) is not threading.local or name.startswith("__"):
            return super().hasattr(tx, name)
        if id(vars(self.real)) in tx.output.values_by_id:
            return super().hasattr(tx, name)  # the frame has its dict, and may have written that
        found = name in vars(self.real)

        def thread_local_has(real: Any) -> bool:
            return (name in vars(real)) is found

        thread_local_has.__name__ = f"thread_local_has {name}: {found}"
        tx.guard(self.source, "predicate", thread_local_has)
        return found


@subclass_builder(threading.local)
def build_thread_local(tx: Interpreter, obj: threading.local, source: Source | None) -> Value:
    if source is None:
        source = tx.output.install(type(obj).__name__, obj)
    tx.guard(source, "id", obj)
    return tx.output.remember(obj, source, ThreadLocalValue(obj, source))


class FrameValue(UnseenValue):
    """A frame object: rewriting changes what it says, too."""

    def identity(self) -> tuple[bool, Any]:
        return False, None


@builder(types.FrameType)
def build_frame(tx: Interpreter, obj: types.FrameType, source: Source | None) -> Value:
    tx.guard(source, "type", types.FrameType)
    return tx.output.remember(obj, source, FrameValue(obj, source))
