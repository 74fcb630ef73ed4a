"""Calls of torch with numbers that tensors hold, where schemas take plain numbers: one graph,
eager's results, layouts, gradients and exceptions.
"""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import dynamo
from tests.dynamo.dynamic_support import same

IMAGES = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
SIZES, DIMS = (2, 3, 1, 0, -1, 8), (0, 1, 2, -1, 5)
FLOATS = (0.5, 0.0, 1.0, -1.0, math.nan, math.inf)
CASES = {
    "avg_pool": (lambda x, n: F.avg_pool2d(x.sin(), n) + 1, SIZES),
    "max_pool": (lambda x, n: F.max_pool2d(x.sin(), n) + 1, SIZES),
    "adaptive": (lambda x, n: F.adaptive_avg_pool2d(x, n), SIZES),
    "two": (lambda x, n: (F.avg_pool2d(x, n).sum() + F.max_pool2d(x, n).mean()) * x, SIZES),
    "pixel_shuffle": (lambda x, n: F.pixel_shuffle(x.repeat(1, 12, 1, 1), n), SIZES),
    "histc": (lambda x, n: torch.histc(x, n), SIZES),
    "unfold": (lambda x, n: F.unfold(x, n), SIZES),
    "rfft": (lambda x, n: torch.fft.rfft(x, n).abs(), SIZES),
    "scaled": (lambda x, n: F.interpolate(x, scale_factor=n, mode="bilinear") * x.mean(), SIZES),
    "scaled_float": (lambda x, n: F.interpolate(x.sin(), scale_factor=n), (2.5, *FLOATS)),
    "cumsum": (lambda x, n: x.cumsum(n).exp() + x, DIMS),
    "sum": (lambda x, n: x.sum(n) * 2, DIMS),
    "softmax": (lambda x, n: x.softmax(dim=n) + x, DIMS),
    "other_layout": (lambda x, n: x.transpose(1, 2).cumsum(n), DIMS),
    "channels_last": (lambda x, n: F.avg_pool2d(x.to(memory_format=torch.channels_last), n), SIZES),
    "written": (lambda x, n: (y := x * 3).add_(1) + F.avg_pool2d(y, n).sum(), SIZES),
    "eps": (lambda x, n: F.layer_norm(x, (8,), eps=n), FLOATS),
    "quantile": (lambda x, n: x.flatten().quantile(n) * x, FLOATS),
    "itself": (lambda x, n: F.adaptive_avg_pool2d(x, (8, n)).add_(1), (8, 4)),
}


def outcome(function, number, trains, twice=False):
    leaf = IMAGES.clone().requires_grad_(trains)
    try:
        made = function(leaf * 1.0, torch.tensor(number))
        found = [made.detach(), made.stride(), made.requires_grad]
        if made.requires_grad:
            loss = made.square().sum()
            [gradient] = torch.autograd.grad(loss, leaf, create_graph=twice)
            found.append(gradient.detach().contiguous())  # of any layout
            if twice:
                found += torch.autograd.grad(gradient.square().sum(), leaf)
    except Exception as error:
        return type(error), str(error)
    return found


def program(name):
    compute = CASES[name][0]

    def f(x, t):
        n = (t + 0).item()
        return compute(x, n)

    return f


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_call(name, trains):
    f = program(name)
    compiled = dynamo.compile(f, backend="eager", fullgraph=True)
    for number in CASES[name][1]:
        same(outcome(f, number, trains), outcome(compiled, number, trains))
    assert [len(record.graphs) for record in compiled.context.records] == [1]


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("name", ["avg_pool", "sum"])
def test_kernels(name, trains):
    f = program(name)
    compiled = dynamo.compile(f, fullgraph=True)
    for number in CASES[name][1]:
        same(outcome(f, number, trains), outcome(compiled, number, trains))
    assert [len(record.graphs) for record in compiled.context.records] == [1]


def test_second_gradients():
    f = program("avg_pool")
    compiled = dynamo.compile(f, backend="eager", fullgraph=True)
    same(outcome(f, 2, True, twice=True), outcome(compiled, 2, True, twice=True))


VIEWS = {
    "diagonal": lambda x, n: x.diagonal(n) * 2,
    "diagonal_itself": lambda x, n: x.diagonal(offset=n),
    "diagonal_of_others": lambda x, n: torch.diagonal(x.view(2, 3, 4), n, 1, -1).exp(),
    "diagonal_written": lambda x, n: x.diagonal(n).fill_(7).sum() + x,
    "unfold": lambda x, n: x.unfold(0, n, 2) * 2,
    "unfold_transposed": lambda x, n: x.t().unfold(-1, n, 1).sum(-1),
    "unfold_written": lambda x, n: x.unfold(0, n, 3).mul_(2).sum() + x,
    "unflatten": lambda x, n: x.unflatten(0, (n, -1)) * 1,
    "unflatten_written": lambda x, n: x.unflatten(0, (n, 2)).select(1, 0).zero_().sum() + x,
}


def viewed(function, number, trains):
    """The result, its layout, the tensor that was viewed, and its gradient."""
    leaf = torch.arange(24.0).view(6, 4).requires_grad_(trains)
    x = leaf * 1
    try:
        made = function(x, torch.tensor(number))
        if trains:
            made.square().sum().backward()
    except Exception as error:
        return type(error), str(error).partition("\nException raised")[0]
    return made.detach(), made.stride(), x.detach(), leaf.grad


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("name", VIEWS)
def test_views_share_memory(name, trains):
    def f(x, t):
        n = (t + 0).item()
        return VIEWS[name](x, n)

    backends = ["eager"] if trains or "written" not in name else ["eager", "inductor"]
    for backend in backends:
        compiled = dynamo.compile(f, backend=backend, fullgraph=True)
        for number in (3, 1, 0, 2, -1, -5, 6, 7):
            same(viewed(f, number, trains), viewed(compiled, number, trains))
        assert [len(record.graphs) for record in compiled.context.records] == [1]


def test_rows_of_nothing_are_not_split_into_any_number():
    def f(x, t):
        return x.unflatten(0, ((t + 0).item(), 7))

    compiled = dynamo.compile(f, backend="eager")
    with (
        dynamo.config.patch(capture_scalar_outputs=True),
        pytest.raises(RuntimeError, match="size"),
    ):
        compiled(torch.ones(6, 0), torch.tensor(3))


def test_other_views_are_left_to_eager():
    """A view shares memory, which a result of the operator does not."""

    def f(x, t):
        n = (t + 0).item()
        x.movedim(n, 0)[0].fill_(7)
        return x + 1

    with dynamo.config.patch(capture_scalar_outputs=True):
        compiled = dynamo.compile(f, backend="eager")
        for n in (0, 1, -2):
            same(
                f(torch.ones(4, 4), torch.tensor(n)),
                compiled(torch.ones(4, 4), torch.tensor(n)),
            )
