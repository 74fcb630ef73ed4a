"""Runs a functional graph operator by operator and restores the effects that functionalising
removed.

The reference for every backend: values, strides, aliases, identity and version counters equal those
of the torch-level graph run in eager mode.
"""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Sequence
from typing import Any

import torch

from fxgraph.aot import _autograd
from fxgraph.aot.functional import FunctionalGraph, MutatedInput, OutputSpec
from fxgraph.aot.sharing import memories, overlap, start_of
from fxgraph.args import map_aggregate
from fxgraph.expressions import evaluate
from fxgraph.interpreter import Interpreter
from fxgraph.symbolic_values import depends_on_data, is_symbolic

_DIFFERENTIATE = (torch.autograd.grad, torch.autograd.backward, "backward")


def run_functional(functional: FunctionalGraph, inputs: Sequence[torch.Tensor]) -> Any:
    """Run on real tensors, with the results and the writes of the torch-level graph.

    If inputs are written and share memory otherwise than when traced, the torch-level graph is run.
    """
    if functional.input_mutations and not same_sharing(functional, inputs):
        source = functional.source
        differentiates = any(node.target in _DIFFERENTIATE for node in source.graph.nodes)
        with torch.enable_grad() if differentiates else contextlib.nullcontext():
            return Interpreter(source).run(*inputs)
    # The casts of autocast are in the graph already.
    with torch._C._DisableAutocast():
        values = _autograd.without_grad(_written, functional, inputs)
    return restore_outputs(functional, values, inputs)


def _written(functional: FunctionalGraph, inputs: Sequence[Any]) -> Sequence[Any]:
    """The graph's values; written inputs have the layouts that eager's operators would leave."""
    values = run_writing(functional, inputs)
    for mutation in functional.input_mutations:
        if mutation.size is not None and mutation.stride is not None:
            target = inputs[mutation.index]
            size, stride, offset = numbers_of(mutation, functional, inputs, values)
            give_layout(target, mutation, size, stride, offset)
    return values


def give_layout(
    target: torch.Tensor, mutation: MutatedInput, size: Any, stride: Any, offset: Any
) -> None:
    """The layout of an input that the graph changes; a version counter that only that moves is
    moved as often as in eager.
    """
    bumps = 0 if mutation.data else mutation.bumps
    version = 0 if target.is_inference() else target._version + bumps
    target.as_strided_(size, stride, offset + target.storage_offset())
    if bumps and not target.is_inference():
        torch._C._autograd._unsafe_set_version_counter((target,), (version,))


def run_writing(functional: FunctionalGraph, inputs: Sequence[Any]) -> Sequence[Any]:
    """The graph's values; a written input has the version that eager's operators would leave."""
    written = [(inputs[m.index], m.bumps) for m in functional.input_mutations if m.data]
    written = [(tensor, bumps) for tensor, bumps in written if not tensor.is_inference()]
    versions = [tensor._version + bumps for tensor, bumps in written]
    values = Interpreter(functional.graph_module).run(*inputs)
    if written:
        tensors = tuple(tensor for tensor, _ in written)
        torch._C._autograd._unsafe_set_version_counter(tensors, tuple(versions))
    return values


def numbers_of(
    view: OutputSpec | MutatedInput,
    functional: FunctionalGraph,
    inputs: Sequence[Any],
    values: Sequence[Any],
) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Size, stride and offset of a view in this call, where symbols have the values in `inputs`, or
    those of data among the graph's `values`.
    """
    assert view.size is not None and view.stride is not None
    symbols, data = functional.symbols, functional.data
    if not symbols and not data:
        return view.size, view.stride, view.storage_offset
    known = {symbol: inputs[index] for symbol, index in symbols.items()}
    known |= {symbol: values[index] for symbol, index in data.items()}

    def number(part: Any) -> int:
        if not is_symbolic(part):
            return part
        return evaluate(part.node._expr if depends_on_data(part) else part.node.expr, known)

    return (
        tuple(map(number, view.size)),
        tuple(map(number, view.stride)),
        number(view.storage_offset),
    )


def restore_outputs(
    functional: FunctionalGraph, values: Sequence[Any], inputs: Sequence[torch.Tensor]
) -> Any:
    """The torch-level graph's result, from the values that the functional graph returns."""
    results: list[Any] = [None] * len(functional.outputs)
    # Views of outputs come last, since the output they look at may stand behind them.
    for late in (False, True):
        for index, spec in enumerate(functional.outputs):
            if (spec.kind in ("alias_of_output", "same_as_output")) is late:
                results[index] = _restore(spec, functional, values, inputs, results)
    return map_aggregate(functional.structure, results.__getitem__)


def _restore(
    spec: OutputSpec,
    functional: FunctionalGraph,
    values: Sequence[Any],
    inputs: Sequence[torch.Tensor],
    results: list[Any],
) -> Any:
    if spec.kind == "constant" and spec.size is None:
        return spec.constant
    places: dict[str, Any] = {
        "fresh": values,
        "input": inputs,
        "alias_of_input": inputs,
        "same_as_output": results,
        "alias_of_output": results,
        "alias_of_intermediate": values,
        "constant": {spec.index: spec.constant},
    }
    source = places[spec.kind][spec.index]
    if spec.size is None:
        return source
    if spec.detached and source.requires_grad:
        source = source.detach()
    size, stride, offset = numbers_of(spec, functional, inputs, values)
    view = source.as_strided(size, stride, source.storage_offset() + offset)
    if spec.own_version:
        return view.data
    return view.detach() if spec.creation < 0 else view


def same_sharing(functional: FunctionalGraph, inputs: Sequence[torch.Tensor]) -> bool:
    """Whether written inputs share memory with others exactly as when the graph was traced."""
    known = memories(inputs)
    for first, second in functional.same_inputs:
        if known[first] != known[second]:
            return False
        if known[first] is not None and start_of(inputs[first]) != start_of(inputs[second]):
            return False
    same = {second: first for first, second in functional.same_inputs}
    owners: dict[Hashable, int] = {}
    for index, memory in enumerate(known):
        if memory is not None and index not in same and owners.setdefault(memory, index) != index:
            return not _written_overlap(functional, inputs, known)
    return True


def _written_overlap(
    functional: FunctionalGraph, inputs: Sequence[torch.Tensor], known: Sequence[Hashable]
) -> bool:
    """Whether a written input meets another one than those that are the same."""
    same = {second: first for first, second in functional.same_inputs}
    for i in {same.get(m.index, m.index) for m in functional.input_mutations if m.data}:
        for j, other in enumerate(inputs):
            shared = same.get(j, j) != i and known[i] is not None and known[i] == known[j]
            if shared and overlap(inputs[i], other):
                return True
    return False
