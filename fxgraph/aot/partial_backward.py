"""A part of the backward graph: of one segment, for those of its tangents that arrive at run time.

before (tangent_1 is absent)             after
    mul = aten.mul.Tensor(tangent_0, x)      mul = aten.mul.Tensor(tangent_0, x)
    mul_1 = aten.mul.Tensor(tangent_1, y)    return (mul,)
    add = aten.add.Tensor(mul, mul_1)        handed on: tangent_0
    return (add, tangent_0)
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from fxgraph.aot.functional import FunctionalGraph, Segment, TrainingGraph, flat_graph
from fxgraph.aot.handed_on import HandedOn, hand_on, own_memory, shares_memory
from fxgraph.aot.partition import Parts
from fxgraph.args import map_aggregate
from fxgraph.expression_nodes import ExpressionNodes
from fxgraph.graph import Graph
from fxgraph.graph_module import GraphModule
from fxgraph.node import Node
from fxgraph.size_forms import same
from fxgraph.symbolic_values import is_symbol, is_symbolic, layout_numbers

aten = torch.ops.aten


@dataclass
class BackwardPart:
    """graph: takes the saved values `saved`, then the tangents `tangents`; returns the gradients
    `gradients`: positions in the lists of the TrainingGraph. handed_on: the other gradients.
    """

    graph: FunctionalGraph
    saved: list[int]
    tangents: list[int]
    gradients: list[int]
    handed_on: HandedOn = field(default_factory=HandedOn)

    @property
    def computes(self) -> bool:
        """Whether the graph has to be run."""
        nodes = self.graph.graph_module.graph.nodes
        return any(node.op.startswith("call_") for node in nodes)


def backward_part(
    training: TrainingGraph, segment: Segment, present: Sequence[int]
) -> BackwardPart:
    """The contribution of the segment's tangents `present` (positions) to its gradients."""
    whole = training.backward
    every = list(range(len(training.tangents)))
    results = whole.graph_module.graph.output_node().args[0]
    complete = list(present) == every and len(training.segments) == 1
    if complete and not shares_memory(results):
        saved = list(range(len(training.saved)))
        return BackwardPart(whole, saved, every, list(range(len(training.gradients))))
    found = _Contribution(training, segment, present)
    module = GraphModule(whole.graph_module, found.graph)
    module.meta.update(whole.graph_module.meta)
    graph = flat_graph(module)
    return BackwardPart(graph, found.saved, found.tangents, found.gradients, found.handed_on)


