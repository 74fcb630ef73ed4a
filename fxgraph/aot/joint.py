"""Torch-level graph -> functional forward and backward graphs, in one pass over fake tensors.

The graph runs once under autograd and the recording mode, which stands below it: autograd builds
its own graph over the fake tensors, and running that backward records the backward's operators.

before                           after
    y = torch.sin(x)                 sin = aten.sin.default(x)
    return (y * 2,)                  mul = aten.mul.Tensor(sin, 2)            | forward
                                     mul_1 = aten.mul.Tensor(tangent, 2)      | backward
                                     cos = aten.cos.default(x)
                                     mul_2 = aten.mul.Tensor(mul_1, cos)
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from graphlib import TopologicalSorter
from typing import Any

import torch

from fxgraph import effects, faults, modes
from fxgraph.aot import decompositions as rules
from fxgraph.aot.clamped import tell_by_results
from fxgraph.aot.cuts import has_hook, last_writes, replaced, used_outputs
from fxgraph.aot.data import data_allowed
from fxgraph.aot.early_checks import check_early
from fxgraph.aot.fake import symbolic_dispatch
from fxgraph.aot.freed_graphs import undifferentiated
from fxgraph.aot.functional import (
    FunctionalGraph,
    Segment,
    TrainingGraph,
    UndifferentiableHere,
    Unfunctionalizable,
    flat_graph,
    makes_leaf,
)
from fxgraph.aot.functionalize import (
    Finish,
    Inputs,
    TracingInterpreter,
    attribute_names,
    for_sharing,
    module_of,
    tracing,
)
from fxgraph.aot.history import History
from fxgraph.aot.partial_backward import tell_sizes
from fxgraph.aot.partition import Parts, partition
from fxgraph.aot.rebased import Subject, Watched, following_writes
from fxgraph.aot.recompute import BACKWARD, traced_as
from fxgraph.aot.trace import Tracer
from fxgraph.args import map_aggregate
from fxgraph.graph import Graph
from fxgraph.graph_module import GraphModule
from fxgraph.node import Node
from fxgraph.symbolic_values import depends_on_data, is_symbol, is_symbolic
from fxgraph.torch_fx import fake_tensor_mode

aten = torch.ops.aten
Arrange = Callable[[Graph, list[Node], list[Node]], tuple[Graph, Callable[[Node], Node]] | None]


def functionalize_training(
    gm: GraphModule,
    example_inputs: Sequence[Any],
    decompositions: dict[Any, Callable[..., Any]] | None = None,
    *,
    keep: Iterable[Any] = (),
    arrange: Arrange | None = None,
) -> TrainingGraph | FunctionalGraph:
    """Trace `gm` with its backward; arguments as for `functionalize`.

    arrange: given the joint graph, before it is cut in two, the nodes that leave it and its
        tangents, a graph that computes the same otherwise inside, and a map from old nodes to new;
        or None.

    A FunctionalGraph, to be run by FreedGraphsCallable, is given where nothing that leaves the
    graph can be differentiated: as of a whole training step, which differentiates its loss itself.

    Raises Unfunctionalizable, and UndifferentiableHere where the program's own backward raises (a
    saved tensor was overwritten).
    """
    start = time.perf_counter()
    table = rules.training_table(keep) if decompositions is None else decompositions

    def trace(cutting: bool) -> TrainingGraph | FunctionalGraph:
        def traced(subject: Subject, twins: bool) -> TrainingGraph | FunctionalGraph:
            cuts = subject.written() | (used_outputs(subject.gm) if cutting else set())
            with modes.under(modes.read_modes()):  # the graph changes them
                return _traced(subject, example_inputs, table, cuts, twins, arrange)

        return for_sharing(
            lambda twins: following_writes(gm, lambda subject: traced(subject, twins))
        )

    try:
        training = trace(cutting=True)
    except (Unfunctionalizable, UndifferentiableHere):
        cuts = used_outputs(gm)
        if not cuts or any(map(has_hook, cuts)):
            raise
        training = trace(cutting=False)
    frame = training if isinstance(training, FunctionalGraph) else training.frame
    frame.stages["functionalize"] = time.perf_counter() - start
    return training


def _traced(
    subject: Subject,
    example_inputs: Sequence[Any],
    table: dict[Any, Any],
    cuts: set[Node],
    twins: bool,
    arrange: Arrange | None,
) -> TrainingGraph | FunctionalGraph:
    gm = subject.gm
    fake_mode = gm.meta.get("fake_mode") or fake_tensor_mode()
    tracer = Tracer(fake_mode, table)
    tracer.attribute_names = attribute_names(gm)
    with tracing(grad=torch.is_grad_enabled()), data_allowed(fake_mode):
        inputs = Inputs(tracer, gm, example_inputs, fake_mode, twins)
        watched = Watched(subject, inputs)
        interpreter = _Cutting(watched, tracer, cuts)
        try:
            with tracer.mode, symbolic_dispatch(fake_mode):
                result = interpreter.run(*inputs.fakes)
        except RuntimeError as error:  # autograd refuses (a leaf is written)
            watched.refused()
            raise UndifferentiableHere(f"autograd raises: {error}") from error
        result = interpreter.originals(result)
        inputs.check_writes()
        with torch._C._AutoDispatchBelowAutograd():
            finished = Finish(tracer, inputs, result, bases_only=True)
        _check_sizes(finished)
        watched.check([mutation.index for mutation in finished.mutations])
        if subject.rebased:
            finished.structure = finished.structure[0]
        _mark_detached(finished)
        _detach_bases(finished)
        _check_views(gm, finished)
        plain = None if subject.rebased else undifferentiated(tracer, gm, inputs, finished)
        if (plain is None or plain.spent) and any(map(makes_leaf, gm.graph.nodes)):
            raise Unfunctionalizable("what the graph gives requires grad by requires_grad_()")
        if plain is not None:
            return plain
        if any(_has_checked_vectors(node, finished.values) for node in tracer.graph.nodes):
            raise UndifferentiableHere("data decides whether complex vectors have a gradient")
        drawn = [node for node in tracer.graph.nodes if effects.of(node).random]
        joint = _Joint(watched, tracer, inputs, finished, interpreter)
    check_early(tracer.graph)
    with faults.stage("partition"):
        parts = _parts(tracer.graph, joint, drawn, arrange)
    if tracer.data.nodes:
        number = tracer.fake.make(torch.int64, (), (), 0, torch.device("cpu"))
        _check_data(joint, parts, number)
    frame = FunctionalGraph(
        graph_module=module_of(tracer, parts.forward, gm),
        outputs=finished.specs,
        input_mutations=finished.mutations,
        structure=finished.structure,
        source=gm,
        same_inputs=inputs.same,
        data=finished.data,
    )
    backward = module_of(tracer, parts.backward, gm)
    joint.watch(parts.saved)
    return TrainingGraph(
        frame=frame,
        forward=flat_graph(frame.graph_module, frame),
        backward=flat_graph(backward),
        saved=joint.places(parts.saved),
        tangents=joint.tangents,
        gradients=joint.gradients,
        sources=joint.sources,
        frees=joint.history.frees,
        segments=joint.segments,
        cuts=joint.cuts,
        versions=[f._version if f.requires_grad else 0 for f in finished.value_fakes],
        draws=any(effects.of(node).random for node in parts.forward.nodes),
        rebased=list(subject.rebased),
        whole=watched.whole(),
        spent=finished.spent,
    )


def _check_sizes(finished: Finish) -> None:
    for mutation in finished.mutations:
        if mutation.metadata:
            raise Unfunctionalizable(f"the sizes of input {mutation.index} change in place")


# Decompositions -> the numbers of their results that, complex, are known up to a phase: their
# gradients raise where what is differentiated depends on it, which fake tensors do not tell.
_VECTORS = {
    aten.linalg_eig.default: (1,),
    aten._linalg_eigh.default: (1,),
    aten._linalg_svd.default: (0, 2),
}


def _has_checked_vectors(node: Node, values: Sequence[Node]) -> bool:
    """Whether a decomposition into complex vectors is used, besides its values."""
    numbers = _VECTORS.get(node.target, ())
    if not numbers or not node.meta["val"][numbers[0]].is_complex():
        return False
    vectors = [user for user in node.users if user.args[1] in numbers]
    return any(vector.users or vector in values for vector in vectors)


def _parts(graph: Graph, joint: _Joint, drawn: list[Node], arrange: Arrange | None) -> Parts:
    values, gradients = joint.finished.values, joint.gradient_nodes
    leaving = [*values, *gradients]
    tell_by_results(graph, leaving)
    arranged = arrange(graph, leaving, joint.tangent_nodes) if arrange is not None else None
    graph, of = arranged or (graph, lambda node: node)
    values, gradients, tangents, drawn = (
        [of(node) for node in nodes] for nodes in (values, gradients, joint.tangent_nodes, drawn)
    )
    saved_by_eager = {of(node): users for node, users in joint.saved_by_eager().items()}
    stored = {of(node) for node in joint.stored()}
    return partition(
        graph,
        values,
        tangents,
        gradients,
        saved_by_eager=saved_by_eager,
        stored=stored,
        drawn=drawn,
    )


def _check_data(joint: _Joint, parts: Parts, number: torch.Tensor) -> None:
    """Refuse data-dependent sizes that the backward's inputs do not determine."""
    values = len(joint.finished.values)
    if len(joint.tangents) > 1 and not tell_sizes(parts, values, number):
        raise Unfunctionalizable("what is saved does not tell a size that depends on data")
    for node in joint.tangent_nodes:
        value = node.meta["val"]
        told = {n.node.expr for n in value.shape if is_symbol(n)}
        strides = [n.node for n in value.stride() if depends_on_data(n)]
        if any(not n.expr.free_symbols <= told for n in strides):
            raise Unfunctionalizable("a result has strides that depend on data")


