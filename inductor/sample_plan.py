"""A kernel alone, over tensors that are given: for measuring (measure.py).

Its library has one entry, "sample", which takes pointers to the given tensors, to the result, and
to the numbers in the kernel's description.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fxgraph.sizes import Extent
from inductor.ir import Buffer, Window
from inductor.runtime.link import link
from inductor.runtime.plan import (
    BufferSpec,
    KernelStep,
    OutputSpec,
    PlanSpec,
    TensorSpec,
    dtype_name,
)


def buffer(name: str, tensor: torch.Tensor) -> Buffer:
    return Buffer(name, tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.device)


def window(name: str, tensor: torch.Tensor) -> Window:
    whole = buffer(name, tensor)
    return Window(whole, whole.size, whole.stride)


@dataclass
class SampleKernel:
    """A call of the entry. given: names of tensors that it takes."""

    given: tuple[str, ...]
    out: Buffer
    numbers: Sequence[Extent]
    units: Extent
    grain: int


def sample_plan(
    library: Any,
    given: Mapping[str, torch.Tensor],
    out: Buffer,
    numbers: Sequence[Extent],
    units: Extent,
    grain: int,
) -> Callable[[], torch.Tensor]:
    """Calls of the library's entry, which return the result."""
    return sample_kernels(library, given, [SampleKernel(tuple(given), out, numbers, units, grain)])


def sample_kernels(
    library: Any, given: Mapping[str, torch.Tensor], kernels: Sequence[SampleKernel]
) -> Callable[[], torch.Tensor]:
    """Several calls of the entry, one after another, which return the last one's result."""
    inputs, steps = dict(given), []
    for index, one in enumerate(kernels):
        numbers = f"numbers{index}"
        inputs[numbers] = torch.tensor(one.numbers, dtype=torch.int64)
        pointers: list[tuple[str, Extent]] = [(n, 0) for n in (*one.given, one.out.name, numbers)]
        steps.append(KernelStep("sample", pointers, [one.out.name], one.units, one.grain))
    outs = [one.out for one in kernels]
    spec = PlanSpec(
        inputs=[
            TensorSpec(name, dtype_name(t.dtype), tuple(t.shape), t.stride())
            for name, t in inputs.items()
        ],
        buffers=[
            BufferSpec(b.name, dtype_name(b.dtype), b.size, b.stride, kind="output") for b in outs
        ],
        steps=steps,
        outputs=[OutputSpec("buffer", b.name) for b in outs],
    )
    plan = link(spec, library)
    return lambda: plan(*inputs.values())[-1]
