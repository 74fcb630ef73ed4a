"""as_strided in the words of other views, where those say the same.

Autograd's rule for as_strided writes the gradient into a row of zeros and reads that row; most such
calls are a permutation and a new shape:

    as_strided(x of 2x3, [3, 2], [1, 3])          permute(x, [1, 0])
    as_strided(x of 12, [2, 3], [6, 1], 1)        view(x, [2, 6]), slice(1, 1, 4)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import prod
from typing import Any

import torch

from fxgraph.aot.fake import dense, holds
from fxgraph.aot.views import ViewCall

aten = torch.ops.aten


def as_views(
    base: torch.Tensor, size: Sequence[Any], stride: Sequence[Any], offset: Any
) -> list[ViewCall] | None:
    """The views that `as_strided(base, size, stride)` is, or None; `offset` from the first element.

    Strides of dimensions of size 1 may come out otherwise.
    """
    numbers = (*base.shape, *base.stride(), *size, *stride, offset)
    if not all(type(n) is int for n in numbers) or prod(size) == 0 or not dense(base):
        return None
    shown = [d for d, n in enumerate(size) if n != 1 and stride[d] != 0]
    outer_first = sorted(shown, key=lambda d: -stride[d])
    memory = [(size[d], stride[d]) for d in outer_first] or [(1, 1)]
    grid = _grid(memory, offset, base.numel())
    if grid is None:
        return None
    first, extent = grid
    dims = [outer_first.index(d) for d in shown] or [0]
    once = [n if d in shown else 1 for d, n in enumerate(size)]
    calls = [
        *_flattened(base),
        ViewCall(aten.slice.Tensor, (0, first * memory[0][1], extent), {}),
        *_cells(memory, offset - first * memory[0][1]),
        ViewCall(aten.permute.default, (dims,), {}),
        ViewCall(aten.view.default, (once,), {}),
        ViewCall(aten.expand.default, (list(size),), {}),
    ]
    return calls


def covers(base: torch.Tensor, size: Sequence[Any], stride: Sequence[Any], offset: Any) -> bool:
    """Whether as_strided gives elements of `base` alone; `offset` from the first element."""
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    return dense(base) and holds(offset >= 0) and holds(last < base.numel())


def _flattened(base: torch.Tensor) -> Iterator[ViewCall]:
    """The elements in the order of memory."""
    steps = base.stride()
    order = sorted(range(base.dim()), key=lambda d: (-steps[d], d))
    yield ViewCall(aten.permute.default, (order,), {})
    yield ViewCall(aten.view.default, ([base.numel()],), {})


def _grid(memory: list[tuple[int, int]], offset: int, numel: int) -> tuple[int, int] | None:
    """The first row of the outermost dimension and where its last one ends; None unless the
    dimensions lie inside of one another, in whole rows."""
    for (_, outer), (count, inner) in pairwise(memory):
        if outer % inner or count * inner > outer:
            return None
    count, step = memory[0]
    first = offset // step
    rest = offset % step
    for (_, outer), (inner_count, inner) in pairwise(memory):
        if rest // inner + inner_count > outer // inner:
            return None
        rest %= inner
    extent = (first + count) * step
    return (first, extent) if extent <= numel else None


def _cells(memory: list[tuple[int, int]], rest: int) -> Iterator[ViewCall]:
    """From rows of memory to the elements wanted of each."""
    steps = [step for _, step in memory]
    shape = [memory[0][0], *(a // b for a, b in pairwise(steps))]
    apart = [] if steps[-1] == 1 else [steps[-1]]
    yield ViewCall(aten.view.default, ([*shape, *apart],), {})
    for d, (count, step) in enumerate(memory[1:], 1):
        yield ViewCall(aten.slice.Tensor, (d, rest // step, rest // step + count), {})
        rest %= step
    if apart:
        yield ViewCall(aten.select.int, (len(memory), rest), {})
