"""Random numbers: those of eager, from the same state of the generator."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import dynamo

RANDOM = {
    "dropout": lambda x: F.dropout(x, 0.5),
    "dropout_of_part": lambda x: F.dropout(x[:, :, ::2], 0.5),
    "dropout_of_expanded": lambda x: F.dropout(x[:1].expand(2, 3, 4, 5), 0.5),
    "dropout_of_computed": lambda x: F.dropout(x.exp(), 0.5) @ x.mT,
    "bernoulli_": lambda x: x * x.clone()[:, :, ::2].bernoulli_(0.5).sum(),
    "rand_like": lambda x: x * torch.rand_like(x),
    "normal_of_part": lambda x: x * x.repeat(2, 2, 2, 2)[::2, ::2, ::2, ::2].normal_(),
    "normal_": lambda x: x * torch.empty_like(x).normal_(),
}


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_random_numbers_are_drawn_in_the_order_of_memory(backend):
    def fn(x):
        return [f(x) for f in RANDOM.values()]

    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    dynamo.reset()
    compiled = dynamo.compile(fn, backend=backend)
    for grad in (False, True):
        x.requires_grad_(grad)
        found = []
        for each in (fn, compiled):
            torch.manual_seed(0)
            results = each(x)
            total = sum(map(torch.sum, results))
            found.append((results, torch.autograd.grad(total, x) if grad else ()))
        torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_numbers_that_nobody_uses_are_drawn(backend, grad):
    def fn(x):
        F.dropout(x.exp(), 0.5)
        torch.empty_like(x).uniform_()
        y = F.dropout(x, 0.5)
        torch.rand(3)
        return y * 2

    x = torch.randn(4, 5, requires_grad=grad)
    dynamo.reset()
    compiled = dynamo.compile(fn, backend=backend)
    found = []
    for each in (fn, compiled):
        torch.manual_seed(0)
        result = each(x)
        found.append((result, torch.autograd.grad(result.sum(), x) if grad else (), torch.rand(2)))
    torch.testing.assert_close(found[1], found[0])
