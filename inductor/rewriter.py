"""The base class of passes that make a new graph of an old one, node by node."""

from __future__ import annotations

from fxgraph.graph import Graph
from fxgraph.node import Node


class GraphRewriter:
    """Makes a new graph; subclasses replace some nodes in `add`.

    new: node of the old graph -> node of the new one.
    """

    def __init__(self) -> None:
        self.graph = Graph()
        self.new: dict[Node, Node] = {}

    def rewrite(self, graph: Graph) -> None:
        """Add all nodes of the old graph, in their order."""
        for node in graph.nodes:
            self.add(node)

    def add(self, node: Node) -> None:
        """Copy a node of the old graph to the new one."""
        self.new[node] = self.graph.node_copy(node, self.new.__getitem__)
