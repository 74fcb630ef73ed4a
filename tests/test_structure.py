"""Imports in dynamo/ only go down, from folder to folder; tools/structure.py prints the figures."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

from dynamo.values import builder, late_bound

sys.path.insert(0, str(Path(__file__).parent.parent / "tools"))
import structure

# Top to bottom. "" holds the modules of dynamo/ itself, but for those that are named.
LAYERS = (
    ("dynamo", "dynamo.__main__"),
    ("saved", "dynamo.onnx_file"),
    ("static_graph",),
    ("api",),
    ("framestate",),
    ("interp",),
    ("torch",),
    ("values",),
    ("continuations",),
    ("guards",),
    ("",),
    ("polyfills",),
    ("bytecode", "dynamo._hook", "dynamo._guards"),
    ("dynamo.errors",),
)


@pytest.fixture(scope="module")
def imports():
    return structure.all_imports()


def folder_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 2 or (structure.ROOT / "dynamo" / parts[-1]).is_dir() else ""


def layer_of(module: str) -> int:
    for name in (module, folder_of(module)):
        for number, names in enumerate(LAYERS):
            if name in names:
                return number
    raise LookupError(f"{module} stands in no folder that LAYERS names")


def test_imports_go_down(imports):
    upward = [
        f"{found.importer}:{found.line} imports {found.imported}"
        for found in imports
        if layer_of(found.imported) < layer_of(found.importer)
    ]
    assert not upward, upward


def test_no_cycle_of_imports_at_module_level(imports):
    assert structure.cycles(found for found in imports if not found.in_function) == []


def test_no_import_in_a_function_breaks_a_cycle(imports):
    assert structure.cycle_breakers(imports) == []


def test_late_bound_functions_are_those_that_are_called():
    called = set()
    for path in (structure.ROOT / "dynamo").rglob("*.py"):
        called |= set(re.findall(r"late_bound\.(?!py\b)(\w+)", path.read_text()))
    builder.load()
    assert called == set(late_bound.BOUND)


def test_type_checkers_read_the_functions_that_are_bound_late():
    builder.load()
    tree = ast.parse(Path(late_bound.__file__).read_text())
    declared = next(node for node in tree.body if isinstance(node, ast.If))
    found = {
        alias.name: node.module
        for node in declared.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert found == {name: made.__module__ for name, made in late_bound.BOUND.items()}


@pytest.mark.parametrize(
    ("imports", "expected"),
    [
        ([("a", "b"), ("b", "c")], []),
        ([("a", "b"), ("b", "a"), ("b", "c")], [["a", "b"]]),
        ([("a", "b"), ("b", "c"), ("c", "a"), ("d", "e"), ("e", "d")], [list("abc"), list("de")]),
    ],
)
def test_cycles(imports, expected):
    assert structure.cycles(structure.Import(a, b, 1, False) for a, b in imports) == expected


def test_imports_are_found(tmp_path, monkeypatch):
    monkeypatch.setattr(structure, "ROOT", tmp_path)
    (tmp_path / "dynamo").mkdir()
    path = tmp_path / "dynamo" / "one.py"
    path.write_text(
        "from typing import TYPE_CHECKING\nimport dynamo.two\nfrom dynamo import three\n"
        "if TYPE_CHECKING:\n    import dynamo.four\n\ndef f():\n    from dynamo.five import g\n"
    )
    modules = frozenset(f"dynamo.{name}" for name in ("two", "three", "four", "five"))
    found = [(i.imported, i.in_function) for i in structure.imports_of(path, modules | {"dynamo"})]
    assert found == [("dynamo.two", False), ("dynamo.three", False), ("dynamo.five", True)]


def test_imports_that_break_cycles_are_told_from_others():
    down, up = structure.Import("a", "b", 1, False), structure.Import("b", "a", 2, True)
    other = structure.Import("a", "c", 3, True)
    assert structure.cycle_breakers([down, up, other]) == [up]


def test_files_that_an_operator_or_an_iterator_touches(tmp_path, monkeypatch):
    touched = {what: len(structure.files_naming(word)) for what, word in structure.NEWEST.items()}
    assert all(0 < count <= 3 for count in touched.values()), touched
    monkeypatch.setattr(structure, "ROOT", tmp_path)
    (tmp_path / "inductor").mkdir()
    for name, text in (("a.h", "erf(x)"), ("b.py", "erfinv"), ("c.py", "x.erf"), ("d.md", "erf")):
        (tmp_path / "inductor" / name).write_text(text)
    assert structure.files_naming("erf") == ["inductor/a.h", "inductor/c.py"]
