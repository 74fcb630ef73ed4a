"""Runs a TrainingGraph: one node of autograd around compiled forward and backward callables.

The node is in C++ (csrc/): it saves what the backward needs as eager's nodes do, so that
saved-tensor hooks, version counters, retain_graph and their errors are autograd's own. A backward is
compiled for each set of outputs that gradients arrive at: outputs that nobody differentiated cost
nothing, and add nothing (zero times an infinite derivative would be nan).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fxgraph.aot.absent import BackwardPart, backward_part
from fxgraph.aot.functional import FunctionalGraph, OutputSpec, TrainingGraph
from fxgraph.args import leaves, map_aggregate
from fxgraph.extensions import require
from fxgraph.interpreter import Interpreter
from fxgraph.node import Node

require("fxgraph.aot._autograd")

from fxgraph.aot import _autograd  # noqa: E402

Compiled = Callable[..., Sequence[Any]]
CompileBackward = Callable[[FunctionalGraph], Callable[[list[Any]], Sequence[Any]]]

_SAVED = ("input", "value", "kept")
_OUTPUTS = (
    "fresh",
    "input",
    "alias_of_input",
    "same_as_output",
    "alias_of_output",
    "alias_of_intermediate",
    "constant",
)
_VALUES = ("fresh", "alias_of_intermediate")


def training_callable(
    training: TrainingGraph,
    forward: Compiled,
    compile_backward: CompileBackward,
    statics: Sequence[torch.Tensor | None] | None = None,
) -> Callable[..., Any]:
    """What a backend returns for a graph that is differentiated; attributes may be set on it.

    forward: the compiled training.forward: takes the inputs that have no entry in `statics`
        (by input; parameters and buffers bound once), runs without grad mode and autocast.
    compile_backward: makes the callable for a backward graph, of one list that it may empty. Called
        now if there is one differentiable value, else when a backward arrives.

    A second derivative is taken through the torch-level graph, run again by autograd, where that
    gives the same values: not if the graph writes inputs or draws random numbers, which raises.
    """
    backwards = _Backwards(training, compile_backward)
    if len(training.tangents) == 1:
        backwards.part_for((0,))
    step = _autograd.Step(_spec(training, forward, backwards, statics))
    frame = training.frame
    if frame.structure == tuple(range(len(frame.outputs))):
        return step
    return _Nested(step, frame)


class _Nested:
    """Puts the flat results into the nest that the torch-level graph returns."""

    def __init__(self, step: Callable[..., Any], frame: FunctionalGraph) -> None:
        self.step = step
        self.structure = frame.structure

    def __call__(self, *inputs: Any) -> Any:
        return map_aggregate(self.structure, self.step(*inputs).__getitem__)


def _spec(
    training: TrainingGraph,
    forward: Compiled,
    backwards: _Backwards,
    statics: Sequence[torch.Tensor | None] | None,
) -> dict[str, Any]:
    """The dict that csrc/step.cpp reads."""
    frame = training.frame
    tangents = _placeholders(training.backward)[len(training.saved) :]
    vals = [node.meta["val"] for node in tangents]
    return {
        "name": f"framegraph::{frame.source.meta.get('name', 'graph')}",
        "forward": forward,
        "eager": lambda *inputs: tuple(leaves(Interpreter(frame.source).run(*inputs))),
        "derive": backwards.derive,
        "specialize": backwards.specialize,
        "statics": statics or [None] * len(_placeholders(training.forward)),
        "values": _value_count(frame),
        "saved": [(_SAVED.index(name), number) for name, number in training.saved],
        "differentiable": training.tangents,
        "tangents": [(tuple(v.shape), v.stride(), v.dtype, v.device) for v in vals],
        "gradients": training.gradients,
        "frees": training.frees,
        "outputs": [_output(spec) for spec in frame.outputs],
        "written": [m.index for m in frame.input_mutations],
        "same": frame.same_inputs,
    }


def _output(spec: OutputSpec) -> tuple[Any, ...]:
    return (
        _OUTPUTS.index(spec.kind),
        max(spec.index, 0),
        spec.size,
        spec.stride,
        spec.storage_offset,
        spec.detached,
        spec.creation,
        spec.constant,
    )


def _value_count(frame: FunctionalGraph) -> int:
    return 1 + max((spec.index for spec in frame.outputs if spec.kind in _VALUES), default=-1)


def _placeholders(functional: FunctionalGraph) -> list[Node]:
    return [n for n in functional.graph_module.graph.nodes if n.op == "placeholder"]


class _Backwards:
    """The ways from tangents to gradients."""

    def __init__(self, training: TrainingGraph, compile_backward: CompileBackward) -> None:
        self.training = training
        self.compile_backward = compile_backward
        self.made: dict[tuple[int, ...], tuple[Any, BackwardPart]] = {}

    def part_for(self, present: tuple[int, ...]) -> tuple[Any, BackwardPart]:
        if present not in self.made:
            part = backward_part(self.training, present)
            self.made[present] = self.compile_backward(part.graph), part
        return self.made[present]

    def specialize(self, present: list[int]) -> tuple[Any, ...]:
        """The backward for the tangents that arrive, as csrc/step.cpp wants it."""
        compiled, part = self.part_for(tuple(present))
        return compiled, part.saved, part.tangents, part.gradients

    def derive(self, inputs: Sequence[torch.Tensor], given: Sequence[Any]) -> list[Any]:
        """The gradients as operations that autograd records if grad mode is on."""
        training = self.training
        if training.frame.input_mutations or training.draws:
            raise RuntimeError(
                "a second derivative of a compiled function that writes its inputs or draws random "
                "numbers: compute it with dynamo.disable around the function"
            )
        again = torch.is_grad_enabled()
        with torch.enable_grad():
            values = self._values_again(inputs)
        wanted = [k for k, i in enumerate(training.gradients) if inputs[i].requires_grad]
        pairs = [
            (values[i], tangent)
            for i, tangent in zip(training.tangents, given)
            if tangent is not None
        ]
        results = torch.autograd.grad(
            [value for value, _ in pairs],
            [inputs[training.gradients[k]] for k in wanted],
            [tangent for _, tangent in pairs],
            create_graph=again,
            allow_unused=True,
        )
        found: list[Any] = [None] * len(training.gradients)
        for k, gradient in zip(wanted, results):
            found[k] = gradient
        return found

    def _values_again(self, inputs: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """The forward's values from the torch-level graph, which autograd watches."""
        frame = self.training.frame
        results = leaves(Interpreter(frame.source).run(*inputs))
        values: list[Any] = [None] * _value_count(frame)
        for spec, result in zip(frame.outputs, results):
            if spec.kind in _VALUES and not spec.detached:
                whole = spec.kind == "fresh" or not result._is_view()
                values[spec.index] = result if whole else result._base
        return values


def run_flat(functional: FunctionalGraph) -> Compiled:
    """A part of a training graph, run operator by operator."""
    return lambda *inputs: Interpreter(functional.graph_module).run(*inputs)


def run_backward(functional: FunctionalGraph) -> Callable[[list[Any]], Sequence[Any]]:
    """A backward, run operator by operator."""
    return lambda given: Interpreter(functional.graph_module).run(*given)
