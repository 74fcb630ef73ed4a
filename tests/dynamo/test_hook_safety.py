"""The frame hook under recursion, generators, exceptions, threads and tools."""

from __future__ import annotations

import asyncio
import gc
import inspect
import itertools
import logging
import os
import signal
import sys
import threading
import time
import traceback
import weakref

import pytest

from dynamo import _hook
from tests.dynamo.hook_support import (
    Context,
    Converter,
    always,
    compiled,
    replace_const,
    type_guard,
)

BOTH = pytest.mark.parametrize("needs_hook", [False, True])


@pytest.fixture(autouse=True)
def clean_state():
    yield
    assert _hook.get_state() == ("off", None)
    assert _hook.installed() == "none"
    _hook.reset_all()


# recursion


@BOTH
@pytest.mark.parametrize("extra_stack", [0, 3, 50_000])
def test_recursion(needs_hook, extra_stack):
    def f(n):
        return 1000 if n == 0 else f(n - 1) + 1

    g = compiled(f, needs_hook=needs_hook, extra_stack=extra_stack)
    expected = 2000 if needs_hook else 1000
    assert g(0) == 2000
    for n in (1, 10, 100):
        assert g(n) == expected + n


@pytest.mark.parametrize("extra_stack", range(0, 60, 7))
def test_frames_anywhere_in_a_stack_chunk(extra_stack):
    """The place that is left after a frame varies with the depth: none must be miscounted."""

    def leaf(a, b, c=3):
        return (a, b, c, 1000)

    def down(n):
        return leaf(n, n + 1) if n == 0 else (leaf(n, 2), down(n - 1), leaf(n, b=1, c=4))

    def expected(n):
        return (
            (n, n + 1, 3, 2000) if n == 0 else ((n, 2, 3, 2000), expected(n - 1), (n, 1, 4, 2000))
        )

    g = compiled(down, extra_stack=extra_stack)
    for depth in range(0, 150, 10):
        assert g(depth) == expected(depth)


@BOTH
def test_recursion_limit(needs_hook):
    def f(n):
        return f(n + 1) + 1000

    def plain(n):
        return g(n + 1) + 1000

    g = compiled(f, needs_hook=needs_hook)
    for _ in range(3):
        with pytest.raises(RecursionError):
            g(0)
    g = compiled(plain, needs_hook=needs_hook)
    for _ in range(3):
        with pytest.raises(RecursionError):
            g(0)
    assert compiled(lambda x: x + 1000)(1) == 2001


@pytest.mark.parametrize("stack_size", [0, 512 * 1024])
def test_end_of_the_c_stack(stack_size):
    def f(n):
        return f(n + 1) + 1000

    def skipped(n):
        return skipped(n + 1)

    def plain(n):
        return g(n + 1) + 1000

    caught = []

    def work(fn):
        try:
            fn(0)
        except RecursionError as error:
            caught.append(error)

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(200_000)
    old_size = threading.stack_size(stack_size)
    try:
        g = compiled(plain, needs_hook=True)
        for fn in (compiled(f, needs_hook=True), compiled(skipped), g):
            thread = threading.Thread(target=work, args=(fn,))
            thread.start()
            thread.join()
    finally:
        threading.stack_size(old_size)
        sys.setrecursionlimit(limit)
    assert len(caught) == 3


def test_recursion_limit_during_convert():
    def f(x):
        return x + 1000

    def forever():
        return forever() + 1

    first = [True]

    def convert(frame, context):
        if first.pop() if first else False:
            forever()
        return Converter()(frame, context)

    g = compiled(f, convert)
    for _ in range(2):
        assert g(1) == 1001  # as it is, for good: the program's own call still fits


# generators and coroutines


def test_generators_run_by_default():
    def numbers(n):
        for i in range(n):
            received = yield helper(i)
            if received:
                yield received

    def helper(i):
        return i + 1000

    def f(n):
        return list(numbers(n)), [i for i in numbers(n)], sum(x for x in numbers(n))

    convert = Converter()
    g = compiled(f, convert)
    for _ in range(2):
        assert g(3) == ([2000, 2001, 2002], [2000, 2001, 2002], 6003)
    assert "numbers" in convert.names


