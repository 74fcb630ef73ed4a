"""Bounds of integers: the bounds of a result from those of its operands.

Both ends belong to an interval; None is no bound on that side.
"""

from __future__ import annotations

from collections.abc import Callable

Bounds = tuple[int | None, int | None]
ANY: Bounds = (None, None)


def added(one: Bounds, two: Bounds) -> Bounds:
    (a, b), (c, d) = one, two
    return None if a is None or c is None else a + c, None if b is None or d is None else b + d


def multiplied(one: Bounds, two: Bounds) -> Bounds:
    (a, b), (c, d) = one, two
    if a is not None and c is not None and a >= 0 and c >= 0:  # nearly always
        return a * c, 0 if b == 0 or d == 0 else None if b is None or d is None else b * d
    low = _least_product(one, two)
    high = _least_product(one, (None if d is None else -d, None if c is None else -c))
    return low, None if high is None else -high


def _least_product(one: Bounds, two: Bounds) -> int | None:
    corners = []
    for i, x in enumerate(one):
        for k, y in enumerate(two):
            if x == 0 or y == 0:
                corners.append(0)
            elif x is not None and y is not None:
                corners.append(x * y)
            else:  # an end that is none is infinite, of the side that it stands on
                signs = (x or 2 * i - 1) * (y or 2 * k - 1)
                if signs < 0:
                    return None
    return min(corners, default=None)


def scaled(one: Bounds, factor: int) -> Bounds:
    low, high = one if factor >= 0 else (one[1], one[0])
    return None if low is None else low * factor, None if high is None else high * factor


def raised(base: Bounds, power: int) -> Bounds:
    low, high = base
    if power < 0:
        return ANY
    if low is not None and low >= 0:
        return low**power, None if high is None else high**power
    return (0, None) if power % 2 == 0 else ANY


def floor_divided(one: Bounds, by: Bounds) -> Bounds:
    """Of a // b, where b is known to be positive; else ANY."""
    (low, high), (least, most) = one, by
    if least is None or least <= 0:
        return ANY
    # Dividing by ever more ends at 0, or at -1.
    lows = low is not None and (low // least, low // most if most is not None else -(low < 0))
    highs = high is not None and (high // least, high // most if most is not None else -(high < 0))
    return min(lows) if lows else None, max(highs) if highs else None


def modulo(one: Bounds, by: Bounds) -> Bounds:
    """Of a % b, where b is known to be positive; else ANY."""
    (low, high), (least, most) = one, by
    if least is None or least <= 0:
        return ANY
    limit = None if most is None else most - 1
    if low is not None and low >= 0 and high is not None:
        if high < least:
            return low, high
        limit = high if limit is None else min(limit, high)
    return 0, limit


def largest(one: Bounds, two: Bounds) -> Bounds:
    (a, b), (c, d) = one, two
    return _known(max, a, c), None if b is None or d is None else max(b, d)


def smallest(one: Bounds, two: Bounds) -> Bounds:
    (a, b), (c, d) = one, two
    return None if a is None or c is None else min(a, c), _known(min, b, d)


def _known(choose: Callable[[int, int], int], a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else choose(a, b)


def of_bits(sign: str, one: Bounds, two: Bounds) -> Bounds:
    """Of a & b, a | b, a ^ b, a << b, a >> b or a ** b."""
    (low, high), (least, _) = one, two
    if sign == "&":  # of a number that is not negative, some bits
        tops = [top for bottom, top in (one, two) if bottom is not None and bottom >= 0]
        known = [top for top in tops if top is not None]
        return (0, min(known, default=None)) if tops else ANY
    if low is None or low < 0 or least is None or least < 0:
        return ANY
    return 0, high if sign == ">>" else None


def either(one: Bounds, two: Bounds) -> Bounds:
    """Of a number that lies in one of them."""
    return smallest(one, two)[0], largest(one, two)[1]


def both(one: Bounds, two: Bounds) -> Bounds:
    """Of a number that lies in both."""
    return _known(max, one[0], two[0]), _known(min, one[1], two[1])
