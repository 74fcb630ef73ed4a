"""Reductions, and the operators that are a few reductions and elementwise steps over the same
rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from fxgraph.sizes import Extent, Size, exact, hint, nonzero, product
from inductor import costs, devices
from inductor.ir import Tensor, Value
from inductor.lowering import pointwise, views
from inductor.lowering.context import Lowering
from inductor.lowering.registry import NotLowered, aten, lower
from inductor.ops import COMPUTE_TYPES, ops


def dims_of(x: Tensor, dim: Any) -> list[int]:
    """The reduced dimensions: all of them for None or an empty list; a scalar has none to name."""
    rank = len(x.size)
    if rank == 0 or dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return list(range(rank))
    return [views.dim_of(d, rank) for d in ([dim] if isinstance(dim, int) else dim)]


def settled(ctx: Lowering, x: Tensor) -> Tensor:
    """x, put in memory if reading it several times would compute it several times."""
    if x.window is None and (x.work > 1 or x.reads > 1):
        ctx.realize(x)
    return x


def reduce(
    ctx: Lowering,
    kind: str,
    x: Tensor,
    dim: Any,
    dtype: torch.dtype,
    body: Callable[[Value], Value] = lambda v: v,
    compute: torch.dtype | None = None,
) -> Tensor:
    """ctx.reduce, in two steps where one would leave cores idle. Dimensions are kept."""
    dims = dims_of(x, dim)
    count = count_of(x, dims)
    if kind == "sum" and count == 1 and (compute or x.dtype).is_floating_point:
        return ctx.reduce(kind, x, dims, dtype, lambda v: _from_zero(body(v)), compute)
    whole = len(dims) == len(x.size) and x.split is None
    if devices.is_gpu(x.device) and isinstance(count, int):
        whole = False  # ctx.reduce splits it
    shape = _pieces(x.size, count) if whole and hint(count) >= costs.MANY_ELEMENTS else None
    if shape is not None:
        flat = views.view(ctx, x, shape)
        partial = ctx.reduce(kind, flat, [1], dtype, body, compute)
        total = ctx.reduce(kind, partial, [0], dtype, lambda v: v, compute and dtype)
        return views.view(ctx, total, (1,) * len(x.size))
    return ctx.reduce(kind, x, dims, dtype, body, compute)


def _from_zero(value: Value) -> Value:
    """A sum of one number, which is no negative zero."""
    return ops.add(value, ops.constant(0, value.dtype))


def count_of(x: Tensor, dims: list[int]) -> Extent:
    return product(x.size[d] for d in dims)


def _pieces(size: tuple[Extent, ...], count: Extent) -> tuple[Extent, Extent] | None:
    """(pieces, elements of each): rows if no number divides all elements whatever the sizes."""
    for pieces in range(costs.PIECES, costs.FEW_RESULTS, -1):
        if (rest := exact(count, pieces)) is not None:
            return pieces, rest
    rows = size[0]
    return (rows, product(size[1:])) if len(size) > 1 and hint(rows) > costs.FEW_RESULTS else None


def _finish(ctx: Lowering, x: Tensor, result: Tensor, dim: Any, keepdim: bool) -> Tensor:
    return result if keepdim else views.squeeze(ctx, result, dims_of(x, dim))


def _not_empty(x: Tensor, dim: Any) -> None:
    """For reductions without a neutral element: eager raises."""
    if not nonzero(count_of(x, dims_of(x, dim))):
        raise NotLowered("reduction of no elements, perhaps")


def _not_surely_empty(x: Tensor, dim: Any) -> None:
    """Loops without a turn give the neutral element; but a buffer of known size 0 has no loop."""
    if count_of(x, dims_of(x, dim)) == 0:
        raise NotLowered("reduction of no elements")


@lower(aten.sum)
def sum(
    ctx: Lowering, x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    out = ctx.val().dtype
    _not_surely_empty(x, dim)
    return _finish(ctx, x, reduce(ctx, "sum", x, dim, out, compute=out), dim, keepdim)


@lower(aten.mean)
def mean(
    ctx: Lowering, x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    out = ctx.val().dtype
    _not_surely_empty(x, dim)
    return _finish(ctx, x, average(ctx, x, dim, out), dim, keepdim)


def average(ctx: Lowering, x: Tensor, dim: Any, dtype: torch.dtype) -> Tensor:
    """The mean with dimensions kept, lazily divided."""
    count = count_of(x, dims_of(x, dim))
    wide = COMPUTE_TYPES[dtype]
    total = reduce(ctx, "sum", x, dim, wide, compute=wide)
    return ctx.pointwise(
        lambda v: ops.div(v, ops.constant(count, v.dtype)), [total], dtype, wide, work=2
    )


@lower(aten.prod)
def prod(
    ctx: Lowering, x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    out = ctx.val().dtype
    _not_surely_empty(x, dim)
    return _finish(ctx, x, reduce(ctx, "prod", x, dim, out, compute=out), dim, keepdim)


def _extreme(kind: str) -> Callable[..., Tensor]:
    def lowering(ctx: Lowering, x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
        _not_empty(x, dim)
        name = kind
        if x.dtype == torch.bool:
            name = "any" if kind == "max" else "all"
        return _finish(ctx, x, reduce(ctx, name, x, dim, x.dtype), dim, keepdim)

    return lowering


amax = lower(aten.amax.default, aten.max.default)(_extreme("max"))
amin = lower(aten.amin.default, aten.min.default)(_extreme("min"))


def _arg(kind: str) -> Callable[..., Tensor]:
    def lowering(ctx: Lowering, x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
        if x.dtype == torch.bool:
            raise NotLowered("position of a bool")
        _not_empty(x, dim)
        x = pointwise.stored(ctx, x)
        if dim is None:
            flat = views.view(ctx, x, (x.numel,))
            result = ctx.reduce(f"arg{kind}", flat, [0], torch.int64, position=True)
            return views.view(ctx, result, (1,) * len(x.size) if keepdim else ())
        result = ctx.reduce(f"arg{kind}", x, dims_of(x, dim), torch.int64, position=True)
        return _finish(ctx, x, result, dim, keepdim)

    return lowering


argmax = lower(aten.argmax.default)(_arg("max"))
argmin = lower(aten.argmin.default)(_arg("min"))


@lower(aten.max.dim)
def max_dim(ctx: Lowering, x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    settled(ctx, x)
    return amax(ctx, x, dim, keepdim), argmax(ctx, x, dim, keepdim)


@lower(aten.min.dim)
def min_dim(ctx: Lowering, x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    settled(ctx, x)
    return amin(ctx, x, dim, keepdim), argmin(ctx, x, dim, keepdim)


@lower(aten.any)
def any(ctx: Lowering, x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    _not_surely_empty(x, dim)
    if ctx.val().dtype != torch.bool:
        raise NotLowered("any of uint8")
    result = reduce(ctx, "any", x, dim, torch.bool, compute=torch.bool)
    return _finish(ctx, x, result, dim, keepdim)


@lower(aten.all)
def all(ctx: Lowering, x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    _not_surely_empty(x, dim)
    if ctx.val().dtype != torch.bool:
        raise NotLowered("all of uint8")
    result = reduce(ctx, "all", x, dim, torch.bool, compute=torch.bool)
    return _finish(ctx, x, result, dim, keepdim)


def moments(
    ctx: Lowering, x: Tensor, dim: Any, correction: float, *, exact: bool = False
) -> tuple[Tensor, Tensor]:
    """(mean, variance), in two passes over the row: exact where a running update loses digits. In
    float32 for half types; dimensions kept. `exact`: the mean of equal numbers is that number, and
    their variance 0, which programs compare with; float32 and bfloat16 in float64 as in eager,
    whose squares neither overflow nor vanish."""
    settled(ctx, x)
    wide = COMPUTE_TYPES[x.dtype]
    if exact and x.dtype in (torch.float32, torch.bfloat16) and x.device.type == "cpu":
        wide = torch.float64  # sums of up to 2**29 equal numbers are exact
    mu = average(ctx, x, dim, wide)
    if exact and wide != torch.float64:
        low, high = (reduce(ctx, kind, x, dim, wide, compute=wide) for kind in ("min", "max"))
        mu = ctx.pointwise(
            lambda m, a, b: ops.minimum(ops.maximum(m, a), b), [mu, low, high], wide, work=2
        )
    centred = ctx.pointwise(
        lambda v, m: ops.mul(ops.sub(v, m), ops.sub(v, m)), [x, mu], wide, work=2
    )
    count = count_of(x, dims_of(x, dim))
    total = reduce(ctx, "sum", centred, dim, wide)

    def divide(v: Value) -> Value:
        if isinstance(count, Size):
            free = ops.sub(ops.constant(count, v.dtype), ops.constant(correction, v.dtype))
            return ops.div(v, ops.maximum(free, ops.constant(0, v.dtype)))
        return ops.div(v, ops.constant(max(0.0, count - correction), v.dtype))

    variance = ctx.pointwise(divide, [total], wide, work=2)
    return mu, variance


def _correction(unbiased: Any, correction: Any) -> float:
    if correction is not None:
        return float(correction)
    return 0.0 if unbiased is False else 1.0


def _moment_args(dim: Any, unbiased: Any, correction: Any) -> tuple[Any, float]:
    if isinstance(dim, bool):  # the overload (x, unbiased)
        return None, _correction(dim, correction)
    return dim, _correction(unbiased, correction)


def _spread(
    ctx: Lowering, x: Tensor, dim: Any, unbiased: Any, keepdim: bool, correction: Any, rooted: bool
) -> tuple[Tensor, Tensor]:
    """(variance, or its root, and mean)"""
    from inductor.lowering.pointwise import convert

    dim, amount = _moment_args(dim, unbiased, correction)
    _not_surely_empty(x, dim)
    if not x.dtype.is_floating_point:
        raise NotLowered("moments of integers")
    mu, spread = moments(ctx, x, dim, amount, exact=True)
    if rooted:
        spread = ctx.pointwise(ops.sqrt, [spread], spread.dtype, work=3)
    return (
        _finish(ctx, x, convert(ctx, spread, x.dtype), dim, keepdim),
        _finish(ctx, x, convert(ctx, mu, x.dtype), dim, keepdim),
    )


def _spreads(rooted: bool, mean: bool) -> Callable[..., Any]:
    def lowering(
        ctx: Lowering, x: Tensor, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *,
        correction: Any = None,
    ) -> Any:  # fmt: skip
        found = _spread(ctx, x, dim, unbiased, keepdim, correction, rooted)
        return found if mean else found[0]

    return lowering


lower(aten.var)(_spreads(rooted=False, mean=False))
lower(aten.var_mean)(_spreads(rooted=False, mean=True))
lower(aten.std)(_spreads(rooted=True, mean=False))
lower(aten.std_mean)(_spreads(rooted=True, mean=True))


@lower(aten.linalg_vector_norm.default)
def vector_norm(
    ctx: Lowering,
    x: Tensor,
    ord: float = 2,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
) -> Tensor:
    out = ctx.val().dtype
    _not_surely_empty(x, dim)
    wide = COMPUTE_TYPES[out]
    if ord != 0 and count_of(x, dims_of(x, dim)) == 1:
        ord = 1  # as eager: a square would overflow
    if ord == 2:
        body: Callable[[Value], Value] = lambda v: ops.mul(v, v)  # noqa: E731
        total = reduce(ctx, "sum", x, dim, wide, body, wide)
        result = ctx.pointwise(ops.sqrt, [total], out, wide, work=3)
    elif ord == 1:
        result = reduce(ctx, "sum", x, dim, out, ops.abs, wide)
    elif ord in (math.inf, -math.inf):
        _not_empty(x, dim)
        result = reduce(ctx, "max" if ord > 0 else "min", x, dim, out, ops.abs, wide)
    else:
        raise NotLowered(f"norm of order {ord}")
    return _finish(ctx, x, result, dim, keepdim)


# --- softmax -------------------------------------------------------------------------------------


def _shifted(ctx: Lowering, x: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    """x - max(x), in the compute type of `dtype`."""
    settled(ctx, x)
    wide = COMPUTE_TYPES[dtype]
    top = reduce(ctx, "max", x, dim, wide, compute=wide)
    return ctx.pointwise(ops.sub, [x, top], wide)


def _softmax_can(x: Tensor, dtype: torch.dtype) -> None:
    if not x.size or x.numel == 0:
        raise NotLowered("softmax of nothing to reduce")
    if not dtype.is_floating_point:
        raise NotLowered("softmax of integers, for which eager has no kernel")


@lower(aten._softmax.default)
def softmax(ctx: Lowering, x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    out = ctx.val().dtype
    _softmax_can(x, out)
    wide = COMPUTE_TYPES[out]
    powers = ctx.pointwise(ops.exp, [_shifted(ctx, x, dim, out)], wide, work=6)
    ctx.realize(powers)  # used twice; a row of it stays in the kernel
    total = reduce(ctx, "sum", powers, dim, wide)
    share = ctx.pointwise(ops.reciprocal, [total], wide, work=2)  # once a row
    return ctx.pointwise(ops.mul, [powers, share], out, wide)


@lower(aten._log_softmax.default)
def log_softmax(ctx: Lowering, x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    out = ctx.val().dtype
    _softmax_can(x, out)
    wide = COMPUTE_TYPES[out]
    low = _shifted(ctx, x, dim, out)
    total = reduce(ctx, "sum", ctx.pointwise(ops.exp, [low], wide, work=6), dim, wide)
    log = ctx.pointwise(ops.log, [total], wide, work=6)
    return ctx.pointwise(ops.sub, [low, log], out, wide)


__all__ = ["average", "moments", "reduce", "settled"]
