"""Memory of static graphs: activation checkpointing and limits, by the plan's peak and by eager."""

from __future__ import annotations

import copy
import sys

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import dynamo
from dynamo.errors import GraphError
from fxgraph.aot import recompute


class Blocks(nn.Module):
    """Wide layers between narrow ones, with dropout."""

    def __init__(self, count=3, size=32, p=0.0):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Linear(size, 4 * size),
                nn.Tanh(),
                nn.Dropout(p),
                nn.Linear(4 * size, 4 * size),
                nn.Tanh(),
                nn.Linear(4 * size, size),
            )
            for _ in range(count)
        )

    def forward(self, x, call=lambda block, x: block(x)):
        for block in self.blocks:
            x = x + call(block, x)
        return x


class Train(dynamo.Graph):
    def __init__(self, model, **options):
        super().__init__(**options)
        self.model = model
        self.add_optimizer(torch.optim.SGD(model.parameters(), 0.1, momentum=0.9))

    def build(self, x):
        loss = self.model(x).square().mean()
        loss.backward()
        return loss


def recomputed(block, x):
    return checkpoint(block, x, use_reentrant=False)


def eager_steps(model, x):
    """The program of set_activation_checkpointing's docstring."""
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    losses = []
    for seed in range(3):
        torch.manual_seed(seed)
        optimizer.zero_grad()
        loss = model(x, recomputed).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def check(graph, x, expected, model):
    for seed, loss in enumerate(expected):
        torch.manual_seed(seed)
        torch.testing.assert_close(graph(x), loss)
    torch.testing.assert_close(graph.model.state_dict(), model.state_dict())


def peaks(graph):
    records = graph._graph.context.records
    return [captured.report["peak_bytes"] for record in records for captured in record.graphs]


def repeated(monkeypatch):
    """A list to which each trace adds how many operators it has computed again."""
    counts = []

    def counting(graph, real=recompute.recompute):
        counts.append(real(graph))
        return counts[-1]

    monkeypatch.setattr(sys.modules["fxgraph.aot.functionalize"], "recompute", counting)
    return counts


def test_checkpointing_and_limits_need_less_memory():
    torch.manual_seed(0)
    model, x = Blocks(4), torch.randn(256, 32)
    # Which library computes a product is measured, and decides over memory: not here.
    graphs = [Train(copy.deepcopy(model), options={"tuning": "off"}) for _ in range(5)]
    plain, checkpointed, limited, loose, narrow = graphs
    checkpointed.config.set_activation_checkpointing(*checkpointed.model.blocks)
    expected = eager_steps(model, x)
    check(plain, x, expected, model)
    check(checkpointed, x, expected, model)
    usual, less = max(peaks(plain)), max(peaks(checkpointed))
    assert less < 0.7 * usual

    # A limit between the two takes effect, one above changes nothing, one below is an error.
    limited.config.set_memory_limit((usual + less) // 2)
    loose.config.set_memory_limit(usual)
    check(limited, x, expected, model)
    check(loose, x, expected, model)
    assert max(peaks(limited)) == less and max(peaks(loose)) == usual
    assert f"GraphConfig(training=True, memory_limit={usual}, )" in str(loose)
    narrow.config.set_memory_limit(less // 2)
    before = copy.deepcopy(narrow.model.state_dict())
    with pytest.raises(GraphError, match=rf"needs {less} bytes at once with 4 blocks checkpointed"):
        narrow(x)
    torch.testing.assert_close(narrow.model.state_dict(), before, rtol=0, atol=0)
    narrow.config.set_memory_limit(None)
    check(narrow, x, expected, model)


def test_a_prediction_over_its_limit_and_a_backend_without_plans():
    class Predict(dynamo.Graph):
        def build(self, x):
            return torch.softmax(x @ x.T, -1) @ x

    graph = Predict()
    graph.config.set_memory_limit(64)
    with pytest.raises(
        GraphError, match=r"needs \d+ bytes at once, over its memory limit of 64: acc"
    ):
        graph(torch.randn(16, 16))
    graph = Predict(backend="aot_eager")
    graph.config.set_memory_limit(64)
    with pytest.raises(GraphError, match="no plan: its backend makes none"):
        graph(torch.randn(16, 16))
    for bad in (0, -1, 1.5, True):
        with pytest.raises(GraphError, match="positive number of bytes"):
            graph.config.set_memory_limit(bad)


class Twice(Blocks):
    """One block called twice, the second time on what follows the first."""

    def forward(self, x, call=lambda block, x: block(x)):
        first, second, _ = self.blocks
        return call(second, call(first, call(first, x)).sin())


class Nested(nn.Module):
    """A checkpointed block inside of a checkpointed module."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Blocks(2)])

    def forward(self, x, call=None):
        if call is None:
            return self.blocks[0](x)
        return checkpoint(self.blocks[0], x, call, use_reentrant=False)


class Normed(Blocks):
    """Batch norms, which a checkpoint runs twice: their statistics move twice."""

    def __init__(self):
        super().__init__(2)
        for block in self.blocks:
            block.insert(1, nn.BatchNorm1d(128))


# name -> (model, whether operators are computed again in the one graph)
PROGRAMS = {
    "blocks": (Blocks, True),
    "dropout": (lambda: Blocks(p=0.5), True),
    "twice": (Twice, True),
    "nested": (Nested, True),
    "double": (lambda: Blocks().double(), True),
    "batch_norm": (Normed, False),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_checkpointed_step_is_eagers(name, monkeypatch):
    make, again = PROGRAMS[name]
    counts = repeated(monkeypatch)
    torch.manual_seed(0)
    model = make()
    x = torch.randn(8, 32, dtype=next(model.parameters()).dtype)
    graph = Train(copy.deepcopy(model), backend="aot_eager")
    inner = [block for part in graph.model.blocks for block in getattr(part, "blocks", ())]
    graph.config.set_activation_checkpointing(*graph.model.blocks, *inner)
    check(graph, x, eager_steps(model, x), model)
    assert any(counts) == again


def test_what_is_computed_again():
    """Each product of the block whose result backward reads, next to backward; nothing without."""
    torch.manual_seed(0)
    graphs = []

    def keep(gm, example_inputs):
        from fxgraph.aot import functionalize_training

        graphs.append(functionalize_training(gm, example_inputs).graph_module.graph)
        return gm.forward

    for checkpointed in (False, True):
        model = Blocks(2)
        graph = Train(model, backend=keep)
        if checkpointed:
            graph.config.set_activation_checkpointing(*model.blocks)
        graph(torch.randn(8, 32))
    tanh, mm = torch.ops.aten.tanh.default, torch.ops.aten.mm.default
    found = []
    for one in graphs:
        nodes = list(one.nodes)
        again = [
            i
            for i, node in enumerate(nodes)
            if node.target is tanh and node.meta.get("part") == "backward"
        ]
        assert sum(node.target is tanh for node in nodes) == 4 + len(again)
        found.append((nodes, again))
    assert not found[0][1]
    nodes, (_, last, first, _) = found[1]
    # The last block's backward stands between what it needs and what the first block's needs.
    assert sum(node.target is mm for node in nodes[last:first]) >= 6
