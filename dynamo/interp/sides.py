"""Sides of branches and iterations of loops: instructions of a frame that are captured in a graph
of their own, and compute tensors and nothing else.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from dynamo import breaks
from dynamo.bytecode.branches import originals
from dynamo.errors import Unsupported
from dynamo.plans import AttemptEnded, Retry
from dynamo.torch.autocast import autocast_nesting
from dynamo.torch.bodies import body_scope
from dynamo.torch.histories import JoinedHistory
from dynamo.torch.numpy_values import ArrayValue
from dynamo.torch.subgraph import Subgraph
from dynamo.values.base import Value
from dynamo.values.containers.containers import ListValue, NamedTupleValue, TupleValue
from dynamo.values.containers.dicts import DictValue
from dynamo.values.effects.side_effects import SERIALS
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.tensors.tensor import TensorValue, call_in_graph
from fxgraph import Node, effects
from fxgraph.aot.functional import AUTOCAST_SWITCHES, GRAD_SWITCHES
from fxgraph.args import leaves
from fxgraph.expressions import negated
from fxgraph.fallible_operations import may_fail, unused_that_may_fail
from fxgraph.higher_order import branch, loop
from fxgraph.symbolic_values import (
    depends_on_data,
    expr_of,
    hint_of,
    is_symbolic,
    layout_numbers,
)
from fxgraph.wrapper_parts import flatten

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter
    from dynamo.values.effects.lifetimes import Finalizable

_LITERALS = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)


class Refused(Exception):
    """The branch is no conditional, the loop none of the graph, or the region none that runs on
    nothing (interp/empty_regions.py). why: "the graph breaks, since ...". of_data: it asks for
    numbers or sizes that are data.
    """

    def __init__(self, why: str, of_data: bool = False) -> None:
        super().__init__(why)
        self.why = why
        self.of_data = of_data


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """Turn breaks and retries in the block into reasons against capture of the conditional."""
    try:
        yield
    except Unsupported as error:
        of_data = isinstance(error.reason, breaks.DynamicShapeOp | breaks.DataDependentValue)
        raise Refused(f"in a side: {error.reason}", of_data) from None
    except Retry as retry:
        raise Refused(f"in a side: {getattr(retry.plan, 'cause', 'a value is needed')}") from None
    except AttemptEnded:
        raise Refused("a break stands in a side") from None


class State(NamedTuple):
    """A copy of the state of an interpreter: stack, locals, the place in its code, and the objects
    whose end the program notices.
    """

    stack: list[Any]
    locals: dict[str, Any]
    place: int
    current: Any
    began: int
    exception: Value | None
    serial: int  # values made after the copy have higher serial numbers
    finalizable: dict[int, Finalizable]

    @classmethod
    def of(cls, tx: Interpreter) -> State:
        stack, local = list(tx.stack), dict(tx.locals)
        place = tx.index, tx.current, tx.began
        ends = dict(tx.output.finalizable)
        return cls(stack, local, *place, tx.exc_info, next(SERIALS), ends)

    def restore(self, tx: Interpreter) -> None:
        tx.stack[:] = self.stack
        tx.locals.clear()
        tx.locals.update(self.locals)
        tx.index, tx.current, tx.began = self.place, self.current, self.began
        tx.exc_info, tx.done, tx.result = self.exception, False, None
        tx.output.finalizable = dict(self.finalizable)


@contextlib.contextmanager
def side_scope(tx: Interpreter, state: State, may_fail: bool = False) -> Iterator[Subgraph]:
    """Inside, the frame goes on from `state` in a graph of its own. Raises Refused at the end, if
    that has done more than compute tensors. may_fail: by operations that may fail, too.
    """
    output, effects_ = tx.output, tx.output.side_effects
    state.restore(tx)
    values, crossed = len(output.values_by_source), effects_.crossings
    assumed = output.symbols.data.assumptions()
    modes = _modes()
    with body_scope(tx) as graph, effects_.untouched():
        graph.takes_data = output.symbols.data.takes_sizes()
        try:
            yield graph
            if _modes() != modes:
                raise Refused("a side changes the grad mode, or autocast")
        finally:
            _set_autocast(modes)
    if effects_.crossings != crossed or output.finalizable or tx.exc_info is not state.exception:
        raise Refused("a side does more than compute tensors")
    found = itertools.islice(output.values_by_source.values(), values, None)
    if any(_belongs(value, graph) for value in found):
        raise Refused("a side makes a tensor of what comes from outside")
    if output.symbols.data.assumptions() != assumed:
        raise Refused("a side assumes something of data")
    _check_inputs(graph)
    _check_nodes(graph, may_fail)


_DEVICES = ("cpu", "cuda")
_SWITCHES = GRAD_SWITCHES | AUTOCAST_SWITCHES | {torch.clear_autocast_cache}


def _modes() -> tuple[Any, ...]:
    """Grad mode, and the state of autocast."""
    casts = [(torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in _DEVICES]
    cached, nesting = torch.is_autocast_cache_enabled(), autocast_nesting()
    return torch.is_grad_enabled(), cached, nesting, *casts


def _set_autocast(modes: tuple[Any, ...]) -> None:
    _, cached, nesting, *casts = modes
    for _ in range(autocast_nesting() - nesting):
        torch.autocast_decrement_nesting()
    for _ in range(nesting - autocast_nesting()):
        torch.autocast_increment_nesting()
    torch.set_autocast_cache_enabled(cached)
    for device, (enabled, dtype) in zip(_DEVICES, casts):
        torch.set_autocast_enabled(device, enabled)
        torch.set_autocast_dtype(device, dtype)


def run_until(tx: Interpreter, stop: int) -> None:
    """Execute instructions as `Interpreter.run` does, up to `stop` or a copy of it. Exceptions
    leave the side.
    """
    first = originals(tx.code)
    while not tx.done and first[tx.index] != stop:
        tx.began = tx.output.steps
        if tx.began >= tx.output.next_event:
            tx.arrive()
        tx.output.steps += 1
        handler, instr = tx.program[tx.index]
        tx.current = instr
        tx.index += 1
        handler(tx, instr)


def is_inside(value: Any, *sides: Subgraph) -> bool:
    return any(_belongs(value, side) for side in sides)


def _belongs(value: Any, graph: Subgraph) -> bool:
    return isinstance(value, TensorValue) and value.node.graph is graph.graph


def _inputs(side: Subgraph) -> list[Any]:
    return [node.meta["example_value"] for node in side.graph.find_nodes(op="placeholder")]


def _check_inputs(side: Subgraph) -> None:
    """Refuse sides with inputs other than tensors and numbers."""
    if not all(isinstance(value, torch.Tensor) or is_symbolic(value) for value in _inputs(side)):
        raise Refused("a side uses more than tensors")


def lift_sizes(tx: Interpreter, side: Subgraph) -> bool:
    """Have a side take the numbers that sizes of its tensors are made of; whether any of them
    depends on data.
    """
    values = [node.meta.get("example_value") for node in side.graph.nodes]
    numbers = [n for value in leaves(values) for n in layout_numbers(value)]
    if not numbers:
        return False
    found = {symbol for number in numbers for symbol in number.node.expr.free_symbols}
    found -= side.numbers.made if side.numbers is not None else set()
    for node in tx.output.symbols.nodes_of(sorted(found, key=str)):
        side.local(node)
    return any(map(depends_on_data, numbers))


def state_condition(tx: Interpreter, side: Subgraph, condition: Any, truth: bool) -> None:
    """Have the side begin with a check of the condition under which it runs, which tells a backend
    of the sizes there, if it computes anything.
    """
    first = next((node for node in side.graph.nodes if node.op != "placeholder"), None)
    if first is None:
        return
    (node,) = tx.output.symbols.nodes_of([condition if truth else negated(condition)])
    local = side.local(node)
    with side.graph.inserting_before(first):
        check = side.graph.call_function(torch._check, (local,))
    check.meta["example_value"] = check.meta["val"] = None


def outside_memory(side: Subgraph) -> set[Any]:
    """The memory of the tensors that a side is given, and does not write."""
    given = [value for value in _inputs(side) if isinstance(value, torch.Tensor)]
    return {memory for value in given for memory in _memories(value)} - side.rewritten


def _memories(fake: torch.Tensor) -> Iterator[Any]:
    """The memory of a tensor, and of those that it wraps."""
    yield memory_of(fake)
    if is_traceable_wrapper_subclass(fake):
        for name in flatten(fake)[0]:
            yield from _memories(getattr(fake, name))


def side_may_fail(side: Subgraph) -> bool:
    """Whether a node of the side may fail, or of one inside it."""
    calls = [node for node in side.graph.nodes if node.op.startswith("call_")]
    # The turns of loops were looked at.
    return any(may_fail(node) for node in calls if node.target is not loop)


def check_unused(side: Subgraph, results: Sequence[Node]) -> None:
    """Refuse sides in which an operation may raise that leaves nothing behind."""
    if unused_that_may_fail(side.graph.nodes, results):
        raise Refused("a side may raise where it computes what nobody uses")


def _check_nodes(side: Subgraph, may_fail: bool) -> None:
    """A side computes tensors from tensors."""
    if not may_fail and side_may_fail(side):
        raise Refused("a turn may raise")
    outside = outside_memory(side)
    for node in side.graph.nodes:
        if not node.op.startswith("call_") or node.target in (branch, loop):
            continue
        if node.target in _SWITCHES:  # to and fro
            continue
        name = getattr(node.target, "__name__", node.target)
        does = effects.of(node)
        if does.other or (does.writes and not _writes_own(node, outside)):
            raise Refused(f"a side does more than compute tensors ({name})")


def _writes_own(node: Node, outside: set[Any]) -> bool:
    """Whether a node writes nothing but tensors that its side made, or copied."""
    written = written_by(node)
    return bool(written) and all(
        is_tensor(arg) and memory_of(arg.meta["example_value"]) not in outside for arg in written
    )


def written_by(node: Node) -> Sequence[Any]:
    """The arguments that a node which writes writes; none where that is not known."""
    if updates_statistics(node):
        given = (*node.args[1:3], node.kwargs.get("running_mean"), node.kwargs.get("running_var"))
        return [arg for arg in given if arg is not None]
    named = getattr(node.target, "__name__", node.target) in ("batch_norm", "instance_norm")
    return () if named or "out" in node.kwargs else node.args[:1]


def updates_statistics(node: Node) -> bool:
    return node.target in (torch.nn.functional.batch_norm, torch.nn.functional.instance_norm)


def is_tensor(arg: Any) -> bool:
    return isinstance(arg, Node) and isinstance(arg.meta.get("example_value"), torch.Tensor)


def memory_of(fake: torch.Tensor) -> Any:
    return fake.untyped_storage()._cdata if fake.layout is torch.strided else id(fake)


def call_in_side(
    tx: Interpreter, side: Subgraph, function: Any, args: list[Value], **options: Any
) -> TensorValue:
    """A tensor that a function of torch makes in a side."""
    kwargs: dict[str, Value] = {name: ConstantValue(value) for name, value in options.items()}
    tx.output.bodies.append(side)
    try:
        made = call_in_graph(tx, "call_function", function, args, kwargs)
    finally:
        tx.output.bodies.pop()
    assert isinstance(made, TensorValue), "a tensor"
    return made


def full(
    tx: Interpreter, side: Subgraph, number: int, dtype: torch.dtype, device: torch.device
) -> TensorValue:
    """A tensor of this number, made in a side."""
    args: list[Value] = [ConstantValue(()), ConstantValue(number)]
    return call_in_side(tx, side, torch.full, args, dtype=dtype, device=device)


# -- results of sides -----------------------------------------------------------------------------
def check_result(tx: Interpreter, value: TensorValue) -> None:
    """Raise Refused if the node could not give this tensor."""
    fake = value.fake
    plain = value.python_type() is torch.Tensor and fake.layout is torch.strided
    odd = fake.is_conj() or fake.is_neg() or fake.is_quantized or fake.is_inference()
    if not plain or odd or tx.output.side_effects.stored_attrs(value):
        raise Refused("a side leaves a tensor of a kind of its own")
    if fake.requires_grad and not torch.is_grad_enabled():
        raise Refused("a side leaves a tensor with a gradient where grad mode is off")


def results_of(
    tx: Interpreter, side: Subgraph, values: Iterable[TensorValue]
) -> list[tuple[Node, torch.Tensor]]:
    """The outputs of the side's graph: tensors in memory of their own, and inputs as they are."""
    output = tx.output
    outside = outside_memory(side)
    found: dict[Any, TensorValue] = {}
    results = []
    output.bodies.append(side)
    try:
        for value in values:
            memory, fake, node = memory_of(value.fake), value.fake, value.node
            if found.setdefault(memory, value) is not value:
                raise Refused("a side leaves two tensors of one memory")
            if memory in side.rewritten:
                raise Refused("a side leaves a tensor from outside that it writes")
            from_outside = memory in outside or node.graph is not side.graph
            if from_outside and is_handed_on(value, side):
                node = side.local(node)
            elif from_outside or not _is_whole(fake):
                with output.fake_mode:
                    fake = fake.clone()
                node = output.create_node("call_method", "clone", (node,), {}, fake, tx)
            results.append((node, fake))
    finally:
        output.bodies.pop()
    return results


