"""Values of objects that capture has in its hands: functions, slots, language machinery."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dynamo.values.base import Value
from dynamo.values.objects.reflection import read_attribute
from dynamo.values.recipes import Existing, Recipe

if TYPE_CHECKING:
    from dynamo.guards.sources import Source
    from dynamo.interp.interpreter import Interpreter


class KnownObject(Value):
    """The object itself is known: type, identity, truth and attributes are its own. Subclasses say
    the handler of its calls.
    """

    def __init__(self, known: Any, source: Source | None = None) -> None:
        super().__init__(source)
        self.known = known

    def identity(self) -> tuple[bool, Any]:
        return True, self.known

    def getattr(self, tx: Interpreter, name: str) -> Value:
        return read_attribute(tx, self, self.known, name)

    def hasattr(self, tx: Interpreter, name: str) -> bool:
        return hasattr(self.known, name)

    def recipe(self) -> Recipe:
        return Existing(self.known), []
