"""Passes over graphs. cse and dce change a graph in place and return whether they did."""

from fxgraph.passes.cse import cse
from fxgraph.passes.dce import dce
from fxgraph.passes.known_masks import known_masks

__all__ = ["cse", "dce", "known_masks"]
