"""The shared language of graphs: nodes, graphs, modules made of them, and passes over them."""

from fxgraph.args import map_aggregate
from fxgraph.graph import Graph
from fxgraph.graph_module import GraphModule
from fxgraph.interpreter import Interpreter
from fxgraph.node import Node, map_arg
from fxgraph.tracer import Proxy, TraceError, Tracer, symbolic_trace
from fxgraph.verify import GraphError, verify

__all__ = [
    "Graph",
    "GraphError",
    "GraphModule",
    "Interpreter",
    "Node",
    "Proxy",
    "TraceError",
    "Tracer",
    "map_aggregate",
    "map_arg",
    "symbolic_trace",
    "verify",
]
