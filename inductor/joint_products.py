"""Products of one matrix with several weights, as one product.

before                                after
    q = aten.addmm(a, x, u)               w = aten.cat([u, v], 1)               | derived statics
    k = aten.addmm(b, x, v)               c = aten.cat([a, b])
                                          m = aten.addmm(c, x, w)
                                          q = aten.slice(m, 1, 0, 768)
                                          k = aten.slice(m, 1, 768, 1536)

The queries, keys and values of attention, and the two halves of a gated layer. What reads the
results reads them with the strides of the whole, as far as there are only views between; a result
of the graph stays apart, and one that is read by its place in memory.

On a GPU x is read once, and a product of few tiles leaves multiprocessors idle. On the CPU x stays
in the cache, and what is saved is the start of threads: products of up to 8 rows are joint
where there are several, others where `max-autotune` measures them as faster. Time of separate
products over that of joint ones, with the attention behind them, AVX2, by `python -m
benchmarks.joint`: widths 256, 384 and 768 with two threads, float32 1.05 to 1.4 up to 8 rows,
bfloat16 0.97 to 1.21 for 2 to 8, and 0.7 to 1.2 for 16 and 32; with one thread 0.95 to 1.1, and 1.0
for 128. The halves of a gated layer stay apart: generated, they are one kernel with the one that
reads both (schedule/fusion.py), and it follows the second one otherwise. So do weights in training,
which would be put beside each other in every step.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from fxgraph.aot import FunctionalGraph
from fxgraph.args import leaves, map_aggregate
from fxgraph.node import Node
from inductor import costs, devices, panel_sample
from inductor.codegen.triton_products import library_seconds
from inductor.costs import room_for_copies
from inductor.derive import PREPARED, closure
from inductor.devices import EMPTY, Device
from inductor.lowering.device_products import precision
from inductor.lowering.layouts import sees_storage
from inductor.measure import Budget, Candidate, fastest
from inductor.pack import constant
from inductor.panels import has_pairs
from inductor.products import products_of
from inductor.rewriter import GraphRewriter
from inductor.runtime.plan import dtype_name

aten = torch.ops.aten
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

    @property
    def results(self) -> list[Node]:
        """Whose places parts of the whole take: the products', or those of their copies of another
        dtype, if these alone read them.
        """
        on_gpu = devices.is_gpu(self.nodes[0].meta["val"].device)
        copies = [None if on_gpu else _copy(node) for node in self.nodes]
        alike = len({copy and copy.kwargs["dtype"] for copy in copies}) == 1
        return [copy for copy in copies if copy is not None and alike] or self.nodes

    def parts(self) -> list[Any]:
        """Fake tensors with the layouts of the parts of the whole."""
        vals, parts, start = [node.meta["val"] for node in self.results], [], 0
        columns = sum(val.shape[1] for val in vals)
        whole = _fake(aten.new_empty.default, vals[0], [vals[0].shape[0], columns])
        for val in vals:
            end = start + val.shape[1]
            parts.append(_fake(aten.slice.Tensor, whole, 1, start, end))
            start = end
        return parts

    def pays(self, device: Device) -> bool:
        """Whether the whole is expected to take less time than the parts."""
        kind = self.nodes[0].meta["val"].dtype
        rows, inner = self.nodes[0].args[-2].meta["val"].shape
        columns = [node.meta["val"].shape[1] for node in self.nodes]

        def seconds(count: int) -> float:
            return EMPTY + library_seconds((1, rows, inner, count), kind, precision(kind), device)

        return seconds(sum(columns)) < sum(map(seconds, columns))


def joined_products(
    functional: FunctionalGraph,
    sources: Mapping[Node, int],
    target: str = "",
    tuning: str = "off",
) -> tuple[FunctionalGraph, str] | None:
    """The graph with such products as one, and a note; None if there are none.

    sources: the static inputs that weights may be copied from. target: the GPU's, if not at hand.
    tuning: the option; with "off", products on the CPU stay as they are.
    """
    gm = functional.graph_module
    given: dict[Any, _Group] = {}
    static = closure(gm.graph.nodes, sources) if sources else {}
    most = _most_rows(tuning)
    for node in gm.graph.nodes:
        if (key := _key(node, static, most)) is not None:
            given.setdefault(key, _Group()).nodes.append(node)
    room = {True: _room(), False: room_for_copies()}
    groups = []
    for group in given.values():
        group.nodes = _with_views(group)
        if len(group.nodes) < 2:
            continue
        device = group.nodes[0].meta["val"].device
        gpu = devices.is_gpu(device)
        if gpu and not group.pays(devices.device_model(device.index or 0, target)):
            continue
        if not gpu and not _pays_on_cpu(group, tuning == "full"):
            continue
        if group.nbytes <= room[gpu]:
            room[gpu] -= group.nbytes
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
    """Bytes of a GPU that copies of weights may take in one graph."""
    if not torch.cuda.is_available():
        return math.inf  # for a GPU that is not at hand
    return (
        costs.WEIGHTS_SHARE
        * torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
    )


def _most_rows(tuning: str) -> float:
    """Of products on the CPU that may be joint."""
    if tuning == "off" or panel_sample.identity() is None:
        return 0
    if tuning == "full":
        return math.inf
    return costs.JOINT_ROWS if torch.get_num_threads() > 1 else 0


def _key(node: Node, static: Mapping[Node, Any], most_rows: float) -> Any:
    """A key that products which can be one have in common; None for other nodes. most_rows: of
    those on the CPU.
    """
    if node.target not in (aten.mm.default, aten.addmm.default) or node.kwargs:
        return None
    *bias, x, weight = node.args
    vals = [used.meta["val"] for used in (*bias, x, weight, node)]
    if not all(used in static for used in (*bias, weight)) or x in static:
        return None
    if vals[-1].device.type == "cpu":
        for product in products_of([node]) if most_rows else ():
            if product.rows <= most_rows and (not product.in_pairs or has_pairs()):
                return x, len(bias), product.dtype
        return None
    if not all(isinstance(n, int) and n > 0 for val in vals for n in val.shape):
        return None
    if any(one.meta["val"].dim() != 1 for one in bias) or vals[-1].dtype not in _DTYPES:
        return None
    if not all(devices.is_gpu(val.device) and val.dtype == vals[-1].dtype for val in vals):
        return None
    if bias and vals[0].shape[0] != vals[-1].shape[1]:
        return None
    return x, len(bias)


def _pays_on_cpu(group: _Group, measured: bool) -> bool:
    """Whether the whole is faster than the parts: by the number of kernels, or as measured."""
    products = products_of(group.nodes)
    kernels = 1 + _are_read_together(group.results)
    if kernels >= len(products) or not measured:
        return kernels < len(products)
    rows, inner = panel_sample.height(products[0].rows), products[0].inner
    columns, kind = [p.columns for p in products], products[0].of_narrow
    parts = "+".join(map(str, columns))
    dtype = dtype_name(products[0].multiplied)
    key = f"{dtype} {rows}x{inner}x({parts}){kind} by {panel_sample.identity()}, joint"
    budget = Budget(math.inf)

    def sample(*columns: int) -> Candidate:
        x = constant((rows, inner), products[0].multiplied)
        weights = (constant((inner, n), products[0].dtype) for n in columns)
        return lambda: panel_sample.sample_in_turn(x, list(weights), budget)

    candidates = {"separate": sample(*columns), "joint": sample(sum(columns))}
    choice = fastest(key, candidates, budget, ahead=costs.JOINT_AHEAD)
    return choice is not None and choice.name == "joint"


def _are_read_together(results: list[Node]) -> bool:
    """Whether several are read by one kernel, which follows the last of them if they are apart:
    by operators that compute element by element.
    """
    of: dict[Node, Node] = {}  # a reader -> the result that it reads
    for result in results:
        found = [result]
        while found:
            for user in found.pop().users:
                if not isinstance(user.target, torch._ops.OpOverload) or of.get(user) is result:
                    continue
                pointwise = torch.Tag.pointwise in user.target.tags
                if pointwise and user in of:
                    return True
                if pointwise or _is_view(user):
                    of[user] = result
                    found.append(user)
    return False


def _copy(node: Node) -> Node | None:
    """The copy of another dtype that alone reads the value, if there is one."""
    user = next(iter(node.users)) if len(node.users) == 1 else node
    return user if user.target is aten._to_copy.default and {*user.kwargs} == {"dtype"} else None


def _with_views(group: _Group) -> list[Node]:
    """The products whose result may be a part of another tensor: no result of the graph is a view
    of it, every view can be taken, and what else reads it gives the same."""
    while True:
        places = zip(group.nodes, group.results, group.parts(), strict=True)
        found = [node for node, result, part in places if _can_be(result, part)]
        if len(found) in (0, len(group.nodes)):
            return found
        group.nodes = found


def _can_be(node: Node, val: Any) -> bool:
    for user in node.users:
        if user.op == "output" or _sees_memory(user):
            return False
        on_gpu = devices.is_gpu(node.meta["val"].device)
        if on_gpu and not _is_view(user):
            continue
        try:
            made = _value(user, {node: val})
            views = _is_view(user)
            alike = views or _strides(made, user) == _strides(user.meta["val"], user)
        except (RuntimeError, ValueError):  # sizes that depend on data among them
            return False
        if not alike or (views and not _can_be(user, made)):
            return False
    return True


def _sees_memory(node: Node) -> bool:
    """Whether the operator may read its arguments otherwise than element by element, or write them:
    those that programs define, and bodies of control flow, may.
    """
    if _is_view(node):
        return node.target is not operator.getitem and sees_storage(node.target)
    if not isinstance(node.target, torch._ops.OpOverload):
        return True
    schema = node.target._schema
    of_torch = node.target.namespace in ("aten", "prims")
    return not of_torch or schema.is_mutable or sees_storage(node.target)


def _strides(tree: Any, node: Node) -> list[list[Any]]:
    """Of each tensor of a node's value; those of one element do not count unless it is returned."""
    tensors = (val for val in leaves(tree) if isinstance(val, torch.Tensor))
    every = _is_returned(node)
    return [
        [step for n, step in zip(val.shape, val.stride(), strict=True) if every or n != 1]
        for val in tensors
    ]


