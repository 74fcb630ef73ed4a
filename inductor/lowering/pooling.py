"""Pooling."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from fxgraph.sizes import Extent, exact, known_lt
from inductor.boxes import Box, slabs
from inductor.convolutions import MAX_WINDOW
from inductor.index import Index
from inductor.ir import Indices, Tensor, Value
from inductor.lowering import reduction
from inductor.lowering.context import Lowering
from inductor.lowering.indexing import padded_load
from inductor.lowering.registry import NotLowered, aten, lower
from inductor.lowering.resizing import Axis, along_axes
from inductor.ops import COMPUTE_TYPES, ops


def pair(value: Any, default: Sequence[int] = ()) -> list[int]:
    items = [value] if isinstance(value, int) else list(value) or list(default)
    return items * 2 if len(items) == 1 else items


def window_positions(
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
    kernel, padding, dilation = pair(kernel), pair(padding), pair(dilation)
    stride = pair(stride, kernel)
    if kernel[0] * kernel[1] > MAX_WINDOW or not x.dtype.is_floating_point:
        raise NotLowered("window")
    reduction.settled(ctx, x)
    size = ctx.shape(ctx.val()[0])

    def positions(idx: Indices) -> list[Indices]:
        return window_positions(idx, kernel, stride, padding, dilation)

    def value(idx: Indices) -> Value:
        best = None
        for at in positions(idx):
            v = padded_load(x, at, -math.inf)
            best = v if best is None else ops.maximum(best, v)
        assert best is not None
        return best

    def first(o: Index, s: int, p: int) -> Value:
        """Where a window begins, padding left out: the index that stays if all of it is -inf."""
        return ops.maximum(ops.index_expr(o * s - p, small), ops.constant(0, small))

    def position(idx: Indices) -> Value:
        best = ops.constant(-math.inf, x.dtype)
        row, column = map(first, idx[-2:], stride, padding)
        where = ops.add(ops.mul(row, ops.constant(x.size[-1], small)), column)
        for at in positions(idx):
            v = padded_load(x, at, -math.inf)
            flat = ops.index_expr(at[-2] * x.size[-1] + at[-1], small)
            better = ops.logical_or(ops.gt(v, best), ops.ne(v, v))
            best = ops.where(better, v, best)
            where = ops.where(better, flat, where)
        return ops.to_dtype(where, torch.int64)

    if any(padding) and _indices_users(ctx):
        if any(d != 1 for d in dilation):
            raise NotLowered("positions of a padded, dilated window")
        if x.device.type == "cpu" and ctx.strides(ctx.val()[0])[-1] != 1:
            raise NotLowered("values and positions apart, where aten finds both at once")
    small = torch.int32 if known_lt(x.size[-2] * x.size[-1], 2**31) else torch.int64
    work = kernel[0] * kernel[1]
    values = ctx.generate(size, x.dtype, value, x, work=work)
    values.split = _borders(x.size[-1], size, kernel[1], stride[1], padding[1], dilation[1])
    return values, ctx.generate(size, torch.int64, position, x, work=3 * work)


def _borders(
    extent: Extent, out: Sequence[Extent], kernel: int, stride: int, padding: int, dilation: int
) -> tuple[Box, ...] | None:
    """Columns whose windows lie inside, apart from those at the borders: only the latter need
    masks."""
    if not isinstance(extent, int) or not isinstance(out[-1], int):
        return None
    first = -(-padding // stride)
    last = (extent - 1 + padding - (kernel - 1) * dilation) // stride
    bounds = tuple(sorted({0, min(first, out[-1]), max(min(last + 1, out[-1]), 0), out[-1]}))
    return slabs(out, len(out) - 1, bounds) if len(bounds) > 2 else None


def _indices_users(ctx: Lowering) -> list[Any]:
    """Readers of the operator's second result."""
    return [u for u in ctx.node.users if len(u.args) > 1 and u.args[1] == 1]


