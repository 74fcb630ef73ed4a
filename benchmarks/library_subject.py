"""A subject of benchmarks/libraries.py: makes a module or a function, and its arguments for a batch
size.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Arguments = Callable[[int], tuple[Any, ...]]


@dataclass(frozen=True)
class Subject:
    make: Callable[[], Callable[..., Any]]
    arguments: Arguments
    trains: bool = True  # False: a function, or a module without parameters that get gradients


Subjects = dict[str, Subject]


def images(side: int, channels: int = 3) -> Arguments:
    return lambda batch: (torch.randn(batch, channels, side, side),)


def tokens(length: int, kinds: int = 100) -> Arguments:
    return lambda batch: (torch.randint(kinds, (batch, length)),)


def sequence(length: int, width: int) -> Arguments:
    return lambda batch: (torch.randn(batch, length, width),)


def made(package: str, rows: dict[str, tuple[dict[str, Any], Arguments]]) -> Subjects:
    """Subjects of classes: name in the package, arguments of the class, arguments of a call. What
    stands behind a space in a name tells rows of one class apart.
    """

    def row(name: str, settings: dict[str, Any], arguments: Arguments) -> Subject:
        path, _, last = f"{package}.{name.split()[0]}".rpartition(".")
        return Subject(lambda: getattr(importlib.import_module(path), last)(**settings), arguments)

    importlib.import_module(package)
    return {name: row(name, *row_of) for name, row_of in rows.items()}
