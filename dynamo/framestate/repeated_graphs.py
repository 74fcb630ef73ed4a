"""Graphs that a frame had before: compiled again for another state of the program, a frame takes
the code that the backend made for the first of them.

    if self.kind is None:           # the second call is captured anew; its graph is the same
        self.kind = "regression"

Alike are graphs of one code object with the same text (with the lines of the program), inputs of
the same kinds and the same static ones, in the same global state. Backends that are functions of
the program's own are called for each graph, but once where graphs differ in their static tensors
alone, and the code takes these at each call: it does not declare `binds_static`, and the backend
wraps no code of ours that holds them.

    self.weight = nn.Parameter(other)    # captured anew, as parameters are known by identity
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from dynamo.config import config
from dynamo.guards.kinds import GlobalState, KnownTensor
from fxgraph import GraphModule
from fxgraph.bound_inputs import noted_bound_inputs
from fxgraph.serialize import SerializeError, dumps

if TYPE_CHECKING:
    from dynamo.interp.output import GraphInput, OutputGraph

_MOST = 4  # of the latest graphs of a code object
# Of "began", backends see nothing.
_TOLD = frozenset({"example_value", "val", "version", "source", "static", "parameter", "began"})
_TOLD |= {"stack_trace", "nn_module_stack", "source_fn_stack"}


@dataclass
class SeenGraph:
    """A graph and its compiled code: for backends by name, as long as the frame lives that runs it.
    statics: its static tensors, None in the place of another input.
    """

    key: Hashable
    state: GlobalState
    statics: Sequence[KnownTensor | None]
    compiled: Callable[[], Any]

    def is_of(self, statics: Sequence[torch.Tensor | None]) -> bool:
        """Whether these are its static tensors."""
        return all(
            other is known if known is None or other is None else known.is_(other)
            for known, other in zip(self.statics, statics, strict=True)
        )


def compiled_once(
    output: OutputGraph,
    module: GraphModule,
    inputs: Sequence[GraphInput],
    compile_graph: Callable[[], Callable[..., Any]],
) -> Callable[..., Any]:
    """The code of an equal graph of this code object, or compile_graph()."""
    statics = [item.example if item.static else None for item in inputs]
    key = _key(output, module, inputs)
    if key is None:
        return compile_graph()
    named = output.context.names_backend
    graphs = output.symbols.seen.graphs
    for seen in graphs:
        if seen.key == key and seen.state.check() and seen.is_of(statics) is named:
            compiled = seen.compiled()
            if compiled is not None:
                return compiled
    state = GlobalState()
    with noted_bound_inputs() as bound:
        compiled = compile_graph()
    try:
        held = weakref.ref(compiled) if named else _held(compiled, module, bound[0])
    except TypeError:  # of a callable without weak references
        return compiled
    if held is not None:
        known = [None if one is None else KnownTensor(one) for one in statics]
        graphs[:] = [SeenGraph(key, state, known, held), *graphs[: _MOST - 1]]
    return compiled


def _held(
    compiled: Callable[..., Any], module: GraphModule, binds: bool
) -> Callable[[], Any] | None:
    """The code, for further static tensors, also after the end of the first; None: for no other."""
    if binds or getattr(compiled, "binds_static", False):
        return None
    for node in module.graph.find_nodes(op="placeholder"):
        if node.meta.pop("static", False):  # a backend of ours that the code calls later binds none
            node.meta["parameter"] = True
    return lambda: compiled


def _key(output: OutputGraph, module: GraphModule, inputs: Sequence[GraphInput]) -> Hashable | None:
    """All that a backend looks at but the static tensors and the global state; None: unknown."""
    context = output.context
    if context.export or context.hooks:
        return None
    if output.symbols.active or not all(map(_is_told, module.graph.nodes)):
        return None
    examples = [item.example for item in inputs]
    kinds = [_kind(example) for example in examples]
    if None in kinds or len(set(map(_storage, examples))) < len(examples):
        return None
    named = context.names_backend
    marked = [
        (node, mark)
        for node in module.graph.nodes
        for mark in ["static", *["parameter"] * (not named)]
        if node.meta.pop(mark, False)
    ]
    try:
        text = dumps(module.graph)
    except (SerializeError, ValueError, TypeError):  # sizes that only the call knows
        return None
    finally:
        for node, mark in marked:
            node.meta[mark] = True
    digest = hashlib.sha256(text.encode()).digest()
    return digest, tuple(kinds), context.backend_now, torch.get_num_threads(), config.describe()


def _is_told(node: Any) -> bool:
    """Whether the graph's text tells all of a node: bodies and constants are not in it."""
    return node.op in _OPS and node.meta.keys() <= _TOLD


_OPS = frozenset({"placeholder", "call_function", "call_method", "output"})


def _kind(example: Any) -> Hashable | None:
    """The properties of an input besides its values; None: of a tensor that has more of them."""
    if type(example) not in (torch.Tensor, torch.nn.Parameter):
        return None
    if example.layout is not torch.strided or torch._C._functorch.is_functorch_wrapped_tensor(
        example
    ):
        return None
    place = (example.shape, example.stride(), example.storage_offset() == 0, example.device)
    grad = (example.requires_grad, example.is_leaf, example.is_conj(), example.is_neg())
    keys = str(torch._C._dispatch_keys(example))
    return (type(example), example.dtype, *place, *grad, example.is_inference(), keys)


def _storage(example: torch.Tensor) -> int:
    return example.untyped_storage()._cdata
