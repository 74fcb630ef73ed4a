"""Training's convolutions by generated code: beside eager, which they are, the images' layout."""

from __future__ import annotations

import ctypes
import os
import subprocess

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import dynamo
from dynamo.api.compile import compile_fresh
from inductor import convolutions_training, costs, measure
from inductor.convolutions_training import weight_gradient, winograd_panels
from inductor.measure import Budget, Choice
from inductor.runtime import toolchain
from tests.inductor.compiling import same_layout
from tests.inductor.test_derived import notes

CLOSE = {"rtol": 1e-4, "atol": 1e-4}
NOTE = "convolutions: generated code computes "


@pytest.fixture(autouse=True)
def ahead(monkeypatch):
    """Generated code is the faster one, whatever the machine does."""
    monkeypatch.setattr(convolutions_training, "_is_ahead", lambda kind, budget: True)


def counted(context):
    """How many convolutions and gradients of weights are generated, forward and backward."""
    texts = [note.split(NOTE)[1] for note in notes(context) if NOTE in note]
    numbers = [[int(word) for word in text.split() if word.isdigit()] for text in texts]
    return sum(n[0] for n in numbers), sum(n[-1] for n in numbers)


def step(call, x, parameters, seed=None):
    """Outputs and gradients of x and the parameters."""
    leaf = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    for p in parameters:
        p.grad = None
    y = call(leaf)
    gradient = torch.linspace(-1, 2, y.numel()).view(y.shape) if seed is None else seed
    y.backward(gradient.expand(y.shape))
    return [y.detach(), leaf.grad, *(p.grad for p in parameters)]


def compared(module, *inputs):
    """Steps of the compiled module give eager's values and layouts; what `counted` tells."""
    parameters = list(module.parameters())
    compiled, context = compile_fresh(module)
    for x in inputs:
        expected = step(module, x, parameters)
        got = step(compiled, x, parameters)
        for a, b in zip(got, expected, strict=True):
            torch.testing.assert_close(a, b, equal_nan=True, **CLOSE)
            assert same_layout(a, b)
    return counted(context)


@pytest.mark.parametrize(
    ("size", "columns", "padding"),
    [((2, 16, 9, 7), 16, 0), ((1, 32, 10, 11), 48, 1), ((3, 16, 8, 8), 80, 2),
     ((1, 16, 3, 40), 16, 1), ((5, 80, 5, 6), 32, (2, 0)), ((1, 16, 5, 230), 16, (0, 1)),
     ((7, 128, 5, 5), 144, 1)],
    ids=str,
)  # fmt: skip
def test_transformed_windows(size, columns, padding):
    torch.manual_seed(0)
    convolution = nn.Conv2d(size[1], columns, 3, padding=padding)
    products, gradients = compared(nn.Sequential(convolution, nn.Tanh()), torch.randn(size))
    assert gradients == 1
    assert products in (0, 2)


@pytest.mark.parametrize("dynamic", [False, True])
def test_few_tiles_are_the_librarys(dynamic):
    """But for the weight's gradient; images whose number varies."""
    convolution = nn.Conv2d(64, 32, 3, padding=1)
    assert compared(convolution, torch.randn(2, 64, 4, 4)) == (0, 1)
    images = [torch.randn(n, 64, 8, 8) for n in (3, 5, 1)]
    if dynamic:
        for x in images:
            dynamo.mark_dynamic(x, 0)
    assert compared(convolution, *images)[1] >= 1


@pytest.mark.parametrize(
    ("window", "stride", "padding"),
    [(3, 2, 1), ((2, 3), (1, 2), 0), (2, 3, 1), ((1, 5), 1, (0, 2)), ((7, 1), 2, (3, 0))],
    ids=str,
)
def test_shifted_images(window, stride, padding):
    torch.manual_seed(0)
    convolution = nn.Conv2d(48, 80, window, stride, padding)
    assert compared(convolution, torch.randn(2, 48, 8, 9)) == (0, 1)


@pytest.mark.parametrize("stride", [1, 2])
def test_what_is_not_finite_or_no_longer_so(stride):
    """In an image, in the gradient of the result, in the weight."""
    torch.manual_seed(0)
    convolution = nn.Conv2d(64, 64, 3, stride, 1, bias=False)
    compiled, context = compile_fresh(convolution)
    parameters, side = list(convolution.parameters()), 7 if stride == 1 else 4
    for value in (torch.inf, -torch.inf, torch.nan):
        for number in range(3):
            x, seed = torch.randn(2, 64, 7, 7), torch.randn(2, 64, side, side)
            before = convolution.weight.detach().clone()
            with torch.no_grad():
                one = (x, seed, convolution.weight)[number]
                one[0, 3, 2, 2], one[1, 3, 0, 0], one[1, 4, -1, -1] = value, value, -value
            expected = step(convolution, x, parameters, seed)
            got = step(compiled, x, parameters, seed)
            for a, b in zip(got, expected, strict=True):
                torch.testing.assert_close(a, b, equal_nan=True, **CLOSE)
            with torch.no_grad():
                convolution.weight.copy_(before)
    assert counted(context)[1] == 1


