"""Random numbers: those of eager, from the same state of the generator."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F

import dynamo
from inductor.lowering import random as lowering
from tests.inductor.compiling import staged

RANDOM = {
    "dropout": lambda x: F.dropout(x, 0.5),
    "dropout_of_part": lambda x: F.dropout(x[:, :, ::2], 0.5),
    "dropout_of_expanded": lambda x: F.dropout(x[:1].expand(2, 3, 4, 5), 0.5),
    "dropout_of_computed": lambda x: F.dropout(x.exp(), 0.5) @ x.mT,
    "bernoulli_": lambda x: x * x.clone()[:, :, ::2].bernoulli_(0.5).sum(),
    "rand_like": lambda x: x * torch.rand_like(x),
    "normal_of_part": lambda x: x * x.repeat(2, 2, 2, 2)[::2, ::2, ::2, ::2].normal_(),
    "normal_": lambda x: x * torch.empty_like(x).normal_(),
}


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_random_numbers_are_drawn_in_the_order_of_memory(backend):
    def fn(x):
        return [f(x) for f in RANDOM.values()]

    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    dynamo.reset()
    compiled = dynamo.compile(fn, backend=backend)
    for grad in (False, True):
        x.requires_grad_(grad)
        found = []
        for each in (fn, compiled):
            torch.manual_seed(0)
            results = each(x)
            total = sum(map(torch.sum, results))
            found.append((results, torch.autograd.grad(total, x) if grad else ()))
        torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_numbers_that_nobody_uses_are_drawn(backend, grad):
    def fn(x):
        F.dropout(x.exp(), 0.5)
        torch.empty_like(x).uniform_()
        y = F.dropout(x, 0.5)
        torch.rand(3)
        return y * 2

    x = torch.randn(4, 5, requires_grad=grad)
    dynamo.reset()
    compiled = dynamo.compile(fn, backend=backend)
    found = []
    for each in (fn, compiled):
        torch.manual_seed(0)
        result = each(x)
        found.append((result, torch.autograd.grad(result.sum(), x) if grad else (), torch.rand(2)))
    torch.testing.assert_close(found[1], found[0])


DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.bool]
# Elements, such that the generator's 624 words end before, in and after one.
COUNTS = [0, 1, 311, 312, 313, 5000]
BEFORE = [0, 1, 2, 7]  # words drawn before
CHANCES = [0.0, 1e-320, 0.1, 0.5, 1.0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_zeros_and_ones_are_those_of_aten(dtype):
    if not lowering._draws_as_aten():
        pytest.skip("MKL draws on this processor")
    for count, before, p in itertools.product(COUNTS, BEFORE, CHANCES):
        ours, theirs = (torch.Generator().manual_seed(5) for _ in range(2))
        for generator in (ours, theirs):
            torch.rand(before, generator=generator)
        found = torch.ops.framegraph.bernoulli([count], p, dtype, generator=ours)
        expected = torch.empty(count, dtype=dtype).bernoulli_(p, generator=theirs)
        assert torch.equal(found, expected), (count, before, p)
        assert torch.equal(ours.get_state(), theirs.get_state()), (count, before, p)
    with pytest.raises(RuntimeError, match="expects p to be in"):
        torch.ops.framegraph.bernoulli([3], 1.5, dtype)


@pytest.mark.parametrize("as_aten", [True, False])
def test_a_dropout_draws_by_our_operator_where_that_draws_the_same(as_aten, monkeypatch):
    def fn(x):
        return F.dropout(x, 0.3) + F.dropout(x[1:], 0.5).sum(), torch.rand_like(x)

    own = as_aten and lowering._draws_as_aten()
    monkeypatch.setattr(lowering, "_draws_as_aten", lambda: own)
    x = torch.randn(5, 7)
    c = staged(fn, (x,))
    drawn = [step.op for step in c.spec.steps if "bernoulli" in getattr(step, "op", "")]
    assert drawn == [f"{'framegraph' if own else 'aten'}::bernoulli"] * 2
    found = []
    for each in (fn, c.compiled):
        torch.manual_seed(3)
        found.append((*each(x), torch.rand(2)))
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize("grad", [False, True])
def test_dropout_of_a_probability_that_varies(grad):
    def run(x, p):
        return F.dropout(x, p), torch.rand(2)

    compiled = dynamo.compile(run)
    x = torch.ones(20, requires_grad=grad)
    for p in (0.5, 0.1, 1.0, 0.0, 1.0, 0.7):
        results = []
        for call in (run, compiled):
            torch.manual_seed(3)
            results.append(call(x, p))
        torch.testing.assert_close(results[1], results[0])


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0])
def test_dropouts_of_symbolic_sizes_draw_as_in_eager(p):
    layer = torch.nn.Dropout(p)

    def run(x):
        return layer(x), torch.rand(2)

    compiled = dynamo.compile(run, dynamic=True)
    results = []
    for call in (run, compiled):
        torch.manual_seed(3)
        results.append([call(torch.ones(n, 5)) for n in (2, 3)])
    torch.testing.assert_close(results[1], results[0])
