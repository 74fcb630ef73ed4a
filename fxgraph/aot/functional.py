"""The result of functionalisation: a graph without mutation and aliasing, and the way back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch.nn.modules._functions import BackwardHookFunction

from fxgraph.graph import Graph
from fxgraph.graph_module import GraphModule, fetch_attribute
from fxgraph.higher_order import is_checkpoint
from fxgraph.node import Node
from fxgraph.symbolic_values import is_symbol
from fxgraph.tensor_state import set_data_


class Unfunctionalizable(Exception):
    """The graph cannot become a functional aten graph; the text says why. Run it as it is."""


class UndifferentiableHere(Exception):
    """The program's own backward raises, and so must the compiled one, once a gradient is asked
    for.
    """


@dataclass
class OutputSpec:
    """A tensor or value that the torch-level graph returns.

    kind                     index                          the caller's result
    fresh                    into the graph's outputs       that value, in its own memory
    input                    of a graph input               the very object passed in
    alias_of_input           of a graph input               a view of it
    same_as_output           of an earlier output           the same object as that output
    alias_of_output          of another output (a fresh)    a view of it
    alias_of_intermediate    into the graph's outputs       a view of that value
    constant                 -                              `constant` (a view if size is given)

    size, stride: of the view. storage_offset: of the view, in elements, relative to the start of
    the tensor that it is a view of.
    """

    kind: str
    index: int = -1
    size: tuple[int, ...] | None = None
    stride: tuple[int, ...] | None = None
    storage_offset: Any = 0
    constant: Any = None
    detached: bool = False  # does not require grad, whatever it is a view of
    own_version: bool = False  # of `.data`: writes do not count as those of what it is a view of
    creation: int = 0  # a view's CreationMeta for autograd; -1: autograd knows it as no view
    steps: list[tuple[int, tuple[int, ...]]] | None = None  # to the view, where known (view_steps)


@dataclass
class MutatedInput:
    """Graph input `index` is written (`data`), or its sizes and strides are changed in place
    (`metadata`).

    With `metadata`, size/stride/storage_offset are the new ones, relative as in OutputSpec.
    bumps: how often that moves the version counter in eager: x.mul_(2).add_(1) twice,
        x.data.mul_(2) never.
    """

    index: int
    data: bool
    metadata: bool
    size: tuple[int, ...] | None = None
    stride: tuple[int, ...] | None = None
    storage_offset: int = 0
    bumps: int = 1


@dataclass
class FunctionalGraph:
    """A functional aten graph and its frame.

    graph_module: placeholders as in the source graph; returns one flat tuple of the values that
        `outputs` refer to; writes to inputs are the trailing `aten.copy_.default(placeholder,
        value)`.
    structure: the source graph's return value, with numbers of `outputs` as leaves.
    same_inputs: pairs (i, j) of inputs that were the same memory; holds for later calls by
        assumption, and matters only if some input is written.
    source: the torch-level graph, for when the assumptions about memory do not hold.
    spent: number of an output that the graph itself differentiated -> autograd's message if it is
        differentiated once more, and the numbers of the inputs that it depends on.
    data: symbol in sizes of returned views -> the number of the graph's value that it is.
    """

    graph_module: GraphModule
    outputs: list[OutputSpec]
    input_mutations: list[MutatedInput]
    structure: Any
    source: GraphModule
    same_inputs: list[tuple[int, int]] = field(default_factory=list)
    stages: dict[str, float] = field(default_factory=dict)
    spent: dict[int, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    data: dict[Any, int] = field(default_factory=dict)

    def with_graph(self, graph: Graph) -> FunctionalGraph:
        """The same with another graph of the same meaning."""
        return replace(self, graph_module=self.graph_module.with_graph(graph))

    @cached_property
    def value_count(self) -> int:
        """How many values the graph returns; what is kept for a backward stands behind them."""
        kinds = ("fresh", "alias_of_intermediate")
        indices = (spec.index for spec in self.outputs if spec.kind in kinds)
        return 1 + max((*indices, *self.data.values()), default=-1)

    @cached_property
    def symbols(self) -> dict[Any, int]:
        """Symbol (of fxgraph.symbols) -> the number of the input that is its value."""
        nodes = (node for node in self.graph_module.graph.nodes if node.op == "placeholder")
        vals: list[Any] = [node.meta.get("val") for node in nodes]
        return {val.node._expr: i for i, val in enumerate(vals) if is_symbol(val)}


@dataclass
class Segment:
    """The part of a training graph behind one node of autograd's, by positions in the lists of the
    TrainingGraph. watched: (kind, number, tangents) of inputs and values that eager saves for these
    tangents, and the backward does not: to write one is an error all the same. without: (kind,
    number, tangents), as in TrainingGraph.gradients, of those behind these tangents that get no
    gradient: autograd goes on to them all the same, and calls their hooks with None.
    """

    tangents: list[int]
    gradients: list[int]
    watched: list[tuple[str, int, list[int]]] = field(default_factory=list)
    without: list[tuple[str, int, list[int]]] = field(default_factory=list)


@dataclass
class TrainingGraph:
    """A graph that is differentiated, in two parts.

    frame: the returns and writes of the torch-level graph, in terms of the forward's values.
    forward: returns a flat tuple of the values, then those kept for the backward.
    backward: takes the saved values, then the tangents; returns a flat tuple of gradients.
    saved: where each saved value is found: ("input" | "memory" | "held" | "value" | "kept",
        number). What becomes of an input by `.data = x` is not to be seen in its memory; writes to
        one that is held are no error.
    tangents: numbers of the values that have a gradient, in the order of the tangents. Behind those
        of the values come those of `rebased`.
    rebased: the written inputs that have this graph in their history then. whole: those of them for
        which views must run operator by operator.
    gradients: for each gradient, the differentiated value: ("input" | "output", number). An output
        is one that the graph itself goes on to use.
    sources: for each gradient, the positions in `tangents` of those that reach it.
    frees: for each tangent, those that in eager cannot be used again after its backward, since it
        freed something that both need.
    segments: the nodes that autograd sees, each before those that use its outputs.
    cuts: the nodes of the torch-level graph where segments end, by number of output.
    versions: for each value, how often the program writes it.
    draws: whether the forward draws random numbers.
    spent: as FunctionalGraph.spent.
    """

    frame: FunctionalGraph
    forward: FunctionalGraph
    backward: FunctionalGraph
    saved: list[tuple[str, int]]
    tangents: list[int]
    gradients: list[tuple[str, int]]
    sources: list[frozenset[int]]
    frees: list[list[int]]
    segments: list[Segment]
    cuts: dict[int, Node]
    versions: list[int]
    draws: bool
    rebased: list[int] = field(default_factory=list)
    whole: list[int] = field(default_factory=list)
    spent: dict[int, tuple[str, tuple[int, ...]]] = field(default_factory=dict)


def flat_graph(module: GraphModule, frame: FunctionalGraph | None = None) -> FunctionalGraph:
    """The graph as one that returns its values as they are, with the writes of `frame`."""
    count = len(module.graph.output_node().args[0])
    return FunctionalGraph(
        graph_module=module,
        outputs=[OutputSpec("fresh", i) for i in range(count)],
        input_mutations=[m for m in frame.input_mutations if m.data] if frame else [],
        structure=tuple(range(count)),
        source=module,
        same_inputs=frame.same_inputs if frame else [],
    )


GRAD_SWITCHES = frozenset({torch._C._set_grad_enabled, torch.set_grad_enabled, torch.enable_grad})
AUTOCAST_SWITCHES = frozenset(
    {torch.set_autocast_enabled, torch.set_autocast_dtype, torch.set_autocast_cache_enabled}
)
SET_DEFAULT_DTYPE = torch._C._set_default_dtype  # type: ignore[attr-defined]


def set_deterministic(wanted: tuple[bool, bool]) -> None:
    """wanted: whether deterministic algorithms are used, and whether others give a warning only.
    A node of graphs; operators ask for both when they run.
    """
    mode, warn_only = wanted
    if read_deterministic() != wanted:  # torch tells its own compiler, which it loads for that
        torch.use_deterministic_algorithms(mode, warn_only=warn_only)


def read_deterministic() -> tuple[bool, bool]:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )


_APPLY = torch.autograd.Function.apply.__func__  # type: ignore[attr-defined]
_AUTOGRAD_CALLS = frozenset({"requires_grad_", "backward", "register_hook", "retain_grad"})


def asks_for_gradients(gm: GraphModule, nested: bool = False) -> str | None:
    """The call by which the graph, or a body in it, works with gradients itself, or None."""
    for node in gm.graph.nodes:
        if node.op == "get_attr":
            body = fetch_attribute(gm, node.target)
            reason = asks_for_gradients(body, True) if isinstance(body, GraphModule) else None
        elif not nested and makes_leaf(node):
            reason = None if torch.is_grad_enabled() else works_with_gradients(node)
        else:
            reason = works_with_gradients(node, nested)
        if reason:
            return reason
    return None


def makes_leaf(node: Node) -> bool:
    """Whether a tensor that the graph makes is to require grad, as for a gradient penalty: which
    can be traced if nothing with that history leaves the graph.
    """
    called = node.op == "call_method" and node.target == "requires_grad_"
    return called and not node.kwargs and node.args[0].op.startswith("call_")


def works_with_gradients(node: Node, nested: bool = False) -> str | None:
    """Why autograd itself must run this node, or None. `nested`: it is a node of a body."""
    if node.op == "call_function":
        if node.target is torch.autograd.backward:
            return "the graph calls backward"
        if node.target in (torch.nn.Parameter, set_data_):
            return f"the graph calls {node.target.__name__}"
        own = getattr(node.target, "__func__", None) is _APPLY
        observed = own and node.target.__self__ is BackwardHookFunction  # its node is asked for
        traceable = node.meta.get("traceable")  # says capture, which tried it
        if own and (observed or not traceable or (nested and traceable == "views")):
            return f"{node.target.__self__.__qualname__} has a backward of its own"
        if is_checkpoint(node) and node.args[3].get("use_reentrant"):
            return "a reentrant checkpoint runs backward by itself"
    elif node.op == "call_method" and node.target in _AUTOGRAD_CALLS:
        return f"the graph calls {node.target}"
    if node.kwargs.get("requires_grad") is True:
        return f"{node.name} is made with requires_grad=True"
    return None


def needs_autograd(gm: GraphModule, example_inputs: Sequence[Any]) -> str | None:
    """Why autograd must watch this graph, or None if it need not.

    It must if grad mode is on (now, or by a call in the graph) and an input or attribute requires
    grad. In inference mode grad mode has no effect.
    """
    if torch.is_inference_mode_enabled():
        return None
    enabled = torch.is_grad_enabled()
    for node in gm.graph.nodes:
        if node.op == "call_function" and node.target in GRAD_SWITCHES:
            enabled = enabled or not node.args or node.args[0] is True
    if not enabled:
        return None
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    for node, value in zip(placeholders, example_inputs):
        if isinstance(value, torch.Tensor) and value.requires_grad:
            return f"input {node.meta.get('source', node.name)} requires grad"
    if any(map(makes_leaf, gm.graph.nodes)):
        return "the graph calls requires_grad_"
    return _attribute_needing_grad(gm)


def _attribute_needing_grad(gm: GraphModule) -> str | None:
    for node in gm.graph.nodes:
        if node.op not in ("get_attr", "call_module"):
            continue
        value = fetch_attribute(gm, node.target)
        tensors = value.parameters() if isinstance(value, torch.nn.Module) else [value]
        if any(isinstance(t, torch.Tensor) and t.requires_grad for t in tensors):
            return f"{node.target} requires grad"
    return None


def is_view(op: Any) -> bool:
    """Whether calls of this overload may return memory of their first argument."""
    return op in UNMARKED_VIEWS or getattr(op, "is_view", False)


def root_of(node: Node) -> Node:
    """The node whose memory `node` looks at when the graph runs."""
    while node.op == "call_function" and is_view(node.target):
        node = node.args[0]
    return node


aten = torch.ops.aten
# Return a view of their input although their schemas do not say so.
UNMARKED_VIEWS = frozenset(
    {aten._unsafe_view.default, aten.unsafe_split.Tensor, aten.unsafe_split_with_sizes.default}
)

__all__ = [
    "FunctionalGraph",
    "MutatedInput",
    "OutputSpec",
    "Segment",
    "TrainingGraph",
    "UndifferentiableHere",
    "Unfunctionalizable",
    "asks_for_gradients",
    "flat_graph",
    "is_view",
    "makes_leaf",
    "needs_autograd",
    "root_of",
    "works_with_gradients",
]
