"""Breaks with generators around them that have something to clean up, and context managers that
are generators.
"""

from __future__ import annotations

import contextlib

import torch

import dynamo
from tests.dynamo.break_support import LOG, checks_of, note, registry

PROGRAMS, program = registry()


def guarded(x, name, n=3):
    try:
        note("start", name)
        for i in range(n):
            yield x * i
    finally:
        LOG.append((name, (x * 3).sum() > 0))


@dynamo.disable
def limited(i, limit=2):
    LOG.append(i)
    if i >= limit:
        raise KeyError(i)


@contextlib.contextmanager
def managed(x, name):
    LOG.append(("enter", name))
    try:
        yield x + 1
    finally:
        LOG.append(("exit", name))


@contextlib.contextmanager
def noting(x, name):
    y = x * 2
    note("enter", name)
    try:
        yield y + 1
    except ValueError as error:
        note("handled", type(error))
    finally:
        note("exit", name)
    LOG.append((name, y.ndim))


# -- generators that clean up ---------------------------------------------------------------------
@program(6, 4, 8)
def to_the_end(x):
    total = x
    for item in guarded(x, "a"):
        note("consumer")
        total = total + item
    return total


@program(3, 2, 8)
def dropped_in_a_generator(x):
    def outer():
        yield x
        y = next(guarded(x, "inner", 2)) + 1
        note("inner is closed")
        yield x * y

    total = x
    for item in outer():
        total = total + item
    return total


@program(2, 2, 5)
def left_by_break(x):
    total = x
    for item in guarded(x, "a"):
        total = total + item
        note("consumer")
        break
    LOG.append("behind")
    return total


@program(2, 2, 5)
def left_by_return(x):
    for item in guarded(x, "a"):
        note("consumer")
        return item + 1


@program(5, 4, 5)
def left_by_exception(x):
    total = x
    try:
        for i, item in enumerate(guarded(x, "a", 5)):
            limited(i)
            total = total + item
    except KeyError as error:
        LOG.append(error.args)
    return total


@program(3, 4, 3)
def exception_leaves(x):
    for i, item in enumerate(guarded(x, "a", 5)):
        limited(i)
    return item


@program(6, 5, 8)
def several_left(x):
    def pairs():
        for a in guarded(x, "a"):
            for i, b in enumerate(guarded(x, "b", 5)):
                limited(i)
                yield a + b

    total = x
    try:
        for item in pairs():
            total = total + item
    except KeyError:
        LOG.append("caught")
    return total


@program(4, 4, 7)
def kept_by_a_variable(x):
    items = guarded(x, "a", 5)
    try:
        for i in range(4):
            item = next(items)
            limited(i)
    except KeyError as error:
        LOG.append(error.args)
    LOG.append("handled")
    items.close()
    LOG.append("closed")
    return item + 1


@program(3, 2, 9)
def deletes_what_is_missing(x):
    class Box:
        pass

    box = Box()
    try:
        for item in guarded(x, "a"):
            note("consumer")
            item = item + 1
            del box.missing
    except AttributeError:
        LOG.append("caught")
    return item


@program(4, 3, 6)
def modes(x):
    def enabled():
        with torch.enable_grad():
            for i in range(3):
                yield x * i

    total = x
    with torch.no_grad():
        for item in enabled():
            LOG.append(torch.is_grad_enabled())
            note("consumer", torch.is_grad_enabled())
            total = total + item
    return total, torch.is_grad_enabled()


def logged(name):
    try:
        yield 1
        yield 2
    finally:
        LOG.append(name)


def delegating(name):
    try:
        yield from logged(name)
    finally:
        note("outer", name)


@program(1, 2, 1)
def closes_its_delegate(x):
    items = delegating("a")
    next(items)
    note("between")
    items.close()
    LOG.append("closed")
    return x + 1


@program(1, 2, 1)
def dropped_by_assignment(x):
    items = delegating("a")
    next(items)
    note("between")
    items = None
    LOG.append("assigned")
    return x + 1, items


@program(1, 2, 1)
def breaks_as_it_is_dropped(x):
    def items():
        try:
            yield x
        finally:
            note("closing")

    try:
        for item in items():
            note("body")
            raise KeyError("body")
    except KeyError:
        LOG.append("caught")
    return item + 1


@program(1, 2, 1)
def in_a_dead_variable(x):
    def items():
        note("first")
        try:
            yield x
        finally:
            LOG.append("closed")

    made = items()
    item = next(made)
    note("behind")
    return item + 1


class Noticed:
    def __init__(self, name):
        self.name = name

    def __del__(self):
        LOG.append(("del", self.name))


@program(1, 4, 2)
def holds_what_is_noticed(x):
    def items():
        noticed = Noticed("inside")  # nothing reads it
        yield x
        yield x + 1

    made = items()
    total = next(made)
    note("between")
    total = total + next(made)
    note("before")
    made = None
    LOG.append("dropped")
    return total, made


class Stored:
    def _set(self, value):
        LOG.append("set")

    items = property(lambda self: self.__dict__["items"], _set)


@program(1, 4, 1)
def behind_a_property(x):
    stored = Stored()
    stored.__dict__["items"] = guarded(x, "p")
    total = next(stored.items)
    note("between")
    return total + next(stored.items)


# -- context managers -----------------------------------------------------------------------------
@program(2, 1, 4)
def broken_body(x):
    with managed(x, "m") as y:
        z = y * 2
        note("body")
        z = z + 1
    return z * 3


@program(3, 2, 5)
def broken_manager(x):
    with noting(x, "n") as y:
        z = y * x + 1
    return z * 2


@program(4, 4, 7)
def all_broken(x):
    with managed(x, "a") as a, noting(x, "b") as b:
        note("body")
        total = a + b
        with managed(x, "c") as c:
            total = total * c
            note("inner")
    return total + 1


@program(3, 4, 4)
def manager_handles(x):
    with noting(x, "a") as a:
        total = a * 3
        note("body")
        raise ValueError("handled")
    return total + 1


@program(2, 3, 3)
def manager_sees_exception(x):
    total = x
    try:
        with managed(x, "a") as a:
            total = total + a
            limited(3)
    except KeyError:
        LOG.append("caught")
    return total * 2


class Manager:
    def __init__(self, items):
        self.items = items

    def __enter__(self):
        return next(self.items)

    def __exit__(self, *error):
        self.items.close()


@program(2, 2, 6)
def of_a_class(x):
    with Manager(guarded(x, "a")) as y:
        note("body")
        y = y + 1
    return y * 2


@program(2, 1, 4)
def in_an_exit_stack(x):
    with contextlib.ExitStack() as stack:
        a = stack.enter_context(managed(x, "a"))
        b = stack.enter_context(managed(x, "b"))
        note("body")
        total = a + b
    return total * 2


@program(3, 3, 6)
def as_decorator(x):
    @managed(x, "d")
    def decorated(y):
        y = y + 1
        note("body")
        return y * 2

    return decorated(x) + decorated(x + 1)


@program(2, 1, 6)
def without_gradients(x):
    @contextlib.contextmanager
    def frozen():
        with torch.no_grad():
            yield

    w = x.clone().requires_grad_()
    with frozen():
        y = w * 2
        note("body")
        z = y * w
    return z.requires_grad, (w * 3).requires_grad, z


test_program = checks_of(PROGRAMS)
