"""dataclasses, enums, typing, collections.abc, copy and inspect.

The programs are lines of a table (see library_support.py); what stands above it is theirs, too.
"""

# ruff: noqa: F401, RUF012, B008, SIM, UP, PYI

import abc
import collections
import copy
import dataclasses
import enum
import functools
import inspect
import itertools
import numbers
import operator
import types
import typing
import weakref
from dataclasses import KW_ONLY, InitVar, dataclass, field

import torch

from tests.dynamo.library_support import raised


@dataclass
class D1:
    a: int
    b: typing.Any = None
    c: list = field(default_factory=list)
    d: int = field(default=3, repr=False, compare=False)

    def __post_init__(self):
        self.e = self.a + 1


@dataclass(frozen=True)
class D2:
    a: int = 1
    b: tuple = ()


@dataclass(slots=True)
class D3:
    a: int
    b: dict = field(default_factory=dict)


@dataclass(kw_only=True)
class D4:
    a: int
    b: int = 2


@dataclass
class D5:
    a: int
    _: KW_ONLY
    b: int = 5
    iv: InitVar[int] = 10
    z: int = field(init=False)

    def __post_init__(self, iv):
        self.z = iv + self.a


@dataclass(order=True)
class D6(D1):
    f: float = 1.5


@dataclass(frozen=True, slots=True, order=True)
class D7:
    a: int
    b: int = 0
    K: typing.ClassVar[int] = 9


@dataclass(unsafe_hash=True)
class D8:
    a: int = 1


@dataclass
class D9:
    t: torch.Tensor
    n: "D9" = None


class E1(enum.Enum):
    A = 1
    B = "b"
    C = (1, 2)
    D = "d"

    @property
    def up(self):
        return self.name.lower()

    def m(self, y):
        return (self, y)

    @classmethod
    def default(cls):
        return cls.B

    @staticmethod
    def s():
        return 3


class E2(enum.IntEnum):
    X = 1
    Y = 2
    Z = 2


class E3(enum.Flag):
    R = enum.auto()
    W = enum.auto()
    RW = R | W


class E4(enum.StrEnum):
    FOO = enum.auto()
    BAR = "baz"


class E5(enum.IntFlag):
    P = 1
    Q = 2


class E6(enum.Enum):
    EARTH = (1.0, 2.0)
    MARS = (3.0, 4.0)

    def __init__(self, m, r):
        self.m = m
        self.r = r

    @property
    def g(self):
        return self.m / self.r


class E7(str, enum.Enum):
    X = "x"

    def __str__(self):
        return self.value

    @classmethod
    def _missing_(cls, v):
        return cls.X


T = typing.TypeVar("T")


class G(typing.Generic[T]):
    def __init__(self, v):
        self.v = v

    def get(self) -> T:
        return self.v


class GI(G[int]):
    pass


@typing.runtime_checkable
class P(typing.Protocol):
    def get(self): ...


class TD(typing.TypedDict, total=False):
    a: int
    b: str


class NT2(typing.NamedTuple, typing.Generic[T]):
    a: T


NewI = typing.NewType("NewI", int)


class Sq(collections.abc.Sequence):
    def __init__(self, l):
        self.l = l

    def __len__(self):
        return len(self.l)

    def __getitem__(self, i):
        return self.l[i]


class Mp(collections.abc.MutableMapping):
    def __init__(self):
        self.d = {}

    def __getitem__(self, k):
        return self.d[k]

    def __setitem__(self, k, v):
        self.d[k] = v

    def __delitem__(self, k):
        del self.d[k]

    def __iter__(self):
        return iter(self.d)

    def __len__(self):
        return len(self.d)


class St(collections.abc.MutableSet):
    def __init__(self, it=()):
        self.s = list(it)

    def __contains__(self, v):
        return v in self.s

    def __iter__(self):
        return iter(self.s)

    def __len__(self):
        return len(self.s)

    def add(self, v):
        if v not in self.s:
            self.s.append(v)

    def discard(self, v):
        if v in self.s:
            self.s.remove(v)


