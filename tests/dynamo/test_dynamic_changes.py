"""Sizes, ranks and numbers that change from call to call: eager's results, and the compiles."""

from __future__ import annotations

import bisect
import enum
import math

import pytest
import torch
from torch import nn

import dynamo
from backends.aot_eager import aot_eager
from backends.inductor import inductor
from tests.dynamo.dynamic_support import Counting, check, same


def ones(*size):
    return torch.arange(math.prod(size), dtype=torch.float32).reshape(size) + 1


def pair(first, second=None):
    return ones(first), ones(second or first)


def batches(*lengths):
    return [([ones(n, 2) for n in row],) for row in lengths]


def sized(*sizes):
    return [(ones(*size),) for size in sizes]


def numbers(*values):
    return [(ones(3), *(v if isinstance(v, tuple) else (v,))) for v in values]


class Stage(enum.IntEnum):
    EARLY, MIDDLE, LATE = 0, 2, 5


class Odd(enum.IntEnum):
    ONE = 1

    def __eq__(self, other):
        return True

    __hash__ = enum.IntEnum.__hash__


COMPARED = ((3, 4), (5, 4), (6, 9), (7, 1), (2, 2), (4, 8))


# name: (function, calls, compiles)
CHANGES = {
    # -- sizes that are equal at first
    "square_then_oblong": (
        lambda x: x.sum(0) * x.shape[0] + x.shape[1],
        sized((4, 4), (6, 6), (8, 6), (9, 7)),
        2,
    ),
    "two_of_one_size_then_not": (
        lambda x, y: x.sum() * x.shape[0] + y.sum() * y.shape[0],
        [pair(4), pair(6), pair(8, 6), pair(8, 9)],
        2,
    ),
    "squares_multiplied": (
        lambda x, y: x @ y,
        [(ones(a, b), ones(b, c)) for a, b, c in ((4, 4, 4), (6, 6, 6), (3, 6, 5), (5, 7, 2))],
        2,
    ),
    "images": (
        lambda x, n: nn.functional.interpolate(x, size=(n, n), mode="bilinear"),
        [(ones(1, 2, h, w), n) for h, w, n in ((4, 4, 8), (6, 6, 12), (4, 6, 10), (8, 5, 9))],
        2,
    ),
    "always_equal": (lambda x, y: x + y, [pair(n) for n in (4, 6, 1, 8)], 2),
    # -- ranks
    "ranks": (
        lambda x: x.mean(-1) * x.ndim,
        sized((4, 5), (2, 4, 5), (4, 6), (3, 4, 5), (3, 4, 6), (2, 7)),
        3,
    ),
    "ranks_in_turn": (
        lambda x: torch.relu(x) + 1,
        sized((4,), (4, 5), (6,), (6, 7), (3, 4, 5), (6, 4, 2)),
        4,
    ),
    # -- types of numbers
    "int_or_float": (lambda x, s: x * s, numbers(1, 2.0, 3, 4.5, 5), 3),
    # -- powers and shifts
    "power_of_two": (lambda x, n: x * 2**n, numbers(2, 3, 4, 30, 0), 2),
    "power_of_eight": (lambda x, n: x + 8**n, numbers(2, 3, 4), 2),
    "power_of_size": (lambda x: x * 2 ** x.shape[0], sized((3,), (4,), (5,)), 2),
    "power_of_minus_n": (lambda x, n: x * 2**-n, numbers(2, 3, 4), 2),
    "sign_of_the_power": (lambda x, n: x * 2**n, numbers(2, 3, -4, -1, 5), 3),
    "large_powers": (lambda x, n: (x + 1, 2**n), numbers(2, 3, 70, 80, 4), 4),
    "power_of_a_negative": (lambda x, n: x * (-2) ** n, numbers(2, 3, 4), 2),
    "power_of_three": (lambda x, n: x * 3**n, numbers(2, 3, 4, 0, 30), 2),
    "power_of_three_beyond_64_bits": (lambda x, n: (x, 3**n), numbers(2, 3, 50, 4, 60), None),
    "power_of_a_negative_three": (lambda x, n: x * (-3) ** n, numbers(2, 3, 4, 5), 2),
    "negative_power_of_three": (lambda x, n: x * 3**n, numbers(2, 3, -1, -2), None),
    "power_of_itself": (lambda x, n: x * n**n, numbers(2, 3, 4, 1, 0), 2),
    "power_of_another": (
        lambda x, m, n: x * m**n,
        numbers((2, 3), (3, 4), (-5, 2), (7, 0), (0, 0), (15, 15)),
        2,
    ),
    "large_power_of_another": (
        lambda x, m, n: (x, m**n),
        numbers((2, 3), (3, 4), (20, 20), (2, 70), (3, 1)),
        None,
    ),
    "size_of_a_power": (lambda x, n: x.new_ones(3**n).sum() * x, numbers(2, 3, 4, 1), 2),
    "rows_to_a_power": (lambda x, n: x[: n**n], numbers(2, 3, 1), 3),
    "shifts": (lambda x, n: x * (1 << n) + (1000 >> n), numbers(2, 3, 4, 0), 2),
    "masks": (lambda x, n: x * (n & 6) if n & 6 != 2 else x[: n | 2], numbers(2, 3, 4, 8, 2), 3),
    "angles": (lambda x, n: x * math.radians(n) + math.degrees(n / 3), numbers(2, 3, 4, 8, 2), 2),
    # -- the least and the largest of floats
    "a_bound_that_is_a_setting": (
        lambda x, n: torch.nn.functional.leaky_relu(torch.dropout(x, min(n / 10, 0.3), False)),
        numbers(2, 3, 4, 8, 9),
        3,
    ),
    "at_most_one": (lambda x: x * min(1.0, x.shape[0] / 4), sized((2,), (3,), (5,), (8,)), 2),
    "at_least": (lambda x, n: x * max(0.1, 1 - n / 10), numbers(2, 3, 5, 9, 12), 2),
    "warm_up": (
        lambda x, step, total: x * min(1.0, (step + 1) / total),
        numbers((0, 3), (1, 3), (2, 3), (3, 3), (9, 3)),
        2,
    ),
    "of_two_sizes": (
        lambda x, y: x.sum() * max(x.shape[0] / 2, y.shape[0] / 3),
        [pair(2, 3), pair(4, 5), pair(4, 9), pair(9, 5)],
        2,
    ),
    "of_floats": (
        lambda x, a, b: (x * min(a, b), max(a, b)),
        numbers((0.5, 0.25), (0.1, 0.2), (0.7, 0.3)),
        2,
    ),
    # -- sizes of views by floats
    "a_float_of_the_rows": (
        lambda x, s: x[: int(s * x.shape[0])],
        [(ones(10), 0.5), (ones(10), 0.3), (ones(12), 0.7)],
        3,
    ),
    "a_float_of_a_result": (
        lambda x, s: ((y := x * s), y[: int(s * x.shape[0])]),
        [(ones(10), 0.5), (ones(10), 0.3), (ones(12), 0.7)],
        3,
    ),
    "a_float_of_written_rows": (
        lambda x, s: x.mul_(2)[: int(s * x.shape[0])],
        [(ones(10), 0.5), (ones(10), 0.3), (ones(12), 0.7)],
        3,
    ),
    # -- operators that read a size in C++
    "pairs": (lambda x: torch.combinations(x) * 2, sized((4,), (5,), (6,), (1,), (3,)), 2),
    "triples_with_repetitions": (
        lambda x: torch.combinations(x, 3, with_replacement=True) * 2,
        sized((4,), (5,), (6,), (1,), (3,)),
        2,
    ),
    "combinations_of_none": (lambda x: torch.combinations(x, r=0), sized((4,), (5,), (6,)), 2),
    # -- members
    "in_a_tuple": (
        lambda x, n: x + 1 if n in (3, 5) else x * 2,
        numbers(2, 4, 3, 7, 5, 8),
        3,
    ),
    "in_a_set": (
        lambda x: x + 1 if x.shape[0] not in {3, 5} else x * 2,
        sized((2,), (4,), (3,), (7,), (5,), (8,)),
        3,
    ),
    "in_a_list": (
        lambda x, n: x * (2 if n in [1, 4, 8] else 3),
        numbers(2, 4, 3, 8, 5, 1),
        3,
    ),
    "in_a_range": (
        lambda x, n: x + 1 if n in range(3, 6) else x * 2,
        numbers(2, 4, 3, 7, 5, 8),
        3,
    ),
    "membership_as_a_number": (lambda x, n: x * (n in (3, 5)), numbers(2, 4, 3, 5, 7), 2),
    # -- places
    "milestones": (
        lambda x, n: x * 0.5 ** bisect.bisect([1, 3, 3, 8], n),
        numbers(2, 4, 3, 8, 9, 0),
        2,
    ),
    "left_of_equals": (
        lambda x, n: x * bisect.bisect_left((1, 3, 3, 8), n),
        numbers(2, 4, 3, 8, 9, 0),
        2,
    ),
    "place_of_a_float": (
        lambda x, t: x * bisect.bisect_right((0.5, 1.0, 2.0), t),
        numbers(0.25, 0.5, 1.5, 2.0, 7.0),
        2,
    ),
    "place_of_no_number": (
        lambda x, t: x * bisect.bisect((0.5, 1.0), float(t)) + bisect.bisect_left([0.5], float(t)),
        [(ones(3), t) for t in ("0.25", "0.5", "1.5", "nan", "inf", "2.0")],
        None,
    ),
    "place_of_a_float_at_the_end": (
        lambda x, t: x * bisect.bisect((0.5, 1.0, 2.0), t) + bisect.bisect_left([0.5], t),
        numbers(0.25, 0.5, 1.5, math.inf, -math.inf, 2.0),
        None,
    ),
    "place_among_unsorted": (
        lambda x, n: x * bisect.bisect([1, 5, 3, 8], n),
        numbers(2, 4, 3, 8, 9, 0),
        None,
    ),
    "place_as_an_index": (
        lambda x, n: x * [1.0, 0.5, 0.25][bisect.bisect([3, 6], n)],
        numbers(2, 4, 3, 7),
        3,
    ),
    # -- functions that expressions have no form for
    "common_divisor": (lambda x, a, b: x * math.gcd(a, b), numbers((6, 4), (9, 3), (10, 25)), 2),
    "rows_of_a_square": (
        lambda x: x.reshape(math.isqrt(x.numel()), -1) * 2,
        sized((9,), (16,), (25,), (1,), (49,), (24,)),
        None,
    ),
    "padded_to_a_power_of_two": (
        lambda x: nn.functional.pad(x, (0, 2 ** (x.shape[0] - 1).bit_length() - x.shape[0])) * 2,
        sized((3,), (5,), (7,), (8,), (9,), (17,)),
        2,
    ),
    "pairs_as_a_size": (
        lambda x: x.new_ones(math.comb(x.shape[0], 2)).sum() * x,
        sized((3,), (5,), (7,), (2,), (1,)),
        2,
    ),
    "modular_power": (lambda x, n: x * pow(n, 3, 7), numbers(2, 3, 4, 5), 2),
    "digits": (lambda x, n: x * round(n, -1), numbers(12, 25, 37, 7), 2),
    "exponent": (lambda x, n: x * math.ldexp(1.5, -n), numbers(2, 3, 4, 1), 2),
    "parts": (lambda x, a: (x * math.frexp(a)[0], math.modf(a)), numbers(2.5, 1.75, 4.125), 2),
    "a_function_of_functions": (
        lambda x, n: x * math.isqrt(math.factorial(n) + math.gcd(n, 4)),
        numbers(3, 4, 6, 8),
        2,
    ),
    "a_branch_on_a_divisor": (
        lambda x, n: x + 1 if math.gcd(n, 6) == 1 else x * 2,
        numbers(4, 6, 5, 9, 7, 8),
        3,
    ),
    "too_large_for_64_bits": (lambda x, n: (x, math.factorial(n)), numbers(4, 6, 30, 31, 5), None),
    "whole_or_not": (
        lambda x, a: (x + 1, (a / 2).is_integer()),
        numbers(1.0, 2.0, 3.0, 4.0, 5.0),
        2,
    ),
    "parts_of_an_int": (
        lambda x, n: x * n.real + n.imag * n.numerator + n.conjugate() / n.denominator,
        numbers(2, 3, 4),
        2,
    ),
    "class_of_a_number": (
        lambda x, n: x * n if n.__class__ is int else (x + n, n.__class__.__name__),
        numbers(2, 3, 4, 0.5, Stage.LATE, True),
        5,
    ),
    "order_of_a_norm": (
        lambda x, p: x.norm(p) + torch.nn.functional.normalize(x + 1, p=p, dim=0),
        numbers(1.5, 2.25, 3.5, math.inf, 0.5, -math.inf),
        4,
    ),
    # -- members of an IntEnum
    "sum_with_a_member": (lambda x, n: x * (n + Stage.MIDDLE), numbers(2, 3, 4, 7), 2),
    "stage_of_a_member": (
        lambda x, n: x + 1 if n == Stage.MIDDLE else x * (Stage.LATE > n) * 2.0,
        numbers(1, 2, 5, 0, 4),
        3,
    ),
    "a_member_of_its_own_order": (
        lambda x, n: (x + 1, n == Odd.ONE, Odd.ONE == n, n < Odd.ONE),
        numbers(1, 2, 5, 0, 4),
        None,
    ),
    # -- iteration
    "enumerate_from": (
        lambda x, n: sum(row * i for i, row in enumerate(x, n)),
        [(ones(3, 2), n) for n in (0, 1, 2, 3)],
        2,
    ),
    "enumerate_left_over": (
        lambda x, n: (next(rows := enumerate([x, x + 1], n))[1] * 2, list(rows)[0][0]),
        numbers(2, 3, 4),
        2,
    ),
    # -- lists of sequences
    "padded_sequences": (
        lambda xs: nn.utils.rnn.pad_sequence(xs, batch_first=True, padding_value=-1.0) * 2,
        batches((3, 5), (4, 2), (6, 7), (7, 3), (7, 7)),
        2,
    ),
    "padded_on_the_left": (
        lambda xs: nn.utils.rnn.pad_sequence(xs, padding_side="left"),
        batches((3, 5), (4, 2), (6, 7), (7, 3)),
        2,
    ),
    # -- bools as numbers
    "times_a_comparison": (lambda x, a, b: x * (a < b), numbers(*COMPARED), 3),
    "comparisons_in_arithmetic": (
        lambda x, a, b: (x + (a < b)) / ((a == b) + 1.5) + (x > (a > b)) - (a >= b) ** x,
        numbers(*COMPARED),
        3,
    ),
    "a_comparison_and_tensors_of_ints": (
        lambda x, a, b: (
            x.long() * (a < b) + (a == b),
            x.to(torch.uint8) * (a > b),
            x.int() & (a < b),
        ),
        numbers(*COMPARED),
        3,
    ),
    "a_comparison_and_tensors_of_bools": (
        lambda x, a, b: ((x > 1) * (a < b), (x > 1) + (a < b), (x > 1) | (a < b)),
        numbers(*COMPARED),
        None,
    ),
    "a_comparison_written": (
        lambda x, a, b: (x * 1).mul_(a < b).add_(a > b),
        numbers(*COMPARED),
        None,
    ),
    "a_comparison_of_sizes": (
        lambda x: x * (x.shape[0] > 3) + (x.shape[0] % 2 == 0),
        sized((2, 3), (5, 3), (4, 3), (3, 3), (8, 3)),
        2,
    ),
    "a_comparison_of_floats": (
        lambda x, a, b: x * (a < b) + (a == b),
        numbers((0.5, 1.5), (2.5, 1.5), (3.5, 3.5), (1.25, 7.5), (9.5, 0.25)),
        3,
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes(name):
    function, calls, compiles = CHANGES[name]
    check(function, calls, compiles)


BY_INDUCTOR = [
    *("square_then_oblong", "ranks", "warm_up", "shifts", "in_a_range"),
    *("power_of_three", "power_of_another", "power_of_itself", "size_of_a_power", "milestones"),
    *("rows_of_a_square", "padded_to_a_power_of_two", "pairs_as_a_size", "exponent", "parts"),
    *("power_of_a_negative_three", "rows_to_a_power", "pairs"),
    *("a_float_of_the_rows", "a_float_of_a_result", "a_float_of_written_rows"),
    *("comparisons_in_arithmetic", "a_comparison_and_tensors_of_ints", "a_comparison_of_sizes"),
]


@pytest.mark.parametrize("name", BY_INDUCTOR)
def test_changes_by_inductor(name):
    function, calls, compiles = CHANGES[name]
    check(function, calls, compiles, backend=inductor)


@pytest.mark.parametrize("find", [bisect.bisect, bisect.bisect_left])
def test_the_place_of_a_float_that_is_no_number(find):
    def place(x, t):
        return x * find((0.5, 1.0, 2.0), t)

    call = dynamo.compile(place, backend=aot_eager)
    for t in (0.25, 0.5, math.nan, 1.5, math.nan, 7.0):
        assert torch.equal(call(ones(3), t), place(ones(3), t))


def test_functions_that_raise():
    backend = Counting()

    def root(x, n):
        try:
            return x * math.isqrt(n)
        except ValueError as error:
            return str(error)

    call = dynamo.compile(root, backend=backend)
    for n in (4, 9, 17, -2, 5, -3):
        same(call(ones(3), n), root(ones(3), n))
    assert len(backend.graphs) == 2


def test_an_attribute_that_the_frame_changes():
    class Steps:
        def __init__(self):
            self.n = 4

    def step(x, steps):
        before = math.isqrt(steps.n)
        y = x * before
        steps.n += 7
        dynamo.graph_break()
        return y + math.isqrt(steps.n), before

    backend, mine, theirs = Counting(), Steps(), Steps()
    call = dynamo.compile(step, backend=backend)
    for _ in range(5):
        same(call(ones(3), mine), step(ones(3), theirs))
    assert len(backend.graphs) <= 4


def test_a_float_has_no_numerator():
    def f(x, a):
        return x * a.numerator

    call = dynamo.compile(f, backend="eager")
    for a in (0.5, 0.25, 0.75):
        with pytest.raises(AttributeError, match="numerator"):
            call(ones(3), a)


def test_no_bool_is_subtracted():
    def f(x, a):
        return x - (a > 3)

    call = dynamo.compile(f, backend="eager")
    for a in (2, 4, 3, 7):
        for function in (f, call):
            with pytest.raises(RuntimeError, match="Subtraction"):
                function(ones(3), a)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_writes_of_a_shape_that_change_nothing(backend):
    def f(x, y):
        x.squeeze_()
        return x * y

    compiled = dynamo.compile(f, backend=backend)
    for size in ((3, 5), (3, 6), (3, 7), (4, 8)):
        expected, given = ones(*size), ones(*size)
        assert torch.equal(compiled(given, 2.0), f(expected, 2.0))
        assert given.shape == expected.shape and given.stride() == expected.stride()
        assert torch.equal(given, expected) and given._version == expected._version
