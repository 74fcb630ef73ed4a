"""Breaks around generators that closures share, or that dicts hold: they stay in the graph."""

from __future__ import annotations

import gc
import itertools

import pytest
import torch

import dynamo
from tests.dynamo.break_support import LOG, X, checks_of, note, registry
from tests.dynamo.capturing import compiled, same

PROGRAMS, program = registry()


def counting(x, n=4):
    for i in range(n):
        yield x + i


def telling(x, n=4):
    for i in range(n):
        note("yield", i)
        yield x + i


def guarded(x, n=4):
    try:
        for i in range(n):
            yield x + i
    finally:
        note("end of guarded")


# -- a cell of the frame itself -------------------------------------------------------------------
@program(2, 1, 4)
def in_a_comprehension(x):
    it = counting(x)
    first = [next(it) for _ in range(2)]
    note("between")
    return first + [next(it) for _ in range(2)]


@program(3, 2, 17)
def in_two_more(x):
    it = counting(x, 9)
    total = sum([next(it) for _ in range(2)])
    note("one")
    total = total + sum([next(it) for _ in range(2)])
    note("two")
    return total + sum([next(it) for _ in range(2)]), list(it)


@program(3, 2, 9)
def in_a_lambda(x):
    it = counting(x)
    step = lambda: next(it) * 2  # noqa: E731
    y = step()
    note("one")
    y = y + step()
    note("two")
    return y + step(), next(it)


@program(3, 2, 10)
def assigned_by_a_closure(x):
    it = counting(x)

    def again(by):
        nonlocal it
        y = next(it) * by
        it = counting(y)
        return y

    y = again(2)
    note("one")
    y = y + again(3)
    note("two")
    return y + again(4) + next(it)


@program(5, 4, 15)
def breaks_inside_of_the_closure(x):
    it = counting(x)

    def step(by=2, *, plus=1):
        y = next(it)
        note("step", by)
        return y * by + plus

    return step() + step(3) + step(plus=4) + step(by=5)


@program(6, 3, 9)
def breaks_in_the_comprehension(x):
    it = counting(x, 6)

    def step(y):
        note("step")
        return y * next(it)

    return [step(next(it)) if i else step(x) for i in range(3)][-1] + x


@program(5, 3, 5)
def a_comprehension_around_the_break(x):
    it = counting(x)

    def told(y):
        note("told")
        return y * 2

    return [told(next(it)) for _ in range(3)], next(it)


@program(5, 3, 7)
def a_generator_expression(x):
    it = counting(x)

    def told(y):
        note("told")
        return y * 2

    total = x
    for y in (told(next(it)) for _ in range(3)):
        total = total + y
    return total


@program(9, 3, 11)
def generator_over_a_cell(x):
    it = counting(x, 6)

    def pairs():
        while True:
            got = [next(it) for _ in range(2)]
            yield got[0] * got[1]

    total = x
    for i, y in enumerate(pairs()):
        note("turn")
        total = total + y
        if i == 2:
            return total
    return None


@program(4, 4, 11)
def the_generator_in_the_cell_breaks(x):
    it = telling(x)
    step = lambda: next(it) * 2  # noqa: E731
    return step() + step() + step() + step()


@program(3, 2, 8)
def factory(x):
    def maker(n):
        it = counting(x, n)

        def step():
            return next(it) + n

        return step

    step = maker(5)
    y = step()
    note("one")
    y = y + step()
    note("two")
    return y + step()


@program(4, 2, 12)
def two_closures_share_one(x):
    it = counting(x)

    def one():
        return next(it) * 2

    def two():
        return next(it) * 3

    y = one() + two()
    note("between")
    z = two() - one()
    note("then")
    try:
        return y + z + one()
    except StopIteration:
        return y - z


@program(2, 1, 8)
def closure_in_a_list(x):
    its = [counting(x), counting(x * 2)]
    steps = [lambda: next(its[0]), lambda: next(its[1])]
    y = steps[0]() + steps[1]()
    note("between")
    return y + steps[0]() * steps[1]()


@program(3, 2, 9)
def argument_becomes_a_generator(x):
    y = x * 2
    x = counting(x)
    step = lambda: next(x) + y  # noqa: E731
    z = step()
    note("one")
    z = z * step()
    note("two")
    return z - step()


@program(2, 3, 2)
def dropped_by_a_closure(x):
    it = guarded(x)
    y = next(it)

    def drop():
        nonlocal it
        it = None

    note("before")
    drop()
    return y * 2


@program(2, 2, 3)
def ends_with_the_frame(x):
    it = guarded(x)
    step = lambda: next(it)  # noqa: E731
    y = step()
    note("before")
    return y * step()


