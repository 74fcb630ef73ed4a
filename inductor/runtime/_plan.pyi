"""The C++ plan executor (csrc/plan.cpp, csrc/library.cpp)."""

from collections.abc import Callable
from typing import Any

import torch

class Plan:
    """A linked plan, made by link.link(). Takes the tensors that vary, returns a tuple."""

    binds_static: bool
    peak_bytes: int
    arena_bytes: int
    kernels: int
    compile_report: dict[str, Any]
    def __init__(self, program: dict[str, Any]) -> None: ...
    def __call__(self, *inputs: torch.Tensor) -> tuple[Any, ...]: ...
    def take(self, arguments: list[torch.Tensor]) -> tuple[Any, ...]: ...
    def __getattr__(self, name: str) -> Any: ...
    def __setattr__(self, name: str, value: Any) -> None: ...

class Library:
    """A shared library of kernels, closed when nothing refers to it. OSError if it cannot load."""

    def __init__(self, path: str) -> None: ...
    def address(self, symbol: str) -> int: ...
    def call(self, symbol: str, pointers: tuple[int, ...], begin: int, end: int) -> None: ...

set_arena_limit: Callable[[int], None]
idle_arena_bytes: Callable[[], int]
