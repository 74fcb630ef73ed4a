"""Views: a strided window of realised memory where possible, an index rewrite otherwise. Never a
copy."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from typing import Any

from fxgraph.sizes import (
    Extent,
    Undecided,
    ceil_div,
    contiguous_strides,
    exact,
    hint,
    is_symbolic,
    known_le,
    known_lt,
    largest,
    product,
    smallest,
)
from inductor.boxes import Box, Range, whole, within
from inductor.index import ZERO, Index, delinearize, linear
from inductor.ir import Indices, Tensor, Window
from inductor.lowering import assembly
from inductor.lowering.context import Lowering
from inductor.lowering.layouts import narrow
from inductor.lowering.registry import NotLowered, aten, lower


def rewrite(
    ctx: Lowering, x: Tensor, size: Sequence[Extent], index: Callable[[Indices], Indices]
) -> Tensor:
    """The lazy tensor whose element at idx is x's at index(idx)."""
    in_memory(ctx, x)
    result = ctx.generate(size, x.dtype, lambda idx: x.load(index(idx)), x, work=0)
    return result


def in_memory(ctx: Lowering, x: Tensor) -> Window | None:
    """x's window, if it has one. Joined parts are put in memory: views of them are not computed
    part by part.
    """
    return x.window if x.split is None else ctx.realize(x)


def restride(
    x: Tensor, size: Sequence[Extent], stride: Sequence[Extent], offset: Extent = 0
) -> Tensor | None:
    """A window into x's buffer; `offset` counts from x's own first element."""
    if x.window is None:
        return None
    window = Window(x.window.buffer, tuple(size), tuple(stride), x.window.offset + offset)
    return Tensor(tuple(size), x.dtype, x.device, window)


def dim_of(d: int, rank: int) -> int:
    return d % rank if rank else 0


@lower(aten.permute.default)
def permute(ctx: Lowering, x: Tensor, dims: Sequence[int]) -> Tensor:
    dims = [dim_of(d, len(x.size)) for d in dims]
    size = [x.size[d] for d in dims]
    turned = _turned(
        ctx, x, lambda t: permute(ctx, t, dims), lambda box: tuple(box[d] for d in dims)
    )
    if turned is not None:
        return turned
    window = in_memory(ctx, x)
    if window is not None:
        view = restride(x, size, [window.stride[d] for d in dims])
        assert view is not None
        return view

    def index(idx: Indices) -> Indices:
        source: list[Index] = [ZERO] * len(dims)
        for position, d in enumerate(dims):
            source[d] = idx[position]
        return tuple(source)

    return rewrite(ctx, x, size, index)


@lower(aten.transpose.int)
def transpose(ctx: Lowering, x: Tensor, a: int, b: int) -> Tensor:
    dims = list(range(len(x.size)))
    if dims:
        a, b = dim_of(a, len(dims)), dim_of(b, len(dims))
        dims[a], dims[b] = dims[b], dims[a]
    return permute(ctx, x, dims)


@lower(aten.t.default)
def t(ctx: Lowering, x: Tensor) -> Tensor:
    return permute(ctx, x, range(len(x.size))[::-1])


@lower(aten.expand.default)
def expand(ctx: Lowering, x: Tensor, size: Sequence[Extent], *, implicit: bool = False) -> Tensor:
    lead = len(size) - len(x.size)
    full = tuple(x.size[d - lead] if n == -1 else n for d, n in enumerate(size))
    if any(n not in (1, m) for n, m in zip(x.size, full[lead:], strict=True)):
        raise NotLowered("a size that may be 1 or not")
    window = in_memory(ctx, x)
    if window is not None:
        stride = [0] * lead + [
            s if n == m else 0 for s, n, m in zip(window.stride, x.size, full[lead:], strict=True)
        ]
        view = restride(x, full, stride)
        assert view is not None
        return view
    if x.split is None and hint(product(full)) >= 8 * hint(x.numel) and x.work >= 6:
        ctx.realize(x)
        return expand(ctx, x, size)
    return rewrite(ctx, x, full, lambda idx: narrow(idx, x.size))


