"""Lists, deques and dicts from outside that grow with every call: what is not read is unguarded,
and lengths become symbols.
"""

from __future__ import annotations

import collections

import pytest
import torch

import dynamo
from dynamo.guards.sources import SequenceItemSource
from dynamo.values.containers import containers
from tests.dynamo.differential import Picture

CALLS = 6


class Kept:
    def __init__(self):
        self.losses: list = [0]
        self.by_name = {"first": 1, 1: "one"}


class Names(dict):
    def __setitem__(self, key, value):
        super().__setitem__(str(key), value)


# Each takes (kept, x, n).
def append(kept, x, n):
    kept.losses.append(x.sum())
    return x * 2


def append_twice_and_extend(kept, x, n):
    kept.losses.append(x.sum())
    kept.losses += [1, x]
    kept.losses.extend((x * 2, x.shape))
    return x * 2


def put(kept, x, n):
    kept.by_name["last"] = x.sum()
    kept.by_name["first"] = x
    kept.by_name[True] = "true"
    return x + 1


def update(kept, x, n):
    kept.by_name.update({"last": x.sum()}, more=x)
    kept.by_name |= {"most": 3}
    return x + 1


def look_up_beside(kept, x, n):
    kept.by_name["last"] = x
    return kept.by_name["last"] + kept.by_name["first"] + ("none" in kept.by_name)


def set_default(kept, x, n):
    return x + kept.by_name.setdefault("new", 5)


def append_then_raise(kept, x, n):
    kept.losses.append(n)
    kept.by_name["n"] = x
    raise ValueError("after appending")


def append_around_a_break(kept, x, n):
    kept.losses.append(x + 1)
    dynamo.graph_break()
    kept.losses.append(x + 2)
    return x


# These read what they change.
def append_then_read(kept, x, n):
    kept.losses.append(x.sum())
    return x * len(kept.losses), kept.losses[0], list(kept.losses)


def extended_by_itself(kept, x, n):
    kept.losses.append(x)
    kept.losses.extend(kept.losses)


def append_then_pop(kept, x, n):
    kept.losses.append(x)
    kept.losses.append(n)
    return kept.losses.pop(0), kept.losses.pop()


def put_then_iterate(kept, x, n):
    kept.by_name[str(n)] = x
    kept.by_name[True] = 7
    return [*kept.by_name], [*kept.by_name.items()], len(kept.by_name)


def put_then_delete(kept, x, n):
    kept.by_name[str(n)] = x
    kept.by_name["first"] = 2
    del kept.by_name["first"]
    kept.by_name["first"] = x + 1
    return kept.by_name.popitem()


def put_then_clear(kept, x, n):
    kept.by_name["a"] = x
    kept.by_name.clear()
    kept.by_name["b"] = x


def put_while_iterating(kept, x, n):
    for key in kept.by_name:
        kept.by_name["new" + str(n)] = key
    return x


def put_in_place_while_iterating(kept, x, n):
    for key in kept.by_name:
        kept.by_name[key] = x
    return x


def equal_after(kept, x, n):
    kept.by_name["a"] = 1
    kept.losses.append(2)
    return kept.by_name == {"first": 1, 1: "one", "a": 1}, kept.losses == [0, 2]


def count_before_and_after(kept, x, n):
    before = len(kept.losses)
    kept.losses.append(x.sum())
    after = len(kept.losses)
    return x * before, after, f"{before} of {after}", 1.0 / after, after // 2


def count_by_a_closure(kept, x, n):
    def count():
        return len(kept.losses)

    kept.losses.append(x)
    first = count()
    kept.losses.extend((1, 2))
    return x + first, count(), kept.losses.__len__()


def ask_whether_there_are_some(kept, x, n):
    if not kept.losses:
        x = x * 2
    kept.losses.append(1)
    return (x + 1 if kept.losses else x), bool(kept.losses), not kept.losses


def count_around_a_break(kept, x, n):
    kept.losses.append(1)
    torch._dynamo.graph_break()
    kept.losses.append(len(kept.losses))
    return x + len(kept.losses)


def rows_as_many(kept, x, n):
    kept.losses.append(1)
    return torch.zeros(len(kept.losses)) + x[0]


def average(kept, x, n):
    kept.by_name["total"] = x.sum()
    return x / (len(kept.losses) + 1)


def every_third(kept, x, n):
    kept.losses.append(1)
    return x * 2 if len(kept.losses) % 3 == 0 else x


