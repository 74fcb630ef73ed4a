"""Functions that generated Triton kernels call by name: `math` for functions beyond
triton.language, and row reductions.

On a device `math` is Triton's libdevice. Triton's interpreter, which tests use to run kernels on
CPU tensors, has no libdevice, so there the same names are torch's functions of the same meaning.
"""

from __future__ import annotations

import os
from typing import Any

import triton
import triton.language as tl
from triton.language.extra import libdevice

# Triton reads this too, as kernels are defined.
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"

OTHERWISE_NAMED = {"rint": "round"}  # in torch


class _Interpreted:
    """Stands for libdevice in Triton's interpreter: torch's functions over its arrays."""

    def __getattr__(self, name: str) -> Any:
        import torch  # takes seconds; a process that compiles kernels needs none

        function = getattr(torch, OTHERWISE_NAMED.get(name, name))

        def call(*args: Any) -> Any:
            from triton.runtime.interpreter import TensorHandle

            arrays = [torch.from_numpy(a.handle.data.copy()) for a in args]
            result = function(*arrays).numpy()
            first = args[0]
            return tl.core.tensor(TensorHandle(result, first.handle.dtype), first.type)

        return call


math: Any = _Interpreted() if INTERPRETED else libdevice


if INTERPRETED:  # which multiplies the bits of bfloat16

    @triton.jit
    def dot(a, b, sums, precision: tl.constexpr):
        """sums + a @ b."""
        if a.dtype.is_floating():
            a, b = a.to(tl.float32), b.to(tl.float32)
        return tl.dot(a, b, sums, input_precision="ieee", out_dtype=sums.dtype)
else:

    @triton.jit
    def dot(a, b, sums, precision: tl.constexpr):
        """sums + a @ b; precision: of products of float32. float8 is added up in float32, too."""
        return tl.dot(
            a, b, sums, input_precision=precision, max_num_imprecise_acc=0, out_dtype=sums.dtype
        )


@triton.jit
def _product(a, b):
    return a * b


@triton.jit
def row_sum(v):
    return tl.sum(v, axis=1, keep_dims=True)


@triton.jit
def row_prod(v):
    return tl.reduce(v, 1, _product, keep_dims=True)


@triton.jit
def row_max(v):
    return tl.max(v, axis=1, keep_dims=True)


@triton.jit
def row_min(v):
    return tl.min(v, axis=1, keep_dims=True)


@triton.jit
def row_any(v):
    return tl.max(v.to(tl.int32), axis=1, keep_dims=True) != 0


@triton.jit
def row_all(v):
    return tl.min(v.to(tl.int32), axis=1, keep_dims=True) != 0


@triton.jit
def row_max_nan(v):
    """Maximum of float rows; NaN if the row holds one."""
    return tl.where(row_any(v != v), float("nan"), row_max(v))


@triton.jit
def row_min_nan(v):
    return tl.where(row_any(v != v), float("nan"), row_min(v))


@triton.jit
def online_sum(total, top, v, larger):
    """sum(exp(. - larger)) with v taken in; total: without v, of exp(. - top)."""
    total = tl.where(top == larger, total, total * tl.exp(top - larger))
    # A lane of -inf alone adds nothing: with +inf or NaN, the difference is NaN, as in eager.
    return total + tl.where(larger == float("-inf"), 0.0, tl.exp(v - larger))


@triton.jit
def row_online_sum(total, lane_top, top):
    """A row's sum(exp(. - top)) from those of its lanes; NaN for a row of -inf, as in eager."""
    total = tl.where(lane_top == top, total, total * tl.exp(lane_top - top))
    return tl.where(top == float("-inf"), float("nan"), row_sum(total)).to(top.dtype)


@triton.jit
def first(condition, position):
    """The least position of a row where the condition holds, or the largest int64."""
    return row_min(tl.where(condition, position, 9223372036854775807))


@triton.jit
def row_argmax(v, position):
    """Position of the first maximum; a NaN counts as larger than everything."""
    nan = first(v != v, position)
    return tl.where(row_any(v != v), nan, first(v == row_max(v), position))


@triton.jit
def row_argmin(v, position):
    """Position of the first minimum; a NaN counts as smaller than everything."""
    nan = first(v != v, position)
    return tl.where(row_any(v != v), nan, first(v == row_min(v), position))


@triton.jit
def better_max(v, p, best, at):
    """Whether (v, p) replaces (best, at) in a running argmax."""
    nan, known = v != v, best != best
    return (
        ((v > best) & (known == 0))
        | (nan & (known == 0))
        | (((v == best) | (nan & known)) & (p < at))
    )


@triton.jit
def better_min(v, p, best, at):
    nan, known = v != v, best != best
    return (
        ((v < best) & (known == 0))
        | (nan & (known == 0))
        | (((v == best) | (nan & known)) & (p < at))
    )


@triton.jit
def maximum(a, b):
    """torch.maximum: a NaN in either is the result."""
    return tl.where(a > b, a, tl.where(a != a, a, b))


@triton.jit
def minimum(a, b):
    return tl.where(a < b, a, tl.where(a != a, a, b))


@triton.jit
def fmax(a, b):
    """torch.fmax: a NaN gives way to a number."""
    return tl.where(a > b, a, tl.where(b != b, a, b))


@triton.jit
def fmin(a, b):
    return tl.where(a < b, a, tl.where(b != b, a, b))


@triton.jit
def floor_div_int(a, b):
    """Quotient rounded towards minus infinity; Triton's own // rounds towards zero."""
    q = a // b
    return tl.where((a % b != 0) & ((a < 0) != (b < 0)), q - 1, q)


@triton.jit
def floor_div_float(b, m, quotient, whole):
    """torch.floor_divide from m = fmod(a, b), a / b and (a - m) / b, nearly an integer."""
    whole = tl.where((m != 0) & ((m < 0) != (b < 0)), whole - 1, whole)
    down = tl.floor(whole)
    down = tl.where(whole - down > 0.5, down + 1, down)
    down = tl.where(whole == 0, math.copysign(tl.zeros_like(quotient), quotient), down)
    return tl.where(b == 0, quotient, down)


@triton.jit
def remainder_int(a, b):
    m = a % b
    return tl.where((m != 0) & ((m < 0) != (b < 0)), m + b, m)


@triton.jit
def remainder_float(a, b, m):
    """torch.remainder from m = fmod(a, b)."""
    return tl.where((m != 0) & ((m < 0) != (b < 0)), m + b, m)
