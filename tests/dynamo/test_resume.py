"""Continuation functions: cut at every instruction, and go on to the same result."""

from __future__ import annotations

import gc
import inspect
import sys
import traceback
import types
import weakref
from dataclasses import replace

import pytest

from dynamo.bytecode import normalize, versions
from dynamo.continuations.parts import Item, Rematerialised
from dynamo.continuations.resume import CannotResume, make_resume_code, origin
from tests.dynamo.bytecode_corpus import CASES, Manager, Point
from tests.dynamo.reference import Frame, Handling

METHODS = (Point.with_super, Point.super_in_cell)
IDS = [f"{function.__name__}-{i}" for i, (function, _) in enumerate(CASES)]


def outcome(run, log):
    """What a run gives, comparably: result or exception, and its log."""
    try:
        result = ("returned", _plain(run()))
    except Exception as error:
        chain = (type(error.__cause__), type(error.__context__))
        result = ("raised", type(error), _plain(error.args), *chain)
    return result, _plain(log)


def _plain(value):
    """Functions and objects become their types, so that runs can be compared."""
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, (int, str, float, set, type(None))):
        return value
    return type(value)


@pytest.fixture(autouse=True)
def _no_exception_left():
    """No exception stays "being handled" in the thread: every PUSH_EXC_INFO has its POP_EXCEPT."""
    yield
    assert sys.exc_info() == (None, None, None)


def arguments(function, make):
    log: list = []
    args = (Point(1, 2), log) if function in METHODS else (log, *make())
    return log, args


@pytest.mark.parametrize(("function", "make"), CASES, ids=IDS)
def test_reference_interpreter(function, make):
    """Canonical instructions mean what they are documented to mean."""
    log, args = arguments(function, make)
    expected = outcome(lambda: function(*args), log)
    log, args = arguments(function, make)

    def run():
        frame = Frame(function, args)
        frame.run()
        return frame.result

    assert _without_context(outcome(run, log)) == _without_context(expected)


def _without_context(result):
    # The reference interpreter does not set __context__.
    return result[0][:3], [entry for entry in result[1] if not _about_context(entry)]


def _about_context(entry):
    return isinstance(entry, list) and entry[:1] == ["inner"]


def _can_cut(frame):
    instr = frame.instructions[frame.index]
    started = any(i.op == "RESUME" for i in frame.instructions[: frame.index])
    return started and instr.op != "RESUME" and _is_plain(frame)


def _is_plain(frame):
    """Not between COPY and POP_EXCEPT, where what PUSH_EXC_INFO saved is twice on the stack."""
    handling = [id(value) for value in frame.stack if isinstance(value, Handling)]
    return len(handling) == len(set(handling))


@pytest.mark.parametrize(("function", "make"), CASES, ids=IDS)
def test_cut_everywhere(function, make):
    """Run k steps, then the continuation; for every k."""
    log, args = arguments(function, make)
    expected = _without_context(outcome(lambda: function(*args), log))
    cuts = steps = 0
    ended = False
    while not ended:
        steps += 1
        log, args = arguments(function, make)

        def run():
            nonlocal cuts, ended
            frame = Frame(function, args)
            ended = True
            frame.run(steps)
            if frame.done:
                return frame.result
            ended = False
            if not _can_cut(frame):
                frame.run()
                return frame.result
            cuts += 1
            continuation, rest = frame.continuation()
            return continuation(*rest)

        assert _without_context(outcome(run, log)) == expected, f"cut after {steps} steps"
    assert cuts > 3


@pytest.mark.parametrize(("function", "make"), CASES, ids=IDS)
def test_cut_again_and_again(function, make):
    """Continuations of continuations: a cut every few steps, code never grows."""
    log, args = arguments(function, make)
    expected = _without_context(outcome(lambda: function(*args), log))
    code = function.__code__
    # Each read of an own cell has a handler for the case that it has no value.
    largest = len(code.co_code) + 120 + 30 * sum(map(_reads_own_cell(code), normalize(code)))
    for stride in (4, 7):
        log, args = arguments(function, make)

        def run():
            frame = Frame(function, args)
            while True:
                frame.run(stride)
                while not frame.done and not _can_cut_continuation(frame):
                    frame.step()
                if frame.done:
                    return frame.result
                continuation, rest = frame.continuation()
                assert len(continuation.__code__.co_code) < largest
                assert origin(continuation.__code__).code is function.__code__
                frame = Frame(continuation, tuple(rest))
                while frame.instructions[frame.index].op != "JUMP":  # its prologue
                    frame.step()
                frame.step()

        got = _without_context(outcome(run, log))
        assert got == expected, f"a cut every {stride} steps"


