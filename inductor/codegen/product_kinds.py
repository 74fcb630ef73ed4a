"""C++ for products: which module writes the call of which function of ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fxgraph.sizes import Extent
from inductor.codegen import matrices, panels, windows, winograd
from inductor.codegen.panels import Blocks, Follower
from inductor.ir import MatrixProduct, PanelProduct, WindowProduct, Winograd


def blocks(step: PanelProduct) -> Blocks:
    if isinstance(step, WindowProduct):
        return windows.blocks(step)
    return matrices.blocks(step) if isinstance(step, MatrixProduct) else panels.blocks(step)


def whole_rows(step: PanelProduct) -> Blocks | None:
    """Blocks of whole rows, for a kernel that follows rows; None if they are not worth while."""
    if isinstance(step, MatrixProduct):
        return None
    if isinstance(step, WindowProduct):
        return windows.blocks(step, whole_rows=True)
    shape = panels.blocks(step, whole_rows=True)
    return shape if isinstance(step, Winograd) or panels.is_worth(step, shape) else None


def numbers(step: PanelProduct, shape: Blocks) -> list[Extent]:
    """The arguments of the call besides pointers."""
    if isinstance(step, Winograd):
        return winograd.numbers(step)
    if isinstance(step, WindowProduct):
        return windows.numbers(step, shape)
    if isinstance(step, MatrixProduct):
        return matrices.numbers(step, shape)
    return panels.numbers(step, shape)


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
    if isinstance(step, Winograd):
        return winograd.body(step, slot, number, follower)
    if isinstance(step, WindowProduct):
        return windows.body(step, slot, number, follower)
    if isinstance(step, MatrixProduct):
        return matrices.body(step, slot, number, follower)
    return panels.body(step, shape, slot, number, follower)


def units_and_grain(step: PanelProduct, shape: Blocks) -> tuple[Extent, int]:
    """The number of units in the parallel range, and how many of them are worth a thread."""
    if isinstance(step, Winograd):
        return winograd.units(step), winograd.grain(step)
    if isinstance(step, WindowProduct):
        return windows.units(step, shape), windows.grain(step, shape)
    if isinstance(step, MatrixProduct):
        return matrices.units(step, shape), panels.grain(step, shape)
    return panels.units(step, shape), panels.grain(step, shape)
