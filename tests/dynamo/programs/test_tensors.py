"""Tensors, their gradients and hooks, random numbers, modes (programs/tensors); compiled graphs of
such programs.
"""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import dynamo
from tests.dynamo.programs import all_programs

test_program = all_programs("tensors")


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_detached_alias_of_an_input_has_no_history(backend):
    def f(x):
        return x.detach(), x.view(-1).detach(), x.detach() + 1

    fast = dynamo.compile(f, backend=backend)
    x = torch.arange(6.0).reshape(2, 3).requires_grad_()
    for given in (x, x * 2):
        assert not any(result.requires_grad for result in fast(given))
        assert fast(given)[0].data_ptr() == given.data_ptr()


def hooked(x, weight):
    y = x @ weight
    y.register_hook(lambda g: g.clamp(-0.5, 0.5))
    z = y.tanh()
    z.retain_grad()
    return (z * y).sum(), z, y.exp()


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_hooks_of_compiled_graphs(backend):
    def run(function):
        x, weight = (torch.linspace(-1, 1, 9).reshape(3, 3).requires_grad_() for _ in range(2))
        loss, z, e = function(x, weight)
        loss.backward(retain_graph=True)
        first = x.grad.clone(), z.grad.clone()
        e.sum().backward()
        return first, x.grad, weight.grad, z.grad

    dynamo.reset()
    torch.testing.assert_close(run(dynamo.compile(hooked, backend=backend)), run(hooked))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_modules_and_parameters_of_compiled_graphs(backend):
    def f(model, x):
        twin = copy.deepcopy(model)
        scale = nn.Parameter(x.mean(0))
        for p in twin.parameters():
            p.requires_grad_(False)
        model.bias.data = model.bias.data * 2
        return twin, scale, (model(x) * scale - twin(x)).square().sum()

    def run(function):
        torch.manual_seed(0)
        model = nn.Linear(3, 3)
        for n in range(2):
            twin, scale, loss = function(model, torch.linspace(-1, 1, 12 + n * 3).reshape(-1, 3))
            loss.backward()
        found = [twin.weight, twin.bias, scale, scale.grad, loss.detach(), model.bias]
        return [*found, model.weight.grad, model.bias.grad]

    dynamo.reset()
    torch.testing.assert_close(run(dynamo.compile(f, backend=backend)), run(f))
