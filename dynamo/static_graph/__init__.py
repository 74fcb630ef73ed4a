"""dynamo.Graph: a program of modules, losses and optimizers as one static graph. The room stands on
the compile pipeline: nothing below imports it.

    graph.py      the class that users derive from
    state.py      its state: optimizers, settings, the compiled step
    step.py       the function that is captured
    scaling.py    the same through a GradScaler
    signature.py  the inputs that a graph was built for
    config.py     settings
    hooks.py      the calls of capture while a graph is built
    printing.py   print(graph)
"""

from dynamo.static_graph.config import GraphConfig
from dynamo.static_graph.graph import Graph

__all__ = ["Graph", "GraphConfig"]
