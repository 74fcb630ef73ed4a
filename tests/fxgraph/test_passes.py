"""dce, cse; verify after each."""

import inspect
import operator
import types

import torch
import torch.nn.functional as F

import dynamo
import fxgraph
from fxgraph import Graph, GraphModule, effects, verify
from fxgraph.aot import functionalize, run_functional
from fxgraph.passes import cse, dce

aten = torch.ops.aten


def names(graph):
    return [n.name for n in graph.nodes]


class TestDce:
    def test_keeps_effects(self):
        g = Graph()
        x, y = g.placeholder("x"), g.placeholder("y")
        g.call_function(torch.relu, (x,))
        g.call_function(operator.add, (g.call_method("neg", (y,)), 1))
        g.call_function(aten.index, (x, [y]))  # of its overloads one writes, to `out`
        kept = [
            g.call_method("add_", (x, 1)),
            g.call_function(operator.setitem, (x, 0, y)),
            g.call_function(operator.iadd, (x, 1)),
            g.call_function(torch.rand, (3,)),
            g.call_function(F.dropout, (x,)),
            g.call_function(torch._sample_dirichlet, (x,)),
            g.call_function(torch.gru, (x, x, [y], True, 2, 0.5, True, False, False)),
            g.call_function(torch.gru, (x, y, x, [y], True, 2, 0.5, True, False)),
            g.call_function(F.relu, (x,), {"inplace": True}),
            g.call_function(torch.add, (x, 1), {"out": y}),
            g.call_function(torch._assert, (x, "text")),
            g.call_function(aten.copy_.default, (x, y)),
            g.call_function(aten.bernoulli.p, (x, 0.5)),
            g.call_function(aten.add, (x, 1), {"out": y}),
            g.call_function(torch._C._set_grad_enabled, (False,)),
            g.call_function(print, (x,)),
            g.call_function(lambda x: x, (x,)),
        ]
        g.output(())
        assert dce(g)
        assert names(g)[2:-1] == [n.name for n in kept]
        assert not dce(g)
        verify(g)
        dce(g, impure_random=False)
        assert "rand" not in names(g)

    def test_operators_that_draw_are_known(self):
        known = effects.RANDOM_NAMES | effects.MAYBE_RANDOM_NAMES | effects.RANDOM_IN_PLACE
        for full in torch._C._dispatch_get_all_op_names():
            name, _, overload = full.removeprefix("aten::").partition(".")
            if name.startswith(("_", "miopen")) or not callable(getattr(torch, name, None)):
                continue  # other namespaces among them
            operator = getattr(getattr(aten, name), overload or "default")
            if torch.Tag.nondeterministic_seeded in operator.tags:
                assert name in known, name

    def test_functions_that_write_by_position_are_known(self):
        for function in vars(F).values():
            if not isinstance(function, types.FunctionType):
                continue
            names = list(inspect.signature(function).parameters)
            if "inplace" in names:
                g = Graph()
                x = g.placeholder("x")
                written = g.call_function(function, (x, *[0.5] * (len(names) - 2), True))
                g.output(())
                g.eliminate_dead_code()
                assert written in g.nodes, function

    def test_dropout_that_is_off_goes(self):
        g = Graph()
        x = g.placeholder("x")
        g.call_function(F.dropout, (x, 0.1, False))
        g.call_function(F.dropout, (x,), {"training": False})
        g.call_function(F.scaled_dot_product_attention, (x, x, x))
        g.call_function(torch.gru, (x, x, [x], True, 2, 0.5, False, False, False))
        g.output((x,))
        g.eliminate_dead_code()
        assert names(g) == ["x", "output"]

    def test_modules(self):
        g = Graph()
        x = g.placeholder("x")
        g.call_module("bn", (x,))
        g.output(())
        gm = GraphModule({"bn": torch.nn.BatchNorm1d(3)}, g)
        assert not dce(g)
        gm.eval()
        assert dce(g)


class TestCse:
    def test_shares(self):
        g = Graph()
        x = g.placeholder("x")
        a, b = (g.call_function(aten.exp.default, (x,)) for _ in range(2))
        c, d = (g.call_function(aten.sum.dim_IntList, (y, [0])) for y in (a, b))
        g.output((g.call_function(aten.add.Tensor, (c, d)),))
        assert cse(g)
        verify(g)
        assert names(g) == ["x", "exp", "sum_1", "add", "output"]
        assert not cse(g)

    def test_keeps_apart(self):
        g = Graph()
        x = g.placeholder("x")
        y1, y2 = (g.call_function(aten.clone.default, (x,)) for _ in range(2))
        g.call_function(aten.add_.Tensor, (y1, 1))  # y1 is written: not to be shared
        a1 = g.call_function(aten.sum.default, (y1,))
        g.call_function(aten.mul_.Tensor, (y1, 2))
        a2 = g.call_function(aten.sum.default, (y1,))  # sees another y1
        r1, r2 = (g.call_function(aten.rand_like.default, (x,)) for _ in range(2))
        p1 = g.call_function(aten.add.Tensor, (x, 1))
        p2 = g.call_function(aten.add.Tensor, (x, 1.0))
        p3 = g.call_function(aten.add.Tensor, (x, True))
        e1, e2 = (g.call_function(aten.neg.default, (x,)) for _ in range(2))  # both returned
        g.output((y2, a1, a2, r1, r2, p1, p2, p3, e1, e2))
        before = len(g.nodes)
        assert not cse(g)
        assert len(g.nodes) == before

    def test_sizes_have_no_memory(self):
        """Two copies that are returned stay two, also where both are given one symbolic size."""

        def f(x):
            return x.t().reshape(-1), x.t().reshape(*x.shape)

        def g(x):
            scaled = torch.nn.functional.interpolate(x[None], scale_factor=1.3, mode="nearest")
            return *f(x), scaled

        for function in (f, g):
            one, other, *_ = dynamo.compile(function, dynamic=True)(torch.ones(5, 7))
            one.zero_()
            assert other.all()

    def test_arguments_without_a_hash(self):
        g = Graph()
        x = g.placeholder("x")
        a, b = (g.call_function(len, ({1, 2}, x)) for _ in range(2))
        g.output(g.call_function(aten.add.Tensor, (a, b)))
        assert not cse(g) and len(g.nodes) == 5

    def test_torch_level_is_conservative(self):
        def f(x):
            a, b = x.reshape(-1), x.reshape(-1)
            x.add_(1)
            return (a.sum() + b.sum(), torch.exp(x) + torch.exp(x))

        gm = fxgraph.symbolic_trace(f)
        cse(gm.graph)
        verify(gm.graph)
        x = torch.randn(3)
        gm.recompile()
        for one, other in zip(gm(x.clone()), f(x.clone())):
            assert torch.equal(one, other)

    def test_functional_graphs_keep_their_meaning(self):
        def f(x, y):
            a = (x + y).relu() + (x + y).relu()
            x.add_(y)
            return (a, x + y, x + y, torch.rand_like(x) + torch.rand_like(x))

        gm = fxgraph.symbolic_trace(f)
        inputs = [torch.randn(3), torch.randn(3)]
        functional = functionalize(gm, inputs)
        assert cse(functional.graph_module.graph)
        verify(functional.graph_module.graph)
        theirs, ours = [t.clone() for t in inputs], [t.clone() for t in inputs]
        torch.manual_seed(0)
        expected = f(*theirs)
        torch.manual_seed(0)
        actual = run_functional(functional, ours)
        for one, other in zip([*expected, *theirs], [*actual, *ours]):
            assert torch.equal(one, other)
        assert actual[1] is not actual[2]
