"""Graphs that hold graphs: printed, checked, interpreted, copied, saved and bridged with their
bodies.
"""

from __future__ import annotations

import collections
import copy

import pytest
import torch

import dynamo
from backends.bridge import bridge
from fxgraph import GraphModule, Interpreter, serialize, verify
from fxgraph.torch_fx import from_torch_fx, to_torch_fx
from fxgraph.verify import GraphError


def with_cond(x, w):
    return torch.cond(x.sum() > 0, lambda y: y * w, lambda y: y - w, (x,)) + 1


def with_grad(x, w):
    def loss(p):
        return torch.func.vmap(lambda row: (row * p["a"]).sin().sum())(torch.stack([x, w])).sum()

    return torch.func.grad(loss)(collections.OrderedDict(a=x))["a"] * w


def with_vjp(x, w):
    out, pull = torch.func.vjp(lambda y: y * w, x)
    return out + pull(w)[0]


FUNCTIONS = [with_cond, with_grad, with_vjp]


def captured(function):
    """The function's one graph, and example inputs."""
    graphs = []

    def backend(gm, inputs):
        graphs.append((gm, inputs))
        return gm.forward

    args = torch.randn(3), torch.randn(3)
    expected = function(*args)
    assert torch.equal(dynamo.compile(function, backend=backend, fullgraph=True)(*args), expected)
    ((gm, inputs),) = graphs
    return gm, inputs, expected


@pytest.fixture(params=FUNCTIONS, ids=lambda function: function.__name__)
def case(request):
    return captured(request.param)


def test_it_is_well_formed(case):
    gm, _, _ = case
    verify(gm.graph)
    body = gm.body_0
    assert isinstance(body, GraphModule)
    output = next(node for node in body.graph.nodes if node.op == "output")
    output._args = (gm.graph.find_nodes(op="placeholder")[0],)
    with pytest.raises(GraphError):
        verify(gm.graph)


def test_it_prints_as_runnable_python(case):
    gm, inputs, expected = case
    assert "self.body_0" in gm.code
    assert "body_0" in gm.print_readable(print_output=False)
    assert torch.equal(gm(*inputs)[0], expected)


def test_the_interpreter_runs_it(case):
    gm, inputs, expected = case
    assert torch.equal(Interpreter(gm).run(*inputs)[0], expected)


@pytest.mark.parametrize("copier", [copy.copy, copy.deepcopy])
def test_a_copy_runs(case, copier):
    gm, inputs, expected = case
    assert torch.equal(copier(gm)(*inputs)[0], expected)


def test_it_is_saved_with_its_bodies(case):
    gm, inputs, expected = case
    text = serialize.dumps(gm.graph)
    loaded = serialize.loads(text)
    verify(loaded.graph)
    assert torch.equal(loaded(*inputs)[0], expected)
    again = serialize.dumps(loaded.graph)
    assert serialize.dumps(serialize.loads(again).graph) == again


def test_a_damaged_body_is_refused(case):
    gm, _, _ = case
    text = serialize.dumps(gm.graph)
    with pytest.raises(serialize.SerializeError):
        serialize.loads(text.replace('"body": [', '"body": [3, '))


def test_it_goes_to_torch_fx_and_back(case):
    gm, inputs, expected = case
    there = to_torch_fx(gm)
    assert isinstance(there.body_0, torch.fx.GraphModule)
    assert torch.equal(there(*inputs)[0], expected)
    back = from_torch_fx(there)
    assert isinstance(back.body_0, GraphModule)
    verify(back.graph)
    assert torch.equal(back(*inputs)[0], expected)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_a_backend_of_torch_runs_it(function):
    args = torch.randn(3), torch.randn(3)
    compiled = dynamo.compile(function, backend=bridge("aot_eager"))
    torch.testing.assert_close(compiled(*args), function(*args))


def test_what_is_not_used_is_kept_if_it_runs_python():
    class Writes(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def backward(ctx, g):
            return g * 2

    def f(x):
        y = x + 1
        Writes.apply(y)
        return y * 1

    x = torch.ones(3, requires_grad=True)
    assert torch.equal(dynamo.compile(f, backend="eager", fullgraph=True)(x), f(x))
