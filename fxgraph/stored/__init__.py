"""Functional graphs as plain data, and back: the form in which saved programs hold them.

Data is of JSON's types. Nothing in it names code: operators are looked up in the dispatcher, by
name, in a few namespaces and those that a reader names; numbers' functions in a table. Shapes are
not read from data but computed again, by the operators' own rules, so that data that contradicts
itself is refused before a kernel is made for it.
"""

from fxgraph.stored.errors import StoredError
from fxgraph.stored.expressions import evaluator, from_data, to_data
from fxgraph.stored.graphs import GraphReader, GraphWriter, foreign_namespaces, sharing_of
from fxgraph.stored.symbols import assumed, env_from_data, env_to_data

__all__ = [
    "GraphReader",
    "GraphWriter",
    "StoredError",
    "assumed",
    "env_from_data",
    "env_to_data",
    "evaluator",
    "foreign_namespaces",
    "from_data",
    "sharing_of",
    "to_data",
]
