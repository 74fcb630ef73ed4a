"""torch.inference_mode, entered and left by the captured code.

Each block is two nodes of the graph, between which the operations of the block stand. A graph whose
operations are all inside has none of these nodes: it is called inside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.values.base import Value
from dynamo.values.scalars.constant import ConstantValue
from fxgraph import Graph
from fxgraph.dual_levels import LEVEL_SWITCHES, level_restored
from fxgraph.inference_blocks import (
    INFERENCE_SWITCHES,
    enter_inference,
    inference_restored,
    leave_inference,
)

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter
    from dynamo.interp.output import OutputGraph

# Functions that change torch's state, and compute nothing.
_STATE = frozenset(["_set_grad_enabled", "set_autocast_enabled", "set_autocast_dtype"])


def enter_block(tx: Interpreter, args: Sequence[Value]) -> Value:
    """manager.__enter__()"""
    manager, output = args[0], tx.output
    mode = manager.getattr(tx, "mode").as_constant()
    whole = output.context.export or output.context.hooks is not None  # no Python around the graph
    if manager.source is not None or output.bodies or whole or type(mode) is not bool:
        raise Unsupported(breaks.InferenceMode())
    output.side_effects.touch()
    output.create_node("call_function", enter_inference, (mode,), {}, None, tx)
    enter_inference(mode)
    output.inference.append(manager)
    return ConstantValue(None)


def leave_block(tx: Interpreter, args: Sequence[Value]) -> Value:
    """manager.__exit__(...)"""
    blocks = tx.output.inference
    if not blocks or blocks[-1] is not args[0]:
        raise Unsupported(breaks.InferenceMode())
    tx.output.side_effects.touch()
    blocks.pop()
    leave_inference()
    tx.output.create_node("call_function", leave_inference, (), {}, None, tx)
    return ConstantValue(None)


def compile_with_blocks(
    output: OutputGraph, compile_graph: Callable[[], Callable[..., Any]]
) -> Callable[..., Any]:
    """The compiled graph, made and called inside of a block where all its operations are inside."""
    switches = [node for node in output.graph.nodes if node.target in INFERENCE_SWITCHES]
    if not switches:
        levels = any(node.target in LEVEL_SWITCHES for node in output.graph.nodes)
        return _called(compile_graph, None) if levels else compile_graph()
    inside = _inside(output.graph)
    if inside is not None:
        for node in switches:
            output.graph.erase_node(node)
    return _called(compile_graph, inside)


def _called(
    compile_graph: Callable[[], Callable[..., Any]], inside: bool | None
) -> Callable[..., Any]:
    def call(function: Callable[..., Any], *args: Any) -> Any:
        with inference_restored(), level_restored():
            if inside is not None:
                enter_inference(inside)
            return function(*args)

    compiled = call(compile_graph)

    def run(*args: Any) -> Any:
        return call(compiled, *args)

    for name in ("binds_static", "compile_report"):
        if hasattr(compiled, name):
            setattr(run, name, getattr(compiled, name))
    return run


def _inside(graph: Graph) -> bool | None:
    """The mode in which all operations of the graph are; None: no block has them all."""
    modes: list[bool] = []
    found: set[bool | None] = set()
    for node in graph.nodes:
        if node.target is enter_inference:
            modes.append(node.args[0])
        elif node.target is leave_inference:
            modes.pop()
        elif node.op.startswith("call_") and getattr(node.target, "__name__", "") not in _STATE:
            found.add(modes[-1] if modes else None)
    return found.pop() if len(found) == 1 else None
