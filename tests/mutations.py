"""Mutations of the product: changes of one place each, of which the tests should notice all.

    make coverage                                    # records which test executes which line
    python -m tests.mutations --count 300 --seed 1   # a sample of dynamo, fxgraph, inductor
    python -m tests.mutations --folder inductor/schedule --count 20

Each mutant is made in a copy of the tree and gets at most FIRST of the tests that execute its line:
the half that enters fewest files, and a sample of the others; if all pass, at most MORE. Tests run
in a fork of this process, which has imported the libraries: a kill takes 2 to 6 s. Printed are each
mutant, place and change, and a table for each folder. A test run that fails, cannot start or takes
too long kills. The same seed, count and folder give the same mutants as long as the sources are the
same; sources changed since `make coverage` have their lines elsewhere.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import gc
import importlib
import os
import random
import re
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NoReturn

import coverage
import pytest
from tabulate import tabulate

ROOT = Path(__file__).parent.parent
FOLDERS = ("dynamo", "fxgraph", "inductor")
SECONDS = 300  # for the tests of one mutant
FIRST, MORE = 40, 400  # tests of one mutant
DATA = ROOT / "build" / "coverage" / "data"
# Not run: no test executes the line. Unclear: the tests fail without the mutation, too.
OUTCOMES = ("killed", "survived", "not run", "unclear")

_COPIED = (*FOLDERS, "backends", "tests", "tools", "tutorials", "benchmarks")
# Nothing of the tree's: each fork imports the copy.
_LIBRARIES = ("torch._dynamo", "torch.testing", "torch.fx", "hypothesis", "xdist", "pytest_timeout")
_SWAPPED: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="), ast.GtE: (">=", ">"), ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"), ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"),
}  # fmt: skip
_FAILED = re.compile("FAILED |ERROR ").match
_NOT_EXECUTED = ("decorator_list", "annotation", "returns")  # by tests of their own


@dataclass(frozen=True)
class Mutation:
    """source[start:end] of a file becomes `text`."""

    path: str
    line: int
    statement: range  # the lines of the innermost statement, of a compound one without its body
    kind: str
    start: int
    end: int
    text: str

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.text.encode() + source[self.end :]

    def __str__(self) -> str:
        before = (ROOT / self.path).read_bytes()[self.start : self.end].decode()
        short = " ".join(before.split())
        return f"{self.path}:{self.line}: {self.kind}: {short[:60]} -> {self.text[:60]}"


def mutations_of(path: str, source: bytes) -> Iterator[Mutation]:
    """All mutations inside the functions of a file, in their order."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def span(node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        start = starts[node.lineno - 1] + node.col_offset
        return start, starts[node.end_lineno - 1] + node.end_col_offset

    lines = range(0)

    def mutation(node: ast.expr | ast.stmt, kind: str, text: str) -> Mutation:
        return Mutation(path, node.lineno, lines, kind, *span(node), text)

    def text_of(node: ast.expr) -> str:
        start, end = span(node)
        return source[start:end].decode()

    def visit(node: ast.AST, inside: bool) -> Iterator[Mutation]:
        nonlocal lines
        if isinstance(node, ast.stmt):
            lines = _header(node)
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.If) and _for_types(node)):
            return  # positions in texts depend on the version; never executed
        if inside:
            if isinstance(node, ast.Compare) and len(node.ops) == 1:
                old, new = _SWAPPED[type(node.ops[0])]
                between = span(node.left)[1], span(node.comparators[0])[0]
                text = source[slice(*between)].decode()  # parentheses, too
                if text.count(old) == 1:
                    changed = text.replace(old, new)
                    yield Mutation(path, node.lineno, lines, "comparison", *between, changed)
            if _is_droppable(node):
                yield mutation(node, "dropped statement", "pass")  # type: ignore[arg-type]
            if isinstance(node, ast.Constant) and type(node.value) in (int, bool):
                value = not node.value if type(node.value) is bool else node.value + 1
                yield mutation(node, "constant", repr(value))
            if isinstance(node, ast.If | ast.While | ast.IfExp):
                yield mutation(node.test, "condition", f"(not ({text_of(node.test)}))")
        inner = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for name, child in ast.iter_fields(node):
            for part in child if isinstance(child, list) else [child]:
                if isinstance(part, ast.AST) and name not in _NOT_EXECUTED:
                    yield from visit(part, inside or (inner and name == "body"))

    yield from visit(ast.parse(source), False)


def _header(node: ast.stmt) -> range:
    assert node.end_lineno is not None
    body = getattr(node, "body", None)
    return range(node.lineno, max(body[0].lineno, node.lineno + 1) if body else node.end_lineno + 1)


def _for_types(node: ast.If) -> bool:
    return "TYPE_CHECKING" in ast.unparse(node.test)


def _is_droppable(node: ast.AST) -> bool:
    """A statement for its effect, whose absence leaves no name unbound."""
    if isinstance(node, ast.Assign):
        return not any(isinstance(t, ast.Name | ast.Tuple) for t in node.targets)
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call)
    return isinstance(node, ast.AugAssign | ast.Raise | ast.Delete | ast.Continue)


