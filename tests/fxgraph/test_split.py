"""Graphs with nodes that must run as they are: the rest is compiled, and all is as in eager."""

from __future__ import annotations

import pytest
import torch
from torch._higher_order_ops import while_loop

import dynamo
from backends.aot_eager import aot_eager
from fxgraph.aot._autograd import Parts
from fxgraph.interpreter import Interpreter
from tests.fxgraph.training_support import backward, check, r


class Cube(torch.autograd.Function):
    """Its backward looks at data, so that it cannot be traced."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        factor = 3.0 if float(grad.sum()) != 0.123 else 0.0
        return grad * factor * x * x


def conditional(x, w):
    y = (x * w).tanh() * 2
    z = torch.cond(y.sum() > 0, lambda y: y * 2 + 1, lambda y: y.cos() - 1, (y,))
    return (z + y).exp(), y


def two_conditionals(x, w):
    y = x * w + 1
    y = torch.cond(y.sum() > 0, lambda y: y.sin(), lambda y: y.cos(), (y,))
    y = (y * 3).tanh()
    y = torch.cond(y.sum() < 0, lambda y: y * 2, lambda y: y + 1, (y,))
    return y * x, w * 2


def loop(x, w):
    y = x * w
    with torch.no_grad():
        n, z = while_loop(
            lambda n, z: n < 3, lambda n, z: (n + 1, z * 1.5), (torch.zeros(()), y.detach() + 0)
        )
    return z * y, n * 2


def custom(x, w):
    y = (x * w).sin() + 1
    z = Cube.apply(y)
    return z * w.exp(), z.t()


def custom_twice(x, w):
    return Cube.apply(Cube.apply(x + w) * 0.1) - w, (x @ w).relu()


def hooked(x, w):
    y = x * w
    y.register_hook(lambda g: g * 2)
    return (y * y).sin()


def gradients_inside(x, w):
    y = (x.detach() * 2).requires_grad_()
    z = (y * w).tanh()
    (g,) = torch.autograd.grad(z.sum(), y, create_graph=True)
    return g * x + z


def modes(x, w):
    y = x * w
    with torch.no_grad():
        z = y * 2
    u = Cube.apply(y + z)
    with torch.no_grad():
        v = u * 2
    return u * v, v, z


def written(c, x, w):
    c.add_(1)
    y = Cube.apply(x * c)
    c.mul_(2)
    y = y * 2
    y.add_(w)
    return y * c, c[0]


def tuples(x, w):
    a, b = (x * w).chunk(2)
    a = Cube.apply(a)
    parts = (a + b).split(1)
    return parts[0] * 2, parts[1].sum()


def inputs():
    return [r(4, 4), r(4, 4)]


def constant_too():
    return [r(4, 4, grad=False), *inputs()]


PROGRAMS = {
    "conditional": (conditional, inputs),
    "two_conditionals": (two_conditionals, inputs),
    "loop": (loop, inputs),
    "custom": (custom, inputs),
    "custom_twice": (custom_twice, inputs),
    "hooked": (hooked, inputs),
    "gradients_inside": (gradients_inside, inputs),
    "modes": (modes, inputs),
    "written": (written, constant_too),
    "tuples": (tuples, inputs),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_programs(name, backend):
    fn, make = PROGRAMS[name]
    check(fn, make, backward, backend)


@pytest.mark.parametrize("fn", [conditional, custom], ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_explained(fn, backend):
    report = dynamo.explain(dynamo.compile(fn, backend=backend, fullgraph=True))(*inputs())
    assert report.graph_count == 1
    (note,) = [note for note in report.notes if "around what runs as it is" in note]
    bodies = ", 2 bodies of control flow" if fn is conditional else ""
    assert f"compiled in 2 parts{bodies}, around" in note


def test_without_gradients():
    with torch.no_grad():
        check(conditional, inputs, lambda result, inputs, log: None, "inductor")


def test_another_layout_than_capture_saw():
    """What an operator hands over with other strides runs as it is, not wrong."""

    class Flips(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone() if type(x).__name__ == "FakeTensor" else x.t().contiguous().t()

        @staticmethod
        def backward(ctx, grad):
            float(grad.sum())
            return grad

    def f(x, w):
        return Flips.apply(x * 2) * w + 1

    check(f, inputs, backward, "aot_eager")


def test_parts_of_any_size(monkeypatch):
    """What a part is compiled for may be made of symbols: it runs compiled for all their values."""

    def fn(x):
        y = torch.cat([x.sin(), x]) * 2
        y = y.detach().requires_grad_()
        return y.exp()[1:] + x.size(0)

    def counted(gm, example_inputs):
        found = aot_eager(gm, example_inputs)
        assert isinstance(found, Parts)
        graphs.append(found)
        return found

    graphs = []
    compiled = dynamo.compile(fn, backend=counted, fullgraph=True, dynamic=True)
    for n in (3, 5, 9):
        x = torch.randn(n)
        torch.testing.assert_close(compiled(x), fn(x))
    assert len(graphs) == 1
    ran = []
    run = Interpreter.run_node
    monkeypatch.setattr(
        Interpreter, "run_node", lambda self, n: ran.append(n.target) or run(self, n)
    )
    compiled(torch.randn(7))
    assert "detach" in ran and "exp" not in ran
