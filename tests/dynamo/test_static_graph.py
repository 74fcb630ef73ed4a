"""dynamo.Graph: inference equal to eager, and one clear error for each misuse."""

from __future__ import annotations

import copy
import re
import threading

import pytest
import torch
from torch import nn

import dynamo
from dynamo.errors import GraphError, Unsupported


class Linear(nn.Module):
    """The seeds' first module."""

    def __init__(self, in_features=4, out_features=3):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(in_features, out_features))
        self.bias = nn.Parameter(torch.randn(out_features))

    def forward(self, x):
        return torch.matmul(x, self.weight) + self.bias


class Running(nn.Module):
    """Dropout, batch norm, and a buffer that is written in place."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(4, 8), nn.Dropout(0.4), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3)
        )
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x):
        y = self.layers(x)
        self.seen += y.detach().sum(0)
        return y


class Predict(dynamo.Graph):
    def __init__(self, model, **options):
        super().__init__(**{"backend": "aot_eager", **options})
        self.model = model

    def build(self, x):
        return self.model(x)


def graph_of(build, **attributes):
    """A Graph with this build and these attributes."""

    class Made(dynamo.Graph):
        def __init__(self):
            super().__init__(backend="aot_eager")
            for name, value in attributes.items():
                setattr(self, name, value)

    Made.build = build
    return Made()


# -- inference ------------------------------------------------------------------------------------
def test_predicts_as_the_module():
    model, x = Linear(), torch.randn(1, 4)
    graph = Predict(model, backend="inductor")
    with torch.no_grad():
        torch.testing.assert_close(graph(x), model(x))
        model.weight.mul_(2)  # shared
        torch.testing.assert_close(graph(x), model(x))
    assert len(graph._graph.context.records) == 1


@pytest.mark.parametrize("training", [True, False])
def test_state_and_random_numbers_are_eagers(training):
    torch.manual_seed(0)
    model = Running()
    twin = copy.deepcopy(model)
    graph = Predict(twin).train(training)
    model.train(training)
    for seed in range(3):
        x = torch.randn(6, 4)
        torch.manual_seed(seed)
        expected = model(x)
        after = torch.rand(1)
        torch.manual_seed(seed)
        found = graph(x)
        assert torch.equal(torch.rand(1), after)
        torch.testing.assert_close(found, expected)
        for one, other in zip(model.state_dict().values(), twin.state_dict().values()):
            torch.testing.assert_close(other, one)
    assert found.requires_grad


def test_train_and_eval_build_a_graph_each():
    model = Running()
    graph, twin = Predict(model), copy.deepcopy(model)
    x = torch.randn(6, 4)
    for training in (True, False, True, False):
        torch.manual_seed(1)
        found = graph.train(training)(x)
        torch.manual_seed(1)
        torch.testing.assert_close(found, twin.train(training)(x))
    assert len(graph._graph.context.records) == 2


def test_returned_views_and_inputs():
    """Aliases of results are those of eager."""

    def build(self, x, y):
        x.mul_(2)
        z = x + 1
        return x, x[1:], z, z.view(-1), {"y": y}

    x, y = torch.ones(2, 3), torch.ones(2)
    a, b, c, d, e = graph_of(build)(x, y)
    assert a is x and e["y"] is y and x[0, 0] == 2
    x.zero_()
    assert not b.any()
    c.zero_()
    assert not d.any()


def test_tensors_of_the_graph_itself():
    class Scale(dynamo.Graph):
        def __init__(self):
            super().__init__(backend="aot_eager")
            self.scale = nn.Parameter(torch.tensor([2.0]))

        def build(self, x):
            return x * self.scale

    graph = Scale()
    assert graph(torch.ones(2)).tolist() == [2, 2]
    assert [name for name, _ in graph.named_parameters()] == ["scale"]
    assert graph.to(torch.float64).scale.dtype is torch.float64
    assert graph(torch.ones(2)).dtype is torch.float64


def test_dynamic():
    graph = Predict(Linear(), dynamic=True)
    for rows in (5, 3, 7):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(graph(x), graph.model(x))
    assert len(graph._graph.context.records) == 1
    with pytest.raises(GraphError, match=r"x had shape \(5, 4\) and has \(4,\)"):
        graph(torch.randn(4))


def test_arguments_by_position_or_by_keyword_are_the_same():
    def build(self, x, y=None, *rest, scale=1.0, **named):
        return x * scale + (0 if y is None else y) + sum(rest) + sum(named.values())

    x, y = torch.ones(2), torch.full((2,), 3.0)
    for first in (((x, y), {"scale": 2.0}), ((), {"scale": 2.0, "y": y, "x": x})):
        graph = graph_of(build)
        for args, kwargs in (first, ((x,), {"y": y, "scale": 2.0}), ((x, y), {"scale": 2.0})):
            assert graph(*args, **kwargs).tolist() == [5, 5]
        assert len(graph._graph.context.records) == 1
        with pytest.raises(GraphError, match="y is missing"):
            graph(x, scale=2.0)
        with pytest.raises(TypeError, match="multiple values for argument 'x'"):
            graph(x, x=x, scale=2.0)
    graph = graph_of(build)
    assert graph(x, y, y, other=x).tolist() == [8, 8]
    assert graph(x, y, y, other=x).tolist() == [8, 8]


def test_a_lazy_module_takes_its_sizes_from_the_first_call():
    graph = Predict(nn.LazyLinear(3))
    x = torch.randn(2, 4)
    for _ in range(2):
        torch.testing.assert_close(graph(x), graph.model(x))
    assert graph.model.in_features == 4


def test_graph_inside_of_a_graph():
    inner = Predict(Linear())
    outer = graph_of(lambda self, x: self.inner(x) * 2, inner=inner)
    x = torch.randn(2, 4)
    torch.testing.assert_close(outer(x), inner.model(x) * 2)
    assert len(outer._graph.context.records) == 1
    compiled = dynamo.compile(lambda x: inner(x) + 1, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), inner.model(x) + 1)


# -- the module's interface -----------------------------------------------------------------------
def test_names_and_state_dict():
    model = Running()
    graph = Predict(model)
    assert graph.name.startswith("Predict_") and graph.name != Predict(model).name
    for kind in ("parameters", "buffers", "modules"):
        found = dict(getattr(graph, f"named_{kind}")())
        expected = dict(getattr(model, f"named_{kind}")(prefix="model"))
        assert found.keys() == expected.keys()
        assert all(found[name] is expected[name] for name in found)
        assert list(map(id, getattr(graph, kind)())) == list(map(id, found.values()))
    assert dict(graph.named_children()) == {"model": model} and list(graph.children()) == [model]
    other = Predict(Running())
    other(torch.randn(6, 4))
    result = other.load_state_dict(graph.state_dict())
    assert not result.missing_keys and not result.unexpected_keys
    for name, value in graph.state_dict().items():
        assert torch.equal(other.state_dict()[name], value)
    with pytest.raises(RuntimeError, match="Missing key"):
        other.load_state_dict({})
    assert "model.seen" in other.load_state_dict({}, strict=False).missing_keys


def test_copies_build_their_own_graph():
    graph = Predict(Linear())
    x = torch.randn(1, 4)
    expected = graph(x)
    twin = copy.deepcopy(graph)
    with torch.no_grad():
        graph.model.weight.zero_()
    assert torch.equal(twin(x), expected) and not torch.equal(graph(x), expected)


# -- one graph, or an error -----------------------------------------------------------------------
def test_a_break_is_an_error_with_reason_line_and_hint():
    def build(self, x):
        print("an effect")
        if x.sum() > 0:  # this breaks
            return x
        return -x[:1]

    graph = graph_of(build)
    with pytest.raises(Unsupported) as caught:
        graph(torch.ones(2))
    text = str(caught.value)
    assert text.startswith("Made_") and "is one graph, and the graph breaks" in text
    assert "fullgraph" not in text and "if x.sum() > 0:  # this breaks" in text
    assert "hint: " in text and f"{__file__}:" in text


def other_inputs(change):
    def run():
        graph = graph_of(lambda self, x, batch, n=2: x * batch["scale"] * n)
        graph(torch.ones(2, 3), {"scale": torch.ones(3)})
        change(graph)

    return run


def foreign_parameters():
    graph = Predict(Linear())
    graph.add_optimizer(torch.optim.SGD(Linear().parameters(), 0.1))
    graph(torch.ones(1, 4))


def without_init():
    class Unready(dynamo.Graph):
        def __init__(self, model):
            self.model = model

        def build(self, x):
            return self.model(x)

    return Unready(Linear())


def trained(build=None, **options):
    class Train(dynamo.Graph):
        def __init__(self, model):
            super().__init__(backend="aot_eager", **options)
            self.model = model
            self.add_optimizer(torch.optim.SGD(model.parameters(), 0.1))

    def usual(self, x):
        loss = self.model(x).sum()
        loss.backward()
        return loss

    Train.build = build or usual
    return Train(Linear())


def second_thread():
    entered, leave, found = threading.Event(), threading.Event(), []

    def wait(x):
        entered.set()
        leave.wait(20)
        return x + 1

    def backend(gm, example_inputs):
        return lambda *inputs: (wait(inputs[0]),)

    graph = graph_of(lambda self, x: x + 1)
    graph._graph.settings["backend"] = backend
    thread = threading.Thread(target=lambda: found.append(graph(torch.ones(2))))
    thread.start()
    entered.wait(20)
    try:
        graph(torch.ones(2))
    finally:
        leave.set()
        thread.join()
        assert found[0].tolist() == [2, 2] and graph(torch.ones(2)).tolist() == [2, 2]


def raises(self, x):
    raise KeyError("its own")


def calls_itself():
    graph_of(lambda self, x: self(x))(torch.ones(2))


def one(x=2, y=3):
    return torch.ones(x, y), {"scale": torch.ones(3)}


SGD = torch.optim.SGD
OTHER = SGD(Linear().parameters(), 0.1)
# name -> (program, error, text)
MISUSES = {
    "no_build": (
        lambda: type("Empty", (dynamo.Graph,), {})()(),
        GraphError,
        "Empty defines no bui",
    ),
    "no_subclass": (lambda: dynamo.Graph()(), GraphError, "defines no build"),
    "returns_nothing": (
        lambda: graph_of(lambda self, x: None)(torch.ones(2)),
        GraphError,
        r"build\(\) of Made returns nothing",
    ),
    "returns_nothing_this_time": (
        lambda: graph_of(lambda self, x: x if x.dim() else None)(torch.tensor(1.0)),
        GraphError,
        r"build\(\) of Made returns nothing",
    ),
    "raises": (
        lambda: graph_of(raises)(torch.ones(2)),
        KeyError,
        "its own",
    ),
    "generator": (
        lambda: graph_of(lambda self, x: (yield x))(torch.ones(2)),
        GraphError,
        "generator or coroutine",
    ),
    "unready_call": (
        lambda: without_init()(torch.ones(1, 4)),
        GraphError,
        r"Unready is not ready: its __init__ does not call super\(\)",
    ),
    "module_of_another_device": (
        lambda: Predict(nn.Linear(4, 3, device="meta"))(torch.ones(1, 4)),
        Unsupported,
        "Expected all tensors to be on the same device|two different devices",
    ),
    "module_not_assigned": (
        lambda: graph_of(lambda self, x: self.model(x))(torch.ones(1, 4)),
        AttributeError,
        "'Made' object has no attribute 'model'",
    ),
    "bad_limit": (
        lambda: trained().config.set_memory_limit("1 GiB"),
        GraphError,
        "positive number of bytes, not '1 GiB'",
    ),
    "unready_config": (lambda: without_init().config, GraphError, "is not ready"),
    "unready_optimizer": (lambda: without_init().add_optimizer(OTHER), GraphError, "not ready"),
    "unready_print": (lambda: str(without_init()), GraphError, "not ready"),
    "unknown_attribute": (lambda: trained().nothing, AttributeError, "'Train' object has no"),
    "foreign_parameters": (
        foreign_parameters,
        GraphError,
        r"optimizer 0 \(SGD\) has parameters that no module of the graph holds: 2, the first is "
        r"number 0 of group 0, of shape \(4, 3\)",
    ),
    "no_optimizer": (lambda: trained().add_optimizer(3), GraphError, "takes an optimizer, not 3"),
    "lbfgs": (
        lambda: trained().add_optimizer(torch.optim.LBFGS(Linear().parameters())),
        GraphError,
        "LBFGS runs build",
    ),
    "no_scheduler": (lambda: trained().add_optimizer(OTHER, 3), GraphError, "scheduler of torch"),
    "scheduler_of_another": (
        lambda: trained().add_optimizer(
            OTHER, torch.optim.lr_scheduler.StepLR(SGD(Linear().parameters(), 0.1), 1)
        ),
        GraphError,
        "scheduler of another optimizer",
    ),
    "plateau": (
        lambda: trained().add_optimizer(OTHER, torch.optim.lr_scheduler.ReduceLROnPlateau(OTHER)),
        GraphError,
        "needs a metric",
    ),
    "no_backward": (
        lambda: trained(lambda self, x: self.model(x).sum())(torch.ones(1, 4)),
        GraphError,
        r"call backward\(\) on the loss",
    ),
    "second_thread": (second_thread, GraphError, "in another thread"),
    "calls_itself": (calls_itself, GraphError, "calls the graph itself"),
    "nested_training": (
        lambda: graph_of(lambda self, x: self.inner(x), inner=trained())(torch.ones(1, 4)),
        GraphError,
        r"Train_\d+ is called inside of another graph, and has optimizers",
    ),
    "other_shape": (
        other_inputs(lambda graph: graph(*one(x=4))),
        GraphError,
        r"Made_\d+ was built for other inputs: x had shape \(2, 3\) and has \(4, 3\) \(another",
    ),
    "other_dtype_inside": (
        other_inputs(lambda graph: graph(one()[0], {"scale": torch.ones(3).double()})),
        GraphError,
        r"batch\['scale'\] had dtype torch.float32 and has torch.float64",
    ),
    "other_device": (
        other_inputs(lambda graph: graph(one()[0].to("meta"), one()[1])),
        GraphError,
        "x was on cpu and is on meta",
    ),
    "other_key": (
        other_inputs(lambda graph: graph(one()[0], {"other": 1})),
        GraphError,
        r"batch\['scale'\] is missing; batch\['other'\] is new",
    ),
    "other_value": (
        other_inputs(lambda graph: graph(*one(), n=3)),
        GraphError,
        "n is new",
    ),
    "other_kind": (
        other_inputs(lambda graph: graph(3.0, one()[1])),
        GraphError,
        "x was a tensor and is 3.0",
    ),
    "missing_argument_later": (
        other_inputs(lambda graph: graph(one()[0])),
        TypeError,
        r"Made_\d+: build\(\) is missing a required argument: 'batch'",
    ),
    "missing_argument": (
        lambda: graph_of(lambda self, x: x)(),
        TypeError,
        "missing 1 required positional argument: 'x'",
    ),
    "bad_dynamic": (lambda: dynamo.Graph(dynamic=1), TypeError, "dynamic must be"),
    "bad_backend": (lambda: dynamo.Graph(backend="none"), dynamo.errors.InvalidBackend, "none"),
    "bad_level": (lambda: trained().debug(7), GraphError, "v_level is a number from -1 to 3"),
    "bad_amp": (
        lambda: trained().config.enable_amp(dtype=torch.int8),
        GraphError,
        "not of torch.int8",
    ),
    "bad_steps": (
        lambda: trained().config.set_gradient_accumulation_steps(0),
        GraphError,
        "1 or more steps, not 0",
    ),
    "bad_checkpoint": (
        lambda: trained().config.set_activation_checkpointing("model"),
        GraphError,
        "modules are checkpointed, not 'model'",
    ),
    "bad_scaler": (lambda: trained().set_grad_scaler(1), GraphError, "takes a GradScaler, not 1"),
}


@pytest.mark.parametrize("name", MISUSES)
def test_misuse(name):
    program, error, text = MISUSES[name]
    with pytest.raises(error) as caught:
        program()
    assert re.search(text, str(caught.value)), str(caught.value)


def test_an_error_changes_nothing():
    """A call that is refused leaves parameters, gradients and the graph as they were."""
    graph = trained()
    x = torch.ones(2, 4)
    graph(x)
    before = copy.deepcopy(graph.state_dict())
    with pytest.raises(GraphError):
        graph(torch.ones(3, 4))
    for name, value in graph.state_dict().items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(before[name], value)
    graph(x)
