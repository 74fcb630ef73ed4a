"""The stages of the default backend, in order, and the one driver that runs them.

    functionalize   torch-level graph -> functional aten graph          log channel `aot`
    widen           products of half precision: in float32, where that is faster
    fold            batch norm of inference -> weights of the layer before
    layout          images between convolutions: channels innermost, where it pays
    pack            convolutions: weights in the library's layout; training's 3x3 windows; of one
                    pixel on a GPU as products
    products        matrix products: by the fastest library
    attention       by generated code
    derive          values of parameters alone, to be kept between calls
    recall          the plan, if an earlier process kept it, in place of the next three stages
    lower           aten operators -> loops over buffers                `schedule`
    schedule        loops -> fused kernels, in order                    `schedule`
    codegen         kernels -> C++ text and the plan's steps            `kernel`, `plan`
    compile         C++ text -> shared library, Triton text -> code of a GPU (cached on disk)
    link            plan + library + parameters -> callable

Each stage takes the `Compilation` and fills in its part; the driver times it and logs its result
(on the channel above) and its time (`stages`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from fxgraph import faults
from fxgraph.aot import (
    FreedGraphsCallable,
    FunctionalGraph,
    TrainingGraph,
    Unfunctionalizable,
    functionalize,
    functionalize_training,
    training_callable,
)
from fxgraph.args import leaves
from fxgraph.graph import Graph
from fxgraph.node import Node
from fxgraph.notices import notify
from fxgraph.passes import cse, known_masks
from fxgraph.sizes import Undecided
from inductor import costs, devices, plan_cache
from inductor.attention import generated_attention
from inductor.attention_device import shared_keys
from inductor.attention_training import trained_attention
from inductor.codegen.cpp import CppModule
from inductor.codegen.triton import NoTriton, TritonModule
from inductor.compiled import Framed, Launched, OnAten, can_run_again, needs_frame
from inductor.convolutions import generated_convolutions
from inductor.convolutions_device import convolutions_as_products
from inductor.convolutions_training import generated_training, is_generated
from inductor.depthwise_training import generated_depthwise, is_of_channels
from inductor.derive import Derivation, derivation, derivation_spec, sources_of
from inductor.device_tuning import Tuner
from inductor.floats import WithFloats, float_inputs, floats_as_tensors, uses_floats
from inductor.fold import fold_batch_norms
from inductor.ir import Program
from inductor.joint_products import joined_products
from inductor.layout import channels_innermost, joint_channels_innermost
from inductor.lowering.graph import LOWERINGS, lower_graph
from inductor.lowering.symbolic import bound_sizes
from inductor.options import Options
from inductor.outputs import plan_outputs
from inductor.pack import pack_convolutions, packed_weights
from inductor.patches import gradients_of_patches
from inductor.pixels_training import is_of_pixels, pixels_as_products
from inductor.plan_steps import build_plan
from inductor.products import choose_products
from inductor.quantized import widen_int8
from inductor.recovery import recover
from inductor.recurrent import pack_recurrent
from inductor.reports import count_of, kernels_of, report, together
from inductor.runtime import cubin, driver, toolchain
from inductor.runtime.device_graph import DeviceGraphs, device_for
from inductor.runtime.driver import load_kernels
from inductor.runtime.link import link
from inductor.runtime.plan import PlanSpec
from inductor.schedule.fusion import Scheduled, schedule
from inductor.schedule.updates import bundle_updates
from inductor.softmax_attention import spelled_attention
from inductor.standalone import without_libraries
from inductor.weights_device import weights_laid_out
from inductor.widen import widen
from inductor.winograd import is_winograd

log_times = logging.getLogger("inductor.times")

# Kernel text longer than this is compiled as two translation units.
SPLIT_CHARACTERS = 24_000
_DEVICES = frozenset(["cpu", "cuda"])


@dataclass
class Compilation:
    """A graph on its way through the stages."""

    gm: Any
    inputs: list[Any]
    static: list[bool]
    options: Options
    functional: FunctionalGraph | None = None
    unpacked: FunctionalGraph | None = None  # before the stages that derive from `parameters`
    program: Program | None = None
    results: list[Any] = field(default_factory=list)
    items: list[Scheduled] = field(default_factory=list)
    module: CppModule | None = None
    triton: TritonModule | None = None
    spec: PlanSpec | None = None
    floats: list[int] = field(default_factory=list)  # inputs that are tensors in their place
    parameters: list[int] = field(default_factory=list)  # inputs that are some, though not static
    inference: bool = True  # a part of a training graph hands its values on as they are
    derived: Derivation | None = None
    left_to_aten: set[str] = field(default_factory=set)  # operators without a form, or faulty ones
    started: toolchain.Started | None = None  # the library, being compiled
    library: Any = None
    loaded: dict[str, Any] = field(default_factory=dict)  # kernels on devices, by name
    compiled: Any = None
    cached: bool = False  # whether plans kept on disk may be used
    key: str | None = None
    stage: str = "functionalize"  # that runs, or ran last
    begun: bool = False  # whether the stages before `compile` have run (see begin)
    failure: Exception | None = None  # of one of these
    seconds: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def _functionalize(c: Compilation) -> None:
    if c.functional is None:  # a part of a training graph is functional already
        gm, count = known_masks(c.gm)
        if count:
            c.notes.append(f"attention: {count_of(count, 'mask')} known from the graph alone")
        bound_sizes(gm)
        c.functional = functionalize(gm, c.inputs, keep=LOWERINGS)
        if cse(c.functional.graph_module.graph):
            c.functional.graph_module.recompile()
    numbers = float_inputs(c.functional)
    if numbers or uses_floats(c.functional):
        functional = floats_as_tensors(c.functional)
        if functional is not None:
            c.functional, c.floats = functional, numbers
    c.unpacked = c.functional if c.parameters else None


# Passes over convolutions of a part of a graph that is differentiated.
_TRAINED = (pixels_as_products, generated_depthwise, generated_training, gradients_of_patches)
# Seconds of measuring for one graph.
_TUNING = {"quick": costs.PRODUCT_SECONDS, "full": float("inf")}


def _packs(c: Compilation) -> bool:
    return c.inference and c.options.pack


def _sources(c: Compilation, gpu: bool = False) -> dict[Node, int]:
    assert c.functional is not None
    more = c.parameters if _gpu(c) is None else ()
    known = [static or i in more for i, static in enumerate(c.static)]
    return sources_of(c.functional, known, c.inputs, gpu)


def _widen(c: Compilation) -> None:
    assert c.functional is not None
    if c.options.tuning not in _TUNING:
        return
    for one in (widen_int8, functools.partial(widen, always=c.options.standalone)):
        found = one(c.functional, _sources(c) if _packs(c) else {})
        if found is not None:
            c.functional, note = found
            c.notes.append(note)


def _fold(c: Compilation) -> None:
    assert c.functional is not None
    if _packs(c):
        found = fold_batch_norms(c.functional, _sources(c))
        if found is not None:
            c.functional, note = found
            c.notes.append(note)


def _layout(c: Compilation) -> None:
    assert c.functional is not None
    if not c.inference:
        return
    packed = packed_weights(c.functional.graph_module, _sources(c)) if _packs(c) else ()
    found = channels_innermost(c.functional, packed, is_winograd)
    if found is not None:
        c.functional, note = found
        c.notes.append(note)


def _pack(c: Compilation) -> None:
    assert c.functional is not None
    if not c.inference and c.options.tuning in _TUNING:
        for one in _TRAINED:
            found = one(c.functional)
            if found is not None:
                c.functional, note = found
                c.notes.append(note)
    if (found := convolutions_as_products(c.functional)) is not None:
        c.functional, note = found
        c.notes.append(note)
    if not _packs(c):
        return
    if (found := weights_laid_out(c.functional, _sources(c, gpu=True))) is not None:
        c.functional, note = found
        c.notes.append(note)
    passes: list[Any] = [] if c.options.standalone else [pack_convolutions, pack_recurrent]
    if c.options.tuning in _TUNING:
        libraries = not c.options.standalone
        passes.insert(0, functools.partial(generated_convolutions, libraries=libraries))
    for one in passes:
        found = one(c.functional, _sources(c))
        if found is not None:
            c.functional, note = found
            c.notes.append(note)


def _products(c: Compilation) -> None:
    assert c.functional is not None
    if c.options.standalone and c.inference:
        found = without_libraries(c.functional)
        if found is not None:
            c.functional, note = found
            c.notes.append(note)
        return
    if _packs(c):
        joint = joined_products(
            c.functional, _sources(c, gpu=True), c.options.target, c.options.tuning
        )
        if joint is not None:
            c.functional, note = joint
            c.notes.append(note)
    if c.options.tuning not in _TUNING:
        return
    chosen = choose_products(
        c.functional,
        _sources(c) if _packs(c) else None,
        seconds=_TUNING[c.options.tuning],
        exact=c.options.tuning == "full",
    )
    if chosen is not None:
        c.functional, notes = chosen
        c.notes.extend(notes)


def _attention(c: Compilation) -> None:
    assert c.functional is not None
    if not c.inference:
        return
    passes: list[Any] = [shared_keys, functools.partial(spelled_attention, gpu_alone=True)]
    if c.options.tuning in _TUNING:
        given = functools.partial(generated_attention, always=c.options.standalone)
        passes = [shared_keys, given, spelled_attention]
    for one in passes:
        found = one(c.functional)
        if found is not None:
            c.functional, note = found
            c.notes.append(note)


def _derive(c: Compilation) -> None:
    assert c.functional is not None
    c.derived = derivation(c.functional, _sources(c, gpu=True)) if _packs(c) else None


def _recall(c: Compilation) -> None:
    """A plan kept by an earlier process replaces the stages that would make it."""
    assert c.functional is not None
    if c.cached:
        gpu = _gpu(c)
        kind = devices.kind_of(gpu.index or 0, c.options.target) if gpu is not None else ""
        c.key = plan_cache.key_of(c.functional, c.static, c.options, c.derived, kind)
        c.spec = plan_cache.recall(c.key)


class NoKernels(Exception):
    """A graph with tensors on a device that kernels are not generated for."""


def _lower(c: Compilation) -> None:
    assert c.functional is not None
    for node in c.functional.graph_module.graph.nodes:
        for value in leaves(node.meta.get("val")):
            if isinstance(value, torch.Tensor) and value.device.type not in _DEVICES:
                raise NoKernels(f"tensors on {value.device.type}")
    gpu = _gpu(c)
    c.program, c.results = lower_graph(
        c.functional.graph_module,
        static=c.static,
        aten_ops=[*c.options.aten_ops, *sorted(c.left_to_aten)],
        derived=c.derived,
        gpu=devices.device_model(gpu.index or 0, c.options.target) if gpu is not None else None,
        measured=_tuned(c) is not None,
    )
    c.program.outputs = plan_outputs(c.program, c.functional, c.results)


def _schedule(c: Compilation) -> None:
    assert c.program is not None
    wanted = [out.name for out in c.program.outputs if out.name]
    c.items = schedule(c.program, wanted, fusion=c.options.fusion)
    if c.options.fusion:
        c.items = bundle_updates(c.items)


def _codegen(c: Compilation) -> None:
    while c.spec is None:
        assert c.program is not None
        c.triton = _triton_module(c)
        try:
            c.module, c.spec = build_plan(c.program, c.items, c.triton)
        except NoTriton as missing:
            _leave_to_aten(c, missing)
            _lower(c)
            _schedule(c)
    assert c.module is not None and c.functional is not None
    c.spec.bumps = {f"arg{m.index}": m.bumps for m in c.functional.input_mutations if m.data}
    c.spec.derivation = derivation_spec(c.derived) if c.derived is not None else None
    if c.options.parallel_compile and len(c.spec.source) >= SPLIT_CHARACTERS:
        c.spec.units = c.module.units(2)
    plan_cache.keep(c.key, c.spec)


def _triton_module(c: Compilation) -> TritonModule:
    """With kernels for the device that the graph is on, measured there if that is wanted."""
    gpu = _gpu(c)
    if gpu is None:
        assert c.program is not None
        return TritonModule(c.program)
    assert c.program is not None
    number, target = gpu.index or 0, c.options.target
    device = _tuned(c)
    tuner = Tuner(device, devices.kind_of(number)) if device is not None else None
    model = devices.device_model(number, target)
    return TritonModule(c.program, device=model, tuner=tuner, contract=c.options.contract)


def _tuned(c: Compilation) -> driver.Nvidia | None:
    """The GPU that kernels are measured on, if that is wanted and possible."""
    gpu = _gpu(c)
    if gpu is None or c.options.tuning != "full" or c.options.target:
        return None
    return driver.tuned_device(gpu)


def _gpu(c: Compilation) -> torch.device | None:
    """The first GPU that a tensor of the graph is on."""
    assert c.functional is not None
    for node in c.functional.graph_module.graph.nodes:
        for value in leaves(node.meta.get("val")):
            if isinstance(value, torch.Tensor) and devices.is_gpu(value.device):
                return value.device
    return None


def _leave_to_aten(c: Compilation, missing: NoTriton) -> None:
    """The operators of that name; where it is of another's part, as few as do without it."""
    assert c.functional is not None
    nodes = c.functional.graph_module.graph.nodes
    targets = {n.target for n in nodes if isinstance(n.target, torch._ops.OpOverload)}
    named = {str(t.overloadpacket) for t in targets if missing.operation in t._opname}
    chosen = named - c.left_to_aten
    if not chosen:
        lowered = {str(t) for t in targets if t in LOWERINGS} - c.left_to_aten
        assert lowered, "a graph on aten has no kernels"
        chosen = _fewest(c, missing, sorted(lowered))
    c.left_to_aten |= chosen
    c.notes.append(f"no Triton form of {missing}: {', '.join(sorted(chosen))} left to aten")


