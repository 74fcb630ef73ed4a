"""Gradients that are a tangent, or views of one: handed on, as autograd's own backwards do.

Nothing is computed for them. Whether AccumulateGrad keeps such a tensor for a leaf or copies it is
decided as in eager, by who else holds it: so a gradient that is the tangent is the very object, and
one view that is for several inputs is one tensor.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import torch

from fxgraph.aot.functional import is_view, root_of
from fxgraph.aot.sharing import overlap
from fxgraph.aot.view_steps import Step, steps_of
from fxgraph.aot.views import ViewCall
from fxgraph.graph import Graph
from fxgraph.node import Node
from fxgraph.symbolic_values import is_symbolic, layout_numbers

aten = torch.ops.aten


@dataclass
class HandedOn:
    """views: (tangent, steps from there to the view). gradients: (gradient, number of its view).
    Tangents and gradients are positions in the lists of the TrainingGraph.
    """

    views: list[tuple[int, list[Step]]] = field(default_factory=list)
    gradients: list[tuple[int, int]] = field(default_factory=list)

    def of(self, present: Collection[int]) -> HandedOn:
        """The part for the tangents that are present."""
        kept = [n for n, (tangent, _) in enumerate(self.views) if tangent in present]
        gradients = [(k, kept.index(n)) for k, n in self.gradients if n in kept]
        return HandedOn([self.views[n] for n in kept], gradients)


def hand_on(found: dict[int, Node], tangents: Sequence[Node]) -> HandedOn:
    """Take out of `found` (gradient -> its node) those to hand on."""
    handed = HandedOn()
    numbers: dict[Node, int] = {}
    places = {node: k for k, node in enumerate(tangents)}
    for gradient, node in list(found.items()):
        if node not in numbers:
            root = root_of(node)
            steps = steps_of(_calls(node, root), copying=True) if root in places else None
            if steps is None:
                continue
            numbers[node] = len(handed.views)
            handed.views.append((places[root], steps))
        handed.gradients.append((gradient, numbers[node]))
        del found[gradient]
    return handed


def _calls(node: Node, root: Node) -> list[ViewCall]:
    calls = []
    while node is not root:
        calls.append(ViewCall(node.target, node.args[1:], node.kwargs))  # type: ignore[arg-type]
        node = node.args[0]  # type: ignore[assignment]
    return calls[::-1]


def own_memory(
    graph: Graph, gradients: Sequence[Node], tangents: Collection[Node]
) -> tuple[Node, ...]:
    """Gradients that are memory of the caller's, or of another gradient, are copied; but one view
    of a tangent may be handed on, to whoever it is for, and views of one value that do not meet, as
    the parts of the gradient of a `cat`, stay views.
    """
    taken: dict[Node, list[Node]] = {}
    results = []
    for node in gradients:
        root = root_of(node)
        others = taken.get(root, [])
        if root in tangents:
            apart = all(other is node for other in others)
        else:
            apart = root.op not in ("placeholder", "get_attr") and _apart(node, others)
        if not apart:
            copy = graph.call_function(aten.clone.default, (node,))
            copy.meta.update(node.meta)
            node = root = copy
        taken.setdefault(root, []).append(node)
        results.append(node)
    return tuple(results)


def _apart(node: Node, others: Sequence[Node]) -> bool:
    """Whether a view of a value has no element within the range of the others."""
    values = [one.meta["val"] for one in (node, *others)]
    if any(is_symbolic(n) for one in values for n in layout_numbers(one)):
        return not others
    return not any(overlap(values[0], other) for other in values[1:])


def shares_memory(gradients: Sequence[Node]) -> bool:
    """Whether a gradient is a view, memory of the caller's, or there twice."""
    if len(set(gradients)) < len(gradients):
        return True
    return any(node.op in ("placeholder", "get_attr") or is_view(node.target) for node in gradients)
