"""A segment's backward for some of its tangents, operator by operator: the way around a fault while
a graph of its own is made or compiled (see partial_backward.py).

Values that depend on absent tangents alone are not computed. An operator that takes both kinds gets
zeros in the place of such a value.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch

from fxgraph.aot.functional import TrainingGraph
from fxgraph.aot.number_inputs import NumberInputs, sizes_of
from fxgraph.aot.partial_backward import BackwardPart, reached, sole_part
from fxgraph.args import map_aggregate
from fxgraph.expressions import evaluate
from fxgraph.interpreter import Interpreter
from fxgraph.node import Node
from fxgraph.symbolic_values import is_symbol, is_symbolic

aten = torch.ops.aten


def interpreted_part(
    training: TrainingGraph, whole: BackwardPart, present: Collection[int]
) -> tuple[BackwardPart, Callable[[list[Any]], Sequence[Any]]]:
    """The part of `whole`, the backward for all tangents of a segment, that the tangents `present`
    (positions) need, and the function that runs it. The part's graph is that of `whole`.
    """
    run = _Present(training, whole, present)
    saved = [k for k, wanted in zip(whole.saved, run.wanted) if wanted]
    tangents = [k for k, wanted in zip(whole.tangents, run.wanted[len(whole.saved) :]) if wanted]
    handed = whole.handed_on.of(present)
    part = BackwardPart(whole.graph, saved, tangents, run.gradients, handed)
    return part, NumberInputs(training).around(run.placeholders, run)


class _Present:
    def __init__(
        self, training: TrainingGraph, whole: BackwardPart, present: Collection[int]
    ) -> None:
        self.module = whole.graph.graph_module
        nodes = list(self.module.graph.nodes)
        placeholders = [node for node in nodes if node.op == "placeholder"]
        tangents = placeholders[len(whole.saved) :]
        live = [node for k, node in zip(whole.tangents, tangents) if k in present]
        self.zero = reached(nodes, tangents) - reached(nodes, live)
        chosen = [bool(training.sources[k].intersection(present)) for k in whole.gradients]
        self.gradients = [k for k, wanted in zip(whole.gradients, chosen) if wanted]
        self.results = [
            node for node, wanted in zip(nodes[-1].args[0], chosen, strict=True) if wanted
        ]
        needed = self._needed()
        self.skipped = dict.fromkeys(n for n in nodes if n not in needed and n.op != "output")
        # Numbers tell the sizes of zeros.
        self.wanted = [node in needed or is_symbol(node.meta["val"]) for node in placeholders]
        self.placeholders = [n for n, wanted in zip(placeholders, self.wanted) if wanted]

    def _needed(self) -> set[Node]:
        """The nodes that the results are computed from, zeros left out."""
        found: set[Node] = set()
        todo = list(self.results)
        while todo:
            node = todo.pop()
            if node not in found and node not in self.zero:
                found.add(node)
                todo += node.all_input_nodes
        return found

    def __call__(self, given: list[Any]) -> Sequence[Any]:
        known = dict(zip(self.placeholders, given, strict=True))
        tensors = [x for x in given if isinstance(x, torch.Tensor)]
        sizes = sizes_of([node.meta["val"] for node in self.placeholders], given)
        given.clear()
        found = _Run(self, sizes).run(initial_env={**self.skipped, **known})
        return _apart(found, tensors)


class _Run(Interpreter):
    """A run, for values of the symbols."""

    def __init__(self, plan: _Present, sizes: dict[Any, int]) -> None:
        super().__init__(plan.module, garbage_collect_values=False)
        self.plan = plan
        self.sizes = sizes

    def run_node(self, n: Node) -> Any:
        if n.op == "output":
            return [self._value(node) for node in self.plan.results]
        part = sole_part(n, self.plan.zero)
        if part is not None:
            return self.env[part]
        args, kwargs = map_aggregate((n.args, n.kwargs), self._value)
        return getattr(self, n.op)(n.target, args, kwargs)

    def _value(self, leaf: Any) -> Any:
        if not isinstance(leaf, Node):
            return leaf
        return self._zeros(leaf.meta["val"]) if leaf in self.plan.zero else self.env[leaf]

    def _zeros(self, val: torch.Tensor) -> torch.Tensor:
        size, stride = (tuple(map(self._number, part)) for part in (val.shape, val.stride()))
        return torch.empty_strided(size, stride, dtype=val.dtype, device=val.device).zero_()

    def _number(self, part: Any) -> int:
        return evaluate(part.node.expr, self.sizes) if is_symbolic(part) else part


def _apart(gradients: Sequence[Any], given: Sequence[torch.Tensor]) -> list[Any]:
    """Gradients that are memory of nothing else."""
    taken = {tensor.untyped_storage()._cdata for tensor in given}
    results = []
    for gradient in gradients:
        memory = gradient.untyped_storage()._cdata
        results.append(gradient.clone() if memory in taken else gradient)
        taken.add(memory)
    return results
