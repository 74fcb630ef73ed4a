"""Numbers that a graph reads from data and returns: as tensors, as all that is compiled.

before                            after
    n = x.item()                      n = x.item()
    y = x * n                         number = x.clone()
    return (y, n)                     y = x * n
                                      return (y, number)      # the caller is given number.item()
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fxgraph.graph import Graph
from fxgraph.graph_module import GraphModule
from fxgraph.node import Node
from fxgraph.sym_node import choose
from fxgraph.symbolic_values import depends_on_data

_DTYPES: dict[type, torch.dtype] = {
    torch.SymInt: torch.int64,
    torch.SymFloat: torch.float64,
    torch.SymBool: torch.bool,
}


def returns_numbers(gm: GraphModule) -> list[int]:
    """The positions of data-dependent numbers in the graph's flat tuple of outputs."""
    results = gm.graph.output_node().args[0]
    if not isinstance(results, tuple):
        return []
    return [i for i, node in enumerate(results) if isinstance(node, Node) and _is_number(node)]


def _is_number(node: Node) -> bool:
    return depends_on_data(node.meta.get("example_value"))


def numbers_as_tensors(gm: GraphModule, positions: list[int]) -> GraphModule | None:
    """The graph with tensors in these places; None for numbers that have no form as tensors."""
    graph = Graph()
    made: dict[Node, Node] = {}
    results = gm.graph.output_node().args[0]
    wanted = {results[i] for i in positions}  # type: ignore[index]
    tensors: dict[Node, Node] = {}
    for node in gm.graph.nodes:
        if node.op == "output":
            continue
        made[node] = graph.node_copy(node, made.__getitem__)
        if node in wanted:
            tensor = _tensor(graph, node, made, gm.meta.get("fake_mode"))
            if tensor is None:
                return None
            tensors[node] = tensor
    graph.output(tuple(
        tensors[node] if node in tensors else made[node] if isinstance(node, Node) else node
        for node in results  # type: ignore[union-attr]
    ))  # fmt: skip
    for node in tensors:
        if node.target == "item" and not made[node].users:
            graph.erase_node(made[node])
    return gm.with_graph(graph)


def _tensor(graph: Graph, node: Node, made: dict[Node, Node], mode: Any) -> Node | None:
    """The number that a node gives, as a tensor without dimensions."""
    read = node.args[0] if node.op == "call_method" and node.target == "item" else None
    if isinstance(read, Node):
        like = read.meta["example_value"]
        flat = graph.call_method("reshape", (made[read], ()))
        new = graph.call_method("clone", (graph.call_method("detach", (flat,)),))
        dtype, device = like.dtype, like.device
        for one in (flat, *flat.users, new):
            one.meta["val"] = one.meta["example_value"] = _fake(mode, dtype, device)
    else:
        value = node.meta["example_value"]
        found, number = _DTYPES.get(type(value)), made[node]
        if found is None:
            return None
        if found is torch.bool:
            number = graph.call_function(choose, (number, 1, 0))
            number.meta["val"] = number.meta["example_value"] = choose(value, 1, 0)
        new = graph.call_function(torch.scalar_tensor, (number,), {"dtype": found})
        new.meta["val"] = new.meta["example_value"] = _fake(mode, found, torch.device("cpu"))
    return new


def _fake(mode: Any, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    with mode:
        return torch.empty((), dtype=dtype, device=device)


class WithNumbers:
    """Calls a function compiled with tensors in the place of numbers, and takes the numbers out."""

    def __init__(self, compiled: Callable[..., Any], positions: list[int]) -> None:
        self.compiled = compiled
        self.positions = positions
        self.binds_static = getattr(compiled, "binds_static", False)
        self.compile_report = getattr(compiled, "compile_report", None)

    def __call__(self, *inputs: Any) -> Any:
        results = list(self.compiled(*inputs))
        for i in self.positions:
            results[i] = results[i].item()
        return tuple(results)
