"""Graph, Node, GraphModule, printing, Interpreter, verify."""

import copy
import gc
import linecache
import operator
import pickle
import traceback
import weakref

import pytest
import torch

import fxgraph
from fxgraph import Graph, GraphError, GraphModule, Interpreter, Node, map_arg, verify


def small():
    g = Graph()
    x, y = g.placeholder("x"), g.placeholder("y")
    a = g.call_function(torch.add, (x, y))
    b = g.call_method("relu", (a,))
    g.output((b,))
    return g, (x, y, a, b)


class TestNames:
    def test_style(self):
        g = Graph()
        x = g.placeholder("l_x_")
        names = [
            g.call_function(torch.relu, (x,)).name,
            g.call_function(torch.relu, (x,)).name,
            g.call_function(operator.add, (x, 1)).name,
            g.call_function(max, (x,)).name,
            g.call_method("view", (x, -1)).name,
            g.call_method("__getitem__", (x, 0)).name,
            g.call_function(torch.ops.aten.add.Tensor, (x, x)).name,
            g.get_attr("layer.0.weight").name,
            g.call_module("layer.0", (x,)).name,
            g.call_function(operator.getitem, (x, 0), name="1st-item").name,
            g.placeholder("class").name,
        ]
        assert names == [
            "relu", "relu_1", "add", "max_1", "view", "getitem", "add_1", "layer_0_weight",
            "layer_0", "_1st_item", "class_1",
        ]  # fmt: skip

    def test_many_equal_names_stay_fast(self):
        g = Graph()
        x = g.placeholder("x")
        for _ in range(5000):
            x = g.call_function(torch.relu, (x,))
        assert x.name == "relu_4999"


class TestEditing:
    def test_users_follow_arguments(self):
        g, (x, y, a, b) = small()
        assert list(x.users) == [a] and a.all_input_nodes == [x, y]
        a.args = (x, x)
        assert list(y.users) == [] and a.all_input_nodes == [x]
        a.update_arg(1, [y, {"k": (y, slice(x, None))}])
        assert set(y.users) == {a}
        a.replace_input_with(y, x)
        assert a.args == (x, [x, {"k": (x, slice(x, None))}])

    def test_insertion_points(self):
        g, (x, y, a, b) = small()
        with g.inserting_before(a):
            first = g.call_function(torch.neg, (x,))
            second = g.call_function(torch.exp, (first,))
        with g.inserting_after(b):
            last = g.call_function(torch.abs, (b,))
        assert [n.name for n in g.nodes] == [
            "x",
            "y",
            "neg",
            "exp",
            "add",
            "relu",
            "abs_1",
            "output",
        ]
        assert first.next is second and last.prev is b

    def test_replace_and_erase(self):
        g, (x, y, a, b) = small()
        with g.inserting_after(a):
            c = g.call_function(torch.mul, (x, y))
        with pytest.raises(RuntimeError, match="used by relu"):
            g.erase_node(a)
        assert a.replace_all_uses_with(c) == [b]
        g.erase_node(a)
        verify(g)
        assert len(g.nodes) == 5 and a not in list(g.nodes)

    def test_iterating_while_erasing(self):
        g, (x, y, a, b) = small()
        for node in g.nodes:
            if node is b:
                node.replace_all_uses_with(a)
                g.erase_node(node)
        for node in reversed(g.nodes):
            if node is a:
                g.output_node().args = ((),)
                g.erase_node(node)
        assert [n.name for n in g.nodes] == ["x", "y", "output"]

    def test_graph_copy_and_find(self):
        g, (x, y, a, b) = small()
        other = Graph()
        mapping = {x: other.placeholder("p"), y: other.placeholder("q")}
        result = other.graph_copy(g, mapping)
        other.output(result)
        verify(other)
        assert other.find_nodes(op="call_method", target="relu") == [mapping[b]]
        assert other.output_node().args[0] == (mapping[b],)

    def test_wrong_nodes(self):
        g = Graph()
        with pytest.raises(ValueError, match="unknown opcode"):
            g.create_node("call", "f")
        with pytest.raises(TypeError, match="must be callable"):
            g.create_node("call_function", "f")
        foreign = Graph().placeholder("x")
        with pytest.raises(ValueError, match="another graph"):
            g.call_function(torch.neg, (foreign,))

    def test_map_arg_keeps_named_tuples(self):
        from collections import namedtuple

        P = namedtuple("P", "a b")
        g, (x, *_) = small()
        assert map_arg(P(x, [x, 1]), lambda n: n.name) == P("x", ["x", 1])