def test_all_is_nan():
    compared(nn.Conv2d(16, 16, 3), torch.full((2, 16, 12, 12), torch.nan))


@pytest.mark.parametrize("threads", [1, 3])
def test_threads(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        model = nn.Sequential(
            nn.Conv2d(64, 144, 3, padding=1), nn.ReLU(), nn.Conv2d(144, 64, 3, 2, bias=False)
        )
        assert compared(model, torch.randn(2, 64, 11, 13))[1] == 2
    finally:
        torch.set_num_threads(before)


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.second = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels) for _ in range(2))

    def forward(self, x):
        y = F.relu(self.norms[0](self.first(x)))
        return F.relu(self.norms[1](self.second(y)) + x)


def network():
    return nn.Sequential(
        nn.Conv2d(3, 16, 7, 2, 3), nn.ReLU(), nn.MaxPool2d(3, 2, 1), Block(16),
        nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.Conv2d(16, 32, 3, 2, 1), Block(32),
        nn.Conv2d(32, 64, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 5),
    )  # fmt: skip


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_network(dynamic):
    torch.manual_seed(0)
    model = network()
    twin = network()
    twin.load_state_dict(model.state_dict())
    compiled = dynamo.compile(model, dynamic=dynamic)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.01) for m in (model, twin)]
    for size in (48, 48, 40):
        x = torch.randn(3, 3, size, size)
        for call, one, optimizer in zip((compiled, twin), (model, twin), optimizers, strict=True):
            optimizer.zero_grad()
            call(x).square().sum().backward()
            optimizer.step()
        for (name, a), b in zip(model.named_parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=2e-3, atol=2e-3, msg=name)
            assert a.grad.stride() == b.grad.stride()
    torch.testing.assert_close(
        dict(model.named_buffers()), dict(twin.named_buffers()), rtol=1e-3, atol=1e-3
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda x, w: F.conv2d(x, w, padding=1).relu(),
        lambda x, w: F.conv2d(F.conv2d(x, w, padding=1), w, padding=1),  # of one weight twice
        lambda x, w: F.conv2d(x.transpose(2, 3), w.transpose(0, 1), padding=1),
        lambda x, w: F.conv2d(x[:, :, ::2], w.flip(0), padding=1).permute(0, 2, 3, 1).sum(3),
        lambda x, w: F.conv2d(x.to(memory_format=torch.channels_last), w, padding=1),
        lambda x, w: F.conv_transpose2d(F.conv2d(x, w, padding=1), w, padding=1),
        lambda x, w: F.dropout(F.conv2d(x, w), 0.5).view(x.shape[0], -1),
        lambda x, w: F.conv2d(x, w, padding=1) * F.conv2d(x, w.detach(), padding=1),
    ],
    ids=["relu", "shared", "transposed", "strided", "innermost", "transposed convolution",
         "dropout", "frozen"],
)  # fmt: skip
def test_around_convolutions(make):
    torch.manual_seed(0)
    inputs = [torch.randn(2, 16, 12, 12), torch.randn(16, 16, 3, 3) / 8]
    results = []
    for call in (make, compile_fresh(make)[0]):
        torch.manual_seed(1)
        leaves = [one.clone().requires_grad_() for one in inputs]
        y = call(*leaves)
        y.square().sum().backward()
        results.append([y.detach(), *(one.grad for one in leaves)])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)
        assert a.stride() == b.stride()


def test_outputs_that_are_used_on_keep_their_layout():
    def features(x, v, w):
        y = F.conv2d(x, v, padding=1)
        z = F.conv2d(y.relu(), w, padding=1)
        return y, z, y.flatten(1)

    torch.manual_seed(0)
    inputs = [torch.randn(2, 16, 9, 8), *(torch.randn(16, 16, 3, 3) / 8 for _ in range(2))]
    results = []
    for call in (features, compile_fresh(features)[0]):
        leaves = [one.clone().requires_grad_() for one in inputs]
        y, z, flat = call(*leaves)
        (y.sum() + (z * 2).sum() + flat.square().sum()).backward()
        results.append([y.detach(), z.detach(), *(one.grad for one in leaves)])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)
        assert a.stride() == b.stride()


