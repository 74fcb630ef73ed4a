"""The heap of a snapshot: the values at a graph break, as capture knows them.

A value that is, or holds, a generator of the captured code may stay virtual over the break
(framestate/virtual_objects.py) if a continuation can make it of its parts: it was made by the
captured code, and nothing else than its recipe says what it is.
"""

from __future__ import annotations

import itertools
import types
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from dynamo.errors import Unsupported
from dynamo.framestate.frame_state import Closure, Composed, Heap, Operand, ValueId, Virtual
from dynamo.polyfills.rematerialise import (
    Drawn,
    FunctionMaker,
    accumulated,
    chain_after,
    dropping_nothing,
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
from dynamo.values.classes.builtin_bases import builtin_base
from dynamo.values.containers.containers import DequeValue, ListValue, SequenceValue, TupleValue
from dynamo.values.containers.dicts import DictValue
from dynamo.values.containers.ranges import RangeIterator
from dynamo.values.effects.lifetimes import SuspendedGenerator
from dynamo.values.effects.side_effects import DELETED
from dynamo.values.functions.cell import CellValue
from dynamo.values.functions.function import MethodValue, NestedFunctionValue
from dynamo.values.iterators.generator import GeneratorFunction, GeneratorValue
from dynamo.values.iterators.real_iterators import REAL
from dynamo.values.iterators.resumed_iterators import ResumedIterator
from dynamo.values.iterators.stored_iterators import (
    DictIterator,
    IteratorValue,
    SequenceIterator,
    iterator_at,
)
from dynamo.values.objects.descriptors import MISSING, class_lookup
from dynamo.values.objects.objects import ObjectValue
from dynamo.values.recipes import DICT, LIST, TUPLE, Made, Recipe, operand_values
from dynamo.values.scalars.constant import ConstantValue

if TYPE_CHECKING:
    from dynamo.interp.output import OutputGraph

# The function of a recipe in bytecode -> the one of a continuation, where it is captured.
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
_ITERATORS |= {pairs_from, accumulated, dropping_nothing, Drawn}
# Iterators that become objects, which continuations may have to ask natively.
_PLAIN = (RangeIterator, SequenceIterator, DictIterator, ResumedIterator)
_SEQUENCES: dict[type[Value], type] = {ListValue: list, TupleValue: tuple, DequeValue: deque}
_KINDS: tuple[type[Value], ...] = (GeneratorValue, IteratorValue, MethodValue)
_KINDS += (ObjectValue, SequenceValue, DictValue, NestedFunctionValue, CellValue)


def make_heap(
    output: OutputGraph, values: Iterable[Operand], resumed: Iterable[ValueId], ends: bool
) -> Heap:
    """The heap of `values` and of all that they hold. resumed: the generators in which the break
    stands. ends: generators with an observable finalizer may stay virtual, too.
    """
    return _HeapBuilder(output, resumed, ends).build(values)


class _HeapBuilder:
    def __init__(self, output: OutputGraph, resumed: Iterable[ValueId], ends: bool) -> None:
        self.output = output
        self.resumed = frozenset(resumed)
        self.ends = ends
        self._operands: dict[ValueId, Operand] = {}
        self._held: dict[ValueId, list[Value]] = {}  # of all that a continuation can make
        self._virtual: dict[ValueId, Virtual] = {}
        self._tried: set[ValueId] = set()

    def build(self, values: Iterable[Operand]) -> Heap:
        values = list(values)
        for value in values:
            self._operands[id(value)] = value
        roots = [value for value in values if isinstance(value, Value)]
        if not self.output.has_generators:
            for cell in filter(self._is_new_empty_cell, roots):
                self._add(cell, [])
        while self.output.has_generators and roots:
            self._find(roots)
            known = len(self._operands)
            for value in self._holders():
                if id(value) not in self._tried:
                    self._add(value, self._held[id(value)])
            made = list(self._operands.values())[known:]
            roots = [value for value in made if isinstance(value, Value)]
        return Heap(self._operands, self._virtual, frozenset(self.output.finalizable))

    def _is_new_empty_cell(self, value: Value) -> bool:
        empty = isinstance(value, CellValue) and value.contents is None
        return empty and self._can_be_made(value)

    def _find(self, roots: Sequence[Value]) -> None:
        """Record which of `roots`, and of all values that they hold, a continuation can make."""
        todo = list(roots)
        while todo:
            value = todo.pop()
            if id(value) in self._held or not self._is_makeable(value):
                continue
            self._operands[id(value)] = value
            self._held[id(value)] = held = _parts(value)
            todo += held

    def _holders(self) -> list[Value]:
        """The operands that are, or hold, generators or empty cells (a generator may be stored in
        one later).
        """
        holders: dict[ValueId, list[ValueId]] = {}
        todo = []
        for key, held in self._held.items():
            value = self._operands[key]
            if _is_suspended(value) or self._is_new_empty_cell(value):
                todo.append(key)
            for part in held:
                holders.setdefault(id(part), []).append(key)
        found: dict[ValueId, Value] = {}
        while todo:
            key = todo.pop()
            if key not in found:
                found[key] = self._operands[key]
                todo += holders.get(key, ())
        return list(found.values())

    def _is_makeable(self, value: Value) -> bool:
        try:
            return self._can_be_made(value)
        except Unsupported:
            return False

    def _can_be_made(self, value: Value) -> bool:
        output = self.output
        finalizable = output.finalizable.get(id(value))
        if finalizable is not None and not (
            self.ends and isinstance(finalizable, SuspendedGenerator)
        ):
            return False
        if not isinstance(value, _KINDS) or value.source is not None or value.holder is not None:
            return False
        if isinstance(value, GeneratorValue):
            if value.resumed:
                return id(value) in self.resumed
            return not (value.running or value.frame.done)
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

    # -- operands of values ------------------------------------------------------------------
    def _add(self, value: Value, parts: Sequence[Value]) -> None:
        self._tried.add(id(value))
        held = tuple(map(id, parts))
        generator = _is_suspended(value)
        if id(value) in self.resumed:
            self._virtual[id(value)] = Virtual(rest_of, is_generator=True, held=held)
            return
        try:
            make, operands = _recipe(self.output, value)
        except Unsupported:
            return  # that it cannot be made becomes known where it is needed
        code = value.frame.code if isinstance(value, GeneratorValue) else None
        if operands and isinstance(operands[0], GeneratorFunction):
            code = operands[0].code
        asked = _asked(value) if isinstance(value, IteratorValue) else set()
        self._virtual[id(value)] = Virtual(
            make,
            tuple(map(self._operand, operands)),
            held,
            value.describe(),
            generator,
            isinstance(value, CellValue),
            code,
            frozenset(
                i
                for i, operand in enumerate(operands)
                if isinstance(operand, _PLAIN) and id(operand) in asked
            ),
            self._contents(value),
        )

    def _contents(self, value: Value) -> ValueId | None:
        contents = value.contents if isinstance(value, CellValue) else None
        return None if contents is None else self._operand(contents)

    def _operand(self, operand: Any) -> Any:
        if isinstance(operand, (Value, Lazy)):
            self._operands[id(operand)] = operand
            return id(operand)
        if isinstance(operand, GeneratorFunction):
            cells = tuple(map(self._operand, operand.cells()))
            return Closure(operand.code, operand.frame.f_globals, cells, operand)
        if isinstance(operand, Closure):
            return Closure(
                operand.code, operand.namespace, tuple(map(self._operand, operand.cells))
            )
        if isinstance(operand, Made) and any(operand_values([operand], Value)):
            parts = tuple(map(self._operand, operand.operands()))
            return Composed(_CAPTURED.get(operand.make, operand.make), parts, operand)
        return operand


def _is_suspended(value: Any) -> bool:
    """Whether the value is a generator, or an iterator from which one draws an item."""
    return isinstance(value, GeneratorValue) or getattr(value, "is_drawn", False)


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
    """Whether a function is nothing but its code, its cells and the parts that `def` stores in
    it.
    """
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
    """The ids of the objects that an iterator iterates over."""
    parts = vars(value)
    alone = [parts[name] for name in ("inner", "outer", "data", "selectors") if name in parts]
    return {id(part) for part in (*parts.get("inners", ()), *alone)}


def _recipe(output: OutputGraph, value: Value) -> Recipe:
    """The recipe of `value` in a continuation, where the making is captured: an instruction of
    bytecode, or a bare object filled later, is a call of a polyfill there.
    """
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
