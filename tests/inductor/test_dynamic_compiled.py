"""Whole programs with sizes that vary, captured and compiled: one compile, and none of it on aten
because of symbols."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch.utils import _pytree as pytree

import dynamo
from backends.inductor import inductor
from tests.dynamo.dynamic_support import Counting

pytestmark = pytest.mark.slow


def matrix(more=1):
    return [(torch.randn(n, n + more),) for n in (5, 8, 17, 33)]


def images(*sizes):
    return [(torch.randn(2, 3, n, n + 2),) for n in sizes]


PROGRAMS = {
    "pad": (lambda x: F.pad(x, (1, 2)) * 2, matrix()),
    "root of a size": (lambda x: x / (x.shape[-1] ** 0.5) + x.shape[0] / 3, matrix()),
    "math.sqrt of a size": (lambda x: x * math.sqrt(x.shape[-1]), matrix()),
    "statistics": (lambda x: (x.mean(), x.var(0), x.std(), x.softmax(0), x.cumsum(0)), matrix()),
    "slices": (
        lambda x: (x[1:], x[:-1], x[::2], x[-2:], x[x.shape[0] // 2 :] + 1),
        matrix(),
    ),
    "convolution": (
        lambda x: F.relu(F.conv2d(x, torch.ones(4, 3, 3, 3), padding=1)),
        images(5, 8, 17),
    ),
    "pooling": (
        lambda x: (
            F.max_pool2d(x, 2),
            F.avg_pool2d(x, 2),
            F.adaptive_avg_pool2d(x, 1),
            F.interpolate(x, scale_factor=2),
            F.interpolate(x, scale_factor=2.0, mode="bilinear"),
        ),
        images(6, 8, 17),
    ),
    "ranges": (lambda x: torch.arange(x.shape[0]) * 2 + x.long()[:, 0], matrix()),
    "causal mask": (
        lambda x: x.masked_fill(torch.ones_like(x, dtype=torch.bool).tril() == 0, -1e9).softmax(-1),
        matrix(0),
    ),
    "aliases": (lambda x: (x.view(-1), x.t(), x.shape[0], x[1:]), matrix()),
    "written input": (lambda x: x.add_(1).mul_(x.shape[0]), matrix()),
}


def compiled(fn):
    reports = []

    def counted(gm, example_inputs):
        result = inductor(gm, example_inputs)
        reports.append(result.compile_report)
        return result

    counting = Counting(counted)
    return dynamo.compile(fn, backend=counting, dynamic=True, fullgraph=True), counting, reports


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name):
    fn, calls = PROGRAMS[name]
    run, counting, reports = compiled(fn)
    for args in calls:
        mine, theirs = ([a.clone() for a in args] for _ in range(2))
        with torch.no_grad():
            got, want = run(*mine), fn(*theirs)
        same(got, want)
        same(mine, theirs)
    assert len(counting.graphs) == 1
    assert not any("on aten" in note for report in reports for note in report["notes"])


def same(got, want):
    """Values, to the last digits that another order of summing changes; dtypes, sizes, strides."""
    for g, w in zip(pytree.tree_leaves(got), pytree.tree_leaves(want), strict=True):
        if isinstance(w, torch.Tensor):
            torch.testing.assert_close(g, w, rtol=1e-4, atol=1e-5, check_stride=True)
        else:
            assert g == w


def test_training():
    class Attention(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = torch.nn.Linear(16, 48), torch.nn.Linear(16, 16)
            self.norm = torch.nn.LayerNorm(16)

        def forward(self, x):
            b, t, _ = x.shape
            q, k, v = self.qkv(self.norm(x)).view(b, t, 3, 2, 8).permute(2, 0, 3, 1, 4)
            weights = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(8), -1)
            return x + self.out((weights @ v).transpose(1, 2).reshape(b, t, 16))

    torch.manual_seed(0)
    model = Attention()
    run, counting, reports = compiled(model)
    for b, t in ((2, 5), (3, 8), (2, 17), (5, 33)):
        x = torch.randn(b, t, 16, requires_grad=True)
        y = x.detach().clone().requires_grad_()
        model.zero_grad()
        model(x).square().sum().backward()
        want = [x.grad, *(p.grad.clone() for p in model.parameters())]
        model.zero_grad()
        run(y).square().sum().backward()
        got = [y.grad, *(p.grad for p in model.parameters())]
        for g, w in zip(got, want, strict=True):
            torch.testing.assert_close(g, w, rtol=1e-4, atol=1e-3)
    assert len(counting.graphs) == 1
    assert not any("on aten" in note for report in reports for note in report["notes"])
