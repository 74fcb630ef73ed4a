"""Backends that were written with torch's own tools: torch.fx, AOT autograd, inductor."""

from __future__ import annotations

import functools

import pytest
import torch

import dynamo
from backends.named_tools import names_tools
from fxgraph import GraphModule


def aot_backend(graphs, **options):
    """AOT autograd of torch around a compiler that keeps its graphs."""
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    def compiler(gm, example_inputs):
        graphs.append(gm)
        return make_boxed_func(gm.forward)

    return aot_autograd(fw_compiler=compiler, bw_compiler=compiler, **options)


def called_by_a_function(graphs):
    backend = aot_backend(graphs)
    return lambda gm, example_inputs: backend(gm, example_inputs)


class CalledByAnObject:
    def __init__(self, graphs) -> None:
        self.inner = called_by_a_function(graphs)

    def __call__(self, gm, example_inputs):
        return self.inner(gm, example_inputs)


BACKENDS = {"itself": aot_backend, "function": called_by_a_function, "object": CalledByAnObject}


def scaled(x):
    return torch.relu(x @ x.new_ones(4, 4)).sum(0) * x.shape[0]


def joined(x):
    return torch.cat([x, x[1:]]).reshape(-1)


def turned(x):
    return x.t().reshape(x.shape[0] * 2, 2) + torch.arange(x.shape[0] * 2)[:, None]


def padded(x):
    return torch.nn.functional.pad(x, (0, 0, 0, 9 - x.shape[0])) * len(x)


def branching(x):
    return x * 2 if x.shape[0] > 4 else x.sum(0) / x.shape[0]


def on_data(x):
    if x.sum() > 3:
        y = x * x.shape[0]
    elif x.sum() > 0:
        y = x - 1
    else:
        y = x.exp()
    return y.sum(1)


def by_torch_cond(x):
    y = torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x.sin(), (x,))
    return y.sum(1) * x.shape[0]


def check_training(compiled, program, values) -> None:
    x, y = (values.clone().requires_grad_() for _ in range(2))
    found, expected = compiled(x), program(y)
    torch.testing.assert_close(found, expected)
    found.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(x.grad, y.grad)


@pytest.mark.parametrize("program", [on_data, by_torch_cond])
def test_branches_on_data(program) -> None:
    calls = []

    def backend(gm, example_inputs):
        calls.append(gm)
        return aot_backend([])(gm, example_inputs)

    compiled = dynamo.compile(program, backend=backend)
    for rows in (3, 4, 5, 7, 2, 8):
        for level in (0.1, 2.0, -1.0):
            check_training(compiled, program, torch.full((rows, 4), level))
    assert len(calls) == 2


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize(
    "kind, program",
    [
        *[("itself", program) for program in (scaled, joined, turned, padded, branching)],
        ("function", scaled),
        ("object", scaled),
    ],
)
def test_sizes_that_vary(program, kind, dynamic) -> None:
    """Such a backend traces the graph again, for example inputs: sizes stay symbols."""
    graphs: list = []
    compiled = dynamo.compile(program, backend=BACKENDS[kind](graphs), dynamic=dynamic)
    for rows in (3, 4, 5, 7, 2, 8):
        check_training(compiled, program, torch.randn(rows, 4))
    most = {scaled: 2, padded: 2, joined: 3, turned: 4, branching: 3}[program]
    assert len(graphs) <= 2 * most  # forward and backward


def test_assumptions_of_the_tools_are_guards() -> None:
    """What a trace decides of a size holds for the sizes that the graph is called with."""

    def backend(gm, example_inputs):
        def decided(*args):
            return [out * (2 if args[-1].shape[0] > 5 else 1) for out in gm(*args)]

        from torch._functorch.aot_autograd import aot_module_simplified

        class Decides(torch.nn.Module):
            def forward(self, *args):
                return decided(*args)

        return aot_module_simplified(Decides(), example_inputs, fw_compiler=lambda g, _: g.forward)

    def program(x):
        return (x + 1) * x.shape[0]

    compiled = dynamo.compile(program, backend=backend, dynamic=True)
    for rows in (3, 4, 6, 7, 5):
        x = torch.ones(rows, 2)
        assert torch.equal(compiled(x), program(x) * (2 if rows > 5 else 1)), rows


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("numbers", [(3, 1, 7, 0, -2, 5), (1, 0, 5, 6), (2, -1, 4, -5, 3)])
def test_numbers_of_small_and_negative_values(numbers, dynamic) -> None:
    """The tools know of 0, 1 and the sign of a number no more than the graph does."""

    def counted(x, n):
        return x * n + torch.arange(abs(n) + 1).sum()

    def decided(x, n):
        return x.sum(0) * n if n >= 0 else x

    for program in (counted, decided):
        compiled = dynamo.compile(program, backend=aot_backend([]), dynamic=dynamic)
        for n in numbers:
            x = torch.randn(4)
            assert torch.equal(compiled(x, n), program(x, n)), n


