"""compile() in its forms, compiled modules as stand-ins, disable/run/stance, rules, export."""

from __future__ import annotations

import copy
import functools
import inspect
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.utils import parametrize

import dynamo


@pytest.fixture(autouse=True)
def fresh():
    dynamo.reset()
    yield
    dynamo.reset()


class Counter:
    """A backend that counts the graphs and runs them eagerly."""

    def __init__(self) -> None:
        self.graphs: list = []

    def __call__(self, gm, example_inputs):
        self.graphs.append(gm)
        return gm.forward


def plus(x: torch.Tensor, n: int = 1, *, scale: float = 1.0) -> torch.Tensor:
    """Adds n."""
    return (x + n) * scale


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = torch.nn.Linear(4, 4)
        self.calls = 0

    def forward(self, x):
        return torch.relu(self.lin(x))


def test_function_keeps_its_face() -> None:
    compiled = dynamo.compile(plus)
    assert compiled.__name__ == "plus" and compiled.__doc__ == "Adds n."
    assert inspect.signature(compiled) == inspect.signature(plus)
    assert compiled.__wrapped__ is plus


def test_decorator_forms() -> None:
    counter = Counter()

    @dynamo.compile
    def bare(x):
        return x * 2

    @dynamo.compile(backend=counter)
    def with_arguments(x):
        return x * 2

    assert torch.equal(bare(torch.ones(2)), torch.full((2,), 2.0))
    assert torch.equal(with_arguments(torch.ones(2)), torch.full((2,), 2.0))
    assert len(counter.graphs) == 1


def test_defaults_and_keywords() -> None:
    compiled = dynamo.compile(plus, backend="eager")
    x = torch.randn(3)
    assert torch.equal(compiled(x), plus(x))
    assert torch.equal(compiled(x, 2), plus(x, 2))
    assert torch.equal(compiled(x, scale=3.0, n=4), plus(x, scale=3.0, n=4))


def test_method_decorated_in_the_class() -> None:
    counter = Counter()

    class Thing:
        def __init__(self, n):
            self.n = n

        @dynamo.compile(backend=counter)
        def add(self, x):
            return x + self.n

    assert torch.equal(Thing(2).add(torch.zeros(2)), torch.full((2,), 2.0))
    assert torch.equal(Thing(3).add(torch.zeros(2)), torch.full((2,), 3.0))
    assert len(counter.graphs) == 2


def test_bound_method() -> None:
    class Thing:
        n = 5

        def add(self, x):
            return x + self.n

    thing = Thing()
    compiled = dynamo.compile(thing.add, backend="eager")
    assert torch.equal(compiled(torch.zeros(2)), torch.full((2,), 5.0))
    thing.n = 6
    assert torch.equal(compiled(torch.zeros(2)), torch.full((2,), 6.0))


def test_two_configurations_of_one_function() -> None:
    first, second = Counter(), Counter()
    one, two = dynamo.compile(plus, backend=first), dynamo.compile(plus, backend=second)
    for _ in range(2):
        one(torch.ones(2))
        two(torch.ones(2))
    assert len(first.graphs) == len(second.graphs) == 1
    plus(torch.ones(2))  # the function itself stays eager
    assert len(first.graphs) == 1


def test_compiled_module_stands_in() -> None:
    net = Net()
    compiled = dynamo.compile(net, backend="eager")
    x = torch.randn(2, 4)
    assert torch.equal(compiled(x), net(x))
    assert isinstance(compiled, Net) and type(compiled).__name__ == "Net"
    assert list(compiled.state_dict()) == list(net.state_dict())
    assert compiled.lin is net.lin
    compiled.calls = 7
    assert net.calls == 7
    compiled.eval()
    assert not net.training
    net.lin.weight.data.zero_()
    assert torch.equal(compiled(x), net(x))
    assert repr(compiled) == repr(net)
    assert {id(p) for p in compiled.parameters()} == {id(p) for p in net.parameters()}


