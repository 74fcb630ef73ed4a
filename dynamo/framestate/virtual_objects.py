"""Virtual objects: generators, and their holders, that live on behind a graph break.

A generator that is suspended in the captured code, or that a break stands in, is no object yet, and
as an object it would be closed to capture. Where only variables and the stack of the frames at the
break hold it, it stays virtual: the continuation gets the operands of its recipe, and
rematerialises it at its start, by functions of polyfills/rematerialise.py (see
resume_parts.Rematerialised). So capture goes on in it. A value that anything else holds escapes,
and is materialised at the break.

    for y in gen(x):                     # continuation, of the call that breaks
        print(y)                         it = start(gen_from_its_yield, i, x)
                                         y is bound, the loop goes on: `it` is captured

The same is done with what holds the generator, if the captured code has made that: an iterator, a
list, a dict, a context manager, a closure and its cells. (A cell of the compiled frame's own is a
cell of the continuation's own then, not shared with the frame that goes on in it.) What something
else holds (an object from outside, the instruction that breaks) becomes an object in the rewritten
frame.
"""

from __future__ import annotations

import itertools
import types
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from dynamo.continuations.parts import Rematerialisations, Rematerialised
from dynamo.continuations.resume import users_name
from dynamo.errors import Unsupported
from dynamo.plans import Retry
from dynamo.polyfills.rematerialise import (
    FunctionMaker,
    accumulated,
    ask_again,
    call_again,
    chain_after,
    dropping_nothing,
    fill_cell,
    items_of,
    iterate_from,
    make_cell,
    make_dict,
    make_list,
    make_object,
    make_tuple,
    map_again,
    pairs_from,
    rest_of,
    with_defaults,
    zip_again,
)
from dynamo.values.base import Value
from dynamo.values.builder import Lazy
from dynamo.values.builtin_bases import builtin_base
from dynamo.values.cell import CellValue
from dynamo.values.constant import ConstantValue
from dynamo.values.containers import DequeValue, ListValue, SequenceValue, TupleValue
from dynamo.values.coroutine import AsyncGeneratorValue, AsyncStep
from dynamo.values.descriptors import MISSING, class_lookup
from dynamo.values.dicts import DictValue
from dynamo.values.function import MethodValue, NestedFunctionValue
from dynamo.values.generator import GeneratorFunction, GeneratorValue
from dynamo.values.lifetimes import SuspendedGenerator
from dynamo.values.objects import ObjectValue
from dynamo.values.ranges import RangeIterator
from dynamo.values.real_iterators import REAL
from dynamo.values.recipes import DICT, LIST, TUPLE, Made, Recipe, operand_values
from dynamo.values.resumed_iterators import ResumedIterator
from dynamo.values.side_effects import DELETED
from dynamo.values.stored_iterators import (
    DictIterator,
    IteratorValue,
    SequenceIterator,
    iterator_at,
)

if TYPE_CHECKING:
    from dynamo.framestate.materialise import Codegen
    from dynamo.interp.output import OutputGraph

# What makes values in bytecode -> what does so in a continuation, where it is captured.
_CAPTURED: dict[Callable[..., Any], Callable[..., Any]] = {
    iterator_at: iterate_from,
    LIST: make_list,
    TUPLE: make_tuple,
    DICT: make_dict,
}
# Makers of iterators that capture knows.
_ITERATORS = {enumerate, zip, map, filter, itertools.chain.from_iterable, chain_after, iterator_at}
_ITERATORS |= {itertools.islice, itertools.starmap, itertools.takewhile, itertools.dropwhile, iter}
_ITERATORS |= {itertools.compress, itertools.filterfalse, itertools.pairwise, zip_again, map_again}
_ITERATORS |= {pairs_from, accumulated, dropping_nothing}
# Iterators that become objects, which continuations may have to ask natively.
_PLAIN = (RangeIterator, SequenceIterator, DictIterator, ResumedIterator)
_SEQUENCES: dict[type[Value], type] = {ListValue: list, TupleValue: tuple, DequeValue: deque}
_KINDS: tuple[type[Value], ...] = (GeneratorValue, AsyncStep, IteratorValue, MethodValue)
_KINDS += (ObjectValue, SequenceValue, DictValue, NestedFunctionValue, CellValue)


