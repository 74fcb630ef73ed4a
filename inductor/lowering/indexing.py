"""Gathers and padding: loads at positions that are themselves loaded, or partly outside."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from fxgraph.sizes import Extent, nonzero
from inductor.index import Index
from inductor.ir import Indices, Tensor, Value
from inductor.lowering import masks, views
from inductor.lowering.checks import require_inside
from inductor.lowering.context import Lowering
from inductor.lowering.layouts import broadcast, narrow
from inductor.lowering.numbers import Number, rounded
from inductor.lowering.registry import NotLowered, aten, lower
from inductor.ops import ops


def source(ctx: Lowering, x: Tensor) -> Tensor:
    """A gather's source: elements are read in any order and number, so no long computation."""
    if x.window is None and x.work > 1:
        ctx.realize(x)
    return x


def reader(x: Tensor) -> Callable[[Indices], Value]:
    """x's elements, for positions that are in range if there are any: of a tensor that may be empty
    nothing is read, whatever the check of the positions is about to find.
    """
    if nonzero(x.numel):
        return x.load

    def load(idx: Indices) -> Value:
        some = ops.gt(ops.constant(x.numel, torch.int64), ops.constant(0, torch.int64))
        return ops.masked(some, lambda: x.load(idx), 0)

    return load


OUT_OF_RANGE = ("IndexError", "index out of range in self")


def out_of_bounds(error: str, d: int) -> tuple[str, str]:
    return error, f"index {{}} is out of bounds for dimension {d} with size {{0}}"


def in_range(
    ctx: Lowering, index: Tensor, low: Extent, size: Extent, report: tuple[str, str]
) -> None:
    """Eager's bounds check, at run time; `report` is its error and text. Loads are clamped
    besides, so memory is safe anyway."""

    require_inside(ctx, index, low, size, *report, size)


@lower(aten.embedding.default)
def embedding(
    ctx: Lowering,
    weight: Tensor,
    indices: Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    source(ctx, weight)
    rank = len(indices.size)

    def inner(idx: Indices) -> Value:
        row = ops.to_dtype(indices.load(idx[:rank]), torch.int64)
        return read((ops.indirect_checked(row, weight.size[0]), idx[rank]))

    if weight.size[0] == 0:
        raise NotLowered("empty table")
    read = reader(weight)
    in_range(ctx, indices, 0, weight.size[0], OUT_OF_RANGE)
    size = (*indices.size, weight.size[1])
    return ctx.generate(size, weight.dtype, inner, weight, indices)


@lower(aten.index_select.default)
def index_select(ctx: Lowering, x: Tensor, d: int, index: Tensor) -> Tensor:
    if not x.size or not index.size or x.numel == 0:
        raise NotLowered("index_select of a scalar")
    if len(index.size) != 1 or index.dtype not in (torch.int32, torch.int64):
        raise NotLowered("aten refuses such an index")
    d = views.dim_of(d, len(x.size))
    read = reader(source(ctx, x))
    elsewhere = "INDICES element is out of DATA bounds, id={} axis_dim={0}"
    report = ("RuntimeError", elsewhere) if d == 1 else OUT_OF_RANGE  # so it is in eager
    in_range(ctx, index, 0, x.size[d], report)

    def inner(idx: Indices) -> Value:
        at = ops.to_dtype(index.load((idx[d],)), torch.int64)
        return read((*idx[:d], ops.indirect_checked(at, x.size[d]), *idx[d + 1 :]))

    size = (*x.size[:d], index.size[0], *x.size[d + 1 :])
    return ctx.generate(size, x.dtype, inner, x, index)


@lower(aten.gather.default)
def gather(ctx: Lowering, x: Tensor, d: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    if not x.size or not index.size or x.numel == 0:
        raise NotLowered("gather of a scalar")
    d = views.dim_of(d, len(x.size))
    read = reader(source(ctx, x))
    report = out_of_bounds("RuntimeError", d)  # so it is in eager
    in_range(ctx, index, 0, x.size[d], report)

    def inner(idx: Indices) -> Value:
        at = ops.to_dtype(index.load(idx), torch.int64)
        return read((*idx[:d], ops.indirect_checked(at, x.size[d]), *idx[d + 1 :]))

    return ctx.generate(index.size, x.dtype, inner, x, index)


@lower(aten.index.Tensor)
def index(ctx: Lowering, x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    if (masked := masks.mask_of(indices)) is not None:
        d = masked[0]
        return masks.selected(ctx, x, *masked, ctx.node.args[1][d], ctx.val().shape[d])
    given = [(d, t) for d, t in enumerate(indices) if t is not None]
    if x.numel == 0:
        raise NotLowered("index of nothing")
    read = reader(source(ctx, x))
    for d, given_index in enumerate(indices):
        if given_index is not None:
            report = out_of_bounds("IndexError", d)
            in_range(ctx, given_index, -x.size[d], x.size[d], report)
    common = broadcast(*(t.size for _, t in given))
    dims = [d for d, _ in given]
    together = dims == list(range(dims[0], dims[-1] + 1))
    at = dims[0] if together else 0  # where the indexed dimensions appear in the result
    rest = [d for d in range(len(x.size)) if d not in dims]
    before = [d for d in rest if together and d < at]
    after = [d for d in rest if d not in before]
    size = (*(x.size[d] for d in before), *common, *(x.size[d] for d in after))

    def inner(idx: Indices) -> Value:
        chosen = idx[len(before) : len(before) + len(common)]
        source: list[Index] = [Index({})] * len(x.size)
        for d, i in zip(before, idx[: len(before)], strict=True):
            source[d] = i
        for d, i in zip(after, idx[len(before) + len(common) :], strict=True):
            source[d] = i
        for d, t in given:
            source[d] = ops.indirect(t.load(narrow(chosen, t.size)), x.size[d])
        return read(tuple(source))

    return ctx.generate(size, x.dtype, inner, x, *(t for _, t in given))


@lower(aten.constant_pad_nd.default)
def constant_pad(ctx: Lowering, x: Tensor, pad: Sequence[Extent], value: Number = 0) -> Tensor:
    from inductor.lowering.reduction import settled

    rank, value = len(x.size), rounded(value, x.dtype)
    low: list[Extent] = [0] * rank
    high: list[Extent] = [0] * rank
    for k in range(len(pad) // 2):
        low[rank - 1 - k], high[rank - 1 - k] = pad[2 * k], pad[2 * k + 1]
    size = tuple(n + a + b for n, a, b in zip(x.size, low, high, strict=True))
    settled(ctx, x)

    def inner(idx: Indices) -> Value:
        return padded_load(x, tuple(i - a for i, a in zip(idx, low, strict=True)), value)

    return ctx.generate(size, x.dtype, inner, x)


def padded_load(x: Tensor, idx: Indices, value: Number) -> Value:
    """x's element, or `value` outside of x. Bounds that the loop's own extent guarantees cost
    nothing."""
    mask = None
    for i, n in zip(idx, x.size, strict=True):
        at = ops.index_expr(i, torch.int64)
        for inside in (
            ops.ge(at, ops.constant(0, torch.int64)),
            ops.lt(at, ops.constant(n, torch.int64)),
        ):
            mask = inside if mask is None else ops.logical_and(mask, inside)
    assert mask is not None
    return ops.masked(mask, lambda: x.load(idx), value)
