"""Iterators, functools, operator, heapq, bisect, numbers and text.

The programs are lines of a table (see library_support.py); what stands above it is theirs, too.
"""

# ruff: noqa: F401, RUF012, B008, SIM, UP, PYI

import bisect
import collections
import copy
import functools
import heapq
import itertools
import math
import operator
import struct
import types
import typing
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


class Part(functools.partial):
    pass


PART = Part(max, 2)


class PM:
    def set(self, a, b):
        self.v = (a, b)
        return self

    set1 = functools.partialmethod(set, 1)
    setk = functools.partialmethod(set, b=7)

    def __init__(self):
        self.n = 0

    @functools.cached_property
    def cp(self):
        self.n += 1
        return self.n * 10

    @functools.singledispatchmethod
    def kind(self, a):
        return "other"

    @kind.register
    def _(self, a: int):
        return "int"

    @kind.register(list)
    def _(self, a):
        return "list"

    @functools.lru_cache(None)
    def cached(self, a):
        return a + 1


@functools.singledispatch
def sd(a):
    return "base"


@sd.register(int)
def _(a):
    return "int"


@sd.register
def _(a: list):
    return "list"


@sd.register(torch.Tensor)
def _(a):
    return a + 1


@functools.total_ordering
class TO:
    def __init__(self, v):
        self.v = v

    def __eq__(self, o):
        return self.v == o.v

    def __lt__(self, o):
        return self.v < o.v


def deco(f):
    @functools.wraps(f)
    def inner(*a, **k):
        """inner doc"""
        return f(*a, **k) + 1

    return inner


@deco
def wrapped(x):
    """doc"""
    return x * 2


def pf(a, b=2, *args, c=3, **kw):
    return a, b, args, c, kw


def gen(n):
    for i in range(n):
        yield i


calls = []


@functools.lru_cache(maxsize=None)
def cached(a, b=0):
    calls.append(a)
    return a * 2


@functools.cache
def cached_tensor(n):
    return torch.ones(n)


@functools.lru_cache(2)
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


