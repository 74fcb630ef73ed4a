"""Floats that vary are inputs of the compiled code: no compilation for another value, and values as
eager's in every type.
"""

from __future__ import annotations

import math

import pytest
import torch

import dynamo

PROGRAMS = {
    "scaled": lambda x, y, f: x * f + y,
    "alpha": lambda x, y, f: torch.add(x, y, alpha=-f),
    "subtracted": lambda x, y, f: torch.sub(x, y, alpha=f) - f,
    "divided": lambda x, y, f: x / f + y / (1 - f * f),
    "addcdiv": lambda x, y, f: torch.addcdiv(x, y, y.abs() + 1, value=-f),
    "addcmul": lambda x, y, f: torch.addcmul(x, y, x, value=2 * f),
    "power": lambda x, y, f: (x.abs() + 1) ** f + y,
    "power_of_number": lambda x, y, f: (1.5 + f * f) ** x + y,
    "no dimensions": lambda x, y, f: (x.sum() * f, y),
    "in place": lambda x, y, f: x.mul_(f).add_(y, alpha=f),
    "integers": lambda x, y, f: torch.arange(4) * f + y[0],
    "compared": lambda x, y, f: (torch.where(x > f, x, y), x.le(f), y != f),
    "filled": lambda x, y, f: (torch.full((2, 3), f), torch.full_like(x.t(), -f) + y.t()),
    "masked": lambda x, y, f: x.masked_fill(y > 0, f).t(),
    "chosen": lambda x, y, f: torch.where(x > y, f, y) * torch.where(x > y, x, f),
    "from a number": lambda x, y, f: torch.rsub(x, f) + (f - y),
}


CASES = [(name, torch.float32) for name in PROGRAMS] + [
    pytest.param("alpha", torch.bfloat16, marks=pytest.mark.slow),
    pytest.param("addcdiv", torch.float64, marks=pytest.mark.slow),
    pytest.param("divided", torch.bfloat16, marks=pytest.mark.slow),
    pytest.param("compared", torch.bfloat16, marks=pytest.mark.slow),
    pytest.param("masked", torch.bfloat16, marks=pytest.mark.slow),
]


@pytest.mark.parametrize("name, dtype", CASES)
def test_program(name, dtype):
    function = PROGRAMS[name]
    dynamo.reset()
    compiled = dynamo.compile(function)
    for value in (0.1, 0.37, -1.25, 3.0, 1e-3):
        generator = torch.Generator().manual_seed(0)
        x, y = (torch.randn(3, 4, generator=generator).to(dtype) for _ in range(2))
        expected, found = function(x.clone(), y, value), compiled(x.clone(), y, value)
        tolerance = 2e-2 if dtype is torch.bfloat16 else 1e-6
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
    records = compiled.context.records
    assert len(records) == 2  # a constant, then an input
    notes = [n for r in records for g in r.graphs for n in (g.report or {}).get("notes", ())]
    assert not [note for note in notes if "on aten" in note]


def test_special_numbers_are_stored_as_they_are():
    dynamo.reset()

    def f(x, f):
        return torch.full_like(x, f), x.masked_fill(x > 0, f)

    compiled = dynamo.compile(f)
    x = torch.tensor([-1.0, 0.0, 2.0, float("nan"), float("inf")])
    for value in (0.5, 0.25, -0.0, float("inf"), float("nan")):
        for found, expected in zip(compiled(x, value), f(x, value)):
            torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
            assert torch.equal(found.signbit(), expected.signbit())


def weighted_loss(x, w, f):
    return f * ((x - w) ** 2).mean() + (1 - f) * x.abs().mean()


def masked_scores(x, w, f):
    return torch.softmax((x @ w.t()).masked_fill(x[:, :3] > 0, -f) / f, -1)


def leaky(x, w, f):
    return torch.nn.functional.leaky_relu(x * w, f)


def bounded(x, w, f):
    return torch.clamp(x * w, -f, f).exp()