def _is_returned(node: Node) -> bool:
    """Whether the value, or a view of it, is a result of the graph."""
    return any(
        user.op == "output" or (_is_view(user) and _is_returned(user)) for user in node.users
    )


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
        self._groups = {result: group for group in groups for result in group.results}
        self._products = {node for group in groups for node in group.nodes}
        self._parts: dict[Node, Node] = {}  # a result -> its part of the whole
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
        if node in self._products:  # a copy takes its place
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
        results = group.results
        if results != group.nodes:
            copy = results[0]
            whole = self._call(copy.target, whole, like=copy.meta, **copy.kwargs)
        start = 0
        for node in results:
            end = start + node.meta["val"].shape[1]
            part = self._call(aten.slice.Tensor, whole, 1, start, end, like=node.meta)
            self._parts[node], start = part, end

    def _weight(self, weights: list[Node], dim: int = 1) -> Node:
        """The weights beside each other, turned and copied as they are."""
        like, first = weights[0].meta, weights[0]
        turned = _is_turned(first)
        if turned or first.target is aten._to_copy.default:
            rest = first.args[1:]
            if all(
                (w.target, w.args[1:], w.kwargs) == (first.target, rest, first.kwargs)
                for w in weights
            ):
                whole = self._weight([w.args[0] for w in weights], 1 - dim if turned else dim)
                return self._call(first.target, whole, *rest, prepared=like, **first.kwargs)
        return self._call(aten.cat.default, [*map(self._early, weights)], dim, prepared=like)

    def _early(self, node: Node) -> Node:
        """A node of parameters alone, which may stand further on in the old graph."""
        for used in node.all_input_nodes:
            self._early(used)
        self.add(node)
        return self.new[node]

    def _call(
        self, target: Any, *args: Any, like: Any = None, prepared: Any = None, **kwargs: Any
    ) -> Node:
        made = self.graph.call_function(target, args, kwargs)
        vals = map_aggregate(args, lambda a: a.meta["val"] if isinstance(a, Node) else a)
        made.meta = {**(like or prepared), "val": _fake(target, *vals, **kwargs)}
        if prepared is not None:
            made.meta[PREPARED] = True
        return made


def _is_turned(node: Node) -> bool:
    """Whether the node is the transposed of a matrix."""
    if node.target is aten.transpose.int:
        return (node.args[1] - node.args[2]) % 2 == 1
    return node.target is aten.t.default or (
        node.target is aten.permute.default and [n % 2 for n in node.args[1]] == [1, 0]
    )


def _fake(target: Any, *vals: Any, **kwargs: Any) -> Any:
    """An operator's result on fake tensors, of which the first argument is one, or several."""
    first = vals[0][0] if isinstance(vals[0], (list, tuple)) else vals[0]
    with torch.no_grad(), first.fake_mode:
        return target(*vals, **kwargs)


__all__ = ["joined_products"]
