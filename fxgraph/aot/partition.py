"""A joint graph cut in two: a forward part, and a backward part that recomputes or is given values.

The values saved between the parts are a minimum cut: every path from the inputs to the backward
crosses it, at the least number of bytes. Cheap pointwise operations and views may stand on the far
side, where they are computed again; matrix products, reductions and whatever draws random numbers
may not.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from fxgraph import effects
from fxgraph.aot import inplace
from fxgraph.aot.data import COUNT
from fxgraph.aot.functional import Unfunctionalizable, is_view, root_of
from fxgraph.aot.min_cut import INFINITE, Network
from fxgraph.aot.recompute import BACKWARD, PART
from fxgraph.args import leaves
from fxgraph.graph import Graph
from fxgraph.node import Node
from fxgraph.symbolic_values import hint_of, is_symbol, is_symbolic

aten = torch.ops.aten
# Inputs stay alive anyway, as a rule: parameters, and tensors that the caller holds.
_INPUT_SHARE = 0.01
_COPY_SHARE = 1.1  # of inputs that their owner may write, a copy is made
RECOMPUTED = "recomputed"  # in the meta of a node: in the backward it is computed anew
_DATA_SIZE = 1024  # the assumed value of a size that depends on data
# Besides operators that torch tags as pointwise: those that fill, and others that move or make
# elements.
_FILL = frozenset(
    getattr(aten, name)
    for name in ("full", "full_like", "new_full", "new_zeros", "zeros", "zeros_like")
)
_CHEAP = _FILL | {aten._to_copy, aten.arange, aten.cat, aten.clone, aten.scalar_tensor}


@dataclass
class Parts:
    """The two graphs, and the values that go from one to the other.

    forward: its placeholders are the joint graph's but the tangents; it returns the values, then
        the values kept for the backward besides inputs and these.
    backward: takes the saved values, then the tangents, and returns the gradients.
    saved: where each saved value is found: ("input" | "memory" | "value" | "kept", number), as
        in TrainingGraph.
    """

    forward: Graph
    backward: Graph
    saved: list[tuple[str, int]]


def partition(
    joint: Graph,
    values: Sequence[Node],
    tangents: Sequence[Node],
    gradients: Sequence[Node],
    *,
    saved_by_eager: Mapping[Node, Collection[int]],
    stored: Collection[Node] = (),
    drawn: Sequence[Node] = (),
) -> Parts:
    """Cut the joint graph in two. `saved_by_eager`: inputs and values that need no copy when
    saved for no more tangents than the numbered ones; others their owner may write. `stored`:
    written inputs that hold their new values until the backward, if it needs these. `drawn`: random
    numbers of the forward, drawn whether or not they are used: others come after them. Raises
    Unfunctionalizable if the graph writes an attribute, or has operators that write without
    functional variants.
    """
    writers = _writers(joint)
    behind = _behind(joint, tangents, writers)
    checks = [node for node in joint.nodes if _is_effect(node)]
    late = [node for node in checks if node in behind]  # of a size that a gradient has
    needed = _ancestors([*gradients, *late], writers=writers)
    before = [node for node in needed if node not in behind]
    writes = {node.args[0]: node for node in joint.nodes if node.target is aten.copy_.default}
    places_of = {
        write.args[1]: place
        for place, write in writes.items()
        if place in stored and _alike(write.args[1], place)
    }
    after = behind.intersection(needed)
    uncopied = _uncopied(joint, before, after, tangents, saved_by_eager)
    saved = _saved(joint, before, after, gradients, uncopied, places_of, writers)
    # Sizes in the backward may be made of any symbol.
    symbols = [n for n in joint.nodes if n.op == "placeholder" and is_symbol(n.meta["val"])]
    saved = [*symbols, *(node for node in saved if node not in symbols)]
    if any(target.op == "get_attr" for target in writes):
        raise Unfunctionalizable("an attribute is written")
    inputs = [n for n in joint.nodes if n.op == "placeholder" and n not in tangents]
    visible = {root_of(node) for node in [*inputs, *values]}
    handed: dict[Node, Node] = {}
    for node in saved:
        if node in places_of:
            handed[node] = places_of[node]
            continue
        mine = node in uncopied or node in symbols or root_of(node) not in visible
        handed[node] = _copied(joint, node, writes.get(node), mine)
    kept = [n for n in handed.values() if n not in values and n not in inputs]
    places: dict[Node, tuple[str, int]] = {}
    for name, nodes in (("kept", kept), ("value", values), ("input", inputs)):
        places.update({node: (name, i) for i, node in enumerate(nodes)})
    done = [*(node for node in checks if node not in behind), *drawn, *writes.values()]
    forward = _forward(joint, inputs, [*values, *kept], done, writers)
    found = [places[node] for node in handed.values()]
    mutable = [node for node in saved if handed[node] in inputs and node not in symbols]
    backward = _Backward(joint, saved, mutable, tangents, writers)
    backward.add(gradients, late)
    return Parts(forward, backward.graph, [*_read(found, backward, saved, mutable)])


def _read(
    found: Sequence[tuple[str, int]],
    backward: _Backward,
    saved: Sequence[Node],
    mutable: Sequence[Node],
) -> Iterator[tuple[str, int]]:
    """Where the placeholders of the backward that are left are found."""
    unread = backward.drop_unread()
    yield from (place for place, node in zip(found, saved) if node not in unread)
    places = dict(zip(saved, found))
    yield from (("memory", places[node][1]) for node in mutable if node in backward.memory)


def _alike(one: Node, other: Node) -> bool:
    """Whether the backward can take the one tensor for the other."""
    a, b = one.meta["val"], other.meta["val"]
    return a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride()


def _is_effect(node: Node) -> bool:
    """Whether the node is wanted without its results: a check, an operator that tells something."""
    target = node.target
    return isinstance(target, torch._ops.OpOverload) and effects.of_overload(target).other


def _writers(joint: Graph) -> dict[Node, Node]:
    """Copy -> the operator that writes it. One without a functional variant writes copies that the
    tracer made for it; they are whole only after it has run.
    """
    writers: dict[Node, Node] = {}
    for node in joint.nodes:
        if node.target is aten.copy_.default or not effects.of(node).writes:
            continue
        given = inplace.bind(node.target, node.args, node.kwargs)
        for argument in inplace.written_arguments(node.target):
            for copy in leaves(given.get(argument.name)):
                if not isinstance(copy, Node):
                    continue
                if copy.target is not aten.clone.default or copy in writers:
                    raise Unfunctionalizable(f"{node.target} writes its arguments")
                writers[copy] = node
    return writers


def _behind(joint: Graph, tangents: Sequence[Node], writers: Mapping[Node, Node]) -> set[Node]:
    """The nodes that depend on a tangent."""
    found = set(tangents)
    copies: dict[Node, list[Node]] = {}
    for copy, writer in writers.items():
        copies.setdefault(writer, []).append(copy)
    for node in joint.nodes:
        if node not in found and any(arg in found for arg in node.all_input_nodes):
            found.add(node)
            found.update(copies.get(node, ()))
    return found


def _ancestors(
    nodes: Sequence[Node],
    until: Collection[Node] = (),
    *,
    writers: Mapping[Node, Node],
) -> dict[Node, None]:
    """The nodes and all that they depend on, not looking behind those in `until`."""
    found: dict[Node, None] = {}
    todo = list(nodes)
    while todo:
        node = todo.pop()
        if node not in found:
            found[node] = None
            if node not in until:
                todo.extend(node.all_input_nodes)
                if node in writers:
                    todo.append(writers[node])
    return found


def _uncopied(
    joint: Graph,
    before: Collection[Node],
    after: Collection[Node],
    tangents: Sequence[Node],
    saved_by_eager: Mapping[Node, Collection[int]],
) -> set[Node]:
    """The tensors that eager saves for each tangent whose backward may read them, or compute from
    them again. Of the results of `a * w, a.relu()`, the second one's backward does without `a` in
    eager: `a` may be written then.
    """
    if len(tangents) == 1:
        return set(saved_by_eager)
    numbers = {node: 1 << k for k, node in enumerate(tangents)}  # as bits

    def of_all(nodes: Iterable[Node]) -> int:
        return functools.reduce(operator.or_, (numbers.get(node, 0) for node in nodes), 0)

    for node in joint.nodes:  # those that the node depends on
        if node in after and node not in numbers:
            numbers[node] = of_all(node.all_input_nodes)
    for node in reversed(list(joint.nodes)):  # those whose backward may need the node
        if node in before:
            numbers[node] = of_all(user for user in node.users if user in after or _cheap(user))
    return {
        node
        for node, users in saved_by_eager.items()
        if not numbers.get(node, 0) & ~sum(1 << k for k in set(users))
    }


# -- the cut --------------------------------------------------------------------------------------
def _saved(
    joint: Graph,
    before: Sequence[Node],
    after: set[Node],
    gradients: Sequence[Node],
    uncopied: Collection[Node],
    places_of: Mapping[Node, Node],
    written: Collection[Node],
) -> list[Node]:
    """The nodes of `before` to hand over to `after`, which depends on the tangents."""
    network = Network()
    forward, backward = network.add_node(), network.add_node()
    entries = {node: network.add_node() for node in before}
    exits = {node: network.add_node() for node in before}
    wanted = set(gradients)
    for node in before:
        place = places_of.get(node, node)
        network.add_arc(entries[node], exits[node], _cost(place, place in uncopied))
        if place.op == "placeholder" or node in written or not _cheap(node):
            network.add_arc(forward, entries[node], INFINITE)
        for user in node.users:
            if user in entries:
                network.add_arc(exits[node], entries[user], INFINITE)
        if node in wanted or any(user in after for user in node.users):
            network.add_arc(exits[node], backward, INFINITE)
    late = network.late_side(forward, backward)
    order = {node: i for i, node in enumerate(joint.nodes)}
    chosen = [n for n in before if exits[n] in late and entries[n] not in late]
    return sorted(chosen, key=order.__getitem__)


def _cost(node: Node, uncopied: bool) -> float:
    """The cost of keeping the node: bytes, weighted down for memory that the caller keeps
    anyway.
    """
    value = node.meta.get("val")
    if node.meta.get(RECOMPUTED):
        return INFINITE
    if is_symbolic(value):  # is among the inputs, or made of them again
        return 1.0 if node.op == "placeholder" else INFINITE
    if not isinstance(value, torch.Tensor):
        return INFINITE  # a tuple of results: its parts are kept
    if node.op == "get_attr":
        return 0.0
    if node.op == "call_function" and is_view(node.target) and not _replaces(node):
        return INFINITE  # its base is kept instead
    known = [hint_of(n) for n in value.shape]
    elements = prod(_DATA_SIZE if n is None else n for n in known)
    size = max(float(elements * value.dtype.itemsize), 1.0)
    if node.op == "placeholder":
        return size * (_INPUT_SHARE if uncopied else _COPY_SHARE)
    return size


def _replaces(node: Node) -> bool:
    """Whether a view that autograd does not know as one is all that is left of its memory."""
    source = node.args[0]
    unmarked = node.target is aten._unsafe_view.default
    return unmarked and isinstance(source, Node) and len(source.users) == 1


def _cheap(node: Node) -> bool:
    """Whether computing the node again costs less than keeping its result."""
    if node.op == "get_attr" or node.meta.get(RECOMPUTED):
        return True
    target: Any = node.target
    if is_symbolic(node.meta.get("val")):
        return node.op != "placeholder"
    if target is operator.getitem:
        return False
    if effects.of(node).impure():
        return False
    if target is aten.cat.default and on_gpu(node):
        # In memory anyway where others than kernels of elements read it, as eager has it: to make
        # it again is a launch, and traffic as for the first time.
        return all(_of_elements(user.target) for user in node.users)
    if target in (aten.scatter.value, aten.scatter.src):
        # One number in each row of one that is filled, as gradients of losses and extremes have.
        x, dim, index = node.args[:3]
        return _is_filled(x) and isinstance(index, Node) and _is_one_along(index, dim)
    return _of_elements(target)


def _is_filled(node: Any) -> bool:
    return getattr(getattr(node, "target", None), "overloadpacket", None) in _FILL


def _is_one_along(node: Node, dim: Any) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dim() > 0 and hint_of(value.shape[dim]) == 1


def _of_elements(target: Any) -> bool:
    """Whether an operator makes or moves elements one by one."""
    if is_view(target) or getattr(target, "overloadpacket", None) in _CHEAP:
        return True
    return torch.Tag.pointwise in getattr(target, "tags", ())


def on_gpu(node: Node) -> bool:
    return node.meta["val"].device.type == "cuda"


def _copied(joint: Graph, node: Node, write: Node | None, mine: bool) -> Node:
    """The node to hand over for `node`: a copy if the caller may write it, made before the forward
    itself writes it.
    """
    if write is None and mine:
        return node
    with joint.inserting_before(write) if write is not None else joint.inserting_after(node):
        copy = joint.call_function(aten.clone.default, (node,))
    copy.meta.update(node.meta)
    return copy


# -- the two graphs -------------------------------------------------------------------------------
def _forward(
    joint: Graph,
    inputs: Sequence[Node],
    results: Sequence[Node],
    effects: Sequence[Node],
    writers: Mapping[Node, Node],
) -> Graph:
    wanted = _ancestors([*results, *effects], writers=writers)
    graph = Graph()
    made: dict[Node, Node] = {}
    for node in joint.nodes:
        if node in inputs or node in wanted:
            made[node] = graph.node_copy(node, made.__getitem__)
    graph.output(tuple(made[node] for node in results))
    return graph


class _Backward:
    """The backward part. Values are computed again of the memory that inputs had in the forward:
    an input is given twice where operators of the backward read it too, since they see what
    `input.data = x` made of it, as in eager.

    memory: input -> the placeholder that recomputed nodes read.
    """

    def __init__(
        self,
        joint: Graph,
        saved: Sequence[Node],
        mutable: Sequence[Node],
        tangents: Sequence[Node],
        writers: Mapping[Node, Node],
    ) -> None:
        self.joint, self.writers = joint, writers
        self.graph = Graph()
        self.made = {node: self._placeholder(node) for node in saved}
        self.memory = {node: self._placeholder(node) for node in mutable}
        self.made |= {node: self._placeholder(node) for node in tangents}
        self.behind = _behind(joint, tangents, writers)

    def _placeholder(self, node: Node) -> Node:
        made = self.graph.placeholder(node.name)
        made.meta.update({k: node.meta[k] for k in ("val", COUNT) if k in node.meta})
        return made

    def add(self, gradients: Sequence[Node], checks: Sequence[Node]) -> None:
        wanted = _ancestors([*gradients, *checks], until=self.made, writers=self.writers)
        for node in self.joint.nodes:
            if node in wanted and node in self.behind:
                self._copy_late(node)
        for node in gradients:
            self._copy_late(node)
        self.graph.output(tuple(self.made[node] for node in gradients))

    def _copy_late(self, node: Node) -> None:
        """Copy a node after its operands: values are computed again just before their first use,
        lest all of them be in memory at once.
        """
        todo = [node]
        while todo:
            node = todo[-1]
            missing = [given for given in node.all_input_nodes if given not in self.made]
            if node in self.made or not missing:
                todo.pop()
                if node not in self.made:
                    early = node not in self.behind and node.meta.get(PART) != BACKWARD
                    self.made[node] = self.graph.node_copy(
                        node, functools.partial(self._operand, early)
                    )
            else:
                todo.extend(reversed(missing))

    def _operand(self, early: bool, node: Node) -> Node:
        return (self.memory.get(node) if early else None) or self.made[node]

    def drop_unread(self) -> set[Node]:
        """Of each input that is given twice, keep the placeholders that are read. Returns the
        inputs of which the memory alone is left.
        """
        unread = set()
        for node, memory in list(self.memory.items()):
            if not memory.users:
                self.graph.erase_node(memory)
                del self.memory[node]
            elif not self.made[node].users:
                self.graph.erase_node(self.made[node])
                unread.add(node)
        return unread
