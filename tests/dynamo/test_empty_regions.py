"""Code that a branch skips where a size from data is 0: captured unconditionally, or a break."""

from __future__ import annotations

import pytest
import torch

import dynamo
from backends.aot_eager import aot_eager
from backends.eager import eager
from backends.inductor import inductor
from tests.dynamo.branch_support import same
from tests.dynamo.dynamic_support import Counting


@pytest.fixture(autouse=True)
def captured():
    options = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}
    with dynamo.config.patch(**options):
        yield


W = [torch.linspace(-1, 1, 16).view(4, 4) * (i + 1) for i in range(3)]
GATED = [torch.cat([w, w - 1], 1) for w in W]
CHOICES = [[0, 0, 0, 0], [0, 1, 2, 0], [1, 1, 2, 2], [2, 2, 2, 2]]


def mixture(x, which):
    out = torch.zeros_like(x)
    for e in range(3):
        rows = torch.where(which == e)[0]
        if rows.numel() == 0:
            continue
        out.index_add_(0, rows, torch.tanh(x[rows] @ W[e]))
    return out


def written(x, which):
    out = x * 0
    for e in range(3):
        rows = (which == e).nonzero()[:, 0]
        if rows.shape[0] > 0:
            out[rows] = x[rows] @ W[e]
    return out


def fails_on_nothing(x, which):
    out = torch.zeros_like(x)
    rows = torch.where(which == 1)[0]
    if len(rows) != 0:
        out.index_add_(0, rows, x[rows] / x[rows].max())
    return out


def counts(x, which):
    out, ran = torch.zeros_like(x), 0
    rows = torch.where(which == 1)[0]
    if rows.numel() > 0:
        out.index_add_(0, rows, x[rows])
        ran += 1
    return out, ran


def writes_all(x, which):
    out = torch.zeros_like(x)
    rows = torch.where(which == 1)[0]
    if rows.numel() > 0:
        out.add_(1)
    return out


def writes_elsewhere(x, which):
    out = torch.zeros_like(x)
    rows, others = torch.where(which == 1)[0], torch.where(which == 0)[0]
    if rows.numel() > 0:
        out.index_add_(0, others, x[others])
    return out


def logs(x, which, log):
    rows = torch.where(which == 1)[0]
    if rows.numel() > 0:
        log.append(len(log))
    return x[rows] * 2


def writes_an_argument(x, which):
    rows = torch.where(which == 1)[0]
    if rows.numel() > 0:
        x.index_add_(0, rows, x[rows] / x[rows].max())
    return x + 1


def leaves_a_tensor(x, which):
    y = x
    rows = torch.where(which == 1)[0]
    if rows.numel() > 0:
        y = x.index_add(0, rows, x[rows])
    return y


def draws(x, which):
    out = torch.zeros_like(x)
    rows = torch.where(which == 1)[0]
    if rows.numel() > 0:
        out.index_add_(0, rows, torch.rand(len(rows), 4))
    return out + torch.rand(4, 4)


def first_of_none(x, which):
    out = torch.zeros_like(x)
    rows = torch.where(which == 1)[0]
    if rows.numel() > 0:
        out.index_add_(0, rows, x[rows] * x[rows][0])
    return out


def sizes_of_nothing(x, which):
    out = torch.zeros_like(x)
    rows = torch.where(which == 1)[0]
    if rows.numel() > 0:
        out.index_add_(0, rows, x[rows].reshape(rows.numel(), -1))
    return out


def sizes_by_keyword(x, which):
    out = torch.zeros_like(x)
    rows = torch.where(which == 1)[0]
    if rows.numel() > 0:
        out.index_add_(0, rows, torch.reshape(x[rows], shape=(rows.numel(), -1)))
    return out


def reads_elsewhere(x, which):
    """A place out of range, unless a row is chosen."""
    out = torch.zeros_like(x)
    rows = torch.where(which == 1)[0]
    at = torch.where((which == 1).any(), 0, 1000)
    if rows.numel() > 0:
        out.index_add_(0, rows, x[rows] + x[at[None]])
    return out


