"""The C++ plan executor (csrc/plan.cpp, csrc/library.cpp, csrc/replay.cpp)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from fxgraph.aot._autograd import Tensors

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
    def keep(self, *inputs: torch.Tensor) -> tuple[tuple[Any, ...], torch.Tensor | None]: ...
    def bound(self) -> bytes: ...
    def __getattr__(self, name: str) -> Any: ...
    def __setattr__(self, name: str, value: Any) -> None: ...

class Replay:
    """What a replay of a device graph gives its caller. spec: groups, results, written."""

    def __init__(self, spec: dict[str, Any]) -> None: ...
    def __call__(self, arguments: Sequence[Any] | Tensors, bare: bool = False, /) -> Any: ...
    def alive(self) -> list[int]: ...

class Library:
    """A shared library of kernels, closed when nothing refers to it. OSError if it cannot load."""

    def __init__(self, path: str) -> None: ...
    def address(self, symbol: str) -> int: ...
    def call(self, symbol: str, pointers: tuple[int, ...], begin: int, end: int) -> None: ...

class DeviceError(RuntimeError):
    """A device, or its driver, refused; the text says what to do."""

    passed_on: bool

def note_replay() -> None: ...
def collected(phase: str, info: dict[str, int]) -> None: ...

class DeviceKernel:
    """A kernel in a device's memory, made by Driver.load()."""

    registers: int
    spills: int
    device: int
    aligned: bool
    def launch(self, programs: int, arguments: tuple[int, ...]) -> None: ...

class Driver:
    """The CUDA driver; DeviceError where there is none that works."""

    def __init__(self, path: str, current_stream: Callable[[int], int]) -> None: ...
    def count(self) -> int: ...
    def capability(self, device: int) -> tuple[int, int]: ...
    def load(
        self,
        image: bytes,
        name: str,
        device: int,
        threads: int,
        shared: int,
        hidden: int,
        aligned: bool,
    ) -> DeviceKernel: ...

set_arena_limit: Callable[[int], None]
moved: Callable[[Sequence[Any] | Tensors, Mapping[int, int], Mapping[int, Any]], list[int]]
has_foreign_memory: Callable[[torch.Tensor], bool]
memory_of: Callable[[torch.Tensor], tuple[int, int, int]]
idle_arena_bytes: Callable[[], int]
