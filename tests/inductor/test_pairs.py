"""Generated products of bfloat16 whose weights are panels of pairs of rows."""

from __future__ import annotations

import math
import platform
from dataclasses import replace

import pytest
import torch
from torch import nn

from dynamo.api.compile import compile_fresh
from inductor import costs, measure, products, quantized
from inductor import widen as widening
from inductor.measure import Budget, Choice
from inductor.panels import in_panels, panel_mm
from inductor.runtime import toolchain
from tests.inductor.compiling import check
from tests.inductor.test_derived import notes

CLOSE = {"rtol": 2e-2, "atol": 2e-2}


@pytest.fixture
def generated(monkeypatch):
    """Products of any size are generated, by pairs on every processor."""

    def measured(candidates, budget, ahead, before):
        name = "generated" if "generated" in candidates else next(iter(candidates))
        return Choice(name, dict.fromkeys(candidates, 1.0))

    monkeypatch.setattr(measure, "_measured", measured)
    monkeypatch.setattr(measure, "_keep", lambda entry, choice: None)
    monkeypatch.setattr(measure, "_recall", lambda entry, candidates: None)
    monkeypatch.setattr(costs, "LEAST_PRODUCT", 1)
    monkeypatch.setattr(products, "Budget", lambda seconds: Budget(1e6))  # a busy machine
    for module in (products, quantized, widening):
        monkeypatch.setattr(module, "has_pairs", lambda: True)
    measure.forget()
    yield
    measure.forget()


def halves(*size: int) -> torch.Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(sum(size))).bfloat16()


def panels(dtype: torch.dtype, *size: int) -> torch.Tensor:
    made = halves(*size)
    return in_panels((made * 30).to(dtype) if dtype == torch.int8 else made, pairs=True)


WEIGHTS = [torch.bfloat16, torch.int8]


@pytest.mark.parametrize("rows", [1, 2, 5, 6, 7, 13, 25, 48, 53, 101, 300])
@pytest.mark.parametrize("dtype", WEIGHTS, ids=str)
def test_sizes(dtype, rows):
    inners, widths = [1, 7, 1026, 2101], [1, 17, 130, 300]
    made = [panels(dtype, i, n) for i, n in zip(inners, widths, strict=True)]

    def fn(a, b, c, d, v, w, x, y):
        return panel_mm(a, v, 1), panel_mm(b, w, 17), panel_mm(c, x, 130), panel_mm(d, y, 300)

    check(fn, *[halves(rows, inner) for inner in inners], *made, rtol=1e-4, atol=2e-2)


@pytest.mark.parametrize("rows", [2, 40, 130])
@pytest.mark.parametrize("dtype", WEIGHTS, ids=str)
def test_without_amx(monkeypatch, dtype, rows):
    """By vectors, as on a processor that lacks these instructions."""
    monkeypatch.setenv("CXX", "g++ -DFG_NO_AMX")
    fn = lambda x, w: (panel_mm(x, w, 33) * 2,)  # noqa: E731
    check(fn, halves(rows, 71), panels(dtype, 71, 33), rtol=1e-4, atol=2e-3)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="of other flags")
@pytest.mark.parametrize("flags", ["-march=x86-64-v3", "-march=x86-64-v4", "-march=x86-64"])
def test_int8_without_instructions(monkeypatch, flags):
    """Every value of int8, by whatever vectors there are."""
    if flags.endswith("v4") and torch.backends.cpu.get_cpu_capability() != "AVX512":
        pytest.skip("a processor without AVX-512")
    compiler = replace(toolchain.find_compiler(), tuning=(flags,))
    monkeypatch.setattr(toolchain, "find_compiler", lambda: compiler)
    w = torch.arange(-128, 128).repeat(3).reshape(48, 16).to(torch.int8)
    check(lambda x, w: (panel_mm(x, w, 16),), halves(14, 48), in_panels(w, pairs=True), rtol=1e-4)