def _reads_own_cell(code):
    return lambda i: i.op in ("LOAD_DEREF", "DELETE_DEREF") and i.argval in code.co_cellvars


def _can_cut_continuation(frame):
    if origin(frame.code) is None:
        return _can_cut(frame)
    return _is_plain(frame)


def _index_of(code, op, argval):
    return next(i.index for i in normalize(code) if i.op == op and i.argval == argval)


def add_in_loop(x, n):
    total = x
    for i in range(n):
        total += i
    return total


def test_cached_while_used():
    index = _index_of(add_in_loop.__code__, "BINARY_OP", "+=")
    make = lambda: make_resume_code(
        add_in_loop.__code__, index, stack=[Item.VALUE] * 3, local_names=["x"]
    )
    first = make()
    assert make() is first
    function = types.FunctionType(first, globals())
    assert function(iter([5]), 10, 1, None) == 16
    reference = weakref.ref(first)
    del first, function
    gc.collect()
    assert reference() is None


def test_keeps_no_code_alive():
    namespace: dict = {}
    exec("def f(x):\n  y = x + 1\n  return y * 2\n", namespace)
    code = namespace["f"].__code__
    index = _index_of(code, "BINARY_OP", "*")
    made = make_resume_code(code, index, stack=[Item.VALUE] * 2, local_names=[])
    again = make_resume_code(
        made, _index_of(made, "BINARY_OP", "*"), stack=[Item.VALUE] * 2, local_names=["x"]
    )
    assert types.FunctionType(again, {})(3, 4, 0) == 12
    references = [weakref.ref(c) for c in (code, made, again)]
    namespace.clear()
    del code, made, again
    gc.collect()
    assert [r() for r in references] == [None] * 3


def raises_later(x):
    y = x + 1
    return y / 0


def test_traceback_shows_the_user_function():
    code = raises_later.__code__
    index = _index_of(code, "STORE_FAST", "y")
    made = make_resume_code(code, index, stack=[Item.VALUE], local_names=[])
    assert (made.co_name, made.co_qualname) == ("raises_later", code.co_qualname)
    with pytest.raises(ZeroDivisionError) as error:
        types.FunctionType(made, {})(3)
    last = traceback.extract_tb(error.value.__traceback__)[-1]
    assert (last.name, last.line) == ("raises_later", "return y / 0")
    assert origin(made).code is code
    assert origin(made).lineno == code.co_firstlineno + 1
    assert origin(code) is None


def test_stack_parameters_do_not_live_on():
    """An object that was on the stack dies when the original would have dropped it."""

    def function(value, probe):
        len(value)
        return probe()

    class Thing(list):
        pass

    thing = Thing()
    reference = weakref.ref(thing)
    index = _index_of(function.__code__, "CALL", 1)
    code = make_resume_code(
        function.__code__, index, stack=[Item.VALUE, Item.NULL, Item.VALUE], local_names=["probe"]
    )
    continuation = types.FunctionType(code, {})
    arguments_ = [len, thing, reference]
    del thing

    def call():
        values = list(arguments_)
        arguments_.clear()
        return continuation(values.pop(0), values.pop(0), values.pop(0))

    # The caller's own argument array keeps it during the call on some versions; the frame does not.
    assert "locals" not in function.__code__.co_names
    call()
    gc.collect()
    assert reference() is None


def test_locals_are_the_users():
    def function(a):
        b = len(str(a))
        return sorted(locals())

    code = function.__code__
    index = _index_of(code, "STORE_FAST", "b")
    made = make_resume_code(code, index, stack=[Item.VALUE], local_names=["a"])
    assert types.FunctionType(made, {"sorted": sorted, "locals": locals})(1, 2) == ["a", "b"]


