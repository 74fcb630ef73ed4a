"""backend="aot_eager": the functional aten graph, run op by op. Shows whether a fault lies before
or in inductor.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from backends.autograd import OpByOp, backend_function, under_autograd, whole_or_split
from backends.registry import register_backend
from fxgraph import GraphModule
from fxgraph.aot import (
    FreedGraphsCallable,
    FunctionalGraph,
    TrainingGraph,
    Unfunctionalizable,
    decompositions,
    functionalize,
    functionalize_training,
    run_backward,
    run_flat,
    run_functional,
    training_callable,
)

# Is told what is made: a title and a functional graph.
Show = Callable[[str, GraphModule], None]


# Sums of products, which a library adds in an order of its own on some processors.
_KEPT = (torch.ops.aten.dot, torch.ops.aten.vdot, torch.ops.aten.mv)


@register_backend
@backend_function
def aot_eager(gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    return whole_or_split(gm, example_inputs, compile_whole)


def compile_shown(gm: GraphModule, example_inputs: Sequence[Any], show: Show) -> Callable[..., Any]:
    """backend="aot_eager", which shows each graph that it makes."""
    return whole_or_split(gm, example_inputs, functools.partial(compile_whole, show=show))


def compile_whole(
    gm: GraphModule, example_inputs: Sequence[Any], show: Show = lambda title, graph: None
) -> Callable[..., Any]:
    """The graph in one piece; an OpByOp where that is not possible."""
    watched = under_autograd(gm, example_inputs, functools.partial(_training, show=show))
    if watched is not None:
        return watched
    try:
        functional = functionalize(gm, example_inputs, keep=_KEPT)
    except Unfunctionalizable as error:
        return OpByOp(gm, str(error), autograd=False)
    show("functional graph", functional.graph_module)
    return lambda *inputs: run_functional(functional, inputs)


def _training(gm: GraphModule, example_inputs: Sequence[Any], show: Show) -> Callable[..., Any]:
    # The backward's own operators stay whole, as autograd calls them.
    training = functionalize_training(gm, example_inputs, decompositions.table(_KEPT))
    if isinstance(training, FunctionalGraph):
        show("functional graph", training.graph_module)
    else:
        show("forward", training.forward.graph_module)
        show("backward", training.backward.graph_module)
    return compile_traced(training, example_inputs)


def compile_traced(
    traced: FunctionalGraph | TrainingGraph, example_inputs: Sequence[Any]
) -> Callable[..., Any]:
    """As that of backend="inductor", run op by op; nothing is kept."""
    if isinstance(traced, FunctionalGraph):
        return FreedGraphsCallable(lambda *inputs: run_functional(traced, inputs), traced.spent)
    return training_callable(traced, lambda: run_flat(traced.forward), run_backward)


aot_eager.compile_traced = compile_traced  # type: ignore[attr-defined]
