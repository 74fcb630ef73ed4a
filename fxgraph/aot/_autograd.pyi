"""Compiled training graphs with their autograd node (csrc/step.cpp, csrc/node.cpp, csrc/call.cpp),
and graphs in parts (csrc/parts.cpp, csrc/parts_call.cpp)."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

def without_grad(function: Callable[..., Any], /, *args: Any) -> Any:
    """function(*args) with gradients off, and on again whatever is raised, where a signal's handler
    may raise."""

def written_by(node: Any, /) -> Any:
    """The node of a write to a view, which stands inside a CopySlices node; None for others."""

class Step:
    """A compiled training graph, made by training.training_callable(). Takes the tensors that vary,
    returns a tuple."""

    def __init__(self, training: dict[str, Any]) -> None: ...
    def __call__(self, *inputs: torch.Tensor) -> tuple[Any, ...]: ...
    def __getattr__(self, name: str) -> Any: ...
    def __setattr__(self, name: str, value: Any) -> None: ...

class Tensors:
    """A sequence of tensors, or None, that are no objects in Python until they are asked for
    (csrc/tensors.cpp). A backward with the attribute `takes_tensors` is called with one in place of
    a list; a forward and a backward may return one."""

    def __init__(self, items: Sequence[torch.Tensor | None] = ()) -> None: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> Any: ...
    def __iter__(self) -> Iterator[Any]: ...
    def clear(self) -> None: ...

class Parts:
    """A graph in parts, made by split.split(). Takes the inputs that are not static."""

    compile_report: dict[str, Any]
    parts: list[Any]
    flows: dict[Any, Any]
    binds_static: bool

    def __init__(self, parts: dict[str, Any]) -> None: ...
    def __call__(self, *inputs: Any) -> Any: ...
