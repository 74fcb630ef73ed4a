"""Mutations of the product: changes of one place each, of which the tests should notice all.

    python -m tests.mutations --count 300 --seed 1   # a sample of dynamo, fxgraph, inductor
    python -m tests.mutations --folder inductor/schedule --count 20

Each mutant is made in a copy of the tree and gets the tests that its folder is mapped to (TESTS),
and those whose file has the name of the mutated one. Printed are each mutant, place and change, and
a table killed / survived for each folder. A test run that fails, cannot start or takes too long
kills. The same seed, count and folder give the same mutants as long as the sources are the same.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tabulate import tabulate

ROOT = Path(__file__).parent.parent
FOLDERS = ("dynamo", "fxgraph", "inductor")
SECONDS = 300  # for the tests of one mutant

# The tests of a folder: those of the longest prefix.
TESTS: dict[str, str] = {
    "dynamo": "test_api test_logs test_plans test_breaks test_static_graph test_capture",
    "dynamo/api": "test_api test_hook test_capture test_logs test_growing",
    "dynamo/bytecode": "test_bytecode test_resume test_breaks test_capture_programs",
    "dynamo/continuations": "test_resume test_nested_breaks test_generator_breaks test_breaks "
    "test_protocol_breaks test_polyfill_breaks test_data_dependent_loops",
    "dynamo/framestate": "test_breaks test_nested_breaks test_generator_breaks test_values_breaks "
    "test_tracebacks test_plans programs/test_lifetimes",
    "dynamo/guards": "test_guards test_guards_lookups test_capture_soundness test_dynamic_policy",
    "dynamo/interp": "test_capture test_capture_programs test_nested_breaks test_checks "
    "test_data_dependent_loops test_values_breaks test_branches",
    "dynamo/polyfills": "test_values_builtins test_values_library test_polyfill_breaks",
    "dynamo/saved": "test_saved test_saved_files test_saved_inputs",
    "dynamo/static_graph": "test_static_graph test_static_graph_debug test_static_graph_training",
    "dynamo/torch": "test_torch_functions test_torch_overrides test_torch_tensors test_torch_modes "
    "test_autograd_features test_transforms test_values_modules",
    "dynamo/values": "test_values_builtins test_values_containers test_values_iterators "
    "test_values_library test_values_modules test_values_objects test_mutations test_values_breaks",
    "fxgraph": "test_graph test_passes test_serialize test_tracer",
    "fxgraph/aot": "test_functionalize test_training test_training_writes test_min_cut test_split "
    "test_training_memory test_shape_rules test_symbolic_rules",
    "inductor": "test_programs test_pipeline test_plan test_products test_layouts test_cache",
    "inductor/codegen": "test_cpp test_lowering test_triton test_panels",
    "inductor/lowering": "test_lowering test_scatter test_strided test_empty test_random",
    "inductor/runtime": "test_toolchain test_cache test_plan test_choices test_memory",
    "inductor/schedule": "test_schedule test_memory test_programs test_layouts test_data_sizes",
}  # fmt: skip
_COPIED = (*FOLDERS, "backends", "tests", "tools", "tutorials", "benchmarks")
_SWAPPED: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="), ast.GtE: (">=", ">"), ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"), ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"),
}  # fmt: skip
_NOT_EXECUTED = ("decorator_list", "annotation", "returns")  # by tests of their own


@dataclass(frozen=True)
class Mutation:
    """source[start:end] of a file becomes `text`."""

    path: str
    line: int
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

    def mutation(node: ast.expr | ast.stmt, kind: str, text: str) -> Mutation:
        return Mutation(path, node.lineno, kind, *span(node), text)

    def text_of(node: ast.expr) -> str:
        start, end = span(node)
        return source[start:end].decode()

    def visit(node: ast.AST, inside: bool) -> Iterator[Mutation]:
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.If) and _for_types(node)):
            return  # positions in texts depend on the version; never executed
        if inside:
            if isinstance(node, ast.Compare) and len(node.ops) == 1:
                old, new = _SWAPPED[type(node.ops[0])]
                between = span(node.left)[1], span(node.comparators[0])[0]
                text = source[slice(*between)].decode()  # parentheses, too
                if text.count(old) == 1:
                    changed = text.replace(old, new)
                    yield Mutation(path, node.lineno, "comparison", *between, changed)
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
    """The row of TESTS for a file."""
    return max((prefix for prefix in TESTS if path.startswith(f"{prefix}/")), key=len)


def tests_of(path: str) -> list[str]:
    room = Path("tests") / path.split("/")[0]
    files = [f"{room}/{name}.py" for name in TESTS[group_of(path)].split()]
    stem = Path(path).stem.removesuffix("s")
    namesake = (p.relative_to(ROOT).as_posix() for p in (ROOT / room).glob(f"test_*{stem}*.py"))
    return list(dict.fromkeys([*sorted(namesake), *files]))


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

    def passes(self, tests: list[str]) -> bool:
        shutil.rmtree(self.cache, ignore_errors=True)
        environ = {**os.environ, "DYNAMO_CACHE_DIR": str(self.cache), "PYTHONPATH": str(self.root)}
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0"]
        command += ["-m", "not slow and not gpu"]
        try:
            done = subprocess.run(
                [*command, *tests],
                cwd=self.root,
                env={**environ, "PYTHONDONTWRITEBYTECODE": "1"},
                capture_output=True,
                timeout=SECONDS,
            )
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0

    def survives(self, mutation: Mutation) -> bool:
        path = self.root / mutation.path
        source = path.read_bytes()
        try:
            path.write_bytes(mutation.apply(source))
            return self.passes(tests_of(mutation.path))
        finally:
            path.write_bytes(source)


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
    results: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder))
        for mutation in chosen:
            group = group_of(mutation.path)
            survived = copy.survives(mutation)
            if (
                not survived
                and not results[group, "killed"]
                and not copy.passes(tests_of(mutation.path))
            ):
                print(f"tests of {mutation.path} fail without a mutation", file=sys.stderr)
                return 1
            results[group, "survived" if survived else "killed"] += 1
            print("survived" if survived else "killed  ", mutation, flush=True)
    groups = sorted({group for group, _ in results})
    rows = [[group, results[group, "killed"], results[group, "survived"]] for group in groups]
    rows.append(["in all", *(sum(row[i] for row in rows) for i in (1, 2))])
    print(tabulate(rows, headers=["folder", "killed", "survived"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
