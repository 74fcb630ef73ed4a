"""The corners of the language, program by program."""

import string
import sys
import weakref

import pytest
import torch
import torch.nn.functional as TF
from torch import nn

import dynamo
from tests.dynamo.values_support import PROGRAMS, check, program


def tensor():
    return torch.arange(4.0)


class Meta(type):
    def __call__(cls, *a):
        o = super().__call__(*a)
        o.meta = True
        return o


class WithMeta(metaclass=Meta):
    def __init__(s, a):
        s.a = a


def told(depth):
    frame = sys._getframe(depth)
    return frame.f_code.co_name, frame.f_lineno, frame.f_globals["__name__"]


@torch.no_grad()
def told_without_gradients():
    return told(2)


class ToldWhere:
    def __init__(self):
        self.made_at = told(1)


@program(tensor)
def frames_of_callers(x):
    frame = sys._getframe()
    mine = frame.f_code.co_name, frame is sys._getframe(0)
    above = (lambda: sys._getframe().f_back.f_lineno)()
    return x + 1, mine, above, told(1), told_without_gradients(), ToldWhere().made_at


def variables(depth):
    return sorted(sys._getframe(depth).f_locals)


@program(tensor)
def variables_of_callers(x):
    y, scale = x + 1, 3

    def inner(z):
        w = z * 3
        return variables(1), sys._getframe(1).f_locals["y"] * 2, w

    first = locals()
    unlike = len(first)
    del scale
    again = sorted(sys._getframe(0).f_locals)
    return inner(x), variables(1), again, unlike, "scale" in first


def set_caller(name, value):
    sys._getframe(1).f_locals[name] = value


@program(tensor)
def variables_set_by_callees(x):
    """From Python 3.13 on; before, what is written is a dict's."""
    scale, seen = 2, []

    def inner():
        return scale

    for i in range(3):
        set_caller("scale", scale + i)
        set_caller("x", x + scale)
        seen.append(scale)
    variables = sys._getframe().f_locals
    variables["seen"] = [*seen, "scale" in variables, len(variables), variables.get("none", 5)]
    return x * inner(), seen, {**variables}["scale"], isinstance(variables, dict)


@program(tensor, graphs=0)
def variables_kept_over_a_break(x):
    frame, scale = sys._getframe(), 2
    y = x * scale
    dynamo.graph_break()
    scale = 3
    before = frame.f_locals["scale"]
    frame.f_locals["scale"] = 7
    return y * scale, before


@program(tensor, graphs=3)
def proxies_kept_over_a_break(x):
    scale, variables = 2, sys._getframe().f_locals
    y = x * scale
    dynamo.graph_break()
    variables["scale"] = 7
    return y * scale


class Tells(nn.Module):
    def forward(self, x):
        return x * 2, told(1)


TELLS = Tells()


@program(tensor)
def frames_of_modules(x):
    return TELLS(x)


@program(tensor, graphs=2)
def frames_of_real_callers(x):
    y = x + 1
    return y, sys._getframe(1) is None, y * 2


@program(tensor)
def metaclass_call(x):
    w = WithMeta(3)
    return x + w.a, w.meta


@program(tensor)
def walrus(x):
    if (n := x.shape[0]) > 2:
        return x * n
    return x


@program(tensor)
def match_stmt(x):
    match {"k": [1, 2, x]}:
        case {"k": [a, b, *rest]}:
            return a + b + rest[0]
    return x


@program(tensor)
def star(x):
    def f(a, *b, c=1, **d):
        return a + sum(b) + c + sum(d.values())

    return f(x, *[1, 2], **{"c": 3, "z": 4})


class Prop:
    def __init__(s):
        s._x = 1

    @property
    def v(s):
        return s._x

    @v.setter
    def v(s, n):
        s._x = n

    @v.deleter
    def v(s):
        s._x = 0


@program(tensor)
def props(x):
    o = Prop()
    o.v = 4
    a = o.v
    del o.v
    return x + o.v, a


class CM:
    def __init__(s, l):
        s.l = l

    def __enter__(s):
        s.l.append(1)
        return s

    def __exit__(s, *a):
        s.l.append(2)
        return True


@program(tensor)
def withs(x):
    l = []
    with CM(l), CM(l) as c:
        x = x + 1
        raise ValueError("z")
    return x, l


@program(tensor)
def tryfin(x):
    l = []

    def f():
        try:
            return x + 1
        finally:
            l.append(1)

    for i in range(3):
        try:
            if i == 1:
                continue
            l.append(i)
        finally:
            l.append("f")
    else:
        l.append("else")
    return f(), l


