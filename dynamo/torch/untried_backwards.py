"""Backwards of autograd.Functions that capture could not try: they may do more than compute
tensors, and run when the graph does. Where capture itself would run one on fake tensors, for a
backward in the frame or a transform, its effects would be had there too, and out of order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from torch.autograd.function import BackwardCFunction

from dynamo import breaks
from dynamo.errors import Unsupported
from fxgraph import GraphModule

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter


def refuse_untried(tx: Interpreter, functions: Iterable[Any]) -> None:
    """Break where one of these functions of autograd's graph is such a backward."""
    for function in functions:
        if isinstance(function, BackwardCFunction):
            _refuse(tx, getattr(function, "_forward_cls", None))


def refuse_untried_in(tx: Interpreter, module: GraphModule) -> None:
    """Break where a body applies a Function with such a backward."""
    if not tx.output.untried_backwards:
        return
    for node in module.graph.nodes:
        inner = node.meta.get("example_value") if node.op == "get_attr" else None
        if isinstance(inner, GraphModule):
            refuse_untried_in(tx, inner)
        elif node.op == "call_function":
            _refuse(tx, getattr(node.target, "__self__", None))


def _refuse(tx: Interpreter, cls: Any) -> None:
    if any(cls is untried for untried in tx.output.untried_backwards):
        text = f"the backward of {cls.__name__} may do more than compute tensors"
        raise Unsupported(breaks.OpError("autograd.Function", text))