class TestModule:
    def make(self):
        g = Graph()
        x = g.placeholder("x")
        w = g.get_attr("inner.weight")
        y = g.call_module("inner.fc", (x,))
        g.output((g.call_function(torch.mul, (y, w)), None))
        return GraphModule({"inner.fc": torch.nn.Linear(3, 3), "inner.weight": torch.ones(3)}, g)

    def test_runs_and_follows_edits(self):
        gm = self.make()
        x = torch.randn(2, 3)
        assert torch.equal(gm(x)[0], gm.inner.fc(x))
        assert sorted(gm.state_dict()) == ["inner.fc.bias", "inner.fc.weight", "inner.weight"]
        mul = gm.graph.find_nodes(op="call_function")[0]
        mul.target = torch.add
        assert torch.equal(gm(x)[0], gm.inner.fc(x))
        gm.recompile()
        assert torch.equal(gm(x)[0], gm.inner.fc(x) + 1)
        gm.graph = small()[0]
        assert torch.equal(gm(x, x)[0], torch.relu(x + x))

    def test_copies(self):
        gm = self.make()
        gm.meta["k"] = 1
        deep = copy.deepcopy(gm)
        assert deep.code == gm.code and deep.meta == gm.meta
        assert deep.inner.fc.weight is not gm.inner.fc.weight
        assert torch.equal(deep.inner.fc.weight, gm.inner.fc.weight)
        assert all(n.graph is deep.graph for n in deep.graph.nodes)
        shallow = copy.copy(gm)
        assert shallow.inner.fc.weight is gm.inner.fc.weight and shallow.graph is not gm.graph
        with pytest.raises(TypeError, match="serialize"):
            pickle.dumps(gm)

    def test_missing_attribute(self):
        g = Graph()
        g.output(g.get_attr("nowhere.weight"))
        with pytest.raises(AttributeError, match="nowhere.weight"):
            GraphModule(torch.nn.Linear(1, 1), g)

    def test_traceback_shows_generated_line(self):
        def fails(x):
            raise ValueError("on purpose")

        g = Graph()
        x = g.placeholder("x")
        y = g.call_function(fails, (x,))
        y.stack_trace = '  File "model.py", line 7, in forward\n    y = fails(x)\n'
        g.output(y)
        gm = GraphModule({}, g)
        with pytest.raises(ValueError) as caught:
            gm(1)
        assert "fails(x)" in "".join(traceback.format_exception(caught.value))
        with pytest.raises(ValueError) as caught:
            Interpreter(gm).run(1)
        text = "".join(traceback.format_exception(caught.value))
        assert "While executing %fails" in text and "model.py" in text

    def test_nothing_is_left_behind(self):
        before = len(linecache.cache)
        gm = self.make()
        gm(torch.ones(1, 3))
        alive = weakref.ref(gm)
        del gm
        gc.collect()
        assert alive() is None and len(linecache.cache) <= before

    def test_forward_can_be_replaced(self):
        gm = self.make()
        gm.forward = lambda x: x
        assert gm(3) == 3

    def test_unused_submodules(self):
        gm = self.make()
        gm.add_submodule("inner.more.deep", torch.nn.ReLU())
        gm.delete_all_unused_submodules()
        assert [n for n, _ in gm.named_modules()] == ["", "inner", "inner.fc"]


class Printable(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 4)
        self.register_buffer("scale", torch.ones(4))

    def forward(self, x, flag=True, *, z=2.5):
        y = self.fc(x)
        y += self.scale
        y[0, ::2] = float("inf")
        a, b = y.split(2, dim=-1)
        c = torch.cat([a, b], dim=1).to(torch.float64)
        return {"out": (-c, c[..., None], c.shape), "n": torch.zeros(2, device=torch.device("cpu"))}


