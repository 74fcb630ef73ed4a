"""Scatters: stores at positions that are themselves loaded, where several may meet at one element.

Values that meet are combined in eager's order; half types are added up in float32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fxgraph.sizes import Extent, contiguous_strides, hint, known_le, known_lt, nonzero, product
from inductor import costs, devices
from inductor.index import Index, linear
from inductor.ir import Indices, Tensor, Value
from inductor.lowering import masks, views
from inductor.lowering.context import Lowering
from inductor.lowering.indexing import OUT_OF_RANGE, in_range, out_of_bounds
from inductor.lowering.layouts import broadcast, narrow
from inductor.lowering.numbers import Number, rounded
from inductor.lowering.pointwise import convert
from inductor.lowering.pooling import pair
from inductor.lowering.registry import NotLowered, aten, lower
from inductor.ops import COMPUTE_TYPES, ops

Idx = list[Index]


def zeros(ctx: Lowering, size: Sequence[Extent], dtype: torch.dtype, like: Tensor) -> Tensor:
    return full(ctx, size, 0, dtype, like)


def full(
    ctx: Lowering, size: Sequence[Extent], number: Extent, dtype: torch.dtype, like: Tensor
) -> Tensor:
    def inner(idx: Indices) -> Value:
        return ops.constant(number, dtype)

    return Tensor(tuple(size), dtype, like.device, inner=inner, work=0, reads=0)


@lower(aten.embedding_dense_backward.default)
def embedding_backward(
    ctx: Lowering, grad: Tensor, indices: Tensor, rows: Extent, padding: int, by_frequency: bool
) -> Tensor:
    """Rows of the gradient, one after another, each added to the table's row that was looked up.

    Of half types the sums are float32: a whole table of them, or, where the table has many more
    rows than were looked up, a row for each that was, at the place of the first look for it.
    """
    if by_frequency or rows == 0 or grad.numel == 0:
        raise NotLowered("counts, or an empty table")
    columns = grad.size[-1]

    def value(i: Idx, s: Idx) -> Value:
        v = ops.to_compute(grad.load((*s, *i)), wide)
        if padding < 0:
            return v
        skipped = ops.eq(ops.to_dtype(indices.load(tuple(s)), torch.int64), pad())
        return ops.where(skipped, ops.constant(0, wide), v)

    def pad() -> Value:
        return ops.constant(padding, torch.int64)

    def place(i: Idx, s: Idx) -> Indices:
        row = ops.to_dtype(indices.load(tuple(s)), torch.int64)
        return ops.indirect_checked(row, rows), i[0]

    def first_look(s: Idx) -> Index:
        row, _ = place([Index({})], s)
        return ops.indirect_checked(first.load((row,)), looks)

    wide, looks = COMPUTE_TYPES[grad.dtype], product(indices.size)
    few = hint(looks) * costs.FEW_LOOKS < hint(rows) and nonzero(looks)
    if wide == grad.dtype or devices.is_gpu(grad.device) or not few:
        base = zeros(ctx, (rows, columns), wide, grad)
        result = ctx.scatter("add", base, [columns], indices.size, value, place)
        return convert(ctx, result, grad.dtype)
    strides = contiguous_strides(indices.size)
    first = ctx.scatter(
        "min", full(ctx, (rows,), looks, torch.int64, grad), [], indices.size,
        lambda i, s: ops.index_expr(linear(s, strides, 0), torch.int64),
        lambda i, s: place([Index({})], s)[:1],
    )  # fmt: skip
    sums = ctx.scatter(
        "add", zeros(ctx, (looks, columns), wide, grad), [columns], indices.size, value,
        lambda i, s: (first_look(s), i[0]),
    )  # fmt: skip
    return ctx.scatter(
        "set", zeros(ctx, (rows, columns), grad.dtype, grad), [columns], indices.size,
        lambda i, s: ops.to_dtype(sums.load((first_look(s), i[0])), grad.dtype), place,
    )  # fmt: skip


@lower(aten.index_put.default)
def index_put(
    ctx: Lowering,
    x: Tensor,
    indices: Sequence[Tensor | None],
    values: Tensor,
    accumulate: bool = False,
) -> Tensor:
    _same_type(x, values)
    if (masked := masks.mask_of(indices)) is not None:
        return masks.put(ctx, x, *masked, ctx.node.args[1][masked[0]], values, accumulate)
    given = [(d, t) for d, t in enumerate(indices) if t is not None]
    if not given or x.numel == 0 or (accumulate and x.dtype == torch.bool):
        raise NotLowered("index_put into nothing")
    for d, t in given:
        in_range(ctx, t, -x.size[d], x.size[d], out_of_bounds("IndexError", d))
    common = broadcast(*(t.size for _, t in given))
    dims = [d for d, _ in given]
    rest = [d for d in range(len(x.size)) if d not in dims]
    together = dims == list(range(dims[0], dims[-1] + 1))
    before = sum(1 for d in rest if d < dims[0]) if together else 0
    if len(values.size) > len(rest) + len(common):
        raise NotLowered("values with leading dimensions of 1")
    ctx.realize(values) if values.window is None and values.work > 1 and len(rest) > 1 else None

    def value(i: Idx, s: Idx) -> Value:
        full = (*i[:before], *s, *i[before:])
        return values.load(narrow(full, values.size))

    def place(i: Idx, s: Idx) -> Indices:
        target: list[Index] = [Index({})] * len(x.size)
        for d, at in zip(rest, i, strict=True):
            target[d] = at
        for d, t in given:
            target[d] = ops.indirect(t.load(narrow(tuple(s), t.size)), x.size[d])
        return tuple(target)

    wide = COMPUTE_TYPES[x.dtype] if accumulate else x.dtype
    mode = "add" if accumulate else "set"
    base = convert(ctx, x, wide)
    result = ctx.scatter(mode, base, [x.size[d] for d in rest], common, value, place)
    return convert(ctx, result, x.dtype)


# --- along one dimension -------------------------------------------------------------------------

# scatter_reduce's name -> mode, and the initial value of a place that does not count itself
REDUCES: dict[str, tuple[str, Any]] = {
    "sum": ("add", 0),
    "prod": ("mul", 1),
    "amax": ("max", "lowest"),
    "amin": ("min", "highest"),
}


def _along(
    ctx: Lowering, mode: str, x: Tensor, d: int, index: Tensor, new: Tensor | Number | Value
) -> Tensor:
    """new[..., i, ...] combined into x[..., index[..., i, ...], ...]; in x's own type."""
    free = [n for k, n in enumerate(index.size) if k != d]

    def at(i: Idx, s: Idx) -> Indices:
        return (*i[:d], s[0], *i[d:])

    def value(i: Idx, s: Idx) -> Value:
        return new.load(at(i, s)) if isinstance(new, Tensor) else ops.constant(new, x.dtype)

    def place(i: Idx, s: Idx) -> Indices:
        where = ops.to_dtype(index.load(at(i, s)), torch.int64)
        return (*i[:d], ops.indirect_checked(where, x.size[d]), *i[d:])

    return ctx.scatter(mode, x, free, [index.size[d]], value, place)


