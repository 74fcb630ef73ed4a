"""Where a gradient is let through a clamp, told by the clamp's result.

before                                   after
    z = aten.hardtanh(y, 0.0, 6.0)           z = aten.hardtanh(y, 0.0, 6.0)
    a = aten.le(y, 0.0)                      a = aten.le(z, 0.0)
    b = aten.ge(y, 6.0)                      b = aten.ge(z, 6.0)

What follows a clamp saves its result for the backward, as a rule: the clamp saves nothing then, and
its operand need not be written. So MobileNet's forward writes an image in place of two behind each
batch norm.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from fxgraph.aot.functional import root_of
from fxgraph.graph import Graph
from fxgraph.node import Node

aten = torch.ops.aten
_CLAMPS = (aten.hardtanh.default, aten.clamp.default)
_OUTSIDE = (aten.le.Scalar, aten.ge.Scalar)


def tell_by_results(graph: Graph, visible: Iterable[Node]) -> None:
    """Change the joint graph. visible: tensors that the caller sees, who may write them before the
    backward: eager reads a clamp's operand then, and not its result.
    """
    seen = {root_of(node) for node in visible}
    seen |= {node for node in graph.nodes if node.op != "call_function"}
    clamps: dict[Node, list[Node]] = {}  # by operand
    for node in graph.nodes:
        if node.target in _CLAMPS and len(node.args) == 3:
            if _is_exact(*node.args) and seen.isdisjoint(map(root_of, (node.args[0], node))):
                clamps.setdefault(node.args[0], []).append(node)
        elif node.target in _OUTSIDE or _is_widened(node):
            operand, *others = node.args
            reads = [node] if others else list(node.users)
            for clamp in clamps.get(_copied(operand), ()):
                if all(_is_bound(read, clamp) for read in reads):
                    node.args = (clamp, *others)


def _is_widened(node: Node) -> bool:
    """Whether the node makes a value wider for comparisons alone."""
    if node.target is not aten._to_copy.default or node.kwargs.keys() != {"dtype"}:
        return False
    wide, given = node.kwargs["dtype"], node.args[0].meta["val"].dtype
    return torch.promote_types(wide, given) == wide and all(
        u.target in _OUTSIDE for u in node.users
    )


def _is_bound(comparison: Node, clamp: Node) -> bool:
    """Whether it compares with what the clamp has as a bound there."""
    bound = clamp.args[1 + _OUTSIDE.index(comparison.target)]
    return bool(comparison.args[1] == bound)


def _copied(node: Node) -> Node:
    """The tensor that autograd has copied, where the clamp writes its operand."""
    while node.target is aten.clone.default and not node.kwargs:
        node = node.args[0]
    return node


def _is_exact(operand: Node, low: Any, high: Any) -> bool:
    """Whether the operand's dtype holds both bounds: the clamp's result has them then."""
    dtype = operand.meta["val"].dtype
    if not dtype.is_floating_point or not all(type(one) in (int, float) for one in (low, high)):
        return False
    return bool(
        low < high and torch.tensor([low, high], dtype=dtype, device="cpu").tolist() == [low, high]
    )
