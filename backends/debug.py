"""Backends that print what they are given and then run it eagerly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from backends.aot_eager import aot_eager
from backends.registry import register_backend
from fxgraph import GraphModule
from fxgraph.aot import Unfunctionalizable, functionalize


@register_backend(name="print")
def print_graph(gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """Prints the captured graph as a table."""
    gm.graph.print_tabular()
    return gm.forward


@register_backend(name="print_aot")
def print_functional_graph(gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """Prints the functional aten graph as Python, or why there is none."""
    try:
        print(functionalize(gm, example_inputs).graph_module.code)
    except Unfunctionalizable as error:
        print(f"no functional graph: {error}")
    return aot_eager(gm, example_inputs)
