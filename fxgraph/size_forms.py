"""Facts about symbolic sizes that their form alone tells: nothing is asked, and nothing guarded but
for the strides of new tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from fxgraph.symbolic_values import expr_of, is_ragged


def same(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether the sizes are equal by their form."""
    return len(one) == len(other) and all(map(equal, one, other))


def equal(one: Any, other: Any) -> bool:
    if type(one) is int and type(other) is int:
        return one == other
    return bool(expr_of(one) == expr_of(other))


def at_least_one(size: Any) -> bool:
    if type(size) is int:
        return size >= 1
    if is_ragged(size):
        return False
    low, _ = size.node.shape_env.bounds(size)
    return low is not None and low >= 1


def contiguous(size: Sequence[Any]) -> list[Any] | None:
    """Row-major strides of a new tensor; None where a size inside may be 0, which counts as 1. That
    a size of an input is not 0 is guarded.
    """
    return _products(size) if assume_elements(size[1:]) else None


def assume_elements(sizes: Sequence[Any]) -> bool:
    """Whether the sizes are at least 1, which is guarded of inputs' sizes."""
    for size in sizes:
        if isinstance(size, torch.SymInt) and not is_ragged(size):
            size.node.shape_env.assume_elements(size.node.expr)
    return all(map(at_least_one, sizes))


def _products(size: Sequence[Any]) -> list[Any]:
    strides: list[Any] = [1] * len(size)
    for dim in range(len(size) - 2, -1, -1):
        strides[dim] = strides[dim + 1] * size[dim + 1]
    return strides


def row_major(tensor: torch.Tensor) -> bool:
    """Whether memory is in row-major order, for all sizes; nothing may be in any order."""
    return same(tensor.stride(), _products(tensor.shape))


def rows_outside(tensor: torch.Tensor) -> bool:
    """Whether strides only shrink from the first dimension to the last, for all sizes; those of 0
    may stand anywhere.
    """
    strides = [s for s in tensor.stride() if type(s) is not int or s]
    if len(strides) == tensor.dim() > 0 and type(tensor.shape[0]) is int and tensor.shape[0] == 1:
        strides = strides[1:]  # of nothing, that of an outer 1 is 0
    if any(map(is_ragged, strides)):
        return False
    return all(map(at_least, strides, strides[1:]))


def at_least(one: Any, other: Any) -> bool:
    """Whether one number is as large as the other, for all sizes."""
    if type(one) is int and type(other) is int:
        return one >= other
    number = other if type(one) is int else one
    return number.node.shape_env.statically(expr_of(one) >= expr_of(other)) is True


def broadcast(shapes: Sequence[Sequence[Any]]) -> list[Any] | None:
    """The joint shape of tensors; None where sizes other than a plain 1 differ."""
    size: list[Any] = [1] * max(map(len, shapes), default=0)
    for shape in shapes:
        for dim in range(-1, -len(shape) - 1, -1):
            given = shape[dim]
            if type(given) is int and given == 1:
                continue
            if type(size[dim]) is int and size[dim] == 1:
                size[dim] = given
            elif not equal(size[dim], given):
                return None
    return size
