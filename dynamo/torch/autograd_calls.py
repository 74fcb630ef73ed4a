"""torch.autograd.grad inside a frame: a node, which differentiates results of the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.torch.bodies import opened, proxies, wrap_nest
from dynamo.torch.checkpoint import refuse_changed
from dynamo.torch.histories import functions_below, has_branch
from dynamo.torch.overrides import dispatch
from dynamo.torch.untried_backwards import refuse_untried
from dynamo.values.builtins.table import handles
from dynamo.values.tensors.fake_calls import run_fake
from dynamo.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter


_FIRST = ((0, "outputs"), (1, "inputs"))


@handles(torch.autograd.grad)
def _grad(tx, *args, **kwargs):
    dispatched = dispatch(tx, "call_function", torch.autograd.grad, args, kwargs)
    if dispatched is not None:
        return dispatched
    nest = tuple(opened(tx, value) for value in args)
    named = {key: opened(tx, value) for key, value in kwargs.items()}
    for leaf in pytree.tree_leaves((nest, named)):
        if not (isinstance(leaf, TensorValue) or leaf.is_constant()):
            raise Unsupported(breaks.NotGraphArgument(leaf.describe()))
    _check_history(tx)
    refuse_changed(tx)
    refuse_untried(tx, functions_below(_fakes(nest)))
    given = [nest[i] if len(nest) > i else named.get(name) for i, name in _FIRST]
    outputs, inputs = map(_fakes, given)
    if has_branch(functions_below(outputs, inputs)):
        raise Unsupported(breaks.BranchedGradients("which gradients there are, and their strides"))
    call = torch.autograd.grad, proxies(nest), proxies(named)
    result = run_fake(tx, "call_function", *call)
    node = tx.output.create_node("call_function", *call, result, tx)
    return wrap_nest(tx, node, result)


def _fakes(nest: Any) -> list[torch.Tensor]:
    return [leaf.fake for leaf in pytree.tree_leaves(nest) if isinstance(leaf, TensorValue)]


def _check_history(tx: Interpreter) -> None:
    """Break where gradients may flow through operations before the graph: whether one is None
    cannot be told from the graph then, and hooks of the user's may run.
    """
    if tx.output.watched.hooked:
        raise Unsupported(breaks.OutsideHistory(tx.output.watched.hooked[0][0].describe()))
    for item in tx.output.inputs:
        if not (isinstance(item.example, torch.Tensor) and item.example.requires_grad):
            continue  # a number, or no part of autograd
        if not has_no_history(item.example):
            raise Unsupported(breaks.OutsideHistory(item.source.name))
        tx.guard(item.source, "predicate", has_no_history)


def has_no_history(tensor: torch.Tensor) -> bool:
    """Whether autograd has nothing to do for the tensor but to store its gradient."""
    return tensor.grad_fn is None and not tensor._backward_hooks
