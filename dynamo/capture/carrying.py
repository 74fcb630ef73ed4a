"""Generators that live on behind a graph break.

A generator that is suspended in the captured code, or that a break stands in, is no object yet, and
as an object it would be closed to capture. Where only variables and the stack of the frames at the
break hold it, they do not get the object: the continuation gets what it is made of, and makes it
at its start, by functions of values/remade.py (see resume.Made). So capture goes on in it.

    for y in gen(x):                     # continuation, of the call that breaks
        print(y)                         it = start(gen_from_its_yield, i, x)
                                         y is bound, the loop goes on: `it` is captured

The same is done with what holds the generator, if the captured code has made that: an iterator, a
list, a context manager. What something else holds (a cell, an object from outside, the instruction
that breaks) becomes an object in the rewritten frame.
"""

from __future__ import annotations

import itertools
import types
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from dynamo.capture.dropping import SuspendedGenerator
from dynamo.capture.side_effects import DELETED
from dynamo.errors import Unsupported
from dynamo.resume import users_name
from dynamo.resume_parts import AllMade, Made
from dynamo.values.base import Value
from dynamo.values.builder import Lazy
from dynamo.values.constant import ConstantValue
from dynamo.values.containers import DequeValue, ListValue, SequenceValue, TupleValue
from dynamo.values.coroutine import AsyncGeneratorValue, AsyncStep
from dynamo.values.descriptors import MISSING, class_lookup
from dynamo.values.function import MethodValue
from dynamo.values.generator import GeneratorFunction, GeneratorValue
from dynamo.values.iterators import IteratorValue, iterator_at
from dynamo.values.objects import ObjectValue, builtin_base
from dynamo.values.real_iterators import REAL
from dynamo.values.remade import (
    accumulated,
    ask_again,
    call_again,
    chain_after,
    dropping_nothing,
    go_on,
    iterate_from,
    make_deque,
    make_list,
    make_object,
    make_tuple,
    map_again,
    pairs_from,
    zip_again,
)

if TYPE_CHECKING:
    from dynamo.capture.output import OutputGraph
    from dynamo.reconstruct import Codegen

Ingredients = tuple[Callable[..., Any], Sequence[Any]]
# What makes iterators again -> what does so in a continuation, where it is captured.
_ITERATORS: dict[Callable[..., Any], Callable[..., Any]] = {
    function: function
    for function in (enumerate, zip, map, filter, itertools.chain.from_iterable, chain_after)
    + (itertools.islice, itertools.starmap, itertools.takewhile, itertools.dropwhile)
    + (itertools.compress, itertools.filterfalse, itertools.pairwise, zip_again, map_again, iter)
    + (pairs_from, accumulated, dropping_nothing)
}
_ITERATORS[iterator_at] = iterate_from
_SEQUENCES: dict[type[Value], type] = {ListValue: list, TupleValue: tuple, DequeValue: deque}
_KINDS = (GeneratorValue, AsyncStep, IteratorValue, MethodValue, ObjectValue, SequenceValue)


class HeldElsewhere(Exception):
    """Some values cannot be carried: emission starts again without that."""


@dataclass(frozen=True)
class Ended:
    """An argument that is a generator which has run to its end."""

    generator: GeneratorValue

    def push(self, codegen: Codegen) -> None:
        self.generator.reconstruct_finished(codegen)


@dataclass(frozen=True)
class Carried:
    """function(*arguments): arguments of the continuation's call, or others that are carried.

    code: the generator's, as it goes on.
    """

    value: Value
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    code: types.CodeType | None = None

    def name(self, place: int) -> str:
        """What an argument is for the user."""
        if self.code is None:
            return f"what {self.value.describe()} holds"
        if place == 0:
            return f"generator {self.code.co_name}"
        held = self.code.co_varnames[: self.code.co_argcount]
        if self.function is call_again or place > len(held):
            return f"an argument of {self.code.co_name}"
        return f"{users_name(self.code, held[place - 1])} of {self.code.co_name}"


