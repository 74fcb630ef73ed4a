"""Loops of polyfills that take turns natively, up to the item that needs the program's code."""

from __future__ import annotations

from tests.dynamo.break_support import broken, checks_of, note, registry

PROGRAMS, program = registry()


def mixed(x, *items):
    """Breaks before the third item."""
    for i, item in enumerate(items):
        if i == 2:
            note("third")
        yield item


@program(5, 1)
def numbers_then_tensors(x):
    y = x * 2
    return sum(mixed(x, 1, 2.5, y, 3, y + 1)), sum((1, 2, y)), sum((v for v in (1, 2)), 0.5)


@program(1, 2)
def truths(x):
    y = x + 1
    return any(mixed(x, 0, "", 3, y)), all(v for v in (1, "a", 0, y)), all([]), y


@program(1, 4)
def chosen(x):
    y = x + 1
    found = max(mixed(x, 3, 7, 7.0, 9, 2)), min(v for v in (4, True, 0, -1)), y
    return found, max(v for v in "abc"), min((v for v in ()), default=5)


@program(1, 0)
def chosen_first_of_equals(x):
    numbers = [1, True, 1.0, 0, False]
    return repr(max(v for v in numbers)), repr(min(v for v in numbers)), x + 1


@program(0, 1)
def not_comparable(x):
    return max(v for v in (1, 2, "a"))


@program(1, 1)
def variables(x):
    a, *rest, b = mixed(x, 1, 2, 3, 4)
    c, d = (v for v in (5, 6))
    *more, e = (v for v in (7,))
    return a, rest, b, c, d, more, e, x + 1


@program(0, 1)
def too_few(x):
    a, b, *c = (v for v in (1,))


@program(0, 1)
def too_many(x):
    a, b = (v for v in (1, 2, 3))


@program(1, 6)
def containers(x):
    y = x + 1
    made = list(mixed(x, 1, y, 3)), tuple(v for v in (1, y)), set(v for v in (1, 2, 1))
    items = [0]
    items.extend(v for v in (1, y))
    return made, items, {*(v for v in (3, 4))}, ",".join(v for v in "abc")


@program(0, 1)
def unhashable(x):
    return set(v for v in (1, [2]))


@program(1, 1)
def arranged(x):
    def key(word):
        if word == "ccc":
            note("key")
        return len(word)

    words = ["dd", "ccc", "a", "ee"]
    words.sort(key=key)
    return words, sorted("bca", key=lambda c: -ord(c)), sorted((3, 1), key=abs, reverse=True), x + 1


class Backwards:
    def __init__(self, n):
        self.n = n

    def __lt__(self, other):
        return self.n > other.n


@program(1, 0)
def arranged_by_objects(x):
    return sorted(range(4), key=Backwards), sorted([3, 1, 2], key=lambda n: (n % 2, n)), x + 1


@program(1, 0)
def arranged_while_it_fails(x):
    words = ["b", "a", 3]
    try:
        words.sort(key=lambda word: word.upper())
    except AttributeError as error:
        return words, str(error), x + 1


@program(2, 1)
def broken_in_the_body(x):
    return max((1, 2, 3), key=lambda n: n if n < 3 else (broken(x, "key"), -n)[1]), x + 1


test_program = checks_of(PROGRAMS)
