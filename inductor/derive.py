"""Derived statics: values that a graph computes from parameters and buffers alone.

before                                    after
    w2 = aten.mul(weight, scale)              w2: made in the first call, kept for the next ones
    y = aten.convolution(x, w2)               y = aten.convolution(x, w2)

The graph stays as it is: run operator by operator, it computes such values in each call. Its plan
keeps them (runtime/csrc/derivation.h) and makes them again when a parameter has changed. Parameters
that change before every call are no case of their own: to make the values again costs a pass or two
over the weights, about as much as the library's reordering of weights that are not derived.

Code that several modules share (equal blocks, a model and its average) takes parameters as inputs,
of which the graph tells that they are some. What is derived from them is kept for each module, as
far as there is room (costs.WEIGHTS_SHARE), and until the weights end; other modules run a plan
without it.

Writes are seen by the version of a parameter and of the tensors whose memory it is part of. Where
someone else holds that memory (an array, a capsule, a storage), each call reads it whole. Not seen
but in samples are writes by an address that was kept (`data_ptr`), through an array that was made
before the first compile, through a weak reference to a storage, and through the same part of a
mapped file that was read twice.

On a GPU they are made in their place again, and graphs that the program captures compute them in
each replay. Of its memory nothing is read: writes that move no version are seen where an alias was
handed out (`.data`), a graph of the program is replayed, or the address was asked for (`data_ptr`,
as Triton's launcher, ctypes and CuPy do), not those of kernels by an address that was kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fxgraph import effects
from fxgraph.aot import FunctionalGraph
from fxgraph.args import leaves
from fxgraph.node import Node
from inductor import costs, devices
from inductor.runtime._plan import has_foreign_memory
from inductor.runtime.plan import (
    AtenStep,
    BufferSpec,
    DerivationSpec,
    OutputSpec,
    PlanSpec,
    TensorSpec,
    dtype_name,
    encode,
)

PREPARED = "prepared"  # in a node's meta: a step of a stage's preparation for the library
_TENSORS = (torch.Tensor, torch.nn.Parameter)


@dataclass
class Derivation:
    """sources: input number of each parameter read. steps: nodes computed when one of these has
    changed. kept: those of the steps whose values the rest of the graph reads. shared: views among
    the steps that the rest of the graph computes too.
    """

    sources: dict[Node, int]
    steps: list[Node]
    kept: dict[Node, str]
    shared: set[Node]

    def skips(self, node: Node) -> bool:
        """Whether the rest of the graph is without the node's computation."""
        return node not in self.shared and node in self._of_steps

    def __post_init__(self) -> None:
        self._of_steps = frozenset(self.steps)

    def __str__(self) -> str:
        kept = (f"{node.name} as {name}" for node, name in self.kept.items())
        return f"derived: {', '.join(kept)}"


def sources_of(
    functional: FunctionalGraph, known: Sequence[bool], inputs: Sequence[Any], gpu: bool = False
) -> dict[Node, int]:
    """The parameters that values may be derived from: ordinary tensors on the CPU, or also on a
    GPU, of known size, that the graph does not write, with a version that tells of writes. known:
    by input, whether it is one.
    """
    written = {m.index for m in functional.input_mutations}
    if written:
        written.update(i for pair in functional.same_inputs for i in pair)
    placeholders = functional.graph_module.graph.find_nodes(op="placeholder")
    return {
        node: i
        for i, node in enumerate(placeholders)
        if known[i] and i not in written and _is_known(node) and is_ordinary(inputs[i], gpu)
    }


def is_ordinary(tensor: Any, gpu: bool = False) -> bool:
    """Whether values may be derived from a tensor: a plain strided one on the CPU, or on a GPU. Not
    of memory that torch has not allocated, or shares between processes: each call would have to
    read all of that to see writes of arrays or other processes.
    """
    return (
        type(tensor) in _TENSORS
        and (tensor.device.type == "cpu" or (gpu and devices.is_gpu(tensor.device)))
        and tensor.layout is torch.strided
        and not (tensor.is_inference() or tensor.is_conj() or tensor.is_neg())
        and not has_foreign_memory(tensor)
    )


