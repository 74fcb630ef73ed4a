"""Check of stored graphs: metadata of inputs and values against computed shapes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from fxgraph.aot import FunctionalGraph, MutatedInput, OutputSpec, TrainingGraph
from fxgraph.aot.view_steps import lead_to
from fxgraph.args import leaves
from fxgraph.node import Node
from fxgraph.stored.errors import StoredError
from fxgraph.stored.tensors import tensor_to_data
from fxgraph.symbolic_values import is_symbolic

_COPY = torch.ops.aten.copy_.default
_OUTPUT_KINDS = (
    *("fresh", "input", "alias_of_input", "same_as_output", "alias_of_output"),
    *("alias_of_intermediate", "constant"),
)
_CREATIONS = range(-1, 5)  # of autograd's CreationMeta


def check_functional(functional: FunctionalGraph) -> None:
    """Raise StoredError for a frame that is not the graph's."""
    _Frame(functional).check()


def check_window(
    base: torch.Tensor, size: Any, stride: Any, storage_offset: Any = None, room: Any = None
) -> None:
    """Raise StoredError for a view that reaches out of the first `room` elements of the memory of
    its base, by default all that it has.
    """
    start = base.storage_offset() if storage_offset is None else storage_offset
    if len(size) != len(stride):
        raise StoredError("a view whose size and stride differ in length")
    last = start
    for extent, step in zip(size, stride):
        if not is_symbolic(extent) and extent == 0:
            return
        last = last + (extent - 1) * step
    if room is None:
        room = base.untyped_storage().nbytes() // base.element_size()
    if not (bool(start >= 0) and bool(last < room)):
        raise StoredError("a view that reaches out of the memory of its base")


def index_in(number: Any, length: int) -> int:
    if type(number) is not int or not 0 <= number < length:
        raise StoredError(f"no number {str(number)[:40]} among {length}")
    return number


class _Frame:
    """Checks the data of a graph's frame about its inputs and values against the graph's."""

    def __init__(self, functional: FunctionalGraph) -> None:
        self.functional = functional
        graph = functional.graph_module.graph
        self.inputs = [node.meta["val"] for node in graph.find_nodes(op="placeholder")]
        results = graph.output_node().args[0]
        self.values = [r.meta["val"] if isinstance(r, Node) else r for r in results]

    def check(self) -> None:
        functional = self.functional
        count = len(functional.outputs)
        for number, spec in enumerate(functional.outputs):
            if spec.kind not in _OUTPUT_KINDS or spec.creation not in _CREATIONS:
                raise StoredError(f"no kind of output {str(spec.kind)[:40]!r}")
            self._output(number, spec)
        for leaf in leaves(functional.structure):
            index_in(leaf, count)
        for mutation in functional.input_mutations:
            self._tensor(mutation.index)
            if mutation.size is not None:
                self._window(self._tensor(mutation.index), mutation)
            index_in(mutation.bumps, 1 << 30)
            moved = mutation.size is not None and mutation.stride is not None
            if mutation.metadata is not moved:
                raise StoredError("an input that is moved nowhere")
        written = {mutation.index for mutation in functional.input_mutations if mutation.data}
        if self._written() - written:
            raise StoredError("an input is written, and nothing says so")
        for one, other in functional.same_inputs:
            self._tensor(one), self._tensor(other)
        for number in functional.data.values():
            index_in(number, len(self.values))
        for number, (_, inputs) in functional.spent.items():
            index_in(number, count)
            for index in inputs:
                index_in(index, len(self.inputs))

    def _written(self) -> set[int]:
        """Numbers of the inputs that the graph writes."""
        graph = self.functional.graph_module.graph
        places = {node: i for i, node in enumerate(graph.find_nodes(op="placeholder"))}
        targets = [node.args[0] for node in graph.nodes if node.target is _COPY]
        return {places[node] for node in targets if node in places}

    def _tensor(self, index: Any) -> torch.Tensor:
        found = self.inputs[index_in(index, len(self.inputs))]
        if not isinstance(found, torch.Tensor):
            raise StoredError(f"input {index} is no tensor")
        return found

    def _output(self, number: int, spec: OutputSpec) -> None:
        base: Any = None
        if spec.kind in ("fresh", "alias_of_intermediate"):
            base = self.values[index_in(spec.index, len(self.values))]
        elif spec.kind in ("input", "alias_of_input"):
            base = self._tensor(spec.index)
        elif spec.kind == "same_as_output":
            index_in(spec.index, number)
        elif spec.kind == "alias_of_output":
            other = self.functional.outputs[index_in(spec.index, len(self.functional.outputs))]
            if other.kind not in ("fresh", "input"):
                raise StoredError("a view of an output that is a view")
            if other.kind == "input":
                base = self._tensor(other.index)
            else:
                base = self.values[index_in(other.index, len(self.values))]
        elif isinstance(spec.constant, torch.Tensor):
            base = spec.constant
        if spec.size is not None:
            if not isinstance(base, torch.Tensor):
                raise StoredError("a view of what is no tensor")
            self._window(base, spec)
            if spec.steps is not None and not _leads_to(spec, base):
                raise StoredError("steps that lead to another view")
        elif spec.kind.startswith("alias"):
            raise StoredError("a view without a size")

    def _window(self, base: torch.Tensor, view: OutputSpec | MutatedInput) -> None:
        room: Any = 1
        for extent, step in zip(base.shape, base.stride()):
            room = room + (extent - 1) * step
        check_window(base, view.size, view.stride, view.storage_offset, room)


