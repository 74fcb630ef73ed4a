"""Products with weights of int8, with sums of float32, which generated code computes.

before                                      after
    y = aten._weight_int8pack_mm(               a = aten._to_copy(x, dtype=float32)
            x, w, scales)                       b = aten.permute(aten._to_copy(w, float32), [1, 0])
                                                y = aten.mul(aten.mm(a, b), scales)
        | x of bfloat16                         p = <w in panels of pairs>      | a derived static
                                                y = aten.mul(framegraph.panel_mm(x, p, ...), scales)

Weights stay int8 in panels (products.py). Of static weights alone: to copy others in each call
would take longer than the operator does; and where there is room for the copies.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from fxgraph.aot import FunctionalGraph
from fxgraph.graph import Graph
from fxgraph.node import Node
from inductor import panel_sample
from inductor.costs import room_for_copies
from inductor.derive import closure
from inductor.panels import Builder, has_pairs, is_plain, panel_bytes, widens_few

aten = torch.ops.aten
_OPERATOR = aten._weight_int8pack_mm.default
_FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def widen_int8(
    functional: FunctionalGraph, sources: Iterable[Node]
) -> tuple[FunctionalGraph, str] | None:
    """The graph with int8 products in float32, and a note; None if there are none, or there is no
    compiler.
    """
    gm = functional.graph_module
    nodes = [node for node in gm.graph.nodes if node.target is _OPERATOR]
    if not nodes or panel_sample.identity() is None:
        return None
    static = closure(gm.graph.nodes, sources)
    chosen = {node for node in nodes if node.args[1] in static and _is_plain(node)}
    weights = [w.meta["val"] for w in {node.args[1] for node in chosen}]
    needed = sum(panel_bytes(w.shape[1], w.shape[0], torch.int8) for w in weights)
    if not chosen or needed > room_for_copies():
        return None
    graph = Graph()
    new: dict[Node, Node] = {}
    for node in gm.graph.nodes:
        if node in chosen:
            x, w, scales = (new[used] for used in node.args)
            new[node] = _product(Builder(graph), x, w, scales, node)
        else:
            new[node] = graph.node_copy(node, new.__getitem__)
    return functional.with_graph(
        graph
    ), f"widen: {len(chosen)} products of int8 with sums of float32"


def _is_plain(node: Node) -> bool:
    x, w, scales = (used.meta["val"] for used in node.args)
    return is_plain(x, *_FLOATS) and is_plain(w, torch.int8) and is_plain(scales, *_FLOATS)


def _product(build: Builder, x: Node, w: Node, scales: Node, node: Node) -> Node:
    meta = node.meta
    scales = build.cast(scales, torch.float32, scales.meta)
    of_pairs = x.meta["val"].dtype == torch.bfloat16 and has_pairs()
    if of_pairs and not widens_few(x.meta["val"].shape[0], torch.int8):
        panels = build.panels(build.permute(w, [1, 0], w.meta), w.meta, pairs=True)
        made = build.panel_mm(x, panels, w.meta["val"].shape[0], meta)
    else:
        x, w = (build.cast(one, torch.float32, one.meta) for one in (x, w))
        made = build.call(aten.mm.default, (x, build.permute(w, [1, 0], w.meta)), meta)
    scaled = build.call(aten.mul.Tensor, (made, scales), meta)
    return build.cast(scaled, meta["val"].dtype, meta)
