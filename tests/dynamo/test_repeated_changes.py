"""The same kind of change, made before every call: soon nothing is compiled again."""

from __future__ import annotations

import gc
import operator
import weakref
from collections import OrderedDict
from typing import Any

import pytest
import torch
from torch import nn

import dynamo
from tests.dynamo.values_support import CountingBackend

CALLS, SOON = 9, 4


class Base:
    held: Any = 0


class Derived(Base):
    pass


class Holder:
    pass


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.listed = [nn.Parameter(torch.ones(2))]

    def forward(self, x):
        return x * self.listed[0]


holder, derived, plain = Holder(), Derived(), Plain()
by_name: dict[str, Any] = {}
held: Any = None


first, second = Holder(), Holder()
by_object = OrderedDict([(first, torch.ones(2)), (second, torch.ones(2))])
by_object.move_to_end(first)
hooked = nn.Identity()
handles: list[Any] = []


def hook_again(number):
    """Two hooks, of which the second to be registered comes first."""
    for handle in handles:
        handle.remove()
    handles[:] = [
        hooked.register_forward_hook(lambda module, args, out: out * 2),
        hooked.register_forward_hook(lambda module, args, out: out + 1, prepend=True),
    ]


class Called:
    def method(self, x):
        return x


called = Called()


def scaling(number, shift=0.0):
    def method(self, x, more=shift):
        return x * number + more

    return method


def set_global(value):
    global held
    held = value


def adding(number):
    return lambda x: x + number


def parameter(number):
    return nn.Parameter(torch.full((2,), float(number)))


# name -> what reads the state, what changes it before call `number`
STATES = {
    "whole number of the class": (
        lambda x: x + derived.held,
        lambda number: setattr(Base, "held", 1000 + number),
    ),
    "float of the class": (
        lambda x: x + derived.held,
        lambda number: setattr(Base, "held", number + 0.25),
    ),
    "list of the class": (
        lambda x: x * len(derived.held) + derived.held[0],
        lambda number: setattr(Base, "held", [2, 3]),
    ),
    "set of the class": (
        lambda x: x * (derived.held <= {1, 2}),
        lambda number: setattr(Base, "held", {1, 2}),
    ),
    "tensor of the class": (
        lambda x: x * derived.held,
        lambda number: setattr(Base, "held", torch.full((2,), float(number))),
    ),
    "parameter of an object": (
        lambda x: x * holder.weight,
        lambda number: setattr(holder, "weight", parameter(number)),
    ),
    "parameter of the class": (
        lambda x: x * derived.held,
        lambda number: setattr(Base, "held", parameter(number)),
    ),
    "parameter in a dict": (
        lambda x: x * by_name["weight"],
        lambda number: by_name.update(weight=parameter(number)),
    ),
    "parameter of globals": (lambda x: x * held, lambda number: set_global(parameter(number))),
    "function of globals": (lambda x: held(x), lambda number: set_global(adding(number % 2))),
    "method of the class": (
        lambda x: called.method(x),
        lambda number: setattr(Called, "method", scaling(number, number + 0.5)),
    ),
    "getter of globals": (
        lambda x: held([x, x + 1]),
        lambda number: set_global(operator.itemgetter(number % 2)),
    ),
    "caller of globals": (
        lambda x: held(x),
        lambda number: set_global(operator.methodcaller("sum", 0, keepdim=number % 2 == 1)),
    ),
    "tensor under an object in a dict of another order": (
        lambda x: x * by_object[first],
        lambda number: by_object.__setitem__(first, torch.full((2,), float(number))),
    ),
    "hooks, the last of which comes first": (lambda x: hooked(x), hook_again),
    "parameter in a module's list": (
        lambda x: plain(x),
        lambda number: plain.listed.__setitem__(0, parameter(number)),
    ),
}


