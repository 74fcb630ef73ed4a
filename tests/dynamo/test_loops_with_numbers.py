"""Loops on data that count, or go on under several conditions: loops in the graph whose ints and
floats are tensors inside; values, gradients and effects as in eager.
"""

from __future__ import annotations

import math

import pytest
import torch

import dynamo
from backends.aot_eager import aot_eager
from backends.eager import eager
from backends.inductor import inductor
from tests.dynamo.branch_support import ARGUMENTS, SEEN, Programs, check
from tests.dynamo.dynamic_support import Counting

# program -> 1 where all its loops are in the graph, None where it breaks
program = Programs()


# -- numbers --------------------------------------------------------------------------------------
@program(1)
def counts(x, w):
    y, n = x.abs() + 1, 0
    while y.sum() < 40:
        y, n = y * 2, n + 1
    return y + w, n


@program(1)
def counts_down_by_two(x, w):
    y, n = x.abs() + 1, -3
    while y.sum() < 40:
        y = y * 2
        n -= 2
    return y * w, n, n * 2, n / 4, -n


@program(1)
def halves_a_float(x, w):
    t = 1.0
    while (w * t).norm() > 0.2:
        t *= 0.5
    return x * t, t


@program(1)
def uses_the_count(x, w):
    y, n, rate = x * 1, 1, 0.1
    while y.sum() < 30:
        y = y + w.abs() * n + rate
        n += 1
        rate = rate * 1.5 + 0.01
    return y, n, rate


@program(1)
def two_numbers_in_turn(x, w):
    a, b = 1, 2
    y = x.abs() + 1
    while y.sum() < 90:
        y = y * 2
        a, b = b + 1, a + 1
    return y, a, b


@program(1)
def number_beside_a_constant(x, w):
    n, flag, scale = 0, True, 2
    y = x.abs() + 1
    while y.sum() < 40:
        y = y * scale
        n += 1
        flag, scale = True, 2
    return y, n, flag, scale


@program(1)
def nobody_reads_the_count(x, w):
    y, n = x.abs() + 1, 0
    while y.sum() < 40:
        y, n = y * 2, n + 1
    return y * w


@program(1)
def count_decides_behind(x, w):
    y, n = x.abs() + 1, 0
    while y.sum() < 40:
        y, n = y * 2, n + 1
    if n > 3:
        y = y + 1
    return y * n


@program(1)
def begins_again(x, w):
    y, n = x.abs() + 1, 2
    while y.sum() < 40:
        y, n = y * 1.2 + n, 7
    return y, n


@program(None)
def begins_again_far_out(x, w):
    y, n = x.abs() + 1, 2
    while y.sum() < 40:
        y, n = y * 2, (1 << 63) - 1
    return y, n + 1


@program(None)
def grows_by_products(x, w):
    y, n = x.abs() + 1, 3
    while y.sum() < 40:
        y, n = y * 1.5, n * n
    return y, n


@program(None)
def becomes_a_float(x, w):
    y, n = x.abs() + 1, 8
    while y.sum() < 40:
        y, n = y * 2, n / 2
    return y, n


@program(None)
def names_a_turn(x, w):
    y, n = x.abs() + 1, 0
    while y.sum() < 40:
        y, n = y * 2, n + 1
        SEEN.append(f"turn {n}")
    return y


@program(None)
def divides_by_the_count(x, w):
    y, n = x.abs() + 1, 3
    while y.sum() < 40:
        y = y * 2 + 1 / n
        n -= 1
        if n == 0:
            n = 5
    return y


# -- conditions of several parts ------------------------------------------------------------------
@program(1)
def at_most(x, w, limit=3):
    y, n = x.abs() + 1, 0
    while y.sum() < 40 and n < limit:
        y, n = y * 1.5, n + 1
    return y * w, n


@program(1)
def at_most_first(x, w):
    y, n = x.abs() + 1, 0
    while n < 4 and y.sum() < 40:
        y, n = y * 1.5, n + 1
    return y, n


@program(1)
def three_parts(x, w):
    y, n = x.abs() + 1, 0
    while y.sum() < 40 and n <= 5 and not (y > 9).any():
        y, n = y * 1.5, n + 1
    return y, n


@program(1)
def until_one_of_two(x, w):
    y, n = x * 1, 0
    while True:
        y = y + w.abs()
        n += 1
        if y.sum() > 20 or n >= 4:
            break
    return y, n


@program(1)
def of_two_tensors(x, w):
    y, z = x.abs() + 1, w.abs()
    while y.sum() < 40 and z.max() < 9:
        y, z = y * 1.5, z * 2
    return y - z


@program(1)
def search_along_a_line(x, w):
    t, g = 1.0, 4 * x + 1
    with torch.no_grad():
        while (
            x - t * g
        ).square().sum() > x.square().sum() - 0.5 * t * g.square().sum() and t > 1e-3:
            t *= 0.5
    return x - t * g, t


