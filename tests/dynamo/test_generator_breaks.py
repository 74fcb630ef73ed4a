"""Breaks inside of generators that captured code consumes, and of their consumers: both go on in
the graph.

A program is run eagerly and captured, twice, and must agree in results, exceptions, tracebacks and
effects; its number of graphs, of operations in them, and of breaks is exact.
"""

from __future__ import annotations

import collections
import itertools
import sys

import torch

import dynamo
from dynamo.continuations import resume
from tests.dynamo.break_support import LOG, X, broken, checks_of, note, registry
from tests.dynamo.capturing import compiled, same

PROGRAMS, program = registry()


def turns(x, n=3):
    """Breaks before each item."""
    for i in range(n):
        y = x * i + 2
        note("turn", i)
        yield (y + 1).sin()


def plain(x, n=3):
    """Does not break."""
    for i in range(n):
        yield (x * i + 2).sin()


drained = dynamo.disable(list)


# -- who consumes ---------------------------------------------------------------------------------
@program(5, 3, 14)
def for_loop(x):
    total = x
    for item in turns(x):
        total = total + item * 3
    return total


@program(5, 3, 14)
def many_turns(x):
    total = x
    for item in turns(x, 40):
        total = total + item * 3
    return total


@program(3, 3, 15)
def consumer_breaks(x):
    total = x
    for item in plain(x):
        total = total + item * 3
        note("consumer")
    return total


@program(5, 3, 8)
def both_break(x):
    total = x
    for item in turns(x, 2):
        note("consumer")
        total = total + item
    return total


@program(2, 1, 12)
def asked_by_next(x):
    items = plain(x)
    first = next(items)
    note("between")
    second = next(items)
    return first + second + next(items) * 2


@program(1, 1, 8)
def not_yet_started(x):
    items = plain(x, n=2)
    note("before")
    return sum(items)


@program(2, 2, 5)
def by_keyword(x):
    def made(a, *rest, scale=2, **more):
        note("made")
        yield a * scale
        yield rest[0] * more["k"]

    items = made(x, x + 1, k=3)
    note("before")
    return sum(items)


@program(1, 2, 1)
def with_default(x):
    def empty():
        note("empty")
        return
        yield

    return next(empty(), x * 2), next(empty(), None)


@program(5, 3, 12)
def summed(x):
    return sum(turns(x))


@program(6, 4, 13)
def listed(x):
    return torch.stack(list(turns(x))), tuple(turns(x, 1))


@program(10, 6, 22)
def unpacked(x):
    a, b, c = turns(x)
    d, *e = turns(x)
    return a + b + c + d + e[1]


@program(4, 2, 12)
def starred(x):
    return [*turns(x, 2), *plain(x, 2)]


@program(1, 4, 1)
def asked_for_any(x):
    def numbers():
        for i in range(4):
            note(i)
            yield i == 2

    return any(numbers()), all(numbers()), x + 1


@program(5, 3, 9)
def expression(x):
    return sum(broken(x, i) + 1 for i in range(3))


@program(7, 4, 17)
def comprehension(x):
    return [item * 2 for item in turns(x, 2)], {i: item + 1 for i, item in enumerate(turns(x, 2))}


# -- iterators in between -------------------------------------------------------------------------
@program(5, 3, 14)
def enumerated(x):
    total = x
    for i, item in enumerate(turns(x), 1):
        total = total + item * i
    return total


@program(8, 5, 23)
def zipped(x):
    total = x
    for a, b in zip(turns(x), turns(x + 1, 2)):
        total = total + a * b
    return total


@program(7, 5, 21)
def strictly_zipped(x):
    total = x
    for a, b in zip(turns(x, 2), turns(x + 1, 3), strict=True):
        total = total + a * b
    return total


@program(7, 4, 20)
def mapped(x):
    total = x
    for item in map(lambda a, b: a * b, turns(x, 2), turns(x, 2)):
        total = total + item
    return total


