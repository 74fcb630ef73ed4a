"""Breaks inside of what iterators of C call: map, filter, itertools and iter() of objects with
__getitem__ (see break_support.check).
"""

from __future__ import annotations

import itertools

import torch

from tests.dynamo.break_support import Held, Number, X, broken, checks_of, registry
from tests.dynamo.test_polyfill_breaks import add, refuses_two

PROGRAMS, program = registry()


def doubled(y):
    if y.dim() == 0:
        raise StopIteration
    return broken(y, "doubled")


def keeps(n):
    broken(X * n, "keeps", n)
    return n > 1


@program(6, breaks=2)
def loop_over_a_map(x):
    total = x * 2
    for item in map(doubled, [x, x + 1, x + 2]):
        total = total + item
    return total * 2


@program(5, breaks=3)
def map_that_ends_early(x):
    total, rest = x * 2, map(doubled, [x, x[0], x])
    try:
        for item in rest:
            total = total + item
    except StopIteration:
        return x
    return total, next(rest) * 2


@program(5, breaks=3)
def first_of_a_map(x):
    rest = map(doubled, [x, x + 1])
    return next(rest) + 1, next(rest) + 2


@program(4, breaks=2)
def list_of_a_map(x):
    return list(map(doubled, [x, x + 1])), x * 2


@program(4, breaks=3)
def loop_over_a_filter(x):
    total = x * 2
    for n in filter(keeps, [1, 2, 3]):
        total = total + x * n
    return total * 2


@program(4, breaks=3)
def loop_over_what_is_left_out(x):
    total = x * 2
    for n in itertools.filterfalse(keeps, [2, 1, 3, 0]):
        total = total + x * n
    return total * 2


def keeps_below_two(n):
    broken(X * n, "below", n)
    return n < 2


@program(7, breaks=4)
def loop_over_what_is_taken(x):
    total, items = x * 2, iter([0, 1, 2, 0, 5])
    for n in itertools.takewhile(keeps_below_two, items):
        total = total + x * n
    return total * 2, list(items)


@program(4, breaks=5)
def what_is_taken_has_ended(x):
    taken = itertools.takewhile(keeps_below_two, [1, 2, 0, 1])
    first = next(taken)
    rest = list(taken)
    return first, rest, next(taken, "none"), list(taken), x * 2


@program(3, breaks=2)
def loop_over_what_is_not_dropped(x):
    total = x * 2
    for n in itertools.dropwhile(keeps_below_two, [1, 2, 1, 0]):
        total = total + x * n
    return total * 2


@program(3, breaks=4)
def what_is_not_dropped_has_begun(x):
    left = itertools.dropwhile(keeps_below_two, [1, 2, 1, 0])
    first = next(left)
    return first, next(left), list(left), x * 2


@program(8, breaks=3)
def loop_over_totals(x):
    result = x * 2
    for n in itertools.accumulate([1, 2, 3, 4], lambda a, b: broken(x, a, b).sum() + a + b):
        result = result + n
    return result * 2


@program(5, breaks=3)
def total_of_numbers_by_their_own_method(x):
    totals = itertools.accumulate([Number(x), Number(x + 1), Number(x + 2)])
    return [next(totals).x, next(totals).x, next(totals).x], x + 1


@program(4, breaks=3)
def function_of_totals_that_raises(x):
    totals = itertools.accumulate([1, 2, 3], lambda a, b: refuses_two(b) or a + b)
    try:
        list(totals)
    except KeyError:
        return list(totals), x + 1


@program(4, breaks=2)
def loop_over_a_starmap(x):
    return tuple(itertools.starmap(add, [(x, 1), (x, 2)])), x * 2


@program(4, breaks=2)
def unpacked_map(x):
    left, right = map(doubled, [x, x + 1])
    return left + right


class Items(Held):
    error: type[Exception] = IndexError

    def __getitem__(self, place):
        y = broken(self.x, "item", place)
        if place == self.n:
            raise self.error(place)
        return y


class WrongItems(Items):
    error = KeyError


@program(8, breaks=3)
def loop_over_items(x):
    total = x * 2
    for item in Items(x, 2):
        total = total + item
    return total * 2


@program(6, breaks=4)
def loop_over_items_that_raise(x):
    total, items = x * 2, iter(WrongItems(x, 1))
    try:
        for item in items:
            total = total + item
    except KeyError as error:
        return total, error.args, next(items, None)
    return total


@program(5, breaks=2)
def list_of_items(x):
    return list(Items(x, 1)), x + 1


class Restarting(Held):
    def __iter__(self):
        self.n = 0
        return self

    def __next__(self):
        self.n += 1
        broken(self.x, self.n)
        if self.n > 3:
            raise StopIteration
        return self.n


@program(5, breaks=4)
def starred_variable_behind_others(x):
    first, *rest = Restarting(x)  # iter() of the iterator, for the rest, begins anew
    return first, rest, x + 1


class Counted:
    def __init__(self, x, count):
        self.x, self.left = x, count

    def __iter__(self):
        return self

    def __next__(self):
        if not self.left:
            raise StopIteration
        self.left -= 1
        return broken(self.x, "next", self.left)


@program(4, breaks=2)
def loop_over_a_zip_of_a_map(x):
    total, numbers = x * 2, iter([1, 2, 3])
    for item, n in zip(map(doubled, [x, x + 1]), numbers):
        total = total + item * n
    return total * 2, list(numbers)


@program(4, breaks=2)
def loop_over_a_zip_that_loses_an_item(x):
    total, numbers = x * 2, iter([1, 2, 3])
    for n, item in zip(numbers, map(doubled, [x, x + 1])):
        total = total + item * n
    return total * 2, list(numbers)


@program(4, breaks=2)
def loop_over_a_zip_of_an_iterator_of_the_program(x):
    total = x * 2
    for item, n in zip(Counted(x, 2), [1, 2, 3]):
        total = total + item * n
    return total * 2


@program(6, breaks=5)
def rows_of_a_zip(x):
    rows = zip(map(doubled, [x, x + 1]), [1, 2])
    first, n = next(rows)
    return first * n, dict(zip("ab", map(doubled, [x + 2, x + 3]))), next(rows)[0] + 1


@program(4, breaks=2)
def zip_that_ends_by_its_function(x):
    rows = zip(map(doubled, [x, x[0], x + 1]), [1, 2, 3])
    total = x * 2
    for item, n in rows:
        total = total + item * n
    return total * 2, next(rows)[1]


@program(4, breaks=3)
def zip_of_a_map_that_raises(x):
    rows = zip(map(refuses_two, [1, 2, 3]), [x, x + 1, x + 2])
    total = x * 2
    try:
        for n, item in rows:
            total = total + item * n
    except KeyError:
        return total * 2, next(rows)


@program(6, breaks=3)
def loop_over_a_map_of_a_filter(x):
    total = x * 2
    for item in map(lambda n: x * n, filter(keeps, [1, 2, 3])):
        total = total + item
    return total * 2


@program(4, breaks=2)
def loop_over_a_starmap_of_a_zip(x):
    total = x * 2
    for item in itertools.starmap(torch.mul, zip(map(doubled, [x, x + 1]), [1, 2])):
        total = total + item
    return total * 2


test_program = checks_of(PROGRAMS)
