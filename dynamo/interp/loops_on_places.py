"""Loops over the places of the ones in a vector, which run for all its places.

    for e in (chosen.sum(dim=1) > 0).nonzero():        for e in range(len(chosen)):
        rows = torch.where(chosen[e])[0]          ->       rows = torch.where(chosen[e])[0]
        out.index_add_(0, rows, f(e, x[rows]))             out.index_add_(0, rows, f(e, x[rows]))

At the other places the iterations select nothing, have no effect (interp/emptiness.py) and leave
nothing behind. The loop's iterations are in the graph then, however many of them a call makes.

Gradients tell which iterations were made: a weight that none of them uses has none, rather than
zeros. The graph goes on as if each such weight were used, and a check says whether that is so
(interp/checks.py); likewise where an iteration draws random numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from dynamo.errors import Unsupported
from dynamo.interp.emptiness import Emptiness, name_of, rows_behind
from dynamo.interp.empty_regions import (
    are_written,
    last_node,
    no_break_inside,
    nodes_behind,
    run_alone,
    telling,
)
from dynamo.interp.sides import Refused, State, is_tensor
from dynamo.values.base import Value
from dynamo.values.objects.exceptions import RaisedException
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.tensors.bounded_tensors import elements_of
from dynamo.values.tensors.deferred_places import DeferredPlaces
from dynamo.values.tensors.tensor import TensorValue, call_in_graph
from fxgraph import Node

if TYPE_CHECKING:
    from dynamo.bytecode import Instruction
    from dynamo.interp.interpreter import Interpreter


def run_loop_on_places(tx: Interpreter, head: Instruction, places: DeferredPlaces) -> None:
    """Run the loop whose FOR_ITER is `head`, with its iterator on the stack, to its end."""
    assert head.target is not None, "jumps have targets"
    output, numbered = tx.output, places.numbered
    rows = [numbered.node] if numbered is not None else rows_behind(places.mask.node)
    is_row = _is_row if numbered is None else _is_equality
    if not rows or output.bodies or not places.is_current():
        places.refuse()
    first, outer = output.symbols.data.first_read, output.emptiness
    needs = _Needs(places.mask.fake.shape[0])
    with output.symbols.data.selecting(sizes=True):
        for place in range(needs.count):
            output.emptiness = Emptiness([], partial(is_row, rows, place))
            output.emptiness.gradients = output.emptiness.draws = True
            last = last_node(tx)
            runs = _iterate(tx, head, places, place)
            ran = nodes_behind(tx, last)
            if not all(map(output.emptiness.spares, ran)):
                places.refuse()
            if runs:
                needs.add(ran, place)
            else:
                needs.fails(place)
    output.symbols.data.first_read, output.emptiness = first, outer
    if are_written(tx, {*rows, places.mask.node}):
        places.refuse()
    needs.check(tx, places)
    tx.pop()
    tx.index = head.target.index


def _iterate(tx: Interpreter, head: Instruction, places: DeferredPlaces, place: int) -> bool:
    """Capture an iteration; False: it fails, where the last place stands for none (an expert that
    is not there).
    """
    state = State.of(tx)
    tx.index = head.index + 1
    tx.push(places.item(tx, place))
    try:
        with no_break_inside():
            fits = run_alone(tx, head.index, state.stack)
        if not fits:
            places.refuse()
    except Refused:
        places.refuse()
    except (Unsupported, RaisedException):
        if place < places.mask.fake.shape[0] - 1 or place == 0:
            places.refuse()
        state.restore(tx)
        return False
    return True


def _is_row(rows: Sequence[Node], place: int, node: Node) -> bool:
    """Whether a node takes this row of one of the tensors."""
    name = name_of(node)
    if name not in ("getitem", "select", "__getitem__") or node.args[0] not in rows:
        return False
    index: Any = node.args[1:]
    if name == "select":
        return index == (0, place)
    if is_tensor(index[0]):
        return _holds(index[0], place)
    return type(index[0]) is int and index == (place,)


def _is_equality(numbered: Sequence[Node], place: int, node: Node) -> bool:
    """Whether a node tells where a number is in the tensor."""
    if name_of(node) != "eq" or len(node.args) != 2 or not is_tensor(node.args[0]):
        return False
    tensor, number = node.args
    if elements_of(tensor) is not elements_of(numbered[0]):
        return False
    return _holds(number, place) if is_tensor(number) else type(number) is int and number == place


def _holds(index: Node, place: int) -> bool:
    """Whether a tensor that the frame made of numbers is that of this place."""
    return index.target is torch.tensor and index.args[0] in (place, [place])


class _Needs:
    """Groups of places of which one must be a one: the graph would give gradients otherwise that
    there are not, or draw other random numbers.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._users: dict[Node, set[int]] = {}  # node that requires a gradient -> iterations
        self._made: set[int] = set()  # iterations that must be made
        self._failing: list[int] = []  # iterations that must not be made

    def add(self, ran: Sequence[Node], place: int) -> None:
        used, draws = telling(ran)
        for node in used:
            self._users.setdefault(node, set()).add(place)
        if draws:
            self._made.add(place)

    def fails(self, place: int) -> None:
        self._failing.append(place)

    def check(self, tx: Interpreter, places: DeferredPlaces) -> None:
        groups = {frozenset(group) for group in self._users.values()}
        groups |= {frozenset([place]) for place in self._made}
        if not groups and not self._failing:
            return
        if not tx.output.checks.may_guess():
            places.refuse()
        single = sorted(place for group in groups if len(group) == 1 for place in group)
        several = [sorted(group) for group in groups if len(group) > 1]
        several = [group for group in several if not set(group) & set(single)]
        found: list[tuple[Value, bool]] = []
        if single:
            found.append((self._of(tx, places.mask, single, "all"), True))
        if self._failing:
            found.append((self._of(tx, places.mask, self._failing, "any"), False))
        found += [(self._of(tx, places.mask, group, "any"), True) for group in sorted(several)]
        for value, passes in found:
            tx.output.checks.make(value, places.broken, passes, guessed=True)

    def _of(self, tx: Interpreter, mask: TensorValue, places: list[int], method: str) -> Value:
        chosen: Value = mask
        if len(places) < self.count:
            index = ConstantValue(tuple(places))
            device: dict[str, Value] = {"device": ConstantValue(mask.fake.device)}
            rows = call_in_graph(tx, "call_function", torch.tensor, [index], device)
            operands = [mask, ConstantValue(0), rows]
            chosen = call_in_graph(tx, "call_method", "index_select", operands, {})
        return call_in_graph(tx, "call_method", method, [chosen], {})
