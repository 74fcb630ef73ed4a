"""A break at any instruction: capture is stopped after 1, 2, 3, ... instructions of the frame.

What a program returns and does must be the same wherever that is, in whatever callee. An assertion
in a program stays one, PYTEST_DONT_REWRITE: the frames of pytest's explanation, rewritten each at
every break, took ten times as long as the program.
"""

from __future__ import annotations

import contextlib
import itertools
import types
import warnings

import pytest
import torch

import dynamo

X = torch.arange(3.0)


def closures(x):
    n = 2

    def inner(a, b=n, *, c: int = 3) -> int:
        return a * n + b + c

    def outer():
        nonlocal n
        n += 1
        return lambda k, *rest, **named: (k + n, rest, named)

    total = 0
    for i in range(3):
        total = total + inner(i, c=n)
        n += 1
    return x + total, inner(1), outer()(1, 2, z=3), n


def managers(x):
    log = []

    @contextlib.contextmanager
    def manager(name):
        log.append("enter " + name)
        try:
            yield x + 1
        finally:
            log.append("exit " + name)

    with manager("a") as y, torch.no_grad():
        try:
            y = y * 2
            raise KeyError("k")
        except KeyError as error:
            log.append(repr(error))
        else:
            log.append("else")
        finally:
            log.append("finally")
    with contextlib.ExitStack() as stack:
        stack.callback(log.append, "called back")
        stack.enter_context(manager("b"))
    return y, log, torch.is_grad_enabled()


def comprehensions(x):
    d = {k: [v * k for v in range(3) if v != 1] for k in range(1, 3)}
    s = {str(k): x * k for k in d}
    a, *b = [v for v in d.values()]
    g = sum(v[0] for v in d.values())
    return s["1"] + a[0], b, g, f"{a!r:>10} {g}", sorted(s, key=lambda k: -int(k)), {*d}


def classes(x):
    class A:
        k = 3

        def __init__(self, v):
            self.v = v

        @property
        def twice(self):
            return self.v * 2

        def __add__(self, other):
            return A(self.v + other.v)

        def __enter__(self):
            return self

        def __exit__(self, *exception):
            self.left = exception[0]
            return True

    class B(A):
        def __init__(self, v):
            super().__init__(v + 1)

        def __getattr__(self, name):
            return name

    a = A(x) + B(1)
    with a as b:
        assert b is not a, "same"
    return a.twice, a.left, A.k, B(3).missing, B(3).twice


def generators(x):
    def counting(n):
        try:
            for i in range(n):
                got = yield x + i
                if got is not None:
                    yield got
        finally:
            done.append(n)

    def delegating():
        return (yield from counting(2))

    done = []
    g = counting(3)
    first = next(g)
    second = g.send(5)
    rest = [*g]
    left = counting(4)
    next(left)
    left.close()
    return first, second, rest, done, list(delegating())


def coroutines(x):
    @types.coroutine
    def wait(v):
        return (yield v)

    async def numbers():
        for i in range(2):
            await wait(i)
            yield i

    async def main():
        async with Manager() as m:
            got = [i async for i in numbers()]
        return m, got

    class Manager:
        async def __aenter__(self):
            return await wait("enter")

        async def __aexit__(self, *exception):
            await wait("exit")

    c = main()
    asked = []
    try:
        while True:
            asked.append(c.send(len(asked) or None))
    except StopIteration as stop:
        return x + len(asked), asked, stop.value


def matches(x):
    out = []
    for v in [1, (1, 2), {"a": 3, "b": 4}, [1, 2, 3], "s", None]:
        match v:
            case int():
                out.append("int")
            case (a, b):
                out.append(a + b)
            case {"a": n, **rest}:
                out.append((n, rest))
            case [a, *r]:
                out.append(r)
            case str() | None:
                out.append("s")
    return x + len(out), out


def exceptions(x):
    def a(v):
        try:
            return b(v) + 1
        except ZeroDivisionError as error:
            return v * 2, str(error), type(error.__context__)

    def b(v):
        for i in (2, 1, 0):
            v = v / 1
            try:
                1 // i
            except ZeroDivisionError:
                try:
                    [][1]
                except IndexError as error:
                    raise ZeroDivisionError("again") from error
        return v

    def left(items):
        for i in items:
            try:
                if i == 1:
                    continue
                if i == 3:
                    break
                yield i
            finally:
                log.append(i)

    log = []
    try:
        try:
            raise ExceptionGroup("g", [KeyError(1), ValueError(2)])
        except* KeyError as group:
            log.append(len(group.exceptions))
    except ExceptionGroup as rest:
        log.append(repr(rest.exceptions))
    return a(x), list(left(range(5))), log


def mutations(x):
    items, table = [1], {}

    def add(v):
        items.append(v)
        table[v] = x + v
        return len(items)

    while add(len(items)) < 4:
        pass
    del items[0]
    table.pop(2)
    items[1:2] = [7, 8]
    y = x.clone()
    y += 1
    y[0] = 5
    ns = types.SimpleNamespace(a=1)
    ns.b = ns.a + 1
    del ns.a
    return items, list(table), table[1], y, vars(ns)


class Countdown:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return self

    def __next__(self):
        self.n -= 1
        if self.n < 0:
            raise StopIteration
        return self.n


def iterators(x):
    def double(n):
        return n * 2

    e = enumerate(zip([5, 6], map(double, filter(lambda n: n != 2, [1, 2, 3])), strict=True))
    taken = itertools.takewhile(lambda n: n < 4, [1, 2, 3, 4, 1])
    window = [*itertools.islice(taken, 1, None, 2)]
    chained = [*itertools.chain(Countdown(1), map(double, [7]))]
    d = dict(enumerate(Countdown(2)), a=x)
    d.update((str(n), n) for n in Countdown(2))
    return x + next(e)[0], list(e), next(e, "end"), window, list(taken), chained, d


PROGRAMS = [
    classes,
    closures,
    comprehensions,
    coroutines,
    exceptions,
    generators,
    iterators,
    managers,
    matches,
    mutations,
]


def check(program, limits) -> None:
    expected = repr(program(X))
    for limit in limits:
        dynamo.reset()
        settings = {"loop_limit": limit, "rewrite_all_frames": True}
        with warnings.catch_warnings(), dynamo.config.patch(**settings):
            warnings.simplefilter("error", RuntimeWarning)  # of faults in capture
            found = repr(dynamo.compile(program, backend="eager")(X))
        assert found == expected, f"after {limit} instructions"


def suspended(x):
    def numbers():
        yield x
        yield x + 1

    it = numbers()
    next(it)
    return next(it)


def test_a_variable_with_a_suspended_generator():
    check(suspended, range(1, 50))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_some_instructions(program):
    check(program, range(3, 250, 31))


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_more_instructions(program):
    check(program, range(1, 250, 4))
