"""Backwards of a part of a compiled graph's results: hooks are called where eager calls them."""

import pytest
import torch
from torch import nn

import dynamo


class Heads(nn.Module):
    """Two results of a trunk, each with a head of its own; hooks that log."""

    def __init__(self, log):
        super().__init__()
        torch.manual_seed(0)
        self.trunk, self.one, self.two = nn.Linear(3, 3), nn.Linear(3, 2), nn.Linear(3, 2)
        for name, parameter in self.named_parameters():
            parameter.register_hook(lambda g, name=name: log.append(("hook", name, g.clone())))
            parameter.register_post_accumulate_grad_hook(
                lambda p, name=name: log.append(("accumulated", name, p.grad.clone()))
            )

    def forward(self, x):
        hidden = self.trunk(x).tanh()
        return self.one(hidden), self.two(hidden).exp()


def one(net, results):
    results[0].sum().backward()


def other(net, results):
    results[1].sum().backward()


def both(net, results):
    (results[0].sum() + results[1].sum()).backward()


def in_turn(net, results):
    results[0].sum().backward(retain_graph=True)
    results[1].sum().backward(retain_graph=True)
    (results[0] * results[1]).sum().backward()


def of_some(net, results):
    net.two.weight.grad = None
    total = results[1].sum()
    total.backward(inputs=[net.two.weight], retain_graph=True)
    torch.autograd.grad(total, [net.two.bias, net.trunk.weight])


def of_one_from_both(net, results):
    (results[0].sum() + results[1].sum()).backward(inputs=[net.one.bias])


def twice(net, results):
    (grad,) = torch.autograd.grad(results[1].sum(), net.two.weight, create_graph=True)
    grad.pow(2).sum().backward()


def hooked_results(net, results):
    results[0].register_hook(lambda g: net.log.append(("result", "0", g)))
    results[1].register_hook(lambda g: net.log.append(("result", "1", g)))
    results[1].retain_grad()
    results[0].sum().backward()
    net.log.append(("kept", "", results[1].grad))


USES = [one, other, both, in_turn, of_some, of_one_from_both, twice, hooked_results]


def outcome(use, backend):
    log = []
    net = Heads(log)
    net.log = log
    call = net if backend is None else dynamo.compile(net, backend=backend)
    x = torch.arange(12.0).reshape(4, 3) / 12
    for _ in range(2):
        use(net, call(x.requires_grad_()))
    grads = [x.grad, *(parameter.grad for parameter in net.parameters())]
    log.sort(key=lambda entry: entry[:2])  # autograd promises no order between tensors
    return [entry[:2] for entry in log], [entry[2] for entry in log], grads


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("use", USES)
def test_hooks(use, backend):
    names, values, grads = outcome(use, None)
    got_names, got_values, got_grads = outcome(use, backend)
    assert got_names == names
    torch.testing.assert_close((got_values, got_grads), (values, grads))
