"""Activation checkpointing in a graph that differentiates itself.

Values that a checkpointed body computes and the backward reads are computed again, just before the
first reader, from the body's operands: the first values die with the forward.

before                              after
    mm = x @ w          checkpoint      mm = x @ w
    gelu = gelu(mm)     checkpoint      gelu = gelu(mm)
    mm_1 = gelu @ v     checkpoint      mm_1 = gelu @ v
    ...                                 ...
    g = gelu'(mm, t)    backward        mm_2 = x @ w
                                        g = gelu'(mm_2, t)

Kept all the same are random numbers, which eager draws again alike; results of nodes with other
effects; and values that the forward uses outside of the body.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fxgraph import effects
from fxgraph.graph import Graph
from fxgraph.node import Node

if TYPE_CHECKING:
    from fxgraph.aot.trace import Tracer

PART = "part"  # key of meta: BACKWARD, or the checkpoint that the node was traced in
BACKWARD = "backward"


@contextmanager
def traced_as(tracer: Tracer, part: object) -> Iterator[None]:
    """Mark the nodes recorded in the block; of nested parts the outermost counts."""
    if tracer.part is not None:
        yield
        return
    tracer.part = part
    try:
        yield
    finally:
        tracer.part = None


def recompute(graph: Graph) -> int:
    """Recompute in the backward the values that checkpoints drop. Returns the number of nodes."""
    order = {node: number for number, node in enumerate(graph.nodes)}
    readers: dict[object, dict[Node, list[Node]]] = {}  # by checkpoint: value -> who goes back
    for node in order:
        part = node.meta.get(PART)
        if part is None or part == BACKWARD or not _may_be_repeated(node, part):
            continue
        behind = [user for user in node.users if user.meta.get(PART) == BACKWARD]
        if behind:
            readers.setdefault(part, {})[node] = behind
    return sum(_repeat(graph, part, values, order) for part, values in readers.items())


def _repeat(
    graph: Graph, part: object, values: dict[Node, list[Node]], order: dict[Node, int]
) -> int:
    needed, todo = set(), list(values)
    while todo:
        node = todo.pop()
        if node not in needed and node.meta.get(PART) is part and _may_be_repeated(node, part):
            needed.add(node)
            todo.extend(node.all_input_nodes)
    place = min((user for users in values.values() for user in users), key=order.__getitem__)
    copies: dict[Node, Node] = {}
    with graph.inserting_before(place):
        for node in sorted(needed, key=order.__getitem__):
            copies[node] = graph.node_copy(node, lambda one: copies.get(one, one))
            copies[node].meta[PART] = BACKWARD
    for node, users in values.items():
        for user in users:
            user.replace_input_with(node, copies[node])
    return len(copies)


def _may_be_repeated(node: Node, part: object) -> bool:
    found = effects.of(node)
    if found.random or found.writes or found.other:
        return False
    # A result that the rest of the forward reads is an input of another body, or is returned.
    return all(
        user.meta.get(PART) in (part, BACKWARD) and not effects.of(user).writes
        for user in node.users
    )
