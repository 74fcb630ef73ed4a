"""Random numbers: drawn as ATen draws them, from the same generator, in less time."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from inductor.ir import Tensor
from inductor.lowering.context import Lowering
from inductor.lowering.registry import NotLowered, aten, lower

_DTYPES = frozenset([torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.bool])
_SAMPLE = 1000


@lower(aten.bernoulli.p)
def bernoulli(ctx: Lowering, x: Tensor, p: Any = 0.5, *, generator: Any = None) -> Tensor:
    """Zeros and ones, of a dropout most often."""
    val = ctx.val()
    known = isinstance(p, float) and 0 <= p <= 1 and all(isinstance(n, int) for n in val.shape)
    if not known or generator is not None or val.device.type != "cpu" or val.dtype not in _DTYPES:
        raise NotLowered("bernoulli")
    if not val.is_contiguous() or not _draws_as_aten():
        raise NotLowered("bernoulli")
    target = torch.ops.framegraph.bernoulli.default
    return ctx.aten(target, [list(val.shape), p, val.dtype], {}, ordered=True)


@functools.cache
def _draws_as_aten() -> bool:
    """Whether this torch draws from its Mersenne Twister: on some processors MKL draws."""
    from inductor.runtime import _plan  # noqa: F401  (has the operator)

    with _disable_current_modes(), torch.no_grad():
        ours, theirs = (torch.Generator().manual_seed(0) for _ in range(2))
        size, dtype = [_SAMPLE], torch.float32
        expected = torch.empty(size, dtype=dtype, device="cpu").bernoulli_(0.5, generator=theirs)
        found = torch.ops.framegraph.bernoulli(size, 0.5, dtype, generator=ours)
        return torch.equal(found, expected) and torch.equal(ours.get_state(), theirs.get_state())
