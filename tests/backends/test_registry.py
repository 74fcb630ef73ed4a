"""The registry, the debugging backends, and the bridge to torch.compile backends."""

from __future__ import annotations

import functools
import importlib.metadata

import pytest
import torch

import dynamo
from backends import registry
from fxgraph import GraphModule


@pytest.fixture(autouse=True)
def fresh():
    dynamo.reset()
    known = set(registry._registered) | set(registry._BUILTIN)
    yield
    for name in set(registry._registered) - known:
        del registry._registered[name]
    dynamo.reset()


def f(x):
    return torch.relu(x) * 2 + 1


def test_list() -> None:
    assert "inductor" in dynamo.list_backends()
    assert "eager" not in dynamo.list_backends()
    assert {"eager", "aot_eager", "print"} <= set(dynamo.list_backends(debug=True))


def test_register_and_use_by_name() -> None:
    seen = []

    @dynamo.register_backend
    def my_own(gm, example_inputs):
        seen.append((type(gm), [type(i) for i in example_inputs]))
        return gm.forward

    x = torch.randn(4)
    assert torch.equal(dynamo.compile(f, backend="my_own")(x), f(x))
    assert seen == [(GraphModule, [torch.Tensor])]
    assert "my_own" in dynamo.list_backends()
    with pytest.raises(ValueError, match="registered already"):
        dynamo.register_backend(lambda gm, i: gm, name="my_own")


def test_tags_hide_a_backend() -> None:
    def one(gm, example_inputs):
        return gm.forward

    assert dynamo.register_backend(one, "hidden", tags=("debug",)) is one
    dynamo.register_backend(name="tried", tags=["experimental"])(one)
    dynamo.register_backend(compiler_fn=one, name="shown")
    listed, all_of_them = dynamo.list_backends(), dynamo.list_backends(exclude_tags=None)
    assert [name in listed for name in ("hidden", "tried", "shown")] == [False, False, True]
    assert {"hidden", "tried", "shown", "eager"} <= {*all_of_them}
    assert all_of_them == dynamo.list_backends(()) == dynamo.list_backends(debug=True)
    assert "tried" in dynamo.list_backends(exclude_tags=("debug",))
    x = torch.randn(4)
    assert torch.equal(dynamo.compile(f, backend="hidden")(x), f(x))


def test_default_mode_of_any_backend() -> None:
    x = torch.randn(4)
    assert torch.equal(dynamo.compile(f, backend=lambda gm, _: gm.forward, mode="default")(x), f(x))


def test_entry_point(monkeypatch) -> None:
    def from_elsewhere(gm, example_inputs):
        return gm.forward

    class Entry:
        name = "elsewhere"

        def load(self):
            return from_elsewhere

    def entry_points(group):
        return [Entry()] if group == "framegraph_backends" else []

    monkeypatch.setattr(registry, "entry_points", entry_points)
    assert dynamo.lookup_backend("elsewhere") is from_elsewhere
    assert "elsewhere" in dynamo.list_backends()
    assert importlib.metadata  # the real one stays untouched


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "print", "print_aot", "inductor"])
def test_each_backend_gives_eagers_values(backend, capsys) -> None:
    x = torch.randn(4, 5)
    with torch.no_grad():
        torch.testing.assert_close(dynamo.compile(f, backend=backend)(x), f(x))
    printed = capsys.readouterr().out
    assert ("relu" in printed) == backend.startswith("print")


def test_print_aot_prints_what_trains(capsys) -> None:
    def penalty(x):
        gradient = torch.autograd.grad((x.sin() * x).sum(), x, create_graph=True)[0]
        return gradient.square().sum()

    def counts(x):
        return x[x > 0] * 2

    x = torch.randn(3, requires_grad=True)
    dynamo.compile(penalty, backend="print_aot")(x).backward()
    found, x.grad = x.grad, None
    penalty(x).backward()
    torch.testing.assert_close(found, x.grad)
    printed = capsys.readouterr().out
    assert "# forward\n" in printed and "# backward\n" in printed and "aten.cos" in printed
    with torch.no_grad():
        assert torch.equal(dynamo.compile(counts, backend="print_aot")(x), counts(x))
    assert "# functional graph\n" in capsys.readouterr().out


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_gradients(backend) -> None:
    x, y = (torch.randn(4, 5).requires_grad_() for _ in range(2))
    y.data.copy_(x.data)
    dynamo.compile(f, backend=backend)(x).sum().backward()
    f(y).sum().backward()
    assert torch.equal(x.grad, y.grad)


def _interpreted(gm: torch.fx.GraphModule, example_inputs):
    return torch.fx.Interpreter(gm).run