class _Cutting(TracingInterpreter):
    """Lets autograd's graph end at the results of `cuts`: their users are given a twin, a leaf."""

    def __init__(self, watched: Watched, tracer: Tracer, cuts: set[Node]) -> None:
        super().__init__(watched.subject.gm, tracer)
        self.watched = watched
        self.at: dict[Node, list[Node]] = {}
        for cut, last in last_writes(cuts).items():
            self.at.setdefault(last, []).append(cut)
        self.twins: list[tuple[Node, torch.Tensor, torch.Tensor]] = []  # node, result, twin
        self.histories: list[Any] = []  # of the results then

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        if self.tracer.written:
            self.watched.note(n)
        for cut in self.at.get(n, ()):
            original = result if cut is n else self.env[cut]
            if not isinstance(original, torch.Tensor) or not original.requires_grad:
                continue
            if any(original is twin for _, _, twin in self.twins):
                continue
            given = any(original is leaf for leaf in self.args_of_run)
            if given and cut.op != "placeholder":  # the cut of the input itself, if it is rebased
                continue
            if given:
                self._refuse_views(original, n, result)
            twin = original.detach().requires_grad_()
            self.twins.append((cut, original, twin))
            self.histories.append(original.grad_fn)
            result = replaced(self.env, original, twin, result)
        return result

    def _refuse_views(self, written: torch.Tensor, n: Node, result: Any) -> None:
        """Raise where a view of a written input, made before, is used behind node `n`: its users
        would go back past the twin.
        """
        dead = (self._last_use or {}).get(n, ())
        for node, value in (*self.env.items(), (n, result)):
            view = getattr(value, "_base", None) is written
            if view and node.users and node not in dead:
                raise Unfunctionalizable("a view of a written input is used further")

    def run(self, *args: Any, **kwargs: Any) -> Any:
        self.args_of_run = args
        return super().run(*args, **kwargs)

    def originals(self, result: Any) -> Any:
        """The graph's result, with the original tensors in place of their twins."""
        known = {id(twin): original for _, original, twin in self.twins}
        for (_, original, _), history in zip(self.twins, self.histories):
            if original.grad_fn is not history:
                raise Unfunctionalizable("an output that the graph uses is written")
        return map_aggregate(result, lambda leaf: known.get(id(leaf), leaf))


