"""The script of mutations (tests/mutations.py) and the one of covered lines (tools/)."""

from __future__ import annotations

import coverage

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


LINES = b"""def f(x):
    if x > (
        1
    ):
        g(x,
          2)
    else:
        h(3)
"""


def test_a_mutant_gets_the_tests_that_execute_its_statement(tmp_path):
    path = "dynamo/no_such.py"
    recorded = coverage.CoverageData(str(tmp_path / "data"))
    for test, lines in {"wide": {2, 3, 5}, "narrow": {2, 5}, "other": {8}, "": {2, 8}}.items():
        recorded.set_context(test)
        files = [path, "dynamo/another.py"] if test == "wide" else [path]
        recorded.add_lines({str(mutations.ROOT / name): lines for name in files})
    recorded.close()
    covered = mutations.Covered(tmp_path / "data")
    found = {(m.kind, m.line): covered.tests_of(m, 9) for m in mutations.mutations_of(path, LINES)}
    assert found == {
        ("condition", 2): ["narrow", "wide"],
        ("comparison", 2): ["narrow", "wide"],
        ("constant", 3): ["narrow", "wide"],
        ("dropped statement", 5): ["narrow", "wide"],
        ("constant", 6): ["narrow", "wide"],
        ("dropped statement", 8): ["other"],
        ("constant", 8): ["other"],
    }
    assert len(covered.tests_of(next(mutations.mutations_of(path, LINES)), 1)) == 1


def test_covered_lines_are_counted(tmp_path):
    room = covered_lines.ROOT / "fxgraph" / "passes"
    measured = coverage.Coverage(data_file=tmp_path / "data", config_file=False)
    path = str(room / "__init__.py")
    measured.get_data().add_lines({path: []})
    counts = covered_lines.line_counts(measured, by_file=False)
    assert set(counts) == {("fxgraph/passes", "lines"), ("fxgraph/passes", "missing")}
    assert counts["fxgraph/passes", "lines"] == counts["fxgraph/passes", "missing"] > 0
