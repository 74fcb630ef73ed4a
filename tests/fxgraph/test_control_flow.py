"""Bodies of control flow are compiled, and give what torch's own operators give."""

from __future__ import annotations

import pytest
import torch
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

import dynamo
import fxgraph.aot.control_flow as control_flow


def cond(x, w):
    def true(a, b):
        return (a * b).sin() * 2, b.exp()

    return torch.cond(x.sum() > 0, true, lambda a, b: (a.cos() - b, b * 3), (x, w))


def one_unused(x, w):
    return torch.cond(x.sum() > 0, lambda a, b: a.sin() * 2, lambda a, b: a * b, (x, w))


def one_detached(x, w):
    return torch.cond(x.sum() > 0, lambda a, b: a.sin() + b.detach(), lambda a, b: a * b, (x, w))


def scanned(x, w):
    return scan(lambda c, row: ((c * row).tanh(), (c + row).sin() * w), w + 0, x)


def mapped(x, w):
    return torch_map(lambda row, v: ((row * v).exp(), row - 1), x, w)


def looped(x, w):
    with torch.no_grad():
        return while_loop(
            lambda n, y: n < 3, lambda n, y: (n + 1, (y * 1.5).tanh()), (torch.zeros(()), x + w)
        )


PROGRAMS = {f.__name__: f for f in (cond, one_unused, one_detached, scanned, mapped, looped)}


def step(fn, x, w, *, grad):
    x, w = (t.clone().requires_grad_(grad) for t in (x, w))
    results = fn(x, w)
    results = results if isinstance(results, tuple) else (results,)
    watched = [t for t in results if t.requires_grad]
    if watched:
        sum((t * t).sum() for t in watched).backward()
    return [t.detach() for t in results], [t.requires_grad for t in results], x.grad, w.grad


@pytest.fixture
def given(monkeypatch):
    """What compiled bodies are given."""
    calls = []
    compiled_for = control_flow.Body._compiled_for

    def counted(body, inputs):
        function, taken = compiled_for(body, inputs)

        def run(*given):
            calls.append(given)
            return function(*given)

        return run, taken

    monkeypatch.setattr(control_flow.Body, "_compiled_for", counted)
    return calls


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_bodies(name, grad, backend, given):
    """The side that is taken, rows, and turns: values, what requires grad, and gradients."""
    fn = PROGRAMS[name]
    compiled = dynamo.compile(fn, backend=backend, fullgraph=True)
    torch.manual_seed(0)
    w = torch.randn(4)
    x = torch.randn(3, 4) if name in ("scanned", "mapped") else torch.randn(4)
    for one in (x.abs(), -x.abs(), x):
        expected = step(fn, one, w, grad=grad)
        torch.testing.assert_close(step(compiled, one, w, grad=grad), expected)
    assert given or (name == "looped" and grad)
    assert len(compiled.context.records) == 1


def test_result_that_is_detached():
    """As torch's operator does, it has a gradient of zeros for what it depends on."""

    def program(x):
        y = x * 2
        return torch.cond(y.sum() > 0, lambda a: a.sin().detach(), lambda a: a.cos(), (y,))

    compiled = dynamo.compile(program, backend="aot_eager", fullgraph=True)
    for sign in (1, -1):
        x = (torch.ones(3) * sign).requires_grad_()
        gradients = [torch.autograd.grad(f(x).sum(), x) for f in (program, compiled)]
        torch.testing.assert_close(*gradients)


def test_more_kinds_than_are_compiled(monkeypatch):
    """Bodies for further sizes run as they are."""
    monkeypatch.setattr(control_flow, "MOST_KINDS", 2)
    body = None
    seen = control_flow.Body.suited

    def noted(self, inputs):
        nonlocal body
        body = self
        return seen(self, inputs)

    monkeypatch.setattr(control_flow.Body, "suited", noted)

    def sizes(x):
        return torch.cond(x.sum() > 0, lambda y: y * 2, lambda y: y - 1, (x,))

    compiled = dynamo.compile(sizes, backend="inductor", dynamic=True, fullgraph=True)
    for n in (3, 5, 7, 9):
        x = torch.ones(n)
        torch.testing.assert_close(compiled(x), sizes(x))
    assert body is not None
    assert len(body.compiled) <= 2
