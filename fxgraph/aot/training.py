"""Runs a TrainingGraph: one node of autograd around compiled forward and backward callables.

The node is in C++ (csrc/): it saves tensors for the backward as eager's nodes do, so that
saved-tensor hooks, version counters, retain_graph and their errors are autograd's own. A backward
is compiled for each set of outputs that gradients arrive at: outputs that nobody differentiated
cost nothing, and add nothing (zero times an infinite derivative would be nan). An output that the
graph itself goes on to use ends a segment with a node of its own: its gradient is whole, for hooks
too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from fxgraph import faults, modes
from fxgraph.aot import _autograd
from fxgraph.aot.cuts import last_writes, replaced
from fxgraph.aot.freed_graphs import FreedGraphsCallable
from fxgraph.aot.functional import FunctionalGraph, OutputSpec, Segment, TrainingGraph
from fxgraph.aot.interpreted_backward import interpreted_part
from fxgraph.aot.number_inputs import NumberInputs
from fxgraph.aot.partial_backward import BackwardPart, backward_part
from fxgraph.aot.runtime import run_writing
from fxgraph.args import leaves, map_aggregate
from fxgraph.expression_nodes import integers_of
from fxgraph.graph_module import GraphModule
from fxgraph.interpreter import Interpreter
from fxgraph.node import Node, Target
from fxgraph.symbolic_values import expr_of, is_symbolic

Compiled = Callable[..., Sequence[Any]]
CompileBackward = Callable[[FunctionalGraph], Callable[[list[Any]], Sequence[Any]]]

_SAVED = ("input", "value", "kept", "memory", "held")
_OUTPUTS = (
    "fresh",
    "input",
    "alias_of_input",
    "same_as_output",
    "alias_of_output",
    "alias_of_intermediate",
    "constant",
)
_VALUES = ("fresh", "alias_of_intermediate")


def training_callable(
    training: TrainingGraph,
    compile_forward: Callable[[], Compiled],
    compile_backward: CompileBackward,
    statics: Sequence[torch.Tensor | None] | None = None,
    note: Callable[[str], None] = lambda text: None,
) -> Callable[..., Any]:
    """The callable that a backend returns for a graph that is differentiated; attributes may be set
    on it.

    compile_forward: gives training.forward, compiled: takes the inputs that have no entry in
        `statics` (by input; parameters and buffers bound once), runs without grad mode and
        autocast. Called once, behind compile_backward's first calls.
    compile_backward: makes the callable for a backward graph, of one list that it may empty. Called
        now for segments with one differentiable value, else when a backward arrives. After a fault
        there the backward runs operator by operator; `note` is told.

    A second derivative is taken through the torch-level graph, run again by autograd, where that
    gives the same values: not if the graph writes inputs or draws random numbers, which raises.
    """
    numbers = NumberInputs(training)
    backwards = _Backwards(training, numbers.backward(compile_backward), note)
    for number, segment in enumerate(training.segments):
        if len(segment.tangents) == 1:
            backwards.part_for(number, tuple(segment.tangents))
    forward = backwards.forward = numbers.forward(compile_forward(), statics)
    backwards.statics = statics or (None,) * len(_placeholders(training.forward))
    step = numbers.step(_autograd.Step(_spec(training, forward, backwards, statics)), statics)
    frame = training.frame
    if frame.structure != tuple(range(len(frame.outputs))):
        step = _Nested(step, frame)
    if training.spent:
        step = FreedGraphsCallable(step, training.spent, statics or (), grad_mode=True)
    return step


class _Nested:
    """Puts the flat results into the nest that the torch-level graph returns."""

    def __init__(self, step: Callable[..., Any], frame: FunctionalGraph) -> None:
        self.step = step
        self.structure = frame.structure

    def __call__(self, *inputs: Any) -> Any:
        return map_aggregate(self.structure, self.step(*inputs).__getitem__)


def _spec(
    training: TrainingGraph,
    forward: Compiled,
    backwards: _Backwards,
    statics: Sequence[torch.Tensor | None] | None,
) -> dict[str, Any]:
    """The dict that csrc/step.cpp reads."""
    frame = training.frame
    varying = _VaryingViews(frame)
    return {
        "name": f"framegraph::{frame.source.meta.get('name', 'graph')}",
        "forward": forward,
        "eager": lambda *inputs: tuple(
            leaves(Interpreter(frame.source).run(*NumberInputs(training).plain(inputs)))
        ),
        "derive": backwards.derive,
        "specialize": backwards.specialize,
        "statics": statics or [None] * len(_placeholders(training.forward)),
        "values": frame.value_count,
        "saved": [(_SAVED.index(name), number) for name, number in training.saved],
        "layouts": [_layout(n.meta["val"]) for n in _saved_placeholders(training)],
        "versions": training.versions,
        "segments": [
            _segment(training, segment, backwards.whole(number).saved)
            for number, segment in enumerate(training.segments)
        ],
        "cuts": list(training.cuts),
        "rebased": training.rebased,
        "whole": training.whole,
        "outputs": [_output(spec, place) for spec, place in zip(frame.outputs, varying.places)],
        "numbers": varying.numbers,
        "told": varying.told,
        "written": [m.index for m in frame.input_mutations],
        "same": frame.same_inputs,
    }


def _segment(training: TrainingGraph, segment: Segment, saved: Sequence[int]) -> dict[str, Any]:
    tangents = _placeholders(training.backward)[len(training.saved) :]
    place = {k: n for n, k in enumerate(segment.tangents)}
    targets = [(*training.gradients[k], training.sources[k]) for k in segment.gradients]
    targets += [(kind, number, frozenset(users)) for kind, number, users in segment.without]
    return {
        "values": [training.tangents[k] for k in segment.tangents],
        "tangents": [_layout(tangents[k].meta["val"]) for k in segment.tangents],
        "gradients": [(kind == "output", number) for kind, number, _ in targets],
        "reached": [[j in sources for j in place] for _, _, sources in targets],
        "saved": saved,
        "frees": [[place[j] for j in training.frees[k] if j in place] for k in segment.tangents],
        "watched": [
            (kind == "value", number, [place[k] for k in users])
            for kind, number, users in segment.watched
        ],
    }


def _saved_placeholders(training: TrainingGraph) -> list[Node]:
    return _placeholders(training.backward)[: len(training.saved)]


def _layout(taken: Any) -> tuple[Any, ...] | None:
    """The size, stride, type and device of a tensor that the backward takes; None where they vary,
    and the backward fits what it is given itself.
    """
    if not isinstance(taken, torch.Tensor):
        return None
    if any(map(is_symbolic, (*taken.shape, *taken.stride()))):
        return None
    return tuple(taken.shape), taken.stride(), taken.dtype, taken.device


class _VaryingViews:
    """The returned views whose sizes, strides or offsets vary from call to call.

    places: for each output, where its numbers begin among those of a call, or None. numbers: the
    function that gives them, of the values of `told`, inputs and the forward's values as in
    TrainingGraph.saved; None if there is no such view.
    """

    def __init__(self, frame: FunctionalGraph) -> None:
        exprs: list[Any] = []
        self.places: list[int | None] = []
        for spec in frame.outputs:
            row = (*(spec.size or ()), *(spec.stride or ()), spec.storage_offset)
            varies = any(map(is_symbolic, row))
            self.places.append(len(exprs) if varies else None)
            exprs += map(expr_of, row) if varies else ()
        symbols = sorted({s for expr in exprs for s in expr.free_symbols}, key=str)
        self.told = [
            (_SAVED.index("input"), frame.symbols[symbol])
            if symbol in frame.symbols
            else (_SAVED.index("value"), frame.data[symbol])
            for symbol in symbols
        ]
        self.numbers = integers_of(exprs, symbols) if exprs else None


def _output(spec: OutputSpec, place: int | None) -> tuple[Any, ...]:
    size, stride, offset = spec.size, spec.stride, spec.storage_offset
    if place is not None:
        assert size is not None, "a view"
        size = stride = (0,) * len(size)
        offset = 0
    return (
        _OUTPUTS.index(spec.kind),
        max(spec.index, 0),
        size,
        stride,
        offset,
        spec.detached,
        spec.creation,
        spec.constant,
        place,
        spec.steps,
        spec.own_version,
    )


def _placeholders(functional: FunctionalGraph) -> list[Node]:
    return [n for n in functional.graph_module.graph.nodes if n.op == "placeholder"]


_COPY = torch.ops.aten.copy_.default
_BATCH_NORM = torch.ops.aten._native_batch_norm_legit_functional.default
_STATISTICS = (3, 4)  # of its results


class _Backwards:
    """The ways from tangents to gradients."""

    def __init__(
        self,
        training: TrainingGraph,
        compile_backward: CompileBackward,
        note: Callable[[str], None],
    ) -> None:
        self.training = training
        self.compile_backward = compile_backward
        self.note = note
        self.made: dict[tuple[int, tuple[int, ...]], tuple[Any, BackwardPart]] = {}
        self._wholes: dict[int, BackwardPart] = {}
        self.forward: Compiled  # set when it is compiled, with the inputs bound to it
        self.statics: Sequence[torch.Tensor | None]
        self.modes = modes.read_modes()  # of the call

    def whole(self, number: int) -> BackwardPart:
        """The backward of a segment for all of its tangents."""
        if number not in self._wholes:
            segment = self.training.segments[number]
            self._wholes[number] = backward_part(self.training, segment, segment.tangents)
        return self._wholes[number]

    def part_for(self, number: int, present: tuple[int, ...]) -> tuple[Any, BackwardPart]:
        """The compiled backward of a segment for the tangents `present` (positions)."""
        key = number, present
        if key not in self.made:
            whole = self.whole(number)
            try:
                self.made[key] = self._compiled(number, present)
            except Exception as error:
                faults.insist(error)
                way = "the backward runs on aten, operator by operator"
                self.note(faults.tell(error, "backward", way))
                part, run = interpreted_part(self.training, whole, present)
                self.made[key] = run, part
        return self.made[key]

    def _compiled(self, number: int, present: tuple[int, ...]) -> tuple[Any, BackwardPart]:
        segment = self.training.segments[number]
        if present == tuple(segment.tangents):
            part = self.whole(number)
        else:
            part = backward_part(self.training, segment, present)
        return self.compile_backward(part.graph) if part.computes else None, part

    def specialize(self, number: int, arriving: list[int]) -> tuple[Any, ...]:
        """The backward of a segment for those of its tangents that arrive, as csrc/ wants it."""
        segment = self.training.segments[number]
        present = tuple(segment.tangents[n] for n in arriving)
        compiled, part = self.part_for(number, present)
        tangents = [segment.tangents.index(k) for k in part.tangents]
        gradients = [segment.gradients.index(k) for k in part.gradients]
        handed = part.handed_on
        views = [(segment.tangents.index(k), steps) for k, steps in handed.views]
        receivers = [(segment.gradients.index(k), n) for k, n in handed.gradients]
        plain = None if compiled is None else self._plain(part)
        return compiled, part.saved, tangents, gradients, views, receivers, plain

    def _plain(self, part: BackwardPart) -> Callable[[list[Any]], Sequence[Any]]:
        """The part, operator by operator: for inputs that `x.data = y` has made of another size or
        type than the compiled one takes.
        """
        return NumberInputs(self.training).backward(run_backward)(part.graph)

    def derive(
        self,
        number: int,
        inputs: Sequence[torch.Tensor],
        cuts: Sequence[torch.Tensor],
        given: Sequence[Any],
        kept: Sequence[torch.Tensor | None],
    ) -> list[Any]:
        """The segment's gradients as operations that autograd records if grad mode is on.

        cuts: the outputs that this and earlier segments go on from. kept: by value that the segment
        saves, that of the forward; None for inputs.
        """
        training = self.training
        if training.draws or _reads_overwritten(training):
            raise RuntimeError(
                "a second derivative of a compiled function whose results depend on inputs that it "
                "overwrites, or that draws random numbers: compute it with dynamo.disable around "
                "the function"
            )
        self._refuse_other_values(number, inputs, kept)
        segment = training.segments[number]
        again = torch.is_grad_enabled()
        with modes.under(self.modes), torch.enable_grad():
            # Views: gradients end here, not at the tensors of which the inputs were made.
            plain = list(NumberInputs(training).plain(inputs))
            for mutation in training.frame.input_mutations:  # they are not written again
                plain[mutation.index] = plain[mutation.index].detach().clone()
            places: dict[tuple[str, int], Any] = {
                ("input", i): _viewed(x) for i, x in enumerate(plain)
            }
            places.update(
                (("output", i), _viewed(y)) for i, y in zip(_held(training, number), cuts)
            )
            values = self._values_again(places)
        overwritten = {("input", i) for i in training.rebased}
        kinds = [training.gradients[k] for k in segment.gradients]
        targets = [places[kind] for kind in kinds]
        wanted = [
            n
            for n, (kind, target) in enumerate(zip(kinds, targets))
            if target.requires_grad and kind not in overwritten
        ]
        pairs = [
            (_shaped_like(tangent, values[training.tangents[k]]), tangent)
            for k, tangent in zip(segment.tangents, given)
            if tangent is not None
        ]
        results = torch.autograd.grad(
            [value for value, _ in pairs],
            [targets[n] for n in wanted],
            [tangent for _, tangent in pairs],
            create_graph=again,
            allow_unused=True,
        )
        found: list[Any] = [None] * (len(targets) + len(segment.without))
        for n, gradient in zip(wanted, results):
            found[n] = gradient
        for n, (kind, target) in enumerate(zip(kinds, targets)):
            if kind in overwritten:  # nothing reads the values before
                found[n] = torch.zeros_like(target)
        return found

    def _refuse_other_values(
        self, number: int, inputs: Sequence[torch.Tensor], kept: Sequence[torch.Tensor | None]
    ) -> None:
        """Raise where the values that the forward kept are not those of the inputs any more:
        `x.data.mul_(2)` leaves no other trace, and eager goes on from the values before it.
        """
        training = self.training
        if all(value is None for value in kept):
            return
        varying = [x for x, bound in zip(inputs, self.statics, strict=True) if bound is None]
        held = [x if bound is None else bound for x, bound in zip(inputs, self.statics)]
        with _undone([held[mutation.index] for mutation in training.frame.input_mutations]):
            results = _autograd.without_grad(self.forward, *(x.detach() for x in varying))
        first = {"value": 0, "kept": training.frame.value_count}
        for place, value in zip(self.whole(number).saved, kept, strict=True):
            kind, index = training.saved[place]
            if value is not None and not _is_about(results[first[kind] + index], value):
                raise RuntimeError(
                    "an input of a compiled function was given other values (x.data) before a "
                    "second derivative of the function was asked for, which would mix them with "
                    "values computed before: compute it with dynamo.disable around the function"
                )

    def _values_again(self, places: dict[tuple[str, int], Any]) -> Sequence[torch.Tensor]:
        """The forward's values from the torch-level graph, which autograd watches."""
        training = self.training
        frame = training.frame
        known = {
            node: places["output", number]
            for number, node in training.cuts.items()
            if ("output", number) in places
        }
        inputs = [x for (kind, _), x in places.items() if kind == "input"]
        results = leaves(_From(frame.source, known).run(*inputs))
        values: list[Any] = [None] * frame.value_count
        for spec, result in zip(frame.outputs, results):
            if spec.kind in _VALUES and not spec.detached:
                whole = spec.kind == "fresh" or not result._is_view()
                values[spec.index] = result if whole else result._base
        return [*values, *[places["input", i] for i in training.rebased]]


