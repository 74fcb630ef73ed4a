"""Alias analysis: values of a graph that may look at the same memory, and memory that is written.
For passes.
"""

from __future__ import annotations

import torch

from fxgraph import effects
from fxgraph.graph import Graph
from fxgraph.node import Node


class Memory:
    """A union of nodes that may share memory.

    For aten overloads the schema tells; any other call may return its arguments or views of them.
    """

    def __init__(self, graph: Graph) -> None:
        self._parent: dict[Node, Node] = {}
        for node in graph.nodes:
            for other in _may_alias(node):
                self._parent[self.of(other)] = self.of(node)

    def of(self, node: Node) -> Node:
        """The representative of the memory that `node` may look at."""
        parent = self._parent
        root = node
        while (above := parent.get(root, root)) is not root:
            root = above
        while node is not root:
            parent[node], node = root, parent.get(node, node)
        return root


def written_inputs(node: Node) -> list[Node]:
    """The argument nodes whose memory `node` writes; all of them where it is not known better."""
    found = effects.of(node)
    if not (found.writes or found.other) or node.op in ("placeholder", "get_attr", "output"):
        return []
    schema = getattr(node.target, "_schema", None)
    if schema is None or found.other:
        return node.all_input_nodes
    names = [argument.name for argument in schema.arguments]
    given = {**dict(zip(names, node.args)), **node.kwargs}
    written: list[Node] = []
    for argument in schema.arguments:
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = given.get(argument.name)
            items = value if isinstance(value, (list, tuple)) else [value]
            written += [item for item in items if isinstance(item, Node)]
    return written


def is_functional(node: Node) -> bool:
    """Whether the node is an aten overload that returns nothing but new memory."""
    schema = getattr(node.target, "_schema", None)
    if not isinstance(node.target, torch._ops.OpOverload) or schema is None:
        return False
    return not schema.is_mutable and all(r.alias_info is None for r in schema.returns)


_VIEWS_UNMARKED = ("aten::_unsafe_view", "aten::unsafe_split", "aten::unsafe_split_with_sizes")


def _may_alias(node: Node) -> list[Node]:
    if node.op in ("placeholder", "get_attr", "output") or _is_number(node):
        return []
    if is_functional(node) and node.target._schema.name not in _VIEWS_UNMARKED:
        return []
    return [used for used in node.all_input_nodes if not _is_number(used)]


_NUMBERS = (int, float, complex, torch.SymInt, torch.SymFloat, torch.SymBool)


def _is_number(node: Node) -> bool:
    """Numbers have no memory: sizes are arguments of many views."""
    return isinstance(node.meta.get("val"), _NUMBERS)