def _fewest(c: Compilation, missing: NoTriton, names: list[str]) -> set[str]:
    """Names without which `missing` is not met, found by halves."""

    def gone(names: list[str]) -> bool:
        part = dataclasses.replace(c, left_to_aten=c.left_to_aten.union(names))
        _lower(part)
        _schedule(part)
        assert part.program is not None
        try:
            build_plan(part.program, part.items, TritonModule(part.program))
        except NoTriton as another:
            return str(another) != str(missing)
        return True

    while len(names) > 1:
        middle = len(names) // 2
        half = next((half for half in (names[:middle], names[middle:]) if gone(half)), None)
        if half is None:
            break
        names = half
    return set(names)


def compile_kernels(c: Compilation) -> None:
    assert c.spec is not None
    if c.spec.source:
        started, c.started = c.started, None
        if started is not None:
            started.finish()
        c.library = toolchain.load_library(c.spec.units or c.spec.source)
    c.loaded = load_kernels(c.spec.triton, c.options.target)


def link_plan(c: Compilation) -> None:
    assert c.spec is not None
    statics = [x for x, static in zip(c.inputs, c.static, strict=True) if static]
    plan = link(c.spec, c.library, statics=statics, callables=c.loaded)
    if c.derived is not None and c.unpacked is not None:
        plan.unpacked = _unpacked(c)
    c.compiled = _with_device_graphs(c, plan) if c.loaded and c.options.device_graphs else plan


