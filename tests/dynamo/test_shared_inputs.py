"""Inputs that share memory in one call and not in another: tensors of one storage, and storages
over the same addresses (arrays of numpy).
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import dynamo


def one_storage():
    base = torch.arange(8.0)
    return base[:4], base[:4], base[4:]


def apart():
    return torch.ones(4), torch.arange(4.0), torch.full((4,), 3.0)


def first_and_third():
    base = torch.arange(8.0)
    return base[:4], torch.ones(4), base[:4]


def arrays():
    base = np.arange(8.0, dtype=np.float32)
    return tuple(torch.from_numpy(part) for part in (base[:4], base[1:5], base[:4]))


MAKERS = [one_storage, apart, first_and_third, arrays]


def multiply(x, y, z):
    return x * y, z.view(2, 2)


def write_first(x, y, z):
    x.add_(1)
    return y * 2, z + 1


def write_all(x, y, z):
    y.mul_(3)
    x.add_(1)
    z.sub_(1)
    return x + y + z


def write_into_last(x, y, z):
    z.add_(x)
    return y.sum()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", [multiply, write_first, write_all, write_into_last])
@pytest.mark.parametrize("trained", [False, True])
def test_sharing_may_change(program, backend, trained):
    """The first call, from which the graph is traced, says nothing about memory in later ones."""
    weight = torch.tensor(2.0, requires_grad=True)

    def step(x, y, z):
        results = program(x, y, z)
        if not trained:
            return results
        loss = sum(t.sum() for t in ([results] if torch.is_tensor(results) else results)) * weight
        return loss, *torch.autograd.grad(loss, [weight])

    for order in itertools.permutations(MAKERS, 2):
        dynamo.reset()
        compiled = dynamo.compile(step, backend=backend)
        for make in order:
            ours, theirs = make(), make()
            torch.testing.assert_close(compiled(*ours), step(*theirs))
            torch.testing.assert_close(ours, theirs)


def test_results_are_views_of_their_own_input():
    compiled = dynamo.compile(lambda x, y: (x.view(2, 2), y.view(2, 2)), backend="aot_eager")
    for make in (one_storage, apart):
        x, y, _ = make()
        first, second = compiled(x, y)
        assert first.data_ptr() == x.data_ptr() and second.data_ptr() == y.data_ptr()


def test_kernels():
    compiled = dynamo.compile(multiply)
    for make in (one_storage, apart, arrays):
        torch.testing.assert_close(compiled(*make()), multiply(*make()))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_views_of_one_array(backend):
    def program(tensor, a, b):
        a[:4] = b[:4]
        b += a[0]
        tensor.add_(1)
        return a + b, tensor * 2

    compiled = dynamo.compile(program, backend=backend)
    for shares in (False, True, False):
        ran = []
        for function in (program, compiled):
            base = np.arange(10.0)
            tensor = torch.from_numpy(base if shares else base.copy())
            b = base[1:] if shares else base[1:].copy()
            results = function(tensor, base[:-1], b)
            ran.append([*results, tensor, base, b])
        for ours, theirs in zip(*ran, strict=True):
            np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))
