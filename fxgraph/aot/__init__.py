"""Torch-level graphs to functional aten graphs, and how to run those."""

from fxgraph.extensions import require

require("fxgraph.aot._autograd")  # before anything below loads it

from fxgraph.aot import decompositions  # noqa: E402
from fxgraph.aot.freed_graphs import FreedGraphsCallable  # noqa: E402
from fxgraph.aot.functional import (  # noqa: E402
    FunctionalGraph,
    MutatedInput,
    OutputSpec,
    TrainingGraph,
    UndifferentiableHere,
    Unfunctionalizable,
    asks_for_gradients,
    needs_autograd,
)
from fxgraph.aot.functionalize import functionalize  # noqa: E402
from fxgraph.aot.joint import functionalize_training  # noqa: E402
from fxgraph.aot.runtime import run_functional  # noqa: E402
from fxgraph.aot.training import run_backward, run_flat, training_callable  # noqa: E402

__all__ = [
    "FreedGraphsCallable",
    "FunctionalGraph",
    "MutatedInput",
    "OutputSpec",
    "TrainingGraph",
    "UndifferentiableHere",
    "Unfunctionalizable",
    "asks_for_gradients",
    "decompositions",
    "functionalize",
    "functionalize_training",
    "needs_autograd",
    "run_backward",
    "run_flat",
    "run_functional",
    "training_callable",
]
