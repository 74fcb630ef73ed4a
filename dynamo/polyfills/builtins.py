"""C functions that call the program's functions, said in Python: captured in their place where an
operand reaches the program's code (see values/builtins/polyfill_calls.py).

Calls and their order are as in C. The frames of these functions are hidden: nobody
sees them in a traceback. A break stands in one of them only where a loop asks an iterator.
"""

# ruff: noqa: SIM110, SIM113  (a generator expression would be another frame, enumerate another call)
from __future__ import annotations

import collections
import itertools
import operator
import types
import warnings

from dynamo.polyfills import mark

mark(globals(), hidden=True, breakable=True)

_MISSING = object()
NUMBERS = (int, float, complex, bool)


# -- all items of an iterable ---------------------------------------------------------------------
def make_list(iterable, /):
    items = []
    for item in iterable:
        items.append(item)
    return items


def make_tuple(iterable, /):
    items = []
    for item in iterable:
        items.append(item)
    return tuple(items)


def make_set(iterable, /):
    items = set()
    for item in iterable:
        items.add(item)
    return items


def make_frozenset(iterable, /):
    return frozenset(make_set(iterable))


def make_deque(iterable, maxlen=None):
    items = collections.deque(maxlen=maxlen)
    for item in iterable:
        items.append(item)
    return items


def make_dict(pairs, /, **named):
    items = {}
    update(items, pairs, **named)
    return items


def make_ordered(pairs, /, **named):
    items = collections.OrderedDict()
    update(items, pairs, **named)
    return items


def update(target, pairs, /, **named):
    """target.update(pairs, **named) of a dict, where pairs are drawn from an iterator."""
    number = 0
    for pair in pairs:
        if type(pair) not in (tuple, list) or len(pair) != 2:
            *_, pair = type(target)([((), ())] * number + [pair]).items()  # C finds the faults
        target[pair[0]] = pair[1]
        number += 1
    target.update(named)


def extend(target, iterable):
    for item in iterable:
        target.append(item)


def join(separator, iterable, /):
    return separator.join(make_list(iterable))


def unpack(iterable, count):
    """The items of which there must be `count`."""
    items = []
    for item in iterable:
        if len(items) == count:
            raise ValueError(f"too many values to unpack (expected {count})")
        items.append(item)
    if len(items) < count:
        raise ValueError(f"not enough values to unpack (expected {count}, got {len(items)})")
    return items


def unpack_rest(iterable, before, after):
    """The same with a starred variable in between: all other items are its list."""
    iterator = iter(iterable)
    items = []
    if type(getattr(type(iterator), "__iter__", None)) is types.FunctionType:
        while len(items) < before:  # a loop over the iterator would call its __iter__
            item = next(iterator, _MISSING)
            if item is _MISSING:
                break
            items.append(item)
    elif before:
        for item in iterator:
            items.append(item)
            if len(items) == before:
                break
    if len(items) == before:
        items += make_list(iterator)
    if len(items) < before + after:
        least = f"not enough values to unpack (expected at least {before + after}"
        raise ValueError(f"{least}, got {len(items)})")
    return around_star(items, before, after)


def unpack_generated(iterator, before, after):
    """The same of a generator, which nobody sees asked for a list."""
    items = []
    for item in iterator:
        items.append(item)
    if len(items) < before + after:
        least = f"not enough values to unpack (expected at least {before + after}"
        raise ValueError(f"{least}, got {len(items)})")
    return around_star(items, before, after)


def around_star(items, before, after):
    """The values of the variables. (values/iterators/polyfill_fast_paths.py does this at once.)"""
    end = len(items) - after
    return [*items[:before], items[before:end], *items[end:]]


def add_all(target, iterable):
    for item in iterable:
        target.add(item)


def item_at(items, place):
    return items[place]


def call_starred(function, iterable, kwargs):
    items = make_list(iterable)
    return function(*items, **kwargs)


def product_of(iterables, kwargs):
    """itertools.product(*iterables, **kwargs)"""
    pools = []
    for iterable in iterables:
        pools.append(make_list(iterable))
    return itertools.product(*pools, **kwargs)


def find(iterable, item):
    """item in iterable, where only iteration tells."""
    for other in iterable:
        if other is item or other == item:
            return True
    return False


def count_in(items, item, /):
    count = 0
    for other in items:
        if other is item or other == item:
            count += 1
    return count


def index_of(items, item, /):
    """operator.indexOf"""
    place = 0
    for other in items:
        if other is item or other == item:
            return place
        place += 1
    raise ValueError("sequence.index(x): x not in sequence")


def index_in(items, item, /):
    """items.index(item) of a list or tuple."""
    place = 0
    for other in items:
        if other is item or other == item:
            return place
        place += 1
    return type(items)().index(item)  # which says that it is missing


