"""Graphs of the differential programs, ours beside torch.compile's.

    python -m benchmarks.peer_graphs                  # every program of tests/dynamo/programs/users
    python -m benchmarks.peer_graphs arrays texts     # of these files there

Each compiler runs all steps of a program in a process of its own, with a backend that counts its
graphs, and the operations that they run, and runs them as they are. A program is whole if its first
call works with fullgraph=True. Compared are the programs of which torch.compile captures something
and whose results, as far as they print alike, are eager's with both. It leaves frames alone that
break inside of a `with` or a loop: a program has more graphs here only where these run no more
operations than torch.compile's.
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
import re
import subprocess
import sys
import tempfile
import textwrap
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from tabulate import tabulate
from torch.utils.hooks import RemovableHandle

from tests.dynamo.programs import Family

FOLDER = pathlib.Path(__file__).parent.parent / "tests" / "dynamo" / "programs" / "users"
OURS, PEER, EAGER = "framegraph", "torch.compile", "eager"
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
    if system == EAGER:
        return function
    if system == OURS:
        import dynamo

        dynamo.reset()
        return dynamo.compile(function, backend=counter, fullgraph=whole)
    torch.compiler.reset()
    return torch.compile(function, backend=counter, fullgraph=whole)


def shown(value: Any) -> str:
    """The value as text that is the same in each process: rounded, without addresses."""
    text = re.sub(r"0x[0-9a-f]+", "0x", repr(value))
    return re.sub(r"-?\d+\.\d*(e[-+]?\d+)?", lambda number: f"{float(number[0]):.3g}", text)


def run(system: str, program: str, whole: bool) -> tuple[int, int, str | None, list[str]]:
    """(graphs of all steps, operations that they ran, the first exception's type, results as
    text). whole: the first step only, in one graph.
    """
    from tests.dynamo.differential import PRELUDE

    definitions, _, steps = textwrap.dedent(program).partition("\n---\n")
    filename = f"<program {next(_numbers)}>"
    lines = definitions.splitlines(keepends=True)
    linecache.cache[filename] = (len(definitions), None, lines, filename)
    module = sys.modules["differential_program"] = types.ModuleType("differential_program")
    namespace = vars(module)
    counter, failure, results = Counter(), None, []
    RemovableHandle.next_id = 0
    random.seed(7)
    np.random.seed(7)
    printed = io.StringIO()
    silent = (contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()))
    with silent[0], silent[1], warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(PRELUDE, namespace)
        exec(compile(definitions, filename, "exec"), namespace)
        namespace["run"] = compiled_by(system, namespace["f"], counter, whole)
        for step in ast.parse(steps).body:
            try:
                if isinstance(step, ast.Expr):
                    code = compile(ast.Expression(step.value), "<step>", "eval")
                    results.append(shown(eval(code, namespace)))
                else:
                    exec(compile(ast.Module([step], []), "<step>", "exec"), namespace)
            except Exception as error:
                failure = failure or type(error).__name__
            if whole and "run(" in ast.unparse(step):
                break
    return counter.graphs, counter.operations, failure, [*results, shown(printed.getvalue())]


def child(system: str, name: str) -> dict[str, Any]:
    module = importlib.import_module(f"tests.dynamo.programs.users.{name}")
    prelude = getattr(module, "FAMILY", Family()).prelude
    found = {}
    for title, row in module.PROGRAMS.items():
        text = prelude + textwrap.dedent(row if isinstance(row, str) else row[-1])
        text = text.replace("probe_lib", "probe_whole")  # operators are defined once in a process
        torch.manual_seed(7)
        whole = run(system, text, True)
        torch.manual_seed(7)
        several = run(system, text.replace("probe_whole", "probe_lib"), False)
        found[title] = (several[0], several[1], several[2:], whole[2])
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
    parser.add_argument("--child", choices=[OURS, PEER, EAGER], help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        found = child(arguments.child, arguments.names[0])
        pathlib.Path(arguments.out).write_text(json.dumps(found))
        return
    own = {"directives"}  # directives of this project
    names = arguments.names or sorted({path.stem for path in FOLDER.glob("*.py")} - own)
    rows, more, wrong, unlike, parts = [], [], [], [], []
    for name in names:
        ours, theirs, eager = (measured(system, name) for system in (OURS, PEER, EAGER))
        both = [(title, ours[title], theirs[title]) for title in ours]
        compared = [
            (title, one[0], other[0], one[1], other[1])
            for title, one, other in both
            if other[0] and one[2] == other[2] == eager[title][2]
        ]
        unlike += [f"{name}.{title}" for title in ours if ours[title][2] != eager[title][2]]
        wrong += [f"{name}.{title}" for title in ours if theirs[title][2] != eager[title][2]]
        right = [title for title in ours if theirs[title][2] == eager[title][2]]
        parts += [f"{name}.{t}" for t in right if ours[t][3] is not None and theirs[t][3] is None]
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
    print(f"{len(wrong)} programs with other results by torch.compile:", *wrong)
    print(f"{len(unlike)} programs with other results here:", *unlike)
    print(f"{len(parts)} programs that torch.compile alone captures whole, rightly:", *parts)


if __name__ == "__main__":
    main()