def _check_views(gm: GraphModule, finished: Finish) -> None:
    """A view that comes from a function with a backward of its own must have that as its history:
    made again from its base, it would not.
    """
    if not any(node.meta.get("traceable") == "views" for node in gm.graph.nodes):
        return
    if any(spec.kind.startswith("alias") and not spec.detached for spec in finished.specs):
        raise Unfunctionalizable("it returns a view of a function with a backward of its own")


def _mark_detached(finished: Finish) -> None:
    for spec, leaf in zip(finished.specs, finished.tensors):
        if isinstance(leaf, torch.Tensor):
            spec.detached = not leaf.requires_grad
            spec.creation = _creation(leaf) if leaf._is_view() else -1


def _detach_bases(finished: Finish) -> None:
    """A value that leaves the graph by views without history alone needs none: a prediction that
    is returned detached, and that nothing has differentiated.
    """
    seen = {s.index for s in finished.specs if s.kind == "fresh"}
    seen |= {
        s.index for s in finished.specs if s.kind == "alias_of_intermediate" and not s.detached
    }
    for i, fake in enumerate(finished.value_fakes):
        if i not in seen and fake.requires_grad:
            finished.value_fakes[i] = fake.detach()


def _creation(view: torch.Tensor) -> int:
    meta: Any = torch._C._autograd._get_creation_meta(view)
    return int(meta)