@pytest.mark.parametrize("rows", [16, 33, 128, 200])
@pytest.mark.parametrize("dtype", WEIGHTS, ids=str)
def test_readers_of_blocks(dtype, rows):
    """Results that only a kernel behind the product reads, by element and by row."""
    w = panels(dtype, 40, 300)

    def fn(x, w):
        y = panel_mm(x, w, 300).bfloat16()
        return y.relu() + 1, torch.softmax(panel_mm(x, w, 300), -1).bfloat16()

    check(fn, halves(rows, 40) / 8, w, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf], ids=str)
def test_special_values(value):
    w = halves(20, 33)
    w[3, 5] = value

    def fn(x, w):
        return (panel_mm(x, w, 33),)

    check(fn, halves(4, 20), in_panels(w, pairs=True), rtol=1e-4)
    x = halves(5, 20)
    x[2, 7] = value
    for rows in (1, 5):
        check(fn, x[2 : 2 + rows], panels(torch.int8, 20, 33), rtol=1e-4)


@pytest.mark.parametrize("dtype", WEIGHTS, ids=str)
def test_the_element_after_an_odd_row_is_no_part(dtype):
    x = halves(5, 9)
    x[:, 7:] = math.nan

    def fn(x, w):
        return (panel_mm(x[:, :7], w, 17),)

    check(fn, x, panels(dtype, 7, 17), rtol=1e-4)


class Layers(nn.Module):
    """One row after another; two layers share a weight."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(41, 72), nn.Linear(72, 41, bias=False)
        self.third = nn.Linear(41, 72)
        self.third.weight = self.first.weight

    def forward(self, x):
        return self.third(self.second(torch.relu(self.first(x))))


@pytest.mark.parametrize("rows", [1, 30, 300])
def test_modules(generated, rows):
    net = Layers().bfloat16().eval()
    compiled, context = compile_fresh(net)
    x = halves(rows, 41)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), net(x), **CLOSE)
        net.first.weight.mul_(-2)
        torch.testing.assert_close(compiled(x), net(x), **CLOSE)
    assert any("of bfloat16 by generated" in note for note in notes(context)), notes(context)
    assert not any("widen" in note for note in notes(context)), notes(context)


def test_autocast(generated):
    """Weights of float32 that the program casts."""
    net, x = Layers().eval(), torch.randn(5, 41)

    def fn(x):
        with torch.autocast("cpu", torch.bfloat16):
            return net(x)

    compiled, context = compile_fresh(fn)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), fn(x), **CLOSE)
    assert any("of bfloat16 by generated" in note for note in notes(context)), notes(context)


@pytest.mark.parametrize("rows", [1, 3, 70])
def test_weights_of_int8(generated, rows):
    """They stay so in panels, of pairs for more than two rows, until they change."""
    net = nn.Module()
    net.register_buffer("weight", (halves(50, 64) * 30).to(torch.int8))
    scales = halves(50).abs() / 50

    def fn(x):
        y = torch.ops.aten._weight_int8pack_mm(x, net.weight, scales)
        return y, x @ net.weight.t().to(x.dtype) * scales, x @ net.weight.to(x.dtype).t()

    compiled, context = compile_fresh(fn)
    with torch.no_grad():
        x = halves(rows, 64)
        for _ in range(2):
            for got, expected in zip(compiled(x), fn(x), strict=True):
                torch.testing.assert_close(got, expected, rtol=2e-2, atol=5e-2)
            net.weight.neg_()
    count = 3 if rows < 3 else 2  # torch's operator is in pairs at once
    made = [note for note in notes(context) if "of int8 by generated" in note]
    assert sum(int(note.split()[1]) for note in made) == count


def test_a_number_of_rows_that_varies(generated):
    net = Layers().bfloat16().eval()
    compiled, _ = compile_fresh(net, dynamic=True)
    with torch.no_grad():
        for rows in (3, 5, 49, 130):
            x = halves(rows, 41)
            torch.testing.assert_close(compiled(x), net(x), **CLOSE)
