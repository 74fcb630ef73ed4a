"""Models traced by symbolic_trace and functionalised: equal to eager, in train and in eval mode."""

import copy
import operator

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import fxgraph
from fxgraph.aot import functionalize, run_functional
from fxgraph.passes import cse

aten = torch.ops.aten


class Residual(nn.Module):
    def __init__(self, c_in, c_out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(c_in, c_out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(c_out)
        self.conv2 = nn.Conv2d(c_out, c_out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(c_out)
        self.relu = nn.ReLU(inplace=True)
        self.down = None
        if stride != 1:
            self.down = nn.Sequential(
                nn.Conv2d(c_in, c_out, 1, stride, bias=False), nn.BatchNorm2d(c_out)
            )

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += x if self.down is None else self.down(x)
        return self.relu(y)


class SmallResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 7, 2, 3, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        self.blocks = nn.Sequential(Residual(8, 8, 1), Residual(8, 16, 2))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.drop = nn.Dropout(0.3)
        self.fc = nn.Linear(16, 5)

    def forward(self, x):
        x = self.blocks(self.stem(x))
        return (self.fc(self.drop(torch.flatten(self.pool(x), 1))),)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))


class SmallTransformer(nn.Module):
    def __init__(self, width=32, heads=4):
        super().__init__()
        self.tokens = nn.Embedding(50, width)
        self.positions = nn.Parameter(torch.randn(16, width))
        self.register_buffer("mask", torch.ones(16, 16, dtype=torch.bool).tril())
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.attention = nn.ModuleList(Attention(width, heads) for _ in range(2))
        self.ff = nn.Sequential(nn.Linear(width, 64), nn.GELU(), nn.Linear(64, width))
        self.head = nn.Linear(width, 50, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids):
        x = self.tokens(ids) + self.positions
        for norm, attention in zip(self.norms, self.attention):
            x = x + attention(norm(x))
            x = x + self.ff(x)
        scores = (x @ x.transpose(-1, -2)).masked_fill(~self.mask, float("-inf")).softmax(-1)
        return self.head(scores @ x), x[:, -1]


def inputs_of(net):
    generator = torch.Generator().manual_seed(0)
    if isinstance(net, SmallTransformer):
        return [torch.randint(0, 50, (2, 16), generator=generator)]
    return [torch.randn(2, 3, 33, 33, generator=generator)]


@pytest.mark.parametrize("make", [SmallResNet, SmallTransformer])
@pytest.mark.parametrize("training", [False, True])
def test_equals_eager(make, training):
    torch.manual_seed(0)
    net = make().train(training)
    reference = copy.deepcopy(net)
    inputs = inputs_of(net)
    gm = fxgraph.symbolic_trace(net)
    functional = functionalize(gm, inputs)
    graph = functional.graph_module.graph
    fxgraph.verify(graph)
    for call in range(2):
        torch.manual_seed(call)
        actual = run_functional(functional, inputs)
        torch.manual_seed(call)
        with torch.no_grad():
            expected = reference(*inputs)
        torch.testing.assert_close(tuple(actual), tuple(expected))
        assert [t.stride() for t in actual] == [t.stride() for t in expected]
    for (name, one), (_, other) in zip(net.named_buffers(), reference.named_buffers()):
        torch.testing.assert_close(one, other, msg=name)
    cse(graph)
    fxgraph.verify(graph)
    with torch.no_grad():
        torch.manual_seed(7)
        actual = run_functional(functional, inputs)
        torch.manual_seed(7)
        torch.testing.assert_close(tuple(actual), tuple(reference(*inputs)))


def test_libraries_get_their_operators_whole():
    net = SmallTransformer().eval()
    functional = functionalize(fxgraph.symbolic_trace(net), inputs_of(net))
    targets = {n.target for n in functional.graph_module.graph.nodes if n.op == "call_function"}
    targets.discard(operator.getitem)
    assert aten._scaled_dot_product_flash_attention_for_cpu.default in targets
    assert {aten.native_layer_norm.default, aten.addmm.default, aten.gelu.default} <= targets
    assert {aten._softmax.default, aten.embedding.default} <= targets
    names = {target._schema.name for target in targets}
    assert not names & {"aten::linear", "aten::matmul", "aten::t", "aten::transpose"}


def test_resnet_operators(golden):
    torch.manual_seed(0)
    net = SmallResNet().eval()
    functional = functionalize(fxgraph.symbolic_trace(net), inputs_of(net))
    golden("fxgraph/small_resnet_eval.txt", functional.graph_module.print_readable(False))
    net.train()
    functional = functionalize(fxgraph.symbolic_trace(net), inputs_of(net))
    golden("fxgraph/small_resnet_train.txt", functional.graph_module.print_readable(False))