def _unpacked(c: Compilation) -> Callable[..., Any]:
    """The plan without copies of weights, compiled when first called: for modules whose copies have
    no room beside those of others (costs.WEIGHTS_SHARE).
    """
    inputs = [x if static else None for x, static in zip(c.inputs, c.static, strict=True)]
    options = dataclasses.replace(c.options, pack=False)
    part = Compilation(None, inputs, c.static, options, c.unpacked)
    made: list[Callable[..., Any]] = []

    def call(*varying: Any) -> Any:
        if not made:
            made.append(_compiled(part))
        return made[0](*varying)

    return call


def _with_device_graphs(c: Compilation, plan: Any) -> Any:
    assert c.spec is not None
    device = device_for(c.spec, c.loaded)
    if isinstance(device, str):
        c.notes.append(f"device graph: none, because of {device}")
        return plan
    most = c.options.device_graphs, c.options.device_graph_bytes
    return DeviceGraphs(plan, c.spec, device, *most)


# stage name, function, log channel, and the part of the result to show
STAGES: tuple[
    tuple[str, Callable[[Compilation], None], str | None, Callable[[Any], Any] | None], ...
] = (
    ("functionalize", _functionalize, "aot", lambda c: c.functional.graph_module.code),
    ("widen", _widen, None, None),
    ("fold", _fold, None, None),
    ("layout", _layout, None, None),
    ("pack", _pack, None, None),
    ("products", _products, None, None),
    ("attention", _attention, None, None),
    ("derive", _derive, None, None),
    ("recall", _recall, None, None),
    ("lower", _lower, "schedule", lambda c: c.program),
    ("schedule", _schedule, "schedule", lambda c: "\n".join(map(str, c.items))),
    ("codegen", _codegen, "kernel", lambda c: c.spec.source),
    ("compile", compile_kernels, "plan", lambda c: "\n".join(map(str, c.spec.steps))),
    ("link", link_plan, None, None),
)


