"""Programs of tests/dynamo/differential.py whose number of graphs is asserted exactly."""

from __future__ import annotations

from tests.dynamo import differential


def run_both(text: str, backend: str = "eager") -> tuple[int, list[str]]:
    """Run a program eagerly and compiled, and compare after each step: (graphs, break codes)."""
    records = differential.check(text, graphs=False, backends=(backend,))
    codes = [broken.code for record in records for broken in record.breaks]
    return sum(len(record.graphs) for record in records), sorted(set(codes))


def check(text: str, graphs: int, codes: str = "", backend: str = "eager") -> None:
    """Eager and compiled agree, with this many graphs, and breaks of exactly these codes."""
    found, broken = run_both(text, backend)
    assert (found, broken) == (graphs, sorted(codes.split())), f"{found} graphs, {broken}"
