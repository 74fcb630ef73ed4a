"""Bounds of results hold for all operands within theirs, and are the tightest if that can be."""

from __future__ import annotations

import itertools
import operator

import pytest

from fxgraph import intervals

ENDS = [None, -3, -1, 0, 1, 2, 5]
INTERVALS = [(a, b) for a in ENDS for b in ENDS if a is None or b is None or a <= b]


def members(interval, reach=12):
    low, high = interval
    return range(-reach if low is None else low, (reach if high is None else high) + 1)


def contains(interval, value):
    low, high = interval
    return (low is None or low <= value) and (high is None or value <= high)


@pytest.mark.parametrize(
    ("rule", "function", "tight"),
    [
        (intervals.added, operator.add, True),
        (intervals.multiplied, operator.mul, True),
        (intervals.largest, max, True),
        (intervals.smallest, min, True),
        (intervals.floor_divided, operator.floordiv, True),
        (intervals.modulo, operator.mod, False),
    ],
)
def test_two_operands(rule, function, tight):
    divides = function in (operator.floordiv, operator.mod)
    for one, two in itertools.product(INTERVALS, INTERVALS):
        found = rule(one, two)
        if divides and not (two[0] is not None and two[0] > 0):
            assert found == intervals.ANY
            continue
        values = [function(a, b) for a in members(one) for b in members(two)]
        assert all(contains(found, value) for value in values), (one, two, found)
        if tight and None not in (*one, *two):
            assert found == (min(values), max(values)), (one, two)
        for end, far in zip(found, (min(values), max(values)), strict=True):
            # An end that there is beyond all reach, and none where values go on.
            assert not tight or end is None or end == far, (one, two, found)


def test_powers():
    for one, power in itertools.product(INTERVALS, range(4)):
        found = intervals.raised(one, power)
        assert all(contains(found, value**power) for value in members(one)), (one, power)
    assert intervals.raised((2, 3), -1) == intervals.ANY


def test_of_one_or_of_both():
    for one, two in itertools.product(INTERVALS, INTERVALS):
        for value in range(-6, 7):
            inside = contains(one, value), contains(two, value)
            assert contains(intervals.either(one, two), value) or not any(inside)
            assert contains(intervals.both(one, two), value) == all(inside)


def test_scaled():
    for one, factor in itertools.product(INTERVALS, range(-3, 4)):
        if factor:
            assert intervals.scaled(one, factor) == intervals.multiplied(one, (factor, factor))
