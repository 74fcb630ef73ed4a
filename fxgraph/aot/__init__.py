"""Torch-level graphs to functional aten graphs, and how to run those."""

from fxgraph.aot import decompositions
from fxgraph.aot.freed_graphs import FreedGraphsCallable
from fxgraph.aot.functional import (
    FunctionalGraph,
    MutatedInput,
    OutputSpec,
    TrainingGraph,
    UndifferentiableHere,
    Unfunctionalizable,
    asks_for_gradients,
    needs_autograd,
)
from fxgraph.aot.functionalize import functionalize
from fxgraph.aot.joint import functionalize_training
from fxgraph.aot.runtime import restore_outputs, run_functional
from fxgraph.aot.training import run_backward, run_flat, training_callable

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
    "restore_outputs",
    "run_backward",
    "run_flat",
    "run_functional",
    "training_callable",
]
