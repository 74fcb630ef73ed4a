"""Matrix products whose bias the next kernel adds."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import dynamo
from dynamo.api.compile import compile_fresh
from tests.inductor.compiling import check

X, W, B = torch.randn(6, 4, 8), torch.randn(5, 8), torch.randn(5)
SPECIAL = torch.tensor([math.inf, -math.inf, math.nan, 0.0, -0.0])


def activated(x, w, b):
    return (F.elu(F.linear(x, w, b)),)


def added(x, w, b):
    return (F.linear(x, w, b) + x[..., :5],)


def normed(x, w, b):
    return (F.layer_norm(F.linear(x, w, b) + x[..., :5], [5]),)


def twice(x, w, b):
    return (torch.addmm(b, torch.addmm(b, x[0], w.t()).relu(), w[:, :5]).exp(),)


def calls(c):
    return [step.op for step in c.spec.steps if step.kind == "aten"]


@pytest.mark.parametrize("fn", [activated, added, normed, twice])
@pytest.mark.parametrize(
    "args",
    [
        (X, W, B),
        (X, W, SPECIAL),
        (X, W.t().contiguous().t(), SPECIAL.flip(0)),
        (X[1:4], torch.randn(5, 16)[:, ::2], torch.randn(10)[::2]),
        (X.double(), W.double(), B.double()),
        (X[:1], W, torch.randn(7)[2:]),
    ],
)
def test_the_reader_adds_the_bias(fn, args):
    c = check(fn, *args, rtol=1e-4, fallbacks=("mm.default",))
    assert set(calls(c)) == {"aten::mm"}


def test_an_empty_product():
    check(activated, X[:0], W, B, fallbacks=("mm.default",))


def returned(x, w, b):
    return (F.linear(x, w, b),)


def read_twice(x, w, b):
    y = F.linear(x, w, b)
    return y.exp(), y.sum(0)


def read_by_a_product(x, w, b):
    return (F.linear(x, w, b) @ w,)


def read_by_a_product_of_views(x, w, b):
    y = F.linear(x, w, b).view(2, 3, 4, 5).transpose(1, 2)
    return (y @ y.transpose(-1, -2),)


def scaled(x, w, b):
    return (torch.addmm(b, x[0], w.t(), beta=2, alpha=0.5).exp(),)


def of_a_matrix(x, w, b):
    return (torch.addmm(b.expand(4, 5) * 2, x[0], w.t()).exp(),)


@pytest.mark.parametrize(
    "fn", [returned, read_twice, read_by_a_product, read_by_a_product_of_views, scaled, of_a_matrix]
)
def test_the_library_adds_the_bias(fn):
    c = check(fn, X, W, B, rtol=1e-4, fallbacks=("mm.default", "bmm.default", "addmm.default"))
    assert "aten::addmm" in calls(c)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_short_floats_are_rounded_as_the_library_rounds(dtype):
    args = [t.to(dtype) for t in (X, W, B)]
    c = check(added, *args, rtol=1e-2, fallbacks=("addmm.default",))
    assert calls(c) == ["aten::addmm"]


def reshaped(x, w, b):
    return (torch.addmm(b, x.reshape(-1, 8), w.t()).view(x.shape[0], x.shape[1], 5),)


def both_shapes(x, w, b):
    y = torch.addmm(b, x.reshape(-1, 8), w.t())
    return y.view(x.shape[0], x.shape[1], 5), y


def both_alike(x, w, b):
    y = torch.addmm(b, x.reshape(-1, 8), w.t()).view(x.shape[0], x.shape[1], 5)
    return y, y, y[0]


def transposed(x, w, b):
    return (torch.addmm(b, x.reshape(-1, 8), w.t()).view(x.shape[0], x.shape[1], 5).mT,)


def part(x, w, b):
    return (torch.addmm(b, x.reshape(-1, 8), w.t()).view(x.shape[0], x.shape[1], 5)[1:],)


RESHAPES = {reshaped: 0, both_shapes: 0, both_alike: None, transposed: None, part: None}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("fn", RESHAPES)
def test_a_product_returned_in_another_shape(fn, dynamic):
    compiled, context = compile_fresh(fn, dynamic=dynamic)
    for rows in (6, 3, 4):
        x = torch.randn(rows, 4, 8)
        got, expected = compiled(x, W, B), fn(x, W, B)
        for one, other in zip(got, expected, strict=True):
            torch.testing.assert_close(one, other)
            assert one.stride() == other.stride()
            assert one._version == other._version == 0
        for outs in (got, expected):
            outs[0].mul_(2)  # seen in the other outputs that share its memory
        for one, other in zip(got, expected, strict=True):
            torch.testing.assert_close(one, other)
            assert one._version == other._version
    if RESHAPES[fn] is not None:
        graphs = [g for r in context.records for g in r.graphs]
        assert {g.report["kernels"] for g in graphs} == {RESHAPES[fn]}


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_a_linear_at_the_end(mode):
    module = torch.nn.Linear(8, 5)
    compiled = dynamo.compile(module)
    with mode():
        got, expected = compiled(X), module(X)
        torch.testing.assert_close(got, expected)
        assert got.is_inference() == expected.is_inference()
        assert got.requires_grad == expected.requires_grad
        got.add_(1), expected.add_(1)
    if got.requires_grad:
        grads = [torch.autograd.grad(one.square().sum(), module.weight) for one in (got, expected)]
        torch.testing.assert_close(*grads)