def remove_from(items, item, /):
    place = 0
    for other in items:
        if other is item or other == item:
            break
        place += 1
    else:
        [].remove(item)
    del items[place : place + 1]  # comparing may have taken items away


def equal_lists(left, right):
    if len(left) != len(right):
        return False
    place = 0
    for one, other in zip(left, right):
        if not (one is other or one == other):  # comparing may have taken items away
            return len(left) == len(right) <= place
        place += 1
    return len(left) == len(right)


def equal_tuples(left, right):
    for one, other in zip(left, right):
        if not (one is other or one == other):
            return False
    return len(left) == len(right)


# -- functions over iterables ---------------------------------------------------------------------
def any_of(iterable, /):
    for item in iterable:
        if item:
            return True
    return False


def all_of(iterable, /):
    for item in iterable:
        if not item:
            return False
    return True


def sum_of(iterable, /, start=0):
    if isinstance(start, (str, bytes, bytearray)):
        return sum((), start)  # which refuses it
    if type(start) in NUMBERS:
        return sum_numbers(iterable, start)
    for item in iterable:
        start = start + item
    return start


def sum_numbers(iterable, total=0, /):
    """The sum that starts with a number."""
    numbers = []  # added up as C does that
    only_numbers = True
    for item in iterable:
        if only_numbers and type(item) in NUMBERS:
            numbers.append(item)
        else:
            if only_numbers:
                total = sum(numbers, total)
                only_numbers = False
            total = total + item
    return sum(numbers, total) if only_numbers else total


def smallest(*args, key=None, default=_MISSING):
    chosen = best = None
    first = True
    for item in args[0] if len(args) == 1 else args:
        value = item if key is None else key(item)
        if key is None and type(item) in NUMBERS and type(best) in NUMBERS:
            chosen = best = min(best, item)  # of sizes, without a guard on which one it is
        elif first or value < best:
            chosen, best, first = item, value, False
    if not first:
        return chosen
    return min(()) if default is _MISSING else default


def largest(*args, key=None, default=_MISSING):
    chosen = best = None
    first = True
    for item in args[0] if len(args) == 1 else args:
        value = item if key is None else key(item)
        if key is None and type(item) in NUMBERS and type(best) in NUMBERS:
            chosen = best = max(best, item)  # of sizes, without a guard on which one it is
        elif first or value > best:
            chosen, best, first = item, value, False
    if not first:
        return chosen
    return max(()) if default is _MISSING else default


def sort_new(iterable, /, *, key=None, reverse=False):
    items = list(iterable)
    if key is None:
        items.sort(reverse=reverse)
    else:
        sort_with(items, [key(item) for item in items], reverse)
    return items


def sort_by(items, /, *, key, reverse=False):
    """items.sort(key=key, reverse=reverse) of a list, which is empty meanwhile."""
    taken = items[:]
    items.clear()
    try:
        sort_with(taken, [key(item) for item in taken], reverse)
    finally:
        changed = len(items) > 0
        items[:] = taken
    if changed:
        raise ValueError("list modified during sort")


def sort_with(items, keys, reverse):
    """Sort a list by the keys of its items (iterators/polyfill_fast_paths.py does so at once)."""
    before, order = items[:], list(range(len(items)))
    try:
        order.sort(key=keys.__getitem__, reverse=reverse)
    finally:
        items[:] = [before[place] for place in order]


def reduce(function, iterable, initial=_MISSING, /):
    if not hasattr(type(iterable), "__iter__") and not hasattr(type(iterable), "__getitem__"):
        raise TypeError("reduce() arg 2 must support iteration")
    total = initial
    for item in iterable:
        if total is _MISSING:
            total = item
        else:
            total = function(total, item)
    if total is _MISSING:
        raise TypeError("reduce() of empty iterable with no initial value")
    return total


def prod(iterable, start, /):
    for item in iterable:
        start = start * item
    return start


def count_elements(mapping, iterable, /):
    """collections._count_elements"""
    for item in iterable:
        mapping[item] = mapping.get(item, 0) + 1


def draw(iterator):
    """A generator of the next item of an iterator, in which a break can stand."""
    for item in iterator:
        yield item
        return


def next_row(iterators):
    """next(zip(*iterators)), which loses the row in which an iterator is at its end."""
    row = []
    for iterator in iterators:
        row.append(next(iterator))
    return tuple(row)


def next_mapped(function, iterators):
    """next(map(function, *iterators))."""
    return function(*next_row(iterators))


def next_mapped_of_one(function, iterator):
    """next(map(function, iterator))."""
    return function(next(iterator))


def next_starred(function, iterator):
    """next(itertools.starmap(function, iterator))."""
    return function(*tuple(next(iterator)))


def next_kept(function, iterator):
    """The next item of filter(function, iterator)."""
    for item in iterator:
        if item if function is None else function(item):
            return item
    raise StopIteration