def _checked(ctx: Lowering, x: Tensor, d: int, index: Tensor, new: Any) -> int:
    """The dimension; NotLowered for calls that eager treats specially or refuses."""
    if not x.size or len(index.size) != len(x.size) or x.numel == 0:
        raise NotLowered("scatter into a scalar")
    d = views.dim_of(d, len(x.size))
    if isinstance(new, Tensor) and not all(map(known_le, index.size, new.size)):
        raise NotLowered("more positions than values, perhaps")
    fits = (known_le(n, m) for k, (n, m) in enumerate(zip(index.size, x.size)) if k != d)
    if not all(fits):
        raise NotLowered("more rows of positions than there are, perhaps")
    in_range(ctx, index, 0, x.size[d], out_of_bounds("RuntimeError", d))
    return d


@lower(aten.scatter.value, aten.scatter.src)
def scatter(ctx: Lowering, x: Tensor, d: int, index: Tensor, new: Tensor | Number) -> Tensor:
    d = _checked(ctx, x, d, index, new)
    new = new if isinstance(new, Tensor) else rounded(new, x.dtype)
    if index.size == (*x.size[:d], 1, *x.size[d + 1 :]):
        return _choose(ctx, x, d, index, new)
    return _along(ctx, "set", x, d, index, new)


def _choose(ctx: Lowering, x: Tensor, d: int, index: Tensor, new: Tensor | Number) -> Tensor:
    """Replace an element of each row along d, as in the gradient of a cross-entropy: each element
    of the result compares its position, so that the loop fuses with others.
    """

    # half as wide, of twice as many lanes; indices beyond it are out of range and raise
    position = torch.int32 if known_lt(x.size[d], 2**31) else torch.int64

    def inner(idx: Indices) -> Value:
        row = (*idx[:d], Index({}), *idx[d + 1 :])
        at = ops.to_dtype(index.load(row), position)
        value = new.load(row) if isinstance(new, Tensor) else ops.constant(new, x.dtype)
        here = ops.eq(ops.index_expr(idx[d], position), at)
        return ops.where(here, value, x.load(idx))

    tensors = [t for t in (x, index, new) if isinstance(t, Tensor)]
    return ctx.generate(x.size, x.dtype, inner, *tensors)


