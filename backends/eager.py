"""backend="eager": capture only. The graph runs as it was captured, op by op."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from backends.registry import register_backend
from fxgraph import GraphModule


@register_backend
def eager(gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    return gm.forward
