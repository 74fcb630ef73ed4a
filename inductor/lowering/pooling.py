"""Pooling and resizing."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch

from inductor.ir import Indices, Split, Tensor, Value
from inductor.lowering import reduction
from inductor.lowering.context import Lowering
from inductor.lowering.indexing import padded_load
from inductor.lowering.registry import NotLowered, aten, lower
from inductor.ops import ops
from inductor.sizes import Extent, Size, exact, nonzero

# Windows up to this many elements are written out in the loop body.
MAX_WINDOW = 25


def _pair(value: Any, default: Sequence[int] = ()) -> list[int]:
    items = [value] if isinstance(value, int) else list(value) or list(default)
    return items * 2 if len(items) == 1 else items


def _window_positions(
    idx: Indices,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> list[Indices]:
    """The positions in the input that one output element looks at, in row-major order."""
    lead, (y, x) = idx[:-2], idx[-2:]
    return [
        (
            *lead,
            y * stride[0] + (ky * dilation[0] - padding[0]),
            x * stride[1] + (kx * dilation[1] - padding[1]),
        )
        for ky, kx in itertools.product(range(kernel[0]), range(kernel[1]))
    ]


@lower(aten.max_pool2d_with_indices.default)
def max_pool2d_with_indices(
    ctx: Lowering,
    x: Tensor,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> tuple[Tensor, Tensor]:
    kernel, padding, dilation = _pair(kernel), _pair(padding), _pair(dilation)
    stride = _pair(stride, kernel)
    if kernel[0] * kernel[1] > MAX_WINDOW or not x.dtype.is_floating_point:
        raise NotLowered("window")
    reduction.settled(ctx, x)
    size = ctx.shape(ctx.val()[0])

    def positions(idx: Indices) -> list[Indices]:
        return _window_positions(idx, kernel, stride, padding, dilation)

    def value(idx: Indices) -> Value:
        best = None
        for at in positions(idx):
            v = padded_load(x, at, -math.inf)
            best = v if best is None else ops.maximum(best, v)
        assert best is not None
        return best

    def position(idx: Indices) -> Value:
        best = where = None
        for at in positions(idx):
            v = padded_load(x, at, -math.inf)
            flat = ops.index_expr(at[-2] * x.size[-1] + at[-1], torch.int64)
            if best is None:
                best, where = v, flat
            else:
                better = ops.logical_or(ops.gt(v, best), ops.ne(v, v))
                best = ops.where(better, v, best)
                where = ops.where(better, flat, where)
        assert where is not None  # a window has at least one element
        return where

    if any(p for p in padding) and len(_indices_users(ctx)):
        raise NotLowered("positions of a padded window")
    work = kernel[0] * kernel[1]
    values = ctx.generate(size, x.dtype, value, x, work=work)
    values.split = _borders(x.size[-1], size, kernel[1], stride[1], padding[1], dilation[1])
    return values, ctx.generate(size, torch.int64, position, x, work=3 * work)


def _borders(
    extent: Extent, out: Sequence[Extent], kernel: int, stride: int, padding: int, dilation: int
) -> Split | None:
    """Columns whose windows lie inside, apart from those at the borders: only the latter need
    masks."""
    if not isinstance(extent, int) or not isinstance(out[-1], int):
        return None
    first = -(-padding // stride)
    last = (extent - 1 + padding - (kernel - 1) * dilation) // stride
    bounds = tuple(sorted({0, min(first, out[-1]), max(min(last + 1, out[-1]), 0), out[-1]}))
    return Split(len(out) - 1, bounds) if len(bounds) > 2 else None


def _indices_users(ctx: Lowering) -> list[Any]:
    """Readers of the operator's second result."""
    return [u for u in ctx.node.users if len(u.args) > 1 and u.args[1] == 1]


@lower(aten.avg_pool2d.default)
def avg_pool2d(
    ctx: Lowering,
    x: Tensor,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    kernel, padding = _pair(kernel), _pair(padding)
    stride = _pair(stride, kernel)
    plain = (not any(padding) and not ceil_mode) or (count_include_pad and not ceil_mode)
    if kernel[0] * kernel[1] > MAX_WINDOW or not x.dtype.is_floating_point or not plain:
        raise NotLowered("window")
    reduction.settled(ctx, x)
    divisor = divisor_override or kernel[0] * kernel[1]

    def inner(idx: Indices) -> Value:
        total = None
        for at in _window_positions(idx, kernel, stride, padding, (1, 1)):
            v = padded_load(x, at, 0)
            total = v if total is None else ops.add(total, v)
        assert total is not None
        return ops.div(total, ops.constant(divisor, total.dtype))

    return ctx.generate(ctx.shape(), x.dtype, inner, x, work=kernel[0] * kernel[1])


@lower(aten._adaptive_avg_pool2d.default, aten.adaptive_avg_pool2d.default)
def adaptive_avg_pool2d(ctx: Lowering, x: Tensor, output: Sequence[Extent]) -> Tensor:
    height, width = x.size[-2:]
    if x.numel == 0 or not x.dtype.is_floating_point:
        raise NotLowered("empty pooling")
    if list(output) == [1, 1]:
        return reduction.average(ctx, x, [-2, -1], x.dtype)
    kernel = [exact(height, output[0]), exact(width, output[1])]
    if any(not isinstance(k, int) for k in kernel):
        raise NotLowered("windows of several sizes")
    return avg_pool2d(ctx, x, kernel, kernel)


def _nearest(ctx: Lowering, x: Tensor, scales: Sequence[float | None]) -> Tensor:
    """Rows and columns repeated a whole number of times; other ratios stay with aten."""
    size = ctx.shape()
    factors = []
    for n, m, scale in zip(x.size[2:], size[2:], scales, strict=True):
        factor = exact(m, n) if nonzero(n) else None
        if not isinstance(factor, int) or scale not in (None, factor):
            raise NotLowered("fractional resize")
        factors.append(factor)
        if isinstance(n, Size) or isinstance(m, Size):
            if factor & (factor - 1):
                raise NotLowered("eager's rounding depends on the size")
            continue  # products with a power of two are exact
        ratio = torch.tensor(1.0 / scale if scale else n / m, dtype=torch.float32)
        source = (torch.arange(m, dtype=torch.float32) * ratio).floor().to(torch.int64)
        if not torch.equal(source.clamp(max=n - 1), torch.arange(m) // (m // n)):
            raise NotLowered("eager's rounding picks other elements")
    reduction.settled(ctx, x)

    def inner(idx: Indices) -> Value:
        spatial = tuple(i // f for i, f in zip(idx[2:], factors, strict=True))
        return x.load((*idx[:2], *spatial))

    return ctx.generate(size, x.dtype, inner, x, work=0)


@lower(aten.upsample_nearest1d.default)
def upsample_nearest1d(ctx: Lowering, x: Tensor, output: Any, scale: Any = None) -> Tensor:
    return _nearest(ctx, x, [scale])


@lower(aten.upsample_nearest2d.default)
def upsample_nearest2d(
    ctx: Lowering, x: Tensor, output: Any, scale_h: Any = None, scale_w: Any = None
) -> Tensor:
    return _nearest(ctx, x, [scale_h, scale_w])
