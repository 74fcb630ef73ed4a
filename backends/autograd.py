"""What the functional backends share: deciding when a graph must run op by op instead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fxgraph import GraphModule
from fxgraph.aot import (
    UndifferentiableHere,
    Unfunctionalizable,
    asks_for_gradients,
    needs_autograd,
)


class OpByOp:
    """Runs the captured graph as eager would, under autograd; `compile_report` says why."""

    def __init__(self, gm: GraphModule, reason: str, *, autograd: bool) -> None:
        self._forward = gm.forward
        self.compile_report: dict[str, Any] = {
            "autograd": reason if autograd else None,
            "notes": [f"the graph runs op by op: {reason}"],
        }

    def __call__(self, *inputs: Any) -> Any:
        return self._forward(*inputs)


def under_autograd(
    gm: GraphModule,
    example_inputs: Sequence[Any],
    compile_training: Callable[[GraphModule, Sequence[Any]], Callable[..., Any]],
) -> Callable[..., Any] | None:
    """What serves a graph that autograd must watch: compiled with its backward, or op by op where
    that is not possible; None for other graphs.
    """
    reason = asks_for_gradients(gm)
    if reason:
        return OpByOp(gm, reason, autograd=True)
    reason = needs_autograd(gm, example_inputs)
    if reason is None:
        return None
    try:
        return compile_training(gm, example_inputs)
    except (Unfunctionalizable, UndifferentiableHere) as error:
        return OpByOp(gm, f"{reason}, and {error}", autograd=True)
