"""The map of subjects (tests/README.md) has each test file, and names nothing that is not there."""

from __future__ import annotations

import ast
import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
FILES = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("test_*.py"))
MAP = (FOLDER / "README.md").read_text().split("\n## ")[0]
ROWS = [line.split("|")[1:-1] for line in MAP.splitlines() if line.startswith("| ")][1:]
NAMED = re.compile("`([^`]+)`")


def patterns(names: str) -> list[str]:
    return [name if name.endswith(".py") else f"{name}.py" for name in NAMED.findall(names)]


SUBJECTS = {subject.strip(): patterns(names) for subject, names, _ in ROWS[1:]}


def test_each_test_file_has_a_subject():
    known = [pattern for found in SUBJECTS.values() for pattern in found]
    assert [name for name in FILES if not any(fnmatchcase(name, p) for p in known)] == []


@pytest.mark.parametrize("subject", SUBJECTS)
def test_each_name_of_the_map_is_there(subject):
    gone = [p for p in SUBJECTS[subject] if not any(fnmatchcase(name, p) for name in FILES)]
    assert gone == []


def test_harnesses_are_there():
    named = [name for *_, harness in ROWS[1:] for name in NAMED.findall(harness)]
    assert [name for name in named if not (FOLDER / name).is_file()] == []


def test_each_test_file_says_what_it_holds():
    texts = {name: ast.get_docstring(ast.parse((FOLDER / name).read_text())) for name in FILES}
    assert [name for name, text in texts.items() if text is None or len(text.split()) < 2] == []


PROGRAMS = FOLDER / "dynamo" / "programs"
SUBJECTS_OF_PROGRAMS = sorted({path.parent.name for path in PROGRAMS.glob("*/*.py")})


@pytest.mark.parametrize("subject", SUBJECTS_OF_PROGRAMS)
def test_each_family_of_programs_has_a_test_and_says_what_it_holds(subject):
    assert f"dynamo/programs/test_{subject}.py" in FILES
    texts = {
        p.name: ast.get_docstring(ast.parse(p.read_text()))
        for p in PROGRAMS.glob(f"{subject}/*.py")
    }
    assert [name for name, text in texts.items() if text is None or len(text.split()) < 2] == []
