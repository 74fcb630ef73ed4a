"""Training's convolutions of one pixel, as products, and of each channel by a window of its own:
beside eager, which they are, the images' layout.
"""

from __future__ import annotations

import ctypes
import os
import subprocess

import pytest
import torch
from torch import nn

import dynamo
from dynamo.api.compile import compile_fresh
from inductor import depthwise_training, pixels_training
from inductor.depthwise_training import depthwise_gradient, trained_depthwise
from inductor.measure import Choice
from inductor.panels import has_pairs
from inductor.runtime import toolchain
from tests.inductor.compiling import same_layout
from tests.inductor.test_convolutions_training import step
from tests.inductor.test_derived import notes

CLOSE = {"rtol": 1e-4, "atol": 1e-4}
PIXELS, CHANNELS = "as products", "depthwise ones or their backwards"


@pytest.fixture(autouse=True)
def ahead(monkeypatch):
    """Generated code is the faster one, whatever the machine does."""
    monkeypatch.setattr(pixels_training, "_is_ahead", lambda dtype: True)
    monkeypatch.setattr(depthwise_training, "_is_ahead", lambda: True)


def counted(context):
    """How many convolutions and backwards are products, and how many depthwise ones generated."""
    found = [0, 0]
    for note in notes(context):
        for kind, name in enumerate((PIXELS, CHANNELS)):
            if name in note:
                found[kind] += sum(int(word) for word in note.split() if word.isdigit())
    return tuple(found)


def compared(module, *inputs, close=CLOSE):
    """Steps of the compiled module give eager's values and layouts; what `counted` tells. close:
    None for sums that cancel, or of bfloat16.
    """
    parameters = list(module.parameters())
    compiled, context = compile_fresh(module)
    for x in inputs:
        seed = torch.randn_like(x) if close is None else None
        expected = step(module, x, parameters, seed)
        got = step(compiled, x, parameters, seed)
        for a, b in zip(got, expected, strict=True):
            if close is None:
                assert (a.float() - b.float()).norm() <= 0.02 * b.float().norm()
            else:
                torch.testing.assert_close(a, b, equal_nan=True, **close)
            assert same_layout(a, b)
    return counted(context)


def innermost(*size):
    return torch.randn(size).contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("size", "columns", "bias"),
    [((2, 16, 9, 7), 24, True), ((1, 3, 4, 4), 5, False), ((3, 40, 1, 1), 7, True),
     ((2, 1, 5, 6), 8, False), ((2, 24, 5, 6), 1, True)],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("make", [torch.randn, innermost], ids=["contiguous", "innermost"])
def test_pixels(size, columns, bias, make):
    torch.manual_seed(0)
    convolution = nn.Conv2d(size[1], columns, 1, bias=bias)
    x = make(*size) if make is innermost else make(size)
    found, _ = compared(nn.Sequential(convolution, nn.Tanh()), x)
    assert found in (0, 2)  # none where the images' layout is not worth a copy
    model = nn.Sequential(nn.Conv2d(size[1], 16, 1), nn.ReLU(), nn.Conv2d(16, columns, 1))
    assert compared(model.to(memory_format=torch.channels_last), x)[0] in (0, 2, 4)


