"""Functions and modules that torch's own compilers made, called in captured code."""

from __future__ import annotations

from typing import List, Optional

import pytest
import torch
from torch import nn

import dynamo
from tests.dynamo.values_support import CountingBackend


def branches(x):
    if x.shape[0] > 2:
        return x * 2
    return x - 1


def negated(x):
    return -x


@torch.jit.script_if_tracing
def boxes(x):
    return x.clamp(min=0) + x.shape[0]


scripted = torch.jit.script(branches)
# The trace keeps the branch of its example.
traced = torch.jit.trace(branches, torch.ones(4, 3), check_trace=False)


def pieces(x, y):
    flat = x.reshape(x.size(0) * 3).to(torch.float64).softmax(0, dtype=torch.float32)
    first, second, third = torch.stack([x, y]).exp().unbind(2)
    return flat, first + second * third, torch.zeros(x.size(0), dtype=torch.long)


traced_pieces = torch.jit.trace(pieces, (torch.ones(4, 3), torch.ones(4, 3)))
traced_write = torch.jit.trace(lambda x: x.add_(1), torch.ones(4, 3), check_trace=False)
traced_draw = torch.jit.trace(lambda x: x + torch.rand(3), torch.ones(4, 3), check_trace=False)
weight = torch.ones(3)
traced_weight = torch.jit.trace(lambda x: x * weight, torch.ones(4, 3))
traced_number = torch.jit.trace(lambda x: x * x.sum().int(), torch.ones(4, 3))
torch.manual_seed(0)
layer = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
graph_module = torch.fx.symbolic_trace(layer)
compiled_function = torch.compile(branches, backend="eager")
compiled_layer = torch.compile(layer, backend="eager")
frozen_out = torch._dynamo.disable(negated)

PROGRAMS = {
    "scripted": lambda x: scripted(x) + 1,
    "scripted twice": lambda x: scripted(scripted(x).t()),
    "traced": lambda x: traced(x).sin() + traced(x + 1),
    "traced pieces": lambda x: traced_pieces(x, traced(x))[1] + 1,
    "if tracing": lambda x: boxes(x) * 2,
    "graph module": lambda x: graph_module(x) + 1,
    "function of torch.compile": lambda x: compiled_function(x) * 3,
    "module of torch.compile": lambda x: compiled_layer(x) * 3,
}


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph(name, backend):
    program = PROGRAMS[name]
    captured = dynamo.compile(program, backend=backend, fullgraph=True)
    for rows in (4, 2, 1, 5):
        x = torch.arange(3.0 * rows).reshape(rows, 3) - 2
        torch.testing.assert_close(captured(x), program(x))


def test_gradients_flow_through_scripts():
    def program(x):
        return (scripted(x).sin() * traced(x)).sum()

    leaf = torch.linspace(-1, 1, 12).reshape(4, 3)
    grads = []
    for function in (program, dynamo.compile(program, fullgraph=True)):
        x = leaf.clone().requires_grad_()
        function(x).backward()
        grads.append(x.grad)
    torch.testing.assert_close(*grads)


def test_traces_run_as_they_are():
    """Not the function that was traced, which would take the other branch."""

    def program(x):
        return traced(x + 1) + 1

    x = torch.ones(2, 3)
    assert torch.equal(dynamo.compile(program, backend="eager")(x), torch.full((2, 3), 5.0))


@pytest.mark.parametrize("trace", [traced_write, traced_draw, traced_weight, traced_number])
def test_traces_that_write_draw_or_hold_tensors(trace):
    def program(x):
        trace(x)
        return trace(x) + x, torch.rand(1)

    captured = dynamo.compile(program, backend="inductor", fullgraph=trace is not traced_weight)
    for rows in (4, 2):
        results = []
        for function in (program, captured):
            torch.manual_seed(1)
            weight.fill_(rows)
            x = torch.ones(rows, 3)
            results.append((*function(x), x))
        torch.testing.assert_close(*results)


def swapped(v1, v0):
    return v1 - v0 * 2


def named_like_functions(torch, int):
    first, second = int.unbind(0)
    return torch * torch.size(0) + first * second


