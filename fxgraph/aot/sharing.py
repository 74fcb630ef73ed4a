"""Sharing of memory: tensors of one storage, and tensors of storages over the same addresses.

Two arrays of numpy that are views of one, or an array and torch.from_numpy of it, have storages of
their own over one memory. So have tensors of frombuffer and DLPack. Their storages are the ones
that cannot be resized, which saves a look at the addresses of all others.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from fxgraph.symbolic_values import is_symbolic


def memories(inputs: Sequence[Any]) -> list[Hashable]:
    """For each tensor that has elements a key of its memory, the same for tensors that share some;
    None for anything else.
    """
    keys: list[Any] = [None] * len(inputs)
    foreign = False
    for index, tensor in enumerate(inputs):
        if isinstance(tensor, torch.Tensor) and _has_elements(tensor):
            storage = tensor.untyped_storage()
            keys[index] = storage._cdata
            foreign = foreign or not (_is_fake(tensor) or storage.resizable())
    if foreign:
        _join(inputs, keys)
    return keys


def _has_elements(tensor: torch.Tensor) -> bool:
    """Whether the tensor has elements, or may have, where its sizes vary."""
    count = tensor.numel()
    return is_symbolic(count) or bool(count)


def _join(inputs: Sequence[Any], keys: list[Any]) -> None:
    """Give storages whose addresses meet one key."""
    spans = []
    for key, tensor in zip(keys, inputs):
        if key is not None and tensor.device.type == "cpu" and not _is_fake(tensor):
            storage = tensor.untyped_storage()
            spans.append((storage.data_ptr(), storage.data_ptr() + storage.nbytes(), key))
    owner: dict[int, int] = {}
    last, end = 0, -1
    for start, stop, key in sorted(spans):
        if start >= end:
            last = key
        owner.setdefault(key, last)
        end = max(end, stop)
    keys[:] = [owner.get(key, key) for key in keys]


def start_of(tensor: torch.Tensor) -> int:
    """Where the first element stands, comparable among tensors that share memory."""
    if _is_fake(tensor):
        return int(tensor.storage_offset()) * tensor.element_size()
    return tensor.data_ptr()


def overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether the ranges of two tensors that share memory meet, gaps included."""

    def span(t: torch.Tensor) -> tuple[int, int]:
        last = sum((n - 1) * s for n, s in zip(t.shape, t.stride()))
        return start_of(t), start_of(t) + (last + 1) * t.element_size()

    (a, b), (c, d) = span(one), span(other)
    return a < d and c < b


def repeats(tensor: torch.Tensor) -> bool:
    """Whether elements of a tensor may be in one place: expanded or unfolded dimensions."""
    steps = [(s, n) for n, s in zip(tensor.shape, tensor.stride()) if type(n) is not int or n > 1]
    return any(s == 0 for s, _ in steps) or _steps_meet(steps)


def _steps_meet(steps: list[tuple[Any, Any]]) -> bool:
    """Whether a step is no longer than what the smaller steps reach; not told of symbols."""
    if not all(type(number) is int for step in steps for number in step):
        return False
    reached = 0
    for step, n in sorted(steps):
        if step <= reached:
            return True
        reached += (n - 1) * step
    return False


def _is_fake(tensor: torch.Tensor) -> bool:
    """Fakes have no addresses."""
    return isinstance(tensor, FakeTensor) or tensor.device.type == "meta"


__all__ = ["memories", "overlap", "repeats", "start_of"]
