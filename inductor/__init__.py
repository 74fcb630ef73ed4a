"""The default backend: a functional aten graph becomes a plan of fused kernels and aten calls.

compiled = inductor.compile_graph(gm, example_inputs)
compiled(*inputs_that_are_not_static)
"""

from inductor.options import Options
from inductor.pipeline import compile_graph, compile_traced, compile_training, trace
from inductor.programs import compile_named, recall_named

__all__ = [
    "Options",
    "compile_graph",
    "compile_named",
    "compile_traced",
    "compile_training",
    "recall_named",
    "trace",
]