def sample(seed: int, count: int, folder: str | None) -> list[Mutation]:
    """`count` mutations, each of a place of its own, ordered by place."""
    folders = [folder] if folder else FOLDERS
    paths = sorted(path for name in folders for path in (ROOT / name).rglob("*.py"))
    found = [
        mutation
        for path in paths
        for mutation in mutations_of(path.relative_to(ROOT).as_posix(), path.read_bytes())
    ]
    chosen = random.Random(seed).sample(found, min(count, len(found)))
    return sorted(chosen, key=lambda mutation: (mutation.path, mutation.start))


def group_of(path: str) -> str:
    """The row of the table for a file: its folder, of two levels at most."""
    return "/".join(Path(path).parts[:-1][:2])


class Covered:
    """Which tests executed a line, by the data of `make coverage`."""

    def __init__(self, data: Path) -> None:
        self.data = coverage.CoverageData(str(data))
        self.data.read()
        with closing(sqlite3.connect(data)) as tables:  # of which CoverageData gives no counts
            self.files: dict[str, int] = dict(
                tables.execute(
                    "select context, count(*) from line_bits join context"
                    " on context.id = line_bits.context_id group by context"
                )
            )

    @cache
    def _tests(self, path: str) -> dict[int, list[str]]:
        return self.data.contexts_by_lineno(str(ROOT / path))

    def tests_of(self, mutation: Mutation, most: int) -> list[str]:
        """At most so many tests that execute the statement: first those that enter few files."""
        by_line = self._tests(mutation.path)
        tests = {test for line in mutation.statement for test in by_line.get(line, ()) if test}
        ordered = sorted(tests, key=lambda test: (self.files[test], test))
        narrow, others = ordered[: most // 2], ordered[most // 2 :]
        some = random.Random(0).sample(others, min(most - len(narrow), len(others)))
        return narrow + some


class Copy:
    """A copy of the tree, with a cache folder of its own: no mutant's plan outlives it."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "tree"
        self.cache = folder / "cache"
        for name in _COPIED:
            shutil.copytree(
                ROOT / name, self.root / name, ignore=shutil.ignore_patterns("__pycache__")
            )
        for name in ("pyproject.toml", "README.md", "CONTRIBUTING.md", "Makefile"):
            shutil.copy(ROOT / name, self.root / name)
        compileall.compile_dir(self.root, quiet=2)
        for name in _LIBRARIES:
            importlib.import_module(name)
        gc.collect()
        gc.freeze()

    def fails(self, tests: list[str]) -> list[str]:
        """No tests if all pass; the one that failed first; or all, if pytest ended otherwise."""
        shutil.rmtree(self.cache, ignore_errors=True)
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            if (process := os.fork()) == 0:
                self._run(tests, output.fileno())
            status = _status_of(process, SECONDS)
            output.seek(0)
            said = [line.strip().partition(" ")[2] for line in output if _FAILED(line)]
        failed = [test for test in tests if any(f"{line} ".startswith(f"{test} ") for line in said)]
        return failed or tests if status else []

    def _run(self, tests: list[str], output: int) -> NoReturn:
        """Run the tests in this process, a fork, and end it."""
        status = 1
        try:
            os.setsid()
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.chdir(self.root)
            os.environ |= {"DYNAMO_CACHE_DIR": str(self.cache), "PYTHONPATH": str(self.root)}
            os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
            sys.dont_write_bytecode = True
            sys.path.insert(0, str(self.root))
            for name in [name for name in sys.modules if name.partition(".")[0] in _COPIED]:
                del sys.modules[name]
            status = int(pytest.main(["-x", "-q", "-n", "0", "-rfE", "--tb=no", *tests]))
        finally:
            sys.stdout.flush()
            os._exit(status)

    def outcome(self, mutation: Mutation, tests: list[str]) -> str:
        path = self.root / mutation.path
        source, stat = path.read_bytes(), path.stat()
        try:
            path.write_bytes(mutation.apply(source))
            failed = self.fails(tests) if tests else []
        finally:
            path.write_bytes(source)
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # as its bytecode says
        if failed:
            return "unclear" if self.fails(failed) else "killed"
        return "survived" if tests else "not run"


def _status_of(process: int, seconds: float) -> int:
    """The status that a process ends with; one that takes longer is killed, with its children."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.05)
    os.killpg(process, signal.SIGKILL)
    return os.waitpid(process, 0)[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--folder", help="of dynamo, fxgraph or inductor, such as dynamo/guards")
    parser.add_argument("--list", action="store_true", help="print the mutations, run nothing")
    options = parser.parse_args()
    chosen = sample(options.seed, options.count, options.folder)
    if options.list:
        print(*chosen, sep="\n")
        return 0
    if not DATA.is_file():
        print(f"no {DATA.relative_to(ROOT)}: run `make coverage` first", file=sys.stderr)
        return 1
    covered = Covered(DATA)
    results: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder))
        for mutation in chosen:
            tests = covered.tests_of(mutation, FIRST)
            outcome = copy.outcome(mutation, tests)
            if outcome == "survived" and len(tests) == FIRST:
                tests = covered.tests_of(mutation, MORE)
                outcome = copy.outcome(mutation, tests)
            results[group_of(mutation.path), outcome] += 1
            print(f"{outcome:8} {len(tests):3}", mutation, flush=True)
    groups = sorted({group for group, _ in results})
    rows = [[group, *(results[group, outcome] for outcome in OUTCOMES)] for group in groups]
    rows.append(["in all", *(sum(row[i] for row in rows) for i in range(1, len(OUTCOMES) + 1))])
    print(tabulate(rows, headers=["folder", *OUTCOMES]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
