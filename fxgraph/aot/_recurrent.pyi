"""Kernels of the operators of recurrent.py, which loading registers (csrc/recurrent/)."""

def width(kind: int, wide: bool, /) -> int:
    """Columns of a block of packed weights, for layers of a kind: of float64 if `wide`."""

def packs(time: int, batch: int, bytes: int, /) -> bool:
    """Whether the steps of a layer read its w_hh, of so many bytes, packed."""
