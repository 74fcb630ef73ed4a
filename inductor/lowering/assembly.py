"""Tensors assembled of pieces: what is written into slices of a tensor, what is joined (`cat`).

    out = zeros(4, 8)                      whole: zeros
    out[:, :3] = a                         [:, 0:3] a, [:, 3:8] zeros
    out[:, 2:] = b                         [:, 0:2] a, [:, 2:8] b

No element is in two pieces, and only those that are left at the end are computed, each in a loop of
its own that writes straight to its place. Slices of an assembled tensor are assembled of the pieces
that they meet, so that rows or columns which a program copies from the tensor itself (circular
padding) are read where they came from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from fxgraph.sizes import Extent, Undecided, known_le, known_lt
from inductor.boxes import Box, Range, difference, intersection, whole
from inductor.index import Index
from inductor.ir import Indices, Tensor, Value
from inductor.lowering.layouts import narrow
from inductor.lowering.registry import NotLowered
from inductor.ops import ops

MOST_PIECES = 256


@dataclass(frozen=True)
class Piece:
    """The elements of `box`, which is a part of `place`: there lies the whole `source`."""

    box: Box
    place: Box
    source: Tensor

    @classmethod
    def of(cls, place: Box, source: Tensor) -> Piece:
        return cls(place, place, source)

    def load(self, idx: Indices) -> Value:
        pairs = zip(idx, self.place, strict=True)
        return self.source.load(narrow(tuple((i - r.low) // r.step for i, r in pairs), self.size))

    @property
    def size(self) -> Sequence[Extent]:
        return self.source.size

    def moved(self, by: Sequence[Extent]) -> Piece:
        return replace(self, box=_moved(self.box, by), place=_moved(self.place, by))


@dataclass(eq=False)
class Assembled(Tensor):
    """A lazy tensor of `pieces`, which together are all its elements."""

    pieces: tuple[Piece, ...] = ()


def assembled(size: Sequence[Extent], pieces: Sequence[Piece]) -> Assembled:
    """The tensor of these pieces. Raises NotLowered for too many."""
    if len(pieces) > MOST_PIECES:
        raise NotLowered("many pieces")
    sources = {id(piece.source): piece.source for piece in pieces}.values()
    first = next(iter(sources))
    lazy = [t.work for t in sources if t.window is None]
    return Assembled(
        tuple(size),
        first.dtype,
        first.device,
        inner=lambda idx: _load(pieces, idx),
        work=max(lazy, default=0),
        reads=max(1 if t.window is not None else t.reads for t in sources),
        split=tuple(piece.box for piece in pieces) if len(pieces) > 1 else None,
        pieces=tuple(pieces),
    )


def pieces_of(x: Tensor) -> tuple[Piece, ...]:
    """The pieces of a tensor: itself, if it is not lazily assembled."""
    if isinstance(x, Assembled) and x.window is None:
        return x.pieces
    return (Piece.of(whole(x.size), x),)


def overwritten(x: Tensor, place: Box, source: Tensor) -> Assembled:
    """x with the elements of `place` taken from `source`. Raises Undecided."""
    kept = [
        replace(piece, box=rest) for piece in pieces_of(x) for rest in difference(piece.box, place)
    ]
    return assembled(x.size, [*kept, *_placed(place, source)])


def _placed(place: Box, source: Tensor) -> list[Piece]:
    """The source as pieces of a tensor in which it lies at `place`."""
    if source.split is None or any(r.step != 1 for r in place):
        return [Piece.of(place, source)]
    return [piece.moved([r.low for r in place]) for piece in pieces_of(source)]


def joined(size: Sequence[Extent], parts: Sequence[Tensor], d: int) -> Assembled:
    """The parts side by side along a dimension."""
    pieces: list[Piece] = []
    low: Extent = 0
    for part in parts:
        if part.size[d] != 0:
            around = whole(part.size)
            place = (*around[:d], Range(low, part.size[d]), *around[d + 1 :])
            pieces += _placed(place, part)
        low = low + part.size[d]
    return assembled(size, pieces or [Piece.of(whole(size), parts[0])])


def part(x: Assembled, box: Box) -> Assembled:
    """The elements of a box. Raises Undecided."""
    steps = [r.step for r in box]
    size = [r.count for r in box]
    found = []
    for piece in x.pieces:
        common = intersection(piece.box, box)
        if common is None:
            continue
        if any(step != 1 for step in steps):
            raise Undecided("every other element of pieces")
        found.append(replace(piece, box=common).moved([0 - r.low for r in box]))
    if not found:
        raise Undecided("a part without elements")
    return assembled(size, found)


def turned(x: Assembled, sources: Sequence[Tensor], view: Callable[[Box], Box]) -> Assembled:
    """x with dimensions in another order, or of one element more or less: `sources` are those of
    its pieces so, `view` changes a box."""
    pieces = [
        Piece(view(piece.box), view(piece.place), source)
        for piece, source in zip(x.pieces, sources, strict=True)
    ]
    size = [r.count for r in view(whole(x.size))]
    return assembled(size, pieces)


def overlaid(x: Tensor, place: Box, source: Tensor) -> Tensor:
    """x, in memory, with the elements of `place` taken from `source`, by a mask: for steps, and
    places that may be empty."""

    def inner(idx: Indices) -> Value:
        inside = [_inside(i, r) for i, r in zip(idx, place, strict=True)]
        if not all(known is not False for known in inside):
            return x.load(idx)
        dims = [d for d, known in enumerate(inside) if known is None]
        piece = Piece.of(place, source)
        if not dims:
            return piece.load(idx)
        mask = _mask(idx, place, dims)
        return ops.where(mask, ops.masked(mask, lambda: piece.load(idx), 0), x.load(idx))

    return Tensor(x.size, x.dtype, x.device, inner=inner, work=1, reads=2)


def _moved(box: Box, by: Sequence[Extent]) -> Box:
    return tuple(replace(r, low=r.low + n) for r, n in zip(box, by, strict=True))


# --- one element ---------------------------------------------------------------------------------


def _load(pieces: Sequence[Piece], idx: Indices) -> Value:
    """The element of the only piece that may have it, or by masks."""
    possible = []
    for piece in pieces:
        inside = [_inside(i, r) for i, r in zip(idx, piece.box, strict=True)]
        if all(known is True for known in inside):
            return piece.load(idx)
        if all(known is not False for known in inside):
            possible.append((piece, [d for d, known in enumerate(inside) if known is None]))
    piece, dims = possible[-1]
    if len(possible) == 1:
        return piece.load(idx)
    mask = _mask(idx, piece.box, dims)
    result = ops.masked(mask, lambda: piece.load(idx), 0)
    for piece, dims in possible[-2::-1]:
        mask = _mask(idx, piece.box, dims)
        result = ops.where(mask, ops.masked(mask, lambda p=piece: p.load(idx), 0), result)
    return result


def _inside(i: Index, r: Range) -> bool | None:
    """Whether a position is in a range; None if the loop variables decide."""
    low, high = i.bounds()
    if known_lt(high, r.low) or known_lt(r.last, low):
        return False
    if r.step != 1:
        if any(not isinstance(c, int) or c % r.step for c in i.terms.values()):
            return None
        phase = i.const - r.low
        if not isinstance(phase, int):
            return None
        if phase % r.step:
            return False
    return True if known_le(r.low, low) and known_le(high, r.last) else None


def _mask(idx: Indices, box: Box, dims: Sequence[int]) -> Value:
    """Whether the positions along `dims` are those of the box."""
    tests = []
    for d in dims:
        at, r = ops.index_expr(idx[d], torch.int64), box[d]
        low, high = idx[d].bounds()
        if not known_le(r.low, low):
            tests.append(ops.ge(at, ops.constant(r.low, torch.int64)))
        if not known_le(high, r.last):
            tests.append(ops.lt(at, ops.constant(r.end, torch.int64)))
        if r.step != 1:
            phase = ops.index_expr((idx[d] - r.low) % r.step, torch.int64)
            tests.append(ops.eq(phase, ops.constant(0, torch.int64)))
    mask = tests[0]
    for test in tests[1:]:
        mask = ops.logical_and(mask, test)
    return mask


__all__ = ["Assembled", "Piece", "assembled", "joined", "overlaid", "overwritten", "part", "turned"]
