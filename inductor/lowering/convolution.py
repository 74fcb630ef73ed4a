"""Convolutions: depthwise ones are loops; of the library's, so is the sum for a bias' gradient, and
on a GPU the sum with a bias."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from fxgraph.sizes import Extent, contiguous_strides, nonzero
from inductor import devices
from inductor.convolutions import depthwise_convolution
from inductor.depthwise_training import depthwise_gradient, trained_depthwise
from inductor.index import Index
from inductor.ir import Buffer, Depthwise, DepthwiseGradient, Indices, Tensor, Value
from inductor.lowering import views
from inductor.lowering.context import Lowering
from inductor.lowering.indexing import padded_load
from inductor.lowering.pooling import window_positions
from inductor.lowering.products import innermost
from inductor.lowering.reduction import reduce
from inductor.lowering.registry import NotLowered, aten, lower
from inductor.ops import ops


@lower(aten.convolution.default)
def convolution(
    ctx: Lowering, x: Tensor, weight: Tensor, bias: Tensor | None, *settings: Any
) -> Tensor:
    """cuDNN adds no bias: eager does, in a pass over the result. Here it joins the kernel that
    reads the result. Depthwise convolutions of eager's own add it to a sum in a register.
    """
    val, groups = ctx.val(), settings[-1]
    if bias is None or not devices.is_gpu(val.device) or not val.dtype.is_floating_point:
        raise NotLowered("no bias that a kernel could add")
    if groups > 1 and groups == x.size[1]:
        raise NotLowered("a depthwise convolution")
    result = ctx.aten(aten.convolution.default, [x, weight, None, *settings], {})
    column = views.view(ctx, bias, (bias.numel, *[1] * (len(result.size) - 2)))
    return ctx.pointwise(ops.add, [result, column], val.dtype)


@lower(aten.convolution_backward.default)
def convolution_backward(
    ctx: Lowering, grad: Tensor, x: Tensor, weight: Tensor, bias: Any, *rest: Any
) -> tuple[Any, ...]:
    """The bias' gradient is a sum, slow in the library; here it joins the kernel of `grad`."""
    *settings, mask = rest
    if not mask[2] or not grad.dtype.is_floating_point or not nonzero(grad.numel):
        raise NotLowered("no bias")
    ctx.realize(grad)
    dims = [0, *range(2, len(grad.size))]
    total = views.view(ctx, reduce(ctx, "sum", grad, dims, grad.dtype), (grad.size[1],))
    others = _without_bias(ctx, [grad, x, weight, None, *settings], mask)
    return (*others, total)


def _without_bias(ctx: Lowering, args: list[Any], mask: Sequence[bool]) -> tuple[Any, Any]:
    if not any(mask[:2]):
        return None, None
    target = aten.convolution_backward.default
    vals = (*ctx.val()[:2], None)
    results = ctx.aten(target, [*args, [mask[0], mask[1], False]], {}, val=vals)
    return results[0], results[1]


@lower(depthwise_convolution)
def depthwise(
    ctx: Lowering,
    x: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Tensor:
    """A sum over each channel's window, written out. weight: (height, width, channels)."""
    ctx.realize(x)
    height, width, _ = ctx.realize(weight).size
    assert isinstance(height, int) and isinstance(width, int)
    window = height, width
    size = ctx.shape()

    def inner(idx: Indices) -> Value:
        total = ops.constant(0.0, x.dtype)
        places = itertools.product(*map(range, window))
        positions = window_positions(idx, window, stride, padding, dilation)
        for place, at in zip(places, positions, strict=True):
            factor = weight.load((*(Index({}, k) for k in place), idx[1]))
            total = ops.mul_add(padded_load(x, at, 0), factor, total)
        return total

    return ctx.generate(size, x.dtype, inner, x, work=2 * height * width)


@lower(trained_depthwise)
def depthwise_of_training(
    ctx: Lowering, x: Tensor, weight: Tensor, *settings: Sequence[int]
) -> Tensor:
    """By a kernel of its own."""
    image, target = innermost(ctx, x), _new_image(ctx, ctx.shape(), x)
    stride, padding, dilation = ((a, b) for a, b in settings)
    name = f"depthwise{ctx.program.new_number()}"
    step = Depthwise(name, image, ctx.realize(weight), stride, padding, dilation, target)
    ctx.program.steps.append(step)
    return Tensor.of(target)


@lower(depthwise_gradient)
def gradients_of_depthwise(
    ctx: Lowering, x: Tensor, gradient: Tensor, weight: Tensor, *settings: Any
) -> tuple[Tensor, Tensor]:
    *steps, parts = settings
    windows = innermost(ctx, x), innermost(ctx, gradient), ctx.realize(weight)
    stride, padding, dilation = ((a, b) for a, b in steps)
    image, size = _new_image(ctx, x.size, x), (parts, *weight.size)
    target = ctx.new_buffer(size, contiguous_strides(size), x)
    name = f"depthwise_gradient{ctx.program.new_number()}"
    step = DepthwiseGradient(name, *windows, stride, padding, dilation, target, image)
    ctx.program.steps.append(step)
    return Tensor.of(image), Tensor.of(target)


def _new_image(ctx: Lowering, size: Sequence[Extent], like: Tensor) -> Buffer:
    """With channels innermost."""
    images, channels, height, width = size
    steps = contiguous_strides((images, height, width, channels))
    return ctx.new_buffer(tuple(size), tuple(steps[i] for i in (0, 3, 1, 2)), like)
