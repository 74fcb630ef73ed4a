"""np.add.reduce(a), np.multiply.accumulate(a), np.subtract.outer(a, b): the functions of numpy that
do the same, and the ufunc of operands that are spread out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dynamo.torch.numpy_values import ArrayValue, compute, refuse, result
from dynamo.values.base import Value
from dynamo.values.builtins.table import TABLE, real_object
from dynamo.values.containers.containers import TupleValue
from dynamo.values.scalars.constant import ConstantValue

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

_REDUCTIONS: dict[Any, Callable[..., Any]] = {
    np.add: np.sum,
    np.multiply: np.prod,
    np.maximum: np.max,
    np.minimum: np.min,
    np.logical_and: np.all,
    np.logical_or: np.any,
}
_EXTREMES: dict[Any, Callable[..., Any]] = {np.maximum: torch.cummax, np.minimum: torch.cummin}
_ACCUMULATIONS: dict[Any, Callable[..., Any]] = {np.add: np.cumsum, np.multiply: np.cumprod}


def _known(
    table: dict[Any, Callable[..., Any]], ufunc: Value, array: Value, method: str
) -> Callable[..., Any]:
    found = table.get(real_object(ufunc))
    if found is None or not isinstance(array, ArrayValue) or not array.shape:
        raise refuse(f"numpy.ufunc.{method}")
    return found


def _reduce(
    tx: Interpreter, ufunc: Value, array: Value, axis: Value | None = None, **kwargs: Value
) -> Value:
    function = _known(_REDUCTIONS, ufunc, array, "reduce")
    if not kwargs.keys() <= {"keepdims"}:
        raise refuse("numpy.ufunc.reduce with these arguments")
    return tx.wrap(function).call(tx, [array, axis or ConstantValue(0)], kwargs)


def _accumulate(tx: Interpreter, ufunc: Value, array: Value, axis: Value | None = None) -> Value:
    if real_object(ufunc) in _EXTREMES and isinstance(array, ArrayValue) and array.shape:
        return _extreme(tx, _EXTREMES[real_object(ufunc)], array, axis or ConstantValue(0))
    function = _known(_ACCUMULATIONS, ufunc, array, "accumulate")
    return tx.wrap(function).call(tx, [array, axis or ConstantValue(0)], {})


def _extreme(
    tx: Interpreter, function: Callable[..., Any], array: ArrayValue, axis: Value
) -> Value:
    """The largest, or smallest, item so far."""
    if array.dtype.kind not in "iuf" or not array.tensor.fake.is_contiguous():
        raise refuse("numpy.ufunc.accumulate of this array")
    pair = compute(tx, "call_function", function, [array.tensor, axis], {})
    return result(tx, pair.getitem(tx, ConstantValue(0)), array.dtype)


def _outer(tx: Interpreter, ufunc: Value, left: Value, right: Value) -> Value:
    if not isinstance(left, ArrayValue) or not isinstance(right, ArrayValue):
        raise refuse("numpy.ufunc.outer of what is not an array")
    if left.scalar or right.scalar:
        raise refuse("numpy.ufunc.outer of a scalar")
    new = [ConstantValue(None)] * len(right.shape)
    spread = left.getitem(tx, TupleValue([ConstantValue(...), *new]))
    return ufunc.call(tx, [spread, right], {})


TABLE[np.ufunc.reduce] = _reduce
TABLE[np.ufunc.accumulate] = _accumulate
TABLE[np.ufunc.outer] = _outer
