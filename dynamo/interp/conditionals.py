"""Branches on the values of tensors, as conditionals in the graph.

    if x.sum() > 0:                gt = x.sum() > 0
        y = x * w                  branch = fxgraph.higher_order.branch(gt, body_0, body_1, (x, w))
    else:                   ->     y = branch[0]
        y = x + w                  return y.relu()
    return y.relu()

Both sides are captured, each in a graph of its own, from the jump to the instruction at which they
meet (bytecode/branches.py); one of them is run. Sides compute tensors, and write them to objects
from outside where the writes can be made behind the branch (interp/side_writes.py). Where a side
could raise, where it changes anything else, or where both do not leave the same behind, the graph
breaks at the jump.

Elements that a side picks, and numbers that it reads, are symbols of its own graph (dynamo/guards/
data_symbols.py); sizes of what the sides leave may differ by them.

Where sizes vary, a side takes the numbers that the sizes of its tensors are made of, and is
compiled once; sizes of what both leave that are equal while capturing are guarded to be.

A side that leaves a tensor as it was hands on that object; of a view, it gives a copy. Either may
be seen where one of both is written, and a copy where it leaves the frame together with the other:
then, the next attempt breaks at the jump.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import torch

from dynamo import breaks
from dynamo.bytecode.branches import counted_turn_of, meeting_of, turn_of
from dynamo.bytecode.liveness import live_before
from dynamo.config import config
from dynamo.interp.loops_on_data import run_counted, run_loop
from dynamo.interp.side_writes import Side, captured, paired_writes
from dynamo.interp.sides import (
    Refused,
    State,
    are_equal,
    call_in_side,
    check_result,
    check_unused,
    full,
    is_handed_on,
    is_inside,
    is_tensor,
    joined_fake,
    lift_sizes,
    memory_of,
    outside_memory,
    paired_arrays,
    paired_items,
    rebuilt,
    refusals,
    results_of,
    side_may_fail,
    state_condition,
    with_sizes_of_data,
)
from dynamo.plans import BreakBefore, Retry
from dynamo.torch.bodies import attach, wrap_nest
from dynamo.torch.subgraph import Subgraph, share_lifted
from dynamo.values.base import Value
from dynamo.values.builder import Lazy
from dynamo.values.containers.ranges import SymbolicRangeIterator
from dynamo.values.functions.monkey_patches import refuse_replacement
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.scalars.symbol import SymbolValue, is_exact, number_of, number_value
from dynamo.values.tensors.choice import ChoiceValue, is_option, options_of
from dynamo.values.tensors.memory_overlap import version_of
from dynamo.values.tensors.tensor import TensorValue, call_in_graph
from fxgraph import Node, effects
from fxgraph.expressions import negated
from fxgraph.higher_order import branch, loop
from fxgraph.size_forms import row_major
from fxgraph.sym_node import choose
from fxgraph.symbolic_values import depends_on_data

if TYPE_CHECKING:
    from types import CodeType

    from dynamo.bytecode import Instruction
    from dynamo.interp.interpreter import Interpreter
    from dynamo.interp.output import OutputGraph

_DEEPEST = 8  # branches within sides
_MOST_COPIES = 4  # of one branch within the sides of another
_GENERATOR_FLAGS = 0x20 | 0x80 | 0x200  # generator, coroutine, asynchronous generator
_MODES = ("_inference", "set_default_dtype")


class _Copied(NamedTuple):
    """`made`, computed by the graph, stands for `original` after a side that leaves the original
    unchanged: as that object, or else as a copy.
    """

    made: torch.Tensor
    original: torch.Tensor
    versions: tuple[int, int]
    broken: BreakBefore
    place: str
    is_object: bool

    def is_written(self) -> bool:
        return (version_of(self.made), version_of(self.original)) != self.versions


@dataclass
class Conditionals:
    """The branches of one graph. notes: the place of each, and how it was captured. varied: the
    break instead of the first that left varying items, which may hold any tensor of the frame's.
    """

    output: OutputGraph
    notes: dict[str, str] = field(default_factory=dict)
    open: list[BreakBefore] = field(default_factory=list)  # those whose sides are being captured
    places: list[str] = field(default_factory=list)  # of these
    guessed_masks: dict[Node, bool] = field(default_factory=dict)  # interp/guessed_branches.py
    varied: BreakBefore | None = None
    asked: tuple[CodeType, int] | None = None  # the last jump refused since its sides ask for data
    _copies: list[_Copied] = field(default_factory=list)
    _visits: Counter[tuple[CodeType, int]] = field(default_factory=Counter)

    def are_enabled(self, tx: Interpreter) -> bool:
        """Whether the frame is one whose sides may be captured apart, and the user wants that."""
        output = self.output
        wanted = ("all", "fullgraph") if output.context.fullgraph else ("all",)
        if config.capture_branches not in wanted or output.guesses:
            return False
        if len(output.bodies) != len(self.open):
            return False
        if tx.hidden or tx.namespace is not None or tx.code.co_flags & _GENERATOR_FLAGS:
            return False
        if output.finalizable or output.tensors_override or len(self.open) >= _DEEPEST:
            return False
        calls = (node for node in output.graph.nodes if node.op.startswith("call_"))
        names = (getattr(node.target, "__name__", "") for node in calls)
        return not any(mode in name for name in names for mode in _MODES)

    def come_last(self) -> bool:
        """Whether the graph is for a plan or a file, which other forms of a branch suit better."""
        return self.output.context.export or self.output.context.hooks is not None

    def enter(self, broken: BreakBefore, place: str) -> None:
        """Begin with the capture of the sides of a jump, or of the iterations of a loop."""
        self.open.append(broken)
        self.places.append(place)

    def leave(self) -> None:
        self.open.pop()
        self.places.pop()

    def count(self, code: CodeType, jump: Instruction) -> None:
        """Refuse a jump whose sides have been captured too often: each jump to the end of a
        function has the function's rest as a side, and `a and b` has one side twice.
        """
        if len(self.open) == 1:
            self._visits.clear()
        self._visits[code, jump.index] += 1
        if self._visits[code, jump.index] > _MOST_COPIES:
            raise Refused("its sides hold too many copies of one branch")

    def node_added(self, node: Node) -> None:
        """Break at a branch instead if memory that it copied is written."""
        if not self._copies or node.target in (branch, loop):
            return
        does = effects.of(node)
        if not (does.writes or does.other):
            return
        first: Any = node.args[0] if node.args else None
        memory = memory_of(first.meta["example_value"]) if is_tensor(first) else None
        for copy in self._copies:
            if copy.is_written() or memory in (memory_of(copy.made), memory_of(copy.original)):
                self._break_at(copy, "what a side leaves as it was is written later")

    def check_results(self, results: Sequence[Value]) -> None:
        """Break at a branch instead if the results show, outside of the frame, that memory was
        copied.
        """
        if not self._copies:
            return
        inputs = {
            memory_of(item.node.meta["example_value"])
            for item in self.output.inputs
            if isinstance(item.example, torch.Tensor)
        }
        seen = {memory_of(value.fake): True for value in results if isinstance(value, TensorValue)}
        for copy in reversed(self._copies):
            if memory_of(copy.made) not in seen:
                continue
            original, is_object = memory_of(copy.original), seen[memory_of(copy.made)]
            is_object = is_object and copy.is_object
            if not is_object and (original in seen or original in inputs):
                self._break_at(copy, "the frame returns what a side leaves as it was")
            seen[original] = is_object

    def _break_at(self, copy: _Copied, why: str) -> NoReturn:
        self.notes[copy.place] = _breaks(why)
        raise Retry(self.output.plan.breaking(copy.broken))

    def note_copies(
        self,
        side: Subgraph,
        values: Sequence[TensorValue],
        made: Sequence[Value],
        place: str,
    ) -> None:
        """Record the results in `made` that are tensors from outside of the side, or copies of
        views of such, if the side was run and left `values`.
        """
        outside = outside_memory(side)
        for value, result in zip(values, made, strict=True):
            assert isinstance(result, TensorValue), "branches give tensors"
            memory = memory_of(value.fake)
            if memory in outside:
                self.note_copy(result, value.fake, place, is_handed_on(value, side))
                continue
            for original, is_object in self.originals(value.fake):  # of branches in the side
                self.note_copy(result, original, place, is_object)

    def originals(self, fake: torch.Tensor) -> list[tuple[torch.Tensor, bool]]:
        """The tensors for which this one, left by branches, may stand: as that object (True), or as
        a copy, or a view of one.
        """
        memory = memory_of(fake)
        copies = [copy for copy in self._copies if memory_of(copy.made) == memory]
        return [(copy.original, copy.is_object and fake is copy.made) for copy in copies]

    def note_copy(
        self, made: TensorValue, original: torch.Tensor, place: str, is_object: bool
    ) -> None:
        made.may_be_another = True
        versions = version_of(made.fake), version_of(original)
        broken = self.open[0]
        self._copies.append(_Copied(made.fake, original, versions, broken, place, is_object))


_NUMBERS = (ConstantValue, SymbolValue)


def _breaks(why: str) -> str:
    return f"the graph breaks, since {why}"


# -- the jump -------------------------------------------------------------------------------------
def run_conditional(
    tx: Interpreter,
    instr: Instruction,
    value: Value,
    jumps_if: bool,
    kept: Sequence[Value] = (),
    condition: Any = None,
    on_data: bool = False,
) -> bool:
    """Put both sides of the conditional jump on `value` (popped already) into the graph; False if
    that is not possible.

    kept: the items that the jump, where it is made, leaves on the stack. condition: the same truth
    as a torch.SymBool, if numbers have it. on_data: for sides that were refused since they pick
    elements or read numbers; with these captured in the sides.
    """
    output, conditionals = tx.output, tx.output.conditionals
    if on_data:
        if conditionals.asked != (tx.code, instr.index):
            return False
        with output.symbols.data.selecting(sizes=True):
            return run_conditional(tx, instr, value, jumps_if, kept, condition)
    if not conditionals.are_enabled(tx):
        return False
    turn, meeting = turn_of(tx.code, instr), meeting_of(tx.code, instr)
    if turn is None and meeting is None:
        return False
    reason = breaks.DataDependentJump(value.describe())
    with _attempt(tx, instr, reason) as (state, place, _):
        conditionals.count(tx.code, instr)
        later = value.deferred_truth(tx)
        if later is None:
            return False
        predicate = later[0]
        if turn is not None and not kept:
            forget = output.symbols.data.forgetting()
            try:
                run_loop(tx, turn, predicate, state, place)
                conditionals.notes[place] = "a loop in the graph"
                return True
            except Refused:
                if meeting is None:
                    raise
                state.restore(tx)
                forget()
        if meeting is None:
            return False
        starts = [(instr.target.index, kept), (instr.index + 1, ())]  # type: ignore[union-attr]
        if not jumps_if:
            starts.reverse()
        with refusals():
            sides = [
                _captured_where(tx, state, start, meeting, condition, truth)
                for start, truth in zip(starts, (True, False))
            ]
            _Meeting(tx, meeting, sides, state, place, condition).join(predicate)
        conditionals.notes[place] = "a conditional in the graph"
        return True
    return False


@contextlib.contextmanager
def _attempt(
    tx: Interpreter, instr: Instruction, reason: breaks.Break
) -> Iterator[tuple[State, str, BreakBefore]]:
    """Inside, the branch or loop of `instr` is captured. A refusal ends the block, with the frame
    as it was before; `asked` tells whether the sides ask for data.
    """
    output, conditionals = tx.output, tx.output.conditionals
    place, state = place_of(tx), State.of(tx)
    broken = output.checks.breaking_at(tx, reason)
    forget = output.symbols.data.forgetting()
    conditionals.asked = None
    try:
        conditionals.enter(broken, place)
        yield state, place, broken
    except Refused as refused:
        state.restore(tx)
        forget()  # what a side assumed that the graph does not have
        asks = refused.of_data or conditionals.asked is not None  # or a branch in a side does
        conditionals.asked = (tx.code, instr.index) if asks else None
        conditionals.notes[place] = _breaks(refused.why)
    except BaseException:
        state.restore(tx)
        raise
    finally:
        conditionals.leave()


def run_counted_loop(tx: Interpreter, head: Instruction, iterator: SymbolicRangeIterator) -> bool:
    """Put the loop of a FOR_ITER over range(n), where n depends on data, into the graph; False if
    that is not possible.
    """
    if iterator.position or not iterator.of_loop:
        return False
    return _run_counted(tx, head, (iterator.of.start, iterator.of.stop))


def run_loop_over_rows(tx: Interpreter, instr: Instruction, rows: TensorValue) -> bool:
    """Put the loop behind a GET_ITER over the rows of a tensor, whose number depends on data, into
    the graph, before the loop's iterator is made; False if that is not possible.
    """
    head, fake = tx.program[instr.index + 1][1], rows.fake
    if head.op != "FOR_ITER" or fake.ndim == 0 or not depends_on_data(fake.shape[0]):
        return False
    if tx.output.modes.asked:
        return False
    refuse_replacement(tx, rows, "__iter__")
    # Rows are copied; of a row that is unpacked at once, nobody sees the strides.
    unpacked = tx.program[head.index + 1][1].op == "UNPACK_SEQUENCE"
    if unpacked and fake.ndim == 2 and not row_major(fake):
        whole: Any = call_in_graph(tx, "call_method", "contiguous", [rows], {})
        rows = whole
    tx.push(rows)  # in the place of the iterator
    made = _run_counted(tx, head, (ConstantValue(0), number_value(tx, fake.shape[0])), rows)
    if not made:
        tx.pop()
    return made


def _run_counted(
    tx: Interpreter, head: Instruction, ends: tuple[Value, Value], rows: TensorValue | None = None
) -> bool:
    conditionals, turn = tx.output.conditionals, counted_turn_of(tx.code, head)
    if turn is None or not conditionals.are_enabled(tx):
        return False
    if not any(isinstance(end, SymbolValue) and end.depends_on_data() for end in ends):
        return False
    for scope in (contextlib.nullcontext(), tx.output.symbols.data.selecting(sizes=True)):
        with scope, _attempt(tx, head, breaks.DataDependentValue("range")) as attempt:
            state, place, broken = attempt
            conditionals.count(tx.code, head)
            run_counted(tx, turn, ends, broken, state, place, rows)
            conditionals.notes[place] = "a loop in the graph"
            return True
        if conditionals.asked is None:
            break
    return False


def _captured_where(
    tx: Interpreter,
    state: State,
    start: tuple[int, Sequence[Value]],
    meeting: int,
    condition: Any,
    truth: bool,
) -> Side:
    """A side, as `captured`, that runs where the condition on numbers has this truth."""
    if condition is None:
        return captured(tx, state, start, meeting)
    env, expr = condition.node.shape_env, condition.node.expr
    with env.inside(expr if truth else negated(expr)):
        return captured(tx, state, start, meeting)


def place_of(tx: Interpreter) -> str:
    frame = tx.user_stack()[-1]
    return f"{frame.filename}:{frame.lineno} in {frame.name}"


# -- where the sides meet -------------------------------------------------------------------------
class _Merged(NamedTuple):
    """A choice between the first of `numbers` and the second one, or a tensor. pairs: of the
    tensor, if there is one, and then of the predicate, if a side leaves a choice of its own.
    """

    numbers: list[Value]
    has_tensor: bool
    is_choice: bool
    pairs: list[tuple[TensorValue, TensorValue]]


def _tensor_of(value: Value) -> TensorValue | None:
    """The tensor that is, or may be chosen for, the value."""
    return next((option for option in options_of(value) if type(option) is TensorValue), None)


class _Meeting:
    """Merges the states at the end of two sides."""

    def __init__(
        self,
        tx: Interpreter,
        meeting: int,
        sides: Sequence[Side],
        state: State,
        place: str,
        condition: Any,
    ) -> None:
        self.tx = tx
        self.meeting = meeting
        self.condition = condition
        self.first, self.second = sides
        self.since = state.serial
        self.place = place
        self.pairs: dict[tuple[int, int], tuple[TensorValue, TensorValue]] = {}
        self.joined: dict[tuple[int, int], Value] = {}
        self.partners: dict[int, Value] = {}  # of containers
        self.merged: dict[tuple[int, int], _Merged] = {}
        self.built: dict[Lazy, Value] = {}  # each once: pairs are known by their identity

    def join(self, predicate: TensorValue) -> None:
        """Go on behind the branch."""
        tx, first, second = self.tx, self.first, self.second
        self.predicate = predicate
        if (first.result is None) is not (second.result is None):
            raise Refused("one side returns")
        writes = list(paired_writes(tx, first, second))
        both = [*((write.one, write.other) for write in writes), *self._both()]
        for one, other in both:
            self._find(one, other)
        if self.pairs:
            self._record(predicate.node)
        else:
            for side in (first.graph, second.graph):
                check_unused(side, [])
        made = [self._value(one, other) for one, other in both]
        for write, value in zip(writes, made):
            write.store(tx, value)
        del made[: len(writes)]
        if first.result is not None:
            tx.result, tx.done = made[0], True
            return
        tx.done, tx.result, tx.index = False, None, self.meeting
        depth = len(first.stack)
        tx.stack[:] = made[:depth]
        tx.locals.clear()
        tx.locals.update(zip(self._names(), made[depth:], strict=True))

    def _both(self) -> Iterator[tuple[Any, Any]]:
        """The pairs of values that both sides leave: the results, or the stacks and then the
        locals.
        """
        first, second = self.first, self.second
        if first.result is not None:
            yield first.result, second.result
            return
        if len(first.stack) != len(second.stack):
            raise Refused("the sides leave different stacks")
        yield from zip(first.stack, second.stack)
        for name in self._names():
            yield first.locals[name], second.locals[name]

    def _names(self) -> list[str]:
        """The locals that there are behind: those that are read, and those that are the same."""
        first, second = self.first.locals, self.second.locals
        live = live_before(self.tx.code)[self.meeting]
        names = []
        for name in {**first, **second}:
            if name in first and name in second:
                if name in live or first[name] is second[name]:
                    names.append(name)
            elif name in live:
                raise Refused(f"one side alone assigns {name!r}")
        return names

    # -- pairs ----------------------------------------------------------------------------------
    def _find(self, one: Any, other: Any) -> None:
        """Note the tensors that differ; raises Refused where anything else does."""
        if one is other:
            if isinstance(one, Value) and is_inside(one, self.first.graph, self.second.graph):
                raise Refused("a tensor leaves its side")
            return
        one, other = self._built(one), self._built(other)
        if one is other or are_equal(one, other) or self._numbers(one, other) is not None:
            return
        nested = paired_arrays(one, other) or paired_items(self.tx, one, other, self.since)
        if nested is not None:
            known = (
                self.partners.setdefault(id(one), other),
                self.partners.setdefault(id(other), one),
            )
            if known[0] is not other or known[1] is not one:
                raise Refused("one side leaves one container twice")
            for pair in nested:
                self._find(*pair)
        elif type(one) is type(other) is TensorValue:
            self.pairs[id(one), id(other)] = one, other
        elif (id(one), id(other)) in self.merged:
            return
        elif (merged := self._merged(one, other)) is not None:
            self.merged[id(one), id(other)] = merged
            self.pairs |= {(id(a), id(b)): (a, b) for a, b in merged.pairs}
        else:
            text = f"the sides leave {one.describe()} and {other.describe()}"
            raise Refused(text)

    def _built(self, value: Any) -> Any:
        if isinstance(value, Lazy) and value not in self.built:
            self.built[value] = value.realize(self.tx)
        return self.built[value] if isinstance(value, Lazy) else value

    def _numbers(self, one: Value, other: Value) -> tuple[Any, Any] | None:
        """Two numbers of one type, which an expression chooses between."""
        if self.condition is None or not all(type(v) in _NUMBERS for v in (one, other)):
            return None
        if one.python_type() is not other.python_type():
            return None
        left, right = number_of(one), number_of(other)
        exact = all(number is not None and is_exact(number) for number in (left, right))
        return (left, right) if exact else None

    def _merged(self, one: Value, other: Value) -> _Merged | None:
        """A choice of which each side leaves one value, or a choice itself: between two numbers, or
        a number and a tensor.
        """
        options = [option for value in (one, other) for option in options_of(value)]
        if not all(is_option(option) and not option.is_symbolic() for option in options):
            return None
        numbers: list[Value] = []
        for option in options:
            known = type(option) is TensorValue or any(are_equal(option, n) for n in numbers)
            numbers += [] if known else [option]
        tensors = [option for option in options if type(option) is TensorValue]
        if len(numbers) + bool(tensors) != 2:
            return None
        chosen = isinstance(one, ChoiceValue) or isinstance(other, ChoiceValue)
        sides = (one, self.first.graph), (other, self.second.graph)
        pairs = []
        if tensors:
            fake = tensors[0].fake
            pairs.append(
                [
                    _tensor_of(value) or full(self.tx, side, 0, fake.dtype, fake.device)
                    for value, side in sides
                ]
            )
        if chosen:
            pairs.append([self._is_first(value, numbers[0], side) for value, side in sides])
        return _Merged(numbers, bool(tensors), chosen, [(a, b) for a, b in pairs])

    def _is_first(self, value: Value, number: Value, side: Subgraph) -> TensorValue:
        """Whether a side leaves this number, as a choice tells."""
        if not isinstance(value, ChoiceValue):
            first = type(value) is not TensorValue and are_equal(value, number)
            return full(self.tx, side, first, torch.bool, self.predicate.fake.device)
        value.check_current()
        if type(value.one) is not TensorValue and are_equal(value.one, number):
            return value.predicate
        return call_in_side(self.tx, side, torch.logical_not, [value.predicate])

    def _choice(self, one: Value, merged: _Merged) -> Value:
        made: list[Any] = [self.joined[id(a), id(b)] for a, b in merged.pairs]
        left: Value = merged.numbers[0]
        right: Value = made[0] if merged.has_tensor else merged.numbers[1]
        if merged.is_choice:
            return ChoiceValue(made[-1], left, right)
        if type(one) is TensorValue:
            left, right = right, left
        return ChoiceValue(self.predicate, left, right)

    def _value(self, one: Any, other: Any) -> Any:
        if one is other:
            return one
        one, other = self._built(one), self._built(other)
        if one is other or are_equal(one, other):
            return one
        key = id(one), id(other)
        numbers = self._numbers(one, other)
        if numbers is not None:
            return number_value(self.tx, choose(self.condition, *numbers))
        if key in self.merged:
            return self._choice(one, self.merged[key])
        if key not in self.joined:
            nested = paired_arrays(one, other) or paired_items(self.tx, one, other, self.since)
            assert nested is not None
            items = [self._value(*pair) for pair in nested]
            self.joined[key] = rebuilt(self.tx, one, items)
        return self.joined[key]

    # -- the node -------------------------------------------------------------------------------
    def _record(self, predicate: Node) -> None:
        tx, output = self.tx, self.tx.output
        pairs = list(self.pairs.values())
        for pair in pairs:
            for value in pair:
                check_result(tx, value)
        sides = self.first.graph, self.second.graph
        columns = list(zip(*pairs))
        results = [results_of(tx, side, column) for side, column in zip(sides, columns)]
        for side, side_results in zip(sides, results):
            check_unused(side, [node for node, _ in side_results])
        left = [(one[1], other[1]) for one, other in zip(*results)]
        fakes = [joined_fake(tx, *with_sizes_of_data(tx, *pair), pair) for pair in left]
        for side, truth in zip(sides, (True, False)):
            if lift_sizes(tx, side) and self.condition is not None:
                state_condition(tx, side, self.condition.node.expr, truth)
        lifted = share_lifted(*sides)
        bodies = []
        for side, side_results in zip(sides, results):
            module = side.finish(side.local(tuple(node for node, _ in side_results)))
            bodies.append(attach(tx, module, output))
        args = (predicate, *bodies, lifted)
        fails = any(map(side_may_fail, sides))
        if fails:
            output.checks.side_may_fail(tx)
        node = output.create_node("call_function", branch, args, {}, tuple(fakes), tx)
        node.meta.update(side_may_fail=fails, place=self.place)
        output.symbols.data.bind_fresh(tx, node, tuple(fakes))
        made = wrap_nest(tx, node, tuple(fakes)).unpack(tx)
        for side, column in zip(sides, columns):
            output.conditionals.note_copies(side, column, made, self.place)
        self.joined.update(zip(self.pairs, made))
