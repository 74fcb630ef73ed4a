"""Torch-level graphs to functional aten graphs, and how to run those."""

from fxgraph.aot import decompositions
from fxgraph.aot.functional import (
    FunctionalGraph,
    MutatedInput,
    OutputSpec,
    Unfunctionalizable,
    needs_autograd,
)
from fxgraph.aot.functionalize import functionalize
from fxgraph.aot.runtime import restore_outputs, run_functional

__all__ = [
    "FunctionalGraph",
    "MutatedInput",
    "OutputSpec",
    "Unfunctionalizable",
    "decompositions",
    "functionalize",
    "needs_autograd",
    "restore_outputs",
    "run_functional",
]
