"""Backends that print their arguments and then run the graph eagerly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from backends.aot_eager import compile_shown
from backends.registry import register_backend
from fxgraph import GraphModule


@register_backend(name="print")
def print_graph(gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """Prints the captured graph as a table."""
    gm.graph.print_tabular()
    return gm.forward


@register_backend(name="print_aot")
def print_functional_graphs(gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """Prints the functional aten graphs as Python: with gradients, forward and backward. Where some
    operations run as they are, it says why.
    """
    compiled = compile_shown(gm, example_inputs, _print)
    for note in (getattr(compiled, "compile_report", None) or {}).get("notes") or ():
        print(f"# {note}")
    return compiled


def _print(title: str, graph: GraphModule) -> None:
    print(f"# {title}\n{graph.code}")
