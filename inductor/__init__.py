"""The default backend: a functional aten graph becomes a plan of fused kernels and aten calls.

compiled = inductor.compile_graph(gm, example_inputs)
compiled(*inputs_that_are_not_static)
"""

from inductor.options import Options, names
from inductor.pipeline import compile_graph, compile_traced, compile_training, trace

__all__ = ["Options", "compile_graph", "compile_traced", "compile_training", "names", "trace"]
