"""Checks that a graph is well formed; runs after every pass in tests."""

from __future__ import annotations

from typing import Any

import torch

from fxgraph.graph import Graph
from fxgraph.node import Node


class GraphError(RuntimeError):
    """A graph breaks one of the rules; the text names the node and the rule."""


def verify(graph: Graph) -> None:
    """Raise GraphError unless:

    names are unique; every argument is defined earlier, in this graph; `users` mirrors the
    arguments; placeholders come first; there is exactly one output and it is last; targets fit
    their opcode; the owning module (if any) has the targets of get_attr and call_module.
    """
    nodes = list(graph.nodes)
    if len(nodes) != len(graph.nodes):
        raise GraphError(f"the list has {len(nodes)} nodes, its length says {len(graph.nodes)}")
    seen: set[Node] = set()
    names: set[str] = set()
    for node in nodes:
        _check_place(node, graph, names)
        _check_inputs(node, seen)
        _check_users(node)
        _check_target(node, graph.owning_module)
        seen.add(node)
        names.add(node.name)
    outputs = [node for node in nodes if node.op == "output"]
    if len(outputs) != 1 or outputs[0] is not nodes[-1]:
        raise GraphError(f"there must be one output node, at the end; found {len(outputs)}")
    _check_placeholders(nodes)


def _check_place(node: Node, graph: Graph, names: set[str]) -> None:
    if node.graph is not graph or node._erased:
        raise GraphError(f"{node.name} is erased or belongs to another graph")
    if node._next._prev is not node or node._prev._next is not node:
        raise GraphError(f"the list is broken at {node.name}")
    if node.name in names:
        raise GraphError(f"two nodes are called {node.name}")
    if not node.name.isidentifier():
        raise GraphError(f"{node.name!r} is not an identifier")


def _check_inputs(node: Node, seen: set[Node]) -> None:
    found = dict.fromkeys(leaf for leaf in _nodes_in((node.args, node.kwargs)))
    if list(found) != node.all_input_nodes:
        raise GraphError(f"{node.name} has inputs {list(found)}, recorded {node.all_input_nodes}")
    for used in found:
        if used.graph is not node.graph or used._erased:
            raise GraphError(f"{node.name} uses {used.name}, which is not in its graph")
        if used not in seen:
            raise GraphError(f"{node.name} uses {used.name} before it is defined")
        if node not in used.users:
            raise GraphError(f"{used.name}.users lacks {node.name}")
        if used.op == "output":
            raise GraphError(f"{node.name} uses the output node")


def _check_users(node: Node) -> None:
    for user in node.users:
        if user._erased or user.graph is not node.graph or node not in user._input_nodes:
            raise GraphError(f"{node.name}.users has {user.name}, which does not use it")


def _check_placeholders(nodes: list[Node]) -> None:
    body_started = None
    for node in nodes:
        if node.op == "placeholder":
            if body_started is not None:
                raise GraphError(f"placeholder {node.name} comes after {body_started}")
        elif node.op != "get_attr":
            body_started = body_started or node.name


def _check_target(node: Node, root: Any) -> None:
    if node.op == "call_function":
        if not callable(node.target):
            raise GraphError(f"{node.name}: {node.target!r} is not callable")
        return
    if not isinstance(node.target, str):
        raise GraphError(f"{node.name}: the target of {node.op} must be a str")
    if node.op == "call_method" and not node.args:
        raise GraphError(f"{node.name}: call_method without the object it is called on")
    if root is None or node.op not in ("get_attr", "call_module"):
        return
    found = root
    for part in node.target.split("."):
        if not hasattr(found, part):
            raise GraphError(f"{node.name}: the module has no {node.target!r}")
        found = getattr(found, part)
    if isinstance(getattr(found, "graph", None), Graph):
        verify(found.graph)
    if node.op == "call_module" and not isinstance(found, torch.nn.Module):
        raise GraphError(f"{node.name}: {node.target!r} is not a module")


def _nodes_in(arg: Any) -> list[Node]:
    from fxgraph.args import leaves

    return [leaf for leaf in leaves(arg) if isinstance(leaf, Node)]
