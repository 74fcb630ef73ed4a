"""Loops that go on while a tensor says so, or over range(n) or n rows of a tensor, where n is data,
as loops in the graph.

    while x.norm() > 1:            gt = x.norm() > 1
        x = x * w             ->   loop = fxgraph.higher_order.loop(gt, body_0, (x,), (w,))
    return x + 1                   x = loop[0]
                                   return x + 1

An iteration is captured once, in a graph of its own, for tensors like those that the loop begins
with; it gives those of the next iteration, and whether there is one. What a side of a branch may do
(interp/conditionals.py), an iteration may do; what changes from iteration to iteration are tensors,
alone or in tuples, of the same shapes and kinds, and ints and floats (`n += 1`), which are tensors
inside. A condition of several parts (`while x.norm() > 1 and n < 9`) is computed as a whole.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from dynamo.bytecode.branches import Further, Turn
from dynamo.bytecode.liveness import live_before
from dynamo.interp.sides import (
    Refused,
    State,
    are_equal,
    check_result,
    is_handed_on,
    is_inside,
    joined_fake,
    lift_sizes,
    like,
    memory_of,
    paired_items,
    rebuilt,
    refusals,
    results_of,
    run_until,
    side_may_fail,
    side_scope,
)
from dynamo.plans import BreakBefore
from dynamo.torch.bodies import attach, wrap_nest
from dynamo.torch.histories import CarriedHistory
from dynamo.torch.subgraph import Subgraph
from dynamo.values.base import Value
from dynamo.values.builder import realized
from dynamo.values.containers.containers import NamedTupleValue, TupleValue
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.scalars.symbol import SymbolValue
from dynamo.values.tensors.loop_counter import LARGEST_START, LoopCounter, is_small
from dynamo.values.tensors.tensor import TensorValue, call_in_graph
from fxgraph import Node, effects
from fxgraph.fallible_operations import may_fail
from fxgraph.higher_order import loop

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter


def run_loop(tx: Interpreter, turn: Turn, predicate: TensorValue, state: State, place: str) -> None:
    """Go on behind the loop, whose jump stands at `predicate`. Raises Refused."""
    with refusals():
        again = [_as_going_on(tx, predicate, turn.continues), *_entry_truths(tx, turn, state)]
        begins = _all_of(tx, again)
        loop = _Loop(tx, turn, state, place)
        try:
            with refusals():
                loop.record(begins)
        except Refused:
            numbers = any(map(_is_number, loop.before.values())) or _varying(tx, turn, state)
            if not numbers:
                raise
            _NumberLoop(tx, turn, state, place).record(begins)


def _entry_truths(tx: Interpreter, turn: Turn, state: State) -> list[TensorValue]:
    """The rest of the condition before the first iteration."""
    if not turn.entry:
        return []
    with side_scope(tx, state) as graph:  # which shows whether Python may leave it out
        tx.index = turn.begins
        _further_truths(tx, turn.entry)
        _check_unseen(list(graph.graph.nodes))
    state.restore(tx)
    tx.index = turn.begins
    return _further_truths(tx, turn.entry)


def _further_truths(tx: Interpreter, jumps: Sequence[Further]) -> list[TensorValue]:
    """Whether each of these jumps does not leave the loop. Their operands are made where Python
    might not make them.
    """
    truths = []
    for jump in jumps:
        run_until(tx, jump.place)
        truth = tx.pop()
        later = truth.deferred_truth(tx) if truth.is_deferred else None
        if later is not None:
            truths.append(_as_going_on(tx, later[0], jump.goes_on))
        elif not _is_known(truth) or truth.truth(tx) is not jump.goes_on:
            raise Refused(f"a condition has {truth.describe()}")
        tx.index = jump.next
    return truths


def _is_known(truth: Value) -> bool:
    """Whether the call tells a truth, if not the code."""
    return truth.is_constant() or (isinstance(truth, SymbolValue) and not truth.depends_on_data())


def _check_unseen(made: Sequence[Node]) -> None:
    """Refuse nodes that may not run where Python would not run them."""
    calls = [node for node in made if node.op.startswith("call_")]
    if any(effects.of(node).impure() or may_fail(node) for node in calls):
        raise Refused("a part of the condition does more than compute tensors")


def _all_of(tx: Interpreter, truths: Sequence[TensorValue]) -> TensorValue:
    result = truths[0]
    for truth in truths[1:]:
        both: Any = call_in_graph(tx, "call_method", "logical_and", [result, truth], {})
        result = both
    if result.fake.numel() != 1:
        raise Refused("a turn ends with more than one truth")
    return result


def run_counted(
    tx: Interpreter,
    turn: Turn,
    ends: tuple[Value, Value],
    broken: BreakBefore,
    state: State,
    place: str,
    rows: TensorValue | None = None,
) -> None:
    """Go on behind the loop over range(*ends), or over `rows` of this number, whose iterator is on
    the stack. Raises Refused.
    """
    with refusals():
        loop = _CountedLoop(tx, turn, ends, broken, state, place)
        loop.rows = rows
        loop.record(loop.goes_on(loop.counter))


def _as_going_on(tx: Interpreter, predicate: TensorValue, truth: bool) -> TensorValue:
    """A tensor that is true if `predicate` has this truth."""
    if truth:
        return predicate
    result = call_in_graph(tx, "call_method", "logical_not", [predicate], {})
    assert isinstance(result, TensorValue)
    return result


class _Loop:
    """carried: the values that change from iteration to iteration; and the tensors in them."""

    may_fail = False  # whether the operations of an iteration may

    def __init__(self, tx: Interpreter, turn: Turn, state: State, place: str) -> None:
        self.tx = tx
        self.turn = turn
        self.state = state
        self.place = place
        live = live_before(tx.code)
        needed = live[turn.start] | live[turn.exit]
        unbound = turn.stored & live[turn.exit] - state.locals.keys()
        if unbound:
            raise Refused(f"the loop alone assigns {min(unbound)!r}")
        self.changing = [n for n in state.locals if n in turn.stored and n in needed]
        self.dead = turn.stored - needed
        self.before = {name: realized(tx, state.locals[name]) for name in self.changing}
        self.carried = [t for name in self.changing for t in self._tensors(self.before[name])]

    def _tensors(self, value: Value) -> Iterator[TensorValue]:
        if type(value) is TensorValue:
            check_result(self.tx, value)
            yield value
        elif type(value) in (TupleValue, NamedTupleValue):
            for item in value.unpack(self.tx):
                yield from self._tensors(realized(self.tx, item))

    def _replaced(self, value: Value, tensors: Iterator[Value]) -> Value:
        """`value` with these tensors in it."""
        if type(value) is TensorValue:
            return next(tensors)
        if type(value) in (TupleValue, NamedTupleValue):
            items = [realized(self.tx, item) for item in value.unpack(self.tx)]
            return rebuilt(self.tx, value, [self._replaced(item, tensors) for item in items])
        return value

    # -- an iteration ---------------------------------------------------------------------------
    def record(self, predicate: TensorValue) -> None:
        tx, output = self.tx, self.tx.output
        # Made where the loop stands, of what is used there: the nodes are those of this graph.
        carried = [value.node for value in self.carried]
        with side_scope(tx, self.state, self.may_fail) as graph:
            inputs = self._inputs(graph)
            begins = self._begin(inputs)
            again = self._run(graph)
            ends = list(self._ends(begins))
            sources = self._sources(graph, inputs, ends)
            results = self._results(graph, ends, again)
        fakes = [
            joined_fake(tx, one.fake, fake, (begin.fake, fake, one.fake.grad_fn))
            for begin, one, (_, fake) in zip(self.carried, inputs, results)
        ]
        lift_sizes(tx, graph)
        fails = side_may_fail(graph)
        if fails:
            output.checks.side_may_fail(tx)
        module = graph.finish(graph.local(tuple(node for node, _ in results)))
        args = (predicate.node, attach(tx, module, output), tuple(carried), tuple(graph.lifted))
        self.state.restore(tx)
        node = output.create_node("call_function", loop, args, {}, tuple(fakes), tx)
        node.meta.update(side_may_fail=fails, place=self.place)
        made = wrap_nest(tx, node, tuple(fakes)).unpack(tx)
        for originals, result in zip(sources, made, strict=True):
            assert isinstance(result, TensorValue), "loops give tensors"
            for original, is_object in originals:
                output.conditionals.note_copy(result, original, self.place, is_object)
        self._go_on(made)

    def _sources(
        self, graph: Subgraph, inputs: Sequence[TensorValue], ends: Sequence[TensorValue]
    ) -> list[list[tuple[torch.Tensor, bool]]]:
        """For each tensor that the loop leaves, those outside of which it may be a view, or which
        it may be (True): the one that the loop begins with, what an iteration hands on, and what
        its next iteration makes of that.
        """
        places = {memory_of(value.fake): place for place, value in enumerate(inputs)}
        lifted = [node.meta["example_value"] for node in graph.lifted]
        outside = {memory_of(fake): fake for fake in lifted if isinstance(fake, torch.Tensor)}
        originals = self.tx.output.conditionals.originals
        found = [{id(value.fake): (value.fake, True)} for value in self.carried]
        for _ in self.carried:
            for end, of_place in zip(ends, found):
                memory, whole = memory_of(end.fake), is_handed_on(end, graph)
                if memory in places:
                    ones = [*found[places[memory]].values()]
                elif memory in outside:
                    ones = [(outside[memory], True)]
                else:
                    ones, whole = originals(end.fake), False
                for fake, is_object in ones:
                    known = of_place.get(id(fake), (fake, True))[1]
                    of_place[id(fake)] = fake, known and is_object and whole
        return [list(one.values()) for one in found]

    def _inputs(self, graph: Subgraph) -> list[TensorValue]:
        """The tensors with which an iteration begins."""
        tx = self.tx
        inputs = []
        for number, value in enumerate(self.carried):
            fake = like(tx, value.fake)
            if fake.requires_grad:
                with tx.output.fake_mode, torch.enable_grad():
                    fake = CarriedHistory.apply(fake.detach(), value.fake)
            node = graph.placeholder(f"carried_{number}", fake)
            made = tx.output.tensor_value(node, fake, TensorValue)
            made.may_be_another = True
            inputs.append(made)
        return inputs

    def _begin(self, inputs: Sequence[TensorValue]) -> dict[str, Value]:
        """The frame at the start of an iteration, with these tensors."""
        tx = self.tx
        tensors = iter(inputs)
        begins = {name: self._replaced(self.before[name], tensors) for name in self.changing}
        tx.locals.update(begins)
        for name in self.dead:
            tx.locals.pop(name, None)
        tx.index = self.turn.start
        return begins

    def _run(self, graph: Subgraph) -> TensorValue:
        """Run the iteration; whether there is a next one."""
        tx, exits = self.tx, self.turn.exits
        run_until(tx, exits[0].place if exits else self.turn.end)
        before = len(graph.graph.nodes)
        truths = [] if tx.done else _further_truths(tx, exits)
        run_until(tx, self.turn.end)
        _check_unseen(list(graph.graph.nodes)[before:] if exits else ())
        if tx.done or len(tx.stack) != len(self.state.stack) + 1:
            raise Refused("the loop leaves another stack")
        truth = tx.pop()
        if any(one is not other for one, other in zip(tx.stack, self.state.stack)):
            raise Refused("the loop leaves another stack")
        later = truth.deferred_truth(tx) if truth.is_deferred else None
        if later is None:
            raise Refused(f"a turn ends with {truth.describe()}")
        return _all_of(tx, [*truths, _as_going_on(tx, later[0], self.turn.again)])

    def _ends(self, begins: dict[str, Value]) -> Iterator[TensorValue]:
        """The tensors with which the next iteration begins."""
        for name in self.changing:
            if name not in self.tx.locals:
                raise Refused(f"the loop deletes {name!r}")
            yield from self._paired(begins[name], realized(self.tx, self.tx.locals[name]))
        for name, value in self.state.locals.items():
            if name in self.turn.stored:
                continue
            if self.tx.locals.get(name) is not value:
                raise Refused(f"the loop changes {name!r}")

    def _paired(self, begin: Value, end: Value) -> Iterator[TensorValue]:
        if type(begin) is type(end) is TensorValue:
            check_result(self.tx, end)
            yield end
            return
        if begin is end and not isinstance(begin, TensorValue):
            if type(begin) in (TupleValue, NamedTupleValue):
                yield from self._tensors(begin)
            return
        if are_equal(begin, end):
            return
        nested = paired_items(self.tx, begin, end, self.state.serial)
        if nested is None:
            raise Refused(f"a turn begins with {begin.describe()} and leaves {end.describe()}")
        for one, other in nested:
            yield from self._paired(realized(self.tx, one), realized(self.tx, other))

    def _results(
        self, graph: Subgraph, ends: Sequence[TensorValue], again: TensorValue
    ) -> list[tuple[Any, Any]]:
        """The outputs of an iteration's graph."""
        known = any(again is end for end in ends)
        if known or not is_inside(again, graph):
            raise Refused("the loop never ends, or its end does not depend on its turns")
        return results_of(self.tx, graph, [*ends, again])

    # -- behind the loop --------------------------------------------------------------------------
    def _go_on(self, made: Sequence[Value]) -> None:
        tx = self.tx
        tensors = iter(made)
        tx.locals.update(
            {name: self._replaced(self.before[name], tensors) for name in self.changing}
        )
        for name in self.dead:
            tx.locals.pop(name, None)
        tx.done, tx.result, tx.index = False, None, self.turn.exit