def _leads_to(spec: OutputSpec, base: torch.Tensor) -> bool:
    steps: Any = spec.steps
    try:
        return lead_to(steps, base, spec)
    except Exception:  # of whatever operator, by whatever numbers
        return False


def check_training(training: TrainingGraph) -> None:
    """Raise StoredError for a backward that is not the forward's."""
    _Training(training).check()


class _Training:
    """The numbers by which autograd joins forward and backward."""

    def __init__(self, training: TrainingGraph) -> None:
        self.training = training
        self.frame = _Frame(training.frame)
        self.values = training.frame.value_count
        self.places: dict[str, list[Any]] = {
            "input": self.frame.inputs,
            "memory": self.frame.inputs,
            "held": self.frame.inputs,
            "value": self.frame.values[: self.values],
            "kept": self.frame.values[self.values :],
        }
        graph = training.backward.graph_module.graph
        self.inputs = [node.meta["val"] for node in graph.find_nodes(op="placeholder")]
        self.results = graph.output_node().args[0]
        if any(node.target is _COPY for node in graph.nodes):
            raise StoredError("a backward that writes")

    def check(self) -> None:
        training, outputs = self.training, len(self.training.frame.outputs)
        saved, tangents = training.saved, training.tangents
        lengths = (
            (self.inputs, len(saved) + len(tangents)),
            (training.gradients, len(self.results)),
            (training.sources, len(training.gradients)),
            (training.frees, len(tangents)),
            (training.versions, self.values),
        )
        if any(len(found) != wanted for found, wanted in lengths):
            raise StoredError("a backward that takes or gives something else")
        for (kind, number), val in zip(saved, self.inputs, strict=False):
            _same_shape(self._at(kind, number), val)
        for number, val in zip(tangents, self.inputs[len(saved) :], strict=True):
            value = self._followed(number)
            if not isinstance(value, torch.Tensor) or not isinstance(val, torch.Tensor):
                raise StoredError("a gradient of what is no tensor")
            data, own = tensor_to_data(value), tensor_to_data(val)
            if any(data[key] != own[key] for key in ("dtype", "size", "device")):
                raise StoredError("a gradient of another shape than its value")
        limits = {"input": len(self.frame.inputs), "output": outputs}
        for kind, number in training.gradients:
            index_in(number, limits[kind])
        for numbers in (*training.sources, *training.frees):
            _all_in(numbers, len(tangents))
        for segment in training.segments:
            _all_in(segment.tangents, len(tangents))
            _all_in(segment.gradients, len(training.gradients))
            for kind, number, users in segment.watched:
                self._at(kind, number)
                _all_in(users, len(tangents))
            for kind, number, users in segment.without:
                index_in(number, limits[kind])
                _all_in(users, len(tangents))
        written = {mutation.index for mutation in training.frame.input_mutations}
        if not written.issuperset([*training.rebased, *training.whole]):
            raise StoredError("an input with a history that is not written")
        _all_in(training.cuts, outputs)
        _all_in(training.versions, 1 << 30)
        _all_in(training.spent, outputs)
        for _, inputs in training.spent.values():
            _all_in(inputs, len(self.frame.inputs))

    def _followed(self, number: Any) -> Any:
        """A value, or a rebased input, that has a gradient."""
        rebased = self.training.rebased
        place = index_in(number, self.values + len(rebased)) - self.values
        return self._at("value", number) if place < 0 else self._at("input", rebased[place])

    def _at(self, kind: Any, number: Any) -> Any:
        return self.places[kind][index_in(number, len(self.places[kind]))]


def _all_in(numbers: Iterable[Any], length: int) -> None:
    for number in numbers:
        index_in(number, length)


def _same_shape(one: Any, other: Any) -> None:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        if tensor_to_data(one) != tensor_to_data(other):
            raise StoredError("what is saved for the backward has another shape there")
        return
    numbers = [n.node.expr if is_symbolic(n) else n for n in (one, other)]
    if isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor) or numbers[0] != numbers[1]:
        raise StoredError("what is saved for the backward is another number there")