def read_both_ends(kept, x, n):
    kept.losses.append(x.sum())
    kept.losses.append(n)
    return kept.losses[-2] + kept.losses[0], len(kept.losses)


def read_what_may_be_missing(kept, x, n):
    kept.losses.append(n)
    try:
        return x + kept.losses[2]
    except IndexError as error:
        return str(error)


UNREAD = [
    append,
    append_twice_and_extend,
    put,
    update,
    look_up_beside,
    append_then_raise,
    append_around_a_break,
]
COUNTED = [
    count_before_and_after,
    count_by_a_closure,
    ask_whether_there_are_some,
    count_around_a_break,
    rows_as_many,
    average,
    every_third,
    read_both_ends,
    read_what_may_be_missing,
]
READ = [
    set_default,
    append_then_read,
    extended_by_itself,
    append_then_pop,
    put_then_iterate,
    put_then_delete,
    put_then_clear,
    put_while_iterating,
    put_in_place_while_iterating,
    equal_after,
]


def outcome(function, *args):
    try:
        return function(*args)
    except Exception as error:
        return type(error), str(error)


def compiles(function, kept=Kept):
    """Run it CALLS times beside eager; the compilations of its first frame."""
    dynamo.reset()
    run = dynamo.compile(function, backend="eager")
    eager, compiled = kept(), kept()
    for n in range(CALLS):
        x = torch.arange(3.0) + n
        expected = outcome(function, eager, x, n % 2), vars(eager)
        found = outcome(run, compiled, x, n % 2), vars(compiled)
        assert Picture(__file__).of(found) == Picture(__file__).of(expected), f"call {n}"
    return len([r for r in run.context.records if r.compile_id.startswith("0/")])


@pytest.mark.parametrize("function", UNREAD, ids=lambda f: f.__name__)
def test_unread(function):
    dynamic_n = function is append_then_raise
    assert compiles(function) <= 1 + dynamic_n


def most_compiles(function):
    return 2 + (function in (every_third, read_what_may_be_missing))


@pytest.mark.parametrize("function", COUNTED, ids=lambda f: f.__name__)
def test_counted(function):
    """A length is a symbol once it varies, which a condition divides into two."""
    assert compiles(function) <= most_compiles(function)


def test_counted_by_their_class():
    """A buffer that says itself how long it is, as those of experiences do."""

    class Buffer:
        def __init__(self):
            self.items = []

        def __len__(self):
            return len(self.items)

        def add(self, item):
            self.items.append(item)

    def step(buffer, x, minimum):
        buffer.add(x.sum())
        return x / len(buffer) if len(buffer) > minimum else x

    run = dynamo.compile(step, backend="eager")
    eager, compiled = Buffer(), Buffer()
    for n in range(CALLS):
        x = torch.arange(3.0) + n
        assert torch.equal(run(compiled, x, 2), step(eager, x, 2))
    assert len(compiled) == CALLS
    assert len(run.context.records) == 3  # the first, and one for each answer


def test_counted_dicts():
    """Also subclasses that leave len() alone; others run their own."""

    class Doubled(dict):
        def __len__(self):
            return 2 * super().__len__()

    def step(kept, x, n):
        x = x + len(kept.by_name)
        return (x * 2 if kept.by_name else x), len(kept.by_name) > 3

    for cls in (dict, Names, collections.OrderedDict, Doubled):
        dynamo.reset()
        run = dynamo.compile(step, backend="eager")
        kept = Kept()
        kept.by_name = cls()
        for n in range(CALLS):
            expected = step(kept, torch.ones(2), n)
            found = run(kept, torch.ones(2), n)
            assert torch.equal(found[0], expected[0]) and found[1:] == expected[1:]
            kept.by_name[str(n)] = n
        assert len(run.context.records) <= 4 or cls is Doubled


@pytest.mark.parametrize("function", READ, ids=lambda f: f.__name__)
def test_read(function):
    compiles(function)


@pytest.mark.parametrize("function", [*UNREAD, *COUNTED, *READ], ids=lambda f: f.__name__)
def test_subclasses(function):
    """Of dict, with a method of its own, and of list; an OrderedDict and a defaultdict."""

    class Items(list):
        pass

    for cls in (Names, collections.OrderedDict, lambda d: collections.defaultdict(int, d)):

        def kept(cls=cls):
            made = Kept()
            made.by_name = cls(made.by_name)
            made.losses = Items(made.losses)
            return made

        compiles(function, kept)


