"""Passes over graphs. Each changes the graph in place and returns whether it did."""

from fxgraph.passes.constant_folding import constant_folding
from fxgraph.passes.cse import cse
from fxgraph.passes.dce import dce

__all__ = ["constant_folding", "cse", "dce"]
