"""torch.autograd.Function: where no gradient is needed its forward is captured; else `apply` goes
into the graph whole, and what its forward does is watched on a trial.

The node calls the class itself, so forward, setup_context, backward, jvp and vmap run as they are
each time. The trial guards what forward reads, and breaks the graph where forward does more than
compute tensors: that must happen once per call, and not while capturing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch.autograd.function import FunctionCtx

from dynamo.values.base import Value
from dynamo.values.bodies import opened, same_fake, trace_body
from dynamo.values.builtins import handles
from dynamo.values.classes import ClassValue
from dynamo.values.constant import ConstantValue
from dynamo.values.containers import TupleValue
from dynamo.values.descriptors import class_lookup
from dynamo.values.objects import ObjectValue
from dynamo.values.tensor import TensorValue, call_in_graph

if TYPE_CHECKING:
    from dynamo.capture.interpreter import Interpreter

_DEFAULT_SETUP = class_lookup(torch.autograd.Function, "setup_context")


class ContextValue(ObjectValue):
    """The `ctx` of a forward that runs while capturing."""

    def __init__(self, needs_input_grad: Sequence[bool]) -> None:
        super().__init__(FunctionCtx)
        self.needs_input_grad = needs_input_grad

    def getattr(self, tx: Interpreter, name: str) -> Value:
        if name == "needs_input_grad":
            return TupleValue([ConstantValue(needs) for needs in self.needs_input_grad])
        return super().getattr(tx, name)


class ForwardValue(Value):
    """forward, and setup_context behind it, as one function of the arguments of `apply`."""

    def __init__(self, owner: ClassValue, needs_input_grad: Sequence[bool]) -> None:
        super().__init__()
        self.owner = owner
        self.needs_input_grad = needs_input_grad

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        context = tx.output.side_effects.track_new(ContextValue(self.needs_input_grad))
        forward = self.owner.getattr(tx, "forward")
        if class_lookup(self.owner.cls, "setup_context") is _DEFAULT_SETUP:
            return tx.call_function(forward, [context, *args], kwargs)
        result = tx.call_function(forward, args, kwargs)
        setup = self.owner.getattr(tx, "setup_context")
        tx.call_function(setup, [context, TupleValue(list(args)), result])
        return result


@handles(torch.autograd.Function.apply.__func__)  # type: ignore[attr-defined]
def _apply(tx, owner, *args, **kwargs):
    assert isinstance(owner, ClassValue)
    needs = [isinstance(arg, TensorValue) and arg.fake.requires_grad for arg in args]
    differentiates = torch.is_grad_enabled() and any(needs)
    if not (differentiates or tx.output.bodies):
        return ForwardValue(owner, [False] * len(args)).call(tx, args, kwargs)
    nest = tuple(opened(tx, arg) if isinstance(arg, TensorValue) else arg for arg in args)
    trace_body(tx, ForwardValue(owner, needs), nest, kwargs, same_fake, False)
    return call_in_graph(tx, "call_function", owner.cls.apply, args, kwargs)