@pytest.mark.parametrize("name", STATES)
def test_a_change_before_every_call(name):
    function, change = STATES[name]
    compiled = dynamo.compile(function, backend="eager")
    counts = []
    for number in range(CALLS):
        change(number)
        x = torch.arange(2.0)
        torch.testing.assert_close(compiled(x), function(x), rtol=0, atol=0)
        counts.append(len(compiled.context.records))
    assert counts[-1] == counts[SOON], counts


def test_methods_of_other_kinds_are_noticed():
    def function(x):
        return called.method(x)

    compiled, x = dynamo.compile(function, backend="eager"), torch.arange(2.0)
    methods = [scaling(number) for number in range(4)]
    later = scaling(2.0, 1.0)
    methods += [staticmethod(lambda x: x - 1), later, classmethod(later), later]
    methods += [property(lambda self: torch.sin), lambda self, x: x * 9, later]
    for method in methods:
        Called.method = method
        assert torch.equal(compiled(x), function(x))
    later.__defaults__ = (7.0,)
    assert torch.equal(compiled(x), function(x))
    count = len(compiled.context.records)
    Called.method = scaling(8.0, 5.0)
    assert torch.equal(compiled(x), function(x))
    assert len(compiled.context.records) <= count + 1


@pytest.mark.parametrize(
    "values",
    [
        [1, 1.0, True, 2, 1],
        [[1], (1,), [1.0], [2], None],
        [torch.ones(()), torch.ones(()).double(), 2, nn.Parameter(torch.ones(()))],
    ],
    ids=["numbers", "sequences", "tensors"],
)
def test_class_attributes_of_other_kinds_are_noticed(values):
    def function(x):
        value = derived.held
        return x * (value[0] if isinstance(value, list | tuple) else value or 7), type(value)

    compiled = dynamo.compile(function, backend="eager")
    for value in values * 2:
        Base.held = value
        x = torch.arange(2.0)
        expected, actual = function(x), compiled(x)
        assert actual[1] is expected[1]
        torch.testing.assert_close(actual[0], expected[0], rtol=0, atol=0)
    Base.held = property(lambda self: 5)
    torch.testing.assert_close(compiled(x)[0], x * 5)
    del Base.held
    with pytest.raises(AttributeError):
        compiled(x)
    Base.held = 3
    torch.testing.assert_close(compiled(x)[0], x * 3)


def test_getters_of_other_literals_are_noticed():
    class Two(int):
        def __repr__(self):
            return "1"

    def function(x, getter):
        return x + getter([1.0, 2.0, 3.0])

    compiled, x = dynamo.compile(function, backend="eager"), torch.zeros(2)
    for item in (1, 1, Two(2), True, 0, 1):
        getter = operator.itemgetter(item)
        assert torch.equal(compiled(x, getter), function(x, getter))


