"""Branches on the values of tensors, as conditionals in the graph.

    if x.sum() > 0:                gt = x.sum() > 0
        y = x * w                  branch = fxgraph.higher_order.branch(gt, body_0, body_1, (x, w))
    else:                   ->     y = branch[0]
        y = x + w                  return y.relu()
    return y.relu()

Both sides are captured, each in a graph of its own, from the jump to the instruction at which they
meet (bytecode/branches.py); one of them is run. They may compute tensors and nothing else: where a
side could raise, where anything beside its tensors changes, or where both do not leave the same
behind, the graph breaks at the jump.

Sides are compiled for each size that they meet. Where sizes vary, the graph breaks, too, unless it
must not (fullgraph=True).

A side that leaves a tensor as it was gives a copy of it. That may be seen where either is written,
or leaves the frame together with the other: then, the next attempt breaks at the jump.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import torch

from dynamo import breaks
from dynamo.bytecode.branches import meeting_of
from dynamo.bytecode.liveness import live_before
from dynamo.config import config
from dynamo.errors import Unsupported
from dynamo.interp.fallible_operations import can_fail
from dynamo.plans import AttemptEnded, BreakBefore, Retry
from dynamo.torch.bodies import attach, body_scope, wrap_nest
from dynamo.torch.subgraph import Subgraph, share_lifted
from dynamo.values.base import Value
from dynamo.values.builder import Lazy
from dynamo.values.containers import NamedTupleValue, TupleValue
from dynamo.values.memory_overlap import version_of
from dynamo.values.tensor import TensorValue
from fxgraph import Node, effects
from fxgraph.higher_order import branch
from fxgraph.symbols import depends_on_data, expr_of, is_symbol, is_symbolic

if TYPE_CHECKING:
    from types import CodeType

    from dynamo.bytecode import Instruction
    from dynamo.interp.interpreter import Interpreter
    from dynamo.interp.output import OutputGraph

_DEEPEST = 8  # branches within sides
_MOST_COPIES = 4  # of one branch within the sides of another
_LITERALS = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
_GENERATOR_FLAGS = 0x20 | 0x80 | 0x200  # generator, coroutine, asynchronous generator
_MODES = ("autocast", "inference_mode", "set_default_dtype")


class _Refused(Exception):
    """The branch is no conditional. why: "the graph breaks, since ..."."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class _Copied(NamedTuple):
    """`made`, which the graph computes, stands for `original` itself where the side was run that
    leaves it as it was.
    """

    made: torch.Tensor
    original: torch.Tensor
    versions: tuple[int, int]
    broken: BreakBefore
    place: str

    def is_written(self) -> bool:
        return (version_of(self.made), version_of(self.original)) != self.versions


@dataclass
class Conditionals:
    """The branches of one graph. notes: where each stands, and what became of it."""

    output: OutputGraph
    notes: dict[str, str] = field(default_factory=dict)
    open: list[BreakBefore] = field(default_factory=list)  # those whose sides are being captured
    _copies: list[_Copied] = field(default_factory=list)
    _visits: Counter[tuple[CodeType, int]] = field(default_factory=Counter)

    def count(self, code: CodeType, jump: Instruction) -> None:
        """Refuse what is captured again and again: the rest of a function is the side of each jump
        to its end, and `a and b` has one side twice.
        """
        if len(self.open) == 1:
            self._visits.clear()
        self._visits[code, jump.index] += 1
        if self._visits[code, jump.index] > _MOST_COPIES:
            raise _Refused("its sides hold too many copies of one branch")

    def node_added(self, node: Node) -> None:
        """Break at a branch instead if what it copied is written."""
        if not self._copies or node.target is branch:
            return
        does = effects.of(node)
        if not (does.writes or does.other):
            return
        first: Any = node.args[0] if node.args else None
        memory = _memory(first.meta["example_value"]) if _is_tensor(first) else None
        for copy in self._copies:
            if copy.is_written() or memory in (_memory(copy.made), _memory(copy.original)):
                self._break_at(copy, "what a side leaves as it was is written later")

    def check_results(self, results: Sequence[Value]) -> None:
        """Break at a branch instead if one can tell outside of the frame what it copied."""
        if not self._copies:
            return
        inputs = {
            _memory(item.node.meta["example_value"])
            for item in self.output.inputs
            if isinstance(item.example, torch.Tensor)
        }
        seen = {_memory(value.fake) for value in results if isinstance(value, TensorValue)}
        for copy in reversed(self._copies):
            if _memory(copy.made) not in seen:
                continue
            original = _memory(copy.original)
            if original in seen or original in inputs:
                self._break_at(copy, "the frame returns what a side leaves as it was")
            seen.add(original)

    def _break_at(self, copy: _Copied, why: str) -> NoReturn:
        self.notes[copy.place] = _breaks(why)
        raise Retry(self.output.plan.breaking(copy.broken))

    def copied(self, made: torch.Tensor, original: torch.Tensor, place: str) -> None:
        versions = version_of(made), version_of(original)
        self._copies.append(_Copied(made, original, versions, self.open[0], place))


