"""C++ for the transform of a weight of 3x3 windows: a call of the function of training.cpp.

The range counts panels of columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fxgraph.sizes import Extent, hint
from inductor import costs
from inductor.codegen.winograd import weight_as_read
from inductor.ir import WinogradPanels
from inductor.panels import PANEL

WORK = 2 * PANEL  # elementary operations of a channel of a panel


def units(step: WinogradPanels) -> Extent:
    return columns_and_channels(step)[0] // PANEL


def grain(step: WinogradPanels) -> int:
    return max(1, costs.GRAIN_WORK // (WORK * columns_and_channels(step)[1]))


def columns_and_channels(step: WinogradPanels) -> tuple[int, int]:
    columns, channels = map(hint, step.weight.size[:2])
    return (channels, columns) if step.transposed else (columns, channels)


def label(step: WinogradPanels) -> str:
    columns, channels = columns_and_channels(step)
    return f"winograd weight of {channels} -> {columns}"


def numbers(step: WinogradPanels) -> dict[str, list[Extent]]:
    columns, channels = columns_and_channels(step)
    offset, stride = weight_as_read(step.weight, step.transposed)
    return {"offset": [offset], "sizes": [channels, columns], "steps": stride}


def body(
    step: WinogradPanels, slot: Callable[[str], int], number: Mapping[str, Sequence[str]]
) -> list[str]:
    fields = [
        f"(const float*)P[{slot(step.weight.buffer.name)}] + {number['offset'][0]}",
        f"(float*)P[{slot(step.target.name)}]",
        *number["sizes"],
        f"{{{', '.join(number['steps'])}}}",
    ]
    return [
        f"  const WinogradPanels a = {{{', '.join(fields)}}};",
        "  train(a, begin, end);",
    ]
