"""Calls of a static graph by capture while the graph is built: reports and questions."""

from __future__ import annotations

import functools
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from dynamo.static_graph import step
from dynamo.static_graph.signature import TensorSpec
from dynamo.torch.modules import ModuleValue
from dynamo.values.base import Value
from dynamo.values.builder import Lazy
from dynamo.values.containers.containers import SequenceValue, TupleValue
from dynamo.values.containers.dicts import DictValue
from dynamo.values.objects.builtin_object import Pending
from dynamo.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter
    from dynamo.static_graph.graph import Graph
    from dynamo.static_graph.state import GraphState
    from fxgraph import Node


@dataclass
class ModuleCall:
    """The first call of a module."""

    inputs: list[TensorSpec] = field(default_factory=list)
    outputs: list[TensorSpec] = field(default_factory=list)


class OverLimit(Exception):
    """A plan needs more memory than the limit of the graph; its bytes, None if there is no plan."""

    @property
    def peak(self) -> int | None:
        return self.args[0]


class BuildHooks:
    """Attribute `hooks` of the CompileContext."""

    def __init__(self, graph: Graph, state: GraphState) -> None:
        self.graph = weakref.ref(graph)
        self.state = state
        self.calls: dict[int, ModuleCall] = {}  # by id of the module, which the graph holds
        self._running: list[int] = []
        self._names = {id(module): name for name, module in graph.named_modules()}
        self._checkpointed = frozenset(map(id, state.config.checkpointed + state.saved_by))
        self.detaches = bool(state.optimizers)  # the result of build(), and so all that leaves
        self._scales = state.config.accumulation > 1 or state.config.grad_scaler is not None
        self._indent = ""
        self._class_name = type(graph).__name__

    # -- asked ----------------------------------------------------------------------------------
    def replaces_call(self, module: ModuleValue) -> Callable[..., Any] | None:
        """The function to capture for a call of the module; it takes (module, args, kwargs)."""
        return step.checkpointed if id(module.real) in self._checkpointed else None

    def before_backward(
        self, tx: Interpreter, tensors: Value, gradients: Value
    ) -> tuple[Value, Value]:
        """The tensors, scaled by the GradScaler, and the gradients from which backward() inside of
        build() starts.
        """
        if not self._scales:
            return tensors, gradients
        graph = tx.output.known_value(self.graph(), None)
        assert graph is not None, "the frame's first argument"
        pair = tx.inline(tx.wrap(step.scaled), [graph, tensors, gradients], {})
        assert isinstance(pair, TupleValue)
        first, second = pair.items(tx)
        return first, second

    # -- told -----------------------------------------------------------------------------------
    @contextmanager
    def call(self, child: Interpreter) -> Iterator[None]:
        """Around the interpretation of an inlined function."""
        module = _forward_of(child)
        if module is None or id(module) in self._running:
            yield
            return
        record = ModuleCall(list(_specs(list(child.locals.values())[1:])))
        self._running.append(id(module))
        self._tell_module(module, record)
        indent, self._indent = self._indent, self._indent + "  "
        try:
            yield
        finally:
            self._indent = indent
            self._running.pop()
        record.outputs = list(_specs([child.result]))
        self.calls.setdefault(id(module), record)

    def node_created(self, node: Node) -> None:
        """An operator of the graph."""
        level = self.state.verbosity
        if level < 2 or not node.op.startswith("call_"):
            return
        result = _described(node.meta["example_value"])
        operands = [_described(one.meta.get("example_value")) for one in node.all_input_nodes]
        target = node.target if isinstance(node.target, str) else _name(node.target)
        self._print(f"(OPERATOR:{node.name}:{target}({', '.join(operands)}) -> {result})")
        stack = node.meta.get("stack_trace")
        if level >= 3 and stack:
            for line in stack.splitlines()[-2:]:
                self._print(f"    {line.strip()}")

    def announce(self, backend: Callable[..., Any]) -> Callable[..., Any]:
        """The backend, between two lines of the log."""

        @functools.wraps(backend, updated=("__dict__",) if hasattr(backend, "__dict__") else ())
        def announced(gm: Any, example_inputs: Sequence[Any]) -> Callable[..., Any]:
            title = f"(GRAPH:{self.state.name}:{self._class_name})"
            self._indent = ""
            count = sum(node.op.startswith("call_") for node in gm.graph.nodes)
            self._print(f"{title} end building graph: {count} operators.")
            self._print(f"{title} start compiling plan.")
            start = time.perf_counter()
            compiled = backend(gm, example_inputs)
            spent = time.perf_counter() - start
            self._print(f"{title} end compiling plan: {spent:.2f} s.")
            report = getattr(compiled, "compile_report", None) or {}
            if report.get("no_plan"):
                self.state.tell_no_plan(report["no_plan"])
            if self.state.verbosity >= 3:
                self._print_report(report)
            self._check_memory(report)
            return compiled

        return announced

    def _check_memory(self, report: dict[str, Any]) -> None:
        limit, peak = self.state.config.memory_limit, report.get("peak_bytes")
        if limit is not None and (peak is None or peak > limit):
            raise OverLimit(peak)

    def _print_report(self, report: dict[str, Any]) -> None:
        if report.get("kernels") is not None:
            self._print(f"  kernels: {report['kernels']}")
        for name, text, operations in report.get("computed") or ():
            plural = "" if operations == 1 else "s"
            self._print(f"  (KERNEL:{name}:{text}) fuses {operations} operation{plural}")
        for name, count in sorted((report.get("fallback_ops") or {}).items()):
            self._print(f"  library: {count} x {name}")
        for note in report.get("notes") or ():
            self._print(f"  {note}")

    def _tell_module(self, module: torch.nn.Module, record: ModuleCall) -> None:
        if self.state.verbosity >= 1:
            name = self._names.get(id(module), "")
            inputs = ", ".join(map(str, record.inputs))
            self._print(f"(MODULE:{name}:{type(module).__name__}) input: {inputs}")

    def tell(self, text: str) -> None:
        """A line about the whole graph."""
        self._print(f"(GRAPH:{self.state.name}:{self._class_name}) {text}")

    def _print(self, text: str) -> None:
        if self.state.verbosity >= 0:
            print(f"{self._indent}{text}", flush=True)


