"""Numbers at the ends of what floats and 64 bits hold, from outside and from data."""

from __future__ import annotations

import math

import pytest
import torch

import dynamo

BIG = 2**53
PAIRS = [(3, 1.5), (7, 7.0), (BIG + 1, float(BIG)), (BIG, float(BIG)), (-BIG - 1, -float(BIG))]
MIXED = {
    "equal": lambda n, m: (n == m, m != n, n in [m], n in (m,), {n: 1}.get(m)),
    "order": lambda n, m: (n < m, m > n, m >= n, n <= m),
    "extremes": lambda n, m: (min(n, m), max(n, m), min(m, n), max(m, n)),
    "sorted": lambda n, m: (sorted([n, m]), sorted([m, n])),
    "branch": lambda n, m: 1 if n == m else 2,
    "rounded": lambda n, m: (math.floor(n / 1), math.ceil(n / 1), int(n / 1), n / 3, n // m),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", MIXED)
def test_ints_beside_floats_from_outside(name, dynamic):
    def program(x, n, m):
        return x + 1, MIXED[name](n, m)

    compiled = dynamo.compile(program, backend="eager", dynamic=dynamic)
    for n, m in PAIRS:
        x = torch.ones(2)
        assert repr(compiled(x, n, m)) == repr(program(x, n, m)), (n, m)


@pytest.mark.parametrize("name", ["equal", "order", "extremes", "branch", "rounded"])
def test_ints_beside_floats_from_data(name):
    def program(n, m):
        return n + 1, MIXED[name](n.item(), m.item())

    with dynamo.config.patch(capture_scalar_outputs=True):
        compiled = dynamo.compile(program, backend="eager")
        for n, m in PAIRS:
            args = torch.tensor(n), torch.tensor(m, dtype=torch.float64)
            assert repr(compiled(*args)) == repr(program(*args)), (n, m)


# What may raise, of floats from outside.
RAISING = """
a**b a**2 2.0**a a**-1.5 int(a) int(a*b) a.__int__() math.floor(a*b) math.ceil(a/b) round(a*a)
math.exp(a) math.sqrt(b-a) math.log(a-b) a/b a//b a%b divmod(a,b) 1/(a-b) math.sin(a*b)
math.cos(a*1e300) math.pow(a,b) int(a)**2 round(a*b,3)
""".split()
FLOATS = [
    *((2.0, 3.0), (2.5, 2.0), (3.5, 1.5), (1e200, 2.0), (1.7e308, 10.0), (math.inf, 2.0)),
    *((math.nan, 1.0), (1e30, 710.0), (3.0, 0.0), (5.0, 4.0)),
]


@pytest.mark.parametrize("text", RAISING)
def test_exceptions_are_raised_where_the_program_raises_them(text):
    lines = ["def program(x, a, b):", " steps = []", " try:", "  steps.append(0)"]
    lines += [f"  steps.append({text})", " except (ArithmeticError, ValueError) as error:"]
    lines += ["  steps.append(repr(error))", " return x + 1, steps"]
    names = {"math": math}
    exec("\n".join(lines), names)
    compiled = dynamo.compile(names["program"], backend="eager")
    for a, b in FLOATS:
        x = torch.ones(2)
        assert repr(compiled(x, a, b)) == repr(names["program"](x, a, b)), (a, b)


class Count(int):
    """An int that is told from others."""


class Share(float):
    """A float that is told from others."""


@pytest.mark.parametrize("known", [Count(3), Share(4.5)], ids=["int", "float"])
@pytest.mark.parametrize("form", ["outside", "data"])
def test_extremes_keep_objects_of_subclasses(form, known):
    def program(x, n):
        n = n if form == "outside" else n.item()
        found = [min(n, known), max(known, n), min([n, known]), sorted([n, known])[0], n + known]
        return x + 1, [one is known for one in found], list(map(type, found))

    with dynamo.config.patch(capture_scalar_outputs=True):
        compiled = dynamo.compile(program, backend="eager")
        for n in (1, 2, 5, 3, 9):
            x = torch.ones(2)
            number = n if form == "outside" else torch.tensor(n)
            assert repr(compiled(x, number)) == repr(program(x, number)), n
