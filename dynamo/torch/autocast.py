"""Regions of torch.autocast that the thread is inside of."""

from __future__ import annotations

from typing import Any

import torch


def autocast_nesting() -> int:
    """The nesting of the thread in autocast regions; their cache goes with the last one."""
    level = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    return level


class InsideAutocast:
    """Whether the thread is inside of a region (a guard)."""

    def __init__(self, inside: bool) -> None:
        self.inside = inside
        self.__name__ = f"{'inside' if inside else 'outside'} of torch.autocast"

    def __call__(self, _: Any) -> bool:
        return (autocast_nesting() > 0) is self.inside
