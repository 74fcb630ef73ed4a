"""The tensors of a section of a saved program."""

from __future__ import annotations

from typing import Any

import torch

ALIGNMENT = 64  # of tensors, in bytes


class Memory:
    """The tensors of one section: each memory once, however many tensors view it."""

    def __init__(self) -> None:
        self.chunks: list[memoryview | bytes] = []
        self.size = 0
        self._known: dict[int, tuple[int, int, torch.Tensor]] = {}

    def place(self, tensor: torch.Tensor) -> dict[str, Any]:
        """Where its memory lies in the section, and its first element in that."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._known:
            raw = torch.empty(0, dtype=torch.uint8, device=tensor.device)
            raw = raw.set_(storage, 0, (storage.nbytes(),), (1,)).cpu()
            self.chunks.append(bytes(-self.size % ALIGNMENT))
            self.size += -self.size % ALIGNMENT
            self._known[key] = self.size, storage.nbytes(), raw  # alive, so that the key stays its
            self.chunks.append(memoryview(raw.numpy()))
            self.size += storage.nbytes()
        start, size, _ = self._known[key]
        return {"start": start, "bytes": size, "offset": int(tensor.storage_offset())}