def is_handed_on(value: TensorValue, side: Subgraph) -> bool:
    """Whether the side gives an input back, the very object."""
    of_side = value.node.graph is side.graph
    return (not of_side or value.node.op == "placeholder") and _is_whole(value.fake)


def _is_whole(fake: torch.Tensor) -> bool:
    return not fake._is_view() and bool(fake.storage_offset() == 0)


def joined_fake(
    tx: Interpreter, one: torch.Tensor, other: torch.Tensor, histories: Sequence[Any] = ()
) -> torch.Tensor:
    """The fake result of a node, joined from two: of its bodies, or of an input and its body's
    result. histories: the arguments of JoinedHistory, if not these two.
    """
    forms = [(t.ndim, t.dtype, t.device, t.requires_grad) for t in (one, other)]
    if forms[0] != forms[1] or not all(_are_one_number(*pair) for pair in _numbers(one, other)):
        kinds = " and ".join(_described(t) for t in (one, other))
        raise Refused(f"the sides leave tensors that differ: {kinds}")
    if not all(left == right for left, right in _numbers(one, other)):  # guarded
        raise Refused("the sides leave tensors of sizes that vary apart")
    made = like(tx, one)
    if one.requires_grad:
        with tx.output.fake_mode, torch.enable_grad():
            made = JoinedHistory.apply(made.detach(), *(histories or (one, other)))
    return made


