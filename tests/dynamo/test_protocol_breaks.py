"""Breaks inside of special methods: the method, and whoever used the operator, go on."""

from __future__ import annotations

import functools

import torch

import dynamo
from tests.dynamo.break_support import LOG, checks_of, fail, note, registry

PROGRAMS, program = registry()


class Noted:
    """Whose special methods break in the middle."""

    def __init__(self, x):
        self.x = x

    def noted(self, name):
        y = self.x + 1
        note(name)
        return y * 2


def binary(name):
    def method(self, other):
        y = self.x + 1
        note(name, type(other).__name__)
        return y * 2 + (other if not isinstance(other, Noted) else other.x)

    method.__name__ = name
    return method


class Number(Noted):
    __add__ = binary("__add__")
    __rsub__ = binary("__rsub__")
    __lt__ = binary("__lt__")
    __ne__ = binary("__ne__")

    def __iadd__(self, other):
        self.x = self.x + other
        note("iadd")
        self.x = self.x * 2
        return self

    def __neg__(self):
        return self.noted("neg")

    def __abs__(self):
        return self.noted("abs")

    def __mul__(self, other):
        self.noted("refuses mul")
        return NotImplemented

    def __gt__(self, other):
        self.noted("refuses gt")
        return NotImplemented

    def __eq__(self, other):
        self.noted("refuses eq")
        return NotImplemented

    __hash__ = None

    def __truediv__(self, other):
        y = self.x + 1
        note("div")
        raise ZeroDivisionError(len(y))

    def __floordiv__(self, other):
        fail(ZeroDivisionError("at once"))


class Other(Noted):
    __rmul__ = binary("__rmul__")
    __lt__ = binary("__lt__")


class Sub(Number):
    """Inherits the reflected method: the left operand is asked first."""

    def __radd__(self, other):
        return self.noted("radd of Sub")


class SubSub(Sub):
    pass


# -- operators ------------------------------------------------------------------------------------
@program(2)
def add(x):
    return (Number(x) + 1) * 3


@program(2)
def reflected(x):
    return (1 - Number(x)) * 3


@program(2)
def in_place(x):
    n = Number(x)
    n += 1
    return n.x * 3


@program(2)
def subclass_goes_first(x):
    return (Number(x) + Sub(x)) * 3


@program(2)
def subclass_with_the_same_method_does_not(x):
    return (Sub(x) + SubSub(x)) * 3


@program(4, breaks=2)
def refused_then_reflected(x):
    return Number(x) * Other(x) + 1


@program(2)
def refused(x):
    try:
        return Number(x) * 1
    except TypeError as error:
        return str(error), x + 1


@program(2)
def negative(x):
    return -Number(x) + 1


@program(1)
def raises_behind_the_break(x):
    return Number(x) / 2 + 1


@program(0)
def raises_at_the_break(x):
    return Number(x) // 2 + 1


@program(1)
def raises_and_is_caught(x):
    try:
        return Number(x) // 2
    except ZeroDivisionError:
        return x + 1


@program(2)
def less(x):
    return (Number(x) < 2) * 3


@program(2)
def unequal(x):
    return (Number(x) != 2) * 3


@program(4, breaks=2)
def refused_comparison(x):
    return (Number(x) > Other(x)) * 3


@program(2)
def equality_of_nobody(x):
    return Number(x) == 2, x + 1


@program(2)
def nested_in_an_expression(x):
    return (x * 2) + (Number(x) + 1) * (x - 1)


@program(3, breaks=2)
def two_operators(x):
    return (Number(x) + 1) + (Number(x) + 2)


def through_a_callee(x):
    return (Number(x) + 1) * 3


@program(2)
def in_a_callee(x):
    return through_a_callee(x * 2) - 1


# -- containers -----------------------------------------------------------------------------------
class Container(Noted):
    answer = True

    def __contains__(self, item):
        self.noted("contains")
        return [item] if self.answer else []

    def __len__(self):
        self.noted("len")
        return 3

    def __bool__(self):
        self.noted("bool")
        return self.answer

    def __getitem__(self, key):
        return self.noted(f"get {key}")

    def __setitem__(self, key, value):
        self.x = self.noted(f"set {key}") + value

    def __delitem__(self, key):
        self.x = self.noted(f"del {key}")

    def __iter__(self):
        y = self.noted("iter")
        return iter([y, y + 1])

    def __next__(self):
        return self.noted("next")


class Falsy(Container):
    answer = False


@program(2)
def contains(x):
    return (1 in Container(x)), (x + 1)


@program(2)
def contains_not(x):
    return (1 not in Falsy(x)), (x + 1)


@program(2)
def contains_as_a_condition(x):
    if 1 in Container(x):
        return x * 2
    return x * 3


