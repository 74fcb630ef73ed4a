"""Training graphs with operators that write and have no functional variant, and those that
differentiate a part of what they return: compiled whole, and equal to eager."""

from __future__ import annotations

import pytest
import torch
from torch.utils import _pytree as pytree

from dynamo.api.compile import compile_fresh


@torch.library.custom_op("training_writes::accumulate", mutates_args=("total", "count"))
def accumulate(total: torch.Tensor, x: torch.Tensor, count: torch.Tensor) -> None:
    total += x
    count += 1


@torch.library.custom_op("training_writes::push", mutates_args=("total",))
def push(total: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    total += x
    return total * 2


push.register_fake(lambda total, x: torch.empty_like(total))


class Watch(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        doubled = grad.clone()
        accumulate(doubled, grad, torch.zeros(1))
        return doubled


def before_the_product(w, x, total, count):
    accumulate(total, x, count)
    return (w * total).exp()


def of_an_intermediate(w, x, total, count):
    y = w * x
    accumulate(total, y.detach(), count)
    return y.exp() * total


def twice_the_same_memory(w, x, total, count):
    mine = torch.zeros(3, 4)
    first = push(mine, x)
    second = push(mine, first)
    return w.sin() * mine + second * w


def in_the_backward(w, x, total, count):
    return Watch.apply(w * x) * 3


def loss_is_spent(w, x, total, count):
    loss = (w * x).exp().sum()
    (gradient,) = torch.autograd.grad(loss, w)
    return loss, gradient, w.sin() * x


def nested_and_spent(w, x, total, count):
    y = (w * x).exp()
    loss = y.sum()
    (gradient,) = torch.autograd.grad(loss, w)
    return {"loss": loss, "others": [w.sin() * gradient, 3]}, y


def nothing_is_spent(w, x, total, count):
    loss = (w * x).exp().sum()
    (gradient,) = torch.autograd.grad(loss, w, retain_graph=True)
    return loss, gradient, w.sin() * x


def run(function):
    """What two calls return, and what a backward through each result gives or says."""
    torch.manual_seed(0)
    w = torch.randn(3, 4, requires_grad=True)
    x, total, count = torch.randn(3, 4), torch.zeros(3, 4), torch.zeros(1)
    found = []
    for _ in range(2):
        for leaf in pytree.tree_leaves(function(w, x, total, count)):
            found.append(leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf)
            if getattr(leaf, "requires_grad", False):
                try:
                    leaf.sum().backward()
                    found.append(w.grad.clone())
                except RuntimeError as error:
                    found.append(str(error))
    return [*found, total, count]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize(
    "function",
    [
        before_the_product,
        of_an_intermediate,
        twice_the_same_memory,
        in_the_backward,
        loss_is_spent,
        nested_and_spent,
        nothing_is_spent,
    ],
)
def test_compiled_whole(function, backend):
    compiled, context = compile_fresh(function, backend=backend)
    for actual, expected in zip(run(compiled), run(function), strict=True):
        if isinstance(expected, torch.Tensor):
            torch.testing.assert_close(actual, expected)
        else:
            assert actual == expected
    graphs = [graph for record in context.records for graph in record.graphs]
    assert len(graphs) == 1
    assert not [n for n in graphs[0].report.get("notes", ()) if "op by op" in n or "part" in n]