@lower(
    aten.view.default, aten.reshape.default, aten._unsafe_view.default, aten._reshape_alias.default
)
def view(ctx: Lowering, x: Tensor, size: Sequence[Extent], stride: Any = None) -> Tensor:
    size = _infer(size, x.numel)
    if size == x.size:
        return x
    window = in_memory(ctx, x)
    if window is not None:
        strides = view_strides(x.size, window.stride, size)
        if strides is not None:
            result = restride(x, size, strides)
            assert result is not None
            return result
    return rewrite(
        ctx,
        x,
        size,
        lambda idx: delinearize(linear(idx, contiguous_strides(size)), x.size),
    )


def _infer(size: Sequence[Extent], numel: Extent) -> tuple[Extent, ...]:
    if -1 in size:
        rest = exact(numel, product(n for n in size if n != -1))
        if rest is None:
            raise NotLowered("a size that is not seen to divide")
        return tuple(rest if n == -1 else n for n in size)
    return tuple(size)


def view_strides(
    old: Sequence[Extent], stride: Sequence[Extent], new: Sequence[Extent]
) -> tuple[Extent, ...] | None:
    """Strides of a reshape without a copy, or None. Groups of old dimensions that lie contiguously
    in memory are matched with groups of new ones of the same extent."""
    if product(new) == 0:
        return contiguous_strides(new)
    groups: list[tuple[Extent, Extent]] = []  # (extent, innermost stride) of memory-contiguous runs
    for n, s in zip(old, stride, strict=True):
        if n == 1:
            continue
        if groups and groups[-1][1] == n * s:
            groups[-1] = (groups[-1][0] * n, s)
        else:
            groups.append((n, s))
    result: list[Extent] = []
    remaining = list(reversed(groups))
    extent, step = remaining.pop() if remaining else (1, 1)
    left = extent
    for n in new:
        if n == 1:
            result.append(left * step)
            continue
        if left == 1 and remaining:
            extent, step = remaining.pop()
            left = extent
        rest = exact(left, n)
        if rest is None:
            return None
        left = rest
        result.append(left * step)
    return tuple(result)


@lower(aten.squeeze)
def squeeze(ctx: Lowering, x: Tensor, dims: Any = None) -> Tensor:
    rank = len(x.size)
    chosen = range(rank) if dims is None else [dims] if isinstance(dims, int) else dims
    drop = {dim_of(d, rank) for d in chosen if rank and x.size[dim_of(d, rank)] == 1}
    keep = [d for d in range(rank) if d not in drop]
    if isinstance(x, assembly.Assembled):
        x = _narrowed(ctx, x, drop)
    turned = _turned(
        ctx, x, lambda t: squeeze(ctx, t, [*drop]), lambda box: tuple(box[d] for d in keep)
    )
    if turned is not None:
        return turned
    window = in_memory(ctx, x)
    if window is not None:
        result = restride(x, [x.size[d] for d in keep], [window.stride[d] for d in keep])
        assert result is not None
        return result

    def index(idx: Indices) -> Indices:
        source = [ZERO] * rank
        for i, d in zip(idx, keep, strict=True):
            source[d] = i
        return tuple(source)

    return rewrite(ctx, x, [x.size[d] for d in keep], index)


@lower(aten.unsqueeze.default)
def unsqueeze(ctx: Lowering, x: Tensor, d: int) -> Tensor:
    d = dim_of(d, len(x.size) + 1)
    size = (*x.size[:d], 1, *x.size[d:])
    turned = _turned(
        ctx, x, lambda t: unsqueeze(ctx, t, d), lambda box: (*box[:d], Range(0, 1), *box[d:])
    )
    if turned is not None:
        return turned
    window = in_memory(ctx, x)
    if window is not None:
        stride = window.stride
        step = stride[d] * x.size[d] if d < len(x.size) else 1
        result = restride(x, size, (*stride[:d], step, *stride[d:]))
        assert result is not None
        return result
    return rewrite(ctx, x, size, lambda idx: (*idx[:d], *idx[d + 1 :]))


@lower(aten.slice.Tensor)
def slice_(
    ctx: Lowering,
    x: Tensor,
    d: int = 0,
    start: Extent | None = None,
    end: Extent | None = None,
    step: int = 1,
) -> Tensor:
    d = dim_of(d, len(x.size))
    low, high = _range(start, end, x.size[d])
    ctx.define(ctx.val().shape[d], ceil_div(largest(high - low, 0), step))
    return _piece(ctx, x, d, low, ctx.shape()[d], step)


