"""Resizing and its gradients, and padding by reflection and replication with its gradients.

All of them gather: an element of a gradient sums the gradients of all copies of its input element.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fxgraph.sizes import Extent, Size, exact, nonzero
from inductor import costs
from inductor.index import Index
from inductor.ir import Buffer, Indices, Tensor, Value
from inductor.lowering import reduction
from inductor.lowering.context import Lowering
from inductor.lowering.indexing import padded_load, source
from inductor.lowering.pointwise import convert
from inductor.lowering.registry import NotLowered, aten, lower
from inductor.ops import COMPUTE_TYPES, ops

# --- nearest -------------------------------------------------------------------------------------


def _factors(
    small: Sequence[Extent], large: Sequence[Extent], scales: Sequence[float | None]
) -> list[int]:
    """How often each element is repeated; other ratios stay with aten."""
    factors = []
    for n, m, scale in zip(small, large, scales, strict=True):
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
    return factors


def _nearest(ctx: Lowering, x: Tensor, scales: Sequence[float | None]) -> Tensor:
    size = ctx.shape()
    try:
        factors = _factors(x.size[2:], size[2:], scales)
    except NotLowered:
        return along_axes(ctx, x, size, _nearest_axes(x.size[2:], size[2:], scales, x.dtype))
    reduction.settled(ctx, x)

    def inner(idx: Indices) -> Value:
        spatial = tuple(i // f for i, f in zip(idx[2:], factors, strict=True))
        return x.load((*idx[:2], *spatial))

    return ctx.generate(size, x.dtype, inner, x, work=0)


def _nearest_backward(
    ctx: Lowering, grad: Tensor, size: Sequence[Extent], scales: Sequence[float | None]
) -> Tensor:
    try:
        factors = _factors(size[2:], grad.size[2:], scales)
    except NotLowered:
        axes = _nearest_axes(size[2:], grad.size[2:], scales, grad.dtype)
        return along_axes(ctx, grad, tuple(size), [a.transposed() for a in axes])
    terms = list(itertools.product(*map(range, factors)))
    if len(terms) > costs.MAX_TERMS or not grad.dtype.is_floating_point:
        raise NotLowered("many terms")
    reduction.settled(ctx, grad)

    def inner(idx: Indices) -> Value:
        total = None
        for term in terms:
            at = (i * f + t for i, f, t in zip(idx[2:], factors, term, strict=True))
            v = grad.load((*idx[:2], *at))
            total = v if total is None else ops.add(total, v)
        assert total is not None
        return total

    return ctx.generate(tuple(size), grad.dtype, inner, grad, work=len(terms))


@lower(
    aten.upsample_nearest1d.default,
    aten.upsample_nearest2d.default,
    aten.upsample_nearest3d.default,
)
def upsample_nearest(ctx: Lowering, x: Tensor, output: Any, *scales: float | None) -> Tensor:
    return _nearest(ctx, x, scales or [None] * (len(x.size) - 2))


@lower(
    aten.upsample_nearest1d_backward.default,
    aten.upsample_nearest2d_backward.default,
    aten.upsample_nearest3d_backward.default,
)
def upsample_nearest_backward(
    ctx: Lowering, grad: Tensor, output: Any, size: Sequence[Extent], *scales: float | None
) -> Tensor:
    return _nearest_backward(ctx, grad, size, scales or [None] * (len(size) - 2))


# --- linear --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Axis:
    """The weights of resizing, or of its gradient, along a dimension: element o is the sum of those
    at places[k][o] times weights[k][o], over all k for which the weight is no NaN.
    """

    size: int  # of the dimension read
    places: list[torch.Tensor]
    weights: list[torch.Tensor]

    @property
    def is_ragged(self) -> bool:
        """Whether some elements take less than others."""
        return any(bool(w.isnan().any()) for w in self.weights)

    @classmethod
    def of(cls, n: Extent, m: Extent, scale: float | None, corners: bool, dtype: Any) -> Axis:
        """n elements to m, as eager computes it, in the type that it computes in."""
        if not isinstance(n, int) or not isinstance(m, int) or n == 0 or m == 0:
            raise NotLowered("resize of a size that varies")
        place = torch.arange(m, dtype=dtype)
        if n == m:
            real = place
        elif corners:
            real = place * (torch.tensor(n - 1, dtype=dtype) / (m - 1) if m > 1 else 0)
        else:
            step = torch.tensor(1.0 / scale if scale else n / m, dtype=dtype)
            real = (step * (place + 0.5) - 0.5).clamp(min=0)
        below = real.to(torch.int64).clamp(max=n - 1)
        weight = (real - below).clamp(0, 1)
        above = below if n == m else (below + 1).clamp(max=n - 1)  # 0 * inf is NaN
        return cls(n, [below, above], [1 - weight, weight])

    @classmethod
    def of_nearest(cls, n: Extent, m: Extent, scale: float | None, dtype: Any) -> Axis:
        if not isinstance(n, int) or not isinstance(m, int) or n == 0 or m == 0:
            raise NotLowered("resize of a size that varies")
        ratio = torch.tensor(1.0 / scale if scale else n / m, dtype=torch.float32)
        place = (torch.arange(m, dtype=torch.float32) * ratio).floor().to(torch.int64)
        place = place.clamp(max=n - 1)
        if m in (n, 2 * n) and not torch.equal(place, torch.arange(m) // (m // n)):
            raise NotLowered("some of aten's kernels take a whole factor for the given one")
        return cls(n, [place], [torch.ones(m, dtype=dtype)])

    def transposed(self) -> Axis:
        """The gradient's: from the output back to the elements that are read."""
        n = self.size
        outputs: list[dict[int, Any]] = [{} for _ in range(n)]
        for place, weight in zip(self.places, self.weights, strict=True):
            for o, (i, w) in enumerate(zip(place.tolist(), weight.tolist(), strict=True)):
                if w == w:
                    outputs[i][o] = outputs[i].get(o, 0) + w
        return Axis.of_lists(len(self.places[0]), outputs, self.weights[0].dtype)

    @classmethod
    def of_lists(cls, size: int, rows: Sequence[dict[int, Any]], dtype: Any) -> Axis:
        """An axis from the sources of each element: weights by place."""
        spread = max(1, *map(len, rows))
        if spread > costs.MAX_SPREAD:
            raise NotLowered("an element that many are made of")
        places = torch.zeros(spread, len(rows), dtype=torch.int64)
        weights = torch.full((spread, len(rows)), torch.nan, dtype=dtype)
        for i, row in enumerate(rows):
            for k, (o, w) in enumerate(sorted(row.items())):
                places[k, i], weights[k, i] = o, w
        return cls(size, list(places), list(weights))

    @classmethod
    def of_averages(cls, n: Extent, m: Extent, dtype: Any) -> Axis:
        """Adaptive pooling: m windows of sizes that differ by one, over n elements."""
        if not isinstance(n, int) or not isinstance(m, int) or n == 0 or m == 0:
            raise NotLowered("pooling of a size that varies")
        windows = [range(o * n // m, -(-(o + 1) * n // m)) for o in range(m)]
        return cls.of_lists(n, [{i: 1 / len(w) for i in w} for w in windows], dtype)


def _table(ctx: Lowering, values: torch.Tensor, like: Tensor) -> Tensor:
    """A tensor that belongs to the graph."""
    program = ctx.program
    name = f"const{len(program.constants)}"
    values = values.contiguous()
    program.constants[name] = values
    size = tuple(values.shape)
    buffer = Buffer(name, values.dtype, size, values.stride(), like.device, "constant")
    program.buffers[name] = buffer
    return Tensor.of(buffer)


def along_axes(ctx: Lowering, x: Tensor, size: Sequence[Extent], axes: Sequence[Axis]) -> Tensor:
    """Resize dimension by dimension, columns last: earlier dimensions are computed row by row."""
    if x.device.type == "cpu" and ctx.strides(ctx.val())[-1] != 1:
        raise NotLowered("channels last, where aten finds a place once for all channels")
    for d, axis in enumerate(axes, len(size) - len(axes)):
        reduction.settled(ctx, x)
        x = _along(ctx, x, d, size[d], axis)
    return convert(ctx, x, ctx.val().dtype)


def _along(ctx: Lowering, x: Tensor, d: int, m: Extent, axis: Axis) -> Tensor:
    places = [_table(ctx, t, x) for t in axis.places]
    weights = [_table(ctx, t, x) for t in axis.weights]
    wide = COMPUTE_TYPES[x.dtype]

    def inner(idx: Indices) -> Value:
        total = None
        for place, weight in zip(places, weights, strict=True):
            at = ops.indirect_checked(place.load((idx[d],)), x.size[d])
            v = ops.to_compute(x.load((*idx[:d], at, *idx[d + 1 :])), wide)
            w = weight.load((idx[d],))
            v = ops.mul(v, w)
            if axis.is_ragged:
                v = ops.where(ops.eq(w, w), v, ops.constant(0, wide))
            total = v if total is None else ops.add(total, v)
        assert total is not None
        return total

    size = (*x.size[:d], m, *x.size[d + 1 :])
    return ctx.generate(size, wide, inner, x, work=3 * len(places))


def _nearest_axes(
    small: Sequence[Extent],
    large: Sequence[Extent],
    scales: Sequence[float | None],
    dtype: torch.dtype,
) -> list[Axis]:
    if not dtype.is_floating_point:
        raise NotLowered("resize of integers")
    return [
        Axis.of_nearest(n, m, s, COMPUTE_TYPES[dtype])
        for n, m, s in zip(small, large, scales, strict=True)
    ]


def _axes(
    small: Sequence[Extent],
    large: Sequence[Extent],
    scales: Sequence[float | None],
    corners: bool,
    dtype: torch.dtype,
) -> list[Axis]:
    if not dtype.is_floating_point:
        raise NotLowered("resize of integers")
    scales = scales or [None] * len(small)
    return [
        Axis.of(n, m, s, corners, COMPUTE_TYPES[dtype])
        for n, m, s in zip(small, large, scales, strict=True)
    ]


@lower(
    aten.upsample_linear1d.default,
    aten.upsample_bilinear2d.default,
    aten.upsample_trilinear3d.default,
)
def upsample_linear(
    ctx: Lowering, x: Tensor, output: Any, corners: bool, *scales: float | None
) -> Tensor:
    size = ctx.shape()
    return along_axes(ctx, x, size, _axes(x.size[2:], size[2:], scales, corners, x.dtype))


@lower(
    aten.upsample_linear1d_backward.default,
    aten.upsample_bilinear2d_backward.default,
    aten.upsample_trilinear3d_backward.default,
)
def upsample_linear_backward(
    ctx: Lowering,
    grad: Tensor,
    output: Any,
    size: Sequence[Extent],
    corners: bool,
    *scales: float | None,
) -> Tensor:
    forward = _axes(size[2:], grad.size[2:], scales, corners, grad.dtype)
    return along_axes(ctx, grad, tuple(size), [a.transposed() for a in forward])


# --- padding -------------------------------------------------------------------------------------


def _gather_padding(
    ctx: Lowering,
    grad: Tensor,
    x: Tensor,
    padding: Sequence[Extent],
    sources: Callable[[Index, Extent, int, int], list[tuple[Index, Value]]],
) -> Tensor:
    """Each element sums the gradients of the places that it was copied to: for each of the last
    dimensions, `sources(i, size, low, high)` is the places of element i, each with a condition."""
    rank = len(padding) // 2
    known = [p for p in padding if isinstance(p, int) and p >= 0]
    if len(known) < len(padding):
        raise NotLowered("padding that cuts off")
    pads = [(known[2 * k], known[2 * k + 1]) for k in range(rank)][::-1]
    if not nonzero(x.numel) or not x.dtype.is_floating_point:
        raise NotLowered("padding of nothing")
    if x.device.type == "cpu" and (rank > 1 or sources is _clamped):
        raise NotLowered("masks at all places for the sake of the border")
    reduction.settled(ctx, grad)

    def summed(lead: Indices, rest: Indices, d: int) -> Value:
        """The sum over the places of the dimensions from `d` on, of which `rest` is left."""
        if not rest:
            return padded_load(grad, lead, 0)
        total = None
        low, high = pads[d]
        for place, inside in sources(rest[0], x.size[d - rank], low, high):
            v = ops.masked(inside, lambda p=place: summed((*lead, p), rest[1:], d + 1), 0)
            total = v if total is None else ops.add(total, v)
        assert total is not None
        return total

    def inner(idx: Indices) -> Value:
        return summed(idx[:-rank], idx[-rank:], 0)

    return ctx.generate(x.size, grad.dtype, inner, grad, work=4 * 3**rank)


def _padded(ctx: Lowering, x: Tensor, padding: Sequence[Extent], mirrored: bool) -> Tensor:
    """x with borders of copies. Rows are found by their number, whatever it is; columns by a load
    of each border and one of what lies between them, which stay loads of neighbours."""
    if not nonzero(x.numel) or x.dtype == torch.bool or x.dtype.is_complex:
        raise NotLowered("padding of nothing, or of types that aten may refuse")
    source(ctx, x)
    rank = len(padding) // 2
    lows = [padding[2 * k] for k in range(rank)][::-1]
    first, last = len(x.size) - rank, len(x.size) - 1

    def inner(idx: Indices) -> Value:
        at = list(idx)
        for d in range(first, last):
            at[d] = _row_inside(idx[d], x.size[d], lows[d - first], mirrored)
        i, n = idx[last] - lows[-1], x.size[last]
        left, right = (-i, 2 * (n - 1) - i) if mirrored else (Index({}, 0), Index({}, n - 1))

        def piece(inside: Value, place: Index) -> Value:
            return ops.masked(inside, lambda: x.load((*at[:last], place)), 0)

        number = ops.index_expr(i, torch.int64)
        before = ops.lt(number, ops.constant(0, torch.int64))
        after = ops.ge(number, ops.constant(n, torch.int64))
        v = piece(_between(i, 0, n), i)
        if padding[0] != 0:
            v = ops.where(before, piece(before, left), v)
        if padding[1] != 0:
            v = ops.where(after, piece(after, right), v)
        return v

    return ctx.generate(ctx.shape(), x.dtype, inner, x, work=2)


def _row_inside(i: Index, n: Extent, low: Extent, mirrored: bool) -> Index:
    if not mirrored:
        return ops.indirect_checked(ops.index_expr(i - low, torch.int64), n)
    last = ops.constant(n - 1, torch.int64)
    number = ops.sub(last, ops.abs(ops.index_expr(i - low, torch.int64)))
    return ops.indirect_checked(ops.sub(last, ops.abs(number)), n)


@lower(aten.reflection_pad1d.default, aten.reflection_pad2d.default, aten.reflection_pad3d.default)
def reflection_pad(ctx: Lowering, x: Tensor, padding: Sequence[Extent]) -> Tensor:
    return _padded(ctx, x, padding, True)


@lower(
    aten.replication_pad1d.default, aten.replication_pad2d.default, aten.replication_pad3d.default
)
def replication_pad(ctx: Lowering, x: Tensor, padding: Sequence[Extent]) -> Tensor:
    return _padded(ctx, x, padding, False)


def _always() -> Value:
    return ops.constant(True, torch.bool)


def _between(i: Index, low: Extent, high: Extent) -> Value:
    """low <= i < high"""
    at = ops.index_expr(i, torch.int64)
    above = ops.ge(at, ops.constant(low, torch.int64))
    return ops.logical_and(above, ops.lt(at, ops.constant(high, torch.int64)))


def _mirrored(i: Index, n: Extent, low: int, high: int) -> list[tuple[Index, Value]]:
    found = [(i + low, _always())]
    if low:
        found.append((-i + low, _between(i, 1, low + 1)))
    if high:
        found.append((-i + (low + 2 * (n - 1)), _between(i, n - 1 - high, n - 1)))
    return found


def _clamped(i: Index, n: Extent, low: int, high: int) -> list[tuple[Index, Value]]:
    if low + high > 6:
        raise NotLowered("a border of many copies")
    first = [(Index({}, k), _between(i, 0, 1)) for k in range(low)]
    last = [(Index({}, low + n + k), _between(i, n - 1, n)) for k in range(high)]
    return [*first, (i + low, _always()), *last]


@lower(
    aten.reflection_pad1d_backward.default,
    aten.reflection_pad2d_backward.default,
    aten.reflection_pad3d_backward.default,
)
def reflection_pad_backward(
    ctx: Lowering, grad: Tensor, x: Tensor, padding: Sequence[Extent]
) -> Tensor:
    return _gather_padding(ctx, grad, x, padding, _mirrored)


@lower(
    aten.replication_pad1d_backward.default,
    aten.replication_pad2d_backward.default,
    aten.replication_pad3d_backward.default,
)
def replication_pad_backward(
    ctx: Lowering, grad: Tensor, x: Tensor, padding: Sequence[Extent]
) -> Tensor:
    return _gather_padding(ctx, grad, x, padding, _clamped)