LAST_BEFORE_COMPILE = "codegen"


def run_stages(
    c: Compilation, *, after: str | None = None, until: str | None = None
) -> Compilation:
    """Run the stages behind `after`, or all, up to and including `until`."""
    first = [name for name, *_ in STAGES].index(after) + 1 if after is not None else 0
    for name, stage, channel, show in STAGES[first:]:
        if c.spec is not None and name in ("lower", "schedule", "codegen"):
            continue
        c.stage = name
        started = time.perf_counter()
        with contextlib.nullcontext() if name == "functionalize" else _on_cpu():
            stage(c)
        spent = time.perf_counter() - started
        c.seconds[name] = c.seconds.get(name, 0.0) + spent
        if log_times.isEnabledFor(logging.DEBUG):
            log_times.debug("%s %.3f s%s", name, spent, _about(c, name))
        if channel is not None and show is not None:
            logger = logging.getLogger(f"inductor.{channel}")
            if logger.isEnabledFor(logging.DEBUG):
                logger.debug("%s:\n%s", name, show(c))
        if name == until:
            break
    return c


def _on_cpu() -> contextlib.AbstractContextManager[Any]:
    """Create tensors of our own on the CPU, whatever the program's default device."""
    return torch.device("cpu") if torch._C._len_torch_function_stack() else contextlib.nullcontext()


