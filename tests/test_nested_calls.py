"""Each handler that calls the program's functions below itself on the Python stack has a reason: a
graph break cannot stand in a function that is called so. A break in it leaves the whole call to
Python, where the function is a frame of its own.

What else runs code of the program is a frame of its own: the program's, or that of a polyfill. A
special method is one if the instruction that asks for it ends with the call
(Interpreter.call_at_end), and a handler of a builtin returns the call with which it ends
(values/objects/exceptions.py:call_handler). The reasons are tables of tools/structure.py, which
`python tools/structure.py --calls` prints.
"""

from __future__ import annotations

import bisect
import collections
import copy
import functools
import itertools
import sys
from pathlib import Path

import pytest
import torch

import dynamo

sys.path.insert(0, str(Path(__file__).parent.parent / "tools"))
import nested_frames
import structure


def test_each_nested_call_has_a_reason():
    assert structure.nested_calls() == []


def test_each_reason_has_its_calls():
    assert [*dict.fromkeys(structure.explained_calls())] == structure.calls_below()


def test_nested_calls_are_found(tmp_path, monkeypatch):
    monkeypatch.setattr(structure, "ROOT", tmp_path)
    (tmp_path / "dynamo").mkdir()
    (tmp_path / "dynamo" / "one.py").write_text(
        "class A:\n    def f(self, tx):\n        return [tx.call_function(a) for a in self.b]\n\n"
        "    def g(self, tx):\n        return tx.finish_call(self)\n\n"
        "def h(tx):\n    def i():\n        tx.inline(1)\n    return i\n"
    )
    assert structure.nested_calls() == ["one.py:A.f", "one.py:h.i"]


# -- what captured programs call ------------------------------------------------------------------
class Key:
    def __init__(self, n=1):
        self.n = n

    def __hash__(self):
        return self.n

    def __eq__(self, other):
        return self.n == other.n

    def __lt__(self, other):
        return self.n < other.n


class Items:
    def __init__(self, n=2):
        self.n = n

    def __iter__(self):
        return self

    def __next__(self):
        self.n -= 1
        if self.n < 0:
            raise StopIteration
        return self.n

    def __len__(self):
        return 2


class Reads:
    def __getattribute__(self, name):
        return len(name)


class Copied:
    def __deepcopy__(self, memo):
        return self


class Shown:
    def __repr__(self):
        return "shown"


class Asked(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})


def negated(n):
    return -n


@functools.cache
def cached(n):
    return n + 1


HASH = "values/objects/objects.py:ObjectValue.hash_key"
EQUAL = "values/objects/objects.py:ObjectValue._answer"
NEXT = "values/objects/objects.py:ObjectValue.next_value"
ITER = "values/objects/objects.py:ObjectValue.iterate"
CALL = "interp/opcodes/calls.py:CALL"
LENGTH = "values/objects/objects.py:ObjectValue.length_value"
OVERRIDE = "torch/overrides.py:_ask"
# Operations whose functions of the program are frames in which a break can stand.
FRAMES = [
    lambda x: sorted([2, 1], key=negated),
    lambda x: max([2, 1], key=negated),
    lambda x: min([Key(2), Key(1)]),
    lambda x: list(filter(negated, [1, 2])),
    lambda x: [*enumerate(filter(negated, [1, 2]))],
    lambda x: [*itertools.islice(itertools.takewhile(negated, [1, 2]), 1)],
    lambda x: [*enumerate(itertools.dropwhile(negated, [1, 0]))],
    lambda x: [*enumerate(itertools.accumulate([1, 2], lambda a, b: a + b))],
    lambda x: [*zip([1, 2], map(negated, [1, 2]), strict=True)],
    lambda x: [*itertools.zip_longest([1, 2], filter(negated, [1]))],
    lambda x: [*itertools.product(filter(negated, [1, 2]), [3])],
    lambda x: [*itertools.chain(map(negated, [1, 2]), [3])],
    lambda x: [n for _, n in enumerate(map(negated, map(negated, [1, 2])))],
    lambda x: dict(enumerate(map(negated, [1, 2]))),
    lambda x: collections.deque(map(negated, [1, 2])),
    lambda x: set().union({1}, *map(lambda n: {n}, [1, 2])),
    lambda x: functools.reduce(lambda a, b: a + b, [1, 2]),
    lambda x: Key() in [Key()],
    lambda x: Reads().name,
    lambda x: f"{Shown()}",
    lambda x: hash(Key()),
    lambda x: torch.cond(True, lambda y: y * negated(1), lambda y: y, (x,)),
    lambda x: torch.func.functional_call(torch.nn.Identity(), {}, (x,)),
]
# Others, and the handlers below which they are called.
BELOW = [
    # A dict's table is C's: what it does between two calls of __eq__ cannot be told in Python.
    ([HASH], lambda x: {Key(): 1}),
    ([HASH], lambda x: {Key()}),
    ([EQUAL, HASH], lambda x: {Key(): 1}[Key()]),
    ([EQUAL, HASH], lambda x: Key() in {Key()}),
    ([HASH], lambda x: collections.Counter([Key()])),
    # list.sort is C's, too: in which order it compares is not told.
    ([EQUAL], lambda x: sorted([Key(2), Key(1)])),
    # The iterator is made before it is asked.
    ([ITER], lambda x: [*itertools.zip_longest(Items(), [1])]),
    ([ITER], lambda x: enumerate(Items())),
    ([ITER], lambda x: zip(Items(), [1])),
    # list() asks for a length in between.
    ([ITER, LENGTH, NEXT], lambda x: list(Items())),
    ([ITER, LENGTH, NEXT], lambda x: sorted(Items(), key=negated)),
    # Behind a break, an object of C stands for the one of ours, in whose frame the key is computed.
    ([CALL, ITER, NEXT], lambda x: [k for k, _ in itertools.groupby(Items(), negated)]),
    # The frames are Python's own, or those of the copy module, which C and handlers stand for.
    ([CALL], lambda x: bisect.bisect([1, 2], 1, key=negated)),
    (["values/builtins/table.py:polyfill"], lambda x: copy.deepcopy([Copied()])),
    (["values/functions/caches.py:LruCacheValue._call_of_values"], lambda x: cached(len(x))),
    ([OVERRIDE], lambda x: x.as_subclass(Asked) + 1),
    ([OVERRIDE], lambda x: torch.sin(x.as_subclass(Asked))),
]


