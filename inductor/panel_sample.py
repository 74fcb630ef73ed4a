"""Generated products of sample sizes, for measuring (measure.py).

One library multiplies any sizes, so that to measure another takes no compiler. Heights are those of
HEIGHTS, so that products of about equal height share a measurement.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from inductor.codegen import panels
from inductor.ir import PanelProduct
from inductor.measure import Budget
from inductor.panels import in_panels
from inductor.runtime import toolchain
from inductor.sample_plan import SampleKernel, buffer, sample_kernels, window

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
    return sample_in_turn(x, [w], budget)


def sample_in_turn(
    x: torch.Tensor, ws: Sequence[torch.Tensor], budget: Budget
) -> Callable[[], torch.Tensor]:
    """Products of x with each of the weights, which are of one dtype; the last one is returned."""
    (rows, inner), given, kernels = x.shape, {"x": x}, []
    for number, w in enumerate(ws):
        name, columns = f"w{number}", w.shape[1]
        weight = given[name] = in_panels(w, pairs=x.dtype == torch.bfloat16)
        out = buffer(f"out{number}", x.new_empty((rows, columns), dtype=torch.float32))
        step = PanelProduct("sample", window("x", x), window(name, weight), (rows, columns), out)
        shape = panels.blocks(step)
        numbers = [rows, columns, inner, shape.rows, shape.columns]
        cut = panels.units(step, shape), panels.grain(step, shape)
        kernels.append(SampleKernel(("x", name), out, numbers, *cut))
    with budget.pause():
        made = _library(identity(), panels.element_type(ws[0].dtype, weight.shape))
    return sample_kernels(made, given, kernels)
