"""Boxes of a tensor's elements: a range of positions along each dimension.

    x[:, 2:6]  of 4 rows, 8 columns        (Range(0, 4), Range(2, 4))
    without its columns 3 and 5            (Range(0, 4), Range(2, 2, step 2))

Sizes may be symbols: what depends on their values raises `sizes.Undecided`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fxgraph.sizes import Extent, Undecided, known_le

MOST_PHASES = 4  # of a range that another one with a step divides


@dataclass(frozen=True)
class Range:
    """The positions low, low + step, ..., `count` of them."""

    low: Extent
    count: Extent
    step: int = 1

    @property
    def last(self) -> Extent:
        return self.low + (self.count - 1) * self.step

    @property
    def end(self) -> Extent:
        return self.last + 1


Box = tuple[Range, ...]


def whole(size: Sequence[Extent]) -> Box:
    return tuple(Range(0, n) for n in size)


def slabs(size: Sequence[Extent], dim: int, bounds: Sequence[Extent]) -> tuple[Box, ...]:
    """The boxes between neighbouring bounds along one dimension, but for empty ones."""
    around = whole(size)
    return tuple(
        (*around[:dim], Range(low, high - low), *around[dim + 1 :])
        for low, high in itertools.pairwise(bounds)
        if low != high
    )


def intersection(a: Box, b: Box) -> Box | None:
    """The elements of both, or None."""
    result = []
    for one, other in zip(a, b, strict=True):
        common = _common(one, other)
        if common is None:
            return None
        result.append(common)
    return tuple(result)


def difference(a: Box, b: Box) -> list[Box]:
    """The elements of `a` that are not in `b`, as boxes that have none in common."""
    common = intersection(a, b)
    if common is None:
        return [a]
    return [
        (*common[:d], rest, *a[d + 1 :]) for d in range(len(a)) for rest in _rest(a[d], common[d])
    ]


def refined(a: Sequence[Box], b: Sequence[Box], most: int) -> tuple[Box, ...] | None:
    """The parts that both ways to cut a tensor make of it; None if that are more than `most`, and
    than either has, or if sizes decide."""
    if a == b:
        return tuple(a)
    if len(a) * len(b) > most * most:
        return None
    try:
        common = [box for one in a for other in b if (box := intersection(one, other)) is not None]
    except Undecided:
        return None
    return tuple(common) if len(common) <= max(most, len(a), len(b)) else None


def within(part: Box, outer: Box) -> Box:
    """A part of `outer` as elements of a tensor that consists of `outer` alone."""
    return tuple(_relative(one, other) for one, other in zip(part, outer, strict=True))


def _relative(one: Range, other: Range) -> Range:
    if other.step == 1:
        return Range(one.low - other.low, one.count, one.step)
    if one.count == 1:
        return Range((one.low - other.low) // other.step, 1)
    return Range((one.low - other.low) // other.step, one.count, one.step // other.step)


def _common(a: Range, b: Range) -> Range | None:
    if a == b:
        return a
    if a.step == b.step == 1:
        low, high = _later(a.low, b.low), _earlier(a.end, b.end)
        if known_le(high, low):
            return None
        if not known_le(low, high):
            raise Undecided(f"whether {low} <= {high}")
        return Range(low, high - low)
    a, b = (a, b) if a.step >= b.step else (b, a)
    if not all(isinstance(n, int) for n in (a.low, a.count, b.low, b.count)):
        raise Undecided("steps between bounds that vary")
    if a.step % b.step:
        raise Undecided("steps that do not divide one another")
    if (a.low - b.low) % b.step:
        return None
    step = a.step
    low = max(a.low, a.low + -(-(b.low - a.low) // step) * step)
    count = (min(a.last, b.last) - low) // step + 1  # type: ignore[operator]
    return Range(low, count, step if count > 1 else 1) if count > 0 else None


def _rest(a: Range, part: Range) -> Iterator[Range]:
    """The rest of a range without a part of it."""
    if a == part:
        return
    step = part.step if part.count != 1 else a.step
    before = part.low - a.low if a.step == 1 else (part.low - a.low) // a.step
    if before != 0:
        yield Range(a.low, before, a.step)
    end = part.last + a.step
    if step != a.step:  # phases between the elements of the part, up to its last period
        phases = step // a.step
        if phases > MOST_PHASES:
            raise Undecided("many phases of a step")
        end = min(part.last + step, a.last + a.step)  # type: ignore[type-var]
        for phase in range(1, phases):
            low = part.low + phase * a.step
            count = -(-(end - low) // step)
            if count > 0:
                yield Range(low, count, step if count > 1 else 1)
    after = a.last + a.step - end if a.step == 1 else (a.last + a.step - end) // a.step
    if after != 0:
        yield Range(end, after, a.step)


def _later(a: Extent, b: Extent) -> Extent:
    return _decided(a, b)[1]


def _earlier(a: Extent, b: Extent) -> Extent:
    return _decided(a, b)[0]


def _decided(a: Extent, b: Extent) -> tuple[Extent, Extent]:
    """Both, the smaller one first."""
    if known_le(a, b):
        return a, b
    if known_le(b, a):
        return b, a
    raise Undecided(f"{a} beside {b}")