def _breaks(why: str) -> str:
    return f"the graph breaks, since {why}"


# -- the jump -------------------------------------------------------------------------------------
def run_conditional(
    tx: Interpreter, instr: Instruction, value: Value, jumps_if: bool, kept: Sequence[Value] = ()
) -> bool:
    """Have the conditional jump on `value`, which is not on the stack any more, with both sides in
    the graph; False if that cannot be.

    kept: what the jump, where it is made, leaves on the stack.
    """
    output = tx.output
    conditionals = output.conditionals
    wanted = ("all", "fullgraph") if output.context.fullgraph else ("all",)
    if config.capture_branches not in wanted or output.guesses or output.context.export:
        return False
    if output.context.hooks is not None or len(output.bodies) != len(conditionals.open):
        return False
    meeting = _meeting(tx, instr)
    if meeting is None:
        return False
    place = _place(tx)
    broken = output.checks.breaking_at(tx, breaks.DataDependentJump(value.describe()))
    state = _State.of(tx)
    conditionals.open.append(broken)
    try:
        conditionals.count(tx.code, instr)
        later = value.deferred_truth(tx)
        if later is None:
            return False
        starts = [(instr.target.index, kept), (instr.index + 1, ())]  # type: ignore[union-attr]
        if not jumps_if:
            starts.reverse()
        with _refusals():
            sides = [_captured(tx, state, start, meeting) for start in starts]
            _Meeting(tx, meeting, sides, place).join(later[0].node)
    except _Refused as refused:
        state.restore(tx)
        conditionals.notes[place] = _breaks(refused.why)
        return False
    except BaseException:
        state.restore(tx)
        raise
    finally:
        conditionals.open.pop()
    conditionals.notes[place] = "a conditional in the graph"
    return True


def _meeting(tx: Interpreter, instr: Instruction) -> int | None:
    """Where the sides meet, if the frame is one whose sides may be captured apart."""
    output = tx.output
    if tx.hidden or tx.namespace is not None or tx.code.co_flags & _GENERATOR_FLAGS:
        return None
    if output.finalizable or output.has_overrides or len(output.conditionals.open) >= _DEEPEST:
        return None
    names = (getattr(n.target, "__name__", "") for n in output.graph.nodes if n.op[:4] == "call")
    if any(mode in name for name in names for mode in _MODES):
        return None
    return meeting_of(tx.code, instr)


def _place(tx: Interpreter) -> str:
    frame = tx.user_stack()[-1]
    return f"{frame.filename}:{frame.lineno} in {frame.name}"


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """What capture cannot do inside is a reason against the conditional, not for a break there."""
    try:
        yield
    except Unsupported as error:
        raise _Refused(f"in a side: {error.reason}") from None
    except Retry as retry:
        raise _Refused(f"in a side: {getattr(retry.plan, 'cause', 'a value is needed')}") from None
    except AttemptEnded:
        raise _Refused("a break stands in a side") from None


