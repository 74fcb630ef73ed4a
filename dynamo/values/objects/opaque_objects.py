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
from dynamo.values.classes.lookup import MISSING, class_lookup
from dynamo.values.late_bound import bound_late
from dynamo.values.objects.exceptions import call_real, raise_python
from dynamo.values.objects.namespaces import NamespaceValue
from dynamo.values.recipes import Attribute, Recipe
from dynamo.values.scalars.constant import is_literal

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


@bound_late
class LargeIntValue(UnseenValue):
    """An int beyond 63 bits that varies from call to call, as torch.seed() gives: operations on the
    int break the graph, and code behind the break may have a symbol again.
    """

    may_be_another = True

    def identity(self) -> tuple[bool, Any]:
        return False, None


class ThreadLocalValue(UnseenValue):
    """A threading.local: this thread's attributes are read, and guarded, one by one."""

    def getattr(self, tx: Interpreter, name: str) -> Value:
        if name == "__dict__":
            return self._dict(tx)
        own = self.own_attr(tx, name)
        if own is not None:
            return own
        assert self.source is not None, "it was installed"
        deleted = tx.output.side_effects.load_attr(self, name) is not None
        found = class_lookup(type(self.real), name)
        if deleted or not (found is MISSING or is_literal(found)):
            return super().getattr(tx, name)
        absent = found is MISSING
        tx.guard(self.source, "type_attr", (name, None) if absent else (name, found, True))
        return tx.from_constant(call_real(tx, getattr, self.real, name))

    def own_attr(self, tx: Interpreter, name: str) -> Value | None:
        """The attribute in this thread's dict."""
        stored = tx.output.side_effects.load_attr(self, name)
        if isinstance(stored, Value):
            return stored
        if stored is not None or not self._holds(tx, name):
            return None
        assert self.source is not None, "it was installed"
        return tx.wrap(vars(self.real)[name], AttrSource(self.source, name))

    def hasattr(self, tx: Interpreter, name: str) -> bool:
        if self.own_attr(tx, name) is not None:
            return True
        if class_lookup(type(self.real), name) is not MISSING:
            return super().hasattr(tx, name)
        return False

    def setattr(self, tx: Interpreter, name: str, value: Value) -> None:
        self._check(tx, name, "__set__")
        tx.output.side_effects.store_attr(self, name, value)

    def delattr(self, tx: Interpreter, name: str) -> None:
        self._check(tx, name, "__delete__")
        if not self.hasattr(tx, name) or class_lookup(type(self.real), name) is not MISSING:
            super().delattr(tx, name)
        tx.output.side_effects.delete_attr(self, name)

    def _check(self, tx: Interpreter, name: str, special: str) -> None:
        """Break where the class has hooks for writes."""
        found = class_lookup(type(self.real), name)
        if hasattr(found, special) or not self._is_known(tx, name):
            raise Unsupported(breaks.AttributeMutation(self.describe(), name))

    def _is_known(self, tx: Interpreter, name: str) -> bool:
        """Whether capture sees all that becomes of an attribute. A frame that has the dict by
        another way may write that.
        """
        plain = _is_plain(type(self.real)) and not name.startswith("__")
        _, known = tx.output.values_by_id.get(id(vars(self.real)), (None, None))
        return plain and (known is None or isinstance(known, ThreadLocalDictValue))

    def _dict(self, tx: Interpreter) -> Value:
        """The attributes of this thread as a dict."""
        if not _is_plain(type(self.real)):
            raise Unsupported(breaks.AttributeAccess(self.describe(), "__dict__"))
        assert self.source is not None, "it was installed"
        real, source = vars(self.real), AttrSource(self.source, "__dict__")
        known = tx.output.known_value(real, source)
        if known is not None:
            return known
        return tx.output.remember(real, source, ThreadLocalDictValue(self, real, source))

    def _holds(self, tx: Interpreter, name: str) -> bool:
        if not self._is_known(tx, name):
            raise Unsupported(breaks.AttributeAccess(self.describe(), name))
        found = name in vars(self.real)

        def thread_local_has(real: Any) -> bool:
            return (name in vars(real)) is found

        thread_local_has.__name__ = f"thread_local_has {name}: {found}"
        tx.guard(self.source, "predicate", thread_local_has)
        return found


class ThreadLocalDictValue(NamespaceValue):
    """The __dict__ of a threading.local: reads and writes are those of attributes."""

    def __init__(self, owner: ThreadLocalValue, real: dict[str, Any], source: Source) -> None:
        super().__init__(real, source)
        self.owner = owner

    def describe(self) -> str:
        return f"the attributes of {self.owner.describe()}"

    def find(self, tx: Interpreter, key: Value) -> Value | None:
        name = key.as_constant()
        if type(name) is not str:
            raise Unsupported(breaks.UncapturedCall(f"dict.get of {self.describe()}"))
        return self.owner.own_attr(tx, name)

    def setitem(self, tx: Interpreter, key: Value, value: Value) -> None:
        self.find(tx, key)
        self.owner.setattr(tx, key.as_constant(), value)

    def delitem(self, tx: Interpreter, key: Value) -> None:
        if self.find(tx, key) is None:
            raise_python(tx, KeyError, key)
        self.owner.delattr(tx, key.as_constant())

    def truth(self, tx: Interpreter) -> bool:
        raise Unsupported(breaks.UncapturedCall(f"bool of {self.describe()}"))

    def recipe(self) -> Recipe:
        return Attribute("__dict__"), [self.owner]


def _is_plain(cls: type) -> bool:
    """Whether attributes of instances are read and written as those of threading.local."""
    names = ("__getattribute__", "__setattr__", "__delattr__")
    same = all(getattr(cls, name) is getattr(threading.local, name) for name in names)
    return same and class_lookup(cls, "__getattr__") is MISSING


@subclass_builder(threading.local)
def build_thread_local(tx: Interpreter, obj: threading.local, source: Source | None) -> Value:
    if source is None:
        source = tx.output.install(type(obj).__name__, obj)
    tx.guard(source, "id", obj)
    value = ThreadLocalValue(obj, source)
    tx.output.side_effects.track_existing(value)
    return tx.output.remember(obj, source, value)


class FrameValue(UnseenValue):
    """A frame object: rewriting changes its attributes, too."""

    def identity(self) -> tuple[bool, Any]:
        return False, None


@builder(types.FrameType)
def build_frame(tx: Interpreter, obj: types.FrameType, source: Source | None) -> Value:
    tx.guard(source, "type", types.FrameType)
    return tx.output.remember(obj, source, FrameValue(obj, source))
