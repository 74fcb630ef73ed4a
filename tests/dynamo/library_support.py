"""One-line programs: an expression, perhaps after statements, run eagerly and compiled.

A table is text with one program a line (what follows indented belongs to it); `# graphs N` at its
end says in how many graphs the program is captured: one, without a break, if nothing is said.
`# graphs -` leaves that open. Each line becomes the body of

    def f(x, ...): y = x + 1; <statements>; return <expression>, y * 2

with x a tensor of four numbers. `raised(lambda: ...)` in it gives the type and text of what the
call raises.
"""

from __future__ import annotations

import ast
import itertools
import linecache
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import dynamo
from tests.dynamo.differential import Picture, assert_same
from tests.dynamo.values_support import CountingBackend

_numbers = itertools.count()


def raised(function: Callable[[], Any]) -> tuple[str, str]:
    """What calling the function raises."""
    try:
        function()
    except Exception as error:
        return type(error).__name__, str(error)
    return "nothing", ""


def programs(table: str) -> list[Any]:
    """The programs of a table as parameters (body, graphs)."""
    found = []
    for line in table.strip().replace("\n    ", " ").splitlines():
        body, _, graphs = line.partition("# graphs ")
        if body.strip():
            count = None if graphs == "-" else int(graphs or 1)
            found.append(pytest.param(body.strip(), count, id=body[:60].strip()))
    return found


def make(body: str, namespace: dict[str, Any], args: str = "x") -> Callable[..., Any]:
    """The program's function, with source lines for tracebacks."""
    tree = ast.parse(body)
    last = tree.body.pop()
    assert isinstance(last, ast.Expr), "a program ends with an expression"
    lines = [f"def f({args}):", "    y = x + 1"]
    lines += [f"    {line}" for part in tree.body for line in ast.unparse(part).splitlines()]
    lines.append(f"    return {ast.unparse(last)}, y * 2")
    text = "\n".join(lines) + "\n"
    filename = f"<library {next(_numbers)}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    exec(compile(text, filename, "exec"), namespace)
    return namespace["f"]


def outcome(function: Callable[..., Any], filename: str, *args: Any) -> dict[str, Any]:
    """What a call gives or raises, what became of its arguments, and of random numbers."""
    torch.manual_seed(3)
    random.seed(3)
    try:
        result = function(*args)
    except Exception as error:
        result = error
    picture = Picture(filename)
    return {
        "result": picture.of(result),
        "args": picture.of(args),
        "random": [float(torch.rand(())), random.random()],
    }


def check_line(body: str, graphs: int | None, namespace: dict[str, Any]) -> None:
    """Eager against compiled, twice; the number of graphs is exact."""
    module = namespace["__name__"]
    function = make(body, dict(namespace))
    filename = function.__code__.co_filename
    expected = [outcome(function, filename, torch.arange(4.0)) for _ in range(2)]
    backend = CountingBackend()
    function = make(body, dict(namespace))
    compiled = dynamo.compile(function, backend=backend, fullgraph=graphs == 1)
    filename = function.__code__.co_filename
    for wanted in expected:
        found = outcome(compiled, filename, torch.arange(4.0))
        assert_same(wanted, found, f"{module}: {body}")
    why = [b.reason for record in compiled.context.records for b in record.breaks]
    assert graphs in (None, backend.graphs), f"{backend.graphs} graphs: {why}"
