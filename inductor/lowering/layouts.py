"""Sizes and strides of tensors: broadcasting, dense layouts, and the operators that see them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from fxgraph.sizes import Extent, contiguous_strides, hint, known_lt, product, where_positive
from inductor.index import ZERO
from inductor.ir import Indices
from inductor.lowering.registry import NotLowered

# Their offsets count from the start of the storage, and they may reach all of it.
_STORAGE = frozenset({"as_strided", "as_strided_", "as_strided_copy", "as_strided_scatter"})


def sees_storage(target: Any) -> bool:
    """Whether the operator reads memory beside its arguments' elements."""
    return target.namespace == "aten" and target._opname in _STORAGE


@functools.cache
def sees_layout(target: Any) -> bool:
    """Whether an operator's result may depend on its arguments' strides: views, random numbers
    (drawn in the order of memory), and all that programs define."""
    return (
        target.namespace not in ("aten", "prims")
        or target._opname in _STORAGE
        or torch.Tag.nondeterministic_seeded in target.tags
        or any(a.alias_info is not None for a in target._schema.arguments)
    )


def broadcast(*sizes: Sequence[Extent]) -> tuple[Extent, ...]:
    """The common size, as torch.broadcast_shapes."""
    rank = max(map(len, sizes), default=0)
    result: list[Extent] = [1] * rank
    for size in sizes:
        for d, n in enumerate(size, rank - len(size)):
            if n != 1:
                if result[d] not in (1, n):
                    raise NotLowered(f"sizes {sizes} do not broadcast")
                result[d] = n
    return tuple(result)


def narrow(idx: Indices, size: Sequence[Extent]) -> Indices:
    """The index into a tensor of `size` that is broadcast to the shape `idx` ranges over."""
    tail = idx[len(idx) - len(size) :]
    return tuple(ZERO if n == 1 else i for i, n in zip(tail, size, strict=True))


def stride_order(size: Sequence[Extent], stride: Sequence[Extent]) -> list[int]:
    """Dimensions from the largest stride to the smallest; ties keep their order."""
    return sorted(range(len(size)), key=lambda d: (-hint(stride[d]), d))


def _where_any(size: Sequence[Extent], stride: Sequence[Extent]) -> Sequence[Extent]:
    """The strides where there are elements: without, no place is shared or left out. torch's rules
    write max(n, 1) for sizes that may be 0.
    """
    return [where_positive(n, size) for n in stride]


def is_dense(size: Sequence[Extent], stride: Sequence[Extent]) -> bool:
    """Whether the strides are known to fill memory without gap or overlap, in some order of the
    dimensions."""
    stride = _where_any(size, stride)
    expected: Extent = 1
    for d in reversed(stride_order(size, stride)):
        if size[d] == 1:
            continue
        if stride[d] != expected:
            return product(size) == 0
        expected = expected * size[d]
    return True


def is_distinct(size: Sequence[Extent], stride: Sequence[Extent]) -> bool:
    """Whether every element is known to have a place of its own, perhaps with gaps between
    them."""
    stride = _where_any(size, stride)
    if tuple(stride) == contiguous_strides(size):  # also where the order depends on the call
        return True
    reach: Extent = 0
    for d in reversed(stride_order(size, stride)):
        if size[d] not in (0, 1):
            if not known_lt(reach, stride[d]):
                return False
            reach = reach + (size[d] - 1) * stride[d]
    return True
