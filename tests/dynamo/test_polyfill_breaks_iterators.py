"""Breaks inside of what iterators of C call: map, filter, itertools and iter() of objects with
__getitem__ (see break_support.check).
"""

from __future__ import annotations

import collections
import itertools
import warnings

import torch

import dynamo
from tests.dynamo.break_support import Held, Number, X, broken, checks_of, registry
from tests.dynamo.capturing import compiled, same
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


def counted(items):
    for n in items:
        broken(X * n, "counted", n)
        yield n


@program(4, breaks=3)
def filters_by_no_function(x):
    kept = next(filter(None, counted([0, 2])), 5)
    return x * kept * next(itertools.filterfalse(None, counted([0])), 5)


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


# -- iterators that ask others --------------------------------------------------------------------
# What calls the program's function is asked by another iterator: a generator draws the item.
def drawn(y):
    return broken(y, "drawn", y.dim())


@program(2)
def enumerated_map(x):
    y = x * 2
    for place, item in enumerate(map(drawn, [y])):
        y = y + item * place
    return y


@program(2)
def enumerated_filter(x):
    y = x * 2
    return [(place, y * n) for place, n in enumerate(filter(keeps, [3]))]


@program(2)
def window_of_a_map(x):
    y = x * 2
    for item in itertools.islice(map(drawn, [y, y]), 1):
        y = y + item
    return y


@program(2)
def next_of_zipped_maps(x):
    y = x * 2
    both = enumerate(zip(map(drawn, [y, y[0]]), [4, 5]))
    return next(both), y + 1


@program(5, breaks=2)
def rest_behind_the_break(x):
    """The map is captured behind the break, too."""
    y = x * 2
    rest = enumerate(map(drawn, [y, y[0]]))
    first = next(rest)
    return first, list(rest), y + 1


@program(3, breaks=2)
def map_that_others_hold(x):
    y = x * 2
    items = map(drawn, [y, y + 1])
    for place, item in enumerate(items):
        y = y + item * place
        return y, type(items), next(items)


@program(4, breaks=2)
def two_maps_below_one_another(x):
    y = x * 2
    for place, item in enumerate(map(torch.neg, map(drawn, [y, y[0]]))):
        y = y + item * place
    return y


@program(4, breaks=2)
def strict_rows(x):
    y = x * 2
    return [a * b for a, b in zip([1, 2], map(drawn, [y, y[0]]), strict=True)]


@program(8, breaks=4)
def one_iterator_twice_in_a_row(x):
    y, items = x * 2, map(drawn, [x, x[0], x, x[0]])
    return [(place, y * a * b) for place, (a, b) in enumerate(zip(items, items))]


@program(3, breaks=2)
def taken_below_another_one(x):
    taken = itertools.takewhile(lambda n: broken(x, n) is not None and n < 5, [3, 5, 1])
    return list(enumerate(taken)), list(taken), x + 1


@program(5, breaks=2)
def dropped_below_others(x):
    left = itertools.dropwhile(lambda n: broken(x, n) is not None and n < 5, [3, 5, 1])
    return [(place, x * n) for place, n in enumerate(itertools.chain(left, [9]))]


def stops_at_five(n):
    broken(X, n)
    if n == 5:
        raise StopIteration
    return n


@program(4, breaks=3)
def function_that_ends_the_map_once(x):
    items = enumerate(map(stops_at_five, [3, 5, 6]))
    return [(place, x + n) for place, n in items], list(items)


@program(3, breaks=3)
def function_that_raises_below_another_one(x):
    items = enumerate(map(refuses_two, [1, 2, 3]))
    found = [next(items), x + 1]
    try:
        next(items)
    except KeyError:
        return found, list(items)


def asks_again(before):
    """A function that asks the iterator that has called it."""

    def asked_again(x):
        def function(n):
            if before:
                broken(x, n)
            found = [n] if n != 4 else [n, next(items, "end")]
            if not before:
                broken(x, n)
            return found

        items = enumerate(map(function, [4, 5, 6]))
        return [(x * 2, item) for item in items], list(items)

    return asked_again


