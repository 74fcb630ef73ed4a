"""torch.autograd.forward_ad: a level that the captured code enters and leaves is two nodes of the
graph, between which fake tensors carry tangents as real ones do.

A graph gives no tensors with tangents back: no graph break can stand within the level.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._functorch import predispatch

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.torch.bodies import record
from dynamo.values.builtins.table import handles
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.tensors.tensor import TensorValue
from fxgraph.dual_levels import enter_level, leave_level, make_dual, unpack_dual

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter


def _called(name: str, module: Any) -> Any:
    """The function of a name that torch.autograd.forward_ad calls: a wrapper, in newer versions."""
    return getattr(predispatch, name, None) or getattr(module, name)


def _check(tx: Interpreter, *tensors: Any) -> None:
    output = tx.output
    whole = output.context.export or output.context.hooks is not None  # no Python around the graph
    elsewhere = whole or output.bodies or output.inference or torch.is_inference_mode_enabled()
    plain = all(type(tensor) is TensorValue for tensor in tensors)
    if elsewhere or output.has_overrides or not plain:
        raise Unsupported(breaks.UncapturedCall("torch.autograd.forward_ad here"))


@handles(_called("_enter_dual_level", torch._C))
def _enter(tx):
    _check(tx)
    if tx.output.has_dual_level:  # torch says so
        raise Unsupported(breaks.UncapturedCall("forward_ad.enter_dual_level within a level"))
    _switch(tx, enter_level, True)
    return ConstantValue(0)


@handles(_called("_exit_dual_level", torch._C))
def _exit(tx, *, level):
    _check(tx)
    if not tx.output.has_dual_level or level.as_constant() != 0:
        raise Unsupported(breaks.UncapturedCall("forward_ad.exit_dual_level outside of its level"))
    _switch(tx, leave_level, False)


def _switch(tx: Interpreter, switch: Any, inside: bool) -> None:
    tx.output.side_effects.touch()
    tx.output.create_node("call_function", switch, (), {}, None, tx)
    switch()
    tx.output.has_dual_level = inside


@handles(_called("_make_dual", torch._VF))
def _make(tx, tensor, tangent, *, level):
    _check_within(tx, level, tensor, tangent)
    return record(tx, make_dual, (tensor.node, tangent.node))


@handles(_called("_unpack_dual", torch._VF))
def _unpack(tx, tensor, *, level):
    _check_within(tx, level, tensor)
    return record(tx, unpack_dual, (tensor.node,))


def _check_within(tx: Interpreter, level: Any, *tensors: Any) -> None:
    _check(tx, *tensors)
    if not tx.output.has_dual_level or level.as_constant() != 0:
        raise Unsupported(breaks.UncapturedCall("torch.autograd.forward_ad outside of its level"))
