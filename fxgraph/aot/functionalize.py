"""Torch-level graph -> functional aten graph, in one pass over fake tensors.

before                                after
    x.add_(1)                             add = aten.add.Tensor(x, 1)
    y = x.t()                             relu = aten.relu.default(add)
    return (y, torch.relu(x))             copy_ = aten.copy_.default(x, add)
                                          return (relu,)
                                      outputs: alias_of_input 0, fresh 0
"""

from __future__ import annotations

import contextlib
import itertools
import operator
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from fxgraph.aot import decompositions as rules
from fxgraph.aot import scalars
from fxgraph.aot.control_flow import RUNS
from fxgraph.aot.data import data_allowed
from fxgraph.aot.early_checks import check_early
from fxgraph.aot.fake import dense, geometry, symbolic_dispatch
from fxgraph.aot.functional import (
    GRAD_SWITCHES,
    SET_DEFAULT_DTYPE,
    FunctionalGraph,
    MutatedInput,
    OutputSpec,
    Unfunctionalizable,
    root_of,
    set_deterministic,
)
from fxgraph.aot.history import share_version
from fxgraph.aot.recompute import BACKWARD, recompute, traced_as
from fxgraph.aot.recurrent import (
    RECURRENT,
    differentiates_twice,
    run_recurrent,
    runs_recurrent,
)
from fxgraph.aot.running_product import cumprod, prod
from fxgraph.aot.sharing import memories, overlap, repeats, start_of
from fxgraph.aot.trace import Alias, Tracer, View
from fxgraph.aot.view_steps import lead_to, steps_of
from fxgraph.aot.views import ViewCall
from fxgraph.args import leaves, map_aggregate
from fxgraph.dual_levels import level_restored
from fxgraph.faults import blame
from fxgraph.general_case import general_case
from fxgraph.graph import Graph
from fxgraph.graph_module import GraphModule
from fxgraph.higher_order import (
    dispatch_keys_kept,
    forget_frames,
    is_checkpoint,
    runs_bodies,
    tensor_leaves,
)
from fxgraph.inference_blocks import INFERENCE_SWITCHES
from fxgraph.interpreter import Interpreter
from fxgraph.node import Node
from fxgraph.sym_node import SymNode
from fxgraph.symbolic_values import depends_on_data, is_symbol, is_symbolic
from fxgraph.torch_fx import fake_tensor_mode

aten = torch.ops.aten
Traced = TypeVar("Traced")


class TwinWritten(Exception):
    """Of inputs that are the same memory, seen the same way, one is written."""


def functionalize(
    gm: GraphModule,
    example_inputs: Sequence[Any],
    *,
    keep: Iterable[Any] = (),
) -> FunctionalGraph:
    """Trace `gm` into a functional aten graph, for running without autograd.

    example_inputs: real tensors, in placeholder order; only metadata and which of them share memory
        are used. Placeholders whose meta["val"] belongs to gm.meta["fake_mode"] take their metadata
        from it.
    keep: operators (overloads or packets) that stay whole although there is a rule for them.

    Autocast and grad mode are those of the caller, as they are at capture. Raises
    Unfunctionalizable.
    """
    start = time.perf_counter()
    table = rules.table(keep)
    functional = for_sharing(lambda twins: _traced(gm, example_inputs, table, twins))
    functional.stages["functionalize"] = time.perf_counter() - start
    return functional


def for_sharing(trace: Callable[[bool], Traced]) -> Traced:
    """trace(False), in which each input is memory of its own; trace(True) if inputs that are the
    same memory are written, which later calls compare.
    """
    try:
        return trace(False)
    except TwinWritten:
        return trace(True)


def _traced(
    gm: GraphModule, example_inputs: Sequence[Any], table: dict[Any, Any], twins: bool
) -> FunctionalGraph:
    fake_mode = gm.meta.get("fake_mode") or fake_tensor_mode()
    tracer = Tracer(fake_mode, table)
    tracer.attribute_names = attribute_names(gm)
    inference = torch.is_inference_mode_enabled()
    with tracing(grad=False), data_allowed(fake_mode):
        inputs = Inputs(tracer, gm, example_inputs, fake_mode, twins)
        asking = [i for i, real in enumerate(inputs.real) if _requires_grad(real)]
        for i in asking:
            inputs.fakes[i].requires_grad_()
        with tracer.mode, symbolic_dispatch(fake_mode):
            result = TracingInterpreter(gm, tracer, inference).run(*inputs.fakes)
        inputs.check_writes()
        finished = Finish(tracer, inputs, result)
        for spec, leaf in zip(finished.specs, finished.tensors):
            if spec.kind == "alias_of_input" and spec.index in asking:
                spec.detached = not leaf.requires_grad  # by detach(), as views are not
    return functional_graph(tracer, gm, inputs, finished)