def _range(start: Extent | None, end: Extent | None, size: Extent) -> tuple[Extent, Extent]:
    """slice(start, end).indices(size)"""
    if not is_symbolic([n for n in (start, end, size) if n is not None]):
        low, high, _ = slice(start, end).indices(size)  # type: ignore[arg-type]
        return low, high
    return tuple(  # type: ignore[return-value]
        _clamped(default if n is None else n, size) for n, default in ((start, 0), (end, size))
    )


def _clamped(position: Extent, size: Extent) -> Extent:
    if isinstance(position, int) and position > 2**62:
        return size
    return smallest(_from_end(position, size), size)


def _from_end(position: Extent, size: Extent) -> Extent:
    """A position that, if negative, counts from the end; not less than 0."""
    if known_le(0, position):
        return position
    negative: Extent = 1 if known_lt(position, 0) else 0 - smallest(largest(position, -1), 0)
    return largest(position + size * negative, 0)


@lower(aten.select.int)
def select(ctx: Lowering, x: Tensor, d: int, position: Extent) -> Tensor:
    d = dim_of(d, len(x.size))
    position = position if position >= 0 else position + x.size[d]
    size = (*x.size[:d], *x.size[d + 1 :])
    found = _part(ctx, x, _along(x.size, d, Range(position, 1)))
    if found is not None:
        return squeeze(ctx, found, d)
    window = in_memory(ctx, x)
    if window is not None:
        stride = window.stride
        result = restride(x, size, (*stride[:d], *stride[d + 1 :]), position * stride[d])
        assert result is not None
        return result
    fixed = Index.of(position)
    return rewrite(ctx, x, size, lambda idx: (*idx[:d], fixed, *idx[d:]))


@lower(aten.split.Tensor)
def split(ctx: Lowering, x: Tensor, length: Extent, d: int = 0) -> tuple[Tensor, ...]:
    lengths = [ctx.shape(val)[dim_of(d, len(x.size))] for val in ctx.val()]
    return split_with_sizes(ctx, x, lengths, d)


@lower(aten.split_with_sizes.default)
def split_with_sizes(
    ctx: Lowering, x: Tensor, lengths: Sequence[Extent], d: int = 0
) -> tuple[Tensor, ...]:
    results = []
    start: Extent = 0
    for length in lengths:
        results.append(_piece(ctx, x, dim_of(d, len(x.size)), start, length))
        start = start + length
    return tuple(results)


def _piece(ctx: Lowering, x: Tensor, d: int, low: Extent, count: Extent, step: int = 1) -> Tensor:
    """`count` positions of x along a dimension, from `low` on."""
    if count == x.size[d]:
        return x
    if count != 0:
        found = _part(ctx, x, _along(x.size, d, Range(low, count, step)))
        if found is not None:
            return found
    size = (*x.size[:d], count, *x.size[d + 1 :])
    window = in_memory(ctx, x)
    if window is not None:
        stride = list(window.stride)
        offset = 0 if count == 0 else low * stride[d]
        stride[d] *= step
        result = restride(x, size, stride, offset)
        assert result is not None
        return result
    return rewrite(ctx, x, size, lambda idx: (*idx[:d], idx[d] * step + low, *idx[d + 1 :]))


@lower(aten.unbind.int)
def unbind(ctx: Lowering, x: Tensor, d: int = 0) -> tuple[Tensor, ...]:
    return tuple(select(ctx, x, d, i) for i in range(len(ctx.val())))


