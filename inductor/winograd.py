"""Convolutions of 3x3 windows by Winograd's F(2x2, 3x3), where generated code measures faster.

before                                  after
    y = aten.convolution(x, w, b)           p = <w, transformed, in panels>   | a derived static
                                            m = framegraph.winograd_mm(x, p, w, padding)
                                            y = aten.permute(aten.view(m + b, ...), [0, 3, 1, 2])

Four results take 16 multiplications in place of 36 (codegen/winograd.cpp). Their rounding errors
are no larger than those of the sums as they are defined, but of the largest elements of a window of
4x4 pixels in place of 3x3. Results that are not finite are computed as they are defined.

Measured with AVX-512 on Zen 5, one thread (µs of the library with a packed weight, of this):
    4x64x32x32  -> 64   1242  672    1x64x56x56  -> 64   922  477    4x128x32x32 -> 32  1213  820
    4x128x16x16 -> 128  1142  581    1x128x28x28 -> 128  888  432    4x128x16x16 -> 32   305  205
    4x256x8x8   -> 256  1125  565    1x256x14x14 -> 256  911  424    4x128x8x8   -> 32    89   52
    4x512x4x4   -> 512  1594 1115    1x512x7x7   -> 512 1368  875
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from fxgraph.node import Node
from inductor import panel_sample
from inductor.codegen import winograd as kernel
from inductor.derive import PREPARED
from inductor.ir import Buffer, Window, Winograd
from inductor.lowering.symbolic import likely
from inductor.measure import Budget, Candidate, fastest
from inductor.pack import NONE
from inductor.panels import PANEL, Builder
from inductor.runtime import toolchain
from inductor.runtime.link import link
from inductor.runtime.plan import (
    BufferSpec,
    KernelStep,
    OutputSpec,
    PlanSpec,
    TensorSpec,
    dtype_name,
)

POSITIONS = 16  # of a window of 4x4
MOST_CHANNELS = 512  # for which a chunk has enough tiles (winograd.cpp)
AHEAD = 0.96  # of the generated code's time: the limit for the library to be chosen
MANY_TILES = 24  # from which on it is ahead unmeasured: weights are read less often than multiplied
SECONDS = 0.05  # for measuring, of a graph

_library = torch.library.Library("framegraph", "FRAGMENT")
_library.define(
    "winograd_mm(Tensor x, Tensor panels, Tensor weight, int[] padding, bool transposed=False) "
    "-> Tensor"
)
winograd_mm = torch.ops.framegraph.winograd_mm.default
aten = torch.ops.aten
mkldnn = torch.ops.mkldnn


def _winograd_mm(
    x: torch.Tensor,
    panels: torch.Tensor,
    weight: torch.Tensor,
    padding: list[int],
    transposed: bool = False,
) -> torch.Tensor:
    """A row for each pixel of the convolution's result, a column for each of its channels.
    transposed: with the weight (channels, columns, 3, 3), its windows mirrored.
    """
    if transposed:
        weight = weight.transpose(0, 1).flip(2, 3)
    y = aten.convolution.default(x, weight, None, [1, 1], padding, [1, 1], False, [0, 0], 1)
    return y.permute(0, 2, 3, 1).reshape(-1, weight.shape[0]).contiguous()


def _winograd_mm_meta(
    x: torch.Tensor,
    panels: torch.Tensor,
    weight: torch.Tensor,
    padding: list[int],
    transposed: bool = False,
) -> torch.Tensor:
    images, _, height, width = x.shape
    above, beside = padding
    pixels = images * (height + 2 * above - 2) * (width + 2 * beside - 2)
    return x.new_empty((pixels, weight.shape[1 if transposed else 0]))


_library.impl("winograd_mm", _winograd_mm, "CPU")
_library.impl("winograd_mm", _winograd_mm_meta, "Meta")


def is_winograd(convolution: Node) -> bool:
    """Whether this is such a convolution, of a packable weight and channels innermost."""
    _, weight, _, stride, _, dilation, _, _, groups = convolution.args
    return is_of_windows(weight, stride, dilation, groups)


def is_of_windows(weight: Node, stride: Any, dilation: Any, groups: int) -> bool:
    columns, channels, *window = weight.meta["val"].shape
    return (
        groups == 1
        and window == [3, 3]
        and list(stride) == list(dilation) == [1, 1]
        and channels % PANEL == columns % PANEL == 0
        and channels <= MOST_CHANNELS
    )


def is_faster(convolution: Node, budget: Budget) -> bool:
    """Whether generated code takes less time than the library here: as measured, while the budget
    lasts.
    """
    image, weight, _, _, padding, *_ = convolution.args
    images, channels, height, width = map(likely, image.meta["val"].shape)
    columns = weight.meta["val"].shape[0]
    size = images, channels, height, width
    settings: Any = list(padding), [1, 1], [1, 1], 1

    def full(*size: int) -> torch.Tensor:
        return torch.full(size, 0.5, dtype=torch.float32, device="cpu")

    def packed() -> Callable[[], object]:
        x = full(*size).to(memory_format=torch.channels_last)
        w = mkldnn._reorder_convolution_weight(full(columns, channels, 3, 3), *settings, list(size))
        return lambda: mkldnn._convolution_pointwise(x, w, None, *settings, *NONE)

    def generated() -> Callable[[], object]:
        return sample(full(images, height, width, channels), columns, tuple(padding), budget)

    code = panel_sample.identity()
    key = f"winograd {size} -> {columns}, padding {list(padding)}, generated by {code}"
    candidates: dict[str, Candidate] = {"generated": generated, "packed": packed}
    choice = fastest(key, candidates, budget, ahead=AHEAD)
    if choice is None:
        tiles = images * -(-height // 2) * -(-width // 2)
        return tiles >= MANY_TILES
    return choice.name == "generated"


_SOURCE = """#include "winograd.h"

