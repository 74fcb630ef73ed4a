"""Operations that see where an input starts in its memory, which no guard on tensors compares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from fxgraph.aot.history import memory_of

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

# Operation -> the position of `storage_offset`, which counts from the start of the memory.
_PLACED = {"as_strided": 3, "as_strided_": 3, "as_strided_copy": 3, "as_strided_scatter": 4}


def guard_placed(
    tx: Interpreter, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """Guard the start of inputs whose memory the operation `name` addresses by itself."""
    position = _PLACED.get(name.partition(".")[0])
    if position is None or not args or not isinstance(args[0], torch.Tensor):
        return
    if (*args[position : position + 1], kwargs.get("storage_offset"))[0] is not None:
        guard_starts(tx, args[0])


def guard_starts(tx: Interpreter, fake: torch.Tensor) -> None:
    """Guard the storage offset of the graph's inputs that share the memory of `fake`."""
    memory = memory_of(fake)
    for item in tx.output.inputs:
        other = item.node.meta["example_value"]
        if isinstance(other, torch.Tensor) and memory_of(other) == memory != -1:
            tx.guard(item.source, "predicate", _StartsAt(int(other.storage_offset())))


class _StartsAt:
    """Whether a tensor starts at this element of its memory."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.__name__ = f"its storage offset is {offset}"

    def __call__(self, tensor: torch.Tensor) -> bool:
        return tensor.storage_offset() == self.offset
