"""Dead code elimination.

before                      after
    a = x + 1                   b = x * 2
    b = x * 2                   x.add_(1)
    x.add_(1)                   return (b,)
    return (b,)
"""

from __future__ import annotations

from collections.abc import Callable

from fxgraph.graph import Graph
from fxgraph.node import Node


def dce(
    graph: Graph,
    is_impure: Callable[[Node], bool] | None = None,
    *,
    impure_random: bool = True,
) -> bool:
    """Erase nodes without users that have no effect; placeholders stay. Returns whether any went.

    is_impure: decides instead of Node.is_impure. impure_random: keep unused random operations,
    since dropping them would change the random numbers that come after.
    """
    changed = False
    for node in reversed(graph.nodes):
        if node.users or node.op in ("placeholder", "output"):
            continue
        if not (is_impure(node) if is_impure else node.is_impure(impure_random)):
            graph.erase_node(node)
            changed = True
    return changed