@program(tensor)
def gens(x):
    def g():
        for i in range(3):
            yield x + i

    a = list(g())
    it = g()
    next(it)
    return a, sum(it), max(i for i in [1, 3, 2]), {k: v for k, v in zip("ab", g())}


@program(tensor)
def strs(x):
    s = "Hello {} {name!r:>10}".format(1, name="z")
    t = "%5.2f|%-4d|%s" % (1.234, 5, None)
    return (
        x + 1,
        s,
        t,
        "a b c".split(),
        "x".join(map(str, [1, 2])),
        "abc".translate(str.maketrans("a", "z")),
        "Abc".swapcase().center(9, "*"),
        "a,b".partition(","),
        b"ab".decode(),
        "é".encode(),
        s.find("e"),
        "abc"[-1],
        "b" in "abc",
        string.ascii_letters[:3],
    )


@program(tensor)
def ints(x):
    return (
        (5).bit_length(),
        (3.5).is_integer(),
        int.from_bytes(b"ab", "big"),
        (255).to_bytes(2, "big"),
        float("inf"),
        float.fromhex("0x1p3"),
        complex(1, 2).conjugate(),
        x + 1,
        7 // 2,
        -7 % 3,
        2**10,
        1e3,
        round(-2.5),
        int("ff", 16),
        1_000,
    )


@program(tensor)
def dictcomp(x):
    d = {**{"a": 1}, "b": 2}
    d |= {"c": 3}
    a, *b = d.values()
    del d["a"]
    return (
        d,
        a,
        b,
        list(reversed(d)),
        {v: k for k, v in d.items()},
        x + 1,
        d.keys() | {"z"},
        sorted(d.items(), key=lambda t: -t[1]),
    )


@program(tensor)
def lists(x):
    l = [3, 1, 2]
    l.sort(reverse=True)
    l[1:2] = [9, 9]
    del l[::2]
    m = [[0] * 2 for _ in range(2)]
    m[0][1] = x
    l *= 2
    return (
        l,
        m,
        l.index(9),
        [1, 2] + [3],
        [1] == [1],
        [1, 2] < [1, 3],
        l.copy(),
        list("abc"),
        [*range(2), *"xy"],
        sorted([(2, "b"), (1, "a")]),
        min([3, 1]),
        [None] * 2,
    )


@program(tensor)
def sets(x):
    s = {1, 2, 3}
    s -= {1}
    s.update([5], [6])
    return (
        s,
        s.isdisjoint({9}),
        s.issuperset({2}),
        frozenset([1]) | {2},
        {1, 2} == {2, 1},
        len(s),
        {i % 2 for i in range(4)},
        x + 1,
    )


@program(tensor)
def closures(x):
    fs = []
    for i in range(3):

        def f(y, i=i):
            return y + i

        fs.append(f)

    def mk(n):
        def inc():
            nonlocal n
            n += 1
            return n

        return inc

    c = mk(1)
    c()
    return [f(x) for f in fs], c()


@program(tensor)
def rec(x):
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    return x + fib(7)


class GA:
    def __getattribute__(s, n):
        if n == "zz":
            return 5
        return object.__getattribute__(s, n)


@program(tensor)
def getattribute(x):
    return x + GA().zz


class Op:
    def __init__(s, v):
        s.v = v

    def __matmul__(s, o):
        return s.v * 10

    def __rsub__(s, o):
        return o - s.v

    def __lt__(s, o):
        return s.v < o.v

    def __index__(s):
        return s.v

    def __hash__(s):
        return hash(s.v)

    def __eq__(s, o):
        return s.v == o.v

    def __int__(s):
        return s.v

    def __float__(s):
        return float(s.v)

    def __abs__(s):
        return abs(s.v)

    def __format__(s, sp):
        return f"<{s.v}:{sp}>"

    def __enter__(s):
        return s

    def __exit__(s, *a):
        pass

    def __delitem__(s, k):
        s.v = k

    def __getitem__(s, k):
        return k

    def __reversed__(s):
        return iter([3, 2, 1])

    def __length_hint__(s):
        return 3

    def __pow__(s, o):
        return s.v**o

    def __divmod__(s, o):
        return divmod(s.v, o)

    def __invert__(s):
        return ~s.v