@program(2, 1, 5)
def filtered(x):
    total = x
    for item in filter(lambda item: item.ndim == 1, turns(x, 2)):
        total = total + item
    return total


@program(6, 3, 19)
def chained(x):
    total = x
    for item in itertools.chain(turns(x, 2), plain(x, 1), turns(x, 1)):
        total = total + item
    return total


@program(6, 4, 14)
def sliced(x):
    total = x
    for item in itertools.islice(turns(x, 5), 1, 4, 2):
        total = total + item
    return total


@program(6, 3, 16)
def in_pairs(x):
    total = x
    for a, b in itertools.pairwise(turns(x)):
        total = total + a * b
    return total


@program(7, 3, 23)
def consumer_breaks_between(x):
    total = x
    for (i, a), b in zip(enumerate(plain(x)), plain(x + 1)):
        note("consumer", i)
        total = total + a * b
    return total


# -- generators of generators ---------------------------------------------------------------------
@program(5, 2, 15)
def delegating(x):
    def outer():
        yield from turns(x, 2)
        yield x * 2

    total = x
    for item in outer():
        total = total + item * 2
    return total


@program(3, 2, 5)
def delegating_and_sending(x):
    def inner():
        got = yield x + 1
        note("inner")
        return got * 2

    def outer():
        result = yield from inner()
        note("outer")
        yield result + 1

    items = outer()
    first = next(items)
    return first + items.send(first * 3)


@program(4, 4, 21)
def recursive(x):
    def tree(n):
        if n == 0:
            note("leaf")
            yield x * 2
            return
        yield from tree(n - 1)
        yield x + n
        yield from tree(n - 1)

    total = x
    for item in tree(2):
        total = total * 1.5 + item
    return total


class Node:
    def __init__(self, value, children=()):
        self.value, self.children = value, children

    def __iter__(self):
        yield self.value
        for child in self.children:
            note("child", child.value)
            yield from child


@program(4, 3, 8)
def walked(x):
    root = Node(1, [Node(2, [Node(3)]), Node(4)])
    total = x
    for value in root:
        total = total * value + 1
    return total


@program(3, 2, 11)
def below_functions(x):
    def level(n):
        return broken(x, n) if n == 0 else level(n - 1) + 1

    def items():
        yield level(2)
        yield level(1)

    def doubled():
        for item in items():
            yield item * 2

    return sum(doubled())


# -- what generators hold, and who holds them -----------------------------------------------------
@program(8, 5, 22)
def two_names(x):
    items = turns(x, 6)
    again = items
    total = x
    for a in items:
        b = next(again)
        total = total + a * 2 + b
    return total


@program(6, 2, 18)
def two_names_of_the_consumer(x):
    items = plain(x, 4)
    again = items
    total = x
    for a in items:
        note("consumer", items is again)
        total = total + a * 2 + next(again)
    return total


@program(6, 3, 15)
def in_a_list(x):
    generators = [turns(x, 2), turns(x, 1)]
    total = x
    for items in generators:
        for item in items:
            total = total + item
    return total


@program(5, 3, 7)
def changes_a_cell(x):
    total = x

    def items():
        nonlocal total
        for i in range(3):
            total = total + i
            note(i)
            yield total * 2

    result = x
    for item in items():
        total = total * 1.5
        result = result + item
    return result + total


@program(2, 2, 5)
def escapes(x):
    items = turns(x)
    first = next(items)
    return first + 1, drained(items)


@program(1, 2, 2)
def in_a_cell(x):
    items = None

    def asks_itself():
        note("asks")
        try:
            next(items)
        except ValueError as error:
            note(error)
        yield x * 2

    items = asks_itself()
    return next(items) + 1


@program(1, 1, 2)
def attributes(x):
    def items(a):
        yield a
        note("second")
        yield a * 2

    made = items(x)
    next(made)
    item = next(made)
    return item + 1, made.__name__, made.gi_code is items.__code__, made.gi_running


