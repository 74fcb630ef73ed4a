"""The functions that are captured: build(), and the update of the parameters behind it."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

from dynamo.bytecode.returns import never_returns, returns_none
from dynamo.errors import GraphError


# -- before capture -------------------------------------------------------------------------------
def check_build(graph: Any) -> None:
    """Raise GraphError for a class whose build() is missing or never returns anything."""
    build = type(graph).build
    if getattr(build, "is_missing", False):
        raise GraphError(f"{type(graph).__name__} defines no build(self, ...)")
    code = getattr(build, "__code__", None)
    suspends = inspect.isgeneratorfunction(build) or inspect.iscoroutinefunction(build)
    if suspends:
        raise GraphError(f"build() of {type(graph).__name__} is a generator or coroutine")
    if code is not None and returns_none(code) and not never_returns(code):
        raise GraphError(_returns_nothing(graph))


def _returns_nothing(graph: Any) -> str:
    return f"build() of {type(graph).__name__} returns nothing: return the loss, or the prediction"


# -- captured -------------------------------------------------------------------------------------
def whole(graph: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The whole step."""
    outputs = differentiated(graph, args, kwargs)
    state = graph._graph
    for optimizer in state.optimizers:
        clip(optimizer)
        optimizer.step()
    for optimizer in state.optimizers:
        optimizer.zero_grad()
    return outputs


def differentiated(graph: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Outputs of build(), whose backward() has stored gradients."""
    state = graph._graph
    config = state.config
    if config.accumulation > 1:
        parts = divided(state.name, config.accumulation, args, kwargs)
        outputs = together([forward(graph, config, *part) for part in parts])
    else:
        outputs = forward(graph, config, args, kwargs)
    if outputs is None:
        raise GraphError(_returns_nothing(graph))
    if not state.optimizers:
        return outputs
    if not any(p.grad is not None for optimizer in state.optimizers for p in parameters(optimizer)):
        raise GraphError(
            f"{state.name} has optimizers, and its build() gives none of their parameters a "
            "gradient: call backward() on the loss"
        )
    return pytree.tree_map(detached, outputs)


def forward(graph: Any, config: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if config.amp is None:
        return graph.build(*args, **kwargs)
    with torch.autocast(config.device_type, config.amp):
        return graph.build(*args, **kwargs)


def update_scaled(graph: Any) -> None:
    """The update through a GradScaler as a program of its own, for optimizers whose steps cannot be
    taken back (scaling.py): it reads whether there is one.
    """
    state = graph._graph
    for optimizer in state.optimizers:
        if clips(optimizer):
            state.config.grad_scaler.unscale_(optimizer)
            clip(optimizer)
        state.config.grad_scaler.step(optimizer)
    state.config.grad_scaler.update()
    for optimizer in state.optimizers:
        optimizer.zero_grad()


def clips(optimizer: torch.optim.Optimizer) -> bool:
    return any("clip_grad_max_norm" in group for group in optimizer.param_groups)


def clip(optimizer: torch.optim.Optimizer) -> None:
    for group in optimizer.param_groups:
        if "clip_grad_max_norm" in group:
            order = group.get("clip_grad_norm_type", 2.0)
            torch.nn.utils.clip_grad_norm_(group["params"], group["clip_grad_max_norm"], order)


def parameters(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def detached(value: Any) -> Any:
    """Gradients end with the step."""
    if isinstance(value, torch.Tensor) and value.requires_grad and not value.is_leaf:
        return value.detach()
    return value


def nested(graph: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of a graph inside of captured code."""
    state = graph._graph
    if state.depth:
        raise GraphError(f"build() of {state.name} calls the graph itself")
    if not state.config.is_plain:
        raise GraphError(
            f"{state.name} is called inside of another graph, and has optimizers or settings: call "
            "it on its own, or use its modules"
        )
    return graph.build(*args, **kwargs)


# -- called by capture (hooks.py) -----------------------------------------------------------------
def scaled(graph: Any, outputs: Any, gradients: Any) -> tuple[Any, Any]:
    """The outputs, scaled by the GradScaler, and the gradients from which backward() inside of
    build() starts.
    """
    state = graph._graph
    steps = state.config.accumulation
    if gradients is None:
        if steps > 1:
            outputs = pytree.tree_map(lambda loss: loss / steps, outputs)
        if state.config.grad_scaler is not None:
            outputs = pytree.tree_map(state.config.grad_scaler.scale, outputs)
        return outputs, None
    if steps > 1 or state.config.grad_scaler is not None:
        raise GraphError(
            f"{state.name}: backward(gradient) inside of build(), whose loss is scaled: multiply "
            "and sum instead"
        )
    return outputs, gradients


def checkpointed(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of a module whose activations are not kept."""
    return checkpoint(module._call_impl, *args, use_reentrant=False, **kwargs)


# -- gradient accumulation ------------------------------------------------------------------------
def divided(
    name: str, steps: int, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    """The arguments of each step."""
    values, structure = pytree.tree_flatten((args, kwargs))
    pieces = []
    for value in values:
        if not isinstance(value, torch.Tensor) or value.dim() == 0:
            pieces.append([value] * steps)
            continue
        if value.shape[0] % steps:
            raise GraphError(
                f"{name}: an input of shape {tuple(value.shape)} cannot be divided into {steps} "
                "equal parts for gradient accumulation"
            )
        pieces.append(list(value.split(value.shape[0] // steps)))
    return [pytree.tree_unflatten([piece[i] for piece in pieces], structure) for i in range(steps)]


def together(parts: list[Any]) -> Any:
    """The outputs of all steps as those of one."""
    if parts[0] is None:
        return None
    structure = pytree.tree_flatten(parts[0])[1]
    rows = zip(*[pytree.tree_flatten(part)[0] for part in parts])
    return pytree.tree_unflatten([joined(list(row)) for row in rows], structure)


def joined(values: list[Any]) -> Any:
    first = values[0]
    if not isinstance(first, torch.Tensor):
        return values[-1]
    if first.dim():
        return torch.cat(values)
    stacked = torch.stack(values)
    return stacked.mean(0) if first.is_floating_point() or first.is_complex() else stacked.sum(0)
