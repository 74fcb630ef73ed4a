"""Virtual objects: generators, and their holders, that live on behind a graph break.

A generator that is suspended in the captured code, or that a break stands in, is no object yet, and
as an object it would be closed to capture. Where only variables and the stack of the frames at the
break hold it, it stays virtual: the continuation gets the operands of its recipe, and
rematerialises it at its start, by functions of polyfills/rematerialise.py (see
continuations.parts.Rematerialised). So capture goes on in it. A value that anything else holds
escapes, and is materialised at the break.

    for y in gen(x):                     # continuation, of the call that breaks
        print(y)                         it = start(gen_from_its_yield, i, x)
                                         y is bound, the loop goes on: `it` is captured

The same is done with what holds the generator, if the captured code has made that: an iterator, a
list, a dict, a context manager, a closure and its cells. (A cell of the compiled frame's own is a
cell of the continuation's own then, not shared with the frame that goes on in it.) What something
else holds (an object from outside, the instruction that breaks) becomes an object in the rewritten
frame. The recipes of values are in the heap of the snapshot (framestate/heap.py).
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from dynamo.continuations.parts import Rematerialisations, Rematerialised
from dynamo.continuations.resume import users_name
from dynamo.errors import Unsupported
from dynamo.framestate.frame_state import Closure, Composed, Heap, Operand, ValueId
from dynamo.plans import EmissionPlan, Retry
from dynamo.polyfills.rematerialise import FunctionMaker, call_again, fill_cell, items_of, rest_of

if TYPE_CHECKING:
    from dynamo.framestate.materialise import Codegen


@dataclass(frozen=True)
class Exhausted:
    """A generator argument that has run to its end."""

    operand: Operand

    def push(self, codegen: Codegen) -> None:
        codegen.operand(self.operand)


@dataclass(frozen=True)
class VirtualObject:
    """function(*arguments): arguments of the continuation's call (locals that hold them,
    Exhausted), ids of virtual objects, or other virtual objects. text: its name for the user.
    code: the generator's, as it goes on.
    """

    text: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    code: types.CodeType | None = None

    def held(self) -> list[Any]:
        return [argument for argument in self.arguments if _is_virtual_part(argument)]

    def name(self, place: int) -> str:
        """The argument as the user names it."""
        if self.code is None:
            return f"what {self.text} holds" if self.text else "a closure's variable"
        if place == 0:
            return f"generator {self.code.co_name}"
        held = self.code.co_varnames[: self.code.co_argcount]
        if self.function is call_again or place > len(held):
            return f"an argument of {self.code.co_name}"
        return f"{users_name(self.code, held[place - 1])} of {self.code.co_name}"


def _is_virtual_part(argument: Any) -> bool:
    return isinstance(argument, (ValueId, VirtualObject))


def over_cells(
    code: types.CodeType, namespace: dict[str, Any], cells: Sequence[Any]
) -> VirtualObject:
    """A function over cells, which are arguments of virtual objects."""
    return VirtualObject("", FunctionMaker(code, namespace), tuple(cells))


class VirtualObjects:
    """The virtual objects of one break. `resumed`: the generators that the break stands in."""

    def __init__(self, heap: Heap, resumed: Iterable[ValueId], reason: Any) -> None:
        self.heap = heap
        self.resumed = frozenset(resumed)
        self.reason = reason
        self.slots: dict[str, ValueId] = {}  # the locals that would hold the virtual objects
        self.own: dict[str, ValueId] = {}  # the compiled frame's cells that stay virtual
        self._plan = EmissionPlan()
        self._kept: dict[ValueId, VirtualObject] = {}
        self._leaves: list[Operand] = []
        self._locals = 0
        self._passed: dict[int, int | str] = {}

    def start(self, plan: EmissionPlan) -> None:
        """Emission begins."""
        self._plan = plan
        self.slots.clear()
        self.own.clear()
        self._kept.clear()
        self._leaves.clear()
        self._locals = 0

    def push(self, codegen: Codegen, value: ValueId) -> None:
        codegen.operand(self.heap.operands[value])

    # -- the virtual objects ----------------------------------------------------------------
    def store(self, codegen: Codegen, value: ValueId, local: str) -> None:
        """Store a value in a local of the rewritten frame, or see to it that what it is made of
        is.
        """
        if not self.takes(codegen, value, local):
            self.push(codegen, value)
            codegen.store_fast(local)

    def takes(self, codegen: Codegen, value: ValueId, local: str) -> bool:
        """Whether the local that holds `value` stays empty, as the value is virtual."""
        if not self._is_virtual(value):
            return False
        self.slots[local] = value
        self._keep(codegen, value)
        return True

    def takes_cell(self, codegen: Codegen, cell: ValueId, name: str, read: bool) -> bool:
        """Whether a cell of the compiled frame is virtual. read: that frame needs the cell
        itself.
        """
        wanted = read or cell in self._kept
        if not wanted or not self._takes_cell(codegen, cell, f".cell.{name}"):
            return False
        self.own[name] = cell
        return True

    def cells(self, codegen: Codegen, cells: Sequence[ValueId], level: int) -> list[Any] | None:
        """The cells of a callee's frame, as arguments of virtual objects; None: none is."""
        slots = [f".{level}.cell{i}" for i in range(len(cells))]
        taken = [self._takes_cell(codegen, cell, local) for cell, local in zip(cells, slots)]
        if not any(taken):
            return None
        return [self._operand(codegen, cell) for cell in cells]

    def _takes_cell(self, codegen: Codegen, cell: ValueId, local: str) -> bool:
        if self._can_be_made(cell) and self.heap.virtual[cell].is_empty_cell:
            self._keep(codegen, cell)  # there may be a generator in it, later
            return True
        return self.takes(codegen, cell, local)

    def _is_virtual(self, value: ValueId) -> bool:
        """Whether `value` is, or holds, a generator that can stay virtual."""
        held: set[ValueId] = set()
        todo = [value]
        while todo:
            found = todo.pop()
            if found in held or not self._can_be_made(found):
                continue
            virtual = self.heap.virtual[found]
            if virtual.is_generator:
                return True
            held.add(found)
            todo += virtual.held
        return False

    def _can_be_made(self, value: ValueId) -> bool:
        if value in self._plan.escaping or value in self._plan.filled_later:
            return False
        return value in self.heap.virtual

    def _keep(self, codegen: Codegen, value: ValueId) -> None:
        """Emit the operands of which `value` is made."""
        if value in self._kept or value in self.resumed:
            return
        virtual = self.heap.virtual[value]
        self._kept[value] = VirtualObject(virtual.text, virtual.make, ())
        if virtual.contents is not None:
            self._keep(codegen, virtual.contents)
        arguments = [self._operand(codegen, operand) for operand in virtual.operands]
        for i in virtual.drained:
            arguments[i] = VirtualObject("", items_of, (arguments[i],))
        self._kept[value] = VirtualObject(
            virtual.text, virtual.make, tuple(arguments), virtual.code
        )

    def _operand(self, codegen: Codegen, operand: Any) -> Any:
        """An argument of a virtual object."""
        if isinstance(operand, ValueId):
            if operand in self._kept:
                return operand
            if self._is_virtual(operand):
                self._keep(codegen, operand)
                return operand
            return self._leaf(codegen, self.heap.operands[operand])
        if isinstance(operand, Composed):
            if not self._has_virtual(operand):
                return self._leaf(codegen, operand.whole)
            arguments = [self._operand(codegen, part) for part in operand.operands]
            return VirtualObject("", operand.make, tuple(arguments))
        if isinstance(operand, Closure):
            if operand.whole is not None and not self._has_virtual(operand):
                return self._leaf(codegen, operand.whole)
            cells = [self._operand(codegen, cell) for cell in operand.cells]
            return over_cells(operand.code, operand.namespace, cells)
        return self._leaf(codegen, operand)

    def _has_virtual(self, operand: Any) -> bool:
        if isinstance(operand, ValueId):
            return self._is_virtual(operand)
        parts = operand.operands if isinstance(operand, Composed) else ()
        parts = operand.cells if isinstance(operand, Closure) else parts
        return any(map(self._has_virtual, parts))

    def _leaf(self, codegen: Codegen, operand: Operand) -> str:
        """The local that holds an operand that is no virtual object."""
        local = f".virtual{self._locals}"
        self._locals += 1
        codegen.operand(operand)
        self._leaves.append(operand)
        codegen.store_fast(local)
        return local

    def roots(self, values: Iterable[ValueId]) -> list[Operand]:
        """The operands that stay alive, of values that may stay virtual."""
        virtual = self._kept.keys() | self.resumed
        alive = [self.heap.operands[value] for value in values if value not in virtual]
        return [*alive, *self._leaves]

    # -- the call of the continuation -----------------------------------------------------------
    def rest(self, code: types.CodeType, function: Any, arguments: Sequence[Any]) -> VirtualObject:
        """The generator that the break stands in, as the call rest_of(function, *arguments): the
        function, of this code, begins behind the break.
        """
        inner = [self.slots.get(a, a) if isinstance(a, str) else a for a in arguments]
        return VirtualObject("", rest_of, (function, *inner), code)

    def split(
        self, passed: Sequence[Any], rests: dict[ValueId, VirtualObject | Exhausted]
    ) -> tuple[Rematerialisations, list[Any]]:
        """The objects that a continuation makes at its start, and the arguments of its call in
        place of the values in `passed`. rests: the generators that the break stands in, from there
        on.
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
            elif isinstance(exhausted := rests.get(value), Exhausted):
                arguments.append(exhausted)
            else:
                order.put(value, place)
        order.fill()
        return order.made(), [*arguments, *order.leaves]

    def end(self, codegen: Codegen, passed: bool, raised: bool) -> None:
        """Make the virtual objects whose end can be observed, and let them end here, without those
        that the continuation of the latest `split` gets (if `passed`). raised: an exception leaves
        the frame, and variables live as long as its traceback.
        """
        gone = [
            (local, value)
            for local, value in reversed(self.slots.items())
            if self._end_is_observable(value) and not (passed and value in self._passed)
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

    def _end_is_observable(self, value: ValueId) -> bool:
        """Whether `value` is, or holds, an object whose end runs code of the program."""
        todo: list[Any] = [value]
        seen: set[ValueId] = set()
        while todo:
            found = todo.pop()
            if isinstance(found, VirtualObject):
                todo += found.held()
                continue
            if found in self.heap.finalizable:
                return True
            if found in seen:
                continue
            seen.add(found)
            if found in self._kept:
                todo += self._kept[found].held()
            contents = self._contents(found)
            if contents is not None:
                todo.append(contents)
        return False

    def _contents(self, cell: ValueId) -> ValueId | None:
        virtual = self.heap.virtual.get(cell)
        return None if virtual is None else virtual.contents

    @property
    def has_observable_finalizer(self) -> bool:
        return any(self._end_is_observable(value) for value in self.slots.values())

    def finish(self, codegen: Codegen) -> None:
        """Emission ends: nothing else may have needed the virtual objects."""
        refused = {value for value in (*self._kept, *self.resumed) if codegen.uses[value]}
        if refused:
            self.refuse(refused)

    def give_up(self) -> NoReturn:
        self.refuse({*self._kept, *self.resumed})

    def refuse(self, values: set[ValueId]) -> NoReturn:
        """Start emission again with these values, which escape, as objects."""
        if values & self.resumed or values <= self._plan.escaping:
            raise Unsupported(self.reason)
        raise Retry(self._plan.materialising(values))


class _Order:
    """The values that a continuation makes, in order: operands before the values made of them."""

    def __init__(
        self,
        virtual_objects: VirtualObjects,
        virtual: dict[ValueId, VirtualObject | Exhausted],
        own: dict[str, ValueId],
    ) -> None:
        self.virtual_objects = virtual_objects
        self.heap = virtual_objects.heap
        self.virtual = virtual
        self.leaves: list[Any] = []
        # By id of the value, or of a VirtualObject; of a cell of the continuation itself its name.
        self.numbers: dict[int, int | str] = {cell: name for name, cell in own.items()}
        self._places: dict[int, list[int]] = {}
        self._made: list[tuple[VirtualObject, tuple[int | str | None, ...]]] = []
        self._open: set[int] = set()
        self._unfilled = list(own.values())

    def put(self, value: ValueId | VirtualObject, place: int) -> None:
        """Put the value in the place of a parameter."""
        number = self.add(value)
        if isinstance(number, str):  # the frame's own cell, as an object
            self.virtual_objects.refuse({_key(value)})
        self._places.setdefault(number, []).append(place)

    def add(self, value: ValueId | VirtualObject) -> int | str:
        """The number of a virtual object."""
        key = _key(value)
        if key in self.numbers:
            return self.numbers[key]
        if key in self._open:  # it holds itself
            self.virtual_objects.refuse({key})
        found = value if isinstance(value, VirtualObject) else self.virtual.get(value)
        if found is None:
            raise Unsupported(self.virtual_objects.reason)
        assert isinstance(found, VirtualObject), "what has ended is an argument"
        self._open.add(key)
        self.numbers[key] = self._append(found)
        if isinstance(value, ValueId) and self._is_cell(value):
            self._unfilled.append(value)
        return self.numbers[key]

    def _is_cell(self, value: ValueId) -> bool:
        virtual = self.heap.virtual.get(value)
        return virtual is not None and virtual.is_cell

    def fill(self) -> None:
        """The cells get their contents, which may hold them."""
        while self._unfilled:
            cell = self._unfilled.pop(0)
            contents = self.heap.virtual[cell].contents
            if contents is not None:
                self._append(VirtualObject("", fill_cell, (cell, contents)))

    def _append(self, found: VirtualObject) -> int:
        arguments = [self._exhausted(argument) for argument in found.arguments]
        held = [_is_virtual_part(argument) for argument in arguments]
        numbers = [self.add(a) if h else None for a, h in zip(arguments, held)]
        self.leaves += [a for a, h in zip(arguments, held) if not h]
        self._made.append((found, tuple(numbers)))
        return len(self._made) - 1

    def _exhausted(self, argument: Any) -> Any:
        """The argument, or its replacement after exhaustion."""
        found = self.virtual.get(argument) if isinstance(argument, ValueId) else None
        return found if isinstance(found, Exhausted) else argument

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


def _key(value: ValueId | VirtualObject) -> int:
    return id(value) if isinstance(value, VirtualObject) else value
