"""Constant folding.

before                                      after
    c = self._tensor_constant0                  _folded_0 = self._folded_0
    a = aten.mul.Tensor(c, 2)                   b = aten.add.Tensor(x, _folded_0)
    b = aten.add.Tensor(x, a)                   return (b,)
    return (b,)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fxgraph.graph_module import GraphModule, assign_attribute, fetch_attribute
from fxgraph.node import Node, map_arg
from fxgraph.passes.dce import dce
from fxgraph.passes.memory import Memory, is_functional, written_inputs

_CONSTANT_PREFIXES = ("_tensor_constant", "_folded_")


def constant_folding(
    gm: GraphModule,
    is_constant: Callable[[Node], bool] | None = None,
    max_bytes: int = 1 << 20,
) -> bool:
    """Compute now what depends on constants only. For aten graphs. Returns whether the graph
    changed.

    is_constant: which get_attr nodes never change; by default those of tensors made in the program
    (parameters and buffers of a module can change). max_bytes: results that are larger stay
    computed at run time, and so do operators without any tensor argument.
    """
    graph = gm.graph
    memory = Memory(graph)
    written = {memory.of(used) for node in graph.nodes for used in written_inputs(node)}
    is_constant = is_constant or (lambda node: node.target.startswith(_CONSTANT_PREFIXES))
    values: dict[Node, Any] = {}
    for node in graph.nodes:
        if memory.of(node) in written:
            continue
        if node.op == "get_attr" and is_constant(node):
            values[node] = fetch_attribute(gm, node.target)
        elif _foldable(node, values):
            values[node] = _compute(node, values)
    changed = False
    for node, value in values.items():
        if node.op != "get_attr" and _wanted(node, value, values, max_bytes):
            _replace(gm, node, value)
            changed = True
    if changed:
        dce(graph)
        gm.recompile()
    return changed


def _foldable(node: Node, values: dict[Node, Any]) -> bool:
    inputs = node.all_input_nodes
    if node.op != "call_function" or not inputs or node.is_impure():
        return False
    known = is_functional(node) or getattr(node.target, "is_view", False) or _is_getitem(node)
    return known and all(used in values for used in inputs)


def _is_getitem(node: Node) -> bool:
    return getattr(node.target, "__name__", "") == "getitem"


def _compute(node: Node, values: dict[Node, Any]) -> Any:
    with torch.no_grad():
        args, kwargs = (
            map_arg(node.args, values.__getitem__),
            map_arg(node.kwargs, values.__getitem__),
        )
        return node.target(*args, **kwargs)  # type: ignore[operator]


def _wanted(node: Node, value: Any, values: dict[Node, Any], max_bytes: int) -> bool:
    """Fold where a constant meets the rest of the graph; a returned constant would not be fresh."""
    if not isinstance(value, torch.Tensor) or value.numel() * value.element_size() > max_bytes:
        return False
    users = list(node.users)
    return any(user not in values for user in users) and all(u.op != "output" for u in users)


def _replace(gm: GraphModule, node: Node, value: torch.Tensor) -> None:
    count = 0
    while hasattr(gm, f"_folded_{count}"):
        count += 1
    name = f"_folded_{count}"
    # A view of a large constant must not keep it alive.
    assign_attribute(gm, name, value.clone())
    with gm.graph.inserting_before(node):
        constant = gm.graph.get_attr(name)
    constant.meta = dict(node.meta)
    node.replace_all_uses_with(constant)
