"""Guard trees through the hook: checked by the C table, dropped once they cannot hold again."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from dynamo import _hook
from dynamo.guards.kinds import GuardSet
from dynamo.guards.sources import GlobalSource, LocalSource
from tests.dynamo.hook_support import Converter, compiled

SCALE = 1


@pytest.fixture(autouse=True)
def clean_state():
    yield
    assert _hook.installed() == "none"
    _hook.reset_all()


def tree(*rows):
    guards = GuardSet()
    for source, kind, payload in rows:
        guards.add(source, kind, payload)
    return guards.build()


def type_tree(frame):
    return tree((LocalSource("x", 0), "type", type(frame.f_locals_array[0])))


BOTH = pytest.mark.parametrize("needs_hook", [False, True])


@BOTH
def test_trees_decide(needs_hook):
    def f(x):
        return x * 1000

    def outer(x):
        return f(x)

    for fn in (f, outer):
        convert = Converter(type_tree, needs_hook)
        g = compiled(fn, convert)
        for _ in range(3):
            assert g(1) == 2000 and g("a") == "a" * 2000 and g(1.0) == 2000.0
        assert convert.names.count("f") == 3


@BOTH
def test_globals_are_guarded(needs_hook):
    global SCALE

    def f(x):
        return x * 1000 * SCALE

    convert = Converter(lambda frame: tree((GlobalSource("SCALE"), "constant", SCALE)), needs_hook)
    g = compiled(f, convert)
    try:
        assert g(1) == g(1) == 2000
        SCALE = 2
        assert g(1) == g(1) == 4000
    finally:
        SCALE = 1
    assert g(1) == 2000
    assert len(convert.names) == 2


@BOTH
def test_entries_of_dead_objects_are_dropped(needs_hook):
    class Owner:
        pass

    def f(x):
        return 1000

    convert = Converter(
        lambda frame: tree((LocalSource("x", 0), "id", frame.f_locals_array[0])), needs_hook
    )
    g = compiled(f, convert)
    first, second = Owner(), Owner()
    assert g(first) == g(second) == 2000
    entries = _hook.cache_entries(f.__code__)
    code = weakref.ref(entries[-1].code)
    assert len(entries) == 2
    del first, entries
    gc.collect()
    assert g(second) == 2000
    third = Owner()
    assert g(third) == 2000
    assert len(_hook.cache_entries(f.__code__)) == 2
    assert code() is None


def test_tensors_are_not_kept():
    def f(x):
        return (x, 1000)[1]

    def guard(frame):
        return tree((LocalSource("x", 0), "tensor", frame.f_locals_array[0]))

    g = compiled(f, guard=guard)
    x = torch.ones(3)
    assert g(x) == g(x) == 2000
    gone = weakref.ref(x)
    del x
    assert gone() is None
