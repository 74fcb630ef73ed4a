"""What the functional backends share: deciding when a graph must run op by op instead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fxgraph import GraphModule
from fxgraph.aot import needs_autograd


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


def under_autograd(gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any] | None:
    """The op-by-op callable if this graph needs gradients, else None."""
    reason = needs_autograd(gm, example_inputs)
    return OpByOp(gm, reason, autograd=True) if reason else None
