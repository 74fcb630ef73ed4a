"""Optimizers' updates: few launches, however many parameters; the values are eager's."""

from __future__ import annotations

import copy

import pytest
import torch

import dynamo

OPTIMIZERS = {
    "SGD": {"lr": 0.1},
    "SGD with momentum": {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    "Adam": {"lr": 0.01},
    "Adam with foreach": {"lr": 0.01, "foreach": True},
    "AdamW": {"lr": 0.01, "amsgrad": True},
    "AdamW with foreach": {"lr": 0.01, "foreach": True, "maximize": True},
    "RMSprop": {"lr": 0.01, "momentum": 0.5, "centered": True},
    "RMSprop with foreach": {"lr": 0.01, "foreach": True},
    "Adagrad": {"lr": 0.1},
    "Adagrad with foreach": {"lr": 0.1, "foreach": True, "lr_decay": 0.1},
}


def parameters(count):
    """Leaves of shapes that no single loop covers."""
    torch.manual_seed(0)
    return [torch.randn(3 + i % 5, 2 + i, requires_grad=True) for i in range(count)]


def stepped(name, leaves, compiled):
    """The parameters after four steps, and how many kernels a step has."""
    cls = getattr(torch.optim, name.split()[0])
    optimizer = cls(leaves, **OPTIMIZERS[name])

    def step():
        optimizer.step()

    run = dynamo.compile(step) if compiled else step
    torch.manual_seed(1)
    for _ in range(3):
        for leaf in leaves:
            leaf.grad = torch.randn_like(leaf)
        run()
    if not compiled:
        step()
        return 0
    report = dynamo.explain(step)()  # a fourth step
    assert report.graph_count == 1
    assert not report.fallback_ops
    return sum(r["kernels"] for r in report._reports())


FAST = ("SGD", "Adam with foreach")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in FAST else pytest.mark.slow) for n in OPTIMIZERS]
)
def test_few_kernels(name):
    dynamo.reset()
    leaves, twins = parameters(6), parameters(6)
    stepped(name, leaves, False)
    kernels = stepped(name, twins, True)
    for leaf, twin in zip(leaves, twins):
        torch.testing.assert_close(leaf, twin, rtol=1e-5, atol=1e-6)
    assert 1 <= kernels <= 4, kernels


def test_what_is_read_later_is_not_put_off():
    """The write of x comes before the matrix product that reads it."""

    def f(x, y, w):
        x.add_(1)
        y.mul_(2)
        z = x @ w
        return z, x.sum()

    arguments = [torch.randn(4, 4), torch.randn(5, 3), torch.randn(4, 4)]
    others = copy.deepcopy(arguments)
    expected, found = f(*arguments), dynamo.compile(f)(*others)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(others, arguments)


def test_an_update_that_reads_another():
    """p takes what m was made; q takes what p was before."""

    def f(p, q, m, g):
        m.mul_(0.9).add_(g)
        q.add_(p.sum(0))
        p.sub_(m)
        q.mul_(m.mean())

    arguments = [torch.randn(5, 7), torch.randn(7), torch.randn(5, 7), torch.randn(5, 7)]
    others = copy.deepcopy(arguments)
    f(*arguments)
    dynamo.compile(f)(*others)
    torch.testing.assert_close(others, arguments)
