"""Small programs of every kind: compiled equals eager in value, exceptions and mutation, with
breaks and without.

`breaks` on a program is the set of codes at which its frames break; none means that it is one
graph.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import enum
import functools
import itertools
import math
import operator

import pytest
import torch

from tests.dynamo.capturing import compiled, outcome, same

X = torch.arange(3.0)
PROGRAMS = []


def program(*breaks):
    """Register a function of one tensor; `breaks` are the codes that capturing it gives."""

    def register(fn):
        PROGRAMS.append(pytest.param(fn, frozenset(breaks), id=fn.__name__))
        return fn

    return register


class Ctx:
    def __init__(s, log):
        s.log = log

    def __enter__(s):
        s.log.append("in")
        return 5

    def __exit__(s, t, v, tb):
        s.log.append(t.__name__ if t else None)
        return t is ValueError


@program()
def with_user(x):
    log = []
    with Ctx(log) as n:
        y = x + n
        raise ValueError("x")
    return x * 2, log


@program("UNCAPTURED_CALL")
def with_break_loop(x):
    log = []
    for i in range(2):
        with Ctx(log) as n:
            x = x + n
            print(end="")
            x = x * 2
    return x, log


@program("UNCAPTURED_CALL")
def with_break_exc(x):
    log = []
    with Ctx(log):
        y = x + 1
        print(end="")
        int("a")
    return y, log


@program("UNCAPTURED_CALL")
def try_finally_break(x):
    try:
        y = x + 1
        print(end="")
    finally:
        x = x * 3
    return x + y


@program()
def nested_try(x):
    out = []
    for i in range(3):
        try:
            try:
                if i == 1:
                    raise KeyError(i)
                x = x + i
            finally:
                out.append(i)
        except KeyError as e:
            out.append(str(e))
            continue
    return x, out


@program("UNCAPTURED_CALL")
def listcomp_break(x):
    def g(t):
        print(end="")
        return t + 1

    return [g(x * i) for i in range(3)]


@program()
def lambda_key(x):
    l = [(2, "b"), (1, "a")]
    l.sort(key=lambda t: t[0])
    return (
        x + l[0][0],
        sorted(l, reverse=True),
        max(l),
        min([3, 1]),
        any(v for v in [0, 1]),
        all([1, 0]),
    )


@program()
def string_ops(x):
    s = "a,b".split(",")
    return x, s, "-".join(s).upper(), f"{x.dtype}", "%d %s" % (3, "k"), "{:>5}|{k}".format(1, k=2)


@program()
def dicts(x):
    d = {"a": 1, **{"b": x}}
    d.setdefault("c", []).append(x + 1)
    d.pop("a")
    e = {k: v for k, v in d.items()}
    return e, list(d), d.get("zz", 4), "b" in d, len(d)


@dataclasses.dataclass
class DC:
    a: int
    b: object = None
    c: list = dataclasses.field(default_factory=list)


@program()
def dataclass_(x):
    d = DC(1, x)
    d.c.append(x + d.a)
    e = dataclasses.replace(d, a=5)
    return d, e.a, d == d


class Color(enum.Enum):
    R = 1
    G = 2


@program()
def enum_(x):
    c = Color.R
    return x + c.value, c is Color.R, c.name, Color(2).name


NT = collections.namedtuple("NT", "a b")


@program()
def namedtuple_(x):
    n = NT(x, 2)
    a, b = n
    return n, n._replace(b=3), a + b, n.b


@program()
def iters(x):
    return (
        [x * a + b for a, b in zip(range(3), itertools.count(1))],
        list(itertools.chain([1], [2])),
        list(map(lambda v: v + 1, [1, 2])),
        functools.reduce(operator.add, [x, x, x]),
        list(reversed([1, 2])),
        dict(enumerate("ab")),
    )


@program()
def while_loop(x):
    i = 0
    while i < 5:
        i += 1
        if i == 2:
            continue
        if i == 4:
            break
        x = x + i
    else:
        x = x * 100
    return x, i


@program()
def walrus(x):
    if (n := x.shape[0]) > 2:
        x = x * n
    return x


@program()
def star(x):
    a, *b, c = [1, 2, 3, 4]

    def f(*args, **kw):
        return args, kw

    return f(*b, c, k=x, **{"z": a})


@program()
def recursion(x):
    def fact(n):
        return 1 if n < 2 else n * fact(n - 1)

    return x * fact(5)


@program()
def classdef(x):
    class A:
        v = 3

        def go(self, x):
            return x + self.v

    return A().go(x)


@program()
def del_(x):
    y = x + 1
    del y
    try:
        return y  # noqa: F821
    except UnboundLocalError as e:
        return x, str(e)


@program()
def isinst(x):
    return (
        isinstance(x, (int, torch.Tensor)),
        type(x) is torch.Tensor,
        issubclass(bool, int),
        callable(len),
        hasattr(x, "shape"),
        getattr(x, "nope", 7),
        x + 1,
    )


@program()
def contextlib_(x):
    @contextlib.contextmanager
    def cm(v):
        v.append("a")
        try:
            yield 3
        finally:
            v.append("b")

    l = []
    with cm(l) as n:
        x = x + n
    return x, l


@program()
def nullctx(x):
    with contextlib.nullcontext(), contextlib.suppress(KeyError):
        x = x + 1
        {}["k"]
    return x


@program()
def assert_(x):
    assert x.shape[0] == 3, "bad"
    try:
        assert False, "msg"
    except AssertionError as e:
        return x + 1, str(e)


@program()
def index_ops(x):
    y = torch.zeros(4, 4)
    y[1] = 2
    y[:, 0] += 1
    y[y > 1.5] = 0
    return y, x[0], x[-1:], x[None], x[..., 1], x[torch.tensor([0, 1])], y[1:3, ::2]


@program()
def inplace_alias(x):
    a = x
    b = x[1:]
    a += 1
    b.mul_(2)
    return a, b


@program()
def global_tensor(x):
    return x + GT


GT = torch.ones(3)


@program()
def tensor_make(x):
    return (
        torch.tensor([1, 2]),
        torch.zeros(2),
        torch.full((2,), 3.0),
        torch.arange(4),
        x.new_ones(2),
        torch.empty(2).fill_(1),
    )


@program()
def dtype_ops(x):
    return (
        x.to(torch.float64),
        x.half().float(),
        x.type(torch.int32),
        x.long(),
        x.dtype == torch.float32,
        x.device.type,
        torch.float32.itemsize,
    )


@program()
def chained(x):
    return 1 < x.shape[0] <= 3, x.shape[0] != 2, not x.shape, x


@program()
def tensor_bool(x):
    if x.sum() > 1 and x.shape[0] > 2:
        x = x + 1
    while x.sum() < 50:
        x = x * 2
    return x


@program()
def items_(x):
    n = int(x.sum())
    m = float(x[1])
    return x * n + m


@program()
def tolist_(x):
    return x.tolist(), x + 1


@program()
def numpy_(x):
    n = x.numpy()
    return torch.from_numpy(n) + 1


@program("UNCAPTURED_CALL")
def nested_fn_break(x):
    def a(t):
        return b(t) + 1

    def b(t):
        t = t * 2
        print(end="")
        return t * 3

    return a(x) + a(x + 1)


@program("UNCAPTURED_CALL")
def gen_break(x):
    def g():
        yield x
        print(end="")
        yield x + 1

    return sum(g())


@program()
def closures_many(x):
    fs = [(lambda k: lambda t: t * k)(i) for i in range(3)]
    return [f(x) for f in fs]


@program("UNCAPTURED_CALL")
def mutate_closure_after_break(x):
    c = 0

    def inc():
        nonlocal c
        c += 1

    inc()
    print(end="")
    inc()
    return x + c, c


@program()
def slots_prop(x):
    class P:
        __slots__ = ("a",)

        def __init__(s, a):
            s.a = a

        @property
        def d(s):
            return s.a * 2

        @d.setter
        def d(s, v):
            s.a = v

    q = P(x)
    q.d = q.d + 1
    return q.a


@program()
def try_else(x):
    try:
        y = x + 1
    except Exception:
        y = x
    else:
        y = y * 2
    return y


@program()
def math_(x):
    return (
        x * math.sqrt(4) + math.pi,
        math.prod((2, 3)),
        round(2.567, 1),
        divmod(7, 2),
        abs(-3),
        pow(2, 3),
        sum([1, 2]),
    )


@program()
def retnone(x):
    x + 1


@program()
def return_same_input(x):
    return x


@program()
def ret_const(x):
    y = x + 1
    return 5


@program()
def kwdefaults(x, *, s=2.0, t=None):
    return x * s if t is None else x


@program()
def setops(x):
    s = {1, 2} | {3}
    s.add(9)
    return s, 3 in s, len(s), x + 1, frozenset([1])


@program()
def raise_in_callee(x):
    def bad(t):
        t = t + 1
        raise RuntimeError("zz")

    try:
        bad(x)
    except RuntimeError as e:
        return x + 2, e.args


@program()
def uncaught_callee(x):
    def bad(t):
        t = t + 1
        raise RuntimeError("zz")

    y = x * 2
    return bad(y)


@program("OP_ERROR")
def op_error_caught(x):
    try:
        return x @ torch.ones(7, 7)
    except RuntimeError:
        return x + 1


@program()
def div_zero(x):
    try:
        1 / 0
    except ZeroDivisionError as e:
        return x + 1, str(e)


@program()
def keyerr(x):
    try:
        {}["a"]
    except KeyError as e:
        return x + 1, str(e), repr(e)


@program()
def print_tensor(x):
    y = x + 1
    s = str(y)
    return y * 2, s


@program()
def eq_lists(x):
    return [1, 2] == [1, 2], (1,) < (2,), [x][0] is x, x in [1] if False else None, x


@program()
def starmap(x):
    return (
        list(itertools.starmap(lambda a, b: x * a + b, [(1, 2), (3, 4)])),
        list(itertools.product([1, 2], "a")),
        list(itertools.islice(itertools.count(), 3)),
    )


@program()
def deco_lru(x):
    return cached(3) * x


@functools.lru_cache
def cached(n):
    return n * 2


@program()
def no_grad_deco(x):
    return ng(x) + 1


@torch.no_grad()
def ng(x):
    return x * 2


@program()
def fnl(x):
    import torch.nn.functional as F

    return (
        F.softmax(x, dim=-1),
        F.dropout(x, 0.5, False),
        F.layer_norm(x, (3,)),
        F.one_hot(torch.tensor([1, 2]), 4),
        F.pad(x, (1, 1)),
    )


@program()
def ternary_tensor(x):
    return (x + 1) if x.max() > 1 else (x - 1)


@program("DATA_DEPENDENT_JUMP", "UNCAPTURED_CALL")
def many_breaks(x):
    for i in range(4):
        if i % 2 == 0:
            print(end="")
        x = x + i
        if x.sum() > 1000:
            break
    return x


@pytest.mark.parametrize(("fn", "breaks"), PROGRAMS)
def test_program(fn, breaks):
    function, captured = compiled(fn)
    for _ in range(2):
        eager_x, compiled_x = copy.deepcopy(X), copy.deepcopy(X)
        expected = outcome(fn, [eager_x])
        result = outcome(function, [compiled_x])
        assert same(expected, result), f"{expected!r} != {result!r}"
        assert same(eager_x, compiled_x)
    assert frozenset(captured.codes) == breaks
