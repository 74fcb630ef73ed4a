"""Objects of the program as arguments of custom operators."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn
from torch._library.opaque_object import register_opaque_type
from torch._opaque_base import OpaqueBase

import dynamo


class Counter(OpaqueBase):
    """Passed by reference."""

    def __init__(self, number):
        self.number = number


class Scale(OpaqueBase):
    """Passed by value."""

    def __init__(self, number):
        self.number = number

    def __eq__(self, other):
        return self.number == other.number

    def __hash__(self):
        return hash(self.number)

    def __fx_repr__(self):
        return f"Scale({self.number})", {"Scale": Scale}


register_opaque_type(Counter, typ="reference")
register_opaque_type(Scale, typ="value")


@torch.library.custom_op("framegraph_opaque::counted", mutates_args=())
def counted(x: torch.Tensor, counter: Counter) -> torch.Tensor:
    counter.number += 1
    return x + counter.number


@torch.library.custom_op("framegraph_opaque::scaled", mutates_args=())
def scaled(x: torch.Tensor, scale: Scale) -> torch.Tensor:
    return x * scale.number


@counted.register_fake
@scaled.register_fake
def _(x, _):
    return torch.empty_like(x)


def program(x, counter, scale):
    return counted(x, counter) * scaled(x.sin(), scale) + scaled(x, Scale(3))


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_operators_take_objects(backend):
    compiled = dynamo.compile(program, backend=backend, fullgraph=True)
    x, worlds = torch.arange(4.0), []
    for run in (program, compiled):
        first, second, scale = Counter(1), Counter(20), Scale(7)
        calls = [(first, Scale(1)), (first, Scale(1)), (second, Scale(1)), (second, Scale(5))]
        results = [run(x, *call) for call in calls]
        results.append(run(x, first, scale))
        scale.number = 8
        worlds.append([*results, run(x, first, scale), torch.tensor([first.number, second.number])])
    torch.testing.assert_close(worlds[1], worlds[0])
    assert len(compiled.context.records) == 4  # a scale that changes stays equal to itself


def test_an_object_that_the_frame_made_or_changed_breaks():
    def made(x):
        return counted(x + 1, Counter(4)) * 2

    def changed(x, counter):
        counter.number = 30
        return counted(x + 1, counter) * 2

    x = torch.ones(3)
    assert torch.equal(dynamo.compile(made, backend="eager")(x), made(x))
    counter, other = Counter(1), Counter(2)
    assert torch.equal(dynamo.compile(changed, backend="eager")(x, counter), changed(x, other))
    assert counter.number == other.number == 31


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        options = {} if kind.endswith("Cell") else {"num_layers": 2, "bidirectional": True}
        self.layer = getattr(nn, kind)(8, 6, **options)
        self.linear = nn.Linear(6 if kind.endswith("Cell") else 12, 4)

    def forward(self, x):
        made = self.layer(x)
        return self.linear(made if self.kind in ("GRUCell", "RNNCell") else made[0]).relu()


def feed_forward():
    return nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3))


# Name -> a module, the type of its packed weights, the dimensions of its input.
QUANTISED = {
    "linear": (feed_forward, torch.qint8, 3),
    "linear of float16": (feed_forward, torch.float16, 2),
    **{
        kind: (lambda kind=kind: Recurrent(kind), torch.qint8, 2 if kind.endswith("Cell") else 3)
        for kind in ("LSTM", "GRU", "LSTMCell", "GRUCell", "RNNCell")
    },
}


def quantise(make, dtype):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.ao is to move elsewhere
        return torch.ao.quantization.quantize_dynamic(make().eval(), dtype=dtype)


@pytest.mark.skipif(
    not {"fbgemm", "x86"} & set(torch.backends.quantized.supported_engines),
    reason="torch without quantised layers",
)
@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("name", QUANTISED)
def test_dynamically_quantised_layers_are_operators_of_the_graph(name, backend):
    make, dtype, dims = QUANTISED[name]
    torch.manual_seed(0)
    model, other = quantise(make, dtype), quantise(make, dtype)
    compiled = dynamo.compile(lambda x: model(x), backend=backend, fullgraph=True)
    with torch.no_grad():
        for rows in (2, 3, 5, 1, 7):
            x = torch.randn(*[4] * (dims - 2), rows, 8)
            torch.testing.assert_close(compiled(x), model(x))
        assert len(compiled.context.records) <= 3
        model.load_state_dict(other.state_dict())  # other objects in the place of the first
        torch.testing.assert_close(compiled(x), other(x))


def prepared():
    model = feed_forward().train()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.qconfig = torch.ao.quantization.get_default_qat_qconfig("x86")
        return torch.ao.quantization.prepare_qat(model)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_observers_whose_first_call_makes_their_statistics_larger(backend):
    torch.manual_seed(0)
    model, eager = prepared(), prepared()
    eager.load_state_dict(model.state_dict())
    compiled = dynamo.compile(model, backend=backend)
    for rows in (3, 3, 5):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(compiled(x), eager(x))
        state, wanted = model.state_dict(), eager.state_dict()
        assert {key: value.shape for key, value in state.items()} == {
            key: value.shape for key, value in wanted.items()
        }
        torch.testing.assert_close(dict(state), dict(wanted))


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_packed_tables_of_embeddings(backend):
    """Torch's fake tensors compare the packed table, which refuses."""
    table = torch.ao.nn.quantized.EmbeddingBag(10, 8, include_last_offset=True, mode="sum")
    compiled = dynamo.compile(lambda i, at: table(i, at) * 2, backend=backend, fullgraph=True)
    for bags in ([0, 2, 4], [0, 1, 4], [0, 0, 4]):
        i, at = torch.tensor([1, 2, 3, 4]), torch.tensor(bags)
        torch.testing.assert_close(compiled(i, at), table(i, at) * 2)


_drawn = iter(range(100))


@torch.library.custom_op("framegraph_opaque::numbered", mutates_args=())
def numbered(x: torch.Tensor) -> torch.Tensor:
    return x + next(_drawn)


@numbered.register_fake
def _(x):
    return torch.empty_like(x)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_equal_calls_are_calls_each(backend):
    """An operator may draw its numbers from a generator of the program's."""
    compiled = dynamo.compile(lambda x: numbered(x) - numbered(x), backend=backend)
    assert compiled(torch.zeros(2)).tolist() == [-1, -1]