@program(2)
def length(x):
    return len(Container(x)) * x


@program(2)
def condition(x):
    if Container(x):
        return x * 2
    return x * 3


@program(2)
def condition_not(x):
    if not Falsy(x):
        return x * 2
    return x * 3


@program(2)
def truth(x):
    return bool(Container(x)), not Falsy, x * 2


@program(2)
def negated(x):
    return (not Container(x)), x * 2


@program(2)
def conditional_expression(x):
    return (x * 2 if Container(x) else x * 3) + 1


@program(2)
def while_condition(x):
    while Falsy(x):
        x = x + 1
    return x * 2


@program(2)
def get_slice(x):
    return Container(x)[1:2] * 3


@program(2)
def set_item(x):
    c = Container(x)
    c[1] = 5
    return c.x * 3


@program(2)
def set_slice(x):
    c = Container(x)
    c[1:2] = 5
    return c.x * 3


@program(2)
def delete_item(x):
    c = Container(x)
    del c[1]
    return c.x * 3


@program(2)
def loop(x):
    total = x
    for item in Container(x):
        total = total + item
    return total * 3


@program(2)
def iterator(x):
    first, second = iter(Container(x))
    return first * second


@program(2)
def next_item(x):
    return next(Container(x)) * 3


@program(2)
def absolute(x):
    return abs(Number(x)) * 3


# -- attributes -----------------------------------------------------------------------------------
class Attributes(Noted):
    def __getattr__(self, name):
        y = self.__dict__["x"] + 1
        note("getattr", name)
        return y * 2

    @property
    def prop(self):
        return None

    @prop.setter
    def prop(self, value):
        self.x = self.noted("setter") + value


class Stores:
    def __init__(self, x):
        object.__setattr__(self, "x", x)

    def __setattr__(self, name, value):
        y = self.x + value
        note("setattr", name)
        object.__setattr__(self, name, y * 2)

    def __delattr__(self, name):
        y = self.x + 1
        note("delattr", name)
        object.__setattr__(self, "deleted", y * 2)


@program(2)
def missing_attribute(x):
    return Attributes(x).other * 3


@program(2)
def missing_method(x):
    return Attributes(x).other.sum() * 3


@program(2)
def setter(x):
    a = Attributes(x)
    a.prop = 4
    return a.x * 3


@program(2)
def store(x):
    s = Stores(x)
    s.y = x * 2
    return s.y * 3


@program(2)
def delete(x):
    s = Stores(x)
    del s.y
    return s.deleted * 3


class Reads:
    """Whose attributes are read by its own method."""

    def __init__(self, x):
        self.x = x

    def __getattribute__(self, name):
        x = object.__getattribute__(self, "x")
        note("read", name)
        return x * 2 if name == "y" else object.__getattribute__(self, name)

    def scaled(self, factor):
        return factor * 3


class Raises(Reads):
    def __getattribute__(self, name):
        note("raises", name)
        raise AttributeError(name)


class ReadsOrFetches(Reads):
    def __getattr__(self, name):
        return len(name)


@program(2)
def read_by_the_class(x):
    y = x + 1
    return Reads(y).y * 3


@program(2)
def method_read_by_the_class(x):
    y = x + 1
    return Reads(y).scaled(y) * 3


@program(2)
def getattr_of_a_class_that_reads(x):
    y = x + 1
    return getattr(Reads(y), "y") * 3  # noqa: B009


@program(2)
def read_then_fetched(x):
    y = x + 1
    return ReadsOrFetches(y).missing * y


@program(1)
def read_that_misses(x):
    y = x + 1
    try:
        return Reads(y).missing
    except AttributeError as error:
        return y * 2, str(error), error.name


@program(2, breaks=3)
def read_that_raises(x):
    """An error that the method makes itself is given the name behind it: the read is Python's."""
    y = x + 1
    try:
        return Raises(y).missing
    except AttributeError as error:
        return y * 2, str(error), error.name


@program(2, breaks=2)
def read_with_a_default(x):
    y = x + 1
    return y, getattr(Reads(y), "missing", 5), hasattr(ReadsOrFetches(y), "missing"), y * 2


class Kept(Noted):
    @functools.cached_property
    def kept(self):
        return self.noted("cached")

    @property
    def function(self):
        y = self.noted("property")
        return lambda z, factor=1: y * z * factor


class Getting:
    def __get__(self, owner, kind=None):
        return owner.noted("get")


class Described(Noted):
    described = Getting()


class Fetched(Noted):
    def __getattr__(self, name):
        y = self.noted(name)
        if name == "nothing":
            raise AttributeError(name)
        return lambda z: y * z


@program(2)
def cached(x):
    k = Kept(x)
    return k.kept * k.kept + list(vars(k)).index("kept")


