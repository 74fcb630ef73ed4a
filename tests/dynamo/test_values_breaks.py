"""Values that live across a graph break are made again; guards notice when outside values
change.
"""

import collections
import functools
import itertools
import types

import pytest
import torch

import dynamo.directives
from dynamo.api.compile import compile
from tests.dynamo.test_values_objects import (
    Child,
    MyDict,
    MyError,
    MyList,
    Pair,
    Plain,
    Slotted,
    Vec,
)
from tests.dynamo.values_support import PROGRAMS, CountingBackend, check, program


def tensor():
    return torch.arange(4.0)


cut = dynamo.directives.graph_break
Point = collections.namedtuple("Point", "x y")


@program(tensor, graphs=2)
def containers_across(x):
    y = x + 1
    items, pair, table, chosen = [y, 1], (y, [2]), {"a": y, ("k", 1): 3}, {1, 2}
    d = collections.deque([y], maxlen=2)
    dd = collections.defaultdict(list, a=[1])
    od = collections.OrderedDict(b=y)
    p, s, r = Point(y, 2), slice(1, 2), range(3)
    cut()
    items.append(y * 2)
    dd["z"].append(1)
    return items, pair, table, chosen, d, dd, od, p, y[s], r, y.shape


@program(tensor, graphs=2)
def aliases_across(x):
    y = x + 1
    inner = [y]
    outer = {"one": inner, "two": inner}
    cut()
    inner.append(y * 2)
    return outer["one"] is outer["two"], outer


@program(tensor, graphs=2)
def iterators_across(x):
    y = x + 1
    a = iter([1, 2, 3])
    next(a)
    b = zip([1, 2], "ab")
    next(b)
    c = enumerate([5, 6])
    next(c)
    d = map(lambda v: v + 1, iter([1, 2]))
    e = itertools.chain([1], [2, 3])
    next(e)
    f = itertools.islice(iter(range(10)), 1, 8, 2)
    next(f)
    g = {"a": 1, "b": 2}.items()
    h = iter({"a": 1, "b": 2})
    next(h)
    i = itertools.count(3)
    next(i)
    j = itertools.cycle([1, 2, 3])
    next(j)
    k = (v for v in [1, 2])
    cut()
    return (
        list(a),
        list(b),
        list(c),
        list(d),
        list(e),
        list(f),
        list(g),
        list(h),
        next(i),
        [next(j) for _ in range(5)],
        list(k),
        y * 2,
    )


@program(tensor, graphs=2)
def objects_across(x):
    y = x + 1
    p, c, s = Plain(y), Child(y, 2), Slotted(y)
    p.other = c
    c.back = p
    ns = types.SimpleNamespace(t=y)
    part = functools.partial(torch.add, y, alpha=2)
    d, items, pair = MyDict(a=1), MyList([y, 1]), Pair(y, 3)
    d.note = y
    bound = p.method
    cut()
    p.value = y * 2
    return (
        p.double,
        c.back is p,
        p.other.method(1),
        s.a,
        ns.t,
        part(y),
        d["a"],
        d.note,
        items,
        pair.first,
        bound(1),
        len(pair),
    )


@program(tensor, Plain(2), graphs=2)
def outside_object_across(x, p):
    p.value = x + 1
    p.fresh = [x * 2]
    cut()
    p.fresh.append(p.value + 1)
    del p.fresh[0]
    return p.value


@program(tensor, [1], {"k": []}, graphs=2)
def outside_containers_across(x, items, d):
    items.append(x + 1)
    d["k"].append(items)
    cut()
    items.append(2)
    return d["k"][0] is items


@program(tensor, graphs=2)
def functions_across(x):
    y = x + 1
    count = 0

    def bump(n=1):
        nonlocal count
        count += n
        return y * count

    bump()
    cut()
    return bump(2), count


@program(tensor, graphs=2)
def exception_across(x):
    y = x + 1
    try:
        raise MyError(3, "bad")
    except MyError as error:
        caught = error
    cut()
    return y * caught.code, str(caught)


@program(tensor, graphs=3)
def breaks_in_a_loop(x):
    total = []
    for i, v in enumerate([x, x + 1]):
        total.append(v * i)
        cut()
    return total


@program(tensor, lambda: Vec([1, 2]), graphs=2)
def user_iterable_across(x, v):
    it = iter(v)
    first = next(it)
    cut()
    return x + first, list(it)