def _is_known(node: Node) -> bool:
    val = node.meta.get("val")
    return (
        isinstance(val, torch.Tensor)
        and (val.device.type == "cpu" or devices.is_gpu(val.device))
        and val.layout is torch.strided
        and all(isinstance(n, int) for n in (*val.shape, *val.stride()))
    )


def closure(nodes: Iterable[Node], sources: Iterable[Node]) -> dict[Node, set[Node]]:
    """Every node that is computed from sources alone -> these sources, the sources included."""
    found = {source: {source} for source in sources}
    for node in nodes:
        used = node.all_input_nodes
        if used and all(one in found for one in used) and _is_derivable(node):
            found[node] = set().union(*(found[one] for one in used))
    return found


def _is_derivable(node: Node) -> bool:
    target = node.target
    return (
        isinstance(target, torch._ops.OpOverload)
        and len(target._schema.returns) == 1
        and torch.Tag.nondeterministic_seeded not in target.tags
        and not effects.of(node).impure()
        and _is_known(node)
        and _has_form([node.args, node.kwargs])
    )


def _has_form(tree: Any) -> bool:
    """Whether arguments can be stored in a plan, with no size that varies."""
    values = [leaf for leaf in leaves(tree) if not isinstance(leaf, Node)]
    try:
        encode(values, lambda leaf: None)
    except TypeError:
        return False
    return not any(isinstance(v, (torch.SymInt, torch.SymFloat, torch.SymBool)) for v in values)


def _is_view(node: Node) -> bool:
    return any(r.alias_info is not None for r in node.target._schema.returns)


def derivation(functional: FunctionalGraph, sources: Mapping[Node, int]) -> Derivation | None:
    """The part of the graph that is derived from `sources`; None if nothing is."""
    nodes = list(functional.graph_module.graph.nodes)
    found = closure(nodes, sources)
    candidates = [node for node in nodes if node in found and node not in sources]
    kept: dict[Node, str] = {}
    outside: set[Node] = set()  # candidates that the rest of the graph computes
    for node in reversed(candidates):
        read = any(user not in found or user in outside for user in node.users)
        if not read:
            continue
        if _is_view(node) or not _pays(node, found[node]):
            outside.add(node)
        else:
            kept[node] = ""
    needed = set(kept)
    for node in reversed(candidates):
        if node in needed:
            needed.update(node.all_input_nodes)
    steps = [node for node in candidates if node in needed]
    for number, node in enumerate(node for node in steps if node in kept):
        kept[node] = f"derived{number}"
    used = {source: i for source, i in sources.items() if source in needed}
    return Derivation(used, steps, kept, outside & needed) if kept else None


def _pays(node: Node, sources: set[Node]) -> bool:
    if node.meta.get(PREPARED):
        return True
    size = node.meta["val"].nbytes
    given = sum(source.meta["val"].nbytes for source in sources)
    return max(size, given) >= costs.DERIVED_BYTES and size <= given + costs.DERIVED_SPARE


def derivation_spec(derived: Derivation) -> DerivationSpec:
    """Its plan, of operators alone."""
    names = {node: f"arg{i}" for node, i in derived.sources.items()}
    inputs = [_spec(TensorSpec, names[node], node) for node in derived.sources]
    steps: list[Any] = []
    buffers: list[BufferSpec] = []
    for node in derived.steps:
        name = names[node] = derived.kept.get(node) or f"step{len(steps)}"
        schema = node.target._schema
        args, kwargs = encode(node.args, names.get), node.kwargs
        kwargs = {key: encode(value, names.get) for key, value in kwargs.items()}
        steps.append(AtenStep(schema.name, schema.overload_name, args, [name], kwargs))
        buffers.append(_spec(BufferSpec, name, node, kind="aten"))
    kept = {name: node for node, name in derived.kept.items()}
    order = [f"derived{number}" for number in range(len(kept))]
    plan = PlanSpec(inputs, buffers, steps, [OutputSpec("buffer", name) for name in order])
    values = [_spec(TensorSpec, name, kept[name]) for name in order]
    return DerivationSpec([names[node] for node in derived.sources], values, plan)


def _spec(spec: Any, name: str, node: Node, **more: Any) -> Any:
    val = node.meta["val"]
    size, stride, device = tuple(val.shape), tuple(val.stride()), str(val.device)
    return spec(name, dtype_name(val.dtype), size, stride, device=device, **more)
