"""Convolutions of bfloat16 by products of pairs, where generated code measures faster.

before                                  after
    y = aten.convolution(x, w, b)           p = <w, in panels>                | a derived static
                                            m = framegraph.window_mm(x, p, w, ...)
                                            y = aten.permute(aten.view(m + b, ...), [0, 3, 1, 2])

Sums are of float32, and readers of the result join the kernel: batch norm, residual and relu after
a convolution are passes of their own otherwise. Windows of any size and step, padded or apart, of
images with channels innermost (codegen/windows.cpp).

Measured with AMX, one thread (µs of the library with a packed weight, of this, which writes twice
the bytes where no kernel reads its result):
    4x64x32x32  -> 64    192  197    4x64x32x32  -> 128, step 2  126  113
    4x128x16x16 -> 128   168  180    4x128x16x16 -> 256, step 2  173  126
    4x256x8x8   -> 256   227  201    4x256x8x8   -> 512, step 2  295  153
    4x512x4x4   -> 512   735  306    1x256x14x14 -> 256          165  139
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from fxgraph.node import Node
from inductor import costs, panel_sample
from inductor.codegen import windows as kernel
from inductor.derive import PREPARED
from inductor.ir import WindowProduct
from inductor.lowering.symbolic import likely
from inductor.measure import Budget, Candidate, fastest
from inductor.pack import constant, packed_sample, rows_of
from inductor.panels import Builder, has_pairs, in_panels, panel_bytes
from inductor.registration import operator
from inductor.runtime import toolchain
from inductor.sample_plan import buffer, sample_plan
from inductor.sample_plan import window as window_of

PANEL_ROWS = 32  # a multiple of which panels have (windows.cpp)

aten = torch.ops.aten


def _window_mm(
    x: torch.Tensor,
    panels: torch.Tensor,
    weight: torch.Tensor,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
) -> torch.Tensor:
    """A row for each pixel of the convolution's result, a column for each of its channels."""
    wide, settings = (x.float(), weight.float(), None), (stride, padding, dilation)
    y = aten.convolution.default(*wide, *settings, False, [0, 0], 1)
    return y.permute(0, 2, 3, 1).reshape(-1, weight.shape[0]).contiguous()


def _window_mm_meta(
    x: torch.Tensor,
    panels: torch.Tensor,
    weight: torch.Tensor,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
) -> torch.Tensor:
    pixels = pixels_of(x.shape, weight.shape[2:], stride, padding, dilation)
    return x.new_empty((math.prod(pixels), weight.shape[0]), dtype=torch.float32)


window_mm = operator(
    "window_mm(Tensor x, Tensor panels, Tensor weight, int[] stride, int[] padding, "
    "int[] dilation) -> Tensor",
    _window_mm,
    _window_mm_meta,
)


def pixels_of(
    size: Any, window: Any, stride: Any, padding: Any, dilation: Any
) -> tuple[Any, Any, Any]:
    """Images, rows and columns of the result for images (images, channels, height, width)."""
    images, _, *sides = size
    down, across = (
        (n + 2 * around - apart * (places - 1) - 1) // step + 1
        for n, places, step, around, apart in zip(
            sides, window, stride, padding, dilation, strict=True
        )
    )
    return images, down, across


def is_of_pairs(convolution: Node) -> bool:
    """Whether the kernel computes this convolution, of a packable weight and channels innermost."""
    _, _, _, _, _, dilation, _, _, groups = convolution.args
    narrow = convolution.meta["val"].dtype == torch.bfloat16
    return narrow and groups == 1 and dilation[1] == 1 and has_pairs()


def panel_steps(size: Any) -> list[tuple[Any, list[Any], dict[str, Any]]]:
    """The operators that make a weight of that size (columns, channels, *window) a matrix with a
    row for each element of a window: each with the arguments that come after the result before.
    """
    columns, *inner = size
    elements = math.prod(inner)
    return [
        (aten.permute.default, [[2, 3, 1, 0]], {}),
        (aten.clone.default, [], {"memory_format": torch.contiguous_format}),
        (aten.view.default, [[elements, columns]], {}),
        (aten.constant_pad_nd.default, [[0, 0, 0, _rows_of_panels(size) - elements]], {}),
    ]


