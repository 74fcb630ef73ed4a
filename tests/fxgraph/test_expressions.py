"""Integer expressions: what floor division, modulo, minimum, maximum and comparisons simplify is
what the algebra of sizes says, and has the values of Python's own operators.
"""

from __future__ import annotations

import operator
import random

import pytest
import sympy

from fxgraph.expressions import (
    Choose,
    FloorDiv,
    Max,
    Min,
    Mod,
    evaluate,
    expression,
    polynomial,
    relation,
)

a, b, c = (sympy.Symbol(name, integer=True) for name in ("s0", "s1", "s2"))
KINDS = {operator.floordiv: FloorDiv, operator.mod: Mod, min: Min, max: Max}
RELATIONS = ("eq", "ne", "lt", "le", "gt", "ge")


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (FloorDiv(64 * a + 5, 64), "s0"),
        (FloorDiv(a * b + b, b), "s0 + 1"),
        (FloorDiv((a + 1) * (b + 1), b + 1), "s0 + 1"),
        (FloorDiv(FloorDiv(a, 2), 3), "(s0//6)"),
        (FloorDiv(FloorDiv(a, b), 3), "(s0//(3*s1))"),
        (FloorDiv(6 * a, 4), "((3*s0)//2)"),
        (FloorDiv(2 * a, 7 * a), "0"),
        (FloorDiv(Mod(a, 4), 4), "0"),
        (FloorDiv(a, -2), "(s0//(-2))"),
        (FloorDiv(sympy.Integer(0), a), "0"),
        (Mod(64 * a + 5, 64), "5"),
        (Mod(a * b + 1, b), "(1 % s1)"),
        (Mod(Mod(a, 4), 8), "(s0 % 4)"),
        (Max(a + 1, a), "s0 + 1"),
        (Max(Mod(a, 4), -1), "(s0 % 4)"),
        (Min(a + 1, a), "s0"),
        (Min(b, a), "Min(s0, s1)"),
        (relation("lt", 2 * a, 2 * b + 3), "s0 <= s1 + 1"),
        (relation("eq", 2 * a, 2 * b + 3), "False"),
        (relation("le", -a * b, sympy.Integer(-6)), "s0*s1 >= 6"),
        (relation("gt", Max(a, sympy.Integer(2)), sympy.Integer(1)), "Max(2, s0) >= 2"),
    ],
    ids=str,
)
def test_what_follows_from_the_form(made, text):
    assert str(made) == text


def test_symbols_of_one_name_are_told_apart():
    other = sympy.Symbol("s0", integer=True, positive=True)
    assert other != a
    for kind in (FloorDiv, Mod, Max, Min):
        assert (kind(a, b) + 1).free_symbols == {a, b}
        assert expression(polynomial(kind(other, b) + 1)).free_symbols == {other, b}
        assert kind(kind(other, b) * 2, sympy.Integer(3)).free_symbols == {other, b}


def test_zero_is_no_divisor():
    """Nothing is said of a division that raises when it is reached."""
    made = FloorDiv(a, sympy.Integer(0))
    with pytest.raises(ZeroDivisionError):
        evaluate(made, {a: 3})


def test_what_the_algebra_does_not_know_stays_as_it_is():
    chosen = Choose(relation("le", a, b), a, b)
    assert FloorDiv(2 * chosen, 2) == chosen and polynomial(chosen) == polynomial(chosen)
    assert expression(polynomial(chosen * a + 1)) == chosen * a + 1


def random_value(rng, depth=4):
    """(expression, its value for VALUES as Python computes it)"""
    if depth == 0 or rng.random() < 0.2:
        symbol = rng.choice(list(VALUES))
        number = rng.randint(-6, 9)
        return rng.choice([(symbol, VALUES[symbol]), (sympy.Integer(number), number)])
    (one, x), (two, y) = random_value(rng, depth - 1), random_value(rng, depth - 1)
    function = rng.choice([operator.add, operator.sub, operator.mul, *KINDS])
    if function in (operator.floordiv, operator.mod) and y == 0:
        two, y = sympy.Integer(3), 3
    made = KINDS[function](one, two) if function in KINDS else function(one, two)
    return made, function(x, y)


VALUES = {a: 5, b: -3, c: 12}


@pytest.mark.parametrize("seed", range(4))
def test_random_expressions_are_what_python_computes(seed):
    rng = random.Random(seed)
    for _ in range(150):
        (one, x), (two, y) = random_value(rng), random_value(rng)
        assert evaluate(one, VALUES) == x
        assert evaluate(expression(polynomial(one)), VALUES) == x
        kind = rng.choice(RELATIONS)
        assert evaluate(relation(kind, one, two), VALUES) == getattr(operator, kind)(x, y)
