"""Hand-written kernels and small builders for the runtime's tests."""

from __future__ import annotations

import functools

from fxgraph.sizes import contiguous_strides as strides
from inductor.runtime import toolchain
from inductor.runtime.plan import BufferSpec, KernelStep, OutputSpec, PlanSpec, TensorSpec

SOURCE = """
#include <cstdint>
extern "C" void add1(void* const* p, int64_t begin, int64_t end) {
  const float* x = (const float*)p[0];
  float* out = (float*)p[1];
  for (int64_t i = begin; i < end; ++i) out[i] = x[i] + 1;
}
extern "C" void add(void* const* p, int64_t begin, int64_t end) {
  const float *x = (const float*)p[0], *y = (const float*)p[1];
  float* out = (float*)p[2];
  for (int64_t i = begin; i < end; ++i) out[i] = x[i] + y[i];
}
extern "C" void increment(void* const* p, int64_t begin, int64_t end) {
  float* x = (float*)p[0];
  for (int64_t i = begin; i < end; ++i) x[i] += 1;
}
"""


@functools.cache
def library():
    return toolchain.load_library(SOURCE)


def tensor_input(name, *size, static=False):
    return TensorSpec(name, "float32", size, strides(size), static=static)


def buffer(name, *size, kind="temp"):
    return BufferSpec(name, "float32", size, strides(size), kind=kind)


def add1(source, out, total, **more):
    return KernelStep("add1", [(source, 0), (out, 0)], [out], total, **more)


def add1_plan(*size):
    total = 1
    for extent in size:
        total *= extent
    return PlanSpec(
        inputs=[tensor_input("x", *size)],
        buffers=[buffer("out", *size, kind="output")],
        steps=[add1("x", "out", total)],
        outputs=[OutputSpec("buffer", "out")],
    )


def chain_plan(length, size, grain=32768):
    """`length` kernels in a row, each adding 1, each allowed to work in place."""
    names = ["x", *(f"t{i}" for i in range(length - 1)), "out"]
    steps = [add1(a, b, size, grain=grain, inplace=[(b, a)]) for a, b in zip(names, names[1:])]
    temps = [buffer(name, size) for name in names[1:-1]]
    return PlanSpec(
        inputs=[tensor_input("x", size)],
        buffers=[*temps, buffer("out", size, kind="output")],
        steps=steps,
        outputs=[OutputSpec("buffer", "out")],
    )
