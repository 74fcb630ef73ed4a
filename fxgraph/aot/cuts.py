"""Outputs that the graph itself goes on to use, and how their users are given another tensor."""

from __future__ import annotations

import operator
from typing import Any

import torch

from fxgraph.aot.history import memory_of
from fxgraph.graph_module import GraphModule
from fxgraph.node import Node


def used_outputs(gm: GraphModule) -> set[Node]:
    """The nodes whose result is returned and used besides; none of a graph that goes back through
    them itself.
    """
    if any(node.target is torch.autograd.grad for node in gm.graph.nodes):
        return set()  # it goes back through its own outputs
    returned = gm.graph.output_node().all_input_nodes
    return {node for node in returned if node.op.startswith("call_") and len(node.users) > 1}


def last_write(node: Node) -> Node:
    """The last node that writes memory of the result of `node`, as capture saw it."""
    memory = _memory(node)
    last = node
    for other in node.graph.nodes if memory is not None else ():
        target = other.target
        name = target if isinstance(target, str) else getattr(target, "__name__", "")
        writes = target is operator.setitem or (name.endswith("_") and not name.endswith("__"))
        if writes and other.args and _memory(other.args[0]) == memory:
            last = other
    return last


def _memory(node: Any) -> int | None:
    value = node.meta.get("example_value") if isinstance(node, Node) else None
    return memory_of(value) if isinstance(value, torch.Tensor) else None


def replaced(env: dict[Node, Any], old: torch.Tensor, new: torch.Tensor, result: Any) -> Any:
    """Puts `new` for `old` among an interpreter's values, and for `result` if that is `old`."""
    env.update({node: new for node, value in env.items() if value is old})
    return new if result is old else result