def _requires_grad(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def functional_graph(
    tracer: Tracer, gm: GraphModule, inputs: Inputs, finished: Finish
) -> FunctionalGraph:
    """The trace of `gm` as one functional graph."""
    check_early(tracer.graph)
    tracer.graph.output(tuple(finished.values))
    tracer.graph.eliminate_dead_code()
    recompute(tracer.graph)
    return FunctionalGraph(
        graph_module=module_of(tracer, tracer.graph, gm),
        outputs=finished.specs,
        input_mutations=finished.mutations,
        structure=finished.structure,
        source=gm,
        same_inputs=inputs.same,
        data=finished.data,
    )


@contextlib.contextmanager
def tracing(*, grad: bool) -> Any:
    """Grad mode as wanted; torch takes composite operators apart, as inference mode would not."""
    before = torch.is_grad_enabled()
    anomaly = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    # The user's hooks are for tensors that are saved, and anomalies are of values: not here.
    deferred = torch._C._autograd._saved_tensors_hooks_set_tracing(True)
    torch.set_anomaly_enabled(False)
    with contextlib.ExitStack() as stack:
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.set_grad_enabled(grad))
        stack.enter_context(level_restored())
        try:
            yield
        finally:
            torch._C._autograd._saved_tensors_hooks_set_tracing(deferred)
            torch.set_anomaly_enabled(*anomaly)
            if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
                # Its entries are fake tensors of this trace.
                torch.clear_autocast_cache()
    torch._C._set_grad_enabled(before)


def refuse_switch(target: Any) -> None:
    """Raise Unfunctionalizable for a function that changes what operators do while they run."""
    if target is SET_DEFAULT_DTYPE:  # operators of integers ask for it when they run
        raise Unfunctionalizable("the default dtype changes")
    if target in INFERENCE_SWITCHES:
        raise Unfunctionalizable("inference mode is entered or left")
    if target is set_deterministic:
        raise Unfunctionalizable("deterministic algorithms are switched on or off")


def attribute_names(gm: GraphModule) -> dict[int, str]:
    names = {id(tensor): name for name, tensor in gm.named_buffers()}
    names.update((id(tensor), name) for name, tensor in gm.named_parameters())
    return names


def module_of(tracer: Tracer, graph: Graph, source: GraphModule) -> GraphModule:
    """The graph with the constants of the tracer that it uses, and the meta of its source."""
    used = {node.target for node in graph.find_nodes(op="get_attr")}
    module = GraphModule({name: tracer.constants[name] for name in used}, graph)
    module.meta.update(source.meta, fake_mode=tracer.fake_mode)
    return module


# Functions and methods whose result is their argument's memory, or a copy, by its layout.
_MAY_COPY = frozenset(["reshape", "reshape_as", "contiguous", "flatten", "ravel"])