def next_left_out(function, iterator):
    """The next item of itertools.filterfalse."""
    for item in iterator:
        if not (item if function is None else function(item)):
            return item
    raise StopIteration


def next_taken(iterator, predicate, item):
    """The next item of itertools.takewhile, which has drawn `item`."""
    if predicate(item):
        return item
    set_state(iterator, True)
    raise StopIteration


def next_not_dropped(iterator, predicate, inner):
    """The first item of itertools.dropwhile."""
    for item in inner:
        if not predicate(item):
            set_state(iterator, True)
            return item
    raise StopIteration


def next_total(iterator, function, total, item):
    """The next item of itertools.accumulate, which has drawn `item`."""
    total = function(total, item)
    set_state(iterator, total)
    return total


def set_state(iterator, state):
    """Set the state of an iterator of itertools: whether takewhile has ended, whether dropwhile has
    begun, the total of accumulate. (Captured iterators: values/iterators/itertools_iterators.py.)
    """
    with warnings.catch_warnings():  # Python 3.14 has no such method any more
        warnings.simplefilter("ignore", DeprecationWarning)
        iterator.__setstate__(state)


# -- regular expressions --------------------------------------------------------------------------
def substitute(pattern, /, repl, string, count=0):
    """pattern.sub(repl, string, count) of a function `repl`."""
    return substitute_counted(pattern, repl, string, count)[0]


def substitute_counted(pattern, /, repl, string, count=0):
    """pattern.subn(repl, string, count) of a function `repl`."""
    count = operator.index(count)
    pieces = []
    position = made = 0
    for match in list(pattern.finditer(string)):
        if count and made >= count:
            break
        if position < match.start():
            pieces.append(string[position : match.start()])
        piece = repl(match)
        if piece is not None:
            pieces.append(piece)
        position = match.end()
        made += 1
    if position < len(string):
        pieces.append(string[position:])
    return string[:0].join(pieces), made


# -- attributes and items --------------------------------------------------------------------------
def has_attribute(owner, name, /):
    try:
        getattr(owner, name)
    except AttributeError:
        return False
    return True


def get_or_default(owner, name, default, /):
    try:
        return getattr(owner, name)
    except AttributeError:
        return default


def get_attribute(owner, name):
    """operator.attrgetter(name)(owner)"""
    return getattr(owner, name)


def get_item(owner, key):
    return owner[key]


def get_item_at(owner, key):
    """owner[key] of a built-in sequence, where the key is an object with __index__."""
    return owner[operator.index(key)]


def call_method(owner, name, args, kwargs):
    """operator.methodcaller(name, *args, **kwargs)(owner)"""
    return getattr(owner, name)(*args, **kwargs)


def make_range(*args):
    numbers = []
    for number in args:
        numbers.append(operator.index(number))
    return range(*numbers)


# -- texts -----------------------------------------------------------------------------------------
_CONVERSIONS = {"s": str, "r": repr, "a": ascii}


def show(*values, sep=" ", end="\n"):
    """print(*values, sep=sep, end=end)"""
    if values:
        print(str(values[0]), end=sep if len(values) > 1 else end)
    else:
        print(end, end="")
    if len(values) > 1:
        show(*values[1:], sep=sep, end=end)


def percent(text, conversions, values):
    """`text % values`, where all that is asked for are texts; `text` asks by %s for all of them."""
    return text % _converted(conversions, values)


def _converted(conversions, values):
    """Convert by recursion: conversions are few, and each may be a graph with its surroundings."""
    if not conversions or not values:
        return values
    first = _CONVERSIONS[conversions[0]](values[0])
    return (first, *_converted(conversions[1:], values[1:]))


def format_text(pieces, args, kwargs):
    """str.format: pieces of literal text, each followed by its value, if any."""
    if not pieces:
        return ""
    text, key, kind, spec = pieces[0]
    if key is not None:
        value = kwargs[key] if isinstance(key, str) else args[key]
        if kind is not None:
            value = _CONVERSIONS[kind](value)
        text += format(value, spec)
    return text + format_text(pieces[1:], args, kwargs)


# -- classes --------------------------------------------------------------------------------------
def inherits(kind, cls):
    """issubclass(kind, cls) that asks no __subclasscheck__."""
    return cls in kind.__mro__


def construct(cls, new, args, kwargs):
    """type.__call__."""
    instance = new(cls, *args, **kwargs)
    kind = type(instance)
    if inherits(kind, cls):
        initialise(instance, kind.__init__, instance, *args, **kwargs)
    return instance


def initialise(instance, init, /, *args, **kwargs):
    """The instance, once `init` has been called."""
    result = init(*args, **kwargs)
    if result is not None:
        name = type(result).__name__
        raise TypeError(f"__init__() should return None, not {name!r}")
    return instance
