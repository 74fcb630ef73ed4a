"""Items of a list to which one side of a branch on data appends more than the other:

    if keep:                                 branch = higher_order.branch(keep, body_0, body_1, ...)
        x = layer(x)                  ->     x = branch[0]
        seen.append(x)                       length = branch[1]

Layers that may be dropped leave their outputs in lists that most programs never look at. The graph
holds the length alone, and further items may be appended. Whoever asks for an item has the next
attempt break at the branch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import torch

from dynamo.plans import Retry
from dynamo.values.base import Value
from dynamo.values.recipes import Recipe
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.tensors.deferred_scalar import DeferredScalar
from dynamo.values.tensors.tensor import TensorValue, call_in_graph

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter
    from dynamo.interp.output import OutputGraph
    from dynamo.plans import BreakBefore


class VaryingItems(Value):
    """The items, of which there are `length`, a tensor of one int, and `more`.

    broken: the graph break at the branch instead.
    """

    def __init__(
        self, output: OutputGraph, length: TensorValue, broken: BreakBefore, more: int = 0
    ) -> None:
        super().__init__()
        self.output = output
        self.counted = length
        self.broken = broken
        self.more = more

    def refuse(self) -> NoReturn:
        """Break the graph at the branch: the items are needed now."""
        raise Retry(self.output.plan.breaking(self.broken))

    def recipe(self) -> Recipe:
        self.refuse()

    def longer(self, item: Value) -> VaryingItems:
        """The items and a further one, which nobody is going to miss."""
        if not is_plain(item):
            self.refuse()
        return VaryingItems(self.output, self.counted, self.broken, self.more + 1)

    def addends(self) -> list[Value]:
        """The tensor and the number that make up the length."""
        return [self.counted, ConstantValue(self.more)]

    def length_value(self, tx: Interpreter) -> Value:
        """The length as a number that a branch may compare."""
        length = call_in_graph(tx, "call_function", torch.add, self.addends(), {})
        assert isinstance(length, TensorValue), "a sum"
        return DeferredScalar(tx.output, length, int, self.broken, for_branch=True)


def is_plain(item: object) -> bool:
    """Whether nothing of the program notices that the item is let go."""
    return type(item) in (TensorValue, ConstantValue)
