"""symbolic_trace: what is traced, what stays a call, and what it refuses."""

import pytest
import torch
import torch.nn.functional as F

import fxgraph
from fxgraph import TraceError, symbolic_trace, verify


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 4)
        self.scale = torch.nn.Parameter(torch.ones(4))

    def forward(self, x, *, shift: float = 1.0):
        return F.relu(self.fc(x)) * self.scale + shift


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.Sequential(Block(), Block())
        self.register_buffer("mask", torch.tensor([1.0, 0, 1, 0]))

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x)
        return x * self.mask, x.shape[0], x.T.contiguous()


def test_module():
    net = Net()
    gm = symbolic_trace(net)
    verify(gm.graph)
    x = torch.randn(3, 4)
    ours, theirs = gm(x), net(x)
    assert torch.equal(ours[0], theirs[0]) and ours[1] == 3 and torch.equal(ours[2], theirs[2])
    assert [n.target for n in gm.graph.find_nodes(op="call_module")] == [
        "blocks.0.fc", "blocks.1.fc",
    ]  # fmt: skip
    assert gm.blocks.get_submodule("0").fc is net.blocks[0].fc
    assert type(net(x)[0]) is torch.Tensor  # nothing stays patched


def test_function_with_constants_and_defaults():
    c = torch.ones(2)

    def f(x, y=3):
        z = 2 - x @ c
        z **= 2
        return torch.stack([z, z]), abs(-z), ~(z > 0) & (z != y)

    gm = symbolic_trace(f)
    x = torch.randn(3, 2)
    for one, other in zip(gm(x), f(x)):
        assert torch.equal(one, other)
    fixed = symbolic_trace(f, {"y": 5})
    assert len(fixed.graph.find_nodes(op="placeholder")) == 1


def test_unpacking_knows_the_count():
    gm = symbolic_trace(lambda x: (lambda a, b: a + b)(*_pair(x)))
    assert torch.equal(gm(torch.arange(4.0)), torch.tensor([2.0, 4.0]))


def _pair(x):
    a, b = x.split(2)
    return a, b


@pytest.mark.parametrize(
    "fn, text",
    [
        (lambda x: x if x.sum() > 0 else -x, "control flow"),
        (lambda x: [y for y in x], "iterated"),
        (lambda x: range(x.shape[0]), "integer"),
        (lambda x: len(x), "length"),
        (lambda x: float(x), "float"),
        (lambda x: 3 in x, "asks for the value"),
    ],
)
def test_errors_say_what_was_asked(fn, text):
    with pytest.raises(TraceError, match=text):
        symbolic_trace(fn)


def test_patches_are_undone_after_an_error():
    call = torch.nn.Module.__call__

    class Bad(torch.nn.Module):
        def forward(self, x):
            return 1 if x else 2

    with pytest.raises(TraceError):
        symbolic_trace(Bad())
    assert torch.nn.Module.__call__ is call


def test_own_leaves():
    class Shallow(fxgraph.Tracer):
        def is_leaf_module(self, m, name):
            return isinstance(m, Block) or super().is_leaf_module(m, name)

    graph = Shallow().trace(Net())
    assert [n.target for n in graph.find_nodes(op="call_module")] == ["blocks.0", "blocks.1"]