class Carrying:
    """What one break carries. `resumed`: the generators that the break stands in. ends: those whose
    end is noticed, too (see `end`).
    """

    def __init__(
        self, output: OutputGraph, resumed: Sequence[GeneratorValue], reason: Any, ends: bool
    ) -> None:
        self.output = output
        self.ends = ends
        self.resumed = {id(generator) for generator in resumed}
        self.reason = reason
        self.slots: dict[str, Value] = {}  # the locals that would hold what is carried
        self._kept: dict[int, Carried] = {}
        self._leaves: list[Value] = []
        self._locals = 0
        self._passed: dict[int, int] = {}

    def start(self) -> None:
        """Emission begins."""
        self.slots.clear()
        self._kept.clear()
        self._leaves.clear()
        self._locals = 0

    # -- what is carried ------------------------------------------------------------------------
    def store(self, codegen: Codegen, value: Value | Lazy, local: str) -> None:
        """Store a value in a local of the rewritten frame, or see to it that what it is made of
        is.
        """
        if not self.takes(codegen, value, local):
            codegen(value)
            codegen.store_fast(local)

    def takes(self, codegen: Codegen, value: Value | Lazy, local: str) -> bool:
        """Whether the local that holds `value` gets nothing: it is carried."""
        if not isinstance(value, Value) or not self._carries(value):
            return False
        self.slots[local] = value
        self._keep(codegen, value)
        return True

    def _carries(self, value: Value) -> bool:
        """Whether `value` is, or holds, a generator that can be carried."""
        if not self.output.has_generators:
            return False
        held: dict[int, Value] = {}
        todo = [value]
        while todo:
            found = todo.pop()
            if id(found) in held or not self._can_be_made(found):
                continue
            if isinstance(found, GeneratorValue):
                return True
            held[id(found)] = found
            todo += _parts(found)
        return False

    def _can_be_made(self, value: Value) -> bool:
        output = self.output
        watched = output.watched.get(id(value))
        if watched is not None and not (self.ends and isinstance(watched, SuspendedGenerator)):
            return False
        if not isinstance(value, _KINDS) or value.source is not None:
            return False
        if id(value) in output.held_elsewhere:
            return False
        if id(value) in output.filled_later or value.holder is not None:
            return False
        if isinstance(value, GeneratorValue):
            if value.resumed:
                return id(value) in self.resumed
            stepping = isinstance(value, AsyncGeneratorValue) and value.stepping
            return not (value.running or value.frame.done or stepping)
        if isinstance(value, AsyncStep):
            return value.asking is not None and id(value.asking) in self.resumed
        if isinstance(value, IteratorValue):
            return not (value.exhausted or value.spoiled()) and value.rebuild()[0] in _ITERATORS
        if isinstance(value, ObjectValue):
            return type(value) is ObjectValue and _is_plain(output, value)
        if isinstance(value, SequenceValue):
            plain = type(value) in _SEQUENCES and value.cls in _SEQUENCES.values()
            return plain and all(isinstance(item, Value) for item in value.contents)
        return True

    def _keep(self, codegen: Codegen, value: Value) -> None:
        """Emit what `value` is made of."""
        if id(value) in self._kept or id(value) in self.resumed:
            return
        function, operands = _ingredients(self.output, value)
        arguments: list[Any] = []
        code = value.frame.code if isinstance(value, GeneratorValue) else None
        self._kept[id(value)] = Carried(value, function, ())
        for operand in operands:
            if isinstance(operand, Value) and self._carries(operand):
                self._keep(codegen, operand)
                arguments.append(operand)
                continue
            local = f".carried{self._locals}"
            self._locals += 1
            if isinstance(operand, GeneratorFunction):
                code = operand.code
                operand.push(codegen)
                self._leaves += operand.cells()
            else:
                codegen(operand)
                self._leaves += [operand] if isinstance(operand, Value) else []
            codegen.store_fast(local)
            arguments.append(local)
        self._kept[id(value)] = Carried(value, function, tuple(arguments), code)

    def roots(self, values: Iterable[Value]) -> list[Value]:
        """What stays alive, of values that may be carried."""
        carried = {*self._kept, *self.resumed}
        return [*(value for value in values if id(value) not in carried), *self._leaves]

    # -- the call of the continuation -----------------------------------------------------------
    def rest(
        self, generator: Value, code: types.CodeType, function: Any, arguments: Sequence[Any]
    ) -> Carried:
        """A generator that the break stands in: go_on(function, *arguments) is what is left of it,
        of a function with this code.
        """
        inner = [self.slots.get(a, a) if isinstance(a, str) else a for a in arguments]
        return Carried(generator, go_on, (function, *inner), code)

    def split(
        self, passed: Sequence[Any], rests: dict[int, Carried | Ended]
    ) -> tuple[AllMade, list[Any]]:
        """What a continuation makes, and the arguments of the call of it, where these would have
        been `passed`. rests: what is left of the generators that the break stands in.
        """
        order = _Order({**self._kept, **rests}, self.reason)
        arguments: list[Any] = []
        self._passed = order.numbers
        try:
            for place, argument in enumerate(passed):
                value = self.slots.get(argument) if isinstance(argument, str) else None
                if value is None:
                    arguments.append(argument)
                elif isinstance(ended := rests.get(id(value)), Ended):
                    arguments.append(ended)
                else:
                    order.places.setdefault(order.add(value), []).append(place)
        except HeldElsewhere as error:
            self._refuse({id(value) for value in error.args})
        return order.made(), [*arguments, *order.leaves]

    def end(self, codegen: Codegen, passed: bool, raised: bool) -> None:
        """What is not passed on (where `passed`: to the continuation of the latest `split`) is made
        now, and ends. raised: variables live as long as the exception's traceback does.
        """
        gone = [
            (local, value)
            for local, value in reversed(self.slots.items())
            if self._end_is_noticed(value) and not (passed and id(value) in self._passed)
        ]
        if not gone:
            return
        order = _Order({**self._kept}, self.reason)
        numbers = [order.add(value) for _, value in gone]
        leaves = iter(order.leaves)
        for number, item in enumerate(order.made()):
            codegen.load_callable(partial(codegen.load_const, item.function))
            for argument in item.arguments:
                codegen.load_fast(next(leaves) if argument is None else f".part{argument}")
            codegen.call(len(item.arguments))
            codegen.store_fast(f".part{number}")
        for (local, _), number in zip(gone, numbers):
            if raised and ".stack" not in local and ".pushed" not in local:
                codegen.load_fast(f".part{number}")
                codegen.store_fast(local)
        for number in range(len(order.made())):
            codegen.delete_fast(f".part{number}")

    def _end_is_noticed(self, value: Value) -> bool:
        """Whether `value` is, or holds, what is suspended where closing it runs code."""
        todo, seen = [value], set()
        while todo:
            found = todo.pop()
            if id(found) in self.output.watched:
                return True
            if id(found) not in seen and id(found) in self._kept:
                seen.add(id(found))
                arguments = self._kept[id(found)].arguments
                todo += [argument for argument in arguments if isinstance(argument, Value)]
        return False

    @property
    def ends_noticed(self) -> bool:
        return any(self._end_is_noticed(value) for value in self.slots.values())

    def finish(self, codegen: Codegen) -> None:
        """Emission ends: nothing else may have needed what is carried."""
        refused = {key for key in (*self._kept, *self.resumed) if codegen.uses[key]}
        if refused:
            self._refuse(refused)

    def give_up(self) -> NoReturn:
        self._refuse({*self._kept, *self.resumed})

    def _refuse(self, values: set[int]) -> NoReturn:
        if values & self.resumed:
            raise Unsupported(self.reason)
        self.output.held_elsewhere |= values
        raise HeldElsewhere


