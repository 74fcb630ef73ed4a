"""Runs a TrainingGraph: one node of autograd around compiled forward and backward callables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fxgraph.aot.functional import FunctionalGraph, TrainingGraph
from fxgraph.aot.runtime import restore_outputs, same_sharing
from fxgraph.args import leaves
from fxgraph.interpreter import Interpreter
from fxgraph.node import Node

Compiled = Callable[..., Sequence[Any]]


class TrainingCallable:
    """What a backend returns for a graph that is differentiated.

    forward, backward: the compiled parts of `training`; each takes its graph's inputs and returns
        its tuple. They run without grad mode and autocast.

    A second derivative is taken through the torch-level graph, run again by autograd, where that
    gives the same values: not if the graph writes inputs or draws random numbers, which raises.
    """

    def __init__(
        self,
        training: TrainingGraph,
        forward: Compiled,
        backward: Compiled,
        compile_report: dict[str, Any] | None = None,
    ) -> None:
        self.training = training
        self.compile_report = compile_report
        self.forward = forward
        self.backward = backward
        frame = training.frame
        self.count = 1 + max(
            (spec.index for spec in frame.outputs if spec.kind in _VALUES), default=-1
        )
        self.plain = [i for i in range(self.count) if i not in training.tangents]
        self.input_count = len(_placeholders(training.forward))
        vals = [n.meta["val"] for n in _placeholders(training.backward)[len(training.saved) :]]
        self.like = [(tuple(v.shape), v.stride(), v.dtype, v.device) for v in vals]

    def __call__(self, *inputs: torch.Tensor) -> Any:
        frame = self.training.frame
        moved = frame.input_mutations and not same_sharing(frame, inputs)
        if moved or _saving_is_watched():
            return Interpreter(frame.source).run(*inputs)
        with torch.enable_grad():  # the graph's own grad mode is in what it traced
            values = _Step.apply(self, *inputs)
        for mutation in frame.input_mutations:
            if mutation.size is not None and mutation.stride is not None:
                target = inputs[mutation.index]
                offset = mutation.storage_offset + target.storage_offset()
                target.as_strided_(mutation.size, mutation.stride, offset)
        return restore_outputs(frame, values, inputs)

    # -- backward ---------------------------------------------------------------------------------
    def gradients(self, saved: Sequence[Any], given: Sequence[Any]) -> list[Any]:
        """By number of input; None where no gradient arrives."""
        training = self.training
        present = {k for k, i in enumerate(training.tangents) if given[i] is not None}
        tangents = [self._tangent(k, given[i]) for k, i in enumerate(training.tangents)]
        with torch._C._DisableAutocast():
            results = self.backward(*saved, *tangents)
        found: list[Any] = [None] * self.input_count
        for i, sources, gradient in zip(training.gradients, training.sources, results):
            if sources & present:
                found[i] = gradient
        return found

    def _tangent(self, k: int, tangent: torch.Tensor | None) -> torch.Tensor:
        """The tangent with the strides that the backward was compiled for."""
        size, stride, dtype, device = self.like[k]
        if tangent is None:
            return torch.zeros(size, dtype=dtype, device=device).as_strided(size, stride)
        if tangent.stride() == stride and type(tangent) is torch.Tensor:
            return tangent
        made = torch.empty_strided(size, stride, dtype=dtype, device=device)
        return made.copy_(tangent)

    def gradients_again(self, inputs: Sequence[torch.Tensor], given: Sequence[Any]) -> list[Any]:
        """The gradients as a function that autograd can differentiate."""
        training = self.training
        if training.frame.input_mutations or training.draws:
            raise RuntimeError(
                "a second derivative of a compiled function that writes its inputs or draws random "
                "numbers: compute it with dynamo.disable around the function"
            )
        values = self._values_again(inputs)
        wanted = [i for i in training.gradients if inputs[i].requires_grad]
        pairs = [(values[i], given[i]) for i in training.tangents if given[i] is not None]
        results = torch.autograd.grad(
            [value for value, _ in pairs],
            [inputs[i] for i in wanted],
            [tangent for _, tangent in pairs],
            create_graph=True,
            allow_unused=True,
        )
        found: list[Any] = [None] * len(inputs)
        for i, gradient in zip(wanted, results):
            found[i] = gradient
        return found

    def _values_again(self, inputs: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """The forward's values from the torch-level graph, which autograd watches."""
        frame = self.training.frame
        results = leaves(Interpreter(frame.source).run(*inputs))
        values: list[Any] = [None] * self.count
        for spec, result in zip(frame.outputs, results):
            if spec.kind in _VALUES and not spec.detached:
                whole = spec.kind == "fresh" or not result._is_view()
                values[spec.index] = result if whole else result._base
        return values


def _saving_is_watched() -> bool:
    """The user's hooks see what eager saves for backward; torch's own (checkpoint, save_on_cpu) do
    with anything.
    """
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
    return hooks is not None and not str(hooks[0].__module__).startswith("torch.")


_VALUES = ("fresh", "alias_of_intermediate")


def _placeholders(functional: FunctionalGraph) -> list[Node]:
    return [n for n in functional.graph_module.graph.nodes if n.op == "placeholder"]


class _Step(torch.autograd.Function):
    """One call of a compiled training graph."""

    @staticmethod
    def forward(ctx: Any, step: TrainingCallable, *inputs: torch.Tensor) -> Any:
        with torch._C._DisableAutocast():
            results = step.forward(*inputs)
        values, kept = results[: step.count], results[step.count :]
        places = {"input": inputs, "value": values, "kept": kept}
        ctx.save_for_backward(*[places[name][i] for name, i in step.training.saved])
        ctx.mark_non_differentiable(*[values[i] for i in step.plain])
        ctx.set_materialize_grads(False)
        ctx.step = step
        # For second derivatives only; not saved, since changing them is no error otherwise.
        ctx.inputs = inputs
        ctx.versions = [tensor._version for tensor in inputs]
        return tuple(values)

    @staticmethod
    def backward(ctx: Any, *given: Any) -> Any:
        step: TrainingCallable = ctx.step
        saved = ctx.saved_tensors
        if torch.is_grad_enabled():
            if [tensor._version for tensor in ctx.inputs] != ctx.versions:
                raise RuntimeError(
                    "one of the variables needed for gradient computation has been modified by an "
                    "inplace operation: an input of a compiled function, whose second derivative "
                    "is asked for"
                )
            return None, *step.gradients_again(ctx.inputs, given)
        return None, *step.gradients(saved, given)


def run_flat(functional: FunctionalGraph) -> Compiled:
    """A part of a training graph, run operator by operator."""
    return lambda *inputs: Interpreter(functional.graph_module).run(*inputs)
