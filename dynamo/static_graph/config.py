"""Settings of a static graph: graph.config."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dynamo.errors import GraphError


class GraphConfig:
    """The settings of a graph beside build(); each setting names the eager program that it equals.

    A change after the first call builds the graph anew at the next one.
    """

    # Other names, and values in place of the methods, are errors.
    __slots__ = ("_changed", "accumulation", "amp", "checkpointed", "device_type", "grad_scaler",
                 "memory_limit", "training")  # fmt: skip

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self.training = False  # an optimizer was added
        self.amp: torch.dtype | None = None
        self.grad_scaler: torch.amp.GradScaler | None = None
        self.accumulation = 1
        self.checkpointed: tuple[torch.nn.Module, ...] = ()
        self.memory_limit: int | None = None
        self.device_type = "cpu"

    @property
    def is_plain(self) -> bool:
        """Whether the graph does nothing but build()."""
        return repr(self) == repr(GraphConfig(self._changed))

    def enable_amp(self, mode: bool = True, *, dtype: torch.dtype = torch.bfloat16) -> None:
        """Run build() in mixed precision, on the device of the graph's parameters:

        with torch.autocast(device_type, dtype):
            outputs = build(*args)

        mode=False takes it back. Raises GraphError for another dtype than bfloat16 and float16.
        """
        if dtype not in (torch.bfloat16, torch.float16):
            raise GraphError(f"mixed precision is of bfloat16 or float16, not of {dtype}")
        self.amp = dtype if mode else None
        self._changed()

    def set_grad_scaler(self, scaler: torch.amp.GradScaler | None) -> None:
        """Scale the loss of each backward(), and step the optimizers through `scaler`:

            scaler.scale(loss).backward()
            scaler.step(optimizer)         # instead of optimizer.step(); unscale_ before clipping
            scaler.update()

        All of it is one plan, in which a step that is skipped is computed and not kept. Optimizers
        that are not of torch.optim, or have step hooks, which a skipped step does not call, are
        updated by a program of its own behind the plan, and a warning says so. None takes it back;
        GraphError for other objects.
        """
        if scaler is not None and not isinstance(scaler, torch.amp.GradScaler):
            raise GraphError(f"set_grad_scaler takes a GradScaler, not {scaler!r}")
        self.grad_scaler = scaler
        self._changed()

    def set_gradient_accumulation_steps(self, steps: int) -> None:
        """Run build() on `steps` equal parts of the inputs, and step the optimizers once:

            for part in zip(*(input.chunk(steps) for input in inputs)):
                outputs.append(build(*part))     # in which backward() is that of loss / steps
            optimizer.step()

        Tensors with at least one dimension are divided along the first, other arguments are given
        to each part. Results are put together: tensors along the first dimension; numbers
        (tensors without dimensions) as their mean, or, where they are no floats, as their sum.
        Raises GraphError unless `steps` is an int of at least 1.
        """
        if type(steps) is not int or steps < 1:
            raise GraphError(f"gradients are accumulated over 1 or more steps, not {steps!r}")
        self.accumulation = steps
        self._changed()

    def set_activation_checkpointing(self, *modules: torch.nn.Module) -> None:
        """Have backward compute the activations of these modules again. Calls equal:

            torch.utils.checkpoint.checkpoint(module, *args, use_reentrant=False)

        A whole step of the default backend then holds, of what such a call computes, its results
        and random numbers until backward comes. Each call of this replaces the modules of the one
        before. Raises GraphError for objects that are no modules; the first step, for a module that
        is none of the graph's.
        """
        for module in modules:
            if not isinstance(module, torch.nn.Module):
                raise GraphError(f"modules are checkpointed, not {module!r}")
        self.checkpointed = modules
        self._changed()

    def set_memory_limit(self, limit: int | None) -> None:
        """Have the plan need at most `limit` bytes at once, or raise GraphError before it runs.

        Counted is what a call needs at once besides inputs, parameters and what library calls
        allocate inside (the report of dynamo.explain tells it), in the sizes of the first call. A
        training step that needs more checkpoints the blocks of the model: the outermost elements of
        ModuleLists and Sequentials that have modules inside and keep no running statistics. That
        equals:

            torch.utils.checkpoint.checkpoint(block, *args, use_reentrant=False)

        Only the default backend has plans. None: no limit. Raises GraphError at once unless `limit`
        is a positive int.
        """
        if limit is not None and (type(limit) is not int or limit < 1):
            raise GraphError(f"a memory limit is a positive number of bytes, not {limit!r}")
        self.memory_limit = limit
        self._changed()

    def check(self, name: str, graph: Any) -> None:
        """Raise GraphError for settings that do not fit the graph."""
        known = set(map(id, graph.modules()))
        for module in self.checkpointed:
            if id(module) not in known:
                raise GraphError(f"{name}: a checkpointed module is none of the graph's: {module}")
        if self.grad_scaler is not None and not self.training:
            raise GraphError(f"{name} has a GradScaler and no optimizer: use add_optimizer")
        devices = {parameter.device.type for parameter in graph.parameters()}
        self.device_type = min(devices - {"cpu"}, default="cpu")

    def __repr__(self) -> str:
        shown: dict[str, Any] = {"training": self.training}
        if self.amp is not None:
            shown["amp"] = self.amp
        if self.grad_scaler is not None:
            shown["grad_scaler"] = self.grad_scaler.is_enabled()
        if self.accumulation > 1:
            shown["gradient_accumulation_steps"] = self.accumulation
        if self.checkpointed:
            shown["activation_checkpointing"] = len(self.checkpointed)
        if self.memory_limit is not None:
            shown["memory_limit"] = self.memory_limit
        return f"GraphConfig({''.join(f'{key}={value}, ' for key, value in shown.items())})"


def blocks(graph: Any) -> tuple[torch.nn.Module, ...]:
    """The modules that a memory limit checkpoints."""
    found: list[torch.nn.Module] = []
    todo = list(graph.children())
    while todo:
        module = todo.pop(0)
        repeats = isinstance(module, (torch.nn.ModuleList, torch.nn.Sequential))
        for child in module.children():
            if (
                repeats
                and next(child.children(), None) is not None
                and not _keeps_statistics(child)
            ):
                found.append(child)
            else:
                todo.append(child)
    return tuple(found)


def _keeps_statistics(module: torch.nn.Module) -> bool:
    return any(getattr(part, "track_running_stats", False) for part in module.modules())
