"""The sizes, numbers, parameters and functions that a code object was compiled for so far.

The choice of what becomes a symbol (shapes.py) reads this history: a size that was another in an
earlier compilation varies, and a parameter in whose place others keep coming may be any.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from dynamo.bytecode.cache import CodeMap
from dynamo.guards.kinds import KnownTensor
from dynamo.guards.sources import LocalSource, Source

if TYPE_CHECKING:
    from types import CodeType


@dataclass
class SeenTensor:
    """Sizes and strides of one source in earlier compilations; None: it has varied."""

    sizes: list[int | None]
    strides: list[int | None]
    order: tuple[int, ...]  # of the strides
    many: list[int]  # the last size of more than 1 in each dimension, or MANY
    why: dict[int, str] = field(default_factory=dict)

    @staticmethod
    def of(tensor: torch.Tensor) -> SeenTensor:
        many = [size if size > 1 else MANY for size in tensor.shape]
        return SeenTensor(list(tensor.shape), list(tensor.stride()), strides_order(tensor), many)

    def of_other_rank(self, tensor: torch.Tensor) -> SeenTensor:
        """The record of a source that had another number of dimensions: all sizes vary."""
        made = SeenTensor.of(tensor)
        for dim, size in enumerate(tensor.shape):
            if size > 1:
                made.sizes[dim] = None
                made.why[dim] = f"had {len(self.sizes)} dimensions, then {tensor.dim()}"
        return made

    def update(self, tensor: torch.Tensor) -> None:
        """Record a further compilation, for this tensor."""
        same_order = strides_order(tensor) == self.order
        for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride())):
            before = self.sizes[dim]
            if size > 1:
                self.many[dim] = size
            if before is not None and before != size:
                self.sizes[dim] = None
                self.why[dim] = f"was {before}, then {size}"
            if same_order and self.strides[dim] != stride:
                self.strides[dim] = None
        if not same_order:
            self.strides, self.order = list(tensor.stride()), strides_order(tensor)


MANY = 11  # any number that is no usual size


def strides_order(tensor: torch.Tensor) -> tuple[int, ...]:
    strides = tensor.stride()
    return tuple(sorted(range(tensor.dim()), key=lambda dim: (strides[dim], -dim)))


@dataclass
class SeenFrame:
    """A code object's history, by source name."""

    tensors: dict[str, SeenTensor] = field(default_factory=dict)
    numbers: dict[str, Any] = field(default_factory=dict)  # the value, or VARIES
    why: dict[str, str] = field(default_factory=dict)
    # Of parameters that are arguments: the one, or VARIES.
    parameters: dict[str, Any] = field(default_factory=dict)
    # Of functions that are globals, and of other objects that code is compiled for: a weak
    # reference to the one, or VARIES.
    objects: dict[str, Any] = field(default_factory=dict)
    members: dict[str, list[KnownTensor]] = field(default_factory=dict)  # of modules
    # The slot of the module that this compilation is for, and its number among those that share the
    # context.
    module: tuple[int, int] | None = None
    # The latest graphs (framestate/repeated_graphs.py), of all that share the history's graphs.
    graphs: list[Any] = field(default_factory=list)
    compiled: int = 0
    ended: int = 0  # of those compiled, with objects that they are compiled for
    resets: int = 0  # before
    general: bool = False  # the most general form was compiled
    wrong_guesses: int = 0  # of what was likely (interp/checks.py)
    checkpoints_moved: bool = False  # what they read (torch/checkpoint_reads.py)
    asks_small: bool = False  # whether a size is 0 or 1
    # captures_data and numbers of the last plan that led to code (dynamo/plans.py).
    data: tuple[bool | None, int] = (None, 0)

    def key_of(self, source: Source) -> str:
        """The key of a number. Attributes of each module that was compiled by itself have their
        own: of two models with other numbers none varies.
        """
        root = source.root
        if self.module and isinstance(root, LocalSource) and root.index == self.module[0]:
            return f"{source.name} of module {self.module[1]}"
        return source.name

    def succeeded(self, graphs: list[Any]) -> SeenFrame:
        """The history after nothing compiled is left. What is compiled for a parameter or function
        goes with it; that another came is remembered.
        """
        kept = SeenFrame(resets=History.resets, graphs=graphs)
        kept.parameters, kept.objects = self.parameters, self.objects
        if self.resets == History.resets:
            kept.members, kept.compiled = self.members, self.compiled
        return kept


class _Varies:
    """In place of a number that was seen with several values."""


VARIES = _Varies()


class LatestGraphs:
    """The latest graphs of code objects, until dynamo.reset()."""

    def __init__(self) -> None:
        self._graphs: CodeMap[list[Any]] = CodeMap()
        self._resets = History.resets

    def of(self, code: CodeType) -> list[Any]:
        if self._resets != History.resets:
            self._graphs, self._resets = CodeMap(), History.resets
        return self._graphs.computed(code, list)


class History:
    """The sizes and numbers that one CompileContext has seen."""

    resets = 0  # calls of dynamo.reset()

    def __init__(self) -> None:
        self._frames: CodeMap[SeenFrame] = CodeMap()
        self.graphs = LatestGraphs()

    @property
    def is_empty(self) -> bool:
        return not len(self._frames)

    def frame(self, code: CodeType, left: int) -> SeenFrame:
        """The history of a code object; `left`: how much is compiled for it."""
        seen = self._frames.get(code)
        if seen is None:
            graphs = self.graphs.of(code)
            seen = self._frames.set(code, SeenFrame(resets=self.resets, graphs=graphs))
        elif not left:
            seen = self._frames.set(code, seen.succeeded(self.graphs.of(code)))
        seen.ended = max(seen.compiled - left, 0)
        return seen
