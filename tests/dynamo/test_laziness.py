"""How many items each consumer of an iterator takes, what it leaves, and what it gives or raises,
beside eager: of a generator that ends, of one with an item in the middle that many refuse, and of
one that raises.
"""

from __future__ import annotations

import textwrap
from typing import Any

import pytest
import torch

from tests.dynamo.capturing import compiled

DEFINITIONS = """
import array, collections, functools, heapq, itertools, math, operator, statistics, string, types
import torch
log = []
Point = collections.namedtuple("Point", "x y")

class Boom(Exception):
    pass
def source(items):
    for item in items:
        log.append(item)
        if item == "boom":
            raise Boom
        yield item
    log.append("end")
class Taken:
    "An iterator that is no generator."
    def __init__(self, items):
        self.items = items
        self.position = 0
    def __iter__(self):
        return self
    def __next__(self):
        if self.position == len(self.items):
            log.append("end")
            raise StopIteration
        self.position += 1
        item = self.items[self.position - 1]
        log.append(item)
        if item == "boom":
            raise Boom
        return item
def two(it):
    a, b = it
    return a, b
def first(it):
    a, *rest = it
    return a, rest
def last(it):
    *rest, a, b = it
    return a, b, rest
def five(it):
    a, b, c, d, e = it
    return e
def six(it):
    a, b, c, d, e, f = it
    return a
def given(*args):
    return args
def pair(a, b):
    return a, b
def broken(it):
    for item in it:
        if item == 2:
            break
    return item
def looped(it):
    for item in it:
        pass
    else:
        return "else", item
def delegated(it):
    yield from it
def extended(it):
    made = [0]
    try:
        made += it
    finally:
        log.append(list(made))
    return made
def replaced(it, part):
    made = [0, 1, 2, 3]
    made[part] = it
    return made
def after(made, name, *args):
    try:
        getattr(made, name)(*args)
    finally:
        log.append(sorted(map(str, made)))
    return made
def joined(made, it):
    made |= it
    return made
def assigned(a, it):
    a[0], a[1] = it
    return a
"""

