"""Branches as a choice between the results of both sides, for programs that run no bodies.

before                                       after
    branch = branch(p, body_0, body_1, (x,))     a = x * 2
    y = branch[0]                                b = x + 1
                                                 y = torch.where(p, a, b)

Both sides are computed; so neither may raise, draw random numbers, or have sizes of its
own that depend on data. Gradients are not those of the side that ran.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from fxgraph import effects
from fxgraph.args import leaves
from fxgraph.graph import Graph
from fxgraph.graph_module import GraphModule, fetch_attribute
from fxgraph.higher_order import branch, loop, runs_bodies
from fxgraph.node import Node
from fxgraph.symbolic_values import depends_on_data, layout_numbers


class Kept(Exception):
    """A branch or loop cannot be computed so: the reason, with its place."""


def with_both_sides(gm: GraphModule) -> GraphModule:
    """The graph without branches; itself if there are none. Raises Kept."""
    if not any(node.target in (branch, loop) for node in gm.graph.nodes):
        return gm
    graph = Graph()
    made: dict[Node, Any] = {}
    _copy(gm, gm.graph, graph, made)
    output = gm.graph.output_node()
    graph.output(_renamed(output.args[0], made)).meta.update(output.meta)
    graph.eliminate_dead_code()
    chosen = gm.with_graph(graph)
    chosen.meta.update(gm.meta)
    return chosen


def _copy(owner: GraphModule, source: Graph, graph: Graph, made: dict[Node, Any]) -> None:
    """Copy the nodes of `source` that are not in `made`, up to its output."""
    for node in source.nodes:
        if node in made or node.op == "output":
            continue
        if node.target is branch:
            made[node] = _chosen(owner, node, graph, made)
        elif node.target is operator.getitem and isinstance(made.get(node.args[0]), tuple):
            made[node] = made[node.args[0]][node.args[1]]
        elif node.target is loop:
            raise _kept(node, "a loop has another turn")
        else:
            made[node] = graph.node_copy(node, made.__getitem__)


def _chosen(
    owner: GraphModule, node: Node, graph: Graph, made: dict[Node, Any]
) -> tuple[Node, ...]:
    predicate, first, second, operands = node.args
    if node.meta.get("side_may_fail"):
        raise _kept(node, "a side that may raise is run")
    given = [made[operand] for operand in operands]
    sides = [
        _inlined(fetch_attribute(owner, n.target), node, given, graph) for n in (first, second)
    ]
    whole = graph.call_method("reshape", (made[predicate], ()))
    truth = graph.call_method("bool", (whole,))
    seen = node.meta["example_value"]
    fake = predicate.meta["example_value"]
    if any(value.device != fake.device for value in seen):
        raise _kept(node, "a side on another device than its condition is run")
    results = []
    for one, other, value in zip(*sides, seen, strict=True):
        result = graph.call_function(torch.where, (truth, one, other))
        result.meta.update(node.meta, val=value, example_value=value)
        results.append(result)
    return tuple(results)


def _inlined(body: GraphModule, node: Node, given: Sequence[Any], graph: Graph) -> Sequence[Any]:
    """The results of a side, with its nodes in the graph."""
    for inner in body.graph.nodes:
        if inner.op == "call_module" or _is_attribute(body, inner):
            raise _kept(node, "a side with tensors of its own is run")
        if inner.op.startswith("call_") and inner.target is not branch:
            if runs_bodies(inner.target) and inner.target is not loop:
                raise _kept(node, "a side with a body is run")
            does = effects.of(inner)
            if does.random or does.other:
                raise _kept(node, "a side that does more than compute tensors is run")
    if _data_in(body.graph.nodes) - _data_in(node.args[3]):
        raise _kept(node, "a side with sizes of its own is run")
    made: dict[Node, Any] = dict(zip(body.graph.find_nodes(op="placeholder"), given, strict=True))
    _copy(body, body.graph, graph, made)
    return _renamed(body.graph.output_node().args[0], made)


def _data_in(nodes: Iterable[Node]) -> set[Any]:
    """The symbols for data in the values of nodes."""
    values = (value for node in nodes for value in leaves(node.meta.get("example_value")))
    numbers = [n for value in values for n in layout_numbers(value) if depends_on_data(n)]
    return {symbol for number in numbers for symbol in number.node.expr.free_symbols}


def _is_attribute(body: GraphModule, node: Node) -> bool:
    if node.op != "get_attr":
        return False
    return not isinstance(fetch_attribute(body, node.target), GraphModule)


def _renamed(nest: Any, made: dict[Node, Any]) -> Any:
    return tuple(made[leaf] if isinstance(leaf, Node) else leaf for leaf in nest)


def _kept(node: Node, what: str) -> Kept:
    return Kept(f"each call decides whether {what} ({node.meta['place']})")
