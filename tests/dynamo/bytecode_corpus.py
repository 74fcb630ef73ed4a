# ruff: noqa: F821
"""Functions that use every part of the instruction set; each takes a list to which it logs.

`CASES` has them with arguments: makers, since a run may change them.
"""

from __future__ import annotations

import math
from collections.abc import Callable


class Manager:
    def __init__(self, log, swallow=()):
        self.log, self.swallow = log, swallow

    def __enter__(self):
        self.log.append("enter")
        return self

    def __exit__(self, kind, value, trace):
        self.log.append(("exit", kind and kind.__name__))
        return bool(kind) and issubclass(kind, tuple(self.swallow))


class Point:
    __match_args__ = ("x", "y")

    def __init__(self, x, y):
        self.x, self.y = x, y

    def norm(self, p=2):
        return (abs(self.x) ** p + abs(self.y) ** p) ** (1 / p)

    def with_super(self, log):
        log.append(super().__init__)
        return super().__repr__()[:4], [super().__eq__(self)]

    def super_in_cell(self, log):
        def inner():
            return self.x

        return super().__hash__() is not None, inner()


def arithmetic(log, x, y):
    a = x + y * 2 - -x // 3
    a += x % 7
    a = a << 2 | 5 & ~y ^ x
    log.append(a)
    return a if a > 3 and not x == y or y >= 2 else (a <= x) != (x is not y), 1 < x < 9


def loops(log, n):
    total = 0
    for i in range(n):
        for j in (i, i + 1):
            if j == 2:
                continue
            if j > 4:
                break
            total += j
        else:
            log.append(("else", i))
    while total > 10:
        total -= 3
        if total == 11:
            break
    else:
        total = -total
    return total


def containers(log, xs):
    a, (b, *c), d = xs
    lst = [a, *c, *xs[1]]
    s = {a, d, *c}
    dct = {"a": a, **{"b": b}, "c": [*c]}
    dct["a"], lst[0] = lst[0], dct["a"]
    del dct["b"]
    part = lst[1:3]
    lst[:2] = "xy"
    x: int = len(part)
    return lst, sorted(map(str, s)), dct, part, lst[::-1], 3 in lst, 3 not in s, (*c, d), x


def calls(log, f):
    args, kwargs = (1, 2), {"k": 3}
    table = {"f": [f]}
    one = f(1, k=2)
    two = f(*args, 4, **kwargs, j=5)
    three = (table or f)["f"][0](*args)
    four = (f if one else None)(len(args) and 7, k=min(*args, key=lambda v: -v))
    five = table["f"][-1](f(f(1)), *[f(i) for i in args])
    six = math.sqrt(abs(-4.0)).is_integer()
    return one, two, three, four, five, six, f(f(2), k=(f or one)(3)), Point(3, 4).norm(p=2)


def strings(log, x, width):
    return f"{x}", f"{x!r:>{width}}|{x:{width}}|{width:03d}", f"{x!s}b{x!a}{width}"


def comprehensions(log, xs):
    k = 2
    squares = [x * k for x in xs if x != 1]
    nested = [[log.append((i, j)) or i * j for j in xs if j] for i in xs]
    d = {x: [y for y in range(x)] for x in xs}
    s = {x % 2 for x in xs}
    makers = [lambda: x for x in xs]
    x = "outer"
    return squares, nested, d, s, [m() for m in makers], [*(v for v in xs)], x, sum(i for i in xs)


def closures(log, x, y=3):
    z = x

    def add(v, *, w=1):
        nonlocal z
        z += v
        return z + x + w + y

    log.append(add(1))
    x = x * 2
    result = add(2, w=5), z
    del y
    return result, (lambda a, b=z: a + b)(1)


def deletes(log, x):
    a = x
    del a
    try:
        return a
    except UnboundLocalError as e:
        log.append("unbound")
    try:
        e
    except UnboundLocalError:
        log.append("e is gone")
    b = 1 if x else 2
    return b