def test_second_derivatives():
    convolution = nn.Conv2d(16, 16, 3, padding=1)

    def penalty(x):
        y = convolution(x).tanh()
        (gradient,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        return gradient.square().sum() + y.sum()

    x = torch.randn(1, 16, 11, 11, requires_grad=True)
    results = []
    for call in (penalty, compile_fresh(penalty)[0]):
        convolution.zero_grad()
        call(x).backward()
        results.append([p.grad.clone() for p in convolution.parameters()])
    torch.testing.assert_close(*results, **CLOSE)


@pytest.mark.parametrize("name", ["aten", "generated"])
def test_which_it_is_is_measured(monkeypatch, name):
    monkeypatch.undo()
    asked = []

    def fastest(key, candidates, budget, *, ahead):
        asked.append(key)
        for prepare in candidates.values():
            prepare()()
        return Choice(name, {"aten": 2.0, "generated": 1.0})

    monkeypatch.setattr(convolutions_training, "fastest", fastest)
    model = nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.Conv2d(32, 512, 3, 2))
    found = compared(model, torch.randn(2, 32, 8, 8))
    assert found == ((2, 2) if name == "generated" else (0, 0))
    assert {key.split(",")[1].strip() for key in asked} == {"product", "winograd", "window"}


def test_without_time_to_measure_they_are_the_librarys(monkeypatch):
    monkeypatch.undo()
    measure.forget()
    monkeypatch.setattr(costs, "TRAINED_SECONDS", 0.0)
    monkeypatch.setattr(measure, "_recall", lambda entry, candidates: None)
    assert compared(nn.Conv2d(16, 16, 3, padding=1), torch.randn(2, 16, 12, 12)) == (0, 0)
    assert not convolutions_training._is_ahead("product", Budget(0.0))
    measure.forget()


def test_without_a_compiler(monkeypatch):
    def missing(*args):
        raise toolchain.NoCompiler("none")

    monkeypatch.setattr(toolchain, "find_compiler", missing)
    with pytest.warns(UserWarning, match="run on aten"):
        compared(nn.Conv2d(16, 16, 3, padding=1), torch.randn(2, 16, 12, 12))


@pytest.mark.parametrize(("window", "winograd"), [([3, 3], True), ([2, 3], False)])
def test_the_operators(window, winograd):
    """As aten runs them, where no kernel does."""
    x, w = torch.randn(2, 16, 9, 8), torch.randn(32, 16, *window, requires_grad=True)
    y = F.conv2d(x, w, padding=1)
    y.square().sum().backward()
    given = x, 2 * y.detach(), window, [1, 1], [1, 1], winograd
    torch.testing.assert_close(weight_gradient(*given), w.grad, rtol=1e-3, atol=1e-3)
    torch.library.opcheck(weight_gradient, given, test_utils=("test_schema", "test_faketensor"))
    panels = torch.randn(32, 16, 3, 3), True
    torch.library.opcheck(winograd_panels, panels, test_utils=("test_schema", "test_faketensor"))


HARNESS = """#include "training.h"

namespace fg {
extern "C" __attribute__((visibility("default"))) void run(
    const float* x, const float* g, const float* w, float* transformed, float* shifted,
    float* panels) {
  train(WinogradGradient{x, g, transformed, 2, 9, 7, 80, 48, 9, 7, 1, 1, 32}, 0, 4);
  train(WindowGradient{x, g, shifted, 2, 9, 7, 80, 48, 9, 7, 1, 1, 3, 3, 1, 1, 16}, 0, 6);
  train(WinogradPanels{w, panels, 80, 48, {720, 9, 3, 1}}, 0, 3);
}
}  // namespace fg
"""


@pytest.mark.parametrize("flags", [["-mavx2", "-mfma"], []], ids=["avx2", "plain"])
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="x86 only")
def test_other_instruction_sets(flags, tmp_path):
    unit, library = tmp_path / "unit.cpp", tmp_path / "unit.so"
    unit.write_text(HARNESS)
    command = [*toolchain.find_compiler().command, *toolchain.FLAGS, *flags]
    definitions = str(toolchain.INCLUDE / "training.cpp")
    include = ["-I", str(toolchain.INCLUDE)]
    subprocess.run([*command, *include, str(unit), definitions, "-o", str(library)], check=True)
    torch.manual_seed(0)
    x, w = torch.randn(2, 80, 9, 7), torch.randn(48, 80, 3, 3, requires_grad=True)
    y = F.conv2d(x, w, padding=1)
    seed = torch.randn_like(y)
    y.backward(seed)
    innermost = [one.permute(0, 2, 3, 1).contiguous() for one in (x, seed)]
    found = [torch.empty(48, 80, 3, 3), torch.empty(48, 80, 3, 3), torch.empty(48, 80, 16)]
    given = [*innermost, w.detach(), *found]
    ctypes.CDLL(str(library)).run(*(ctypes.c_void_p(one.data_ptr()) for one in given))
    torch.testing.assert_close(found[0], w.grad, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(found[1], w.grad, rtol=1e-3, atol=1e-3)
    g = torch.tensor([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
    expected = (g @ w.detach() @ g.T).flatten(2)  # columns, channels, positions
    panels = expected.view(3, 16, 80, 16).permute(3, 0, 2, 1).reshape(48, 80, 16)
    torch.testing.assert_close(found[2], panels)
