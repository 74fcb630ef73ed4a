"""C++ for products of matrices as they are: a call of the function of matrices.cpp.

    extern "C" void k0(void* const* P, int64_t begin, int64_t end) {
      const Matrices<float> a = {(const float*)P[0] + 0, (const float*)P[1] + 0, ...};
      multiply<float>(a, {fn0, P, n, -1}, begin, end);
    }

The range counts blocks of rows, of each block of columns. A kernel that reads the result may follow
if it reads by element (panels.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from fxgraph.sizes import Extent, ceil_div, hint
from inductor import costs
from inductor.codegen.cpp_body import CPP_TYPES
from inductor.codegen.panels import Blocks, Follower, grain, reader_text
from inductor.ir import MatrixProduct

__all__ = ["blocks", "body", "grain", "is_local", "numbers", "units", "whole_rows"]

COLUMNS = (128, 64)  # of a block: the first may be the most (matrices.h)
TILE_ROWS = 12  # of every processor: whole tiles
PAIRS_COLUMNS = (256, 192, 128, 96, 64, 32)  # of a block of products of pairs
PAIRS_ROWS = 32  # of whole tiles (product_amx.h)
PANELS_ROOM = 256 << 10  # elements of their panels (matrices_pairs.cpp)


def is_of_pairs(step: MatrixProduct) -> bool:
    return step.x.buffer.dtype == torch.bfloat16


def is_local(step: MatrixProduct, shape: Blocks) -> bool:
    """Whether a block's result is complete before the next one is begun."""
    depth = step.x.size[1]
    small = isinstance(depth, int) and isinstance(shape.columns, int)
    return is_of_pairs(step) and small and depth * shape.columns <= PANELS_ROOM


def _blocks_of_pairs(step: MatrixProduct) -> Blocks:
    """As wide as there is room for their panels, since a left matrix may be turned for each; as
    many for each thread. Of all rows, or in as many parts as threads where columns are few.
    """
    (rows, columns), depth = step.size, hint(step.x.size[1])
    threads, across = torch.get_num_threads(), max(hint(columns), 1)
    fitting = [n for n in PAIRS_COLUMNS if n * depth <= PANELS_ROOM] or [PAIRS_COLUMNS[-1]]
    longest = {n: hint(ceil_div(ceil_div(across, n), threads)) * n for n in fitting}
    width = min(fitting, key=longest.__getitem__)
    if not isinstance(rows, int) or longest[width] * threads <= costs.UNEVEN * across:
        return Blocks(rows, width)
    each = -(-rows // threads)
    return Blocks(max(1, -(-each // PAIRS_ROWS)) * PAIRS_ROWS, min(fitting[0], width * threads))


def blocks(step: MatrixProduct) -> Blocks:
    """All rows, since each block puts its columns into panels; in as many parts as threads where
    columns alone do not give them as much to do.
    """
    if is_of_pairs(step):
        return _blocks_of_pairs(step)
    rows, columns = step.size
    threads = torch.get_num_threads()
    width = next((n for n in COLUMNS if ceil_div(columns, n) >= threads), COLUMNS[-1])
    across = ceil_div(columns, width)
    if not isinstance(rows, int) or not isinstance(across, int):
        return Blocks(rows, width)
    if across % threads == 0 or across >= costs.UNITS * threads:
        return Blocks(max(rows, 1), width)
    each = -(-rows // threads)
    return Blocks(max(1, -(-each // TILE_ROWS)) * TILE_ROWS, width)


def whole_rows(step: MatrixProduct) -> None:
    """No kernel follows by rows."""


def units(step: MatrixProduct, shape: Blocks) -> Extent:
    rows, columns = step.size
    down = 1 if shape.rows == rows else ceil_div(rows, shape.rows)
    return down * ceil_div(columns, shape.columns)


def numbers(step: MatrixProduct, shape: Blocks) -> list[Extent]:
    """Offsets of both matrices, then the numbers of the kernel's description."""
    offsets = [step.x.offset, step.weight.offset]
    sizes = [*step.size, step.x.size[1], *step.x.stride, *step.weight.stride]
    return [*offsets, *sizes, shape.rows, shape.columns]


def body(
    step: MatrixProduct,
    shape: Blocks,
    slot: Callable[[str], int],
    number: Sequence[str],
    follower: Follower | None,
) -> list[str]:
    """Lines of the entry. slot: where a buffer is among the pointers. number: those of `numbers`
    and positions (-1: reads by element), as text.
    """
    offset_x, offset_w, *sizes, positions = number
    x, w, out = (slot(b.name) for b in (step.x.buffer, step.weight.buffer, step.target))
    kind = CPP_TYPES[step.x.buffer.dtype]
    fields = [f"(const {kind}*)P[{x}] + {offset_x}", f"(const {kind}*)P[{w}] + {offset_w}"]
    fields += [f"(float*)P[{out}]", *sizes]
    return [
        f"  const Matrices<{kind}> a = {{{', '.join(fields)}}};",
        f"  multiply<{kind}>(a, {reader_text(follower, positions)}, begin, end);",
    ]
