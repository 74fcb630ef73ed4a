"""Reads our sources: import arrows, names of torch's compiler, version checks, break codes."""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.children import run_script

ROOT = Path(__file__).parent.parent
ROOMS = ("dynamo", "fxgraph", "inductor", "backends")
# room -> rooms that it may import
ARROWS = {
    "fxgraph": set(),
    "dynamo": {"fxgraph"},
    "inductor": {"fxgraph"},
    "backends": {"fxgraph", "inductor"},
}
TORCH_COMPILER = ("torch.fx", "torch._dynamo", "torch._inductor", "torch._functorch._aot_autograd",
                  "torch._functorch.aot_autograd")  # fmt: skip
MAY_NAME_TORCH_COMPILER = {"fxgraph/torch_fx.py", "backends/bridge.py", "backends/torch_symbols.py"}
MAY_CHECK_VERSIONS = {"dynamo/bytecode/versions.py"}


def sources() -> list[Path]:
    return sorted(p for room in ROOMS for p in (ROOT / room).rglob("*.py"))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imports(tree: ast.AST) -> list[tuple[int, str]]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.append((node.lineno, node.module))
            found += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
    return found


def dotted(node: ast.AST) -> str:
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        parts.append(node.id)
    return ".".join(reversed(parts))


class Facts(NamedTuple):
    """What the tests ask about a file, read once."""

    imports: list[tuple[int, str]]
    attributes: list[tuple[int, str]]
    docstrings: dict[str, str]  # by the name of what has it


@functools.cache
def facts(path: Path) -> Facts:
    tree = ast.parse(path.read_text())
    found = Facts(imports(tree), [], {})
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            found.attributes.append((node.lineno, dotted(node)))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)):
            place = f"{getattr(node, 'lineno', 0)} {getattr(node, 'name', 'the module')}"
            found.docstrings[place] = ast.get_docstring(node) or ""
    return found


def names_one_of(name: str, modules: tuple[str, ...]) -> bool:
    return any(name == module or name.startswith(module + ".") for module in modules)


@pytest.mark.parametrize("path", sources(), ids=relative)
def test_import_arrows(path):
    room = path.relative_to(ROOT).parts[0]
    for line, name in facts(path).imports:
        other = name.split(".")[0]
        if other in ROOMS and other != room:
            lazily_named = (
                room == "dynamo" and other == "backends" and relative(path) in BACKEND_LOOKUP
            )
            assert other in ARROWS[room] or lazily_named, f"{relative(path)}:{line} imports {name}"


def test_docstrings_begin_with_a_noun_or_a_verb():
    """Results are named ("The tensors that ...", "Whether ..."), actions commanded ("Emit ...")."""
    for path in sources():
        for place, text in facts(path).docstrings.items():
            assert text.split(" ")[0] not in VAGUE_WORDS, f"{relative(path)}: {place}"


VAGUE_WORDS = ("It", "One", "That", "These", "They", "This", "Those", "What", "Which", "Who")


def test_comments_begin_with_a_noun_or_a_verb():
    """A comment says what it is about; "One", the number, may begin it."""
    words = "|".join(word for word in VAGUE_WORDS if word != "One")
    begins_so = re.compile(rf"^(?!\s*#).*\n\s*# (?:{words}) .*", re.MULTILINE)
    for path in sources():
        found = [match[0].split("\n")[1] for match in begins_so.finditer(path.read_text())]
        assert not found, f"{relative(path)}: {found}"


# "dynamo receives a backend as a plain callable; its name is resolved lazily, in one place."
BACKEND_LOOKUP = {"dynamo/api/compile.py", "dynamo/__init__.py"}


@pytest.mark.parametrize("path", sources(), ids=relative)
def test_only_the_bridges_name_torchs_compiler(path):
    if relative(path) in MAY_NAME_TORCH_COMPILER:
        return
    for line, name in facts(path).imports:
        assert not names_one_of(name, TORCH_COMPILER), f"{relative(path)}:{line} imports {name}"
    for line, name in facts(path).attributes:
        assert not names_one_of(name, TORCH_COMPILER), f"{relative(path)}:{line} uses {name}"


@pytest.mark.parametrize("path", sources(), ids=relative)
def test_version_checks_stand_in_one_file(path):
    if relative(path) in MAY_CHECK_VERSIONS:
        return
    for line, name in facts(path).attributes:
        assert name not in ("sys.version_info", "sys.hexversion"), f"{relative(path)}:{line}"


def test_every_package_is_installed():
    """An installation has what a checkout has: pyproject.toml names each folder with sources."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    folders = {relative(path.parent).replace("/", ".") for path in sources()}
    assert set(settings["tool"]["setuptools"]["packages"]) == folders


def test_version_checks_in_c_stand_in_compat_headers():
    for path in (ROOT / "dynamo" / "csrc").glob("*"):
        if path.suffix in (".c", ".cpp", ".h") and not path.name.endswith("compat.h"):
            assert "PY_VERSION_HEX" not in path.read_text(), relative(path)


def test_importing_us_loads_no_torch_compiler():
    rooms = [room for room in ROOMS if (ROOT / room / "__init__.py").exists()]
    program = (
        f"import sys, {', '.join(rooms)}, fxgraph.torch_fx, fxgraph.aot\n"
        "print([m for m in sys.modules if m in ('torch._dynamo', 'torch._inductor')])"
    )
    done = run_script(program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_functionalising_loads_no_torch_compiler():
    program = """
import sys, torch, fxgraph
from fxgraph.aot import functionalize
net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4),
                          torch.nn.Hardswish(True), torch.nn.Flatten(), torch.nn.Linear(16, 4),
                          torch.nn.LayerNorm(4))
net.eval().requires_grad_(False)
functionalize(fxgraph.symbolic_trace(net), [torch.ones(1, 3, 4, 4)])
print([m for m in sys.modules if m in ('torch._dynamo', 'torch._inductor')])
"""
    done = run_script(program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_break_codes_are_unique():
    from dynamo import breaks

    reasons = [
        value
        for value in vars(breaks).values()
        if isinstance(value, type) and issubclass(value, breaks.Break) and value is not breaks.Break
    ]
    codes = [reason.code for reason in reasons]
    assert len(codes) == len(set(codes))
    assert all(code == code.upper() and reason.hint for code, reason in zip(codes, reasons))
