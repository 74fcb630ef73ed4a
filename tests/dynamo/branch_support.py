"""Programs whose way depends on the values of tensors, beside eager: values, gradients, effects."""

from __future__ import annotations

import torch
from torch.utils import _pytree as pytree

import dynamo
from backends.registry import lookup_backend
from tests.dynamo.dynamic_support import Counting

NAN = float("nan")
CALLS = [
    [1.0, 0.0, 2.0, 3.0],
    [0.0, 0.0, 5.0, 1.0],
    [0.0, 0.0, 0.0, 0.0],
    [NAN, 0.0, 2.0, 1.0],
    [3.0, 2.0, 1.0, 4.0],
]
SEEN: list[object] = []  # what programs do outside

ARGUMENTS = {"plain": (False, False), "grads": (True, True), "one": (False, True)}


class Programs(dict):
    """Function -> graphs of one call, at most; 1 serves all calls; None: more than one. The
    functions are those that it decorates.
    """

    def __call__(self, graphs):
        def add(function):
            self[function] = graphs
            return function

        return add


def outcome(function, values, kind):
    del SEEN[:]
    x, w = torch.tensor(values), torch.tensor([1.0, -1.0, 0.5, 2.0])
    given = [t.requires_grad_(grad) for t, grad in zip((x, w), ARGUMENTS[kind])]
    try:
        result = function(*given)
        tensors = [t for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]
        wanted = [(t.sum() * (i + 1)) for i, t in enumerate(tensors) if t.requires_grad]
        if wanted:
            sum(wanted).backward()
    except Exception as error:  # autograd names its nodes
        return type(error), str(error).partition(" [torch")[0], list(SEEN)
    facts = [(t.detach(), t.requires_grad, t.is_leaf, t.stride()) for t in tensors]
    others = [leaf for leaf in pytree.tree_leaves(result) if not isinstance(leaf, torch.Tensor)]
    which = [[t is other for other in (*given, *tensors)] for t in tensors]
    return facts, others, which, [t.grad for t in given], list(SEEN)


def same(one, other):
    torch.testing.assert_close(one, other, equal_nan=True, rtol=1e-5, atol=1e-6)


def check(function, kind, backend, graphs):
    """graphs: of one call, at most; 1 serves all calls; None: more than one."""
    counting = Counting(backend)
    compiled = dynamo.compile(lambda x, w: function(x, w), backend=counting)
    compiles = []
    for values in CALLS:
        _same(outcome(function, values, kind), outcome(compiled, values, kind))
        compiles.append(len(counting.graphs))
    if kind != "one":  # where results of one side alone may require grad
        if graphs == 1:
            assert compiles == [1] * len(CALLS), compiles
        else:
            assert compiles[-1] > 1 and (graphs is None or compiles[0] <= graphs), compiles


def _same(one, other):
    left, spec = pytree.tree_flatten(one)
    right, other_spec = pytree.tree_flatten(other)
    assert spec == other_spec
    for a, b in zip(left, right):
        same(a, b) if isinstance(a, torch.Tensor) else _equal(a, b)


def _equal(one, other):
    assert one == other or one != one


def check_one_graph(function, kind, backend):
    """Compare the calls with eager; one graph serves all of them."""
    counting = Counting(lookup_backend(backend))
    compiled = dynamo.compile(function, backend=counting)
    for values in CALLS:
        _same(outcome(function, values, kind), outcome(compiled, values, kind))
    assert len(counting.graphs) == 1
