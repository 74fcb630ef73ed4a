"""Numbers between which the graph chooses: `max(1e-3, rms)` of a tensor, the ratio that one side of
a branch leaves as 1 and the other as a tensor, the flag that a side sets.

A choice is a predicate of the graph and two values, numbers or tensors without dimensions.
Arithmetic with numbers chooses between two results. Arithmetic with a tensor takes the one that is
chosen as a tensor of float64 without dimensions, which counts as a number does; with one that has a
gradient, it is a branch of the graph (interp/chosen_operations.py). Anything else
breaks the graph, but for a branch on a flag, which is one on the predicate. Behind a break, or
where the frame keeps the choice, the value is the number or the tensor itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.values import late_bound
from dynamo.values.base import Value
from dynamo.values.late_bound import bound_late
from dynamo.values.recipes import Recipe
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.scalars.operators import BINARY_FUNCTIONS, binary_op, unary_op
from dynamo.values.scalars.symbol import SymbolValue
from dynamo.values.tensors.memory_overlap import version_of
from dynamo.values.tensors.tensor import TensorValue, call_in_graph
from dynamo.values.tensors.tensor_calls import target_name

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter
    from dynamo.plans import BreakBefore

_EXACT = 1 << 53  # ints up to here are float64s, too
_ARITHMETIC = frozenset(
    ["mul", "add", "sub", "div", "truediv", "imul", "iadd", "isub", "itruediv", "true_divide"]
    + ["multiply", "subtract", "divide", "rsub"]
)
_FLOATS = (torch.float32, torch.float64)


class ChoiceValue(Value):
    """`one` if the predicate, a tensor of one bool, is true, else `other`."""

    def __init__(self, predicate: TensorValue, one: Value, other: Value) -> None:
        super().__init__()
        self.predicate = predicate
        self.version = version_of(predicate.fake)
        self.one = one
        self.other = other
        self.alternatives = (one, other)

    def describe(self) -> str:
        return f"{self.one.describe()} or {self.other.describe()}"

    def refuse(self) -> NoReturn:
        raise Unsupported(breaks.DataDependentJump(self.predicate.describe()))

    def check_current(self) -> None:
        if version_of(self.predicate.fake) != self.version:
            self.refuse()

    def distributed(self, one: Value, other: Value) -> Value:
        if not (is_option(one) and is_option(other)):
            self.refuse()
        return ChoiceValue(self.predicate, one, other)

    def binary(self, tx: Interpreter, op: str, other: Value, reflected: bool) -> Value | None:
        self.check_current()
        if isinstance(other, TensorValue):
            return beside_tensor(tx, op, self, other, reflected)
        if op.endswith("=") and not self._are_known():
            self.refuse()  # the tensor would change
        if not _is_number(other):
            self.refuse()
        pairs = [(other, option) if reflected else (option, other) for option in self.alternatives]
        return self.distributed(*(binary_op(tx, op, *pair) for pair in pairs))

    def unary(self, tx: Interpreter, op: str) -> Value | None:
        self.check_current()
        return self.distributed(*(unary_op(tx, op, value) for value in self.alternatives))

    def compare(self, tx: Interpreter, op: str, other: Value) -> Value | None:
        self.refuse()

    # -- as a condition -------------------------------------------------------------------------
    @property
    def is_deferred(self) -> bool:  # type: ignore[override]
        """Whether the value is one whose truth the predicate has."""
        return self._are_known() and self._truth_of(self.one) is not self._truth_of(self.other)

    def _are_known(self) -> bool:
        return all(option.is_constant() for option in self.alternatives)

    def _truth_of(self, option: Value) -> bool:
        return bool(option.as_constant())

    def truth(self, tx: Interpreter) -> bool:
        if not self._are_known() or self.is_deferred:
            self.refuse()
        return self._truth_of(self.one)

    def truth_value(self, tx: Interpreter, negated: bool = False) -> Value:
        if not self.is_deferred:
            return super().truth_value(tx, negated)
        self.check_current()
        truths = [self._truth_of(option) is not negated for option in self.alternatives]
        return ChoiceValue(self.predicate, *map(ConstantValue, truths))

    def deferred_truth(self, tx: Interpreter) -> tuple[TensorValue, BreakBefore] | None:
        if not self.is_deferred:
            return None
        self.check_current()
        tensor = self.predicate
        if not self._truth_of(self.one):
            made = call_in_graph(tx, "call_method", "logical_not", [tensor], {})
            assert isinstance(made, TensorValue), "of a tensor"
            tensor = made
        return tensor.deferred_truth(tx)

    def recipe(self) -> Recipe:
        self.check_current()
        return choose, [self.predicate, self.one, self.other]

    def requires_grad(self) -> bool:
        """Whether one of the values has a gradient."""
        tensors = [option for option in self.alternatives if isinstance(option, TensorValue)]
        return torch.is_grad_enabled() and any(tensor.fake.requires_grad for tensor in tensors)

    def as_tensor(self, tx: Interpreter, beside: torch.Tensor) -> TensorValue:
        """The chosen value, as a tensor that arithmetic with `beside` takes for the number or the
        tensor that it is.
        """
        self.check_current()
        tensors = [option.fake for option in self.alternatives if isinstance(option, TensorValue)]
        flags = any(option.python_type_is(bool) for option in self.alternatives)
        if not flags and self._are_ints_of(beside.dtype):
            return self._chosen(tx, torch.int64 if beside.ndim else beside.dtype)
        if flags or not beside.dtype.is_floating_point or any(t.requires_grad for t in tensors):
            self.refuse()
        dtype = torch.float64
        if not beside.ndim:
            dtype = beside.dtype
            if dtype not in _FLOATS or any(t.dtype is not dtype for t in tensors):
                self.refuse()
        return self._chosen(tx, dtype)

    def _are_ints_of(self, dtype: torch.dtype) -> bool:
        """Whether both are known ints that this dtype of integers has."""
        if dtype.is_floating_point or dtype.is_complex or dtype is torch.bool:
            return False
        limits = torch.iinfo(dtype)
        return all(
            option.is_constant()
            and option.python_type_is(int)
            and limits.min <= option.as_constant() <= limits.max
            for option in self.alternatives
        )

    def _chosen(self, tx: Interpreter, dtype: torch.dtype) -> TensorValue:
        device = self.predicate.fake.device
        wide = [_in_dtype(tx, option, dtype, device) for option in self.alternatives]
        chosen = call_in_graph(tx, "call_function", torch.where, [self.predicate, *wide], {})
        assert isinstance(chosen, TensorValue), "of tensors"
        return chosen


def choose(predicate: torch.Tensor, one: Any, other: Any) -> Any:
    """The value of a choice, once the graph has run."""
    return one if predicate else other


def _is_number(value: Value) -> bool:
    return value.python_type_is(int, float) and (value.is_constant() or value.is_symbolic())


def options_of(value: Value) -> list[Value]:
    """The values between which a choice is made; the value itself, if that is no choice."""
    return [*value.alternatives] if isinstance(value, ChoiceValue) else [value]


def is_option(value: Value) -> bool:
    """Whether a choice may be of this value: a number that is known in front of the graph, or a
    tensor with one.
    """
    if type(value) is TensorValue:
        dtype = value.fake.dtype
        return not value.fake.ndim and not dtype.is_complex and dtype is not torch.bool
    if isinstance(value, SymbolValue):
        return value.python_type_is(float) and not value.depends_on_data()
    if not (value.is_constant() and value.python_type_is(bool, int, float)):
        return False
    number = value.as_constant()
    return type(number) is float or abs(number) <= _EXACT


def _in_dtype(tx: Interpreter, option: Value, dtype: torch.dtype, device: torch.device) -> Value:
    form: dict[str, Value] = {"dtype": ConstantValue(dtype)}
    if isinstance(option, TensorValue):
        if option.fake.dtype is dtype:
            return option
        return call_in_graph(tx, "call_method", "to", [option], form)
    form["device"] = ConstantValue(device)
    number = ConstantValue(option.as_constant()) if option.is_constant() else option
    return call_in_graph(tx, "call_function", torch.full, [ConstantValue(()), number], form)


def beside_tensor(
    tx: Interpreter, op: str, number: Value, tensor: TensorValue, reflected: bool
) -> Value:
    """The operator on a number that a tensor of the graph holds, and another tensor."""
    operands = [tensor, number] if reflected else [number, tensor]
    if op == "/" and not reflected:  # Tensor.__rtruediv__
        inverse = call_in_graph(tx, "call_method", "reciprocal", [tensor], {})
        op, operands = "*", [inverse, number]
    return call_in_graph(tx, "call_function", BINARY_FUNCTIONS[op], operands, {})


@bound_late
def call_on_choice(
    tx: Interpreter, op: str, target: Any, args: Sequence[Value], kwargs: dict[str, Value]
) -> Value:
    """Arithmetic with a choice: as a tensor, or as a branch of the graph. Another operation breaks
    the graph.
    """
    beside = next((arg.fake for arg in args if isinstance(arg, TensorValue)), None)
    choices: list[Any] = [arg for arg in args if arg.alternatives]
    name = target_name(target).strip("_")
    if beside is None or len(args) != 2 or len(choices) != 1 or name not in _ARITHMETIC:
        choices[0].refuse()
    if isinstance(choices[0], ChoiceValue) and choices[0].requires_grad():
        made = late_bound.branch_on_choice(tx, op, target, args, choices[0])
        if made is not None:
            return made
    chosen = choices[0].as_tensor(tx, beside)
    return call_in_graph(
        tx, op, target, [chosen if arg.alternatives else arg for arg in args], kwargs
    )


@bound_late
def chosen_extreme(tx: Interpreter, better: Value, one: Value, other: Value) -> Value | None:
    """`one` if the comparison `better` is true, else `other`, where the graph alone knows: for max
    and min. None: capture has to know.
    """
    if type(better) is not TensorValue or better.fake.dtype is not torch.bool or better.fake.ndim:
        return None
    if tx.output.known_tensors.real_of(better.fake) is not None:
        return None
    if tx.output.guesses or not (is_option(one) and is_option(other)):
        return None
    return ChoiceValue(better, one, other)
