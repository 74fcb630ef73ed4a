"""The autograd node of compiled training graphs (csrc/step.cpp, csrc/node.cpp, csrc/call.cpp)."""

from typing import Any

import torch

class Step:
    """A compiled training graph, made by training.training_callable(). Takes the tensors that vary,
    returns a tuple."""

    def __init__(self, training: dict[str, Any]) -> None: ...
    def __call__(self, *inputs: torch.Tensor) -> tuple[Any, ...]: ...
    def __getattr__(self, name: str) -> Any: ...
    def __setattr__(self, name: str, value: Any) -> None: ...
