"""Generators that the captured code has made, made again as objects.

The rewritten frame calls these functions; or a continuation does, at its start, where they are
captured like user code: the generator goes on in the graph (framestate/virtual_objects.py).
"""

from __future__ import annotations

import itertools
import types
from collections.abc import Callable
from typing import Any

from dynamo.bytecode.versions import CLOSE_RETURNS_VALUE
from dynamo.polyfills import mark

mark(globals(), hidden=True, breakable=True)


def call_again(function: Callable[..., Any], names: tuple[str, ...], *args: Any) -> Any:
    """function(*args), the last ones by `names`."""
    count = len(args) - len(names)
    return function(*args[:count], **dict(zip(names, args[count:])))


def rest_of(function: Callable[..., Any], *args: Any) -> Any:
    """The rest of a generator: of a function that begins behind a graph break in it."""
    return function(*args)


def start(function: Callable[..., Any], *args: Any) -> Any:
    """The generator of a function that make_generator_code made, suspended where it was."""
    made = function(*args)
    made.send(None)
    return made


# -- callables after a graph break in the call that resumed a generator --------------------------
def proceed(generator: Any, *_: Any) -> Any:
    """generator.throw(...), with the exception that has just been raised."""
    return generator.send(None)


def finish_closing(generator: Any) -> Any:
    """generator.close(): GeneratorExit has been raised."""
    try:
        generator.send(None)
    except StopIteration as stop:
        return stop.value if CLOSE_RETURNS_VALUE else None
    except GeneratorExit:
        return None
    raise RuntimeError("generator ignored GeneratorExit")


def left_generator(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` runs in place of a generator, which StopIteration leaves as RuntimeError."""

    def resumed(*args: Any) -> Any:
        try:
            return function(*args)
        except StopIteration as error:
            raise RuntimeError("generator raised StopIteration") from error

    return resumed


# -- closures over holders of generators ----------------------------------------------------------
class FunctionMaker:
    """Called with cells, makes a function over them. The same code and globals: the same maker."""

    def __init__(self, code: types.CodeType, namespace: dict[str, Any]) -> None:
        self.code = code
        self.namespace = namespace

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FunctionMaker):
            return False
        return self.code is other.code and self.namespace is other.namespace

    def __hash__(self) -> int:
        return id(self.code)

    def __call__(self, *cells: types.CellType) -> types.FunctionType:
        return types.FunctionType(self.code, self.namespace, self.code.co_name, None, cells)


def with_defaults(function: Any, defaults: Any, keyword_defaults: Any, annotations: Any) -> Any:
    function.__defaults__ = defaults
    function.__kwdefaults__ = keyword_defaults
    if annotations is not None:
        function.__annotations__ = annotations
    return function


def make_cell() -> types.CellType:
    return types.CellType()


def fill_cell(cell: types.CellType, contents: Any) -> None:
    cell.cell_contents = contents


# -- holders of generators ------------------------------------------------------------------------
def make_list(*items: Any) -> list:
    return [*items]


def make_tuple(*items: Any) -> tuple:
    return items


def make_dict(*keys_and_items: Any) -> dict:
    return dict(zip(keys_and_items[::2], keys_and_items[1::2]))


def make_object(cls: type, names: tuple[str, ...], *values: Any) -> Any:
    made: Any = object.__new__(cls)
    for name, value in zip(names, values):
        object.__setattr__(made, name, value)
    return made


def items_of(iterator: Any) -> Any:
    """Iterate over an object that capture does not look into, in a frame where a graph break can
    stand at each item.
    """
    for item in iterator:  # noqa: UP028  (a break stands at FOR_ITER)
        yield item


def iterate_from(sequence: Any, position: int) -> Any:
    """iter(sequence) after `position` items."""
    iterator = iter(sequence)
    for _ in range(position):
        next(iterator)
    return iterator


def chain_after(inner: Any, outer: Any) -> Any:
    return itertools.chain(inner, itertools.chain.from_iterable(outer))


# Captured, these are the objects that they stand for (values/functions/function_maker.py).
def zip_again(strict: bool, taken: int, *operands: Any) -> Any:
    """zip(...) whose first iterators have been asked for items of the row that comes next: `taken`
    items, then all iterators.
    """
    return zip(*_before(taken, operands), strict=strict)


def map_again(function: Any, taken: int, *operands: Any) -> Any:
    return map(function, *_before(taken, operands))


def zip_longest_again(padding: Any, taken: int, *operands: Any) -> Any:
    """zip_longest(...), as zip_again; None stands for an iterator that has ended."""
    iterators = [() if iterator is None else iterator for iterator in operands[taken:]]
    iterators = _before(taken, (*operands[:taken], *iterators))
    return itertools.zip_longest(*iterators, fillvalue=padding)


def _before(taken: int, operands: tuple) -> list:
    iterators = list(operands[taken:])
    for place in range(taken):
        iterators[place] = itertools.chain([operands[place]], iterators[place])
    return iterators


class Drawn:
    """The iterator `inner`, whose next item comes from a generator that has begun to draw it."""

    def __init__(self, generator: Any, inner: Any) -> None:
        self.generator = generator
        self.inner = inner

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        generator, self.generator = self.generator, None
        return next(self.inner if generator is None else generator)


def pairs_from(left: Any, inner: Any) -> Any:
    """pairwise() whose next pair begins with `left`."""
    return itertools.pairwise(itertools.chain((left,), inner))


def accumulated(inner: Any, function: Any, total: Any) -> Any:
    """accumulate() whose last item was `total`."""
    made = itertools.accumulate(inner, function, initial=total)
    next(made)
    return made


def dropping_nothing(inner: Any) -> Any:
    """dropwhile() in the state after dropping."""
    return itertools.dropwhile(lambda item: False, inner)