class _Order:
    """What a continuation makes, in order: first what others are made of."""

    def __init__(self, carried: dict[int, Carried | Ended], reason: Any) -> None:
        self.carried = carried
        self.reason = reason
        self.places: dict[int, list[int]] = {}
        self.leaves: list[Any] = []
        self.numbers: dict[int, int] = {}  # by id
        self._made: list[tuple[Carried, tuple[int | None, ...]]] = []
        self._open: set[int] = set()

    def add(self, value: Value) -> int:
        """The number of a carried value."""
        key = id(value)
        if key in self.numbers:
            return self.numbers[key]
        if key in self._open:  # it holds itself
            raise HeldElsewhere(value)
        if key not in self.carried:
            raise Unsupported(self.reason)
        self._open.add(key)
        found = self.carried[key]
        assert isinstance(found, Carried), "what has ended is an argument"
        arguments = [self.carried[id(a)] if self._ended(a) else a for a in found.arguments]
        numbers = [self.add(a) if isinstance(a, Value) else None for a in arguments]
        self.leaves += [a for a in arguments if not isinstance(a, Value)]
        self._made.append((found, tuple(numbers)))
        self.numbers[key] = len(self._made) - 1
        return self.numbers[key]

    def _ended(self, argument: Any) -> bool:
        return isinstance(self.carried.get(id(argument)), Ended)

    def made(self) -> AllMade:
        return tuple(
            [
                Made(
                    found.function,
                    arguments,
                    0 if found.code is None else id(found.code),
                    tuple(self.places.get(number, ())),
                    tuple([found.name(i) for i, held in enumerate(arguments) if held is None]),
                )
                for number, (found, arguments) in enumerate(self._made)
            ]
        )


