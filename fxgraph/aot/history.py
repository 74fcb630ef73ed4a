"""The record of autograd while a graph was traced: reachability, and the memory that a backward
frees.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from fxgraph.aot._autograd import written_by
from fxgraph.args import leaves


class History:
    """Walks the nodes behind `roots`, tensors that require grad, once.

    frees: for each root, the roots that share with it a node which keeps tensors: after a backward
        without retain_graph from the one, the other has none any more.
    kept: memory of tensors that autograd saves (a storage's id) -> the roots that need it, as bits.
    themselves: the ids of tensors that autograd saves, which may be no views of others.
    held: the same as `kept`, of tensors that the contexts of autograd functions have as attributes:
        their backward reads them whatever was written.
    """

    def __init__(self, roots: Sequence[torch.Tensor]) -> None:
        self._alive: list[Any] = []  # the nodes, so that their ids stay their own
        masks: dict[int, int] = {}  # node -> the roots that it is behind, as bits
        for k, root in enumerate(roots):
            start: Any = root.grad_fn
            self._alive.append(start)
            masks[id(start)] = masks.get(id(start), 0) | 1 << k
        self._of_leaf: dict[int, int] = {}
        self.kept: dict[int, int] = {}
        self.held: dict[int, int] = {}
        self.themselves: set[int] = set()
        shared: set[int] = set()
        for node in reversed(list(self._after_their_inputs(roots))):
            mask = masks.get(id(node), 0)
            for following, _ in node.next_functions:
                if following is not None:
                    masks[id(following)] = masks.get(id(following), 0) | mask
            if (leaf := getattr(node, "variable", None)) is not None:
                self._of_leaf[id(leaf)] = mask
            else:
                write = written_by(node)
                kept = _saved(node if write is None else write)
                if kept is None or kept or write is not None:
                    shared.add(mask)
                for tensor in _attributes(node if write is None else write):
                    memory = memory_of(tensor)
                    self.held[memory] = self.held.get(memory, 0) | mask
                for tensor in kept or ():
                    memory = memory_of(tensor)
                    self.kept[memory] = self.kept.get(memory, 0) | mask
                    self.themselves.add(id(tensor))
        dead = [0] * len(roots)
        for mask in shared:
            for k in bits(mask):
                dead[k] |= mask
        self.frees = [list(bits(mask)) for mask in dead]

    def _after_their_inputs(self, roots: Sequence[torch.Tensor]) -> Iterator[Any]:
        """Each node once, after all nodes to which it leads."""
        seen: set[int] = set()
        todo: list[tuple[Any, bool]] = [(root.grad_fn, False) for root in roots]
        while todo:
            node, done = todo.pop()
            if done:
                yield node
            elif id(node) not in seen:
                seen.add(id(node))
                self._alive.append(node)
                todo.append((node, True))
                todo += [(f, False) for f, _ in node.next_functions if f is not None]

    def sources(self, leaf: torch.Tensor) -> frozenset[int]:
        """The roots whose gradient reaches `leaf`."""
        return frozenset(bits(self._of_leaf.get(id(leaf), 0)))

    def keepers(self, tensor: torch.Tensor) -> frozenset[int]:
        """The roots for which autograd saves memory of `tensor`."""
        return frozenset(bits(self.kept.get(memory_of(tensor), 0)))

    def holders(self, tensor: torch.Tensor) -> frozenset[int]:
        """The roots whose backward reads memory of `tensor` that autograd does not save."""
        memory = memory_of(tensor)
        return frozenset(bits(self.held.get(memory, 0))) if memory not in self.kept else frozenset()

    def keeps_views(self, leaf: torch.Tensor) -> bool:
        """Whether autograd saves views of `leaf` alone, which `leaf.data = x` does not reach."""
        return bool(self.keepers(leaf)) and id(leaf) not in self.themselves


def bits(mask: int) -> Iterator[int]:
    return (k for k in range(mask.bit_length()) if mask >> k & 1)


def memory_of(tensor: torch.Tensor) -> int:
    """The id of a tensor's storage; -1 for all sparse tensors, whose parts have storages."""
    if not torch._C._has_storage(tensor):
        return -1
    return tensor.untyped_storage()._cdata


def share_version(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether a write to one tensor counts as a write to the other, as it does for its views."""
    if one is other or one.is_inference() or other.is_inference():
        return True
    before, versions = other._version, (one._version,)
    torch._C._increment_version([one])
    shared = other._version != before
    torch._C._autograd._unsafe_set_version_counter((one,), versions)
    return shared


@functools.cache
def _saved_names(kind: Any) -> list[str]:
    return [name for name in dir(kind) if name.startswith("_saved_") or name == "saved_tensors"]


def _attributes(node: Any) -> Iterator[torch.Tensor]:
    if isinstance(node, torch.autograd.function.BackwardCFunction):
        for leaf in leaves(list(vars(node).values())):
            if isinstance(leaf, torch.Tensor):
                yield leaf


def _saved(node: Any) -> list[torch.Tensor] | None:
    """The tensors that the node saves; None if one was overwritten since."""
    found: list[torch.Tensor] = []
    kind: Any = type(node)
    for name in _saved_names(kind):
        try:
            value = getattr(node, name)
        except RuntimeError:
            return None
        items = value if isinstance(value, (tuple, list)) else [value]
        found += [item for item in items if isinstance(item, torch.Tensor)]
    return found
