"""Convolutions that generated code computes: beside eager, and which they are."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dynamo.api.compile import compile_fresh
from inductor.convolutions import depthwise_convolution
from inductor.panels import has_pairs
from inductor.reports import fallbacks
from tests.inductor import convolution_cases
from tests.inductor.compiling import kernels, same_layout, staged
from tests.inductor.convolution_cases import (
    THEN,
    Then,
    counted,
    innermost,
    no_compiler,
    with_special_values,
)
from tests.inductor.test_derived import notes

CLOSE = {"rtol": 1e-4, "atol": 1e-4}
LIBRARY = "mkldnn._convolution_pointwise.default"


def compared(module, *inputs):
    return convolution_cases.compared(module, *inputs, close=CLOSE)


@pytest.mark.parametrize("name", THEN)
def test_kernels_that_read_the_result(name):
    x = innermost(torch.randn(3, 20, 9, 7))
    special = with_special_values(x)
    for convolution in (nn.Conv2d(20, 37, 1), nn.Conv2d(20, 20, 3, padding=1, groups=20)):
        assert sum(counted(compared(Then(convolution, THEN[name]), x, special))) == 1
        apart = innermost(torch.randn(3, 20, 9, 14))[..., ::2]
        shared = torch.randn(20, 9, 7).expand(3, 20, 9, 7)
        compared(Then(convolution, THEN[name]), apart, shared, torch.randn(0, 20, 9, 7))


@pytest.mark.parametrize(
    "settings",
    [
        {"kernel_size": 3},
        {"kernel_size": 3, "padding": 1, "stride": 2},
        {"kernel_size": (5, 3), "padding": (2, 0), "stride": (1, 3)},
        {"kernel_size": 3, "padding": 4, "dilation": 3},
        {"kernel_size": (1, 4), "padding": "same"},
        {"kernel_size": 5, "padding": 6, "bias": False},
        {"kernel_size": 1, "stride": 2},
    ],
    ids=str,
)
@pytest.mark.parametrize("channels", [1, 5, 24])
def test_depthwise(settings, channels):
    convolution = nn.Conv2d(channels, channels, groups=channels, **settings)
    x = innermost(torch.randn(2, channels, 11, 10))
    found = counted(compared(Then(convolution, torch.tanh), x))
    assert channels == 1 or found == (0, 1, 0)  # an image of one channel is in both layouts


@pytest.mark.parametrize(
    "convolution",
    [
        nn.Conv2d(12, 6, 1, groups=2),
        nn.Conv2d(12, 24, 3, groups=12),  # two results for a channel
        nn.Conv2d(12, 6, 1, stride=2),
        nn.Conv2d(12, 6, 1, padding=1),
        nn.Conv2d(12, 12, 7, padding=3, groups=12),
        nn.ConvTranspose2d(12, 6, 1),
    ],
    ids=str,
)
def test_those_of_the_library(convolution):
    x = innermost(torch.randn(2, 12, 9, 9))
    assert counted(compared(Then(convolution, torch.relu), x)) == (0, 0, 0)


@pytest.mark.parametrize("size", [(1, 8, 1, 1), (4, 8, 1, 1), (1, 8, 1, 5), (2, 8, 3, 1)])
def test_images_of_few_pixels(size):
    module = nn.Sequential(
        nn.Conv2d(8, 16, 1),
        nn.Hardswish(),
        nn.Conv2d(16, 16, 3, 1, 1, groups=16),
        nn.Conv2d(16, 8, 1),
    )
    compared(module, innermost(torch.randn(size)))


class Block(nn.Module):
    """The inverted residual of MobileNet; with a gate, EfficientNet's."""

    def __init__(self, channels, gate):
        super().__init__()
        inner = 4 * channels
        self.expand = nn.Sequential(
            nn.Conv2d(channels, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU6()
        )
        self.each = nn.Sequential(
            nn.Conv2d(inner, inner, 3, 1, 1, groups=inner, bias=False),
            nn.BatchNorm2d(inner),
            nn.SiLU(),
        )
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(inner, inner, 1), nn.Sigmoid())
        self.reduce = nn.Sequential(nn.Conv2d(inner, channels, 1), nn.BatchNorm2d(channels))
        self.gated = gate

    def forward(self, x):
        y = self.each(self.expand(x))
        if self.gated:
            y = y * self.gate(y)
        return x + self.reduce(y)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_blocks(gated, layout):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 8, 3), Block(8, gated), Block(8, gated), nn.Conv2d(8, 5, 1))
    for norm in module.modules():
        if isinstance(norm, nn.BatchNorm2d):
            nn.init.normal_(norm.running_mean)
            nn.init.uniform_(norm.running_var, 0.5, 2)
    x = torch.randn(2, 3, 14, 13).to(memory_format=layout)
    found = counted(compared(module.to(memory_format=layout), x, x * 2))
    assert found == (7 if gated else 5, 2, 0)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("size", [(14, 13), (3, 17), (3, 3)], ids=str)
