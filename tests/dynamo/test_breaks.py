"""Every reason for a graph break has its own code, a text and a hint; programs that lead to them;
what explain says.
"""

from __future__ import annotations

import io
import logging
import re
import sys
import zlib

import pytest
import torch

import dynamo
from dynamo import breaks
from dynamo.errors import Unsupported
from tests.dynamo import break_examples
from tests.dynamo.break_examples import PROGRAMS, branches, disabled, inference, item, to_numpy
from tests.dynamo.capturing import compiled, same

X = torch.arange(4.0)
REASONS = [c for c in vars(breaks).values() if isinstance(c, type) and c.__base__ is breaks.Break]
log = logging.getLogger("test_breaks")
SINK = io.StringIO()


@pytest.fixture(autouse=True)
def breakpoints_do_nothing(monkeypatch):
    monkeypatch.setenv("PYTHONBREAKPOINT", "0")


def test_codes_are_unique():
    codes = [reason.code for reason in REASONS]
    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"[A-Z][A-Z_]+", code) for code in codes)


@pytest.mark.parametrize("reason", REASONS, ids=lambda reason: reason.__name__)
def test_texts_and_hints_are_sentences_without_a_stop(reason):
    for text in (reason.text, reason.hint):
        assert text.strip() == text
        assert len(text.split()) > 1
        assert not text.endswith(".")
    count = 1 + max([int(n) for n in re.findall(r"\{(\d)", reason.text)], default=-1)
    assert "{" not in str(reason(*"abc"[:count]))


def prints(x):
    y = x + 1
    print(end="")
    return y * 2


def test_functions_of_very_many_variables_run_as_they_are():
    """Generated code, as that of named tuples: what is live where would fill the memory."""
    names = ", ".join(f"v{i}" for i in range(20_000))
    namespace: dict = {}
    exec(f"def wide(x, {names}): return x + v19999", namespace)
    wide, numbers = namespace["wide"], range(20_000)

    def calls(x):
        return wide(x * 2, *numbers) + 1

    report = dynamo.explain(calls, backend="eager")(X)
    assert same(dynamo.compile(calls, backend="eager")(X), calls(X))
    assert {b.code for b in report.break_reasons} == {"UNSUPPORTED_OPCODE"}


def outcome(function):
    try:
        return function(X.clone())
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("code", PROGRAMS)
def test_programs(code):
    function, captured = compiled(PROGRAMS[code])
    expected = outcome(PROGRAMS[code])
    for _ in range(2):
        assert same(outcome(function), expected)
    assert code in captured.codes
    for record in captured.context.records:
        for entry in record.breaks:
            assert entry.user_stack[0].filename == break_examples.__file__
            assert entry.line


# What a whole graph holds: with fullgraph=True these do not break.
WHOLE = ("DATA_DEPENDENT_LOOP", "READS_LOCALS", "LOST_EFFECTS", "MANY_ITEMS")


@pytest.mark.parametrize("code", WHOLE)
def test_fullgraph_captures(code):
    function, captured = compiled(PROGRAMS[code], fullgraph=True)
    assert same(outcome(function), outcome(PROGRAMS[code]))
    assert len(captured.op_counts) == 1


@pytest.mark.parametrize("code", [code for code in PROGRAMS if code not in WHOLE])
def test_fullgraph_says_the_same(code):
    function, _ = compiled(PROGRAMS[code], fullgraph=True)
    with pytest.raises(dynamo.errors.Unsupported) as caught:
        function(X.clone())
    text = str(caught.value)
    assert "hint: " in text
    assert break_examples.__file__ in text


# -- what explain says ----------------------------------------------------------------------------
def explained(function, *args):
    report = dynamo.explain(function, backend="eager")(*args)
    return report, str(report)


def line_of(function, offset):
    return f"test_breaks.py:{function.__code__.co_firstlineno + offset} in {function.__name__}"


def loop_with_a_print(x, n):
    for i in range(n):
        x = x + 1
        print(i, file=SINK)
    return x * 2


def test_a_loop_with_a_print_is_one_place():
    for n in (1, 2, 20):
        report, text = explained(loop_with_a_print, X, n)
        assert [r.code for r in report.break_reasons] == ["UNCAPTURED_CALL"]
        assert re.search(r"places that break +1\b", text)
        assert report.graph_count <= 3  # until the print, from turn to turn, after the loop
        assert not report.recompiles
        assert line_of(loop_with_a_print, 3) in text


