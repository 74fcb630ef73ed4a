"""Compiled functions that a captured frame calls: their functions become part of its graph.

The settings of the frame hold; `backend`, `mode` and `dynamic` of the called one are for calls from
eager code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dynamo import _hook
from dynamo.guards.sources import AttrSource
from dynamo.values.base import Value
from dynamo.values.builder import builder
from dynamo.values.objects.known_objects import KnownObject
from dynamo.values.recipes import Loaded, Recipe

if TYPE_CHECKING:
    from dynamo.guards.sources import Source
    from dynamo.interp.interpreter import Interpreter


class CompiledFunctionValue(KnownObject):
    """The result of dynamo.compile(function); `function` is the wrapped function's Value."""

    def __init__(self, known: _hook.Compiled, function: Value, source: Source) -> None:
        super().__init__(known, source)
        self.function = function

    def describe(self) -> str:
        return f"compiled {self.function.describe()}"

    def forwards(
        self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> tuple[Value, Sequence[Value], dict[str, Value]]:
        return self.function, args, kwargs

    def recipe(self) -> Recipe:
        assert self.source is not None
        return Loaded(self.source), []


@builder(_hook.Compiled)
def build_compiled(tx: Interpreter, obj: _hook.Compiled, source: Source | None) -> Value:
    if source is None:
        source = tx.output.install("compiled", obj)
    tx.guard(source, "id", obj)
    function = tx.wrap(obj.__wrapped__, AttrSource(source, "__wrapped__"))
    return tx.output.remember(obj, source, CompiledFunctionValue(obj, function, source))
