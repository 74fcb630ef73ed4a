"""Outputs that the graph itself goes on to use, and how their users are given another tensor."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import torch

from fxgraph.aot.functional import GRAD_SWITCHES
from fxgraph.aot.history import memory_of
from fxgraph.effects import is_in_place
from fxgraph.graph_module import GraphModule
from fxgraph.node import Node

LAST_WRITE = "last_write"  # in the meta of an input's node


def used_outputs(gm: GraphModule) -> set[Node]:
    """The nodes whose result is returned, and used besides or given a hook by capture, which runs
    for no gradient but its own; none of a graph that goes back through them itself.
    """
    if any(node.target is torch.autograd.grad for node in gm.graph.nodes):
        return set()  # it goes back through its own outputs
    returned = gm.graph.output_node().all_input_nodes
    computed = [node for node in returned if node.op.startswith("call_")]
    return {node for node in computed if len(node.users) > 1 or has_hook(node)}


def has_hook(node: Node) -> bool:
    """Whether capture passes the node's value to a hook once the graph has run."""
    return bool(node.meta.get("hooked"))


def last_writes(nodes: Iterable[Node]) -> dict[Node, Node]:
    """For each node, the last one that gives its result a history, as its meta says, or capture saw
    the memory that is written; itself, if none does from then on.
    """
    nodes, enabled = list(nodes), torch.is_grad_enabled()
    last = {node: node.meta.get(LAST_WRITE, node) for node in nodes}
    of_memory: dict[int, list[Node]] = {}  # those of `nodes` that ran already
    for node in nodes[0].graph.nodes if nodes else ():
        if last.get(node) is node and (memory := _memory(node)) is not None:
            of_memory.setdefault(memory, []).append(node)
        if node.target in GRAD_SWITCHES:
            enabled = not node.args or node.args[0] is True
        if enabled and _writes(node) and (memory := _memory(node.args[0])) is not None:
            last.update(dict.fromkeys(of_memory.get(memory, ()), node))
    return last


def _writes(node: Node) -> bool:
    target = node.target
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    in_place = name.endswith("_") and not name.endswith("__")
    in_place = in_place or is_in_place(name, node.args, node.kwargs)
    if not node.args or not (target is operator.setitem or in_place):
        return False
    value = _value(node.args[0])
    return value is not None and value.requires_grad  # not of one that is detached


def _memory(node: Any) -> int | None:
    value = _value(node)
    return None if value is None else memory_of(value)


def _value(node: Any) -> torch.Tensor | None:
    value = node.meta.get("example_value") if isinstance(node, Node) else None
    return value if isinstance(value, torch.Tensor) else None


def replaced(env: dict[Node, Any], old: torch.Tensor, new: torch.Tensor, result: Any) -> Any:
    """Puts `new` for `old` among an interpreter's values, and for `result` if that is `old`."""
    env.update({node: new for node, value in env.items() if value is old})
    return new if result is old else result
