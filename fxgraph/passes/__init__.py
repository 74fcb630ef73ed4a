"""Passes over graphs. Each changes the graph in place and returns whether it did."""

from fxgraph.passes.cse import cse
from fxgraph.passes.dce import dce

__all__ = ["cse", "dce"]