@BOTH
def test_compiled_generator_function(needs_hook):
    def numbers(n):
        for i in range(n):
            try:
                yield i + 1000
            except ValueError:
                yield "caught"

    for extra in (0, 40, 50_000):
        g = compiled(numbers, needs_hook=needs_hook, extra_stack=extra)
        for _ in range(3):
            assert list(g(3)) == [2000, 2001, 2002]
            it = g(2)
            assert next(it) == 2000
            assert it.throw(ValueError) == "caught"
            it.close()
            assert list(itertools.islice(g(10**9), 2)) == [2000, 2001]


@BOTH
def test_suspended_generators_outlive_the_compiled_call(needs_hook):
    def helper(i):
        return i + 1000

    def numbers(n):
        for i in range(n):
            yield helper(i)

    def start(n):
        it = numbers(n)
        return next(it), it

    g = compiled(start, needs_hook=needs_hook)
    first, it = g(3)
    assert first == 2000
    assert list(it) == [1001, 1002]  # runs in the caller's state


@BOTH
def test_coroutines(needs_hook):
    async def inner(x):
        await asyncio.sleep(0)
        return x + 1000

    async def agen(n):
        for i in range(n):
            await asyncio.sleep(0)
            yield i + 1000

    async def outer(x):
        values = [v async for v in agen(2)]
        return await inner(x), values

    g = compiled(inner, needs_hook=needs_hook)
    assert asyncio.run(g(1)) == asyncio.run(g(1)) == 2001
    g = compiled(outer, needs_hook=needs_hook)
    assert asyncio.run(g(1)) == (1001, [1000, 1001])
    g = compiled(agen, needs_hook=needs_hook)

    async def collect():
        return [v async for v in g(2)]

    assert asyncio.run(collect()) == asyncio.run(collect()) == [2000, 2001]


def test_class_bodies_exec_and_imports_in_a_compiled_call():
    def f(x):
        class A:
            y = x + 1

            def m(self):
                return self.y + 1000

        namespace = {}
        exec("def h(v):\n    return v + 1000\nz = h(1)", namespace)
        return A().m(), namespace["z"], [i + 1 for i in range(2)], {k: 1 for k in "ab"}

    g = compiled(f)
    for _ in range(2):
        assert g(1) == (2002, 2001, [1, 2], {"a": 1, "b": 1})


# exceptions


@BOTH
@pytest.mark.parametrize("extra_stack", [0, 50_000])
def test_exceptions_from_new_code_have_a_traceback(needs_hook, extra_stack):
    def f(x):
        y = 1000
        return y // x

    g = compiled(f, needs_hook=needs_hook, extra_stack=extra_stack)
    assert g(1) == 2000
    for call in (g, g):
        with pytest.raises(ZeroDivisionError) as info:
            call(0)
        frames = traceback.extract_tb(info.value.__traceback__)
        assert [frame.name for frame in frames][-1] == "f"
        tb = info.value.__traceback__
        while tb.tb_next:
            tb = tb.tb_next
        assert tb.tb_frame.f_locals == {"x": 0, "y": 2000}


def test_frames_can_be_inspected_from_new_code():
    def who():
        frame = sys._getframe(1)
        return (
            frame.f_code.co_name,
            frame.f_locals["x"],
            frame.f_lineno - frame.f_code.co_firstlineno,
        )

    def f(x):
        return who(), locals(), inspect.currentframe(), 1000

    for needs_hook in (False, True):
        g = compiled(f, needs_hook=needs_hook)
        for _ in range(2):
            found, names, frame, const = g(5)
            assert found == ("f", 5, 1) and names["x"] == 5 and const == 2000
            assert frame.f_locals["x"] == 5 and frame.f_code.co_name == "f"


def test_exception_in_a_guard_is_a_failure_and_logged_once(caplog):
    def f(x):
        return x + 1000

    def guard(*args):
        raise ValueError("no such guard")

    convert = Converter(guard=lambda frame: guard)
    g = compiled(f, convert)
    with caplog.at_level(logging.WARNING, "dynamo.hook"):
        assert [g(1), g(2)] == [2001, 2002]
        assert len(convert.names) == 2
        first = _hook.cache_entries(f.__code__)[-1]
        records = [r for r in caplog.records if str(first.compile_id) in r.getMessage()]
    assert len(records) == 1 and "no such guard" in str(records[0].exc_info[1])


