"""Tensors made from nothing: constants, ranges."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from fxgraph.sizes import Size
from inductor.ir import Indices, Tensor, Value
from inductor.lowering.context import Lowering
from inductor.lowering.numbers import Number, rounded
from inductor.lowering.registry import NotLowered, aten, lower
from inductor.ops import ops


def fills_memory() -> bool:
    """Whether eager fills memory that is not initialized; a guard of the graph's."""
    deterministic = torch.are_deterministic_algorithms_enabled()
    return deterministic and torch._C._get_deterministic_fill_uninitialized_memory()


def constant(ctx: Lowering, value: Number | Size) -> Tensor:
    """The node's result filled with one number."""
    val = ctx.val()
    if val.device.type not in ("cpu", "cuda") or not isinstance(value, Number | Size):
        raise NotLowered("fill")
    dtype = val.dtype
    if isinstance(value, Number):
        value = rounded(value, dtype)

    def inner(idx: Indices) -> Value:
        filled = ops.constant(value, dtype)
        return ops.to_dtype(filled, dtype)

    return Tensor(ctx.shape(), dtype, val.device, inner=inner, work=0, reads=0)


@lower(aten.full.default)
def full(ctx: Lowering, size: Sequence[int], value: Number, **_: Any) -> Tensor:
    return constant(ctx, value)


@lower(aten.new_full.default)
def new_full(ctx: Lowering, x: Tensor, size: Sequence[int], value: Number, **_: Any) -> Tensor:
    return constant(ctx, value)


@lower(aten.full_like.default)
def full_like(ctx: Lowering, x: Tensor, value: Number, **_: Any) -> Tensor:
    return constant(ctx, value)


@lower(aten.fill.Scalar)
def fill(ctx: Lowering, x: Tensor, value: Number) -> Tensor:
    return constant(ctx, value)


@lower(
    aten.zeros.default,
    aten.zeros_like.default,
    aten.new_zeros.default,
    aten._efficientzerotensor.default,
)
def zeros(ctx: Lowering, *_: Any, **__: Any) -> Tensor:
    return constant(ctx, 0)


@lower(
    aten.empty.memory_format,
    aten.empty_like.default,
    aten.new_empty.default,
    aten.new_empty_strided.default,
    aten.empty_strided.default,
    aten.empty_permuted.default,
)
def empty(ctx: Lowering, *_: Any, **__: Any) -> Tensor:
    """Zeros, or the value with which torch fills memory if it is to be deterministic."""
    if not fills_memory():
        return constant(ctx, 0)
    dtype = ctx.val().dtype
    if dtype.is_floating_point or dtype.is_complex:
        return constant(ctx, math.nan)
    return constant(ctx, True if dtype is torch.bool else torch.iinfo(dtype).max)


@lower(aten.ones.default, aten.ones_like.default, aten.new_ones.default)
def ones(ctx: Lowering, *_: Any, **__: Any) -> Tensor:
    return constant(ctx, 1)


@lower(aten.scalar_tensor.default)
def scalar_tensor(ctx: Lowering, value: Number, **_: Any) -> Tensor:
    return constant(ctx, value)


def _range(ctx: Lowering, start: Number, step: Number) -> Tensor:
    val = ctx.val()
    dtype = val.dtype

    def inner(idx: Indices) -> Value:
        if dtype.is_floating_point:  # eager computes in double and rounds once
            position = ops.to_dtype(ops.index_expr(idx[0], torch.int64), torch.float64)
            scaled = ops.mul(position, ops.constant(step, torch.float64))
            return ops.to_dtype(ops.add(scaled, ops.constant(start, torch.float64)), dtype)
        first, each = (n if isinstance(n, Size) else int(n) for n in (start, step))
        return ops.to_dtype(ops.index_expr(idx[0] * each + first, torch.int64), dtype)

    if dtype == torch.bool or val.device.type == "meta":
        raise NotLowered("range")
    return Tensor(ctx.shape(), dtype, val.device, inner=inner, work=1, reads=0)


@lower(aten.arange.default)
def arange(ctx: Lowering, end: Number, **_: Any) -> Tensor:
    return _range(ctx, 0, 1)


@lower(aten.arange.start)
def arange_start(ctx: Lowering, start: Number, end: Number, **_: Any) -> Tensor:
    return _range(ctx, start, 1)


@lower(aten.arange.start_step)
def arange_step(ctx: Lowering, start: Number, end: Number, step: Number = 1, **_: Any) -> Tensor:
    return _range(ctx, start, step)


@lower(torch.ops.prims.iota.default)
def iota(ctx: Lowering, length: int, *, start: int, step: int, **_: Any) -> Tensor:
    return _range(ctx, start, step)
