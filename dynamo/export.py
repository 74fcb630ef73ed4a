"""export(): one whole graph of a function or module, or an error that names the break."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from dynamo.errors import Unsupported
from fxgraph import GraphModule


class Exported:
    """A captured program: `.graph_module`, `.graph`, `.guards`; calling it takes the original's
    arguments.

    Parameters and buffers are attributes of the graph module, named after their path; its
    placeholders are the user's tensors. A call whose arguments do not meet the guards raises
    RecompileLimitExceeded with the guard that fails.
    """

    def __init__(self, graph_module: GraphModule, guards: list[str], call: Callable[..., Any]):
        self.graph_module = graph_module
        self.graph = graph_module.graph
        self.guards = guards
        self._call = call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def __str__(self) -> str:
        return self.graph_module.code


def export(fn: Callable[..., Any]) -> Callable[..., Exported]:
    """export(fn)(*args, **kwargs) -> Exported. Raises Unsupported, naming the place, where the
    graph would break.
    """
    from dynamo import _hook
    from dynamo.api import compile_fresh

    @functools.wraps(fn, updated=())
    def inner(*args: Any, **kwargs: Any) -> Exported:
        captured: list[tuple[GraphModule, list[Any]]] = []

        def keep(gm: GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
            captured.append((gm, list(example_inputs)))
            return gm.forward

        compiled, context = compile_fresh(
            fn, backend=keep, mode=None, options=None, fullgraph=True, export=True
        )
        compiled(*args, **kwargs)
        if len(captured) != 1:
            name = getattr(fn, "__qualname__", type(fn).__name__)
            raise Unsupported(f"{name} has no tensor operation to export")
        guards = [guard for frame in context.records for guard in frame.guards]
        return Exported(_with_parameters(*captured[0]), guards, _hook.run_or_error(compiled))

    return inner


def _with_parameters(gm: GraphModule, example_inputs: list[Any]) -> GraphModule:
    """Static placeholders become get_attr of parameters that the module holds."""
    root = torch.nn.Module()
    graph = gm.graph
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    for node, tensor in zip(placeholders, example_inputs, strict=True):
        if not node.meta.get("static"):
            continue
        if isinstance(tensor, torch.nn.Parameter):
            root.register_parameter(node.name, tensor)
        else:
            root.register_buffer(node.name, tensor)
        with graph.inserting_before(node):
            attr = graph.get_attr(node.name)
        attr.meta = dict(node.meta)
        node.replace_all_uses_with(attr)
        graph.erase_node(node)
    exported = GraphModule(root, graph)
    exported.meta = dict(gm.meta)
    return exported
