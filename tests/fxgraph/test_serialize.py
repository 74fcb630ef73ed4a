"""Graphs as text; the bridge to torch.fx."""

import json
import operator

import pytest
import torch
import torch.nn.functional as F

import fxgraph
from fxgraph import Graph, serialize, verify
from fxgraph.aot import functionalize, run_functional
from fxgraph.torch_fx import fake_tensor_mode, from_torch_fx, to_torch_fx


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 3)

    def forward(self, x):
        y = F.gelu(self.fc(x), approximate="tanh").to(torch.float64)
        z = y[..., :2, None].expand(-1, -1, 5)
        return torch.cat([z, z], dim=-1).masked_fill(z.sum() > 0, float("-inf")), x.shape


def test_round_trip_of_a_torch_level_graph():
    gm = fxgraph.symbolic_trace(Net())
    text = serialize.dumps(gm.graph, indent=1)
    back = serialize.loads(text, gm)
    verify(back.graph)
    assert back.code == gm.code
    assert serialize.dumps(back.graph, indent=1) == text
    x = torch.randn(2, 4)
    assert torch.equal(back(x)[0], gm(x)[0])


def test_round_trip_of_a_functional_graph():
    gm = fxgraph.symbolic_trace(Net().requires_grad_(False))
    x = torch.randn(2, 4)
    functional = functionalize(gm, [x])
    graph = functional.graph_module.graph
    back = serialize.loads(serialize.dumps(graph), functional.graph_module)
    assert back.code == functional.graph_module.code
    values = [n.meta["val"] for n in back.graph.nodes if "val" in n.meta]
    assert values[0].shape == (2, 4) and values[0].is_meta
    functional.graph_module = back
    assert torch.equal(run_functional(functional, [x])[0], gm(x)[0])


def test_every_kind_of_argument():
    g = Graph()
    x = g.placeholder("x")
    args = (
        1, -2.5, True, None, "s", float("nan"), 1j, torch.float16, torch.device("cpu"),
        torch.strided, torch.channels_last, torch.Size([1, 2]), (x, [x]), {"k": (1,), 2: x},
        slice(None, x, 2), ...,
    )  # fmt: skip
    g.output(args)
    text = serialize.dumps(g)
    assert serialize.dumps(serialize.loads(text).graph) == text


@pytest.mark.parametrize(
    "target",
    [
        "os.system", "eval", "__import__", "torch.os.system", "torch.load", "torch.hub.load",
        "torch.ops.load_library", "torch.from_file", "builtins.eval", "torch.nonsense",
        "operator.nothing",
        "torch._C.os", "operator.attrgetter", "torch.Tensor.__reduce__.__call__",
        "torch.serialization.load",
    ],
)  # fmt: skip
def test_calls_that_a_file_may_not_make(target):
    row = {"name": "f", "op": "call_function", "target": target, "args": [], "kwargs": {}}
    with pytest.raises(serialize.SerializeError):
        serialize.loads(json.dumps({"version": 1, "nodes": [row]}))


def test_damaged_text():
    for text in (
        "",
        "[]",
        "{}",
        '{"version": 1, "nodes": [{"name": "x"}]}',
        '{"version": 9, "nodes": []}',
    ):
        with pytest.raises(serialize.SerializeError):
            serialize.loads(text)
    g = Graph()
    g.output(object())
    with pytest.raises(serialize.SerializeError, match="object"):
        serialize.dumps(g)
    g = Graph()
    g.output(g.call_function(lambda: 1))
    with pytest.raises(serialize.SerializeError, match="lambda"):
        serialize.dumps(g)


class TestBridge:
    def test_there_and_back(self):
        gm = fxgraph.symbolic_trace(Net())
        first = next(iter(gm.graph.nodes))
        first.meta["val"] = fake_tensor_mode().from_tensor(torch.randn(2, 4))
        first.stack_trace = "here"
        gm.meta["compile_id"] = "0/0"
        theirs = to_torch_fx(gm)
        theirs.graph.lint()
        x = torch.randn(2, 4)
        assert torch.equal(theirs(x)[0], gm(x)[0])
        assert theirs.fc is gm.fc and theirs.meta["compile_id"] == "0/0"
        node = next(iter(theirs.graph.nodes))
        assert node.meta["example_value"] is first.meta["val"] is node.meta["val"]
        assert node.stack_trace == "here"
        assert [n.name for n in theirs.graph.nodes] == [n.name for n in gm.graph.nodes]
        ours = from_torch_fx(theirs)
        verify(ours.graph)
        assert ours.code == gm.code
        assert all(type(leaf) is not list or True for n in ours.graph.nodes for leaf in n.args)

    def test_graph_traced_by_torch_fx(self):
        theirs = torch.fx.symbolic_trace(Net())
        ours = from_torch_fx(theirs)
        verify(ours.graph)
        x = torch.randn(2, 4)
        assert torch.equal(ours(x)[0], theirs(x)[0])
        cat = [n for n in ours.graph.nodes if n.target is torch.cat][0]
        assert type(cat.args[0]) is list and type(cat.kwargs) is dict
        assert operator.getitem in [n.target for n in ours.graph.nodes]


class TestFakeMode:
    def test_is_a_fake_mode(self):
        mode = fake_tensor_mode()
        base = torch.randn(4, 3)
        weight = torch.nn.Parameter(torch.randn(3, 3))
        x, w, view = (
            mode.from_tensor(base),
            mode.from_tensor(weight),
            mode.from_tensor(base[1:].t()),
        )
        assert mode.from_tensor(base) is x
        assert isinstance(w, torch.nn.Parameter) and w.requires_grad and w.is_leaf
        assert view.untyped_storage()._cdata == x.untyped_storage()._cdata
        assert view.stride() == (1, 3) and view.storage_offset() == 3
        y = x @ w
        assert y.shape == (4, 3) and y.requires_grad and y.fake_mode is mode
        with mode:
            assert torch.ones(3).fake_mode is mode


def _calls(*nodes):
    rows = [{"name": "x", "op": "placeholder", "target": "x", "args": [], "kwargs": {}}]
    for number, (op, target, args) in enumerate(nodes):
        row = {"name": f"n{number}", "op": op, "target": target, "args": args, "kwargs": {}}
        rows.append(row)
    rows.append(
        {"name": "output", "op": "output", "target": "output", "args": [None], "kwargs": {}}
    )
    return json.dumps({"version": 1, "nodes": rows})


@pytest.mark.parametrize(
    "node",
    [
        ("call_function", "getattr", [{"node": "x"}, "__class__"]),
        ("call_function", "getattr", [{"node": "x"}, {"node": "x"}]),
        ("call_function", "getattr", [{"node": "x"}, "_backward_hooks", None]),
        ("call_function", "operator.call", [{"node": "x"}]),
        ("call_method", "system", [{"node": "x"}, "true"]),
        ("call_method", "tofile", [{"node": "x"}, "x"]),
        ("call_method", "__reduce_ex__", [{"node": "x"}, 2]),
        ("call_method", "_make_subclass", [{"node": "x"}]),
    ],
    ids=lambda node: f"{node[1]} {len(node[2])}",
)
def test_no_way_from_values_to_code(node):
    with pytest.raises(serialize.SerializeError, match="file"):
        serialize.loads(_calls(node))
