"""The pages for newcomers (tutorials/internals/): their code runs and prints the text that they
show, and the places that they name exist.

The ```python blocks of a page are one program; a ```text block below one is its printed output.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import itertools
import linecache
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import dynamo
from dynamo import directives
from dynamo.bytecode import opcodes
from dynamo.interp import registry
from dynamo.values import builder
from dynamo.values.builtins import table as builtins
from inductor.lowering.registry import LOWERINGS
from tests.dynamo import capturing
from tests.dynamo.test_glossary import look_up

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "tutorials" / "internals"
PAGES = sorted(path for path in FOLDER.glob("*.md") if path.name != "glossary.md")
# What the pages register things in.
TABLES = [registry.HANDLERS, builtins.TABLE, builder.BUILDERS, opcodes.CANONICAL, LOWERINGS]


@pytest.fixture
def unchanged_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a page registers ends with it, also on disk: plans are kept by their graph."""
    monkeypatch.setenv("DYNAMO_CACHE_DIR", str(tmp_path))
    importlib.import_module("inductor.lowering.graph")  # these fill their tables when first used
    dynamo.compile(lambda x: -x, backend="eager")(torch.zeros(1))
    before = [dict(table) for table in TABLES]
    yield
    for table, rows in zip(TABLES, before):
        table.clear()
        table.update(rows)
    dynamo.reset()


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """(the code, its printed output) of each example, at its own lines of the page."""
    text = page.read_text()
    pattern = r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?"
    for found in re.finditer(pattern, text, re.MULTILINE | re.DOTALL):
        above = text.count("\n", 0, found.start(1))
        yield "\n" * above + found[1], found[2] or ""


def run(page: Path) -> None:
    linecache.cache[str(page)] = (0, None, page.read_text().splitlines(True), str(page))
    names: dict[str, object] = {"__name__": page.stem}
    for code, expected in blocks(page):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, str(page), "exec"), names)
        assert printed.getvalue() == expected, code.strip()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_of_a_page(page: Path, unchanged_tables: None) -> None:
    assert len(list(blocks(page))) >= 2
    run(page)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_places_that_a_page_names(page: Path) -> None:
    prose = re.sub(r"^```.*?^```\n", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    files = re.findall(r"`((?:\w+/)+(?:[\w.]+)?)`", prose)
    places = re.findall(r"`((?:dynamo|fxgraph|inductor)(?:\.\w+)+)`", prose)
    assert len(files) + len(places) >= 5
    missing = [name for name in files if not (ROOT / name).exists()]
    assert not missing
    for place in places:
        look_up(place)


def test_the_readme_links_each_page() -> None:
    readme = (ROOT / "README.md").read_text()
    assert PAGES
    assert not [page.name for page in PAGES if f"tutorials/internals/{page.name}" not in readme]


def batched(iterable, n):
    """itertools.batched of 3.12, as an extension brings it to 3.11: not to be captured."""
    sys.getswitchinterval()
    iterator = iter(iterable)
    while row := tuple(itertools.islice(iterator, n)):
        yield row


def rows(x, items, n):
    taken = batched(items, n)
    first = next(taken)
    return x * first[0], list(taken), next(taken, "none left")


def test_an_iterator_is_added_by_a_polyfill_alone() -> None:
    """The one place that knows of it is its polyfill."""
    arguments = torch.ones(2), [1, 2, 3, 4, 5], 2
    capturing.check(rows, *arguments, breaks=["UNCAPTURED_CALL"])

    @dynamo.substitute_in_graph(batched)
    def polyfill(iterable, n):
        row = []
        for item in iterable:
            row.append(item)
            if len(row) == n:
                yield tuple(row)
                row = []
        if row:
            yield tuple(row)

    try:
        capturing.check(rows, *arguments, ops=[1])
        capturing.check(rows, torch.ones(2), (1, 2, 3, 4), 4, ops=[1])
    finally:
        directives.SUBSTITUTES.pop(id(batched))