class CP:
    def __init__(self, v):
        self.v = v

    def __copy__(self):
        return CP(("copied", self.v))

    def __deepcopy__(self, memo):
        r = CP(copy.deepcopy(self.v, memo))
        memo[id(self)] = r
        r.deep = True
        return r


class CQ:
    def __init__(self, v):
        self.v = v
        self.me = self


class CS:
    __slots__ = ("a", "b")

    def __init__(self):
        self.a = 1


class CR:
    def __init__(self, v):
        self.v = v

    def __reduce__(self):
        return CR, (self.v + 1,)


class CG:
    def __init__(self, v):
        self.v = v

    def __getstate__(self):
        return {"v": self.v * 2}

    def __setstate__(self, s):
        self.w = s["v"]


class CL(list):
    pass


class CD(dict):
    pass


class Sub2(collections.namedtuple("Sub2", "a b")):
    pass


def sig(a, b=2, *args, c: int = 3, **kw) -> int:
    return a


class SC:
    """doc of SC"""

    def __init__(self, q, r=1):
        pass

    def meth(self, z):
        pass

    @staticmethod
    def st(y):
        pass


def seta():
    E1.A = 3


def setval():
    E1.A.value = 5


def m1(v):
    match v:
        case D1(1, b):
            return b
        case {"k": [p, *q]}:
            return p, q
        case E1.A:
            return "A"
        case (1, 2) | [3]:
            return "seq"
        case str(s) if s:
            return s
        case None:
            return "none"
        case D7(a=1):
            return "d7"
        case _:
            return "other"


