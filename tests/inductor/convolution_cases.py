"""What tests of generated convolutions share: modules, and both results of one."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from dynamo.api.compile import compile_fresh
from inductor.runtime import toolchain
from tests.inductor.compiling import same_layout
from tests.inductor.test_derived import notes


def innermost(x):
    return x.to(memory_format=torch.channels_last)


def compared(module, *inputs, close):
    """The notes of the compiled module, which gives eager's values for each input."""
    module = module.eval()
    compiled, context = compile_fresh(module)
    with torch.no_grad():
        for x in inputs:
            expected, got = module(x), compiled(x)
            torch.testing.assert_close(got, expected, equal_nan=True, **close)
            assert same_layout(got, expected)
    return notes(context)


def counted(found):
    """How many of one pixel, how many depthwise, how many of other windows."""
    lines = [note for note in found if note.startswith("pack: generated code computes")]
    return tuple(int(word) for word in lines[0].split() if word.isdigit()) if lines else (0, 0, 0)


class Then(nn.Module):
    """A convolution, and what reads its result."""

    def __init__(self, convolution, then):
        super().__init__()
        self.convolution, self.then = convolution, then

    def forward(self, x):
        return self.then(self.convolution(x))


THEN = {
    "relu": torch.relu,
    "relu6": F.relu6,
    "silu": F.silu,
    "hardswish": F.hardswish,
    "itself": lambda y: y,
    "sum": lambda y: y + y.flip(0),
    "pooled": lambda y: F.adaptive_avg_pool2d(y, 1),
    "gated": lambda y: y * y.mean((2, 3), keepdim=True).sigmoid(),
    "cut": lambda y: y[:, 3:, 1:],
    "joined": lambda y: torch.cat([y, y.relu()], 1),
}


class Residual(nn.Module):
    """Two convolutions of 3x3 windows with batch norms, as ResNet's."""

    def __init__(self, channels=32):
        super().__init__()
        self.first, self.second = (
            nn.Sequential(
                nn.Conv2d(channels, channels, 3, 1, 1, bias=False), nn.BatchNorm2d(channels)
            )
            for _ in range(2)
        )
        for norm in (self.first[1], self.second[1]):
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2)

    def forward(self, x):
        return F.relu(self.second(F.relu(self.first(x))) + x)


def with_special_values(x):
    special = x.clone()
    special[0, 1, 4, 4], special[1, 0, 0, 0], special[2, 2, 8, 5] = torch.nan, torch.inf, -torch.inf
    return special


def check_changed_weights(dtype, close):
    """A packed weight is made again however its source changes."""
    module = nn.Sequential(nn.Conv2d(16, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3))
    module = module.eval().to(dtype)
    compiled, _ = compile_fresh(module)
    x = innermost(torch.randn(2, 16, 9, 9)).to(dtype)
    other = nn.Conv2d(16, 16, 3).to(dtype)
    changes = [
        lambda: module[0].weight.mul_(2),
        lambda: module[2].weight.data.fill_(0.5),
        lambda: module[0].load_state_dict(other.state_dict()),
        lambda: setattr(module[2], "weight", nn.Parameter(torch.randn(16, 16, 3, 3).to(dtype))),
    ]
    with torch.no_grad():
        for change in [lambda: None, *changes]:
            change()
            torch.testing.assert_close(compiled(x), module(x), **close)


def no_compiler(monkeypatch):
    def none():
        raise toolchain.NoCompiler("none")

    monkeypatch.setattr("inductor.panel_sample.toolchain.find_compiler", none)