@dataclass(frozen=True)
class Exhausted:
    """An argument that is a generator which has run to its end."""

    generator: GeneratorValue

    def push(self, codegen: Codegen) -> None:
        codegen.make(*self.generator.recipe_when_finished())


@dataclass(frozen=True)
class VirtualObject:
    """function(*arguments): arguments of the continuation's call (locals that hold them,
    Exhausted), or other virtual objects. code: the generator's, as it goes on.
    """

    value: Value | None
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    code: types.CodeType | None = None

    def held(self) -> list[Any]:
        return [
            argument for argument in self.arguments if isinstance(argument, (Value, VirtualObject))
        ]

    def name(self, place: int) -> str:
        """What an argument is for the user."""
        if self.code is None:
            return (
                "a closure's variable"
                if self.value is None
                else f"what {self.value.describe()} holds"
            )
        if place == 0:
            return f"generator {self.code.co_name}"
        held = self.code.co_varnames[: self.code.co_argcount]
        if self.function is call_again or place > len(held):
            return f"an argument of {self.code.co_name}"
        return f"{users_name(self.code, held[place - 1])} of {self.code.co_name}"


def over_cells(
    code: types.CodeType, namespace: dict[str, Any], cells: Sequence[Any]
) -> VirtualObject:
    """A function over cells, which are arguments of virtual objects."""
    return VirtualObject(None, FunctionMaker(code, namespace), tuple(cells))


@dataclass(frozen=True)
class Closure:
    """A function over cells."""

    code: types.CodeType
    namespace: dict[str, Any]
    cells: Sequence[Value]


