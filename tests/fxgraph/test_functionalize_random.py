"""Random programs of writes, views and returns: functionalised equals eager."""

import operator

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fxgraph
from fxgraph.aot import Unfunctionalizable, functionalize
from tests.fxgraph.support import check

VIEWS = [
    ("t", lambda g, x: g.call_method("t", (x,))),
    ("row", lambda g, x: g.call_function(operator.getitem, (x, 0))),
    ("rows", lambda g, x: g.call_function(operator.getitem, (x, slice(1, None)))),
    ("column", lambda g, x: g.call_function(operator.getitem, (x, (slice(None), 1)))),
    ("every other", lambda g, x: g.call_function(operator.getitem, (x, slice(None, None, 2)))),
    ("unsqueeze", lambda g, x: g.call_method("unsqueeze", (x, 0))),
    ("reshape", lambda g, x: g.call_method("reshape", (x, -1))),
    ("squeeze", lambda g, x: g.call_method("squeeze", (x,))),
    (
        "expand",
        lambda g, x: g.call_method("expand", (g.call_method("unsqueeze", (x, 0)), 2, -1, -1)),
    ),
    ("permute", lambda g, x: g.call_method("movedim", (x, -1, 0))),
    ("last", lambda g, x: g.call_function(operator.getitem, (x, (..., -1)))),
    ("detach", lambda g, x: g.call_method("detach", (x,))),
    ("diagonal", lambda g, x: g.call_method("diagonal", (x,))),
    ("chunk", lambda g, x: g.call_function(operator.getitem, (g.call_method("chunk", (x, 2)), 0))),
]
PURE = [
    ("neg", lambda g, x: g.call_function(operator.neg, (x,))),
    ("clone", lambda g, x: g.call_method("clone", (x,))),
    ("plus", lambda g, x: g.call_function(operator.add, (x, 2.0))),
    ("sum", lambda g, x: g.call_method("sum", (x, 0, True))),
]
WRITES = [
    ("add_", lambda g, x: g.call_method("add_", (x, 1.5))),
    ("mul_", lambda g, x: g.call_method("mul_", (x, -2.0))),
    ("fill_", lambda g, x: g.call_method("fill_", (x, 3.0))),
    ("zero_", lambda g, x: g.call_method("zero_", (x,))),
    ("iadd", lambda g, x: g.call_function(operator.iadd, (x, 0.5))),
    ("set row", lambda g, x: g.call_function(operator.setitem, (x, 0, 9.0))),
    ("relu", lambda g, x: g.call_function(torch.relu_, (x,))),
]
BETWEEN = [
    ("copy_", lambda g, x, y: g.call_method("copy_", (x, y))),
    ("add_ tensor", lambda g, x, y: g.call_method("add_", (x, y))),
    ("cat", lambda g, x, y: g.call_function(torch.cat, ([x, y],))),
    ("mul", lambda g, x, y: g.call_function(operator.mul, (x, y))),
]
STEPS = [*VIEWS, *PURE, *WRITES, *BETWEEN]

LAYOUTS = [
    lambda: torch.arange(12.0).view(3, 4),
    lambda: torch.arange(12.0).view(4, 3).t(),
    lambda: torch.arange(28.0).view(7, 4)[2:5],
    lambda: torch.arange(24.0).view(3, 8)[:, ::2],
]


@st.composite
def programs(draw):
    inputs = [draw(st.sampled_from(LAYOUTS))() for _ in range(2)]
    sharing = draw(st.sampled_from(["no"] * 6 + ["same", "view", "part", "apart"]))
    if sharing == "same":
        inputs[1] = inputs[0]
    elif sharing == "view":
        inputs[1] = inputs[0].detach()
    elif sharing == "part":
        inputs[1] = inputs[0][1:]
    elif sharing == "apart":
        inputs = [inputs[0][:1], inputs[0][1:]]
    steps = draw(
        st.lists(
            st.tuples(st.sampled_from(STEPS), st.integers(0, 99), st.integers(0, 99)),
            min_size=1,
            max_size=9,
        )
    )
    outputs = draw(st.lists(st.integers(0, 99), min_size=1, max_size=5))
    return inputs, steps, outputs


def overlap(one, other):
    shared = one.untyped_storage()._cdata == other.untyped_storage()._cdata
    same = one.shape == other.shape and one.stride() == other.stride()
    return shared and not (same and one.storage_offset() == other.storage_offset())


def build(inputs, steps, outputs):
    """The graph of those steps that are valid in eager."""
    graph = fxgraph.Graph()
    nodes = [graph.placeholder(f"x{i}") for i in range(len(inputs))]
    env = dict(zip(nodes, inputs))
    for (_, make), i, j in steps:
        node, other = nodes[i % len(nodes)], nodes[j % len(nodes)]
        if make.__code__.co_argcount == 3 and overlap(env[node], env[other]):
            continue  # reading what the same operator writes is undefined in eager
        before = len(graph.nodes)
        made = make(graph, node, other) if make.__code__.co_argcount == 3 else make(graph, node)
        fresh = list(graph.nodes)[before:]
        try:
            for one in fresh:
                args = fxgraph.map_arg(one.args, env.__getitem__)
                if one.op == "call_method":
                    env[one] = getattr(args[0], one.target)(*args[1:])
                else:
                    env[one] = one.target(*args)
        except (RuntimeError, IndexError):
            for one in reversed(fresh):
                env.pop(one, None)
                graph.erase_node(one)
            continue
        if isinstance(env[made], torch.Tensor):
            nodes.append(made)
    graph.output(tuple(nodes[i % len(nodes)] for i in outputs))
    return fxgraph.GraphModule({}, graph)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_random_programs(program):
    from tests.fxgraph.support import clone_inputs

    inputs, steps, outputs = program
    gm = build(clone_inputs(inputs), steps, outputs)
    try:
        functionalize(gm, inputs)
    except Unfunctionalizable as reason:
        assert "expanded" in str(reason) or "overlap" in str(reason)
        return
    check(None, *inputs, gm=gm)
