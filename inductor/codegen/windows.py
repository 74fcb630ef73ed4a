"""C++ for convolutions by products of pairs: a call of the function of windows.cpp.

    extern "C" void k0(void* const* P, int64_t begin, int64_t end) {
      const Windows a = {(const bf16*)P[0] + 0, (const bf16_pair*)P[1], (float*)P[2], 4, 32, ...};
      convolve(a, {fn0, P, n, -1}, begin, end);
    }

The range counts units: some rows of images of the result, of a block of its columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from fxgraph.sizes import Extent, ceil_div, hint
from inductor import costs
from inductor.codegen.panels import Blocks, Follower, reader_text
from inductor.ir import WindowProduct

PIXELS = 256  # of a unit, about: each reads its part of the weight
COLUMNS = 256  # of a unit: a multiple of those of a panel


def blocks(step: WindowProduct, *, whole_rows: bool = False) -> Blocks:
    """rows: of images. Units of like size, as many for each thread. Where pixels are few, columns
    are split before rows: threads read parts of the weight then, not each the whole.
    """
    images, rows, across = map(hint, step.pixels)
    columns, threads = hint(step.size[1]), torch.get_num_threads()
    width = columns if whole_rows else min(columns, COLUMNS)
    pixels = images * rows * across
    if not whole_rows and pixels < threads * PIXELS and columns >= 2 * threads * costs.FEW_PIXELS:
        width = min(width, _rounded(-(-columns // threads), costs.FEW_PIXELS))
    side = -(-columns // width)
    rounds = max(1, round(pixels * side / (PIXELS * threads)))
    each = max(costs.FEW_PIXELS, -(-pixels * side // (rounds * threads)))
    height = max(1, min(images * rows, -(-each // max(across, 1))))
    return Blocks(height, width, whole_rows)


def whole_rows(step: WindowProduct) -> Blocks:
    return blocks(step, whole_rows=True)


def is_local(step: WindowProduct, shape: Blocks) -> bool:
    """Whether a thread has room for a unit's result."""
    return True


def _rounded(n: int, to: int) -> int:
    return -(-n // to) * to


def units(step: WindowProduct, shape: Blocks) -> Extent:
    images, rows, _ = step.pixels
    return ceil_div(images * rows, shape.rows) * ceil_div(step.size[1], shape.columns)


def grain(step: WindowProduct, shape: Blocks) -> int:
    """Units that are worth a thread's while."""
    pixels = hint(shape.rows) * hint(step.pixels[2])
    inner = step.window[0] * step.window[1] * hint(step.x.size[3])
    work = pixels * inner * hint(shape.columns) // (costs.MULTIPLICATIONS * costs.PAIRS_FASTER)
    return max(1, costs.GRAIN_WORK // max(1, work))


def numbers(step: WindowProduct, shape: Blocks) -> list[Extent]:
    """The numbers of the kernel's description, besides pointers."""
    _, rows, across = step.pixels
    sizes = [*step.x.size, step.size[1], rows, across]
    return [
        *sizes, *step.window, *step.steps, *step.padding, step.dilation[0], shape.rows,
        shape.columns,
    ]  # fmt: skip


def body(
    step: WindowProduct,
    shape: Blocks,
    slot: Callable[[str], int],
    number: Sequence[str],
    follower: Follower | None,
) -> list[str]:
    """Lines of the entry. slot: where a buffer is among the pointers. number: those of `numbers`
    and positions (-1: reads by element), as text.
    """
    *sizes, positions = number
    x, weight = step.x, step.weight
    fields = [
        f"(const bf16*)P[{slot(x.buffer.name)}] + {x.offset}",
        f"(const bf16_pair*)P[{slot(weight.buffer.name)}]",
        f"(float*)P[{slot(step.target.name)}]",
        *sizes,
    ]
    return [
        f"  const Windows a = {{{', '.join(fields)}}};",
        f"  convolve(a, {reader_text(follower, positions)}, begin, end);",
    ]
