"""A joint graph in two: what runs forward, and what the backward part computes or is given.

The values saved between the parts are a minimum cut: every path from the inputs to the backward
crosses it, at the least number of bytes. Cheap pointwise operations and views may stand on the far
side, where they are computed again; matrix products, reductions and whatever draws random numbers
may not.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import networkx
import torch

from fxgraph import effects
from fxgraph.aot.functional import Unfunctionalizable, is_view, root_of
from fxgraph.graph import Graph
from fxgraph.node import Node

aten = torch.ops.aten
_INFINITE = float("inf")
# Inputs stay alive anyway, as a rule: parameters, and what the caller holds.
_INPUT_SHARE = 0.01
_CHEAP = frozenset(
    getattr(aten, name)
    for name in (
        "add", "sub", "mul", "div", "neg", "abs", "relu", "sign", "reciprocal", "sqrt", "rsqrt",
        "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_not",
        "bitwise_and", "bitwise_or", "bitwise_not", "where", "maximum", "minimum", "clamp",
        "clamp_min", "clamp_max", "_to_copy", "full", "full_like", "scalar_tensor", "arange",
        "sigmoid", "tanh", "exp", "clone", "square", "floor", "ceil", "round", "cat",
    )
)  # fmt: skip


@dataclass
class Parts:
    """The two graphs, and what goes from one to the other.

    forward: its placeholders are the joint graph's but the tangents; it returns the values, then
        what is kept for the backward besides inputs and values.
    backward: takes what is saved, then the tangents, and returns the gradients.
    saved: where each saved value is found: ("input" | "value" | "kept", number).
    """

    forward: Graph
    backward: Graph
    saved: list[tuple[str, int]]


def partition(
    joint: Graph, values: Sequence[Node], tangents: Sequence[Node], gradients: Sequence[Node]
) -> Parts:
    """Cut the joint graph in two. Raises Unfunctionalizable if it writes an attribute."""
    behind = _behind(joint, tangents)
    needed = _ancestors(gradients)
    before = [node for node in needed if node not in behind]
    saved = _saved(joint, before, behind.intersection(needed), gradients)
    writes = {node.args[0]: node for node in joint.nodes if node.target is aten.copy_.default}
    if any(target.op == "get_attr" for target in writes):
        raise Unfunctionalizable("an attribute is written")
    handed = {node: _copied(joint, node, writes.get(node)) for node in saved}
    inputs = [n for n in joint.nodes if n.op == "placeholder" and n not in tangents]
    kept = [n for n in handed.values() if n not in values and n not in inputs]
    places: dict[Node, tuple[str, int]] = {}
    for name, nodes in (("kept", kept), ("value", values), ("input", inputs)):
        places.update({node: (name, i) for i, node in enumerate(nodes)})
    forward = _forward(joint, inputs, [*values, *kept], list(writes.values()))
    backward = _backward(joint, saved, tangents, gradients)
    return Parts(forward, backward, [places[node] for node in handed.values()])


def _behind(joint: Graph, tangents: Sequence[Node]) -> set[Node]:
    """The nodes that depend on a tangent."""
    found = set(tangents)
    for node in joint.nodes:
        if node not in found and any(arg in found for arg in node.all_input_nodes):
            found.add(node)
    return found


def _ancestors(nodes: Sequence[Node], until: Collection[Node] = ()) -> dict[Node, None]:
    """The nodes and all that they depend on, not looking behind those in `until`."""
    found: dict[Node, None] = {}
    todo = list(nodes)
    while todo:
        node = todo.pop()
        if node not in found:
            found[node] = None
            if node not in until:
                todo.extend(node.all_input_nodes)
    return found


# -- the cut --------------------------------------------------------------------------------------
def _saved(
    joint: Graph, before: Sequence[Node], after: set[Node], gradients: Sequence[Node]
) -> list[Node]:
    """The nodes of `before` to hand over to `after`, which depends on the tangents."""
    network = networkx.DiGraph()
    inside = set(before)
    for node in before:
        network.add_edge((node, "in"), (node, "out"), capacity=_bytes(node))
        if node.op == "placeholder" or not _cheap(node):
            network.add_edge("forward", (node, "in"), capacity=_INFINITE)
        for user in node.users:
            if user in inside:
                network.add_edge((node, "out"), (user, "in"), capacity=_INFINITE)
            elif user in after:
                network.add_edge((node, "out"), "backward", capacity=_INFINITE)
        if node in gradients:
            network.add_edge((node, "out"), "backward", capacity=_INFINITE)
    if "backward" not in network:
        return []
    if "forward" not in network:
        return []
    # Seen from the backward, so that of equal cuts the one that computes least again is taken.
    cut, (late, _) = networkx.minimum_cut(network.reverse(copy=False), "backward", "forward")
    assert cut < _INFINITE, "a value that cannot be kept"
    order = {node: i for i, node in enumerate(joint.nodes)}
    chosen = [n for n in before if (n, "out") in late and (n, "in") not in late]
    return sorted(chosen, key=order.__getitem__)


def _bytes(node: Node) -> float:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return _INFINITE  # a tuple of results: its parts are kept
    if node.op == "get_attr":
        return 0.0
    if node.op == "call_function" and is_view(node.target):
        return _INFINITE  # what it looks at is kept
    size = float(prod(value.shape) * value.dtype.itemsize)
    return max(size, 1.0) * (_INPUT_SHARE if node.op == "placeholder" else 1.0)


def _cheap(node: Node) -> bool:
    """Whether computing it again costs less than keeping it."""
    if node.op == "get_attr":
        return True
    target: Any = node.target
    if target is operator.getitem:
        return False
    if effects.of(node).impure():
        return False
    return is_view(target) or getattr(target, "overloadpacket", None) in _CHEAP


def _copied(joint: Graph, node: Node, write: Node | None) -> Node:
    """What to hand over for `node`: of an input that the forward overwrites, a copy made before."""
    if write is None:
        return node
    with joint.inserting_before(write):
        copy = joint.call_function(aten.clone.default, (node,))
    copy.meta.update(node.meta)
    return copy


# -- the two graphs -------------------------------------------------------------------------------
def _forward(
    joint: Graph, inputs: Sequence[Node], results: Sequence[Node], writes: Sequence[Node]
) -> Graph:
    wanted = _ancestors([*results, *writes])
    graph = Graph()
    made: dict[Node, Node] = {}
    for node in joint.nodes:
        if node in inputs or node in wanted:
            made[node] = graph.node_copy(node, made.__getitem__)
    graph.output(tuple(made[node] for node in results))
    return graph


def _backward(
    joint: Graph, saved: Sequence[Node], tangents: Sequence[Node], gradients: Sequence[Node]
) -> Graph:
    graph = Graph()
    made: dict[Node, Node] = {}
    for node in [*saved, *tangents]:
        made[node] = graph.placeholder(node.name)
        made[node].meta.update(val=node.meta["val"])
    wanted = _ancestors(gradients, until=made)
    for node in joint.nodes:
        if node in wanted and node not in made:
            made[node] = graph.node_copy(node, made.__getitem__)
    taken: set[Node] = set()
    graph.output(tuple(own_memory(graph, made[node], taken) for node in gradients))
    return graph


def own_memory(graph: Graph, node: Node, taken: set[Node]) -> Node:
    """A gradient that is memory of the caller's, or of another gradient, is copied."""
    root = root_of(node)
    if root.op in ("placeholder", "get_attr") or root in taken:
        copy = graph.call_function(aten.clone.default, (node,))
        copy.meta.update(node.meta)
        node = root = copy
    taken.add(root)
    return node
