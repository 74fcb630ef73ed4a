"""Branches and loops on the values of tensors that leave tensors whose sizes are data, or vary."""

from __future__ import annotations

import pytest
import torch
from torch.utils import _pytree as pytree

import dynamo
from backends.registry import lookup_backend
from tests.dynamo import branch_support
from tests.dynamo.dynamic_support import Counting


def both_sides(x, w):
    y = w[x > 0]
    if x.sum() > 3:
        z = y * 2
    else:
        z = y + 1
    return z, y


def one_side(x, w):
    rows = torch.where(x > 0)[0]
    y = x[rows]
    if w[rows].sum() > 0.5:
        y = y * 2
    return y.exp(), rows


def on_their_number(x, w):
    y = w[x > 1]
    if y.numel() > 1:
        y = y * 2
    else:
        y = y - 1
    return y.sin()


def a_loop(x, w):
    y, n = w[x > 0], torch.zeros(())
    while n < x.sum():
        y = y * 0.5
        n = n + 1
    return y, n


def in_a_side(x, w):
    y = x[:, None].expand(4, 3)[x > 0]
    if x.sum() > 3:
        if w[0] > x[0]:
            y = y @ torch.ones(3, 3)
        else:
            y = y.cumsum(1)
    elif x[1] > 1:
        y = y + w[:3]
    return y, y.sum(0)


PROGRAMS = [both_sides, one_side, on_their_number, a_loop, in_a_side]


@pytest.mark.parametrize("kind", ["plain", "grads"])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda function: function.__name__)
def test_program(function, backend, kind):
    branch_support.check_one_graph(function, kind, backend)


# -- sizes that vary ------------------------------------------------------------------------------
def one_of_four(x, w, scale):
    total = x.sum()
    if total > 9:
        y = x * scale
    elif total > 4:
        y = x * w
    elif total > 1:
        y = torch.softmax(x + w, 1) * x.shape[0]
    else:
        y = x - scale
    return y, total


def of_other_sizes(x, w, scale):
    flat = (x * 1).flatten()
    if x.sum() > 4:
        y = flat.roll(1) + flat.numel()
    else:
        y = torch.cat([flat[1:], flat[:1]]) * (w.view(-1) + flat.numel())
    return y.view(x.shape) @ w.t()


def steps(x, w, scale):
    y = x.t() * 1
    if y.mean() > 0.25:
        y = y.transpose(0, 1).contiguous().t() + 1
    elif w[0, 0] > 0:
        y = (w * scale).t()
    else:
        y = y * 2
    return y.t().sum(0, keepdim=True) * w


def within(x, w, scale):
    y = x.mean(0)
    if x.sum() > 1:
        if x[0].sum() > 1:
            y = x[0] + y
        else:
            y = x.sum(0) - y
        y = y * scale
    return y + w


def around_a_size(x, w, scale):
    if x.sum() > 1:
        y = x * 2 if x.shape[0] > 3 else x * w
    else:
        y = x - 1 if x.shape[1] > 4 else x * scale
    return y, y.numel()


def a_loop_of_sizes(x, w, scale):
    y = x * 1
    while y.sum() > 1:
        y = y * 0.5 - w * w / w.numel()
    return y, x.shape


def rewritten(x, w, scale):
    seen = torch.zeros(x.shape)
    if x.sum() > 1:
        seen += 1
    elif x.sum() > 0:
        seen *= x.shape[0]
    return seen * x + w


VARYING = [one_of_four, of_other_sizes, steps, within, around_a_size, a_loop_of_sizes, rewritten]
SHAPES = [(3, 4), (5, 6), (2, 3), (7, 5), (3, 4), (9, 2), (6, 7), (8, 3), (4, 9), (2, 8)]


def graphs_of(function, backend, shapes, grad=True):
    """Compare calls with eager, values, strides and gradients; the graphs that they made."""
    counting = Counting(lookup_backend(backend))
    compiled = dynamo.compile(function, backend=counting)
    for number, shape in enumerate(shapes):
        for level in (0.0, 0.3, 0.05, 2.0):
            generator = torch.Generator().manual_seed(number)
            x = torch.rand(shape, generator=generator) * level
            w = torch.rand(shape, generator=generator) - 0.5
            outcomes = []
            for run in (function, compiled):
                given = [t.clone().requires_grad_(grad) for t in (x, w)]
                results = run(*given, 0.5 + number)
                tensors = [t for t in pytree.tree_leaves(results) if torch.is_tensor(t)]
                wanted = [t.sum() for t in tensors if t.requires_grad]
                if wanted:
                    sum(wanted).backward()
                facts = [(t.shape, t.stride(), t.requires_grad, t.detach()) for t in tensors]
                outcomes.append((facts, [t.grad for t in given]))
            branch_support.same(*outcomes)
    return len(counting.graphs)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("function", VARYING, ids=lambda function: function.__name__)
def test_sizes_vary(function, backend):
    found = graphs_of(function, backend, SHAPES)
    assert found == (5 if function is around_a_size else 2)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("function", VARYING, ids=lambda function: function.__name__)
def test_sizes_of_one_and_none(function, backend):
    graphs_of(function, backend, [(3, 4), (5, 7), (1, 4), (4, 1), (1, 1), (6, 3)])
    if function not in (steps, within):  # the mean, or the first row, of nothing
        graphs_of(function, backend, [(3, 4), (0, 4), (5, 7), (3, 0), (0, 0)], grad=False)