@dynamo.compile(backend="eager")
def decorated(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def test_decorated_function_pickles_by_its_name() -> None:
    assert pickle.loads(pickle.dumps(decorated)) is decorated
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(dynamo.compile(lambda x: x, backend="eager"))


def undecorated(x: torch.Tensor) -> torch.Tensor:
    return x + 2


def test_a_function_of_another_name_is_compiled_again_where_it_is_loaded() -> None:
    for fn in (undecorated, Scale.__call__):
        twin = pickle.loads(pickle.dumps(dynamo.compile(fn, backend="eager")))
        assert type(twin) is type(decorated)
        assert twin.__qualname__ == fn.__qualname__
    assert twin(Scale(), torch.ones(3)).tolist() == [1.0] * 3


def multiplied(by: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return x * by


class Scale:
    def __init__(self) -> None:
        self.by = torch.ones(3)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.by

    def items(self, x: torch.Tensor) -> Any:
        yield x * self.by


def pickled(call: Any) -> Any:
    return pickle.loads(pickle.dumps(call))


COPIES: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "method": (lambda: Scale().__call__, lambda call: call.__self__.by),
    "object": (Scale, lambda call: call.by),
    "partial": (lambda: functools.partial(multiplied, torch.ones(3)), lambda call: call.args[0]),
}


@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickled])
def test_a_copy_holds_what_that_of_the_original_holds(name: str, copied: Any) -> None:
    make, held = COPIES[name]
    x, results = torch.ones(3), []
    for call in (make(), dynamo.compile(make(), backend="eager")):
        first, twin = call(x), copied(call)
        held(twin).fill_(5)
        results.append([one.tolist() for one in (first, call(x), twin(x))])
    assert results[0] == results[1]


def test_a_copied_method_of_a_generator() -> None:
    call = dynamo.compile(Scale().items, backend="eager")
    assert copy.copy(call).__self__ is call.__self__
    twin = copy.deepcopy(call)
    twin.__self__.by.fill_(5)
    assert [next(one(torch.ones(3))).tolist() for one in (call, twin)] == [[1.0] * 3, [5.0] * 3]


@pytest.mark.parametrize(
    ("wrap", "copied"),
    [
        (dynamo.compile(backend="eager"), copy.deepcopy),
        (dynamo.compile(backend="eager"), pickled),
        (dynamo.disable, copy.deepcopy),
    ],
)
def test_a_copied_module_with_a_compiled_forward_calls_its_own(wrap: Any, copied: Any) -> None:
    net, x = Net(), torch.randn(2, 4)
    net.forward = wrap(net.forward)
    twin = copied(net)
    assert torch.equal(twin(x), net(x))
    with torch.no_grad():
        twin.lin.weight.zero_()
    assert torch.equal(twin(x), Net.forward(twin, x))
    assert not torch.equal(twin(x), net(x))


def test_compiled_module_copies_and_pickles() -> None:
    compiled = dynamo.compile(Net(), backend="eager")
    x = torch.randn(2, 4)
    for twin in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):
        assert torch.equal(twin(x), compiled(x))
        assert twin.lin is not compiled.lin
        assert type(twin) is type(compiled)


def test_a_compiled_module_is_found_where_its_original_is() -> None:
    """Hooks get the original, whose name a table made of the compiled module's children tells."""
    net, x, seen = Net(), torch.randn(2, 4), []
    net.lin = dynamo.compile(net.lin, backend="eager")
    compiled = dynamo.compile(net, backend="eager")
    names = {module: name for name, module in compiled.named_modules()}
    for module in compiled.modules():
        module.register_forward_hook(lambda module, args, out: seen.append(names[module]))
    for call in (net, compiled, compiled):
        call(x)
    assert seen == ["lin", ""] * 3
    assert compiled == net and not compiled != net and len({compiled, net}) == 1
    assert compiled != Net() and weakref.WeakKeyDictionary({net: 1})[compiled] == 1
    asked = dynamo.compile(lambda x: x + len(names[net]) + (net == compiled), backend="eager")
    assert torch.equal(asked(x), x + 1)


def test_hooks_registered_later_run() -> None:
    net = Net()
    compiled = dynamo.compile(net, backend="eager")
    x = torch.randn(2, 4)
    compiled(x)
    seen = []
    handle = compiled.register_forward_hook(
        lambda module, args, out: seen.append(module) or out + 1
    )
    assert torch.equal(compiled(x), net(x))
    assert seen == [net, net]
    handle.remove()
    assert torch.equal(compiled(x), net(x))
    assert len(seen) == 2


def test_parametrizations_of_a_compiled_module() -> None:
    class Doubled(torch.nn.Module):
        def forward(self, w: torch.Tensor) -> torch.Tensor:
            return w * 2

        def right_inverse(self, w: torch.Tensor) -> torch.Tensor:
            return w / 2

    model, x = torch.nn.Linear(3, 3), torch.ones(2, 3)
    compiled = dynamo.compile(model, backend="eager")
    expected, weight = compiled(x), model.weight.clone()
    parametrize.register_parametrization(compiled, "weight", Doubled())
    assert torch.equal(compiled(x), expected) and isinstance(compiled, type(model))
    assert parametrize.is_parametrized(model) and torch.equal(compiled.weight, weight)
    compiled.weight = torch.zeros(3, 3)
    assert torch.equal(compiled(x), model.bias.expand(2, 3))
    parametrize.remove_parametrizations(compiled, "weight")
    assert type(model) is torch.nn.Linear and torch.equal(compiled(x), model(x))


