"""Tensors on which the frame sets hooks, and views that autograd refuses once their memory is
written: conditions on the nodes that come after, and on the results.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.plans import BreakBefore, Retry
from dynamo.values.tensors.memory_overlap import is_fragile
from fxgraph.aot.history import memory_of
from fxgraph.args import leaves

if TYPE_CHECKING:
    from dynamo.plans import Plan
    from dynamo.values.tensors.tensor import TensorValue


@dataclass
class _Unwritten:
    values: Sequence[TensorValue]
    versions: list[int]
    refusal: Exception


@dataclass
class _Copy:
    """A copy that stands for a view of the original's memory."""

    original: int
    copy: int
    refusal: Exception


@dataclass
class _FragileView:
    """A view of several, or one made without grad mode. written: the break in front of the first
    write to its memory.
    """

    fake: torch.Tensor
    version: int
    written: BreakBefore | None = None


@dataclass
class WatchedTensors:
    # Tensors with hooks that the rewritten frame registers, and the history they are hooks of.
    hooked: list[tuple[TensorValue, Any]] = field(default_factory=list)
    _unwritten: list[_Unwritten] = field(default_factory=list)
    # Results of operations with several, and what is raised once another of these leaves the graph.
    _alone: list[tuple[TensorValue, Exception]] = field(default_factory=list)
    _views: list[_FragileView] = field(default_factory=list)
    _copies: list[_Copy] = field(default_factory=list)

    def watch_history(self, value: TensorValue) -> None:
        """Hooks of the tensor's present history are registered when the graph has run: nothing may
        change that history before.
        """
        self.hooked.append((value, value.history()))

    def keep_unwritten(self, values: Sequence[TensorValue], refusal: Exception) -> None:
        """Have `check` raise `refusal` once the memory of one of these tensors is written."""
        self._unwritten.append(_Unwritten(values, _versions(values), refusal))

    def copy_for_view(self, original: TensorValue, copy: TensorValue, refusal: Exception) -> None:
        """Have `refusal` raised once it can be seen that the copy has memory of its own: once one
        of the two is written, or both leave the graph.
        """
        self.keep_unwritten([original, copy], refusal)
        memories = memory_of(original.fake), memory_of(copy.fake)
        self._copies.append(_Copy(*memories, refusal))

    def check_copies(self, results: Iterable[Any], inputs: Iterable[Any]) -> None:
        """Raise where memory and its copy, or two copies, are both among results and inputs."""
        if not self._copies:
            return
        seen = {memory_of(fake) for fake in (*results, *inputs) if isinstance(fake, torch.Tensor)}
        first: dict[int, int] = {}  # copy -> the memory that it stands for
        for one in self._copies:
            first[one.copy] = first.get(one.original, one.original)
        shown = [first.get(memory, memory) for memory in seen]
        for one in self._copies:
            if one.copy in seen and shown.count(first[one.copy]) > 1:
                raise one.refusal

    def keep_alone(self, value: TensorValue, refusal: Exception) -> None:
        """Have `check_results` raise `refusal` once the value's operation has another result among
        those of the graph.
        """
        self._alone.append((value, refusal))

    def check_results(self, results: Iterable[TensorValue]) -> None:
        nodes = {value.node for value in results}
        for value, refusal in self._alone:
            others = (node for node in nodes if node is not value.node)
            if any(
                node.target is operator.getitem and node.args[0] is value.node.args[0]
                for node in others
            ):
                raise refusal

    def check_views(self, results: Iterable[TensorValue], plan: Plan) -> None:
        """Break in front of the write that makes autograd refuse a view among the results: made
        behind the graph, the view would look new.
        """
        written = {id(view.fake): view.written for view in self._views if view.written}
        for value in results if written else ():
            broken = written.get(id(value.fake))
            if broken is not None and _is_refused(value.fake):
                raise Retry(plan.breaking(broken))

    def note_views(self, example: Any) -> None:
        """Note the views among a node's results that no write must reach."""
        for fake in (example,) if isinstance(example, torch.Tensor) else leaves(example):
            if isinstance(fake, torch.Tensor) and is_fragile(fake):
                self._views.append(_FragileView(fake, fake._version))

    def note_write(self, broken: Callable[[breaks.Break], BreakBefore]) -> None:
        """Note the views whose memory a node has written; broken: reason -> the break before it."""
        for view in self._views:
            if view.written is None and view.fake._version != view.version:
                view.written = broken(breaks.UncapturedCall("a write to what views look at"))

    def check(self) -> None:
        """Raise where a node has written a watched tensor, or changed its history."""
        for kept in self._unwritten:
            if _versions(kept.values) != kept.versions:
                raise kept.refusal
        for value, history in self.hooked:
            if value.history() is not history:
                raise Unsupported(breaks.UncapturedCall("a write to a tensor that has a new hook"))


def _is_refused(fake: torch.Tensor) -> bool:
    try:
        fake.grad_fn  # noqa: B018
    except RuntimeError:
        return True
    return False


def _versions(values: Sequence[TensorValue]) -> list[int]:
    return [value.fake._version for value in values]