TABLE = r"""
list(product("ab", [1, x])), list(product([1, 2], repeat=2)), list(product()), [a * b for a,
    b in product([1, 2], [x])], list(product([], [1])), list(product(range(2), repeat=0))
list(permutations([1, 2, 3], 2)), list(permutations("ab")), list(permutations([x, 1])),
    list(combinations([x, 2, 3], 2)), list(combinations_with_replacement("ab", 2)),
    list(combinations("ab", 3)), list(permutations([1], 2))
list(chain([1], (x,), {"a": 1})), list(chain.from_iterable([[1], "ab"])), list(chain()),
    list(chain([1], gen(2))), list(chain.from_iterable(gen(1) for _ in range(2)))
list(zip_longest([1, 2], [x], fillvalue=0)), list(zip_longest()), list(zip_longest([1], [])),
    list(zip_longest(gen(3), "a"))
list(accumulate([1, 2, 3])), list(accumulate([1, 2, 3], operator.mul)), list(accumulate([x, x],
    initial=1)), list(accumulate([], initial=None)), list(accumulate([1, 5, 2], max)),
    list(accumulate([1], lambda a, b: a, initial=3)), list(accumulate([], initial=4)),
    list(accumulate("abc"))
[(k, list(g)) for k, g in groupby([1, 1, 2, 3, 3], key=lambda v: v % 2)], [(k,
    len(list(g))) for k, g in groupby("aabbb")], list(groupby([]))
o = groupby([1, 1, 2]); k1, g1 = next(o); k2, g2 = next(o); k1, list(g1), k2, list(g2), next(o,
    None)
o = groupby("aab"); k, g = next(o); next(g), [k for k, _ in o]
it = iter([1, 2, 3, 4, 5, 6, 7]); a = list(islice(it, 2)); b = next(it); a, b, list(islice(it, 1,
    None, 2)), list(it)
list(islice(count(3, 2), 3)), list(islice("abcd", 1, 3)), list(islice([1, 2], 0)),
    list(islice([1, 2, 3], 5)), list(islice(range(10), 2, 8, 3)), list(islice([1], None))
raised(lambda: islice([1], -1)), raised(lambda: islice([1], 0, 3, 0)), raised(lambda: islice(3,
    1)), raised(lambda: islice([1], "a")), raised(lambda: next(iter([]))),
    raised(lambda: next([])), raised(lambda: iter(3))
raised(lambda: list(zip([1], [1, 2], strict=True))), raised(lambda: list(zip([1, 2], [1],
    strict=True))), raised(lambda: list(map(len, 3))), raised(lambda: list(combinations([1],
    -1))), raised(lambda: list(map(1, [1]))), raised(lambda: zip(3)),
    raised(lambda: enumerate(3)), raised(lambda: list(product(3))),
    raised(lambda: list(permutations([1], -1)))
raised(lambda: max([])), raised(lambda: max(1)), raised(lambda: sum(["a"])),
    raised(lambda: sum(["a"], "")), raised(lambda: sorted(3)), raised(lambda: min([1, "a"])),
    raised(lambda: max(1, 2, default=3)), raised(lambda: min([], key=len)), raised(lambda: max())
raised(lambda: functools.reduce(operator.add, [])), raised(lambda: functools.reduce(operator.add,
    3)), raised(lambda: operator.itemgetter(5)([1])),
    raised(lambda: operator.attrgetter("zz")(1)), raised(lambda: operator.indexOf([1], 2)),
    raised(lambda: operator.index(1.5)), raised(lambda: operator.methodcaller("foo")(1))
a, b = tee([1, x, 3]); n = next(a); n, list(b), list(a)
c, d, e = tee(count(), 3); next(c), next(c), next(d), [next(e) for _ in range(3)]
a, b = tee(gen(3)); next(a); c, d = tee(a); list(b), list(c), list(d)
list(starmap(pow, [(2, 3), (3, 2)])), list(takewhile(lambda v: v < 3, [1, 2, 3, 1])),
    list(dropwhile(lambda v: v < 3, [1, 2, 3, 1])), list(filterfalse(lambda v: v % 2, range(6))),
    list(compress("abcd", [1, 0, True, None])), list(pairwise([1, 2, 3])), list(pairwise([1])),
    list(filterfalse(None, [0, 1]))
c = cycle([1, x]); l = [next(c) for _ in range(5)]; l, list(cycle([])), list(map(operator.add,
    [1, 2], cycle([10])))
list(repeat(x, 3)), list(zip(count(), "ab")), list(zip(repeat(1), [1, 2])), next(count(2.5,
    0.5)), list(repeat(1, 0)), list(map(pow, [1, 2], repeat(2))), [next(c) for c in [count(5,
    -1)]]
chain([1], [x]), zip([1], [2]), enumerate([x], 3), map(abs, [-1]), filter(None, [0, 1]),
    repeat(2, 2), reversed([1, 2]), iter({1: 2}), iter({3}), iter(collections.deque([1])),
    count(4), islice([1, 2, 3], 1, None)
it = iter([1]); next(it), next(it, None), next(it, x), next(iter(()), "d"), next((v for v in [1,
    2] if v > 1)), next(filter(lambda v: v > 5, [1]), -1)
l = [3, 2, 1, 0, 5]; it = iter(l.pop, 1); list(it), l
d = collections.deque([1, 2, 3]); list(iter(d.popleft, 3)), d
p = functools.partial(PART, 3); p.func is max, p.args, functools.partial(PART)(1) # graphs 2
p = functools.partial(pf, 1, c=x); q = functools.partial(p, 5, z=1); p(), q(9), p.func is pf,
    p.args, p.keywords["c"] is x, q.func is pf, q.args, list(q.keywords)
p = functools.partial(pf, 1, z=2); d = p.keywords; d["z"] = 3; p(), d is p.keywords, d # graphs 2
p = functools.partial(pf, 1, z=2); p.keywords.update(z=4); p(), p.keywords is p.keywords # graphs 2
p = functools.partial(pf, 1, z=2); d = dict(p.keywords); d["z"] = 5; p(), d, {**p.keywords}
functools.partial(int, base=2)("101"), functools.partial(torch.add, alpha=2)(x, x),
    list(map(functools.partial(operator.mul, 2), [1, 2])), functools.partial(max)(1, 2),
    raised(lambda: functools.partial(3))
p = functools.partial(pf, 1); p.extra = 5; p.extra, p.__dict__, p.func.__name__, callable(p),
    isinstance(p, functools.partial), functools.partial(p).func is pf
p = PM(); p.set1(2).v, p.setk(3).v, p.cp, p.cp, p.n, p.__dict__
p = PM(); p.kind(1), p.kind([]), p.kind("a"), p.kind(True) # graphs -
p = PM(); p.cached(1), p.cached(1), p.cached(2)
sd(1), sd([]), sd(x), sd("a"), sd(True), sd.dispatch(int)(3), list(sd.registry)[0], sd.__name__,
    sd.__wrapped__(1)
a, b = TO(1), TO(2); a <= b, a > b, a >= b, a != b, max([a, b]).v, [t.v for t in sorted([b, a])],
    min(b, a).v
k = functools.cmp_to_key(lambda a, b: b - a); sorted([1, 3, 2], key=k), k(1) < k(2),
    k(1) == k(1), k(3).obj, min([1, 2], key=k), k(1) >= k(2), k(1) != k(2), k(1) <= k(1),
    k(1) > k(0)
functools.reduce(operator.add, [x, x, 1]), functools.reduce(lambda a, b: a * b, [2, 3], 4),
    functools.reduce(max, (3, 1)), functools.reduce(operator.or_, [{1: 2}, {3: 4}]),
    functools.reduce(operator.add, [], x), functools.reduce(lambda a, b: a + [b], gen(2), [])
wrapped(x), wrapped.__name__, wrapped.__doc__, wrapped.__wrapped__(x), wrapped.__module__,
    wrapped.__qualname__
local = deco(lambda y: y); local(x), local.__name__, local.__wrapped__.__name__, local.__doc__
f = functools.lru_cache(maxsize=None)(lambda a: a * 2); f(1), f(1), f(2), f.cache_info(),
    f(x) is f(x), f.cache_parameters(), f.cache_clear(), f.cache_info().hits # graphs -
f = functools.lru_cache(maxsize=2)(lambda a: [a]); f(1) is f(1), f(2), f(3), f.cache_info(),
    f(1) is f(1), f.__wrapped__(5), f.cache_info().misses # graphs -
f = functools.cache(lambda n: n if n < 2 else f(n - 1) + f(n - 2)); f(15), f.cache_info() # graphs -
f = functools.lru_cache(lambda a: a); f(1), f(a=1), f.cache_info().currsize # graphs -
cached(3), cached(3, b=1), cached(3)
fib(10), fib(9) # graphs 2
cached_tensor(4) + x, cached_tensor(4) is cached_tensor(4)
cached.cache_info() # graphs 2
cached.cache_clear()
o = operator; o.itemgetter(1)([1, 2]), o.itemgetter(0, 2)("abc"), o.attrgetter("shape")(x),
    o.attrgetter("real.shape", "ndim")(x), o.methodcaller("upper")("a"), o.methodcaller("split",
    ",", maxsplit=1)("a,b,c"), o.itemgetter(slice(1, None))([1, 2, 3])
o = operator; o.add(1, 2), o.sub(3, 1), o.mul(x, 2), o.truediv(1, 2), o.floordiv(7, 2), o.mod(7,
    3), o.pow(2, 3), o.matmul(x, x), o.neg(1), o.pos(1), o.inv(1), o.invert(5), o.not_(0),
    o.truth([]), o.is_(None, None), o.is_not(1, None)
o = operator; o.lt(1, 2), o.le(1, 2), o.eq(1, 2), o.ne(1, 2), o.ge(1, 2), o.gt(1, 2), o.and_(6,
    3), o.or_(1, 2), o.xor(1, 3), o.lshift(1, 2), o.rshift(4, 1), o.concat([1], [2]),
    o.contains([1], 1), o.countOf([1, 1, 2], 1), o.indexOf([1, 2], 2), o.getitem([1, 2], 1),
    o.index(True), o.abs(-1)
o = operator; o.iadd([1], [2]), o.iconcat([1], [3]), o.imul([1], 2), o.isub(3, 1), o.ior({1},
    {2}), o.call(max, 1, 2), o.__add__(1, 2), o.length_hint([1, 2]), o.ifloordiv(7, 2), o.ipow(2,
    3), o.iand(6, 3), o.ixor(1, 3), o.ilshift(1, 2), o.irshift(4, 1), o.imod(7, 4), o.itruediv(1,
    2), o.imatmul(x, x)
l = [1, 2, 3]; d = {"a": 1}; operator.setitem(l, 0, x); operator.delitem(l,
    1); operator.setitem(d, "b", 2); operator.delitem(d, "a"); l, d, operator.itemgetter("b")(d),
    list(map(operator.itemgetter(1), [(1, 2), (3, 4)])), sorted([{"k": 2}, {"k": 1}],
    key=operator.itemgetter("k"))
h = []; [heapq.heappush(h, v) for v in (5, 1, 4)]; g = [3, 1,
    2]; heapq.heapify(g); heapq.heappop(h), h, g, heapq.heappushpop(g, 0), heapq.heapreplace(g,
    9), g
heapq.nlargest(2, [1, 5, 3]), heapq.nsmallest(2, [4, 1, 3], key=lambda v: -v),
    list(heapq.merge([1, 4], [2, 3])), heapq.nlargest(1, [1, 5]), heapq.nsmallest(10, [2, 1]),
    heapq.nlargest(0, [1]), list(heapq.merge([4, 1], [3, 2], reverse=True))
t = []; heapq.heappush(t, (2, "b", x)); heapq.heappush(t, (1, "a", x)); heapq.heappop(t),
    raised(lambda: heapq.heappop([])), raised(lambda: heapq.heappush(3, 1))
l = [1, 3, 3, 5]; bisect.insort(l, 4); bisect.insort_left(l, 3); l, bisect.bisect(l, 3),
    bisect.bisect_left(l, 3), bisect.bisect_right([1, 2, 3], 2, 0, 2), bisect.bisect([(1, "a"),
    (2, "b")], 1, key=lambda t: t[0])
sum([1, 2]), sum([x, x]), sum([[1], [2]], []), sum((i for i in range(4))), sum([], 5),
    sum([0.1] * 10), sum([1.5, x]), sum({1: 2, 3: 4}), sum([True, True]), sum([1, 2.5, 3j]),
    sum(range(5), start=10), sum([(1,), (2,)], ())
any([0, 1]), all([]), any(v > 2 for v in [1, 2]), all(v for v in (1, 2)), min(3, 1), max([1, 3]),
    max(1, 2.0, key=lambda v: -v), min("b", "a"), min({3: 1, 2: 5}), max((1, 2), (1, 3)), max([],
    default=None), max([1.0, 1]), min([True, 0, False]), min(gen(3)), max("abc", "b", key=len)
divmod(7, 2), divmod(-7.5, 2), pow(2, 10), pow(3, -1, 7), pow(2, 5, 3), abs(-2), abs(3 + 4j),
    round(2.5), round(3.14159, 2), round(1234, -2), chr(97), ord("a"), bin(5), hex(255), oct(8),
    bin(-5), int("ff", 16), int(3.9), int("0b11", 0), float("1e3"), complex("1+2j"), complex(1,
    2), bool([]), int(), float(), str(1.5), repr("a'b"), ascii("é"), format(3.14159, ".2f"),
    format(255, "#x"), format("a", ">5")
hash(1) == hash(1.0), int.from_bytes(b"\x01\x00", "big"), (5).bit_length(), (5).to_bytes(2,
    "little"), (2.5).is_integer(), (2.5).as_integer_ratio(), (2.5).hex(),
    float.fromhex("0x1p-1"), (3+4j).conjugate(), (3+4j).real, (5).numerator, (5).bit_count(),
    float("nan") != float("nan"), int(True), True + True, ~5, 7 & 3, 1 << 10, -7 // 2, -7 % 3,
    2 ** 0.5, 1e16 + 1, 0.1 + 0.2, int(1e20), (1.5).__round__(), (7).__divmod__(2), 5 .__add__(3)
raised(lambda: int("a")), raised(lambda: float("b")), raised(lambda: chr(-1)),
    raised(lambda: ord("ab")), raised(lambda: divmod(1, 0)), raised(lambda: 1 // 0),
    raised(lambda: 1 % 0), raised(lambda: 0 ** -1), raised(lambda: round("a")),
    raised(lambda: abs("a")), raised(lambda: pow(2, -1, 4)), raised(lambda: "a" + 1),
    raised(lambda: 1 + "a"), raised(lambda: -"a"), raised(lambda: int([])),
    raised(lambda: float({})), raised(lambda: bin(1.5)), raised(lambda: format(1, "q"))
raised(lambda: len(1)), raised(lambda: hash([])), raised(lambda: {[]: 1}),
    raised(lambda: "a"[5]), raised(lambda: (1)[0]), raised(lambda: "abc".index("z")),
    raised(lambda: "%d" % "a"), raised(lambda: "{}".format()), raised(lambda: "a".foo),
    raised(lambda: None.foo), raised(lambda: None()), raised(lambda: (3)()),
    raised(lambda: [].foo), raised(lambda: {}.foo), raised(lambda: 3 in 4),
    raised(lambda: None + 1), raised(lambda: 1 < "a"), raised(lambda: [1] < 2),
    raised(lambda: not_defined), raised(lambda: "a" "b".join([1]))
list(zip([1, 2], "ab", (x, x))), dict(zip("ab", [1, 2])), list(zip(*[(1, 2), (3, 4)])),
    list(enumerate("ab", start=2)), list(enumerate([x], 5)), list(map(lambda a, b: a + b, [1, 2],
    [3, 4])), list(filter(lambda v: v, [0, 2])), list(reversed((1, 2))), list(reversed("ab")),
    list(reversed(range(3))), [*map(str, [1, 2])], list(zip()), tuple(map(type, [1, "a"])),
    set(map(len, ["a", "bb"])), list(zip([1,2],[3,4],strict=True))
type(x) is torch.Tensor, type(1) is int, isinstance(1, (int, str)), isinstance(True, int),
    issubclass(bool, int), isinstance([], list | tuple), callable(len), callable(lambda: 1),
    callable(3), callable(int), callable([].append), hasattr([], "append"), hasattr(x, "foo"),
    getattr(x, "foo", 3), type([]).__name__, type(3).__mro__, type(None), isinstance(None,
    type(None)), type(len).__name__, type(lambda: 1).__name__
isinstance(len, collections.abc.Callable), isinstance([], collections.abc.Iterable),
    isinstance((), collections.abc.Sequence), isinstance({}, collections.abc.Mapping),
    isinstance(iter([]), collections.abc.Iterator), isinstance({1}, collections.abc.Set),
    isinstance((i for i in []), collections.abc.Generator), isinstance("a",
    collections.abc.Hashable), isinstance([], collections.abc.Hashable), isinstance(range(3),
    collections.abc.Sequence), isinstance({}.keys(), collections.abc.KeysView),
    isinstance(map(abs, []), collections.abc.Iterator)
a = 256; b = 255 + 1; a is b, None is None, () is (), x is x, True is (1 == 1), [] is [],
    (a is b) and 2, x is not y, int is int, len is len
"a,b".split(","), "abc".find("c"), "a-b".partition("-"), " a ".strip(), "a".center(5, "*"),
    "Ab".swapcase(), "ab".title(), "a\tb".expandtabs(2), "abc".translate({97: "x"}),
    "a{}c".format(1), "%s-%d" % ("a", 2), "abc"[::-1], "a" * 3, "a" in "abc", "abc" < "abd",
    "a\nb".splitlines(), "ab".encode(), "x".zfill(3), "abc".removeprefix("a"), "abc".isalpha(),
    "A".lower(), "a".ljust(3), "aXbX".replace("X", "y", 1), "a b".rsplit(None, 1),
    "ß".casefold(), "1".isdigit(), ",".join(["a", "b"]), "-".join(c for c in "ab"),
    "abc".startswith(("a", "b")), "é".isascii(), "a".isidentifier(), "abcabc".rfind("b"),
    "abc".count("b"), "abc".endswith("c"), str.maketrans("a", "b"), "a".__len__(),
    "a".__contains__("a"), "{a[0]} {b.shape}".format(a=[1], b=x), "{0!r:>5}".format("a"),
    f"{x.shape[0]:03d} {'a'!r} {1.5:.3f} {[1, (2,)]}", "{:d}".format(3), "{:>{w}}".format("a",
    w=4), "abc".format_map({})
"ab".translate("".maketrans("a", "b")), bytes.maketrans(b"a", b"b")[97]
list(struct.iter_unpack("<h", b"\1\0\2\0")), struct.unpack("<h", b"\1\0") # graphs 2
b"abc".hex(), b"a" + b"b", b"abc"[0], b"a,b".split(b","), bytes([1, 2]), bytes(2),
    b"ab".decode(), bytes.fromhex("ff"), b"a" in b"abc", list(b"ab"), b"%d" % 3, bytes("a",
    "utf8"), b"abc"[1:], b"a" * 2, len(b"abc"), b"ab".upper(), hash(b"a") == hash(b"a"),
    int.from_bytes(b"\x01", "big"), b"a" == b"a", b"abc".find(b"c")
a = bytearray(b"ab"); a.append(99); a[0] = 100; a, bytes(a), len(a) # graphs 2
m = memoryview(b"abc"); m[0], bytes(m[1:]) # graphs 2
(5).real, (2.5).imag, (1 + 2j).imag, 5 .__class__, (3).__float__(), (2.7).__int__(),
    (2.7).__trunc__(), (3.0).__eq__(3), (3).__eq__(3.0), int.__add__(1, 2), float.__mul__(2.0,
    3.0), complex.__abs__(3 + 4j), bool(0.0), bool("a"), int("12"), int(b"12"), float(" 1.5 "),
    round(-0.5), round(1.5), 10 // 3.0, 7.5 % 2, 2 ** -1, (-8) ** (1 / 3), 1_000, 0x1F, 1e308 * 10
"""
