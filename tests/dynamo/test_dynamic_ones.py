"""Sizes that become 1 after they have varied: one graph for all sizes where it does not depend on
the size being 1, and eager's results where it does.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import dynamo
from backends.aot_eager import aot_eager
from backends.inductor import inductor
from tests.dynamo.dynamic_support import Counting, same

SIZES = (5, 7, 1, 3, 1, 2)
LINEAR, NORM = torch.nn.Linear(4, 4), torch.nn.LayerNorm(4)


def rows(n):
    return torch.linspace(-1, 1, n * 4).view(n, 4)


def numbers(n):
    return torch.arange(n) % 4


# name -> (function, inputs for a size)
GENERAL = {
    "pointwise": (lambda x: (x * 2 + 1).relu(), lambda n: [rows(n)]),
    "broadcast": (lambda x, y: x + y * x.sum(1, True), lambda n: [rows(n), torch.ones(4)]),
    "outer": (lambda x, y: x[:, None] * y[None], lambda n: [numbers(n), numbers(n)]),
    "where": (lambda x: torch.where(x > 0, x, 0.0).masked_fill(x > 1, 1), lambda n: [rows(n)]),
    "linear": (lambda x: LINEAR(x), lambda n: [rows(n)]),
    "linear_3d": (lambda x: LINEAR(x), lambda n: [rows(2 * n).view(2, n, 4)]),
    "layer_norm": (lambda x: NORM(x) * x, lambda n: [rows(n)]),
    "softmax": (lambda x: x.softmax(0), lambda n: [rows(n)]),
    "reductions": (lambda x: (x.sum(0), x.mean(1), x.amax(0)), lambda n: [rows(n)]),
    "variance": (lambda x: x.var(0, correction=0), lambda n: [rows(n)]),
    "loss": (lambda x, t: F.cross_entropy(x, t), lambda n: [rows(n), numbers(n)]),
    "gather": (lambda x, i: x.gather(1, i[:, None]), lambda n: [rows(n), numbers(n)]),
    "index": (lambda x, i: x[i] * 2, lambda n: [rows(4), numbers(n)]),
    "index_add": (
        lambda x, i: torch.zeros(4, 4).index_add(0, i, x),
        lambda n: [rows(n), numbers(n)],
    ),
    "concatenated": (lambda x, y: torch.cat([x, y]) * 2, lambda n: [rows(n), rows(3)]),
    "stacked": (lambda x: torch.stack([x, x * 2]), lambda n: [rows(n)]),
    "viewed": (lambda x: x.view(-1, 2, 2).sum(1), lambda n: [rows(n)]),
    "in_place": (lambda x: x.clone().mul_(2).add_(1), lambda n: [rows(n)]),
    "summed_up": (lambda x: x.cumsum(0) * 2, lambda n: [rows(n)]),
    "causal": (
        lambda x: (x @ x.t()).masked_fill(torch.ones(len(x), len(x)).triu(1).bool(), -9).exp(),
        lambda n: [rows(n)],
    ),
    "rotated": (
        lambda x: x * torch.arange(len(x))[:, None].cos() + x.flip(1),
        lambda n: [rows(n)],
    ),
    "padded": (lambda x: F.pad(x, (0, 0, 1, 2)), lambda n: [rows(n)]),
}


def mutated(x):
    y = x.t().reshape(-1)
    y.add_(1)
    return x * 2


def of_contiguous(x):
    y = x.t().contiguous()
    y.add_(1)
    return x * 2


# Where the size 1 is another program.
ASKING = {
    "squeezed": (lambda x: x.squeeze(0) * 2, lambda n: [rows(n)]),
    "squeezed_all": (lambda x: (x + 1).squeeze(), lambda n: [rows(n)]),
    "squeezed_in_place": (lambda x: x.clone().squeeze_(0).sum(0), lambda n: [rows(n)]),
    "broadcast_rows": (lambda x, y: x + y, lambda n: [rows(n), rows(1 if n == 1 else n)]),
    "is_contiguous": (lambda x: x * 2 if x.t().is_contiguous() else x * 3, lambda n: [rows(n)]),
    "reshaped_view": (mutated, lambda n: [rows(n)]),
    "contiguous_alias": (of_contiguous, lambda n: [rows(n)]),
    "branch": (lambda x: x * 2 if x.shape[0] == 1 else x * 3, lambda n: [rows(n)]),
    "count": (lambda x: x * 2 if x.numel() < 5 else x * 3, lambda n: [rows(n)]),
    "sum_to_size": (lambda x: (x * 2).sum_to_size(1, 4), lambda n: [rows(n)]),
    "permuted": (lambda x: (x.t() * 2).contiguous().view(-1), lambda n: [rows(n)]),
}


def _called(fn, compiled, args, train):
    results = []
    for function in (fn, compiled):
        given = [a.clone().requires_grad_(train and a.is_floating_point()) for a in args]
        found = function(*[a * 1 if a.requires_grad else a for a in given])
        found = found if isinstance(found, tuple) else (found,)
        if train:
            sum((t * t).sum() for t in found if t.requires_grad).backward()
        grads = [a.grad for a in given if a.requires_grad]
        results.append(([t.detach() for t in found], grads, [a.detach() for a in given]))
    same(results[0], results[1])


@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", GENERAL)
def test_one_graph_serves_size_one(name, train):
    fn, inputs = GENERAL[name]
    if train and not any(a.is_floating_point() for a in inputs(2)):
        pytest.skip("no floats")
    counting = Counting(aot_eager)
    compiled = dynamo.compile(fn, backend=counting, fullgraph=True)
    for n in SIZES:
        _called(fn, compiled, inputs(n), train)
    assert len(counting.graphs) == 2, [r.recompile_reason for r in compiled.context.records]


@pytest.mark.parametrize("name", [*GENERAL, *ASKING])
def test_results_of_generated_kernels(name):
    fn, inputs = {**GENERAL, **ASKING}[name]
    compiled = dynamo.compile(fn, backend=inductor)
    for n in SIZES:
        _called(fn, compiled, inputs(n), False)


@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", ASKING)
def test_where_one_is_another_program(name, train):
    fn, inputs = ASKING[name]
    compiled = dynamo.compile(fn, backend=aot_eager)
    for n in SIZES:
        _called(fn, compiled, inputs(n), train)
