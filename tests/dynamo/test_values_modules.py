"""nn.Module: attributes, containers, hooks, buffers, stores in forward, iteration over
parameters.
"""

import copy

import pytest
import torch
from torch import nn

import dynamo
from dynamo.api.compile import compile
from tests.dynamo.values_support import CountingBackend


class Block(nn.Module):
    def __init__(self, n=4):
        super().__init__()
        self.linear = nn.Linear(n, n)
        self.norm = nn.LayerNorm(n)
        self.register_buffer("scale", torch.ones(n))
        self.weight = nn.Parameter(torch.ones(n))
        self.p = 0.5
        self.act = torch.nn.functional.gelu

    def forward(self, x):
        y = self.act(self.linear(x)) * self.scale + self.weight
        if self.training:
            y = y * 2
        return self.norm(y) * self.p


class Containers(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Block() for _ in range(3)])
        self.named = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.ReLU()})
        self.seq = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Sequential(nn.Linear(4, 4)))
        self.params = nn.ParameterList([nn.Parameter(torch.ones(4)) for _ in range(2)])

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            x = layer(x) + i
        for layer in self.layers[:2]:
            x = layer(x)
        x = self.layers[-1](x)
        for name, module in self.named.items():
            x = module(x) if name == "a" else module(x) + 1
        x = self.seq(x) + self.seq[0](x)
        for p in self.params:
            x = x * p
        return self.named["a"](x), len(self.layers), len(self.seq), "b" in self.named


class Norms(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.bn = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.0)
        self.pool = nn.AdaptiveAvgPool2d(1)

    def forward(self, x):
        return self.pool(torch.relu(self.drop(self.bn(self.conv(x))))).flatten(1)


