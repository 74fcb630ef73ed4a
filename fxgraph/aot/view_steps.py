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

from fxgraph.aot.views import ViewCall

aten = torch.ops.aten
_END = 2**63 - 1

Step = tuple[int, tuple[int, ...]]
Geometry = tuple[Sequence[int], Sequence[int], int]  # size, stride, offset


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


def lead_to(calls: Sequence[ViewCall], base: Geometry, view: Geometry) -> bool:
    """Whether the calls make a view with the sizes, strides and offset of `view` of a tensor with
    those of `base`.
    """
    size, stride, offset = base
    tensor = torch.empty(0, device="meta").as_strided(size, stride, offset)
    for call in calls:
        tensor = call.op(tensor, *call.args, **call.kwargs)
    found = tuple(tensor.shape), tensor.stride(), tensor.storage_offset()
    return found == (tuple(view[0]), tuple(view[1]), view[2])