TABLE = r"""
d = D1(1, x); d.c.append(4); d, D1(1) == D1(1), D1(1) == D1(2), D1(1, d=5) == D1(1), repr(D1(1)),
    d.e, D1(1) != 3, D1(a=2, b=3).b
d = D2(3, (1, 2)); raised(lambda: setattr(d, "a", 4)), raised(lambda: delattr(d, "a")),
    hash(d) == hash(D2(3, (1, 2))), {d: 1}[D2(3, (1, 2))], dataclasses.replace(d, a=7),
    d == D2(3, (1, 2)), d, D2() == D2()
d = D3(1); d.b["k"] = x; d.a = 8; raised(lambda: setattr(d, "zz", 1)), hasattr(d, "__dict__"),
    D3(1) == D3(1), repr(D3(2)), dataclasses.asdict(D3(1, {"a": (1, [2])})),
    dataclasses.astuple(D3(1)), d
d = D4(a=1); e = D5(1, b=2, iv=3); d.a, d.b, e.z, D5(2).z, e, raised(lambda: D4(1)),
    raised(lambda: D4()), raised(lambda: D5(1, 2)), raised(lambda: D5(1, c=3))
d = D6(1, x, f=2.5); d.f, d.e, D6(1) < D6(2), sorted([D6(3), D6(1)])[0].a, isinstance(d, D1),
    [f.name for f in dataclasses.fields(D6)], dataclasses.is_dataclass(d),
    dataclasses.is_dataclass(D6), dataclasses.is_dataclass(3)
[f.default for f in dataclasses.fields(D7)][1], D7.K, D7(1) < D7(2), D7(1) <= D7(1, 0),
    hash(D7(1)) == hash(D7(1)), max(D7(1), D7(1, 4)).b, hash(D8()) == hash(D8()), D7(2) > D7(1),
    raised(lambda: D7(1) < 3)
d = D9(x, D9(x + 1)); d.n.t, dataclasses.replace(D1(1, 2), a=10), dataclasses.replace(D1(1, 2),
    a=10).e, D1.__match_args__, D1.__dataclass_fields__["a"].name, dataclasses.fields(d)[0].type,
    dataclasses.asdict(D1(1, [D2(5)])), dataclasses.astuple(D2(1, (2, D2())))
dataclasses.asdict(D2(1, (3,)), dict_factory=collections.OrderedDict), dataclasses.asdict(D1(1,
    {"a": D8()})), dataclasses.asdict(D2(1, Sub2(1, D8()))), dataclasses.asdict(D1(1,
    collections.defaultdict(list, a=[D8()]))), dataclasses.astuple(D1(1, [D8()]),
    tuple_factory=list)
raised(lambda: dataclasses.replace(D1(1), zz=3)), raised(lambda: dataclasses.asdict(3)),
    raised(lambda: dataclasses.fields(3)), raised(lambda: dataclasses.replace(3)),
    raised(lambda: dataclasses.asdict(D1)), raised(lambda: D1())
[m1(v) for v in (D1(1, 5), {"k": [1, 2]}, E1.A, (1, 2), [3], "abc", None, D7(1), 7, "")]
E1.A, E1.A.name, E1.A.value, E1(1) is E1.A, E1["B"] is E1.B, [m.name for m in E1], len(E1),
    E1.A == E1.A, E1.A != E1.B, E1.A is E1.A, E1.A in E1, repr(E1.A), str(E1.A), E1.A.up,
    E1.B.m(3), E1.default(), E1.A.s(), isinstance(E1.A, E1), {E1.A: x}[E1.A], list(E1.__members__)
hash(E1.A) == hash(E1.A), E1((1, 2)), E1.C.value[1], f"{E1.A}", type(E1.A) is E1, bool(E1.A),
    E1.A in [E1.B, E1.A], E1.A == 1, f"{E1.A!r}", "%s" % E1.A, "{}".format(E1.B), E1.A._name_,
    E1.A._value_, E1.__name__, E1.A.__class__ is E1
list(reversed(E1)), E1.__members__["A"], dict(E1.__members__), E1.A.__doc__, sorted(E2,
    reverse=True), min(E2), [(k, v.value) for k, v in E1.__members__.items()], isinstance(E1,
    enum.EnumType), issubclass(E2, int)
E2.X + 1, E2.Y * x, E2.Z is E2.Y, E2.X < E2.Y, x[E2.X], [1, 2, 3][E2.Y], list(E2), E2(2).name,
    max(E2), int(E2.X), {1: 2}[E2.X], f"{E2.X}", repr(E2.X), str(E2.Y), isinstance(E2.X, int),
    E2.X == 1, list(range(E2.Y)), torch.zeros(E2.Y), sum(E2), x.sum(dim=E2.X - 1),
    x.reshape(E2.Y, 2), format(E2.X, "03d"), "%d" % E2.X, E2.X | 4, -E2.X, E2.X.bit_length()
f = E3.R | E3.W; f, f is E3.RW, E3.R in f, E3.R & E3.W, bool(E3.R & E3.W), ~E3.R, f ^ E3.R,
    f.value, list(f), len(f), E3(3), repr(E3.R), E3(0), f.name, E5.P | 4, E5.P | E5.Q, E5.P & 1,
    E5(3), E5.P + 1, isinstance(E5.P, int)
E4.FOO, E4.FOO == "foo", E4.FOO.upper(), f"{E4.BAR}", str(E4.BAR), E4("baz") is E4.BAR,
    {"foo": 1}[E4.FOO], E4.FOO + "x", "-".join(E4), "x" == E7.X, E7.X in ("x", "y"), len(E7.X),
    E7.X.startswith("x"), sorted([E4.FOO, E4.BAR]), E4.BAR[0], "a%s" % E4.FOO, "b" in E4.BAR
E7("zz"), str(E7.X), f"{E7.X}", E7.X.value
E6.EARTH.m, E6.MARS.g * x, [e.r for e in E6], E6((1.0, 2.0))
raised(lambda: E1(99)), raised(lambda: E1["zz"]), raised(lambda: E1.ZZ),
    raised(lambda: E1.A < E1.B), raised(lambda: E1.A.zz), raised(lambda: E2("a"))
raised(seta), raised(setval) # graphs 2
td = TD(a=1, b="s"); typing.cast(int, x), G(1).get(), G[int](x).get(), GI(3).v, isinstance(G(1),
    P), isinstance(3, P), isinstance(GI(1), G), td, NT2(1).a, NewI(3)
typing.get_type_hints(sig)["return"], typing.get_origin(list[int]), typing.get_args(dict[str,
    int]), typing.Optional[int] == typing.Union[int, None], sig.__annotations__["c"],
    typing.TYPE_CHECKING, list[int]([1]), dict[str, int](a=1), typing.Any is typing.Any,
    typing.get_type_hints(D2)
s = Sq([1, 2, 3]); list(s), 2 in s, list(reversed(s)), s.index(3), s.count(1), isinstance(s,
    collections.abc.Sequence), len(s), s[0], s[1:], raised(lambda: s.index(9))
m = Mp(); m["a"] = 1; m.update(b=x); m["a"], m.get("z", 4), m.pop("a"), list(m.items()), dict(m),
    "b" in m, m.setdefault("q", 5), len(m), list(m.keys()), list(m.values()), m.popitem()[0],
    raised(lambda: m["no"]), m == {"q": 5}, bool(m), m.clear(), len(m)
t = St([1, 2]); t |= {5}; t.remove(1); sorted(t | {9}), t.isdisjoint({7}), (t & {5}).s, t == {2,
    5}, t <= {2, 5, 6}, (t - {2}).s, 5 in t, len(t), raised(lambda: t.remove(77)), t.pop()
ud = collections.UserDict(a=1); ud["b"] = x; ul = collections.UserList([1,
    2]); ul.append(3); ud.data, ud["a"], len(ud), list(ul), ul[0], (ul + [4]).data, "a" in ud,
    ul[1:].data, repr(ul)
us = collections.UserString("abc"); us.upper() == "ABC", len(us), us[0].data, (us + "d").data
isinstance(Sq([]), collections.abc.Collection), isinstance({}.items(),
    collections.abc.ItemsView), isinstance(collections.deque(), collections.abc.MutableSequence),
    isinstance(collections.OrderedDict(), collections.abc.MutableMapping),
    isinstance(types.SimpleNamespace(), collections.abc.Hashable), isinstance(torch.Size([1]),
    tuple), isinstance(x.shape, torch.Size), isinstance(x.dtype, torch.dtype),
    isinstance(frozenset(), collections.abc.Set), isinstance(x, collections.abc.Iterable)
l = [1, [2, 3]]; a = copy.copy(l); b = copy.deepcopy(l); b[1].append(4); a, b, a[1] is l[1], l
c = CP([1]); g = copy.copy(c); h = copy.deepcopy(c); g.v, h.v, h.deep
q = CQ([1]); r = copy.deepcopy(q); r2 = copy.copy(q); r.me is r, r2.me is q, r.v is q.v, r.v,
    r2.v is q.v
copy.deepcopy((1, (2,))), copy.deepcopy({1, 2}), copy.copy({1}),
    copy.deepcopy(collections.OrderedDict(a=[1])), copy.deepcopy(collections.defaultdict(list,
    a=[1])), copy.deepcopy(collections.deque([1, [2]], maxlen=3)),
    copy.copy(collections.deque([1])), copy.deepcopy(Sub2(1, [2])), copy.copy(Sub2(1, 2)),
    copy.deepcopy(collections.Counter("aab")), copy.copy(collections.Counter("ab")),
    copy.deepcopy(frozenset([1]))
t = (1, [2]); u = copy.deepcopy(t); v = (1, 2); u is t, u, copy.deepcopy(v) is v,
    copy.copy(t) is t, copy.deepcopy([t, t])[0] is copy.deepcopy(t)
s = [[1]] * 2; d = copy.deepcopy(s); d[0] is d[1], d, copy.deepcopy({"a": s, "b": s})
s = CS(); s2 = copy.copy(s); s3 = copy.deepcopy(s); s2.a, s3.a, hasattr(s3, "b")
copy.copy(CR(1)).v, copy.deepcopy(CR(5)).v, copy.copy(CG(2)).w, copy.deepcopy(CG(3)).w,
    hasattr(copy.copy(CG(2)), "v")
copy.copy(CL([1])), copy.deepcopy(CL([[1]])), copy.copy(CD(a=1)), copy.deepcopy(CD(a=[1]))
copy.copy(E1.A), copy.deepcopy(E1.A), copy.deepcopy(len), copy.copy(int), copy.deepcopy(D1(1,
    [2])), copy.copy(D7(1)), copy.deepcopy(D7(2)), copy.deepcopy(types.SimpleNamespace(a=[1])),
    copy.deepcopy(range(3)), copy.deepcopy(slice(1)), copy.copy(CQ), copy.deepcopy(CS),
    copy.deepcopy(torch.Size([1])), copy.deepcopy(x.dtype), copy.copy(None), copy.deepcopy(1.5),
    copy.copy(sig) is sig
l = [1]; l.append(l); m = copy.deepcopy(l); m[1] is m, m is l
d = {}; d["d"] = d; e = copy.deepcopy(d); e["d"] is e
memo = {}; k = [1]; c = copy.deepcopy(k, memo); memo[id(k)] is c, len(memo)
copy.deepcopy(x), copy.deepcopy([x])[0] is x
raised(lambda: copy.deepcopy((i for i in []))) # graphs 2
s = inspect.signature(sig); list(s.parameters), s.parameters["b"].default,
    s.parameters["args"].kind, str(s), s.return_annotation,
    list(inspect.signature(SC).parameters), list(inspect.signature(SC.meth).parameters)
s = inspect.signature(sig); b = s.bind(1, 2, 3, c=4); b.apply_defaults(); b.arguments, b.args,
    b.kwargs
inspect.isfunction(sig), inspect.ismethod(SC(1).meth), inspect.isclass(SC),
    inspect.ismodule(torch), inspect.isbuiltin(len), inspect.isgeneratorfunction(sig),
    inspect.getdoc(SC), inspect.getmro(SC), inspect.iscoroutinefunction(sig),
    inspect.isroutine(len), inspect.getfullargspec(sig).args, inspect.unwrap(sig) is sig
[n for n, _ in inspect.getmembers(SC, inspect.isfunction)]
o = SC(1); o.k = x; vars(o), o.__dict__, "k" in vars(o), list(vars(o)), o.__dict__.get("k") is x,
    getattr(o, "nope", None), o.__class__ is SC, type(o).__name__
ns = types.SimpleNamespace(a=1, b=x); ns.c = 3; del ns.a; ns.b, ns.c, vars(ns), hasattr(ns, "a"),
    ns
types.SimpleNamespace(a=1) == types.SimpleNamespace(a=1), types.SimpleNamespace(a=x).a
"meth" in dir(SC), SC.__doc__, SC.__name__, SC.__qualname__, SC.__bases__, SC.__mro__,
    vars(SC)["meth"] is SC.meth, sorted(d for d in dir(SC) if not d.startswith("_")),
    SC.meth.__name__, sig.__code__.co_varnames, sig.__defaults__, sig.__kwdefaults__
o = SC(1); setattr(o, "w", 3); delattr(o, "w"); hasattr(o, "w"), raised(lambda: o.w),
    raised(lambda: delattr(o, "w")), raised(lambda: getattr(o, 3)), raised(lambda: setattr(3,
    "a", 1)), raised(lambda: o())
P2 = enum.Enum("P2", "A B"); P2.A.value # graphs 3
D = dataclasses.make_dataclass("D", ["a"]); D(1).a # graphs 3
"""
