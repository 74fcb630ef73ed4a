"""Convolutions of 3x3 windows by Winograd's transforms: beside eager, and which they are."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import dynamo
from dynamo.api.compile import compile_fresh
from inductor import costs, measure, winograd
from tests.inductor import convolution_cases
from tests.inductor.convolution_cases import (
    THEN,
    Residual,
    Then,
    check_changed_weights,
    counted,
    innermost,
    no_compiler,
    with_special_values,
)
from tests.inductor.test_derived import notes

CLOSE = {"rtol": 1e-4, "atol": 1e-4}


@pytest.fixture(autouse=True)
def ahead(monkeypatch):
    """Generated code is the faster one, whatever the machine does."""
    monkeypatch.setattr(winograd, "is_faster", lambda convolution, budget: True)


def compared(module, *inputs):
    """How many such convolutions the compiled module has, which gives eager's values."""
    return counted(convolution_cases.compared(module, *inputs, close=CLOSE))[2]


@pytest.mark.parametrize("padding", [0, 1, 2, (2, 0)], ids=str)
@pytest.mark.parametrize(
    ("size", "columns"),
    [((2, 16, 9, 7), 16), ((1, 32, 3, 3), 48), ((3, 16, 8, 8), 80), ((1, 16, 3, 40), 16),
     ((1, 16, 40, 3), 16), ((2, 512, 5, 6), 32), ((1, 16, 5, 230), 16)],
    ids=str,
)  # fmt: skip
def test_sizes(size, columns, padding):
    torch.manual_seed(0)
    x = innermost(torch.randn(size))
    convolution = nn.Conv2d(size[1], columns, 3, padding=padding)
    assert compared(Then(convolution, torch.tanh), x) == 1


@pytest.mark.parametrize("threads", [1, 3])
def test_threads(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        x = innermost(torch.randn(5, 64, 31, 33))
        assert compared(nn.Conv2d(64, 80, 3, padding=1, bias=False), x, x * 2) == 1
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("name", THEN)
def test_kernels_that_read_the_result(name):
    torch.manual_seed(0)
    x = innermost(torch.randn(3, 16, 9, 7))
    then = Then(nn.Conv2d(16, 32, 3, padding=1), THEN[name])
    assert compared(then, x, with_special_values(x)) == 1


@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan, 3e38])
@pytest.mark.parametrize("of_weight", [False, True])
def test_what_is_not_finite_or_no_longer_so(value, of_weight):
    """In the pixels whose windows hold such a value, and in no others."""
    torch.manual_seed(0)
    convolution = nn.Conv2d(16, 16, 3, padding=1)
    x = innermost(torch.randn(2, 16, 8, 8))
    with torch.no_grad():
        if of_weight:
            convolution.weight[5, 3, 1, 1] = value
        else:
            x[0, 3, 3, 4], x[1, 3, 0, 0], x[1, 4, 7, 7] = value, value, -value
    assert compared(convolution, x) == 1


def test_all_is_nan():
    assert compared(nn.Conv2d(16, 16, 3), innermost(torch.full((1, 16, 6, 6), torch.nan))) == 1


def test_folded_batch_norm_and_residual():
    torch.manual_seed(0)
    assert compared(Residual(), torch.randn(2, 32, 11, 12)) == 2
    shared = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.ReLU())
    assert compared(nn.Sequential(shared, shared), torch.randn(2, 16, 6, 6)) == 2


def test_images_whose_number_varies():
    module = Then(nn.Conv2d(16, 16, 3, padding=1), torch.relu)
    images = [innermost(torch.randn(n, 16, 7, 9)) for n in (2, 5, 3, 17)]
    for x in images:
        dynamo.mark_dynamic(x, 0)
    assert compared(module, *images) == 1


def test_weights_laid_out_otherwise():
    for layout in (torch.contiguous_format, torch.channels_last):
        convolution = nn.Conv2d(16, 32, 3).to(memory_format=layout)
        x = innermost(torch.randn(2, 16, 8, 8))
        x[0, 0, 0, 0] = torch.inf
        assert compared(convolution, x) == 1


def test_changed_weights():
    check_changed_weights(torch.float32, CLOSE)


@pytest.mark.parametrize(
    "convolution",
    [
        nn.Conv2d(16, 16, 3, stride=2),
        nn.Conv2d(16, 16, 3, dilation=2),
        nn.Conv2d(16, 16, 3, groups=2),
        nn.Conv2d(16, 24, 3),
        nn.Conv2d(16, 16, 5),
        nn.Conv2d(528, 16, 3),
        nn.ConvTranspose2d(16, 16, 3),
    ],
    ids=str,
)
def test_those_of_the_library(convolution):
    x = innermost(torch.randn(1, convolution.in_channels, 9, 9))
    assert compared(Then(convolution, torch.relu), x) == 0


def test_the_choice_is_measured(monkeypatch):
    """The faster one is taken, and another compile measures no more."""
    monkeypatch.undo()
    measured = []

    def fastest(key, candidates, budget, *, ahead):
        for prepare in candidates.values():
            prepare()()
        measured.append(key)
        return measure.Choice(wanted, {name: 1.0 for name in candidates})

    monkeypatch.setattr(winograd, "fastest", fastest)
    for wanted, count in (("generated", 1), ("packed", 0)):
        x = innermost(torch.randn(1, 16, 6, 8))
        assert compared(nn.Conv2d(16, 32, 3), x) == count
    assert len(set(measured)) == 1 and "(1, 16, 6, 8) -> 32" in measured[0]


def test_no_time_to_measure(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(costs, "WINDOW_SECONDS", 0.0)
    monkeypatch.setattr(measure, "_recall", lambda entry, candidates: None)
    measure.forget()
    for size, count in (((6, 5), 0), ((11, 13), 1)):
        x = innermost(torch.randn(1, 16, *size))
        assert compared(nn.Conv2d(16, 16, 3), x) == count


def test_without_a_compiler(monkeypatch):
    no_compiler(monkeypatch)
    assert compared(nn.Conv2d(16, 16, 3), innermost(torch.randn(2, 16, 7, 7))) == 0


def test_standalone_programs_are_without():
    module = nn.Conv2d(16, 16, 3).eval()
    compiled, context = compile_fresh(module, options={"standalone": True})
    x = innermost(torch.randn(2, 16, 7, 7))
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), module(x), **CLOSE)
    assert counted(notes(context))[2] == 0


def test_the_operator_itself():
    x, w = innermost(torch.randn(2, 16, 6, 5)), torch.randn(16, 16, 3, 3)
    given = (x, torch.empty(16, 16, 16), w, [1, 1])
    y = winograd.winograd_mm(*given)
    expected = F.conv2d(x, w, padding=1).permute(0, 2, 3, 1).reshape(-1, 16)
    torch.testing.assert_close(y, expected)
    torch.library.opcheck(winograd.winograd_mm, given, test_utils="test_schema")