@pytest.mark.parametrize(
    "items",
    [[1.0, 2.0, 3.0], (1.0, 2.0), {1.0: 0, 2.0: 1}, "ab", range(3), [X, X + 1]],
    ids=lambda items: type(items).__name__,
)
def test_loops_over_containers_report_the_break_once(items):
    def f(x, items):
        for i, given in enumerate(items):
            x = x + 1
            print(i, given, file=SINK)
        return x

    report, _ = explained(f, X, items)
    assert [r.code for r in report.break_reasons] == ["UNCAPTURED_CALL"]


def crc(x):
    y = x + 1
    return y * (zlib.adler32(memoryview(b"abc")) % 7)


def logs(x):
    y = x + 1
    log.error("hello")
    return y * 2


@pytest.mark.parametrize(
    ("function", "texts"),
    [
        (prints, ["a call of print, which", "print(end", "move it out"]),
        (item, ["Tensor.item() needs the value of a tensor", "keep the value in a tensor"]),
        (branches, ["a branch depends on the value of a tensor", "torch.where"]),
        (to_numpy, ["leaves torch for numpy", "(x + 1).numpy()", "use torch operations"]),
        (crc, ["zlib.adler32"]),
        (logs, ["a call of logging.Logger.error", 'log.error("hello")']),
        (inference, ["a block of torch.inference_mode", "with torch.inference_mode():"]),
        (disabled, ["for which compilation is disabled", "remove the disable"]),
    ],
)
def test_reports_name_what_broke(function, texts):
    _, text = explained(function, X)
    if function is crc and "Break 1" not in text:
        return
    for part in texts:
        assert part in text
    assert f"in {function.__name__}" in text


def calls_deeper(x):
    return item(x + 1) * 2


def test_a_break_in_a_callee_shows_the_chain():
    report, text = explained(calls_deeper, X)
    (reason,) = report.break_reasons
    assert [frame.name for frame in reason.user_stack] == ["calls_deeper", "item"]
    assert "call chain:" in text
    assert "return item(x + 1) * 2" in text


@pytest.mark.parametrize("decorated", [False, True])
def test_inference_mode_around_all_is_captured(decorated):
    def manager(x):
        with torch.inference_mode():
            y = x + 1
            return y * 2

    function = torch.inference_mode()(lambda x: (x + 1) * 2) if decorated else manager
    capturing, captured = compiled(function)
    for _ in range(3):
        result = capturing(X)
        assert result.is_inference()
        assert torch.equal(result, (X + 1) * 2)
        assert not torch.is_inference_mode_enabled()
    assert captured.op_counts == [2]
    report, _ = explained(function, X)
    assert not report.break_reasons


def test_a_function_called_in_inference_mode_is_compiled_for_it():
    function, captured = compiled(lambda x: x * 2)
    assert not function(X).is_inference()
    with torch.inference_mode():
        assert function(X).is_inference()
    assert not function(X).is_inference()
    assert captured.op_counts == [1, 1]


def changes_metadata(x):
    y = x.reshape(2, 2) + 1
    y.t_()
    z = y * torch.tensor([1.0, 10.0])
    z.detach_()
    y.resize_(4)
    w = torch.ones(2)
    w.requires_grad_()
    (w * 3).sum().backward()
    x.tag = 1
    return z, y + 1, w.grad, x.tag


def test_metadata_is_changed_as_in_eager():
    function, captured = compiled(changes_metadata)
    for _ in range(2):
        assert same(function(X.clone()), changes_metadata(X.clone()))
    assert not captured.codes  # of what the frame made


def descend(depth, function):
    return function(X) if depth == 0 else descend(depth - 1, function)


def plain(x):
    return x * 2 + 1


@pytest.fixture
def near_the_limit():
    """Calls a function from so deep that it runs, and that nothing can be captured."""
    depth = sys.getrecursionlimit()
    while True:
        try:
            descend(depth, plain)
            return lambda function: descend(depth - 4, function)
        except RecursionError:
            depth -= 1


def test_capture_at_the_recursion_limit_is_given_up_for_good(near_the_limit):
    function, captured = compiled(plain)
    for _ in range(3):
        assert same(near_the_limit(function), plain(X))
    assert same(function(X), plain(X))
    assert captured.codes == ["RECURSION_LIMIT"] and captured.op_counts == []


def test_capture_at_the_recursion_limit_fails_with_fullgraph(near_the_limit):
    function, captured = compiled(plain, fullgraph=True)
    for _ in range(2):
        with pytest.raises(Unsupported, match="RECURSION_LIMIT"):
            near_the_limit(function)
    assert same(function(X), plain(X))
    assert captured.op_counts == [2]