program(6, breaks=5)(asks_again(True))
program(5, breaks=5)(asks_again(False))


class Next(Held):
    def __iter__(self):
        return self

    def __next__(self):
        if self.n == 0:
            raise StopIteration
        self.n -= 1
        return broken(self.x, "next", self.n)


@program(2)
def enumerated_object(x):
    y = x * 2
    return [item * place for place, item in enumerate(Next(y, 1))]


@program(2)
def chained_object(x):
    y = x * 2
    for item in itertools.chain(Next(y, 1), [y]):
        y = y + item
    return y


# -- containers of what iterators give ------------------------------------------------------------
@program(2)
def dict_of_enumerated_objects(x):
    y = x * 2
    return dict(enumerate(Next(y, 1)), last=y), y + 1


@program(3)
def dict_of_a_generator(x):
    y = x * 2
    return dict((name, drawn(y)) for name in "a"), y + 1


@program(3)
def ordered_dict_of_a_map(x):
    y = x * 2
    return collections.OrderedDict(map(lambda name: (name, drawn(y)), "a")), y + 1


@program(3)
def update_by_a_generator(x):
    y, found = x * 2, {"b": 1}
    found.update(((name, drawn(y)) for name in "a"), c=3)
    return found, y + 1


@program(2)
def update_by_something_else(x):
    y, found = x * 2, {}
    try:
        found.update((name, drawn(y)) if name == "a" else name for name in ["a", "cd", "efg"])
    except ValueError as error:
        return found, y + 1, str(error)


@program(3)
def deque_of_a_map(x):
    y = x * 2
    return list(collections.deque(map(lambda n: drawn(y) if n else y, [0, 0, 1]), 2)), y + 1


@program(2)
def sets_of_a_filter(x):
    y, found = x * 2, {1}
    found.update(filter(keeps, [3]))
    return found, y + 1


@program(7, breaks=2)
def loop_over_a_padded_zip_of_a_map(x):
    total = x * 2
    for n, item in itertools.zip_longest([1, 2, 3], map(doubled, [x, x + 1]), fillvalue=1):
        total = total + item * n
    return total * 2


@program(7, breaks=4)
def padded_zip_that_ends_by_a_filter(x):
    total = x * 2
    rows = itertools.zip_longest([1], filter(keeps, [2, 3]), [], fillvalue=4)
    for row in rows:
        total = total + sum(row)
    return total * 2, list(rows)


@program(3, breaks=2)
def product_of_a_filter(x):
    y = x * 2
    pairs = list(itertools.product(filter(keeps, [2, 3]), [1, 2]))
    return y * len(pairs), y + 1


def batches_of_a_map(x):
    total = x * 2
    for batch in itertools.batched(map(doubled, [x, x + 1, x + 2]), 2):
        total = total + sum(batch)
    return total * 2


def batches_of_a_filter(x):
    batches = itertools.batched(filter(keeps, [2, 3]), 3)
    return [x * sum(batch) for batch in batches], list(batches)


if hasattr(itertools, "batched"):
    program(6, breaks=2)(batches_of_a_map)
    program(4, breaks=4)(batches_of_a_filter)


@program(1, breaks=2)
def sets_of_filters_natively(x):
    found = {1, 2, 3}.intersection(filter(lambda n: n > 1, iter([1, 2, 3])))
    return x * sum(found), itertools.tee(filter(lambda n: n > 1, [1, 2]))[0].__next__()


test_program = checks_of(PROGRAMS)


def test_rest_that_runs_eagerly(monkeypatch):
    """Continuations that are compiled no more get a real iterator."""
    monkeypatch.setattr(dynamo.config, "recompile_limit", 1)

    def function(x):
        y = x * 2
        rest = enumerate(map(drawn, [y, y[0], y[1], y]))
        return next(rest), next(rest), list(rest), list(rest)

    capturing, _ = compiled(function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for dtype in (torch.float32, torch.float64, torch.int64):
            x = X.to(dtype)
            assert same(function(x), capturing(x))
