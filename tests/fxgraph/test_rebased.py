"""Inputs that a graph writes while autograd watches: the graph becomes a part of their history."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
import torch.nn.functional as F

import dynamo
from fxgraph import symbolic_trace
from fxgraph.aot import functionalize_training
from tests.fxgraph.training_support import BACKENDS, assert_same, check, r, tensors_of


def activation(x, w):
    return F.relu(x, inplace=True) @ w


def only_written(x, w):
    x.mul_(w)
    return ()  # of None, nothing would be looked at


def used_further(x, w):
    x.sigmoid_()
    return x @ w, x.view(-1)


def written_again(x, w):
    x.sin_()
    y = x * w
    x.cos_()
    return y.detach(), x.exp()


def part_written(x, w):
    x[0] = w[1] * 2
    x[:, 1:].add_(w[:, 1:])
    return x.sin()


def copied(x, w):
    x.copy_(w * 2)
    return x * w


def returned(x, w):
    y = x.t().mul_(w)
    return x, x.detach(), y.detach()


def then_without_gradients(x, w):
    x.add_(w)
    y = torch.relu(x)
    with torch.no_grad():
        x.mul_(2)
    return y


def with_a_view_before(x, w):
    view = x.view(-1)
    x.mul_(w)
    return view * 2


def mode(x, w):
    with torch.no_grad():
        x.mul_(2)
    return x * w


def read_before(x, w):
    y = x.exp()
    x.tanh_()
    return y * w


FUNCTIONS = (
    activation,
    only_written,
    used_further,
    written_again,
    part_written,
    copied,
    returned,
    then_without_gradients,
    with_a_view_before,
    mode,
    read_before,
)


def behind(leaf, tensor):
    """The tensor, with the leaf that its gradients arrive at."""
    tensor.leaf = leaf
    return tensor


def with_history():
    leaf = r(4, 4)
    return [behind(leaf, leaf * 1.5), r(4, 4)]


def without_gradient():
    return [r(4, 4, grad=False), r(4, 4)]


def view():
    leaf = r(6, 4)
    return [behind(leaf, (leaf * 1.5)[1:5]), r(4, 4)]


def view_without_gradient():
    return [r(6, 4, grad=False)[1:5], r(4, 4)]


def leaf():
    return [r(4, 4), r(4, 4)]


def part_of_several():
    leaf = r(8, 4)
    return [behind(leaf, (leaf * 1.5).chunk(2)[0]), r(4, 4)]


def two_with_histories():
    return [*with_history()[:1], *with_history()[:1]]


def one_is_a_view():
    return [*with_history()[:1], *view()[:1]]


INPUTS = (with_history, without_gradient, view, view_without_gradient, leaf, part_of_several)


def total(result, inputs):
    every = [*tensors_of(result), *inputs]
    if inputs[0]._is_view():
        every.append(inputs[0]._base)
    seen = [t for t in every if isinstance(t, torch.Tensor) and t.requires_grad]
    return sum((t * torch.arange(t.numel()).view(t.shape).cos()).sum() for t in seen)


def differentiate(result, inputs, log, **kwargs):
    total(result, inputs).backward(**kwargs)
    log(*[x.leaf.grad for x in inputs if hasattr(x, "leaf")])


def watched(result, inputs, log):
    """The gradient of a written input is whole, for hooks, and where it is kept."""
    x = inputs[0]
    if x.requires_grad:
        x.register_hook(lambda gradient: log("hook", gradient))
        x.retain_grad()
    differentiate(result, inputs, log)
    log(x.grad)


def partly(result, inputs, log):
    """What is behind the input alone, then the rest."""
    if inputs[0].requires_grad:
        log(*torch.autograd.grad(inputs[0].sum(), inputs[1], retain_graph=True, allow_unused=True))
    differentiate(result, inputs, log)


def twice(result, inputs, log):
    for _ in range(2):
        differentiate(result, inputs, log, retain_graph=True)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("use", [watched, partly, twice], ids=lambda use: use.__name__)
@pytest.mark.parametrize("make", INPUTS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_written_inputs(function, make, use, backend):
    check(function, make, use, backend)


GIVE_HISTORY = (only_written, part_written, copied)


@pytest.mark.parametrize("make", [with_history, view])
@pytest.mark.parametrize("function", [activation, used_further, read_before, *GIVE_HISTORY])
def test_graphs_that_write_a_history_are_traced(function, make):
    training = functionalize_training(symbolic_trace(function), make())
    assert training.rebased == [0]


@pytest.mark.parametrize("function", GIVE_HISTORY)
def test_graphs_that_give_a_history_are_traced(function):
    training = functionalize_training(symbolic_trace(function), without_gradient())
    assert training.rebased == [0]


def two_inputs(x, y, w):
    x.relu_()
    y.mul_(w)


def test_inputs_with_histories_of_their_own_have_nodes_of_their_own():
    """A gradient for one runs nothing behind the other."""
    compiled = dynamo.compile(two_inputs, backend="aot_eager")
    ran = []
    first, second = r(4, 4), r(4, 4)
    first.register_hook(lambda gradient: ran.append("first"))
    second.register_hook(lambda gradient: ran.append("second"))
    x, y = first * 2, second * 2
    compiled(x, y, r(4, 4))
    x.sum().backward()
    assert ran == ["first"]


def read_by_one_written_before(x, y):
    x.mul_(y > 0)
    y.sin_()
    return ()


def both_written(x, y):
    y.sin_()
    x.mul_(y > 0.5).cos_()
    y.tanh_()
    return ()


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("make", [two_with_histories, one_is_a_view])
@pytest.mark.parametrize("function", [read_by_one_written_before, both_written])
def test_backwards_read_what_was_there_before_the_second_write(function, make, backend):
    check(function, make, twice, backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_second_derivatives(backend):
    """Of what does not depend on values that are gone."""

    def found(function, make):
        torch.manual_seed(0)
        x, w = make()
        function(x, w)
        (first,) = torch.autograd.grad((x**2).sum(), w, create_graph=True)
        return torch.autograd.grad((first**2).sum(), w)

    for make in (with_history, without_gradient):
        compiled = dynamo.compile(copied, backend=backend)
        assert_same(found(copied, make), found(compiled, make))
    if backend != "eager":
        with pytest.raises(RuntimeError, match="second derivative of a compiled function whose"):
            found(dynamo.compile(only_written, backend=backend), with_history)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_written_inputs_are_let_go(function):
    """No node of autograd's holds the tensor whose history the node is."""
    compiled = dynamo.compile(function, backend="aot_eager")
    gc.disable()
    try:
        for make in (with_history, without_gradient, view):
            for _ in range(2):
                x, w = make()
                result = compiled(x, w)
                alive = weakref.ref(x)
                del x, w, result
            assert alive() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("backend", BACKENDS)
