"""Convolutions of bfloat16 by products of pairs: beside eager, and which they are."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import dynamo
from dynamo.api.compile import compile_fresh
from inductor import convolutions, measure, widen, windows
from inductor.measure import Budget
from tests.inductor import convolution_cases
from tests.inductor.compiling import same_layout
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

CLOSE = {"rtol": 2e-2, "atol": 2e-2}


@pytest.fixture(autouse=True)
def ahead(monkeypatch):
    """Generated code is the faster one, whatever the machine does."""
    monkeypatch.setattr(windows.Choices, "is_faster", lambda choices, convolution: True)
    monkeypatch.setattr(widen, "_way", lambda kind, budget: None)
    for module in (convolutions, widen, windows):
        monkeypatch.setattr(module, "has_pairs", lambda: True)


@pytest.fixture(params=["as it is", "without AMX"])
def instructions(request, monkeypatch):
    if request.param == "without AMX":
        monkeypatch.setenv("CXX", "g++ -DFG_NO_AMX")


def images(*size: int) -> torch.Tensor:
    return innermost(torch.randn(size)).bfloat16()


def compared(module, *inputs):
    """How many such convolutions the compiled module has, which gives eager's values."""
    return counted(convolution_cases.compared(module.bfloat16(), *inputs, close=CLOSE))[2]


SIZES = [
    ((2, 3, 30, 31), 64, {"kernel_size": 7, "stride": 2, "padding": 3}),
    ((2, 32, 12, 13), 48, {"kernel_size": 3, "padding": 1}),
    ((3, 64, 9, 9), 96, {"kernel_size": 3, "stride": 2, "padding": 1}),
    ((2, 32, 40, 40), 33, {"kernel_size": 3, "padding": 2, "dilation": (2, 1)}),
    ((1, 32, 30, 20), 16, {"kernel_size": (4, 2), "stride": (3, 1), "dilation": (3, 1)}),
    ((1, 16, 8, 200), 40, {"kernel_size": (1, 5), "stride": (1, 2), "padding": (0, 2)}),
    ((3, 24, 7, 7), 17, {"kernel_size": 5, "stride": 3, "padding": 4}),
    ((4, 96, 4, 4), 300, {"kernel_size": 3, "padding": 1}),
    ((2, 64, 8, 8), 64, {"kernel_size": 1, "stride": 2}),
    ((2, 64, 1, 1), 1, {"kernel_size": 3, "padding": 1}),
    ((1, 32, 3, 700), 64, {"kernel_size": 3, "padding": 1}),
    ((1, 7, 40, 3), 16, {"kernel_size": 3, "padding": 2}),
    ((1, 400, 5, 40), 16, {"kernel_size": 3, "padding": 1}),
    ((1, 32, 40, 10), 16, {"kernel_size": (20, 1), "padding": (7, 0)}),
]


class Several(nn.ModuleList):
    def forward(self, *inputs):
        return [torch.tanh(one(x)) for one, x in zip(self, inputs, strict=True)]


def test_sizes(instructions):
    torch.manual_seed(0)
    given = [images(*size) for size, _, _ in SIZES]
    made = Several(nn.Conv2d(size[1], columns, **rest) for size, columns, rest in SIZES)
    made = made.eval().bfloat16()
    compiled, context = compile_fresh(made)
    with torch.no_grad():
        for got, expected, row in zip(compiled(*given), made(*given), SIZES, strict=True):
            torch.testing.assert_close(got, expected, msg=lambda m: f"{row}: {m}", **CLOSE)
            assert same_layout(got, expected), row
    assert counted(notes(context))[2] == len(SIZES)