# --- averages ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Windows:
    """Where average pooling looks, in the last dimensions; a list has an element for each."""

    extents: Sequence[Extent]  # of the input
    kernel: Sequence[int]
    stride: Sequence[int]
    padding: Sequence[int]
    ceil: bool
    include_pad: bool
    divisor: int | None = None

    @classmethod
    def of(
        cls, x: Tensor, rank: int, kernel: Any, stride: Any, padding: Any, *rest: Any
    ) -> _Windows:
        kernel = _each(kernel, rank)
        stride, padding = _each(stride, rank, kernel), _each(padding, rank)
        if not x.dtype.is_floating_point or x.numel == 0:
            raise NotLowered("empty pooling")
        return cls(x.size[-rank:], kernel, stride, padding, *rest)

    def elements(self, at: Indices) -> list[Indices]:
        """The positions in the input that the output element `at` looks at, in row-major order."""
        return [
            tuple(
                o * s + (k - p)
                for o, s, k, p in zip(at, self.stride, ks, self.padding, strict=True)
            )
            for ks in itertools.product(*map(range, self.kernel))
        ]

    def count(self, at: Indices, dtype: torch.dtype) -> Value:
        """The divisor of the sum over the window of output element `at`."""
        if self.divisor or not (self.ceil or (any(self.padding) and not self.include_pad)):
            return ops.constant(self.divisor or math.prod(self.kernel), dtype)
        total = None
        for o, n, k, s, p in zip(
            at, self.extents, self.kernel, self.stride, self.padding, strict=True
        ):
            start = ops.index_expr(o * s - p, torch.int64)
            last = _least(ops.index_expr(o * s + (k - p), torch.int64), n + p)
            if not self.include_pad:
                start = ops.maximum(start, ops.constant(0, torch.int64))
                last = _least(last, n)
            length = ops.sub(last, start)
            total = length if total is None else ops.mul(total, length)
        assert total is not None
        return ops.to_dtype(total, dtype)

    def covering(self, at: Indices) -> list[tuple[Indices, Value]]:
        """The output elements whose windows may hold the input element `at`, each with whether it
        does (should it exist)."""
        found = []
        most = [-(-k // s) for k, s in zip(self.kernel, self.stride, strict=True)]
        for back in itertools.product(*map(range, most)):
            places, inside = [], ops.constant(True, torch.bool)
            for i, k, s, p, t in zip(at, self.kernel, self.stride, self.padding, back, strict=True):
                places.append((i + p) // s - t)
                phase = ops.index_expr((i + p) % s, torch.int32)
                if t * s + s > k:
                    reaches = ops.lt(phase, ops.constant(k - t * s, torch.int32))
                    inside = ops.logical_and(inside, reaches)
            found.append((tuple(places), inside))
        return found


def _each(value: Any, rank: int, default: Sequence[int] = ()) -> list[int]:
    items = [value] if isinstance(value, int) else list(value) or list(default)
    return items * rank if len(items) == 1 else items


def _least(value: Value, bound: Extent) -> Value:
    return ops.minimum(value, ops.constant(bound, torch.int64))


def _sum_of(values: Iterable[Value]) -> Value:
    first, *rest = values
    for v in rest:
        first = ops.add(first, v)
    return first


def average_windows(ctx: Lowering, x: Tensor, w: _Windows) -> Tensor:
    rank = len(w.kernel)
    if math.prod(w.kernel) > MAX_WINDOW:
        raise NotLowered("window")
    reduction.settled(ctx, x)

    def inner(idx: Indices) -> Value:
        at = idx[-rank:]
        total = _sum_of(padded_load(x, (*idx[:-rank], *e), 0) for e in w.elements(at))
        return ops.div(total, w.count(at, total.dtype))

    return ctx.generate(ctx.shape(), x.dtype, inner, x, work=math.prod(w.kernel))


def average_windows_backward(ctx: Lowering, grad: Tensor, x: Tensor, w: _Windows) -> Tensor:
    """Each input element takes its share of every window that holds it."""
    rank = len(w.kernel)
    most = math.prod(-(-k // s) for k, s in zip(w.kernel, w.stride, strict=True))
    along = ctx.strides(ctx.val())[-1] == 1
    if most > MAX_WINDOW or (most > 1 and w.stride[-1] > 1 and along and _on_cpu(x)):
        raise NotLowered("windows that overlap by parts, where aten walks the output")
    reduction.settled(ctx, grad)

    def inner(idx: Indices) -> Value:
        return _sum_of(
            ops.masked(inside, lambda place=place: share((*idx[:-rank], *place)), 0)
            for place, inside in w.covering(idx[-rank:])
        )

    def share(at: Indices) -> Value:
        value = padded_load(grad, at, 0)
        return ops.div(value, w.count(at[-rank:], value.dtype))

    return ctx.generate(x.size, grad.dtype, inner, grad, work=5 * most)


def _on_cpu(x: Tensor) -> bool:
    return x.device.type == "cpu"


def avg_pool(
    ctx: Lowering,
    x: Tensor,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    rank: int,
) -> Tensor:
    """Averages over windows of the last `rank` dimensions."""
    rest = (ceil_mode, count_include_pad, divisor_override)
    return average_windows(ctx, x, _Windows.of(x, rank, kernel, stride, padding, *rest))


def avg_pool_backward(
    ctx: Lowering,
    grad: Tensor,
    x: Tensor,
    kernel: Any,
    stride: Any,
    padding: Any,
    *rest: Any,
    rank: int,
) -> Tensor:
    w = _Windows.of(x, rank, kernel, stride, padding, *rest)
    return average_windows_backward(ctx, grad, x, w)


lower(aten.avg_pool2d.default)(partial(avg_pool, rank=2))
lower(aten.avg_pool3d.default)(partial(avg_pool, rank=3))
lower(aten.avg_pool2d_backward.default)(partial(avg_pool_backward, rank=2))
lower(aten.avg_pool3d_backward.default)(partial(avg_pool_backward, rank=3))


def _even_windows(x: Tensor, output: Sequence[Extent]) -> _Windows | None:
    """The windows of adaptive pooling, if they are of one size."""
    if x.numel == 0 or 0 in output or not x.dtype.is_floating_point:
        raise NotLowered("empty pooling")
    kernel = [exact(n, m) for n, m in zip(x.size[-2:], output, strict=True)]
    if not all(isinstance(k, int) for k in kernel):
        return None
    return _Windows.of(x, 2, kernel, kernel, 0, False, True)


@lower(aten._adaptive_avg_pool2d.default, aten.adaptive_avg_pool2d.default)
def adaptive_avg_pool2d(ctx: Lowering, x: Tensor, output: Sequence[Extent]) -> Tensor:
    if list(output) == [1, 1] and x.numel != 0 and x.dtype.is_floating_point:
        return reduction.average(ctx, x, [-2, -1], x.dtype)
    windows = _even_windows(x, output)
    if windows is not None and math.prod(windows.kernel) <= MAX_WINDOW:
        return average_windows(ctx, x, windows)
    return along_axes(ctx, x, ctx.shape(), _averages(x, output))


@lower(aten._adaptive_avg_pool2d_backward.default)
def adaptive_avg_pool2d_backward(ctx: Lowering, grad: Tensor, x: Tensor) -> Tensor:
    windows = _even_windows(x, grad.size[-2:])
    if windows is not None:
        return average_windows_backward(ctx, grad, x, windows)
    if _on_cpu(x):
        raise NotLowered("tables at every element, where aten walks the output")
    axes = _averages(x, grad.size[-2:])
    return along_axes(ctx, grad, x.size, [a.transposed() for a in axes])


def _averages(x: Tensor, output: Sequence[Extent]) -> list[Axis]:
    wide = COMPUTE_TYPES[x.dtype]
    return [Axis.of_averages(n, m, wide) for n, m in zip(x.size[-2:], output, strict=True)]