@BOTH
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_interrupt_in_a_guard_propagates(error, needs_hook):
    raising = [False]

    def guard(*args):
        if raising[0]:
            raise error
        return True

    def f(x):
        return x + 1000

    def outer(x):
        return f(x)

    for g in (
        compiled(f, guard=lambda frame: guard, needs_hook=needs_hook),
        compiled(outer, guard=lambda frame: guard, needs_hook=needs_hook),
    ):
        assert g(1) == 2001
        raising[0] = True
        with pytest.raises(error):
            g(1)
        raising[0] = False
        assert g(1) == 2001
        assert len(_hook.cache_entries(f.__code__, g.context)) == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, MemoryError])
def test_exception_in_convert(error):
    class Arg:
        pass

    def f(x, *rest, k=None):
        a, b = 1, 2
        return 1000

    def outer(x):
        return f(x, 1, 2, k=3)

    failures = [True]

    def convert(frame, context):
        if frame.f_code.co_name == "f" and failures:
            failures.pop()
            raise error("in convert")
        return Converter()(frame, context)

    for fn in (f, outer):
        failures[:] = [True]
        g = compiled(fn, convert)
        arg = Arg()
        gone = weakref.ref(arg)
        with pytest.raises(error, match="in convert") as info:
            g(arg)
        names = [frame.name for frame in traceback.extract_tb(info.value.__traceback__)]
        assert names[-1] == "convert" and "discarded frame" not in names
        del info
        assert g(arg) == g(arg) == 2000
        del arg
        assert gone() is None


def test_ctrl_c_during_convert():
    def f(x):
        return x + 1000

    slow = [True]

    def convert(frame, context):
        if slow:
            slow.pop()
            signal.raise_signal(signal.SIGINT)
            time.sleep(10)
        return Converter()(frame, context)

    g = compiled(f, convert)
    # A process started in the background ignores the signal, so install Python's own handler.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            g(1)
    finally:
        signal.signal(signal.SIGINT, before)
    assert g(1) == 2001


# changes while something runs


@BOTH
def test_entries_dropped_while_they_run(needs_hook):
    def f(x):
        _hook.reset_all()
        gc.collect()
        return x + 1000

    g = compiled(f, needs_hook=needs_hook)
    for _ in range(5):
        assert g(1) == 2001
        assert _hook.cache_entries(f.__code__) == []
    context = g.context
    entry = lambda: _hook.GuardedCode(replace_const(f.__code__, 1000, 2000), always, needs_hook)
    h = compiled(f, lambda frame, ctx: entry(), context)
    assert h(1) == 2001


def test_entries_dropped_by_a_guard_and_by_convert():
    def f(x):
        return x + 1000

    def guard(*args):
        _hook.reset_all()
        return True

    convert = Converter(guard=lambda frame: guard)
    g = compiled(f, convert)
    assert [g(1), g(1), g(1)] == [2001] * 3
    assert len(convert.names) == 2

    def resetting(frame, context):
        _hook.reset_all()
        return Converter()(frame, context)

    g = compiled(f, resetting)
    assert [g(1), g(1)] == [2001] * 2


def test_compiled_callable_freed_while_it_runs():
    holder = {}

    def f(x):
        holder.clear()
        gc.collect()
        return x + 1000

    for needs_hook in (False, True):
        for calls in (1, 2):
            holder["g"] = compiled(f, Converter(needs_hook=needs_hook), Context())
            if calls == 2:
                keep = holder["g"]
                keep(1)
                holder["g"] = keep
                del keep
            assert holder["g"](1) == 2001


# threads


@BOTH
def test_threads_compile_once(needs_hook):
    def f(x):
        return x + 1000

    def outer(x):
        return f(x) + 1000

    started = []

    def convert(frame, context):
        started.append(frame.f_code.co_name)
        time.sleep(0.05)
        return Converter(needs_hook=needs_hook)(frame, context)

    g = compiled(outer, convert)
    results, errors = [], []
    barrier = threading.Barrier(8)

    def work():
        try:
            barrier.wait()
            for i in range(300):
                results.append(g(i) - i)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert set(results) == {4000 if needs_hook else 3000} and len(results) == 2400
    assert sorted(started) == (["f", "outer"] if needs_hook else ["outer"])


