"""Checks of data, as early as they can be made.

    item = aten._local_scalar_dense.default(t)      item = aten._local_scalar_dense.default(t)
    y = aten.exp.default(x)                         le = operator.le(item, 8)
    z = aten.slice.Tensor(y, 0, 0, item)       ->   aten._assert_scalar.default(le)
    le = operator.le(item, 8)                       y = aten.exp.default(x)
    aten._assert_scalar.default(le)                 z = aten.slice.Tensor(y, 0, 0, item)

Backends simplify sizes by all checked conditions: with item <= 8, z has `item` elements, which
a kernel may read once the condition is known to hold, and not before. After this pass, a condition
on numbers is checked before any node that uses the last of them.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from fxgraph.graph import Graph
from fxgraph.node import Node

_ASSERT = torch.ops.aten._assert_scalar.default


def check_early(graph: Graph) -> None:
    """Move the checks of a functional graph, and the arithmetic that they need."""
    checks = graph.find_nodes(op="call_function", target=_ASSERT)
    if not checks:
        return
    places = {node: place for place, node in enumerate(graph.nodes)}
    found: list[tuple[Node, set[Node]]] = []
    for check in checks:
        arithmetic = set(_arithmetic(check))
        bringing = {
            arg for node in arithmetic for arg in node.all_input_nodes if arg not in arithmetic
        }
        if bringing:
            found.append((max(bringing, key=places.__getitem__), arithmetic))
    last: dict[Node, Node] = {}  # the producer of a number -> the last node moved to behind it
    moved: set[Node] = set()
    # Operands of several checks go to where the first of them does.
    for anchor, arithmetic in sorted(found, key=lambda pair: places[pair[0]]):
        while anchor.op == anchor.next.op == "placeholder":  # those come first
            anchor = anchor.next
        for node in sorted(arithmetic - moved, key=places.__getitem__):
            if places[node] > places[anchor]:
                last.get(anchor, anchor).append(node)
                last[anchor] = node
                moved.add(node)


def _arithmetic(node: Node) -> Iterator[Node]:
    """The node, and the nodes that compute numbers of numbers for it."""
    yield node
    for arg in node.all_input_nodes:
        if arg.op == "call_function" and not any(map(_is_tensor, [arg, *arg.all_input_nodes])):
            yield from _arithmetic(arg)


def _is_tensor(node: Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor | list | tuple)
