"""Graphs of the differential programs, ours beside torch.compile's.

    python -m benchmarks.peer_graphs                  # every program of tests/dynamo/programs/users
    python -m benchmarks.peer_graphs arrays texts     # of these files there

Each compiler runs all steps of a program in a process of its own, with a backend that counts its
graphs, and the operations that they run, and runs them as they are. A program is whole if its first
call works with fullgraph=True. Compared are the programs of which torch.compile captures something
and raises what eager raises. It leaves frames alone that break inside of a `with` or a loop: a
program has more graphs here only where these run no more operations than torch.compile's.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import io
import itertools
import json
import linecache
import pathlib
import random
import subprocess
import sys
import tempfile
import textwrap
import types
import warnings
from collections.abc import Callable
from typing import Any

from tabulate import tabulate

FOLDER = pathlib.Path(__file__).parent.parent / "tests" / "dynamo" / "programs" / "users"
OURS, PEER = "framegraph", "torch.compile"
_numbers = itertools.count()


class Counter:
    """A backend that counts its graphs and the operations they run, and runs them as they are."""

    def __init__(self) -> None:
        self.graphs = 0
        self.operations = 0

    def __call__(self, module: Any, inputs: Any) -> Callable[..., Any]:
        self.graphs += 1
        operations = sum(map(_computes, module.graph.nodes))

        def run(*args: Any) -> Any:
            self.operations += operations
            return module.forward(*args)

        return run


def _computes(node: Any) -> bool:
    """Whether a node does something to tensors: attributes and items of results count for none."""
    name = getattr(node.target, "__name__", node.target)
    return node.op.startswith("call_") and name not in ("getitem", "getattr", "size", "sym_size")


def compiled_by(system: str, function: Any, counter: Counter, whole: bool) -> Any:
    if system == OURS:
        import dynamo

        dynamo.reset()
        return dynamo.compile(function, backend=counter, fullgraph=whole)
    import torch

    torch.compiler.reset()
    return torch.compile(function, backend=counter, fullgraph=whole)


def run(system: str, program: str, whole: bool) -> tuple[int, int, str | None]:
    """(graphs of all steps, operations that they ran, the first exception's type). whole: the
    first step only, in one graph.
    """
    from tests.dynamo.differential import PRELUDE

    definitions, _, steps = textwrap.dedent(program).partition("\n---\n")
    filename = f"<program {next(_numbers)}>"
    lines = definitions.splitlines(keepends=True)
    linecache.cache[filename] = (len(definitions), None, lines, filename)
    module = sys.modules["differential_program"] = types.ModuleType("differential_program")
    namespace = vars(module)
    counter, failure = Counter(), None
    random.seed(7)
    silent = (contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()))
    with silent[0], silent[1], warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(PRELUDE, namespace)
        exec(compile(definitions, filename, "exec"), namespace)
        namespace["run"] = compiled_by(system, namespace["f"], counter, whole)
        for step in ast.parse(steps).body:
            try:
                exec(compile(ast.Module([step], []), "<step>", "exec"), namespace)
            except Exception as error:
                failure = failure or type(error).__name__
            if whole and "run(" in ast.unparse(step):
                break
    return counter.graphs, counter.operations, failure


def child(system: str, name: str) -> dict[str, Any]:
    programs = importlib.import_module(f"tests.dynamo.programs.users.{name}").PROGRAMS
    found = {}
    for title, (_, text) in programs.items():
        text = text.replace("probe_lib", "probe_whole")  # operators are defined once in a process
        whole = run(system, text, True)
        found[title] = (*run(system, text.replace("probe_whole", "probe_lib"), False), whole[2])
    return found


def measured(system: str, name: str) -> dict[str, Any]:
    with tempfile.NamedTemporaryFile("r", suffix=".json") as file:
        command = [sys.executable, "-m", "benchmarks.peer_graphs", name]
        command += ["--child", system, "--out", file.name]
        subprocess.run(command, check=True, capture_output=True)
        return json.load(file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--child", choices=[OURS, PEER], help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        found = child(arguments.child, arguments.names[0])
        pathlib.Path(arguments.out).write_text(json.dumps(found))
        return
    names = arguments.names or sorted(path.stem for path in FOLDER.glob("*.py"))
    rows, more = [], []
    for name in names:
        ours, theirs = measured(OURS, name), measured(PEER, name)
        both = [(title, ours[title], theirs[title]) for title in ours]
        compared = [
            (title, one[0], other[0], one[1], other[1])
            for title, one, other in both
            if other[0] and one[2] == other[2]
        ]
        worse = [(name, *row) for row in compared if row[1] > row[2] and row[3] <= row[4]]
        whole = [sum(found[3] is None for found in side.values()) for side in (ours, theirs)]
        graphs = [sum(column) for column in zip(*(row[1:] for row in compared))]
        rows.append([name, len(both), *whole, len(compared), *graphs, len(worse)])
        more += worse
    headers = ["programs", "", "whole", "by torch.compile", "compared", "graphs"]
    headers += ["of torch.compile", "operations", "of torch.compile", "more here"]
    print(tabulate(rows, headers=headers, tablefmt="github"))
    headers = ["programs", "with more graphs", "graphs", "of torch.compile"]
    print(tabulate(more, headers=[*headers, "operations", "of torch.compile"]))


if __name__ == "__main__":
    main()