# -- hooks that are removed -----------------------------------------------------------------------
class Extractor(nn.Module):
    """Removes the hooks of its last call, registers new ones."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
        self.handles: list[Any] = []
        self.seen: list[Any] = []

    def forward(self, x):
        self.seen.clear()
        for handle in self.handles:
            handle.remove()
        self.handles = [
            layer.register_forward_hook(lambda module, args, out: self.seen.append(out))
            for layer in self.layers
        ]
        for layer in self.layers:
            x = layer(x)
        return x + self.seen[0] + len(self.layers[0]._forward_hooks)


def behind_a_break(model, x):
    handle = model.layers[0].register_forward_hook(lambda module, args, out: out * 2)
    dynamo.graph_break()
    y = model.layers[0](x)
    handle.remove()
    return y + model.layers[0](x)


def behind_an_error(model, x):
    hooked = [
        layer.register_forward_hook(lambda module, args, kwargs, out: out + 1, with_kwargs=True)
        for layer in model.layers
    ]
    try:
        dynamo.graph_break()
        x = model.layers[1](model.layers[0](x))
    finally:
        for handle in hooked:
            handle.remove()
    return model.layers[0](x)


@pytest.mark.parametrize("function", [Extractor.__call__, behind_a_break, behind_an_error])
def test_hooks_removed_at_every_call(function):
    torch.manual_seed(0)
    model, x = Extractor(), torch.arange(2.0)
    kept = model.layers[0].register_forward_hook(lambda module, args, out: out - 1)
    compiled, counts = dynamo.compile(function, backend="eager"), []
    for _ in range(CALLS):
        expected = function(model, x)
        torch.testing.assert_close(compiled(model, x), expected, rtol=0, atol=0)
        counts.append(len(compiled.context.records))
    assert counts[-1] == counts[SOON], counts
    assert next(iter(model.layers[0]._forward_hooks)) == kept.id
    assert len(model.layers[0]._forward_hooks) == 1 + len(model.handles) // 2


def test_the_place_of_a_removed_hook_is_noticed():
    layer, x = nn.Identity(), torch.arange(2.0)

    def function(handle, x):
        handle.remove()
        handle.remove()
        return layer(x)

    compiled = dynamo.compile(function, backend="eager")
    for removed in (0, 1, 2, 1, 0, 2):
        handles = [
            layer.register_forward_hook(lambda module, args, out: out + 1),
            layer.register_forward_hook(lambda module, args, out: out * 3),
            layer.register_forward_hook(lambda module, args, out: out - 2, prepend=True),
        ]
        left = [handle.id for i, handle in enumerate(handles) if i != removed]
        actual = compiled(handles[removed], x)
        assert sorted(layer._forward_hooks) == left
        assert torch.equal(actual, layer(x))
        assert torch.equal(compiled(handles[removed], x), layer(x))  # is gone already
        layer._forward_hooks.clear()
        assert torch.equal(compiled(handles[removed], x), x)


@pytest.mark.parametrize(
    "asked",
    [
        lambda hooks, handle: handle.id in hooks,
        lambda hooks, handle: handle.id in dict(hooks),
        lambda hooks, handle: [key == handle.id for key in hooks],
        lambda hooks, handle: hooks.copy() == {handle.id: hooks.get(handle.id)},
        lambda hooks, handle: hooks == OrderedDict([(handle.id, hooks.get(handle.id))]),
        lambda hooks, handle: sorted(hooks) == [handle.id],
        lambda hooks, handle: {handle.id} <= hooks.keys(),
    ],
)
def test_numbers_of_hooks_are_told_apart(asked):
    layer, x = nn.Identity(), torch.arange(2.0)

    def function(first, second, x):
        first.remove()
        return x + 1, asked(layer._forward_hooks, second)

    compiled = dynamo.compile(function, backend="eager")
    for second_is_gone in (False, True, False):
        answers = []
        for call in (function, compiled):
            layer._forward_hooks.clear()
            handles = [layer.register_forward_hook(lambda *args: None) for _ in range(2)]
            if second_is_gone:
                handles[1].remove()
            answers.append(call(*handles, x)[1])
        assert answers[0] == answers[1]


# -- graphs that are the same ---------------------------------------------------------------------
found: list[Any] = []


@dynamo.register_backend
def seen_graphs(gm, example_inputs):
    found.append(gm)
    return gm.forward


@pytest.fixture
def graphs():
    """The graphs that the backend "seen_graphs" compiles."""
    found.clear()
    return found


class Lazy(nn.Module):
    """Fills in settings and counts calls."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.kind: str | None = None
        self.names: list[str] = []

    def forward(self, x):
        if self.kind is None:
            self.kind = "regression"
            self.ready = True
        self.names.append(self.kind)
        return self.linear(x) if self.kind == "regression" else x


def test_a_graph_that_is_the_same_is_compiled_once(graphs):
    model, twin, x = Lazy(), Lazy(), torch.randn(3, 2)
    twin.load_state_dict(model.state_dict())
    compiled = dynamo.compile(model, backend="seen_graphs")
    for _ in range(3):
        actual, expected = compiled(x), twin(x)
        assert torch.equal(actual, expected)
        actual.sum().backward()
        expected.sum().backward()
        assert torch.equal(model.linear.weight.grad, twin.linear.weight.grad)
        assert (model.kind, model.names, model.ready) == (twin.kind, twin.names, True)
    assert len(graphs) == 1


