"""Inputs that a graph writes under autograd's eyes: the graph becomes a part of their history.

before                          after
    x.relu_()                       x.relu_()
    return (x * 2,)                 return ((x * 2,), (x,))

The rest of the program may differentiate such an input, watch its gradient, and go back through the
history that it had before. So the graph that is traced returns it as well, and a gradient arrives
there; while tracing, its old history is one node, in front of a leaf that stands for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from fxgraph.aot.cuts import LAST_WRITE
from fxgraph.aot.functional import Unfunctionalizable
from fxgraph.aot.functionalize import Inputs
from fxgraph.graph import Graph
from fxgraph.graph_module import GraphModule
from fxgraph.node import Node
from fxgraph.symbolic_values import is_symbol

Traced = TypeVar("Traced")


class Rebased(Exception):
    """The graph gives inputs a history: their numbers, and the nodes that write them last. Without
    any: it writes an input that has one.
    """

    def __init__(self, writers: dict[int, Node] | None = None) -> None:
        super().__init__(writers)
        self.writers = writers or {}


@dataclass(frozen=True)
class Subject:
    """A graph to be traced. rebased: the inputs that get a history, which the graph returns at the
    end. histories: whether those are traced that inputs have; else they are leaves.
    """

    gm: GraphModule
    rebased: tuple[int, ...] = ()
    histories: bool = False

    def written(self) -> set[Node]:
        """The nodes of `rebased`."""
        inputs = self.gm.graph.find_nodes(op="placeholder")
        return {inputs[i] for i in self.rebased}


def following_writes(gm: GraphModule, trace: Callable[[Subject], Traced]) -> Traced:
    """The trace of the graph; again where it raises Rebased, with the inputs of that."""
    subject = Subject(gm)
    while True:
        try:
            return trace(subject)
        except Rebased as found:
            if subject.rebased:
                raise Unfunctionalizable("inputs are written otherwise in each trace") from None
            if any(node.target is torch.autograd.grad for node in gm.graph.nodes):
                text = "a written input has a history in a graph that differentiates"
                raise Unfunctionalizable(text) from None
            source = _returning(gm, found.writers) if found.writers else gm
            subject = Subject(source, tuple(found.writers), histories=True)


def _returning(gm: GraphModule, writers: Mapping[int, Node]) -> GraphModule:
    graph, copies = Graph(), dict[Node, Node]()
    result = graph.graph_copy(gm.graph, copies)
    placeholders = graph.find_nodes(op="placeholder")
    for i, writer in writers.items():
        placeholders[i].meta[LAST_WRITE] = copies[writer]
    inputs = tuple(placeholders[i] for i in writers)
    graph.output((result, inputs)).meta = dict(gm.graph.output_node().meta)
    return gm.with_graph(graph)


class _History(torch.autograd.Function):
    """Gives a tensor a history that ends at `leaf`."""

    @staticmethod
    def forward(ctx: Any, leaf: torch.Tensor, tensors: list[torch.Tensor]) -> torch.Tensor:
        return tensors[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0], None


def _leaves_of(fakes: Sequence[Any], real: Sequence[torch.Tensor], histories: bool) -> list[Any]:
    """For each input of a trace, the leaf that its gradient arrives at: the input, or one behind
    it, if it has a history and `histories` are traced.
    """
    leaves = list(fakes)
    for i, (fake, given) in enumerate(zip(fakes, real)):
        if is_symbol(fake):
            continue
        if histories and given.grad_fn is not None:
            with torch.enable_grad():
                leaves[i] = fake.detach().requires_grad_()
                _History.apply(leaves[i], [fake])
        else:
            fake.requires_grad_(given.requires_grad)
    return leaves


class Watched:
    """The inputs of a trace as autograd sees them, before and after."""

    def __init__(self, subject: Subject, inputs: Inputs) -> None:
        self.subject, self.inputs = subject, inputs
        self.leaves = _leaves_of(inputs.fakes, inputs.real, subject.histories)
        self._histories = list(map(_history, inputs.fakes))
        self._writers: dict[int, Node] = {}
        self._versions: dict[int, int] = {}  # of their memory then

    def note(self, node: Node) -> None:
        """Note the inputs that the node, which ran just now, has given a history."""
        written = self.inputs.tracer.written
        for i in written:
            history = _history(self.inputs.fakes[i]) if isinstance(i, int) else None
            if history is not None and history is not self._histories[i]:
                self._histories[i], self._writers[i] = history, node
                self._versions[i] = self._version(i)
        written.clear()

    def whole(self) -> list[int]:
        """The rebased inputs that may be no views: they are written again, without a new history.
        Autograd makes that of a view anew then, and hooks do not see what read the one before.
        """
        return [i for i in self.subject.rebased if self._version(i) != self._versions[i]]

    def _version(self, i: int) -> int:
        return self.inputs.tracer.view_of(self.inputs.fakes[i]).alias.version

    def refused(self) -> None:
        """Raise Rebased where autograd may have refused to write a leaf that stands for an input
        with a history.
        """
        if not self.subject.histories and any(map(_history, self.inputs.real)):
            raise Rebased

    def check(self, written: Sequence[int]) -> None:
        """Raise Rebased for written inputs with another history than before, unless these are
        those of the subject.
        """
        inputs = self.inputs
        found = {i: self._writers[i] for i in written if i in self._writers}
        for i in written:
            if _history(inputs.fakes[i]) is not self._histories[i]:
                raise Unfunctionalizable(f"input {i} is detached in place")
            if i in found and (inputs.same or _is_part(inputs.real[i])):
                raise Unfunctionalizable(f"input {i}, one of several views, gets a history")
        if tuple(found) != self.subject.rebased:
            raise Rebased(found)


def _is_part(tensor: Any) -> bool:
    """Whether autograd may refuse to write a view, by more than what guards tell."""
    if not tensor._is_view():
        return False
    kind = torch._C._autograd._get_creation_meta(tensor)
    return not tensor.requires_grad or kind != torch._C._autograd.CreationMeta.DEFAULT


def _history(tensor: Any) -> Any:
    return tensor.grad_fn if isinstance(tensor, torch.Tensor) else None
