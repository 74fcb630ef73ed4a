"""Branches on the values of numpy's arrays, whose sides leave arrays and numpy's scalars."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import dynamo
from backends.registry import lookup_backend
from tests.dynamo.dynamic_support import Counting


def scaled(a, b):
    m, n = np.linalg.norm(a), np.linalg.norm(b)
    if m > n:
        unit, size = a / m, m
    else:
        unit, size = b / n, n
    return unit * size, size, unit


def one_side(a, b):
    a = a + 1
    if a.sum() > b.sum():
        a = a * 2
    return a - b, a


def scalars(a, b):
    if a.sum() > b.sum():
        chosen = a.sum()
    else:
        chosen = b.max()
    return chosen * 2, chosen


def operands(a, b):
    if a.sum() > b.sum():
        chosen = a
    else:
        chosen = b
    chosen[0] = 7
    return chosen is a, chosen is b


def views(a, b):
    doubled = a * 2
    if a.sum() > b.sum():
        chosen = doubled[1:]
    else:
        chosen = (b * 3)[1:]
    chosen[0] = 7
    return chosen, doubled


def views_of_operands(a, b):
    if a.sum() > b.sum():
        chosen = a[1:]
    else:
        chosen = b[1:] * 1
    chosen[0] = 7
    return chosen


def number_or_scalar(a, b):
    if a.sum() > b.sum():
        chosen = a.mean()
    else:
        chosen = 1.5
    return chosen * b, chosen


def scalar_or_array(a, b):
    if a.sum() > b.sum():
        chosen = a.max()
    else:
        chosen = np.asarray(b.max())
    return chosen, chosen * b


def dtypes(a, b):
    if a.sum() > b.sum():
        chosen = a.astype(np.float32)
    else:
        chosen = b * 2
    return chosen


# program -> whether it is one graph for both sides
PROGRAMS = {scaled: True, one_side: True, scalars: True}
PROGRAMS |= dict.fromkeys([operands, views, views_of_operands, number_or_scalar], False)
PROGRAMS |= dict.fromkeys([scalar_or_array, dtypes], False)


def described(value):
    if isinstance(value, tuple):
        return [described(item) for item in value]
    return type(value), getattr(value, "dtype", None), repr(value)


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_sides_leave_arrays(program, backend):
    counting = Counting(lookup_backend(backend))
    captured = dynamo.compile(program, backend=counting)
    numbers = np.array([1.0, 2.0, 4.0, 0.5])
    for given in ((numbers, numbers - 1), (numbers - 1, numbers), (numbers, numbers - 2)):
        for_eager, for_captured = copy.deepcopy(given), copy.deepcopy(given)
        expected = described(program(*for_eager))
        assert described(captured(*for_captured)) == expected
        assert described(for_captured) == described(for_eager)
    assert (len(counting.graphs) == 1) is PROGRAMS[program]
