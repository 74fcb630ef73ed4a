"""Common subexpression elimination.

before                      after
    a = aten.exp(x)             a = aten.exp(x)
    b = aten.exp(x)             c = aten.add(a, a)
    c = aten.add(a, b)          return (c,)
    return (c,)
"""

from __future__ import annotations

from typing import Any

import torch

from fxgraph.graph import Graph
from fxgraph.node import Node
from fxgraph.passes.memory import Memory, written_inputs
from fxgraph.symbolic_values import is_symbol, numbers_of


def cse(graph: Graph) -> bool:
    """Compute equal things once. Returns whether the graph changed.

    Equal: the same operation on the same arguments, with no write to their memory in between, and
    neither random nor with another effect. A value whose own memory is written is never shared, and
    two values that are both returned stay two.
    """
    memory = Memory(graph)
    written = {memory.of(used) for node in graph.nodes for used in written_inputs(node)}
    returned = {memory.of(node) for node in graph.output_node().all_input_nodes}
    versions: dict[Node, int] = {}
    known: dict[Any, Node] = {}
    changed = False
    for node in graph.nodes:
        key = None
        if _shareable(node) and memory.of(node) not in written:
            inputs = tuple(versions.get(memory.of(used), 0) for used in node.all_input_nodes)
            key = _key(node, inputs)
        for used in written_inputs(node):
            place = memory.of(used)
            versions[place] = versions.get(place, 0) + 1
        first = known.setdefault(key, node) if key is not None else node
        if first is node:
            continue
        ours, theirs = memory.of(node), memory.of(first)
        if ours in returned and theirs in returned and ours is not theirs:
            continue
        if ours is theirs and _is_returned(node) and _is_returned(first):
            continue
        if ours in returned:
            returned.add(theirs)
        _merge_numbers(node.meta.get("val"), first.meta.get("val"))
        node.replace_all_uses_with(first)
        graph.erase_node(node)
        changed = True
    return changed


def _merge_numbers(one: Any, other: Any) -> None:
    """Numbers and sizes that depend on data have a name for each operator that gives them."""
    for a, b in zip(numbers_of(one), numbers_of(other)):
        if isinstance(a, torch.SymInt) and is_symbol(a) and is_symbol(b):
            env = a.node.shape_env
            if env.is_unbacked_symint(a.node._expr):
                env.merge(a.node._expr, b.node._expr)


def _is_returned(node: Node) -> bool:
    return any(user.op == "output" for user in node.users)


def _shareable(node: Node) -> bool:
    if node.op in ("placeholder", "output") or node.is_impure():
        return False
    # A program's operator may give other results each time: it has a generator of its own, say.
    namespace = getattr(node.target, "namespace", None)
    return namespace is None or namespace in _DETERMINED


_DETERMINED = ("aten", "prims", "framegraph")


def _key(node: Node, versions: tuple[int, ...]) -> Any:
    part = node.meta.get("part")  # computed again on purpose: see aot/recompute.py
    key = (part, node.op, node.target, versions, _frozen(node.args), _frozen(node.kwargs))
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _frozen(arg: Any) -> Any:
    """A hashable stand-in for arguments; 1, 1.0 and True differ, and so do 0.0 and -0.0."""
    if isinstance(arg, (tuple, list)):
        return type(arg), tuple([_frozen(item) for item in arg])
    if isinstance(arg, dict):
        return dict, tuple([(key, _frozen(value)) for key, value in arg.items()])
    if isinstance(arg, slice):
        return slice, _frozen((arg.start, arg.stop, arg.step))
    if isinstance(arg, float):
        return float, arg.hex()
    return type(arg), arg
