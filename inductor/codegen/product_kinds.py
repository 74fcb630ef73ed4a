"""C++ for products: which module writes the call of which function of ours.

Each has, for its step: blocks, the shape of units of the range; whole_rows, that for a kernel that
follows rows, or None; units and grain (units that are worth a thread's while); numbers, the
arguments of the call besides pointers; body, the entry's lines; is_local, whether a thread has room
for a unit's result.
"""

from __future__ import annotations

from typing import Any

from inductor.codegen import matrices, panels, windows, winograd
from inductor.ir import MatrixProduct, PanelProduct, WindowProduct, Winograd

_KINDS: dict[type[PanelProduct], Any] = {
    MatrixProduct: matrices,
    PanelProduct: panels,
    WindowProduct: windows,
    Winograd: winograd,
}


def kind_of(step: PanelProduct) -> Any:
    return _KINDS[type(step)]