@contextlib.contextmanager
def _undone(written: Sequence[torch.Tensor]) -> Iterator[None]:
    """Give the tensors, which the block writes, their values and versions back."""
    before = [tensor.detach().clone() for tensor in written]
    versions = [tensor._version for tensor in written]
    try:
        yield
    finally:
        for tensor, values in zip(written, before):
            tensor.data.copy_(values)
        torch._C._autograd._unsafe_set_version_counter(tuple(written), tuple(versions))


def _is_about(found: Any, kept: torch.Tensor) -> bool:
    """Whether a value is the same but for the order in which a device adds numbers up."""
    if not isinstance(found, torch.Tensor) or torch.equal(found, kept):
        return True
    if not (kept.is_floating_point() or kept.is_complex()):
        return True  # a mask of values near a limit, which are compared themselves
    largest = kept[kept.isfinite()].abs().max() if kept.isfinite().any() else 0
    return torch.allclose(found, kept, rtol=1e-3, atol=float(largest) * 1e-3, equal_nan=True)


def _reads_overwritten(training: TrainingGraph) -> bool:
    """Whether results depend on what the forward overwrites, as they do not on the statistics of a
    batch norm in training.
    """
    frame = training.frame
    placeholders = _placeholders(frame)
    todo = [placeholders[mutation.index] for mutation in frame.input_mutations]
    found = set(todo)
    while todo:
        node = todo.pop()
        users = list(node.users)
        if node.target is _BATCH_NORM and node.args[5]:
            users = [user for user in users if user.args[1] in _STATISTICS]
        new = [user for user in users if user.target is not _COPY and user not in found]
        found.update(new)
        todo += new
    (results,) = frame.graph_module.graph.output_node().args
    rebased = [placeholders[i] for i in training.rebased]
    copies = frame.graph_module.graph.find_nodes(op="call_function", target=_COPY)
    followed = [copy.args[1] for copy in copies if copy.args[0] in rebased]
    changed = any(mutation.metadata for mutation in frame.input_mutations)
    return changed or not found.isdisjoint([*results[: frame.value_count], *followed])


