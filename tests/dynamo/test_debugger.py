"""A debugger in a compiled function shows the user's lines and variables, never the compiler."""

from __future__ import annotations

import io
import pdb
import re

import pytest
import torch

import dynamo

X = torch.ones(2)
DEBUGGER: pdb.Pdb


def session(function, commands: list[str]) -> list[str]:
    """What pdb prints, without addresses, in one call of the function."""
    global DEBUGGER
    printed = io.StringIO()
    answers = io.StringIO("\n".join([*commands, "c", ""]))
    DEBUGGER = pdb.Pdb(stdin=answers, stdout=printed, nosigint=True, readrc=False)
    DEBUGGER.use_rawinput = False
    function(X)
    return [re.sub(r"0x\w+", "", line) for line in printed.getvalue().splitlines()]


def steps_over(function, *args):
    DEBUGGER.set_trace()
    result = function(*args)
    return result + 1


def doubles(x):
    y = x + 1
    z = y * 2
    if z.sum() > 0:
        z = z + 1
    return z


def test_stepping_never_shows_the_compiler():
    dynamo.reset()
    compiled = dynamo.compile(doubles, backend="eager")
    printed = session(lambda x: steps_over(compiled, x), ["s"] * 12)
    files = [line for line in printed if line.startswith("> ")]
    assert any("doubles()" in line for line in files)
    assert not any(
        "/dynamo/" in line or "/backends/" in line for line in files if "/tests/" not in line
    )


def test_a_backend_of_ones_own_can_be_debugged():
    seen = []

    def backend(gm, example_inputs):
        seen.append(len(gm.graph.nodes))
        DEBUGGER.set_trace()
        count = len(example_inputs)
        return gm.forward

    printed = session(dynamo.compile(lambda x: x + 1, backend=backend), ["n", "n", "p count"])
    assert "1" in [line.removeprefix("(Pdb) ") for line in printed]
    assert seen


def stops_inside(x):
    unused = 3
    y = x + 1
    DEBUGGER.set_trace()
    z = y * unused
    return z.sum()


def calls_it(x):
    return stops_inside(x * 2) + 1


@pytest.mark.parametrize("function", [stops_inside, calls_it])
def test_a_breakpoint_shows_the_function_as_it_is(function):
    commands = ["n", "p unused, y", "n", "p z", "n"]
    expected = session(function, commands)
    dynamo.reset()
    compiled = dynamo.compile(function, backend="eager")
    for _ in range(2):
        found = session(compiled, commands)
        last = next(i for i, line in enumerate(expected) if "stops_inside()->" in line)
        assert found[: last + 1] == expected[: last + 1]
    reports = []
    session(lambda x: reports.append(dynamo.explain(function, backend="eager")(x)), ["c"] * 3)
    assert "DEBUGGER" in [entry.code for entry in reports[0].break_reasons]