@lower(aten.diagonal.default)
def diagonal(ctx: Lowering, x: Tensor, offset: int = 0, a: int = 0, b: int = 1) -> Tensor:
    a, b = dim_of(a, len(x.size)), dim_of(b, len(x.size))
    rows, columns = max(0, -offset), max(0, offset)
    count = largest(0, smallest(x.size[a] - rows, x.size[b] - columns))
    kept = [d for d in range(len(x.size)) if d not in (a, b)]
    size = (*(x.size[d] for d in kept), count)

    def index(idx: Indices) -> Indices:
        source = [ZERO] * len(x.size)
        for i, d in zip(idx[:-1], kept, strict=True):
            source[d] = i
        source[a], source[b] = idx[-1] + rows, idx[-1] + columns
        return tuple(source)

    window = in_memory(ctx, x)
    if window is not None:
        stride = window.stride
        start = rows * stride[a] + columns * stride[b] if count else 0
        result = restride(x, size, (*(stride[d] for d in kept), stride[a] + stride[b]), start)
        assert result is not None
        return result
    return rewrite(ctx, x, size, index)


@lower(aten.unfold.default)
def unfold(ctx: Lowering, x: Tensor, d: int, length: Extent, step: Extent) -> Tensor:
    d = dim_of(d, len(x.size))
    if not x.size:
        raise NotLowered("unfold of a scalar")
    count = (x.size[d] - length) // step + 1
    size = (*x.size[:d], count, *x.size[d + 1 :], length)
    window = in_memory(ctx, x)
    if window is not None:
        stride = list(window.stride)
        inner = stride[d]
        stride[d] = inner * step
        result = restride(x, size, (*stride, inner))
        assert result is not None
        return result
    return rewrite(ctx, x, size, lambda idx: (*idx[:d], idx[d] * step + idx[-1], *idx[d + 1 : -1]))


@lower(aten.flip.default)
def flip(ctx: Lowering, x: Tensor, dims: Sequence[int]) -> Tensor:
    chosen = {dim_of(d, len(x.size)) for d in dims}
    return rewrite(
        ctx,
        x,
        x.size,
        lambda idx: tuple(
            (i * -1) + (x.size[d] - 1) if d in chosen else i for d, i in enumerate(idx)
        ),
    )


@lower(aten.roll.default)
def roll(ctx: Lowering, x: Tensor, shifts: Sequence[Extent], dims: Sequence[int] = ()) -> Tensor:
    if not dims:
        flat = view(ctx, x, (x.numel,))
        return view(ctx, roll(ctx, flat, shifts, (0,)), x.size)
    moves: dict[int, Extent] = dict.fromkeys(range(len(x.size)), 0)
    for shift, d in zip(shifts, dims, strict=True):
        moves[dim_of(d, len(x.size))] += shift
    if x.numel == 0:
        return x
    return rewrite(
        ctx,
        x,
        x.size,
        lambda idx: tuple(
            (i + (-moves[d]) % x.size[d]) % x.size[d] if moves[d] % x.size[d] != 0 else i
            for d, i in enumerate(idx)
        ),
    )


@lower(aten.repeat.default)
def repeat(ctx: Lowering, x: Tensor, repeats: Sequence[Extent]) -> Tensor:
    lead = len(repeats) - len(x.size)
    base: tuple[Extent, ...] = (1,) * lead + x.size
    size = tuple(n * r for n, r in zip(base, repeats, strict=True))
    return rewrite(
        ctx,
        x,
        size,
        lambda idx: tuple(ZERO if n == 1 else i % n for i, n in zip(idx, base, strict=True))[lead:],
    )


# --- joining -------------------------------------------------------------------------------------


@lower(aten.cat.default)
def cat(ctx: Lowering, tensors: Sequence[Tensor], d: int = 0) -> Tensor:
    """Lazy, with its parts remembered: whatever elementwise operators follow are computed part by
    part, each reading one input and writing straight into its slice."""
    out = ctx.val()
    parts = [t for t in tensors if t.size != (0,)] or list(tensors[:1])
    from inductor.lowering.pointwise import convert

    parts = [convert(ctx, t, out.dtype) for t in parts]
    if len(parts) == 1:
        return ctx.pointwise(lambda v: v, parts, out.dtype, work=0)
    for part in parts:
        if part.split is not None and not isinstance(part, assembly.Assembled):
            ctx.realize(part)
    return assembly.joined(ctx.shape(), parts, dim_of(d, len(out.shape)))


@lower(aten.stack.default)
def stack(ctx: Lowering, tensors: Sequence[Tensor], d: int = 0) -> Tensor:
    d = dim_of(d, len(tensors[0].size) + 1)
    return cat(ctx, [unsqueeze(ctx, x, d) for x in tensors], d)


