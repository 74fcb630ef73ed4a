"""Linking: a PlanSpec plus its kernels, parameters and callables become a callable Plan.

The C++ executor knows only numbered values and a flat list of instructions; this file does the
numbering, asks the memory plan where everything goes, and resolves views so that kernels see plain
pointers.
"""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from fxgraph.sizes import Extent, hint
from inductor import costs
from inductor.runtime import _plan
from inductor.runtime.driver import Loaded
from inductor.runtime.plan import (
    SIZES,
    BufferSpec,
    KernelStep,
    LaunchStep,
    NumberSpec,
    PlanError,
    PlanSpec,
    TensorSpec,
    ViewStep,
    decode,
    storage_bytes,
    torch_dtype,
    tree_names,
)
from inductor.runtime.size_program import SizeProgram
from inductor.schedule.memory import MemoryPlan, plan_memory


def link(
    spec: PlanSpec,
    library: str | Path | _plan.Library | None = None,
    *,
    statics: Sequence[torch.Tensor] | Mapping[str, torch.Tensor] = (),
    callables: Mapping[str, Callable[..., Any]] | None = None,
) -> _plan.Plan:
    """A Plan: called with the inputs that are not static, positionally, it returns a tuple.

    `library` is the compiled `spec.source`, needed when there are kernels. `statics` are the
    tensors of the static inputs, by name or in the order of `spec.inputs`. `callables` are the
    functions that CallSteps name, and the kernels that LaunchSteps name: a Loaded one, or a
    function of the step's arguments and the number of programs.

    The Plan has the attributes `peak_bytes` and `arena_bytes` (see MemoryPlan), `kernels`,
    `derived` (a Derived, or None), `statics` (name -> tensor) and `written` (pairs of an input's
    name and the bumps of its version counter), and takes any others that its maker wants to attach.
    One called with parameters to derive from needs `unpacked`, a callable in its place for those
    that there is no room for.

    Raises PlanError for a plan that contradicts itself, and AttributeError when the library lacks a
    kernel.
    """
    spec.validate()
    return Linker(spec, library, statics, callables or {}).link()


class Derived:
    """Makes the derived statics of a plan, which calls this with the sources when it has none or a
    source has changed.

    made: how often. told: called after each.
    """

    def __init__(self, plan: _plan.Plan, values: Sequence[TensorSpec]) -> None:
        self.plan = plan
        self.values = values
        self.kept: list[torch.Tensor] = []  # on a GPU, where device graphs look for them
        self.made = self._size = 0
        self._alive: weakref.WeakValueDictionary[int, torch.Tensor] = weakref.WeakValueDictionary()
        self.told: Callable[[], None] | None = None

    def __call__(self, *sources: torch.Tensor) -> list[torch.Tensor]:
        results = self.plan(*sources)
        made = [
            _laid_out(result, value) for result, value in zip(results, self.values, strict=True)
        ]
        places = {tensor.device for tensor in made if tensor.is_cuda}
        if places and torch.cuda.is_current_stream_capturing():
            return made
        if places:
            made = self.kept = _in_place(self.kept, made)
            for place in places:  # calls on other streams read them as soon as they are told
                torch.cuda.current_stream(place).synchronize()
        self._size = sum(tensor.nbytes for tensor in made)
        self._alive[id(made[0])] = made[0]
        self.made += 1
        if self.told is not None:
            self.told()
        return made

    @property
    def bytes(self) -> int:
        """Of the tensors that are kept, for all modules that were called, as their sizes tell."""
        return len(self._alive) * self._size


def _in_place(kept: list[torch.Tensor], made: list[torch.Tensor]) -> list[torch.Tensor]:
    """The values just made, in the memory of those before if there are any."""
    if not kept:
        return made
    with torch.no_grad():
        for old, new in zip(kept, made, strict=True):
            old.copy_(new)
    return kept


def watch_collections() -> None:
    """Let what is derived from arguments of calls go with them, at the latest when garbage is
    collected: nothing tells of the end of a tensor, and weak references to parameters would keep
    the program from swapping them.
    """
    if _plan.collected not in gc.callbacks:
        gc.callbacks.append(_plan.collected)


