"""Items of numpy's arrays: keys as torch reads them, reads and stores."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dynamo.torch.numpy_elementwise import (
    NUMBERS,
    array_view,
    call_torch,
    converted,
    not_scalar,
    varies_within,
    without_overlap,
)
from dynamo.torch.numpy_reversed import (
    ReversedArray,
    flipped,
    refuse_reversed,
    view_of,
    with_positive_steps,
)
from dynamo.torch.numpy_translation import picked
from dynamo.torch.numpy_values import (
    FUNCTIONS,
    HALF,
    ArrayValue,
    compute,
    refuse,
    require_quiet_errors,
    result,
)
from dynamo.torch.overrides import unseen
from dynamo.values.base import Value
from dynamo.values.containers.containers import SequenceValue, TupleValue
from dynamo.values.containers.ranges import SliceValue
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.tensors.tensor import TensorValue
from fxgraph.symbolic_values import hint_of

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

# The size (at::internal::GRAIN_SIZE) from which torch's threads share a loop.
_SHARED = 1 << 15


def _key(tx: Interpreter, key: Value, alone: bool = True) -> Value:
    """A key as torch reads it: index arrays are int64; a mask is one dimension or more."""
    if isinstance(key, ArrayValue):
        if not key.shape or (not alone and key.dtype.kind == "b"):
            raise refuse("an index array among other indices")
        if key.dtype.kind in "iu":
            return converted(tx, key, np.dtype(np.int64))
        return key.tensor
    if isinstance(key, SequenceValue) and issubclass(key.python_type(), tuple):
        return TupleValue([_key(tx, part, alone=False) for part in key.wrapped()])
    return key


def _picks_one(array: ArrayValue, key: Value) -> bool:
    """All dimensions are indexed by numbers: the result is a scalar, not a view."""
    parts = key.wrapped() if isinstance(key, SequenceValue) else [key]
    return len(parts) == len(array.shape) and all(map(_is_number, parts))


def _is_number(part: Value) -> bool:
    if part.is_constant():
        return is_index(part.as_constant())
    return part.is_symbolic() and issubclass(part.python_type(), (int, np.integer))


def is_index(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def getitem(tx: Interpreter, array: ArrayValue, key: Value) -> Value:
    not_scalar(array, "an item")
    if _many_lists(key):
        return _picked_beside_slices(tx, array, key)
    parts = with_positive_steps(tx, array, key)
    given = _key(tx, key) if parts is None else parts[0]
    tensor = compute(tx, "call_function", operator.getitem, [array.tensor, given], {})
    if _picks_one(array, key):
        return result(tx, call_torch(tx, "clone", tensor))
    if parts is not None:
        found = flipped(tx, tensor, parts[1])
        assert isinstance(found, TensorValue)
        return ReversedArray(found, array, operator.getitem, key)
    if _picks_items(key):
        return array_view(tensor)
    return view_of(array, tensor, operator.getitem, key)


def _picked_beside_slices(tx: Interpreter, array: ArrayValue, key: Value) -> Value:
    """Of numbers beside index arrays, numpy and torch order the dimensions differently."""
    assert isinstance(key, SequenceValue)
    refuse_reversed(array, "index arrays among other indices")
    with_positive_steps(tx, array, key)
    kinds = (ArrayValue, SequenceValue, SliceValue)
    if any(not isinstance(part, kinds) and not _is_new_or_rest(part) for part in key.wrapped()):
        raise refuse("index arrays beside numbers")
    given = [array.tensor, _key(tx, key)]
    found = compute(tx, "call_function", operator.getitem, given, {})
    return picked(tx, array, key, found)


def _is_new_or_rest(part: Value) -> bool:
    return part.is_constant() and part.as_constant() in (None, ...)


def _picks_items(key: Value) -> bool:
    """An index array or a mask makes a new array."""
    parts = key.wrapped() if isinstance(key, SequenceValue) else [key]
    return any(isinstance(part, (ArrayValue, SequenceValue)) for part in parts)


def _many_lists(key: Value) -> bool:
    """Index arrays beside slices and numbers, where numpy lays the result out in its own way."""
    if not (isinstance(key, SequenceValue) and issubclass(key.python_type(), tuple)):
        return False
    lists = [isinstance(part, (ArrayValue, SequenceValue)) for part in key.wrapped()]
    return any(lists) and not all(lists)


def _require_fits(number: Any, dtype: Any) -> None:
    """Numbers that numpy does not store in integers, or not without a warning, are left to it."""
    try:
        with np.errstate(all="raise"):
            np.empty(1, dtype)[0] = number
    except (ArithmeticError, TypeError, ValueError) as error:
        raise refuse(f"a store of {number!r} into {dtype}") from error


def _require_order(key: Value) -> None:
    """Of items with one place, numpy keeps the last; torch's threads share large index arrays."""
    keys = key.wrapped() if isinstance(key, SequenceValue) else [key]
    for one in keys:
        if isinstance(one, ArrayValue) and one.dtype.kind in "iu":
            sizes = [hint_of(size) for size in one.shape]
            if None in sizes or math.prod(sizes) >= _SHARED:
                raise refuse("a store at a large index array")


def setitem(tx: Interpreter, array: ArrayValue, key: Value, value: Value) -> Value:
    not_scalar(array, "a store into an item")
    refuse_reversed(array, "a store into an item")
    if array.dtype == HALF:
        raise refuse("a store into an array of float16")
    if isinstance(value, ArrayValue) and (value.dtype.kind != "c" or array.dtype.kind == "c"):
        require_quiet_errors(tx, "a store of an array")
        _require_order(key)
        if value.dtype != array.dtype:  # torch's stores at index arrays take no other dtype
            stored: Value = converted(tx, value, array.dtype)
        else:
            stored = without_overlap(tx, value, array)
    elif value.is_constant() and isinstance(value.as_constant(), NUMBERS):
        _require_fits(value.as_constant(), array.dtype)
        stored = value
    elif varies_within(value, array.dtype):
        stored = value
    else:
        raise refuse("a store of a sequence into an array")
    selecting = _key(tx, key)
    with unseen(tx):
        array.tensor.setitem(tx, selecting, stored)
    return ConstantValue(None)


def put_along_axis(
    tx: Interpreter, arr: Value, indices: Value, values: Value, axis: Value
) -> Value:
    """A store of a number at the indices along one axis, and at all places of the others."""
    name = "numpy.put_along_axis"
    if not isinstance(arr, ArrayValue) or not isinstance(indices, ArrayValue):
        raise refuse(f"{name} of what is not an array")
    if not axis.is_constant() or not values.is_constant():
        raise refuse(f"{name} of several values")  # repeated indices keep the last one
    rank, dim = len(arr.shape), axis.as_constant()
    if type(dim) is not int or not -rank <= dim < rank or len(indices.shape) != rank:
        raise refuse(f"{name} of these arguments")
    places: list[Value] = []
    for other, size in enumerate(arr.shape):
        if other == dim % rank:
            places.append(indices)
            continue
        if indices.dtype.kind not in "iu" or indices.shape[other] != size:
            raise refuse(f"{name} of these arguments")
        shape = [1] * other + [-1] + [1] * (rank - 1 - other)
        row = call_torch(tx, torch.arange, size, device="cpu")
        places.append(array_view(call_torch(tx, "view", row, shape)))
    return setitem(tx, arr, TupleValue(places), values)


FUNCTIONS[np.put_along_axis] = put_along_axis