class _Contribution:
    """Copies the nodes that depend on present tangents; a node that depends on absent ones alone is
    zero.
    """

    def __init__(self, training: TrainingGraph, segment: Segment, present: Sequence[int]) -> None:
        source = training.backward.graph_module.graph
        nodes = list(source.nodes)
        count = len(training.saved)
        placeholders = [node for node in nodes if node.op == "placeholder"]
        tangents = placeholders[count:]
        self.zero = reached(nodes, tangents) - reached(nodes, [tangents[k] for k in present])
        self.made: dict[Node, Node] = {}
        self.graph = Graph()
        self._known = _known_symbols(nodes, count)
        self._sizes: ExpressionNodes | None = None
        for node in nodes:
            if node.op != "output" and (node not in self.zero or node in placeholders):
                self.made[node] = self._copy(node)
        results = nodes[-1].args[0]
        wanted = [k for k in segment.gradients if training.sources[k].intersection(present)]
        found = {k: self._of(results[k]) for k in wanted}
        given = [self.made[node] for node in tangents]
        self.handed_on = hand_on(found, given)
        self.gradients = list(found)
        self.graph.output(own_memory(self.graph, list(found.values()), given))
        self.graph.eliminate_dead_code()
        used = [bool(self.made[node].users) or _tells_size(node) for node in placeholders]
        for node, needed in zip(placeholders, used):
            if not needed:
                self.graph.erase_node(self.made[node])
        self.saved = [i for i in range(count) if used[i]]
        self.tangents = [k for k in range(len(tangents)) if used[count + k]]

    def _copy(self, node: Node) -> Node:
        part = sole_part(node, self.zero)
        if part is not None:
            return self._of(part)
        return self.graph.node_copy(node, self._of)

    def _of(self, node: Node) -> Any:
        made = self.made.get(node)
        return made if made is not None and node not in self.zero else self._zeros(node)

    def _zeros(self, node: Node) -> Any:
        val = node.meta["val"]
        if not isinstance(val, torch.Tensor):
            return self._number(val)
        size, options = list(val.shape), {"dtype": val.dtype, "device": val.device}
        zeros = self._emit(aten.full.default, (size, 0), options, val.new_empty(val.shape))
        if zeros.meta["val"].stride() == val.stride():
            return zeros
        memory = self._emit(aten.empty_strided.default, (size, list(val.stride())), options, val)
        return self._emit(aten.copy.default, (memory, zeros), {}, val)

    def _emit(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], val: Any) -> Node:
        node = self.graph.call_function(op, map_aggregate(args, self._number), kwargs)
        node.meta["val"] = val
        return node

    def _number(self, leaf: Any) -> Any:
        """The node of a size that varies."""
        if not is_symbolic(leaf):
            return leaf
        if self._sizes is None:
            env = leaf.node.shape_env
            self._sizes = ExpressionNodes(env, self._symbol, self.graph.call_function)
        return self._sizes.of(leaf)

    def _symbol(self, symbol: Any) -> Node:
        node, dim = self._known[symbol]
        if dim is None:
            return self.made[node]
        return _size_of(self.graph, self.made[node], dim)


def _tells_size(node: Node) -> bool:
    """Whether a placeholder is a number: another part of the backward may need it."""
    read = any(user.target is aten._local_scalar_dense.default for user in node.users)
    return read or is_symbol(node.meta["val"])


def _known_symbols(nodes: Sequence[Node], saved: int) -> dict[Any, tuple[Node, int | None]]:
    """Symbol -> the node that is its value, or the saved tensor and the dimension that tell it,
    whichever tangents arrive.
    """
    placeholders = [node for node in nodes if node.op == "placeholder"]
    behind = reached(nodes, placeholders[saved:])
    found: dict[Any, tuple[Node, int | None]] = {}
    value: Any
    for node in placeholders[:saved]:
        value = node.meta["val"]
        sizes: Sequence[Any] = value.shape if isinstance(value, torch.Tensor) else ()
        for dim, size in enumerate(sizes):
            if is_symbol(size):
                found[size.node.expr] = node, dim
    for node in nodes:
        value = node.meta.get("val")
        if node in behind or not is_symbol(value):
            continue
        if node.op == "placeholder" or value.node.expr not in found:  # others may come late
            found[value.node.expr] = node, None
    return found


def tell_sizes(parts: Parts, values: int, number: torch.Tensor) -> bool:
    """Have the forward keep the sizes that depend on data without which the backward could not be
    made for any of its tangents: the sizes of zeros in the place of other tangents. False: it has
    no such number.

    values: how many results the forward has besides the kept values. number: a fake one, as a
    tensor.
    """
    untold = _untold(parts.backward, len(parts.saved))
    found = _numbers(parts.forward, untold)
    if len(found) != len(untold):
        return False
    output = parts.forward.output_node()
    placeholders = [node for node in parts.backward.nodes if node.op == "placeholder"]
    for symbol, (node, dim) in found.items():
        with parts.forward.inserting_before(output):
            size = node if dim is None else _size_of(parts.forward, node, dim)
            kept = parts.forward.call_function(
                aten.scalar_tensor.default, (size,), {"dtype": torch.int64}
            )
        kept.meta["val"] = number
        results = (*output.args[0], kept)  # type: ignore[misc]
        output.args = (results,)
        with parts.backward.inserting_before(placeholders[len(parts.saved)]):
            given = parts.backward.placeholder(f"size_{symbol}")
        given.meta["val"] = number
        with parts.backward.inserting_after(placeholders[-1]):
            read = parts.backward.call_function(aten._local_scalar_dense.default, (given,))
        read.meta["val"] = size.meta["val"]
        placeholders.insert(len(parts.saved), given)
        parts.saved.append(("kept", len(results) - 1 - values))
    return True


