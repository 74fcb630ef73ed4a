"""The torch function modes that a frame has entered (dynamo/torch/function_modes.py)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dynamo.values.base import Value


@dataclass
class EnteredModes:
    asked: list[Value] = field(default_factory=list)  # innermost last, without those that answer
    entered: int = 0
    disabled: int = 0  # depth of DisableTorchFunction
    hidden: list[list[Value]] = field(default_factory=list)  # those asked around each of these
    devices: int = 0  # regions of `with torch.device(...)` around the outermost
