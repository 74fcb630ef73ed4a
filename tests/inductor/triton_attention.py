"""Attention with changed scores by one Triton kernel, against eager: `python -m
tests.inductor.interpreting triton_attention [NAME...]`.
"""

from __future__ import annotations

import inspect
import math
from functools import partial
from unittest import mock

import torch

from benchmarks.device_plan import captured
from inductor import softmax_attention
from inductor.codegen.triton import TritonModule
from inductor.pipeline import new_compilation, run_stages
from inductor.plan_steps import build_plan
from inductor.runtime.link import link
from tests.inductor.triton_products import bf16, everywhere, f16, f32, rand

CASES = {}
TOLERANCE = {f32: 1e-5, f16: 5e-3, bf16: 3e-2}


def case(*sizes, dtype=f32, more=()):
    """Of q, k and v, or of q and of both others."""

    def register(fn):
        of = sizes if len(sizes) == 3 else (sizes[0], sizes[-1], sizes[-1])
        CASES[fn.__name__] = fn, [*(rand(*n, dtype=dtype, seed=i) for i, n in enumerate(of)), *more]
        return fn

    return register


def attention(q, k, v, change, safe=False):
    """As flex_attention computes without a kernel: products of half precision in float32."""
    scores = change(q.float() @ k.float().transpose(-1, -2) * 0.3)
    weights = (torch._safe_softmax if safe else torch.softmax)(scores, -1)
    return weights.to(v.dtype) @ v


def places(scores):
    return [torch.arange(n, device=scores.device) for n in scores.shape[-2:]]


def seen(scores, test):
    """Scores of the pairs that pass the test."""
    i, j = places(scores)
    return torch.where(test(i[:, None], j[None, :]), scores, -math.inf)


@case((2, 3, 33, 20), (2, 3, 50, 20))
def unchanged(q, k, v):
    return attention(q, k, v, lambda s: s)


@case((1, 2, 70, 64))
def causal(q, k, v):
    return attention(q, k, v, lambda s: seen(s, lambda i, j: i >= j))


@case((1, 2, 150, 16))
def causal_window(q, k, v):
    return attention(q, k, v, lambda s: seen(s, lambda i, j: (i >= j) & (i - j < 20)))


@case((1, 2, 70, 64), dtype=bf16)
def of_bfloat16(q, k, v):
    return attention(q, k, v, lambda s: seen(s, lambda i, j: i >= j))


@case((1, 2, 40, 128), dtype=f16)
def of_float16(q, k, v):
    return attention(q, k, v, lambda s: 5 * torch.tanh(s / 5))


@case((2, 3, 20, 16), (2, 3, 45, 16), more=[torch.arange(45) < torch.tensor([[45], [7]])])
def padded(q, k, v, there):
    """No key beyond a sequence's end is seen."""
    return attention(q, k, v, lambda s: s.masked_fill(~there[:, None, None, :], -math.inf))


@case((2, 4, 20, 16), (2, 4, 45, 16), more=[torch.tensor([0.5, 0.25, 0.125, 0.0625])])
def biased_by_head(q, k, v, slope):
    def biased(s):
        i, j = places(s)
        return s + slope[:, None, None] * (j[None, :] - i[:, None])

    return attention(q, k, v, biased)


@case((2, 3, 20, 16), (2, 3, 45, 16), more=[rand(3, 20, 45, seed=5)])
def biased_by_table(q, k, v, table):
    return attention(q, k, v, lambda s: s + table)


@case((2, 4, 20, 16), (2, 2, 45, 16))
def shared_keys(q, k, v):
    k, v = (x.repeat_interleave(2, 1) for x in (k, v))
    return attention(q, k, v, lambda s: seen(s, lambda i, j: i + 25 >= j))


@case((2, 20, 16), (2, 45, 16))
def without_heads(q, k, v):
    return attention(q, k, v, lambda s: seen(s, lambda i, j: i + 25 >= j))


@case((1, 2, 40, 16))
def queries_that_see_nothing(q, k, v):
    return attention(q, k, v, lambda s: seen(s, lambda i, j: i - 35 > j))


@case((1, 2, 40, 16))
def queries_that_see_nothing_are_0(q, k, v):
    return attention(q, k, v, lambda s: seen(s, lambda i, j: i - 35 > j), safe=True)


@case((1, 2, 40, 16), more=[torch.tensor([math.inf, math.nan, -math.inf, 1e30, 0.0] * 8)])
def not_numbers(q, k, v, bias):
    return attention(q, k, v, lambda s: s + bias[:, None])


@case((2, 20, 3, 16), (2, 45, 3, 16))
def turned(q, k, v):
    """Heads lie inside of places."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return attention(q, k, v, lambda s: s * 2).transpose(1, 2).contiguous()


def planned(fn, inputs):
    ((gm, given),) = captured(fn, dict(zip(inspect.signature(fn).parameters, inputs, strict=True)))
    c = new_compilation(gm, given, {"tuning": "off"})
    with torch.no_grad(), mock.patch.object(softmax_attention, "LEAST_SCORES", 0):
        run_stages(c, until="schedule")
        _, spec = build_plan(c.program, c.items, TritonModule(c.program, everywhere=True))
    return spec, given


def run(name, device="cpu"):
    from inductor.runtime.driver import load_kernels

    fn, inputs = CASES[name]
    inputs = [x.to(device) for x in inputs]
    spec, given = planned(fn, inputs)
    assert any(step.label.startswith("attention ") for step in spec.steps if step.kind == "launch")
    assert not any(step.kind == "aten" for step in spec.steps), spec.steps
    with torch.no_grad():
        (got,) = link(spec, callables=load_kernels(spec.triton))(*given)
        want = fn(*inputs)
    tolerance = TOLERANCE[want.dtype] if device == "cpu" or want.dtype != f32 else 1e-4
    torch.testing.assert_close(
        got, want, rtol=tolerance, atol=tolerance, equal_nan=True, check_stride=True
    )


def cases(*names):
    everywhere()
    return {name: partial(run, name) for name in names or CASES}
