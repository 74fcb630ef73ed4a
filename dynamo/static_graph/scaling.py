"""The update through a GradScaler as a part of the step, which arithmetic takes or skips.

Eager reads whether a gradient overflowed, and calls optimizer.step() or does not. Here the step is
"""

from __future__ import annotations

from typing import Any

import torch

from dynamo.static_graph.step import clip, clips, differentiated, parameters


# -- asked ----------------------------------------------------------------------------------------
def why_apart(optimizers: list[torch.optim.Optimizer]) -> str | None:
    """The reason why arithmetic cannot decide whether to update; None: it can.

    The state of the optimizers of torch.optim is tensors alone, which their steps write in place.
    """
    for optimizer in optimizers:
        kind = type(optimizer)
        if not kind.__module__.startswith("torch.optim.") or kind is torch.optim.SparseAdam:
            return f"{kind.__name__} may keep more than tensors"
        if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
            return f"{kind.__name__} has step hooks"
    return None


def ready(scaler: Any, optimizers: list[torch.optim.Optimizer]) -> None:
    """Make the scaler's tensors, which eager makes in its first scale()."""
    if scaler._scale is None:
        scaler._lazy_init_scale_growth_tracker(parameters(optimizers[0])[0].device)


def stateless(optimizers: list[torch.optim.Optimizer]) -> list[list[torch.Tensor]]:
    """By optimizer: the parameters without state."""
    return [[p for p in parameters(one) if p not in one.state] for one in optimizers]


def undo_made(
    optimizers: list[torch.optim.Optimizer],
    before: list[list[torch.Tensor]],
    skipped: list[torch.Tensor],
) -> None:
    """State that a skipped step has made is not there in eager. Fused steps make it, without any
    step in it.
    """
    for optimizer, without, skip in zip(optimizers, before, skipped, strict=True):
        made = [parameter for parameter in without if parameter in optimizer.state]
        if not made or not skip.item():
            continue
        states = [optimizer.state[parameter] for parameter in made]
        if _is_fused(optimizer):
            for value in (value for state in states for value in state.values()):
                if isinstance(value, torch.Tensor):
                    value.zero_()
        else:
            for parameter in made:
                del optimizer.state[parameter]


# -- captured -------------------------------------------------------------------------------------
def whole(graph: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The whole step."""
    return whole_and_skipped(graph, args, kwargs)[0]


def whole_and_skipped(
    graph: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, list[torch.Tensor]]:
    """The whole step; and by optimizer, whether its update was skipped."""
    outputs = differentiated(graph, args, kwargs)
    state = graph._graph
    with torch.no_grad():
        skipped = [updated(state.config.grad_scaler, optimizer) for optimizer in state.optimizers]
        adjust(state.config.grad_scaler, torch.stack(skipped).any())
    for optimizer in state.optimizers:
        optimizer.zero_grad()
    return outputs, skipped


def updated(scaler: Any, optimizer: torch.optim.Optimizer) -> torch.Tensor:
    """Step the optimizer unless a gradient overflowed, which is returned."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    parameters = [parameter for parameter in parameters if parameter.grad is not None]
    assert parameters, "No inf checks were recorded for this optimizer."
    skip = unscaled(scaler, optimizer, [parameter.grad for parameter in parameters])
    clip(optimizer)
    written = list(parameters)
    for parameter in parameters:
        if parameter in optimizer.state:
            values = optimizer.state[parameter].values()
            written.extend(value for value in values if isinstance(value, torch.Tensor))
    before = [tensor.clone() for tensor in written]
    optimizer.step()
    for tensor, old in zip(written, before):
        tensor.copy_(torch.where(skip.to(tensor.device), old, tensor))
    return skip


def unscaled(
    scaler: Any, optimizer: torch.optim.Optimizer, gradients: list[torch.Tensor]
) -> torch.Tensor:
    """Divide gradients by the scale; whether one of them is not finite."""
    scale = scaler._scale
    divides = _is_fused(optimizer) and not clips(optimizer)  # in the fused step's own way
    inverse = scale.double().reciprocal().float()
    finite = []
    for gradient in gradients:
        if gradient.dtype == torch.float16 and not divides:
            raise ValueError("Attempting to unscale FP16 gradients.")
        finite.append(torch.isfinite(gradient).all().to(scale.device))
        if divides:
            gradient.div_(scale.to(gradient.device))
        else:
            gradient.mul_(inverse.to(gradient.device))
    return torch.stack(finite).all().logical_not()


def _is_fused(optimizer: torch.optim.Optimizer) -> bool:
    return getattr(optimizer, "_step_supports_amp_scaling", False)


def adjust(scaler: Any, overflowed: torch.Tensor) -> None:
    """scaler.update(), in the kernel's own precision."""
    scale, tracker = scaler._scale, scaler._growth_tracker
    lower = (scale.double() * scaler._backoff_factor).float()
    higher = (scale.double() * scaler._growth_factor).float()
    count = tracker + 1
    full = count == scaler._growth_interval
    kept = torch.where(full & torch.isfinite(higher), higher, scale)
    tracker.copy_(torch.where(overflowed | full, 0, count))
    scale.copy_(torch.where(overflowed, lower, kept))
