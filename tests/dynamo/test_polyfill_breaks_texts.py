"""Breaks inside of the methods by which objects become texts and numbers, in functions that regular
expressions call, and in those of metaclasses.
"""

from __future__ import annotations

import operator
import re

import torch

from tests.dynamo.break_support import Held, Index, Number, broken, checks_of, registry

PROGRAMS, program = registry()


# -- texts and numbers ----------------------------------------------------------------------------
class Shown(Held):
    def __str__(self):
        broken(self.x, "str")
        return "shown" if self.n == 0 else self.n

    def __format__(self, spec):
        broken(self.x, "format", spec)
        return f"<{spec}>"


class Named(Held):
    def __str__(self):
        broken(self.x, "name")
        return "named" if self.n == 0 else self.n


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
def text_in_a_string(x):
    y = x * 2
    return f"a {Named(y)} b", y + 1


@program(2)
def text_in_a_string_by_repr(x):
    y = x * 2
    return f"a {Repr(y)} b", y + 1


@program(2)
def text_in_a_string_that_is_none(x):
    y = x * 2
    try:
        return f"a {Named(y, 1)} b", y + 1
    except TypeError as error:
        return str(error), y + 1


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


# -- regular expressions --------------------------------------------------------------------------
PATTERN = re.compile("a+")


@program(3, breaks=2)
def substituted(x):
    x = x * 2

    def upper(match):
        broken(x, match.start())
        return match.group().upper()

    return PATTERN.sub(upper, "banaa"), x + 1


@program(2, breaks=1)
def substituted_once_and_counted(x):
    def nothing(match):
        broken(x, match.group())

    return PATTERN.subn(nothing, "banaa", count=1), x + 1


@program(3, breaks=2)
def substituted_by_the_module(x):
    def doubled(match):
        return match[0] * len(str(broken(x, match[0]).shape))

    return re.sub("[ab]", doubled, "xaxbx", flags=re.IGNORECASE), x + 1


@program(2, breaks=1)
def substitution_that_raises(x):
    def refuses(match):
        broken(x, "refuses")
        raise KeyError(match.group())

    try:
        return re.subn("a", refuses, "banana"), x
    except KeyError as error:
        return error.args, x + 1


@program(1, breaks=0)
def substitutions_without_breaks(x):
    def nothing(match):
        return None

    def number(match):
        return 3

    try:
        PATTERN.sub(number, "banana")
    except TypeError as error:
        said = str(error)
    none = PATTERN.sub(nothing, "banana"), PATTERN.subn(nothing, "", 2), PATTERN.sub(nothing, "xy")
    few = PATTERN.sub(lambda match: "o", "banana", 2), PATTERN.sub(lambda match: "o", "banana", -1)
    empty = re.sub("x*", lambda match: f"<{match.start()}>", "axb")
    return said, none, few, empty, re.subn(b"a", lambda match: b"o", b"banana"), x + 1


# -- metaclasses ----------------------------------------------------------------------------------
class Meta(type):
    def __len__(cls):
        broken(cls.x, "len")
        return 3

    def __add__(cls, other):
        return broken(cls.x, "add") + other

    def __contains__(cls, item):
        broken(cls.x, "contains")
        return item == 1


class Measured(metaclass=Meta):
    x = torch.arange(3.0)


@program(2, breaks=1)
def length_of_a_class(x):
    x = x * 2
    return len(Measured), x + 1


@program(3, breaks=2)
def operators_of_a_class(x):
    x = x * 2
    return Measured + x, 1 in Measured


# -- calls that are handed on ---------------------------------------------------------------------
@program(2, breaks=1)
def operator_call(x):
    return operator.call(broken, x * 2, "called") + 1


test_program = checks_of(PROGRAMS)
