"""Exceptions, stacks and trace functions show the user's functions and lines, as in eager."""

from __future__ import annotations

import collections
import functools
import inspect
import math
import operator
import sys
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.dynamo.capturing import compiled

X = torch.arange(3.0)
STACKS: list[list[tuple[str, int]]] = []


def user_lines(frames: Any) -> list[tuple[str, int]]:
    """Function and line of the frames that stand in this file, without those of the harness."""
    return [
        (frame.name, frame.lineno)
        for frame in frames
        if frame.filename == __file__ and frame.name not in HARNESS
    ]


def chain(error: BaseException | None) -> list[tuple[str, list[tuple[str, int]]]]:
    """Type and lines of an exception and of those that it came from."""
    found = []
    while error is not None:
        found.append((type(error).__name__, user_lines(traceback.extract_tb(error.__traceback__))))
        error = error.__cause__ or error.__context__
    return found


def raised(fn: Callable[..., Any], *args: Any) -> list[tuple[str, list[tuple[str, int]]]]:
    try:
        fn(*args)
    except Exception as error:
        return chain(error)
    raise AssertionError("nothing was raised")


def remember_stack() -> None:
    """Capture does not look into this: it records who calls."""
    STACKS.append(user_lines(traceback.extract_stack()))


HARNESS = {"chain", "raised", "remember_stack", "test_exception", "test_stack", "seen", "stacks"}


class Boom(Exception):
    pass


class Suppressing:
    def __enter__(self):
        return self

    def __exit__(self, kind, error, tb):
        return kind is KeyError


class Failing:
    def __enter__(self):
        return self

    def __exit__(self, *details):
        raise Boom("in exit")


class Layer(torch.nn.Module):
    def __init__(self, inner=None):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        y = x * 2
        if self.inner is not None:
            return self.inner(y) + 1
        raise Boom("in a layer")


def breaking(x):
    y = x + 1
    print(end="")
    return y


def callee(x):
    y = x * 2
    raise Boom("in callee")


def middle(x):
    return (
        callee(
            x + 1,
        )
        * 3
    )


def broken_callee(x):
    y = x * 2
    print(end="")
    y = y + 1
    raise Boom("in callee")


# -- what raises ----------------------------------------------------------------------------------
def plain(x):
    y = x + 1
    raise Boom(y.dim())


def after_break(x):
    y = x + 1
    print(end="")
    z = y + 1

    raise Boom(z.dim())


def after_two_breaks(x):
    y = x + 1
    print(end="")
    z = y + 1
    print(end="")

    z = z * 2
    raise Boom(z.dim())


def data_dependent(x):
    y = x * 2
    if y.sum() > 0:
        y = y + 1
        raise Boom("positive")
    return y


def in_loop(x):
    for i in range(4):
        x = x + 1
        print(end="")
        if i == 2:
            raise Boom(i)
    return x


def in_with(x):
    with Suppressing():
        x = x + 1
        print(end="")
        x = x + 1
        raise Boom("in with")


def after_suppressed(x):
    with Suppressing():
        x = x + 1
        print(end="")
        raise KeyError("suppressed")
    x = x * 2
    raise Boom("after")


def in_exit(x):
    with Failing():
        x = x + 1
    return x


def in_exit_after_break(x):
    with Failing():
        x = x + 1
        print(end="")
        x = x + 1
    return x


def in_finally(x):
    try:
        x = x + 1
        print(end="")
        raise Boom("in try")
    finally:
        x = x * 2


def in_handler(x):
    try:
        x = x + 1
        raise KeyError("first")
    except KeyError as error:
        x = x * 2
        raise Boom("second") from error


def in_handler_after_break(x):
    try:
        x = x + 1
        print(end="")
        raise KeyError("first")
    except KeyError:
        x = x * 2
        raise Boom("second")


def reraised(x):
    try:
        x = x + 1
        raise Boom("again")
    except Boom:
        x = x * 2
        raise


def inlined(x):
    y = x + 1
    return middle(y) + 1


def inlined_after_break(x):
    y = x + 1
    print(end="")
    return middle(y) + 1


def break_in_callee(x):
    y = x + 1
    return broken_callee(y) + 1


def after_break_in_callee(x):
    y = breaking(x)
    y = breaking(y)
    raise Boom(y.dim())


def in_lambda(x):
    def run(function):
        return function(x) + 1

    return run(lambda z: z[0].no_such_attribute)


def in_comprehension(x):
    return [
        x + (1 / i)
        for i in (
            2,
            1,
            0,
        )
    ]


def in_generator(x):
    def numbers():
        yield 1
        yield 2
        raise Boom("in generator")

    for n in numbers():
        x = x + n
    return x


def nested_closure(x):
    def inner(z):
        y = z + x
        raise Boom(y.dim())

    return inner(x + 1)


def in_module(x):
    return MODEL(x) + 1


def missing_attribute(x):
    y = x + 1
    return y.no_such_attribute


def missing_key(x):
    y = x + 1
    return {"a": y}["b"]


