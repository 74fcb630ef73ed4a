"""The glossary names places that exist, and each of its terms once."""

from __future__ import annotations

import importlib
import re
from collections import Counter
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent.parent / "tutorials" / "internals" / "glossary.md"
ROWS = re.findall(r"^\| ([^|]+) \| ([^|]+) \| `([\w.]+)` \|$", PAGE.read_text(), re.MULTILINE)


def look_up(path: str) -> object:
    parts = path.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for name in parts[count:]:
            found = getattr(found, name)
        return found
    raise LookupError(path)


@pytest.mark.parametrize(("term", "meaning", "place"), ROWS, ids=[row[0] for row in ROWS])
def test_each_place_exists(term, meaning, place):
    look_up(place)
    assert meaning.endswith(".") and meaning[:-1].count(". ") == 0, "one sentence"


def test_rows_are_well_formed_and_terms_named_once():
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    heads = sum(line.startswith(("| term |", "| --- |")) for line in lines)
    assert len(lines) - heads == len(ROWS) > 50
    assert max(Counter(term for term, _, _ in ROWS).values()) == 1