def _is_number(value: Value) -> bool:
    return isinstance(value, ConstantValue | SymbolValue) and value.python_type() in _WIDE


def _varying(tx: Interpreter, turn: Turn, state: State) -> dict[str, Value]:
    """The numbers that an iteration reads and leaves alone, and that vary from call to call."""
    names = live_before(tx.code)[turn.start] - turn.stored
    held = {name: value for name, value in state.locals.items() if name in names}
    found = {name: realized(tx, value) for name, value in held.items()}
    return {
        name: value
        for name, value in found.items()
        if isinstance(value, SymbolValue) and _is_number(value) and not value.depends_on_data()
    }


def _starts_small(tx: Interpreter, number: Value) -> bool:
    """Whether 64 bits hold a number and those that iterations make of it; of one that varies from
    call to call, with a guard.
    """
    if number.python_type() is not int:
        return True
    if not isinstance(number, SymbolValue):
        return bool(abs(number.as_constant()) < LARGEST_START)
    if number.depends_on_data():
        return False
    ends = ("<", LARGEST_START), (">", -LARGEST_START)
    sides = [number.compare(tx, op, ConstantValue(end)) for op, end in ends]
    return all(side is not None and side.truth(tx) for side in sides)


_WIDE = {int: torch.int64, float: torch.float64}


