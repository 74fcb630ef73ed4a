"""Views as short lists of steps that csrc/view_steps.h takes on real tensors, with torch's own
operators: what autograd knows of such a view is what it knows of eager's.

before                                               after
    view = aten.view.default(x, [2, 3])                  [(View, (2, 3)), (Permute, (1, 0))]
    permute = aten.permute.default(view, [1, 0])
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.utils._mode_utils import no_dispatch

from fxgraph.aot.views import ViewCall
from fxgraph.symbolic_values import is_symbolic

aten = torch.ops.aten
_END = 2**63 - 1

Step = tuple[int, tuple[int, ...]]


class Kind(enum.IntEnum):
    """Numbered as in csrc/view_steps.h. A reshape copies where no view has the shape."""

    VIEW = 0
    RESHAPE = 1
    EXPAND = 2
    PERMUTE = 3
    SLICE = 4
    SELECT = 5
    SQUEEZE = 6
    UNSQUEEZE = 7


def _slice(dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> tuple[Any, ...]:
    return dim, 0 if start is None else start, _END if end is None else end, step


_STEPS: dict[Any, tuple[Kind, Callable[..., Iterable[Any]]]] = {
    aten.view.default: (Kind.VIEW, lambda size: size),
    aten._unsafe_view.default: (Kind.VIEW, lambda size: size),
    aten.expand.default: (Kind.EXPAND, lambda size, implicit=False: size),
    aten.permute.default: (Kind.PERMUTE, lambda dims: dims),
    aten.slice.Tensor: (Kind.SLICE, _slice),
    aten.select.int: (Kind.SELECT, lambda dim, index: (dim, index)),
    aten.squeeze.dim: (Kind.SQUEEZE, lambda dim: (dim,)),
    aten.squeeze.dims: (Kind.SQUEEZE, lambda dims: dims),
    aten.unsqueeze.default: (Kind.UNSQUEEZE, lambda dim: (dim,)),
}


def steps_of(calls: Iterable[ViewCall], *, copying: bool = False) -> list[Step] | None:
    """The steps of these calls, one after the other; None if one has another operator, or numbers
    that vary.

    copying: whether the tensor may have another layout than in the trace, so that a view of its
        shape may have to be a copy.
    """
    steps: list[Step] = []
    for call in calls:
        if call.op not in _STEPS:
            return None
        kind, numbers_of = _STEPS[call.op]
        numbers = tuple(numbers_of(*call.args, **call.kwargs))
        if any(type(number) is not int for number in numbers):
            return None
        steps.append((Kind.RESHAPE if copying and kind is Kind.VIEW else kind, numbers))
    return steps


_TAKE: dict[int, Callable[..., torch.Tensor]] = {
    Kind.VIEW: lambda x, *size: x.view(size),
    Kind.RESHAPE: lambda x, *size: x.reshape(size),
    Kind.EXPAND: lambda x, *size: x.expand(size),
    Kind.PERMUTE: lambda x, *dims: x.permute(dims),
    Kind.SLICE: aten.slice.Tensor,
    Kind.SELECT: aten.select.int,
    Kind.SQUEEZE: lambda x, *dims: x.squeeze(dims),
    Kind.UNSQUEEZE: aten.unsqueeze.default,
}


def lead_to(steps: Sequence[Step], base: torch.Tensor, view: Any) -> bool:
    """Whether the steps make the view with the size, stride and storage_offset of `view`, of a
    tensor with the layout of `base`.
    """
    numbers = (*base.shape, *base.stride(), *view.size, *view.stride, view.storage_offset)
    if any(map(is_symbolic, numbers)):
        return False
    with no_dispatch():
        tensor = torch.empty_strided(base.shape, base.stride(), device="meta")
        for kind, numbers in steps:
            tensor = _TAKE[kind](tensor, *numbers)
    found = tuple(tensor.shape), tensor.stride(), tensor.storage_offset()
    return found == (tuple(view.size), tuple(view.stride), view.storage_offset)