def test_inputs_of_one_memory() -> None:
    """Tensors that share memory are traced for their sizes, and written as in eager."""

    def program(x, y):
        x.add_(1)
        return y * x.shape[0]

    graphs: list = []
    compiled = dynamo.compile(program, backend=aot_backend(graphs), dynamic=True)
    for rows in (4, 5, 6):
        base = torch.arange(12.0)
        expected = base.clone()
        found = compiled(base[:rows], base[2 : 2 + rows])
        assert torch.equal(found, program(expected[:rows], expected[2 : 2 + rows]))
        assert torch.equal(base, expected)


def with_inductor_of_torch(gm, example_inputs):
    from torch._inductor.compile_fx import compile_fx

    return compile_fx(gm, example_inputs)


def found_by_name(gm, example_inputs):
    from torch._dynamo import lookup_backend

    return lookup_backend("inductor")(gm, example_inputs)


@pytest.mark.slow
@pytest.mark.parametrize("name", [with_inductor_of_torch, found_by_name, "bridge"])
def test_inductor_of_torch(name) -> None:
    from backends.bridge import bridge

    def program(x, scale):
        return torch.softmax(x * scale, -1).sum(0) * x.shape[0]

    backend = bridge("inductor") if name == "bridge" else name
    compiled = dynamo.compile(program, backend=backend)
    for rows, scale in ((3, 0.5), (4, 0.5), (6, 1.5), (7, 2.5)):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(compiled(x, scale), program(x, scale))


def interprets(gm, example_inputs):
    return lambda *args: torch.fx.Interpreter(gm).run(*args)


def transforms(gm, example_inputs):
    from torch.fx import Transformer

    class Cosines(Transformer):
        def call_method(self, target, args, kwargs):
            if target == "sin":
                return super().call_function(torch.cos, args, kwargs)
            return super().call_method(target, args, kwargs)

    return Cosines(gm).transform()


@pytest.mark.parametrize("backend", [interprets, transforms])
def test_code_that_names_torch_fx(backend) -> None:
    """Without an annotation."""
    compiled = dynamo.compile(lambda x: x.sin() + 1, backend=backend)
    for rows in (3, 4, 5):
        x = torch.randn(rows)
        assert torch.equal(compiled(x), (x.cos() if backend is transforms else x.sin()) + 1)


def test_names_of_tools() -> None:
    def plain(gm, example_inputs):
        return torch.nn.functional.relu(gm)

    def imports(gm, example_inputs):
        import torch.fx.passes.shape_prop as passes

        return passes

    assert not names_tools(plain)
    assert not names_tools(functools.partial(plain, 1))
    assert not names_tools(lambda gm, example_inputs: plain(gm, example_inputs))
    assert all(map(names_tools, [imports, functools.partial(imports), interprets, transforms]))
    assert names_tools(lambda gm, example_inputs: imports(gm, example_inputs))
    assert names_tools(CalledByAnObject([]))


def test_other_backends_have_our_graphs() -> None:
    kinds: list = []

    def backend(gm, example_inputs):
        kinds.append(type(gm))
        return gm.forward

    for rows in (3, 4, 5):
        dynamo.compile(lambda x: x * x.shape[0], backend=backend)(torch.ones(rows))
    assert set(kinds) == {GraphModule}


class TellsNothing:
    def __getattribute__(self, name):
        raise RuntimeError(name)


class TellsNoClass(type):
    def __getattribute__(cls, name):
        raise RuntimeError(name)


class OfAnotherClass:
    __class__ = property(lambda self: type(lambda: None))


@pytest.mark.parametrize(
    "make", [TellsNothing, lambda: TellsNoClass("Made", (), {}), OfAnotherClass]
)
def test_objects_that_a_backend_reads_need_not_tell_what_they_are(make):
    held = make()

    def closes_over(gm, example_inputs):
        return gm.forward if held is not None else None

    scope = {"held": held}
    exec("def of_no_module(gm, examples):\n    held\n    return gm.forward", scope)
    given = functools.partial(lambda _, gm, example_inputs: gm.forward, held)
    for backend in (closes_over, scope["of_no_module"], given):
        assert dynamo.compile(lambda x: x + 1, backend=backend)(torch.ones(2)).tolist() == [2, 2]
