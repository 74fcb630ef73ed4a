"""im2col and col2im: windows of images put side by side, and added up again."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import dynamo
from inductor.runtime import toolchain

SETTINGS = {  # kernel, dilation, padding, stride
    "overlapping": (3, 1, 1, 1),
    "side by side": (2, 1, 0, 2),
    "uneven": ((2, 3), (2, 1), (0, 2), (1, 2)),
    "side by side, a rest": (4, 1, 0, 4),
    "dilated": (3, 2, 2, 1),
    "by parts": (3, 1, 1, 2),
    "padded more than once around": (5, 1, 3, 1),
    "large": (6, 1, 2, 1),
}


def both(settings, x):
    """Windows, their sums, and the gradient of both."""

    def fn(x):
        windows = F.unfold(x, *settings)
        return windows, F.fold(windows * 2, x.shape[-2:], *settings)

    def run(fn):
        given = x.clone().requires_grad_()
        made = fn(given)
        grads = [torch.full_like(made[0], 3), torch.ones_like(made[1])]
        return *made, *torch.autograd.grad(made, given, grads)

    return run(fn), run(dynamo.compile(fn, fullgraph=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", SETTINGS)
def test_windows_and_their_sums(name, dtype):
    tolerance = {"rtol": 0.04, "atol": 0.5} if dtype is torch.bfloat16 else {}
    image = torch.randn(2, 3, 9, 8, dtype=dtype)
    image[0, 1, 2, 3:5] = torch.tensor([float("nan"), float("inf")])
    for x in (image, image[0], image[:0], image.mT.contiguous().mT, image[:, ::2]):
        for expected, made in zip(*both(SETTINGS[name], x), strict=True):
            torch.testing.assert_close(made, expected, equal_nan=True, **tolerance)
            assert made.stride() == expected.stride()


@pytest.mark.parametrize(
    "call",
    [
        lambda x: F.unfold(x, 12),
        lambda x: F.unfold(x, 0),
        lambda x: F.unfold(x, 2, padding=-1),
        lambda x: F.fold(x.flatten(2), (4, 4), 2),
        lambda x: F.fold(x.flatten(2), (10, 9), (2, 2)),
    ],
)
def test_wrong_arguments(call):
    x = torch.randn(2, 3, 9, 8)
    with pytest.raises(RuntimeError) as expected:
        call(x)
    with pytest.raises(RuntimeError) as found:
        dynamo.compile(call)(x)
    assert str(found.value) == str(expected.value)


@pytest.mark.parametrize("name", ["overlapping", "side by side"])
def test_no_positions_are_loaded(name, monkeypatch):
    """Elements are read where they lie: nothing is gathered, forward or backward."""
    units = []
    monkeypatch.setattr(toolchain, "watchers", [units.extend])
    both(SETTINGS[name], torch.randn(2, 3, 18, 34))
    assert units and not any("gather" in unit or "scatter" in unit for unit in units)