def test_a_list_with_a_maxlen_of_its_own():
    """Which is no deque's, and is not asked."""

    class Window(list):
        @property
        def maxlen(self):
            asked.append(1)
            return 2

    def step(window, x):
        window.append(x.sum())
        return x + len(window), window[-1], window[0]

    asked: list[int] = []
    run = dynamo.compile(step, backend="eager")
    eager, compiled = Window(), Window()
    for n in range(CALLS):
        x = torch.arange(3.0) + n
        for found, expected in zip(run(compiled, x), step(eager, x)):
            assert torch.equal(found, expected)
    assert not asked


OF_LISTS = [
    f
    for f in [*UNREAD, *COUNTED, *READ]
    if "losses" in f.__code__.co_names and f is not equal_after
]


@pytest.mark.parametrize("most", [None, 0, 1, 3, 8, 100])
@pytest.mark.parametrize("function", OF_LISTS, ids=lambda f: f.__name__)
def test_deques(function, most):
    """Also full ones, which items leave at the other end."""

    def kept():
        made = Kept()
        made.losses = collections.deque(made.losses, most)
        return made

    dynamic_n = function is append_then_raise
    count = compiles(function, kept)
    if function in UNREAD:
        assert count <= 1 + dynamic_n
    elif function in COUNTED and most is None:
        assert count <= most_compiles(function)


def test_a_deque_that_becomes_full():
    """What leaves a deque ends when it does: behind its append, where a finalizer tells."""

    class Telling:
        def __del__(self):
            log.append("end")

    def step(kept, x):
        kept.append(x.sum())
        log.append("appended")
        return x + 1

    def told(run):
        log.clear()
        kept = collections.deque([Telling(), 1, Telling()], 5)
        for n in range(6):
            run(kept, torch.ones(2) + n)
        return list(log)

    log: list[str] = []
    run = dynamo.compile(step, backend="eager")
    assert told(run) == told(step)
    assert len(run.context.records) > 1  # runs natively where an end is told of


def test_one_list_under_two_names():
    """The compiled code holds only as long as they are two."""

    def f(a, b, x):
        a.append(x)
        b.append(x + 1)
        return x * 2

    run = dynamo.compile(f, backend="eager")
    x = torch.ones(2)
    first, second = [], []
    run(first, second, x)
    run(first, first, x)
    assert [t.tolist() for t in first] == [[1, 1], [1, 1], [2, 2]]
    assert [t.tolist() for t in second] == [[2, 2]]


def read_some(items, x):
    """A few of many items, and the number of all."""
    for item in items:
        if item > 2:
            break
    *_, last = [items[-1]]
    return x * items[3] + last + len(items) + item, items[5] if 2 in items else None


class Samples(list):
    pass


@pytest.mark.parametrize("kind", [list, tuple, collections.deque, Samples])
def test_few_of_many(kind, monkeypatch):
    """Nothing is made of items from outside that are not read."""
    made = []

    class Counted(SequenceItemSource):
        def __init__(self, *args):
            made.append(args)
            super().__init__(*args)

    monkeypatch.setattr(containers, "SequenceItemSource", Counted)
    monkeypatch.setattr(containers, "ItemSource", Counted)
    run = dynamo.compile(read_some, backend="eager")
    items, x = kind(range(1000)), torch.ones(2)
    for place, value in ((500, -1), (3, 40), (999, 50)):
        expected, found = read_some(items, x), run(items, x)
        assert torch.equal(found[0], expected[0]) and found[1] == expected[1]
        assert len(made) < 100
        items = kind([value if i == place else item for i, item in enumerate(items)])
    for items in (kind(range(7)), kind([1.0, 2, 3.5, 9, 9, 9])):
        assert torch.equal(run(items, x)[0], read_some(items, x)[0])


@pytest.mark.parametrize("kind", [set, frozenset])
def test_members_asked_for(kind):
    """Of a set from outside: others may come and go."""

    def ask(members, x):
        return x * (3 in members) + ("a" in members), bool(members)

    run, x = dynamo.compile(ask, backend="eager"), torch.ones(2)
    for members in ([3, 4], [3, 7], [3], [3, 7, 8], [True, 4, 5], ["a"], [], [3.0, 1]):
        expected, found = ask(kind(members), x), run(kind(members), x)
        assert torch.equal(found[0], expected[0]) and found[1] is expected[1], members
    assert len(run.context.records) < 8
