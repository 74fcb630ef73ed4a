"""Programs of tests/dynamo/differential.py whose number of graphs is asserted exactly."""

from __future__ import annotations

import ast
import itertools
import linecache
import textwrap
import warnings

import torch
from torch.utils.hooks import RemovableHandle

import dynamo
from tests.dynamo.differential import World, assert_same

_numbers = itertools.count()


def run_both(text: str, backend: str = "eager") -> tuple[int, list[str]]:
    """Run a program eagerly and compiled, and compare after each step: (graphs, break codes)."""
    definitions, _, steps = textwrap.dedent(text).partition("\n---\n")
    filename = f"<objects {next(_numbers)}>"
    lines = definitions.splitlines(keepends=True)
    linecache.cache[filename] = (len(definitions), None, lines, filename)
    statements = ast.parse(steps).body
    assert statements, "a program without steps"
    _same_start()
    eager = World(definitions, filename, None)
    expected = [eager.step(statement) for statement in statements]
    dynamo.reset()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _same_start()
        world = World(definitions, filename, backend)
        for statement, wanted in zip(statements, expected):
            assert_same(wanted, world.step(statement), ast.unparse(statement))
    faults = [str(w.message) for w in caught if "a fault " in str(w.message)]
    assert not faults, faults[0]
    records = world.run.context.records
    codes = [broken.code for record in records for broken in record.breaks]
    return sum(len(record.graphs) for record in records), sorted(set(codes))


def _same_start() -> None:
    """The definitions of both worlds draw the same numbers and name their hooks alike."""
    torch.manual_seed(0)
    RemovableHandle.next_id = 0


def check(text: str, graphs: int, codes: str = "", backend: str = "eager") -> None:
    """Eager and compiled agree, with this many graphs, and breaks of exactly these codes."""
    found, broken = run_both(text, backend)
    assert (found, broken) == (graphs, sorted(codes.split())), f"{found} graphs, {broken}"