# -- a side ---------------------------------------------------------------------------------------
class _State(NamedTuple):
    """What an interpreter holds."""

    stack: list[Any]
    locals: dict[str, Any]
    place: int
    current: Any
    began: int
    exception: Value | None

    @classmethod
    def of(cls, tx: Interpreter) -> _State:
        stack, local = list(tx.stack), dict(tx.locals)
        return cls(stack, local, tx.index, tx.current, tx.began, tx.exc_info)

    def restore(self, tx: Interpreter) -> None:
        tx.stack[:] = self.stack
        tx.locals.clear()
        tx.locals.update(self.locals)
        tx.index, tx.current, tx.began = self.place, self.current, self.began
        tx.exc_info, tx.done, tx.result = self.exception, False, None


@dataclass
class _Side:
    """What one side did. result: what it returned, if the frame ends with it."""

    graph: Subgraph
    stack: list[Any]
    locals: dict[str, Any]
    result: Value | None


def _captured(
    tx: Interpreter,
    state: _State,
    start: tuple[int, Sequence[Value]],
    meeting: int,
) -> _Side:
    output, effects_ = tx.output, tx.output.side_effects
    state.restore(tx)
    tx.index = start[0]
    tx.stack += start[1]
    values, crossed = len(output.values_by_source), effects_.crossings
    grad = torch.is_grad_enabled()
    with body_scope(tx) as graph, effects_.untouched():
        _run(tx, meeting)
        if torch.is_grad_enabled() is not grad:
            raise _Refused("a side changes the grad mode")
    if effects_.crossings != crossed or output.finalizable or tx.exc_info is not state.exception:
        raise _Refused("a side does more than compute tensors")
    found = itertools.islice(output.values_by_source.values(), values, None)
    if any(_belongs(value, graph) for value in found):
        raise _Refused("a side makes a tensor of what comes from outside")
    _check_lifted(graph, output.context.fullgraph)
    _check_nodes(graph)
    return _Side(graph, list(tx.stack), dict(tx.locals), tx.result if tx.done else None)


def _run(tx: Interpreter, meeting: int) -> None:
    """Execute instructions as `Interpreter.run` does; exceptions leave the side."""
    while not tx.done and tx.index != meeting:
        tx.began = tx.output.steps
        if tx.began >= tx.output.next_event:
            tx.arrive()
        tx.output.steps += 1
        handler, instr = tx.program[tx.index]
        tx.current = instr
        tx.index += 1
        handler(tx, instr)


def _belongs(value: Any, graph: Subgraph) -> bool:
    return isinstance(value, TensorValue) and value.node.graph is graph.graph


def _check_lifted(side: Subgraph, may_vary: bool) -> None:
    """What a side is given: tensors, and numbers that are inputs of the graph."""
    for node in side.lifted:
        value = node.meta["example_value"]
        tensor = isinstance(value, torch.Tensor)
        numbers = (*value.shape, *value.stride()) if tensor else (value,)
        if not tensor and not is_symbol(value):
            raise _Refused("a side uses more than tensors")
        if any(map(depends_on_data, numbers)):
            raise _Refused("a side uses a size or number that depends on data")
        if not may_vary and any(map(is_symbolic, numbers)):
            raise _Refused("a side uses a size or number that varies, and fullgraph is not set")


def _outside(side: Subgraph) -> set[Any]:
    """The memory of the tensors that a side is given."""
    values = (node.meta["example_value"] for node in side.lifted)
    return {_memory(value) for value in values if isinstance(value, torch.Tensor)}


def _check_nodes(side: Subgraph) -> None:
    """A side computes tensors from tensors, and cannot fail."""
    outside = _outside(side)
    for node in side.graph.nodes:
        if not node.op.startswith("call_") or node.target is branch:
            continue
        name = getattr(node.target, "__name__", node.target)
        does = effects.of(node)
        if does.other or (does.writes and not _writes_own(node, outside)):
            raise _Refused(f"a side does more than compute tensors ({name})")
        if can_fail(node.target, node.args):
            raise _Refused(f"a side may raise ({name})")


def _writes_own(node: Node, outside: set[Any]) -> bool:
    """Whether a node writes nothing but a tensor that its side made."""
    name = getattr(node.target, "__name__", node.target)
    if name in ("batch_norm", "instance_norm") or "out" in node.kwargs or not node.args:
        return False
    first = node.args[0]
    return _is_tensor(first) and _memory(first.meta["example_value"]) not in outside


