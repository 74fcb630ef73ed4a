"""Python numbers that tensors hold, not read yet: x.item(), bool(x), not x.

They serve checks (interp/checks.py), where `assert lengths.max().item() <= size` is compared in
the graph; branches (interp/conditionals.py): `if x.item() > 3:`; and texts: f"{loss.item():.3f}" is
written after the graph. For anything else the number has to be known, and the graph breaks where it
was asked for.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from dynamo import breaks
from dynamo.bytecode.branches import decides_jump
from dynamo.errors import Unsupported
from dynamo.plans import BreakBefore, Retry
from dynamo.values.base import Value
from dynamo.values.late_bound import bound_late
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.scalars.operators import COMPARE_FUNCTIONS
from dynamo.values.tensors.memory_overlap import version_of
from dynamo.values.tensors.tensor import SPECIAL_METHODS, TensorValue, call_in_graph

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter
    from dynamo.interp.output import OutputGraph

_INTEGERS = frozenset([torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
_FLOATS = frozenset([torch.float16, torch.bfloat16, torch.float32, torch.float64])
_EXACT = 1 << 53  # ints up to here are float64s, too


class DeferredScalar(Value):
    """The bool, int or float in a tensor of one element."""

    is_deferred = True

    def __init__(
        self,
        output: OutputGraph,
        tensor: TensorValue,
        kind: type,
        broken: BreakBefore,
        for_branch: bool = False,
    ) -> None:
        super().__init__()
        self.output = output
        self.tensor = tensor
        self.kind = kind
        self.broken = broken
        self.for_branch = for_branch
        self.version = version_of(tensor.fake)

    def _serves(self, tx: Interpreter) -> bool:
        return self.for_branch or tx.output.checks.can_be_made()

    def refuse(self) -> NoReturn:
        """Break the graph where the program asked for the number, which is needed now."""
        raise Retry(self.output.plan.breaking(self.broken))

    def python_type(self) -> type:
        return self.kind

    def children(self) -> Sequence[Value]:
        return (self.tensor,)

    def describe(self) -> str:
        return f"the value of {self.tensor.describe()}"

    def is_constant(self) -> bool:
        return False

    def is_current(self) -> bool:
        """The tensor still holds the number that was asked for."""
        return version_of(self.tensor.fake) == self.version

    def truth_value(self, tx: Interpreter, negated: bool = False) -> Value:
        later = self.deferred_truth(tx) if self._serves(tx) else None
        if later is None:
            self.refuse()
        tensor = later[0]
        if negated:
            result = call_in_graph(tx, "call_method", "logical_not", [tensor], {})
            assert isinstance(result, TensorValue)
            tensor = result
        return DeferredScalar(tx.output, tensor, bool, self.broken, self.for_branch)

    def deferred_truth(self, tx: Interpreter) -> tuple[TensorValue, BreakBefore] | None:
        if not self.is_current():
            return None
        return _as_boolean(tx, self.tensor), self.broken

    def compare(self, tx: Interpreter, op: str, other: Value) -> Value | None:
        """Compared as Python compares: exactly."""
        if not self._serves(tx):
            self.refuse()
        left, right = self._number(tx), _operand(tx, self, other)
        if left is None or right is None:
            self.refuse()
        result = call_in_graph(tx, "call_function", COMPARE_FUNCTIONS[op], [left, right], {})
        assert isinstance(result, TensorValue)
        return DeferredScalar(tx.output, result, bool, self.broken, self.for_branch)

    def _number(self, tx: Interpreter) -> Value | None:
        """The tensor in a dtype that can hold its number and the numbers in comparisons."""
        if not self.is_current():
            return None
        wide = torch.float64 if self.kind is float else torch.int64
        if self.tensor.fake.dtype is wide:
            return self.tensor
        return call_in_graph(tx, "call_method", "to", [self.tensor, ConstantValue(wide)], {})


def _operand(tx: Interpreter, number: DeferredScalar, other: Value) -> Value | None:
    if isinstance(other, DeferredScalar):
        both_float = number.kind is other.kind is float
        both_int = float not in (number.kind, other.kind)
        return other._number(tx) if both_float or both_int else None
    if not other.is_constant() or type(real := other.as_constant()) not in (bool, int, float):
        return None
    if number.kind is float:
        return ConstantValue(float(real)) if type(real) is float or abs(real) <= _EXACT else None
    if type(real) is float and (not real.is_integer() or abs(real) > _EXACT):
        return None
    return ConstantValue(int(real)) if -(1 << 63) <= real < 1 << 63 else None


def _refusing(name: str) -> Callable[..., NoReturn]:
    def refuse(self: DeferredScalar, *args: Any, **kwargs: Any) -> NoReturn:
        self.refuse()

    refuse.__name__ = name
    return refuse


# Whatever else is asked of it needs the number.
for _name in (
    ["as_constant", "as_proxy", "identity", "getattr", "setattr", "delattr", "hasattr", "call"]
    + ["call_method", "truth", "length", "getitem", "setitem", "delitem", "iterate", "next_value"]
    + ["binary", "unary", "contains", "hash_key", "hash_key_by_identity", "unpack", "recipe"]
    + ["fill", "forwards", "tail_call"]
):
    setattr(DeferredScalar, _name, _refusing(_name))


def _as_boolean(tx: Interpreter, tensor: TensorValue) -> TensorValue:
    if tensor.fake.dtype is torch.bool:
        return tensor
    operands = [tensor, ConstantValue(0)]
    result = call_in_graph(tx, "call_function", operator.ne, operands, {})
    assert isinstance(result, TensorValue)
    return result


def _has_one_value(value: Value) -> bool:
    return type(value) is TensorValue and value.fake.numel() == 1


@bound_late
def deferred_tensor_truth(
    tx: Interpreter, tensor: TensorValue
) -> tuple[TensorValue, BreakBefore] | None:
    """TensorValue.deferred_truth."""
    if not _has_one_value(tensor):
        return None
    broken = tx.output.checks.breaking_at(tx, breaks.DataDependentJump(tensor.describe()))
    return _as_boolean(tx, tensor), broken


def deferred_scalar(
    tx: Interpreter, tensor: Value, kind: type, reason: breaks.Break
) -> Value | None:
    """The number in a tensor as a Value that can serve a check, where the program allows that."""
    if (
        not _has_one_value(tensor)
        or not tx.output.checks.may_be_wanted(tx)
        or not tx.output.checks.can_be_made()
    ):
        return None
    assert isinstance(tensor, TensorValue)
    return DeferredScalar(tx.output, tensor, kind, tx.output.checks.breaking_at(tx, reason))


def branch_scalar(tx: Interpreter, tensor: TensorValue, kind: type) -> Value | None:
    """kind(tensor), if a conditional jump alone asks for it, which may be a conditional of the
    graph.
    """
    if not _has_one_value(tensor) or _kind_of(tensor) is not kind:
        return None
    if not (decides_jump(tx.code, tx.current) and tx.output.conditionals.are_enabled(tx)):
        return None
    reason = breaks.DataDependentValue(f"Tensor.__{kind.__name__}__()")
    broken = tx.output.checks.breaking_at(tx, reason)
    return DeferredScalar(tx.output, tensor, kind, broken, for_branch=True)


def _kind_of(tensor: TensorValue) -> type | None:
    """The Python type of Tensor.item(), by the tensor's dtype."""
    dtype = tensor.fake.dtype
    if dtype in _INTEGERS:
        return int
    return bool if dtype is torch.bool else float if dtype in _FLOATS else None


