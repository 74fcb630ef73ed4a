"""The table aten operator -> lowering.

A lowering is `fn(ctx, *args, **kwargs)` with the operator's own arguments, tensors as `ir.Tensor`;
it returns a Tensor, a tuple of them, or raises `NotLowered` to have this one call run by aten
instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten
LOWERINGS: dict[Any, Callable[..., Any]] = {}


class NotLowered(Exception):
    """The call has no loop form (unusual dtype, argument or shape): it stays an aten operator."""


def overloads(target: Any) -> list[Any]:
    """Every overload of a packet, except those that write to out= arguments."""
    if isinstance(target, torch._ops.OpOverload):
        return [target]
    names = [n for n in target.overloads() if not n.endswith("out")]
    return [getattr(target, name) for name in names]


def lower(*targets: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a lowering for operators, or for all overloads of operator packets."""

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        for target in targets:
            for overload in overloads(target):
                LOWERINGS[overload] = fn
        return fn

    return register