@program(tensor)
def ops(x):
    o = Op(2)
    a = Op(-1)
    r = [
        o @ a,
        x - o,
        sorted([o, a])[0] is a,
        [1, 2, 3][o],
        o == Op(2),
        int(o),
        float(o),
        abs(a),
        f"{o:x}",
        {o: 1}[Op(2)],
        o[1:2],
        o[..., 1],
        list(reversed(o)),
        range(o),
        o**3,
        ~o,
    ]
    del o[7]
    r.append(o.v)
    return r


class WithTensor:
    def __init__(s):
        s.t = None

    def upd(s, x):
        s.t = x if s.t is None else s.t + x
        return s


@program(tensor)
def chain_obj(x):
    return WithTensor().upd(x).upd(x).t


class Base:
    reg = {}

    def __init_subclass__(cls, **k):
        Base.reg[cls.__name__] = cls


class S1(Base):
    pass


@program(tensor)
def subclassinit(x):
    return x + len(Base.reg), "S1" in Base.reg, S1.__mro__[1] is Base, S1.__name__, S1.__bases__


class MA:
    def f(s):
        return ["A"]


class MB(MA):
    def f(s):
        return ["B"] + super().f()


class MC(MA):
    def f(s):
        return ["C"] + super().f()


class MD(MB, MC):
    def f(s):
        return ["D"] + super().f()


@program(tensor)
def mro(x):
    return x + 1, MD().f()


@program(tensor)
def delvar(x):
    y = x + 1
    del y
    try:
        return y  # noqa: F821
    except UnboundLocalError:
        return x


@program(tensor)
def exc_chain(x):
    try:
        try:
            1 / 0
        except ZeroDivisionError as e:
            raise KeyError("k") from e
    except KeyError as e:
        return x + 1, type(e.__cause__).__name__, isinstance(e, LookupError)


@program(tensor)
def exc_else(x):
    try:
        y = int("5")
    except (ValueError, TypeError):
        y = 0
    else:
        y += 1
    try:
        [].pop()
    except IndexError as e:
        m = str(e)
    try:
        {}["a"]
    except Exception as e:
        n = repr(e)
    try:
        None.foo
    except AttributeError as e:
        o = str(e)
    try:
        "a" + 1
    except TypeError as e:
        q = str(e)
    try:
        int("x")
    except ValueError as e:
        r = str(e)
    return x + y, m, n, o, q, r


@program(tensor)
def asserts(x):
    assert x.shape[0] == 4, "no"
    try:
        assert False, "msg"
    except AssertionError as e:
        return x + 1, str(e)


@program(tensor)
def modulein(x):
    return TF.linear(x, torch.ones(2, 4)), nn.ReLU()(x), nn.Identity()(x), nn.Softmax(dim=0)(x)


@program(tensor)
def setdef(x):
    d = {}
    d.setdefault("a", []).append(x)
    return d


@program(tensor)
def ifexpr(x):
    return x if len(x) > 3 and not None or 0 else None


@program(tensor)
def zipstar(x):
    return (
        list(zip(*[[1, 2], [3, 4]])),
        [*map(lambda *a: sum(a), [1, 2], [3, 4])],
        x + 1,
        dict(enumerate("ab")),
        all(isinstance(i, int) for i in [1]),
        any(i is None for i in [1]),
    )


@program(tensor)
def printf(x):
    s = f"{x.shape=} {3:03d} {'a':>3} {1.5:.2e} {[1]!r} {True}"
    return x + 1, s


@program(tensor)
def hasattrs(x):
    return (
        hasattr(x, "foo"),
        hasattr(x, "shape"),
        hasattr([], "append"),
        getattr(x, "nope", 3),
        hasattr(3, "real"),
        x + 1,
        callable(x),
    )


@program(tensor)
def lambdas(x):
    return (lambda a, /, b, *, c: a + b + c)(x, 1, c=2)


@program(tensor)
def nestedlistcomp(x):
    return (
        [[i * j for j in range(2)] for i in range(2)],
        [y for y in [1, 2, 3] if y % 2],
        {**{str(i): x + i for i in range(2)}},
    )


@program(tensor)
def loops(x):
    i = 0
    while True:
        i += 1
        if i > 5:
            break
        if i % 2:
            continue
        x = x + i
    for a, (b, c) in [(1, (2, 3))]:
        x = x * a + b + c
    return x


@program(tensor)
def idcmp(x):
    l = []
    return id(l) == id(l), x + 1


@program(tensor)
def wref(x):
    o = WithTensor()
    r = weakref.ref(o)
    return x + 1, r() is o


@pytest.mark.parametrize("function, args, graphs, ops", PROGRAMS[__name__])
def test_program(function, args, graphs, ops):
    check(function, args, graphs, ops)
