"""Runs a graph node by node. Override the method of an opcode to do something else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from fxgraph.graph import Graph
from fxgraph.graph_module import fetch_attribute
from fxgraph.node import Node, Target, map_arg


class Interpreter:
    """`Interpreter(gm).run(*args)` equals `gm(*args)`.

    module: the owner of the targets of get_attr and call_module. graph: the graph to run, if not
    module.graph.
    garbage_collect_values: drop a value after its last use.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        garbage_collect_values: bool = True,
        graph: Graph | None = None,
    ) -> None:
        self.module = module
        self.graph: Graph = graph if graph is not None else module.graph  # type: ignore[assignment]
        self.garbage_collect_values = garbage_collect_values
        self.env: dict[Node, Any] = {}
        self.args_iter: Iterator[Any] = iter(())
        self._last_use: dict[Node, list[Node]] | None = None

    def run(self, *args: Any, initial_env: dict[Node, Any] | None = None) -> Any:
        """Run all nodes with `args` for the placeholders; returns the output node's value.

        An exception that a node raises carries a note that names the node and the user's line.
        """
        self.env = dict(initial_env) if initial_env is not None else {}
        self.args_iter = iter(args)
        if self.garbage_collect_values and self._last_use is None:
            self._last_use = last_uses(self.graph)
        drops = self._last_use if self.garbage_collect_values else None
        for node in self.graph.nodes:
            if node in self.env:
                continue
            try:
                value = self.run_node(node)
            except Exception as error:
                _annotate(error, node)
                raise
            if node.op == "output":
                self.env = {}
                return value
            self.env[node] = value
            if drops is not None:
                for dead in drops.get(node, ()):
                    del self.env[dead]
        return None

    def run_node(self, n: Node) -> Any:
        """Evaluate one node in the current environment."""
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return getattr(self, n.op)(n.target, args, kwargs)

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The node's arguments with values in the place of nodes."""
        lookup = self.env.__getitem__
        return map_arg(n.args, lookup), map_arg(n.kwargs, lookup) if n.kwargs else {}

    # -- one method for each opcode: the value of such a node --------------------------------------
    def placeholder(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if str(target).startswith("*"):
            return list(self.args_iter)
        try:
            return next(self.args_iter)
        except StopIteration:
            if args:
                return args[0]
            raise TypeError(f"missing an argument for placeholder {target}") from None

    def get_attr(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.fetch_attr(target)

    def call_function(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return target(*args, **kwargs)  # type: ignore[operator]

    def call_method(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        this, *rest = args
        return getattr(this, target)(*rest, **kwargs)  # type: ignore[arg-type]

    def call_module(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.fetch_attr(target)(*args, **kwargs)

    def output(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return args[0]

    def fetch_attr(self, target: Target) -> Any:
        """An attribute of the module by dotted name."""
        return fetch_attribute(self.module, target)  # type: ignore[arg-type]


def last_uses(graph: Graph) -> dict[Node, list[Node]]:
    """For each node, the values (its own included) that are dead once it has run."""
    seen: set[Node] = set()
    drops: dict[Node, list[Node]] = {}
    for node in reversed(graph.nodes):
        if node.op == "output":
            seen.update(node.all_input_nodes)
            continue
        dead = [] if node in seen else [node]
        for used in node.all_input_nodes:
            if used not in seen:
                seen.add(used)
                dead.append(used)
        if dead:
            drops[node] = dead
    return drops


def _annotate(error: BaseException, node: Node) -> None:
    trace = f"\nUser code:\n{node.stack_trace.rstrip()}" if node.stack_trace else ""
    note = f"While executing {node.format_node()}{trace}"
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)