def test_generators_go_on_as_generators():
    def generator(x):
        y = x + 1
        sent = yield y
        yield sent * x

    code = generator.__code__
    index = _index_of(code, "STORE_FAST", "y")
    made = make_resume_code(code, index, stack=[Item.VALUE], local_names=["x"])
    rest = types.FunctionType(made, {})(10, 3)
    assert inspect.isgenerator(rest) and rest.gi_code.co_name == "generator"
    assert [rest.send(None), rest.send(4)] == [10, 12]
    assert origin(made).code is code


def test_coroutines_go_on_as_coroutines():
    async def coroutine(x):
        y = x + 1
        return y * x

    code = coroutine.__code__
    index = _index_of(code, "STORE_FAST", "y")
    made = make_resume_code(code, index, stack=[Item.VALUE], local_names=["x"])
    rest = types.FunctionType(made, {})(10, 3)
    with pytest.raises(StopIteration) as stop:
        rest.send(None)
    assert inspect.iscoroutine(rest) and stop.value.value == 30


def test_continuations_make_arguments():
    def function(x, n):
        total = x - n
        return total * x

    code = function.__code__
    index = _index_of(code, "STORE_FAST", "total")
    # The stack's item and x are max(.made2, min(.made0, .made1)).
    made = (Rematerialised(min, (None, None)), Rematerialised(max, (None, 0), places=(0, 1)))
    resumed = make_resume_code(code, index, stack=[Item.VALUE], local_names=["x"], made=made)
    assert resumed.co_varnames[:3] == (".made0", ".made1", ".made2")
    assert types.FunctionType(resumed, {})(8, 3, 1) == 9
    again = make_resume_code(code, index, stack=[Item.VALUE], local_names=["x"], made=made)
    assert again is resumed
    other = (made[0], replace(made[1], kind=1))
    assert (
        make_resume_code(code, index, stack=[Item.VALUE], local_names=["x"], made=other)
        is not resumed
    )


def test_wrong_layouts_are_refused():
    code = add_in_loop.__code__
    index = _index_of(code, "BINARY_OP", "+=")
    with pytest.raises(ValueError, match="stack of 1 items where 3 belong"):
        make_resume_code(code, index, stack=[Item.VALUE], local_names=["x"])
    with pytest.raises(CannotResume):
        make_resume_code(code, 0, stack=[], local_names=["x", "n"])

    def with_cell(x):
        return lambda: x

    if not versions.HAS_LOAD_FAST_AND_CLEAR:
        with pytest.raises(ValueError, match="cells are shared"):
            make_resume_code(with_cell.__code__, 3, stack=[], local_names=["x"])
    with pytest.raises(ValueError, match="clash"):
        make_resume_code(code, index, stack=[Item.VALUE] * 3, local_names=["x", "x"])


def handler_in_caller(log, x):
    try:
        log.append("before")
        y = 1 // x
        log.append("after")
    except ZeroDivisionError as error:
        log.append(repr(sys.exc_info()[1]))
        y = str(error)
    return y


def test_enter_at_a_handler():
    """The instruction that broke raised in the rewritten frame: the user's handler goes on."""
    code = handler_in_caller.__code__
    breaking = next(i for i in normalize(code) if i.op == "BINARY_OP")
    handler = breaking.handler
    items = [Item.VALUE] * (handler.depth + handler.push_lasti + 1)
    made = make_resume_code(code, handler.target.index, stack=items, local_names=["log", "x"])
    log: list = []
    error = ZeroDivisionError("division")
    result = types.FunctionType(made, globals())(*[0] * (len(items) - 1), error, log, 0)
    assert (result, log) == ("division", ["ZeroDivisionError('division')"])
    assert sys.exc_info() == (None, None, None)


def test_break_inside_an_open_with():
    log: list = []

    def function():
        with Manager(log, [KeyError]):
            value = len("abc")
            raise KeyError(value)
        return "swallowed"

    code = function.__code__
    index = _index_of(code, "STORE_FAST", "value")
    made = make_resume_code(code, index, stack=[Item.VALUE, Item.VALUE], local_names=[])
    manager = Manager(log, [KeyError])
    cells = {"log": types.CellType(log)}
    closure = tuple(cells[name] for name in made.co_freevars)
    function = types.FunctionType(made, globals(), closure=closure)
    assert function(manager.__exit__, 3) == "swallowed"
    assert log == [("exit", "KeyError")]
