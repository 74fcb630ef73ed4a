"""Views by numbers that depend on data, where torch's schemas take plain numbers: by other views
that take symbols.

    x.diagonal(n)                    x[max(-n, 0) :, max(n, 0) :].diagonal()
    x.unfold(0, n, 2)        ->      x.as_strided(((len(x) - n) // 2 + 1, n), (2 * stride, stride))
    x.unflatten(0, (n, -1))          x.view((n, -1, ...))

Conditions under which torch refuses the numbers are checked in the graph.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from dynamo.values.base import Value
from dynamo.values.containers.containers import TupleValue
from dynamo.values.containers.ranges import SliceValue
from dynamo.values.late_bound import bound_late
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.scalars.symbol import SymbolValue, number_of, number_value
from dynamo.values.tensors.tensor import TensorValue, call_in_graph
from dynamo.values.tensors.tensor_calls import target_name
from fxgraph.symbols import DataDependent

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter


@bound_late
def view_by_numbers(
    tx: Interpreter, target: Any, args: Sequence[Value], kwargs: dict[str, Value]
) -> Value | None:
    """The result of a call that fake tensors refuse, by another view; None: there is none."""
    rule = _VIEWS.get(target_name(target))
    if rule is None or tx.output.context.export or tx.output.bodies:
        return None
    try:
        bound = inspect.signature(rule).bind(tx, *args, **kwargs)
    except TypeError:  # of the program
        return None
    if type(bound.arguments["input"]) is not TensorValue:
        return None
    try:
        return rule(*bound.args, **bound.kwargs)
    except DataDependent:
        return None


_ZERO, _ONE = ConstantValue(0), ConstantValue(1)
_NONE = ConstantValue(None)
_WHOLE = SliceValue(_NONE, _NONE, _NONE)


def _diagonal(
    tx: Interpreter,
    input: TensorValue,
    offset: Value = _ZERO,
    dim1: Value = _ZERO,
    dim2: Value = _ONE,
) -> Value | None:
    number, rank = number_of(offset), input.fake.ndim
    dims = [_dimension(dim, rank) for dim in (dim1, dim2)]
    if not isinstance(number, torch.SymInt) or None in dims or dims[0] == dims[1]:
        return None
    key: list[Value] = [_WHOLE] * rank
    for dim, skipped in zip(dims, (torch.sym_max(-number, 0), torch.sym_max(number, 0))):
        assert dim is not None, "both are known"
        key[dim] = SliceValue(number_value(tx, skipped), _NONE, _NONE)
    part = call_in_graph(tx, "call_function", operator.getitem, [input, TupleValue(key)], {})
    return call_in_graph(tx, "call_method", "diagonal", [part, _ZERO, dim1, dim2], {})


def _unfold(
    tx: Interpreter, input: TensorValue, dimension: Value, size: Value, step: Value
) -> Value | None:
    dim = _dimension(dimension, input.fake.ndim)
    length, jump = (number_of(n) if n.python_type() is int else None for n in (size, step))
    if dim is None or length is None or type(jump) is not int or jump <= 0:
        return None
    whole, stride = input.fake.shape[dim], input.fake.stride(dim)
    count = (whole - length) // jump + 1
    for fits in (length >= 1, length <= whole, (count - 1) * jump + length <= whole):
        _rely_on(tx, fits)
    sizes, strides = [*input.fake.shape, length], [*input.fake.stride(), stride]
    sizes[dim], strides[dim] = count, stride * jump
    form = [TupleValue([number_value(tx, n) for n in numbers]) for numbers in (sizes, strides)]
    return call_in_graph(tx, "call_method", "as_strided", [input, *form], {})


def _unflatten(tx: Interpreter, input: TensorValue, dim: Value, sizes: Value) -> Value | None:
    place = _dimension(dim, input.fake.ndim)
    if place is None or sizes.python_type() not in (tuple, list, torch.Size):
        return None
    parts = sizes.unpack(tx)
    if not any(isinstance(part, SymbolValue) for part in parts):
        return None
    whole = [*input.fake.shape]
    if any(n == 0 for n in whole[:place] + whole[place + 1 :]):
        return None  # where a view may have any sizes
    shape = [number_value(tx, n) for n in whole]
    shape[place : place + 1] = parts
    return call_in_graph(tx, "call_method", "view", [input, TupleValue(shape)], {})


_VIEWS: dict[str, Callable[..., Value | None]] = {
    "diagonal": _diagonal,
    "unfold": _unfold,
    "unflatten": _unflatten,
}


def _dimension(dim: Value, rank: int) -> int | None:
    number = dim.as_constant() if dim.is_constant() else None
    return number % rank if type(number) is int and -rank <= number < rank else None


def _rely_on(tx: Interpreter, condition: Any) -> None:
    if isinstance(condition, torch.SymBool):
        expr = condition.node.expr
        if condition.node.shape_env.statically(expr) is not True:
            tx.output.symbols.data.rely_on(expr)
    elif not condition:
        raise DataDependent(condition, str(condition))