def test_classes_made_at_every_call_share_a_graph(graphs):
    def function(cls, x):
        return cls().scaled(x)

    def make():
        class Scaling:
            factor = 3

            def scaled(self, x):
                return x * self.factor

        return Scaling

    compiled, x, classes = dynamo.compile(function, backend="seen_graphs"), torch.ones(2), []
    for _ in range(6):
        classes.append(make())
        assert torch.equal(compiled(classes[-1], x), x * 3)
    classes[-1].factor = 4
    assert torch.equal(compiled(classes[-1], x), x * 4)
    assert len(graphs) == 2


# name -> two calls, of a state, of which the second needs a graph of its own
OTHERS = {
    "numbers": [(1, {}), (1.0, {})],
    "zeros": [(0.0, {}), (-0.0, {})],
    "bools": [(1, {}), (True, {})],
    "dtypes": [(2, {}), (2, {"dtype": torch.float64})],
    "gradients": [(2, {}), (2, {"requires_grad": True})],
    "parameters": [(nn.Parameter(torch.ones(2)), {}), (nn.Parameter(torch.zeros(2)), {})],
    "kinds": [(torch.ones(2), {}), (torch.ones(2, dtype=torch.int64), {})],
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("backend", ["seen_graphs", "inductor"])
def test_graphs_that_differ_are_told_apart(name, backend, graphs):
    holder.factor = None

    def function(x):
        return x.mul(holder.factor)

    compiled = dynamo.compile(function, backend=backend, dynamic=False)
    for factor, options in OTHERS[name] * 2:
        holder.factor, x = factor, torch.tensor([0.0, 2.0], **options)
        actual, expected = compiled(x), function(x)
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)
        assert torch.equal(actual.signbit(), expected.signbit())
        assert actual.requires_grad == expected.requires_grad
    assert backend != "seen_graphs" or len(graphs) == 2


def test_graphs_of_other_modes_are_told_apart(graphs):
    model, x = Lazy(), torch.randn(3, 2)
    compiled = dynamo.compile(model, backend="seen_graphs")
    with torch.no_grad():
        assert not compiled(x).requires_grad
    assert compiled(x).requires_grad
    with torch.autocast("cpu", torch.bfloat16):
        assert compiled(x).dtype is torch.bfloat16
    model.linear.weight = nn.Parameter(torch.zeros(2, 2))
    assert torch.equal(compiled(x), model.linear.bias.expand(3, 2))
    assert len(graphs) == 4


def replace_the_weight(model):
    model[0].weight = nn.Parameter(torch.randn(3, 3))


def replace_each_in_turn(model):
    for name, value in list(model.named_parameters()):
        owner, _, key = name.rpartition(".")
        setattr(model.get_submodule(owner), key, nn.Parameter(value.detach() + 1))


def assign_a_state(model):
    model.load_state_dict({k: v + 1 for k, v in model.state_dict().items()}, assign=True)


def replace_a_buffer(model):
    model[2].running_mean = torch.randn(3)


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize(
    "change", [replace_the_weight, replace_each_in_turn, assign_a_state, replace_a_buffer]
)
def test_replaced_parameters_need_no_other_graph(change, grad):
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.BatchNorm1d(3).eval())
    backend, x = CountingBackend(), torch.randn(4, 3)
    compiled = dynamo.compile(model, backend=backend)
    with torch.set_grad_enabled(grad):
        for _ in range(CALLS):
            result, expected = compiled(x), model(x)
            assert torch.equal(result, expected)
            if grad:
                given, wanted = (
                    torch.autograd.grad(r.sum(), list(model.parameters()))
                    for r in (result, expected)
                )
                assert all(map(torch.equal, given, wanted))
            change(model)
    assert backend.graphs == 1


