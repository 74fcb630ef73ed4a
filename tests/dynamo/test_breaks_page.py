"""The page of all reasons for graph breaks: made from breaks.py and the examples, which run."""

from __future__ import annotations

import inspect
import textwrap
from pathlib import Path

import pytest
import torch

import dynamo
from dynamo import breaks
from tests.dynamo import test_breaks
from tests.dynamo.break_examples import MENDED, NO_MENDED, PROGRAMS
from tests.dynamo.capturing import compiled, same

PAGE = Path(__file__).parents[2] / "tutorials" / "graph_breaks.md"
X = torch.arange(4.0)
# Nets for what no known program does: they keep an unforeseen value from becoming a wrong result.
NETS = {
    "UNKNOWN_TYPE",
    "NOT_CONSTANT",
    "UNKNOWN_TRUTH",
    "NOT_SIZED",
    "ITEM_ACCESS",
    "ITEM_MUTATION",
    "NOT_ITERABLE",
    "UNSUPPORTED_OPCODE",
    "INTERNAL_FAULT",
    "RECURSION_LIMIT",
}
# Not breaks of the user's: why a frame ends early, or the consequence of another break; and why a
# function runs whole that a checkpoint calls, which is no program of one tensor
# (programs/users/checkpoints.py).
INTERNAL = {"UNCAUGHT_EXCEPTION", "NEXT_TURN", "STOPS_EARLY"}
REASONS = {r.code: r for r in test_breaks.REASONS if r.code not in INTERNAL}


@pytest.fixture(autouse=True)
def breakpoints_do_nothing(monkeypatch):
    monkeypatch.setenv("PYTHONBREAKPOINT", "0")


@pytest.mark.parametrize("code", REASONS)
def test_every_reason_has_an_example(code):
    assert code in PROGRAMS or code in NETS
    assert code in MENDED or code in NO_MENDED or code in NETS


@pytest.mark.parametrize("code", MENDED)
def test_the_hint_works(code):
    broken = test_breaks.outcome(PROGRAMS[code])
    function, captured = compiled(MENDED[code], fullgraph=True)
    assert same(function(X.clone()), MENDED[code](X.clone()))
    assert same(function(X.clone()), broken)
    assert captured.codes == []


def test_the_page_is_up_to_date(request):
    text = page()
    if request.config.getoption("--accept"):
        PAGE.write_text(text, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == text, "refresh by make accept"


def page() -> str:
    parts = [
        "# Graph breaks",
        "Where capture cannot look into an instruction, the graph ends before it, the instruction "
        "runs as Python\nwould run it, and a new graph begins after it. Nothing is lost but speed. "
        "`dynamo.explain(fn)(*args)` and\n`DYNAMO_LOGS=breaks` show each break with its code, the "
        "source line, the call chain and a hint;\n`fullgraph=True` makes the first one an error; "
        "`dynamo.graph_break()` makes one.",
        "This page is generated from `dynamo/breaks.py` and `tests/dynamo/break_examples.py` by "
        "`make accept`; the test\nsuite runs every example. `x` is a tensor of four floats.",
    ]
    for code, reason in sorted(REASONS.items()):
        parts.append(f"## {code}")
        parts.append(f"{_sentence(reason.text)}\n\nHint: {reason.hint}.")
        if code in PROGRAMS:
            parts.append(_source(PROGRAMS[code]))
        else:
            parts.append("A net: no known program leads here.")
        if code in MENDED:
            parts.append(f"Instead:\n\n{_source(MENDED[code])}")
    return "\n\n".join(parts) + "\n"


def _sentence(template: str) -> str:
    places = [f"<{word}>" for word in ("what", "which", "why")]
    text = template.replace("{1!r}", "{1}").format(*places)
    return f"{text[0].upper()}{text[1:]}."


def _source(function) -> str:
    lines = textwrap.dedent(inspect.getsource(function)).splitlines()
    code = "\n".join(line for line in lines if not line.startswith("@"))
    return f"```python\n{code}\n```"


def test_breaks_have_the_code_that_the_command_lists(capsys):
    from dynamo.__main__ import main

    assert main(["breaks"]) == 0
    listed = capsys.readouterr().out
    assert all(code in listed for code in REASONS)
    assert issubclass(REASONS["OP_ERROR"], breaks.Break)
    assert dynamo.errors.Unsupported