@program(3, 3, 5)
def an_exception_finds_it(x):
    it = guarded(x)
    step = lambda: next(it)  # noqa: E731
    y = step()
    note("before")
    try:
        y = y * step()
        raise KeyError(y.ndim)
    except KeyError:
        note("handler")
        return y + step()


@program(2, 2, 3)
def begins_behind_a_break(x):
    note("start")
    it = counting(x)
    step = lambda: next(it)  # noqa: E731
    y = [next(it) for _ in range(2)][-1]
    note("between")
    return y + step()


@program(3, 2, 4)
def begins_behind_a_break_in_a_callee(x):
    def inner(y):
        note("start")
        it = counting(y)
        y = [next(it) for _ in range(2)][-1]
        try:
            return later + y
        except NameError as error:
            note(type(error).__name__, error)
        later = [next(it) for _ in range(2)][-1]
        show = lambda: later * y  # noqa: E731
        return show()

    return inner(x * 2)


# -- what ends with a cell that nothing reads any more --------------------------------------------
def closed(x, n=6):
    try:
        for i in range(n):
            yield x + i
    finally:
        LOG.append("closed")


@program(2, 2, 9)
def comprehensions_have_read_it(x):
    it = closed(x)
    y = sum([next(it) for _ in range(2)])
    note("a")
    y = y + sum([next(it) for _ in range(2)])
    note("b")
    return y


@program(2, 2, 3)
def its_closure_is_gone(x):
    it = closed(x)
    step = lambda: next(it)  # noqa: E731
    y = step()
    note("a")
    y = y + step()
    step = None
    note("b")
    return y


@program(2, 3, 3)
def read_by_one_branch(x):
    it = closed(x)
    step = lambda: next(it)  # noqa: E731
    y = step()
    note("a")
    if x[0] > 0:
        y = step()
    else:
        note("b")
    return y


@program(2, 2, 3)
def not_read_by_the_handler(x):
    it = closed(x)
    step = lambda: next(it)  # noqa: E731
    y = step()
    note("a")
    try:
        y = y + step()
        raise KeyError(1)
    except KeyError:
        note("handler")
    return y


@program(1, 1, 1)
def dead_at_the_first_break(x):
    it = closed(x)
    step = lambda: next(it)  # noqa: E731
    y = step()
    step = None
    note("a")
    return y


@program(2, 2, 3)
def the_last_break_raises(x):
    it = closed(x)
    y = [next(it) for _ in range(2)][-1]
    note("a")
    y = y + [next(it) for _ in range(2)][-1]
    return y, note("b"), len(LOG)


# -- what must be an object -----------------------------------------------------------------------
@program(2, 1, 3)
def the_instruction_takes_the_closure(x):
    it = counting(x)
    step = lambda: next(it)  # noqa: E731
    y = step()
    note(step().ndim, [step.__name__])
    return y + step()


@program(2, 3, 2)
def its_cell_is_outside(x):
    it = counting(x)
    kept.append(lambda: next(it))
    y = next(it)
    note("between")
    return y + next(it), kept.pop()()


kept: list = []


@program(2, 1, 7)
def calls_itself(x):
    it = counting(x)

    def deeper(n):
        return next(it) + (deeper(n - 1) if n else 0)

    y = deeper(1)
    note("between")
    return y + deeper(0)


@program(1, 1, 2)
def holds_itself(x):
    held = []

    def own():
        yield x
        yield held[0]
        yield x * 2

    held.append(own())
    y = next(held[0])
    note("between")
    LOG.append(next(held[0]) is held[0])
    return y + next(held[0])


# -- iterators that ask other objects, too --------------------------------------------------------
@program(6, 3, 6)
def zipped_with_a_range(x):
    total = x
    for y, i in zip(counting(x, 6), range(3)):
        note("turn", i)
        total = total + y
    return total


@program(5, 3, 9)
def range_zipped_with_it(x):
    total = x
    for i, y, z in zip(range(9), counting(x, 3), [x, x * 2, x * 3, x]):
        note("turn", i)
        total = total + y * z
    return total


@program(4, 2, 4)
def strictly_zipped(x):
    total = x
    try:
        for i, y in zip({"a": 1, "b": 2}, counting(x, 3), strict=True):
            note("turn", i)
            total = total + y
    except ValueError as error:
        LOG.append(str(error))
    return total


@program(6, 3, 9)
def mapped_by_a_closure(x):
    it = counting(x, 5)
    total = x
    for y in map(lambda i: next(it) * i, range(3)):
        note("turn")
        total = total + y
    return total, next(it)