def _rewritten(gm: torch.fx.GraphModule, example_inputs):
    relu = functools.partial(torch.nn.functional.relu, inplace=False)
    torch.fx.replace_pattern(gm, lambda x: relu(x), lambda x: torch.sigmoid(x))
    return gm


class _Transformed:
    graphs = 0

    def __call__(self, module: "torch.fx.GraphModule", example_inputs, **kwargs):
        self.graphs += 1
        return torch.fx.Transformer(module).transform()


@pytest.mark.parametrize("name", ["interpreted", "rewritten", "transformed"])
def test_an_annotation_asks_for_torch_fx(name) -> None:
    layers = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    backend = {"interpreted": _interpreted, "rewritten": _rewritten}.get(name) or _Transformed()
    compiled = dynamo.compile(layers, backend=backend)
    expected = layers
    if name == "rewritten":
        expected = torch.nn.Sequential(layers[0], torch.nn.Sigmoid(), layers[2])
    for rows in (3, 5, 6):  # the second size makes a symbol
        x = torch.randn(rows, 4, requires_grad=True)
        y = x.detach().clone().requires_grad_()
        torch.testing.assert_close(compiled(x), expected(y))
        compiled(x).sum().backward()
        expected(y).sum().backward()
        torch.testing.assert_close(x.grad, y.grad)
    if name == "transformed":
        assert backend.graphs == 2


def test_without_an_annotation_graphs_are_ours() -> None:
    def seen(gm, example_inputs):
        kinds.append(type(gm))
        return gm.forward

    kinds: list[type] = []
    dynamo.compile(f, backend=seen)(torch.ones(3))
    assert kinds == [GraphModule]


def test_bridge_hands_over_a_torch_fx_module() -> None:
    from backends.bridge import bridge

    seen = []

    def written_for_torch_compile(gm, example_inputs):
        seen.append([node.op for node in gm.graph.nodes])
        assert "example_value" in next(iter(gm.graph.nodes)).meta
        return gm.forward

    x = torch.randn(4)
    assert torch.equal(dynamo.compile(f, backend=bridge(written_for_torch_compile))(x), f(x))
    assert seen[0][0] == "placeholder" and seen[0][-1] == "output"


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        return torch.relu(self.linear(x))


class Stack(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block(), Block()])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x.sin()


@pytest.mark.parametrize("stage", ["captured", "torch.fx"])
def test_nodes_say_which_modules_they_are_from(stage) -> None:
    """In the terms of torch.fx: libraries part graphs, and find layers, by them."""
    from backends.bridge import bridge

    found: dict[str, dict] = {}

    def seen(gm, example_inputs):
        found.update({node.name: node.meta for node in gm.graph.nodes})
        return gm.forward

    backend = {"captured": seen, "torch.fx": bridge(seen)}
    model, x = Stack(), torch.randn(2, 4)
    with torch.no_grad():
        assert torch.equal(dynamo.compile(model, backend=backend[stage])(x), model(x))
    assert list(found["linear_1"]["nn_module_stack"].values()) == [
        ("L['self'].blocks.1", Block),
        ("L['self'].blocks.1.linear", torch.nn.Linear),
    ]
    assert list(found["relu"]["nn_module_stack"].values()) == [("L['self'].blocks.0", Block)]
    assert "nn_module_stack" not in found["sin"]
    assert found["linear_1"]["source_fn_stack"] == [("linear_1", torch.nn.Linear)]
    assert found["relu"]["source_fn_stack"] == [("relu", torch.relu)]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["aot_eager", "inductor"])
def test_bridge_runs_torch_compile_backends(name) -> None:
    from backends.bridge import bridge

    x = torch.randn(4, 5)
    with torch.no_grad():
        torch.testing.assert_close(dynamo.compile(f, backend=bridge(name))(x), f(x))


def _around(gm, example_inputs, name):
    compiled = dynamo.lookup_backend(name)(gm, example_inputs)
    return lambda *inputs: compiled(*inputs)


def _around_ours(gm, example_inputs, name):
    return _around(gm, example_inputs, name)


def _around_torch_fx(gm: torch.fx.GraphModule, example_inputs, name):
    return _around(gm, example_inputs, name)


@pytest.mark.parametrize("outer", [_around_ours, _around_torch_fx])
@pytest.mark.parametrize("name", ["eager", "aot_eager", "inductor"])
def test_a_backend_around_another(outer, name) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    compiled = dynamo.compile(model, backend=functools.partial(outer, name=name))
    for rows in (3, 5, 6):
        x = torch.randn(rows, 4)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), model(x))
            model[0].weight.mul_(2)
            torch.testing.assert_close(compiled(x), model(x))
        model.zero_grad()
        compiled(x).sum().backward()
        gradients = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        model(x).sum().backward()
        torch.testing.assert_close(gradients, [p.grad for p in model.parameters()])