@lower(aten.scatter_add.default)
def scatter_add(ctx: Lowering, x: Tensor, d: int, index: Tensor, src: Tensor) -> Tensor:
    return scatter_reduce(ctx, x, d, index, src, "sum")


@lower(aten.scatter_reduce.two)
def scatter_reduce(
    ctx: Lowering,
    x: Tensor,
    d: int,
    index: Tensor,
    src: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> Tensor:
    if reduce not in REDUCES or x.dtype == torch.bool:
        raise NotLowered(f"scatter_reduce of {reduce}")
    mode, start = REDUCES[reduce]
    serial = len(x.size) == 1 and mode == "add" and x.device.type == "cpu"
    if serial and hint(index.numel) > costs.LONG_SERIAL:
        raise NotLowered("one long row, which aten checks and adds in one go")
    d = _checked(ctx, x, d, index, src)
    wide = convert(ctx, x, COMPUTE_TYPES[x.dtype])
    if not include_self:
        wide = _along(ctx, "set", wide, d, index, _start(start, wide.dtype))
    return convert(ctx, _along(ctx, mode, wide, d, index, src), x.dtype)


def _start(start: Any, dtype: torch.dtype) -> Number:
    if not isinstance(start, str):
        return start
    if dtype.is_floating_point:
        return float("-inf" if start == "lowest" else "inf")
    info = torch.iinfo(dtype)
    return info.min if start == "lowest" else info.max


# --- whole slices --------------------------------------------------------------------------------


def _slices(
    ctx: Lowering,
    mode: str,
    x: Tensor,
    d: int,
    index: Tensor,
    low: Extent,
    report: tuple[str, str],
    value: Callable[[Indices], Value],
) -> Tensor:
    """value(position) combined into x, whose slice index[k] along d takes positions k of it."""
    if not x.size or (x.dtype == torch.bool and mode != "set"):
        raise NotLowered("slices of a scalar")
    if not nonzero(x.numel):
        raise NotLowered("slices of nothing, perhaps, into which eager takes any position")
    in_range(ctx, index, low, x.size[d], report)

    def at(i: Idx, s: Idx) -> Value:
        return value((*i[:d], s[0], *i[d:]))

    def place(i: Idx, s: Idx) -> Indices:
        where = index.load(tuple(s[: len(index.size)]))
        return (*i[:d], ops.indirect(where, x.size[d]), *i[d:])

    wide = convert(ctx, x, COMPUTE_TYPES[x.dtype] if mode == "add" else x.dtype)
    free = [n for k, n in enumerate(x.size) if k != d]
    return convert(ctx, ctx.scatter(mode, wide, free, [index.numel], at, place), x.dtype)


@lower(aten.index_add.default)
def index_add(
    ctx: Lowering, x: Tensor, d: int, index: Tensor, source: Tensor, *, alpha: Number = 1
) -> Tensor:
    d, wide = views.dim_of(d, len(x.size)), COMPUTE_TYPES[x.dtype]

    def value(at: Indices) -> Value:
        v = ops.to_compute(source.load(at), wide)
        return v if alpha == 1 else ops.mul(v, ops.constant(alpha, wide))

    inside = len(x.size) < 2 or d not in (0, len(x.size) - 1)  # as eager has it
    report = OUT_OF_RANGE if inside else out_of_bounds("RuntimeError", d)
    _same_slices(x, d, index, source)
    return _slices(ctx, "add", x, d, index, 0, report, value)


@lower(aten.index_copy.default)
def index_copy(ctx: Lowering, x: Tensor, d: int, index: Tensor, source: Tensor) -> Tensor:
    d = views.dim_of(d, len(x.size))
    error, text = out_of_bounds("IndexError", d)
    _same_slices(x, d, index, source)
    return _slices(ctx, "set", x, d, index, 0, (error, f"index_copy_(): {text}"), source.load)


def _same_type(x: Tensor, source: Tensor) -> None:
    if x.dtype != source.dtype:
        raise NotLowered("types that eager refuses to mix")


def _same_slices(x: Tensor, d: int, index: Tensor, source: Tensor) -> None:
    _same_type(x, source)
    if not x.size or source.size != (*x.size[:d], index.numel, *x.size[d + 1 :]):
        raise NotLowered("a scalar in place of slices")


@lower(aten.index_fill.int_Scalar, aten.index_fill.int_Tensor)
def index_fill(ctx: Lowering, x: Tensor, d: int, index: Tensor, new: Tensor | Number) -> Tensor:
    d = views.dim_of(d, len(x.size))
    new = convert(ctx, new, x.dtype) if isinstance(new, Tensor) else rounded(new, x.dtype)

    def value(at: Indices) -> Value:
        return new.load(()) if isinstance(new, Tensor) else ops.constant(new, x.dtype)

    low = -x.size[d] if x.size else 0
    return _slices(ctx, "set", x, d, index, low, OUT_OF_RANGE, value)


# --- pooling -------------------------------------------------------------------------------------


@lower(aten.max_pool2d_with_indices_backward.default)
def max_pool2d_backward(
    ctx: Lowering,
    grad: Tensor,
    x: Tensor,
    kernel: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    indices: Tensor,
) -> Tensor:
    """Each window's gradient is added where its maximum stood."""
    if not nonzero(x.numel) or not nonzero(grad.numel):
        raise NotLowered("empty pooling")
    *planes, height, width = x.size
    shape = zip(pair(stride, pair(kernel)), pair(kernel), pair(dilation), strict=True)
    apart = all(step > gap * (taps - 1) for step, taps, gap in shape)
    wide = grad.dtype if apart else COMPUTE_TYPES[grad.dtype]
    if wide != grad.dtype and grad.device.type == "cpu":
        raise NotLowered("aten adds up in place, which is less exact and takes a fifth less time")

    def value(i: Idx, s: Idx) -> Value:
        return grad.load((*i, *s))

    def place(i: Idx, s: Idx) -> Indices:
        position = ops.to_dtype(indices.load((*i, *s)), torch.int64)
        flat = ops.indirect_checked(position, height * width)
        return (*i, flat // width, flat % width)

    base = zeros(ctx, x.size, wide, grad)
    mode = "set" if apart else "add"  # no two windows share an element
    result = ctx.scatter(mode, base, planes, grad.size[-2:], value, place)
    return convert(ctx, result, grad.dtype)
