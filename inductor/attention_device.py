"""Heads that share keys, by torch's kernels of attention on a GPU.

before                                              after
    k = aten.view(aten.clone(aten.expand(               r = aten._scaled_dot_product_
            aten.unsqueeze(keys, 2), ...)), ...)                flash_attention(q, keys, values)
    r = aten._scaled_dot_product_
            flash_attention(q, k, v)

Programs repeat keys and values in memory for each of the queries' heads; flash attention and that
of cuDNN read them once for all heads that share them, in the same order. Inference alone: a
backward would give gradients of each repetition.
"""

from __future__ import annotations

import operator

import torch

from fxgraph.aot import FunctionalGraph
from fxgraph.node import Node
from inductor import devices
from inductor.attention import not_repeated
from inductor.rewriter import GraphRewriter

aten = torch.ops.aten
_KERNELS = frozenset(
    [
        aten._scaled_dot_product_flash_attention.default,
        aten._scaled_dot_product_cudnn_attention.default,
    ]
)


def shared_keys(functional: FunctionalGraph) -> tuple[FunctionalGraph, str] | None:
    """The graph with no keys repeated for these kernels, and a note; None if there are none."""
    gm = functional.graph_module
    found = {node: given for node in gm.graph.nodes if (given := _shared(node)) is not None}
    if not found:
        return None
    run = _Rewrite(found)
    run.rewrite(gm.graph)
    run.graph.eliminate_dead_code()
    note = f"attention: keys of {len(found)} read by all heads that share them"
    return functional.with_graph(run.graph), note


def _shared(node: Node) -> list[Node] | None:
    """The query, and keys and values that are not repeated, of such an attention."""
    if node.target not in _KERNELS or not devices.is_gpu(node.args[0].meta["val"].device):
        return None
    if torch.version.hip is not None or not all(map(_is_result, node.users)):
        return None
    given = [node.args[0], *not_repeated(*node.args[:3])]
    if given == list(node.args[:3]):
        return None
    innermost = all(one.meta["val"].stride()[-1] == 1 for one in given)
    return given if innermost else None


def _is_result(user: Node) -> bool:
    return user.target is operator.getitem and user.args[1] == 0


class _Rewrite(GraphRewriter):
    def __init__(self, found: dict[Node, list[Node]]) -> None:
        super().__init__()
        self._found = found

    def add(self, node: Node) -> None:
        super().add(node)
        if node in self._found:
            made = self.new[node]
            made.args = (*map(self.new.__getitem__, self._found[node]), *made.args[3:])


__all__ = ["shared_keys"]