def missing_name(x):
    y = x + 1
    return y + no_such_name  # noqa: F821


def unbound_local(x):
    y = x + 1
    if y.dim() == 7:
        z = 1
    return y + z


def wrong_arguments(x):
    y = x + 1
    return breaking(y, 3)


def failed_assertion(x):
    y = x + 1
    assert y.dim() == 2, "two dimensions"
    return y


def failed_assertion_on_data(x):
    y = x + 1
    assert y.sum() > 100, "large"
    return y


def python_error(x):
    y = x + 1
    return y * int("three")


def uncaptured_call(x):
    y = x + 1
    sys.intern(y)
    return y


def shapes_differ(x):
    y = x + 1
    return y @ torch.ones(4, 4)


def shapes_differ_after_break(x):
    y = x + 1
    print(end="")
    z = torch.ones(4, 4)

    return y @ z


def fails_at_run_time(x):
    y = x.long() + 7
    y = y * 1
    z = torch.nn.functional.embedding(y, torch.ones(3, 2))
    return z * 2


def fails_at_run_time_after_break(x):
    y = x.long() + 7
    print(end="")
    y = y * 1
    z = torch.nn.functional.embedding(y, torch.ones(3, 2))
    return z * 2


MODEL = torch.nn.Sequential(Layer(torch.nn.Sequential(Layer())))
AT_RUN_TIME = [fails_at_run_time, fails_at_run_time_after_break]
RAISING = [
    plain,
    after_break,
    after_two_breaks,
    data_dependent,
    in_loop,
    in_with,
    after_suppressed,
    in_exit,
    in_exit_after_break,
    in_finally,
    in_handler,
    in_handler_after_break,
    reraised,
    inlined,
    inlined_after_break,
    break_in_callee,
    after_break_in_callee,
    in_lambda,
    in_comprehension,
    in_generator,
    nested_closure,
    in_module,
    missing_attribute,
    missing_key,
    missing_name,
    unbound_local,
    wrong_arguments,
    failed_assertion,
    failed_assertion_on_data,
    python_error,
    uncaptured_call,
    shapes_differ,
    shapes_differ_after_break,
]


@pytest.mark.parametrize("function", RAISING, ids=lambda f: f.__name__)
def test_exception(function: Callable[..., Any]) -> None:
    expected = raised(function, X)
    assert expected[0][1]
    capturing, _ = compiled(function)
    for _ in range(2):
        assert raised(capturing, X) == expected


@pytest.mark.parametrize("function", AT_RUN_TIME, ids=lambda f: f.__name__)
def test_operation_that_fails_at_run_time(function: Callable[..., Any]) -> None:
    """The graph runs as a whole: not the line, but the graph's own code tells the operation."""
    capturing, captured = compiled(function)
    for _ in range(2):
        with pytest.raises(IndexError) as info:
            capturing(X)
        frames = traceback.extract_tb(info.value.__traceback__)[1:]
        assert [f.name for f in frames if f.filename == __file__] == [function.__name__]
        assert any("embedding" in (f.line or "") for f in frames)
    assert captured.op_counts


# -- who calls ------------------------------------------------------------------------------------
def calls_out(x):
    y = x + 1
    remember_stack()
    y = y * 2

    remember_stack()
    return y


def calls_out_in_callee(x):
    y = x + 1
    y = calls_out(y) + 1
    return (
        calls_out(
            y,
        )
        + 1
    )


def calls_out_in_loop(x):
    for _ in range(2):
        x = x + 1
        with Suppressing():
            x = calls_out(x)
    return x


def calls_out_in_comprehension(x):
    return [calls_out(x * i) for i in range(2)]


def calls_out_of_turns(x):
    y = x + 1
    read = []
    for value in y:  # runs as it is
        read.append(value.item())
        remember_stack()
    return y * 2, read


def calls_out_of_turns_in_callee(x):
    return calls_out_of_turns(x * 2)


def asks_for_frames(x):
    x = x + 1
    remember_stack()
    STACKS.append([(frame.f_code.co_name, frame.f_lineno) for frame in (sys._getframe(1),)])
    x = x * 2
    STACKS.append([(inspect.currentframe().f_back.f_code.co_name, 0)])
    return x + 1


def asks_for_frames_in_callee(x):
    x = asks_for_frames(x) + 1
    return asks_for_frames(x)


@pytest.mark.parametrize(
    "function",
    [
        calls_out,
        calls_out_in_callee,
        calls_out_in_loop,
        calls_out_in_comprehension,
        calls_out_of_turns,
        calls_out_of_turns_in_callee,
        asks_for_frames,
        asks_for_frames_in_callee,
    ],
    ids=lambda f: f.__name__,
)
def test_stack(function: Callable[..., Any]) -> None:
    def stacks(fn: Callable[..., Any]) -> list[list[tuple[str, int]]]:
        STACKS.clear()
        fn(X)
        return list(STACKS)

    expected = stacks(function)
    assert len(expected) >= 2 and all(expected)
    capturing, _ = compiled(function)
    for _ in range(2):
        assert stacks(capturing) == expected


