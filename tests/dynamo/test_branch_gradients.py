"""Gradients that are asked for inside of a frame behind branches and loops on data; steps of static
graphs with such.
"""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from torch import nn

import dynamo
from backends.registry import lookup_backend
from dynamo.errors import Unsupported
from tests.dynamo.branch_support import same
from tests.dynamo.dynamic_support import Counting

CALLS = [[1.0, 2.0, 3.0], [-1.0, -2.0, -3.0], [0.5, 0.5, 1.0], [0.0, 0.0, 0.0]]


def outcome(function, values):
    x, w = (torch.tensor(v).requires_grad_() for v in (values, [1.0, 2.0, 4.0]))
    try:
        result = function(x, w)
    except RuntimeError as error:
        return str(error)[:40], x.grad, w.grad
    return result, x.grad, w.grad


def check(function, backend):
    """The graphs, and the codes of breaks, of the calls."""
    counting = Counting(lookup_backend(backend))
    compiled = dynamo.compile(function, backend=counting)
    for values in CALLS:
        one, other = outcome(function, values), outcome(compiled, values)
        assert isinstance(one[0], str) is isinstance(other[0], str)
        if isinstance(one[0], str):
            assert one[0] == other[0]
        else:
            same(one, other)
    return len(counting.graphs), {b.code for r in compiled.context.records for b in r.breaks}


def both_sides(x, w):
    if x.sum() > 0:
        y = x * w
    else:
        y = x + w.sin()
    y.sum().backward()
    return y.detach()


def nested(x, w):
    if x.sum() > 0:
        if x[0] > 0.7:
            y = x * w
        else:
            y = w - x
    else:
        y = x + w.sin()
    if y.sum() > 0:
        y = y * w
    y.sum().backward()
    return y.detach()


def twice(x, w):
    """The gradients are added in place: none may share memory."""
    if x.sum() > 0:
        y = x * w
    else:
        y = x + w
    y.sum().backward(retain_graph=True)
    (y * w).sum().backward()
    return y.detach()


def handed_on(x, w):
    if x.sum() > 0:
        y = w
    else:
        y = w * 2
    (y * x).sum().backward()
    return y.detach() * 1


def turns(x, w):
    y = x * w
    while y.norm() > 1:
        y = y * (0.5 * w.sin())
    (y * w).sum().backward()
    return y.detach()


def behind(x, w):
    """No gradient goes through the branch."""
    h = w * 2
    if x.sum() > 0:
        h = h.sin()
    return torch.autograd.grad((h * h).sum(), h)[0]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("function", [both_sides, nested, twice, handed_on, turns, behind])
def test_one_graph(function, backend):
    assert check(function, backend) == (1, set())


def one_side(x, w):
    if x.sum() > 0:
        y = x * w
    else:
        y = x.sin()
    y.sum().backward()
    return y.detach()


def either(x, w):
    if x.sum() > 0:
        y = w
    else:
        y = x
    y.sum().backward()
    return y.detach() * 1


def shifted(x, w):
    """After two turns, nothing is left of w."""
    n = torch.zeros(())
    a, b = w * 2, w * 3
    while n < x.sum():
        a, b = b * 1, x * 1
        n = n + 1
    a.sum().backward()
    return a.detach()


def unused(x, w):
    if x.sum() > 0:
        y = x * w
    else:
        y = x + 2
    return torch.autograd.grad(y.sum(), (x, w), allow_unused=True)


def of_both(x, w):
    if x.sum() > 0:
        y = x * w
    else:
        y = x + w.sin()
    return torch.autograd.grad(y.sum(), (x, w), allow_unused=True)


def of_turns(x, w):
    n, y = torch.zeros(()), x
    while n < x.sum():
        y, n = y * w, n + 1
    return torch.autograd.grad(y.sum(), (x, w), allow_unused=True)


def penalty(x, w):
    if x.sum() > 0:
        y = (x * w).sum()
    else:
        y = (x.sin() + w**2).sum()
    (gradient,) = torch.autograd.grad(y, x, create_graph=True)
    (y + gradient.square().sum()).backward()
    return y.detach(), gradient.detach()


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize(
    "function", [one_side, either, shifted, unused, of_both, of_turns, penalty]
)
def test_the_graph_breaks(function, backend):
    _, codes = check(function, backend)
    assert "BRANCHED_GRADIENTS" in codes


