"""Operators that see how a tensor lies in memory, not only its elements."""

from __future__ import annotations

from collections.abc import Sequence

from fxgraph.sizes import Extent, known_le, nonzero, product
from inductor.index import Index
from inductor.ir import Tensor, Value, Window
from inductor.lowering.context import Lowering
from inductor.lowering.layouts import is_distinct, narrow, stride_order
from inductor.lowering.pointwise import convert
from inductor.lowering.registry import NotLowered, aten, lower
from inductor.lowering.views import diagonal
from inductor.ops import ops


@lower(aten.as_strided.default)
def as_strided(
    ctx: Lowering,
    x: Tensor,
    size: Sequence[Extent],
    stride: Sequence[Extent],
    offset: Extent | None = None,
) -> Tensor:
    memory = ctx.exact(x, ctx.node.args[0].meta["val"])
    window = _within(ctx, memory, size, stride, offset)
    return Tensor(window.size, x.dtype, x.device, window)


@lower(aten.as_strided_scatter.default)
def as_strided_scatter(
    ctx: Lowering,
    x: Tensor,
    source: Tensor,
    size: Sequence[Extent],
    stride: Sequence[Extent],
    offset: Extent | None = None,
) -> Tensor:
    if not is_distinct(size, stride) or not nonzero(product(size)):
        raise NotLowered("elements that share a place, or none")
    val = ctx.node.args[0].meta["val"]
    if not is_distinct(ctx.shape(val), ctx.strides(val)):
        raise NotLowered("elements that share a place")
    result = ctx.copy(x, ctx.strides(val))
    assert result.window is not None
    window = _within(ctx, result.window, size, stride, offset)
    return _filled(ctx, result, window, source)


@lower(aten.diagonal_scatter.default)
def diagonal_scatter(
    ctx: Lowering, x: Tensor, source: Tensor, offset: int = 0, a: int = 0, b: int = 1
) -> Tensor:
    result = ctx.copy(x)
    part = diagonal(ctx, result, offset, a, b)
    assert part.window is not None
    if not nonzero(part.numel):
        raise NotLowered("an empty diagonal, perhaps")
    return _filled(ctx, result, part.window, source)


def _filled(ctx: Lowering, x: Tensor, window: Window, source: Tensor) -> Tensor:
    """x, fresh, with the source in a window of its memory."""
    source = convert(ctx, source, x.dtype)
    if source.split is not None:
        ctx.realize(source)

    def body(idx: list[Index], _: list[Index]) -> tuple[Value, ...]:
        return (ops.to_compute(source.load(narrow(tuple(idx), source.size)), x.dtype),)

    order = stride_order(window.size, window.stride)
    ctx.loops(window.size, order, (), body, window.index, None, window.buffer, mode="set")
    return x


def _within(
    ctx: Lowering,
    memory: Window,
    size: Sequence[Extent],
    stride: Sequence[Extent],
    offset: Extent | None,
) -> Window:
    """A window into the memory of a tensor that lies there as the graph has it."""
    start: Extent = 0
    if offset is not None:
        if memory.buffer.kind == "input":
            raise NotLowered("an offset from the start of an input's storage")
        start = offset - ctx.sizes.of(ctx.node.args[0].meta["val"].storage_offset())
    inside = known_le(0, start) and known_le(start + _last(size, stride), _last(*_shape(memory)))
    if not inside and nonzero(product(size)):
        raise NotLowered("elements beside those of the tensor")
    return Window(memory.buffer, tuple(size), tuple(stride), memory.offset + start)


def _shape(window: Window) -> tuple[Sequence[Extent], Sequence[Extent]]:
    return window.size, window.stride


def _last(size: Sequence[Extent], stride: Sequence[Extent]) -> Extent:
    """The position of the last element."""
    last: Extent = 0
    for n, step in zip(size, stride, strict=True):
        last = last + (n - 1) * step
    return last
