"""Attention, by a kernel of its own."""

from __future__ import annotations

import math

from fxgraph.sizes import Extent
from inductor.attention import attention
from inductor.ir import Attention, Tensor, Window
from inductor.lowering.context import Lowering
from inductor.lowering.registry import NotLowered, lower


@lower(attention)
def attended(
    ctx: Lowering,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    scale: float,
    causal: bool,
) -> Tensor:
    if q.device.type != "cpu" or not math.isfinite(scale):
        raise NotLowered("attention")
    stride = ctx.strides(ctx.val())
    if stride[-1] != 1:
        raise NotLowered("the layout of attention's result")
    scores = (*q.size[:3], k.size[2])
    queries, keys, values = map(ctx.realize_rows, (q, k, v))
    target = ctx.new_buffer(q.size, stride, q)
    name = f"attention{len(ctx.program.steps)}"
    seen = None if mask is None else _expanded(ctx, mask, scores)
    step = Attention(name, queries, keys, values, seen, scale, causal, target)
    ctx.program.steps.append(step)
    return Tensor.of(target)


def _expanded(ctx: Lowering, mask: Tensor, size: tuple[Extent, ...]) -> Window:
    """The mask in memory as if of the scores' size."""
    window = ctx.realize_rows(mask)
    missing = len(size) - len(mask.size)
    stride: list[Extent] = [0] * missing
    for n, wanted, step in zip(mask.size, size[missing:], window.stride, strict=True):
        if n != 1 and n != wanted:
            raise NotLowered("a mask of another size")
        stride.append(step if n == wanted and n != 1 else 0)
    return Window(window.buffer, size, tuple(stride), window.offset)
