"""Containers of the standard library: dict, list, tuple, set, deque, and those of collections.

The programs are lines of a table (see library_support.py); what stands above it is theirs, too.
"""

# ruff: noqa: F401, RUF012, B008, SIM, UP, PYI

import collections
import copy
import functools
import itertools
import math
import operator
import types
import typing
from collections import ChainMap, Counter, OrderedDict, defaultdict, deque, namedtuple

import torch

from tests.dynamo.library_support import raised

Point = namedtuple("Point", "x y", defaults=[5])


HELD = OrderedDict(a=1, b=2)
VIEWS = [HELD.keys(), HELD.values(), HELD.items()]
PLAIN = [{"a": 1}.keys(), {"a": 1}.items()]


class NT(typing.NamedTuple):
    a: int
    b: typing.Any = 3

    def total(self):
        return self.a + self.b

    @property
    def half(self):
        return self.a / 2


class Sub(Point):
    __slots__ = ()

    def norm(self):
        return self.x + self.y


class SubDict(Point):
    pass


class NT2(NT):
    def __new__(cls, a):
        return super().__new__(cls, a, 7)


def g(**k):
    return k


def a():
    l = [1, 2, 3]
    l[::2] = [1]


def b():
    l = [1]
    l[4] = 1


def c():
    l = [1]
    del l[3]


def e():
    l = (1,)
    l[0] = 2


def f2():
    l = (1,)
    del l[0]


def a1():
    l = [1]
    l[0:1] = 3


