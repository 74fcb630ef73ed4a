"""torch.autograd.Function: where no gradient is needed its forward is captured; else `apply` goes
into the graph whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.autograd.function import FunctionCtx

from dynamo.values.base import Value
from dynamo.values.builtins import handles
from dynamo.values.classes import ClassValue
from dynamo.values.constant import ConstantValue
from dynamo.values.containers import TupleValue
from dynamo.values.objects import ObjectValue, class_lookup
from dynamo.values.tensor import TensorValue, call_in_graph

if TYPE_CHECKING:
    from dynamo.capture.interpreter import Interpreter

_DEFAULT_SETUP = class_lookup(torch.autograd.Function, "setup_context")


class ContextValue(ObjectValue):
    """The `ctx` of a forward whose backward will never run: needs_input_grad is all False."""

    def __init__(self, count: int) -> None:
        super().__init__(FunctionCtx)
        self.count = count

    def getattr(self, tx: Interpreter, name: str) -> Value:
        if name == "needs_input_grad":
            return TupleValue([ConstantValue(False)] * self.count)
        return super().getattr(tx, name)


@handles(torch.autograd.Function.apply.__func__)  # type: ignore[attr-defined]
def _apply(tx, owner, *args, **kwargs):
    assert isinstance(owner, ClassValue)
    tracked = [a for a in args if isinstance(a, TensorValue) and a.fake.requires_grad]
    if torch.is_grad_enabled() and tracked:
        return call_in_graph(tx, "call_function", owner.cls.apply, args, kwargs)
    context = tx.output.side_effects.track_new(ContextValue(len(args)))
    forward = owner.getattr(tx, "forward")
    if class_lookup(owner.cls, "setup_context") is not _DEFAULT_SETUP:
        return tx.call_function(forward, args, kwargs)
    return tx.call_function(forward, [context, *args], kwargs)