@pytest.mark.parametrize("function, args, graphs, ops", PROGRAMS[__name__])
def test_program(function, args, graphs, ops):
    check(function, args, graphs, ops)


def recompiles(function, *calls):
    """Call with each argument tuple, compare with eager; the number of graphs made."""
    backend = CountingBackend()
    captured = compile(function, backend=backend, fullgraph=True)
    for args in calls:
        found, expected = captured(*args), function(*args)
        assert torch.equal(found, expected), (args, found, expected)
    return backend.graphs


class Box:
    def __init__(self, **attrs):
        vars(self).update(attrs)


class Slots:
    __slots__ = ("k",)

    def __init__(self, k):
        self.k = k


X = torch.arange(4.0)
GUARDED = {
    "list length": (lambda x, a: x + len(a), ([1],), ([1, 2],), 2),
    "list item": (lambda x, a: x + a[1], ([1, 2],), ([1, 3],), 2),
    "list item not used": (lambda x, a: x + a[0], ([1, 2],), ([1, 3],), 1),
    "dict item": (lambda x, d: x + d["a"], ({"a": 1},), ({"a": 2},), 2),
    "dict item not used": (lambda x, d: x + d["a"], ({"a": 1, "b": 1},), ({"b": 5, "a": 1},), 1),
    "dict keys": (lambda x, d: x + len(list(d)), ({"a": 1},), ({"a": 1, "b": 1},), 2),
    "dict order": (
        lambda x, d: x + next(iter(d.values())),
        ({"a": 1, "b": 2},),
        ({"b": 2, "a": 1},),
        2,
    ),
    "dict get": (lambda x, d: x + d.get("z", 5), ({"a": 1},), ({"z": 1},), 2),
    "in dict": (lambda x, d: x + ("z" in d), ({"a": 1},), ({"z": 1},), 2),
    "set": (lambda x, s: x + (2 in s), ({1},), ({1, 2},), 2),
    "type": (lambda x, v: x + sum(v), ([1, 2],), ((1, 2),), 2),
    "bool not int": (lambda x, v: x + v, (1,), (True,), 2),
    "string": (lambda x, v: x + len(v), ("a",), ("bc",), 2),
    "none": (lambda x, v: x + 1 if v is None else x + v, (None,), (2,), 2),
    "attribute": (lambda x, o: x + o.k, (Box(k=1),), (Box(k=2),), 2),
    "attribute not used": (lambda x, o: x + o.k, (Box(k=1, j=1),), (Box(k=1, j=2),), 1),
    "hasattr": (lambda x, o: x + hasattr(o, "j"), (Box(k=1),), (Box(k=1, j=2),), 2),
    "getattr default": (lambda x, o: x + getattr(o, "j", 7), (Box(k=1),), (Box(j=2),), 2),
    "slot": (lambda x, o: x + o.k, (Slots(1),), (Slots(2),), 2),
    "nested": (lambda x, t: x + t[0]["a"][1], (({"a": [0, 1]},),), (({"a": [0, 2]},),), 2),
    "range": (lambda x, r: x + sum(r), (range(3),), (range(4),), 2),
    "partial": (
        lambda x, f: f(x),
        (functools.partial(torch.add, other=1),),
        (functools.partial(torch.add, other=2),),
        2,
    ),
    "method receiver": (lambda x, f: f(x), (Plain(1).method,), (Plain(2).method,), 2),
    "named tuple": (lambda x, p: x + p.y, (Point(1, 2),), (Point(1, 3),), 2),
    "deque": (lambda x, d: x + d[0], (collections.deque([1]),), (collections.deque([2]),), 2),
    "default factory": (
        lambda x, d: x + d["q"],
        (collections.defaultdict(int),),
        (collections.defaultdict(lambda: 4),),
        2,
    ),
}


@pytest.mark.parametrize("name", GUARDED)
def test_guard(name):
    function, first, second, graphs = GUARDED[name]
    assert recompiles(function, (X, *first), (X, *second)) == graphs


def test_aliasing_is_guarded():
    def f(x, a, b):
        a.append(1)
        return x + len(b)

    one = [0]
    assert recompiles(lambda x, a, b: f(x, list(a), b), (X, one, [0])) == 1
    backend = CountingBackend()
    captured = compile(f, backend=backend, fullgraph=True)
    assert torch.equal(captured(X, one, one), X + 2)
    assert torch.equal(captured(X, [0], [0]), X + 1)
    shared = [0]
    assert torch.equal(captured(X, shared, shared), X + 2)
