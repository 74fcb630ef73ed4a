"""A graph: a doubly linked list of nodes with unique readable names, and the methods to edit it."""

from __future__ import annotations

import builtins
import copy
import keyword
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from fxgraph.node import Node, Target, map_arg

if TYPE_CHECKING:
    from fxgraph.graph_module import GraphModule
    from fxgraph.printer import PythonCode

_ILLEGAL = re.compile(r"[^0-9a-zA-Z_]+")
_NUMBERED = re.compile(r"(.*)_(\d+)$")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# Names that generated code uses itself.
_RESERVED = frozenset(
    {*keyword.kwlist, *dir(builtins), "torch", "operator", "math", "inf", "nan", "self"}
)


class Names:
    """Hands out names that are unique in one graph: relu, relu_1, relu_2, ..."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._last: dict[str, int] = {}

    def create(self, candidate: str) -> str:
        """A legal, unused Python identifier as close to `candidate` as can be."""
        candidate = _ILLEGAL.sub("_", candidate) or "_unnamed"
        if candidate[0].isdigit():
            candidate = "_" + candidate
        if candidate in self._used or candidate in _RESERVED:
            numbered = _NUMBERED.match(candidate)
            base = numbered[1] if numbered and numbered[1] else candidate
            count = self._last.get(base, int(numbered[2]) if numbered else 0)
            while (candidate := f"{base}_{count + 1}") in self._used or candidate in _RESERVED:
                count += 1
            self._last[base] = count + 1
        self._used.add(candidate)
        return candidate


class NodeList:
    """The nodes of a graph in order. While iterating, the current node may be erased."""

    def __init__(self, graph: Graph, backwards: bool = False) -> None:
        self._graph = graph
        self._backwards = backwards

    def __len__(self) -> int:
        return self._graph._len

    def __iter__(self) -> Iterator[Node]:
        root = self._graph._root
        node = root._prev if self._backwards else root._next
        while node is not root:
            if not node._erased:
                yield node
            node = node._prev if self._backwards else node._next

    def __reversed__(self) -> NodeList:
        return NodeList(self._graph, not self._backwards)


class Graph:
    """A list of nodes; `owning_module` has the attributes and submodules that they name."""

    def __init__(self, owning_module: GraphModule | None = None) -> None:
        self.owning_module = owning_module
        self._names = Names()
        self._root = Node(self, "", "call_function", _root_target, (), {})
        self._insert_before: Node = self._root
        self._len = 0

    @property
    def nodes(self) -> NodeList:
        """All nodes, in execution order."""
        return NodeList(self)

    def discard(self) -> None:
        """Let go of the nodes, which hold each other: nobody uses the graph any more."""
        for node in [self._root, *self.nodes]:
            vars(node).clear()
        vars(self).clear()

    # -- making nodes -----------------------------------------------------------------------------

    def create_node(
        self,
        op: str,
        target: Target,
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Add a node at the insert point (the end, unless inside inserting_before/after)."""
        unique = self._names.create(name if name is not None else _name_hint(op, target))
        node = Node(self, unique, op, target, args or (), kwargs or {}, type_expr)
        for used in node._input_nodes:
            if used.graph is not self:
                raise ValueError(f"argument {used.name} of {unique} belongs to another graph")
        self._insert_before.prepend(node)
        self._len += 1
        return node

    def placeholder(self, name: str, type_expr: Any = None, default_value: Any = ...) -> Node:
        """An input of the graph. `default_value` makes the argument optional."""
        args = () if default_value is ... else (default_value,)
        return self.create_node("placeholder", name, args, {}, type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        """A parameter, buffer or other attribute of the owning module."""
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_function(
        self,
        the_function: Callable[..., Any],
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        type_expr: Any = None,
        name: str | None = None,
    ) -> Node:
        """A call of a free function."""
        return self.create_node("call_function", the_function, args, kwargs, name, type_expr)

    def call_method(
        self,
        method_name: str,
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        type_expr: Any = None,
    ) -> Node:
        """A call of a method of args[0]."""
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_module(
        self,
        module_name: str,
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        type_expr: Any = None,
    ) -> Node:
        """A call of a submodule of the owning module."""
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def output(self, result: Any, type_expr: Any = None) -> Node:
        """Append the output node: any nest of nodes and constants."""
        return self.create_node("output", "output", (result,), {}, type_expr=type_expr)

    def node_copy(self, node: Node, arg_transform: Callable[[Node], Any] = lambda x: x) -> Node:
        """Copy a node of another graph; `arg_transform` maps its argument nodes to ours."""
        copied = self.create_node(
            node.op,
            node.target,
            map_arg(node.args, arg_transform),
            map_arg(node.kwargs, arg_transform),
            node.name,
            node.type,
        )
        copied.meta = dict(node.meta)
        return copied

    def graph_copy(
        self, g: Graph, val_map: dict[Node, Node], return_output_node: bool = False
    ) -> Any:
        """Append the nodes of `g`, filling `val_map` (old node to new).

        Nodes already in `val_map` are not copied. Returns `g`'s result in terms of our nodes;
        no output node is made. With `return_output_node`, the pair of that and `g`'s output node.
        """
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                result = map_arg(node.args[0], val_map.__getitem__)
                return (result, node) if return_output_node else result
            val_map[node] = self.node_copy(node, val_map.__getitem__)
        return None

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Graph:
        copied = Graph()
        val_map: dict[Node, Node] = {}
        found = copied.graph_copy(self, val_map, return_output_node=True)
        if found is not None:
            result, old = found
            copied.output(result, old.type).meta = dict(old.meta)
        return copied

    # -- editing ----------------------------------------------------------------------------------

    def erase_node(self, to_erase: Node) -> None:
        """Remove a node that nobody uses."""
        if to_erase.users:
            users = ", ".join(user.name for user in to_erase.users)
            raise RuntimeError(f"cannot erase {to_erase.name}: it is used by {users}")
        if to_erase.graph is not self:
            raise RuntimeError(f"cannot erase {to_erase.name}: it belongs to another graph")
        if to_erase._erased:
            return
        if self._insert_before is to_erase:
            self._insert_before = to_erase._next
        # The erased node keeps its own links, so that a loop standing on it can go on.
        to_erase._unlink()
        to_erase._erased = True
        to_erase._set_arguments((), {})
        self._len -= 1

    def inserting_before(self, n: Node | None = None) -> Any:
        """`with` block in which new nodes go before `n` (before the first node if None)."""
        return self._inserting(self._root._next if n is None else n, n)

    def inserting_after(self, n: Node | None = None) -> Any:
        """`with` block in which new nodes go after `n` (at the end if None)."""
        return self._inserting(self._root if n is None else n._next, n)

    @contextmanager
    def _inserting(self, before: Node, anchor: Node | None) -> Iterator[None]:
        if anchor is not None and anchor.graph is not self:
            raise ValueError(f"{anchor.name} belongs to another graph")
        saved, self._insert_before = self._insert_before, before
        try:
            yield
        finally:
            self._insert_before = saved

    def eliminate_dead_code(
        self, is_impure_node: Callable[[Node], bool] | None = None, impure_random: bool = True
    ) -> bool:
        """Erase nodes that nobody uses and that have no effect. Returns whether any was erased."""
        from fxgraph.passes.dce import dce

        return dce(self, is_impure_node, impure_random=impure_random)

    # -- finding ----------------------------------------------------------------------------------

    def find_nodes(self, *, op: str, target: Target | None = None, sort: bool = True) -> list[Node]:
        """The nodes with this opcode and target, in order."""
        return [
            node
            for node in self.nodes
            if node.op == op and (target is None or node.target == target)
        ]

    def output_node(self) -> Node:
        """The output node. Raises ValueError if there is none."""
        for node in reversed(self.nodes):
            if node.op == "output":
                return node
        raise ValueError("the graph has no output node")

    # -- checking and printing --------------------------------------------------------------------

    def lint(self) -> None:
        """Raise GraphError if the graph is not well formed; see fxgraph.verify."""
        from fxgraph.verify import verify

        verify(self)

    def python_code(self, root_module: str = "self", verbose: bool = False) -> PythonCode:
        """The graph as source of a function `forward`; `root_module` names the owning module."""
        from fxgraph import printer

        return printer.python_code(self, root_module, verbose=verbose)

    def print_tabular(self) -> None:
        """Print a table with the columns opcode, name, target, args, kwargs."""
        from fxgraph import printer

        print(printer.table(self))

    def __str__(self) -> str:
        lines = ["graph():", *(f"    {node.format_node()}" for node in self.nodes)]
        return "\n".join(lines)


def _root_target() -> None:
    """Target of the list's root, which is no operation."""


def _name_hint(op: str, target: Target) -> str:
    if isinstance(target, torch._ops.OpOverload):
        return target._schema.name.split("::")[-1]
    text = target if isinstance(target, str) else getattr(target, "__name__", type(target).__name__)
    if op == "placeholder":
        return text
    if text.startswith("__") and text.endswith("__"):
        text = text[2:-2]
    elif op == "get_attr":
        return text
    return _CAMEL.sub("_", text).lower()


# `copy.copy` of a graph would share its nodes; make it the same as a deep copy.
Graph.__copy__ = lambda self: copy.deepcopy(self)  # type: ignore[attr-defined]
