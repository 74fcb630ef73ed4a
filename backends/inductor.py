"""backend="inductor": fused C++ and Triton kernels; the default.

The function carries `options` (name -> (default, meaning)) and `modes` (name -> the options it
sets), which dynamo.compile checks. The modes differ in what they do on devices; on CPUs they are
alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from backends.autograd import OpByOp, under_autograd, whole_or_split
from backends.registry import register_backend
from fxgraph import GraphModule
from fxgraph.aot import Unfunctionalizable
from inductor.options import describe


@register_backend
def inductor(
    gm: GraphModule, example_inputs: Sequence[Any], *, options: dict[str, Any] | None = None
) -> Callable[..., Any]:
    """`options`: see dynamo.list_options(). A graph that cannot be made functional, or that works
    with gradients itself, runs op by op; explain shows the reason.
    """
    import inductor as compiler  # the package, which this function shares its name with

    def training(gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        return compiler.compile_training(gm, example_inputs, options=options)

    def whole(gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        watched = under_autograd(gm, example_inputs, training)
        if watched is not None:
            return watched
        try:
            return compiler.compile_graph(gm, example_inputs, options=options)
        except Unfunctionalizable as error:
            return OpByOp(gm, str(error), autograd=False)

    return whole_or_split(gm, example_inputs, whole)


inductor.options = describe()  # type: ignore[attr-defined]
inductor.modes = {  # type: ignore[attr-defined]
    "default": {},
    "reduce-overhead": {},
    "max-autotune": {},
    "max-autotune-no-cudagraphs": {},
}