def _shaped_like(tangent: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """The value in the shape of its tangent: autograd takes results of `_unsafe_view` (of matmul)
    for tensors of their own, functionalisation for views.
    """
    return value if value.shape == tangent.shape else value.reshape(tangent.shape)


class _From(Interpreter):
    """Runs a graph some of whose results (node -> tensor) are known, from where they are final."""

    def __init__(self, module: GraphModule, known: dict[Node, torch.Tensor]) -> None:
        super().__init__(module)
        self.at: dict[Node, list[tuple[Node, torch.Tensor]]] = {}
        for node, last in last_writes(known).items():
            self.at.setdefault(last, []).append((node, known[node]))

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        for node, tensor in self.at.get(n, ()):
            result = replaced(self.env, result if node is n else self.env[node], tensor, result)
        return result


def _viewed(tensor: Any) -> Any:
    """The tensor as another one, of its memory. Its gradient is handed on as the same object, whose
    holders AccumulateGrad counts: other views hand on views, one of which each leaf takes over.
    """
    watched = isinstance(tensor, torch.Tensor) and tensor.requires_grad
    return torch.ops.aten.alias.default(tensor) if watched else tensor


def _held(training: TrainingGraph, number: int) -> list[int]:
    """The cuts that exist when csrc/call.cpp makes the node of this segment."""
    made = training.segments[: number + 1]
    targets = {training.gradients[k] for segment in made for k in segment.gradients}
    targets |= {(kind, i) for segment in made for kind, i, _ in segment.without}
    return [i for i in training.cuts if ("output", i) in targets]


def run_flat(functional: FunctionalGraph) -> Compiled:
    """A part of a training graph, run operator by operator."""
    return lambda *inputs: run_writing(functional, inputs)


def run_backward(functional: FunctionalGraph) -> Callable[[list[Any]], Sequence[Any]]:
    """A backward, run operator by operator."""
    return lambda given: _Emptying(functional.graph_module, given).run()


class _Emptying(Interpreter):
    """Takes the arguments out of a list, so that each is let go after its last use."""

    def __init__(self, module: GraphModule, given: list[Any]) -> None:
        super().__init__(module)
        self.given = given[::-1]
        given.clear()

    def placeholder(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.given.pop()
