"""Checks of data at run time, which raise eager's exceptions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from fxgraph.sizes import Extent, Size, nonzero
from inductor.ir import AtenCall, Check, Tensor, Value
from inductor.lowering.context import Lowering
from inductor.ops import ops
from inductor.runtime.plan import PASSED


def require(
    ctx: Lowering, x: Tensor, fine: Callable[[Value], Value], error: str, message: str
) -> None:
    """Raise `error` (IndexError or RuntimeError) unless `fine(element as int64)` holds everywhere.

    "{}" in the message stands for one of the elements for which it does not.
    """

    def wrong(v: Value) -> Value:
        found = ops.maximum(v, ops.constant(PASSED + 1, torch.int64))  # PASSED itself is no report
        return ops.where(fine(v), ops.constant(PASSED, torch.int64), found)

    _require(ctx, x, wrong, lambda v: v, error, message, ())


def require_all(
    ctx: Lowering, x: Tensor, fine: Callable[[Value], Value], message: str, compute: torch.dtype
) -> None:
    """Raise RuntimeError unless `fine(element as compute)` holds everywhere."""

    def rank(v: Value) -> Value:
        good, bad = (ops.constant(n, torch.int64) for n in (PASSED, PASSED + 1))
        return ops.where(fine(v), good, bad)

    _require(ctx, x, rank, lambda v: v, "RuntimeError", message, (), compute)


def require_inside(
    ctx: Lowering, x: Tensor, low: Extent, high: Extent, error: str, message: str, *sizes: Extent
) -> None:
    """Raise `error` unless low <= element < high for all of them. In the message, "{}" stands for
    one that is not, "{0}", "{1}", ... for `sizes`.

    An element is inside if its distance from `low` is, as a number without sign. Of these distances
    the greatest is found; with the sign bit flipped they have the order of signed integers.
    """

    def distance(v: Value) -> Value:
        if low != 0:
            v = ops.sub(v, ops.constant(low, torch.int64))
        return ops.bit_xor(v, _sign_bit())

    def worst(v: Value) -> Value:
        v = ops.bit_xor(v, _sign_bit())
        if low != 0:
            v = ops.add(v, ops.constant(low, torch.int64))
        above = ops.ge(v, ops.constant(low, torch.int64))
        fine = ops.logical_and(above, ops.lt(v, ops.constant(high, torch.int64)))
        wrong = ops.maximum(v, ops.constant(PASSED + 1, torch.int64))
        return ops.where(fine, ops.constant(PASSED, torch.int64), wrong)

    _require(ctx, x, distance, worst, error, message, sizes)


def _sign_bit() -> Value:
    return ops.constant(-(2**63), torch.int64)


def _of_some(verdict: Callable[[Value], Value], count: Extent) -> Callable[[Value], Value]:
    """The verdict, where there are elements: none of none is wrong."""

    def fn(v: Value) -> Value:
        some = ops.gt(ops.constant(count, torch.int64), ops.constant(0, torch.int64))
        return ops.where(some, verdict(v), ops.constant(PASSED, torch.int64))

    return fn


def _require(
    ctx: Lowering,
    x: Tensor,
    rank: Callable[[Value], Value],
    verdict: Callable[[Value], Value],
    error: str,
    message: str,
    sizes: tuple[Extent, ...],
    compute: torch.dtype = torch.int64,
) -> None:
    """Raise unless `verdict` of the greatest `rank` of an element is PASSED."""
    from inductor.lowering.reduction import reduce, settled

    if x.numel == 0:
        return
    settled(ctx, x)
    if x.window is not None:  # an expanded element is checked once
        once = tuple(1 if s == 0 else n for n, s in zip(x.size, x.window.stride, strict=True))
        x = Tensor(once, x.dtype, x.device, replace(x.window, size=once))
    found = ctx.pointwise(rank, [x], torch.int64, compute)
    if x.numel != 1:
        found = reduce(ctx, "max", found, None, torch.int64)
    if not nonzero(x.numel):
        verdict = _of_some(verdict, x.numel)
    found = ctx.pointwise(verdict, [found], torch.int64)
    name = f"check{ctx.program.new_number()}"
    if x.device.type == "cpu":
        args = [ctx.realize(found)]
        for number, size in enumerate(sizes):
            if not isinstance(size, Size):
                message = message.replace(f"{{{number}}}", str(size))
        step: AtenCall = Check(
            name, None, args, {}, [], True, error=error, message=message, sizes=sizes
        )
    else:  # the host does not see the data, so that an exception of its own type cannot be had
        held = ctx.pointwise(
            lambda v: ops.eq(v, ops.constant(PASSED, torch.int64)), [found], torch.bool, torch.int64
        )
        target = torch.ops.aten._assert_async.msg
        for number, size in enumerate(sizes):
            message = message.replace(f"{{{number}}}", str(size))
        step = AtenCall(name, target, [ctx.realize(held), message], {}, [], True)
    ctx.program.steps.append(step)
