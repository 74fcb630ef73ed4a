"""Cells: the boxes in which closures share variables."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.sources import CellContentsSource, ClosureCellSource, ClosureSource, Source
from dynamo.values.base import Value
from dynamo.values.builder import Lazy, builder
from dynamo.values.recipes import (
    CellOfFrame,
    Existing,
    Recipe,
    Store,
    attribute_stores,
    stores,
)
from dynamo.values.scalars.constant import is_literal

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter


class CellValue(Value):
    """A cell. `contents` is a Value, a Lazy that nobody has read yet, or None: empty.

    `local_name` is set for the cell variables of the compiled frame itself: the rewritten frame has
    that cell too. `real`: the cell, if it existed before.
    """

    is_made_bare = True

    def __init__(
        self,
        contents: Value | Lazy | None,
        source: Source | None = None,
        local_name: str | None = None,
        real: types.CellType | None = None,
    ) -> None:
        super().__init__(source)
        self.contents = contents
        self.local_name = local_name
        self.real = real

    def python_type(self) -> type:
        return types.CellType

    def load(self, tx: Interpreter) -> Value | None:
        """The content, or None if the cell is empty."""
        if isinstance(self.contents, Lazy):
            self.contents = self.contents.realize(tx)
        elif self.contents is None and not (self.mutation.new or self.mutation.dirty):
            tx.guard(self.source, "predicate", is_empty)
        return self.contents

    def store(self, tx: Interpreter, value: Value | None) -> None:
        tx.output.side_effects.mark(self)
        self.contents = value

    def getattr(self, tx: Interpreter, name: str) -> Value:
        if name != "cell_contents":
            return super().getattr(tx, name)
        value = self.load(tx)
        if value is None:
            raise Unsupported(breaks.AttributeAccess(self.describe(), name))
        return value

    def hasattr(self, tx: Interpreter, name: str) -> bool:
        if name == "cell_contents":
            self.getattr(tx, name)
        return super().hasattr(tx, name)

    def setattr(self, tx: Interpreter, name: str, value: Value) -> None:
        if name != "cell_contents":
            raise Unsupported(breaks.AttributeMutation(self.describe(), name))
        self.store(tx, value)

    def recipe(self) -> Recipe:
        if self.local_name is not None:
            return CellOfFrame(self.local_name), []
        if self.real is not None:  # of a function that is reached without a source
            return Existing(self.real, "cell"), []
        return types.CellType, []

    def fill(self) -> Sequence[Recipe]:
        name = self.local_name or getattr(self.source, "variable", None)
        if name is None:
            return attribute_stores(self, "cell_contents", self.contents)
        return stores(Store("store_deref", name), Store("delete_deref", name), self.contents, [])

    def children(self) -> Sequence[Value]:
        return (self.contents,) if isinstance(self.contents, Value) else ()

    def unwrapped_objects(self) -> Sequence[Any]:
        return (self.contents.obj,) if isinstance(self.contents, Lazy) else ()


@builder(types.CellType)
def build_cell(tx: Interpreter, obj: types.CellType, source: Source | None) -> CellValue:
    """A cell of an outside closure. The content is guarded when the program reads it."""
    if source is None and _is_changeable(obj):
        source = tx.output.install("cell", obj)
    tx.guard(source, "type", types.CellType)
    value = CellValue(_lazy_contents(obj, source), source, real=obj)
    tx.output.side_effects.track_existing(value)
    tx.output.remember(obj, source, value)
    return value


_LASTING = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)


def _is_changeable(cell: types.CellType) -> bool:
    """Whether the contents of a library function's cell may be changed, as an object or by
    another.
    """
    if is_empty(cell):
        return True
    contents: Any = cell.cell_contents
    return not (is_literal(contents) or issubclass(type(contents), _LASTING))


def is_empty(cell: types.CellType) -> bool:
    try:
        contents = cell.cell_contents
    except ValueError:
        return True
    del contents  # only whether there is one
    return False


def _lazy_contents(cell: types.CellType, source: Source | None) -> Lazy | None:
    if is_empty(cell):
        return None
    contents = cell.cell_contents
    if isinstance(source, ClosureCellSource):
        return Lazy(contents, ClosureSource(source.variable, source.index))
    return Lazy(contents, None if source is None else CellContentsSource(source))
