"""State of a static graph between calls: optimizers, settings, the compiled step."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from dynamo.api.compile import dispatcher, make_context
from dynamo.errors import BackendCompilerFailed, GraphError, Unsupported
from dynamo.static_graph import scaling, step
from dynamo.static_graph.config import GraphConfig, blocks
from dynamo.static_graph.hooks import BuildHooks, OverLimit
from dynamo.static_graph.rates import scheduled
from dynamo.static_graph.signature import Signature, TensorSpec, in_order, specs_of

if TYPE_CHECKING:
    from dynamo.api.context import CompileContext
    from dynamo.static_graph.graph import Graph

_numbers: Counter[str] = Counter()  # of the graphs of each class name
# Optimizers whose step runs build() again, as often as the values tell.
_NEED_CLOSURE = (torch.optim.LBFGS,)


class GraphState:
    """The part of a Graph that is not the user's."""

    def __init__(self, class_name: str, settings: dict[str, Any], dynamic: bool) -> None:
        self.name = f"{class_name}_{_numbers[class_name]}"
        _numbers[class_name] += 1
        self.settings = settings
        self.dynamic = dynamic
        self.config = GraphConfig(self.forget)
        self.training = True
        self.optimizers: list[torch.optim.Optimizer] = []
        self.schedulers: list[Any] = []
        self.verbosity = -1
        self.depth = 0  # of calls that are running; captured code reads it
        self.forget()
        self._lock = threading.Lock()
        self._make_context()  # raises for settings that make no sense

    def __getstate__(self) -> dict[str, Any]:
        """For copies, which build their own graph."""
        kept = dict(vars(self))
        for name in ("_lock", "_step", "_update", "_way_built", "hooks", "context", "signature",
                     "outputs", "no_plan", "saved_by"):  # fmt: skip
            kept.pop(name)
        return kept

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.depth = 0
        self.forget()
        self._lock = threading.Lock()

    # -- settings -------------------------------------------------------------------------------
    def forget(self) -> None:
        """Have the next call build the graph anew."""
        self._step: Callable[..., Any] | None = None
        self._update: Callable[..., Any] | None = None
        self._way_built: Callable[..., Any] | None = None  # the settings that `_step` was made of
        self.context: CompileContext | None = None
        self.hooks: BuildHooks | None = None
        self.signature: Signature | None = None
        self.outputs: list[TensorSpec] = []  # of the first call
        self.no_plan: str | None = None  # why the step is not one plan
        self.saved_by: tuple[torch.nn.Module, ...] = ()  # blocks that the memory limit checkpoints

    def add_optimizer(self, optimizer: Any, lr_sch: Any) -> None:
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise GraphError(f"{self.name}: add_optimizer takes an optimizer, not {optimizer!r}")
        if isinstance(optimizer, _NEED_CLOSURE):
            kind = type(optimizer).__name__
            raise GraphError(f"{self.name}: {kind} runs build() more than once in a step")
        if any(optimizer is known for known in self.optimizers):
            raise GraphError(f"{self.name}: the optimizer was added before")
        if lr_sch is not None:
            self._check_scheduler(optimizer, lr_sch)
            self.schedulers.append(lr_sch)
        self.optimizers.append(optimizer)
        self.config.training = True
        self.forget()

    def _check_scheduler(self, optimizer: torch.optim.Optimizer, lr_sch: Any) -> None:
        if isinstance(lr_sch, ReduceLROnPlateau):
            raise GraphError(
                f"{self.name}: ReduceLROnPlateau needs a metric: call its step(metric) after the "
                "graph, instead of adding it"
            )
        if not isinstance(lr_sch, LRScheduler):
            raise GraphError(f"{self.name}: lr_sch is a scheduler of torch.optim, not {lr_sch!r}")
        if lr_sch.optimizer is not optimizer:
            raise GraphError(f"{self.name}: lr_sch is the scheduler of another optimizer")

    def parts(self) -> Iterator[tuple[str, Any]]:
        """The parts besides the modules that have a state dict."""
        for i, optimizer in enumerate(self.optimizers):
            yield f"optimizers.{i}", optimizer
        for i, scheduler in enumerate(self.schedulers):
            yield f"lr_schedulers.{i}", scheduler
        if self.config.grad_scaler is not None:
            yield "grad_scaler", self.config.grad_scaler

    def debug(self, v_level: int, ranks: int | list[int]) -> None:
        if type(v_level) is not int or not -1 <= v_level <= 3:
            raise GraphError(f"{self.name}: v_level is a number from -1 to 3, not {v_level!r}")
        wanted = [ranks] if isinstance(ranks, int) else list(ranks)
        distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        rank = torch.distributed.get_rank() if distributed else 0
        if wanted == [-1] or rank in wanted:
            self.verbosity = v_level

    # -- a call ---------------------------------------------------------------------------------
    def run(self, graph: Graph, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a call of the graph."""
        with self._alone():
            if self._step is None or self._way() is not self._way_built:
                self._prepare(graph)
            if self.signature is not None:
                args, kwargs = self.signature.check(self.name, args, kwargs)
            else:
                with contextlib.suppress(TypeError):  # which build() raises itself
                    args, kwargs = in_order(graph.build, args, kwargs)
            self._drop_gradients()
            outputs = self._call(graph, args, kwargs)
            if self.signature is None:
                self.signature = Signature(graph.build, args, kwargs, self.dynamic)
                self.outputs = specs_of(outputs)
        for scheduler in self.schedulers:
            scheduler.step()
        return outputs

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """No other call of the graph is running."""
        if not self._lock.acquire(blocking=False):
            raise GraphError(
                f"{self.name} is running already, in another thread or further up: a graph changes "
                "its parameters and buffers, and is called by one thread at a time"
            )
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1
            self._lock.release()

    def _call(self, graph: Graph, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        scaled = self._way_built is scaling.whole_and_skipped
        before = scaling.stateless(self.optimizers) if scaled else []
        try:
            outputs = self._within_memory(graph, args, kwargs)
        except Unsupported as error:
            _tell_graph(error, self.name)
            raise
        if self._update is not None:
            self._update(graph)
        if scaled:
            outputs, skipped = outputs
            scaling.undo_made(self.optimizers, before, skipped)
        return outputs

    def _way(self) -> Callable[..., Any]:
        """The function that is the step."""
        if self.config.grad_scaler is None or not self.config.grad_scaler.is_enabled():
            return step.whole
        if scaling.why_apart(self.optimizers) is None:
            return scaling.whole_and_skipped
        return step.differentiated

    def _within_memory(self, graph: Graph, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The outputs of the step; over the memory limit it is built again, checkpointed."""
        assert self._step is not None
        try:
            return self._step(graph, args, kwargs)
        except BackendCompilerFailed as error:
            if not isinstance(error.__cause__, OverLimit):
                raise
            peak = error.__cause__.peak
        more = () if self.saved_by or peak is None else blocks(graph)
        if not more or not self.optimizers:
            raise GraphError(self._over_limit(peak))
        signature, outputs = self.signature, self.outputs
        self.forget()
        self.saved_by, self.signature, self.outputs = more, signature, outputs
        self._prepare(graph)
        return self._within_memory(graph, args, kwargs)

    def _over_limit(self, peak: int | None) -> str:
        limit = self.config.memory_limit
        if peak is None:
            return f"{self.name} has a memory limit of {limit}, and no plan: its backend makes none"
        done = f" with {len(self.saved_by)} blocks checkpointed" if self.saved_by else ""
        return (
            f"{self.name} needs {peak} bytes at once{done}, over its memory limit of {limit}: "
            "accumulate gradients over smaller parts, or checkpoint more modules"
        )

    def _drop_gradients(self) -> None:
        for optimizer in self.optimizers:
            for parameter in step.parameters(optimizer):
                if parameter.grad is not None:
                    parameter.grad = None

    # -- the first call -------------------------------------------------------------------------
    def _prepare(self, graph: Graph) -> None:
        step.check_build(graph)
        self._check_parameters(graph)
        self.config.check(self.name, graph)
        self.context = self._make_context()
        self.hooks = self.context.hooks = BuildHooks(graph, self)
        self.context.backend = self.hooks.announce(self.context.backend)
        self.context.varying = frozenset(scheduled(self.optimizers, self.schedulers))
        way = self._way_built = self._way()
        self._step = dispatcher(way, self.context)
        self._update = None
        if way is scaling.whole_and_skipped:
            scaling.ready(self.config.grad_scaler, self.optimizers)
        elif way is step.differentiated:
            self._update = dispatcher(step.update_scaled, self._make_context(fullgraph=False))
            why = scaling.why_apart(self.optimizers)
            self.tell_no_plan(f"the GradScaler's update is a program of its own: {why}")

    def tell_no_plan(self, reason: str) -> None:
        """Say once, by a warning, in the log and in print(graph), that the step is in pieces."""
        if self.no_plan is None:
            assert self.hooks is not None
            self.no_plan = reason
            text = f"not one plan: {reason}"
            self.hooks.tell(text)
            warnings.warn(f"{self.name} is {text}", RuntimeWarning, stacklevel=2)

    def exporter(
        self, graph: Graph, backend: Callable[..., Any], varying: frozenset[str]
    ) -> tuple[Callable[..., Any], CompileContext]:
        """The function that runs a step, captured for `backend` as a whole program; and its
        context. varying: sources of numbers that are no constants of the program.
        """
        way = self._way()
        if way is step.differentiated:
            why = scaling.why_apart(self.optimizers)
            raise GraphError(f"{self.name} cannot be exported with its GradScaler: {why}")
        step.check_build(graph)
        self._check_parameters(graph)
        self.config.check(self.name, graph)
        context = self._make_context(backend=backend, mode=None, options=None)
        context.hooks = BuildHooks(graph, self)
        context.export = True
        context.varying = varying
        if way is scaling.whole_and_skipped:
            scaling.ready(self.config.grad_scaler, self.optimizers)
        compiled = dispatcher(step.whole if way is step.whole else scaling.whole, context)

        def run(*args: Any, **kwargs: Any) -> Any:
            with self._alone():
                self._drop_gradients()
                outputs = compiled(graph, args, kwargs)
            for scheduler in self.schedulers:
                scheduler.step()
            return outputs

        return run, context

    def _make_context(self, **changed: Any) -> CompileContext:
        return make_context({**self.settings, **changed})

    def _check_parameters(self, graph: Graph) -> None:
        known = {id(parameter) for parameter in graph.parameters()}
        for number, optimizer in enumerate(self.optimizers):
            groups = enumerate(optimizer.param_groups)
            places = ((g, i, p) for g, group in groups for i, p in enumerate(group["params"]))
            foreign = [(g, i, tuple(p.shape)) for g, i, p in places if id(p) not in known]
            if foreign:
                group, index, shape = foreign[0]
                raise GraphError(
                    f"{self.name}: optimizer {number} ({type(optimizer).__name__}) has parameters "
                    f"that no module of the graph holds: {len(foreign)}, the first is number "
                    f"{index} of group {group}, of shape {shape}. Assign their module to an "
                    "attribute of the graph in __init__, or make the optimizer over "
                    "graph.parameters()"
                )


def _tell_graph(error: Unsupported, name: str) -> None:
    """The text of a graph break speaks of the graph, not of fullgraph=True."""
    if hasattr(error.reason, "what"):
        error.reason.what = f"{name} is one graph"
        error.args = (str(error.reason),)