@pytest.mark.parametrize("kept", [True, False])
def test_a_module_for_each_call_needs_no_other_graph(kept):
    backend, x, alive = CountingBackend(), torch.randn(4, 3), []
    compiled = dynamo.compile(lambda module, x: module(x) + 1, backend=backend)
    for _ in range(CALLS):
        module = nn.Linear(3, 3)
        assert torch.equal(compiled(module, x), module(x) + 1)
        alive.append(module if kept else weakref.ref(module))
        del module
    assert backend.graphs == 1
    gc.collect()
    assert kept or not any(ref() is not None for ref in alive)


def test_a_backend_that_binds_parameters_is_called_for_others():
    def backend(gm, examples):
        marks = [n.meta.get("static") for n in gm.graph.nodes if n.op == "placeholder"]
        graphs.append(marks)

        def run(*varying):
            left = iter(varying)
            return gm.forward(*[x if s else next(left) for x, s in zip(examples, marks)])

        run.binds_static = True
        return run

    graphs, model, x = [], nn.Linear(3, 3), torch.randn(4, 3)
    compiled = dynamo.compile(model, backend=backend)
    for _ in range(CALLS):
        assert torch.equal(compiled(x), model(x))
        model.weight = nn.Parameter(torch.randn(3, 3))
    assert 1 < len(graphs) <= SOON


@pytest.mark.parametrize("lazily", [False, True])
def test_a_backend_that_wraps_one_which_holds_parameters_sees_others(lazily):
    def backend(gm, examples):
        made = [] if lazily else [inductor(gm, examples)]

        def run(*inputs):
            if not made:
                made.append(inductor(gm, list(inputs)))
            return made[0](*inputs)

        return run

    inductor, model, x = dynamo.lookup_backend("inductor"), nn.Linear(3, 3), torch.randn(4, 3)
    compiled = dynamo.compile(model, backend=backend)
    for _ in range(CALLS):
        torch.testing.assert_close(compiled(x), model(x))
        model.weight = nn.Parameter(torch.randn(3, 3))


def test_a_parameter_of_another_kind_needs_a_graph_of_its_own():
    backend, model, x = CountingBackend(), nn.Linear(3, 3), torch.randn(4, 3)
    compiled = dynamo.compile(model, backend=backend)
    others = [torch.randn(3, 3, dtype=torch.float64), torch.randn(5, 3), torch.randn(3, 3).T]
    for number, other in enumerate(others):
        assert torch.equal(compiled(x), model(x))
        assert backend.graphs == number + 1
        model.weight, model.bias = nn.Parameter(other), None
        x = x.to(other.dtype)
    assert torch.equal(compiled(x), model(x))


def test_a_keyword_that_was_left_to_its_default_has_varied():
    class Scaled(nn.Module):
        def forward(self, x, by=1.0, *, shift=0):
            return x * by + shift

    backend, model, x = CountingBackend(), Scaled(), torch.ones(3)
    compiled = dynamo.compile(model, backend=backend)
    for by in (2.0, 3.0, 4.5):
        for kwargs in ({}, {"by": by}, {"by": by, "shift": int(by)}):
            assert torch.equal(compiled(x, **kwargs), model(x, **kwargs))
    assert backend.graphs == 3


class _Masked(nn.Module):
    def forward(self, x, mask=None, *, scale=1.0):
        return (x if mask is None else x * mask) * scale


X, MASK = torch.arange(3.0), torch.tensor([1.0, 0.0, 2.0])
FORMS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((X, MASK), {}),
    ((X,), {"mask": MASK}),
    ((), {"x": X, "mask": MASK}),
    ((), {"mask": MASK, "x": X}),
    ((X, MASK), {"scale": 1.0}),
]


