"""What graph.debug prints while a graph is built, level by level, as golden files; and what
settings make of the captured graph.
"""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

import dynamo


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.act = nn.ReLU()
        self.last = nn.Linear(8, 3)

    def forward(self, x):
        return self.last(self.act(self.first(x)))


class Predict(dynamo.Graph):
    def __init__(self, model, **options):
        super().__init__(**options)
        self.model = model

    def build(self, x, scale):
        return self.model(x) * scale["by"]


def told(level, capsys, backend="aot_eager"):
    dynamo.reset()
    torch.manual_seed(0)
    graph = Predict(Net(), backend=backend)
    graph.debug(level)
    with torch.no_grad():
        graph(torch.ones(2, 4), {"by": torch.ones(3)})
    text = capsys.readouterr().out.replace(graph.name, "Predict_0")
    text = re.sub(r"\d+\.\d+ s", "0.00 s", text)
    return re.sub(r'File "[^"]*[/\\]([^"/\\]+)", line \d+', r'File "\1", line 0', text)


@pytest.mark.parametrize("level", range(4))
def test_debug(level, capsys, golden):
    golden(f"static_graph/debug_{level}.txt", told(level, capsys))


def test_each_level_tells_what_the_one_below_does(capsys):
    levels = [told(level, capsys).splitlines() for level in range(-1, 4)]
    assert not levels[0]
    for less, more in zip(levels[1:], levels[2:]):
        assert set(less) < set(more)


def test_the_last_level_tells_kernels_and_memory(capsys):
    text = told(3, capsys, backend="inductor")
    (count,) = re.findall(r"^  kernels: (\d+)$", text, re.M)
    kernels = re.findall(r"^  \(KERNEL:(\w+):(.+)\) fuses (\d+) operations?$", text, re.M)
    assert len(kernels) == int(count) > 0, text
    assert len({name for name, _, _ in kernels}) == len(kernels)
    # The activation, and the multiplication behind the last layer.
    assert any("maximum" in what or "relu" in what for _, what, _ in kernels), text
    assert any("mul" in what for _, what, _ in kernels), text
    assert re.search(r"^  memory: at most [\d.]+ (MiB|bytes) at once", text, re.M), text


def test_turned_off_and_other_ranks(capsys):
    graph = Predict(Net(), backend="aot_eager")
    graph.debug(1, ranks=1)  # another process
    graph(torch.ones(2, 4), {"by": torch.ones(3)})
    assert not capsys.readouterr().out
    graph.debug(0, ranks=[0, 1])
    graph.debug(-1)
    graph.to(torch.float64)
    graph(torch.ones(2, 4).double(), {"by": torch.ones(3).double()})
    assert not capsys.readouterr().out
    graph.debug(0, ranks=-1)
    graph.to(torch.float32)
    graph(torch.ones(2, 4), {"by": torch.ones(3)})
    assert "end building graph" in capsys.readouterr().out


# -- the captured graph ---------------------------------------------------------------------------
class Train(dynamo.Graph):
    def __init__(self, model, backend):
        super().__init__(backend=backend)
        self.model = model
        self.add_optimizer(torch.optim.SGD(model.parameters(), 0.1))

    def build(self, x):
        loss = self.model(x).square().mean()
        loss.backward()
        return loss


def captured(prepare):
    """Functional graph of a training step: what the tracer made of it."""
    from fxgraph.aot import functionalize_training

    graphs = []

    def keep(gm, example_inputs):
        graphs.append(functionalize_training(gm, example_inputs).graph_module.graph)
        return gm.forward

    torch.manual_seed(0)
    graph = Train(Net(), keep)
    prepare(graph)
    graph(torch.randn(6, 4))
    (found,) = graphs
    return found


def products(graph):
    aten = torch.ops.aten
    nodes = (node for node in graph.nodes if node.target in (aten.mm.default, aten.addmm.default))
    return [node.meta["val"] for node in nodes]


def test_mixed_precision_is_in_the_graph():
    plain = products(captured(lambda graph: None))
    assert {value.dtype for value in plain} == {torch.float32}
    for dtype in (torch.bfloat16, torch.float16):
        mixed = captured(lambda graph: graph.config.enable_amp(dtype=dtype))
        assert {value.dtype for value in products(mixed)} == {dtype}
        assert len(products(mixed)) == len(plain)
        # Parameters are updated in their own type.
        writes = mixed.find_nodes(op="call_function", target=torch.ops.aten.copy_.default)
        assert len(writes) == 4 and all(n.meta["val"].dtype is torch.float32 for n in writes)
    off = captured(lambda graph: (graph.config.enable_amp(), graph.config.enable_amp(False)))
    assert {value.dtype for value in products(off)} == {torch.float32}


def test_parts_of_accumulation_are_in_the_graph():
    plain = products(captured(lambda graph: None))
    parts = products(captured(lambda graph: graph.config.set_gradient_accumulation_steps(3)))
    assert len(parts) == 3 * len(plain)
    assert {value.shape[0] for value in parts} == {2, 3, 8}  # rows of a part; of the weights


def test_one_graph_updates_all_parameters():
    """Forward, backward and optimizer: the graph writes each parameter once."""
    graph = captured(lambda graph: None)
    writes = graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default)
    assert len({node.args[0] for node in writes}) == len(writes) == 4
