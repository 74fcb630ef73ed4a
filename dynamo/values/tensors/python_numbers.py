"""Functions of numbers that depend on data, for which graphs have no arithmetic: the graph calls
Python's own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from dynamo import breaks
from dynamo.values.base import Value
from dynamo.values.late_bound import bound_late
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.scalars.symbol import SymbolValue, number_value
from dynamo.values.tensors.tensor import call_in_graph
from fxgraph import python_numbers
from fxgraph.sym_node import choose
from fxgraph.symbolic_values import is_symbolic

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter


@bound_late
def call_python(tx: Interpreter, function: Any, numbers: Sequence[Any]) -> Value | None:
    """The result of a pure function of numbers, of which some depend on data; None: the graph can't
    hold the call.
    """
    name, output = python_numbers.name_of(function), tx.output
    if name is None or not output.symbols.data.has_room_for(1):
        return None
    operands = [_TYPES.get(type(number), number) for number in numbers]
    known = python_numbers.sampled(name, operands)
    if known is None or not all(map(_fits, numbers)):
        return None
    reason = breaks.DataDependentValue(name)
    if not output.checks.supposes(tx, reason):
        return None
    samples, dtype = known
    tensors = [_tensor(tx, number, sample) for number, sample in zip(numbers, samples)]
    args = [ConstantValue(name), tx.new_tuple(tensors), ConstantValue(dtype)]
    made = call_in_graph(tx, "call_function", python_numbers.python_number, args, {})
    read = call_in_graph(tx, "call_method", "item", [made], {})
    if isinstance(read, SymbolValue) and python_numbers.is_natural(name):
        read.env.constrain_symbol_range(read.symbolic.node.expr, 0, math.inf)
    return read


_TYPES = {torch.SymInt: int, torch.SymFloat: float}


def _fits(number: Any) -> bool:
    """Whether a tensor can hold the number."""
    if is_symbolic(number):
        return not isinstance(number, torch.SymBool)
    return isinstance(number, float) or -(1 << 63) <= number < 1 << 63


def _tensor(tx: Interpreter, number: Any, sample: Any) -> Value:
    """The number in a tensor. Where only a side of a branch asks for the result, `sample` takes its
    place in calls that do not run the side.
    """
    if is_symbolic(number):
        side = number.node.shape_env.side()
        number = number if side is None else choose(side, number, sample)
    dtype = python_numbers.DTYPES[type(sample)]
    kwargs: dict[str, Value] = {
        "dtype": ConstantValue(dtype),
        "device": ConstantValue(torch.device("cpu")),
    }
    value = number_value(tx, number)
    return call_in_graph(tx, "call_function", torch.scalar_tensor, [value], kwargs)