def _is_tensor(arg: Any) -> bool:
    return isinstance(arg, Node) and isinstance(arg.meta.get("example_value"), torch.Tensor)


def _memory(fake: torch.Tensor) -> Any:
    return fake.untyped_storage()._cdata if fake.layout is torch.strided else id(fake)


# -- where the sides meet -------------------------------------------------------------------------
class _Meeting:
    """Puts together what two sides leave behind."""

    def __init__(self, tx: Interpreter, meeting: int, sides: Sequence[_Side], place: str) -> None:
        self.tx = tx
        self.meeting = meeting
        self.first, self.second = sides
        self.place = place
        self.pairs: dict[tuple[int, int], tuple[TensorValue, TensorValue]] = {}
        self.joined: dict[tuple[int, int], Value] = {}

    def join(self, predicate: Node) -> None:
        """Go on behind the branch."""
        tx, first, second = self.tx, self.first, self.second
        if (first.result is None) is not (second.result is None):
            raise _Refused("one side returns")
        both = list(self._both())
        for one, other in both:
            self._find(one, other)
        if self.pairs:
            self._record(predicate)
        made = [self._value(one, other) for one, other in both]
        if first.result is not None:
            tx.result, tx.done = made[0], True
            return
        tx.done, tx.result, tx.index = False, None, self.meeting
        depth = len(first.stack)
        tx.stack[:] = made[:depth]
        tx.locals.clear()
        tx.locals.update(zip(self._names(), made[depth:], strict=True))

    def _both(self) -> Iterator[tuple[Any, Any]]:
        """What is compared: the result, or the stack and then the locals."""
        first, second = self.first, self.second
        if first.result is not None:
            yield first.result, second.result
            return
        if len(first.stack) != len(second.stack):
            raise _Refused("the sides leave different stacks")
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
                raise _Refused(f"one side alone assigns {name!r}")
        return names

    # -- pairs ----------------------------------------------------------------------------------
    def _find(self, one: Any, other: Any) -> None:
        """Note the tensors that differ; raises _Refused where anything else does."""
        if one is other:
            if isinstance(one, Value) and self._is_inside(one):
                raise _Refused("a tensor leaves its side")
            return
        one, other = self._real(one), self._real(other)
        if one is other or _are_equal(one, other):
            return
        nested = _items(self.tx, one, other)
        if nested is not None:
            for pair in nested:
                self._find(*pair)
        elif type(one) is type(other) is TensorValue:
            self.pairs[id(one), id(other)] = one, other
        else:
            text = f"the sides leave {one.describe()} and {other.describe()}"
            raise _Refused(text)

    def _real(self, value: Any) -> Value:
        return value.realize(self.tx) if isinstance(value, Lazy) else value

    def _is_inside(self, value: Value) -> bool:
        return any(_belongs(value, side.graph) for side in (self.first, self.second))

    def _value(self, one: Any, other: Any) -> Any:
        if one is other:
            return one
        one, other = self._real(one), self._real(other)
        if one is other or _are_equal(one, other):
            return one
        nested = _items(self.tx, one, other)
        if nested is None:
            return self.joined[id(one), id(other)]
        items = [self._value(*pair) for pair in nested]
        return TupleValue(items) if type(one) is TupleValue else NamedTupleValue(one.cls, items)

    # -- the node -------------------------------------------------------------------------------
    def _record(self, predicate: Node) -> None:
        output = self.tx.output
        pairs = list(self.pairs.values())
        for one, other in pairs:
            self._check_pair(one, other)
        columns = list(zip(*pairs))
        results = [
            self._results(side.graph, column)
            for side, column in zip((self.first, self.second), columns)
        ]
        fakes = [self._fake(one[1], other[1]) for one, other in zip(*results)]
        lifted = share_lifted(self.first.graph, self.second.graph)
        bodies = []
        for side, side_results in zip((self.first, self.second), results):
            module = side.graph.finish(side.graph.local(tuple(node for node, _ in side_results)))
            bodies.append(attach(self.tx, module, output))
        args = (predicate, *bodies, lifted)
        node = output.create_node("call_function", branch, args, {}, tuple(fakes), self.tx)
        made = wrap_nest(self.tx, node, tuple(fakes)).unpack(self.tx)
        self._note_copies(pairs, made)
        self.joined = dict(zip(self.pairs, made))

    def _check_pair(self, one: TensorValue, other: TensorValue) -> None:
        for value in (one, other):
            fake = value.fake
            plain = value.python_type() is torch.Tensor and fake.layout is torch.strided
            odd = fake.is_conj() or fake.is_neg() or fake.is_quantized or fake.is_inference()
            if not plain or odd or self.tx.output.side_effects.stored_attrs(value):
                raise _Refused("a side leaves a tensor of a kind of its own")
            if fake.requires_grad and not torch.is_grad_enabled():
                raise _Refused("a side leaves a tensor with a gradient where grad mode is off")
            if any(map(depends_on_data, (*fake.shape, *fake.stride()))):
                raise _Refused("a side leaves a tensor whose size depends on data")

    def _results(
        self, side: Subgraph, values: Iterable[TensorValue]
    ) -> list[tuple[Node, torch.Tensor]]:
        """What the side's graph returns: tensors in memory of their own."""
        output = self.tx.output
        outside = _outside(side)
        found: dict[Any, TensorValue] = {}
        results = []
        output.bodies.append(side)
        try:
            for value in values:
                memory, fake, node = _memory(value.fake), value.fake, value.node
                if found.setdefault(memory, value) is not value:
                    raise _Refused("a side leaves two tensors of one memory")
                whole = not fake._is_view() and fake.storage_offset() == 0
                if memory in outside or node.graph is not side.graph or not whole:
                    with output.fake_mode:
                        fake = fake.clone()
                    args = (node,)
                    node = output.create_node("call_method", "clone", args, {}, fake, self.tx)
                results.append((node, fake))
        finally:
            output.bodies.pop()
        return results

    def _fake(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """The fake result of the branch, of those of its sides."""
        metadata = [
            ([expr_of(n) for n in (*t.shape, *t.stride())], t.dtype, t.device, t.requires_grad)
            for t in (one, other)
        ]
        if metadata[0] != metadata[1]:
            kinds = " and ".join(_described(t) for t in (one, other))
            raise _Refused(f"the sides leave tensors that differ: {kinds}")
        with self.tx.output.fake_mode, torch.enable_grad():
            made = torch.empty_strided(one.shape, one.stride(), dtype=one.dtype, device=one.device)
            if one.requires_grad:
                made = made.requires_grad_().clone()
        if list(map(expr_of, made.stride())) != list(map(expr_of, one.stride())):
            raise _Refused("a side leaves a tensor with gaps in its memory")
        return made

    def _note_copies(
        self, pairs: Sequence[tuple[TensorValue, TensorValue]], made: Sequence[Value]
    ) -> None:
        """Which results are in fact tensors that there are outside of the sides, or views of them,
        if a side was run.
        """
        for side, column in zip((self.first, self.second), zip(*pairs)):
            outside = _outside(side.graph)
            for value, result in zip(column, made, strict=True):
                assert isinstance(result, TensorValue), "branches give tensors"
                if _memory(value.fake) in outside:
                    result.may_be_another = True
                    self.tx.output.conditionals.copied(result.fake, value.fake, self.place)


def _are_equal(one: Value, other: Value) -> bool:
    """Whether both are one literal."""
    if not (one.is_constant() and other.is_constant()):
        return False
    left, right = one.as_constant(), other.as_constant()
    return type(left) is type(right) and type(left) in _LITERALS and repr(left) == repr(right)


def _items(tx: Interpreter, one: Value, other: Value) -> list[tuple[Value, Value]] | None:
    """The items of two tuples of one kind and length, in pairs."""
    if type(one) is not type(other) or type(one) not in (TupleValue, NamedTupleValue):
        return None
    if one.cls is not other.cls:  # type: ignore[attr-defined]
        return None
    left, right = one.unpack(tx), other.unpack(tx)
    return list(zip(left, right)) if len(left) == len(right) else None


def _described(fake: torch.Tensor) -> str:
    grad = ", requires grad" if fake.requires_grad else ""
    return f"{tuple(fake.shape)} strides {fake.stride()} {str(fake.dtype)[6:]}{grad}"
