"""A joint graph cut in two: a forward part, and a backward part that recomputes or is given values.

The values saved between the parts are a minimum cut: every path from the inputs to the backward
crosses it, at the least number of bytes. Cheap pointwise operations and views may stand on the far
side, where they are computed again; matrix products, reductions and whatever draws random numbers
may not.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch._prims_common import suggest_memory_format

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
_COPY_SHARE = 1.1  # of what its owner may write, a copy is made
RECOMPUTED = "recomputed"  # in the meta of a node: in the backward it is computed anew
RELAID = "relaid"  # in the meta of a copy: a pass made it, for another layout alone
_DATA_SIZE = 1024  # the assumed value of a size that depends on data
# Besides operators that torch tags as pointwise: those that fill, and others that move or make
# elements.
_FILL = frozenset(
    getattr(aten, name)
    for name in ("full", "full_like", "new_full", "new_zeros", "zeros", "zeros_like")
)
_CHEAP = _FILL | {aten._to_copy, aten.arange, aten.cat, aten.clone, aten.scalar_tensor}

# Of a tensor that backward reads: as it was in the forward; as it is now; the memory that it had,
# as it is now, which views saved by eager look at whatever `x.data = y` does.
_THEN, _NOW, _MEMORY = range(3)
Given = tuple[Node, int]
_OF_FORWARD = "of_forward"  # in the meta of a node: eager saves the view in the forward


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
    writes = {node.args[0]: node for node in joint.nodes if node.target is aten.copy_.default}
    places_of = {
        write.args[1]: place
        for place, write in writes.items()
        if place in stored and _alike(write.args[1], place)
    }
    if any(target.op == "get_attr" for target in writes):
        raise Unfunctionalizable("an attribute is written")
    inputs = [n for n in joint.nodes if n.op == "placeholder" and n not in tangents]
    live = _live(joint, tangents, writers, places_of, saved_by_eager)
    _read_laid_out(joint, live)
    _read_live_views(joint, _behind(joint, tangents, writers, live), live)
    behind = _behind(joint, tangents, writers, live)
    checks = [node for node in joint.nodes if _is_effect(node)]
    late = [node for node in checks if node in behind]  # of a size that a gradient has
    needed = _ancestors([*gradients, *late], writers=writers)
    before = [node for node in needed if node not in behind]
    after = behind.intersection(needed)
    visible = {root_of(node) for node in [*inputs, *values]}
    saved = set(_saved(before, after, gradients, visible, live, writers))
    # Sizes in the backward may be made of any symbol.
    symbols = [n for n in inputs if is_symbol(n.meta["val"])]
    first_write = next(iter(writes.values()), None)
    handed: dict[Given, Node] = {(node, _NOW): node for node in symbols}
    for node in list(joint.nodes):
        readers = [user for user in node.users if user in after] if node in live else ()
        for state in dict.fromkeys(_state(node, user) for user in readers):
            handed[node, state] = places_of.get(node, node)
        if node in saved and node not in symbols:
            hidden = root_of(node) not in visible
            write = first_write if node in writes else None
            handed[node, _THEN] = _copied(joint, node, write, hidden)
    kept = [n for n in handed.values() if n not in values and n not in inputs]
    places: dict[Node, tuple[str, int]] = {}
    for name, nodes in (("kept", kept), ("value", values), ("input", inputs)):
        places.update({node: (name, i) for i, node in enumerate(nodes)})
    done = [*(node for node in checks if node not in behind), *drawn, *writes.values()]
    forward = _forward(joint, inputs, [*values, *kept], done, writers)
    backward = _Backward(joint, list(handed), tangents, behind, writers)
    backward.add(gradients, late)
    found = [
        ("memory", places[node][1]) if state == _MEMORY else places[node]
        for (_, state), node in handed.items()
    ]
    return Parts(forward, backward.graph, found)


def _state(node: Node, user: Node) -> int:
    """The state of a live tensor that an operator of the backward reads."""
    return _MEMORY if node.op == "placeholder" and user.meta.get(_OF_FORWARD) else _NOW


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


def _behind(
    joint: Graph,
    tangents: Sequence[Node],
    writers: Mapping[Node, Node],
    live: Collection[Node] = (),
) -> set[Node]:
    """The nodes that depend on a tangent, or on what `live` tensors hold when backward runs."""
    found = set(tangents)
    copies: dict[Node, list[Node]] = {}
    for copy, writer in writers.items():
        copies.setdefault(writer, []).append(copy)
    for node in joint.nodes:
        late = node.meta.get(PART) == BACKWARD
        if node not in found and any(
            arg in found or (late and _base(arg) in live) for arg in node.all_input_nodes
        ):
            found.add(node)
            found.update(copies.get(node, ()))
    return found


def _base(node: Node) -> Node:
    """The node whose memory `node` looks at, through items of views too, and through copies that
    are none in the program.
    """
    while node.op == "call_function":
        source = node.args[0] if node.target is operator.getitem else node
        if not (isinstance(source, Node) and (is_view(source.target) or RELAID in source.meta)):
            break
        node = source.args[0]  # type: ignore[assignment]
    return node


def _live(
    joint: Graph,
    tangents: Sequence[Node],
    writers: Mapping[Node, Node],
    places_of: Mapping[Node, Node],
    saved_by_eager: Mapping[Node, Collection[int]],
) -> set[Node]:
    """The tensors of the caller's that a backward of eager reads as they are then: one that is
    written by `x.data` meanwhile, or whose `x.data` is another.
    """
    behind = _behind(joint, tangents, writers)
    found = _uncopied(joint, behind, tangents, saved_by_eager)
    stored = {node for node, place in places_of.items() if place in found}
    return {node for node in found if node not in places_of.values()} | stored


def _read_laid_out(joint: Graph, live: Collection[Node]) -> None:
    """Have the backward read a result in the layout that the caller gets it in, and lay it out
    again, where a pass keeps it in another one.

    before                                  after
        y = aten.sigmoid(x)                     y = aten.sigmoid(x)
        z = aten.sigmoid_backward(t, y)         value = aten.clone(y)
        value = aten.clone(y)  # is live        again = aten.clone(value)
                                                z = aten.sigmoid_backward(t, again)
    """
    for value in [node for node in live if RELAID in node.meta]:
        del value.meta[RELAID]
        source: Any = value.args[0]
        late = [user for user in source.users if user.meta.get(PART) == BACKWARD]
        source.append(value)
        with joint.inserting_after(value):
            layout = suggest_memory_format(source.meta["val"])
            again = joint.call_function(aten.clone.default, (value,), {"memory_format": layout})
        again.meta |= {"val": source.meta["val"], RELAID: True}
        for user in late:
            user.replace_input_with(source, again)


def _read_live_views(joint: Graph, behind: Collection[Node], live: Collection[Node]) -> None:
    """Give the backward views of its own of `live` tensors, and copies in other layouts; others
    that are computed again read these as they were in the forward.
    """
    made: dict[Node, Node] = {}

    def late(node: Node) -> Node:
        if node in behind or node in live or _base(node) not in live:
            return node
        if node not in made:
            source = late(node.args[0])  # type: ignore[arg-type]
            with joint.inserting_after(node):
                made[node] = joint.node_copy(node, lambda n: source if n is node.args[0] else n)
            made[node].meta |= {PART: BACKWARD, _OF_FORWARD: RELAID not in node.meta}
        return made[node]

    for node in list(joint.nodes):
        if node in behind:
            for given in node.all_input_nodes:
                if (other := late(given)) is not given:
                    node.replace_input_with(given, other)


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
    behind: Collection[Node],
    tangents: Sequence[Node],
    saved_by_eager: Mapping[Node, Collection[int]],
) -> set[Node]:
    """The tensors that eager saves for each tangent whose backward reads them. Of the results of
    `a * w, a.relu()`, the second one's backward does without `a` in eager: `a` may be written then.
    """
    if len(tangents) == 1:
        return set(saved_by_eager)
    numbers = {node: 1 << k for k, node in enumerate(tangents)}  # as bits

    def of_all(nodes: Iterable[Node]) -> int:
        return functools.reduce(operator.or_, (numbers.get(node, 0) for node in nodes), 0)

    for node in joint.nodes:  # those that the node depends on
        if node in behind and node not in numbers:
            numbers[node] = of_all(node.all_input_nodes)
    for node in reversed(list(joint.nodes)):  # those whose backward may need the node
        if node not in behind:
            late = node.meta.get(PART) == BACKWARD
            users = (u for u in node.users if u in behind or late or _reads_as_one(u))
            numbers[node] = of_all(users)
    return {
        node
        for node, users in saved_by_eager.items()
        if not numbers.get(node, 0) & ~sum(1 << k for k in set(users))
    }


def _reads_as_one(user: Node) -> bool:
    """Whether what reads the user reads its operand's memory, or does so in the backward alone."""
    return user.meta.get(PART) == BACKWARD or _base(user) is not user


