"""Fused kernels beside eager: each with ordinary, special, empty, strided and shared inputs."""

from __future__ import annotations

import contextlib
import re

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import dynamo
from dynamo.api.compile import compile_fresh
from inductor import (
    attention,
    convolutions,
    convolutions_training,
    costs,
    matrices,
    measure,
    panels,
    products,
    quantized,
    widen,
    windows,
)
from inductor.measure import Choice
from tests.inductor import fused_cases
from tests.inductor.compiling import clones, same_layout
from tests.inductor.fused_cases import KINDS, ordinary

ROWS = {name: row for table in fused_cases.TABLES for name, row in table.items()}
HAS_PAIRS = panels.has_pairs()  # the processor, before tests say otherwise
ASKING = (attention, convolutions, matrices, panels, products, quantized, widen, windows)


@pytest.fixture
def row(request, monkeypatch):
    """The row of that name, whose ways are chosen wherever there is a choice."""
    one = ROWS[request.param]

    def measured(candidates, budget, ahead, before):
        names = [name for name in one.choose if name in candidates]
        chosen = (names or list(candidates))[0]
        return Choice(chosen, {**dict.fromkeys(candidates, 2.0), chosen: 1.0})

    monkeypatch.setattr(measure, "_measured", measured)
    monkeypatch.setattr(measure, "_keep", lambda entry, choice: None)
    monkeypatch.setattr(measure, "_recall", lambda entry, candidates: None)
    monkeypatch.setattr(costs, "LEAST_PRODUCT", 1)
    monkeypatch.setattr(convolutions_training, "_is_ahead", lambda kind, budget: True)
    if one.pairs:
        for module in ASKING:
            monkeypatch.setattr(module, "has_pairs", lambda: True)
    measure.forget()
    yield one
    measure.forget()


def reported(context):
    """What computes the only graph."""
    ((graph,),) = [record.graphs for record in context.records]
    notes, computed = graph.report["notes"], graph.report["computed"]
    return "\n".join([*notes, *(text for _, text, *_ in computed)])


def assert_equal(got, expected, row, where):
    found, wanted = pytree.tree_leaves(got), pytree.tree_leaves(expected)
    close = {"rtol": row.close, "atol": row.close, "equal_nan": True}
    for number, (a, b) in enumerate(zip(found, wanted, strict=True)):
        if b is None:
            assert a is None
            continue
        at = f"{where}, result {number}"
        torch.testing.assert_close(a, b, msg=lambda m: f"{at}: {m}", **close)
        layouts = a.stride() == b.stride() if b.numel() == 0 else same_layout(a, b)
        assert layouts, f"{at}: {a.stride()}, in eager {b.stride()}"


def twice(program):
    """The program of arguments, and of the same tensors once more, which it has written between."""

    def fn(*args):
        half = len(args) // 2
        first = program(*args[:half])
        for x in args[:half]:
            x.mul_(0.5)
        return first, program(*args[half:])

    return fn


def called(program, args, kind):
    """What it returns, and its arguments, which it may write."""
    given = clones(args)
    with torch.no_grad():
        return program(*given, *(given if kind == "shared" else [])), given


