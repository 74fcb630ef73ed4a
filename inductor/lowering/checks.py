"""Checks of data at run time, which raise what eager raises."""

from __future__ import annotations

from collections.abc import Callable

import torch

from inductor.ir import AtenCall, Check, Tensor, Value
from inductor.lowering.context import Lowering
from inductor.ops import ops
from inductor.runtime.plan import PASSED
from inductor.sizes import Extent, Size


def require(
    ctx: Lowering,
    x: Tensor,
    fine: Callable[[Value], Value],
    error: str,
    message: str,
    *sizes: Extent,
) -> None:
    """Raise `error` (IndexError or RuntimeError) unless `fine(element as int64)` holds everywhere.

    "{}" in the message stands for one of the elements for which it does not, "{0}", "{1}", ... for
    `sizes`.
    """
    from inductor.lowering.reduction import reduce, settled

    if x.numel == 0:
        return
    settled(ctx, x)

    def wrong(v: Value) -> Value:
        return ops.where(fine(v), ops.constant(PASSED, torch.int64), v)

    found = ctx.pointwise(wrong, [x], torch.int64)
    if x.numel != 1:
        found = reduce(ctx, "max", found, None, torch.int64)
    name = f"check{len(ctx.program.steps)}"
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
