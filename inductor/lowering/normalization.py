"""Batch, layer and group normalisation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fxgraph.sizes import Extent, Size, nonzero, product
from inductor import devices
from inductor.index import ZERO, Index, Var
from inductor.ir import Indices, Tape, Tensor, Value
from inductor.lowering import views
from inductor.lowering.context import Lowering
from inductor.lowering.pointwise import convert
from inductor.lowering.reduction import moments, settled
from inductor.lowering.registry import NotLowered, aten, lower
from inductor.ops import COMPUTE_TYPES, ops, recording


def inverse_root(ctx: Lowering, variance: Tensor, eps: float) -> Tensor:
    """1 / sqrt(variance + eps)"""

    def fn(v: Value) -> Value:
        return ops.rsqrt(ops.add(v, ops.constant(eps, v.dtype)))

    return ctx.pointwise(fn, [variance], variance.dtype, work=4)


def _affine(
    ctx: Lowering, x: Tensor, dtype: torch.dtype, scaled: Callable[..., Value], *params: Any
) -> Tensor:
    return ctx.pointwise(scaled, [x, *params], dtype, COMPUTE_TYPES[dtype], work=3)


@lower(aten.native_layer_norm.default)
def layer_norm(
    ctx: Lowering, x: Tensor, shape: Sequence[Extent], weight: Any, bias: Any, eps: float
) -> tuple[Tensor, ...]:
    if x.numel == 0 or product(shape) == 0:
        raise NotLowered("normalising nothing")
    _refuse_mixed(x, weight, bias)
    vals = ctx.val()
    dims = list(range(len(x.size) - len(shape), len(x.size)))
    mu, variance = moments(ctx, x, dims, 0)
    rstd = inverse_root(ctx, variance, eps)
    params = [p for p in (weight, bias) if p is not None]

    def fn(v: Value, m: Value, r: Value, *rest: Value) -> Value:
        y = ops.mul(ops.sub(v, m), r)
        left = list(rest)
        if weight is not None:
            y = ops.mul(y, left.pop(0))
        if bias is not None:
            y = ops.add(y, left.pop(0))
        return y

    out = _affine(ctx, x, x.dtype, fn, mu, rstd, *params)
    return out, convert(ctx, mu, vals[1].dtype), convert(ctx, rstd, vals[2].dtype)


@lower(aten.native_group_norm.default)
def group_norm(
    ctx: Lowering,
    x: Tensor,
    weight: Any,
    bias: Any,
    n: Extent,
    channels: int,
    spatial: Extent,
    groups: int,
    eps: float,
) -> tuple[Tensor, ...]:
    if x.numel == 0:
        raise NotLowered("normalising nothing")
    _refuse_mixed(x, weight, bias)
    settled(ctx, x)
    vals = ctx.val()
    per = channels // groups
    innermost = devices.is_gpu(x.device) and _has_channels_innermost(x)
    if innermost:  # neighbouring elements in turn: a group's channels, pixel by pixel
        pixels = views.permute(ctx, x, [0, *range(2, len(x.size)), 1])
        rows = views.view(ctx, pixels, (n, spatial, groups, per))
        mu, variance = moments(ctx, rows, [1, 3], 0)
    else:
        rows = views.view(ctx, x, (n, groups, per * spatial))
        mu, variance = moments(ctx, rows, [2], 0)
    rstd = inverse_root(ctx, variance, eps)

    def by_group(t: Tensor) -> Tensor:
        """(n, groups, 1), or (n, 1, groups, 1), seen as one value per channel."""

        def inner(idx: Indices) -> Value:
            group = idx[1] // per
            return t.load((idx[0], ZERO, group, ZERO) if innermost else (idx[0], group, ZERO))

        return ctx.generate((n, channels, *([1] * (len(x.size) - 2))), t.dtype, inner, t, work=0)

    params = [
        views.view(ctx, p, (channels, *([1] * (len(x.size) - 2))))
        for p in (weight, bias)
        if p is not None
    ]

    def fn(v: Value, m: Value, r: Value, *rest: Value) -> Value:
        left = list(rest)
        scale = ops.mul(r, left.pop(0)) if weight is not None else r
        shift = ops.neg(ops.mul(scale, m))
        if bias is not None:
            shift = ops.add(shift, left.pop(0))
        return ops.add(ops.mul(v, scale), shift)

    out = _affine(ctx, x, x.dtype, fn, by_group(mu), by_group(rstd), *params)
    flat = [views.view(ctx, t, (n, groups)) for t in (mu, rstd)]
    return out, convert(ctx, flat[0], vals[1].dtype), convert(ctx, flat[1], vals[2].dtype)


def _has_channels_innermost(x: Tensor) -> bool:
    """Whether most images that x is read from have them: also where x is a copy that is not made,
    in the order of channels that torch asks for."""
    place = [Var(f"i{d}", n) for d, n in enumerate(x.size)]
    tape = Tape()
    with recording(tape):
        x.load(tuple(ZERO if v.size == 1 else Index({v: 1}) for v in place))
    steps = [access.index.terms for access in tape.loads() if access.index.is_affine()]
    images = [terms for terms in steps if place[1] in terms and place[-1] in terms]
    return 2 * sum(terms[place[1]] == 1 for terms in images) > len(images)


# --- batch normalisation -------------------------------------------------------------------------


def _per_channel(ctx: Lowering, p: Tensor, rank: int) -> Tensor:
    return views.view(ctx, p, (p.numel, *([1] * (rank - 2))))


def _normalised(
    ctx: Lowering, x: Tensor, mu: Tensor, rstd: Tensor, weight: Any, bias: Any
) -> Tensor:
    """x * scale + shift with per-channel scale and shift, as eager computes it."""
    params = [_per_channel(ctx, p, len(x.size)) for p in (weight, bias) if p is not None]

    def fn(v: Value, m: Value, r: Value, *rest: Value) -> Value:
        left = list(rest)
        scale = ops.mul(r, left.pop(0)) if weight is not None else r
        shift = ops.neg(ops.mul(m, scale))
        if bias is not None:
            shift = ops.add(left.pop(0), shift)
        return ops.add(ops.mul(v, scale), shift)

    return _affine(ctx, x, x.dtype, fn, mu, rstd, *params)


def _inference(
    ctx: Lowering, x: Tensor, weight: Any, bias: Any, mean: Tensor, var: Tensor, eps: float
) -> tuple[Tensor, ...]:
    rank = len(x.size)
    wide = COMPUTE_TYPES[var.dtype]
    rstd = inverse_root(ctx, convert(ctx, _per_channel(ctx, var, rank), wide), eps)
    mu = convert(ctx, _per_channel(ctx, mean, rank), wide)
    return (_normalised(ctx, x, mu, rstd, weight, bias),)


def _training(
    ctx: Lowering,
    x: Tensor,
    weight: Any,
    bias: Any,
    mean: Any,
    var: Any,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor, Any, Any]:
    """(output, batch mean, batch 1/std, updated running mean, updated running variance)"""
    channels = x.size[1]
    dims = [0, *range(2, len(x.size))]
    count = product([x.size[0], *x.size[2:]])
    if not nonzero(count):
        raise NotLowered("normalising nothing, perhaps")
    mu, variance = moments(ctx, x, dims, 0)
    rstd = inverse_root(ctx, variance, eps)
    shape = (channels, *([1] * (len(x.size) - 2)))
    chan_mu, chan_rstd = (views.view(ctx, t, shape) for t in (mu, rstd))
    out = _normalised(ctx, x, chan_mu, chan_rstd, weight, bias)
    flat_mu, flat_var, flat_rstd = (views.view(ctx, t, (channels,)) for t in (mu, variance, rstd))

    def update(old: Tensor, new: Tensor, unbiased: bool) -> Tensor:
        def fn(o: Value, v: Value) -> Value:
            fresh = ops.mul(v, _bessel(count, momentum, v.dtype) if unbiased else moving(v.dtype))
            return ops.add(ops.mul(o, ops.constant(1 - momentum, v.dtype)), fresh)

        return ctx.pointwise(fn, [old, new], old.dtype, work=3)

    def moving(dtype: torch.dtype) -> Value:
        return ops.constant(momentum, dtype)

    new_mean = update(mean, flat_mu, False) if mean is not None else None
    new_var = update(var, flat_var, True) if var is not None else None
    statistics = ctx.val()[1:3]
    saved_mean, saved_rstd = (
        convert(ctx, t, val.dtype) for t, val in zip((flat_mu, flat_rstd), statistics, strict=True)
    )
    return out, saved_mean, saved_rstd, new_mean, new_var


def _bessel(count: Extent, momentum: float, dtype: torch.dtype) -> Value:
    """momentum * count / (count - 1)"""
    if not isinstance(count, Size):
        return ops.constant(momentum * (count / max(count - 1, 1)), dtype)
    wide = torch.float64
    free = ops.maximum(ops.constant(count - 1, wide), ops.constant(1, wide))
    factor = ops.div(ops.constant(count, wide), free)
    return ops.to_dtype(ops.mul(ops.constant(momentum, wide), factor), dtype)


def _empty(val: Any) -> Tensor:
    """A statistic that inference returns with no elements."""

    def inner(idx: Indices) -> Value:
        return ops.constant(0, val.dtype)

    return Tensor(tuple(val.shape), val.dtype, val.device, inner=inner, work=0, reads=0)


def _refuse_mixed(x: Tensor, *others: Any) -> None:
    """Wider parameters are those of a half type only."""
    types = {t.dtype for t in others if t is not None}
    if x.dtype == COMPUTE_TYPES[x.dtype] and types - {x.dtype}:
        raise NotLowered("types that eager refuses to mix")


def _check_types(x: Tensor, *others: Any) -> None:
    if not x.dtype.is_floating_point or len(x.size) < 2 or x.numel == 0:
        raise NotLowered("batch norm of this input")
    _refuse_mixed(x, *others)


@lower(aten._native_batch_norm_legit_no_training.default)
def batch_norm_inference(
    ctx: Lowering,
    x: Tensor,
    weight: Any,
    bias: Any,
    mean: Tensor,
    var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    _check_types(x, weight, bias, mean, var)
    vals = ctx.val()
    (out,) = _inference(ctx, x, weight, bias, mean, var, eps)
    return out, _empty(vals[1]), _empty(vals[2])


@lower(aten._native_batch_norm_legit_functional.default)
def batch_norm_functional(
    ctx: Lowering,
    x: Tensor,
    weight: Any,
    bias: Any,
    mean: Tensor,
    var: Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    _check_types(x, weight, bias, mean, var)
    vals = ctx.val()
    if not training:
        (out,) = _inference(ctx, x, weight, bias, mean, var, eps)
        return out, _empty(vals[1]), _empty(vals[2]), mean, var
    return _training(ctx, x, weight, bias, mean, var, momentum, eps)


@lower(aten._native_batch_norm_legit.no_stats)
def batch_norm_no_stats(
    ctx: Lowering,
    x: Tensor,
    weight: Any,
    bias: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    _check_types(x, weight, bias)
    return _training(ctx, x, weight, bias, None, None, momentum, eps)[:3]


@lower(aten.native_batch_norm.default)
def native_batch_norm(
    ctx: Lowering,
    x: Tensor,
    weight: Any,
    bias: Any,
    mean: Any,
    var: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    if training:
        raise NotLowered("writes its running statistics in place")
    return batch_norm_inference(ctx, x, weight, bias, mean, var, momentum, eps)
