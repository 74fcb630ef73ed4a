"""torch's modes that a graph finds and may change: for graphs that run once more, later."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

# Each gives the modes as they are: (setter, arguments that set it). Capture adds its own.
READERS: list[Callable[[], list[tuple[Any, ...]]]] = []


def read_modes() -> list[tuple[Any, ...]]:
    """The modes as they are, each as (setter, arguments that set it)."""
    return [mode for read in READERS for mode in read()]


@contextlib.contextmanager
def under(modes: Sequence[tuple[Any, ...]]) -> Iterator[None]:
    """Run a block under these modes, and undo what it changes of them."""
    before = read_modes()
    try:
        _set(modes)
        yield
    finally:
        _set(before)
        if modes != before:  # casts under autocast belong to its region
            torch.clear_autocast_cache()


def _set(modes: Sequence[tuple[Any, ...]]) -> None:
    for setter, *args in modes:
        setter(*args)