def watch_replays() -> None:
    """Count replays of graphs that the program captured, from now on: they may write parameters
    without a new version. Those of ours go around this (driver.TorchGraph)."""
    replay = torch.cuda.CUDAGraph.replay
    if hasattr(replay, "counts_replays"):
        return

    @functools.wraps(replay)
    def counted(self: torch.cuda.CUDAGraph) -> None:
        _plan.note_replay()
        replay(self)

    counted.counts_replays = True  # type: ignore[attr-defined]
    torch.cuda.CUDAGraph.replay = counted  # type: ignore[method-assign]


def _laid_out(tensor: torch.Tensor, value: TensorSpec) -> torch.Tensor:
    """With the strides that the plan relies on; a layout of the library's own has none."""
    if tensor.layout is not torch.strided or tensor.stride() == value.stride:
        return tensor
    stride = [hint(step) for step in value.stride]  # of known sizes
    strided = torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype, device=tensor.device)
    return strided.copy_(tensor.detach())


class Linker:
    """State of one `link` call."""

    def __init__(self, spec: PlanSpec, library: Any, statics: Any, callables: Mapping) -> None:
        self.spec = spec
        self.library = _plan.Library(str(library)) if isinstance(library, (str, Path)) else library
        self.callables = callables
        self.memory: MemoryPlan = plan_memory(spec)
        self.statics = self._static_tensors(statics)
        self.values: list[list[Any]] = []
        self.index: dict[str, int] = {}
        self.views: dict[str, tuple[str, Extent]] = {}  # view -> (its base, elements)
        self.views_of: dict[str, list[str]] = {}  # base -> its views
        self.input_names = {item.name for item in spec.inputs}
        self.specs: dict[str, Any] = {}
        self.sizes = SizeProgram(spec)
        self.derived: Derived | None = None

    def link(self) -> _plan.Plan:
        program = self.program()
        plan = _plan.Plan(program)
        plan.peak_bytes = self.memory.peak_bytes
        plan.arena_bytes = hint(self.memory.arena_bytes)
        plan.kernels = sum(step.kind in ("kernel", "launch") for step in self.spec.steps)
        plan.derived = self.derived
        statics = [item.name for item in self.spec.inputs if item.static]
        plan.statics = dict(zip(statics, self.statics, strict=False))
        plan.written = [(self.values[v][1], bumps) for v, bumps in program["mutated"]]
        return plan

    def program(self) -> dict[str, Any]:
        """The program of an executor (csrc/program.cpp, and inductor/runner)."""
        self._number_values()
        mutated = {name for name, n in self.spec.bumps.items() if n and name in self.input_names}
        written: set[str] = set()
        steps: list[tuple] = []
        first_write = 0
        for position, step in enumerate(self.spec.steps):
            steps += [("alloc", self.index[name]) for name in self.memory.allocs[position]]
            if step.kind != "view":
                first_write = first_write if written else len(steps)
                steps.append(getattr(self, f"_{step.kind}")(step, written))
            for name in self.memory.frees[position]:
                steps += [("free", v) for v in self._with_views(name)]
        return {
            "values": [self.sizes.numbers(value) for value in self.values],
            "statics": self.statics,
            "derivation": self._derivation(),
            "steps": steps,
            "outputs": [self._output(out) for out in self.spec.outputs],
            "mutated": [
                (v, self.spec.bumps.get(name, 1))
                for v, name in sorted((self.index[name], name) for name in mutated | written)
            ],
            "first_write": first_write,
            "arena_device": torch.device(self.memory.arena_device),
            "arena_bytes": self.sizes.number(self.memory.arena_bytes),
            "sizes": [self.sizes.number(size) for size in self.spec.sizes],
            "registers": self.sizes.registers,
            "number_inputs": self._number_inputs(),
            "release_gil": self._runs_long(),
            "library": self.library,
        }

    def _derivation(self) -> tuple[Derived, list[int], Any, int] | None:
        if self.spec.derivation is None:
            return None
        self.derived = Derived(link(self.spec.derivation.plan), self.spec.derived)
        on_gpu = any(torch.device(value.device).type == "cuda" for value in self.spec.derived)
        capturing = torch.cuda.is_current_stream_capturing if on_gpu else None
        if on_gpu:
            watch_replays()
        sources = [self.index[name] for name in self.spec.derivation.sources]
        most, named = 0, set(self.spec.derivation.sources)
        if any(not t.static for t in self.spec.inputs if t.name in named):
            watch_collections()
            size = sum(storage_bytes(v.dtype, v.size, v.stride) for v in self.spec.derived)
            most = max(1, costs.room_for_copies() // max(1, hint(size)))
        return self.derived, sources, capturing, most

    def _static_tensors(self, given: Any) -> list[torch.Tensor]:
        names = [t.name for t in self.spec.inputs if t.static]
        if isinstance(given, Mapping):
            given = [given[name] for name in names]
        if len(given) != len(names):
            raise PlanError(f"{len(names)} static inputs, but {len(given)} tensors to bind")
        return [*given, *(constant.tensor() for constant in self.spec.constants)]

    # --- values -----------------------------------------------------------------------------

    def _number_values(self) -> None:
        varying = static = 0
        for item in self.spec.inputs:
            if isinstance(item, NumberSpec):
                varying += 1
                continue
            self._add(
                item, "static" if item.static else "input", static if item.static else varying
            )
            static, varying = static + item.static, varying + (not item.static)
        for offset, constant in enumerate(self.spec.constants):
            self._add(constant, "static", static + offset)
        for offset, value in enumerate(self.spec.derived):
            self._add(value, "derived", offset)
        for buffer in self.spec.buffers:
            if buffer.name in self.memory.windows:
                continue
            if buffer.name in self.memory.offsets:
                self._add(buffer, "arena", self.memory.offsets[buffer.name])
            else:
                self._add(buffer, "produced" if buffer.kind == "aten" else "own", 0)
        for buffer in self.spec.buffers:
            if buffer.name in self.memory.windows:
                root = self.memory.windows[buffer.name]
                self._add_view(ViewStep(buffer.name, root, buffer.size, buffer.stride))
                self.values[self.index[root]][10] = True
        for step in self.spec.steps:
            if step.kind == "view":
                self._add_view(step)
        for out in self.spec.outputs:
            if out.kind in ("view", "reshaped"):
                self.values[self.index[self._root(out.name)[0]]][9] = True

    def _add(self, item: Any, kind: str, where: Extent) -> None:
        size, stride = tuple(item.size), tuple(item.stride)
        self.specs[item.name] = item
        self.index[item.name] = len(self.values)
        nbytes = storage_bytes(item.dtype, size, stride)
        device = torch.device(item.device)
        dtype = torch_dtype(item.dtype)
        self.values.append(
            [kind, item.name, dtype, size, stride, device, where, 0, nbytes, False, False]
        )

    def _add_view(self, step: ViewStep) -> None:
        base, offset = self._root(step.base)
        self.views[step.out] = (base, offset + step.offset)
        self.views_of.setdefault(base, []).append(step.out)
        spec = self.specs[base]
        self.values[self.index[base]][9] = True
        self._add(
            BufferSpec(step.out, spec.dtype, step.size, step.stride, spec.device),
            "view",
            self.index[base],
        )
        self.values[-1][7] = offset + step.offset

    def _number_inputs(self) -> list[int]:
        """Positions in a call of the inputs that are ints."""
        varying = [item for item in self.spec.inputs if not item.static]
        return [k for k, item in enumerate(varying) if isinstance(item, NumberSpec)]

    def _root(self, name: str) -> tuple[str, Extent]:
        """The buffer of which `name` is a window (itself, unless it is a view), and the offset in
        elements.
        """
        return self.views.get(name, (name, 0))

    def _with_views(self, name: str) -> list[int]:
        """The value of a buffer and of all views of it: they hold its memory too."""
        return [*(self.index[view] for view in self.views_of.get(name, ())), self.index[name]]

    # --- steps ------------------------------------------------------------------------------

    def _kernel(self, step: KernelStep, mutated: set[str]) -> tuple:
        if self.library is None:
            raise PlanError(f"kernel {step.symbol} needs a library")
        args = []
        for name, offset in step.args:
            if name == SIZES:
                args.append((-1, 0))
                continue
            args.append(self._address(name, offset))
        self._note_writes(step.writes, mutated)
        total, grain = self.sizes.number(step.total), self.sizes.number(step.grain)
        name = f"framegraph::{step.label or step.symbol}"
        return ("kernel", self.library.address(step.symbol), args, total, grain, name)

    def _address(self, name: str, offset: Extent = 0) -> tuple[int, Any]:
        """A value and a byte offset from its first element; an arena's from the arena's start."""
        root, elements = self._root(name)
        offset = offset + elements * torch_dtype(self.specs[root].dtype).itemsize
        if root in self.memory.offsets:
            offset = offset + self.memory.offsets[root]
        return self.index[root], self.sizes.number(offset)

    def _check(self, step: Any, mutated: set[str]) -> tuple:
        found, sizes = self._address(step.found), self.sizes.numbers(step.sizes)
        return ("check", found, step.error == "IndexError", step.message, list(sizes))

    def _aten(self, step: Any, mutated: set[str]) -> tuple:
        schema = torch._C._get_schema(step.op, step.overload)
        for position, argument in enumerate(schema.arguments):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            given = step.kwargs.get(argument.name)
            if position < len(step.args):
                given = step.args[position]
            self._note_writes(tree_names(given), mutated)
        args, kwargs = self._decoded(step)
        binds = [
            (self.sizes.symbol(name), number, -1 if dim is None else dim)
            for name, number, dim in step.binds
        ]
        return ("aten", step.op, step.overload, args, kwargs, self._results(step), binds)

    def _call(self, step: Any, mutated: set[str]) -> tuple:
        self._note_writes(step.writes, mutated)
        args, kwargs = self._decoded(step)
        return ("call", self.callables[step.function], args, kwargs, self._results(step))

    def _launch(self, step: LaunchStep, mutated: set[str]) -> tuple:
        self._note_writes(step.writes, mutated)
        kernel = self.callables[step.kernel]
        sizes, programs = self.sizes.numbers(step.sizes), self.sizes.number(step.programs)
        if isinstance(kernel, Loaded):
            args = [self._address(name) for name in step.names()]
            name = f"framegraph::{step.label or step.kernel}"
            return ("launch", kernel.code, kernel.careful, args, list(sizes), programs, name)
        for name in step.names():  # read by address: an operator may give another layout
            self.values[self.index[self._root(name)[0]]][9] = True
        return ("call", kernel, [*map(self._reference, step.args), *sizes, programs], {}, [])

    def _decoded(self, step: Any) -> tuple[Any, dict[str, Any]]:
        """Arguments with tensors as (value,) and sizes as (register, 0)."""

        def decoded(tree: Any) -> Any:
            return decode(tree, self._reference, self.sizes.number, self.spec.objects)

        return decoded(step.args), {key: decoded(tree) for key, tree in step.kwargs.items()}

    def _reference(self, name: str) -> tuple[int]:
        return (self.index[name],)

    def _results(self, step: Any) -> list[int]:
        return [self.index[name] if name else -1 for name in step.outputs]

    def _note_writes(self, names: Any, mutated: set[str]) -> None:
        """Remember the inputs that a step writes: their version counters must move."""
        roots = (self._root(name)[0] for name in names)
        mutated |= {root for root in roots if root in self.input_names}

    def _runs_long(self) -> bool:
        if any(step.kind == "aten" for step in self.spec.steps):
            return True
        touched = {
            self._root(n)[0] for s in self.spec.steps if s.kind == "kernel" for n in s.names()
        }
        return sum(hint(self.values[self.index[name]][8]) for name in touched) >= costs.GIL_BYTES

    def _output(self, out: Any) -> tuple:
        if out.kind == "value":
            value = self.sizes.number(out.value)
            return ("constant" if value is out.value else "number", value)
        if out.kind == "input":
            return ("same", self.index[out.name])
        if out.kind in ("view", "reshaped"):
            root, elements = self._root(out.name)
            return (
                out.kind,
                self.index[root],
                *self.sizes.numbers([out.size, out.stride, out.offset + elements]),
                out.detached,
            )
        return ("tensor", self.index[out.name])
