"""`for` loops over a few items that a branch on a tensor leaves early (`break`, `return`): the
iterations that are left are a side of the branch.
"""

from __future__ import annotations

import pytest
import torch

import dynamo
from backends.aot_eager import aot_eager
from backends.eager import eager
from backends.inductor import inductor
from tests.dynamo.branch_support import ARGUMENTS, CALLS, Programs, check
from tests.dynamo.dynamic_support import Counting

program = Programs()


@program(1)
def breaks_off(x, w):
    for scale in (1.0, 2.0, 3.0):
        x = x * scale
        if x.sum() > 12:
            break
        x = x + w
    return x * 2


@program(1)
def returns_a_number_beside(x, w):
    y = x + w
    for scale, ratio in [(1.0, 0.5), (2.0, 0.25)]:
        if y.max() < scale:
            return y * ratio
        y = y - scale
    return y


def projected(x, w):
    """As AdamP has it: a write, and a number that only one way gives."""
    y, w = x.detach() * 2, w.detach()
    for view in [lambda t: t.view(2, 2), lambda t: t.view(1, -1)]:
        if view(x).sum(1).max() < view(w).abs().sum(1).max() + 3:
            y -= w * view(w * w).sum()
            return y, 0.1
    return y, 1


@program(1)
def inlined(x, w):
    y, ratio = projected(x, w)
    return y * ratio


@program(1)
def goes_on_with_else(x, w):
    for i in range(3):
        if x.sum() > 4 + i:
            x = x - w
            break
    else:
        x = x * 3
    return x + 1


@program(1)
def two_loops(x, w):
    for i in range(2):
        for j in range(2):
            if x.sum() > 4 * (i + j):
                break
            x = x + w + j
        x = x * 2
    return x


@program(1)
def an_inner_loop_returns(x, w):
    for i in range(2):
        x = x + i
        for j in (1, 2):
            if x.sum() > 4 * j:
                return x * w
    return x


@program(1)
def goes_on_in_the_next_turn(x, w):
    for i in range(20):
        if x.sum() > 4 * i:
            x = x - w
            continue
        x = x + i
    return x


@program(None)
def has_many_turns(x, w):
    for i in range(12):
        x = x + w + i
        if x.sum() > 12:
            break
    return x


@program(None)
def shares_the_iterator(x, w):
    items = iter([1, 2, 3])
    for i in items:
        x = x + i
        if x.sum() > 12:
            break
    return x, list(items)


@program(1)
def while_true(x, w):
    steps = 0
    while True:
        x = x + w.abs() + 1
        steps += 1
        if x.sum() > 24 or steps > 3:
            break
    return x


@pytest.mark.parametrize("kind", ARGUMENTS)
@pytest.mark.parametrize("function", program, ids=lambda function: function.__name__)
def test_program(function, kind):
    check(function, kind, eager, program[function])


@pytest.mark.parametrize("backend", [aot_eager, inductor])
@pytest.mark.parametrize("function", [breaks_off, inlined, two_loops], ids=lambda f: f.__name__)
def test_compiled(function, backend):
    check(function, "grads", backend, 1)


def test_a_list_that_a_side_changes():
    def function(x, seen):
        for i in seen:
            if x.sum() > i:
                seen.append(5)
                break
        return x * len(seen)

    compiled = dynamo.compile(function, backend=eager)
    for values in CALLS:
        given, other = [1, 2], [1, 2]
        x = torch.tensor(values)
        torch.testing.assert_close(compiled(x, given), function(x, other), equal_nan=True)
        assert given == other


def test_a_scale_of_a_number_that_varies():
    """As Adafactor has it: the greater of a number and a tensor, by a number of the step."""

    def function(x, step):
        return x * (max(1e-3, x.norm()) * min(0.5, 1 / step**0.5))

    counting = Counting(eager)
    compiled = dynamo.compile(function, backend=counting)
    for step in (1, 2, 3, 9, 16):
        for x in (torch.ones(3), torch.zeros(3), torch.ones(3, dtype=torch.float64)):
            torch.testing.assert_close(compiled(x, step), function(x, step), rtol=0, atol=0)
    assert len(counting.graphs) <= 4
