"""Generated products whose weights stay half precision or int8."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from dynamo.api.compile import compile_fresh
from inductor import costs, measure, products, quantized
from inductor import widen as widening
from inductor.measure import Budget, Choice
from inductor.panels import in_panels, panel_mm
from tests.inductor.compiling import check, staged
from tests.inductor.test_derived import notes

NARROW = [torch.bfloat16, torch.float16, torch.int8]
HALF = NARROW[:2]
CLOSE = {torch.float32: 1e-4, torch.bfloat16: 2e-2, torch.float16: 4e-3}


@pytest.fixture(autouse=True)
def generated(monkeypatch):
    """Products of any size are generated, and half precision is slow."""

    def measured(candidates, budget, ahead, before):
        names = [name for name in ("generated", "float32") if name in candidates]
        return Choice(names[0] if names else "aten", dict.fromkeys(candidates, 1.0))

    monkeypatch.setattr(measure, "_measured", measured)
    monkeypatch.setattr(measure, "_keep", lambda entry, choice: None)
    monkeypatch.setattr(measure, "_recall", lambda entry, candidates: None)
    monkeypatch.setattr(costs, "LEAST_PRODUCT", 1)
    monkeypatch.setattr(products, "Budget", lambda seconds: Budget(1e6))  # a busy machine
    for module in (products, quantized, widening):
        monkeypatch.setattr(module, "has_pairs", lambda: False)
    measure.forget()
    yield
    measure.forget()


def weights(dtype: torch.dtype, *size: int) -> torch.Tensor:
    made = torch.randn(*size, generator=torch.Generator().manual_seed(sum(size)))
    return (made * 30).to(dtype) if dtype == torch.int8 else made.to(dtype)


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 6, 7, 13, 25, 48, 53, 101])
@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_sizes(dtype, rows):
    inners, widths = [1, 7, 513, 1100], [1, 17, 130, 300]
    made = [weights(dtype, i, n) for i, n in zip(inners, widths, strict=True)]

    def fn(a, b, c, d, v, w, x, y):
        return panel_mm(a, v, 1), panel_mm(b, w, 17), panel_mm(c, x, 130), panel_mm(d, y, 300)

    xs = [torch.randn(rows, inner) for inner in inners]
    check(fn, *xs, *map(in_panels, made), rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_every_value_of_half_precision(dtype):
    """To float32 and back, alone and as a weight; NaN as some NaN."""
    every = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(dtype)
    wide = torch.cat([every.float(), torch.randn(9999) * 100, torch.randn(9999) * 1e-7])
    check(lambda x, y: (x.float() + 0, (y + 0).to(dtype)), every, wide)
    finite = torch.where(every.isfinite(), every, 1)
    weight = finite.reshape(1, -1)
    found = staged(lambda x, w: (panel_mm(x, w, 1 << 16),), [torch.ones(1, 1), in_panels(weight)])
    assert torch.equal(*found.compiled(torch.ones(1, 1), in_panels(weight)), finite.float()[None])


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf], ids=str)
@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_special_values(dtype, value):
    w = weights(dtype, 20, 33)
    w[3, 5] = value
    x = torch.randn(4, 20)
    check(lambda x, w: (panel_mm(x, w, 33),), x, in_panels(w), rtol=1e-4)


class Layers(nn.Module):
    """One row after another; two layers share a weight."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(40, 72), nn.Linear(72, 40, bias=False)
        self.third = nn.Linear(40, 72)
        self.third.weight = self.first.weight

    def forward(self, x):
        return self.third(self.second(torch.relu(self.first(x))))


@pytest.mark.parametrize("rows", [1, 30])
@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_modules_of_half_precision(dtype, rows):
    net = Layers().to(dtype).eval()
    compiled, context = compile_fresh(net)
    x = torch.randn(rows, 40).to(dtype)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), net(x), rtol=CLOSE[dtype], atol=CLOSE[dtype])
        net.first.weight.mul_(-2)
        torch.testing.assert_close(compiled(x), net(x), rtol=CLOSE[dtype], atol=CLOSE[dtype])
    name = str(dtype).removeprefix("torch.")
    assert any(f"of {name} by generated" in note for note in notes(context)), notes(context)


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_autocast(dtype):
    """Weights of float32 that the program casts."""
    net, x = Layers().eval(), torch.randn(5, 40)

    def fn(x):
        with torch.autocast("cpu", dtype):
            return net(x)

    compiled, _ = compile_fresh(fn)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), fn(x), rtol=CLOSE[dtype], atol=CLOSE[dtype])


class Int8(nn.Module):
    """kind: how the program multiplies by its weight of int8.

    64 elements deep: torch's operator reads past the end of shallower rows with AVX-512.
    """

    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.register_buffer("weight", weights(torch.int8, 50, 64))
        self.register_buffer("scales", torch.rand(50) / 50)

    def forward(self, x):
        scales = self.scales.to(x.dtype)
        if self.kind == "operator":
            return torch.ops.aten._weight_int8pack_mm(x, self.weight, scales)
        if self.kind == "linear":
            return nn.functional.linear(x, self.weight.to(x.dtype)) * scales
        return x @ self.weight.t().to(x.dtype) * scales


@pytest.mark.parametrize("rows", [1, 20])
@pytest.mark.parametrize("dtype", [torch.float32, *HALF], ids=str)
@pytest.mark.parametrize("kind", ["operator", "linear", "product"])
def test_int8(kind, dtype, rows):
    net = Int8(kind).eval()
    compiled, context = compile_fresh(net)
    x = torch.randn(rows, 64).to(dtype)
    with torch.no_grad():
        for _ in range(2):
            expected = net(x)
            torch.testing.assert_close(
                compiled(x), expected, rtol=CLOSE[dtype], atol=CLOSE[dtype] * 4
            )
            net.weight.neg_()
    if kind == "operator" or dtype != torch.float16:
        assert any("of int8 by generated" in note for note in notes(context)), notes(context)


def test_int8_of_an_argument():
    """A weight that each call brings is left to the operator."""
    net = Int8("operator")

    def fn(x, w, s):
        return torch.ops.aten._weight_int8pack_mm(x, w, s)

    compiled, context = compile_fresh(fn)
    x = torch.randn(4, 64)
    torch.testing.assert_close(compiled(x, net.weight, net.scales), fn(x, net.weight, net.scales))
    assert not any("int8" in note for note in notes(context))


def test_copies_take_the_memory_of_the_weights():
    net = nn.Linear(512, 512).to(torch.bfloat16).eval()
    compiled, context = compile_fresh(net)
    with torch.no_grad():
        compiled(torch.randn(3, 512).bfloat16())
    assert any("0.50 MiB" in note for note in notes(context)), notes(context)
