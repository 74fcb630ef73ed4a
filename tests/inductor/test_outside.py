"""Programs from outside that once ended in faults of the default backend, and their kin."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils import _pytree as pytree

import dynamo

# --- inputs with a history of their own, written through views ---------------------------------


def from_tensor(a, b):
    a.view(64).copy_(b.view(64))
    return a.sin()


def from_constant(a, b):
    a.view(64).copy_(torch.arange(64.0))
    return a * b


def returns_the_view(a, b):
    v = a.view(64)
    v.mul_(b.view(64))
    return v, a


def part_of_it(a, b):
    a.view(64)[:8].copy_(b[0])
    return torch.relu(a @ b)


def transposed(a, b):
    a.t()[0].add_(b[0])
    a.view(-1).mul_(2)
    return a + b


def without_grad_mode(a, b):
    with torch.no_grad():
        a.view(64).copy_(b.view(64))
    return a.sin()


def detached(a, b):
    a.detach().view(64).copy_(b.view(64))
    return a.sin() * b


def returns_nothing(a, b):
    a.view(64).copy_(b.view(64))


def then_differentiates(a, b):
    a.view(64).copy_(b.view(64))
    return torch.autograd.grad(a.sin().sum(), b, retain_graph=True)[0]


WRITES = [
    from_tensor,
    from_constant,
    returns_the_view,
    part_of_it,
    transposed,
    without_grad_mode,
    detached,
    returns_nothing,
    then_differentiates,
]
HISTORIES = {
    "own": lambda leaf: leaf * 1,
    "view": lambda leaf: (leaf * 1).view(8, 8),
    "part": lambda leaf: torch.cat([leaf, leaf])[4:12],
}


@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("write", WRITES)
def test_an_input_with_a_history_is_written_through_a_view(write, history):
    def run(fn):
        leaves = [torch.linspace(n, n + 1, 64).view(8, 8).requires_grad_() for n in range(2)]
        a, b = HISTORIES[history](leaves[0]), leaves[1] * 1
        version = a._version
        outs = [o for o in pytree.tree_leaves(fn(a, b)) if o is not None]
        loss = sum((t**2).sum() for t in (*outs, a, b) if t.requires_grad)
        gradients = torch.autograd.grad(loss, leaves, allow_unused=True)
        flags = [t.requires_grad for t in (*outs, a)]
        return [*outs, a, *gradients], flags, a._version - version

    tensors, *rest = run(write)
    compiled, *compiled_rest = run(dynamo.compile(write))
    assert rest == compiled_rest
    torch.testing.assert_close(compiled, tensors)


# --- wrapper subclasses as parameters -----------------------------------------------------------


class Scaled(torch.Tensor):
    """An inner tensor times a number, as a quantised weight is."""

    @staticmethod
    def __new__(cls, inner, scale):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner, scale):
        self.inner, self.scale = inner, scale

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.detach.default:
            return cls(args[0].inner.detach(), args[0].scale)
        plain = lambda t: t.inner * t.scale if isinstance(t, cls) else t
        return func(*pytree.tree_map(plain, args), **pytree.tree_map(plain, kwargs or {}))


class Unnoticed(Scaled):
    __torch_function__ = torch._C._disabled_torch_function_impl


SUBCLASSES = {
    "two tensors": lambda w: TwoTensor(w, w * 2),
    "scaled": lambda w: Scaled(w, 0.5),
    "unnoticed": lambda w: Unnoticed(w, 0.5),
}


@pytest.mark.parametrize("kind", SUBCLASSES)
def test_training_with_wrapper_subclasses_as_parameters(kind):
    def trained(compiled):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
        for layer in (model[0], model[2]):
            layer.weight = torch.nn.Parameter(SUBCLASSES[kind](layer.weight.detach().clone()))
        fn = dynamo.compile(model) if compiled else model
        optimizer = torch.optim.SGD([model[0].bias, model[2].bias], lr=0.1)
        losses = []
        for _ in range(2):
            loss = (fn(torch.ones(5, 4)) ** 2).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return losses, [p.grad for p in model.parameters()]

    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # faults in capture
        got = trained(True)
    for a, b in zip(pytree.tree_leaves(got), pytree.tree_leaves(trained(False))):
        assert type(a) is type(b)
        if isinstance(a, TwoTensor):
            torch.testing.assert_close((a.a, a.b), (b.a, b.b))
        else:
            torch.testing.assert_close(a, b)


# --- operators of which torch's rules tell something else than its kernels ----------------------


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64])
def test_integers_between_ends_that_are_none(dtype):
    def fn(x):
        ends = torch.tensor(-4.3), torch.tensor(9.0)
        return torch.linspace(0.5, 3.7, 50, dtype=dtype) + x, torch.linspace(*ends, 20, dtype=dtype)

    x = torch.ones((), dtype=dtype)
    for got, expected in zip(dynamo.compile(fn, fullgraph=True)(x), fn(x), strict=True):
        assert got.dtype == dtype and torch.equal(got, expected)


def test_kept_indices_of_another_size_than_told():
    """_embedding_bag of half precision returns no indices; its shape function tells of some."""

    def step(fn):
        weight = torch.arange(50.0).reshape(10, 5).bfloat16().requires_grad_()
        fn(weight, torch.arange(10)[::2], torch.tensor([0, 3])).sum().backward()
        return weight.grad

    def fn(weight, indices, offsets):
        return torch.nn.functional.embedding_bag(indices, weight, offsets, mode="sum") * 2

    assert torch.equal(step(dynamo.compile(fn, fullgraph=True)), step(fn))
