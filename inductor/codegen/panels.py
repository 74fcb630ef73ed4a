"""C++ for products of panels, and for the kernels that read their results.

    extern "C" void k0(void* const* P, int64_t begin, int64_t end) {
      static const int64_t n[] = {768};
      const Product<float> p = {...};
      product<float>(p, {fn0, P, n, -1}, begin, end);
    }

The range counts blocks of the result. A kernel that reads the result may follow block by block if
its own range, cut at the ends of blocks, reads nothing outside of them:

    elements    it reads element e of the result at position e of its range: any block
    rows        row r of the result alone in a stretch of its range: blocks of whole rows
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from fxgraph.sizes import Extent, ceil_div, contiguous_strides, hint, known_le, known_lt, product
from inductor import costs
from inductor.codegen.cpp_body import CPP_TYPES
from inductor.index import Index, Var, linear
from inductor.ir import PanelProduct
from inductor.panels import NARROW

BLOCK_ROWS = 48  # whole tiles of every processor (product.h)
WIDENED_ROWS = 144  # of blocks for which elements of a weight are widened: once for all rows
WIDENED_PAIRS_ROWS = 256  # the same, of pairs
PAIRS_ROWS, PAIRS_TILE = 128, 16  # of blocks of pairs, at most, and of a tile (product_amx.h)
FEW_BLOCK_ROWS = 12  # of blocks of whole rows, where there are few
BLOCK_COLUMNS = (256, 128, 64)
BLOCK_ELEMENTS = 1 << 15  # of one that a thread has room for (product.h)


@dataclass
class Blocks:
    """rows, columns: of a block of the result. whole_rows: whether the columns are all."""

    rows: Extent
    columns: Extent
    whole_rows: bool = False


def blocks(step: PanelProduct, *, whole_rows: bool = False, count: int = 1) -> Blocks:
    """count: products whose blocks are made side by side; their weights share the second cache,
    where several rows of blocks read them.
    """
    rows, columns = step.size
    threads = torch.get_num_threads()
    if whole_rows:
        few = hint(rows) < 2 * threads * BLOCK_ROWS
        height = FEW_BLOCK_ROWS if few else BLOCK_ROWS
        if in_pairs(step.weight.size):
            room = BLOCK_ELEMENTS // hint(columns) // PAIRS_TILE * PAIRS_TILE
            height = PAIRS_TILE if few else max(PAIRS_TILE, min(room, PAIRS_ROWS))
        return Blocks(_for_each(rows, threads, height), columns, True)
    height = BLOCK_ROWS
    if in_pairs(step.weight.size):
        of_int8 = step.weight.buffer.dtype == torch.int8
        height = WIDENED_PAIRS_ROWS if of_int8 else PAIRS_ROWS
    elif step.weight.buffer.dtype in NARROW:
        many = hint(rows) >= WIDENED_ROWS * threads
        height = WIDENED_ROWS if many else height
    if isinstance(rows, int) and rows > height and rows % height < FEW_BLOCK_ROWS:
        height = -(-rows // (rows // height))  # no block reads the weight for a few rows
    down = ceil_div(rows, height)
    widths = [n for n in BLOCK_COLUMNS if n * count <= BLOCK_COLUMNS[0] or hint(down) == 1]
    for width in widths or BLOCK_COLUMNS[-1:]:
        if hint(down * ceil_div(columns, width)) >= costs.UNITS * threads:
            break
    return Blocks(height, width)


def _for_each(rows: Extent, threads: int, most: int) -> int:
    """The height of blocks, at most `most`: as many for each thread."""
    if threads == 1 or not isinstance(rows, int):
        return most
    each = -(-rows // (most * threads))
    return -(-rows // (each * threads))


def units(step: PanelProduct, shape: Blocks) -> Extent:
    rows, columns = step.size
    return ceil_div(rows, shape.rows) * ceil_div(columns, shape.columns)


def work(step: PanelProduct, shape: Blocks) -> Extent:
    """Of a unit, in elementary operations of kernels."""
    columns = shape.columns if shape.whole_rows else min(shape.columns, hint(step.size[1]))
    rows = min(hint(shape.rows), hint(step.size[0]))
    return max(1, rows * hint(columns) * hint(step.x.size[1]) // costs.MULTIPLICATIONS)


def grain(step: PanelProduct, shape: Blocks) -> int:
    """Units that are worth a thread's while."""
    return max(1, costs.GRAIN_WORK // hint(work(step, shape)))


def is_local(step: PanelProduct, shape: Blocks) -> bool:
    """Whether a thread has room for a block of the result."""
    rows, columns = shape.rows, shape.columns
    if not (isinstance(rows, int) and isinstance(columns, int)):
        return False
    return rows * columns <= BLOCK_ELEMENTS


def whole_rows(step: PanelProduct) -> Blocks | None:
    """Such blocks, where they give every thread as much to do as smaller ones would."""
    shape = blocks(step, whole_rows=True)
    return shape if hint(units(step, shape)) >= 2 * torch.get_num_threads() else None


# --- which way a kernel may follow ----------------------------------------------------------------


def reads_by_element(order: Sequence[Var], reads: Sequence[Index], step: PanelProduct) -> bool:
    """Whether position e of a range over `order` reads element e of the result, and no other."""
    sizes = [v.size for v in order]
    if product(sizes) != product(step.size):
        return False
    whole = linear([Index({v: 1}) for v in order], contiguous_strides(sizes), 0)
    return all(index == whole for index in reads)


def positions_of_a_row(
    order: Sequence[Var], reads: Sequence[Index], step: PanelProduct
) -> Extent | None:
    """How many positions of a range over `order` belong to a row of the result: those that follow
    one another, read that row and no other; None if there is no such number.
    """
    rows, columns = step.size
    outer: list[Var] = []
    while product(v.size for v in outer) != rows:
        if len(outer) == len(order):
            return None
        outer.append(order[len(outer)])
    strides = [n * columns for n in contiguous_strides([v.size for v in outer])]
    row = linear([Index({v: 1}) for v in outer], strides, 0)
    for index in reads:
        low, high = (index - row).bounds()
        if not (known_le(0, low) and known_lt(high, columns)):
            return None
    return product(v.size for v in order[len(outer) :])


# --- text -----------------------------------------------------------------------------------------


@dataclass
class Follower:
    """The function of a kernel that reads a product's result. positions: of its range, for each row
    of the result; None if it reads by element. slot: of the result among the pointers, if blocks of
    it alone are in memory. slots: of the results of other products, of which the same is so.
    """

    function: str
    positions: Extent | None
    slot: int | None = None
    slots: Sequence[int] = ()


def in_pairs(size: Sequence[Extent]) -> bool:
    """Whether panels of that size hold pairs."""
    return len(size) == 4


def element_type(dtype: torch.dtype, size: Sequence[Extent]) -> str:
    """Of panels of that dtype and size."""
    if not in_pairs(size):
        return CPP_TYPES[dtype]
    return "int8_pair" if dtype == torch.int8 else "bf16_pair"


def numbers(step: PanelProduct, shape: Blocks) -> list[Extent]:
    """Rows, columns, inner, stride and offset of x, columns of a block."""
    return [*step.size, step.x.size[1], step.x.stride[0], step.x.offset, shape.columns]


def body(
    step: PanelProduct,
    shape: Blocks,
    slot: Callable[[str], int],
    number: Sequence[str],
    follower: Follower | None,
) -> list[str]:
    """Lines of the entry. slot: where a buffer is among the pointers. number: those of `numbers`
    and positions (-1: reads by element), as text.
    """
    *numbers, positions = number
    kind = element_type(step.weight.buffer.dtype, step.weight.size)
    return [
        _described("p", step, shape, slot, numbers),
        f"  product<{kind}>(p, {reader_text(follower, positions)}, begin, end);",
    ]


def bodies(
    steps: Sequence[PanelProduct],
    shape: Blocks,
    slot: Callable[[str], int],
    number: Sequence[str],
    follower: Follower,
) -> list[str]:
    """The same for several products that one kernel follows; their numbers one after another, those
    of the first with positions.
    """
    first, *others = steps
    count = (len(number) - 1) // len(steps)
    own, positions, rest = number[:count], number[count], number[count + 1 :]
    lines, linked = [], ""
    for n, (step, result) in reversed([*enumerate(zip(others, follower.slots, strict=True))]):
        numbers = rest[n * count : (n + 1) * count]
        after = f", {linked or 'nullptr'}, L + {result}"
        lines.append(_described(f"p{n}", step, shape, slot, numbers, after))
        linked = f"&p{n}"
    kind = element_type(first.weight.buffer.dtype, first.weight.size)
    return [
        *lines,
        _described("p", first, shape, slot, own, f", {linked}"),
        f"  product<{kind}>(p, {reader_text(follower, positions)}, begin, end);",
    ]


def _described(
    name: str,
    step: PanelProduct,
    shape: Blocks,
    slot: Callable[[str], int],
    number: Sequence[str],
    more: str = "",
) -> str:
    """The declaration of a product's description."""
    rows, columns, inner, stride, offset, width = number
    x, w, out = (slot(b.name) for b in (step.x.buffer, step.weight.buffer, step.target))
    kind = element_type(step.weight.buffer.dtype, step.weight.size)
    of_x = CPP_TYPES[step.x.buffer.dtype]
    sizes = ", ".join([rows, columns, inner, stride, str(shape.rows), width])
    return (
        f"  const Product<{kind}> {name} = {{(const {of_x}*)P[{x}] + {offset}, "
        f"(const {kind}*)P[{w}], (float*)P[{out}], {sizes}{more}}};"
    )


def reader_text(follower: Follower | None, positions: str) -> str:
    if follower is None:
        return "{}"
    if follower.slot is None:
        return f"{{{follower.function}, P, n, {positions}}}"
    return f"{{{follower.function}, L, n, {positions}, L + {follower.slot}}}"
