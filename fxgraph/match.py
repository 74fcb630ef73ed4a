"""Rewriting by rows (pattern, action).

RULES = [
    (Call(aten.mul.Tensor, ANY("x"), 1), lambda m: m["x"]),            # x * 1 -> x
    (Call(aten.neg.default, Call(aten.neg.default, ANY("x"))), lambda m: m["x"]),
]
rewrite(graph, RULES)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fxgraph.graph import Graph
from fxgraph.node import Node


class Pattern:
    """Matches a value in argument position."""

    def match(self, value: Any, found: dict[str, Any]) -> bool:
        raise NotImplementedError


class ANY(Pattern):
    """Anything, bound to `name`; the same name twice must be the same node or an equal constant.

    where: a further condition on the value.
    """

    def __init__(self, name: str, where: Callable[[Any], bool] | None = None) -> None:
        self.name = name
        self.where = where

    def match(self, value: Any, found: dict[str, Any]) -> bool:
        if self.name in found:
            return _same(found[self.name], value)
        if self.where is not None and not self.where(value):
            return False
        found[self.name] = value
        return True


class Call(Pattern):
    """A call of one of `targets` (a callable, a method name, or a tuple of them) with these
    arguments.

    Keyword arguments that the pattern does not name may have any value. `single_use`: the value has
    no other user, so that the rewrite makes it vanish. `name` binds the node.
    """

    def __init__(
        self,
        targets: Any,
        *args: Any,
        single_use: bool = False,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        self.targets = targets if isinstance(targets, tuple) else (targets,)
        self.args = args
        self.kwargs = kwargs
        self.single_use = single_use
        self.name = name

    def match(self, value: Any, found: dict[str, Any]) -> bool:
        if not isinstance(value, Node) or value.target not in self.targets:
            return False
        if (self.single_use and len(value.users) != 1) or len(value.args) != len(self.args):
            return False
        if not all(_match(p, v, found) for p, v in zip(self.args, value.args)):
            return False
        for key, pattern in self.kwargs.items():
            if key not in value.kwargs or not _match(pattern, value.kwargs[key], found):
                return False
        if self.name is not None:
            found[self.name] = value
        return True


Action = Callable[[Mapping[str, Any]], Any]
Rule = tuple[Pattern, Action]


def _match(pattern: Any, value: Any, found: dict[str, Any]) -> bool:
    if isinstance(pattern, Pattern):
        return pattern.match(value, found)
    if isinstance(pattern, (list, tuple)):
        if not isinstance(value, (list, tuple)) or len(value) != len(pattern):
            return False
        return all(_match(p, v, found) for p, v in zip(pattern, value))
    return _same(pattern, value)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Node) or isinstance(other, Node):
        return one is other
    return type(one) is type(other) and one == other


def rewrite(graph: Graph, rules: Iterable[Rule]) -> bool:
    """Apply the first matching rule to each node, in order, until none matches. True if any did.

    An action gets what the pattern bound, and `m["node"]`, the matched node. New nodes that it
    makes in `m["node"].graph` go before that node. It returns the node that takes the matched
    node's place, or None to leave it. The matched node is erased; nodes it alone used are left to
    dce.
    """
    rows = list(rules)
    changed = False
    again = True
    while again:
        again = False
        for node in graph.nodes:
            if node.op.startswith("call_") and _apply(graph, node, rows):
                again = changed = True
    return changed


def _apply(graph: Graph, node: Node, rules: list[Rule]) -> bool:
    for pattern, action in rules:
        found: dict[str, Any] = {}
        if not pattern.match(node, found):
            continue
        with graph.inserting_before(node):
            result = action({**found, "node": node})
        if result is None or result is node:
            continue
        if not result.meta:
            result.meta = dict(node.meta)
        node.replace_all_uses_with(result)
        graph.erase_node(node)
        return True
    return False
