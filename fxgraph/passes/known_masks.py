"""Masks of attention that no input decides, replaced by none or by `is_causal`.

before                                          after
    i = torch.arange(16)                            y = sdpa(q, k, v, is_causal=True)
    m = i[None] <= i[:, None]
    y = sdpa(q, k, v, attn_mask=m)

Models make masks of positions where they cannot look at values, as in a graph: with a mask that
hides nothing, or all that is ahead, attention's fastest kernels are out of reach. Such a mask is
computed here, of known sizes and on the CPU.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from fxgraph import effects
from fxgraph.args import map_aggregate
from fxgraph.graph import Graph
from fxgraph.graph_module import GraphModule
from fxgraph.node import Node

ATTENTION = torch.nn.functional.scaled_dot_product_attention
LARGEST = 1 << 24  # elements of a value that is computed here
_NAMES = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")


def known_masks(gm: GraphModule) -> tuple[GraphModule, int]:
    """The graph with fewer masks, and how many fewer; the same graph if there are none."""
    found = {}
    known: _Known | None = None
    for node in gm.graph.find_nodes(op="call_function", target=ATTENTION):
        mask = _argument(node, "attn_mask")
        if isinstance(mask, Node) and not _argument(node, "is_causal"):
            known = known or _Known(gm.graph)
            meaning = known.meaning(node, mask)
            if meaning is not None:
                found[node] = meaning == "causal"
    if not found:
        return gm, 0
    graph = Graph()
    copies: dict[Node, Node] = {}
    result = graph.graph_copy(gm.graph, copies)
    graph.output(result)
    for node, causal in found.items():
        copy = copies[node]
        given = dict(zip(_NAMES, copy.args, strict=False)) | copy.kwargs
        given |= {"attn_mask": None, "is_causal": causal}
        copy.args = tuple(given.pop(name) for name in _NAMES[:3])
        copy.kwargs = given
    graph.eliminate_dead_code()
    return gm.with_graph(graph), len(found)


def _argument(node: Node, name: str) -> Any:
    place = _NAMES.index(name)
    return node.args[place] if place < len(node.args) else node.kwargs.get(name)


class _Known:
    """Values of nodes that depend on no input."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.values: dict[Node, Any] = {}
        self.meanings: dict[Any, str | None] = {}
        self.depends: dict[Node, bool] = {}
        for node in graph.nodes:
            self.depends[node] = self._depends(node)
        for node in reversed(graph.nodes):
            if not self.depends[node] and any(map(self._may_write, node.users)):
                self._spoil(node)

    def _depends(self, node: Node) -> bool:
        """Whether a value cannot be told from the graph alone, or without much work."""
        if node.op not in ("call_function", "call_method") or effects.of(node).impure():
            return True
        if any(self.depends[used] for used in node.all_input_nodes):
            return True
        val = node.meta.get("val")
        if not isinstance(val, torch.Tensor) or val.layout is not torch.strided:
            return True
        return not all(isinstance(n, int) for n in val.shape) or val.numel() > LARGEST

    def _may_write(self, user: Node) -> bool:
        """Whether a reader of a known value writes it, or has a view that another could write."""
        if user.target is ATTENTION or not self.depends[user] or user.op == "output":
            return False
        found = effects.of(user)
        if found.writes or found.other:
            return True
        val = user.meta.get("val")
        if not isinstance(val, torch.Tensor):
            return val is not None and not isinstance(val, (int, float, bool))
        read = [used for used in user.all_input_nodes if not self.depends[used]]
        try:
            return any(_share_memory(val, used.meta["val"]) for used in read)
        except (RuntimeError, NotImplementedError):  # a tensor without a storage
            return True

    def _spoil(self, node: Node) -> None:
        pending = [node]
        while pending:
            one = pending.pop()
            if not self.depends[one]:
                self.depends[one] = True
                pending += [*one.users, *one.all_input_nodes]

    def meaning(self, node: Node, mask: Node) -> str | None:
        """The meaning of a mask: "all", "causal", or None where neither."""
        if self.depends[mask]:
            return None
        sizes = [_argument(node, name).meta["val"].shape[-2] for name in ("query", "key")]
        if not all(isinstance(n, int) for n in sizes):
            return None
        key = (mask, *sizes)
        if key not in self.meanings:
            try:
                with _disable_current_modes(), torch.device("cpu"), torch.no_grad():
                    self.meanings[key] = _meaning(self.value(mask), *sizes)
            except Exception:  # the call itself raises, in its place
                self.meanings[key] = None
        return self.meanings[key]

    def value(self, node: Node) -> Any:
        needed, pending = set(), [node]
        while pending:
            one = pending.pop()
            if one not in needed and one not in self.values:
                needed.add(one)
                pending += one.all_input_nodes
        for one in self.graph.nodes:
            if one in needed:
                args, kwargs = map_aggregate((one.args, one.kwargs), self._leaf)
                if one.op == "call_method":
                    self.values[one] = getattr(args[0], one.target)(*args[1:], **kwargs)
                else:
                    self.values[one] = one.target(*args, **kwargs)
        return self.values[node]

    def _leaf(self, leaf: Any) -> Any:
        if isinstance(leaf, Node):
            return self.values[leaf]
        if isinstance(leaf, torch.device) or (isinstance(leaf, str) and leaf.startswith("cuda")):
            return torch.device("cpu")
        return leaf


def _share_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.untyped_storage()._cdata == b.untyped_storage()._cdata


def _meaning(mask: torch.Tensor, queries: int, keys: int) -> str | None:
    if mask.dim() < 2:
        mask = mask.expand(1, -1) if mask.dim() else mask.expand(1, 1)
    # Of what a stride of 0 repeats, one will do.
    mask = mask[tuple(slice(0, 1) if step == 0 else slice(None) for step in mask.stride())]
    if mask.dtype != torch.bool:
        hides = mask <= torch.finfo(mask.dtype).min
        if not (hides | (mask == 0)).all():
            return None
        mask = ~hides
    if mask.all():
        return "all"
    ahead = torch.ones(queries, keys, dtype=torch.bool).tril()
    if mask.shape[-2:] == ahead.shape and (mask == ahead).all():
        return "causal"
    return None
