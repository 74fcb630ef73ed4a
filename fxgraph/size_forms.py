"""Facts about symbolic sizes that their form alone tells: nothing is asked, nothing guarded."""

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
    """Row-major strides; None where a size may be 0."""
    if not all(map(at_least_one, size)):
        return None
    strides: list[Any] = [1] * len(size)
    for dim in range(len(size) - 2, -1, -1):
        strides[dim] = strides[dim + 1] * size[dim + 1]
    return strides


def row_major(tensor: torch.Tensor) -> bool:
    """Whether memory is in row-major order, for all sizes."""
    strides = contiguous(tensor.shape)
    return strides is not None and same(tensor.stride(), strides)


def rows_outside(tensor: torch.Tensor) -> bool:
    """Whether strides only shrink from the first dimension to the last, for all sizes; those of 0
    may stand anywhere.
    """
    strides = [s for s in tensor.stride() if type(s) is not int or s]
    if any(map(is_ragged, strides)):
        return False
    return all(map(_at_least, strides, strides[1:]))


def _at_least(one: Any, other: Any) -> bool:
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