@contextlib.contextmanager
def without_onednn():
    """Eager by aten's kernels: gelu(inf) of oneDNN is NaN where the processor has AVX-512."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


def expectation(row, program, args, kind):
    if kind != "special":
        return called(program, args, kind)
    with without_onednn():
        return expectation_of_special(row, program, args, kind)


def expectation_of_special(row, program, args, kind):
    if not row.wide:
        return called(program, args, kind)
    results, given = called(program, [x.float() for x in args], kind)
    return pytree.tree_map(lambda x: x.to(row.dtype), (results, given))


@pytest.mark.parametrize("row", ROWS, indirect=True)
def test_inference(row):
    torch.manual_seed(0)
    program, calls, reports = row.made(), {}, {}
    for kind, change in KINDS.items():
        if kind in row.none:
            continue
        args, count = list(map(change, ordinary(row))), 1
        fn = program
        if kind == "shared":
            fn, count = twice(program), 2
        key = "ordinary" if kind == "special" else kind
        if key not in calls:
            calls[key] = compile_fresh(fn, dynamic=False)
        compiled, context = calls[key]
        expected = expectation(row, fn, args, kind)
        assert_equal(called(compiled, args, kind), expected, row, kind)
        if kind != "empty":  # nothing is computed
            reports[kind] = count, reported(context)
    missed = {k for k, (n, text) in reports.items() if not re.search(row.taken.format(n), text)}
    if row.pairs and HAS_PAIRS:  # the library's ways are fewer where it has their instructions
        missed |= row.not_taken
    assert missed == row.not_taken, {kind: reports[kind] for kind in missed ^ row.not_taken}


TRAINED = (
    "generated gelu", "generated layer_norm", "generated softmax", "direct",
    "bmm", "pixel gated", "depthwise silu", "winograd relu", "winograd joined", "chain",
    "window", "LSTM ", "GRU both ways", "RNN ",
    "pointwise", "columns", "losses", "norms", "pooled", "image norms",
)  # fmt: skip


def step(program, call, args):
    """What it returns, and the gradients of its arguments and parameters."""
    leaves = [x.detach().requires_grad_() for x in clones(args)]
    results = [y for y in pytree.tree_leaves(call(*leaves)) if y.requires_grad]
    seeds = [torch.linspace(-1, 2, y.numel()).view(y.shape).to(y.dtype) for y in results]
    wanted = [*leaves, *program.parameters()]
    return results, torch.autograd.grad(results, wanted, seeds, allow_unused=True)


@pytest.mark.parametrize("row", TRAINED, indirect=True)
def test_training(row):
    torch.manual_seed(0)
    program, calls = row.made(), {}
    for kind in ("ordinary", "special", "empty", "stepped", "shared"):
        if kind in row.none:
            continue
        args = list(map(KINDS[kind], ordinary(row)))

        def both(*xs):
            return program(*xs), program(*xs)

        fn = both if kind == "shared" else program
        key = "ordinary" if kind == "special" else kind
        if key not in calls:
            calls[key] = compile_fresh(fn, dynamic=False)
        compiled, context = calls[key]
        with without_onednn() if kind == "special" else contextlib.nullcontext():
            expected = step(program, fn, args)
        assert_equal(step(program, compiled, args), expected, row, kind)
        if kind != "empty":
            ((graph,),) = [record.graphs for record in context.records]
            assert graph.report["kernels"] and not graph.report["no_plan"], kind


OPTIMIZERS = {
    "SGD": {"momentum": 0.9, "weight_decay": 0.1},
    "Adam": {"foreach": True},
    "AdamW": {"amsgrad": True},
}


@pytest.mark.parametrize("kind", KINDS)
def test_updates(kind):
    """Of parameters and gradients of that kind; shared: one tensor is the gradient of two."""

    def trained(compiled):
        torch.manual_seed(0)
        made = [KINDS[kind](torch.randn(size)) for size in ((5, 4), (5, 4), (2, 3, 2))]
        leaves = [nn.Parameter(x) for x in made]
        optimizers = [getattr(torch.optim, n)(leaves, **more) for n, more in OPTIMIZERS.items()]

        def step():
            for optimizer in optimizers:
                optimizer.step()

        run = dynamo.compile(step) if compiled else step
        for _ in range(3):
            for leaf in leaves:
                leaf.grad = KINDS[kind](torch.randn(leaf.shape))
            if kind == "shared":
                leaves[1].grad = leaves[0].grad
            run()
        return leaves, [optimizer.state_dict()["state"] for optimizer in optimizers]

    found, wanted = (pytree.tree_leaves(trained(compiled)) for compiled in (True, False))
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, equal_nan=True)
        assert not isinstance(one, torch.Tensor) or one.stride() == other.stride()
