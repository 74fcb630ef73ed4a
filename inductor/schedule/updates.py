"""Updates at the end of a program, launched together.

An optimizer writes hundreds of parameters, each by a few small kernels of its own:

before                                          after
    kernel: step_0 + 1 -> step_0, correction_0      bundle: correction_0, correction_1, ...
    kernel: p_0, m_0, correction_0 -> p_0, m_0      bundle: p_0, m_0, p_1, m_1, ...
    kernel: step_1 + 1 -> step_1, correction_1
    kernel: p_1, m_1, correction_1 -> p_1, m_1

Kernels that lead to nothing but writes of inputs can wait for the end of the program. Those there
that do not depend on each other are one launch: on a CPU a table of parts, which share the text of
equal kernels; on a GPU kernels of some parts each, whose programs find theirs by comparing numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from inductor import devices
from inductor.schedule.fusion import Bundle, Kernel, Scheduled

GPU_PARTS = 32  # of one launch; the text of each is compiled


def bundle_updates(items: Sequence[Scheduled]) -> list[Scheduled]:
    """The schedule with its updates at the end, in as few launches as their order allows."""
    moved = _updates(items)
    if len(moved) < 2:
        return list(items)
    levels: list[list[Kernel]] = []
    masks: list[int] = []  # the ids of each level
    for kernel in moved:
        level = max((n + 1 for n, mask in enumerate(masks) if mask & kernel.before), default=0)
        if level == len(levels):
            levels.append([])
            masks.append(0)
        levels[level].append(kernel)
        masks[level] |= 1 << kernel.id
    taken = set(map(id, moved))
    rest = [item for item in items if id(item) not in taken]
    together = [part for kernels in levels for part in _launches(kernels)]
    return [*rest, *(Bundle(kernels) if len(kernels) > 1 else kernels[0] for kernels in together)]


def _launches(kernels: Sequence[Kernel]) -> Iterator[list[Kernel]]:
    """Kernels of each device, as many at once as one launch may have."""
    for device in dict.fromkeys(map(_device, kernels)):
        own = [kernel for kernel in kernels if _device(kernel) == device]
        most = GPU_PARTS if devices.is_gpu(device) else len(own)
        for start in range(0, len(own), most):
            yield own[start : start + most]


def _device(kernel: Kernel) -> torch.device:
    return kernel.steps[0].target.device


def _updates(items: Sequence[Scheduled]) -> list[Kernel]:
    """Elementwise kernels that write inputs, or whose results only such kernels read; in order."""
    found: list[Kernel] = []
    needed = 0  # bit set of the ids that something in `found` comes after
    waiting = 0  # the same, of items outside of it
    for item in reversed(items):
        if isinstance(item, Kernel) and not waiting >> item.id & 1:
            writes_input = any(step.target.kind == "input" for step in item.steps)
            if _is_elementwise(item) and (writes_input or needed >> item.id & 1):
                found.append(item)
                needed |= item.before
                continue
        for kernel in item.kernels if isinstance(item, Bundle) else [item]:
            waiting |= kernel.before
    return found[::-1]


def _is_elementwise(kernel: Kernel) -> bool:
    """Whether the kernel is a single pass over elements of one device, which can stand beside
    others.
    """
    places = {step.target.device for step in kernel.steps}
    return not kernel.is_rows and len(places) == 1