@program(2)
def python_descriptor(x):
    return Described(x).described * 3


@program(2)
def property_that_is_called(x):
    return Kept(x).function(x) * 3


@program(3, breaks=2)
def property_that_is_called_again(x):
    k = Kept(x)
    return k.function(x, factor=2) * k.function(*[x])


@program(2)
def fetched_method(x):
    return Fetched(x).method(x) * 3


@program(2)
def fetched_method_that_is_missing(x):
    try:
        return Fetched(x).nothing(x) * 3
    except AttributeError as error:
        return x * 2, str(error)


# -- exceptions that Python catches itself --------------------------------------------------------
class Counting:
    """An iterator that breaks in each turn."""

    def __init__(self, x, n, error=StopIteration):
        self.x, self.n, self.error = x, n, error

    def __iter__(self):
        return self

    def __next__(self):
        y = self.x + 1
        note("next", self.n)
        if self.n == 0:
            raise self.error
        self.n -= 1
        return y * self.n


@dynamo.disable
def take(iterator):
    LOG.append("take")
    return next(iterator)


class Taking(Counting):
    """What ends the loop is raised where the graph breaks."""

    def __next__(self):
        y = self.x + 1
        return y * take(self.n)


@program(4, breaks=3)
def loop_over_an_iterator(x):
    total = x
    for item in Counting(x, 3):
        total = total + item
    return total * 2


@program(4, breaks=3)
def loop_that_ends_at_the_break(x):
    total = x
    for item in Taking(x, iter([3, 4])):
        total = total + item
    return total * 2


@program(3, breaks=3)
def loop_that_raises(x):
    total = x
    for item in Counting(x, 2, KeyError):
        total = total + item
    return total * 2


@program(3, breaks=3)
def loop_that_raises_and_is_caught(x):
    total = x
    try:
        for item in Counting(x, 2, KeyError):
            total = total + item
    except KeyError:
        return total
    return total * 2


@program(3, breaks=3)
def generator_whose_loop_ends_at_the_break(x):
    return list(item * 2 for item in Taking(x, iter([3, 4])))


@program(4, breaks=3)
def loop_in_a_callee(x):
    return loop_that_ends_at_the_break(x) + 1


class Module(torch.nn.Module):
    """nn.Module has a __getattr__: properties of modules are followed by it."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))

    @property
    def scaled(self):
        y = self.weight * 2
        note("scaled")
        return y + 1

    @property
    def missing(self):
        note("missing")
        return self.nothing

    def forward(self, x):
        return x * self.scaled * 2


class Fallback(Module):
    def __getattr__(self, name):
        return 5 if name == "missing" else super().__getattr__(name)


@dynamo.disable
def fails():
    raise AttributeError("at the break")


class Failing:
    def __init__(self, x):
        self.x = x

    @property
    def prop(self):
        y = self.x + 1
        fails()
        return y

    def __getattr__(self, name):
        y = self.__dict__["x"] * 3
        note("fallback", name)
        return y + 1


MODULE, FALLBACK = Module(), Fallback()


@program(2)
def property_of_a_module(x):
    return MODULE(x) + 1


@program(0)
def property_that_misses_an_attribute(x):
    return MODULE.missing + x


@program(1)
def property_with_a_fallback(x):
    return FALLBACK.missing + x


@program(4, breaks=2)
def property_that_fails_at_the_break(x):
    """What is called instead is a frame of its own."""
    return Failing(x).prop * 2


class Ends:
    def __del__(self):
        LOG.append("ends")


class Asked:
    def __getattr__(self, name):
        note("asked", name)
        return 2


@program(1, 2)
def default_ends_with_the_call(x):
    y = x + 1
    found = getattr(Asked(), "missing", Ends())
    note("behind")
    return y * found


class Scaled(type):
    @property
    def scale(cls):
        note("scale", cls.__name__)
        return 2.0


class Factor:
    def __get__(self, instance, owner):
        note("described", owner.__name__)
        return 3.0


class Plain:
    factor = Factor()

    def __init__(self, x):
        self.x = x

    @property
    def part(self):
        y = self.x + 1
        note("part")
        return y * 2


class Derived(Plain, metaclass=Scaled):
    @property
    def part(self):
        return super().part * 3

    def scaled(self):
        y = self.x + 1
        return y * super().factor


@program(2)
def property_of_super(x):
    return Derived(x).part + 1


@program(2)
def descriptor_of_super(x):
    return Derived(x).scaled() + 1


@program(2)
def property_of_a_metaclass(x):
    y = x + 1
    return y * Derived.scale


@program(2)
def descriptor_of_a_class(x):
    y = x + 1
    return y * Derived.factor


test_program = checks_of(PROGRAMS)
