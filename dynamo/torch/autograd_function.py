"""torch.autograd.Function: where no gradient is needed its forward is captured; else `apply` goes
into the graph whole, and what its forward and backward do is watched on a trial.

The node calls the class itself, so forward, setup_context, backward, jvp and vmap run as they are
each time that the graph runs op by op. The trial guards what forward reads, and breaks the graph
where forward does more than compute tensors: that must happen once per call, and not while
capturing. If backward, too, only computes tensors from what forward left it, the node is marked
`traceable`: compiling backends may then run both once, on fake tensors.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import FunctionCtx

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.torch.bodies import opened, same_fake, trace_body
from dynamo.values.base import Value
from dynamo.values.builtins import handles
from dynamo.values.classes import ClassValue
from dynamo.values.constant import ConstantValue
from dynamo.values.containers import TupleValue
from dynamo.values.descriptors import class_lookup
from dynamo.values.objects import ObjectValue
from dynamo.values.tensor import TensorValue, call_in_graph

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

_DEFAULT_SETUP = class_lookup(torch.autograd.Function, "setup_context")


class ContextValue(ObjectValue):
    """The `ctx` of a forward that runs while capturing."""

    def __init__(self, needs_input_grad: Sequence[bool]) -> None:
        super().__init__(FunctionCtx)
        self.needs_input_grad = needs_input_grad

    def getattr(self, tx: Interpreter, name: str) -> Value:
        if name == "needs_input_grad":
            return TupleValue([ConstantValue(needs) for needs in self.needs_input_grad])
        if name == "saved_tensors":
            saved = tx.output.side_effects.load_attr(self, "to_save")
            return saved if isinstance(saved, Value) else TupleValue([])
        return super().getattr(tx, name)


class ForwardValue(Value):
    """forward, and setup_context behind it, as one function of the arguments of `apply`."""

    def __init__(self, owner: ClassValue, needs_input_grad: Sequence[bool]) -> None:
        super().__init__()
        self.owner = owner
        self.needs_input_grad = needs_input_grad

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        return self.run(tx, args, kwargs)[1]

    def run(
        self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> tuple[ContextValue, Value]:
        """The context, and what forward returned."""
        context = ContextValue(self.needs_input_grad)
        tx.output.side_effects.track_new(context)
        forward = self.owner.getattr(tx, "forward")
        if class_lookup(self.owner.cls, "setup_context") is _DEFAULT_SETUP:
            return context, tx.call_function(forward, [context, *args], kwargs)
        result = tx.call_function(forward, args, kwargs)
        setup = self.owner.getattr(tx, "setup_context")
        tx.call_function(setup, [context, TupleValue(list(args)), result])
        return context, result


class RoundTripValue(ForwardValue):
    """forward, and backward on gradients for all that it returned."""

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        context, result = self.run(tx, args, kwargs)
        outputs = result.items(tx) if isinstance(result, TupleValue) else [result]
        materialize = tx.output.side_effects.load_attr(context, "materialize_grads")
        if len(outputs) > 1 and isinstance(materialize, Value):
            raise _refuse("backward may be given None")
        empty_like = tx.wrap(torch.empty_like)
        gradients = [tx.call_function(empty_like, [output], {}) for output in outputs]
        known = len(tx.output.guards)
        backward = self.owner.getattr(tx, "backward")
        tx.call_function(backward, [context, *gradients], {})
        # They hold when forward runs; what backward reads of the world may have changed by then.
        for guard in list(tx.output.guards)[known:]:
            if guard.kind not in _LASTING:
                raise _refuse(f"backward reads {guard.source}")
        return result


# Guards on which functions and classes names stand for.
_LASTING = frozenset(["id", "type", "type_attr", "function_code", "no_instance_attr", "has_attr"])


def _refuse(text: str) -> Unsupported:
    return Unsupported(breaks.OpError("autograd.Function", text))


@handles(torch.autograd.Function.apply.__func__)  # type: ignore[attr-defined]
def _apply(tx, owner, *args, **kwargs):
    assert isinstance(owner, ClassValue)
    needs = [isinstance(arg, TensorValue) and arg.fake.requires_grad for arg in args]
    differentiates = torch.is_grad_enabled() and any(needs)
    if not (differentiates or tx.output.bodies):
        return ForwardValue(owner, [False] * len(args)).call(tx, args, kwargs)
    nest = tuple(opened(tx, arg) if isinstance(arg, TensorValue) else arg for arg in args)
    traceable = _tries(tx, RoundTripValue(owner, needs), nest, kwargs)
    if not traceable:
        trace_body(tx, ForwardValue(owner, needs), nest, kwargs, same_fake, False)
    result = call_in_graph(tx, "call_function", owner.cls.apply, args, kwargs)
    if traceable:
        _mark(result, owner.cls, args)
    return result


def _tries(tx: Interpreter, function: Value, nest: Any, kwargs: dict[str, Value]) -> bool:
    """Whether `function` can be captured as a body."""
    try:
        trace_body(tx, function, nest, kwargs, same_fake, False)
    except Unsupported:
        return False
    return True


def _mark(result: Value, cls: type, args: Sequence[Value]) -> None:
    """Mark the node that calls apply, from what it returned; "views": its memory is that of an
    argument, but not by a view that autograd knows.
    """
    leaves = result.wrapped() if isinstance(result, TupleValue) else [result]
    tensors = [leaf for leaf in leaves if isinstance(leaf, TensorValue)]
    given = {_memory(arg) for arg in args if isinstance(arg, TensorValue)}
    for leaf in tensors:
        node = leaf.node
        while node.target is operator.getitem:
            node = node.args[0]
        if getattr(node.target, "__self__", None) is cls:
            shared = any(_memory(one) in given for one in tensors)
            node.meta["traceable"] = "views" if shared else "fresh"


def _memory(tensor: TensorValue) -> int:
    return tensor.fake.untyped_storage()._cdata
