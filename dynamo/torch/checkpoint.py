"""torch.utils.checkpoint: the function is captured as a body, which the graph runs under torch's
own checkpoint, so that backward computes it again; without gradients it is just called.

A policy of selective checkpointing changes no result: it is not asked while the graph runs, and
the partition of the joint graph decides what is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import (
    SelectiveCheckpointContext,
    _CachedTorchDispatchMode,
    _CachingTorchDispatchMode,
    checkpoint,
    noop_context_fn,
)

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.torch.bodies import Body, body_scope, opened, proxies, record, same_fake, trace_body
from dynamo.values.base import Value
from dynamo.values.builtins import handles
from dynamo.values.containers import TupleValue
from dynamo.values.tensor import TensorValue
from fxgraph.higher_order import transform

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

_NAME = "torch.utils.checkpoint.checkpoint"
_ASKED = [getattr(torch.ops.aten, name).default for name in ("mm", "addmm", "bmm", "relu")]
_SETTINGS = ("preserve_rng_state", "determinism_check", "debug", "early_stop")


def _refuse(text: str) -> Unsupported:
    return Unsupported(breaks.OpError("checkpoint", text))


@handles(checkpoint)
def _checkpoint(tx, function, *args, use_reentrant=None, context_fn=None, **kwargs):
    reentrant = None if use_reentrant is None else use_reentrant.as_constant()
    if not isinstance(reentrant, bool):
        raise _refuse("use_reentrant is not given")
    if context_fn is not None and context_fn.identity() != (True, noop_context_fn):
        if reentrant:
            raise _refuse("use_reentrant=True takes no context_fn")
        _check_selective(tx, context_fn)
    settings = {name: kwargs.pop(name).as_constant() for name in _SETTINGS if name in kwargs}
    if reentrant and (kwargs or settings.keys() - {"preserve_rng_state"}):
        raise _refuse("use_reentrant=True takes no keyword arguments")
    if reentrant and not any(_needs_grad(arg) for arg in args):
        raise _refuse("no argument requires grad")
    if not torch.is_grad_enabled():
        return tx.call_function(function, args, kwargs)
    nested = tuple(opened(tx, arg) for arg in args)
    named = {key: opened(tx, value) for key, value in kwargs.items()}
    body = trace_body(tx, function, nested, named, same_fake, True)
    fakes = [*body.inputs, *(node.meta["example_value"] for node in body.lifted)]
    if not reentrant and not any(fake.requires_grad for fake in fakes):
        return tx.call_function(function, args, kwargs)
    node = body.attach(tx)
    if reentrant:
        _check_same_without_grad(tx, function, nested, body, node.meta["example_value"])
    options = {"use_reentrant": reentrant, **settings}
    given = (proxies(nested), proxies(named))
    return record(tx, transform, (_NAME, node, body.lifted, options, *given))


def _check_selective(tx: Interpreter, context_fn: Value) -> None:
    """Break unless the contexts are those of selective checkpointing, with a policy that has no
    effects: what it decides, which results to keep, the partition of the graph decides instead.
    """
    with body_scope(tx):
        contexts = tx.call_function(context_fn, [], {})
        items = contexts.items(tx) if isinstance(contexts, TupleValue) else []
        kinds = [item.python_type() for item in items]
        if kinds != [_CachingTorchDispatchMode, _CachedTorchDispatchMode]:
            raise _refuse("context_fn makes contexts of its own")
        policy = items[0].getattr(tx, "policy_fn")
        ask = SelectiveCheckpointContext(is_recompute=False)
        context = tx.wrap(ask, tx.output.install("selective_context", ask))
        for operator in _ASKED:
            tx.call_function(policy, [context, tx.wrap(operator)], {})


def _needs_grad(value: Value) -> bool:
    return isinstance(value, TensorValue) and value.fake.requires_grad


def _check_same_without_grad(
    tx: Interpreter, function: Value, nested: Any, body: Body, module: Any
) -> None:
    """The first run of a reentrant checkpoint is without gradients: the function must not ask for
    the mode.
    """
    other = trace_body(tx, function, nested, {}, same_fake, False)
    leaves = pytree.tree_leaves(opened(tx, other.result))
    if other.lifted != body.lifted or len(leaves) < 1:
        raise _refuse("the function depends on the gradient mode")
    outputs = other.graph.local(
        pytree.tree_map(lambda value: value.as_proxy(), opened(tx, other.result))
    )
    if other.graph.finish(outputs).code != module.code:
        raise _refuse("the function depends on the gradient mode")
