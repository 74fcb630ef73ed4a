"""Iterators, generators and itertools, consumed inside and handed out half consumed."""

import functools
import itertools

import pytest
import torch

from tests.dynamo.values_support import PROGRAMS, check, program


def tensor():
    return torch.arange(4.0)


@program(tensor)
def enumerate_zip_map_filter(x):
    for i, (a, b) in enumerate(zip([1, 2], (3, 4)), start=5):
        x = x * a + b + i
    return (
        x,
        list(map(lambda v: v + 1, [1, 2])),
        list(filter(None, [0, 1, 2])),
        list(filter(lambda v: v > 1, [1, 2])),
    )


@program(tensor)
def half_consumed(x):
    it = iter([x, x + 1, x + 2])
    next(it)
    pairs = enumerate(["a", "b", "c"])
    next(pairs)
    return it, pairs, zip([1, 2], [3, 4]), iter(range(3)), reversed([1, 2, 3])


@program(tensor)
def chains_after_an_exception(x):
    def rows():
        return map(lambda v: [2 // v, v], [1, 0, 2])

    found = []
    for each in (itertools.chain.from_iterable(rows()), itertools.chain([1], rows(), [2])):
        for _ in range(5):
            try:
                found.append(next(each))
            except ZeroDivisionError:
                found.append("zero")
            except StopIteration:
                found.append("end")
    for each in (itertools.chain.from_iterable([[1], 2, [3]]), itertools.chain([1], 2, [3])):
        for _ in range(4):
            try:
                found.append(next(each))
            except TypeError:
                found.append("no iterable")
            except StopIteration:
                found.append("end")
    return x * 2, found


@program(tensor)
def next_with_default(x):
    it = iter([])
    try:
        next(it)
    except StopIteration:
        x = x + 1
    return next(it, x)


@program(tensor)
def zip_strict(x):
    try:
        list(zip([1], [1, 2], strict=True))
    except ValueError as error:
        return x + 1, str(error)


@program(tensor)
def iter_with_sentinel(x):
    items = [3, 2, 1, 0]
    return list(iter(items.pop, 2)), x + 1


@program(tensor)
def itertools_endless(x):
    total = x
    for i in itertools.count(2, 3):
        if i > 10:
            break
        total = total + i
    c = itertools.cycle("ab")
    return (
        total,
        [next(c) for _ in range(5)],
        list(itertools.repeat(1, 3)),
        list(zip(range(3), itertools.repeat(x))),
    )


@program(tensor)
def itertools_finite(x):
    return (
        list(itertools.chain([1], (2, 3))),
        list(itertools.chain.from_iterable([[1], [2]])),
        list(itertools.islice(range(10), 1, 8, 3)),
        list(itertools.islice(iter([1, 2, 3]), 2)),
        list(itertools.product([1, 2], "ab", repeat=1)),
        list(itertools.permutations([1, 2, 3], 2)),
        list(itertools.combinations([x, 2, 3], 2)),
        list(itertools.accumulate([1, 2, 3])),
        list(itertools.starmap(pow, [(2, 3), (3, 2)])),
        list(itertools.zip_longest([1, 2, 3], "a", fillvalue="-")),
        list(itertools.pairwise([1, 2, 3])),
        [(k, list(g)) for k, g in itertools.groupby([1, 1, 2, 1])],
        list(itertools.takewhile(lambda v: v < 3, [1, 2, 3, 1])),
        list(itertools.dropwhile(lambda v: v < 3, [1, 2, 3, 1])),
        list(itertools.filterfalse(None, [0, 1])),
        list(itertools.compress("abc", [1, 0, 1])),
        [list(t) for t in itertools.tee([1, 2])],
        x + 1,
    )


@program(tensor)
def generators(x):
    def numbers(n):
        received = []
        for i in range(n):
            received.append((yield i))
        return received

    def outer():
        result = yield from numbers(3)
        yield result

    g = numbers(2)
    first = next(g)
    second = g.send("hello")
    return (
        first,
        second,
        list(outer()),
        sum(v * x for v in range(3)),
        [*(i for i in range(4) if i % 2)],
    )


@program(tensor)
def generator_with_try(x):
    log = []

    def gen():
        try:
            yield 1
            yield 2
        except ValueError:
            log.append("value")
            yield 3
        finally:
            log.append("done")

    g = gen()
    next(g)
    out = g.throw(ValueError)
    g.close()
    return out, log, x + 1


@program(tensor)
def any_all_sum_min_max(x):
    return (
        any([0, 1]),
        all([]),
        sum([x, x]),
        sum([[1], [2]], []),
        min(3, 1, 2),
        max([1, 5], key=lambda v: -v),
        max([], default=7),
        min("b", "a"),
        max(x.shape[0], 2),
        sum(i for i in range(3)),
    )


@program(tensor)
def reduce_and_partial(x):
    add = functools.partial(lambda a, b, c=0: a + b + c, x, c=1)
    return functools.reduce(lambda a, b: a * b, [1, 2, 3], x), add(2), functools.partial(add, 5)()


@program(tensor)
def dict_changed_while_iterating(x):
    d = {"a": 1}
    try:
        for key in d:
            d[key + "b"] = 1
    except RuntimeError as error:
        return x + 1, str(error)


@program(tensor)
def iterate_a_tensor(x):
    return [row * 2 for row in x], torch.stack([a + b for a, b in zip(x, x)])


@program(tensor)
def comprehensions(x):
    return (
        {i: x + i for i in range(2)},
        {i % 2 for i in range(5)},
        [[j for j in range(i)] for i in range(3)],
    )


@program(tensor, lambda: iter([1, 2, 3]), graphs=3)
def iterator_from_outside(x, it):
    y = x + 1
    first = next(it)
    return y * first


@pytest.mark.parametrize("function, args, graphs, ops", PROGRAMS[__name__])
def test_program(function, args, graphs, ops):
    check(function, args, graphs, ops)