def divides_integers(x, which):
    out = torch.zeros_like(x)
    rows = torch.where(which == 1)[0]
    count = (which == 1).sum()
    if rows.numel() > 0:
        out.index_add_(0, rows, x[rows] * (6 // count))
    return out


def outcome(function, which, requires_grad=False):
    torch.manual_seed(0)
    x = torch.linspace(-2, 2, 16).view(4, 4).requires_grad_(requires_grad)
    log = []
    result = function(x, torch.tensor(which), *([log] if function.__name__ == "logs" else []))
    first = result[0] if isinstance(result, tuple) else result
    if requires_grad and first.requires_grad:
        first.sum().backward()
    return result, x.detach(), x.grad, result is x, log, torch.rand(1)


def gated(x, which):
    out = torch.zeros_like(x)
    for e in range(3):
        rows = torch.where(which == e)[0]
        if rows.numel() > 0:
            gate, up = (x[rows] @ GATED[e]).chunk(2, -1)
            gate = torch.nn.functional.silu(gate.reshape(-1, 4))
            out.index_add_(0, rows, gate * up.reshape((-1, 4)))
    return out


WHOLE = [mixture, written, gated]
BREAK = [
    fails_on_nothing, counts, writes_all, writes_elsewhere, logs, writes_an_argument,
    leaves_a_tensor, draws, first_of_none, sizes_of_nothing, sizes_by_keyword, reads_elsewhere,
    divides_integers,
]  # fmt: skip


@pytest.mark.parametrize("backend", [eager, aot_eager, inductor], ids=lambda b: b.__name__)
@pytest.mark.parametrize("function", WHOLE, ids=lambda f: f.__name__)
def test_what_does_nothing_to_nothing_is_in_the_graph(function, backend):
    counting = Counting(backend)
    compiled = dynamo.compile(function, backend=counting, fullgraph=True)
    compiled.__name__ = function.__name__
    for which in CHOICES:
        same(outcome(function, which), outcome(compiled, which))
    assert len(counting.graphs) == 1


@pytest.mark.parametrize("function", BREAK, ids=lambda f: f.__name__)
def test_what_can_be_told_breaks_the_graph(function):
    compiled = dynamo.compile(function, backend="eager")
    compiled.__name__ = function.__name__
    for which in CHOICES:
        same(outcome(function, which), outcome(compiled, which))


@pytest.mark.parametrize("function", [mixture, written], ids=lambda f: f.__name__)
def test_gradients_tell_which_regions_ran(function):
    weights = [w.clone().requires_grad_() for w in W]

    def graded(f, which):
        for w in weights:
            w.grad = None
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(globals(), "W", weights)
            found = outcome(f, which, requires_grad=True)
        return found[0].detach(), found[2], [w.grad for w in weights]

    compiled = dynamo.compile(function, backend="aot_eager")
    compiled.__name__ = function.__name__
    for which in CHOICES:
        same(graded(function, which), graded(compiled, which))


@pytest.mark.parametrize("backend", [eager, aot_eager, inductor], ids=lambda b: b.__name__)
def test_places_in_two_dimensions_train_in_one_graph(backend):
    """Of a mixture in which each row has two experts; an expert without rows gets no gradient."""
    layers = [torch.nn.Linear(4, 4) for _ in range(3)]

    def best(x, chosen, weights):
        out = torch.zeros_like(x)
        for number, layer in enumerate(layers):
            rows, slots = torch.where(chosen == number)
            if rows.numel() == 0:
                continue
            out.index_add_(0, rows, layer(x[rows]) * weights[rows, slots, None])
        return out

    def graded(f, chosen):
        x = torch.linspace(-2, 2, 16).view(4, 4).requires_grad_()
        weights = torch.linspace(0, 1, 8).view(4, 2).requires_grad_()
        for layer in layers:
            layer.zero_grad()
        result = f(x, torch.tensor(chosen), weights)
        result.square().sum().backward()
        return result.detach(), [one.grad for one in (x, weights, *(k.weight for k in layers))]

    counting = Counting(backend)
    compiled = dynamo.compile(best, backend=counting)
    for chosen in ([[0, 1], [1, 2], [2, 0], [0, 1]], [[1, 0], [2, 0], [2, 1], [0, 2]]):
        same(graded(best, chosen), graded(compiled, chosen))
    assert len(counting.graphs) == 1
    for chosen in ([[0, 1], [1, 0], [1, 0], [0, 1]], [[2, 2]] * 4):
        same(graded(best, chosen), graded(compiled, chosen))


def returned_rows(x, which):
    chosen = which == 1
    if chosen.any():
        return x[chosen], x[~chosen]
    return x[:0], x


def test_both_ways_leave_the_frame():
    """The graph goes one way, and breaks there; after calls that go the other, at the jump. Nothing
    is a fault.
    """
    compiled = dynamo.compile(returned_rows, backend=eager)
    for choice in CHOICES:
        given = torch.ones(4, 4), torch.tensor(choice)
        same(compiled(*given), returned_rows(*given))
    codes = {b.code for record in compiled.context.records for b in record.breaks}
    assert codes <= {"DATA_DEPENDENT_JUMP", "DYNAMIC_SHAPE_OP"}


def breaks_inside_of_any(x, which):
    y = x + 1
    if torch.isnan(x).any():
        if int((which > 0).sum()) > 2:
            x = x.clone()
        else:
            y.mul_(2)
    return x * 1, x + y


def breaks_inside_of_rows(x, which):
    y = x + 1
    rows = torch.where(which > 1)[0]
    if rows.numel() > 0:
        if int((which > 0).sum()) > 2:
            x = x.clone()
        else:
            y.mul_(2)
    return x * 1, x + y


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("function", [breaks_inside_of_any, breaks_inside_of_rows])
def test_a_break_inside_is_no_part_of_other_calls(function, captured):
    """A region whose code breaks the graph runs in the calls alone that run it."""
    options = ("capture_scalar_outputs", "capture_dynamic_output_shape_ops")
    with dynamo.config.patch(dict.fromkeys(options, captured)):
        compiled = dynamo.compile(function, backend=eager)
        for choice in CHOICES:
            for first in (1.0, float("nan")):
                x, which = torch.ones(4), torch.tensor(choice)
                x[0] = first
                same(compiled(x.clone(), which), function(x.clone(), which))
