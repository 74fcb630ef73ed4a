"""How programs of the stand-in are compared: compiled calls beside eager ones on one device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import dynamo
from tests.gpu.stand_in import launching
from tests.inductor.test_operators import tensors_of

Program = Callable[[], None]
DEVICE = "cuda"
GRAPHS = {"mode": "reduce-overhead"}
compared = True  # in the mode `launches` kernels compute nothing


def same(got: Any, want: Any, **tolerance: float) -> None:
    launching.check()
    ours, theirs = tensors_of(got), tensors_of(want)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert (a.dtype, a.shape, a.device) == (b.dtype, b.shape, b.device)
        assert a.requires_grad == b.requires_grad
        assert a.numel() < 2 or _strides(a) == _strides(b), (a.stride(), b.stride(), a.shape)
        if compared and a.layout is torch.strided:
            torch.testing.assert_close(a, b, equal_nan=True, **tolerance)


def _strides(tensor: torch.Tensor) -> list[int]:
    if tensor.layout is not torch.strided or tensor.numel() == 0:
        return []
    return [s for s, n in zip(tensor.stride(), tensor.size(), strict=True) if n > 1]


def repeated(fn: Callable[..., Any], *inputs: Any, **options: Any) -> None:
    """Calls of a function, with a plan and with device graphs, and after writes by eager."""
    for more in ({}, GRAPHS):
        dynamo.reset()
        run = dynamo.compile(fn, **more, **options)
        for turn in range(4):
            given = [_again(x) for x in inputs], [_again(x) for x in inputs]
            found = []
            for call, own in zip((run, fn), given, strict=True):
                torch.manual_seed(turn)
                found.append(call(*own))
            same(found[0], found[1], rtol=1e-3, atol=1e-3)
            same(given[0], given[1], rtol=1e-3, atol=1e-3)


def _again(x: Any) -> Any:
    return x.detach().clone().requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x


def rand(*size: int, **options: Any) -> torch.Tensor:
    generator = torch.Generator().manual_seed(len(size))
    return torch.randn(size, generator=generator).to(DEVICE, **options)