CONSUMERS = (
    textwrap.dedent("""
    {1, 9}.isdisjoint(it)
    {2}.isdisjoint(it)
    {8, 9}.isdisjoint(it)
    frozenset([3]).isdisjoint(it)
    set().isdisjoint(it)
    {1: 1, 2: 2}.keys().isdisjoint(it)
    {1: 1}.items().isdisjoint((i, i) for i in it)
    {1, 2, 3}.issubset(it)
    {1}.issubset(it)
    set().issubset(it)
    {7}.issubset(it)
    {1, 2, 3, 4, 5}.issuperset(it)
    {1}.issuperset(it)
    set().issuperset(it)
    frozenset([1, 2]).issuperset(it)
    sorted({1, 9}.union(it))
    sorted({1, 2}.intersection(it))
    set().intersection(it)
    {1}.intersection([], it)
    sorted({1, 9}.difference(it))
    set().difference(it)
    sorted({1}.difference([1], it))
    sorted({1, 9}.symmetric_difference(it))
    sorted(frozenset([1]).union(it, [7]))
    after({1, 9}, "update", it)
    after({1, 9}, "update", [3], it)
    after({1, 2}, "intersection_update", it)
    after({1, 2}, "difference_update", it)
    after(set(), "difference_update", it)
    after({1, 2}, "symmetric_difference_update", it)
    sorted(set(it))
    sorted(frozenset(it))
    sorted({*it})
    sorted({1: 1, 9: 9}.keys() & it)
    sorted({1: 1, 9: 9}.keys() | it)
    sorted({1: 1, 9: 9}.keys() - it)
    sorted({1: 1, 9: 9}.keys() ^ it)
    {1} | it
    2 in it
    9 in it
    2 not in it
    operator.contains(it, 3)
    operator.indexOf(it, 2)
    operator.indexOf(it, 9)
    operator.countOf(it, 2)
    all(it)
    any(it)
    any(i == 2 for i in it)
    all(i == 1 for i in it)
    not any(i == 9 for i in it)
    all(map(lambda i: i == 1, it))
    min(it)
    max(it)
    max(it, key=lambda i: -i)
    max(it, default=0)
    max(*it)
    sum(it)
    sum(it, 10)
    sorted(it)
    sorted(it, key=lambda i: -i)
    list(it)
    tuple(it)
    bytes(it)
    bytearray(it)
    list(array.array("i", it))
    list(collections.deque(it))
    list(collections.deque(it, 2))
    list(collections.deque(it, maxlen=0))
    torch.Size(it)
    Point._make(it)
    Point(*it)
    list(zip(it, [1, 2]))
    list(zip([1, 2], it))
    list(zip(it, it))
    list(zip(it, [1, 2], strict=True))
    list(zip([1, 2], it, strict=True))
    list(zip(*it))
    dict(zip(it, "ab"))
    list(map(pair, it, [1, 2]))
    list(map(pair, [1, 2], it))
    list(map(str, it))
    list(filter(lambda i: i == 2, it))
    next(it)
    next(it, None)
    (next(it), next(it))
    next(iter(it))
    next(enumerate(it))
    next(filter(lambda i: i == 2, it))
    next(map(str, it))
    next(zip(it, [1]))
    next(zip([1], it))
    next(zip([], it), None)
    next(zip(it, []), None)
    next(i for i in it if i == 2)
    reversed(it)
    len(it)
    list(reversed(list(it)))
    two(it)
    first(it)
    last(it)
    five(it)
    six(it)
    assigned([0, 0], it)
    [*it]
    [0, *it, 9]
    (*it,)
    given(*it)
    given(0, *it, 9)
    pair(*it)
    broken(it)
    looped(it)
    next(delegated(it))
    list(delegated(it))
    [i for i in it]
    {i: i for i in it}
    dict(it)
    dict((i, i) for i in it)
    dict(((i, i) if i == 1 else i) for i in it)
    dict.fromkeys(it)
    after({}, "update", it)
    after({}, "update", ((i, i) for i in it))
    after({}, "update", (((i, i) if i == 1 else i) for i in it))
    after({}, "update", ((i, i, i) for i in it))
    {} | it
    joined({}, ((i, i) for i in it))
    collections.OrderedDict((i, i) for i in it)
    after(collections.OrderedDict(), "update", ((i, i) for i in it))
    collections.defaultdict(int, ((i, i) for i in it))
    collections.Counter(it)
    after(collections.Counter(), "update", it)
    after(collections.Counter([1]), "subtract", it)
    ",".join(it)
    ",".join(map(str, it))
    b"".join(it)
    "%s %s" % tuple(it)
    extended(it)
    after([0], "extend", it)
    after([0], "__iadd__", it)
    replaced(it, slice(None))
    replaced(it, slice(1, 1))
    replaced(it, slice(None, None, 2))
    replaced(it, 0) is None
    after(collections.deque([0]), "extend", it)
    after(collections.deque([0]), "extendleft", it)
    after(collections.deque([0], 2), "extend", it)
    after(bytearray(), "extend", it)
    list(itertools.islice(it, 2))
    list(itertools.islice(it, 0))
    list(itertools.islice(it, 1, 4, 2))
    list(itertools.islice(it, 1, None))
    next(itertools.islice(it, 2, None))
    list(itertools.takewhile(lambda i: i == 1, it))
    next(itertools.dropwhile(lambda i: i == 1, it))
    next(itertools.chain(it, [9]))
    list(itertools.chain([9], it))
    next(itertools.chain.from_iterable([i, i] for i in it))
    list(itertools.chain.from_iterable(it))
    list(itertools.zip_longest(it, [1, 2]))
    list(itertools.product(it, [1]))
    list(itertools.combinations(it, 2))
    list(itertools.permutations(it, 2))
    list(itertools.combinations_with_replacement(it, 2))
    itertools.product(it, [1]) is None
    next(itertools.accumulate(it))
    list(itertools.accumulate(it))
    list(itertools.accumulate(it, max, initial=0))
    next(itertools.groupby(it))[0]
    [k for k, g in itertools.groupby(it, lambda i: i == 1)]
    next(itertools.tee(it)[0])
    list(itertools.islice(itertools.cycle(it), 3))
    list(itertools.islice(itertools.cycle(it), 7))
    list(itertools.compress(it, [1, 0, 1]))
    list(itertools.compress("abc", it))
    list(itertools.starmap(pair, ((i, i) for i in it)))
    list(itertools.starmap(pair, it))
    list(itertools.filterfalse(lambda i: i == 2, it))
    next(itertools.pairwise(it))
    list(itertools.pairwise(it))
    functools.reduce(operator.add, it)
    functools.reduce(operator.add, it, 10)
    math.prod(it)
    math.fsum(it)
    math.gcd(*it)
    heapq.nsmallest(2, it)
    heapq.nlargest(1, it)
    list(heapq.merge(it, [2]))
    statistics.mean(it)
    operator.length_hint(it, 3)
    isinstance(it, types.GeneratorType)
    list(enumerate(it))
    types.SimpleNamespace(**dict((str(i), i) for i in it))
    list(string.Formatter().parse("a")) and next(it)
    list(it) + list(it)
    (1 in it, 1 in it, 3 in it)
    (any(i == 2 for i in it), list(it))
    list(zip(it, it, it))
    tuple(zip(it, it))[0]
    torch.stack([torch.ones(()) * i for i in it]).sum()
    torch.tensor(list(it))
""")
    .strip()
    .splitlines()
)

# A generator, and an iterator that is none.
SOURCES = (
    "source([1, 2, 3, 4, 5])",
    "source([1, [2], 3])",
    "source([1, 2, 'boom', 4])",
    "source([])",
    "Taken([1, [2], 3])",
    "Taken([1, 2, 'boom', 4])",
)


@pytest.fixture(scope="module")
def space() -> dict[str, Any]:
    made: dict[str, Any] = {"__name__": "laziness"}
    exec(compile(DEFINITIONS, "<laziness definitions>", "exec"), made)
    return made


def program(space: dict[str, Any], consumer: str) -> Any:
    """A function that has the consumer take from each of the sources, one after the other."""
    text = "def f(t):\n out = [t + 1]\n"
    for source in SOURCES:
        text += textwrap.indent(
            textwrap.dedent(f"""
            it = {source}
            try:
                result = {consumer}
            except Exception as error:
                result = type(error), str(error)
            out.append((result, list(log)))
            log.clear()
            try:
                out.append(list(it))
            except Exception as error:
                out.append((type(error), str(error)))
            out.append(list(log))
            log.clear()
            """),
            " ",
        )
    exec(compile(text + " return out\n", "<laziness>", "exec"), space)
    return space["f"]


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_items_taken(space, consumer):
    function = program(space, consumer)
    t = torch.ones(2)
    expected = function(t)
    captured, record = compiled(function)
    assert repr(captured(t)) == repr(expected)
    assert repr(captured(t)) == repr(expected)
    reasons = [b.reason for r in record.context.records for b in r.breaks]
    assert not [reason for reason in reasons if "fault" in reason]