@program(8, 5, 8)
def chained_with_a_list(x):
    total = x
    for y in itertools.chain([x, x * 2], counting(x, 2), (x,)):
        note("turn")
        total = total + y
    return total


@program(4, 3, 8)
def mapped_over_both(x):
    total = x
    iterator = iter([x, x + 1, x + 2])
    for y in map(torch.mul, iterator, counting(x, 2)):
        note("turn")
        total = total + y
    return total, list(iterator)


# -- a dict ---------------------------------------------------------------------------------------
@program(3, 2, 9)
def in_a_dict(x):
    its = {"a": counting(x), 2: counting(x * 3), (1, "b"): [counting(x * 5)]}
    y = next(its["a"])
    note("one")
    y = y + next(its[2]) + next(its["a"])
    note("two")
    return y + next(its[1, "b"][0]), list(its)


@program(3, 6, 3)
def in_an_attribute(x):
    class Streams:
        def __init__(self):
            self.of = {"a": counting(x)}

        def take(self, name):
            return next(self.of[name])

    return taken(Streams())


class Streams:
    def __init__(self, x):
        self.of = {"a": counting(x), "b": telling(x * 2)}

    def take(self, name):
        return next(self.of[name])


def taken(streams):
    y = streams.take("a")
    note("one")
    y = y + streams.take("a")
    note("two")
    return y + streams.take("a")


@program(5, 4, 10)
def in_an_attributes_dict(x):
    streams = Streams(x)
    y = taken(streams)
    z = streams.take("b")
    return y + z * streams.take("b")


@program(2, 2, 8)
def dict_grows_and_shrinks(x):
    its = {"a": counting(x)}
    note("one")
    its["b"] = counting(x * 2)
    y = next(its["a"]) + next(its["b"])
    note("two")
    y = y + next(its.pop("a")) + next(its["b"])
    return y, list(its)


@program(4, 3, 15)
def scheduler(x):
    tasks = {name: counting(x * i, i + 1) for i, name in enumerate("abc")}
    total = x
    turn = 0
    while tasks and turn < 3:
        for name in list(tasks):
            try:
                total = total + next(tasks[name])
            except StopIteration:
                del tasks[name]
        note("turn", turn, sorted(tasks))
        turn += 1
    return total


test_program = checks_of(PROGRAMS)


def an_exception_leaves(x):
    it = guarded(x)
    step = lambda: next(it)  # noqa: E731
    y = step()
    dynamo.graph_break()
    raise ValueError(y.ndim)


def test_an_exception_keeps_the_generator():
    """It is closed when the exception goes, not when the frame is left."""
    capturing, captured = compiled(an_exception_leaves)
    for function in (an_exception_leaves, capturing, capturing):
        LOG.clear()
        try:
            function(X)
        except ValueError as error:
            kept = error
        assert not LOG, function
        del kept
        assert LOG[0] == ("end of guarded",), function
    assert captured.op_counts == [1]


def sent_to_itself(x):
    ended = False

    def own():
        nonlocal ended
        try:
            me = yield
            yield me is not None
        finally:
            ended = True

    it = own()
    next(it)
    y = x + it.send(it)
    dynamo.graph_break()
    before = ended
    del it
    gc.collect()
    return y, before, ended


def test_a_generator_that_holds_itself():
    """It is closed by the garbage collector."""
    capturing, _ = compiled(sent_to_itself)
    for _ in range(2):
        assert same(capturing(X), sent_to_itself(X))


def left_by_an_exception(x):
    def inner(x):
        it = closed(x)
        held = {"a": it}
        y = next(it)
        note("inner")
        raise ValueError(held, y.ndim)

    try:
        inner(x)
    except ValueError as error:
        note("handler", error.args[1])
    return x + 1


def left_by_a_captured_exception(x):
    def inner(x):
        it = closed(x)
        step = lambda: next(it)  # noqa: E731
        raise ValueError(step().ndim)

    try:
        inner(x)
    except ValueError as error:
        note("handler", error.args)
    return x + 1


@pytest.mark.parametrize("function", [left_by_an_exception, left_by_a_captured_exception])
def test_a_traceback_keeps_what_its_frames_held(function):
    """Closed at the end at the latest, and not before the handler's break."""
    capturing, _ = compiled(function)
    for called in (function, capturing, capturing):
        LOG.clear()
        assert torch.equal(called(X), X + 1)
        places = [i for i, item in enumerate(LOG) if item == "closed"]
        assert len(places) == 1, LOG
        assert places[0] > LOG.index(next(item for item in LOG if item[0] == "handler"))
