"""What lives across a graph break: iterators in the midst of their items, views, caches, containers.

The programs are lines of a table (see library_support.py); what stands above it is theirs, too.
"""

# ruff: noqa: F401, RUF012, B008, SIM, UP, PYI

import collections
import copy
import dataclasses
import functools
import heapq
import itertools
import operator
import random
import re
import sys
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from itertools import (
    accumulate,
    chain,
    combinations,
    combinations_with_replacement,
    compress,
    count,
    cycle,
    dropwhile,
    filterfalse,
    groupby,
    islice,
    pairwise,
    permutations,
    product,
    repeat,
    starmap,
    takewhile,
    tee,
    zip_longest,
)

import torch

from tests.dynamo.library_support import raised


def B(v=None):
    print(end="")
    return v


def gen(n):
    for i in range(n):
        yield i


TABLE = r"""
[B(v) for v in deque([1, 2, 3])] # graphs 2
d = deque([1, 2]); l = [(v, B(), d.append(v) if len(d) < 4 else 0) for v in [1, 2]]; d,
    l # graphs 2
d = {"a": 1, "b": 2}; [(k, B(v), d.__setitem__(k, v + 1)) for k, v in d.items()], d # graphs 2
d = {"a": 1, "b": 2}; raised(lambda: [(B(k), d.pop(k)) for k in d]), d # graphs -
s = {1, 2}; raised(lambda: [(B(k), s.add(k + 5)) for k in s]), s # graphs -
q = deque([1, 2]); raised(lambda: [(B(k), q.append(k + 5)) for k in q]), q # graphs -
o = OrderedDict(a=1, b=2); raised(lambda: [(B(k), o.move_to_end(k)) for k in o]), o # graphs -
a, b = tee([1, 2, 3]); next(a); B(); list(a), list(b) # graphs 2
a, b = tee(gen(4)); next(a); next(b); next(a); B(); next(b), list(a), list(b) # graphs 2
g = groupby([1, 1, 2, 2]); k, v = next(g); B(); k, list(v), [(k, list(v)) for k,
    v in g] # graphs 2
f = functools.lru_cache(maxsize=None)(lambda a: [a]); r = f(1); B(); f(1) is r # graphs 3
c = count(3); next(c); B(); next(c), next(c) # graphs 2
c = cycle([1, 2, 3]); next(c); next(c); B(); [next(c) for _ in range(5)] # graphs 2
z = zip([1, 2, 3], count()); next(z); B(); list(z) # graphs 2
i = islice(count(), 2, 10, 3); next(i); B(); list(i) # graphs 2
a = accumulate([1, 2, 3]); next(a); B(); list(a) # graphs 2
m = map(operator.add, [1, 2], [3, 4]); next(m); B(); list(m) # graphs 2
e = enumerate(gen(3), 2); next(e); B(); list(e) # graphs 2
r = reversed([1, 2, 3]); next(r); B(); list(r) # graphs 2
s = {3, 1, 2}; i = iter(s); a = next(i); B(); a, list(i) # graphs 2
c = chain([1], gen(2), [5]); next(c); next(c); B(); list(c) # graphs 2
d = defaultdict(list); d["a"].append(x); B(); d["b"].append(1); d, d.default_factory # graphs 2
c = Counter("ab"); c["z"] += 3; B(); c.most_common(1), c # graphs 2
d = deque([1, 2, 3], maxlen=3); d.append(4); B(); d.append(5); d, d.maxlen # graphs 2
p = functools.partial(max, 3); p.tag = 1; B(); p(2), p.tag # graphs -
k = functools.cmp_to_key(lambda a, b: b - a); l = [k(1), k(2)]; B(); sorted(l)[0].obj # graphs 2
d = {"a": 1}; k, v, i = d.keys(), d.values(), d.items(); B(); d["b"] = 2; list(k), list(v),
    list(i) # graphs 2
l = [1, 2, 3]; i = iter(l); next(i); B(); l.append(4); list(i) # graphs 2
l = []; l.append(l); B(); l[0] is l # graphs 2
d = {}; d["s"] = d; t = (d, [d]); B(); t[0]["s"] is d, t[1][0] is d # graphs 2
t = frozenset([1, 2]); u = {t: 1}; B(); u[frozenset([2, 1])], t in u # graphs 2
x2 = [x, x]; B(); x2[0] is x2[1], x2[0] is x # graphs 2
g = operator.itemgetter(1); h = operator.methodcaller("upper"); B(); g([1, 2]), h("a") # graphs 2
m = re.match("(a)", "ab"); B(); m.group(1), m.span() # graphs 2
h = [3, 1, 2]; heapq.heapify(h); B(); heapq.heappop(h), h # graphs 2
w = copy.deepcopy({"a": [1, (2,)]}); B(); w["a"].append(3); w # graphs 2
st = iter([3, 2, 1].pop, 2); B(); list(st) # graphs 2
r = range(5); s = slice(1, 3); B(); list(r[s]), r, s # graphs 2
v = {**{"a": 1}, "b": x}; B(); list(v), v["b"] is x # graphs 2
print("a"), B(), print("b"), B()[0] if False else 1 # graphs 2
tw = takewhile(lambda v: v < 3, [1, 2, 3, 1]); next(tw); B(); list(tw) # graphs 2
zl = zip_longest([1, 2], "a", fillvalue=0); next(zl); B(); list(zl) # graphs 2
f = filter(None, [0, 1, 2]); next(f); B(); list(f) # graphs 2
n = namedtuple("N", "a b")(1, x); B(); n.a, n.b is x, n._replace(a=2) # graphs 2
sm = starmap(pow, [(2, 2), (3, 2)]); next(sm); B(); list(sm) # graphs 2
dv = {1: 2}.items() | {(3, 4)}; B(); sorted(dv) # graphs 2
pp = product("ab", [1]); next(pp); B(); list(pp) # graphs 2
c2 = copy.copy(deque([1, 2], maxlen=5)); B(); c2.maxlen, c2 # graphs 2
"""
