"""backend="aot_eager": the functional aten graph, run op by op. Shows whether a fault lies before
or in inductor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from backends.autograd import OpByOp, under_autograd
from backends.registry import register_backend
from fxgraph import GraphModule
from fxgraph.aot import Unfunctionalizable, functionalize, run_functional


@register_backend
def aot_eager(gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    by_op = under_autograd(gm, example_inputs)
    if by_op is not None:
        return by_op
    try:
        functional = functionalize(gm, example_inputs)
    except Unfunctionalizable as error:
        return OpByOp(gm, str(error), autograd=False)
    return lambda *inputs: run_functional(functional, inputs)
