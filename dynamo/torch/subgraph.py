"""Graphs inside the graph: the body of a transform, a branch or a loop, captured on its own.

    x -> [body: lambda y: (y * w).sum()] -> grad

Inside, tensors are placeholders of the body's graph. A node of an enclosing graph that the body
uses (w above) is lifted: it becomes a further placeholder, and an argument of the node that runs
the body.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fxgraph import Graph, GraphModule, Node
from fxgraph.args import map_aggregate

if TYPE_CHECKING:
    from dynamo.guards.data_symbols import BodyNumbers


class Subgraph:
    """A body during capture. `parent`: the body around it; None: the frame's own graph."""

    def __init__(self, parent: Subgraph | None) -> None:
        self.parent = parent
        self.graph = Graph()
        self.root = torch.nn.Module()  # holds the bodies inside this one
        self.lifted: dict[Node, Node] = {}  # node of the enclosing graph -> placeholder
        self.rewritten: set[Any] = set()  # memory from outside of which the body writes a copy
        self.takes_data = False  # whether its operations may make symbols for data
        self.numbers: BodyNumbers | None = None  # nodes of expressions with these symbols
        self._last_placeholder: Node | None = None
        self._names: set[str] = set()  # of placeholders

    def placeholder(self, name: str, fake: Any) -> Node:
        """A new input of the body."""
        first = next(iter(self.graph.nodes), None)
        if self._last_placeholder is not None:
            place = self.graph.inserting_after(self._last_placeholder)
        else:
            place = self.graph.inserting_before(first)
        taken = self._names
        unique = name if name not in taken else f"{name}_{len(taken)}"
        while unique in taken:
            unique += "_"
        taken.add(unique)
        with place:
            node = self.graph.placeholder(unique)
        self._last_placeholder = node
        node.meta.update(val=fake, example_value=fake)
        return node

    def local(self, arg: Any) -> Any:
        """The nest `arg` with nodes of enclosing graphs replaced by their counterparts here."""
        return map_aggregate(arg, self._local_leaf)

    def _local_leaf(self, leaf: Any) -> Any:
        if not isinstance(leaf, Node) or leaf.graph is self.graph:
            return leaf
        outer = leaf if self.parent is None else self.parent.local(leaf)
        known = self.lifted.get(outer)
        if known is None:
            known = self.placeholder(leaf.name, leaf.meta["example_value"])
            self.lifted[outer] = known
        return known

    def lift_all(self, nodes: Any) -> None:
        """Make placeholders for `nodes` of the enclosing graph, in this order, behind those that
        are there.
        """
        for node in nodes:
            if node not in self.lifted:
                fake = node.meta["example_value"]
                self.lifted[node] = self.placeholder(node.name, fake)

    def reorder(self, nodes: list[Node]) -> None:
        """Have the placeholders of lifted nodes in the order of `nodes`, which are all of them."""
        for node in nodes:
            placeholder = self.lifted.pop(node)
            self._last_placeholder.append(placeholder)  # type: ignore[union-attr]
            self.lifted[node] = self._last_placeholder = placeholder

    def finish(self, result: Any) -> GraphModule:
        """The body as a module that returns the nest `result`."""
        self.graph.output(result)
        self.graph.eliminate_dead_code()
        return GraphModule(self.root, self.graph)


def share_lifted(first: Subgraph, second: Subgraph) -> tuple[Node, ...]:
    """Have two bodies take the same lifted nodes, in one order."""
    first.lift_all(second.lifted)
    second.lift_all(first.lifted)
    order = list(first.lifted)
    if list(second.lifted) != order:
        second.reorder(order)
    return tuple(order)


def check_local(arg: Any, graph: Graph) -> None:
    """Assert that no tensor of a finished body is used outside of it: nothing there holds one."""

    def check(leaf: Any) -> Any:
        assert not isinstance(leaf, Node) or leaf.graph is graph, f"{leaf} left its body"
        return leaf

    map_aggregate(arg, check)
