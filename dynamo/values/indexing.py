"""The key of x[key]: as tensors see it, and without numbers that only the call knows.

before                        after
    x[:, n, mask]                 x.select(1, n)[:, mask]

where n is a symbol, or a tensor that holds an integer: indexing would want the number itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from dynamo.values.base import Value
from dynamo.values.captured_scalars import with_numbers
from dynamo.values.constant import ConstantValue
from dynamo.values.containers import TupleValue
from dynamo.values.late_bound import bound_late
from dynamo.values.ranges import SliceValue
from dynamo.values.tensor import TensorValue, call_in_graph

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter


def index_of(key: Value, alone: bool = True) -> Value:
    """An index as tensors see it: numpy's integers are ints, its arrays tensors, also in a tuple.

    alone: an array of rows would be taken for a tuple of them.
    """
    if isinstance(key, TupleValue) and key.python_type() is tuple:
        return TupleValue([index_of(part, alone=False) for part in key.wrapped()])
    if key.is_constant() and isinstance(key.as_constant(), np.integer):
        return ConstantValue(int(key.as_constant()))
    if key.is_symbolic() and issubclass(key.python_type(), np.integer):
        return key.number  # type: ignore[attr-defined]
    if key.python_type_is(np.ndarray):
        tensor = key.tensor  # type: ignore[attr-defined]
        plain = tensor.fake.dtype in (torch.bool, torch.int64) and tensor.fake.ndim > 0
        return tensor if plain and (not alone or tensor.fake.ndim == 1) else key
    return key


@bound_late
def select(tx: Interpreter, tensor: TensorValue, key: Value) -> tuple[TensorValue, Value | None]:
    """The tensor with its unknown integers of `key` applied, and what is left of the key; None:
    nothing is.
    """
    with tx.output.symbols.selecting():
        return _select(tx, tensor, index_of(key))


def _select(tx: Interpreter, tensor: TensorValue, key: Value) -> tuple[TensorValue, Value | None]:
    is_tuple = isinstance(key, TupleValue) and key.python_type() is tuple
    parts = key.wrapped() if is_tuple else [key]  # type: ignore[attr-defined]
    read = with_numbers(tx, parts, selects=True)
    if read is not None:
        parts, key = read, TupleValue(read) if is_tuple else read[0]
    unknown = [part for part in parts if _is_unknown(part)]
    dims = _dimensions(parts, tensor.fake.ndim) if unknown else None
    if dims is None:
        return tensor, key
    selected: Value = tensor
    for part, dim in reversed(list(zip(parts, dims))):
        if part in unknown:
            operands = [selected, ConstantValue(dim), part]
            selected = call_in_graph(tx, "call_method", "select", operands, {})
    assert isinstance(selected, TensorValue)
    rest = [part for part in parts if part not in unknown]
    return selected, TupleValue(rest) if rest else None


def _is_unknown(part: Value) -> bool:
    return part.is_symbolic() and part.python_type() is int


def _dimensions(parts: list[Value], ndim: int) -> list[int] | None:
    """The dimension of the tensor at which each part of a key stands; None: not known here."""
    taken = [_taken(part) for part in parts]
    total = 0
    for count in taken:
        if count is None:
            return None
        total += max(count, 0)
    if total > ndim or taken.count(_REST) > 1:
        return None  # an error, which the operation tells
    dims, dim = [], 0
    for count in taken:
        dims.append(dim)
        dim += ndim - total if count == _REST else count  # type: ignore[operator]
    return dims


_REST = -1  # what an Ellipsis takes


def _taken(part: Value) -> int | None:
    """How many dimensions a part of a key takes."""
    if isinstance(part, SliceValue) or _is_unknown(part):
        return 1
    if isinstance(part, TensorValue):
        dtype = part.fake.dtype
        return part.fake.ndim if str(dtype) in ("torch.bool", "torch.uint8") else 1
    if not part.is_constant():
        return None
    constant = part.as_constant()
    if constant is Ellipsis:
        return _REST
    if constant is None or isinstance(constant, bool):
        return 0
    return 1 if isinstance(constant, int) else None
