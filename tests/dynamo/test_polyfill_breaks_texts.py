"""Breaks inside of the methods by which objects become texts and numbers."""

from __future__ import annotations

import operator

import pytest

from tests.dynamo.polyfill_support import Held, Index, Number, broken, check, registry

PROGRAMS, program = registry()


# -- texts and numbers ----------------------------------------------------------------------------
class Shown(Held):
    def __str__(self):
        broken(self.x, "str")
        return "shown" if self.n == 0 else self.n

    def __format__(self, spec):
        broken(self.x, "format", spec)
        return f"<{spec}>"


class Repr(Held):
    def __repr__(self):
        broken(self.x, "repr")
        return "repr"


class Numeric(Held):
    def __int__(self):
        broken(self.x, "int")
        return 2 if self.n == 0 else 2.5

    def __float__(self):
        broken(self.x, "float")
        return 2.0 if self.n == 0 else "2.0"

    def __complex__(self):
        broken(self.x, "complex")
        return 2j

    def __round__(self, digits=None):
        return broken(self.x, "round", digits)

    def __divmod__(self, other):
        broken(self.x, "divmod")
        return NotImplemented if self.n else (1, other)

    def __pow__(self, other):
        return broken(self.x, "pow")

    def __hash__(self):
        broken(self.x, "hash")
        return -1


@program(2)
def text(x):
    return str(Shown(x)), x + 1


@program(2)
def text_that_is_none(x):
    try:
        return str(Shown(x, 1)), x + 1
    except TypeError as error:
        return str(error), x + 1


@program(2)
def text_that_is_none_leaves_the_frame(x):
    return str(Shown(x, 1)), x + 1


@program(2)
def text_by_repr(x):
    return str(Repr(x)), x + 1


@program(2)
def representation(x):
    return repr(Repr(x)), x + 1


@program(2)
def formatted(x):
    return format(Shown(x), ">4"), x + 1


@program(3, breaks=2)
def formatted_strings(x):
    return f"a{Shown(x)}b{Repr(x)!r:>6}", x + 1


@program(2)
def integer(x):
    return int(Numeric(x)), x + 1


@program(2)
def integer_that_is_none(x):
    return int(Numeric(x, 1)), x + 1


@program(2)
def floating(x):
    return float(Numeric(x)), x + 1


@program(2)
def floating_that_is_none(x):
    try:
        return float(Numeric(x, 1)), x + 1
    except TypeError as error:
        return str(error), x + 1


@program(2)
def floating_by_index(x):
    return float(Index(x, 3)), x + 1


@program(2)
def complex_number(x):
    return complex(Numeric(x)), x + 1


@program(2)
def index_of_an_object(x):
    return operator.index(Index(x, 3)), x + 1


@program(2)
def rounded(x):
    return round(Numeric(x)) + 1


@program(2)
def rounded_to_digits(x):
    return round(Numeric(x), 2) + 1


@program(2)
def quotient(x):
    return divmod(Numeric(x), 2), x + 1


@program(2)
def quotient_that_is_refused(x):
    return divmod(Numeric(x, 1), 2), x + 1


@program(2)
def power(x):
    return pow(Numeric(x), 2) + 1


@program(2)
def operator_as_a_function(x):
    return operator.add(Number(x), Number(x)).x + 1


@program(2)
def hash_of_an_object(x):
    return hash(Numeric(x)), x + 1


@program(2)
def percent(x):
    return "%5s|%s%%" % (Shown(x), 3), x + 1


@program(2)
def percent_of_one(x):
    return "%-8s" % Shown(x), x + 1


@program(2)
def percent_of_too_many(x):
    try:
        return "%s" % (Shown(x), 2), x + 1  # noqa: F507
    except TypeError as error:
        return str(error), x + 1


@program(3, breaks=2)
def format_method(x):
    return "{1} {0:>3} {a!r:>6}".format(Shown(x), 1, a=Repr(x)), x + 1


class NoText(Held):
    def __repr__(self):
        broken(self.x, "repr")
        return 1


@program(2)
def texts_that_are_none(x):
    try:
        return str(NoText(x)), x + 1
    except TypeError as error:
        return str(error), x + 1


@program(3, breaks=2)
def printed(x):
    print(Repr(x), Shown(x), sep="-")
    return x + 1


@pytest.mark.parametrize(("function", "graphs", "breaks", "operations"), PROGRAMS)
def test_program(function, graphs, breaks, operations):
    check(function, graphs, breaks, operations)
