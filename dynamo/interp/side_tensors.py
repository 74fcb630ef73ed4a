"""Tensors from outside that a side of a branch writes: the side writes a copy and leaves it, and
the graph copies that into the tensor behind the branch.

    if torch.rand([]) > 0.1:            branch = higher_order.branch(gt, body_0, body_1, ...)
        seen.add_(1)             ->     seen.copy_(branch[0])

Numbers without a gradient alone, which no gradient needs: counters and gradients, where no other
input of the side may be a view of them, and the running statistics of norms.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from dynamo.interp.sides import (
    Refused,
    call_in_side,
    is_tensor,
    memory_of,
    outside_memory,
    updates_statistics,
    written_by,
)
from dynamo.torch.subgraph import Subgraph
from dynamo.values.tensors.tensor import TensorValue, call_in_graph
from fxgraph import GraphModule, Node, effects
from fxgraph.args import leaves
from fxgraph.higher_order import branch, loop

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

# Writes that leave size and type as they are.
_NUMBERS_ALONE = frozenset(
    {"add_", "sub_", "mul_", "div_", "lerp_", "copy_", "fill_", "zero_", "iadd", "isub", "imul"}
)


class Rewritten(NamedTuple):
    """A tensor from outside, and what a side leaves of it. quietly: by writes that do not move its
    version.
    """

    outer: TensorValue
    left: TensorValue
    quietly: bool

    def store(self, tx: Interpreter, value: TensorValue) -> None:
        target = self.outer.getattr(tx, "data") if self.quietly else self.outer
        call_in_graph(tx, "call_method", "copy_", [target, value], {})


def rewritten_tensors(tx: Interpreter, side: Subgraph) -> dict[Node, Rewritten]:
    """Have the side write copies of the tensors from outside that it writes: these, by their nodes
    around the side.
    """
    outside = outside_memory(side)
    writers: dict[Any, list[Node]] = {}
    for node in side.graph.nodes:
        if not node.op.startswith("call_") or node.target in (branch, loop):
            continue
        for arg in written_by(node) if effects.of(node).writes else ():
            memory = memory_of(arg.meta["example_value"]) if is_tensor(arg) else None
            if memory in outside:
                writers.setdefault(memory, []).append(node)
    found = {}
    for memory, nodes in writers.items():
        pairs = [pair for pair in side.lifted.items() if _memory_of_node(pair[0]) == memory]
        if len(pairs) != 1:  # none for what a tensor from outside wraps
            raise Refused("a side writes a tensor from outside")
        ((outer, given),) = pairs
        fake = given.meta["example_value"]
        plain = not fake.requires_grad and all(map(_keeps_form, nodes))
        quietly = all(map(updates_statistics, nodes))
        if not plain or not (quietly or _is_alone(tx, side, given)):
            raise Refused("a side writes a tensor from outside")
        if not quietly and _is_saved(tx.output.graph.nodes, memory):
            raise Refused("a side writes what a gradient needs")
        tensor = TensorValue(outer, fake)
        left = copied(tx, side, tensor)
        if fake._is_view() and fake.stride() != left.fake.stride():
            raise Refused("a side writes a view with gaps or overlaps")
        next(node for node in side.graph.nodes if node.op != "placeholder").prepend(left.node)
        given.replace_all_uses_with(left.node, functools.partial(operator.is_not, left.node))
        side.rewritten.add(memory)
        found[outer] = Rewritten(tensor, left, quietly)
    return found


def copied(tx: Interpreter, side: Subgraph, tensor: TensorValue) -> TensorValue:
    return call_in_side(tx, side, torch.clone, [tensor])


def _memory_of_node(node: Node) -> Any:
    return memory_of(node.meta["example_value"]) if is_tensor(node) else None


def _is_saved(nodes: Iterable[Node], memory: Any) -> bool:
    """Whether a gradient may need what is written: where the side is not run, too, the copy behind
    it moves the version.
    """
    for node in nodes:
        if node.target in (branch, loop):
            bodies = [_example(arg) for arg in node.args[1:3]]
            if any(_is_saved(b.graph.nodes, memory) for b in bodies if isinstance(b, GraphModule)):
                return True
            continue
        made = [v for v in leaves(_example(node)) if isinstance(v, torch.Tensor)]
        takes = any(_memory_of_node(arg) == memory for arg in leaves((node.args, node.kwargs)))
        if takes and any(value.requires_grad for value in made):
            return True
    return False


def _example(arg: Any) -> Any:
    return arg.meta.get("example_value") if isinstance(arg, Node) else None


def _is_alone(tx: Interpreter, side: Subgraph, given: Node) -> bool:
    """Whether no other input of the frame that the side takes may be a view of this one, in another
    call: the side would read what it had before. None is of what the frame makes.
    """
    fake = given.meta["example_value"]
    inputs = {_memory_of_node(item.node) for item in tx.output.inputs}
    if memory_of(fake) not in inputs:
        return True
    if fake._is_view():
        return False
    for other in side.lifted.values():
        value = other.meta["example_value"]
        if other is given or not is_tensor(other) or value.dtype != fake.dtype:
            continue
        if memory_of(value) in inputs and not (value.requires_grad and value.is_leaf):
            return False
    return True


def _keeps_form(node: Node) -> bool:
    """Whether a node writes numbers, and neither sizes nor types."""
    name = getattr(node.target, "__name__", node.target)
    return updates_statistics(node) or name in _NUMBERS_ALONE


def paired_tensors(
    tx: Interpreter, sides: Sequence[tuple[Subgraph, dict[Node, Rewritten]]]
) -> Iterator[tuple[Rewritten, list[TensorValue]]]:
    """The tensors from outside that a side writes, and what each of both leaves of it."""
    for outer in dict.fromkeys(node for _, tensors in sides for node in tensors):
        writes = [tensors[outer] for _, tensors in sides if outer in tensors]
        one = writes[0]._replace(quietly=all(write.quietly for write in writes))
        left = [
            tensors[outer].left if outer in tensors else copied(tx, graph, one.outer)
            for graph, tensors in sides
        ]
        yield one, left