@pytest.mark.parametrize("threads", [1, 3])
def test_threads(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        x = images(5, 32, 31, 33)
        assert compared(nn.Conv2d(32, 80, 3, padding=1, bias=False), x, x * 2) == 1
        assert compared(nn.Conv2d(32, 300, 3, padding=1), images(1, 32, 6, 6)) == 1
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("name", THEN)
def test_kernels_that_read_the_result(name):
    """Of more columns than a unit has."""
    torch.manual_seed(0)
    x = images(3, 32, 9, 7)
    then = Then(nn.Conv2d(32, 272, 3, padding=1), THEN[name])
    assert compared(then, x, with_special_values(x)) == 1


@pytest.mark.parametrize("channels", [32, 12])
@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
def test_what_is_not_finite(value, channels):
    """In the pixels whose windows hold such a value, and in no others: in bfloat16 the library has
    it in more of them.
    """
    torch.manual_seed(0)
    x = images(2, channels, 8, 8)
    x[0, 3, 3, 4], x[1, 3, 0, 0], x[1, 4, 7, 7] = value, value, -value
    convolution = nn.Conv2d(channels, 16, 3, padding=1).bfloat16()
    compiled, context = compile_fresh(convolution)
    with torch.no_grad():
        got, expected = compiled(x), convolution.float()(x.float())
    torch.testing.assert_close(got.float(), expected, equal_nan=True, **CLOSE)
    assert counted(notes(context))[2] == 1


with_library = pytest.mark.skipif(
    not torch.ops.mkldnn._is_mkldnn_bf16_supported(),
    reason="the library lays out no weight of bfloat16 on this processor",
)


@with_library
def test_residual_and_shared_weights():
    torch.manual_seed(0)
    assert compared(Residual(), torch.randn(2, 32, 11, 12).bfloat16()) == 2
    shared = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.ReLU())
    assert compared(nn.Sequential(shared, shared), images(2, 16, 6, 6)) == 2

    class OfOnePixel(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(16, 16, 1, 1))

        def forward(self, x):
            return F.conv2d(torch.relu(F.conv2d(x, self.weight)), self.weight, stride=2)

    assert compared(OfOnePixel(), images(2, 16, 6, 6)) == 1


def test_images_whose_number_varies():
    module = Then(nn.Conv2d(32, 16, 3, padding=1), torch.relu)
    given = [images(n, 32, 7, 9) for n in (2, 5, 3, 17)]
    for x in given:
        dynamo.mark_dynamic(x, 0)
    assert compared(module, *given) == 1


def test_changed_weights():
    check_changed_weights(torch.bfloat16, CLOSE)


@pytest.mark.parametrize(
    "convolution",
    [
        nn.Conv2d(16, 16, 3, dilation=2),
        nn.Conv2d(16, 16, 3, groups=2),
        nn.ConvTranspose2d(16, 16, 3),
    ],
    ids=str,
)
def test_those_of_the_library(convolution):
    assert compared(Then(convolution, torch.relu), images(1, 16, 9, 9)) == 0


@with_library
def test_the_choice_is_measured(monkeypatch):
    """The faster one is taken; without time to measure, that of most."""
    monkeypatch.undo()
    monkeypatch.setattr(widen, "_way", lambda kind, budget: None)
    for module in (convolutions, widen, windows):
        monkeypatch.setattr(module, "has_pairs", lambda: True)
    asked = []

    def fastest(key, candidates, budget, *, ahead):
        for prepare in candidates.values():
            prepare()()
        asked.append(key)
        if len(asked) % 2 == 0:
            return None
        return measure.Choice(wanted, dict.fromkeys(candidates, 1.0))

    monkeypatch.setattr(windows, "fastest", fastest)
    for wanted, count in (("generated", 2), ("packed", 0)):
        module = nn.Sequential(nn.Conv2d(16, 32, 3), nn.Conv2d(32, 16, 3))
        assert compared(module, images(1, 16, 6, 8)) == count
    assert "(1, 16, 6, 8) by (32, 16, 3, 3)" in asked[0] and len(set(asked)) == 2


def test_the_sample_multiplies_as_the_library_does():
    torch.manual_seed(0)
    x, w = torch.randn(2, 9, 8, 16).bfloat16(), torch.randn(24, 16, 3, 3).bfloat16()
    made = windows.sample(x, w, [2, 1], [1, 0], [1, 1], Budget(60))()
    expected = F.conv2d(x.permute(0, 3, 1, 2), w, None, [2, 1], [1, 0])
    torch.testing.assert_close(made, expected.permute(0, 2, 3, 1).reshape(-1, 24), **CLOSE)


def test_without_a_compiler(monkeypatch):
    no_compiler(monkeypatch)
    assert compared(nn.Conv2d(16, 16, 3), images(2, 16, 7, 7)) == 0


def test_the_operator_itself():
    x, w = images(2, 16, 6, 5), torch.randn(16, 16, 3, 3).bfloat16()
    given = (x, torch.empty(1, 72, 16, 2, dtype=torch.bfloat16), w, [1, 2], [1, 1], [2, 1])
    y = windows.window_mm(*given)
    expected = F.conv2d(x.float(), w.float(), None, [1, 2], [1, 1], [2, 1])
    torch.testing.assert_close(y, expected.permute(0, 2, 3, 1).reshape(-1, 16))
    torch.library.opcheck(windows.window_mm, given, test_utils=("test_schema", "test_faketensor"))
