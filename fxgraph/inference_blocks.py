"""Blocks of torch.inference_mode within a graph: a node enters one, another node leaves it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch


class _Entered(threading.local):
    def __init__(self) -> None:
        self.guards: list[Any] = []


_entered = _Entered()


def enter_inference(mode: bool) -> None:
    guard = torch._C._InferenceMode(mode)
    guard.__enter__()
    _entered.guards.append(guard)


def leave_inference() -> None:
    _entered.guards.pop().__exit__(None, None, None)


INFERENCE_SWITCHES = frozenset({enter_inference, leave_inference})


@contextlib.contextmanager
def inference_restored() -> Iterator[None]:
    """Leave at the end, also after an exception, the blocks that were entered inside."""
    depth = len(_entered.guards)
    try:
        yield
    finally:
        while len(_entered.guards) > depth:
            leave_inference()