namespace fg {
extern "C" void sample(void* const* P, int64_t begin, int64_t end) {
  const int64_t* const n = (const int64_t*)P[4];
  const auto in = [&](int i) { return (const float*)P[i]; };
  const Winograd a = {in(0), in(1), in(2), (float*)P[3], n[0], n[1], n[2], n[3], n[4], n[5],
                      n[6], n[7], n[8], {n[3] * 9, 9, 3, 1}, n[9]};
  winograd(a, {}, begin, end);
}
}
"""


def sample(
    x: torch.Tensor, columns: int, padding: tuple[int, int], budget: Budget
) -> Callable[[], object]:
    """Such a convolution of images (images, height, width, channels)."""
    images, height, width, channels = x.shape
    pixels = images, height + 2 * padding[0] - 2, width + 2 * padding[1] - 2
    with budget.pause():
        made = toolchain.load_library(_SOURCE)
    given = {
        "x": x,
        "panels": x.new_zeros(POSITIONS * columns // PANEL, channels, PANEL),
        "weight": x.new_zeros(columns, channels, 3, 3),
    }
    windows = [Window(b, b.size, b.stride) for b in map(_buffer, given, given.values())]
    out = _buffer("out", x.new_empty(math.prod(pixels), columns))
    step = Winograd(
        "sample", windows[0], windows[1], (out.size[0], columns), out,
        weight_as_it_was=windows[2], padding=padding, pixels=pixels,
    )  # fmt: skip
    sizes = torch.tensor([*kernel.numbers(step), kernel.strips(step)])
    spec = PlanSpec(
        inputs=[
            TensorSpec(name, dtype_name(t.dtype), tuple(t.shape), t.stride())
            for name, t in (*given.items(), ("sizes", sizes))
        ],
        buffers=[BufferSpec("out", "float32", out.size, out.stride, kind="output")],
        steps=[KernelStep("sample", [(n, 0) for n in (*given, "out", "sizes")], ["out"],
                          kernel.units(step), kernel.grain(step))],
        outputs=[OutputSpec("buffer", "out")],
    )  # fmt: skip
    plan = link(spec, made)
    return lambda: plan(*given.values(), sizes)[0]


def _buffer(name: str, tensor: torch.Tensor) -> Buffer:
    return Buffer(name, tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.device)


def transformed(build: Builder, weight: Node, meta: dict[str, Any]) -> Node:
    """The weight (columns, channels, 3, 3) as panels of (channels, 16 * columns): G w G^T.

    The order of panels comes first: all that follows runs along contiguous rows.
    """
    columns, channels = weight.meta["val"].shape[:2]
    made = build.view(weight, [columns // PANEL, PANEL, channels, 3, 3], meta)
    made = build.permute(made, [3, 4, 0, 2, 1], meta)
    made = build.call(aten.clone.default, (made,), meta, memory_format=torch.contiguous_format)
    made = build.view(made, [3, 3, columns * channels], meta)
    for dim in (0, 1):  # the rows of a window, then its columns
        first, middle, last = (build.call(aten.select.int, (made, dim, i), meta) for i in range(3))
        ends = build.call(aten.mul.Tensor, (build.add(first, last, meta), 0.5), meta)
        half = build.call(aten.mul.Tensor, (middle, 0.5), meta)
        parts = [first, build.add(ends, half, meta)]
        parts += [build.call(aten.sub.Tensor, (ends, half), meta), last]
        made = build.stack(parts, dim, meta)
    made = build.view(made, [POSITIONS * columns // PANEL, channels, PANEL], meta)
    made.meta[PREPARED] = True
    return made