# -- numbers that the data choose ------------------------------------------------------------------
CHOSEN = {
    "scaled": lambda x, w: x * max(0.5, w.sum() - 6.5 + x.sum().detach()),
    "normed": lambda x, w: w / max(x.norm(), 2.0) + w.sum() * min(1.0, x.mean()),
    "inverse": lambda x, w: (1 - min(0.5, (x.sum() * 0).sqrt() + x[0])) * w.sin(),
    "twice": lambda x, w: (lambda m: x * m + w / m)(max(0.7, x.mean() * w.mean())),
    "narrow": lambda x, w: x.bfloat16() * max(0.123456, w.mean() * x.mean().detach()),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", CHOSEN)
def test_chosen_numbers(name, backend):
    """What is not chosen has no gradient, not one of zeros, and none of nan."""

    def backward(function):
        def run(x, w):
            result = function(x, w)
            result.sum().backward()
            return result.detach()

        return run

    counting = Counting(lookup_backend(backend))
    compiled = backward(dynamo.compile(CHOSEN[name], backend=counting))
    for values in CALLS:
        same(outcome(backward(CHOSEN[name]), values), outcome(compiled, values))
    assert len(counting.graphs) == 1


# -- static graphs ---------------------------------------------------------------------------------
class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)


class Clipped(Two):
    def forward(self, x):
        h = self.b(self.a(x))
        if h.norm() > 3:
            h = h / h.norm() * 3
        return h


class Ordered(Two):
    def forward(self, x):
        if x.sum() > 0:
            return self.b(self.a(x)).relu()
        return self.a(self.b(x).sin())


class Turning(Two):
    def forward(self, x):
        h = self.b(self.a(x))
        while h.norm() > 3:
            h = self.b(h) * 0.5 / h.norm()
        return h


class Picking(Two):
    def forward(self, x):
        mask, h = x > 0, self.b(self.a(x))
        if mask.any():
            h = h + h[mask].mean()
        return h


class Statistics(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(6)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        h = self.norm(x)
        if x.sum() > 0:
            self.seen += 1
        if x.sum() > 1:
            h = self.norm(nn.functional.dropout(h, 0.5))
        return h


class Step(dynamo.Graph):
    def __init__(self, model, optimizer, backend):
        super().__init__(backend=backend)
        self.model = model
        self.debug(-1)
        self.trains = optimizer is not None
        if self.trains:
            self.add_optimizer(optimizer)

    def build(self, x):
        loss = (self.model(x) - 1).square().sum()
        if self.trains:
            loss.backward()
        return loss


LINES = [(-1.0, 2.0), (-2.0, -1.0), (0.0, 0.1), (-0.01, 0.0), (-9.0, 4.0)]
INPUTS = [torch.linspace(low, high, 24).view(4, 6) for low, high in LINES]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("optimizer", [None, torch.optim.SGD, torch.optim.AdamW])
@pytest.mark.parametrize("kind", [Clipped, Ordered, Turning, Picking, Statistics])
def test_steps(kind, optimizer, backend):
    torch.manual_seed(0)
    model = kind()
    other = copy.deepcopy(model)
    steps = [optimizer and optimizer(m.parameters(), lr=0.01) for m in (model, other)]
    graph = Step(model, steps[0], backend)
    for seed, x in enumerate(INPUTS):
        torch.manual_seed(seed)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".* is not one plan")
            found = graph(x)
        torch.manual_seed(seed)
        loss = (other(x) - 1).square().sum()
        loss.backward()
        if optimizer is None:
            found.backward()
        else:
            steps[1].step()
            steps[1].zero_grad()
        same(found.detach(), loss.detach())
        for mine, its in zip(model.parameters(), other.parameters()):
            same(mine.grad, its.grad)
        for mine, its in zip(model.state_dict().values(), other.state_dict().values()):
            same(mine, its)


def test_a_step_whose_sides_have_parameters_of_their_own_is_an_error():
    class One(Two):
        def forward(self, x):
            return self.a(x) if x.sum() > 0 else self.b(x)

    model = One()
    graph = Step(model, torch.optim.SGD(model.parameters(), lr=0.1), "eager")
    with pytest.raises(
        Unsupported, match=r"decides whether .*\bweight\b.* has a gradient"
    ) as error:
        graph(INPUTS[0])
    assert "torch.where chooses between results of both" in str(error.value)


class Experts(Two):
    """What a mask picks needs no branch: regions run on nothing."""

    def forward(self, x):
        result, chosen = torch.zeros_like(x), x.round().long() % 3
        for number, expert in enumerate((self.a.weight.sum(), self.b.weight.sum())):
            mask = chosen == number
            if mask.any():
                result[mask] = x[mask] * expert
        return result


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_experts_are_one_plan(backend):
    model = Experts().eval()
    graph = Step(model, None, backend)
    with torch.no_grad(), warnings.catch_warnings(action="error"):
        for x in INPUTS:
            same(graph(x), (model(x) - 1).square().sum())
