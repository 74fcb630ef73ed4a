"""Loops that read the values of tensors in each iteration, with few operations in between.

    for i in range(100):                      a graph
        x = x.roll(int(delays[i]))     ->     the loop, as it is
    return x * 2                              a graph

A loop that reads a few numbers (guards/shapes.py), and asks nothing of them that only the call
knows, is captured with numbers as symbols. In another, every iteration would be a graph of these
few operations. (Where a function's first graph
would begin with the loop, they are what there is to capture.) What an iteration has is found out in
a trial: an attempt to capture the frame whose result is thrown away. Behind the read that breaks
the graph, numbers are symbols in it, and what depends on data goes either way.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_leaves

from dynamo.bytecode.loops import Loop, in_loop, keeps_bound, loop_around
from dynamo.bytecode.returns import returns_behind
from dynamo.config import config
from dynamo.continuations.resume import origin
from dynamo.plans import AttemptEnded
from fxgraph import Node

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter
    from dynamo.interp.output import OutputGraph
    from dynamo.interp.root import Stop

_CODES = frozenset(["DATA_DEPENDENT_VALUE", "DATA_DEPENDENT_JUMP", "DYNAMIC_SHAPE_OP"])
_LOOP = "DATA_DEPENDENT_LOOP"
_LISTS = "Tensor.tolist()"
_LONGEST = 20_000  # instructions
_MOST_NUMBERS = 16  # elements and operations that are no work for a backend
_PAIR = 2  # elements of a tensor that a continuation gets: a number, or a range
# The gain of a compiled product (its weight is packed, what follows runs in its kernel), in
# other operations.
_PRODUCT = 8
_PRODUCTS = frozenset(
    ["linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "einsum", "scaled_dot_product_attention"]
    + [f"conv{n}d" for n in (1, 2, 3)]
)


class Trial:
    """Facts about the loop around the read of data at which `stop` stands, found by a trial run."""

    def __init__(self, frame: Interpreter, loop: Loop, read: int) -> None:
        self.code, self.depth = frame.code, frame.depth
        self.loop = loop
        self.read = read  # the step of the instruction that reads
        self.entered = -1  # the step at which the loop is entered
        self.whole = False  # whether it can run as a whole, between two graphs
        self.operations: int | None = None  # of an iteration
        self._inside = False
        self._before = 0  # operations before the iteration

    def is_behind(self, output: OutputGraph) -> bool:
        """Whether numbers that are read are symbols."""
        return output.steps > self.read

    @property
    def says_whole(self) -> bool:
        """Whether the loop should run natively."""
        few = self.operations is not None and self.operations <= config.data_dependent_loop_limit
        return few and self.whole

    def observe(self, tx: Interpreter) -> None:
        """`tx` is about to execute an instruction."""
        output = tx.output
        if output.steps > self.read + _LONGEST:
            raise AttemptEnded(tx)
        if tx.depth > self.depth:
            return
        index = tx.index if tx.depth == self.depth and tx.code is self.code else -1
        ends_turn = self._inside and index not in self.loop.body
        if self.is_behind(output) and (ends_turn or not self._inside):
            if index >= 0 and self._inside:
                self.operations = _operations(output) - self._before
            raise AttemptEnded(tx)  # also where the frame began in the middle of an iteration
        if index == self.loop.head.index:
            self._before = _operations(output)
            if not self._inside:
                self.entered = tx.began
                bound = keeps_bound(tx.code, self.loop, tx.locals.keys())
                begins = self._before == 0 and origin(tx.code) is None
                self.whole = bound and not begins
            self._inside = True
        elif ends_turn:
            self._inside = False


def _operations(output: OutputGraph) -> int:
    """How many operations on tensors there are so far, products by weight."""
    nodes = [n for n in output.graph.nodes if n.op.startswith("call_")]
    results = [n for n in nodes if isinstance(n.meta["example_value"], torch.Tensor)]
    return len(results) + (_PRODUCT - 1) * sum(map(_is_product, results))


def _is_product(node: Node) -> bool:
    """Whether a node multiplies matrices, in inference: each graph's backward costs what a product
    gains.
    """
    name = str(getattr(node.target, "__name__", node.target))
    return name in _PRODUCTS and not node.meta["example_value"].requires_grad


def is_of_data(stop: Stop) -> bool:
    """Whether the graph breaks where it asks for data."""
    return stop.is_break and not stop.loop and is_data(stop.reason)


def is_data(reason: Any) -> bool:
    """Whether the graph breaks for data that are asked for."""
    return reason.code in _CODES


def asks_for_data(stop: Stop) -> bool:
    """Whether the graph breaks where it asks for a size that is data, or at numbers that operations
    may take: outside of loops, or several of them at once, which may be sizes of pieces.
    """
    if not is_of_data(stop) or stop.reason.code == "DYNAMIC_SHAPE_OP":
        return is_of_data(stop)
    if stop.reason.code != "DATA_DEPENDENT_VALUE":
        return False
    return _LISTS in stop.reason.details or not (breaks_in_loop(stop) or _is_returned(stop))


def _is_returned(stop: Stop) -> bool:
    """Whether the frame returns with the number."""
    assert stop.instr is not None, "it breaks"
    return len(stop.chain) == 1 and returns_behind(stop.chain[0].code, stop.instr)


def reads_numbers(stop: Stop) -> bool:
    """Whether the graph breaks in a loop, where it asks for a number that is data."""
    return is_of_data(stop) and stop.reason.code == "DATA_DEPENDENT_VALUE" and breaks_in_loop(stop)


def breaks_in_loop(stop: Stop) -> bool:
    """Whether a frame of the chain that breaks is in a loop."""
    return any(in_loop(frame.code, frame.current.index) for frame in stop.chain)


def loops_over_data(stop: Stop) -> bool:
    """Whether the graph breaks at data in a loop."""
    return is_of_data(stop) and breaks_in_loop(stop)


def is_alone(stop: Stop, output: OutputGraph) -> bool:
    """Whether a graph that breaks holds one operation on tensors alone: eager execution does as
    well, and without a graph.
    """
    nodes = [n for n in output.graph.nodes if n.op.startswith("call_")]
    results = [n for n in nodes if isinstance(n.meta.get("example_value"), torch.Tensor | tuple)]
    return stop.is_break and not output.plan.numbers and len(results) <= 1


def makes_numbers(stop: Stop, output: OutputGraph) -> bool:
    """Whether a graph only makes a few numbers from nothing, such as `torch.rand(1) < 0.5`, or
    behind a break from such ones, and breaks where one is read, or later, when all have been: its
    operations run as in eager execution, and count as no graph.
    """
    for_data = stop.is_break and (
        is_data(stop.reason) or stop.reason.code == _LOOP or _gives_numbers(output)
    )
    nodes = [node for node in output.graph.nodes if node.op != "output"]
    if not for_data or output.context.export or len(nodes) > _MOST_NUMBERS:
        return False
    given = [node for node in nodes if node.op in ("placeholder", "get_attr")]
    most = _MOST_NUMBERS
    if any(map(_tensors, given)):
        if origin(output.root_frame.code) is None or any(map(_is_parameter, given)):
            return False
        most = _PAIR
    return all(_is_small(tensor, most) for node in nodes for tensor in _tensors(node))


def _gives_numbers(output: OutputGraph) -> bool:
    """Whether numbers of Python are all that leaves the graph."""
    results = next(node for node in output.graph.nodes if node.op == "output").all_input_nodes
    return bool(results) and not any(map(_tensors, results))


def _is_parameter(node: Node) -> bool:
    return node.op == "get_attr" or bool(node.meta.get("static"))


def _tensors(node: Node) -> list[torch.Tensor]:
    leaves = tree_leaves(node.meta.get("example_value"))
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _is_small(tensor: torch.Tensor, most: int) -> bool:
    sizes = [size for size in tensor.shape if type(size) is int]
    few = len(sizes) == tensor.dim() and math.prod(sizes) <= most
    return few and tensor.device.type == "cpu" and not tensor.requires_grad


def trial_for(stop: Stop) -> Trial | None:
    """A trial of the loop in which the break stands, if it reads a tensor."""
    if not is_of_data(stop):
        return None
    for frame in reversed(stop.chain):
        index = frame.current.index
        loop = loop_around(frame.code, index)
        if loop is not None:
            return Trial(frame, loop, stop.chain[-1].began)
        if in_loop(frame.code, index):
            return None
    return None