# -- send, throw, close ---------------------------------------------------------------------------
@program(4, 3, 6)
def sending(x):
    def items():
        got = x
        while True:
            y = got * 2
            note("sent")
            got = yield y + 1
            if got is None:
                return

    made = items()
    first = next(made)
    second = made.send(first * 2)
    try:
        made.send(None)
    except StopIteration:
        note("stopped")
    return second * 3


@program(2, 1, 5)
def throwing(x):
    def items():
        y = x
        while True:
            try:
                y = yield y * 2
            except KeyError as error:
                note(error)
                y = x + 5

    made = items()
    first = next(made)
    second = made.throw(KeyError("k"))
    third = made.send(first + second)
    made.close()
    return third, next(made, None)


@program(2, 2, 2)
def closing(x):
    def items():
        try:
            yield x * 2
            yield x * 3
        finally:
            note("closed", x.ndim)

    made = items()
    first = next(made)
    note("between")
    made.close()
    return first * 2


@program(2, 1, 2)
def ignores_closing(x):
    def items():
        try:
            yield x * 2
        except GeneratorExit:
            note("ignored")
            yield x

    made = items()
    first = next(made)
    try:
        made.close()
    except RuntimeError as error:
        LOG.append(str(error))
    return first * 2


# -- exceptions -----------------------------------------------------------------------------------
@dynamo.disable
def fail(error):
    LOG.append(str(error))
    raise error


@program(2, 2, 3)
def handled_inside(x):
    def items():
        y = x * 2
        try:
            fail(ValueError("inside"))
        except ValueError as error:
            LOG.append(str(error))
            yield y + 1
        else:
            yield y
        finally:
            LOG.append("finally")

    total = x
    for item in items():
        total = total + item
    return total


@program(2, 3, 2)
def handled_by_the_consumer(x):
    def below():
        fail(ValueError("below"))

    def items():
        yield x
        below()
        yield x * 2

    made = items()
    total = x
    try:
        for item in made:
            total = total + item
    except ValueError as error:
        LOG.append(str(error))
    return total * 2, next(made, "done")


@program(1, 1, 2)
def leaves(x):
    def items():
        yield x * 2
        fail(KeyError("leaves"))

    total = x
    for item in items():
        total = total + item
    return total


@program(2, 2, 3)
def leaves_as_runtime_error(x):
    def items():
        yield x * 2
        fail(StopIteration(3))
        yield x

    total = x
    try:
        for item in items():
            total = total + item
    except RuntimeError as error:
        LOG.append((str(error), type(error.__cause__), error.__suppress_context__))
    return total + 1


@program(2, 2, 3)
def being_handled(x):
    def items():
        LOG.append(type(sys.exc_info()[1]))
        note("first")
        LOG.append(type(sys.exc_info()[1]))
        yield x
        try:
            raise KeyError(1)
        except KeyError:
            note("second")
            LOG.append(type(sys.exc_info()[1]))
            yield x * 2
            LOG.append(type(sys.exc_info()[1]))

    total = x
    try:
        raise ValueError
    except ValueError:
        for item in items():
            LOG.append(type(sys.exc_info()[1]))
            total = total + item
        LOG.append(type(sys.exc_info()[1]))
    return total


@program(4, 3, 16)
def gradients(x):
    w = x.clone().requires_grad_()
    total = sum((item * w).sum() for item in turns(x, 2))
    total.backward()
    return w.grad


test_program = checks_of(PROGRAMS)


def taking_turns(x, count):
    """A scheduler: which generator stands where differs with every turn."""
    waiting = collections.deque(turns(x, n) for n in range(count))
    total = x
    while waiting:
        items = waiting.popleft()
        for item in items:
            total = total + item
            waiting.append(items)
            break
    return total


def test_generators_in_many_places_are_compiled_a_limited_number_of_times(monkeypatch):
    monkeypatch.setattr(resume, "MOST_KINDS", 8)
    capturing, captured = compiled(taking_turns)
    for count in (3, 7):
        assert same(capturing(X, count), taking_turns(X, count))
    assert 8 < len(captured.context.records) < 20  # 25 without the limit
