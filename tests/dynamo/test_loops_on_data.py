"""Loops that go on while a tensor says so: loops in the graph where a turn only computes tensors,
graph breaks elsewhere; values, gradients and effects as in eager.
"""

from __future__ import annotations

import signal

import pytest
import torch

import dynamo
from backends.aot_eager import aot_eager
from backends.eager import eager
from backends.inductor import inductor
from tests.dynamo.branch_support import ARGUMENTS, SEEN, Programs, check, same
from tests.dynamo.dynamic_support import Counting


@pytest.fixture(autouse=True)
def all_branches():
    with dynamo.config.patch(capture_branches="all"):
        yield


# program -> 1 where all its loops are in the graph, None where it breaks
program = Programs()


# -- loops ----------------------------------------------------------------------------------------
@program(1)
def halves(x, w):
    y = x * 1
    while y.sum() > 2:
        y = y * 0.5
    return y + w


@program(1)
def returns_what_it_began_with(x, w):
    while x.sum() > 100:
        x = x * 0.5
    return x


@program(1)
def uses_others(x, w):
    y = x + w
    while (y * w).abs().sum() < 50:
        y = y * 2 + w.abs() + 1
    return y - x


@program(1)
def two_change(x, w):
    a, b = x * 1, w * 1
    while a.sum() < 20:
        a, b = a + b.abs() + 1, b * 1.5
    return a * b


@program(1)
def swaps(x, w):
    a, b = x * 1, w * 3
    while a.sum() < b.sum():
        a, b = b, a - 1
    return a - 2 * b


@program(None)
def leaves_a_view_of_another(x, w):
    y = x * 1
    z = w[:2] * 1
    while y.sum() < 20:
        z = w[:2]
        y = y + w.abs() + 1
    w.add_(1)
    return y, z * 1


@program(None)
def returns_a_view_of_another(x, w):
    y = x * 1
    z = w[:2] * 1
    while y.sum() < 20:
        z = w[:2]
        y = y + w.abs() + 1
    return y, z


@program(1)
def until(x, w):
    y = x
    while True:
        y = y + w.abs() + 1
        if (y > 6).any():
            break
    return y * 2


@program(1)
def not_yet(x, w):
    y = x * 1
    while not (y > 10).any():
        y = y * 2 + 1
    return y * w


@program(1)
def keeps_a_tuple(x, w):
    state = (x * 1, (w * 2, "name"))
    while state[0].sum() < 30:
        state = (state[0] + 3, (state[1][0] * 0.5, "name"))
    return state[0] * state[1][0]


@program(1)
def temporaries(x, w):
    y = x * 1
    while y.sum() < 10:
        step = w.abs() + 1
        y = y + step
    return y


@program(1)
def with_a_branch_inside(x, w):
    y = x * 1
    while y.sum() < 25:
        if y.max() > 4:
            y = y + 1
        else:
            y = y * 2 + w.abs() + 0.5
    return y


@program(1)
def in_a_side(x, w):
    y = x + 1
    if x.sum() > 5:
        while y.sum() > 1:
            y = y * 0.3
    else:
        y = y * w
    return y


@program(1)
def one_in_another(x, w):
    y, z = x * 1, w * 0
    while z.sum() < 3:
        while y.sum() < 9:
            y = y + 1
        z = z + 0.25
        y = y - 2
    return y + z


@program(1)
def one_after_another(x, w):
    y = x * 1
    while y.sum() < 9:
        y = y + 1
    y = y * w
    while y.abs().sum() > 9:
        y = y / 2
    return y


@program(1)
def in_a_callee(x, w):
    return _grown(x) + _grown(w)


def _grown(x):
    while x.sum() < 10:
        x = x + 1
    return x * 1


@program(1)
def numbers(x, w):
    y = x * 1
    while y.sum().item() < 10:
        y = y + 1
    while int((y > 3).sum()) < 3:
        y = y * 2 + 1
    return y


@program(1)
def random_in_turns(x, w):
    torch.manual_seed(1)
    y = x * 1
    while y.sum() < 10:
        y = y + torch.rand(4) + 0.1
    return y + torch.rand(4)


@program(1)
def without_gradients(x, w):
    with torch.no_grad():
        y = x * 1
        while y.sum() < 10:
            y = y + 1
    return y * w


@program(1)
def counts_in_a_tensor(x, w):
    n = torch.zeros((), dtype=torch.int64)
    y = x * 1
    while y.sum() < 10:
        y = y + 1
        n = n + 1
    return y * n


@program(1)
def begins_as_another_kind(x, w):
    """Without a gradient before the first turn."""
    y = torch.zeros(4)
    while True:
        y = y + x.abs() + 1
        if (y > 6).any():
            return y