TABLE = r"""
d = {"a": x, "b": 2}; d["c"] = d.pop("a") + 1; d.setdefault("e", []).append(3); (d, d.pop("zz",
    None), d.popitem(), list(d))
d = {}; d.update(q=1, r=x); d.update({"s": 2}); d.update([("t", 3)]); d |= {"u": 4}; d |= [("v",
    1)]; (d, d | {"b": 7}, {**d, "q": 0})
d = {1: x, 2: 3}; (list(reversed(d)), list(reversed(d.items())), list(reversed(d.keys())),
    list(reversed(d.values())))
dict.fromkeys("ab", x), dict.fromkeys([1, 2]), dict(zip("ab", (x, 1))), dict(a=1, **{"b": 2}),
    dict([(1, 2)], z=3), dict({1: 2})
d = {1: x, 2: 3}; k = d.keys(); d[5] = 6; (list(k), len(k), k & {1, 5}, k | {9}, k - {1}, k ^ {1,
    7}, 5 in k)
d = {1: x, 2: 3}; {1} & d.keys()
d = {1: x, 2: 3}; {1, 11} - d.keys()
d = {1: x, 2: 3}; {7} | d.keys(), {7} ^ d.keys()
d = {1: 4, 2: 3}; (2, 3) in d.items(), d.items() & {(2, 3)}, d.items() | {(5, 6)},
    d.items() - {(1, 4)}
d = {1: 4}; d.keys() == {1}, d.keys() <= {1, 2}, d.keys() < {1}, d.keys().isdisjoint([8]),
    d.items() == {(1, 4)}, d.keys() == d.keys(), d.values() == d.values()
(len(VIEWS[0]), "a" in VIEWS[0], sum(VIEWS[1]), list(VIEWS[2]), VIEWS[0] & {"a"}, VIEWS[0].mapping,
    list(PLAIN[0]), len(PLAIN[1]), VIEWS[0] is VIEWS[0], type(VIEWS[2]))
d = {1: 4}; v = d.keys(); v.mapping[1], v.mapping == d
d = {1: 4}; repr(d.keys()), repr(d.items()), repr(d), str(d), f"{d}", repr({}), repr({"a": [1,
    (2,)]})
{"a": 1} == {"a": 1.0}, {"a": 1} != {"a": 2}, {1: 2} == {True: 2}, {} == [], {1: (2,
    3)} == {1: (2, 3)}
raised(lambda: {}["a"]), raised(lambda: {}.pop("a")), raised(lambda: {}.popitem()),
    raised(lambda: {}[1, 2]), raised(lambda: {}[[]])
raised(lambda: {} + {}), raised(lambda: {} < {}), raised(lambda: {}.foo),
    raised(lambda: {} | []), raised(lambda: hash({}))
raised(lambda: dict([1])), raised(lambda: dict([(1, 2, 3)])), raised(lambda: dict(3)),
    raised(lambda: {}.update(3)), raised(lambda: {}.update([(1,)]))
d = {"a": 1}; raised(lambda: [d.setdefault(k + "x", 1) for k in d])
d = {"a": 1, "b": 2}; raised(lambda: [d.pop(k) for k in d])
d = {"a": 1, "b": 2}; [d.__setitem__(k, 5) for k in d], d
d = {1: 2}; i = iter(d); next(i); d.clear(); raised(lambda: next(i))
d = {1: 2}; del d[1]; d[1] = 3; raised(lambda: d.__delitem__(9)), d, d.__contains__(1),
    d.__len__(), d.__getitem__(1), d.__eq__({1: 3}), d.__or__({2: 2}), d.__iter__
d = {1.0: "a"}; d[True] = "b"; d[1], list(d), hash(1.0) == hash(True)
d = {"a": {"b": x}}; e = d.copy(); e["a"]["c"] = 1; d, e is d, e["a"] is d["a"]
d = {}; d["d"] = d; d["d"] is d, len(d)
d = {None: 1, (1, 2): 2, frozenset([1]): 3, 1j: 4, b"a": 5, int: 6, len: 7}; d[None], d[(1, 2)],
    d[frozenset([1])], d[1j], d[b"a"], d[int], d[len]
d = {x: 1}; d[x], x in d, len(d), list(d)[0] is x
d = {"b": 1, "a": 2}; sorted(d), min(d), max(d, key=d.get), sorted(d.items(),
    key=lambda p: p[1]), sum(d.values()), any(d), all(d.values())
{k: v for k, v in zip("ab", [x, 1])}, {v: k for k, v in {"a": 1}.items()}
g(**{"a": 1}, **{"b": x}), raised(lambda: g(**{"a": 1}, **{"a": 2})),
    raised(lambda: g(**{1: 2})), raised(lambda: g(**3))
l = [3, 1, 2]; l.sort(); l.reverse(); l.insert(1, 9); l.extend((7,
    8)); l.append(l[0]); l.remove(7); l, l.pop(), l.pop(0), l
l = [1, 2, 3, 4]; l[1:3] = "ab"; del l[-1]; l[::2] = [0, 0]; l += (5,); l *= 2; l
l = [1, 2, 3, 4, 5]; del l[::2]; l, l[::-1], l[5:], l[-1:], l[:], l[slice(1)]
[1, 2, 3].index(2), [1, 2, 2].count(2), [1, 2] < [1, 3], [1] + [2], 3 * [1], [1, 2] == [1, 2.0],
    [1, 2, 3].index(3, 1), [1, 2, 3, 2].index(2, -2), [1] <= [1], [2] > [1, 5], [1] != [1]
l = []; l.append(l); l[0] is l, len(l), repr(l)
l = [x]; l.copy()[0] is x, l[:] is l, l * 1 is l, l + [] is l, list(l) is l
raised(lambda: [1].remove(2)), raised(lambda: [].pop()), raised(lambda: [1, 2][5]),
    raised(lambda: [1].index(4)), raised(lambda: [1].pop(3))
raised(lambda: [1] + (2,)), raised(lambda: [1]["a"]), raised(lambda: [1].__setitem__(4, 1)),
    raised(lambda: [1].__delitem__(4)), raised(lambda: (1,).index(3)), raised(lambda: [1] * 1.5),
    raised(lambda: [1] * [2]), raised(lambda: [1].foo)
raised(lambda: [1, "a"].sort()), raised(lambda: sorted([1, None])), raised(lambda: [] < 1),
    raised(lambda: [1, 2].insert("a", 1)), raised(lambda: [1].extend(3))
l = [1, 2, 3]; [l.remove(v) for v in l], l
l = [1, 2]; m = [(l.append(v + 10), v)[1] for v in l if len(l) < 6]; l, m
l = [1, 2, 3]; i = iter(l); next(i); l.clear(); list(i), next(i, "end")
l = [("b", 2), ("a", 2), ("c", 1)]; l.sort(key=lambda p: p[1]); l, sorted(l,
    key=operator.itemgetter(0), reverse=True), sorted(["bb", "A", "c"], key=str.lower),
    sorted([3, 1, 2], reverse=1), sorted([-3, 2, 1], key=abs), sorted("hello")
sorted([1, 3, 2], key=lambda v: -v), sorted([(1, "b"), (1, "a")]), sorted([[2, 1], [1, 2]]),
    sorted({"b": 1, "a": 2}), sorted([0.0, -0.0]), sorted([True, False, 0])
l = [3, 1]; raised(lambda: l.sort(key=lambda v: l.append(1))), l
l = [1, 2, 3]; a, *b = l; *c, d = l; e, *f, g = l; a, b, c, d, e, f, g
raised(lambda: (lambda a, b: 1)(*[1])), raised(lambda: [0 for a, b in [(1,)]]),
    raised(lambda: [0 for a, b in [(1, 2, 3)]]), raised(lambda: [0 for a, *b in [()]]),
    raised(lambda: [0 for a, b in [3]])
t = (1, 2, 3); t + (4,), t * 2, t[1:], t.index(3), t.count(3), (1, 2) < (1, 3), hash((1,
    2)) == hash((1, 2)), len(t), tuple("ab"), (1, 2).__add__((3,)), {(1, 2): x}[(1, 2)], t[-1],
    t[::-1], tuple(t) is t, t[:] is t
raised(lambda: (1,) + [2]), raised(lambda: (1,)[3]), raised(lambda: (1,).foo),
    raised(lambda: (1,) < [1]), raised(lambda: hash(([],))), raised(lambda: ()["a"]),
    raised(lambda: tuple(3))
(1, (2, 3)) == (1, (2, 3)), (x, 1)[0] is x, x in (x, 1), (1, 2, 3).__contains__(2), bool(()),
    not [], repr((1,)), str((1, "a")), repr(()), () is ()
s = {1, 2, 3}; s.add(4); s.discard(9); s.remove(1); s |= {7}; s &= {7, 2,
    3}; s -= {3}; s ^= {1}; s, 2 in s, len(s), sorted(s)
s = {1, 2}; t = frozenset([2, 3]); s | t, s & t, s - t, s ^ t, t | s, t - s, type(s | t),
    type(t | s), s.union([1], (2,)), s.intersection([1], {1}), s.difference([1]),
    s.symmetric_difference([8])
{1, 2}.issubset({1, 2, 3}), {1}.issuperset([]), {1}.isdisjoint({99}), {1} < {1, 2}, {1} <= {1},
    {1, 2} == frozenset((1, 2)), {1} == [1], {1} != {2}, {1} > set(), {1} >= {2}
t = frozenset([2, 3]); hash(t) == hash(frozenset([3, 2])), {t: 1}[frozenset([2, 3])],
    t.copy() is t, frozenset(t) is t, {1}.copy() == {1}, len(set([t, t]))
s = {1, 2}; s.update([3], (4,)); s.intersection_update({1, 2,
    3}); s.difference_update([1]); s.symmetric_difference_update({9}); s.clear(), s, bool(s)
raised(lambda: {1}.remove(2)), raised(lambda: set().pop()), raised(lambda: {1} | [2]),
    raised(lambda: {[]}), raised(lambda: {1} < [1]), raised(lambda: {1}.add([])),
    raised(lambda: {1}[0]), raised(lambda: set([[]])), raised(lambda: hash({1})),
    raised(lambda: {1}.foo), raised(lambda: {1} + {2}), raised(lambda: frozenset([1]).add(2)),
    raised(lambda: set(3)), raised(lambda: reversed({1}))
s = {1, 2}; raised(lambda: [s.add(k + 10) for k in s])
s = {5}; s.pop(), s, set("a"), repr({1}), repr(set()), repr(frozenset()), repr(frozenset([1])),
    str({1})
{1, 2} in [{2, 1}], {1} in {frozenset([1])}, [1] in [[1]]
set(range(5)), {i % 3 for i in range(10)}, frozenset("a"), set({"a": 1}), set(x.shape), len({x,
    x})
s = {x, x}; x in s, len(s), s == {x}, list(s)[0] is x
d = deque([1, 2, 3],
    maxlen=4); d.append(x); d.append(5); d.appendleft(0); d.extend([7]); d.extendleft([8, 9]); d,
    d.maxlen
d = deque([1, 2, 3, 4, 5]); d.rotate(1); a = list(d); d.rotate(-2); d.rotate(); d.rotate(7), a,
    d, d.pop(), d.popleft()
d = deque([1, 2]); d.insert(1, 11); d.reverse(); c = d.copy(); c.append(1); d, c, d + c, d * 2,
    2 * d, d == deque([2, 11, 1]), d != c, d < c
e = deque("abc"); e += "d"; e.remove("b"); e[0] = "z"; del e[1]; e, e.index("d"), e.count("a"),
    len(e), e[0], e[-1], list(e), e.maxlen, "z" in e, list(reversed(e)), bool(deque())
repr(deque([1], maxlen=3)), repr(deque()), str(deque("a")), deque([1, 2], 1), deque(range(5),
    maxlen=3), deque([1], maxlen=0), isinstance(deque(), deque)
raised(lambda: deque().pop()), raised(lambda: deque().popleft()), raised(lambda: deque([1])[4]),
    raised(lambda: deque([1]).remove(3)), raised(lambda: deque([1, 2], maxlen=2).insert(0, 3)),
    raised(lambda: deque([1]).index(5)), raised(lambda: deque([1])[0:1]),
    raised(lambda: deque(maxlen=-1)), raised(lambda: hash(deque())),
    raised(lambda: deque([1]) + [1]), raised(lambda: setattr(deque(), "maxlen", 3)),
    raised(lambda: deque(3)), raised(lambda: deque([1]).__setitem__(3, 1)),
    raised(lambda: deque([1]).__delitem__(3))
q = deque([1, 2]); raised(lambda: [q.append(v) for v in q])
d = deque([1, 2, 3]); d.clear(); d.extend([x]); d[0] is x, d
d = deque([1, 2], maxlen=5); e = d.copy(); e.maxlen, (d + d).maxlen, (d * 2).maxlen, d.__len__()
d = defaultdict(list); d["a"].append(x); d["b"]; d, "zz" in d, d.get("zz"), d.default_factory,
    list(d)
e = defaultdict(int, {"q": 1}, z=3); e["w"] += 1; e, e.copy(), e | {"k": 1},
    repr(defaultdict(int, a=1)), e == {"q": 1, "z": 3, "w": 1}, type(e | {})
f = defaultdict(lambda: defaultdict(int)); f["a"]["b"] += 2; f["a"]["b"], dict(f["a"])
raised(lambda: defaultdict()["a"]), raised(lambda: defaultdict(3)),
    raised(lambda: defaultdict(list)[[]]), repr(defaultdict(None, a=1)),
    raised(lambda: defaultdict(lambda: 1 / 0)["a"])
d = defaultdict(None); d.default_factory = int; d["k"], d
d = defaultdict(set); d["a"].add(1); d.setdefault("b", 2), d.pop("a"), d.__missing__("z"), d
d = OrderedDict([("a", 1), ("b", x), ("c", 3)]); d.move_to_end("a"); d.move_to_end("c",
    last=False); d.popitem(last=False), d.popitem(), d
e = OrderedDict(a=1, b=2); e == OrderedDict(b=2, a=1), e == {"b": 2, "a": 1}, e | {"c": 3},
    list(e.items()), list(reversed(e)), OrderedDict.fromkeys("ab"), e.copy(), e.pop("a"), e,
    e != {"b": 2}
repr(OrderedDict(a=1)), repr(OrderedDict()), str(OrderedDict(a=[1]))
raised(lambda: OrderedDict().popitem()), raised(lambda: OrderedDict().move_to_end("a")),
    raised(lambda: OrderedDict().pop("a")), raised(lambda: OrderedDict()["a"])
e = OrderedDict(a=1, b=2); raised(lambda: [e.pop(k) for k in e])
e = OrderedDict(a=1, b=2); raised(lambda: [e.move_to_end(k) for k in e])
c = Counter("abracadabra"); c, c.most_common(2), c["zz"], list(c.elements()), c.total(),
    c == Counter("abracadabra"), sorted(c), dict(c)
c = Counter("abracadabra"); c.most_common(), c.most_common(1), c.most_common(None),
    c.most_common(0)
d = Counter(a=1, b=5); d.update("ab"); d.subtract({"a": 1, "c": 2}); d, +d, -d, d <= d, d.copy(),
    d.pop("a")
c = Counter(a=3, b=1); d = Counter(a=1, b=2); c + d, c - d, c & d, c | d, c == d, c < d, c != d
c = Counter("ab"); c += Counter("a"); c -= Counter("b"); c, c["q"], "q" in c, c.get("q")
c = Counter(); c["k"] += 1; c.update({"k": 2, "z": 0}); c, repr(Counter("aab")), Counter([1, 1,
    2]).keys(), list(Counter({"a": 2})), bool(Counter()), len(c)
c = Counter(a=1); del c["zz"]; del c["a"]; c, raised(lambda: Counter.fromkeys("a")),
    raised(lambda: Counter(1))
c = Counter("ab"); c |= Counter("aa"); c &= Counter("a"); c, Counter(c), Counter(a=1,
    b=1) >= Counter(a=1), max(Counter("aab"), key=Counter("aab").get)
a, b = {"k": 1}, {"k": 2, "m": x}; c = ChainMap(a, b); c["n"] = 5; c["k"], c["m"], list(c),
    len(c), a, c.maps, "m" in c, c.get("no", 3), c.pop("n")
c = ChainMap({"a": 1}, {"b": 2}); d = c.new_child({"z": 1}); d["z"], d.parents["a"], dict(d),
    sorted(d.items()), raised(lambda: c["q"]), d.maps[0], c == {"a": 1, "b": 2}, repr(c),
    bool(c), c.new_child(), c.copy(), list(c.keys()), list(c.values())
p = Point(x, 2); q = p._replace(y=9); a, b = p; p, q, p._asdict(), Point._fields,
    Point._field_defaults, p[1], Point(1), len(p), q.y, Point._make([1, 2]), Point(y=1, x=2)
s = Point(1, 2); hash(s) == hash((1, 2)), isinstance(s, tuple), s.index(2), repr(s), s < Point(1,
    3), s + (3,), s.__match_args__, s == (1, 2), s.count(1), s[::-1], str(s), f"{s}",
    Point.__doc__, s.__doc__, type(s) is Point, Point.x.__doc__, s.__class__.__name__
r = NT(1, x); r.total(), r.half, r, NT.__annotations__, NT(5)._replace(b=1), NT._field_defaults,
    r._fields, NT(2).total()
p = Sub(x, 2); p.norm(), p, type(p._replace(y=3)), p[0], p.x, p._asdict(), isinstance(p, Point),
    p + (1,), len(p), repr(Sub(1, 2)), Sub._make([1, 2]), Sub(1, 2) == (1, 2)
q = SubDict(1, 2); q.extra = x; q.extra, q, q.x, hasattr(q, "zz"), q.__dict__
NT2(3), NT2(3).b, NT2(3).total(), type(NT2(1))
raised(lambda: Point()), raised(lambda: Point(1, 2, 3)), raised(lambda: Point(z=1)),
    raised(lambda: setattr(Point(1), "x", 2)), raised(lambda: Point(1).zz),
    raised(lambda: Point(1)._replace(z=2)), raised(lambda: delattr(Point(1), "x")),
    raised(lambda: setattr(Point(1), "qq", 2)), raised(lambda: Point._make([1, 2, 3])),
    raised(lambda: Point(1)[5])
P = namedtuple("P", ["a", "b"]); p = P(x, 2); p.a + p.b, p._fields
P = namedtuple("P", "a b", rename=True); P(1, 2).a
r = range(2, 20, 3); list(r), r[2], r[1:3], len(r), 5 in r, 6 in r, r.index(8), r.count(5),
    r == range(2, 19, 3), r.start, list(reversed(r)), r.stop, r.step
r = range(2, 20, 3); hash(r) == hash(range(2, 19, 3)), bool(range(0)), repr(r), "a" in r, r[-1],
    max(r), sum(r), r, range(3)[::-1], 5.0 in r, range(True), {r: 1}[range(2, 20, 3)]
raised(lambda: range(1.5)), raised(lambda: range(1, 2, 0)), raised(lambda: range(3)[5]),
    raised(lambda: range(3).index(9)), raised(lambda: range()), raised(lambda: range(3)["a"]),
    raised(lambda: range(3) + range(2)), raised(lambda: setattr(range(3), "start", 1)),
    raised(lambda: range(3).foo), raised(lambda: range(3) < range(4))
s = slice(1, 5, 2); s.indices(3), (s.start, s.stop, s.step), [0, 1, 2, 3, 4, 5][s], x[s],
    slice(3), repr(s), s == slice(1, 5, 2), slice(None), slice(1, 2) < slice(2, 3),
    raised(lambda: slice())
raised(lambda: [1][slice("a")]), raised(lambda: [1][::0]), raised(lambda: "abc"[::0]),
    raised(lambda: slice(1).indices("a")), raised(lambda: slice(1).foo),
    raised(lambda: hash(slice(1)))
l = [1, 2]; l.__class__, [].__class__ is list, type([]) is list, l.__len__(), l.__getitem__(0),
    l.__eq__([1, 2]), l.__ne__([1]), l.__lt__([2]), l.__le__([1]), l.__gt__([1]), l.__ge__([3]),
    l.__iter__().__next__(), l.__reversed__().__next__(), l.__rmul__(2), l.__imul__(2)
list.append(l := [1], 2), l, dict.get({"a": 1}, "a"), str.upper("a"), tuple.index((1, 2), 2),
    set.add(s := {1}, 2), s, list.sort(m := [2, 1]), m, dict.items({1: 2}), list.__len__([1]),
    deque.append(d := deque(), 1), d, int.bit_length(5), float.is_integer(2.0),
    object.__repr__ is None
raised(a), raised(b), raised(c), raised(e), raised(f2), raised(a1)
p = types.MappingProxyType(d := {"a": 1}); raised(lambda: p.__setitem__("a", 2)),
    raised(lambda: p.__delitem__("a")), raised(lambda: operator.delitem(p, "a")),
    raised(lambda: p.__init__({})), p.__len__(), list(p.__reversed__()), p.copy(), d
"""
