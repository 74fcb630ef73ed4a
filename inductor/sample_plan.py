"""A kernel alone, over tensors that are given: for measuring (measure.py).

Its library has one entry, "sample", which takes pointers to the given tensors, to the result, and
to the numbers in the kernel's description.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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


def sample_plan(
    library: Any,
    given: Mapping[str, torch.Tensor],
    out: Buffer,
    numbers: Sequence[Extent],
    units: Extent,
    grain: int,
) -> Callable[[], torch.Tensor]:
    """Calls of the library's entry, which return the result."""
    inputs = {**given, "numbers": torch.tensor(numbers, dtype=torch.int64)}
    pointers: list[tuple[str, Extent]] = [(name, 0) for name in (*given, out.name, "numbers")]
    spec = PlanSpec(
        inputs=[
            TensorSpec(name, dtype_name(t.dtype), tuple(t.shape), t.stride())
            for name, t in inputs.items()
        ],
        buffers=[BufferSpec(out.name, dtype_name(out.dtype), out.size, out.stride, kind="output")],
        steps=[KernelStep("sample", pointers, [out.name], units, grain)],
        outputs=[OutputSpec("buffer", out.name)],
    )
    plan = link(spec, library)
    return lambda: plan(*inputs.values())[0]
