"""Objects of a user class in the hands of builtins and containers: hashed, compared, indexed, formatted.

The programs are lines of a table (see library_support.py); what stands above it is theirs, too.
"""

# ruff: noqa: F401, RUF012, B008, SIM, UP, PYI

import collections
import copy
import dataclasses
import enum
import functools
import itertools
import json
import math
import operator
import re
import string
import sys
import types
import typing
from collections import Counter, OrderedDict, deque

import torch

from tests.dynamo.library_support import raised


class V:
    def __init__(self, v):
        self.v = v

    def __eq__(self, o):
        return isinstance(o, V) and self.v == o.v

    def __hash__(self):
        return hash(self.v)

    def __lt__(self, o):
        return self.v < o.v

    def __repr__(self):
        return f"V{self.v}"

    def __add__(self, o):
        return V(self.v + o.v)

    def __radd__(self, o):
        return V(self.v + o)

    def __index__(self):
        return self.v

    def __len__(self):
        return self.v

    def __iter__(self):
        return iter(range(self.v))

    def __contains__(self, i):
        return i < self.v

    def __call__(self, a):
        return a + self.v

    def __format__(self, s):
        return f"<{self.v}{s}>"

    def __bool__(self):
        return self.v > 1


TABLE = r"""
[V(1), V(2)].index(V(2)), [V(1)].count(V(1)), V(1) in [V(1)], sorted([V(3), V(1)]), max(V(1),
    V(2)), sum([V(1), V(2)]), {V(1): 2}[V(1)], {V(1), V(1)}
set([V(1)]) == {V(1)}, frozenset([V(2)]) == frozenset([V(2)]), len({V(1), V(2), V(1)}),
    V(1) in {V(1): 0}, dict.fromkeys([V(1), V(1)], 3)
[10, 20, 30][V(1)], "abc"[V(2)], range(V(3)), list(range(V(1), V(3))), [0] * V(2), list(V(3)),
    2 in V(3), len(V(2)), bool(V(1)), list(map(V(2), [1, 2])), [1, 2, 3][V(0):V(2)]
f"{V(1)} {V(1)!r} {V(1):x}", "%s %r" % (V(1), V(2)), "{} {!r} {:z}".format(V(1), V(2), V(3)),
    str([V(1)]), repr({V(1): V(2)}), str((V(1),)), repr(deque([V(1)])), repr({V(1)}),
    "{0.v}".format(V(4)), repr(OrderedDict(a=V(1)))
sorted([(V(2), 1), (V(1), 2)]), sorted([[V(2)], [V(1)]]), (V(1), 2) == (V(1), 2),
    [V(1)] == [V(1)], {"a": V(1)} == {"a": V(1)}, (V(1),) < (V(2),),
    deque([V(1)]) == deque([V(1)])
all([V(2), V(3)]), any([V(0), V(1)]), list(filter(None, [V(1), V(2)])), [v for v in [V(1),
    V(2)] if v], not V(1), V(2) and 5, V(1) or 6
c = Counter([V(1), V(1), V(2)]); c[V(1)], c.most_common(1), sorted(c), c[V(2)]
functools.reduce(operator.add, [V(1), V(2)]), list(itertools.accumulate([V(1), V(2)])), [(k,
    len(list(g))) for k, g in itertools.groupby([V(1), V(1), V(2)])], list(itertools.chain(V(1),
    V(2))), list(zip(V(2), "ab")), dict(enumerate(V(2))), [*V(2)], max(V(3)), sum(V(3)),
    tuple(V(2)), set(V(2))
a, b = V(2); a, *c = V(3); a, b, c
d = {V(1): 1}; d[V(1)] = 2; d.setdefault(V(1), 9); d.pop(V(1)), d, d.get(V(1))
s = {V(1)}; s.add(V(1)); s.discard(V(2)); s.remove(V(1)); s, {V(1), V(2)} - {V(2)},
    {V(1)} | {V(1)}, {V(1)} & {V(1)}, {V(1)} <= {V(1), V(2)}
l = [V(2), V(1)]; l.sort(); l.remove(V(1)); l, bytes(V(2)) if False else 1, divmod(7, 2),
    int(V(3)), float(V(2)), complex(V(2))
[] == (), {} == set(), 1 == 1.0 == True, "a" == b"a", None == 0, [1] == [True], (1,) == [1],
    0.0 == -0.0, float("nan") in [float("nan")], {1: "a", True: "b", 1.0: "c"}
n = float("nan"); n in [n], [n] == [n], {n: 1}[n], (n,) == (n,), n == n, [n].index(n),
    [n].count(n)
"abc".join(["1", "2"]), "a,b;c".replace(";", ",").split(","), "x=%(a)s" % {"a": 1},
    "%5.2f|%-4d|%+d|%x|%e|%c|%%" % (1.5, 3, 4, 255, 1e5, "z"), "%*d" % (4, 2),
    "{:,}|{:>6}|{:^6}|{:+}|{:%}|{:b}".format(12345, "a", "b", 3, 0.5, 5),
    f"{1!s:>4}{2:0>3}{'q':*<3}{1.23456:.3g}{1000000:_}"
[i for i in range(3) if i % 2 == 0], {i: j for i, j in zip("ab", range(2))}, {i for i in "aab"},
    list(i * j for i in range(3) for j in range(i)), [[j for j in range(i)] for i in range(3)],
    [y2 := 5, y2 + 1]
lst = [[0] * 2 for _ in range(2)]; lst[0][1] = 5; m = [[0] * 2] * 2; m[0][0] = 1; lst, m,
    m[0] is m[1], lst[0] is lst[1]
types.SimpleNamespace(**{"a": 1, "b": x}).b is x, type("N", (), {"k": 3}).k if False else 3,
    isinstance(V(1), collections.abc.Container), isinstance(V(1), collections.abc.Sized),
    isinstance(V(1), collections.abc.Callable), isinstance(V(1), collections.abc.Reversible)
[].__len__(), (1).__add__(2), "a".__add__("b"), [1].__contains__(1), {}.__contains__(1), (1,
    2).__getitem__(0), {1: 2}.__getitem__(1), "ab".__getitem__(1), (3).__eq__(4), (3).__lt__(4),
    True.__and__(False), (1.5).__mul__(2), [1].__add__([2]), {1}.__or__({2}), {1}.__sub__({1}),
    {1}.__le__({1}), (1).__bool__(), "a".__hash__() == hash("a"), (5).__neg__(),
    [3].__iter__().__next__(), {1}.__len__(), {1: 2}.__iter__().__next__()
getattr([1], "append").__name__, getattr("a", "upper")(), hasattr((), "index"), hasattr({},
    "nope"), [1].append.__self__, callable({}.get), list.append is list.append,
    str.upper is str.upper, (lambda: 0).__name__, len.__name__, dict.get.__name__
l = [1]; f = l.append; f(2); g = l.__getitem__; h = {"a": 1}.get; k = "a-b".split; l, g(0),
    h("a"), h("z", 5), k("-"), list(map(l.count, [1, 9])), list(map(str.strip, [" a "])),
    list(map({"a": 1}.get, "ab")), sorted("bca", key={"a": 3, "b": 1, "c": 2}.__getitem__)
l = list(range(10)); l[2:5], l[::-2], l[-3:], l[5:2:-1], l[:100], l[slice(1, None, 4)],
    (l.__setitem__(slice(0, 2), [9]), l)[1], l.pop(-2), l[len(l) - 1]
raised(lambda: [][0]), raised(lambda: ()[0]), raised(lambda: ""[0]), raised(lambda: {}[0]),
    raised(lambda: [1, 2][1.0]), raised(lambda: [1, 2]["a":]), raised(lambda: (1, 2)[None]),
    raised(lambda: "ab"["a"]), raised(lambda: range(3)[7]), raised(lambda: b"a"[4]),
    raised(lambda: deque()[0]), raised(lambda: {1}[0]), raised(lambda: None[0]),
    raised(lambda: 5[0])
raised(lambda: [1] + "a"), raised(lambda: "a" + [1]), raised(lambda: {1} - [1]),
    raised(lambda: {} - {}), raised(lambda: [1] - [1]), raised(lambda: (1,) * "a"),
    raised(lambda: [1] * None), raised(lambda: "a" * 1.5), raised(lambda: None < None),
    raised(lambda: {} < {}), raised(lambda: [1] < (1,)), raised(lambda: 1j < 2j),
    raised(lambda: {1} < 3), raised(lambda: ~1.5), raised(lambda: -[]), raised(lambda: +"a"),
    raised(lambda: ~{}), raised(lambda: [1] @ [2]), raised(lambda: 1 @ 2),
    raised(lambda: 1 << -1), raised(lambda: "a" % 1), raised(lambda: "%d" % None),
    raised(lambda: "%s %s" % "a"), raised(lambda: [1] % 2), raised(lambda: deque([1]) * "a")
raised(lambda: V(1) + 1), raised(lambda: V(1) - V(1)), raised(lambda: -V(1)),
    raised(lambda: V(1) <= V(2)), raised(lambda: V(1)[0]), raised(lambda: V(1).zz),
    raised(lambda: V()), raised(lambda: V(1, 2)), raised(lambda: V(1)(1, 2)),
    raised(lambda: V(1) @ 2), raised(lambda: [1] + V(1)), raised(lambda: abs(V(1))),
    raised(lambda: next(V(1)))
"""
