"""Autograd's graphs behind fake tensors, which tell the leaves that a backward of a frame reaches.

The result of a branch has the histories of both sides, of which one is run: the backward is sure to
reach what both have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import get_gradient_edge


class JoinedHistory(torch.autograd.Function):
    """A fake tensor like `made` with the histories of two others: what the sides of a branch leave,
    or what a loop begins with and what a turn leaves. carried: for a loop, the CarriedHistory of
    what the turn begins with.
    """

    @staticmethod
    def forward(
        ctx: Any,
        made: torch.Tensor,
        one: torch.Tensor,
        other: torch.Tensor,
        carried: Any = None,
    ) -> torch.Tensor:
        ctx.carried = carried
        return made.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        return None, *gradients, *gradients, None


class CarriedHistory(torch.autograd.Function):
    """A fake tensor like `made` with the history of another: what a turn of a loop begins with."""

    @staticmethod
    def forward(ctx: Any, made: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        return made.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        return None, *gradients


def functions_below(
    tensors: Iterable[torch.Tensor], behind: Iterable[torch.Tensor] = ()
) -> set[Any]:
    """The functions of autograd's graph that a backward from the tensors runs, without those that
    made the ones in `behind`, and what is behind these.
    """
    known = {accumulation(tensor) for tensor in behind if tensor.requires_grad}
    return _reached(_begins(tensors), known.__contains__) - known


def accumulation(tensor: torch.Tensor) -> Any:
    """The function of autograd that made the tensor, or stores its gradient; None for a tensor of
    inference mode.
    """
    if tensor.is_inference():
        return None
    with torch.inference_mode(False):  # in which leaves have no nodes
        return get_gradient_edge(tensor).node


def has_branch(functions: Iterable[Any]) -> bool:
    """Whether some of these functions are reached where a side of a branch is run."""
    return any(map(_is_joined, functions))


def unsurely_below(functions: set[Any], outputs: Iterable[torch.Tensor]) -> set[Any]:
    """The functions, of those below the outputs, that a backward runs or not, as sides of branches
    were run.
    """
    return functions - _surely_reached(_begins(outputs), {}) if has_branch(functions) else set()


def _begins(tensors: Iterable[torch.Tensor]) -> list[Any]:
    return [tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None]


def _reached(begins: list[Any], ends: Callable[[Any], bool]) -> set[Any]:
    seen, todo = set(begins), list(begins)
    while todo:
        function = todo.pop()
        if ends(function):
            continue
        for following in _following(function):
            if following not in seen:
                seen.add(following)
                todo.append(following)
    return seen


def _surely_reached(begins: list[Any], known: dict[Any, set[Any]]) -> set[Any]:
    """known: what is behind the results of branches that were met."""
    found = _reached(begins, _is_joined)
    for function in filter(_is_joined, list(found)):
        if function not in known:
            one, other = (_surely_reached([f], known) for f in _following(function))
            if function.carried is None:
                known[function] = one & other
            else:  # after any number of turns, if each goes on from its own tensor
                known[function] = one if function.carried in other else set()
        found |= known[function]
    return found


def _following(function: Any) -> list[Any]:
    return [following for following, _ in function.next_functions if following is not None]


def _is_joined(function: Any) -> bool:
    return isinstance(function, BackwardCFunction) and (
        getattr(function, "_forward_cls", None) is JoinedHistory
    )
