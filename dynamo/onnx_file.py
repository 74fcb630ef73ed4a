"""Exported.to_onnx: torch's ONNX exporter over a graph that is captured already.

The exporter runs the whole graph, which has no Python left that it could fail on, and translates
its operators; the packages onnx and onnxscript come with the extra `onnx`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import Any

import torch

from dynamo.errors import Unsupported
from fxgraph import Graph, GraphModule, effects
from fxgraph.aot import Unfunctionalizable, functionalize
from fxgraph.passes.both_sides import Kept, with_both_sides
from fxgraph.symbolic_values import hint_of, is_symbol


def write_onnx(module: GraphModule, path: str | os.PathLike[str], names: Mapping[str, str]) -> None:
    """Write the graph of `module` to `path`: inputs are named as `names` says of its placeholders,
    outputs output_0, ...; sizes that vary in the graph vary in the file.
    """
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "to_onnx needs the packages of the extra: pip install framegraph[onnx]"
        ) from error
    try:
        module = with_both_sides(module)
    except Kept as error:
        raise Unsupported(f"{error}, which no ONNX file of ours holds") from error
    _check_pure(module)
    module = _without_sizes(module)
    nodes = module.graph.find_nodes(op="placeholder")
    for node in nodes:
        if not isinstance(node.meta["example_value"], torch.Tensor):
            raise Unsupported(f"the input {node.name} is no tensor: ONNX files take tensors")
    fakes = [node.meta["example_value"] for node in nodes]
    module.eval()  # no layer of the graph asks; the exporter warns otherwise
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            torch.onnx.export(
                module,
                tuple(map(_example, fakes)),
                str(path),
                dynamo=True,
                verbose=False,
                external_data=False,
                input_names=[names.get(node.name, node.name) for node in nodes],
                dynamic_shapes=tuple(map(_varying, fakes)),
            )
    except torch.onnx.OnnxExporterError as error:
        reason = str(error.__cause__ or error).splitlines()[0]
        raise Unsupported(
            f"torch's exporter has no ONNX form for the graph: {reason} (for fused attention of "
            "eval mode, call torch.backends.mha.set_fastpath_enabled(False) before capture)"
        ) from error


def _check_pure(module: GraphModule) -> None:
    """Raise Unsupported for effects and results that a file of operators has no form for."""
    nodes = module.graph.nodes
    if any(node.target is torch.autograd.grad for node in nodes):
        raise Unsupported("the graph differentiates: ONNX files are of inference")
    if any(effects.of(node).random for node in nodes):
        raise Unsupported("the graph draws random numbers: call eval() on the model")
    examples = [
        _example(node.meta["example_value"]) for node in module.graph.find_nodes(op="placeholder")
    ]
    try:
        functional = functionalize(module, examples)
    except Unfunctionalizable as error:
        raise Unsupported(f"the graph has no functional form for an ONNX file: {error}") from error
    if any(effects.of(node).writes for node in functional.graph_module.graph.nodes):
        raise Unsupported("the graph writes inputs or buffers: call eval() on the model")


def _without_sizes(module: GraphModule) -> GraphModule:
    """A copy whose sizes that vary are asked of the tensors that have them, instead of passed."""
    graph = Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    inputs = graph.find_nodes(op="placeholder")
    tensors = [node for node in inputs if isinstance(node.meta["example_value"], torch.Tensor)]
    after = next(node for node in graph.nodes if node.op != "placeholder")
    for node in inputs:
        symbol = node.meta["example_value"]
        if not is_symbol(symbol):
            continue
        places = [
            (tensor, dim)
            for tensor in tensors
            for dim, size in enumerate(tensor.meta["example_value"].shape)
            if is_symbol(size) and size.node.expr == symbol.node.expr
        ]
        if node.users and not places:
            raise Unsupported(f"the number {node.name} varies: ONNX files take tensors")
        if node.users:
            with graph.inserting_before(after):
                size = graph.call_method("size", places[0])
            node.replace_all_uses_with(size)
        graph.erase_node(node)
    return GraphModule(module, graph)


def _example(fake: Any) -> Any:
    """A tensor like the captured one, or a number; nobody reads values."""
    if not isinstance(fake, torch.Tensor):
        return hint_of(fake) if is_symbol(fake) else fake
    return torch.zeros([int(hint_of(size)) for size in fake.shape], dtype=fake.dtype)


def _varying(fake: torch.Tensor) -> dict[int, Any]:
    return {d: torch.export.Dim.DYNAMIC for d, s in enumerate(fake.shape) if is_symbol(s)}