def _forward_of(child: Interpreter) -> torch.nn.Module | None:
    """The module whose forward the function is."""
    code = child.code
    if code.co_name != "forward" or not code.co_argcount:
        return None
    value = child.locals.get(code.co_varnames[0])
    real = value.obj if isinstance(value, Lazy) else getattr(value, "real", None)
    return real if isinstance(value, (ModuleValue, Lazy)) and _is_module(real) else None


def _is_module(value: Any) -> bool:
    return isinstance(value, torch.nn.Module)


def _specs(values: Sequence[Any]) -> Iterator[TensorSpec]:
    """The types of tensors among the values and inside of containers."""
    for value in values:
        if isinstance(value, TensorValue):
            yield TensorSpec.of(value.fake)
        elif isinstance(value, Lazy):
            if isinstance(value.obj, torch.Tensor):
                yield TensorSpec.of(value.obj)
        elif isinstance(value, Pending):
            if isinstance(value.real, torch.Tensor):
                yield TensorSpec.of(value.real)
        elif isinstance(value, SequenceValue):
            yield from _specs(value.contents)
        elif isinstance(value, DictValue):
            yield from _specs([item for _, item in value.entries.values()])


def _described(value: Any) -> str:
    """Shape, dtype and device of an operand or result."""
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(_described, value))})"
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    sizes = "x".join(map(str, value.shape)) or "scalar"
    return f"{str(value.dtype).removeprefix('torch.')}[{sizes}]@{value.device}"


def _name(target: Any) -> str:
    module = getattr(target, "__module__", None)
    name = getattr(target, "__name__", repr(target))
    return f"{module}.{name}" if module else name