def test_compiled_submodule() -> None:
    net = torch.nn.Sequential(Net(), Net())
    net[0] = dynamo.compile(net[0], backend="eager")
    x = torch.randn(2, 4)
    outer = dynamo.compile(net, backend="eager")
    assert torch.equal(outer(x), net(x))
    assert list(net.state_dict()) == [f"{i}.lin.{p}" for i in (0, 1) for p in ("weight", "bias")]


class LightningModule(torch.nn.Module):
    """Lightning's, for whoever compiles it."""

    __module__ = "lightning.pytorch.core.module"

    def training_step(self, batch, index):
        raise NotImplementedError

    validation_step = test_step = predict_step = training_step


class Trained(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = Net()

    def forward(self, x):
        return self.net(x) + 1

    def training_step(self, batch, index):
        return self(batch).sum() * index


def test_steps_that_a_trainer_calls_are_compiled() -> None:
    counter, trained, x = Counter(), Trained(), torch.randn(3, 4)
    compiled = dynamo.compile(trained, backend=counter)
    assert isinstance(compiled, LightningModule) and not counter.graphs
    for index in (2, 3):
        torch.testing.assert_close(
            compiled.training_step(x, index), trained.training_step(x, index)
        )
    first = counter.graphs[0]
    assert len(counter.graphs) <= 2 and any("relu" in str(n.target) for n in first.graph.nodes)
    assert compiled.training_step is compiled.training_step
    assert inspect.unwrap(compiled.test_step).__code__ is LightningModule.test_step.__code__
    with pytest.raises(NotImplementedError):
        compiled.test_step(x, 0)
    compiled.training_step = lambda batch, index: batch * 2
    assert torch.equal(compiled.training_step(x, 0), x * 2)
    made = len(counter.graphs)
    assert torch.equal(dynamo.disable(trained).training_step(x, 0), x * 2)
    assert len(counter.graphs) == made
    twin = copy.deepcopy(dynamo.compile(Trained(), backend=counter))
    twin.training_step(x, 2)
    assert len(counter.graphs) == made + 1


def test_disable() -> None:
    counter = Counter()

    @dynamo.disable
    def inner(x):
        assert not dynamo.is_compiling()
        return x * 3

    @dynamo.compile(backend=counter)
    def f(x):
        return inner(x + 1) - 1

    assert torch.equal(f(torch.ones(2)), torch.full((2,), 5.0))
    assert len(counter.graphs) == 2
    report = dynamo.explain(f)(torch.ones(2))
    assert report.graph_count == 2


@pytest.mark.parametrize("recursive", [True, False])
@pytest.mark.parametrize("disable", [dynamo.disable, torch.compiler.disable])
def test_reason_of_disable(disable, recursive) -> None:
    @disable(recursive=recursive, reason="it talks to a server")
    def inner(x):
        return x * 3

    def f(x):
        return inner(x + 1) - 1

    with pytest.raises(dynamo.errors.Unsupported, match=r"inner \(it talks to a server\)"):
        dynamo.compile(f, backend="eager", fullgraph=True)(torch.ones(2))
    assert "it talks to a server" in str(dynamo.explain(f)(torch.ones(2)))


def test_is_compiling() -> None:
    @dynamo.compile(backend="eager", fullgraph=True)
    def f(x):
        return x + (1 if dynamo.is_compiling() else 2)

    assert not dynamo.is_compiling()
    assert torch.equal(f(torch.zeros(2)), torch.ones(2))


def test_run_compiles_nothing_new() -> None:
    counter = Counter()
    compiled = dynamo.compile(plus, backend=counter)
    compiled(torch.ones(2))
    again = dynamo.run(compiled)
    assert torch.equal(again(torch.ones(2)), torch.full((2,), 2.0))
    assert torch.equal(again(torch.ones(3)), torch.full((3,), 2.0))
    assert len(counter.graphs) == 1


def test_stances() -> None:
    counter = Counter()
    compiled = dynamo.compile(plus, backend=counter)
    with dynamo.set_stance("force_eager"):
        compiled(torch.ones(2))
    assert not counter.graphs
    compiled(torch.ones(2))
    with dynamo.set_stance("eager_on_recompile"):
        assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 2.0))
    assert len(counter.graphs) == 1
    with dynamo.set_stance("fail_on_recompile"):
        compiled(torch.ones(2))
        with pytest.raises(RuntimeError, match="no compiled version"):
            compiled(torch.ones(3))
    compiled(torch.ones(3))
    assert len(counter.graphs) == 2
    with pytest.raises(ValueError, match="the stances are"):
        dynamo.set_stance("eager")


def test_graph_break() -> None:
    counter = Counter()

    @dynamo.compile(backend=counter)
    def f(x):
        x = x + 1
        dynamo.graph_break()
        return x * 2

    assert torch.equal(f(torch.ones(2)), torch.full((2,), 4.0))
    assert len(counter.graphs) == 2


