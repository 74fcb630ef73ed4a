"""Gradients of the weights that cut images into patches."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dynamo.api.compile import compile_fresh
from tests.inductor.test_derived import notes

NOTE = "backward: convolutions: 1 gradients of weights of patches"


def step(fn, module, x):
    module.zero_grad()
    out = fn(x)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out.dtype)
    (out * weights).sum().backward()
    return [out, *(p.grad for p in module.parameters())]


def check(compiled, module, x, close=2e-2):
    got, expected = step(compiled, module, x), step(module, module, x)
    for ours, theirs in zip(got, expected, strict=True):
        assert ours.dtype == theirs.dtype and ours.stride() == theirs.stride()
        limits = {"rtol": close, "atol": close * max(1.0, theirs.nan_to_num().abs().max().item())}
        torch.testing.assert_close(ours, theirs, equal_nan=True, **limits)


def drawn(*size):
    return torch.randn(size, generator=torch.Generator().manual_seed(sum(size)))


def patches(window=(4, 4), **more):
    torch.manual_seed(0)
    return nn.Conv2d(3, 10, window, window, **more)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("bias", [False, True])
def test_gradients(dtype, bias):
    module = patches(bias=bias).to(dtype)
    compiled, context = compile_fresh(module)
    check(compiled, module, drawn(2, 3, 16, 20).to(dtype))
    assert any(note.startswith(NOTE) for note in notes(context))


class Embedded(nn.Module):
    """Patches as rows, as transformers have them."""

    def __init__(self, window):
        super().__init__()
        self.cut = patches(window)

    def forward(self, x):
        return self.cut(x).flatten(2).transpose(1, 2).sin()


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("window", [(4, 4), (2, 5), (16, 20)])
def test_layouts_and_windows(layout, window):
    module = Embedded(window)
    compiled, context = compile_fresh(module)
    x = drawn(3, 3, 32, 40).contiguous(memory_format=layout)
    check(compiled, module, x, 1e-4)
    check(compiled, module, x[:, :, ::2, :20], 1e-4) if window != (16, 20) else None
    assert any(note.startswith(NOTE) for note in notes(context))


def test_special_values():
    module = patches()
    compiled, _ = compile_fresh(module)
    x = drawn(1, 3, 16, 16)
    x[0, 0, 0, 0], x[0, 1, 5, 6], x[0, 2, 15, 15] = torch.nan, torch.inf, -torch.inf
    check(compiled, module, x, 1e-4)


def test_batches_that_vary():
    module = Embedded((4, 4))
    compiled, context = compile_fresh(module, dynamic=True)
    for batch in (2, 5, 1, 7):
        check(compiled, module, drawn(batch, 3, 16, 16), 1e-4)


STAY = {
    "the image's gradient": lambda x, w: torch.conv2d(x.requires_grad_(), w, stride=4),
    "windows that overlap": lambda x, w: torch.conv2d(x, w, stride=3),
    "pixels that are left": lambda x, w: torch.conv2d(x[..., :18], w, stride=4),
    "padding": lambda x, w: torch.conv2d(x, w, stride=4, padding=2),
    "narrow windows": lambda x, w: torch.conv2d(x, w[..., :2, :2], stride=2),
    "places apart": lambda x, w: torch.conv2d(x, w, stride=4, dilation=2),
    "transposed": lambda x, w: torch.conv_transpose2d(x, w.transpose(0, 1), stride=4),
    "groups": lambda x, w: torch.conv2d(x, w[:, :1], stride=4, groups=3),
}


@pytest.mark.parametrize("name", STAY)
def test_what_stays(name):
    fn = STAY[name]
    compiled, context = compile_fresh(fn)
    grads = []
    for run in (compiled, fn):
        x, w = drawn(1, 3, 20, 20), drawn(9, 3, 4, 4).requires_grad_()
        run(x, w).square().sum().backward()
        grads.append(w.grad)
    torch.testing.assert_close(*grads, rtol=1e-3, atol=1e-2)
    assert not any("of patches" in note for note in notes(context))
