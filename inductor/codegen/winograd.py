"""C++ for convolutions by Winograd's transforms: a call of the function of winograd.cpp.

    extern "C" void k0(void* const* P, int64_t begin, int64_t end) {
      const Winograd a = {(const float*)P[0] + 0, ..., 4, 32, 32, 64, 64, ...};
      winograd(a, {fn0, P, n, -1}, begin, end);
    }

The range counts strips, each of a few pairs of rows of the result: all their pixels and columns, so
that any kernel that may follow blocks of whole rows (panels.py) may follow them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from fxgraph.sizes import Extent, ceil_div, hint
from inductor import costs
from inductor.codegen.panels import Blocks, Follower, reader_text
from inductor.ir import Window, Winograd

TILES = 48  # of a unit, at most about: whole tiles of every processor


def _strips(step: Winograd) -> int:
    """Pairs of rows of a unit: units of like size, as many for each thread, and as few as that,
    since each reads the weight.
    """
    images, rows, across = step.pixels
    each = -(-hint(across) // 2)
    tiles = hint(images) * -(-hint(rows) // 2) * each
    threads = torch.get_num_threads()
    rounds = -(-tiles // (TILES * threads))
    wanted = max(costs.FEW_TILES, -(-tiles // (rounds * threads)))
    return max(1, -(-wanted // each))


def blocks(step: Winograd) -> Blocks:
    """rows: pairs of them."""
    return Blocks(_strips(step), step.size[1], True)


whole_rows = blocks


def is_local(step: Winograd, shape: Blocks) -> bool:
    """Whether a thread has room for a unit's result."""
    return False


def units(step: Winograd, shape: Blocks) -> Extent:
    images, rows, _ = step.pixels
    return ceil_div(images * ceil_div(rows, 2), shape.rows)


def grain(step: Winograd, shape: Blocks) -> int:
    """Units that are worth a thread's while."""
    _, _, across = step.pixels
    tiles = hint(shape.rows) * hint(across) // 2
    work = 16 * tiles * hint(step.x.size[3]) * hint(step.size[1]) // costs.MULTIPLICATIONS
    return max(1, costs.GRAIN_WORK // max(1, work))


def weight_as_read(weight: Window, transposed: bool) -> tuple[Extent, list[Extent]]:
    """Where the first element is, and the steps of columns, channels, rows and columns of a window:
    of a transposed weight, channels are the columns and the last element of a window is the first.
    """
    columns, channels, down, across = weight.stride
    if not transposed:
        return weight.offset, [columns, channels, down, across]
    return weight.offset + 2 * down + 2 * across, [channels, columns, -1 * down, -1 * across]


def numbers(step: Winograd, shape: Blocks) -> list[Extent]:
    """The numbers of the kernel's description, besides pointers and steps of the weight."""
    _, rows, across = step.pixels
    return [*step.x.size, step.size[1], rows, across, *step.padding]


def body(
    step: Winograd,
    shape: Blocks,
    slot: Callable[[str], int],
    number: Sequence[str],
    follower: Follower | None,
) -> list[str]:
    """Lines of the entry. slot: where a buffer is among the pointers. number: those of `numbers`
    and positions (-1: reads by element), as text.
    """
    *sizes, positions = number
    weight, stride = weight_as_read(step.weight_as_it_was, step.transposed)
    steps = ", ".join(map(str, stride))
    operands = [(w.buffer, w.offset) for w in (step.x, step.weight)]
    operands.append((step.weight_as_it_was.buffer, weight))
    pointers = [f"(const float*)P[{slot(buffer.name)}] + {offset}" for buffer, offset in operands]
    fields = [
        *pointers,
        f"(float*)P[{slot(step.target.name)}]",
        *sizes,
        f"{{{steps}}}",
        str(shape.rows),
    ]
    return [
        f"  const Winograd a = {{{', '.join(fields)}}};",
        f"  winograd(a, {reader_text(follower, positions)}, begin, end);",
    ]