def test_later_calls_with_other_inputs(backend):
    """What the graph was compiled for tells no more than whether its inputs require gradients."""
    compiled = dynamo.compile(activation, backend=backend)
    for make in (with_history, view, leaf, part_of_several, with_history):
        for function in (activation, compiled):
            torch.manual_seed(0)
            x, w = make()
            try:
                total(function(x, w), [x, w]).backward()
                found = x.detach(), w.grad
            except RuntimeError as error:
                found = str(error)[:40]
            if function is activation:
                expected = found
        assert_same(expected, found)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_break_before_an_activation(backend):
    """Code as it is in many models."""
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.ReLU(inplace=True), torch.nn.Linear(8, 4)
    ).double()
    x = r(3, 4, grad=False)

    def step(call):
        model.zero_grad()
        y = call(x)
        y.sum().backward()
        return [y, *[p.grad.clone() for p in model.parameters()]]

    def broken(x):
        x = model[0](x)
        dynamo.graph_break()
        return model[2](model[1](x))

    compiled = dynamo.compile(broken, backend=backend)
    for _ in range(3):
        assert_same(step(broken), step(compiled))


@pytest.mark.parametrize("backend", BACKENDS)
def test_sizes_that_vary(backend):
    compiled = dynamo.compile(used_further, backend=backend, dynamic=True)
    for n in (4, 6, 5):
        found = []
        for function in (used_further, compiled):
            torch.manual_seed(n)
            leaf, w = r(n, 4), r(4, 4)
            x = leaf * 2
            result = function(x, w)
            total(result, [x, w]).backward()
            found.append([*result, leaf.grad, w.grad])
        assert_same(*found)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("late", ["factor", "written", "base"])
def test_writes_to_tensors_that_a_write_to_a_view_saves(late, backend):
    """The node of the write stands inside the base's history, and saves tensors all the same."""

    def function(x, factor):
        x[0].mul_(factor)
        x[1].exp_()
        return x * 2

    for call in (function, dynamo.compile(function, backend=backend)):
        base = torch.ones(4, 4, requires_grad=True) * 1
        factor = torch.ones(4, requires_grad=True) * 1
        result = call(base, factor)
        {"factor": factor, "written": base[1], "base": base}[late].add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            result.sum().backward()