def tries(log, xs):
    out = []
    for x in xs:
        try:
            try:
                log.append(("try", x))
                out.append(10 // x)
                if x == 5:
                    continue
                if x == 7:
                    break
                out.append({}[x] if x == 3 else x)
            except ZeroDivisionError as e:
                log.append(type(e).__name__)
                out.append("zero")
                try:
                    raise ValueError("inner")
                except ValueError as inner:
                    log.append((str(inner), inner.__context__ is e))
            except (TypeError, KeyError):
                log.append("type or key")
                if x == 3:
                    raise
            else:
                out.append("fine")
            finally:
                log.append("finally")
                out.append("f")
        except KeyError as e:
            log.append(("outer", e.args))
    return out


def uncaught(log, x):
    try:
        log.append(1)
        assert x > 3, f"{x} is small"
        raise KeyError(x) from ValueError("cause")
    finally:
        log.append("bye")


def returns_in_finally(log, x):
    try:
        try:
            return log.append("a") or x.missing
        finally:
            log.append("b")
    except AttributeError:
        return "none"


def withs(log, xs):
    for x in xs:
        with Manager(log, [ValueError]) as m, Manager(log):
            log.append(x)
            if x == 1:
                raise ValueError(x)
            if x == 2:
                continue
            if x == 3:
                return m.swallow
    return None


def with_uncaught(log):
    with Manager(log, [ValueError]):
        log.append(1)
        raise KeyError("k")


def handled_state(log):
    import sys

    try:
        raise ValueError(1)
    except ValueError:
        log.append(type(sys.exc_info()[1]).__name__)
        for i in range(2):
            try:
                raise KeyError(i)
            except KeyError:
                log.append(repr(sys.exc_info()[1]))
            log.append(repr(sys.exc_info()[1]))
        try:
            raise
        except ValueError as e:
            log.append(repr(e))
    return sys.exc_info()


def matches(log, xs):
    out = []
    for x in xs:
        match x:
            case 0 | 1:
                out.append("small")
            case [a, *rest] if a:
                out.append((a, rest))
            case {"k": v, **others}:
                out.append((v, others))
            case Point(a, y=b):
                out.append((a, b))
            case None:
                out.append("none")
            case _:
                out.append("other")
    return out


def nones(log, a=None, b=None):
    a = a or []
    b = {} if b is None else b
    while b is not None and a is not None:
        b = None
    return a, b, a and b, (a or b) is None


def conditional_callable(log, f, g):
    return (f if log else g)((f or g)(1) if f else 2, k=3 if g else 4)


def makes_class(log, base):
    class Local(base):
        """doc"""

        value = 3

        def get(self):
            return __class__, self.value

    return Local.__name__, Local().get()[1], Local.__doc__


def imports(log):
    import os.path
    from math import pi
    from math import sqrt as root

    return os.path.join("a", "b"), root(4), round(pi, 2)


def walrus(log, xs):
    return [y for x in xs if (y := x * 2) > 2], (n := len(xs)) + n


def _f(*args, **kwargs):
    return sum(args) + sum(kwargs.values())


CASES: list[tuple[Callable, Callable[[], tuple]]] = [
    (arithmetic, lambda: (5, 2)),
    (arithmetic, lambda: (1, 1)),
    (loops, lambda: (6,)),
    (loops, lambda: (2,)),
    (containers, lambda: ([1, (2, 3, 4), 5],)),
    (calls, lambda: (_f,)),
    (strings, lambda: ("tëxt", 9)),
    (comprehensions, lambda: ([1, 2, 3],)),
    (closures, lambda: (4,)),
    (deletes, lambda: (0,)),
    (tries, lambda: ([1, 0, 3, 5, None, 7, 9],)),
    (tries, lambda: (["x"],)),
    (uncaught, lambda: (5,)),
    (uncaught, lambda: (2,)),
    (returns_in_finally, lambda: (1,)),
    (withs, lambda: ([0, 1, 2, 3, 4],)),
    (withs, lambda: ([],)),
    (with_uncaught, lambda: ()),
    (handled_state, lambda: ()),
    (matches, lambda: ([0, [1, 2], [0], {"k": 1, "z": 2}, Point(1, 2), None, "s"],)),
    (nones, lambda: ()),
    (nones, lambda: ([1], {})),
    (conditional_callable, lambda: (_f, _f)),
    (makes_class, lambda: (object,)),
    (imports, lambda: ()),
    (walrus, lambda: ([1, 2, 3],)),
    (Point.with_super, lambda: ()),
    (Point.super_in_cell, lambda: ()),
]
