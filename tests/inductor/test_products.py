"""Matrix products whose bias the next kernel adds."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from tests.inductor.compiling import check

X, W, B = torch.randn(6, 4, 8), torch.randn(5, 8), torch.randn(5)
SPECIAL = torch.tensor([math.inf, -math.inf, math.nan, 0.0, -0.0])


def gelu(x, w, b):
    return (F.gelu(F.linear(x, w, b)),)


def added(x, w, b):
    return (F.linear(x, w, b) + x[..., :5],)


def normed(x, w, b):
    return (F.layer_norm(F.linear(x, w, b) + x[..., :5], [5]),)


def twice(x, w, b):
    return (torch.addmm(b, torch.addmm(b, x[0], w.t()).relu(), w[:, :5]).exp(),)


def calls(c):
    return [step.op for step in c.spec.steps if step.kind == "aten"]


@pytest.mark.parametrize("fn", [gelu, added, normed, twice])
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
    check(gelu, X[:0], W, B, fallbacks=("mm.default",))


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