# -- the cut --------------------------------------------------------------------------------------
def _saved(
    before: Sequence[Node],
    after: set[Node],
    gradients: Sequence[Node],
    visible: Collection[Node],
    live: Collection[Node],
    written: Collection[Node],
) -> list[Node]:
    """The nodes of `before` to hand over to `after`, which depends on the tangents, as they are in
    the forward; `after` itself sees to those in `live`.
    """
    network = Network()
    forward, backward = network.add_node(), network.add_node()
    entries = {node: network.add_node() for node in before}
    exits = {node: network.add_node() for node in before}
    wanted = set(gradients)
    for node in before:
        network.add_arc(entries[node], exits[node], _cost(node, root_of(node) in visible))
        if node.op == "placeholder" or node in written or not _cheap(node):
            network.add_arc(forward, entries[node], INFINITE)
        for user in node.users:
            if user in entries:
                network.add_arc(exits[node], entries[user], INFINITE)
        read = node not in live and any(user in after for user in node.users)
        if node in wanted or read:
            network.add_arc(exits[node], backward, INFINITE)
    late = network.late_side(forward, backward)
    return [n for n in before if exits[n] in late and entries[n] not in late]


def _cost(node: Node, copied: bool) -> float:
    """The cost of keeping the node, or a copy of it: bytes."""
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
    return size * _COPY_SHARE if copied else size


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
    """The node to hand over for `node`: a copy if the caller may write it, or the forward does;
    then before `write`, the first of all, which nothing but others follows.
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
    wanted = {*inputs, *_ancestors([*results, *effects], writers=writers)}
    graph = Graph()
    made: dict[Node, Node] = {}
    for node in joint.nodes:
        if node in wanted:
            made[node] = graph.node_copy(node, made.__getitem__)
    graph.output(tuple(made[node] for node in results))
    return graph


class _Backward:
    """The backward part. A tensor of the caller's may be given twice: as it was in the forward, for
    what is computed again, and as it is now, for operators of the backward.

    saved: the nodes given, in which state.
    """

    def __init__(
        self,
        joint: Graph,
        saved: Sequence[Given],
        tangents: Sequence[Node],
        behind: Collection[Node],
        writers: Mapping[Node, Node],
    ) -> None:
        self.joint, self.writers, self.behind = joint, writers, behind
        self.graph = Graph()
        self.given = {(node, state): self._placeholder(node) for node, state in saved}
        self.made = {
            node: made
            for (node, state), made in self.given.items()
            if state == _THEN or is_symbolic(node.meta["val"])
        }
        self.made |= {node: self._placeholder(node) for node in tangents}

    def _placeholder(self, node: Node) -> Node:
        made = self.graph.placeholder(node.name)
        made.meta.update({k: node.meta[k] for k in ("val", COUNT) if k in node.meta})
        return made

    def add(self, gradients: Sequence[Node], checks: Sequence[Node]) -> None:
        known = {*self.made, *(node for node, _ in self.given)}
        wanted = _ancestors([*gradients, *checks], until=known, writers=self.writers)
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
            operands = node.all_input_nodes
            missing = [n for n in operands if self._operand(node, n) is None]
            if node in self.made or not missing:
                todo.pop()
                if node not in self.made:
                    known = {given: self._operand(node, given) for given in operands}
                    self.made[node] = self.graph.node_copy(node, known.__getitem__)
            else:
                todo.extend(reversed(missing))

    def _operand(self, node: Node, given: Node) -> Node | None:
        live = self.given.get((given, _state(given, node))) if node in self.behind else None
        return live or self.made.get(given)