# -- what values are made of ----------------------------------------------------------------------
def _is_plain(output: OutputGraph, value: ObjectValue) -> bool:
    """Whether an object that the frame makes is nothing but its attributes."""
    effects = output.side_effects
    if not effects.is_new(value) or value.storage is not None or value.new_args:
        return False
    if builtin_base(value.cls) is not object or id(value.cls) in REAL:
        return False
    if value.cls.__dictoffset__ == 0 or hasattr(value.cls, "__del__") or effects.made_classes:
        return False
    return not any(_is_set_by_code(value.cls, name) for name in _attributes(value))


def _is_set_by_code(cls: type, name: str) -> bool:
    found = class_lookup(cls, name)
    if found is MISSING or type(found) is types.MemberDescriptorType:
        return False
    return class_lookup(type(found), "__set__") is not MISSING


def _attributes(value: ObjectValue) -> dict[str, Value]:
    stored = {} if value.mutation is None else value.mutation.attrs
    return {name: attribute for name, attribute in stored.items() if attribute is not DELETED}


def _parts(value: Value) -> list[Value]:
    if isinstance(value, ObjectValue):
        return list(_attributes(value).values())
    if isinstance(value, MethodValue):
        return [value.function, value.receiver]
    return list(value.children())


def _ingredients(output: OutputGraph, value: Value) -> Ingredients:
    """A function that makes `value`, and its operands."""
    if isinstance(value, GeneratorValue):
        return value.ingredients()
    if isinstance(value, IteratorValue):
        function, operands = value.rebuild()
        return _ITERATORS[function], operands
    if isinstance(value, MethodValue):
        return types.MethodType, [value.function, value.receiver]
    if isinstance(value, AsyncStep):
        return ask_again, [value.generator]
    if isinstance(value, ObjectValue):
        attributes = _attributes(value)
        names = ConstantValue(tuple(attributes))
        cls = output.root_frame.wrap(value.cls)
        return make_object, [cls, names, *attributes.values()]
    if isinstance(value, DequeValue):
        return make_deque, [ConstantValue(value.maxlen), *value.contents]
    assert isinstance(value, SequenceValue)
    return (make_list if value.cls is list else make_tuple), value.contents
