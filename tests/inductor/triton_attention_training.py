"""Attention with changed scores and its gradients by Triton kernels, against eager: `python -m
tests.inductor.interpreting triton_attention_training [NAME...]`.
"""

from __future__ import annotations

import inspect
import math
from functools import partial
from unittest import mock

import torch

from benchmarks.device_plan import captured
from fxgraph.aot import functionalize_training, training_callable
from inductor import devices, softmax_attention
from inductor.codegen.triton import TritonModule
from inductor.lowering.graph import LOWERINGS
from inductor.options import Options
from inductor.pipeline import Compilation, arrange, run_stages
from inductor.plan_steps import build_plan
from inductor.runtime.link import link
from tests.inductor.triton_attention import attention, seen
from tests.inductor.triton_products import bf16, everywhere, f16, f32, rand

CASES = {}


def case(queries, keys=None, dtype=f32, more=(), fused=True, left=()):
    """fused: by kernels of attention. left: operators that aten computes."""

    def register(fn):
        of = (queries, keys or queries, keys or queries)
        given = [rand(*n, dtype=dtype, seed=i).requires_grad_() for i, n in enumerate(of)]
        CASES[fn.__name__] = fn, [*given, *more], fused, left
        return fn

    return register


@case((2, 3, 33, 20), (2, 3, 50, 20))
def unchanged(q, k, v):
    return attention(q, k, v, lambda s: s)


@case((1, 2, 40, 20))
def causal(q, k, v):
    return attention(q, k, v, lambda s: seen(s, lambda i, j: i >= j))


@case((1, 1, 70, 64), dtype=bf16)
def of_bfloat16(q, k, v):
    return attention(q, k, v, lambda s: seen(s, lambda i, j: i >= j), safe=True)


@case((1, 2, 40, 128), dtype=f16)
def capped(q, k, v):
    return attention(q, k, v, lambda s: seen(5 * torch.tanh(s / 5), lambda i, j: i >= j))


@case((1, 2, 20, 16), dtype=bf16)
def joined(q, k, v):
    """The operands are made by other operators, and the result is read by others."""
    q, k = (torch.cat([x[..., 8:], x[..., :8] * 2], -1) for x in (q, k))
    return torch.cat([attention(q, k, v, lambda s: s * 2), q], 1)


@case((2, 3, 20, 16), (2, 3, 45, 16), more=[torch.arange(45) < torch.tensor([[45], [7]])])
def padded(q, k, v, there):
    return attention(q, k, v, lambda s: s.masked_fill(~there[:, None, None, :], -math.inf))


@case((2, 3, 20, 16), (2, 3, 45, 16), more=[rand(3, 20, 45, seed=5)])
def biased_by_table(q, k, v, table):
    return attention(q, k, v, lambda s: s * torch.sigmoid(s) + table)


@case((1, 2, 40, 16))
def queries_that_see_nothing_are_0(q, k, v):
    return attention(q, k, v, lambda s: seen(s, lambda i, j: i - 35 > j), safe=True)


@case((1, 2, 40, 16))
def queries_that_see_nothing(q, k, v):
    return attention(q, k, v, lambda s: seen(s, lambda i, j: i - 35 > j))


