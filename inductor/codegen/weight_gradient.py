"""C++ for the gradient of a convolution's weight: a call of a function of training.cpp.

The range counts blocks of columns, of each block of channels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from fxgraph.sizes import Extent, hint
from inductor import costs
from inductor.ir import WeightGradient

CHANNELS, COLUMNS = 64, 64  # of a unit, at most (training.h)
BLOCKS = (64, 32, 16)


def block(step: WeightGradient) -> int:
    """Columns of a unit: as many as leave units to all threads, since each transforms the images
    anew.
    """
    threads = torch.get_num_threads()
    columns, channels = map(hint, step.target.size[:2])
    for width in BLOCKS:
        found = -(-columns // width) * -(-channels // CHANNELS)
        if found >= costs.UNITS * threads or (found >= threads and found % threads == 0):
            break
    return min(width, columns)


def units(step: WeightGradient) -> Extent:
    columns, channels = map(hint, step.target.size[:2])
    return -(-columns // block(step)) * -(-channels // CHANNELS)


def grain(step: WeightGradient) -> int:
    images, rows, across, _ = map(hint, step.gradient.size)
    places = 4 if step.winograd else step.window[0] * step.window[1]
    work = places * images * rows * across * block(step) * min(CHANNELS, hint(step.target.size[1]))
    return max(1, costs.GRAIN_WORK // max(1, work // costs.MULTIPLICATIONS))


def label(step: WeightGradient) -> str:
    images, height, width, channels = map(hint, step.x.size)
    kind = "winograd gradient" if step.winograd else "gradient"
    return f"{kind} {images}x{channels}x{height}x{width} -> {hint(step.target.size[0])}"


def numbers(step: WeightGradient) -> dict[str, list[Extent]]:
    _, rows, across, columns = step.gradient.size
    windows = [] if step.winograd else [*step.window, *step.stride]
    return {
        "offsets": [step.x.offset, step.gradient.offset],
        "sizes": [*step.x.size, columns, rows, across, *step.padding, *windows, block(step)],
    }


def body(
    step: WeightGradient, slot: Callable[[str], int], number: Mapping[str, Sequence[str]]
) -> list[str]:
    fields = [
        f"(const float*)P[{slot(window.buffer.name)}] + {offset}"
        for window, offset in zip(step.operands, number["offsets"], strict=True)
    ]
    fields += [f"(float*)P[{slot(step.target.name)}]", *number["sizes"]]
    kind = "WinogradGradient" if step.winograd else "WindowGradient"
    return [
        f"  const {kind} a = {{{', '.join(fields)}}};",
        "  train(a, begin, end);",
    ]
