"""Random numbers that the program draws while a frame is captured: compilation leaves torch's
generators and Python's as they were, but for changes that the program makes for good.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator
from typing import Any

import torch


class _States(threading.local):
    def __init__(self) -> None:
        self.states: list[_State] = []  # of the program, for each compilation under way


_states = _States()


class _State:
    """Of the generators of Python, of the CPU and of all CUDA devices, as they are now. (Fake
    collectives of torch number their work by Python's.)

    Those of CUDA are written only if they moved: while a stream is captured they cannot be.
    """

    def __init__(self) -> None:
        self.python = random.getstate()
        self.cpu = torch.get_rng_state()
        started = torch.cuda.is_initialized()
        self.cuda = [(g, _place(g)) for g in torch.cuda.default_generators] if started else []

    def restore(self) -> None:
        random.setstate(self.python)
        torch.set_rng_state(self.cpu)
        for generator, place in self.cuda:
            if _place(generator) != place:
                seed, offset = place
                generator.manual_seed(seed).set_offset(offset)


def _place(generator: Any) -> tuple[int, int]:
    return generator.initial_seed(), generator.get_offset()


@contextlib.contextmanager
def preserved_draws() -> Iterator[None]:
    """Around a compilation."""
    _states.states.append(_State())
    try:
        yield
    finally:
        _states.states.pop().restore()


@contextlib.contextmanager
def program_draws() -> Iterator[None]:
    """Draw random numbers in the block from the program's state."""
    _states.states[-1].restore()
    try:
        yield
    finally:
        _states.states[-1] = _State()
