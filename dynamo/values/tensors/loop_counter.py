"""The variable of a loop over range(n) in the graph, where n depends on data.

    for i in range(n):
        x = x * 0.5 + rows[i]

Each iteration has another number, which a tensor without dimensions holds. Arithmetic with numbers
gives further such numbers, arithmetic with a tensor takes the tensor, as rows[i] does; anything
else keeps the loop out of the graph.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from dynamo.values.base import Value
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.scalars.operators import BINARY_FUNCTIONS, SWAPPED
from dynamo.values.tensors.choice import beside_tensor
from dynamo.values.tensors.deferred_scalar import DeferredScalar
from dynamo.values.tensors.tensor import TensorValue, call_in_graph

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter
    from dynamo.plans import BreakBefore

_LARGEST = 1 << 20  # of constants
_TURNS = 1 << 40  # more than any loop makes
_STEP = 16  # of a number from one turn to the next
_UNKNOWN = 1 << 62  # numbers of loops that begin at a number of data
LARGEST_START = 1 << 61  # of numbers that change from turn to turn
_OPERATORS = ("+", "-", "*", "/", "//", "%")
# Kind of number -> types of tensors for which the number's tensor is as good as the number.
_BESIDE = {
    int: (torch.float32, torch.float64, torch.int64),
    float: (torch.float32, torch.float64),
}


class LoopCounter(DeferredScalar):
    """An int or float that is computed from the number of the iteration. largest: its magnitude is
    below, which has to fit in 64 bits.
    """

    largest = _UNKNOWN

    @classmethod
    def of_loop(
        cls, tx: Interpreter, number: TensorValue, start: Value, broken: BreakBefore
    ) -> LoopCounter:
        """The number of the iteration, which is `start` in the first one."""
        made = cls(tx.output, number, int, broken, True)
        if start.is_constant():
            made.largest = abs(start.as_constant()) + _TURNS
        return made

    @classmethod
    def of_turns(
        cls, tx: Interpreter, number: TensorValue, start: Value, kind: type, broken: BreakBefore
    ) -> LoopCounter:
        """A number that an iteration begins with, and changes, which is `start` in the first."""
        made = cls(tx.output, number, kind, broken, True)
        if kind is int:
            known = start.is_constant() and is_small(start)
            made.largest = (_LARGEST if known else LARGEST_START) + _TURNS * _STEP
        return made

    def may_follow(self, begin: LoopCounter) -> bool:
        """Whether the next iteration may begin with this number, which is no larger than its first
        one, but for a little: no number of turns makes it too large.
        """
        if self.kind is not begin.kind or not self.is_current():
            return False
        return self.kind is float or self.largest <= begin.largest + _STEP

    @property
    def alternatives(self) -> Sequence[Value]:  # type: ignore[override]
        return (self.tensor,)

    def binary(self, tx: Interpreter, op: str, other: Value, reflected: bool) -> Value | None:
        op = op.removesuffix("=")
        if isinstance(other, TensorValue):
            return beside_tensor(tx, op, self, other, reflected)
        if isinstance(other, LoopCounter):
            pair = (other, self) if reflected else (self, other)
            return self._joined(tx, op, *pair)
        number: Any = other.as_constant() if other.is_constant() else None
        if type(number) not in (int, float) or op not in _OPERATORS or not self.is_current():
            self.refuse()
        if not abs(number) < _LARGEST or (op in ("/", "//", "%") and (reflected or not number)):
            self.refuse()
        kind = float if op == "/" or type(number) is float else self.kind
        if kind is float and op in ("//", "%"):
            self.refuse()
        tensor = self._wide(tx, kind)
        by = int(abs(number)) + 1
        largest = self.largest * by if op == "*" else self.largest + by
        if kind is int and largest >= 1 << 63:
            self.refuse()
        operands = [ConstantValue(number), tensor] if reflected else [tensor, ConstantValue(number)]
        return self._computed(tx, op, operands, kind, largest)

    def _joined(self, tx: Interpreter, op: str, one: LoopCounter, other: LoopCounter) -> Value:
        """The result of an operator on two such numbers."""
        if op not in ("+", "-", "*") or not (one.is_current() and other.is_current()):
            self.refuse()
        kind = float if float in (one.kind, other.kind) else int
        join = operator.mul if op == "*" else operator.add
        largest = 0 if kind is float else join(one.largest, other.largest)
        if largest >= 1 << 63:
            self.refuse()
        return self._computed(tx, op, [one._wide(tx, kind), other._wide(tx, kind)], kind, largest)

    def _wide(self, tx: Interpreter, kind: type) -> Value:
        """The tensor of this number as one of the kind."""
        if kind is self.kind:
            return self.tensor
        wide = ConstantValue(torch.float64)
        return call_in_graph(tx, "call_method", "to", [self.tensor, wide], {})

    def _computed(
        self, tx: Interpreter, op: str, operands: list[Value], kind: type, largest: int
    ) -> LoopCounter:
        made = call_in_graph(tx, "call_function", BINARY_FUNCTIONS[op], operands, {})
        assert isinstance(made, TensorValue), "of a tensor"
        counter = LoopCounter(tx.output, made, kind, self.broken, True)
        counter.largest = largest
        return counter

    def compare(self, tx: Interpreter, op: str, other: Value) -> Value | None:
        if isinstance(other, TensorValue):
            return other.compare(tx, SWAPPED[op], self.as_tensor(tx, other.fake))
        return super().compare(tx, op, other)

    def as_tensor(self, tx: Interpreter, beside: torch.Tensor) -> TensorValue:
        """The number as a tensor that arithmetic with `beside` takes for a number."""
        if beside.dtype not in _BESIDE[self.kind] or not self.is_current():
            self.refuse()
        if self.kind is int or beside.ndim:
            return self.tensor
        made: Any = call_in_graph(
            tx, "call_method", "to", [self.tensor, ConstantValue(beside.dtype)], {}
        )
        return made


def is_small(number: Value) -> bool:
    """Whether a constant is far from the largest number that 64 bits hold, or a float."""
    known: Any = number.as_constant()
    return type(known) is float or abs(known) < _LARGEST
