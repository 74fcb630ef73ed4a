"""print(graph): the nested structure, with inputs and outputs once they are known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from dynamo.static_graph.signature import TensorSpec

if TYPE_CHECKING:
    from dynamo.static_graph.state import GraphState


def graph_text(graph: Any, state: GraphState, root: torch.nn.Module) -> str:
    """The graph as text: a line per item, (TAG:name:kind), with inner items indented."""
    lines = [f"(CONFIG:config:{state.config!r})"]
    if state.no_plan is not None:
        lines.append(f"(PLAN:none:{' '.join(state.no_plan.split())})")
    inputs = state.signature.tensors() if state.signature is not None else []
    lines += _tensors("INPUT", state.name, inputs)
    lines += _held(root, "")
    for name, child in root.named_children():
        lines += _module(state, name, child)
    lines += _tensors("OUTPUT", state.name, state.outputs)
    return "\n".join(_block(f"(GRAPH:{state.name}:{type(graph).__name__})", lines))


def _module(state: GraphState, path: str, module: torch.nn.Module) -> list[str]:
    call = state.hooks.calls.get(id(module)) if state.hooks is not None else None
    lines = list(_tensors("INPUT", path, call.inputs)) if call is not None else []
    lines += _held(module, f"{path}.")
    for name, child in module.named_children():
        lines += _module(state, f"{path}.{name}", child)
    lines += _tensors("OUTPUT", path, call.outputs) if call is not None else []
    return _block(f"(MODULE:{path}:{module_title(module)})", lines)


def module_title(module: torch.nn.Module) -> str:
    """Class and settings: Linear(in_features=4, out_features=3, bias=True)."""
    settings = module.extra_repr() if "\n" not in module.extra_repr() else ""
    return f"{type(module).__name__}({settings})"


def _held(module: torch.nn.Module, prefix: str) -> Iterator[str]:
    """Parameters and buffers of the module itself."""
    for tag, tensors in (
        ("PARAMETER", module.named_parameters(recurse=False)),
        ("BUFFER", module.named_buffers(recurse=False)),
    ):
        for name, tensor in tensors:
            yield f"({tag}:{prefix}{name}:{TensorSpec.of(tensor)}): ()"


def _tensors(tag: str, owner: str, specs: list[TensorSpec]) -> Iterator[str]:
    for i, spec in enumerate(specs):
        yield f"({tag}:_{owner}-{tag.lower()}_{i}:{spec})"


def _block(title: str, lines: list[str]) -> list[str]:
    if not lines:
        return [f"{title}: ()"]
    return [f"{title}: (", *(f"  {line}" for line in lines), ")"]
