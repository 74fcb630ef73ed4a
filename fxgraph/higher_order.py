"""Functions by which graphs run bodies: a transform of torch.func over a sub-graph, a checkpointed
sub-graph, and functions that such a transform returned.

    body = self.body_0
    grad = fxgraph.higher_order.transform("torch.func.grad", body, (w,), (0, False), {}, (x,), {})

The body takes the tensors of the transform's arguments in order, then the lifted ones; control flow
(torch.cond and its kin) needs nothing of this: torch's own operators call the bodies.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.autograd.functional
import torch.func
import torch.utils.checkpoint

from fxgraph import effects
from fxgraph.args import leaves
from fxgraph.node import Node

# Operators that are given a function and return one, which is called with the arguments...
CURRIED: dict[str, Callable[..., Any]] = {
    "torch.func.grad": torch.func.grad,
    "torch.func.grad_and_value": torch.func.grad_and_value,
    "torch.func.vmap": torch.func.vmap,
    "torch.func.jacrev": torch.func.jacrev,
    "torch.func.jacfwd": torch.func.jacfwd,
    "torch.func.hessian": torch.func.hessian,
}
# ...and operators that are given the function and its arguments.
DIRECT: dict[str, Callable[..., Any]] = {
    "torch.func.vjp": torch.func.vjp,
    "torch.func.jvp": torch.func.jvp,
    "torch.autograd.functional.jacobian": torch.autograd.functional.jacobian,
    "torch.autograd.functional.hessian": torch.autograd.functional.hessian,
    "torch.autograd.functional.vjp": torch.autograd.functional.vjp,
    "torch.autograd.functional.jvp": torch.autograd.functional.jvp,
    "torch.autograd.functional.vhp": torch.autograd.functional.vhp,
    "torch.autograd.functional.hvp": torch.autograd.functional.hvp,
    "torch.utils.checkpoint.checkpoint": torch.utils.checkpoint.checkpoint,
}


def transform(
    name: str,
    body: Callable[..., Any],
    lifted: Sequence[torch.Tensor],
    options: Mapping[str, Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Any:
    """transform(body, **options)(*args, **kwargs), or transform(body, *args, **options, **kwargs).

    options: settings of the transform. args, kwargs: nests of tensors and constants.
    """

    def function(*args: Any, **kwargs: Any) -> Any:
        return body(*tensor_leaves((args, kwargs)), *lifted)

    if name in CURRIED:
        return CURRIED[name](function, **options)(*args, **kwargs)
    try:
        return DIRECT[name](function, *args, **options, **kwargs)
    except Exception as error:
        _leave_checkpoints(error)
        raise


def _leave_checkpoints(error: Exception) -> None:
    """End the checkpoints that an error went through, whose hooks of saved tensors torch 2.11 and
    2.12 leave in place while the error's traceback lives.
    """
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_filename == torch.utils.checkpoint.__file__:
            frame.clear()


def call(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call a node's result: the function that torch.func.vjp gives."""
    return function(*args, **kwargs)


def branch(
    predicate: torch.Tensor,
    true_body: Callable[..., tuple[torch.Tensor, ...]],
    false_body: Callable[..., tuple[torch.Tensor, ...]],
    operands: Sequence[torch.Tensor],
) -> tuple[torch.Tensor, ...]:
    """A branch of the program. As torch.cond, but gradients are those of the body that ran, and
    only of the operands that it uses.
    """
    return (true_body if bool(predicate) else false_body)(*operands)


def loop(
    predicate: torch.Tensor,
    body: Callable[..., tuple[torch.Tensor, ...]],
    carried: Sequence[torch.Tensor],
    operands: Sequence[torch.Tensor],
) -> tuple[torch.Tensor, ...]:
    """A loop of the program: while predicate: *carried, predicate = body(*carried, *operands).

    Gradients go through the iterations that were made.
    """
    while bool(predicate):
        *carried, predicate = body(*carried, *operands)
    return tuple(carried)


effects.BODY_RUNNERS.update([branch, loop])


def runs_bodies(target: Any) -> bool:
    """Whether `target` is a function of graphs that runs sub-graphs, or the result of one."""
    return target in (transform, call, branch, loop) or isinstance(
        target, torch._ops.HigherOrderOperator
    )


def is_checkpoint(node: Node) -> bool:
    """Whether the node runs a checkpointed body."""
    return node.target is transform and node.args[0] == "torch.utils.checkpoint.checkpoint"


def dispatch_keys_kept() -> Any:
    """A context that leaves the dispatcher's thread-local keys as it found them."""
    included = torch._C._dispatch_tls_local_include_set()
    return torch._C._ForceDispatchKeyGuard(included, torch._C._dispatch_tls_local_exclude_set())


def forget_frames(error: BaseException | None) -> None:
    """Clear the frames of an exception from inside a transform.

    They hold guards of the dispatcher, which restore its earlier state when they die: at once,
    inside `dispatch_keys_kept`, and not at some later time.
    """
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error.__traceback__ = None
        error = error.__context__


def tensor_leaves(nest: Any) -> list[torch.Tensor]:
    """The tensors of a nest, in order."""
    return [leaf for leaf in leaves(nest) if isinstance(leaf, torch.Tensor)]