def scaled(x, factor):
    print(end="")  # would break the graph
    return x * factor


def test_allow_and_disallow_in_graph() -> None:
    dynamo.allow_in_graph(scaled)

    @dynamo.compile(backend="eager", fullgraph=True)
    def f(x):
        return scaled(x, 2) + 1

    assert torch.equal(f(torch.ones(2)), torch.full((2,), 3.0))

    counter = Counter()
    dynamo.disallow_in_graph(torch.sin)
    try:
        compiled = dynamo.compile(lambda x: torch.sin(x + 1) + 1, backend=counter)
        compiled(torch.ones(2))
        assert len(counter.graphs) == 2
    finally:
        from dynamo import directives

        del directives.DISALLOWED[id(torch.sin)]


def test_export() -> None:
    net = Net().eval()
    x = torch.randn(2, 4)
    with torch.no_grad():
        exported = dynamo.export(net)(x)
        assert torch.equal(exported(x), net(x))
        assert torch.equal(exported.graph_module(x)[0], net(x))
        assert len(list(exported.graph_module.parameters())) == 2
        assert exported.guards

    def broken(x):
        print(end="")
        return x + 1

    with pytest.raises(dynamo.errors.Unsupported, match="test_api.py"):
        dynamo.export(broken)(x)


def test_explain_leaves_compiled_code_alone() -> None:
    counter = Counter()
    compiled = dynamo.compile(plus, backend=counter)
    compiled(torch.ones(2))
    report = dynamo.explain(compiled)(torch.ones(2))
    assert len(counter.graphs) == 2  # explain compiled for itself, with the same backend
    compiled(torch.ones(2))
    assert len(counter.graphs) == 2
    assert report.graph_count == 1 and report.graph_break_count == 0
    assert report.op_count == 2
    assert report.ops_per_graph[0][0].__name__ == "add"
    assert any("L['x']" in guard for guard in report.out_guards)
    assert report.compile_times["total"] > 0
    assert "graphs" in str(report)


def test_explain_names_the_break() -> None:
    def f(x):
        y = x + 1
        if y.sum() > 0:
            y = y[:1] * 2
        return y

    report = dynamo.explain(f, backend="eager")(torch.ones(2))
    (reason,) = report.break_reasons
    assert reason.code == "DATA_DEPENDENT_JUMP"
    assert reason.line == "if y.sum() > 0:"
    assert "test_api.py" in reason.location
    assert reason.hint and reason.hint in str(report)
    assert report.graph_count == 2 and report.graph_break_count == 1


def test_explain_says_that_a_generator_runs_as_it_is() -> None:
    def doubled(x):
        return x * 2

    def turns(x):
        yield doubled(x)
        yield doubled(x + 1)

    function = dynamo.compile(turns, backend="eager")
    assert [float(item) for _ in range(2) for item in function(torch.ones(()))] == [2, 4, 2, 4]
    names = [(r.name, len(r.graphs), [b.code for b in r.breaks]) for r in function.context.records]
    assert names == [("turns", 0, ["GENERATOR_FRAME"]), ("doubled", 1, [])]
    report = str(dynamo.explain(turns)(torch.ones(())))
    assert "Not captured 1: turns gives way" in report
    with pytest.raises(dynamo.errors.Unsupported, match="GENERATOR_FRAME"):
        dynamo.compile(turns, fullgraph=True)(torch.ones(()))


def test_explain_says_what_runs_op_by_op() -> None:
    report = dynamo.explain(Net())(torch.randn(2, 4))
    assert not any("op by op" in note for note in report.notes)
    assert any(note.startswith("backward: ") for note in report.notes)

    class Own(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient * (2 if float(gradient.sum()) > 0 else 3)

    report = dynamo.explain(lambda x: Own.apply(x.exp()))(torch.ones(3, requires_grad=True))
    assert any("compiled in 1 part, around what runs as it is" in n for n in report.notes)


def test_explain_lists_fallback_ops() -> None:
    with torch.no_grad():
        report = dynamo.explain(lambda x: torch.sort(x * 2 + 1)[0] + 1)(torch.randn(4, 4))
    assert any("sort" in op for op in report.fallback_ops)


@pytest.mark.parametrize(
    "function", [torch.abs, torch.Tensor.neg, torch.ops.aten.sin, torch.ops.aten.exp.default]
)
def test_functions_without_a_frame_are_compiled(function):
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm

    compiled = dynamo.compile(function, backend=backend)
    x = torch.tensor([-1.5, 2.0])
    for _ in range(2):
        assert torch.equal(compiled(x), function(x))
    assert len(graphs) == 1
    with pytest.raises((TypeError, RuntimeError)):
        compiled("text")
    assert torch.equal(dynamo.compile(compiled, backend="eager")(x), function(x))