def _in_tensor(tx: Interpreter, number: Value, dtype: torch.dtype = torch.int64) -> TensorValue:
    form: dict[str, Value] = {
        "dtype": ConstantValue(dtype),
        "device": ConstantValue(torch.device("cpu")),  # also where another is the default
    }
    made = call_in_graph(tx, "call_function", torch.scalar_tensor, [number], form)
    assert isinstance(made, TensorValue)
    return made


class _NumberLoop(_Loop):
    """Its ints and floats change from iteration to iteration, as tensors without dimensions; behind
    the loop they are read. fixed: those that vary from call to call, which are tensors, too.
    """

    def __init__(self, tx: Interpreter, turn: Turn, state: State, place: str) -> None:
        super().__init__(tx, turn, state, place)
        self.broken = tx.output.conditionals.open[-1]
        self.names = [name for name in self.changing if _is_number(self.before[name])]
        self.changing = [name for name in self.changing if name not in self.names]
        self.kinds = [self.before[name].python_type() for name in self.names]
        if not tx.output.symbols.data.has_room_for(len(self.names)):
            raise Refused("the loop changes numbers")
        state.restore(tx)
        fixed = _varying(tx, turn, state)
        starts = [*(self.before[name] for name in self.names), *fixed.values()]
        if not all(_starts_small(tx, number) for number in starts):
            raise Refused("the loop changes a large number")
        made = [_in_tensor(tx, number, _WIDE[number.python_type()]) for number in starts]
        self.carried += made[: len(self.names)]
        self.fixed = {
            name: LoopCounter.of_turns(tx, tensor, value, value.python_type(), self.broken)
            for (name, value), tensor in zip(fixed.items(), made[len(self.names) :], strict=True)
        }

    def _begin(self, inputs: Sequence[TensorValue]) -> dict[str, Value]:
        begins = super()._begin(inputs)
        numbers = inputs[len(inputs) - len(self.names) :]
        self.begins = {
            name: LoopCounter.of_turns(self.tx, number, self.before[name], kind, self.broken)
            for name, kind, number in zip(self.names, self.kinds, numbers, strict=True)
        }
        self.tx.locals.update(self.begins | self.fixed)
        return begins

    def _ends(self, begins: dict[str, Value]) -> Iterator[TensorValue]:
        for name in self.fixed:
            self.tx.locals[name] = self.state.locals[name]
        yield from super()._ends(begins)
        for name, kind in zip(self.names, self.kinds):
            if name not in self.tx.locals:
                raise Refused(f"the loop deletes {name!r}")
            end = realized(self.tx, self.tx.locals[name])
            if isinstance(end, LoopCounter) and end.may_follow(self.begins[name]):
                yield end.tensor
            elif end.is_constant() and end.python_type() is kind and is_small(end):
                yield _in_tensor(self.tx, end, _WIDE[kind])
            else:
                raise Refused(f"a turn leaves {end.describe()} for a number")

    def _go_on(self, made: Sequence[Value]) -> None:
        super()._go_on(made)
        tx, data = self.tx, self.tx.output.symbols.data
        live = live_before(tx.code)[self.turn.exit]
        for name, number in zip(self.names, made[len(made) - len(self.names) :], strict=True):
            tx.locals.pop(name, None)
            if name in live:
                with data.selecting():
                    tx.locals[name] = call_in_graph(tx, "call_method", "item", [number], {})


