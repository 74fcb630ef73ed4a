"""Products of one matrix with several weights on a GPU, as one product.

before                                after
    q = aten.addmm(a, x, u)               w = aten.cat([u, v], 1)               | derived statics
    k = aten.addmm(b, x, v)               c = aten.cat([a, b])
                                          m = aten.addmm(c, x, w)
                                          q = aten.slice(m, 1, 0, 768)
                                          k = aten.slice(m, 1, 768, 1536)

The queries, keys and values of attention, and the two halves of a gated layer: x is read once, and
a product of few tiles leaves multiprocessors idle. What reads the results reads them with the
strides of the whole, as far as there are only views between; a result of the graph stays apart.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from fxgraph.aot import FunctionalGraph
from fxgraph.args import map_aggregate
from fxgraph.node import Node
from inductor import costs, devices
from inductor.codegen.triton_products import library_seconds
from inductor.derive import PREPARED, closure
from inductor.devices import EMPTY, Device
from inductor.lowering.device_products import precision
from inductor.rewriter import GraphRewriter

aten = torch.ops.aten
_TURNED = (aten.t.default, aten.permute.default, aten.transpose.int)
_DTYPES = frozenset([torch.float16, torch.bfloat16, torch.float32])


@dataclass(eq=False)
class _Group:
    """Products with one matrix, in their order, with weights and biases of parameters alone."""

    nodes: list[Node] = field(default_factory=list)

    @property
    def weights(self) -> list[Node]:
        return [node.args[-1] for node in self.nodes]

    @property
    def biases(self) -> list[Node]:
        return [node.args[0] for node in self.nodes if node.target is aten.addmm.default]

    @property
    def nbytes(self) -> int:
        return sum(node.meta["val"].nbytes for node in (*self.weights, *self.biases))

    def pays(self, device: Device) -> bool:
        """Whether the whole is expected to take less time than the parts."""
        kind = self.nodes[0].meta["val"].dtype
        rows, inner = self.nodes[0].args[-2].meta["val"].shape
        columns = [node.meta["val"].shape[1] for node in self.nodes]

        def seconds(count: int) -> float:
            return EMPTY + library_seconds((1, rows, inner, count), kind, precision(kind), device)

        return seconds(sum(columns)) < sum(map(seconds, columns))


def joined_products(
    functional: FunctionalGraph, sources: Mapping[Node, int], target: str = ""
) -> tuple[FunctionalGraph, str] | None:
    """The graph with such products as one, and a note; None if there are none.

    sources: the static inputs that weights may be copied from. target: the GPU's, if not at hand.
    """
    gm = functional.graph_module
    given: dict[Any, _Group] = {}
    static = closure(gm.graph.nodes, sources) if sources else {}
    for node in gm.graph.nodes:
        if (key := _key(node, static)) is not None:
            given.setdefault(key, _Group()).nodes.append(node)
    room = _room()
    groups = []
    for group in given.values():
        group.nodes = _with_views(group)
        if not group.nodes:
            continue
        number = group.nodes[0].meta["val"].device.index or 0
        if len(group.nodes) < 2 or not group.pays(devices.device_model(number, target)):
            continue
        if group.nbytes <= room:
            room -= group.nbytes
            groups.append(group)
    if not groups:
        return None
    run = _Join(groups)
    run.rewrite(gm.graph)
    run.graph.eliminate_dead_code()
    count = sum(len(group.nodes) for group in groups)
    note = f"products: {count} with {len(groups)} joint weights"
    return functional.with_graph(run.graph), note


def _room() -> float:
    """Bytes that copies of weights may take in one graph."""
    if not torch.cuda.is_available():
        return math.inf  # for a GPU that is not at hand
    return (
        costs.WEIGHTS_SHARE
        * torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
    )


def _key(node: Node, static: Mapping[Node, Any]) -> Any:
    """A key that products which can be one have in common; None for other nodes."""
    if node.target not in (aten.mm.default, aten.addmm.default) or node.kwargs:
        return None
    *bias, x, weight = node.args
    vals = [used.meta["val"] for used in (*bias, x, weight, node)]
    if not all(isinstance(n, int) and n > 0 for val in vals for n in val.shape):
        return None
    if not all(used in static for used in (*bias, weight)) or x in static:
        return None
    if any(one.meta["val"].dim() != 1 for one in bias) or vals[-1].dtype not in _DTYPES:
        return None
    if not all(devices.is_gpu(val.device) and val.dtype == vals[-1].dtype for val in vals):
        return None
    if bias and vals[0].shape[0] != vals[-1].shape[1]:
        return None
    return x, len(bias)


def _with_views(group: _Group) -> list[Node]:
    """The products whose result may be a part of another tensor: no result of the graph is a view
    of it, and every view can be taken."""
    return [node for node in group.nodes if _can_be(node, _part(node.meta["val"]))]


def _part(val: torch.Tensor) -> torch.Tensor:
    made = _fake(aten.new_empty.default, val, [val.shape[0], val.shape[1] + 8])
    part: torch.Tensor = _fake(aten.slice.Tensor, made, 1, 0, val.shape[1])
    return part


def _can_be(node: Node, val: Any) -> bool:
    for user in node.users:
        if user.op == "output":
            return False
        if not _is_view(user):
            continue
        try:
            made = _value(user, {node: val})
        except (RuntimeError, ValueError):
            return False
        if not _can_be(user, made):
            return False
    return True


def _is_view(node: Node) -> bool:
    if node.target is operator.getitem:
        return _is_view(node.args[0])
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    return node.target.is_view or node.target is aten._unsafe_view.default


def _value(node: Node, instead: Mapping[Node, Any]) -> Any:
    """The value of a view, with other values for some nodes."""

    def of(leaf: Any) -> Any:
        return instead.get(leaf, leaf.meta["val"]) if isinstance(leaf, Node) else leaf

    args, kwargs = map_aggregate((node.args, node.kwargs), of)
    if node.target is operator.getitem:
        return args[0][args[1]]
    return _fake(node.target, *args, **kwargs)


class _Join(GraphRewriter):
    def __init__(self, groups: list[_Group]) -> None:
        super().__init__()
        self._groups = {node: group for group in groups for node in group.nodes}
        self._parts: dict[Node, Node] = {}  # a product -> its part of the whole
        self._moved: dict[Node, Any] = {}  # of the old graph -> values with other strides

    def add(self, node: Node) -> None:
        if node in self.new:  # needed before its place
            return
        if node in self._groups:
            if node not in self._parts:
                self._join(self._groups[node])
            self.new[node] = self._parts[node]
            self._moved[node] = self.new[node].meta["val"]
            return
        super().add(node)
        if _is_view(node) and any(used in self._moved for used in node.all_input_nodes):
            self._moved[node] = self.new[node].meta["val"] = _value(node, self._moved)

    def _join(self, group: _Group) -> None:
        x, like = group.nodes[0].args[-2], group.nodes[0].meta
        weight = self._weight(group.weights)
        if group.biases:
            bias = self._call(aten.cat.default, [*map(self._early, group.biases)], prepared=like)
            whole = self._call(aten.addmm.default, bias, self.new[x], weight, like=like)
        else:
            whole = self._call(aten.mm.default, self.new[x], weight, like=like)
        start = 0
        for node in group.nodes:
            end = start + node.meta["val"].shape[1]
            part = self._call(aten.slice.Tensor, whole, 1, start, end, like=node.meta)
            self._parts[node], start = part, end

    def _weight(self, weights: list[Node]) -> Node:
        """The weights beside each other, turned as they are."""
        like = weights[0].meta
        if not all(weight.target in _TURNED for weight in weights):
            return self._call(aten.cat.default, [*map(self._early, weights)], 1, prepared=like)
        rows = [self._early(weight.args[0]) for weight in weights]
        whole = self._call(aten.cat.default, rows, prepared=like)
        return self._call(aten.permute.default, whole, [1, 0], prepared=like)

    def _early(self, node: Node) -> Node:
        """A node of parameters alone, which may stand further on in the old graph."""
        for used in node.all_input_nodes:
            self._early(used)
        self.add(node)
        return self.new[node]

    def _call(self, target: Any, *args: Any, like: Any = None, prepared: Any = None) -> Node:
        made = self.graph.call_function(target, args)
        vals = map_aggregate(args, lambda a: a.meta["val"] if isinstance(a, Node) else a)
        made.meta = {**(like or prepared), "val": _fake(target, *vals)}
        if prepared is not None:
            made.meta[PREPARED] = True
        return made


def _fake(target: Any, *vals: Any, **kwargs: Any) -> Any:
    """An operator's result on fake tensors, of which the first argument is one, or several."""
    first = vals[0][0] if isinstance(vals[0], (list, tuple)) else vals[0]
    with torch.no_grad(), first.fake_mode:
        return target(*vals, **kwargs)


__all__ = ["joined_products"]
