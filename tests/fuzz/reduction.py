"""The smallest part of a random program that still fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

P = TypeVar("P")


def reduced(program: P, parts: tuple[str, ...], fails: Callable[[P], bool]) -> P:
    """The program, a dataclass, without the items of its lists `parts` that it fails without."""
    changed = True
    while changed:
        changed = False
        for name in parts:
            for index in reversed(range(len(getattr(program, name)))):
                items = getattr(program, name)
                smaller = replace(program, **{name: items[:index] + items[index + 1 :]})  # type: ignore[type-var]
                if fails(smaller):
                    program, changed = smaller, True
    return program