def branch_item(tx: Interpreter, tensor: TensorValue) -> Value | None:
    """Tensor.item(), as `branch_scalar`."""
    kind = _kind_of(tensor)
    return None if kind is None else branch_scalar(tx, tensor, kind)


def _item(tx: Interpreter, tensor: TensorValue) -> Value:
    kind, reason = _kind_of(tensor), breaks.DataDependentValue("Tensor.item()")
    number = None if kind is None else deferred_scalar(tx, tensor, kind, reason)
    if number is None and kind is not None and _has_one_value(tensor) and _is_formatted(tx):
        number = DeferredScalar(tx.output, tensor, kind, tx.output.checks.breaking_at(tx, reason))
    if number is None:
        raise Unsupported(reason)
    return number


def _is_formatted(tx: Interpreter) -> bool:
    """The current instruction's result is formatted by the next one."""
    following = [instr.op for _, instr in tx.program[tx.current.index + 1 : tx.current.index + 3]]
    return following[:1] == ["FORMAT_SIMPLE"] or following == ["LOAD_CONST", "FORMAT_WITH_SPEC"]


@bound_late
def tensor_truth_value(tx: Interpreter, tensor: TensorValue, negated: bool) -> Value | None:
    """TensorValue.truth_value, if a check may take its place."""
    number = deferred_scalar(tx, tensor, bool, breaks.DataDependentJump(tensor.describe()))
    return None if number is None else number.truth_value(tx, negated)


SPECIAL_METHODS["item"] = _item