def _overwritten(ctx: Lowering, x: Tensor, place: Box, source: Tensor) -> Tensor:
    """x with the elements of `place` taken from `source`."""
    from inductor.lowering.pointwise import convert

    if tuple(source.size) != tuple(r.count for r in place):
        raise NotLowered("slices of another size than their place, perhaps")
    inside = [known_le(0, r.low) and known_le(r.end, n) for r, n in zip(place, x.size, strict=True)]
    if not all(inside) and not is_symbolic([*x.size, *(r.low for r in place)]):
        raise NotLowered("a place outside of the tensor")
    source = convert(ctx, source, x.dtype)
    if x is ctx.overwritten and all(inside):
        into = x
        for d, r in enumerate(place):
            into = _piece(ctx, into, d, r.low, r.count, r.step)
        assert into.window is not None
        ctx.overwrite(source, into.window)
        return x
    for t in (x, source):
        if t.split is not None and not isinstance(t, assembly.Assembled):
            ctx.realize(t)
    if all(inside):
        with contextlib.suppress(Undecided, NotLowered):
            return assembly.overwritten(x, place, source)
    ctx.realize(x)
    ctx.realize(source)
    return assembly.overlaid(x, place, source)


@lower(aten.slice_scatter.default)
def slice_scatter(
    ctx: Lowering,
    x: Tensor,
    source: Tensor,
    d: int = 0,
    start: Extent | None = None,
    end: Extent | None = None,
    step: int = 1,
) -> Tensor:
    if not x.size or step < 1:
        raise NotLowered("no slice")
    d = dim_of(d, len(x.size))
    low, high = _range(start, end, x.size[d])
    if known_le(high, low):
        return x
    count = ceil_div(high - low, step)
    return _overwritten(ctx, x, _along(x.size, d, Range(low, count, step)), source)


@lower(aten.select_scatter.default)
def select_scatter(ctx: Lowering, x: Tensor, source: Tensor, d: int, position: Extent) -> Tensor:
    if not -len(x.size) <= d < len(x.size):
        raise NotLowered("no such dimension")
    d = dim_of(d, len(x.size))
    position = position if position >= 0 else position + x.size[d]
    place = _along(x.size, d, Range(position, 1))
    return _overwritten(ctx, x, place, unsqueeze(ctx, source, d))


def _along(size: Sequence[Extent], d: int, positions: Range) -> Box:
    """All elements at these positions along a dimension."""
    around = whole(size)
    return (*around[:d], positions, *around[d + 1 :])


def _part(ctx: Lowering, x: Tensor, box: Box) -> Tensor | None:
    """A box of a tensor that is assembled of pieces, if these tell it without being in memory."""
    if not isinstance(x, assembly.Assembled) or x.window is not None:
        return None
    try:
        found = assembly.part(x, box)
    except Undecided:
        return None
    if len(found.pieces) > 1:
        return found
    piece = found.pieces[0]
    result = piece.source
    for dim, r in enumerate(within(piece.box, piece.place)):
        result = _piece(ctx, result, dim, r.low, r.count, r.step)
    return result


def _narrowed(ctx: Lowering, x: assembly.Assembled, dims: Collection[int]) -> Tensor:
    """x with sources of the same extent as their pieces along some dimensions."""
    if x.window is not None:
        return x
    pieces = []
    for piece in x.pieces:
        source, place = piece.source, list(piece.place)
        for d in dims:
            r = within(piece.box, piece.place)[d]
            source, place[d] = _piece(ctx, source, d, r.low, r.count, r.step), piece.box[d]
        pieces.append(assembly.Piece(piece.box, tuple(place), source))
    return assembly.assembled(x.size, pieces)


def _turned(
    ctx: Lowering, x: Tensor, view: Callable[[Tensor], Tensor], box: Callable[[Box], Box]
) -> Tensor | None:
    """The view of a tensor that is assembled of pieces, by way of views of these, or None."""
    if not isinstance(x, assembly.Assembled) or x.window is not None:
        return None
    return assembly.turned(x, [view(piece.source) for piece in x.pieces], box)


__all__ = ["rewrite", "view", "view_strides"]
