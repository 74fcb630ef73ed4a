"""The script of mutations (tests/mutations.py) and the one of covered lines (tools/)."""

from __future__ import annotations

import coverage
import pytest

from tests import mutations
from tools import covered_lines

SOURCE = b'''"""A text."""
LIMIT = 3

def \xc3\xa4(x: int = 1) -> list[int]:
    if (x) is not LIMIT:
        x.pop()
    return [x + 2] if x not in (7,) else [f"{x + 5}"]
'''


def test_mutations_of_a_file():
    found = list(mutations.mutations_of("a.py", SOURCE))
    lines = [(m.line, m.kind, m.apply(SOURCE).decode().splitlines()[m.line - 1]) for m in found]
    assert lines == [
        (5, "condition", "    if (not ((x) is not LIMIT)):"),
        (5, "comparison", "    if (x) is LIMIT:"),
        (6, "dropped statement", "        pass"),
        (7, "condition", '    return [x + 2] if (not (x not in (7,))) else [f"{x + 5}"]'),
        (7, "comparison", '    return [x + 2] if x in (7,) else [f"{x + 5}"]'),
        (7, "constant", '    return [x + 2] if x not in (8,) else [f"{x + 5}"]'),
        (7, "constant", '    return [x + 3] if x not in (7,) else [f"{x + 5}"]'),
    ]


def test_the_same_seed_samples_the_same_and_each_compiles():
    sample = mutations.sample(5, 40, "dynamo/guards")
    assert sample == mutations.sample(5, 40, "dynamo/guards") != mutations.sample(6, 40, "dynamo")
    for mutation in sample:
        source = (mutations.ROOT / mutation.path).read_bytes()
        assert mutation.apply(source) != source
        compile(mutation.apply(source), mutation.path, "exec")


@pytest.mark.parametrize("group", mutations.TESTS)
def test_mapped_tests_exist(group):
    tests = mutations.tests_of(f"{group}/no_such.py")
    assert len(tests) > 2
    assert [name for name in tests if not (mutations.ROOT / name).is_file()] == []


def test_covered_lines_are_counted(tmp_path):
    room = covered_lines.ROOT / "fxgraph" / "passes"
    measured = coverage.Coverage(data_file=tmp_path / "data", config_file=False)
    path = str(room / "__init__.py")
    measured.get_data().add_lines({path: []})
    counts = covered_lines.line_counts(measured, by_file=False)
    assert set(counts) == {("fxgraph/passes", "lines"), ("fxgraph/passes", "missing")}
    assert counts["fxgraph/passes", "lines"] == counts["fxgraph/passes", "missing"] > 0