class VirtualObjects:
    """The virtual objects of one break. `resumed`: the generators that the break stands in. ends:
    those whose end is noticed, too (see `end`).
    """

    def __init__(
        self, output: OutputGraph, resumed: Sequence[GeneratorValue], reason: Any, ends: bool
    ) -> None:
        self.output = output
        self.ends = ends
        self.resumed = {id(generator) for generator in resumed}
        self.reason = reason
        self.slots: dict[str, Value] = {}  # the locals that would hold the virtual objects
        self.own: dict[str, CellValue] = {}  # the compiled frame's cells that stay virtual
        self._kept: dict[int, VirtualObject] = {}
        self._leaves: list[Value] = []
        self._locals = 0
        self._passed: dict[int, int | str] = {}

    def start(self) -> None:
        """Emission begins."""
        self.slots.clear()
        self.own.clear()
        self._kept.clear()
        self._leaves.clear()
        self._locals = 0

    # -- the virtual objects ----------------------------------------------------------------
    def store(self, codegen: Codegen, value: Value | Lazy, local: str) -> None:
        """Store a value in a local of the rewritten frame, or see to it that what it is made of
        is.
        """
        if not self.takes(codegen, value, local):
            codegen(value)
            codegen.store_fast(local)

    def takes(self, codegen: Codegen, value: Value | Lazy, local: str) -> bool:
        """Whether the local that holds `value` gets nothing: it is virtual."""
        if not isinstance(value, Value) or not self._is_virtual(value):
            return False
        self.slots[local] = value
        self._keep(codegen, value)
        return True

    def takes_cell(self, codegen: Codegen, cell: CellValue, name: str, read: bool) -> bool:
        """Whether a cell of the compiled frame is virtual. read: that frame needs it itself."""
        wanted = read or id(cell) in self._kept
        if not wanted or not self._takes_cell(codegen, cell, f".cell.{name}"):
            return False
        self.own[name] = cell
        return True

    def cells(self, codegen: Codegen, cells: Sequence[Value], level: int) -> list[Any] | None:
        """The cells of a callee's frame, as arguments of virtual objects; None: none is."""
        slots = [f".{level}.cell{i}" for i in range(len(cells))]
        taken = [self._takes_cell(codegen, cell, local) for cell, local in zip(cells, slots)]
        if not any(taken):
            return None
        return [self._operand(codegen, cell) for cell in cells]

    def _takes_cell(self, codegen: Codegen, cell: Value, local: str) -> bool:
        empty = isinstance(cell, CellValue) and cell.contents is None
        if empty and self._can_be_made(cell):  # there may be a generator in it, later
            self._keep(codegen, cell)
            return True
        return self.takes(codegen, cell, local)

    def _is_virtual(self, value: Value) -> bool:
        """Whether `value` is, or holds, a generator that can stay virtual."""
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
        finalizable = output.finalizable.get(id(value))
        if finalizable is not None and not (
            self.ends and isinstance(finalizable, SuspendedGenerator)
        ):
            return False
        if not isinstance(value, _KINDS) or value.source is not None:
            return False
        if id(value) in output.emission.escaping:
            return False
        if id(value) in output.emission.filled_later or value.holder is not None:
            return False
        if isinstance(value, GeneratorValue):
            if value.resumed:
                return id(value) in self.resumed
            stepping = isinstance(value, AsyncGeneratorValue) and value.stepping
            return not (value.running or value.frame.done or stepping)
        if isinstance(value, AsyncStep):
            return value.asking is not None and id(value.asking) in self.resumed
        if isinstance(value, IteratorValue):
            return not (value.exhausted or value.spoiled()) and value.recipe()[0] in _ITERATORS
        if isinstance(value, ObjectValue):
            return type(value) is ObjectValue and _is_plain(output, value)
        if isinstance(value, SequenceValue):
            plain = type(value) in _SEQUENCES and value.cls in _SEQUENCES.values()
            return plain and all(isinstance(item, Value) for item in value.contents)
        if isinstance(value, DictValue):
            return type(value) is DictValue and _is_plain_dict(output, value)
        if isinstance(value, NestedFunctionValue):
            return _is_plain_function(value)
        if isinstance(value, CellValue):
            return value.real is None and output.side_effects.is_new(value)
        return True

    def _keep(self, codegen: Codegen, value: Value) -> None:
        """Emit what `value` is made of."""
        if id(value) in self._kept or id(value) in self.resumed:
            return
        function, operands = _recipe(self.output, value)
        code = value.frame.code if isinstance(value, GeneratorValue) else None
        if operands and isinstance(operands[0], GeneratorFunction):
            code = operands[0].code
        self._kept[id(value)] = VirtualObject(value, function, ())
        if isinstance(value, CellValue) and isinstance(value.contents, Value):
            self._keep(codegen, value.contents)
        arguments = [self._operand(codegen, operand) for operand in operands]
        if isinstance(value, IteratorValue):
            asked = _asked(value)
            for i, operand in enumerate(operands):
                if isinstance(operand, _PLAIN) and id(operand) in asked:
                    arguments[i] = VirtualObject(None, items_of, (arguments[i],))
        self._kept[id(value)] = VirtualObject(value, function, tuple(arguments), code)

    def _operand(self, codegen: Codegen, operand: Any) -> Any:
        """An argument of a virtual object."""
        if id(operand) in self._kept:
            return operand
        if isinstance(operand, Value) and self._is_virtual(operand):
            self._keep(codegen, operand)
            return operand
        if isinstance(operand, GeneratorFunction) and any(map(self._is_virtual, operand.cells())):
            operand = Closure(operand.code, operand.frame.f_globals, operand.cells())
        if isinstance(operand, Made) and any(
            map(self._is_virtual, operand_values([operand], Value))
        ):
            arguments = [self._operand(codegen, part) for part in operand.operands()]
            return VirtualObject(None, _CAPTURED.get(operand.make, operand.make), tuple(arguments))
        if isinstance(operand, Closure):
            cells = [self._operand(codegen, cell) for cell in operand.cells]
            return over_cells(operand.code, operand.namespace, cells)
        local = f".virtual{self._locals}"
        self._locals += 1
        codegen.operand(operand)
        self._leaves += operand_values([operand], Value)
        codegen.store_fast(local)
        return local

    def roots(self, values: Iterable[Value]) -> list[Value]:
        """What stays alive, of values that may stay virtual."""
        virtual = {*self._kept, *self.resumed}
        return [*(value for value in values if id(value) not in virtual), *self._leaves]

    # -- the call of the continuation -----------------------------------------------------------
    def rest(
        self, generator: Value, code: types.CodeType, function: Any, arguments: Sequence[Any]
    ) -> VirtualObject:
        """A generator that the break stands in: rest_of(function, *arguments) is what is left of
        it, of a function with this code.
        """
        inner = [self.slots.get(a, a) if isinstance(a, str) else a for a in arguments]
        return VirtualObject(generator, rest_of, (function, *inner), code)

    def split(
        self, passed: Sequence[Any], rests: dict[int, VirtualObject | Exhausted]
    ) -> tuple[Rematerialisations, list[Any]]:
        """What a continuation makes, and the arguments of the call of it, where these would have
        been `passed`. rests: what is left of the generators that the break stands in.
        """
        order = _Order(self, {**self._kept, **rests}, self.own)
        arguments: list[Any] = []
        self._passed = order.numbers
        for place, argument in enumerate(passed):
            value = self.slots.get(argument) if isinstance(argument, str) else None
            if isinstance(argument, VirtualObject):
                order.put(argument, place)
            elif value is None:
                arguments.append(argument)
            elif isinstance(exhausted := rests.get(id(value)), Exhausted):
                arguments.append(exhausted)
            else:
                order.put(value, place)
        order.fill()
        return order.made(), [*arguments, *order.leaves]

    def end(self, codegen: Codegen, passed: bool, raised: bool) -> None:
        """What is not passed on (where `passed`: to the continuation of the latest `split`) is made
        now, and ends. raised: variables live as long as the exception's traceback does.
        """
        gone = [
            (local, value)
            for local, value in reversed(self.slots.items())
            if self._end_is_observable(value) and not (passed and id(value) in self._passed)
        ]
        if not gone:
            return
        order = _Order(self, {**self._kept}, {})
        numbers = [order.add(value) for _, value in gone]
        order.fill()
        leaves = iter(order.leaves)
        for number, item in enumerate(order.made()):
            codegen.load_callable(partial(codegen.load_const, item.function))
            for argument in item.arguments:
                codegen.load_fast(next(leaves) if argument is None else f".part{argument}")
            codegen.call(len(item.arguments))
            codegen.store_fast(f".part{number}")
        for (local, _), part in zip(gone, numbers):
            if raised and ".stack" not in local and ".pushed" not in local:
                codegen.load_fast(f".part{part}")
                codegen.store_fast(local)
        for number in range(len(order.made())):
            codegen.delete_fast(f".part{number}")

    def _end_is_observable(self, value: Value) -> bool:
        """Whether `value` is, or holds, what is suspended where closing it runs code."""
        todo: list[Any] = [value]
        seen: set[int] = set()
        while todo:
            found = todo.pop()
            if id(found) in self.output.finalizable:
                return True
            if id(found) in seen:
                continue
            seen.add(id(found))
            virtual = found if isinstance(found, VirtualObject) else self._kept.get(id(found))
            if virtual is not None:
                todo += virtual.held()
            if isinstance(found, CellValue):
                todo.append(found.contents)
        return False

    @property
    def has_observable_finalizer(self) -> bool:
        return any(self._end_is_observable(value) for value in self.slots.values())

    def finish(self, codegen: Codegen) -> None:
        """Emission ends: nothing else may have needed the virtual objects."""
        refused = {key for key in (*self._kept, *self.resumed) if codegen.uses[key]}
        if refused:
            self.refuse(refused)

    def give_up(self) -> NoReturn:
        self.refuse({*self._kept, *self.resumed})

    def refuse(self, values: set[int]) -> NoReturn:
        """These ids escape: emission starts again with them as objects."""
        if values & self.resumed or values <= self.output.emission.escaping:
            raise Unsupported(self.reason)
        raise Retry(self.output.emission.materialising(values))


