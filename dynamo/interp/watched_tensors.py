"""Tensors on which the frame sets hooks: conditions on the nodes that come after."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dynamo import breaks
from dynamo.errors import Unsupported

if TYPE_CHECKING:
    from dynamo.values.tensors.tensor import TensorValue


@dataclass
class _Unwritten:
    values: Sequence[TensorValue]
    versions: list[int]
    refusal: Exception


@dataclass
class WatchedTensors:
    # Tensors with hooks that the rewritten frame registers, and the history they are hooks of.
    hooked: list[tuple[TensorValue, Any]] = field(default_factory=list)
    _unwritten: list[_Unwritten] = field(default_factory=list)
    # Results of operations with several, and what is raised once another of these leaves the graph.
    _alone: list[tuple[TensorValue, Exception]] = field(default_factory=list)

    def watch_history(self, value: TensorValue) -> None:
        """Hooks of the tensor's present history are registered when the graph has run: nothing may
        change that history before.
        """
        self.hooked.append((value, value.history()))

    def keep_unwritten(self, values: Sequence[TensorValue], refusal: Exception) -> None:
        """Have `check` raise `refusal` once the memory of one of these tensors is written."""
        self._unwritten.append(_Unwritten(values, _versions(values), refusal))

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

    def check(self) -> None:
        """Raise where a node has written a watched tensor, or changed its history."""
        for kept in self._unwritten:
            if _versions(kept.values) != kept.versions:
                raise kept.refusal
        for value, history in self.hooked:
            if value.history() is not history:
                raise Unsupported(breaks.UncapturedCall("a write to a tensor that has a new hook"))


def _versions(values: Sequence[TensorValue]) -> list[int]:
    return [value.fake._version for value in values]
