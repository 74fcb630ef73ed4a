"""Sizes: arithmetic in normal form, what is known of them, and index expressions over them."""

from __future__ import annotations

import random

import pytest

from fxgraph.sizes import (
    Size,
    Symbol,
    Undecided,
    bounds,
    ceil_div,
    common_factor,
    evaluate,
    exact,
    known_le,
    largest,
    nonzero,
    parse,
    smallest,
    solved_for,
)
from inductor.index import Index, Var

A, B, C = (Symbol(name) for name in ("s0", "s1", "s2"))
a, b, c = (Size.of(s) for s in (A, B, C))
TABLE = {s.name: s for s in (A, B, C)}


def test_normal_form():
    assert (a + b) * 2 == 2 * b + a * 2 and (a + b) * (a - b) == a * a - b * b
    assert a - a == 0 and type(a - a + 3) is int
    assert (64 * a + 5) // 64 == a and (64 * a + 5) % 64 == 5
    assert (a // 2) // 3 == a // 6 and (6 * a) // 4 == (3 * a) // 2
    assert exact((a + b) * (a + 3), a + b) == a + 3 and exact(a * b + 1, a) is None
    assert ceil_div(a * 16, 16) == a and common_factor([6 * a * b, 9 * a]) == 3 * a
    assert largest(a, 1) == a and smallest(a + 1, a) == a and largest(a, b) == largest(b, a)
    assert solved_for(3 * a + 1) == (A, 3, 1) and solved_for(a * b) is None


def test_what_is_known():
    assert a >= 2 and a - 1 < a and a * b - a >= 2 and nonzero(a) and not nonzero(a - 2)
    assert known_le(768 * a, 3072 * a) and not known_le(a, b) and bounds(a // 2) == (1, None)
    for undecided in (lambda: a < b, lambda: a < 5, lambda: bool(a - 2), lambda: range(a)):
        with pytest.raises(Undecided):
            undecided()
    small = Size.of(Symbol("k", 4, 8))
    assert small < 9 and bounds(small * 2 - 1) == (7, 15) and small // 9 == 0


def random_size(rng, depth=4):
    if depth == 0 or rng.random() < 0.2:
        return rng.choice([a, b, c, rng.randint(-4, 40)])
    x, y = random_size(rng, depth - 1), random_size(rng, depth - 1)
    match rng.randrange(7):
        case 0 | 1:
            return x + y
        case 2:
            return x - y
        case 3:
            return x * y
        case 4:
            return x // rng.choice([2, 3, 8, a, a * b + 1])
        case 5:
            return x % rng.choice([2, 7, b, 4 * c])
    return rng.choice([largest, smallest])(x, y)


def test_random_sizes_are_what_python_computes():
    """Parsed from its text, every size has the value of the expression it was made of."""
    rng = random.Random(0)
    for _ in range(400):
        size = random_size(rng)
        again = parse(str(size), TABLE)
        assert again == size
        low, high = bounds(size)
        for _ in range(6):
            values = {s: rng.randint(2, 60) for s in (A, B, C)}
            found = evaluate(size, values.__getitem__)
            assert found == eval(str(size), {s.name: n for s, n in values.items()})
            assert (low is None or low <= found) and (high is None or found <= high)


def value_of(index, variables, symbols):
    """An index expression for given loop variables and symbols."""
    total = evaluate(index.const, symbols.__getitem__)
    for atom, coefficient in index.terms.items():
        factor = evaluate(coefficient, symbols.__getitem__)
        if isinstance(atom, Var):
            total += factor * variables[atom]
            continue
        inner = value_of(atom.dividend, variables, symbols)
        divisor = evaluate(atom.divisor, symbols.__getitem__)
        total += factor * (inner // divisor if atom.sign == "//" else inner % divisor)
    return total


def test_index_expressions_over_sizes():
    i, j = Var("i", a), Var("j", b)
    flat = Index({i: b, j: 1})
    assert flat // b == Index({i: 1}) and flat % b == Index({j: 1})
    assert (flat // b) * b + flat % b == flat
    rng = random.Random(1)
    for _ in range(300):
        made, sizes = Index({i: rng.choice([1, 4, b, 2 * b]), j: rng.choice([1, 2, a])}), []
        for _ in range(3):
            sizes.append((rng.choice("/%+*"), rng.choice([2, 3, 4, a, b, a * b, 2 * b])))
        result = made
        for op, n in sizes:
            result = {"/": lambda x, n: x // n, "%": lambda x, n: x % n,
                      "+": lambda x, n: x + n, "*": lambda x, n: x * n}[op](result, n)  # fmt: skip
        for _ in range(5):
            symbols = {A: rng.randint(2, 9), B: rng.randint(2, 9)}
            at = {i: rng.randrange(symbols[A]), j: rng.randrange(symbols[B])}
            want = value_of(made, at, symbols)
            for op, size in sizes:
                n = evaluate(size, symbols.__getitem__)
                want = {"/": want // n, "%": want % n, "+": want + n, "*": want * n}[op]
            assert value_of(result, at, symbols) == want, (made, sizes)
