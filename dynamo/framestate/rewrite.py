"""The rewritten frame: call the compiled graph, replay side effects, and return or go on in a
continuation.

    (arguments)
    out = compiled_graph(inputs)                 one call, for all tensor operations
    result = ... from out, sources, constants    values made again
    obj.attr = ..., list[:] = ...                side effects, in order
    return result

or, where the graph breaks, instead of the return: locals and operands are restored, the instruction
runs natively, and a continuation function gets the rest of the stack and the live locals.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from dynamo import _hook, breaks
from dynamo.bytecode.emit import Emitter
from dynamo.bytecode.listing import format_code
from dynamo.config import config
from dynamo.errors import BackendCompilerFailed, Unsupported
from dynamo.framestate.break_codegen import BreakCodegen
from dynamo.framestate.check_codegen import CheckCodegen
from dynamo.framestate.materialise import Codegen
from dynamo.framestate.modes import restored_state
from dynamo.framestate.repeated_graphs import compiled_once
from dynamo.framestate.snapshot import take_snapshot
from dynamo.framestate.weak_targets import hold_targets
from dynamo.guards.sources import InstalledSource, MadeSource, load_shared, share_loads
from dynamo.interp.checks import STATE_FUNCTIONS
from dynamo.interp.data_dependent_loops import makes_numbers
from dynamo.interp.output import GraphInput, OutputGraph
from dynamo.plans import EmissionPlan, Retry
from dynamo.polyfills import module_hooks
from dynamo.records import Change, FrameRecord, GraphRecord
from dynamo.torch.checkpoint import refuse_changed
from dynamo.torch.checkpoint_reads import ReadsOfCheckpoints, reads_of_checkpoints
from dynamo.torch.inference import compile_with_blocks
from dynamo.torch.overrides import WithoutOverrides
from dynamo.values.base import Value
from dynamo.values.functions.cache_entries import hit, store
from dynamo.values.recipes import operand_values
from dynamo.values.tensors.tensor import TensorValue
from fxgraph import GraphModule, verify
from fxgraph.aot.wrappers import has_wrappers
from fxgraph.fallible_operations import unused_that_may_fail

if TYPE_CHECKING:
    from dynamo.interp.root import RootInterpreter, Stop

log_graph = logging.getLogger("dynamo.graph")
log_graph_code = logging.getLogger("dynamo.graph_code")
log_bytecode = logging.getLogger("dynamo.bytecode")

_graph_counter = itertools.count()


@dataclass
class Rewritten:
    """New code for a frame, whose globals are installed already."""

    code: Any  # the frame's own where there is nothing to gain
    needs_hook: bool
    output: OutputGraph


def rewrite(root: RootInterpreter, stop: Stop, record: FrameRecord) -> Rewritten:
    """Compile the graph and assemble the frame's new code.

    Raises Unsupported where a value cannot be made again, SkipFrame where the frame cannot go on.
    """
    return FrameRewriter(root, stop, record).rewrite()


class FrameRewriter:
    """Rewrites a frame; see the module's text for the order."""

    def __init__(self, root: RootInterpreter, stop: Stop, record: FrameRecord) -> None:
        self.root = root
        self.stop = stop
        self.record = record
        self.output = root.output
        self.breaking: BreakCodegen | None = None
        self.reads: ReadsOfCheckpoints | None = None
        if self.output.modes.entered:
            raise Unsupported(breaks.UncapturedCall("a torch function mode's __enter__"))
        if self.output.has_dual_level:
            raise Unsupported(breaks.UncapturedCall("a level of forward_ad that stays entered"))
        if stop.instr is not None:
            if self.output.inference:
                raise Unsupported(breaks.InferenceMode())
            snapshot = take_snapshot(stop)
            self.output.emission = self.output.emission.materialising(snapshot.needed)
            self.breaking = BreakCodegen(snapshot)

    def _for_hooks_alone(self, value: TensorValue, first: Codegen) -> bool:
        """Whether the frame uses a result of the graph only to register hooks of modules."""
        calls = self.output.side_effects.calls
        hooks = [call for call in calls if call.function is module_hooks.watch_gradient]
        return first.uses[id(value)] == sum(call.operands[0] is value for call in hooks)

    def check(self) -> None:
        """Raises Unsupported where a value cannot be made again."""
        self._first_run()

    def _first_run(self) -> Codegen:
        """The first emission, which finds the values that the code needs. Repeated for each
        container that has to be filled after it was made.
        """
        while True:
            codegen = Codegen(self.output, Emitter())
            try:
                self._emit_restore(codegen)
                CheckCodegen(self.root).push_values(codegen)
                return codegen
            except Retry as retry:
                if not isinstance(retry.plan, EmissionPlan):
                    raise
                self.output.emission = retry.plan
            except RecursionError:
                what = "a value nested as deep as Python recurses"
                raise Unsupported(breaks.CannotReconstruct(what)) from None

    def rewrite(self) -> Rewritten:
        start = time.perf_counter()
        refuse_changed(self.root, self.stop)
        first = self._first_run()
        if self.output.context.export:
            self._note_changes()
        results = list(first.graph_outputs.values())
        self.output.conditionals.check_results(results)
        self.output.watched.check_results(results)
        tensors = [value for value in results if isinstance(value, TensorValue)]
        self.output.watched.check_views(tensors, self.output.plan)
        inputs = [item.node.meta["example_value"] for item in self.output.inputs]
        shown = [value.fake for value in tensors if not self._for_hooks_alone(value, first)]
        self.output.watched.check_copies(shown, inputs)
        graph = self.output.graph
        ends = [value.node for value in results]
        # Made outputs, they stay in the graph through all stages.
        unused = [] if self.output.context.export else unused_that_may_fail(graph.nodes, ends)
        graph.output((*ends, *unused))
        graph.eliminate_dead_code()
        has_graph = self._has_operations()
        if not has_graph and not self._worth_rewriting():
            return Rewritten(self.root.code, True, self.output)
        spent_in_backend = time.perf_counter()
        self.reads = reads_of_checkpoints(self.output, ends)
        graph_call = self._compile_graph(len(results), len(unused)) if has_graph else None
        self.record.times["backend"] = time.perf_counter() - spent_in_backend
        emit = Emitter()
        emit.set_location(self.root.code.co_firstlineno)
        codegen = Codegen(self.output, emit, first)
        codegen.graph_outputs = dict(first.graph_outputs)
        checking = CheckCodegen(self.root)
        if not self.output.context.export:
            inputs = [item.source for item in graph_call.inputs] if graph_call else []
            hold_targets(codegen, first.emit.loaded_targets, inputs, checking)
        with checking.graph_runs(codegen):
            self._emit_hoisted_calls(codegen)
            if graph_call is not None:
                self._emit_graph_call(codegen, graph_call)
        checking.emit(codegen)
        self._emit_state(codegen)
        self._emit_restore(codegen)
        code = emit.assemble(self.root.code)
        self._log_bytecode(code)
        total = time.perf_counter() - start
        self.record.times["codegen"] = total - self.record.times["backend"]
        return Rewritten(code, self.stop.instr is not None, self.output)

    def _note_changes(self) -> None:
        """Record the effects that a program without Python could not have."""
        effects, result = self.output.side_effects, self.root.result
        changes = self.record.changes
        for value in effects.pending([result] if result is not None else []):
            if not value.mutation.new:
                names = ", ".join(value.mutation.attrs)
                text = f"changes {value.describe()}{f' ({names})' if names else ''}"
                changes.append(Change(text, value.outside))
        texts = [f"changes the global {name}" for _, name in effects.globals]
        texts += [
            f"calls {call.function.__name__}"
            for call in effects.calls
            if call.function not in (hit, store)  # an object remembered by a cache is no result
        ]
        texts += ["changes torch's modes"] if self.root.state_changes else []
        texts += (
            ["makes objects or draws numbers before its graph"] if self.output.hoisted_calls else []
        )
        texts += [f"sets {v.describe()}" for v in effects.context_variables if v.changes]
        texts += ["takes a lock"] if effects.locks else []
        changes += map(Change, texts)

    # -- the graph ------------------------------------------------------------------------------
    def _has_operations(self) -> bool:
        return any(
            node.op.startswith("call_")
            and getattr(node.target, "__name__", "") not in STATE_FUNCTIONS
            for node in self.output.graph.nodes
        )

    def _worth_rewriting(self) -> bool:
        """A frame without tensor operations is rewritten to go on after a break.

        With fullgraph=True it is rewritten anyway: skipped, the functions it calls would each have
        to be whole.
        """
        if self.breaking is None or self.stop.terminal:
            return self.output.context.fullgraph or config.rewrite_all_frames
        return True

    def _compile_graph(self, results: int, unused: int) -> _GraphCall:
        output, context = self.output, self.output.context
        graph = output.graph
        inputs = self._used_inputs()
        output.symbols.data.close()
        output.compiled = True
        module = GraphModule(output.root, graph)
        if config.verify_graphs:
            verify(graph)
        module.meta["fake_mode"] = output.fake_mode
        module.meta["compile_id"] = self.record.compile_id
        module.meta["name"] = self.record.name
        if log_graph.isEnabledFor(logging.DEBUG):
            log_graph.debug("%s %s\n%s", self.record.compile_id, self.record.name, graph)
        if log_graph_code.isEnabledFor(logging.DEBUG):
            log_graph_code.debug("%s\n%s", self.record.compile_id, module.code)
        examples = [item.example for item in inputs]

        # A backend's kernels may take types that aten's refuse.
        runs_natively = makes_numbers(self.stop, output) or output.checks.fails_surely

        def call_backend() -> Callable[..., Any]:
            return self._call_backend(context.backend_now, module, examples)

        asks = output.has_overrides and has_wrappers(module)
        overrides = torch._C.DisableTorchFunctionSubclass() if asks else contextlib.nullcontext()
        with restored_state(), overrides:  # the graph may end in the middle of a `with`
            if runs_natively:
                compiled = compile_with_blocks(output, lambda: module.forward)
            else:
                compiled = compile_with_blocks(
                    output, lambda: compiled_once(output, module, inputs, call_backend)
                )
        if asks:
            compiled = WithoutOverrides(compiled)
        if not runs_natively:
            report = getattr(compiled, "compile_report", None) or {}
            self.record.graphs.append(GraphRecord(module, output.op_count, report))
        if getattr(compiled, "binds_static", False):
            inputs = [item for item in inputs if not item.static]
        name = f"__compiled_{next(_graph_counter)}"
        output.installed[name] = self._guarded_from_hook(compiled)
        return _GraphCall(name, inputs, results, unused)

    def _guarded_from_hook(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """Where the rewritten frame runs with the hook on, the backend's own Python must not be
        captured.
        """
        if self.stop.instr is None:
            return compiled
        return _hook.disabled(compiled)

    def _used_inputs(self) -> list[GraphInput]:
        """Drop placeholders that nothing uses; their guards stay."""
        used: list[GraphInput] = []
        tensors = [item for item in self.output.inputs if item.node.users]
        sizes = self.output.symbols.used_by(item.node.meta["val"] for item in tensors)
        for item in self.output.inputs:
            if item.node.users or item.node in sizes:
                used.append(item)
            else:
                self.output.graph.erase_node(item.node)
        return used

    def _call_backend(
        self, backend: Callable[..., Any], module: GraphModule, examples: list[torch.Tensor]
    ) -> Callable[..., Any]:
        try:
            # A debugger may step into a backend of the user's own, not into one that has a name.
            named = self.output.context.names_backend
            compiled = (
                backend(module, examples)
                if named
                else _hook.with_tracing(backend, module, examples)
            )
            if not callable(compiled):
                raise TypeError(f"the backend returned {compiled!r}, which cannot be called")
            return getattr(compiled, "without_static", compiled)
        except Exception as error:
            message = (
                f"backend {self.output.context.backend_name!r} failed on the graph of "
                f"{self.record.name} ({self.record.filename}:{self.record.lineno}): "
                f"{type(error).__name__}: {error}\n{_user_lines(module)}{module.code}"
            )
            if not config.suppress_errors:
                raise BackendCompilerFailed(message) from error
            warnings.warn(f"{message}\nThe graph runs eagerly.", stacklevel=2)
            return module.forward

    def _emit_hoisted_calls(self, codegen: Codegen) -> None:
        for index, call in enumerate(self.output.hoisted_calls):
            function = _hook.disabled(call.function)
            codegen.load_callable(lambda function=function: codegen.load_object(function, "make"))
            if call.receiver is not None:
                codegen.load_source(call.receiver)
            codegen.call(0 if call.receiver is None else 1)
            codegen.store_fast(MadeSource(index).local)

    def _emit_graph_call(self, codegen: Codegen, call: _GraphCall) -> None:
        emit, reads = codegen.emit, self.reads
        if reads is not None:
            codegen.load_callable(lambda: codegen.load_object(reads.watch, "checkpoint_watch"))
        codegen.load_callable(lambda: codegen.load_source(InstalledSource(call.name)))
        read = [] if reads is None else reads.sources
        share_loads([*(item.source for item in call.inputs), *read], emit)
        for item in call.inputs:
            load_shared(item.source, emit)
        codegen.call(len(call.inputs))
        for source in read:
            load_shared(source, emit)
        if reads is not None:
            codegen.call(1 + len(read))
        emit.shared_loads = {}
        for local in emit.stored_loads:
            codegen.delete_fast(local)
        if call.results == 0:
            codegen.pop_top()
            return
        codegen.unpack_sequence(call.results + call.unused)
        for i in range(call.results):
            codegen.store_fast(f"__out_{i}")
        for _ in range(call.unused):
            codegen.pop_top()

    def _emit_state(self, codegen: Codegen) -> None:
        """Leave torch's modes as the captured code left them."""
        for function, *args in self.root.state_changes:
            codegen.load_callable(
                lambda function=function: codegen.load_object(function, function.__name__)
            )
            for arg in args:
                codegen.load_const(arg)
            codegen.call(len(args))
            codegen.pop_top()

    # -- the rest of the frame ------------------------------------------------------------------
    def _emit_restore(self, codegen: Codegen) -> None:
        if self.breaking is not None:

            def side_effects(held: Sequence[Any]) -> None:
                self._emit_side_effects(codegen, list(operand_values(held, Value)))

            self.breaking.emit(codegen, self.output.emission, side_effects)
            return
        result = self.root.result
        assert result is not None, "the frame returned"
        codegen(result)
        self._emit_side_effects(codegen, [result])
        if self.output.tracebacks:
            self._emit_let_go(codegen)
        codegen.return_value()

    def _emit_let_go(self, codegen: Codegen) -> None:
        """Empty the parameters of a continuation that were on the stack: the frames of tracebacks
        lead to this one, and keep it.
        """
        code = self.root.code
        for name in code.co_varnames[: code.co_argcount]:
            if name.startswith(".stack"):
                codegen.load_const(None)
                codegen.store_fast(name)

    def _emit_side_effects(self, codegen: Codegen, roots: Sequence[Value]) -> None:
        """Write the recorded changes, in order, once all values are made."""
        effects = self.output.side_effects
        for variable in effects.context_variables:
            for change in variable.changes[-1:]:
                codegen(change)
                codegen.pop_top()
                roots = [*roots, change]
        roots = [*roots, *(value for call in effects.calls for value in call.values())]
        first = [call.write for call in effects.calls if call.before_writes]
        later = [call.write for call in effects.calls if not call.before_writes]
        fills = [write for value in effects.pending(roots) for write in value.fill()]
        taken = [take for lock in effects.locks for take in lock.takes()]
        released = [release for lock in reversed(effects.locks) for release in lock.releases()]
        writes = [*first, *fills, *effects.global_stores(), *later]
        codegen.fill(writes, between=lambda: codegen.fill(taken))
        codegen.fill(released)

    def _log_bytecode(self, code: Any) -> None:
        if not log_bytecode.isEnabledFor(logging.DEBUG):
            return
        before, after = format_code(self.root.code), format_code(code)
        log_bytecode.debug(
            "%s %s\nbefore: %s\nafter: %s", self.record.compile_id, self.record.name, before, after
        )


@dataclass
class _GraphCall:
    """How the rewritten frame calls the graph."""

    name: str
    inputs: list[GraphInput]
    results: int
    unused: int  # results behind those, which nobody takes


def _user_lines(module: GraphModule) -> str:
    """The user's stack at the graph's last operation."""
    traces = [node.stack_trace for node in module.graph.nodes if node.op.startswith("call_")]
    return f"The graph ends at\n{traces[-1]}" if traces and traces[-1] else ""