class _Order:
    """What a continuation makes, in order: first what others are made of."""

    def __init__(
        self,
        virtual_objects: VirtualObjects,
        virtual: dict[int, VirtualObject | Exhausted],
        own: dict[str, CellValue],
    ) -> None:
        self.virtual_objects = virtual_objects
        self.virtual = virtual
        self.leaves: list[Any] = []
        # By id; of a cell of the continuation itself its name.
        self.numbers: dict[int, int | str] = {id(cell): name for name, cell in own.items()}
        self._places: dict[int, list[int]] = {}
        self._made: list[tuple[VirtualObject, tuple[int | str | None, ...]]] = []
        self._open: set[int] = set()
        self._unfilled = list(own.values())

    def put(self, value: Value | VirtualObject, place: int) -> None:
        """It takes the place of a parameter."""
        number = self.add(value)
        if isinstance(number, str):  # the frame's own cell, as an object
            self.virtual_objects.refuse({id(value)})
        self._places.setdefault(number, []).append(place)

    def add(self, value: Value | VirtualObject) -> int | str:
        """The number of a virtual object."""
        key = id(value)
        if key in self.numbers:
            return self.numbers[key]
        if key in self._open:  # it holds itself
            self.virtual_objects.refuse({key})
        found = value if isinstance(value, VirtualObject) else self.virtual.get(key)
        if found is None:
            raise Unsupported(self.virtual_objects.reason)
        assert isinstance(found, VirtualObject), "what has ended is an argument"
        self._open.add(key)
        self.numbers[key] = self._append(found)
        if isinstance(value, CellValue):
            self._unfilled.append(value)
        return self.numbers[key]

    def fill(self) -> None:
        """The cells get their contents, which may hold them."""
        while self._unfilled:
            cell = self._unfilled.pop(0)
            if cell.contents is not None:
                self._append(VirtualObject(None, fill_cell, (cell, cell.contents)))

    def _append(self, found: VirtualObject) -> int:
        arguments: list[Any] = [
            self.virtual[id(a)] if self._is_exhausted(a) else a for a in found.arguments
        ]
        held = [isinstance(a, (Value, VirtualObject)) for a in arguments]
        numbers = [self.add(a) if h else None for a, h in zip(arguments, held)]
        self.leaves += [a for a, h in zip(arguments, held) if not h]
        self._made.append((found, tuple(numbers)))
        return len(self._made) - 1

    def _is_exhausted(self, argument: Any) -> bool:
        return isinstance(self.virtual.get(id(argument)), Exhausted)

    def made(self) -> Rematerialisations:
        return tuple(
            [
                Rematerialised(
                    found.function,
                    arguments,
                    0 if found.code is None else id(found.code),
                    tuple(self._places.get(number, ())),
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


def _is_plain_dict(output: OutputGraph, value: DictValue) -> bool:
    if value.real is not None or not output.side_effects.is_new(value) or value.hashes_objects():
        return False
    return all(isinstance(item, Value) for _, item in value.entries.values())


def _is_plain_function(value: NestedFunctionValue) -> bool:
    """Whether a function is nothing but its code, its cells and what `def` gives it."""
    if value.name != value.code.co_qualname or (value.mutation and value.mutation.attrs):
        return False
    closure = value.closure_tuple
    return type(closure) is TupleValue and all(isinstance(c, CellValue) for c in closure.contents)


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
    return list(value.children())


def _asked(value: IteratorValue) -> set[int]:
    """The ids of what an iterator asks for items."""
    parts = vars(value)
    alone = [parts[name] for name in ("inner", "outer", "data", "selectors") if name in parts]
    return {id(part) for part in (*parts.get("inners", ()), *alone)}


def _recipe(output: OutputGraph, value: Value) -> Recipe:
    """The recipe of `value` in a continuation, where it is captured: what bytecode makes of an
    instruction, or bare and filled later, is a call of a polyfill there.
    """
    if isinstance(value, AsyncStep):
        return ask_again, [value.generator]
    if isinstance(value, ObjectValue):
        attributes = _attributes(value)
        names = ConstantValue(tuple(attributes))
        cls = output.root_frame.wrap(value.cls)
        return make_object, [cls, names, *attributes.values()]
    if isinstance(value, CellValue):
        return make_cell, []
    if isinstance(value, NestedFunctionValue):
        return _function_recipe(value)
    make, operands = value.recipe()
    return _CAPTURED.get(make, make), operands


def _function_recipe(value: NestedFunctionValue) -> Recipe:
    cells = value.closure_tuple.contents  # type: ignore[union-attr]
    parts = (value.defaults, value.keyword_defaults, value.annotation_dict())
    if not any(part is not None for part in parts):
        return FunctionMaker(value.code, value.globals), cells
    function = Closure(value.code, value.globals, cells)
    return with_defaults, [function, *(ConstantValue(None) if p is None else p for p in parts)]
