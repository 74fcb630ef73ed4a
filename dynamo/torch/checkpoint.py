"""torch.utils.checkpoint: the function is captured as a body, which the graph runs under torch's
own checkpoint, so that backward computes it again; without gradients it is just called.

A policy of selective checkpointing changes no result: it is asked at capture about the operators
that the body runs, so that one with effects breaks the graph, and not while the graph runs; the
partition of the joint graph decides which tensors are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import (
    SAC_IGNORED_OPS,
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
from dynamo.values.builtins.table import handles
from dynamo.values.containers.containers import TupleValue
from dynamo.values.tensors.tensor import TensorValue
from fxgraph.higher_order import dispatch_keys_kept, transform

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

_NAME = "torch.utils.checkpoint.checkpoint"
_SETTINGS = ("preserve_rng_state", "determinism_check", "debug", "early_stop")


def _refuse(text: str) -> Unsupported:
    return Unsupported(breaks.OpError("checkpoint", text))


@handles(checkpoint)
def _checkpoint(tx, function, *args, use_reentrant=None, context_fn=None, **kwargs):
    reentrant = None if use_reentrant is None else use_reentrant.as_constant()
    if not isinstance(reentrant, bool):
        raise _refuse("use_reentrant is not given")
    policy = None
    if context_fn is not None and context_fn.identity() != (True, noop_context_fn):
        if reentrant:
            raise _refuse("use_reentrant=True takes no context_fn")
        policy = _policy(tx, context_fn)
    settings = {name: kwargs.pop(name).as_constant() for name in _SETTINGS if name in kwargs}
    if reentrant and (kwargs or settings.keys() - {"preserve_rng_state"}):
        raise _refuse("use_reentrant=True takes no keyword arguments")
    if reentrant and not any(_needs_grad(arg) for arg in args):
        raise _refuse("no argument requires grad")
    if not torch.is_grad_enabled():
        return function, args, kwargs
    nested = tuple(opened(tx, arg) for arg in args)
    named = {key: opened(tx, value) for key, value in kwargs.items()}
    body = trace_body(tx, function, nested, named, same_fake, True)
    fakes = [*body.inputs, *(node.meta["example_value"] for node in body.lifted)]
    if not reentrant and not any(fake.requires_grad for fake in fakes):
        if policy is not None:
            raise _refuse("context_fn is given, and no argument requires grad")
        return function, args, kwargs
    node = body.attach(tx)
    if policy is not None:
        operators = _operators(tx, node.meta["example_value"], fakes)
        _check_policy(tx, policy, operators, settings.get("preserve_rng_state", True))
    if reentrant:
        _check_same_without_grad(tx, function, nested, body, node.meta["example_value"])
    options = {"use_reentrant": reentrant, **settings}
    given = (proxies(nested), proxies(named))
    return record(tx, transform, (_NAME, node, body.lifted, options, *given))


def _policy(tx: Interpreter, context_fn: Value) -> Value:
    """The policy; breaks unless the contexts are those of selective checkpointing."""
    with body_scope(tx):
        contexts = tx.call_function(context_fn, [], {})
        items = contexts.items(tx) if isinstance(contexts, TupleValue) else []
        kinds = [item.python_type() for item in items]
        if kinds != [_CachingTorchDispatchMode, _CachedTorchDispatchMode]:
            raise _refuse("context_fn makes contexts of its own")
        return items[0].getattr(tx, "policy_fn")


class _Noting(TorchDispatchMode):
    """Notes the operators that run, in the place of selective checkpointing's own mode."""

    def __init__(self) -> None:
        super().__init__()
        self.operators: list[Any] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func not in SAC_IGNORED_OPS:
            self.operators.append(func)
        return func(*args, **(kwargs or {}))


def _operators(tx: Interpreter, module: Any, fakes: Sequence[Any]) -> list[Any]:
    """The distinct operators that a body runs on such tensors."""
    noting = _Noting()
    with dispatch_keys_kept(), tx.output.fake_mode:
        copies = [fake.detach().clone().requires_grad_(fake.requires_grad) for fake in fakes]
        try:
            with noting:
                module(*copies)
        except Exception as error:
            raise _refuse("the function's operators are not known") from error
    return list(dict.fromkeys(noting.operators))


def _check_policy(
    tx: Interpreter, policy: Value, operators: Sequence[Any], same_numbers: bool
) -> None:
    """Break if the policy has effects or decides by more than the operator. same_numbers: a second
    run draws the random numbers of the first, so that it does not matter whether they were kept.
    """
    if not same_numbers and any(torch.Tag.nondeterministic_seeded in op.tags for op in operators):
        raise _refuse("a policy may keep random numbers that are not drawn again")
    with body_scope(tx):
        ask = SelectiveCheckpointContext(is_recompute=False)
        context = tx.wrap(ask, tx.output.install("selective_context", ask))
        for operator in operators:
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
