"""numpy's scalars from outside: tensors take them as numbers, which vary from call to
call, so that a loop over np.arange(n) compiles once.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.sources import CallSource, Source
from dynamo.torch.numpy_values import TO_TORCH, DtypeValue, refuse
from dynamo.values.base import Value
from dynamo.values.builder import subclass_builder
from dynamo.values.containers.containers import SequenceValue
from dynamo.values.recipes import Attribute, Loaded, Recipe
from dynamo.values.scalars.constant import ConstantValue, is_number_to_torch
from dynamo.values.scalars.symbol import SymbolValue

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter


_EXACT = ("+", "-", "*")
_PLAIN: dict[type, tuple[type, ...]] = {np.int64: (int,), np.float64: (float, int)}


class NumpyNumber(Value):
    """A numpy scalar whose number (`number`) is a symbol.

    Operators of tensors, sums and products, and conversions to int and float take the number;
    whatever else is asked needs the scalar of this call, which is guarded.
    """

    def __init__(self, kind: type, number: SymbolValue, source: Source | None = None) -> None:
        super().__init__(source)
        self.kind = kind
        self.number = number

    def python_type(self) -> type:
        return self.kind

    def is_symbolic(self) -> bool:
        return True

    def as_constant(self) -> Any:
        return self.kind(self.number.as_constant())

    def as_proxy(self) -> Any:
        if is_number_to_torch(self.kind):
            return self.number.as_proxy()
        return self._constant().as_proxy()

    def describe(self) -> str:
        return f"{self.kind.__name__} {self.number.describe()}"

    def _constant(self) -> ConstantValue:
        return ConstantValue(self.as_constant())

    def binary(self, tx: Interpreter, op: str, other: Value, reflected: bool) -> Value | None:
        from dynamo.values.scalars.operators import binary_op

        if not (other.is_constant() or isinstance(other, SymbolValue | NumpyNumber)):
            return None
        number = self._exact_operand(other) if op in _EXACT else None
        if number is not None:
            operands = (number, self.number) if reflected else (self.number, number)
            result = binary_op(tx, op, *operands)
            if isinstance(result, SymbolValue):
                return NumpyNumber(self.kind, result)
        ours, theirs = self._constant(), ConstantValue(other.as_constant())
        return binary_op(tx, op, *((theirs, ours) if reflected else (ours, theirs)))

    def _exact_operand(self, other: Value) -> Value | None:
        """The other operand as a number of Python's, if the result is of this kind and equal to
        that of Python's numbers.
        """
        plain = _PLAIN.get(self.kind, ())
        if isinstance(other, NumpyNumber):
            return other.number if plain and other.kind is self.kind else None
        return other if other.python_type() in plain else None

    def compare(self, tx: Interpreter, op: str, other: Value) -> Value | None:
        from dynamo.values.scalars.operators import compare_op

        if not (other.is_constant() or isinstance(other, SymbolValue | NumpyNumber)):
            return None
        return compare_op(tx, op, self._constant(), ConstantValue(other.as_constant()))

    def unary(self, tx: Interpreter, op: str) -> Value | None:
        from dynamo.values.scalars.operators import unary_op

        return unary_op(tx, op, self._constant())

    def truth(self, tx: Interpreter) -> bool:
        return self.number.truth(tx)

    def hash_key(self, tx: Interpreter) -> Hashable:
        return self._constant().hash_key(tx)

    def getattr(self, tx: Interpreter, name: str) -> Value:
        if name == "item":
            return ItemMethod(self)
        return self._constant().getattr(tx, name)

    def call_method(
        self, tx: Interpreter, name: str, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> Value:
        if name == "item" and not args and not kwargs:
            return self.number
        return self._constant().call_method(tx, name, args, kwargs)

    def recipe(self) -> Recipe:
        return (Loaded(self.source), []) if self.source else (self.kind, [self.number])


class ItemMethod(Value):
    """scalar.item, not yet called."""

    def __init__(self, scalar: NumpyNumber) -> None:
        super().__init__()
        self.scalar = scalar

    def python_type(self) -> type:
        return types.BuiltinMethodType

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        return self.scalar.call_method(tx, "item", args, kwargs)

    def recipe(self) -> Recipe:
        return Attribute("item"), [self.scalar]


def reduction_of_numbers(op: str) -> Callable[..., Value]:
    """A handler for numpy's sum or product of a torch.Size that varies."""

    def reduce(tx: Interpreter, numbers: Value, *more: Value, **kwargs: Value) -> Value:
        from dynamo.values.scalars.operators import binary_op

        if more or kwargs or not isinstance(numbers, SequenceValue):
            raise refuse("a reduction of other objects than sizes")
        items = numbers.wrapped() if numbers.python_type() is torch.Size else []
        if not items:
            raise refuse("a reduction of other objects than sizes")
        found = functools.reduce(lambda one, other: binary_op(tx, op, one, other), items)
        if not isinstance(found, SymbolValue):
            raise refuse("a reduction of constants")
        return NumpyNumber(np.int64, found)

    return reduce


def number_in(scalar: Any) -> Any:
    """The Python number of a scalar."""
    return scalar.item()


@subclass_builder(np.dtype, np.number, np.bool_)
def build_numpy_constant(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    """dtypes and scalars are immutable."""
    if isinstance(obj, np.generic) and obj.dtype not in TO_TORCH:
        raise Unsupported(breaks.UnknownObject(type(obj).__name__))
    tx.guard(source, "type", type(obj))
    if source is not None and isinstance(obj, np.integer | np.floating):
        where = CallSource(source, number_in, "number_in")
        number = tx.output.symbols.number(obj.item(), where, "numpy's scalars vary")
        if number is not None:
            return NumpyNumber(type(obj), SymbolValue(tx.output, number, where), source)

    def numpy_constant_unchanged(value: Any) -> bool:
        return repr(value) == repr(obj)

    tx.guard(source, "predicate", numpy_constant_unchanged)
    return DtypeValue(obj, source) if isinstance(obj, np.dtype) else ConstantValue(obj, source)