class Stores(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.calls = 0
        self.register_buffer("state", torch.zeros(4))

    def forward(self, x):
        self.calls += 1
        self.last = self.linear(x)
        self.state.add_(1)
        return self.last * self.calls + self.state


class Walks(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = Block()
        self.b = nn.Sequential(nn.Linear(4, 4))

    @property
    def dtype(self):
        return next(p.dtype for p in self.parameters())

    def forward(self, x):
        total = sum(p.sum() for p in self.parameters())
        names = [n for n, _ in self.named_parameters()] + [n for n, _ in self.named_modules()]
        kinds = [type(m).__name__ for m in self.modules()]
        count = len(list(self.children())) + len(list(self.buffers()))
        return x.to(self.dtype) + total, names, kinds, count, next(self.parameters()).device


class Lazy(nn.Module):
    def forward(self, x):
        if not hasattr(self, "table"):
            self.table = torch.arange(4.0)
        return x + self.table


class Dynamic(nn.Module):
    def __init__(self):
        super().__init__()
        for i in range(3):
            setattr(self, f"fc{i}", nn.Linear(4, 4))

    def forward(self, x):
        for i in range(3):
            x = getattr(self, f"fc{i}")(x)
        return x, self.extra_repr(), self.__class__.__name__


class Replaces(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("average", torch.zeros(4))

    def forward(self, x):
        self.average = self.average * 0.9 + x
        return self.average + 1


CASES = {
    "replaces": (Replaces, (4,)),
    "block": (Block, (2, 4)),
    "containers": (Containers, (2, 4)),
    "norms": (Norms, (2, 3, 6, 6)),
    "stores": (Stores, (2, 4)),
    "walks": (Walks, (2, 4)),
    "lazy": (Lazy, (4,)),
    "dynamic": (Dynamic, (2, 4)),
}


def compare(left, right):
    if isinstance(left, torch.Tensor):
        torch.testing.assert_close(left, right)
    elif isinstance(left, tuple):
        assert len(left) == len(right)
        for a, b in zip(left, right):
            compare(a, b)
    else:
        assert left == right


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_module(name, training):
    make, shape = CASES[name]
    torch.manual_seed(0)
    eager = make().train(training)
    module = copy.deepcopy(eager)
    backend = CountingBackend()
    captured = compile(module, backend=backend, fullgraph=True)
    for _ in range(3):
        x = torch.randn(shape)
        with torch.no_grad():
            compare(captured(x), eager(x))
    compare(tuple(module.state_dict().values()), tuple(eager.state_dict().values()))
    plain = {k: v for k, v in vars(module).items() if isinstance(v, (int, float))}
    assert plain == {k: v for k, v in vars(eager).items() if isinstance(v, (int, float))}
    assert backend.graphs <= (4 if name in ("stores", "lazy") else 1)


def test_hooks():
    log = []

    def make():
        torch.manual_seed(0)
        module = Containers().eval()
        module.layers[0].register_forward_pre_hook(lambda m, args: (args[0] + 1,))
        module.layers[1].register_forward_hook(lambda m, args, out: out * 2)
        module.seq.register_forward_hook(
            lambda m, args, kwargs, out: log.append("k"), with_kwargs=True
        )
        return module

    eager, module = make(), make()
    backend = CountingBackend()
    captured = compile(module, backend=backend, fullgraph=True)
    x = torch.randn(2, 4)
    with torch.no_grad():
        expected = eager(x)
        before = len(log)
        compare(captured(x), expected)
    assert len(log) == 2 * before and backend.graphs == 1


def test_hook_added_later_recompiles():
    module = Block().eval()
    captured = compile(module, backend="eager", fullgraph=True)
    x = torch.randn(2, 4)
    with torch.no_grad():
        before = captured(x)
        module.linear.register_forward_hook(lambda m, args, out: out * 3)
        assert not torch.equal(captured(x), before)
        compare(captured(x), module(x))


def test_training_flag_and_plain_attributes_are_guarded():
    module = Block().eval()
    captured = compile(module, backend="eager", fullgraph=True)
    x = torch.randn(2, 4)
    with torch.no_grad():
        compare(captured(x), module(x))
        module.train()
        compare(captured(x), module(x))
        module.p = 0.25
        compare(captured(x), module(x))
        module.linear = nn.Linear(4, 4)
        compare(captured(x), module(x))


@pytest.mark.parametrize("kind", [nn.Parameter, nn.Buffer])
def test_of_parameters_that_each_call_replaces_any_may_come(kind):
    module = nn.Linear(4, 4)
    del module.weight
    backend = CountingBackend()
    captured = compile(lambda x: module(x).sin(), backend=backend, fullgraph=True)
    kept = []  # addresses are not used again
    for turn in range(6):
        kept.append(kind(torch.randn(4, 4)))
        module.weight = kept[-1]
        x = torch.randn(2, 4)
        found = []
        for function in (captured, lambda x: module(x).sin()):
            module.zero_grad()
            kept[-1].grad = None
            result = function(x)
            result.sum().backward()
            found.append([result, module.bias.grad.clone(), kept[-1].grad])
        assert all(map(lambda a, b: a is b is None or torch.equal(a, b), *found))
    assert backend.graphs == 1


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("kind", ["argument", "member"])
def test_any_parameter_may_come_where_each_has_the_address_of_the_last(kind, kept):
    layer, backend, detached, addresses = nn.Linear(4, 4), CountingBackend(), [], set()

    def function(layer, weight, x):
        return x @ weight if kind == "argument" else layer(x)

    captured = compile(function, backend=backend, fullgraph=True)
    values, x = torch.randn(12, 4, 4).unbind(), torch.randn(2, 4)
    for value in values:
        layer.weight = None
        layer.weight = nn.Parameter(value)
        addresses.add(id(layer.weight))
        compare(captured(layer, layer.weight, x), function(layer, layer.weight, x))
        detached += [layer.weight.detach()] * kept  # of which the version counter lives on
    assert len(addresses) < len(values)
    assert backend.graphs <= 3


def a_new_layer(turn, kept):
    kept.append(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
    return kept[-1]


def a_new_layer_in_place_of_the_last(turn, kept):
    kept[:] = []
    return a_new_layer(turn, kept)


def an_assigned_state(turn, kept):
    layer = kept[0] if kept else a_new_layer(turn, kept)
    state = {name: t.clone() * turn for name, t in layer.state_dict().items()}
    layer.load_state_dict(state, assign=True)
    return layer


@pytest.mark.parametrize(
    "layer", [a_new_layer, a_new_layer_in_place_of_the_last, an_assigned_state]
)
def test_one_graph_serves_the_modules_that_keep_coming(layer):
    backend, kept = CountingBackend(), []
    captured = compile(lambda module, x: module(x).sin(), backend=backend, fullgraph=True)
    for turn in range(12):
        module = layer(turn, kept)
        twin = copy.deepcopy(module)
        x = torch.randn(3, 4)
        found, expected = captured(module, x), twin(x).sin()
        found.sum().backward()
        expected.sum().backward()
        compare(found, expected)
        for one, other in zip(module.parameters(), twin.parameters()):
            compare(one.grad, other.grad)
        for one, other in zip(module.buffers(), twin.buffers()):
            compare(one, other)
        del module, twin, found
    assert backend.graphs <= 4


@pytest.mark.parametrize("models", [1, 2])
def test_only_the_first_models_parameters_are_known_objects(models):
    given = [nn.Linear(4, 4) for _ in range(models)]
    record = []

    def backend(gm, examples):
        static = [n.meta.get("static") for n in gm.graph.nodes if n.op == "placeholder"]
        record.append(static)

        def run(*varying):
            left = iter(varying)
            return gm.forward(*[x if s else next(left) for x, s in zip(examples, static)])

        run.binds_static = True
        return run

    captured = compile(lambda module, x: module(x), backend=backend)
    for _ in range(3):
        dynamo.reset()
        record.clear()
        for module in given * 2:
            captured(module, torch.randn(3, 4))
        assert [static.count(True) for static in record] == [2, 0][:models]


class Equal(nn.BatchNorm1d):
    """Compared and hashed by the program's own code, as a module of tensordict is."""

    def __eq__(self, other):
        calls.append("__eq__")
        return True

    def __hash__(self):
        calls.append("__hash__")
        return 1


calls = []


def test_modules_are_not_compared_by_their_own_methods():
    models = [nn.Sequential(nn.Linear(4, 4), Equal(4), Equal(4)) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    calls.clear()
    captured = compile(models[0], backend="eager", fullgraph=True)
    for size in (2, 3):
        x = torch.randn(size, 4)
        compare(captured(x), models[1](x))
    assert not calls
    for a, b in zip(models[0].buffers(), models[1].buffers()):
        compare(a, b)


def test_source_names():
    sources = []

    def backend(gm, example_inputs):
        sources.extend(n.meta.get("source") for n in gm.graph.nodes if n.op == "placeholder")
        return gm.forward

    with torch.no_grad():
        compile(Containers(), backend=backend)(torch.randn(2, 4))
    text = " ".join(sources)
    assert ".layers[0].linear.weight" in text
    assert ".seq[2][0].bias" in text