def _tangent_of(value: torch.Tensor) -> torch.Tensor:
    """A fake tensor with the layout of the gradient that the backward takes: that of the value, but
    contiguous if one element of memory stands for many, as in an expanded value.
    """
    repeats = [
        not is_symbolic(step) and step == 0 and (is_symbolic(n) or n != 1)
        for n, step in zip(value.shape, value.stride())
    ]
    return value.detach().contiguous() if any(repeats) else value.detach()


# Nodes of one graph: each compiles a backward of its own.
_MOST_HISTORIES = 8


class _Joint:
    """Records the backward into the tracer's graph."""

    def __init__(
        self,
        watched: Watched,
        tracer: Tracer,
        inputs: Inputs,
        finished: Finish,
        interpreter: _Cutting,
    ) -> None:
        gm, rebased = watched.subject.gm, watched.subject.rebased
        self.tracer = tracer
        self.inputs = inputs
        self.finished = finished
        self.fakes = finished.value_fakes
        self.leaves = watched.leaves
        self.rebased = {i: len(self.fakes) + k for k, i in enumerate(rebased)}
        self.followed = fakes = [*self.fakes, *[inputs.fakes[i] for i in rebased]]
        self.tangents = [i for i, fake in enumerate(fakes) if fake.requires_grad]
        self.wanted = [
            i
            for i, real in enumerate(inputs.real)
            if isinstance(real, torch.Tensor) and real.requires_grad
        ]
        if not self.tangents or not self.wanted:
            raise Unfunctionalizable("no value of the graph has a gradient")
        given = []
        for i in self.tangents:
            given.append(tracer.add_input(f"tangent_{i}", -1 - i, _tangent_of(fakes[i])))
        self.tangent_nodes = [tracer.view_of(fake).node for fake in given]
        tracer.place = {}
        self.history = History([fakes[i] for i in self.tangents])
        self._find_cuts(interpreter)
        self.gradients: list[tuple[str, int]] = []
        self.gradient_nodes: list[Node] = []
        self.sources: list[frozenset[int]] = []
        self.segments: list[Segment] = []
        dispatching = symbolic_dispatch(tracer.fake_mode)
        with (
            tracer.mode,
            dispatching,
            torch._C._DisableAutocast(),  # backward runs outside of autocast
            traced_as(tracer, BACKWARD),
        ):
            for tangents in self._segments(gm):
                self._segment(tracer, tangents, given)

    def _segments(self, gm: GraphModule) -> list[list[int]]:
        """The tangents of each segment, in order. An output that has a hook has a segment of its
        own, in the program's order, and so have those that reach it: the hook runs for no gradient
        that does not. Nor may a backward enter the history of an input that has no part in it.
        """
        places = {node: place for place, node in enumerate(gm.graph.nodes)}
        pairs = list(zip(gm.graph.output_node().all_input_nodes, self.finished.tensors))
        hooked = {id(tensor): places[node] for node, tensor in pairs if has_hook(node)}
        ids = list(map(id, self.finished.tensors))
        numbers = [number for number, key in enumerate(ids) if key in hooked]
        specs = [(self.finished.specs[number], hooked[ids[number]]) for number in numbers]
        values = ("fresh", "alias_of_intermediate")
        alone = {spec.index: place for spec, place in specs if spec.kind in values}
        behind: list[list[int]] = [[] for _ in self.tangents]
        for number, twin, _ in self._twins:
            if number in numbers:
                for k in self.history.sources(twin):
                    behind[k].append(number)
        groups: dict[tuple[int, int, tuple[int, ...], int], list[int]] = {}
        histories = self._histories()
        for k, (value, level) in enumerate(zip(self.tangents, self._levels())):
            key = level, alone.get(value, -1), tuple(behind[k]), histories[k]
            groups.setdefault(key, []).append(k)
        return self._in_order(groups)

    def _histories(self) -> list[int]:
        """For each tangent a number: tangents that differ in it reach no input in common that has
        a history. (Nothing runs behind a leaf that gets no gradient.)
        """
        found = [-1] * len(self.tangents)
        for i in self.wanted:
            if self.inputs.real[i].grad_fn is not None:
                reached = self.history.sources(self.leaves[i])
                merged = {found[k] for k in reached} - {-1}
                for k, number in enumerate(found):
                    if k in reached or number in merged:
                        found[k] = i
        return found if len(set(found)) <= _MOST_HISTORIES else [-1] * len(found)

    def _in_order(self, groups: dict[Any, list[int]]) -> list[list[int]]:
        """The groups, each behind those that it reads: of several, the one that the program made
        first, since autograd goes back in the order of their nodes.
        """
        segment_of = {k: key for key, group in groups.items() for k in group}
        before: dict[Any, set[Any]] = {key: set() for key in groups}
        for k, others in enumerate(self._before):
            before[segment_of[k]].update(segment_of[other] for other in others)
        sorter = TopologicalSorter(before)
        sorter.prepare()
        ready: list[tuple[int, Any]] = []
        order = []
        while sorter.is_active():
            for key in sorter.get_ready():
                heapq.heappush(ready, (key[1], key))
            _, key = heapq.heappop(ready)
            order.append(groups[key])
            sorter.done(key)
        return order

    def _find_cuts(self, interpreter: _Cutting) -> None:
        """For each output with further uses: its number, its twin, and its value if there is
        one.
        """
        self.cuts: dict[int, Node] = {}
        self._twins: list[tuple[int, torch.Tensor, int | None]] = []
        for node, original, twin in interpreter.twins:
            number = next(i for i, t in enumerate(self.finished.tensors) if t is original)
            spec = self.finished.specs[number]
            while spec.kind == "alias_of_output":
                spec = self.finished.specs[spec.index]
            of_value = spec.kind in ("fresh", "alias_of_intermediate")
            if not of_value and spec.kind not in ("input", "alias_of_input"):
                raise Unfunctionalizable("an output that the graph uses is a constant")
            if self.history.sources(twin):
                self.cuts[number] = node
                value = spec.index if of_value else self.rebased.get(spec.index)
                self._twins.append((number, twin, value))
        # For each tangent: those whose segments hand it a gradient.
        self._before: list[set[int]] = [set() for _ in self.tangents]
        places = {value: k for k, value in enumerate(self.tangents)}
        for _, twin, value in self._twins:
            if value in places:
                for k in self.history.sources(twin):
                    self._before[k].add(places[value])

    def _levels(self) -> list[int]:
        """For each tangent: how many segments its own stands behind."""
        levels = [0] * len(self.tangents)
        for k in TopologicalSorter(dict(enumerate(self._before))).static_order():
            levels[k] = 1 + max((levels[other] for other in self._before[k]), default=-1)
        return levels

    def _segment(self, tracer: Tracer, tangents: list[int], given: Sequence[torch.Tensor]) -> None:
        targets = [(("input", i), self.leaves[i]) for i in self.wanted]
        targets += [(("output", number), twin) for number, twin, _ in self._twins]
        try:
            found = torch.autograd.grad(
                [self.followed[self.tangents[k]] for k in tangents],
                [fake for _, fake in targets],
                [given[k] for k in tangents],
                allow_unused=True,
                retain_graph=True,
            )
        except (RuntimeError, ValueError) as error:  # the rule of views raises ValueError
            raise UndifferentiableHere(f"its backward raises: {error}") from error
        first = len(self.gradients)
        without: list[tuple[str, int, list[int]]] = []
        for (target, fake), gradient in zip(targets, found):
            reached = self.history.sources(fake).intersection(tangents)
            if gradient is None and reached:
                without.append((*target, sorted(reached)))
            if gradient is not None:
                if gradient.layout is not torch.strided:
                    raise UndifferentiableHere("a gradient is sparse")
                self.gradients.append(target)
                self.gradient_nodes.append(tracer.value(tracer.view_of(gradient)))
                self.sources.append(reached)
        gradients = list(range(first, len(self.gradients)))
        self.segments.append(Segment(tangents, gradients, without=without))

    def _visible(self) -> list[tuple[str, int, torch.Tensor]]:
        """The tensors that the caller has."""
        return [
            *[
                ("input", i, fake)
                for i, fake in enumerate(self.inputs.fakes)
                if isinstance(fake, torch.Tensor)
            ],
            *[("value", i, fake) for i, fake in enumerate(self.fakes)],
        ]

    def saved_by_eager(self) -> dict[Node, Collection[int]]:
        """The inputs and values that eager saves too, so that their owner must not write them, with
        the tangents for which it does; and the inputs that contexts of functions hold.
        """
        nodes = {"input": self.inputs.nodes, "value": self.finished.values}
        found: dict[Node, Collection[int]] = {}
        for kind, i, fake in self._visible():
            users = self.history.keepers(fake)
            if kind == "input":
                users |= self.history.holders(fake)
            if users:
                node = nodes[kind][i]
                found[node] = {*found.get(node, ()), *users}
        return found

    def stored(self) -> set[Node]:
        """The written inputs whose memory eager saves, and no other with the same value."""
        found, keepers = set(), self.history.keepers
        mutations = self.finished.mutations
        views = self.tracer.views_by_node() if mutations else {}
        for mutation in mutations:
            fake = self.inputs.fakes[mutation.index]
            alias = self.tracer.view_of(fake).alias
            same = views.get(self.tracer.value(alias.base), ())
            others = [view.fake for view in same if view.alias is not alias]
            if keepers(fake) and not any(map(keepers, others)):
                found.add(self.inputs.nodes[mutation.index])
        return found

    def places(self, saved: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
        """TrainingGraph.saved: of inputs whose views alone eager saves, the memory; those that it
        does not save, but holds.
        """
        fakes = self.inputs.fakes
        views = {
            ("input", i)
            for i, fake in enumerate(fakes)
            if isinstance(fake, torch.Tensor) and self.history.keeps_views(fake)
        }
        held = {
            i
            for i, fake in enumerate(fakes)
            if isinstance(fake, torch.Tensor) and self.history.holders(fake)
        }

        def place(kind: str, i: int) -> tuple[str, int]:
            if kind in ("input", "memory") and i in held:
                return "held", i
            return ("memory", i) if (kind, i) in views else (kind, i)

        return [place(kind, i) for kind, i in saved]

    def watch(self, saved: Sequence[tuple[str, int]]) -> None:
        for kind, i, fake in self._visible():
            keepers = self.history.keepers(fake) if (kind, i) not in saved else frozenset()
            for segment in self.segments:
                users = [k for k in segment.tangents if k in keepers]
                if users:
                    segment.watched.append((kind, i, users))
