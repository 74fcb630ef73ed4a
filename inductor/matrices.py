"""Products of matrices that generated code multiplies as they are: weights that change between
calls, gradients.

before                                      after
    dw = aten.mm(aten.t(dy), x)                 dw = framegraph.matrix_mm(aten.t(dy), x)

The right matrix is put into panels block by block, in the cache (codegen/matrices.cpp), where the
library copies it to memory, and copies a left one first whose columns are side by side.

Measured with AVX-512 on Zen 5, one thread (GFLOP/s of MKL, oneDNN, this; T: the left one's columns
side by side):
    64x256x256    105  182  222    256x384x1152    107  255  247    1024x512x256 T  103  217  261
    64x256x256 T  104  152  219    512x128x1024    112  258  256    384x256x1536 T  110  244  248
    256x64x256 T  106  152  231    64x512x1000     109  243  224    197x384x384 T   111  223  253

Matrices of bfloat16 are multiplied by pairs, with sums of float32, which a kernel behind narrows
(codegen/matrices_pairs.cpp). Measured with AMX, two threads (us of aten, oneDNN, this):
    197x384x384    60  62  35    197x1536x384  195 192 144    384x197x384 T   80 126  52
    197x384x1536  132 136 137    512x768x768   299 309 317    384x197x1536 T 288 219 196
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from inductor.codegen import matrices as kernel
from inductor.ir import MatrixProduct
from inductor.measure import Budget
from inductor.panels import has_pairs
from inductor.registration import operator
from inductor.runtime import toolchain
from inductor.sample_plan import buffer, sample_plan, window


def _matrix_mm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.mm(x.float(), w.float())


def _matrix_mm_meta(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x.new_empty((x.shape[0], w.shape[1]), dtype=torch.float32)


matrix_mm = operator("matrix_mm(Tensor x, Tensor weight) -> Tensor", _matrix_mm, _matrix_mm_meta)


def are_multiplied(x: torch.Tensor, w: torch.Tensor) -> bool:
    """Whether the kernel reads such matrices."""
    known = [torch.float32, *[torch.bfloat16] * has_pairs()]
    return x.dtype == w.dtype and all(
        val.dtype in known
        and val.device.type == "cpu"
        and val.layout is torch.strided
        and 1 in val.stride()
        for val in (x, w)
    )


_SOURCE = """#include "matrices.h"

namespace fg {
extern "C" void sample(void* const* P, int64_t begin, int64_t end) {
  const int64_t* const n = (const int64_t*)P[3];
  const Matrices<float> a = {(const float*)P[0], (const float*)P[1], (float*)P[2], n[0], n[1], n[2],
                             n[3], n[4], n[5], n[6], n[7], n[8]};
  multiply<float>(a, {}, begin, end);
}
}
"""
# A kernel narrows the result.
_SOURCE_OF_PAIRS = """#include "matrices.h"

namespace fg {
static void narrow(void* const* P, int64_t begin, int64_t end, const int64_t*) {
  const float* const from = (const float*)P[0];
  bf16* const to = (bf16*)P[1];
  for (int64_t e = begin; e < end; e += FG_WIDE) {
    if (e + FG_WIDE <= end) wide::store(to + e, wide::load(from + e, Full{}), Full{});
    else wide::store(to + e, wide::load(from + e, Part{end - e}), Part{end - e});
  }
}
extern "C" void sample(void* const* P, int64_t begin, int64_t end) {
  const int64_t* const n = (const int64_t*)P[3];
  void* L[] = {nullptr, P[2]};
  const Matrices<bf16> a = {(const bf16*)P[0], (const bf16*)P[1], nullptr, n[0], n[1], n[2],
                            n[3], n[4], n[5], n[6], n[7], n[8]};
  multiply<bf16>(a, {narrow, L, nullptr, -1, L}, begin, end);
}
}
"""


@functools.cache
def _samples(pairs: bool) -> Any:
    return toolchain.load_library(_SOURCE_OF_PAIRS if pairs else _SOURCE)


def sample(x: torch.Tensor, w: torch.Tensor, budget: Budget) -> Callable[[], object]:
    """Such a product, for measuring (measure.py)."""
    with budget.pause():
        made = _samples(x.dtype == torch.bfloat16)
    given = {"x": x, "w": w}
    size = (x.shape[0], w.shape[1])
    out = buffer("out", x.new_empty(size))
    step = MatrixProduct("sample", window("x", x), window("w", w), size, out)
    shape = kernel.blocks(step)
    numbers = kernel.numbers(step, shape)[2:]
    return sample_plan(
        made, given, out, numbers, kernel.units(step, shape), kernel.grain(step, shape)
    )
