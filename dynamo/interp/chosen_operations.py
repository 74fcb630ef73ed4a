"""Arithmetic with a number between whose values the graph chooses, one of which has a gradient: a
branch of the graph, as eager gives that value no gradient where it is not chosen.

    x * max(0.1, t)    ->    branch(t > 0.1, <x * t>, <x * 0.1>, (x, t))[0]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dynamo.interp.sides import Refused, joined_fake, refusals, results_of
from dynamo.torch.bodies import attach, body_scope, wrap_nest
from dynamo.torch.subgraph import share_lifted
from dynamo.values.base import Value
from dynamo.values.late_bound import bound_late
from dynamo.values.tensors.choice import ChoiceValue
from dynamo.values.tensors.tensor import call_in_graph
from dynamo.values.tensors.tensor_calls import target_name
from fxgraph.higher_order import branch

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter


@bound_late
def branch_on_choice(
    tx: Interpreter, op: str, target: Any, args: Sequence[Value], choice: ChoiceValue
) -> Value | None:
    """The operation as a branch between those with each value; None: the graph can't hold it."""
    writes = target_name(target) in ("iadd", "isub", "imul", "itruediv") or op == "call_method"
    if writes or not tx.output.conditionals.are_enabled(tx):
        return None
    try:
        with refusals():
            return _branch(tx, target, args, choice)
    except Refused:
        return None


def _branch(tx: Interpreter, target: Any, args: Sequence[Value], choice: ChoiceValue) -> Value:
    sides, results = [], []
    choice.check_current()
    for option in choice.alternatives:
        operands = [option if arg is choice else arg for arg in args]
        with body_scope(tx) as side:
            made: Any = call_in_graph(tx, "call_function", target, operands, {})
        sides.append(side)
        results += results_of(tx, side, [made])
    (one, one_fake), (other, other_fake) = results
    fake = joined_fake(tx, one_fake, other_fake)
    lifted = share_lifted(*sides)
    bodies = [
        attach(tx, side.finish(side.local((node,))), tx.output)
        for side, node in zip(sides, (one, other))
    ]
    nodes = (choice.predicate.node, *bodies, lifted)
    node = tx.output.create_node("call_function", branch, nodes, {}, (fake,), tx)
    return wrap_nest(tx, node, (fake,)).unpack(tx)[0]
