"""The settings of set_stance() for compilations, besides the policy of the frame hook."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Stance:
    """backend: all functions are compiled with this one; None: each with its own. eager_first: the
    first call of a function runs as it is, and shows sizes and numbers to the second.
    """

    backend: Callable[..., Any] | None = None
    eager_first: bool = False


_current = Stance()


def current() -> Stance:
    return _current


def set_current(stance: Stance) -> None:
    global _current
    _current = stance
