"""Breaks inside of what C functions call: keys of sorted, iterators that are unpacked,
properties read by getattr(), ... (see break_support.check).
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import operator

import pytest

import dynamo
from dynamo.interp.opcodes import data as opcodes_of_data
from dynamo.values.builtins import polyfill_calls
from tests.dynamo.break_support import (
    Held,
    Index,
    Number,
    X,
    broken,
    checks_of,
    note,
    registry,
)

PROGRAMS, program = registry()


# -- sorting and choosing -------------------------------------------------------------------------
def negated(n):
    broken(X * n, n)
    return -n


def refuses_two(n):
    broken(X, n)
    if n == 2:
        raise KeyError(n)
    return n


@program(4, breaks=3)
def key_of_sorted(x):
    x = x * 2
    return sorted([3, 1, 2], key=negated), x + 1


@program(4, breaks=3)
def key_of_sort(x):
    x = x * 2
    items = [(3, 0), (1, 1), (2, 2), (1, 3)]
    items.sort(key=lambda pair: negated(pair[0]), reverse=True)
    return items, x + 1


@program(3, breaks=2)
def key_that_raises(x):
    x = x * 2
    return sorted([3, 2, 1], key=refuses_two), x + 1


@program(3, breaks=2)
def key_that_raises_in_a_sort(x):
    items = [3, 2, 1]
    try:
        items.sort(key=refuses_two)
    except KeyError as error:
        return items, error.args, x + 1


@program(3, breaks=2)
def list_that_is_empty_while_it_is_sorted(x):
    items = [2, 1]

    def key(n):
        broken(x, len(items))
        return n

    items.sort(key=key)
    return items, x + 1


@program(3, breaks=2)
def list_that_changes_while_it_is_sorted(x):
    items = [2, 1]

    def key(n):
        broken(x, n)
        items.append(n)
        return n

    try:
        items.sort(key=key)
    except ValueError as error:
        return items, str(error), x + 1


@program(4, breaks=3)
def key_of_min(x):
    x = x * 2
    return min([3, 1, 2], key=negated), x + 1


@program(3, breaks=3)
def key_of_max(x):
    x = x * 2
    return max(3, 1, 2, key=negated), x


class Ordered(Held):
    def __lt__(self, other):
        broken(self.x, "lt", self.n, other.n)
        return self.n < other.n


@program(3, breaks=2)
def comparison_in_min(x):
    return min(Ordered(x, 3), Ordered(x, 1), Ordered(x, 2)).n, x + 1


# -- folding --------------------------------------------------------------------------------------
def add(left, right):
    total = left + right
    note("add")
    return total * 2


@program(4, breaks=2)
def reduced(x):
    return functools.reduce(add, [x * 2, x + 1, x + 3]) + 2


@program(3)
def reduced_from(x):
    return functools.reduce(add, [x * 2], x) + 2


@program(5, breaks=2)
def sum_of_objects(x):
    return sum([Number(x), Number(x * 2)], Number(x * 3)).x + 1


class Truth(Held):
    def __bool__(self):
        broken(self.x, "bool", self.n)
        return self.n > 1


@program(3, breaks=2)
def any_of(x):
    return any([Truth(x, 1), Truth(x, 2), Truth(x, 3)]), x + 1


@program(4, breaks=3)
def all_of(x):
    return all([Truth(x, 3), Truth(x, 2), Truth(x, 1), Truth(x, 2)]), x + 1


# -- items ----------------------------------------------------------------------------------------
class Counting(Held):
    def __iter__(self):
        return self

    def __next__(self):
        y = self.x + 1
        note("next", self.n)
        if self.n == 0:
            raise StopIteration
        self.n -= 1
        return y * 2


class Opened(Held):
    def __iter__(self):
        return iter([broken(self.x, "iter"), self.x][: self.n])


def pair(left, right):
    return left + right


@program(2)
def unpacked(x):
    left, right = Opened(x, 2)
    return left + right


@program(2)
def unpacked_too_few(x):
    left, right = Opened(x, 1)
    return left + right


@program(3, breaks=2)
def unpacked_too_many(x):
    try:
        (only,) = Counting(x, 5)
    except ValueError as error:
        return str(error), x + 1
    return only


@program(4, breaks=3)
def unpacked_with_a_star(x):
    first, *rest = Counting(x, 2)
    return first + rest[0]


@program(2)
def starred_argument(x):
    return pair(*Opened(x, 2)) + 1


@program(2)
def starred_arguments(x):
    return pair(x, *Opened(x, 1)) + 1


@program(2)
def starred_item(x):
    return [x, *Opened(x, 2)][1] + 1


@program(4, breaks=3)
def list_of_an_iterator(x):
    return list(Counting(x, 2))[1] + 1


@program(2)
def tuple_of_an_iterable(x):
    return tuple(Opened(x, 2))[0] + 1


@program(2)
def extended(x):
    items = [x]
    items.extend(Opened(x, 2))
    return items[1] + 1


@program(2)
def next_of_an_iterator(x):
    return next(Counting(x, 2), None) + 1


@program(2)
def next_of_an_iterator_at_its_end(x):
    return next(Counting(x, 0), 5), x + 1


@program(2)
def found_by_iteration(x):
    return 1 in Numbers(x), x + 1


class Numbers(Held):
    def __iter__(self):
        broken(self.x, "iter")
        return iter([1, 2])


class Equal(Held):
    def __eq__(self, other):
        broken(self.x, "eq", self.n, other.n)
        return self.n == other.n

    __hash__ = None


@program(3, breaks=2)
def found_by_equality(x):
    return Equal(x, 2) in [Equal(x, 1), Equal(x, 2), Equal(x, 3)], x + 1


@program(2)
def index_by_equality(x):
    return [Equal(x, 1)].index(Equal(x, 1)), x + 1


@program(1)
def index_of_what_no_tuple_holds(x):
    try:
        return (Equal(x, 1),).index(Equal(x, 2)), x + 1
    except ValueError as error:
        return str(error)


@program(4, breaks=3)
def membership_that_is_denied(x):
    absent = Equal(x, 4) not in [Equal(x, 1), Equal(x, 2)]
    return absent, Equal(x, 1) not in (Equal(x, 1),), x + 1


@program(2)
def equal_lists(x):
    return [1, Equal(x, 1)] == [1, Equal(x, 1)], x + 1


@program(2)
def unequal_tuples(x):
    return (Equal(x, 1), 3) != (Equal(x, 2), 3), x + 1


@dataclasses.dataclass
class Record:
    held: object


@program(2)
def equal_records(x):
    return Record(Equal(x, 1)) == Record(Equal(x, 1)), x + 1


@program(2)
def item_at_an_object(x):
    return [1, 2, 3][Index(x, 2)], x + 1


@program(2)
def item_at_an_object_behind_the_end(x):
    try:
        return [1, 2, 3][Index(x, 3)], x + 1
    except IndexError as error:
        return str(error), x + 1


@program(2)
def range_to_an_object(x):
    return list(range(Index(x, 2))), x + 1


class Missing(dict):
    def __missing__(self, key):
        return broken(X * key, "missing")


@program(2)
def missing_item(x):
    return Missing()[2] + x


@program(2)
def default_factory(x):
    made = collections.defaultdict(lambda: broken(x, "made"))
    return made["a"] + 1, made["a"] + 2, list(made)


class Generic:
    def __class_getitem__(cls, key):
        return broken(key, cls.__name__)


@program(2)
def class_item(x):
    return Generic[x * 2] + 1


@program(2)
def getter_of_an_item(x):
    return operator.itemgetter(2)(Missing()) + x


# -- attributes -----------------------------------------------------------------------------------
class Attributes(Held):
    @property
    def prop(self):
        return broken(self.x, "get")

    @prop.deleter
    def prop(self):
        self.x = broken(self.x, "delete")

    @property
    def none(self):
        broken(self.x, "none")
        raise AttributeError("none")

    def method(self, n):
        return broken(self.x + n, "method")


class Stored:
    def __set__(self, owner, value):
        owner.x = broken(value, "set")

    def __delete__(self, owner):
        owner.x = broken(owner.x, "delete")


class Described(Held):
    stored = Stored()


@program(2)
def deleted_property(x):
    a = Attributes(x)
    del a.prop
    return a.x + 1


@program(2)
def set_descriptor(x):
    d = Described(x)
    d.stored = x * 2
    return d.x + 1


@program(2)
def deleted_descriptor(x):
    d = Described(x)
    delattr(d, "stored")
    return d.x + 1


@program(2)
def attribute_by_name(x):
    return getattr(Attributes(x), "prop") + 1  # noqa: B009


@program(2)
def attribute_or_default(x):
    return getattr(Attributes(x), "prop", None) + 1


@program(2)
def attribute_that_is_none_or_default(x):
    return getattr(Attributes(x), "none", 3), x + 1


@program(2)
def has_attribute(x):
    return hasattr(Attributes(x), "prop"), x + 1


@program(2)
def has_no_attribute(x):
    return hasattr(Attributes(x), "none"), x + 1


@program(2)
def set_by_name(x):
    d = Described(x)
    setattr(d, "stored", x)  # noqa: B010
    return d.x + 1


@program(2)
def getter_of_an_attribute(x):
    return operator.attrgetter("prop")(Attributes(x)) + 1


@program(2)
def caller_of_a_method(x):
    return operator.methodcaller("method", 1)(Attributes(x)) + 1


# -- classes --------------------------------------------------------------------------------------
class Made:
    def __new__(cls, x):
        self = super().__new__(cls)
        self.x = broken(x, "new")
        return self


class MadeAndFilled(Made):
    def __init__(self, x):
        self.y = broken(x, "init")


class MadeOther:
    def __new__(cls, x):
        return broken(x, "new")

    def __init__(self, x):
        note("never")


class MadeWrong(Made):
    def __init__(self, x):
        return 3


class Meta(type):
    def __call__(cls, x):
        return super().__call__(broken(x, "call"))

    def __instancecheck__(cls, other):
        broken(X, "instance")
        return [other]


class OfMeta(metaclass=Meta):
    def __init__(self, x):
        self.x = x * 2


@program(2)
def made(x):
    return Made(x * 2).x + 1


@program(3, breaks=2)
def made_and_filled(x):
    m = MadeAndFilled(x * 2)
    return m.x + m.y


@program(2)
def made_of_another_class(x):
    return MadeOther(x * 2) + 1


@program(2)
def made_wrong(x):
    return MadeWrong(x * 2).x + 1


@program(2)
def called_metaclass(x):
    return OfMeta(x * 2).x + 1


@program(2)
def asked_metaclass(x):
    return isinstance(3, OfMeta), x + 1


@functools.singledispatch
def dispatched(x):
    return broken(x, "dispatched")


@program(2)
def single_dispatch(x):
    return dispatched(x * 2) + 1


class Leaving(Held):
    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.x = broken(self.x, error[0].__name__)
        return self.n == 0


@program(2)
def left_with_an_error(x):
    manager = Leaving(x)
    with manager:
        raise KeyError(x.dim())
    return manager.x + 1


@program(2)
def left_with_an_error_that_stays(x):
    manager = Leaving(x, 1)
    try:
        with manager:
            raise KeyError(x.dim())
    except KeyError as error:
        return error.args, manager.x + 1


def in_a_callee(x):
    return next(Counting(x, 1)), sorted([2, 1], key=negated)


@program(4, breaks=3)
def through_a_callee(x):
    for _ in range(1):
        found = in_a_callee(x * 2)
    return found, x + 1


# -- corners ---------------------------------------------------------------------------------------
@program(2)
def removed_from_an_emptied_list(x):
    class Emptying:
        def __eq__(self, other):
            broken(x, "eq")
            items.clear()
            return True

    items = []
    items += [Emptying(), 2]
    items.remove(5)
    return items, x + 1


class Unasked(type):
    def __subclasscheck__(cls, other):
        raise KeyError(other)


class Denied(metaclass=Unasked):
    def __new__(cls, x):
        broken(x, "new")
        return super().__new__(cls)

    def __init__(self, x):
        self.y = broken(x, "init")


@program(3, breaks=2)
def metaclass_that_denies_instances(x):
    return Denied(x).y, x + 1


@dynamo.disable
def returns_none(*items):
    note(*items)


class Initial:
    def __new__(cls, *args):
        broken(X, "new")
        return super().__new__(cls)

    __init__ = functools.partial(returns_none, "init")


@program(3, breaks=2)
def initializer_that_is_no_function(x):
    Initial(2)
    return x + 1


class Sized(Held):
    def __len__(self):
        broken(self.x, "len")
        return self.n


@program(2)
def length_that_is_no_number(x):
    try:
        return len(Sized(x, "a"))
    except TypeError as error:
        return str(error), x + 1


@program(2)
def length_that_is_too_large(x):
    try:
        return len(Sized(x, 1 << 70))
    except OverflowError as error:
        return str(error), x + 1


test_program = checks_of(PROGRAMS)


class Same:
    def __eq__(self, other):
        return isinstance(other, Same)


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (lambda xs, o: sum(xs), []),
        (lambda xs, o: (max(xs), any(xs), sorted(xs), list(zip(xs, xs)), 2 in xs), []),
        (lambda xs, o: (getattr(o, "x", 0), hasattr(o, "n"), "%s %s" % (1, "a")), []),
        (lambda xs, o: [*xs, *map(abs, ())], ["extend"]),
        (lambda xs, o: sum(x for x in xs), ["sum_numbers"]),
        (lambda xs, o: max(xs, key=lambda x: -x), ["largest"]),
        (lambda xs, o: (max(xs, key=abs), sorted([xs, [1]], key=len)), []),
        (lambda xs, o: max([o], key=type) is o, ["largest"]),
        (lambda xs, o: [Same()] == [Same()], ["equal_lists"]),
        (lambda xs, o: [Same()] != [Same()], ["equal_lists"]),
        (lambda xs, o: Same() in [1, Same()], ["find"]),
        (lambda xs, o: (Same() not in [1, Same()], 5 not in [Same()]), ["find", "find"]),
        (lambda xs, o: (2 in iter(x for x in xs), 2 not in (x for x in xs)), ["find", "find"]),
    ],
)
def test_polyfills_are_for_operands_that_reach_code(program, expected, monkeypatch):
    used = []
    run = polyfill_calls.run_polyfill

    def noted(tx, function, *args, **kwargs):
        used.append(function.__name__)
        return run(tx, function, *args, **kwargs)

    for module in (polyfill_calls, opcodes_of_data):
        monkeypatch.setattr(module, "run_polyfill", noted)
    result = dynamo.compile(program, backend="eager")([3, 1, 2], Held(X))
    assert result == program([3, 1, 2], Held(X))
    assert used == expected
