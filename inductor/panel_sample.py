"""Generated products of sample sizes, for measuring (measure.py).

One library multiplies any sizes, so that to measure another takes no compiler. Heights are those of
HEIGHTS, so that products of about equal height share a measurement.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from fxgraph.sizes import Extent
from inductor.codegen import panels
from inductor.index import contiguous_strides
from inductor.ir import Buffer, PanelProduct, Window
from inductor.measure import Budget
from inductor.panels import in_panels
from inductor.runtime import toolchain
from inductor.runtime.link import link
from inductor.runtime.plan import (
    BufferSpec,
    KernelStep,
    OutputSpec,
    PlanSpec,
    TensorSpec,
    dtype_name,
)

HEIGHTS = (1, 2, 4, 8, 16, 32, panels.BLOCK_ROWS)  # and multiples of the last
_SOURCE = """#include "product.h"

namespace fg {
extern "C" void sample(void* const* P, int64_t begin, int64_t end) {
  const int64_t* const n = (const int64_t*)P[3];
  const auto* const x = (const matrix_of<KIND>*)P[0];
  const Product<KIND> p = {x, (const KIND*)P[1], (float*)P[2], n[0], n[1], n[2], n[2], n[3], n[4]};
  product<KIND>(p, {}, begin, end);
}
}
"""


def height(rows: int) -> int:
    """The least height of samples that is no less than `rows`."""
    for known in HEIGHTS:
        if rows <= known:
            return known
    return -(-rows // HEIGHTS[-1]) * HEIGHTS[-1]


def identity() -> str | None:
    """Changes with the samples' code and with the compiler; None where there is no compiler."""
    try:
        return _identity(toolchain.find_compiler())
    except toolchain.NoCompiler:
        return None


@functools.cache
def _identity(compiler: toolchain.Compiler) -> str:
    return toolchain.library_key([_SOURCE], compiler)


@functools.cache
def _library(identity: str, kind: str) -> Any:
    return toolchain.load_library(_SOURCE.replace("KIND", kind))


def sample(x: torch.Tensor, w: torch.Tensor, budget: Budget) -> Callable[[], torch.Tensor]:
    """A product of x, of one of the heights, and w: by pairs, if x is of bfloat16. The library is
    made outside of the budget: once for all products.
    """
    (rows, inner), columns = x.shape, w.shape[1]
    weight = in_panels(w, pairs=x.dtype == torch.bfloat16)
    with budget.pause():
        made = _library(identity(), panels.element_type(w.dtype, weight.shape))
    step = _step(rows, columns, inner, weight)
    shape = panels.blocks(step)
    sizes = torch.tensor([rows, columns, inner, shape.rows, shape.columns])
    args: list[tuple[str, Extent]] = [("x", 0), ("w", 0), ("out", 0), ("sizes", 0)]
    units, grain = panels.units(step, shape), panels.grain(step, shape)
    spec = PlanSpec(
        inputs=[
            TensorSpec("x", dtype_name(x.dtype), (rows, inner), (inner, 1)),
            TensorSpec("w", dtype_name(w.dtype), tuple(weight.shape), weight.stride()),
            TensorSpec("sizes", "int64", (5,), (1,)),
        ],
        buffers=[BufferSpec("out", "float32", (rows, columns), (columns, 1), kind="output")],
        steps=[KernelStep("sample", args, ["out"], units, grain)],
        outputs=[OutputSpec("buffer", "out")],
    )
    plan = link(spec, made)
    return lambda: plan(x, weight, sizes)[0]


def _step(rows: int, columns: int, inner: int, weight: torch.Tensor) -> PanelProduct:
    """The step of a product of these sizes, to ask how it is cut."""

    def window(name: str, size: tuple[int, ...], dtype: torch.dtype) -> Window:
        stride = contiguous_strides(size)
        buffer = Buffer(name, dtype, size, stride, torch.device("cpu"))
        return Window(buffer, size, stride)

    size = rows, columns
    out = window("out", size, torch.float32).buffer
    x = window("x", (rows, inner), torch.float32)
    return PanelProduct("sample", x, window("w", tuple(weight.shape), weight.dtype), size, out)