@case((2, 20, 3, 16), (2, 45, 3, 16))
def turned(q, k, v):
    """Heads lie inside of places."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return attention(q, k, v, lambda s: s * 2).transpose(1, 2).contiguous()


@case((2, 4, 20, 16), (2, 2, 45, 16))
def shared_keys(q, k, v):
    k, v = (x.repeat_interleave(2, 1) for x in (k, v))
    return attention(q, k, v, lambda s: seen(s, lambda i, j: i + 25 >= j))


@case((1, 2, 20, 16), more=[rand(2, 20, 20, seed=5).requires_grad_()], fused=False)
def table_that_learns(q, k, v, table):
    """Its gradient is one of all scores: these are in memory."""
    return attention(q, k, v, lambda s: s + table)


@case((1, 2, 20, 16), fused=False)
def weights_that_are_returned(q, k, v):
    weights = torch.softmax(q @ k.transpose(-1, -2), -1)
    return weights @ v + weights.sum()


@case((1, 2, 20, 16), more=[rand(1, 2, 20, 20, seed=5).requires_grad_()], fused=False)
def table_of_all_scores_that_learns(q, k, v, table):
    return attention(q, k, v, lambda s: s + table)


@case((1, 2, 20, 16), fused=False)
def weights_that_are_seen(q, k, v):
    """As a result that is not differentiated."""
    weights = torch.softmax(q @ k.transpose(-1, -2), -1)
    return weights @ v, weights.detach()


@case((1, 2, 20, 16), fused=False)
def scores_that_are_seen(q, k, v):
    scores = q @ k.transpose(-1, -2) * 0.3
    return torch.softmax(scores, -1) @ v, scores.detach()


@case((1, 2, 20, 16), fused=False)
def products_that_are_seen(q, k, v):
    scores = q @ k.transpose(-1, -2)
    return torch.softmax(scores * 0.3, -1) @ v, (scores * 2).detach()


@case((1, 2, 20, 16), left=["framegraph.attention_value_gradient"], fused=False)
def scores_that_aten_reads(q, k, v):
    """Those of the backward are in memory then, and their gradient too."""
    return attention(q, k, v, lambda s: seen(5 * torch.tanh(s / 5), lambda i, j: i >= j))


def plans(fn, inputs, left=()):
    """A graph with its backward, and how its parts are planned as Triton kernels."""
    names = inspect.signature(fn).parameters
    ((gm, given),) = captured(fn, dict(zip(names, inputs, strict=True)), training=True)

    def plan(functional):
        count = len(functional.graph_module.graph.find_nodes(op="placeholder"))
        options = Options.of({"tuning": "off", "aten_ops": left})
        c = Compilation(None, [None] * count, [False] * count, options, functional)
        c.inference = False
        with torch.no_grad(), mock.patch.object(devices, "is_gpu", lambda device: True):
            run_stages(c, until="schedule")
            return build_plan(c.program, c.items, TritonModule(c.program, everywhere=True))[1]

    few = mock.patch.object(softmax_attention, "LEAST_SCORES", 0)
    with few, mock.patch.object(devices, "is_gpu", lambda device: True):
        traced = functionalize_training(gm, given, keep=LOWERINGS, arrange=arrange)
    return traced, given, plan


def run(name, device="cpu"):
    from inductor.runtime.driver import load_kernels

    fn, inputs, fused, left = CASES[name]
    leaves = [x.detach().to(device).requires_grad_(x.requires_grad) for x in inputs]
    traced, given, plan = plans(fn, leaves, left)
    labels = []

    def compiled(functional):
        spec = plan(functional)
        own = [step.op for step in spec.steps if step.kind == "aten" and "framegraph" in step.op]
        assert bool(own) == bool(left and functional is not traced.forward), own
        labels.extend(step.label for step in spec.steps if step.kind == "launch")
        return link(spec, callables=load_kernels(spec.triton))

    step = training_callable(
        traced, lambda: compiled(traced.forward), lambda part: compiled(part).take
    )
    got, *also = step(*given)
    result = fn(*leaves)
    want, *more = result if isinstance(result, tuple) else (result,)
    torch.testing.assert_close(also, more)
    tangent = rand(*want.shape, dtype=want.dtype, seed=9).to(device)
    wanted = [x for x in leaves if x.requires_grad]
    ours, theirs = (torch.autograd.grad(y, wanted, tangent) for y in (got, want))
    made = [label for label in labels if "attention of" in label]
    assert len(made) == (4 if fused else len(left)), labels
    exact = exactly(fn, leaves, tangent) if want.dtype != f32 else [want, *theirs]
    for ours, theirs, true in zip([got, *ours], [want, *theirs], exact, strict=True):
        if want.dtype == f32:
            most = 2e-5 if device == "cpu" else 1e-4
            torch.testing.assert_close(ours, theirs, rtol=most, atol=most, equal_nan=True)
            continue
        mistake, given = ((x.double() - true).norm() / true.norm() for x in (ours, theirs))
        assert mistake < 2 * given + torch.finfo(want.dtype).eps, (mistake, given)


def exactly(fn, leaves, tangent):
    """The result and its gradients in float64."""

    def widened(x):
        return x.detach().double() if x.is_floating_point() else x

    leaves = [widened(x).requires_grad_(x.requires_grad) for x in leaves]
    with mock.patch.object(torch.Tensor, "float", torch.Tensor.double):
        result = fn(*leaves)
    wanted = [x for x in leaves if x.requires_grad]
    return [result, *torch.autograd.grad(result, wanted, tangent.double())]


def cases(*names):
    everywhere()
    return {name: partial(run, name) for name in names or CASES}