class TestPrinting:
    def test_code_is_golden_and_runs(self, golden):
        gm = fxgraph.symbolic_trace(Printable())
        golden("fxgraph/printable.py.txt", gm.code)
        golden("fxgraph/printable_graph.txt", str(gm.graph) + "\n")
        namespace = {}
        exec(gm.code, namespace)
        x = torch.randn(2, 4)
        ours, theirs = namespace["forward"](gm, x.clone()), gm(x.clone())
        assert torch.equal(ours["out"][0], theirs["out"][0])

    def test_readable(self, golden):
        from fxgraph.aot import functionalize

        gm = fxgraph.symbolic_trace(lambda x, w: (torch.relu(x @ w.t())[:, ::2],))
        gm = functionalize(gm, [torch.ones(2, 3), torch.ones(4, 3)]).graph_module
        nodes = list(gm.graph.nodes)
        nodes[1].meta.update(source="L['self'].weight", static=True)
        nodes[3].stack_trace = '  File "m.py", line 3, in f\n    return x @ w.t()\n'
        golden("fxgraph/readable.txt", gm.print_readable(print_output=False))

    def test_table(self, capsys):
        g, _ = small()
        g.print_tabular()
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].split() == ["opcode", "name", "target", "args", "kwargs"]
        assert lines[-1].split()[:3] == ["output", "output", "output"]

    def test_awkward_arguments(self):
        g = Graph()
        x = g.placeholder("x")
        y = g.call_function(operator.getitem, (x, (slice(None, -1), None, ..., 0)))
        z = g.call_method("random_", (y,), {"from": 0, "to": 5})
        g.output(
            (z, float("-inf"), float("nan"), -0.0, 1j, torch.Size([1]), "a'b", [True], range(2))
        )
        gm = GraphModule({}, g)
        out = gm(torch.zeros(3, 2, 2))
        assert out[1] == float("-inf") and out[5] == torch.Size([1]) and out[8] == range(2)

    def test_values_die_early(self):
        seen = []

        def watch(x):
            seen.append(weakref.ref(x))
            return x * 2

        def check(x):
            gc.collect()
            return (x, seen[0]() is None)

        g = Graph()
        x = g.placeholder("x")
        a = g.call_function(watch, (g.call_function(torch.neg, (x,)),))
        g.output(g.call_function(check, (a,)))
        gm = GraphModule({}, g)
        assert gm(torch.ones(2))[1]
        seen.clear()
        assert Interpreter(gm).run(torch.ones(2))[1]


class TestInterpreter:
    def test_override_per_opcode(self):
        class Swap(Interpreter):
            def call_function(self, target, args, kwargs):
                return super().call_function(
                    torch.sub if target is torch.add else target, args, kwargs
                )

            def call_method(self, target, args, kwargs):
                return args[0]

        g, _ = small()
        out = Swap(GraphModule({}, g)).run(torch.ones(2), torch.ones(2) * 3)
        assert torch.equal(out[0], torch.full((2,), -2.0))

    def test_missing_argument(self):
        g, _ = small()
        with pytest.raises(TypeError, match="placeholder y"):
            Interpreter(GraphModule({}, g)).run(torch.ones(2))


class TestVerify:
    def broken(self, change):
        g, nodes = small()
        change(g, *nodes)
        with pytest.raises(GraphError) as caught:
            verify(g)
        return str(caught.value)

    def test_each_rule(self):
        def before_definition(g, x, y, a, b):
            a.prepend(b)

        def same_name(g, x, y, a, b):
            b.name = "add"

        def lost_user(g, x, y, a, b):
            a.users.clear()

        def no_output(g, x, y, a, b):
            g.erase_node(g.output_node())

        def late_placeholder(g, x, y, a, b):
            b.append(g.placeholder("z"))

        def missing_attribute(g, x, y, a, b):
            GraphModule({}, g)
            b.append(g.get_attr("w"))

        assert "before it is defined" in self.broken(before_definition)
        assert "two nodes" in self.broken(same_name)
        assert "users lacks" in self.broken(lost_user)
        assert "one output" in self.broken(no_output)
        assert "placeholder" in self.broken(late_placeholder)
        assert "'w'" in self.broken(missing_attribute)

    def test_lint_is_verify(self):
        g, (x, y, a, b) = small()
        g.lint()
        assert isinstance(x, Node)


def test_parameters_named_like_other_values():
    """A placeholder's name may be another one's target, or that of a value made before it."""
    graph = Graph()
    first = graph.placeholder("getitem_2")
    item = graph.call_function(operator.getitem, (first, 0))
    second, third = graph.placeholder("getitem"), graph.placeholder("getitem_1")
    graph.output((item, second, third))
    assert len({node.name for node in (first, item, second, third)}) == 4
    module = GraphModule({}, graph)
    assert module([1], 2, 3) == (1, 2, 3)