# -- breaks in them -------------------------------------------------------------------------------
LOG: list = []


@dynamo.disable
def note(*said):
    LOG.append(said)


def noted(value):
    note(value)
    return value


def overridden(x):
    if torch.overrides.has_torch_function((x,)):
        return torch.overrides.handle_torch_function(overridden, (x,), x)
    return noted(x + 1)


class Plain(torch.Tensor):
    pass


@functools.cache
def cached_and_noted(n):
    return noted(n + 1)


def odd_number():
    LOG.append("asked")
    return noted(len(LOG))


# Programs with a break below each handler that has a reason, and their graphs.
BROKEN = {
    "default_override": (2, lambda x: overridden((x * 2).as_subclass(Plain)) * 3),
    "cond": (2, lambda x: torch.cond(True, lambda y: noted(y) + 1, lambda y: y, (x * 2,)) * 3),
    "cache": (3, lambda x: x * 2 + cached_and_noted(1) + cached_and_noted(2) * x),
    "call_iterator": (2, lambda x: [x * n for n in iter(odd_number, 5)]),
    "replaced": (2, lambda x: torch.nn.functional.relu(x * 2) + 1),
    "set_of_a_filter": (1, lambda x: x * len({1, 2}.union(filter(noted, [0, 3])))),
    "tee_of_a_filter": (1, lambda x: x * next(itertools.tee(filter(noted, [0, 3]))[1])),
    "keys_of_takewhile": (1, lambda x: x * len(dict.fromkeys(itertools.takewhile(noted, [1, 0])))),
}


@pytest.mark.parametrize("name", BROKEN)
def test_break_below_a_handler(name, monkeypatch):
    """Python runs the whole call: results and effects are eager's, once and in order."""
    if name == "replaced":
        monkeypatch.setattr(torch, "relu", lambda x: noted(x).clamp(min=0))
    graphs, function = BROKEN[name]
    dynamo.reset()
    compiled = dynamo.compile(function, backend="eager")
    found = []
    for called in (function, compiled, compiled):
        LOG.clear()
        cached_and_noted.cache_clear()
        found.append((repr(called(torch.arange(3.0))), repr(LOG)))
    assert found[1] == found[2] == found[0]
    assert sum(len(record.graphs) for record in compiled.context.records) == graphs


def places_of(function):
    dynamo.reset()
    cached.cache_clear()
    with nested_frames.recorded() as places:
        dynamo.compile(function, backend="eager")(torch.ones(2))
    return sorted(places)


@pytest.mark.parametrize("function", FRAMES)
def test_functions_are_frames(function):
    assert places_of(function) == []


@pytest.mark.parametrize(("places", "function"), BELOW)
def test_functions_are_called_below_handlers(places, function):
    assert places_of(function) == places
