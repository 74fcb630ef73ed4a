"""Small models in Triton's interpreter, inference and training, against eager: `python -m
tests.inductor.interpreting triton_models [NAME...]`.
"""

from __future__ import annotations

import copy
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

import dynamo
from tests.inductor.triton_operators import everywhere, kernels, modules

MODELS = {}
f32, f16, bf16 = torch.float32, torch.float16, torch.bfloat16
TOLERANCE = {f32: 2e-4, f16: 2e-2, bf16: 1e-1}  # the interpreter cuts off where bfloat16 is rounded


def model(*size, dtypes=(f32, f16, bf16)):
    def register(build):
        MODELS[build.__name__] = (lambda: (build(), {"input": torch.randn(size)}), dtypes)
        return build

    return register


class RMSNorm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(size) + 0.5)

    def forward(self, x):
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(
            x.dtype
        ) * self.weight


class Residual(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return x + self.layers(x)


class Dense(Residual):
    def forward(self, x):
        return torch.cat([x, self.layers(x)], 1)


class Attention(nn.Module):
    """Of 2 heads, causal, with rotary positions."""

    def __init__(self, size):
        super().__init__()
        self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)

    def forward(self, x):
        b, n, size = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, 2, size // 2).permute(2, 0, 3, 1, 4)
        where = x.device
        angle = torch.arange(n, device=where)[:, None] / 100 ** (
            torch.arange(0, size // 2, 2, device=where) / size
        )
        cos, sin = (t.repeat(1, 2).to(x.dtype) for t in (angle.cos(), angle.sin()))

        def turned(t):
            a, b = t.chunk(2, -1)
            return t * cos + torch.cat([-b, a], -1) * sin

        scores = turned(q) @ turned(k).transpose(-1, -2) / (size // 2) ** 0.5
        scores = scores.masked_fill(torch.ones(n, n, device=where).triu(1).bool(), float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, n, size))


class Gated(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.gate, self.up, self.down = (
            nn.Linear(*s, bias=False) for s in ((size, 32), (size, 32), (32, size))
        )

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


@model(4, 24)
def mlp():
    return nn.Sequential(nn.Linear(24, 33), nn.GELU(), nn.LayerNorm(33), nn.Linear(33, 8))


@model(2, 7, 16)
def transformer():
    return nn.Sequential(
        Residual(nn.LayerNorm(16), Attention(16)),
        Residual(nn.LayerNorm(16), nn.Linear(16, 40), nn.GELU(approximate="tanh"),
                 nn.Linear(40, 16)),
    )  # fmt: skip


@model(2, 7, 16)
def llama():
    return nn.Sequential(
        Residual(RMSNorm(16), Attention(16)), Residual(RMSNorm(16), Gated(16)), RMSNorm(16)
    )


@model(2, 3, 12, 12, dtypes=(f32, bf16))
def resnet():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        Residual(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5),
    )  # fmt: skip


@model(2, 4, 9, 9)
def bottleneck():
    """Convolutions of one pixel are products."""
    return nn.Sequential(
        nn.Conv2d(4, 16, 1), nn.BatchNorm2d(16), nn.ReLU(),
        Residual(nn.Conv2d(16, 8, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
                 nn.Conv2d(8, 16, 1), nn.BatchNorm2d(16)),
        nn.ReLU(), nn.Conv2d(16, 3, 3),
    )  # fmt: skip


@model(2, 4, 10, 10, dtypes=(f32, bf16))
def densenet():
    layers = [
        Dense(nn.BatchNorm2d(n), nn.ReLU(), nn.Conv2d(n, 3, 3, padding=1)) for n in (4, 7, 10)
    ]
    return nn.Sequential(*layers, nn.AvgPool2d(2), nn.Flatten(), nn.Linear(13 * 25, 5))


@model(2, 4, 9, 9)
def mobilenet():
    return nn.Sequential(
        nn.Conv2d(4, 12, 1), nn.GroupNorm(3, 12), nn.Hardswish(),
        nn.Conv2d(12, 12, 3, groups=12), nn.SiLU(), nn.Conv2d(12, 4, 1), nn.Hardsigmoid(),
    )  # fmt: skip


@model(3, 5, 8, dtypes=(f32,))
def upsampler():
    return nn.Sequential(
        nn.ConvTranspose1d(5, 4, 3), nn.InstanceNorm1d(4), nn.LeakyReLU(0.1),
        nn.Upsample(scale_factor=2), nn.ELU(), nn.Softplus(),
    )  # fmt: skip


@model(6, 5000, dtypes=(f32, f16))
def long_rows():
    """Of several tiles each."""
    return nn.Sequential(nn.LayerNorm(5000), nn.Softmax(-1), RMSNorm(5000))


def close(got, want, dtype):
    torch.testing.assert_close(
        got.float(), want.float(), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype]
    )


def compare(build, dtype, training):
    """The results, or the gradients and buffers, of what `build` gives, (module, its arguments)."""
    torch.manual_seed(0)
    modules.clear()
    ours, inputs = build()
    for module in ours.modules():  # random numbers are drawn otherwise on a device
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    ours = ours.to(dtype).train(training)
    inputs = {
        key: value.to(dtype) if isinstance(value, torch.Tensor) and value.is_floating_point()
        else value for key, value in inputs.items()
    }  # fmt: skip
    theirs = copy.deepcopy(ours)
    dynamo.reset()
    compiled = dynamo.compile(ours, options={"tuning": "off"})
    if not training:
        with torch.no_grad():
            close(tensor(compiled(**inputs)), tensor(theirs(**inputs)), dtype)
        return {"kernels": kernels()}
    target = torch.randn_like(tensor(copy.deepcopy(ours)(**inputs)).float())
    for net in (compiled, theirs):
        F.mse_loss(tensor(net(**inputs)).float(), target).backward()
    for got, want in zip(ours.parameters(), theirs.parameters(), strict=True):
        if want.grad is not None:
            close(got.grad, want.grad, dtype)
    for got, want in zip(ours.buffers(), theirs.buffers(), strict=True):
        if want.is_floating_point():
            close(got, want, dtype)
    return {"kernels": kernels()}


def tensor(result):
    return result if isinstance(result, torch.Tensor) else next(iter(result.values()))


def cases_of(models):
    """models: name -> (build, dtypes)."""
    everywhere()
    return {
        f"{name} {str(dtype).removeprefix('torch.')} {kind}": partial(
            compare, build, dtype, kind == "training"
        )
        for name, (build, dtypes) in models.items()
        for dtype in dtypes
        for kind in ("inference", "training")
    }


def cases(*names):
    return cases_of({name: MODELS[name] for name in names or MODELS})
