"""The part of a frame that is captured inside of torch.inference_mode (see torch/inference.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dynamo import breaks
from dynamo.errors import Unsupported

if TYPE_CHECKING:
    from dynamo.values.base import Value

# Functions that change torch's state, and compute nothing.
_STATE = frozenset(["_set_grad_enabled", "set_autocast_enabled", "set_autocast_dtype"])


class InferenceBlocks:
    """The blocks of one frame: the managers that are entered now, and whether any was."""

    def __init__(self) -> None:
        self.open: list[Value] = []
        self.used = False

    def check(self, op: str, target: Any) -> None:
        """An operation outside of the blocks, in a graph that has been inside, is refused."""
        if self.used and not self.open and is_operation(op, target):
            raise Unsupported(breaks.InferenceMode())


def is_operation(op: str, target: Any) -> bool:
    return op.startswith("call_") and getattr(target, "__name__", "") not in _STATE
