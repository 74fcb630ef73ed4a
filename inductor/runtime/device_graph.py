"""Device graphs: a plan's launches are captured once for each set of sizes, and replayed in one.

    call 1   runs the plan, and notes where the arguments are
    call 2   captures: arguments that moved since are read from memory of the graph's own
    later    copies those arguments there, and replays

Results of another graph's replays (what a forward leaves to its backward) stay in their place while
that graph lives: they are read there, and a graph that read them elsewhere is captured anew.

A replay writes its results where the replay before it wrote: if one of those is still alive by
then, the call runs the plan instead, and from then on that result is handed out as a copy. So no
result that anyone holds is ever written over.

A plan that cannot be captured runs as such, with a note that says why. Results are used on the
stream of the call; another stream has to have finished with them before they are let go.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from fxgraph.aot._autograd import Tensors
from fxgraph.notices import amount_of_memory
from fxgraph.sizes import symbols
from inductor.runtime import _plan
from inductor.runtime.driver import Nvidia
from inductor.runtime.plan import AtenStep, NumberSpec, OutputSpec, PlanSpec, TensorSpec

MEMORY_SHARE = 1 / 4  # of the device's memory, for the graphs of one plan
MOST_CAPTURES = 4  # of one set of sizes, besides those after an argument moved for the first time
MOST_RENEWALS = 4  # of an argument's place in another graph's memory; then the argument is copied
MOST_WAITS = 8  # calls in a row that are made as the plan because another graph made none

_replayed: set[int] = set()  # the memory, as _memory, of results of all graphs that live


def device_for(spec: PlanSpec, loaded: dict[str, Any]) -> Nvidia | str:
    """The device that can capture the plan, or why none can."""
    devices = {getattr(kernel, "device", None) for kernel in loaded.values()}
    device = devices.pop() if len(devices) == 1 else None
    if device is None:
        return "kernels of several devices, or that Triton launches"
    where = _devices(spec)
    for step in spec.steps:
        if step.kind == "kernel":
            return f"a kernel on the CPU ({step.label or step.symbol})"
        if step.kind == "check":
            return "data that are checked on the host"
        if step.kind == "call":
            return f"a function of Python ({step.function})"
        if step.kind != "aten":
            continue
        if step.binds:
            return f"sizes that depend on data ({step.op})"
        if not step.op.startswith("aten::"):
            return f"an operator that may work on the host ({step.op})"
        if _has_seeds(step):
            return f"dropout whose seeds are numbers of the host ({step.op})"
        names = {*step.names(), *(name for name in step.produces() if name)}
        if not device.captures_aten or any(where[name] == "cpu" for name in names):
            return f"an operator on the CPU ({step.op})"
    return device


def _has_seeds(step: AtenStep) -> bool:
    """Whether dropout in attention leaves its seeds to the backward, on the host from a plan, in
    memory of the device from a graph: each reads the seeds of its own kind."""
    if "flash" in step.op or "cudnn" in step.op:  # on the device from both
        return False
    packet = getattr(torch.ops.aten, step.op.removeprefix("aten::"))
    names = [a.name for a in getattr(packet, step.overload or "default")._schema.arguments]
    if "dropout_p" not in names or not step.op.endswith(("attention", "attention_backward")):
        return False
    place = names.index("dropout_p")
    given = step.args[place] if place < len(step.args) else step.kwargs.get("dropout_p", 0.0)
    return given != 0.0


def _devices(spec: PlanSpec) -> dict[str, str]:
    """The type of the device of each name."""
    tensors: list[Any] = [t for t in spec.inputs if isinstance(t, TensorSpec)]
    tensors += [*spec.constants, *spec.derived, *spec.buffers]
    where = {item.name: item.device.partition(":")[0] for item in tensors}
    for step in spec.steps:
        if step.kind == "view":
            where[step.out] = where[step.base]
    return where


class DeviceGraphs:
    """A plan with its device graphs, called as the plan is. most: sets of sizes. most_bytes: of
    memory that they hold together; 0 stands for a share of the device's.

    notes: lines for the reader of the report, once each. told: called after each.
    """

    def __init__(
        self, plan: _plan.Plan, spec: PlanSpec, device: Nvidia, most: int, most_bytes: int = 0
    ) -> None:
        self.plan = plan
        self.device = device
        self.most = most
        self.most_bytes = most_bytes or int(MEMORY_SHARE * device.memory())
        self.frame = _Frame(spec, plan)
        self.graphs: dict[tuple[int, ...], _Graph] = {}
        self.notes: list[str] = []
        self.told: Callable[[], None] | None = None
        self._busy = threading.Lock()

    def __call__(self, *arguments: Any) -> tuple[Any, ...]:
        results = self._replayed(arguments)
        return self.plan(*arguments) if results is None else results

    def bare(self, *arguments: Any) -> Any:
        """A call whose results are Tensors, where a replay makes them."""
        results = self._replayed(arguments, bare=True)
        return self.plan(*arguments) if results is None else results

    def take(self, arguments: list[Any] | Tensors) -> Any:
        """A call that empties the list, as Plan.take. With Tensors, so are the results."""
        results = self._replayed(arguments, bare=isinstance(arguments, Tensors))
        if results is None:
            given = list(arguments)
            arguments.clear()
            return self.plan.take(given)
        arguments.clear()
        return results

    take.takes_tensors = True  # type: ignore[attr-defined]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plan, name)

    def tell(self, text: str) -> None:
        note = f"device graph: {text}"
        if note not in self.notes:
            self.notes.append(note)
            if self.told is not None:
                self.told()

    def nbytes(self) -> int:
        """Of memory that the graphs hold."""
        return sum(graph.nbytes for graph in self.graphs.values())

    def reset(self) -> None:
        """Let go of all graphs and their memory."""
        with self._busy:
            for graph in self.graphs.values():
                graph.drop()
            self.graphs.clear()

    def _replayed(self, arguments: Sequence[Any] | Tensors, bare: bool = False) -> Any:
        if not self._busy.acquire(blocking=False):
            self.tell("another thread was calling, so a call ran without")
            return None
        try:
            key = self.frame.sizes(arguments)
            graph = self.graphs.get(key)
            if graph is not None:
                return graph.call(arguments, bare)
            if len(self.graphs) >= self.most:
                self.tell(f"none for more than {self.most} sets of sizes (option device_graphs)")
            else:
                self.graphs[key] = _Graph(self, arguments)
            return None
        finally:
            self._busy.release()


class _Frame:
    """The inputs and outputs of a plan, as far as a graph depends on them."""

    def __init__(self, spec: PlanSpec, plan: _plan.Plan) -> None:
        varying = [item for item in spec.inputs if not item.static]
        self.outputs = spec.outputs
        self.position = {item.name: k for k, item in enumerate(varying)}
        self.tensors = [k for k, item in enumerate(varying) if isinstance(item, TensorSpec)]
        self.sized = [
            k
            for k, item in enumerate(varying)
            if isinstance(item, TensorSpec)
            and any(True for _ in symbols([*item.size, *item.stride]))
        ]
        self.numbers = [k for k, item in enumerate(varying) if isinstance(item, NumberSpec)]
        self.made = {buffer.name for buffer in spec.buffers}
        names = [t.name for t in [*spec.inputs, *spec.constants, *spec.derived, *spec.buffers]]
        self.root = {name: name for name in names}  # a name -> the memory of which it is a window
        for step in spec.steps:
            if step.kind == "view":
                self.root[step.out] = self.root[step.base]
        self.written: list[tuple[str, int]] = plan.written
        self.written_at = {self.position[n] for n, _ in self.written if n in self.position}
        self.statics: dict[str, torch.Tensor] = plan.statics

    def written_tensors(self) -> list[tuple[torch.Tensor | None, int, int]]:
        """The tensors that the plan writes, or None and the position of an argument, and how often
        their version counters are incremented."""
        found: list[tuple[torch.Tensor | None, int, int]] = []
        for name, bumps in self.written:
            k = self.position.get(name)
            found.append((self.statics[name], 0, bumps) if k is None else (None, k, bumps))
        return found

    def sizes(self, arguments: Sequence[Any] | Tensors) -> tuple[int, ...]:
        """The varying sizes, strides and numbers of a call."""
        if not self.numbers and not self.sized:
            return ()
        found = [arguments[k] for k in self.numbers]
        for k in self.sized:
            found += [*arguments[k].size(), *arguments[k].stride()]
        return tuple(found)


class _Graph:
    """The graph of one set of sizes."""

    def __init__(self, owner: DeviceGraphs, arguments: Sequence[Any] | Tensors) -> None:
        # The memory, as _memory, of the groups of results that share it; __del__ asks for it.
        self.kept: list[int] = []
        self.owner = owner
        self.frame = owner.frame
        self.where = {k: arguments[k].data_ptr() for k in self.frame.tensors}
        self.own: dict[int, torch.Tensor | None] = {}  # arguments that move, and memory for them
        # Arguments that other graphs made, and how often each was found elsewhere.
        self.renewals = {k: 0 for k in self.frame.tensors if _is_replayed(arguments[k])}
        self.waits = 0
        self.graph: Any = None
        self.nbytes = 0
        self.memory: torch.Tensor | None = None  # of temporaries
        self.copied: set[int] = set()  # numbers of groups
        self.captures = 0
        self.refused = False
        self.stream = 0
        self.bound = b""
        self.results: Any = None  # a _plan.Replay

    def call(self, arguments: Sequence[Any] | Tensors, bare: bool) -> Any:
        """The results of a replay; None if the plan has to run. bare: as Tensors, if all are."""
        device = self.owner.device
        if self.refused or device.capturing():
            return None
        if not self._settled(arguments):
            return None
        with torch.no_grad():
            if self.graph is None and not self._capture(arguments):
                return None
            if device.stream() != self.stream:
                self.owner.tell("a call on another stream ran without")
                return None
            if alive := self.results.alive():
                self.copied.update(alive)
                self.owner.tell(
                    f"{len(self.copied)} of {len(self.kept)} results lived on while the next "
                    "call was made, and are copied since"
                )
                self.drop()
                return None
            for k, own in self.own.items():
                if own is not None and own.data_ptr() != arguments[k].data_ptr():
                    own.copy_(arguments[k])
            self.graph.replay()
        return self.results(arguments, bare)

    def drop(self) -> None:
        if self.graph is not None:
            self.graph.reset()
        _replayed.difference_update(self.kept)
        self.graph, self.memory, self.kept, self.results = None, None, [], None
        self.nbytes = 0

    def __del__(self) -> None:
        _replayed.difference_update(self.kept)  # others' memory may have the same identities later

    def _refuse(self, why: str) -> None:
        self.owner.tell(why)
        self.refused = True
        self.drop()
        self.own.clear()

    def _settled(self, arguments: Sequence[Any] | Tensors) -> bool:
        """Whether a graph would read this call's memory; drop a graph that would not."""
        if moved := _plan.moved(arguments, self.where, self.own):
            if self.frame.written_at.intersection(moved):
                self._refuse("an argument that is written is elsewhere in each call")
                return False
            replayed = {k for k in moved if _is_replayed(arguments[k])}
            there = [k for k in replayed if self.renewals.get(k, 0) < MOST_RENEWALS]
            for k in there:
                self.where[k] = arguments[k].data_ptr()
                self.renewals[k] = self.renewals.get(k, 0) + 1
            gone = any(k in self.renewals for k in moved if k not in replayed)
            if gone and not there and self.waits < MOST_WAITS:  # that graph will be there again
                self.waits += 1
                return False
            elsewhere = [k for k in moved if k not in there]
            self.own.update(dict.fromkeys(elsewhere))
            if self.graph is not None:
                self.drop()
                return False
        self.waits = 0
        if self.graph is not None and self.owner.plan.bound() != self.bound:
            self.drop()
            self.owner.tell("parameters moved, so it was captured anew")
            return False
        return True

    def _capture(self, arguments: Sequence[Any] | Tensors) -> bool:
        self.captures += 1
        renewals = max(self.renewals.values(), default=0)
        if self.captures > MOST_CAPTURES + len(self.own) + len(self.copied) + renewals:
            self._refuse("none, since parameters keep moving")
            return False
        device, plan = self.owner.device, self.owner.plan
        given = list(arguments)
        for k in self.own:
            made = self.own[k]
            if made is None:
                x = arguments[k]
                made = torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device=x.device)
                self.own[k] = made
            given[k] = made
        self.bound, self.stream = plan.bound(), device.stream()
        try:
            graph = device.graph()
            with graph:
                results, self.memory = plan.keep(*given)
        except Exception as error:
            self._refuse(f"capturing failed ({type(error).__name__}: {error})")
            return False
        self.graph = graph
        self.nbytes = graph.nbytes + sum(t.nbytes for t in self.own.values() if t is not None)
        if self.owner.nbytes() > self.owner.most_bytes:
            del results
            most = amount_of_memory(self.owner.most_bytes)
            self._refuse(f"none that would hold more than {most} (option device_graph_bytes)")
            return False
        self._frame_results(results, given)
        return True

    def _frame_results(self, results: Sequence[Any], given: Sequence[Any]) -> None:
        """How each result of a replay is made of the arguments and of the captured memory."""
        made = [
            (out, result)
            for out, result in zip(self.frame.outputs, results, strict=True)
            if out.kind != "value" and self.frame.root[out.name] in self.frame.made
        ]
        kept: dict[int, torch.Tensor] = {}  # by memory
        for out, result in made:
            whole = result if out.kind == "buffer" else result._base
            known = kept.setdefault(_memory(result), result if whole is None else whole)
            if known is not whole:  # windows of nothing that is known: of all the memory
                kept[_memory(result)] = _all_memory(result)
        self.kept = list(kept)
        _replayed.update(
            memory for number, memory in enumerate(self.kept) if number not in self.copied
        )
        rows = [
            self._row(out, result, given, kept)
            for out, result in zip(self.frame.outputs, results, strict=True)
        ]
        groups = [(base, number in self.copied) for number, base in enumerate(kept.values())]
        self.results = _plan.Replay(
            {"groups": groups, "results": rows, "written": self.frame.written_tensors()}
        )

    def _row(
        self, out: OutputSpec, result: Any, given: Sequence[Any], kept: dict[int, torch.Tensor]
    ) -> tuple[Any, ...]:
        """A result as _plan.Replay takes it."""
        root = "" if out.kind == "value" else self.frame.root[out.name]
        if root in self.frame.made:
            base = kept[_memory(result)]
            detached = "view" if out.kind == "reshaped" else out.detached
            window = None if base is result else _window(result, base, detached)
            return "fresh", self.kept.index(_memory(result)), window
        if root in self.frame.position:
            k = self.frame.position[root]
            alone = out.kind == "input"
            return "argument", k, None if alone else _window(result, given[k], out.detached)
        return "constant", result


def _memory(tensor: torch.Tensor) -> int:
    return _plan.memory_of(tensor)[0]


def _is_replayed(tensor: torch.Tensor) -> bool:
    return _memory(tensor) in _replayed


def _all_memory(tensor: torch.Tensor) -> torch.Tensor:
    count = _plan.memory_of(tensor)[1] // tensor.itemsize
    return torch.as_strided(tensor.data, (count,), (1,), 0)


def _window(tensor: torch.Tensor, base: torch.Tensor, detached: str) -> tuple[Any, ...]:
    """Where a tensor is in another. detached: as OutputSpec's."""
    offset = tensor.storage_offset() - base.storage_offset()
    return tuple(tensor.size()), tensor.stride(), offset, detached
