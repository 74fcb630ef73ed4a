"""C++ for convolutions of each channel by a window of its own: calls of functions of depthwise.cpp.

The range counts rows of images, of a gradient blocks of channels of each part of the images.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from fxgraph.sizes import Extent, hint, product
from inductor import costs
from inductor.ir import Depthwise, DepthwiseGradient

LEAST_BLOCK = 32  # channels of a unit: two lines of the cache


def block(step: DepthwiseGradient) -> int:
    """Channels of a unit: all, so that rows are read as they lie, where the parts of the images are
    enough for all threads.
    """
    parts, channels = hint(step.target.size[0]), hint(step.x.size[3])
    threads = torch.get_num_threads()
    if parts % threads == 0 or parts >= costs.UNITS * threads:
        return channels
    each = -(-channels // threads)
    return min(channels, -(-each // LEAST_BLOCK) * LEAST_BLOCK)


def units(step: Depthwise | DepthwiseGradient) -> Extent:
    if isinstance(step, Depthwise):
        return product(step.target.size[:1]) * step.target.size[2]
    return hint(step.target.size[0]) * -(-hint(step.x.size[3]) // block(step))


def grain(step: Depthwise | DepthwiseGradient) -> int:
    """Units that are worth a thread's while."""
    down, over, channels = map(hint, step.weight.size)
    if isinstance(step, Depthwise):
        each = hint(step.target.size[3]) * channels
    else:
        each = 2 * hint(product(step.gradient.size)) // max(1, hint(units(step)))
    work = each * down * over // costs.MULTIPLICATIONS
    return max(1, costs.GRAIN_WORK // max(1, work))


def label(step: Depthwise | DepthwiseGradient) -> str:
    images, height, width, channels = map(hint, step.x.size)
    kind = "depthwise" if isinstance(step, Depthwise) else "gradients of depthwise"
    return f"{kind} {images}x{channels}x{height}x{width}"


def numbers(step: Depthwise | DepthwiseGradient) -> dict[str, list[Extent]]:
    down, over, _ = step.weight.size
    if isinstance(step, Depthwise):
        _, _, rows, across = step.target.size
        more = []
    else:
        _, rows, across, _ = step.gradient.size
        more = [step.target.size[0], block(step)]
    settings = (*step.padding, *step.stride, *step.dilation)
    return {
        "offsets": [window.offset for window in step.operands],
        "sizes": [*step.x.size, rows, across, down, over, *settings, *more],
    }


def body(
    step: Depthwise | DepthwiseGradient,
    slot: Callable[[str], int],
    number: Mapping[str, Sequence[str]],
) -> list[str]:
    pointers = [
        f"(const float*)P[{slot(window.buffer.name)}] + {offset}"
        for window, offset in zip(step.operands, number["offsets"], strict=True)
    ]
    pointers += [f"(float*)P[{slot(name)}]" for name in step.writes]
    places, more = number["sizes"][:14], number["sizes"][14:]
    fields = [*pointers, f"{{{', '.join(places)}}}", *more]
    return [
        f"  const {type(step).__name__} a = {{{', '.join(fields)}}};",
        "  depthwise(a, begin, end);",
    ]
