"""types.MappingProxyType over a dict: reads are the dict's, writes are refused."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING

from dynamo.guards.sources import Source
from dynamo.values.base import Value
from dynamo.values.classes.lookup import type_holds
from dynamo.values.objects.builtin_object import BuiltinObject
from dynamo.values.recipes import Recipe
from dynamo.values.scalars.operators import COMPARE_DUNDERS, binary_op, compare_op

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter


class MappingProxyValue(BuiltinObject):
    """target: the dict."""

    def __init__(self, target: Value, source: Source | None = None) -> None:
        super().__init__(source)
        self.target = target

    def python_type(self) -> type:
        return types.MappingProxyType

    def method(self, name: str) -> Callable[..., Value] | None:
        if name in ("__or__", "__ror__", *COMPARE_DUNDERS.values()):
            return super().method(name)
        if name == "__ior__" or not type_holds(types.MappingProxyType, name):
            return None
        return getattr(self.target, f"py_{name}", None)

    def length(self, tx: Interpreter) -> int:
        return self.target.length(tx)

    def iterate(self, tx: Interpreter) -> Value:
        return self.target.iterate(tx)

    def contains(self, tx: Interpreter, item: Value) -> Value:
        return self.target.contains(tx, item)

    def getitem(self, tx: Interpreter, key: Value) -> Value:
        return self.target.getitem(tx, key)

    def compare(self, tx: Interpreter, op: str, other: Value) -> Value | None:
        return compare_op(tx, op, self.target, other)

    def binary(self, tx: Interpreter, op: str, other: Value, reflected: bool) -> Value | None:
        if op != "|":
            return None
        sides = [self.target, getattr(other, "target", other)]
        return binary_op(tx, op, *(reversed(sides) if reflected else sides))

    def recipe(self) -> Recipe:
        return self.python_type(), [self.target]