class TracingInterpreter(Interpreter):
    """Runs the torch-level graph; the tracer records the operators that torch runs under the
    mode.

    inference: calls are in inference mode, where grad mode has no effect.
    """

    def __init__(self, gm: GraphModule, tracer: Tracer, inference: bool = False) -> None:
        super().__init__(gm)
        self.tracer = tracer
        self.inference = inference
        self.differentiates_twice = differentiates_twice(gm)

    def run_node(self, n: Node) -> Any:
        try:
            return self._run_node(n)
        except Exception as error:
            blame(error, n)
            raise

    def _run_node(self, n: Node) -> Any:
        if n.op == "call_function" or n.op == "call_method" or n.op == "call_module":
            self.tracer.place = n.place()
            if runs_bodies(n.target):
                return self._run_bodies(n)
            if n.target is torch._check and isinstance(n.args[0], Node):
                # As it was before it was assumed to hold.
                return self.tracer.check(n.args[0].meta["example_value"].node._expr)
        if n.target is torch.autograd.grad:
            with traced_as(self.tracer, BACKWARD):
                result = super().run_node(n)
        else:
            with general_case(self.tracer.fake_mode.shape_env, n.target):
                result = super().run_node(n)
        if getattr(n.target, "__name__", n.target) in _MAY_COPY:
            self._note_copy(self.fetch_args_kwargs_from_env(n), result)
        self.tracer.note_captured(result, n.meta.get("numbers", n.meta.get("example_value")))
        return result

    def _note_copy(self, arguments: Any, result: Any) -> None:
        """Note a copy of a tensor whose layout depends on data: eager makes one or not."""
        given = next((leaf for leaf in leaves(arguments) if isinstance(leaf, torch.Tensor)), None)
        if given is None or not any(map(depends_on_data, (*given.shape, *given.stride()))):
            return
        memory = {self.tracer.view_of(tensor).alias for tensor in (given, result)}
        if len(memory) > 1:
            self.tracer.copied |= memory

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if getattr(target, "__name__", "") in _PARTS:
            return self.call_method(target.__name__, args, kwargs)
        if target in RECURRENT and not kwargs:
            return run_recurrent(target, args, self.differentiates_twice)
        if target in (torch.cumprod, torch.prod):
            return self._product(super().call_function, target, args, kwargs)
        refuse_switch(target)
        if self.inference and target in GRAD_SWITCHES:
            return None
        if target is torch.nn.functional.one_hot:
            args = _bound_one_hot(*args, **kwargs)
            if args[1] == 0:  # refused by eager only where the tensor holds its values
                raise Unfunctionalizable("one_hot of no classes")
            if args[1] > 0 and args[0].dtype == torch.int64:
                return _one_hot(*args)
            kwargs = {}
        floats = target is operator.pow and isinstance(args[0], torch.SymFloat)
        if floats and not isinstance(args[1], torch.Tensor):
            return args[0].__float_pow__(args[1])  # capture knows that torch's check need not hold
        if target is torch.tensor and args and isinstance(args[0], torch.SymInt):
            return _tensor_of(*args, **kwargs)
        result = scalars.call(target, args, kwargs)
        return super().call_function(target, args, kwargs) if result is NotImplemented else result

    def call_method(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if target in _PARTS:  # views, which their schemas do not say
            tensor = args[0] if args else next(iter(kwargs.values()))
            if tensor.requires_grad:  # and autograd is not told of them
                raise Unfunctionalizable(f"{target} gives views without a history")
            return _PARTS[target](*args, **kwargs)
        if target in ("cumprod", "prod"):
            return self._product(super().call_method, target, args, kwargs)
        result = scalars.call(target, args, kwargs)
        return super().call_method(target, args, kwargs) if result is NotImplemented else result

    def _product(self, call: Callable[..., Any], target: Any, args: Any, kwargs: Any) -> Any:
        own = cumprod if target in (torch.cumprod, "cumprod") else prod
        result = NotImplemented if self.differentiates_twice else own(*args, **kwargs)
        return call(target, args, kwargs) if result is NotImplemented else result

    def _run_bodies(self, n: Node) -> Any:
        """Trace through transforms; bodies that cannot be traced are no fault of the program's."""
        recorded = len(self.tracer.graph.nodes)
        bodies = [leaf for leaf in leaves(self.fetch_args_kwargs_from_env(n)) if _is_graph(leaf)]
        symbolic = self.tracer.fake_mode.shape_env is not None
        if symbolic and not is_checkpoint(n) and any(map(runs_recurrent, bodies)):
            raise Unfunctionalizable("a recurrent layer over symbolic sizes in a transform")
        with dispatch_keys_kept():
            try:
                result = self._run_plainly(n) if is_checkpoint(n) else super().run_node(n)
                self._check_traced(n, result, recorded)
                return result
            except Exception as error:
                text = f"{n.name} cannot be traced: {type(error).__name__}: {error}"
                if n.target in RUNS:
                    text = f"{n.name} decides with each call which body runs, and how often"
                forget_frames(error)
        raise Unfunctionalizable(text)

    def _run_plainly(self, n: Node) -> Any:
        """Run a checkpoint's body inline, without a mark: the partition of the joint graph decides
        on recomputation, or `recompute`.
        """
        (_, body, lifted, _, args, kwargs), _ = self.fetch_args_kwargs_from_env(n)
        given = [*tensor_leaves((args, kwargs)), *lifted]
        tensors = [leaf for leaf in given if isinstance(leaf, torch.Tensor)]
        memories = [self.tracer.view_of(tensor).alias for tensor in tensors]
        versions = [alias.version for alias in memories]
        with traced_as(self.tracer, object()):
            inner = TracingInterpreter(body, self.tracer, self.inference)
            inner.differentiates_twice |= self.differentiates_twice
            result = inner.run(*given)
        if [alias.version for alias in memories] != versions:
            raise Unfunctionalizable("what a checkpoint writes, it writes again in the backward")
        return result

    def _check_traced(self, n: Node, result: Any, recorded: int) -> None:
        """Deep inside transforms, fake tensors may show that they are on no device."""
        new = list(self.tracer.graph.nodes)[recorded:]
        made = [node.meta["val"] for node in new]
        # To ask a fake tensor of capture for its device would dispatch to this trace.
        wanted = [leaf for leaf in leaves(n.meta.get("example_value")) if _is_fake(leaf)]
        if any(leaf.fake_device.type == "meta" for leaf in wanted):
            return
        for leaf in leaves((made, result)):
            if isinstance(leaf, torch.Tensor) and leaf.device.type == "meta":
                raise Unfunctionalizable("a transform lost the device of a tensor")


def _bound_one_hot(tensor: torch.Tensor, num_classes: Any = -1) -> tuple[torch.Tensor, Any]:
    return tensor, num_classes


_PARTS: dict[str, Callable[..., Any]] = {
    "unsafe_chunk": torch.chunk,
    "unsafe_split": torch.split,
    "unsafe_split_with_sizes": torch.split_with_sizes,
}


def _tensor_of(number: Any, *, dtype: Any = None, **options: Any) -> torch.Tensor:
    """torch.tensor, which would ask for the number and keep 32 bits of it."""
    options.pop("requires_grad", None)  # as False, or the graph would run op by op
    return torch.scalar_tensor(number, dtype=dtype or torch.int64, **options)


def _one_hot(tensor: torch.Tensor, num_classes: Any) -> torch.Tensor:
    """one_hot as eager: with other classes refused; on fake tensors torch compares instead."""
    zeros = torch.zeros((*tensor.shape, num_classes), dtype=torch.int64, device=tensor.device)
    return zeros.scatter(-1, tensor.unsqueeze(-1), 1)


def _is_fake(leaf: Any) -> bool:
    return isinstance(leaf, FakeTensor)


def _is_graph(leaf: Any) -> bool:
    return isinstance(leaf, GraphModule)


class Inputs:
    """The placeholders, and which of them look at the same memory.

    twins: whether inputs that are the same memory, seen the same way, are traced as one.
    """

    def __init__(
        self,
        tracer: Tracer,
        gm: GraphModule,
        example_inputs: Sequence[Any],
        fake_mode: FakeTensorMode,
        twins: bool,
    ) -> None:
        self.tracer = tracer
        self.twins = twins
        self.real = list(example_inputs)
        self.fakes: list[Any] = []  # fake tensors; a torch.SymInt or SymFloat for a symbol
        self.nodes: list[Node] = []
        self.same: list[tuple[int, int]] = []
        sources = [node for node in gm.graph.nodes if node.op == "placeholder"]
        if len(sources) != len(self.real):
            raise ValueError(f"{len(sources)} placeholders, {len(self.real)} example inputs")
        if torch.sparse_coo in (getattr(one, "layout", None) for one in self.real):
            raise Unfunctionalizable("an input is sparse")
        self._memories = memories(self.real)
        self._by_memory: dict[Hashable, list[int]] = {}
        for index, (source, real) in enumerate(zip(sources, self.real)):
            self._add(index, source, real, fake_mode)
        for node, fake in zip(self.nodes, self.fakes):
            if isinstance(fake, torch.Tensor):
                tracer.bind_sizes(fake, node)
        self._versions = [version_of(fake) for fake in self.fakes]

    def bumps(self, index: int) -> int:
        """How often the program has moved the input's version counter."""
        alias = self.tracer.view_of(self.fakes[index]).alias
        return max(
            version_of(fake) - before
            for fake, before in zip(self.fakes, self._versions)
            if isinstance(fake, torch.Tensor) and self.tracer.view_of(fake).alias is alias
        )

    def _add(self, index: int, source: Node, real: Any, fake_mode: FakeTensorMode) -> None:
        val = source.meta.get("val")
        if is_symbol(val):
            self.nodes.append(self.tracer.add_symbol(source.name, val))
            self.nodes[-1].meta.update({k: source.meta[k] for k in _KEPT_META if k in source.meta})
            self.fakes.append(val)
            return
        _check_input(source, real)
        like = val if isinstance(val, FakeTensor) and val.fake_mode is fake_mode else real
        twin = self._twin(index, real)
        if twin is None or not self.twins:
            fake = self.tracer.add_input(source.name, index, like)
        else:
            fake = self.tracer.add_same_input(source.name, like, self.fakes[twin])
            self.same.append((twin, index))
        node = next(iter(reversed(self.tracer.graph.nodes)))
        node.meta.update({key: source.meta[key] for key in _KEPT_META if key in source.meta})
        self.fakes.append(fake)
        self.nodes.append(node)

    def _twin(self, index: int, real: torch.Tensor) -> int | None:
        """An earlier input that is the same memory, seen the same way."""
        if self._memories[index] is None:
            return None
        sharers = self._by_memory.setdefault(self._memories[index], [])
        sharers.append(index)
        for other in sharers[:-1]:
            if _are_twins(self.real[other], real):
                return other
        return None

    def check_writes(self) -> None:
        """Raise TwinWritten if a written input is another one that was traced apart, and
        Unfunctionalizable if it overlaps another in part, or itself.
        """
        written = [
            None if is_symbol(fake) else self.tracer.view_of(fake).alias for fake in self.fakes
        ]
        for real, alias in zip(self.real, written):
            if alias is not None and alias.version and repeats(real):
                raise Unfunctionalizable(
                    "an input is written, some of whose elements are in one place"
                )
        for sharers in self._by_memory.values():
            if len(sharers) < 2 or not any(written[i].version for i in sharers):  # type: ignore[union-attr]
                continue
            for i, j in itertools.permutations(sharers, 2):
                alias, one, other = written[i], self.real[i], self.real[j]
                if not alias.version or alias is written[j] or not overlap(one, other):  # type: ignore[union-attr]
                    continue
                if _are_twins(one, other):
                    raise TwinWritten
                raise Unfunctionalizable(f"inputs {i} and {j} overlap and one is written")


def _are_twins(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether tensors that share memory have the same layout in it."""
    return geometry(one) == geometry(other) and start_of(one) == start_of(other)


def version_of(fake: Any) -> int:
    counted = isinstance(fake, torch.Tensor) and not fake.is_inference()
    return fake._version if counted else 0


_KEPT_META = ("stack_trace", "source", "static", "parameter")


def _check_input(source: Node, real: Any) -> None:
    if not isinstance(real, torch.Tensor):
        raise Unfunctionalizable(f"input {source.name} is a {type(real).__name__}, not a tensor")
    if type(real) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer, FakeTensor):
        raise Unfunctionalizable(f"input {source.name} is a {type(real).__name__}")
    if real.layout is not torch.strided or real.is_quantized or real.is_nested:
        raise Unfunctionalizable(f"input {source.name} has layout {real.layout}")


def _calls_from_base(view: View) -> list[ViewCall]:
    calls = []
    while view.parent is not None:
        calls += [view.call] if view.call is not None else []
        view = view.parent
    return calls[::-1]


class Finish:
    """Classifies the graph's results and adds the trailing writes."""

    def __init__(
        self, tracer: Tracer, inputs: Inputs, result: Any, *, bases_only: bool = False
    ) -> None:
        self.tracer = tracer
        self.inputs = inputs
        # Whether the graph must return whole memories, never a view alone. (A value saved
        # for the backward would share its memory unseen.)
        self.bases_only = bases_only
        self.values: list[Node] = []
        self.value_fakes: list[torch.Tensor] = []  # the program's tensor for each of `values`
        self.mutations: list[MutatedInput] = []
        self.tensors: list[Any] = []
        self._taken: set[Node] = set()
        self.data: dict[Any, int] = {}  # as FunctionalGraph.data
        # As FunctionalGraph.spent, where other values can be differentiated (see spent.py).
        self.spent: dict[int, tuple[str, tuple[int, ...]]] = {}
        self.structure = map_aggregate(result, self._number)
        self.groups = self._by_memory()
        self.specs = [self._spec(i, leaf) for i, leaf in enumerate(self.tensors)]
        writes = self._writes()
        for target, value in writes:
            tracer.emit(aten.copy_.default, target, value)

    def _number(self, leaf: Any) -> int:
        self.tensors.append(leaf)
        return len(self.tensors) - 1

    def _by_memory(self) -> dict[Alias, list[int]]:
        groups: dict[Alias, list[int]] = {}
        for index, leaf in enumerate(self.tensors):
            if isinstance(leaf, torch.Tensor):
                groups.setdefault(self.tracer.view_of(leaf).alias, []).append(index)
        return groups

    # -- outputs ----------------------------------------------------------------------------------

    def _spec(self, index: int, leaf: Any) -> OutputSpec:
        if is_symbolic(leaf):
            return self._number_spec(leaf)
        if not isinstance(leaf, torch.Tensor):
            return OutputSpec("constant", constant=leaf)
        for earlier in range(index):
            if self.tensors[earlier] is leaf:
                return OutputSpec("same_as_output", earlier)
        for number, fake in enumerate(self.inputs.fakes):
            if leaf is fake:
                return OutputSpec("input", number)
        view = self.tracer.view_of(leaf)
        origin = view.alias.origin
        if isinstance(origin, int):
            base = self.inputs.nodes[origin].meta["val"]
            return self._alias("alias_of_input", origin, view, base)
        if isinstance(origin, str):
            return self._constant_spec(view, leaf)
        return self._internal_spec(view)

    def _number_spec(self, leaf: Any) -> OutputSpec:
        if self.bases_only or isinstance(leaf, torch.SymBool):
            raise Unfunctionalizable("a symbolic scalar is returned")
        number = self.tracer.number(leaf)
        if not isinstance(number, Node):
            return OutputSpec("constant", constant=number)
        self.values.append(number)
        self.value_fakes.append(leaf)
        return OutputSpec("fresh", len(self.values) - 1)

    def _constant_spec(self, view: View, leaf: torch.Tensor) -> OutputSpec:
        tensor = self.tracer.constants[view.alias.origin]  # type: ignore[index]
        if leaf is tensor:
            return OutputSpec("constant", constant=tensor)
        spec = self._alias("constant", -1, view)
        spec.constant = tensor
        return spec

    def _internal_spec(self, view: View) -> OutputSpec:
        members = self.groups[view.alias]
        objects = {id(self.tensors[m]) for m in members}
        alone = len(objects) == 1 and not self.bases_only
        alone = alone and view.fake.storage_offset() == 0  # which can be seen
        whole = view.parent is None and view is view.alias.base
        if whole or (alone and dense(view.fake)):
            return OutputSpec("fresh", self._add_value(view))
        base = view.alias.base
        if view.fake.requires_grad and not base.fake.requires_grad:
            # Transposed in place: autograd knows the tensor, not its layout before.
            if len(objects) > 1:
                raise Unfunctionalizable("a tensor transposed in place is returned with its views")
            return OutputSpec("fresh", self._add_value(view, copied=True))
        for member in members:
            if self.tensors[member] is base.fake:
                return self._alias("alias_of_output", member, view)
        known = self._bases.get(view.alias)
        if known is None:
            known = self._bases[view.alias] = self._add_value(base)
        return self._alias("alias_of_intermediate", known, view)

    @property
    def _bases(self) -> dict[Alias, int]:
        return self.__dict__.setdefault("_base_values", {})

    def _alias(
        self, kind: str, index: int, view: View, base: torch.Tensor | None = None
    ) -> OutputSpec:
        """base: with the layout before the graph, of an input."""
        fake, base = view.fake, view.alias.base.fake if base is None else base
        if fake.dtype != base.dtype or fake.is_conj() or fake.is_neg():
            raise Unfunctionalizable("a view of another dtype, or a lazy conjugate, is returned")
        offset = fake.storage_offset() - base.storage_offset()
        size, stride = (tuple(map(self._returned, row)) for row in (fake.shape, fake.stride()))
        spec = OutputSpec(kind, index, size, stride, self._returned(offset))
        if not fake.requires_grad and (base.requires_grad or kind == "alias_of_input"):
            spec.own_version = not share_version(fake, base)
        steps = steps_of(_calls_from_base(view))
        if self.bases_only and steps and lead_to(steps, base, spec):
            spec.steps = steps
        if not fake._is_view():
            spec.creation = -1
        return spec

    def _returned(self, number: Any) -> Any:
        """The number; if it depends on data, as an expression over symbols that are returned."""
        if not depends_on_data(number):
            return number
        env, expr = number.node.shape_env, number.node.expr
        for symbol in expr.free_symbols:
            if env.hint(symbol) is None and symbol not in self.data:
                node = self.tracer.number(env.symint(symbol))
                assert isinstance(node, Node), "the expression is simplified"
                if self.bases_only:  # among tensors, as autograd's node knows
                    real = isinstance(node.meta["val"], torch.SymFloat)
                    dtype = torch.float64 if real else torch.int64
                    node = self.tracer.emit(aten.scalar_tensor.default, node, dtype=dtype)
                self.data[symbol] = len(self.values)
                self.values.append(node)
                self.value_fakes.append(node.meta["val"])
        return torch.SymInt(SymNode(expr, env, int))

    def _add_value(self, view: View, *, copied: bool = False) -> int:
        """Return the view's value from the graph, copied if the view is not its own memory by
        then.
        """
        node = self.tracer.value(view)
        root = root_of(node)
        if copied or root.op in ("placeholder", "get_attr") or root in self._taken:
            node, root = self._copied(node, view.fake)
        self._taken.add(root)
        self.values.append(node)
        self.value_fakes.append(view.fake)
        return len(self.values) - 1

    def _copied(self, node: Node, fake: torch.Tensor) -> tuple[Node, Node]:
        """A copy in memory of its own, and the node that fills it. Dimensions that eager expands
        (stride 0) are expanded in the copy.
        """
        emit, sizes = self.tracer.emit, list(fake.shape)
        repeated = [
            d for d, n in enumerate(sizes) if type(n) is int and n > 1 and fake.stride(d) == 0
        ]
        if not self.bases_only or not any(map(is_symbolic, sizes)):
            repeated = []
        for d in repeated:
            node = emit(aten.slice.Tensor, node, d, 0, 1)
        copy = emit(aten.clone.default, node)
        return emit(aten.expand.default, copy, sizes) if repeated else copy, copy

    # -- writes -----------------------------------------------------------------------------------

    def _writes(self) -> list[tuple[Node, Node]]:
        """(place, value) of each written input or attribute; values safe from the other writes."""
        places: list[tuple[Node, View]] = []
        seen: set[Alias] = set()
        for index, (node, fake) in enumerate(zip(self.inputs.nodes, self.inputs.fakes)):
            if is_symbol(fake):
                continue
            view = self.tracer.view_of(fake)
            alias = view.alias
            data = alias.version > 0 and alias.origin == index
            bumps = self.inputs.bumps(index)
            moved = geometry(fake) != geometry(node.meta["val"]) or view.call is not None
            # x.squeeze_() that finds nothing to remove counts, too.
            moved = moved or (bumps > 0 and alias.version == 0 and alias.origin == index)
            if data:
                places.append((node, alias.base))
            if data or moved:
                mutation = MutatedInput(index, data, moved, bumps=bumps)
                if moved:
                    self._describe_move(mutation, view)
                self.mutations.append(mutation)
            seen.add(alias)
        for node in self.tracer.graph.find_nodes(op="get_attr"):
            alias = self.tracer.view_of(node.meta["val"]).alias
            if alias.version > 0 and alias.origin == node.target and alias not in seen:
                places.append((node, alias.base))
                seen.add(alias)
        targets = {node for node, _ in places}
        writes = []
        for node, view in places:
            value = self.tracer.value(view)
            if root_of(value) in targets and value is not node:
                value = self.tracer.emit(aten.clone.default, value)
            writes.append((node, value))
        return writes

    def _describe_move(self, mutation: MutatedInput, view: View) -> None:
        old = self.inputs.nodes[mutation.index].meta["val"]
        if view.alias.origin != mutation.index:
            raise Unfunctionalizable("an input is made to look at other memory")
        mutation.size, mutation.stride = tuple(view.fake.shape), view.fake.stride()
        mutation.storage_offset = view.fake.storage_offset() - old.storage_offset()
