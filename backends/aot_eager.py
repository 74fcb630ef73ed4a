"""backend="aot_eager": the functional aten graph, run op by op. Shows whether a fault lies before
or in inductor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from backends.autograd import OpByOp, under_autograd, whole_or_split
from backends.registry import register_backend
from fxgraph import GraphModule
from fxgraph.aot import (
    FunctionalGraph,
    SpentCallable,
    Unfunctionalizable,
    decompositions,
    functionalize,
    functionalize_training,
    run_backward,
    run_flat,
    run_functional,
    training_callable,
)


@register_backend
def aot_eager(gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    return whole_or_split(gm, example_inputs, _whole)


def _whole(gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    watched = under_autograd(gm, example_inputs, _training)
    if watched is not None:
        return watched
    try:
        functional = functionalize(gm, example_inputs)
    except Unfunctionalizable as error:
        return OpByOp(gm, str(error), autograd=False)
    return lambda *inputs: run_functional(functional, inputs)


def _training(gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    # The backward's own operators stay whole, as autograd calls them.
    training = functionalize_training(gm, example_inputs, decompositions.table())
    if isinstance(training, FunctionalGraph):
        return SpentCallable(lambda *inputs: run_functional(training, inputs), training.spent)
    return training_callable(training, run_flat(training.forward), run_backward)