def _numbers(forward: Graph, wanted: Collection[Any]) -> dict[Any, tuple[Node, int | None]]:
    """Symbol -> the node that is its value, or a tensor and the dimension that tell it."""
    found: dict[Any, tuple[Node, int | None]] = {}
    for node in forward.nodes:
        value: Any = node.meta.get("val")
        sizes: Sequence[Any] = value.shape if isinstance(value, torch.Tensor) else ()
        for dim, size in [(None, value), *enumerate(sizes)]:
            if is_symbol(size) and size.node.expr in wanted:
                found.setdefault(size.node.expr, (node, dim))
    return found


def _size_of(graph: Graph, node: Node, dim: int) -> Node:
    size = graph.call_function(aten.sym_size.int, (node, dim))
    size.meta["val"] = node.meta["val"].shape[dim]
    return size


def _untold(backward: Graph, saved: int) -> set[Any]:
    """The symbols that no saved value tells, in sizes of zeros that a part of the backward may
    need.
    """
    nodes = list(backward.nodes)
    known = _known_symbols(nodes, saved)
    tangents = [node for node in nodes if node.op == "placeholder"][saved:]
    # The tangents on which each node depends, as bits.
    sources = {node: 1 << number for number, node in enumerate(tangents)}
    for node in nodes:
        if node not in sources:
            given = [sources[arg] for arg in node.all_input_nodes]
            sources[node] = functools.reduce(operator.or_, given, 0)
    return {
        symbol
        for node in nodes
        if sources[node] and any(_takes_more(user, sources[node], sources) for user in node.users)
        for size in layout_numbers(node.meta.get("val"))
        for symbol in size.node.expr.free_symbols
        if symbol not in known
    }


def _takes_more(user: Node, source: int, sources: Mapping[Node, int]) -> bool:
    """Whether a user of `source` still computes something if the values of `source` are absent."""
    return user.op != "output" and sources[user] != source


def reached(nodes: Sequence[Node], starts: Sequence[Node]) -> set[Node]:
    """The nodes that depend on one of `starts`, and these."""
    found = set(starts)
    for node in nodes:
        if any(arg in found for arg in node.all_input_nodes):
            found.add(node)
    return found


def sole_part(total: Node, zero: Collection[Node]) -> Node | None:
    """The one part of a sum that arrives, if it can be used for the sum: as a gradient autograd
    gives it with the strides that it has (an expanded one of `sum`).
    """
    part = _arriving(total, zero)
    return part if part is not None and (alike(part, total) or _is_given(total, zero)) else None


def _arriving(total: Node, zero: Collection[Node]) -> Node | None:
    """The one part of a sum that arrives."""
    if total.target is not aten.add.Tensor or total.kwargs:
        return None
    live = [arg for arg in total.args if arg not in zero]
    if len(live) != 1 or not isinstance(live[0], Node):
        return None
    a, b = live[0].meta["val"], total.meta["val"]
    return live[0] if a.dtype == b.dtype and same(a.shape, b.shape) else None


def _is_given(node: Node, zero: Collection[Node]) -> bool:
    """Whether nothing is computed of a gradient."""
    return all(
        user.op == "output" or (_arriving(user, zero) is node and _is_given(user, zero))
        for user in node.users
    )


def alike(one: Node, other: Node) -> bool:
    """Whether two values are tensors of the same type, sizes and strides by their form:
    no guard can be added during a backward.
    """
    a, b = one.meta["val"], other.meta["val"]
    return a.dtype == b.dtype and same(a.shape, b.shape) and same(a.stride(), b.stride())