class _CountedLoop(_Loop):
    """Its counter is one more tensor that changes. rows: the tensor whose rows are iterated over,
    if these are no numbers.
    """

    may_fail = True
    rows: TensorValue | None = None

    def __init__(
        self,
        tx: Interpreter,
        turn: Turn,
        ends: tuple[Value, Value],
        broken: BreakBefore,
        state: State,
        place: str,
    ) -> None:
        super().__init__(tx, turn, state, place)
        self.broken, self.start = broken, ends[0]
        self.counter, self.stop = (_in_tensor(tx, end) for end in ends)
        self.carried.append(self.counter)
        self.next: TensorValue | None = None

    def goes_on(self, counter: TensorValue) -> TensorValue:
        """Whether there is an iteration of this number."""
        made = call_in_graph(self.tx, "call_function", operator.lt, [counter, self.stop], {})
        assert isinstance(made, TensorValue)
        return made

    def _begin(self, inputs: Sequence[TensorValue]) -> dict[str, Value]:
        begins = super()._begin(inputs)
        self.number = inputs[-1]
        counter = LoopCounter.of_loop(self.tx, self.number, self.start, self.broken)
        self.tx.push(counter if self.rows is None else self.rows.getitem(self.tx, counter))
        return begins

    def _run(self, graph: Subgraph) -> TensorValue:
        tx = self.tx
        run_until(tx, self.turn.end)
        if tx.done or len(tx.stack) != len(self.state.stack):
            raise Refused("the loop leaves another stack")
        if any(one is not other for one, other in zip(tx.stack, self.state.stack)):
            raise Refused("the loop leaves another stack")
        operands = [self.number, ConstantValue(1)]
        made = call_in_graph(tx, "call_function", operator.add, operands, {})
        assert isinstance(made, TensorValue)
        self.next = made
        return self.goes_on(made)

    def _ends(self, begins: dict[str, Value]) -> Iterator[TensorValue]:
        yield from super()._ends(begins)
        assert self.next is not None, "the iteration ran"
        yield self.next

    def _go_on(self, made: Sequence[Value]) -> None:
        super()._go_on(made)
        self.tx.pop()
