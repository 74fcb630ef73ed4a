"""Numbers among the inputs of a training graph: sizes, ints and floats that vary.

The autograd node knows tensors only, so a number is a tensor of no dimensions on its way through
it: it is saved for the backward like any other input. Compiled parts take and return plain
numbers.

    step(3, x)     ->  Step(tensor(3), x)  ->  forward(3, x)
    y.backward()   ->  Step's node         ->  backward([3, x, tangent])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fxgraph.aot.functional import FunctionalGraph, TrainingGraph
from fxgraph.expressions import evaluate
from fxgraph.node import Node
from fxgraph.symbolic_values import depends_on_data, is_symbol, is_symbolic


class NumberInputs:
    """Puts numbers into tensors, and takes them out."""

    def __init__(self, training: TrainingGraph) -> None:
        self.numbers = sorted(training.frame.symbols.values())
        vals = [
            n.meta["val"] for n in training.backward.graph_module.graph.find_nodes(op="placeholder")
        ]
        self.varies = any(map(_varies, vals))

    def plain(self, inputs: Sequence[Any]) -> list[Any]:
        """All inputs, with the numbers as such."""
        given = list(inputs)
        for i in self.numbers:
            given[i] = given[i].item()
        return given

    def forward(self, forward: Callable[..., Any], statics: Sequence[Any] | None) -> Any:
        """`forward` for the inputs that Step passes: those that have no entry in `statics`."""
        places = self._places(statics)
        if not places:
            return forward

        def run(*inputs: Any) -> Any:
            given = list(inputs)
            for place in places:
                given[place] = given[place].item()
            return forward(*given)

        return run

    def backward(self, compile_backward: Callable[..., Any]) -> Callable[..., Any]:
        """The compiler of backwards, adapted to backwards that get tensors for their numbers."""
        if not self.varies:
            return compile_backward

        def compiled(functional: FunctionalGraph) -> Any:
            nodes = functional.graph_module.graph.find_nodes(op="placeholder")
            return _Backward(nodes, compile_backward(functional))

        return compiled

    def around(self, placeholders: Sequence[Node], backward: Callable[[list[Any]], Any]) -> Any:
        """A backward that takes numbers for some placeholders, as one that takes tensors."""
        return _Backward(placeholders, backward) if self.varies else backward

    def step(self, step: Any, statics: Sequence[Any] | None) -> Any:
        """The step, adapted to calls with numbers in the places of numbers."""
        places = self._places(statics)
        return _Step(step, places) if places else step

    def _places(self, statics: Sequence[Any] | None) -> list[int]:
        """The numbers' positions among the inputs that each call passes."""
        bound = [i for i, tensor in enumerate(statics or ()) if tensor is not None]
        return [i - sum(j < i for j in bound) for i in self.numbers]


def _varies(value: Any) -> bool:
    """Whether this is a number, or a tensor whose sizes vary."""
    if not isinstance(value, torch.Tensor):
        return True
    return any(map(is_symbolic, (*value.shape, *value.stride())))


def sizes_of(vals: Sequence[Any], given: Sequence[Any]) -> dict[Any, Any]:
    """Symbol -> its value: from numbers, and from the tensors whose sizes depend on data."""
    values: dict[Any, Any] = {}
    for val, value in zip(vals, given, strict=True):
        if is_symbol(val):
            values[val.node._expr] = value
        sizes: Sequence[Any] = val.shape if isinstance(val, torch.Tensor) else ()
        for dim, size in enumerate(sizes):
            if depends_on_data(size) and size.node.expr.is_Symbol:
                values[size.node.expr] = value.shape[dim]
    return values


class _Step:
    def __init__(self, step: Callable[..., Any], places: Sequence[int]) -> None:
        self.step = step
        self.places = places

    def __call__(self, *inputs: Any) -> Any:
        given = list(inputs)
        for place in self.places:
            number = given[place]
            dtype = torch.int64 if isinstance(number, int) else torch.float64
            given[place] = torch.tensor(number, dtype=dtype, device="cpu")
        return self.step(*given)


class _Backward:
    """Takes the numbers out of the list it is called with, and gives each tangent the strides that
    the backward was compiled for.
    """

    def __init__(self, nodes: Sequence[Node], compiled: Callable[[list[Any]], Any]) -> None:
        self.compiled = compiled
        self.vals = [node.meta["val"] for node in nodes]
        self.numbers = [i for i, val in enumerate(self.vals) if is_symbol(val)]
        self.tangents = [
            i
            for i, (node, val) in enumerate(zip(nodes, self.vals))
            if node.name.startswith("tangent_") and not is_symbol(val)
        ]

    def __call__(self, given: list[Any]) -> Any:
        for i in self.numbers:
            given[i] = given[i].item()
        values = sizes_of(self.vals, given)
        for i in self.tangents:
            val = self.vals[i]
            stride = tuple(
                evaluate(n.node.expr, values) if is_symbolic(n) else n for n in val.stride()
            )
            if given[i].stride() != stride:
                tangent = given[i]
                made = torch.empty_strided(
                    tangent.shape, stride, dtype=val.dtype, device=tangent.device
                )
                given[i] = made.copy_(tangent)
        return self.compiled(given)