def _numbers(one: torch.Tensor, other: torch.Tensor) -> Iterator[tuple[Any, Any]]:
    """The sizes and strides of two tensors, in pairs."""
    return zip((*one.shape, *one.stride()), (*other.shape, *other.stride()), strict=True)


def _are_one_number(one: Any, other: Any) -> bool:
    """Whether two numbers are the same, or are so in this call and do not depend on data."""
    if expr_of(one) == expr_of(other):
        return True
    hints = hint_of(one), hint_of(other)
    return hints[0] is not None and hints[0] == hints[1]


def with_sizes_of_data(
    tx: Interpreter, one: torch.Tensor, other: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Both, or, where they differ in a size that is data, two with a symbol of its own there."""
    data = tx.output.symbols.data
    sizes = list(zip(one.shape, other.shape))
    differ = [d for d, pair in enumerate(sizes) if expr_of(pair[0]) != expr_of(pair[1])]
    of_data = all(any(is_symbolic(n) and depends_on_data(n) for n in sizes[d]) for d in differ)
    alike = one.ndim == other.ndim and list(map(expr_of, one.stride())) == list(
        map(expr_of, other.stride())
    )
    if not (differ and of_data and alike and data.takes_sizes()):
        return one, other
    fresh = {d: tx.output.symbols.env.create_unbacked_symint() for d in differ}
    shape = [fresh.get(d, n) for d, n in enumerate(one.shape)]

    def sized(fake: torch.Tensor) -> torch.Tensor:
        with tx.output.fake_mode, torch.no_grad():
            made = torch.empty_strided(shape, fake.stride(), dtype=fake.dtype, device=fake.device)
        return made.requires_grad_(fake.requires_grad)

    return sized(one), sized(other)


def like(tx: Interpreter, fake: torch.Tensor) -> torch.Tensor:
    """A fake tensor of this kind in memory of its own."""
    with tx.output.fake_mode, torch.enable_grad():
        made = torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device=fake.device)
        if fake.requires_grad:
            made = made.requires_grad_().clone()
    if list(map(expr_of, made.stride())) != list(map(expr_of, fake.stride())):
        raise Refused("a side leaves a tensor with gaps in its memory")
    return made


def _described(fake: torch.Tensor) -> str:
    grad = ", requires grad" if fake.requires_grad else ""
    return f"{tuple(fake.shape)} strides {fake.stride()} {str(fake.dtype)[6:]}{grad}"


# -- values of two sides --------------------------------------------------------------------------
def are_equal(one: Value, other: Value) -> bool:
    """Whether both are one literal."""
    if not (one.is_constant() and other.is_constant()):
        return False
    left, right = one.as_constant(), other.as_constant()
    return type(left) is type(right) and type(left) in _LITERALS and repr(left) == repr(right)


def paired_items(
    tx: Interpreter, one: Value, other: Value, since: int
) -> list[tuple[Value, Value]] | None:
    """The items of two containers of one kind and length, in pairs: of tuples, and of lists and
    dicts that the sides made, which is after the serial number `since`.
    """
    if type(one) is not type(other) or type(one) not in CONTAINERS:
        return None
    if one.cls is not other.cls:  # type: ignore[attr-defined]
        return None
    if type(one) in _MUTABLE and not all(_is_newer(value, since) for value in (one, other)):
        return None
    if type(one) is DictValue:
        assert isinstance(other, DictValue)
        keys = one.keys(tx), other.keys(tx)
        if len(keys[0]) != len(keys[1]) or not all(map(are_equal, *keys)):
            return None
        return list(zip(one.values(tx), other.values(tx)))
    left, right = one.unpack(tx), other.unpack(tx)
    return list(zip(left, right)) if len(left) == len(right) else None


def paired_arrays(one: Value, other: Value) -> list[tuple[Value, Value]] | None:
    """The tensors of two arrays, or of two scalars of numpy, that the frame made."""
    if not (type(one) is type(other) is ArrayValue) or one.scalar is not other.scalar:
        return None
    made = not any(array.source or array.is_reversed for array in (one, other))
    return [(one.tensor, other.tensor)] if made else None


_MUTABLE = (ListValue, DictValue)
CONTAINERS = (TupleValue, NamedTupleValue, *_MUTABLE)


def _is_newer(value: Value, since: int) -> bool:
    made = value.mutation
    return value.source is None and made is not None and made.new and made.serial > since


def rebuilt(tx: Interpreter, one: Any, items: list[Any]) -> Value:
    """A container like `one` of other items; an array, of another tensor."""
    if type(one) is ArrayValue:
        array = ArrayValue(items[0])
        array.scalar = one.scalar
        return array
    if type(one) is NamedTupleValue:
        return NamedTupleValue(one.cls, items)
    if type(one) is TupleValue:
        return TupleValue(items)
    made: Value = ListValue(items)
    if type(one) is DictValue:
        keys = zip(one.entries, one.keys(tx), items, strict=True)
        made = DictValue({key: (value, item) for key, value, item in keys})
    return tx.output.side_effects.track_new(made)