@pytest.mark.parametrize(
    ("window", "stride", "padding", "dilation"),
    [(3, 1, 1, 1), (3, 2, 1, 1), (3, 3, 0, 1), ((1, 3), 1, (0, 1), 1), ((3, 2), (2, 1), 1, 1),
     (3, 1, 2, 2), (3, (1, 2), (2, 3), (3, 1)), (2, 4, 0, 1), ((3, 1), (5, 7), 2, (2, 1)),
     (3, (2, 3), 4, 2), (1, 1, 0, 1)],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("size", [(2, 48, 9, 7), (1, 16, 6, 11), (19, 32, 5, 5)], ids=str)
def test_depthwise(window, stride, padding, dilation, size):
    torch.manual_seed(0)
    channels = size[1]
    convolution = nn.Conv2d(
        channels, channels, window, stride, padding, dilation, groups=channels, bias=stride == 1
    )
    model = nn.Sequential(nn.Conv2d(channels, channels, 1), convolution, nn.Tanh())
    assert compared(model, torch.randn(size)) == (2, 2)
    model.to(memory_format=torch.channels_last)
    assert compared(model, innermost(*size)) == (2, 2)


@pytest.mark.parametrize("threads", [1, 3])
def test_threads(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        convolution = nn.Conv2d(160, 160, 3, 2, 1, groups=160)
        model = nn.Sequential(nn.Conv2d(48, 160, 1), nn.ReLU6(inplace=True), convolution)
        for images in (1, 3, 40):
            assert compared(model, torch.randn(images, 48, 14, 12)) == (2, 2)
    finally:
        torch.set_num_threads(before)


def block():
    """As of a MobileNet, with a branch beside it."""
    torch.manual_seed(0)
    layers = [
        nn.Conv2d(32, 64, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU6(inplace=True),
        nn.Conv2d(64, 64, 3, 1, 1, groups=64, bias=False), nn.BatchNorm2d(64), nn.ReLU6(),
        nn.Conv2d(64, 32, 1, bias=False), nn.BatchNorm2d(32),
    ]  # fmt: skip

    class Residual(nn.Sequential):
        def forward(self, x):
            return x + super().forward(x)

    return Residual(*layers)


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_block(dynamic):
    images = [torch.randn(n, 32, 9, 10) for n in (3, 5, 20)]
    if dynamic:
        for x in images:
            dynamo.mark_dynamic(x, 0)
    pixels, channels = compared(block(), *images, close=None)
    assert (pixels, channels) == (4, 2) or pixels > 4


def test_what_is_not_finite():
    model = block()[3]
    for value in (torch.inf, torch.nan):
        x = innermost(2, 64, 7, 7)
        x[0, 3, 2, 2], x[1, 4, -1, -1] = value, -value
        compared(model, x)


@pytest.mark.skipif(not has_pairs(), reason="no products of pairs")
def test_pixels_of_bfloat16():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(64, 96, 1), nn.ReLU(), nn.Conv2d(96, 64, 1)).bfloat16()
    x = torch.randn(2, 64, 9, 9).bfloat16()
    assert compared(model, x, close=None)[0] == 4


def test_other_convolutions_are_the_librarys():
    """Of wide windows, of groups of several channels, of channels that fill no vector; transposed,
    or of one pixel by steps.
    """
    for layer in (
        nn.Conv2d(32, 32, 5, padding=2, groups=32),
        nn.Conv2d(32, 32, 3, groups=16),
        nn.Conv2d(24, 24, 3, groups=24),
        nn.Conv2d(32, 64, 3, groups=32),
        nn.ConvTranspose2d(32, 32, 3, groups=32),
        nn.Conv2d(32, 32, 1, 2),
        nn.Conv2d(32, 32, 1, padding=1),
    ):
        assert compared(layer, torch.randn(2, layer.in_channels, 8, 8)) == (0, 0)


def test_frozen_parts():
    """Weights, or images, without gradients."""
    model = nn.Sequential(nn.Conv2d(32, 64, 1), nn.Conv2d(64, 64, 3, 1, 1, groups=64))
    for frozen in ([0], [1], [0, 1]):
        for number, layer in enumerate(model):
            layer.requires_grad_(number not in frozen)
        compiled, _ = compile_fresh(model)
        x = torch.randn(2, 32, 8, 8)
        parameters = [p for p in model.parameters() if p.requires_grad]
        for got, expected in zip(
            step(compiled, x, parameters), step(model, x, parameters), strict=True
        ):
            torch.testing.assert_close(got, expected, **CLOSE)


@pytest.mark.parametrize("name", ["generated", "products", "library"])
def test_which_it_is_is_measured(monkeypatch, name):
    monkeypatch.undo()
    for module in (pixels_training, depthwise_training):

        def chosen(key, candidates, budget, *, ahead):
            for prepare in candidates.values():
                prepare()()
            return Choice(name if name in candidates else "library", {})

        monkeypatch.setattr(module, "fastest", chosen)
    pixels, channels = compared(block(), torch.randn(3, 32, 9, 10), close=None)
    assert (pixels, channels) == (4 * (name == "products"), 2 * (name == "generated"))


def test_the_operators():
    x, g, w = innermost(2, 16, 7, 6), innermost(2, 16, 4, 3), torch.randn(3, 3, 16)
    settings = [2, 2], [1, 1], [1, 1]
    checks = {"test_utils": ("test_schema", "test_faketensor")}
    torch.library.opcheck(trained_depthwise, (x, w, *settings), **checks)
    torch.library.opcheck(depthwise_gradient, (x, g, w, *settings, 2), **checks)


@pytest.mark.parametrize("flags", [["-mavx2", "-mfma"], []], ids=["avx2", "plain"])
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="x86 only")
def test_other_instruction_sets(flags, tmp_path):
    """The code for other processors, which this one runs as well."""
    folder = toolchain.INCLUDE
    source = tmp_path / "other.cpp"
    source.write_text(f'#include "{folder}/depthwise.cpp"\n' + depthwise_training._SOURCE)
    made = tmp_path / "other.so"
    base = [f for f in toolchain.FLAGS if not f.startswith("-march")]
    command = [*toolchain.find_compiler().command, *base, *flags, f"-I{folder}"]
    subprocess.run([*command, str(source), "-o", str(made)], check=True)
    library = ctypes.CDLL(str(made))
    x, g, w = torch.randn(3, 6, 5, 48), torch.randn(3, 3, 3, 48), torch.randn(3, 3, 48)
    image, parts = torch.empty(2, *x.shape).flatten(), 2
    places = [*x.shape, 3, 3, 3, 3, 1, 1, 2, 2, 1, 1]
    for more, out in (([0, 0], torch.empty_like(g)), ([parts, 32], image)):
        numbers = torch.tensor([*places, *more])
        pointers = [t.data_ptr() for t in (x, g, w, out, numbers)]
        units = 9 if more == [0, 0] else parts * 2
        library.sample((ctypes.c_void_p * 5)(*pointers), ctypes.c_int64(0), ctypes.c_int64(units))
        given = x.permute(0, 3, 1, 2), w, [2, 2], [1, 1], [1, 1]
        if more == [0, 0]:
            expected = trained_depthwise(*given).permute(0, 2, 3, 1)
            torch.testing.assert_close(out, expected, **CLOSE)
            continue
        gradient = g.permute(0, 3, 1, 2)
        dx, dw = depthwise_gradient(given[0], gradient, *given[1:], parts)
        got = out[: x.numel()].view(x.shape).permute(0, 3, 1, 2)
        torch.testing.assert_close(got, dx, **CLOSE)
        sums = out[x.numel() : x.numel() + parts * w.numel()].view(parts, *w.shape).sum(0)
        torch.testing.assert_close(sums, dw.sum(0), **CLOSE)