def test_threads_compile_and_reset_many_functions():
    def make(n):
        namespace = {}
        exec(f"def f(x):\n    return x * 1000 + {n}", namespace)
        return namespace["f"]

    functions = [compiled(make(n), guard=type_guard, needs_hook=n % 2 == 0) for n in range(10)]
    errors = []

    def work(seed):
        try:
            for i in range(400):
                n = (i * 7 + seed) % 10
                assert functions[n](i) == i * 2000 + n
                assert functions[n](i + 0.5) == (i + 0.5) * 2000 + n
                if i % 50 == 0:
                    _hook.reset_all()
        except BaseException as error:
            errors.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not errors


def test_state_is_per_thread():
    def f(x):
        return x + 1000

    seen = []

    def outer(x):
        thread = threading.Thread(target=lambda: seen.append((f(1), _hook.get_state()[0])))
        thread.start()
        thread.join()
        return f(x)

    assert compiled(outer)(1) == 2001
    assert seen == [(1001, "off")]


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_fork_while_another_thread_converts():
    converting, go_on = threading.Event(), threading.Event()

    def slow(x):
        return x + 1000

    def convert(frame, context):
        converting.set()
        go_on.wait(30)
        return Converter()(frame, context)

    thread = threading.Thread(target=compiled(slow, convert), args=(1,))
    thread.start()
    converting.wait(30)
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        os._exit(0 if compiled(lambda x: x + 1000)(1) == 2001 else 1)
    try:
        assert os.waitpid(pid, 0)[1] == 0
    finally:
        go_on.set()
        thread.join()


# tracing tools


@BOTH
def test_settrace(needs_hook):
    def inner(x):
        y = x + 1
        return y

    def f(x):
        a = inner(x)
        return a + 1000

    events = []

    def tracer(frame, event, arg):
        if frame.f_code.co_name in ("f", "inner"):
            events.append((frame.f_code.co_name, event))
        return tracer

    g = compiled(f, needs_hook=needs_hook)
    for _ in range(2):
        events.clear()
        sys.settrace(tracer)
        try:
            result = g(1)
        finally:
            sys.settrace(None)
        assert result == 2002
        assert events == [
            ("f", "call"),
            ("f", "line"),
            ("inner", "call"),
            ("inner", "line"),
            ("inner", "line"),
            ("inner", "return"),
            ("f", "line"),
            ("f", "return"),
        ]


def test_setprofile():
    def f(x):
        return x + 1000

    events = []

    def profiler(frame, event, arg):
        if frame.f_code.co_name == "f":
            events.append(event)

    g = compiled(f)
    for _ in range(2):
        events.clear()
        sys.setprofile(profiler)
        try:
            assert g(1) == 2001
        finally:
            sys.setprofile(None)
        assert events == ["call", "return"]


def test_tracing_with_errors_in_convert():
    def f(x):
        return x + 1000

    def convert(frame, context):
        raise ValueError

    g = compiled(f, convert)
    names = []

    def tracer(frame, event, arg):
        names.append((frame.f_code.co_name, event))
        return tracer

    for setter in (sys.settrace, sys.setprofile):
        names.clear()
        setter(tracer)
        try:
            with pytest.raises(ValueError):
                g(1)
        finally:
            setter(None)
        # A debugger is kept out of the compiler; a profiler counts it.
        assert (("convert", "call") in names) == (setter is sys.setprofile)
        assert "discarded frame" not in {name for name, _ in names}


@pytest.mark.skipif(not hasattr(sys, "monitoring"), reason="sys.monitoring is new in Python 3.12")
def test_monitoring():
    def f(x):
        return x + 1000

    monitoring = sys.monitoring
    tool, seen = 4, []
    monitoring.use_tool_id(tool, "test")
    try:
        for event in (monitoring.events.PY_START, monitoring.events.PY_RETURN):
            monitoring.register_callback(tool, event, lambda code, *rest: seen.append(code.co_name))
        monitoring.set_events(tool, monitoring.events.PY_START | monitoring.events.PY_RETURN)
        g = compiled(f)
        for _ in range(2):
            seen.clear()
            assert g(1) == 2001
            assert seen.count("f") == 2
    finally:
        monitoring.set_events(tool, 0)
        monitoring.free_tool_id(tool)
