"""im2col and col2im as views, where torch's rules make tensors of positions and gather.

before                                      after
    y = aten.im2col(x, [3, 3], ...)             p = aten.constant_pad_nd(x, ...)
                                                v = p.unfold(2, 3, 1).unfold(3, 3, 1)
                                                y = v.permute(0, 1, 4, 5, 2, 3).clone().view(...)
    y = aten.col2im(x, size, [3, 3], ...)       y = pad(x[:, :, 0, 0]) + pad(x[:, :, 0, 1]) + ...

Windows that lie side by side are only permuted by col2im. Those that overlap by parts, large ones,
and images of varying sizes stay with torch's rules, which also say what is wrong with arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

MOST_WINDOWS = 25  # that overlap at an element, each a load of its own
Pairs = Sequence[Sequence[int]]


def im2col(rule: Callable[..., Any]) -> Callable[..., Any]:
    """rule: torch's."""

    def decomposed(x: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Any:
        given = (kernel, dilation, padding, stride)
        if min(padding) < 0:
            return NotImplemented  # torch's rule crops
        if x.dim() not in (3, 4) or (counts := _windows(x.shape[-2:], given)) is None:
            return rule(x, *given)
        images = x if x.dim() == 4 else x.unsqueeze(0)
        if any(padding):
            edges = [padding[1], padding[1], padding[0], padding[0]]
            images = torch.ops.aten.constant_pad_nd(images, edges)
        for d in (0, 1):
            images = images.unfold(d + 2, dilation[d] * (kernel[d] - 1) + 1, stride[d])
            images = images[..., :: dilation[d]] if dilation[d] > 1 else images
        made = images.permute(0, 1, 4, 5, 2, 3).contiguous()
        channels = x.shape[-3] * math.prod(kernel)
        return made.view(*x.shape[:-3], channels, math.prod(counts))

    return decomposed


def col2im(rule: Callable[..., Any]) -> Callable[..., Any]:
    """rule: torch's."""

    def decomposed(x: Any, size: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Any:
        given = (kernel, dilation, padding, stride)
        if min(padding) < 0:
            return NotImplemented
        counts = _windows(size, given) if x.dim() in (2, 3) else None
        fold = _fold_of(given)
        fits = counts is not None and x.shape[-1] == math.prod(counts)
        if counts is None or fold is None or not fits or x.shape[-2] % math.prod(kernel) != 0:
            return _dense(rule(x, size, *given))
        batch = x.shape[0] if x.dim() == 3 else 1
        windows = x.reshape(batch, x.shape[-2] // math.prod(kernel), *kernel, *counts)
        made = fold(windows, size, dilation, padding)
        return made if x.dim() == 3 else made.squeeze(0)

    return decomposed


def _dense(x: torch.Tensor) -> torch.Tensor:
    """The tensor with the operator's strides: torch's rule cuts an edge off a larger one."""
    empty = any(type(n) is int and n == 0 for n in x.shape)
    return x.new_empty(x.shape) if empty else x.contiguous()


def _windows(size: Sequence[Any], given: Pairs) -> tuple[int, ...] | None:
    """How many windows an image has along its sides; None where a rule of torch's is to tell."""
    kernel, dilation, padding, stride = given
    if any(len(pair) != 2 for pair in given) or any(type(n) is not int for n in size):
        return None
    if min(*kernel, *dilation, *stride) < 1:
        return None
    rest = [n + 2 * p - d * (k - 1) - 1 for n, p, d, k in zip(size, padding, dilation, kernel)]
    if min(rest) < 0:
        return None
    return tuple(n // s + 1 for n, s in zip(rest, stride))


def _fold_of(given: Pairs) -> Callable[..., Any] | None:
    kernel, dilation, padding, stride = (tuple(pair) for pair in given)
    if stride == kernel and dilation == (1, 1) and not any(padding):
        return _side_by_side
    if stride == (1, 1) and math.prod(kernel) <= MOST_WINDOWS:
        return _overlapping
    return None


def _side_by_side(windows: Any, size: Any, dilation: Any, padding: Any) -> Any:
    batch, channels, *kernel, rows, columns = windows.shape
    covered = [rows * kernel[0], columns * kernel[1]]
    made = windows.permute(0, 1, 4, 2, 5, 3).reshape(batch, channels, *covered)
    rest = [size[1] - covered[1], size[0] - covered[0]]
    return torch.ops.aten.constant_pad_nd(made, [0, rest[0], 0, rest[1]]) if any(rest) else made


def _overlapping(windows: Any, size: Any, dilation: Any, padding: Any) -> Any:
    """Each element of the image, the sum of those of the windows that hold it."""
    total = None
    *_, height, width, rows, columns = windows.shape
    for ky in range(height):
        for kx in range(width):
            top, left = ky * dilation[0] - padding[0], kx * dilation[1] - padding[1]
            edges = [left, size[1] - columns - left, top, size[0] - rows - top]
            moved = torch.ops.aten.constant_pad_nd(windows[:, :, ky, kx], edges)
            total = moved if total is None else total + moved
    return total
