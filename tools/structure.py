"""Prints figures of the structure of dynamo/: lines, cycles of imports, control exceptions.

    python tools/structure.py            # lines, cycles, files that a new iterator touches, ...
    python tools/structure.py --imports  # besides: each function-level import that breaks a cycle
    python tools/structure.py --calls    # besides: handlers that call the program on our own stack

An import inside a function breaks a cycle if its module leads back to the importing one by imports
of module level.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import networkx

ROOT = Path(__file__).parent.parent
PACKAGE = "dynamo"
# Of each kind that users ask for, the newest one: the files of the product that name it are those
# that another one touches.
NEWEST = {
    "an iterator in Python (itertools.groupby)": "groupby",
    "an iterator of its own class (itertools.batched)": "batched",
    "a unary operator that the library has (erfinv)": "erfinv",
    "a unary operator with C++ of its own (asinh)": "asinh",
}

# Handlers that call the program's functions on our own stack: reason -> places.
MEANS = {
    "callers need the result at once": [
        "values/builtins/polyfill_calls.py:run_polyfill",
        "values/builtins/table.py:polyfill",
        "values/functions/function.py:FunctionValue.call",
        "values/functions/function.py:UserFunctionValue.call",
    ],
}
# Functions of C or of torch that go on behind the call by state which only they can set: a
# continuation could not. A break leaves the whole call to them, and the function is a frame then.
INHERENT = {
    # torch.cond and its like ask whether they are being compiled: the rest of one of their frames
    # would go on, natively, on the way of compiled calls.
    "torch's function takes another way where nothing is captured": [
        "torch/higher_order.py:_inlined.handler",
    ],
    # Overrides are off in torch's state meanwhile, and the result becomes a subclass's.
    "torch's function turns overrides off, by an object that cannot be made in their region": [
        "torch/overrides.py:default_override",
    ],
    # A call counts as a hit or a miss before, and which entry has to go is decided after it.
    "the cache of C decides after the call what it keeps": [
        "values/functions/caches.py:LruCacheValue._call_of_values",
    ],
    # callable_iterator has no __setstate__, as iterators of itertools have.
    "nothing but the iterator's own __next__ can end it": [
        "values/iterators/iterators.py:CallIterator.step"
    ],
}
# Calls below a handler in which a graph break has no place to stand in: argument -> places.
OWN_GRAPHS = {
    # A break in it breaks at the operator, which torch runs natively: the functions are frames of
    # their own then, and break for themselves.
    "a body is recorded in a graph of its own, once for all its runs": [
        "torch/autograd_function.py:ForwardValue.run",
        "torch/autograd_function.py:JvpValue.call",
        "torch/autograd_function.py:RoundTripValue.call",
        "torch/bodies.py:trace_body",
    ],
    # In no-grad mode checkpoint is a plain call, and no trial.
    "a policy is asked for its answers, and what it did is thrown away": [
        "torch/checkpoint.py:_check_policy",
        "torch/checkpoint.py:_policy",
    ],
    "a trial: where it fails, another plan has the numbers fixed": [
        "values/functions/caches.py:LruCacheValue._computed",
    ],
}
# Calls below a handler that reach no function of the program.
NOT_OF_THE_PROGRAM = {
    "functions of torch's or ours": [
        "static_graph/hooks.py:BuildHooks.before_backward",
        "torch/backward.py:_differentiate",
        "torch/higher_order.py:_out_dtype",
        "torch/substitutes.py:fold_gaussian_nll_loss",
    ],
    "a function of the program's breaks the graph": [
        "values/builtins/program_code.py:call_natively",
    ],
}


@dataclasses.dataclass(frozen=True)
class Import:
    """One import at run time: `importer` and `imported` are names of modules."""

    importer: str
    imported: str
    line: int
    in_function: bool


def files(package: str = PACKAGE) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def module_names() -> frozenset[str]:
    """Our modules, extensions included (they have stubs)."""
    return frozenset(module_name(path) for path in (*files(), *(ROOT / PACKAGE).rglob("*.pyi")))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path, modules: frozenset[str]) -> Iterator[Import]:
    """Imports of our own modules, without those for type checkers only."""
    importer = module_name(path)

    def visit(node: ast.AST, in_function: bool) -> Iterator[Import]:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for child in node.orelse:
                yield from visit(child, in_function)
            return
        if isinstance(node, ast.Import | ast.ImportFrom):
            for name in dict.fromkeys(imported_modules(node, modules)):
                if name != importer:
                    yield Import(importer, name, node.lineno, in_function)
        inside = in_function or isinstance(
            node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
        )
        for child in ast.iter_child_nodes(node):
            yield from visit(child, inside)

    yield from visit(ast.parse(path.read_text()), False)


def imported_modules(node: ast.Import | ast.ImportFrom, modules: frozenset[str]) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names if alias.name in modules]
    if node.level or node.module not in modules:
        return []
    inner = [f"{node.module}.{alias.name}" for alias in node.names]
    return [name if name in modules else node.module for name in inner]


def all_imports() -> list[Import]:
    modules = module_names()
    return [found for path in files() for found in imports_of(path, modules)]


def cycles(imports: Iterable[Import]) -> list[list[str]]:
    """Strongly connected components of more than one module, largest first."""
    graph = networkx.DiGraph((found.importer, found.imported) for found in imports)
    found = (sorted(part) for part in networkx.strongly_connected_components(graph))
    return sorted((part for part in found if len(part) > 1), key=len, reverse=True)


def cycle_breakers(imports: Iterable[Import]) -> list[Import]:
    """Imports inside functions that would close a cycle at module level."""
    imports = list(imports)
    graph = networkx.DiGraph((i.importer, i.imported) for i in imports if not i.in_function)
    graph.add_nodes_from(name for i in imports for name in (i.importer, i.imported))
    return [
        i for i in imports if i.in_function and networkx.has_path(graph, i.imported, i.importer)
    ]


def line_counts() -> Counter[str]:
    """Lines of Python, C and C++ per folder."""
    counts: Counter[str] = Counter()
    for suffix in ("py", "c", "cpp", "h"):
        for path in (ROOT / PACKAGE).rglob(f"*.{suffix}"):
            counts[path.parent.relative_to(ROOT).as_posix()] += len(path.read_text().splitlines())
    return counts


def exceptions() -> list[str]:
    """Classes of exceptions that are not errors for users (dynamo/errors.py): control flow."""
    bases = ("Exception", "BaseException")
    return sorted(
        node.name
        for path in files()
        if path.name != "errors.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
        and any(isinstance(base, ast.Name) and base.id in bases for base in node.bases)
    )


def methods_of(name: str) -> int:
    for path in files():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and node.name == name:
                return sum(isinstance(part, ast.FunctionDef) for part in node.body)
    raise LookupError(name)


# Heading -> the calls below handlers that are explained so.
EXPLAINED = {
    "calls that are the means": MEANS,
    "calls that C or torch goes on behind": INHERENT,
    "bodies that are captured as graphs of their own, and trials": OWN_GRAPHS,
    "calls of no function of the program": NOT_OF_THE_PROGRAM,
}


def explained_calls() -> list[str]:
    """The places of all explained calls, sorted."""
    reasons = [places for known in EXPLAINED.values() for places in known.values()]
    return sorted(place for places in reasons for place in places)


def nested_calls() -> list[str]:
    """Handlers that run a function of the program's, or a polyfill, below themselves on the Python
    stack, where a break in the function cannot stand, for no reason given above.
    """
    explained = {*explained_calls()}
    return [place for place in calls_below() if place not in explained]


def calls_below() -> list[str]:
    """Handlers that call functions below themselves (tx.call_function, tx.inline), sorted, as
    `file:Class.method`. Calls that may be the last act of an instruction are not among them.
    """
    found: set[str] = set()

    def visit(node: ast.AST, path: str, names: tuple[str, ...]) -> None:
        for child in ast.iter_child_nodes(node):
            inner = names
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                inner = (*names, child.name)
            elif isinstance(child, ast.Call) and isinstance(child.func, ast.Attribute):
                of = child.func.value
                called = child.func.attr in ("call_function", "inline")
                if called and isinstance(of, ast.Name) and of.id == "tx":
                    found.add(f"{path}:{'.'.join(names)}")
            visit(child, path, inner)

    for path in files():
        visit(ast.parse(path.read_text()), path.relative_to(ROOT / PACKAGE).as_posix(), ())
    return sorted(found)


def files_naming(word: str) -> list[str]:
    """The sources of dynamo, fxgraph and inductor that hold `word`."""
    pattern = re.compile(rf"\b{word}\b")
    return [
        path.relative_to(ROOT).as_posix()
        for package in ("dynamo", "fxgraph", "inductor")
        for path in sorted((ROOT / package).rglob("*"))
        if path.suffix in (".py", ".h", ".c", ".cpp") and pattern.search(path.read_text())
    ]


def print_figures(list_imports: bool, list_calls: bool) -> None:
    counts, imports = line_counts(), all_imports()
    for folder, lines in sorted(counts.items()):
        python = len(list((ROOT / folder).glob("*.py")))
        print(f"{folder:28} {lines:6} lines, {python:3} Python files")
    print(f"{'in all':28} {sum(counts.values()):6} lines")
    largest = max(files(), key=lambda path: len(path.read_text().splitlines()))
    lines = len(largest.read_text().splitlines())
    print(f"largest Python file: {largest.relative_to(ROOT)}, {lines} lines")
    print(f"methods of Value: {methods_of('Value')}")
    print(f"control exceptions: {', '.join(exceptions())}")
    for text, of in (
        ("of module level", [i for i in imports if not i.in_function]),
        ("of module level and in functions", imports),
    ):
        sizes = [len(part) for part in cycles(of)]
        print(f"import cycles {text}: {len(sizes)}, of {sizes} modules")
    breakers = cycle_breakers(imports)
    inside = sum(i.in_function for i in imports)
    print(f"imports in functions: {inside}, of which {len(breakers)} break a cycle")
    for i in breakers if list_imports else ():
        print(f"    {i.importer}:{i.line} imports {i.imported}")
    for what, word in NEWEST.items():
        found = files_naming(word)
        print(f"files touched to add {what}: {len(found)}, {', '.join(found)}")
    calls = nested_calls()
    print(f"handlers that call functions of the program on our own stack unexplained: {len(calls)}")
    for place in calls:
        print(f"    {place}")
    for text, known in EXPLAINED.items():
        print(f"{text}: {sum(map(len, known.values()))}")
        for why, places in known.items() if list_calls else ():
            print(f"    {why}:", *places, sep="\n        ")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--imports", action="store_true", help="list what breaks cycles")
    parser.add_argument("--calls", action="store_true", help="list handlers with nested calls")
    arguments = parser.parse_args()
    print_figures(arguments.imports, arguments.calls)


if __name__ == "__main__":
    main()
