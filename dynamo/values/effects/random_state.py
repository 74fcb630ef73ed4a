"""Random numbers that the program draws while a frame is captured: compilation leaves torch's
generators as they were, but for changes that the program makes for good.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import torch


class _States(threading.local):
    def __init__(self) -> None:
        self.states: list[torch.Tensor] = []  # of the program, for each compilation under way


_states = _States()


@contextlib.contextmanager
def preserved_draws() -> Iterator[None]:
    """Around a compilation."""
    _states.states.append(torch.get_rng_state())
    try:
        yield
    finally:
        torch.set_rng_state(_states.states.pop())


@contextlib.contextmanager
def program_draws() -> Iterator[None]:
    """Draw random numbers in the block from the program's state."""
    torch.set_rng_state(_states.states[-1])
    try:
        yield
    finally:
        _states.states[-1] = torch.get_rng_state()