@pytest.mark.parametrize("function", [swapped, named_like_functions])
def test_names_of_a_traces_arguments(function):
    x, y = torch.ones(2, 3), torch.arange(6.0).reshape(2, 3)
    trace = torch.jit.trace(function, (x, y))
    captured = dynamo.compile(lambda *given: trace(*given), backend="eager", fullgraph=True)
    torch.testing.assert_close(captured(x, y), function(x, y))


def test_a_trace_of_other_pieces_raises():
    trace = torch.jit.trace(lambda x: x.unbind(0), torch.ones(2, 3))
    captured = dynamo.compile(lambda x: trace(x * 2), backend="eager")
    torch.testing.assert_close(captured(torch.ones(2, 3)), trace(torch.full((2, 3), 2.0)))
    for function in (trace, captured):
        with pytest.raises(RuntimeError, match="Expected 2 elements in a list but found 3"):
            function(torch.ones(3, 3))


def test_disabled_stays_out():
    backend = CountingBackend()

    def program(x):
        return frozen_out(x + 1) + 1

    x = torch.ones(3)
    assert torch.equal(dynamo.compile(program, backend=backend)(x), program(x))
    assert backend.graphs == 2


def test_replaced_script_is_seen():
    holder = [scripted]

    def program(x):
        return holder[0](x)

    captured = dynamo.compile(program, backend="eager", fullgraph=True)
    x = torch.ones(4, 3)
    assert torch.equal(captured(x), x * 2)
    holder[0] = torch.jit.script(negated)
    assert torch.equal(captured(x), -x)


@torch.jit.script
def weighed(x: torch.Tensor, weight: float, powers: Optional[List[float]] = None, n: float = 2):
    if powers is not None:
        x = x * powers[0]
    return x * weight + n


@pytest.mark.parametrize(
    "arguments",
    [(torch.tensor([3]), 1), (torch.tensor([3]), 1.0, [2]), (torch.tensor([3]), True)],
)
def test_numbers_that_a_script_converts(arguments):
    got = dynamo.compile(lambda *args: weighed(*args), backend="eager")(*arguments)
    expected = weighed(*arguments)
    assert got.dtype == expected.dtype
    assert torch.equal(got, expected)


def test_arguments_that_a_script_refuses():
    program = dynamo.compile(lambda x: weighed(2.0, x), backend="eager")
    with pytest.raises(RuntimeError, match="Expected a value of type"):
        program(torch.ones(2))


def test_scripted_module_is_compiled():
    module = torch.jit.script(nn.Linear(3, 2))
    x = torch.ones(4, 3)
    assert torch.equal(dynamo.compile(module, backend="eager")(x), module(x))


@pytest.mark.parametrize("before", [False, True])
def test_trace_of_a_compiled_function(before):
    """torch.jit.trace records the operators, and checks that a second call has the same."""
    compiled = dynamo.compile(lambda x: (x * 2).sin() + x.shape[0], backend="eager")
    x = torch.ones(4, 3)
    if before:
        compiled(x)
    assert torch.equal(torch.jit.trace(compiled, x)(x), compiled(x))
    assert torch.equal(compiled(x[:2]), (x[:2] * 2).sin() + 2)


READS = {
    "itself": lambda f: f,
    "class": type,
    "key": lambda f: {f: 1}.get(boxes, 2),
    "identity": lambda f: (f is scripted, f is boxes, f is compiled_function),
    "name": lambda f: getattr(f, "__name__", None),
    "attribute": lambda f: getattr(f, "name", None),
    "graph": lambda f: hasattr(f, "graph"),
    "kind": lambda f: isinstance(f, torch.jit.ScriptFunction),
    "wrapped": lambda f: getattr(f, "__wrapped__", None),
    "address": id,
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize(
    "function", [scripted, traced, boxes, compiled_function], ids=lambda f: type(f).__name__
)
def test_what_stands_for_a_function_shows_only_in_calls(function, read):
    def f(x, given):
        return given(x), read(given)

    x = torch.ones(3)
    result, seen = dynamo.compile(f, backend="eager")(x, function)
    assert torch.equal(result, function(x))
    assert seen == read(function) and type(seen) is type(read(function))