def _about(c: Compilation, stage: str) -> str:
    """A remark on a stage's time: the amount of work that the stage had."""
    if stage == "recall" and c.spec is not None:
        return " (found)"
    if stage != "compile" or c.spec is None:
        return ""
    units = len(c.spec.units) or int(bool(c.spec.source))
    return f" ({count_of(kernels_of(c.spec), 'kernel')} in {count_of(units, 'unit')})"


def new_compilation(
    gm: Any, example_inputs: Sequence[Any], options: Mapping[str, Any] | None = None
) -> Compilation:
    metas = [n.meta for n in gm.graph.nodes if n.op == "placeholder"]
    static = [bool(meta.get("static")) for meta in metas]
    parameters = [i for i, meta in enumerate(metas) if meta.get("parameter")]
    c = Compilation(gm, list(example_inputs), static, Options.of(options))
    return dataclasses.replace(c, parameters=parameters)


def begin(c: Compilation) -> None:
    """Run the stages before `compile`, and start the compiler: meanwhile, other graphs can come as
    far. `_compiled` finishes.
    """
    c.begun = c.cached = True
    try:
        run_stages(c, until=LAST_BEFORE_COMPILE)
        if c.spec is not None and c.spec.source:
            c.started = toolchain.start_library(c.spec.units or c.spec.source)
    except Exception as error:
        c.failure = error


