"""Objects of the program's surroundings in captured frames: what a thread keeps for itself, weak
proxies, texts that name an address, long loops of Python.
"""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import pytest
import torch

import dynamo

local = threading.local()


class Depth(threading.local):
    depth = 0


depth = Depth()


class Counter:
    """A backend that counts its graphs."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, gm: Any, inputs: Any) -> Any:
        self.graphs += 1
        return gm


# -- thread locals ---------------------------------------------------------------------------------
def stores(x):
    local.w = local.v + 1
    return x * local.v + local.w


def makes(x):
    if not hasattr(local, "n"):
        local.n = 0
    local.n += 1
    return x * local.n


def nests(x):
    depth.depth += 1
    try:
        return x * depth.depth
    finally:
        depth.depth -= 1


def misses(x):
    try:
        local.missing
    except AttributeError as error:
        return x + 1, str(error)


def deletes(x):
    local.q = 1
    found = local.q
    del local.q
    return x + found, hasattr(local, "q")


def keeps_tensors(x):
    local.t = x * 2
    return local.t + 1


def run_in_threads(f: Any) -> str:
    """What calls in two threads give, and leave."""
    vars(local).clear()
    vars(depth).clear()
    local.v = 3
    seen = [f(torch.ones(2)) for _ in range(3)]
    local.v = 4
    seen.append(f(torch.ones(2)))

    def other():
        local.v = 9
        seen.extend([f(torch.ones(2)), sorted(vars(local).items())])

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    return str((seen, sorted(vars(local).items()), vars(depth)))


@pytest.mark.parametrize("f", [stores, makes, nests, misses, deletes, keeps_tensors])
def test_thread_locals(f):
    compiled = dynamo.compile(f, backend="eager", fullgraph=True)
    assert run_in_threads(compiled) == run_in_threads(f)


def test_a_class_attribute_behind_a_thread_local(monkeypatch):
    def f(x):
        return x + depth.depth

    vars(depth).clear()
    compiled = dynamo.compile(f, backend="eager", fullgraph=True)
    assert compiled(torch.zeros(1)).item() == 0
    monkeypatch.setattr(Depth, "depth", 7)
    assert compiled(torch.zeros(1)).item() == 7


# -- weak proxies ----------------------------------------------------------------------------------
class Target:
    def __init__(self, value):
        self.value = value

    def grow(self, x):
        self.value += 1
        return x * self.value

    def __call__(self, x):
        return x - self.value

    def __len__(self):
        return 3


def test_proxies_hand_on():
    counter = Counter()

    def f(proxy, x):
        return x * proxy.value + proxy.grow(x) + proxy(x), hasattr(proxy, "other")

    compiled = dynamo.compile(f, backend=counter, fullgraph=True)
    ours, theirs = Target(4), Target(4)
    for _ in range(3):
        got, expected = (
            g(weakref.proxy(t), torch.ones(2)) for g, t in ((compiled, ours), (f, theirs))
        )
        assert torch.equal(got[0], expected[0]) and got[1] is expected[1] is False
        assert ours.value == theirs.value
    assert counter.graphs == 2
    assert torch.equal(compiled(ours, torch.ones(2))[0], f(theirs, torch.ones(2))[0])


def test_what_proxies_are():
    target = Target(2)
    proxy = weakref.proxy(target)

    def f(x):
        same = proxy is target, isinstance(proxy, Target), type(proxy) is Target
        return x + 1, same, len(proxy), bool(proxy)

    got, expected = dynamo.compile(f, backend="eager")(torch.ones(2)), f(torch.ones(2))
    assert torch.equal(got[0], expected[0]) and got[1:] == expected[1:]


def test_proxies_of_what_has_ended():
    target = Target(2)
    proxy = weakref.proxy(target)
    compiled = dynamo.compile(lambda x: x * proxy.value, backend="eager", fullgraph=True)
    assert compiled(torch.ones(1)).item() == 2
    del target
    gc.collect()
    for _ in range(2):
        with pytest.raises(ReferenceError, match="weakly-referenced object no longer exists"):
            compiled(torch.ones(1))


# -- texts -----------------------------------------------------------------------------------------
def test_texts_with_addresses():
    class Plain:
        pass

    def function():
        pass

    held = [Plain()]

    def f(x):
        plain = held[0]
        texts = repr(plain), str(plain), f"{plain}", "%s" % plain, f"{function!r}", str([plain])
        return x + 1, texts, repr(len), str(torch.sin)

    counter = Counter()
    compiled = dynamo.compile(f, backend=counter, fullgraph=True)

    def check(graphs):
        assert compiled(torch.ones(2))[1:] == f(torch.ones(2))[1:]
        assert counter.graphs == graphs

    check(1)
    check(1)
    held[0] = Plain()
    check(2)
    function.__qualname__ = "renamed"
    check(3)
    Plain.__qualname__ = "Renamed"
    check(4)
    Plain.__repr__ = lambda self: "own"  # type: ignore[method-assign]
    check(5)


# -- long loops ------------------------------------------------------------------------------------
def test_long_loops_of_numbers():
    def f(x):
        total = 0
        for i in range(30_000):
            total = (total * 31 + i) % 1_000_003
        return x + total

    compiled = dynamo.compile(f, backend="eager", fullgraph=True)
    assert torch.equal(compiled(torch.zeros(1)), f(torch.zeros(1)))


def test_the_limit_of_loops_counts():
    def f(x):
        total = 0
        for i in range(2_000):
            total += i
        return x + total

    with dynamo.config.patch(loop_limit=5_000):
        with pytest.raises(dynamo.errors.Unsupported, match="more than 5000 instructions"):
            dynamo.compile(f, backend="eager", fullgraph=True)(torch.zeros(1))
        compiled = dynamo.compile(f, backend="eager")
        assert torch.equal(compiled(torch.zeros(1)), f(torch.zeros(1)))


@pytest.mark.parametrize("fullgraph", [False, True])
def test_a_loop_that_takes_long_breaks_unless_it_must_not(monkeypatch, fullgraph):
    monkeypatch.setattr("dynamo.interp.output._SECONDS", 0.0)

    def f(x):
        total = 0
        for i in range(20_000):
            total = (total * 31 + i) % 1_000_003
        return x + total

    compiled = dynamo.compile(f, backend="eager", fullgraph=fullgraph)
    assert torch.equal(compiled(torch.zeros(1)), f(torch.zeros(1)))
    codes = {found.code for record in compiled.context.records for found in record.breaks}
    assert ("LOOP_LIMIT" in codes) is not fullgraph


def _turns(n, start=0):
    for i in range(10_000):
        n = (n * 31 + i + start) % 1_000_003
    return n


def _in_a_callee(x):
    return (x.cos() * _turns(3)).sin() + 1


def _nested(x):
    n, seen = 0, []
    for i in range(100):
        for j in range(100):
            n += i * j % 7
        seen.append(n)
    return (x * n).sin() + len(seen), seen


def _around_operations(x):
    for turn in range(2):
        x = x.sin() + 1
        total = 0
        for i in range(10_000):
            total += i % 5
        x = x * total + turn
    return x


def _raises(x):
    y = x + 1
    try:
        for i in range(10_000):
            if i == 9_999:
                raise ValueError(i)
    except ValueError as error:
        return (y * error.args[0]).cos()


def _that_breaks(x):
    found = []
    for i in range(10_000):
        if i % 3_000 == 7:
            found.append(i)
        if i == 9_998:
            break
    return (x * len(found)).sin(), found


@pytest.mark.parametrize(
    ("f", "graphs"),
    [(_in_a_callee, 2), (_nested, 1), (_around_operations, 4), (_raises, 1), (_that_breaks, 1)],
)
def test_capture_goes_on_behind_a_long_loop(f, graphs):
    with dynamo.config.patch(loop_limit=5_000):
        compiled = dynamo.compile(f, backend="eager")
        for x in (torch.ones(2), torch.arange(2.0)):
            expected, given = f(x), compiled(x)
            torch.testing.assert_close(given, expected, rtol=0, atol=0)
    records = compiled.context.records
    assert sum(len(record.graphs) for record in records) == graphs
    assert {found.code for record in records for found in record.breaks} == {"LOOP_LIMIT"}


MANY = {
    "list": (
        [0.5, 2.0] * 30_000,
        [max, sum, lambda v: 3 in v, lambda v: v == [*v], lambda v: sorted(v)[-1], tuple],
    ),
    "dict": ({str(i): i for i in range(60_000)}, [dict.copy, lambda v: max(v.values()), list]),
    "set": (set(range(60_000)), [max, lambda v: v | {-1}, lambda v: 60_001 in v]),
}


@pytest.mark.parametrize("kind", MANY)
def test_very_many_items_are_not_guarded_one_by_one(kind):
    items, functions = MANY[kind]
    for function in functions:

        def f(x, v):
            return x + 1, len(v), function(v)  # noqa: B023

        compiled = dynamo.compile(f, backend="eager")
        for _ in range(2):
            assert compiled(torch.zeros(1), items) == f(torch.zeros(1), items)
        guards = sum(len(record.guards) for record in compiled.context.records)
        assert guards < 100, guards
