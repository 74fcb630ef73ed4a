"""Elements that a mask selects: found once for each mask, read and written by loops over them.

x[mask] * 2                    n = aten.nonzero(mask): (u0, 2); out[i] = x[n[i, 0], n[i, 1]] * 2
x[mask] = 0                    out[i, j] = where(mask[i, j], 0, x[i, j])
x[mask] = x[mask] * 2          out = x; out[n[i, 0], n[i, 1]] = x[n[i, 0], n[i, 1]] * 2
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from fxgraph.sizes import Extent, symbols
from inductor.index import ZERO, Index
from inductor.ir import AtenCall, Indices, Tensor, Value
from inductor.lowering.context import Lowering
from inductor.lowering.layouts import narrow
from inductor.lowering.pointwise import convert
from inductor.lowering.registry import NotLowered, aten, lower
from inductor.ops import COMPUTE_TYPES, ops


def mask_of(indices: Sequence[Tensor | None]) -> tuple[int, Tensor] | None:
    """The dimension at which a single mask indexes, and the mask; None: there are only
    positions."""
    given = [(d, t) for d, t in enumerate(indices) if t is not None]
    if all(t.dtype not in (torch.bool, torch.uint8) for _, t in given):
        return None
    if len(given) > 1 or given[0][1].dtype != torch.bool:
        raise NotLowered("masks beside other indices")
    return given[0]


def selected(ctx: Lowering, x: Tensor, d: int, mask: Tensor, node: Any, count: Any) -> Tensor:
    """x[..., mask, ...], the mask over dimensions from d on; `node` is the mask's, `count` how many
    elements are selected (a torch.SymInt).
    """
    last = _fits(x, d, mask)
    places = _places(ctx, mask, node, count)
    size = (*x.size[:d], places.size[0], *x.size[last:])

    def inner(idx: Indices) -> Value:
        return x.load(_at(places, x, d, idx[:d], idx[d], idx[d + 1 :]))

    if x.window is None and x.work > 1:
        ctx.realize(x)
    return ctx.generate(size, x.dtype, inner, x, places)


def put(
    ctx: Lowering, x: Tensor, d: int, mask: Tensor, node: Any, values: Tensor, accumulate: bool
) -> Tensor:
    """x with x[..., mask, ...] = values, or += with `accumulate`."""
    last = _fits(x, d, mask)
    if accumulate and x.dtype == torch.bool:
        raise NotLowered("a sum of bools")
    after = len(x.size) - last
    if len(values.size) <= after or values.size[-after - 1] == 1:
        return _chosen(ctx, x, d, last, mask, values, accumulate)
    count = node.meta.get("count")
    if count is None or not ctx.bound.issuperset(s.name for s in symbols(ctx.sizes.of(count))):
        raise NotLowered("a number of elements that only the operator finds")
    if values.size[-after - 1] != ctx.sizes.of(count):
        raise NotLowered("another number of values, perhaps")
    places = _places(ctx, mask, node, count)
    free = [*x.size[:d], places.size[0], *x.size[last:]]

    def value(i: list[Index], _: list[Index]) -> Value:
        return values.load(narrow(tuple(i), values.size))

    def place(i: list[Index], _: list[Index]) -> Indices:
        return _at(places, x, d, tuple(i[:d]), i[d], tuple(i[d + 1 :]))

    wide = convert(ctx, x, COMPUTE_TYPES[x.dtype] if accumulate else x.dtype)
    mode = "add" if accumulate else "set"
    return convert(ctx, ctx.scatter(mode, wide, free, (), value, place), x.dtype)


@lower(aten.masked_select.default)
def masked_select(ctx: Lowering, x: Tensor, mask: Tensor) -> Tensor:
    if not mask.size:
        raise NotLowered("a mask that is a scalar")
    if mask.dtype is not torch.bool:
        raise NotLowered("a mask of numbers, which aten refuses")
    return selected(ctx, x, 0, mask, ctx.node.args[1], ctx.val().shape[0])


def _fits(x: Tensor, d: int, mask: Tensor) -> int:
    """The dimension after those that the mask covers."""
    last = d + len(mask.size)
    if not mask.size or x.size[d:last] != mask.size:
        raise NotLowered("a mask of a size that may be another one")
    return last


def _places(ctx: Lowering, mask: Tensor, node: Any, count: Any) -> Tensor:
    """Where the mask is True: a row for each, in order. Its call gives `count` its value."""
    number = ctx.sizes.of(count)
    step: AtenCall | None = ctx.found.get(node)
    if step is None:
        size: tuple[Extent, ...] = (number, len(mask.size))
        like = Tensor(size, torch.int64, mask.device)
        buffer = ctx.new_buffer(size, (1, number), like, "aten")
        target = aten.nonzero.default
        name = f"aten{ctx.program.new_number()}"
        step = AtenCall(name, target, [ctx.realize(mask)], {}, [buffer])
        ctx.program.steps.append(step)
        ctx.found[node] = step
        ctx.note_fallback(target)
    step.binds += tuple(ctx.bind(count, 0, 0))
    ctx.require_bound(number)
    buffer = step.outputs[0]  # type: ignore[assignment]
    if buffer.size[0] != number:
        raise NotLowered("a number of elements that has two names")
    return Tensor.of(buffer)


def _at(
    places: Tensor, x: Tensor, d: int, before: Indices, row: Index, after: Indices
) -> tuple[Index, ...]:
    rank = len(x.size) - len(before) - len(after)
    found = [places.load((row, Index.of(k))) for k in range(rank)]
    inside = [ops.indirect_checked(v, x.size[d + k]) for k, v in enumerate(found)]
    return (*before, *inside, *after)


def _chosen(
    ctx: Lowering, x: Tensor, d: int, last: int, mask: Tensor, values: Tensor, accumulate: bool
) -> Tensor:
    """Values that are the same for all that is selected: a choice for each element."""
    if accumulate and COMPUTE_TYPES[x.dtype] != x.dtype:
        raise NotLowered("sums that are rounded")
    values = convert(ctx, values, x.dtype)

    def inner(idx: Indices) -> Value:
        old = x.load(idx)
        new = values.load(narrow((*idx[:d], ZERO, *idx[last:]), values.size))
        return ops.where(mask.load(idx[d:last]), ops.add(old, new) if accumulate else new, old)

    return ctx.generate(x.size, x.dtype, inner, x, mask, values, work=2)
