"""Weights of recurrent layers in the order that their steps read, otherwise made in every call.

before                                             after
    l = framegraph.recurrent_layer(x, h, c, w,         p = framegraph.recurrent_weights(w, kind)
                                   ...)                l = framegraph.recurrent_layer(x, h, c, w,
                                                                                      ..., p)

Packed weights are derived statics. To pack takes as long as two to three of a layer's steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from fxgraph.aot import FunctionalGraph
from fxgraph.aot.recurrent import reads_packed, recurrent_layer, recurrent_weights
from fxgraph.graph_module import GraphModule
from fxgraph.node import Node
from inductor.costs import room_for_copies
from inductor.derive import PREPARED, closure
from inductor.rewriter import GraphRewriter

_PACKED, _PACKED_HR, _PACKED_IH = 10, 11, 14  # among the operator's arguments
# Bytes of weights of the inputs, of more of which a library's product of all steps is faster (steps
# of 16 rows, Xeon with AMX, one thread, ms of the product and the steps, and by the operator: LSTM
# of 1024 units by 256 inputs 52, 52, by 1024 73, 81). In bfloat16, libraries have no instructions.
_NEAR = 4 << 20
_PROJECTION = 0  # the kind whose packing is a plain matrix's: a layer's projection


def pack_recurrent(
    functional: FunctionalGraph, sources: Mapping[Node, int]
) -> tuple[FunctionalGraph, str] | None:
    """The graph with packed weights, and a note."""
    gm = functional.graph_module
    layers = _layers(gm, sources)
    needed = sum(w.meta["val"].nbytes for packed in layers.values() for w in packed.values())
    if not layers or needed > room_for_copies():
        return None
    run = _Pack(layers)
    run.rewrite(gm.graph)
    note = f"pack: weights of {len(layers)} recurrent layers in the order of their steps"
    return functional.with_graph(run.graph), note


def _layers(gm: GraphModule, sources: Mapping[Node, int]) -> dict[Node, dict[int, Node]]:
    """Layer -> argument that is a packed weight -> the weight, for those that are static and read
    packed.
    """
    layers = [node for node in gm.graph.nodes if node.target is recurrent_layer]
    if not layers:
        return {}
    static = closure(gm.graph.nodes, sources)
    found = {}
    for node in layers:
        inputs, _, _, w_hh, _, w_hr, _, _, save, _, _, _, _, w_ih, _ = _arguments(node)
        packed = {}
        if not save and reads_packed(inputs.meta["val"], w_hh.meta["val"]):
            packed = {_PACKED: w_hh, _PACKED_HR: w_hr}
        if w_ih is not None and (_is_near(w_ih.meta["val"])):
            packed[_PACKED_IH] = w_ih
        found[node] = {place: weight for place, weight in packed.items() if weight in static}
    return {node: packed for node, packed in found.items() if packed}


def _is_near(w_ih: torch.Tensor) -> bool:
    return w_ih.dtype is torch.bfloat16 or w_ih.nbytes <= _NEAR


def _arguments(node: Node) -> list[Any]:
    return [*node.args, *[None] * (len(recurrent_layer._schema.arguments) - len(node.args))]


class _Pack(GraphRewriter):
    def __init__(self, layers: Mapping[Node, Mapping[int, Node]]) -> None:
        super().__init__()
        self._layers = layers
        self._packed: dict[Any, Node] = {}

    def add(self, node: Node) -> None:
        if node not in self._layers:
            return super().add(node)
        given = [self.new[arg] if isinstance(arg, Node) else arg for arg in _arguments(node)]
        for place, weight in self._layers[node].items():
            kind = _PROJECTION if place == _PACKED_HR else node.args[6]
            given[place] = self._weight(weight, kind)
        made = self.graph.call_function(node.target, tuple(given))
        made.meta = dict(node.meta)
        self.new[node] = made

    def _weight(self, weight: Node, kind: int) -> Node:
        if (weight, kind) not in self._packed:
            args = (self.new[weight], kind)
            made = self.graph.call_function(recurrent_weights, args)
            val = recurrent_weights(weight.meta["val"], kind)
            made.meta = {**weight.meta, "val": val, PREPARED: True}
            self._packed[weight, kind] = made
        return self._packed[weight, kind]
