"""Losses that eager checks more closely than the operators that they could be made of."""

from __future__ import annotations

from collections.abc import Callable

import torch

from fxgraph.sizes import Extent
from inductor.ir import Indices, Tensor, Value
from inductor.lowering import views
from inductor.lowering.checks import require, require_all
from inductor.lowering.context import Lowering
from inductor.lowering.indexing import reader, source
from inductor.lowering.pointwise import convert
from inductor.lowering.reduction import reduce
from inductor.lowering.registry import LOWERINGS, NotLowered, aten, lower
from inductor.lowering.scatter import zeros
from inductor.ops import COMPUTE_TYPES, ops

NONE, MEAN = 0, 1  # reductions; the other is a sum


def _counting(
    ctx: Lowering, target: Tensor, ignored: int, classes: Extent
) -> Callable[[Value], Value]:
    """Whether a class counts. Others than `ignored` must be classes."""

    def counts(t: Value) -> Value:
        return ops.ne(t, ops.constant(ignored, torch.int64))

    def fine(t: Value) -> Value:
        above = ops.ge(t, ops.constant(0, torch.int64))
        inside = ops.logical_and(above, ops.lt(t, ops.constant(classes, torch.int64)))
        return ops.logical_or(inside, ops.logical_not(counts(t)))

    require(ctx, target, fine, "IndexError", "Target {} is out of bounds.")
    return counts


@lower(aten.nll_loss_forward.default, aten.nll_loss2d_forward.default)
def nll_loss(
    ctx: Lowering, x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignored: int
) -> tuple[Tensor, Tensor]:
    """(loss, sum of the weights that count). The loss of an element is -x[its class]."""
    if x.numel == 0 or target.numel == 0 or not x.dtype.is_floating_point:
        raise NotLowered("loss of nothing")
    if target.dtype not in (torch.int64, torch.uint8):
        raise NotLowered("aten refuses such targets")
    d = 1 if len(x.size) > 1 else 0
    classes, wide = x.size[d], COMPUTE_TYPES[x.dtype]
    read = reader(source(ctx, x))

    counts = _counting(ctx, target, ignored, classes)

    def weighted(idx: Indices, with_loss: bool) -> Value:
        """The weight of an element, times its loss or alone."""
        t = ops.to_dtype(target.load(idx), torch.int64)
        at = ops.indirect_checked(t, classes)
        result = ops.constant(1, wide)
        if weight is not None:
            result = ops.to_compute(weight.load((at,)), wide)
        if with_loss:
            value = ops.to_compute(read((*idx[:d], at, *idx[d:])), wide)
            result = ops.mul(ops.neg(value), result)
        return ops.where(counts(t), result, ops.constant(0, wide))

    tensors = [target, *([weight] if weight is not None else [])]
    losses = ctx.generate(target.size, wide, lambda idx: weighted(idx, True), x, *tensors)
    weights = ctx.generate(target.size, wide, lambda idx: weighted(idx, False), *tensors)

    def total(t: Tensor) -> Tensor:
        return views.view(ctx, reduce(ctx, "sum", t, None, wide), ())

    if reduction == NONE:
        return convert(ctx, losses, x.dtype), zeros(ctx, (), x.dtype, x)
    loss, all_weights = total(losses), total(weights)
    if reduction == MEAN:
        loss = ctx.pointwise(ops.div, [loss, all_weights], wide, work=2)
    return convert(ctx, loss, x.dtype), convert(ctx, all_weights, x.dtype)


@lower(aten.nll_loss_backward.default, aten.nll_loss2d_backward.default)
def nll_loss_backward(
    ctx: Lowering,
    grad: Tensor,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignored: int,
    all_weights: Tensor,
) -> Tensor:
    """A number at each element's class, nothing elsewhere, whatever the gradient is."""
    if x.numel == 0 or target.dtype not in (torch.int64, torch.uint8):
        raise NotLowered("loss of nothing")
    alone = x.device.type == "cpu" and all(user.op == "output" for user in ctx.node.users)
    if alone and x.dtype.itemsize == 2:
        raise NotLowered("rounding all of a row, where aten writes one element")
    d = 1 if len(x.size) > 1 else 0
    classes, wide = x.size[d], COMPUTE_TYPES[x.dtype]
    counts = _counting(ctx, target, ignored, classes)

    def inner(idx: Indices) -> Value:
        element = (*idx[:d], *idx[d + 1 :])
        t = ops.to_dtype(target.load(element), torch.int64)
        number = ops.to_compute(grad.load(element if reduction == NONE else ()), wide)
        if reduction == MEAN:
            whole = ops.to_compute(all_weights.load(()), wide)
            number = ops.to_dtype(ops.div(number, whole), x.dtype)
        number = ops.neg(number)
        if weight is not None:
            of_class = ops.to_compute(weight.load((ops.indirect_checked(t, classes),)), wide)
            number = ops.to_dtype(ops.mul(of_class, number), x.dtype)
        nothing = ops.constant(0, wide)
        number = ops.where(counts(t), number, nothing)
        here = ops.eq(ops.index_expr(idx[d], torch.int32), ops.to_dtype(t, torch.int32))
        return ops.where(here, number, nothing)

    tensors = [grad, target, all_weights, *([weight] if weight is not None else [])]
    return ctx.generate(x.size, x.dtype, inner, *tensors)


@lower(aten.binary_cross_entropy.default)
def binary_cross_entropy(
    ctx: Lowering, x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = MEAN
) -> Tensor:
    """Of probabilities, which eager refuses outside of [0, 1]; logarithms are at least -100."""
    wide = COMPUTE_TYPES[x.dtype]
    if x.numel == 0 or not x.dtype.is_floating_point:
        raise NotLowered("loss of nothing")

    def constant(n: float) -> Value:
        return ops.constant(n, wide)

    def fine(v: Value) -> Value:
        return ops.logical_and(ops.ge(v, constant(0)), ops.le(v, constant(1)))

    for given, name in ((x, "input"), (target, "target")):
        message = f"all elements of {name} should be between 0 and 1"
        require_all(ctx, given, fine, message, wide)

    def loss_of(v: Value, t: Value, *weights: Value) -> Value:
        miss = ops.maximum(ops.log1p(ops.neg(v)), constant(-100))
        hit = ops.maximum(ops.log(v), constant(-100))
        loss = ops.sub(ops.mul(ops.sub(t, constant(1)), miss), ops.mul(t, hit))
        return ops.mul(loss, weights[0]) if weights else loss

    tensors = [x, target, *([weight] if weight is not None else [])]
    losses = ctx.pointwise(loss_of, tensors, x.dtype, wide, work=40)
    if reduction == NONE:
        return losses
    return LOWERINGS[(aten.mean if reduction == MEAN else aten.sum).default](ctx, losses)