def test_batches_that_vary(size, gated, layout):
    """The second graph serves any number of images from 2 on; 1 too, where what is left of each is
    one pixel in row-major order, whose layout does not depend on the number."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 8, 3), Block(8, gated), nn.Conv2d(8, 5, 1, bias=False))
    module.to(memory_format=layout)
    images = [torch.randn(n, 3, *size).to(memory_format=layout) for n in (4, 3, 7, 1, 2, 4, 14)]
    found = compared(module, *images)
    kinds = [note for note in found if note.startswith("pack: generated code computes")]
    general = size == (3, 3) and layout is torch.contiguous_format
    assert len(kinds) == (2 if general else 3) and len(set(kinds)) == 1, kinds
    assert counted(found) == (4 if gated else 3, 1, 0)


def test_a_residual():
    x, w, b = innermost(torch.randn(2, 16, 8, 8)), torch.randn(16, 16, 1, 1), torch.randn(16)

    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.w, self.b = nn.Parameter(w), nn.Parameter(b)

        def forward(self, x):
            return torch.relu(F.conv2d(x, self.w, self.b)) + x

    compiled, context = compile_fresh(Module().eval())
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), torch.relu(F.conv2d(x, w, b)) + x, **CLOSE)
    assert counted(notes(context)) == (1, 0, 0)


def test_changed_weights():
    module = nn.Sequential(
        nn.Conv2d(6, 12, 1), nn.ReLU(), nn.Conv2d(12, 12, 3, 1, 1, groups=12), nn.Conv2d(12, 6, 1)
    ).eval()
    compiled, _ = compile_fresh(module)
    x = innermost(torch.randn(2, 6, 7, 7))
    changes = [
        lambda: module[0].weight.mul_(2),
        lambda: module[2].weight.data.fill_(0.5),
        lambda: module[2].bias.add_(1),
        lambda: module[3].load_state_dict(nn.Conv2d(12, 6, 1).state_dict()),
        lambda: setattr(module[2], "weight", nn.Parameter(torch.randn(12, 1, 3, 3))),
    ]
    with torch.no_grad():
        for change in [lambda: None, *changes]:
            change()
            torch.testing.assert_close(compiled(x), module(x), **CLOSE)


def test_without_a_compiler(monkeypatch):
    no_compiler(monkeypatch)
    module = nn.Sequential(nn.Conv2d(6, 6, 3, groups=6), nn.Conv2d(6, 6, 1)).eval()
    assert counted(compared(module, innermost(torch.randn(2, 6, 7, 7)))) == (0, 0, 0)


def test_tuning_off():
    module = nn.Sequential(nn.Conv2d(6, 6, 3, groups=6), nn.Conv2d(6, 6, 1)).eval()
    compiled, context = compile_fresh(module, options={"tuning": "off"})
    x = innermost(torch.randn(2, 6, 7, 7))
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), module(x), **CLOSE)
    assert counted(notes(context)) == (0, 0, 0)


def test_the_operator_itself():
    x, w = innermost(torch.randn(2, 5, 9, 8)), torch.randn(3, 3, 5)
    y = depthwise_convolution(x, w, [2, 1], [1, 1], [1, 1])
    expected = F.conv2d(x, w.permute(2, 0, 1)[:, None], None, (2, 1), 1, groups=5)
    torch.testing.assert_close(y, expected)
    given = (x, w, [2, 1], [1, 1], [1, 1])
    torch.library.opcheck(depthwise_convolution, given, test_utils="test_schema")
    torch.library.opcheck(depthwise_convolution, given, test_utils="test_faketensor")


def test_kernels():
    """The relu joins the loops of a depthwise convolution."""
    args = innermost(torch.randn(2, 8, 9, 9)), torch.randn(3, 3, 8)

    def fn(x, w):
        return (torch.relu(depthwise_convolution(x, w, [1, 1], [1, 1], [1, 1])),)

    c = staged(fn, args)
    assert kernels(c) == 1 and LIBRARY not in fallbacks(c.spec)
    torch.testing.assert_close(c.compiled(*args), fn(*args))


@pytest.mark.skipif(not has_pairs(), reason="the library has no convolutions of bfloat16")
@pytest.mark.parametrize("images", [1, 3])
def test_bfloat16_where_the_library_is_fast_at_it(images, monkeypatch):
    """A convolution of one pixel by pairs, another in the library's layout, images innermost."""
    monkeypatch.setattr("inductor.widen._way", lambda kind, budget: None)
    monkeypatch.setattr("inductor.windows.measured", lambda convolution, budget: "packed")
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(20, 37, 1, bias=False), nn.BatchNorm2d(37), nn.ReLU(),
        nn.Conv2d(37, 24, 3, 2, 1), nn.BatchNorm2d(24), nn.SiLU(), nn.Conv2d(24, 33, 1),
    )  # fmt: skip
    with torch.no_grad():
        net(torch.randn(8, 20, 9, 9))  # statistics
    net = net.bfloat16().eval()
    compiled, context = compile_fresh(net)
    with torch.no_grad():
        for x in (torch.randn(images, 20, 13, 11), innermost(torch.randn(images, 20, 13, 11))):
            expected, got = net(x.bfloat16()), compiled(x.bfloat16())
            torch.testing.assert_close(got, expected, rtol=2e-2, atol=2e-2)
            assert same_layout(got, expected)
    assert counted(notes(context)) == (2, 0, 0)
    assert "pack: weights of 1 convolutions in the library's layout" in notes(context)