@program(None)
def part_that_may_raise(x, w):
    y, n = x.abs() + 1, 0
    while n < 4 and y[n] < 40 and w.sum() < y.sum():
        y, n = y * 2, n + 1
    return y, n


@program(None)
def part_with_an_effect(x, w):
    def noted(value):
        SEEN.append("asked")
        return value

    y = x.abs() + 1
    while y.sum() < 40 and noted(y.max() < 30):
        y = y * 2
    return y


@program(None)
def part_that_writes(x, w):
    y, z = x.detach().abs() + 1, w.detach() * 0
    while y.sum() < 40 and z.add_(1).max() < 3:
        y = y * 2
    return y, z


def part_that_draws(x, w):
    y = x.abs() + 1
    while y.sum() < 40 and torch.rand(()) < 2:
        y = y * 2
    return y, torch.rand(2)


@program(None)
def work_between_the_ends(x, w):
    y, n = x.abs() + 1, 0
    while True:
        y = y * 1.5
        if not y.sum() <= 40:
            break
        n += 1
        if y.max() > 9:
            break
    return y, n


@program(None)
def ways_out_that_differ(x, w):
    y, n = x.abs() + 1, 0
    while y.sum() < 40:
        y = y * 1.5
        if n == 3:
            n = 99
            break
        n += 1
    return y, n


@program(None)
def otherwise(x, w):
    y, n = x.abs() + 1, 0
    while y.sum() < 40 and n < 3:
        y, n = y * 1.5, n + 1
        if y.max() > 20:
            break
    else:
        n = -1
    return y, n


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(3)


@pytest.mark.parametrize("kind", ARGUMENTS)
@pytest.mark.parametrize("function", program, ids=lambda function: function.__name__)
def test_program(function, kind):
    check(function, kind, eager, program[function])


COMPILED = [
    counts, counts_down_by_two, halves_a_float, uses_the_count, two_numbers_in_turn,
    count_decides_behind, at_most, three_parts, until_one_of_two, search_along_a_line,
]  # fmt: skip


@pytest.mark.parametrize("backend", [aot_eager, inductor])
@pytest.mark.parametrize("function", COMPILED, ids=lambda function: function.__name__)
def test_compiled(function, backend):
    check(function, "grads", backend, 1)


def test_numbers_drawn_in_conditions():
    """Python draws none where the part before is false."""
    compiled = dynamo.compile(part_that_draws, backend=eager)
    for scale in (1.0, 0.0, 50.0):
        x = torch.full((4,), scale)
        torch.manual_seed(1)
        found = compiled(x, x)
        torch.manual_seed(1)
        wanted = part_that_draws(x, x)
        assert all(map(torch.equal, found, wanted))


@pytest.mark.parametrize("backend", [eager, aot_eager])
def test_counts_that_go_on_from_call_to_call(backend):
    """The count begins with another number in each call, beyond 32 bits too."""

    def run(x, n):
        while x.sum() < 40:
            x, n = x * 2, n + 3
        return x, n, type(n)

    compiled = dynamo.compile(run, backend=backend)
    for n in (0, 5, 17, 1 << 40, -(1 << 61), 2.5, 7.25, (1 << 62) - 1, (1 << 63) - 1):
        assert run(torch.ones(3), n)[1:] == compiled(torch.ones(3), n)[1:], n


def test_a_large_number_in_the_place_of_a_small_one():
    """An int that may be multiplied where it is small is not, where another one follows it."""

    def run(x, b):
        a, c = 1, 0
        while x.sum() < 40:
            c = a * 65536
            a, b = b + 1, a + 1
            x = x * 2
        return x, a, b, c

    compiled = dynamo.compile(run, backend=eager)
    for b in (1, 5, 1 << 60, (1 << 60) + 1, 1 << 50):
        assert run(torch.ones(3), b)[1:] == compiled(torch.ones(3), b)[1:], b


@pytest.mark.parametrize("backend", [eager, aot_eager, inductor])
def test_numbers_that_vary_from_call_to_call(backend):
    """Limits and steps are arguments: one graph more for each of them that turns out to vary."""

    def run(x, bound, limit, step):
        n, total = 0, 0.0
        while bound < x.norm() and n < limit:
            x, total = x * 0.5 + step, total + step
            n += 1
        return x, n, total

    counting = Counting(backend)
    compiled = dynamo.compile(run, backend=counting)
    for bound, limit, step in [  # the last ones are compiled for themselves
        (1.0, 4, 0.1), (0.5, 4, 0.1), (0.25, 3, 0.1), (0.3, 9, 0.0625),
        (1e-3, 12, 0.0), (0.1, 5, -0.125), (math.nan, 5, 0.1), (-1.0, 7, math.inf),
    ]:  # fmt: skip
        for scale in (1.0, 7.0, 0.01):
            x = torch.full((3,), scale)
            found, wanted = compiled(x, bound, limit, step), run(x, bound, limit, step)
            torch.testing.assert_close(found[0], wanted[0], equal_nan=True)
            assert repr(found[1:]) == repr(wanted[1:])
        if step == 0.0625:
            assert len(counting.graphs) <= 4
