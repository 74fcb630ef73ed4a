"""Convolutions are the library's; what is no product of matrices in them is not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from inductor.ir import Tensor
from inductor.lowering import views
from inductor.lowering.context import Lowering
from inductor.lowering.reduction import reduce
from inductor.lowering.registry import NotLowered, aten, lower
from inductor.sizes import nonzero


@lower(aten.convolution_backward.default)
def convolution_backward(
    ctx: Lowering, grad: Tensor, x: Tensor, weight: Tensor, bias: Any, *rest: Any
) -> tuple[Any, ...]:
    """The bias' gradient is a sum, which takes the library longer, and joins what made `grad`."""
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
