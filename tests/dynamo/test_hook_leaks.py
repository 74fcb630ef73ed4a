"""The frame hook keeps nothing alive, and ends with the interpreter."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import tracemalloc

import pytest
import torch

import dynamo
from dynamo import _hook
from tests.dynamo.hook_support import Context, Converter, compiled
from tests.dynamo.test_hook_safety import BOTH, clean_state  # noqa: F401  # a fixture

# leaks


class Arg:
    def __init__(self):
        self.n = 1


def _refcounts_stay(call, *objects, times=10_000):
    call()
    call()
    gc.collect()
    before = [sys.getrefcount(o) for o in objects]
    count = len(gc.get_objects())
    tracemalloc.start()
    try:
        call()
        size = tracemalloc.get_traced_memory()[0]
        for _ in range(times):
            call()
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - size
    finally:
        tracemalloc.stop()
    assert [sys.getrefcount(o) for o in objects] == before
    assert len(gc.get_objects()) - count < 50  # fewer: what tests before left is gone
    assert grown < 20_000


@BOTH
@pytest.mark.parametrize("extra_stack", [0, 50_000])
def test_no_leak_in_calls(needs_hook, extra_stack):
    n = 7

    def f(x, y=3, *args, k, **kw):
        def inner():
            return x

        return (inner(), n, 1000)[2]

    def outer(x):
        return f(x, 1, 2, 3, k=x, z=x)

    x = Arg()
    convert = Converter(needs_hook=needs_hook, extra_stack=extra_stack)
    g, h = compiled(f, convert), compiled(outer, convert)
    new = lambda fn: _hook.cache_entries(fn.__code__)[0].code
    g(x, k=1), h(x)

    def call():
        g(x, 1, 2, k=x, z=x)
        g(x=x, k=x)
        h(x)
        g(x, k=1)

    _refcounts_stay(call, x, f, f.__code__, new(f), g.context, convert, globals(), times=2500)


def test_no_leak_in_failures():
    def f(x):
        return x + 1000

    def g(x, *a, **k):
        return f(x)

    def failing(frame, context):
        if frame.f_code is f.__code__:
            raise ValueError
        return None

    x = Arg()
    c = compiled(g, failing)

    def call():
        try:
            c(x, x, y=x)
        except ValueError:
            pass
        try:
            c()
        except TypeError:
            pass

    _refcounts_stay(call, x, f, g, f.__code__, c, times=3000)


def test_no_leak_in_recompiles():
    def f(x):
        return x + 1000

    x = Arg()
    converts = Converter(guard=lambda frame: lambda *args: False)
    context = Context()
    g = compiled(f, converts, context)

    def call():
        for i in range(20):
            g(i)
        _hook.reset_all()
        converts.names.clear()
        converts.failed.clear()

    _refcounts_stay(call, f, f.__code__, context, converts, times=50)


def test_no_leak_in_contexts():
    def f(x):
        return x + 1000

    def call():
        g = compiled(f)
        assert g(1) == g(1) == 2001
        d = _hook.disabled(f), _hook.run_only(g)
        assert d[1](1) == 2001

    _refcounts_stay(call, f, f.__code__, times=2000)


def test_reset_lets_reports_go():
    class Scaled:
        by = 2.0

    def f(scaled, x):
        return x * scaled.by

    scaled, x = Scaled(), torch.ones(3)
    g = dynamo.compile(f, backend="eager")

    def call():
        dynamo.reset()
        assert g(scaled, x).sum() == 6

    _refcounts_stay(call, f, f.__code__, Scaled, Scaled.by, x, times=20)


# the end


def _run(script):
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))),
    )
    return done.returncode, done.stdout, done.stderr


def test_interpreter_shutdown():
    code, out, err = _run(
        """
        import atexit, sys, threading
        from dynamo import _hook
        from tests.dynamo.hook_support import compiled, Converter

        def f(x):
            return x + 1000
        g = compiled(f, needs_hook=True)
        class Late:
            def __init__(self):
                self.g = g
            def __del__(self):
                print("late", self.g(1))
        late = Late()
        keep = [late, g]
        sys.modules["keep_me"] = keep
        atexit.register(lambda: print("atexit", compiled(f)(2)))
        fresh = compiled(lambda x: x + 1000)
        class Fresh:
            def __del__(self, fresh=fresh):
                print("fresh", fresh(1) in (1001, 2001))
        other = Fresh()
        print(g(1))
        """
    )
    assert code == 0, err
    assert out.startswith("2001\natexit 2002\n") and "late 2001" in out and "fresh True" in out
    assert "Fatal" not in err and "Traceback" not in err


def test_interpreter_shutdown_with_a_running_thread():
    code, out, err = _run(
        """
        import threading, time
        from tests.dynamo.hook_support import compiled, Converter

        def inner(x):
            return x + 1000
        def f(x):
            time.sleep(0)
            return inner(x) + 1000
        g = compiled(f, needs_hook=True)
        def forever():
            while True:
                g(1)
        for _ in range(3):
            threading.Thread(target=forever, daemon=True).start()
        time.sleep(0.05)
        print(g(1))
        """
    )
    assert (code, out) == (0, "4001\n"), err
    assert "Fatal" not in err


def test_subinterpreter_is_refused():
    code, out, err = _run(
        """
        try:
            import _xxsubinterpreters as interpreters
        except ImportError:
            import _interpreters as interpreters
        from dynamo import _hook
        script = f'''
        import importlib.util
        spec = importlib.util.spec_from_file_location("dynamo._hook", {_hook.__file__!r})
        try:
            spec.loader.exec_module(importlib.util.module_from_spec(spec))
        except ImportError as error:
            print("refused:", error, flush=True)
        '''
        import textwrap
        interpreters.run_string(interpreters.create(), textwrap.dedent(script))
        """
    )
    assert code == 0, err
    assert "refused:" in out
