"""torch.inference_mode, entered and left by the captured code.

A graph is called inside of inference mode, or outside: its operations are all inside, or none is.
Where that does not hold, the graph breaks as the mode is entered, or before the first operation
after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.torch.inference_blocks import is_operation
from dynamo.values.base import Value
from dynamo.values.constant import ConstantValue

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter
    from dynamo.interp.output import OutputGraph

_entered: list[Any] = []  # the guards that are at work while capturing


def enter_inference(tx: Interpreter, args: Sequence[Value]) -> Value:
    """manager.__enter__()"""
    manager = args[0]
    output, blocks = tx.output, tx.output.inference
    entered_outside = torch.is_inference_mode_enabled() and not blocks.open
    outside = manager.source is not None or entered_outside
    if outside or output.bodies or manager.getattr(tx, "mode").as_constant() is not True:
        raise Unsupported(breaks.InferenceMode())
    before = any(is_operation(node.op, node.target) for node in output.graph.nodes)
    if before and not blocks.used:
        raise Unsupported(breaks.InferenceMode())
    output.side_effects.touch()
    guard = torch._C._InferenceMode(True)
    guard.__enter__()
    _entered.append(guard)
    blocks.open.append(manager)
    blocks.used = True
    return ConstantValue(None)


def leave_inference(tx: Interpreter, args: Sequence[Value]) -> Value:
    """manager.__exit__(...)"""
    blocks = tx.output.inference
    if not blocks.open or blocks.open[-1] is not args[0]:
        raise Unsupported(breaks.InferenceMode())
    tx.output.side_effects.touch()
    blocks.open.pop()
    _entered.pop().__exit__(None, None, None)
    return ConstantValue(None)


def leave_all() -> None:
    """Capture of a frame ends, also in the middle of a block."""
    while _entered:
        _entered.pop().__exit__(None, None, None)


def call_inside(function: Callable[..., Any], *args: Any) -> Any:
    with torch.inference_mode():
        return function(*args)


def compile_inside(
    output: OutputGraph, compile_graph: Callable[[], Callable[..., Any]]
) -> Callable[..., Any]:
    """The compiled graph, made and called in the mode in which its operations were captured."""
    if not output.inference.used:
        return compile_graph()
    compiled = call_inside(compile_graph)

    def run(*args: Any) -> Any:
        return call_inside(compiled, *args)

    for name in ("binds_static", "compile_report"):
        if hasattr(compiled, name):
            setattr(run, name, getattr(compiled, name))
    return run