@program(1)
def counts(x, w):
    y, n = x * 1, 0
    while y.sum() < 10:
        y = y + 3
        n += 1
    return y * n


# -- breaks ---------------------------------------------------------------------------------------
@program(None)
def appends(x, w):
    y, found = x * 1, []
    while y.sum() < 10:
        y = y + 3
        found.append(y)
    return y * len(found)


@program(None)
def effects(x, w):
    y = x * 1
    while y.sum() < 10:
        y = y + 3
        SEEN.append("turn")
    return y


@program(None)
def grows(x, w):
    y = x * 1
    while y.sum() < 8:
        y = torch.cat([y, w.abs() + 1])
    return y


@program(None)
def writes(x, w):
    y = x * 1
    while y.sum() < 10:
        y += 3
    return y * w


@program(None)
def leaves_in_between(x, w):
    y = x * 1
    while y.sum() < 10:
        y = y + 3
        if y.max() > 5:
            return y * 3
    return y


@program(None)
def assigns_alone(x, w):
    y = x * 1
    while y.sum() < 10:
        y = y + 3
        z = y * 2
    try:
        return z
    except UnboundLocalError:
        return x


@program(None)
def written_behind(x, w):
    h = x * 1
    y = h
    while y.sum() < 10:
        y = y + 3
    y.add_(1)
    return h * 1, y * 2


@program(None)
def is_it(x, w):
    y = x
    while y.sum() < 10:
        y = y + 3
    return y * (2 if y is x else 3)


@pytest.mark.parametrize("kind", ARGUMENTS)
@pytest.mark.parametrize("function", program, ids=lambda function: function.__name__)
def test_program(function, kind):
    check(function, kind, eager, program[function])


COMPILED = [halves, uses_others, two_change, swaps, with_a_branch_inside, one_in_another, numbers]


@pytest.mark.parametrize("backend", [aot_eager, inductor])
@pytest.mark.parametrize("function", COMPILED, ids=lambda function: function.__name__)
def test_compiled(function, backend):
    check(function, "grads", backend, 1)


def test_explain_says_what_became_of_loops():
    x = torch.ones(4)
    (text,) = dynamo.explain(halves, backend="eager")(x, x).branches
    assert "in halves: a loop in the graph" in text
    report = dynamo.explain(appends, backend="eager")(x, x)
    assert any("the graph breaks" in text for text in report.branches)


def test_an_endless_loop_can_be_interrupted():
    """At any moment; gradients stay on."""
    called = False

    def interrupt(*_):
        if called:
            raise KeyboardInterrupt

    def forever(x):
        y = x * 1
        while y.sum() > 0:
            y = y + 0
        return y

    compiled = dynamo.compile(forever, backend=aot_eager, fullgraph=True)
    compiled(torch.zeros(3))
    before = signal.signal(signal.SIGALRM, interrupt)  # SIGINT may be ignored where tests run
    try:
        for moment in range(200):
            # Again after a while: where a callback of a weak reference is hit, Python goes on.
            signal.setitimer(signal.ITIMER_REAL, 0.0005 + moment * 1e-6, 0.3)
            with pytest.raises(KeyboardInterrupt):
                called = True
                compiled(torch.ones(3))
            called = False
            assert torch.is_grad_enabled()
    finally:
        called = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_one_graph_serves_any_number_of_turns():
    counting = Counting(inductor)
    compiled = dynamo.compile(halves, backend=counting)
    for n in (0.0, 1.0, 100.0, 1e6, float("nan"), -3.0):
        x, w = torch.full((4,), n), torch.ones(4)
        torch.testing.assert_close(compiled(x, w), halves(x, w), equal_nan=True)
    assert len(counting.graphs) == 1


@pytest.mark.parametrize("backend", [eager, aot_eager, inductor])
def test_modules_in_turns(backend):
    """Parameters are held by the turn's own code, and get the sum of the turns' gradients."""

    class Settles(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.step = torch.nn.Linear(4, 4)

        def forward(self, x):
            y = self.step(x)
            while y.norm() < 9:
                y = y + self.step(y).abs() + 0.1
            return y.sum(-1)

    module = Settles()
    compiled = dynamo.compile(module, backend=backend, fullgraph=True)
    for x in (torch.ones(2, 4), torch.full((2, 4), 9.0), torch.full((2, 4), 0.1)):
        found = []
        for run in (compiled, module):
            module.zero_grad()
            result = run(x)
            if result.requires_grad:
                result.sum().backward()
            found += [result.detach(), module.step.weight.grad]
        same(found[:1], found[2:3])
        same(found[1], found[3]) if found[3] is not None else None
        with torch.no_grad():
            same(compiled(x), module(x))