def test_one_graph_however_arguments_are_given():
    backend, model = CountingBackend(), _Masked()
    compiled = dynamo.compile(model, backend=backend)
    for args, kwargs in FORMS:
        assert torch.equal(compiled(*args, **kwargs), model(*args, **kwargs))
    assert backend.graphs == 1
    for args, kwargs in (((X,), {}), ((X, None), {}), ((), {"x": X})):
        assert torch.equal(compiled(*args, **kwargs), model(*args, **kwargs))
    assert backend.graphs == 2


def test_further_arguments_stay_apart():
    class Further(nn.Module):
        def forward(self, x, by=2, /, *more, shift=0, **others):
            return x * by + sum(more) + shift, more, list(others.items())

    model = Further()
    compiled = dynamo.compile(model, backend="eager")
    for args, kwargs in (
        ((X,), {}),
        ((X, 3, 4, 5), {"shift": 1}),
        ((X, 3), {"b": 1, "shift": 2, "a": 3}),
        ((X,), {"by": 4, "x": 5}),
    ):
        one, other = compiled(*args, **kwargs), model(*args, **kwargs)
        assert torch.equal(one[0], other[0]) and one[1:] == other[1:]


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((), {}),
        ((X, X, X), {}),
        ((X,), {"x": X}),
        ((X,), {"other": 1}),
        ((X,), {"scale": 1, "y": 2}),
    ],
)
def test_wrong_arguments_raise_as_in_eager(args, kwargs):
    messages = []
    for model in (_Masked(), dynamo.compile(_Masked(), backend="eager")):
        with pytest.raises(TypeError) as raised:
            model(*args, **kwargs)
        messages.append(str(raised.value))
    assert messages[0] == messages[1]


def test_hooks_and_own_methods_see_arguments_as_given():
    def hooked(model, seen):
        model.register_forward_pre_hook(
            lambda module, args, kwargs: seen.append((len(args), sorted(kwargs))), with_kwargs=True
        )

    def replaced(model, seen):
        forward = model.forward

        def instead(*args, **kwargs):
            seen.append((len(args), sorted(kwargs)))
            return forward(*args, **kwargs)

        model.forward = instead

    for change in (hooked, replaced):
        found = []
        for run in (lambda model: model, lambda model: dynamo.compile(model, backend="eager")):
            model, seen = _Masked(), []
            called = run(model)
            results = [called(*args, **kwargs) for args, kwargs in FORMS]
            change(model, seen)
            results += [called(*args, **kwargs) for args, kwargs in FORMS]
            found.append((torch.stack(results).tolist(), seen))
        assert found[0] == found[1] and len(found[0][1]) == len(FORMS)


def test_methods_of_a_class_take_no_module():
    class Static(nn.Module):
        @staticmethod
        def forward(x, by=2.0, shift=3.0):
            return x * by + shift

    class OfClass(nn.Module):
        unit = 5.0

        @classmethod
        def forward(cls, x, by=2.0, shift=3.0):
            return x * by + shift * cls.unit

    for model in (Static(), OfClass()):
        compiled = dynamo.compile(model, backend="eager")
        for args, kwargs in (((X,), {}), ((X, 4.0), {}), ((), {"x": X, "shift": 5.0})):
            assert torch.equal(compiled(*args, **kwargs), model(*args, **kwargs))


def test_defaults_and_methods_that_change():
    class Changing(nn.Module):
        def forward(self, x, by=2.0, *, shift=1):
            return x * by + shift

    model = Changing()
    compiled = dynamo.compile(model, backend="eager")
    assert torch.equal(compiled(X), X * 2 + 1)
    Changing.forward.__defaults__ = (3.0,)
    assert torch.equal(compiled(X), X * 3 + 1)
    Changing.forward.__kwdefaults__["shift"] = 5
    assert torch.equal(compiled(X), X * 3 + 5)
    Changing.forward = lambda self, x, other=4: x + other
    assert torch.equal(compiled(X), X + 4)
    assert torch.equal(compiled(X, other=1), X + 1)