def _rows_of_panels(weight: Any) -> int:
    return -(-math.prod(weight[1:]) // PANEL_ROWS) * PANEL_ROWS


def weight_in_panels(build: Builder, weight: Node, meta: dict[str, Any]) -> Node:
    """The weight (columns, channels, *window) in panels, for a derived static."""
    for target, args, kwargs in panel_steps(weight.meta["val"].shape):
        weight = build.call(target, (weight, *args), meta, **kwargs)
        weight.meta[PREPARED] = True
    return build.panels(weight, meta, pairs=True)


# --- which is faster ------------------------------------------------------------------------------


class Choices:
    """The choices of a graph: measured, while the budget lasts; then the one of most that were."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._ahead = 0  # of the library, by how many convolutions

    def is_faster(self, convolution: Node) -> bool:
        """Whether generated code takes less time than the library here."""
        name = measured(convolution, self._budget)
        if name is None:
            return self._ahead > 0
        self._ahead += 1 if name == "generated" else -1
        return name == "generated"


def measured(convolution: Node, budget: Budget) -> str | None:
    """The faster one of "generated" and "packed"; None if there is no time to measure."""
    image, weight, _, stride, padding, dilation, *_ = convolution.args
    size = tuple(map(likely, image.meta["val"].shape))
    of_weight = tuple(weight.meta["val"].shape)
    settings: Any = list(padding), list(stride), list(dilation), 1

    def packed() -> Callable[[], object]:
        convolve = packed_sample(size, of_weight, torch.bfloat16, settings)
        return lambda: convolve().relu_()  # whatever reads the library's result is another pass

    def generated() -> Callable[[], object]:
        x, w = constant(rows_of(size), torch.bfloat16), constant(of_weight, torch.bfloat16)
        return sample(x, w, stride, padding, dilation, budget)

    code = panel_sample.identity()
    key = f"windows {size} by {of_weight}, {settings}, generated by {code}"
    candidates: dict[str, Candidate] = {"generated": generated, "packed": packed}
    choice = fastest(key, candidates, budget, ahead=costs.LIBRARY_AHEAD)
    return None if choice is None else choice.name


# A kernel reads the result, as most often in a model.
_SOURCE = """#include "windows.h"

namespace fg {
static void narrow(void* const* P, int64_t begin, int64_t end, const int64_t*) {
  const float* const from = (const float*)P[0];
  bf16* const to = (bf16*)P[1];
  for (int64_t e = begin; e < end; e += FG_WIDE) {
    const Part some = {min(FG_WIDE, end - e)};
    wide::store(to + e, wide::load(from + e, some), some);
  }
}
extern "C" void sample(void* const* P, int64_t begin, int64_t end) {
  const int64_t* const n = (const int64_t*)P[3];
  void* L[] = {nullptr, P[2]};
  const Windows a = {(const bf16*)P[0], (const bf16_pair*)P[1], nullptr, n[0], n[1], n[2], n[3],
                     n[4], n[5], n[6], n[7], n[8], n[9], n[10], n[11], n[12], n[13], n[14], n[15]};
  convolve(a, {narrow, L, nullptr, -1, L}, begin, end);
}
}
"""


def sample(
    x: torch.Tensor, weight: torch.Tensor, stride: Any, padding: Any, dilation: Any, budget: Budget
) -> Callable[[], torch.Tensor]:
    """Such a convolution of images (images, height, width, channels), its result narrow."""
    images, height, width, channels = x.shape
    with budget.pause():
        made = toolchain.load_library(_SOURCE)
    columns, window = weight.shape[0], weight.shape[2:]
    size = images, channels, height, width
    pixels = pixels_of(size, window, stride, padding, dilation)
    matrix = weight
    for target, args, kwargs in panel_steps(weight.shape):
        matrix = target(matrix, *args, **kwargs)
    given = {"x": x, "panels": in_panels(matrix, pairs=True)}
    one, other = (window_of(name, tensor) for name, tensor in given.items())
    out = buffer("out", x.new_empty(math.prod(pixels), columns))
    of_window, steps, around, apart = ((a, b) for a, b in (window, stride, padding, dilation))
    step = WindowProduct(
        "sample", one, other, (out.size[0], columns), out,
        pixels=pixels, window=of_window, steps=steps, padding=around, dilation=apart,
    )  # fmt: skip
    shape = kernel.blocks(step)
    cut = kernel.units(step, shape), kernel.grain(step, shape)
    return sample_plan(made, given, out, kernel.numbers(step, shape), *cut)


def panel_bytes_of(weight: Any) -> int:
    """Of a weight (columns, channels, *window) in panels."""
    return panel_bytes(_rows_of_panels(weight), weight[0], torch.bfloat16)