# -- trace functions ------------------------------------------------------------------------------
def traced(fn: Callable[..., Any]) -> list[tuple[str, str, int]]:
    """The events in this file's frames during a call: function, event, line."""
    events: list[tuple[str, str, int]] = []

    def tracer(frame, event, arg):
        code = frame.f_code
        if code.co_filename == __file__ and code.co_name in SHOWN:
            events.append((code.co_name, event, frame.f_lineno))
        return tracer

    old = sys.gettrace()
    sys.settrace(tracer)
    try:
        fn(X)
    except Boom:
        pass
    finally:
        sys.settrace(old)
    return events


SHOWN = {"calls_out", "after_two_breaks", "in_loop", "data_dependent"}
with open(__file__, encoding="utf-8") as text:
    BREAKING_LINES = {
        number
        for number, line in enumerate(text, 1)
        if line.strip() in ('print(end="")', "remember_stack()", "if y.sum() > 0:")
    }


@pytest.mark.parametrize(
    "function", [calls_out, after_two_breaks, in_loop, data_dependent], ids=lambda f: f.__name__
)
def test_trace_function(function: Callable[..., Any]) -> None:
    """No lines but the user's come, those that break among them, and the line that raises first."""
    eager = traced(function)
    capturing, captured = compiled(function)
    lines = {line for _, event, line in eager if event == "line"}
    first = function.__code__.co_firstlineno  # where the graph is called
    for _ in range(2):
        found = traced(capturing)
        shown = {line for _, event, line in found if event == "line"}
        assert shown <= {*lines, first}
        assert {line for line in shown if line in BREAKING_LINES} == lines & BREAKING_LINES
        assert {name for name, *_ in found} == {function.__name__}
        assert exceptions(found)[:1] == exceptions(eager)
    # A branch that only raises is checked behind the graph.
    assert bool(captured.codes) is (function is not data_dependent)


def exceptions(events: list[tuple[str, str, int]]) -> list[int]:
    return [line for _, event, line in events if event == "exception"]


# -- columns --------------------------------------------------------------------------------------
def test_columns_of_the_failing_expression() -> None:
    """Tracebacks underline the same part of the line."""

    def columns(fn):
        try:
            fn(X)
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            return [(f.colno, f.end_colno) for f in frames if f.name == "uncaptured_call"]

    capturing, _ = compiled(uncaptured_call)
    expected = columns(uncaptured_call)
    assert columns(capturing) == expected and columns(capturing) == expected


def fails_inside(x):
    return x.sum(), {}["missing"] + 1


def leaves_by_finally(x):
    try:
        return fails_inside(x)
    finally:
        x = x + 1


def caught_inside(x):
    try:
        leaves_by_finally(x * 2)
    except KeyError as error:
        return x + 1, error


def test_frames_that_captured_code_passes() -> None:
    """Their entries show where they were, to the column, where they were left, and their module."""

    def entries(fn):
        error = fn(X)[1]
        shown = [
            (f.name, f.lineno, f.end_lineno, f.colno, f.end_colno)
            for f in traceback.extract_tb(error.__traceback__)
        ]
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        own = [(f.f_lineno, f.f_globals is globals()) for f in frames[1:]]
        return shown, own

    capturing, captured = compiled(caught_inside)
    expected = entries(caught_inside)
    assert entries(capturing) == expected and entries(capturing) == expected
    assert captured.op_counts and not captured.codes


class Word:
    """Says what it is asked, and refuses one of them."""

    def __init__(self, text: str) -> None:
        self.text = text

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        if other == "refused":
            raise KeyError(self.text)
        return self.text == other

    def __rmul__(self, other: object) -> int:
        raise KeyError(self.text)


def adding(total, item):
    if item == "refused":
        raise KeyError(item)
    return total + item


@pytest.mark.parametrize(
    "call",
    [
        lambda: functools.reduce(adding, [1, 2, "refused"]),
        lambda: functools.reduce(adding, []),
        lambda: functools.reduce(adding, 3),
        lambda: operator.countOf([Word("a")], "refused"),
        lambda: operator.countOf(3, "a"),
        lambda: operator.indexOf(iter([Word("a")]), "refused"),
        lambda: operator.indexOf([Word("a")], "b"),
        lambda: operator.indexOf(3, "a"),
        lambda: math.prod([1, Word("a")]),
        lambda: collections.Counter([1, []]),
    ],
)
def test_functions_in_c_have_no_frames(call):
    """Their polyfills have some, which a traceback must not show."""

    def program(x):
        try:
            return x + 1, call()
        except Exception as error:
            return x - 1, error

    def raised_by(function):
        _, error = function(torch.ones(2))
        names = [frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__)]
        return type(error), str(error), names

    capturing, _ = compiled(program)
    for _ in range(2):
        assert raised_by(capturing) == raised_by(program)