@pytest.mark.parametrize("function", [weighted_loss, masked_scores, leaky, bounded])
def test_trained_with_another_number(function):
    """With a backward of its own, compiled for the number or for all."""
    dynamo.reset()
    compiled = dynamo.compile(function)
    generator = torch.Generator().manual_seed(0)
    for value in (0.1, 0.37, 1.25, 3.0):
        given = [torch.randn(3, 4, generator=generator, requires_grad=True) for _ in range(2)]
        twins = [x.detach().clone().requires_grad_() for x in given]
        expected, found = function(*given, value), compiled(*twins, value)
        torch.testing.assert_close(found, expected)
        (expected * 2).sum().backward()
        (found * 2).sum().backward()
        for x, twin in zip(given, twins):
            torch.testing.assert_close(twin.grad, x.grad)
    notes = [
        note
        for record in compiled.context.records
        for graph in record.graphs
        for note in (graph.report or {}).get("notes", ())
    ]
    assert not [note for note in notes if "on aten" in note or "op by op" in note]


def test_another_use_runs_on_aten():
    """A bound is no arithmetic; nothing is compiled again for that."""

    def f(x, scale):
        return torch.clamp(x, -scale, scale) * 2

    compiled = dynamo.compile(f)
    x = torch.linspace(-2, 2, 9)
    for scale in (0.5, 0.25, 1.5, 0.75):
        assert torch.equal(compiled(x, scale), f(x, scale))
    assert len(compiled.context.records) == 2


def quotient_of_read(x):
    return x * (x[0].item() // 0.1)


def quotient_of_integer(x):
    return x + x[0].item() // 2


def remainder_of_read(x):
    return x * (x[0].item() % -0.1)


def both_of_read(x):
    quotient, remainder = divmod(x[0].item(), 0.1)
    return x * quotient, x + remainder


READ = [quotient_of_read, quotient_of_integer, remainder_of_read, both_of_read]
DIVIDENDS = (0.3, 1.0, -0.3, 0.0, -0.0, 7.7, -1e-300, 1e300, math.inf, -math.inf, math.nan)


@pytest.mark.parametrize("function", READ)
def test_quotients_of_a_number_that_is_read(function):
    """Rounded as in Python, from a remainder: 1.0 // 0.1 is 9."""
    dynamo.reset()
    compiled = dynamo.compile(function, fullgraph=True)
    for value in DIVIDENDS:
        x = torch.tensor([value, 2.0], dtype=torch.float64)
        torch.testing.assert_close(compiled(x), function(x), rtol=0, atol=0, equal_nan=True)
    assert len(compiled.context.records) == 1


def test_sizes_made_of_floats_on_aten():
    """Sizes that are floor(1.5 * s0), and one that no kernel knows, which leaves the graph to
    aten."""

    def fn(x):
        return torch.nn.functional.interpolate(x, scale_factor=(1.5, 0.6, 2.0), mode="nearest")

    dynamo.reset()
    compiled = dynamo.compile(fn, dynamic=True)
    for n in (4, 7):
        x, y = (torch.arange(20.0 * n).view(1, 1, n, 5, 4).requires_grad_() for _ in range(2))
        got, expected = compiled(x), fn(y)
        assert torch.equal(got, expected)
        weights = torch.arange(1.0 * got.numel()).view_as(got)
        (got * weights).sum().backward()
        (expected * weights).sum().backward()
        assert torch.equal(x.grad, y.grad)


@pytest.mark.parametrize("trains", [False, True])
def test_numbers_where_another_device_is_the_default(trains):
    """Numbers of the graph are on the CPU inside of `with torch.device(...)`, too."""

    def fn(x, k):
        return torch.lerp(x.masked_fill(x > 3, k), x * k, k / 10).clamp(k / 9, 3 * k)

    dynamo.reset()
    compiled = dynamo.compile(fn)
    for k in (1.5, 2.5, 3.5):
        x, y = (torch.arange(8.0).requires_grad_(trains) for _ in range(2))
        with torch.device("meta"):
            got, expected = compiled(x, k), fn(y, k)
            torch.testing.assert_close(got, expected)
            if trains:
                got.sum().backward()
                expected.sum().backward()
        assert not trains or torch.allclose(x.grad, y.grad)
