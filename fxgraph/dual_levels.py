"""The level of forward-mode autograd within a graph: a node enters it, another node leaves it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

_entered: list[int] = []  # of the process, which has one level at most


def enter_level() -> None:
    _entered.append(torch._C._enter_dual_level())


def leave_level() -> None:
    torch._C._exit_dual_level(level=_entered.pop())


def make_dual(primal: torch.Tensor, tangent: torch.Tensor) -> torch.Tensor:
    return torch._make_dual(primal, tangent, level=_entered[-1])


def unpack_dual(dual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
    primal, tangent = torch._unpack_dual(dual, level=_entered[-1])
    return primal, tangent


LEVEL_SWITCHES = frozenset({enter_level, leave_level})


@contextlib.contextmanager
def level_restored() -> Iterator[None]:
    """Leave at the end, also after an exception, the level that was entered inside."""
    depth = len(_entered)
    try:
        yield
    finally:
        while len(_entered) > depth:
            leave_level()
