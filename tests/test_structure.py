"""Imports in dynamo/ only go down, from folder to folder; tools/structure.py prints the figures."""

from __future__ import annotations

import ast
import functools
import re
import sys
from pathlib import Path

import pytest

import dynamo
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


def test_modules_of_values_are_loaded_before_a_frame_needs_them(monkeypatch):
    loads = []
    monkeypatch.setattr("dynamo.interp.root.load", lambda: loads.append(len(loads)))

    def length(x):
        items = [1]
        items.append(2)  # no object from outside has been looked at
        return len(items)

    assert dynamo.compile(length, backend="eager")(0) == 2
    assert loads


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


# The classes of exceptions in dynamo/ that are no errors for users.
EXCEPTIONS = {
    "Retry": "between two attempts, or two emissions: it carries the next plan",
    "SkipFrame": "the last attempt: there is no next one, and the frame runs as it is",
    "AttemptEnded": "inside of an attempt, from where its plan stops to its root interpreter",
    "RaisedException": "an exception of the captured program",
    "Refused": "a side of a branch, a turn, or a region is none of the graph (interp/sides.py)",
    "_Refused": "an operation is not computed while capturing (values/tensors/known_tensors.py)",
    "_Seen": "the arguments that torch hands to __torch_function__ (torch/overrides.py)",
    "CannotResume": "the answer that code has no continuation at a place",
    "MisplacedNull": "the answer that bytecode is not understood",
    "NormalizeError": "the same, as users of dynamo.bytecode see it",
    "OverLimit": "an error of a backward pass within a limit of memory (static_graph/hooks.py)",
}


def test_each_control_exception_has_a_role():
    assert structure.exceptions() == sorted(EXCEPTIONS)


@functools.cache
def catching() -> dict[str, set[str]]:
    """Names in what is caught or suppressed -> the functions that do so, as file:function."""
    found: dict[str, set[str]] = {}

    def visit(node: ast.AST, place: str) -> None:
        for child in ast.iter_child_nodes(node):
            inside = place
            if isinstance(child, ast.FunctionDef):
                inside = f"{path.relative_to(structure.ROOT / 'dynamo').as_posix()}:{child.name}"
            catches = child.type if isinstance(child, ast.ExceptHandler) else None
            if isinstance(child, ast.Call) and ast.unparse(child.func) == "contextlib.suppress":
                catches = child
            for part in () if catches is None else ast.walk(catches):
                found.setdefault(ast.unparse(part), set()).add(inside)
            visit(child, inside)

    for path in structure.files():
        visit(ast.parse(path.read_text()), path.name)
    return found


def test_retry_alone_leads_from_one_attempt_to_the_next():
    trial = "framestate/attempts.py:_leave_loop"  # of a loop, after which the attempt goes on
    refusing = {"interp/sides.py:refusals", "interp/empty_regions.py:no_break_inside"}
    assert catching()["Retry"] == {
        "framestate/attempts.py:run",
        "framestate/rewrite.py:_first_run",  # from one emission to the next
        "interp/root.py:_step",  # to let it pass
        *refusing,
        trial,
    }
    assert catching()["AttemptEnded"] == {"interp/root.py:_execute", *refusing, trial}
    assert catching()["SkipFrame"] == {"api/convert.py:_captured", "interp/root.py:_step", trial}