def compile_graph(
    gm: Any, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None
) -> Any:
    """Compile one graph. The result takes the inputs that are not static and returns a tuple.

    example_inputs: real tensors, one for each placeholder; their sizes, strides, dtypes and devices
        are those that the result serves. options: see `Options`.

    Attributes of the result: binds_static (True), compile_report (see `explain`). Raises
    Unfunctionalizable for a graph that cannot be made functional, ValueError for unknown options
    and another number of inputs. With no C++ compiler it warns once and runs the graph on aten.
    """
    c = new_compilation(gm, example_inputs, options)
    return _compiled(c)


def compile_training(
    gm: Any, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """Compile a graph with its backward. The result takes the inputs that are not static, and has
    binds_static and compile_report as that of compile_graph; the report tells of those backwards
    that have been compiled (see training_callable).

    Raises Unfunctionalizable and UndifferentiableHere.
    """
    return compile_traced(trace(gm, example_inputs, training=True), example_inputs, options=options)


def trace(
    gm: Any, example_inputs: Sequence[Any], *, training: bool
) -> FunctionalGraph | TrainingGraph:
    """The first stage alone, with or without the backward: the input of compile_traced."""
    gm, _ = known_masks(gm)
    bound_sizes(gm)
    if not training:
        return functionalize(gm, example_inputs, keep=LOWERINGS)
    return functionalize_training(gm, example_inputs, keep=LOWERINGS, arrange=arrange)


def _is_generated(node: Node) -> bool:
    """Whether code of ours will compute the convolution, or the weight's gradient of one."""
    return is_of_pixels(node) or is_of_channels(node) or is_generated(node)


def arrange(
    graph: Graph, visible: list[Node], tangents: list[Node]
) -> tuple[Graph, Callable[[Node], Node]] | None:
    """A joint graph with attention by kernels of ours, and with channels innermost."""
    attention = trained_attention(graph, visible, tangents)
    if attention is None:
        return joint_channels_innermost(graph, visible, _is_generated)
    graph, new = attention
    images = joint_channels_innermost(graph, [new[node] for node in visible], _is_generated)
    graph, of = images or (graph, lambda node: node)
    return graph, lambda node: of(new[node]) if node in new else node  # one that is gone


def compile_traced(
    training: FunctionalGraph | TrainingGraph,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compile the result of `trace`, as compile_graph and compile_training do. Of inputs that are
    not static, nothing is read.
    """
    if isinstance(training, FunctionalGraph):
        return compile_functional(training, example_inputs, options)[0]
    c = new_compilation(training.forward.graph_module, example_inputs, options)
    c.functional, c.inference = training.forward, False
    begin(c)
    compiled_report: dict[str, Any] = {}
    reports: list[dict[str, Any]] = []  # of backwards
    chosen = c.options  # `c` itself holds the inputs of the first call
    forwards: list[dict[str, Any]] = []  # the report of the forward, when it is compiled

    def tell() -> None:
        if forwards and reports:
            compiled_report.update(together(forwards[0], reports))

    def forward() -> Callable[..., Any]:
        compiled = _compiled(c)
        forwards.append(compiled.compile_report)
        compiled_report.update(compiled.compile_report)
        _tell_of_graphs(compiled, tell)
        return compiled.bare if isinstance(compiled, DeviceGraphs) else compiled

    def backward(functional: FunctionalGraph) -> Callable[[list[Any]], Any]:
        count = len(functional.graph_module.graph.find_nodes(op="placeholder"))
        part = Compilation(None, [None] * count, [False] * count, chosen, functional)
        part.inference = False
        compiled = _compiled(part)
        reports.append(compiled.compile_report)
        _tell_of_graphs(compiled, tell)
        return getattr(compiled, "take", None) or (lambda given: compiled(*given))

    def note(text: str) -> None:
        reports.append({"notes": [text]})
        tell()

    statics = [x if static else None for x, static in zip(c.inputs, c.static, strict=True)]
    try:
        with faults.stage("link"):
            step = training_callable(training, forward, backward, statics, note)
    finally:
        if c.started is not None:
            c.started.stop()
    step.binds_static = True  # type: ignore[attr-defined]
    step.compile_report = compiled_report  # type: ignore[attr-defined]
    return step


def compile_functional(
    functional: FunctionalGraph, example_inputs: Sequence[Any], options: Mapping[str, Any] | None
) -> tuple[Callable[..., Any], Compilation]:
    """compile_traced for a graph without a backward; the callable and the compilation."""
    c = new_compilation(functional.graph_module, example_inputs, options)
    c.functional = functional
    statics = [x if static else None for x, static in zip(c.inputs, c.static, strict=True)]
    return FreedGraphsCallable(_compiled(c), functional.spent, statics), c


def _tell_of_graphs(compiled: Any, tell: Callable[[], None]) -> None:
    """Tell now, and whenever device graphs, if there are any, have a note more."""
    for one in (compiled, getattr(compiled, "plan", None)):
        if isinstance(one, DeviceGraphs):
            one.told = tell
    tell()


SIGNALS = (toolchain.NoCompiler, cubin.NoTriton, NoKernels, Undecided, Unfunctionalizable)


def _run_around_faults(c: Compilation) -> None:
    try:
        if c.failure is not None:
            raise c.failure
        run_stages(c, after=LAST_BEFORE_COMPILE if c.begun else None)
    except SIGNALS:
        raise
    except Exception as error:
        if c.functional is None:  # the backend has other ways
            raise
        if not recover(c, error, SIGNALS, run_stages):
            c.spec, c.compiled = None, OnAten(c)


def _compiled(c: Compilation) -> Any:
    c.cached = True
    try:
        _run_around_faults(c)
    except (toolchain.NoCompiler, cubin.NoTriton) as error:
        _warn_no_compiler(str(error))
        c.notes.append(str(error))
        c.compiled = OnAten(c)
    except Undecided as error:
        c.notes.append(f"on aten, operator by operator: the kernels would have to know {error}")
        c.spec, c.compiled = None, OnAten(c)
    except NoKernels as error:
        c.notes.append(f"on aten, operator by operator: no kernels for {error}")
        c.compiled = OnAten(c)
    assert c.functional is not None
    if not isinstance(c.compiled, OnAten):
        if can_run_again(c):
            c.compiled = Launched(c)
        elif needs_frame(c):
            c.compiled = Framed(c)
    if c.floats:
        varying = [i for i, static in enumerate(c.static) if not static]
        c.compiled = WithFloats(c.compiled, [varying.index(i) for i in c.floats])
    c.compiled.binds_static = True
    c.compiled.compile_report = report(c)
    return c.compiled


_warned: set[str] = set()


def _warn_no_compiler(text: str) -> None:
    if text not in _warned:
        _warned.add(text)
        notify(f"{text} Compiled functions run on aten meanwhile.", stacklevel=3)


__all__ = [
    "STAGES",
    "Compilation",
    "compile_functional",
    "compile_graph",
    "compile_traced",
    "compile_training",
    "new_compilation",
    "run_stages",
    "trace",
]
