"""C++ for the gradient of a weight of 3x3 windows: a call of the function of winograd_training.cpp.

The range counts blocks of columns, of each block of channels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from inductor.codegen.panels import GRAIN_WORK, MULTIPLICATIONS, UNITS
from inductor.ir import WinogradGradient
from inductor.sizes import Extent, hint

CHANNELS, COLUMNS = 64, 64  # of a unit, at most (winograd_training.h)
BLOCKS = (64, 32, 16)


def block(step: WinogradGradient) -> int:
    """Columns of a unit: as many as leave units to all threads, since each transforms the images
    anew.
    """
    threads = torch.get_num_threads()
    columns, channels = map(hint, step.target.size[:2])
    for width in BLOCKS:
        found = -(-columns // width) * -(-channels // CHANNELS)
        if found >= UNITS * threads or (found >= threads and found % threads == 0):
            break
    return min(width, columns)


def units(step: WinogradGradient) -> Extent:
    columns, channels = map(hint, step.target.size[:2])
    return -(-columns // block(step)) * -(-channels // CHANNELS)


def grain(step: WinogradGradient) -> int:
    images, rows, across, _ = map(hint, step.gradient.size)
    work = 4 * images * rows * across * block(step) * min(CHANNELS, hint(step.target.size[1]))
    return max(1, GRAIN_WORK // max(1, work // MULTIPLICATIONS))


def label(step: WinogradGradient) -> str:
    images, height, width, channels = map(hint, step.x.size)
    return f"winograd gradient {images}x{channels}x{height}x{width} -> {hint(step.target.size[0])}"


def numbers(step: WinogradGradient) -> dict[str, list[Extent]]:
    _, rows, across, columns = step.gradient.size
    return {
        "offsets": [step.x.offset, step.gradient.offset],
        "sizes": [*step.x.size, columns, rows, across, *step.padding, block(step)],
    }


def body(
    step: WinogradGradient, slot: Callable[[str], int], number: Mapping[str, Sequence[str]]
) -> list[str]:
    fields = [
        f"(const float*)P[{slot(window.buffer.name)}] + {offset}"
        for window, offset in zip(step.operands, number["offsets"], strict=True)
    ]
    fields += [f"(float*)P[{slot(step.target.name)}]", *number["sizes"]]
    return [
        f"  const WinogradGradient a = {{{', '.join(fields)}}};",
        "  winograd_training(a, begin, end);",
    ]
