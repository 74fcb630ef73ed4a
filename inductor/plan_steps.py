"""From a schedule to the plan: kernels to C++ and KernelSteps, operators to AtenSteps, windows to
ViewSteps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from fxgraph.sizes import Extent, contiguous_strides, hint
from inductor import devices
from inductor.codegen.called_kernels import label_of
from inductor.codegen.cpp import CppModule
from inductor.codegen.triton import TritonModule
from inductor.codegen.triton_products import follows
from inductor.ir import (
    AtenCall,
    Attention,
    AttentionGradient,
    Buffer,
    Check,
    DeviceProduct,
    Program,
    Window,
    WindowProduct,
    Winograd,
    windows,
)
from inductor.runtime.plan import (
    AtenStep,
    BufferSpec,
    CheckStep,
    ConstantSpec,
    KernelStep,
    LaunchStep,
    NumberSpec,
    PlanSpec,
    TensorSpec,
    ViewStep,
    dtype_name,
    encode,
    tree_names,
)
from inductor.schedule.fusion import Bundle, Call, CalledKernel, Kernel, ProductKernel, Scheduled

# Their out= forms compute the same; they make no memory of their own. What malloc gives recurrent
# layers for all steps leaves room between (peaks of a step in float32, MiB: gru 18.7, eager 15.2).
_WRITING = frozenset(
    ["aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm", "framegraph::bernoulli"]
    + ["framegraph::recurrent_layer", "framegraph::recurrent_layer_backward"]
    + ["framegraph::recurrent_weights"]
)


def build_plan(
    program: Program, items: list[Scheduled], triton: TritonModule
) -> tuple[CppModule, PlanSpec]:
    """Generate the kernels and spell out the steps. `triton` takes those of device buffers."""
    live = live_buffers(program, items)
    items = [read for item in items if (read := _read_later(item, live)) is not None]
    kept = _results_kept(program, items)
    module = CppModule(program, live, kept)
    steps: list[Any] = []
    views: dict[Window, str] = {}
    objects: list[Any] = []
    for number, item in enumerate(items):
        if isinstance(item, Call):
            steps += _call(item.step, views, objects)
        elif isinstance(item, ProductKernel) and isinstance(item.step, DeviceProduct):
            steps += _product(item, f"k{number}", triton, live, kept, views, objects)
        elif isinstance(item, ProductKernel):
            label, operations = _product_label(item), _operations(item)
            found = module.add_product(item, f"k{number}")
            steps += [KernelStep(**f, label=label, operations=operations) for f in found]
        elif isinstance(item, CalledKernel) and devices.is_gpu(item.step.target.device):
            assert isinstance(item.step, Attention | AttentionGradient)
            steps += triton.add_attention(item.step, f"k{number}", label_of(item.step))
        elif isinstance(item, CalledKernel):
            fields = module.add_called(item.step, f"k{number}")
            steps.append(KernelStep(**fields, label=label_of(item.step)))
        elif triton.takes(item):
            launches = triton.add(item, f"k{number}", live, _label(item))
            for launch in launches:
                launch.operations = _operations(item)
            steps += launches
        else:
            fields = module.add(item, f"k{number}")
            steps.append(KernelStep(**fields, label=_label(item), operations=_operations(item)))
    planned, used = _planned(steps, items), _used(steps, program)
    spec = PlanSpec(
        inputs=[_input(b, k) for k, b in enumerate(program.inputs)],
        buffers=[
            _buffer(b, planned=b.name in planned)
            for b in program.buffers.values()
            if b.kind in ("temp", "output", "aten") and b.name in used
        ],
        steps=steps,
        outputs=program.outputs,
        constants=[
            _constant(program.buffers.get(name), name, t) for name, t in program.constants.items()
        ],
        source=module.source(),
        triton=triton.specs(),
        symbols=list(program.symbols.values()),
        sizes=module.sizes,
        objects=objects,
    )
    return module, spec


def _planned(steps: Sequence[Any], items: Sequence[Scheduled]) -> set[str]:
    """The results of aten operators whose memory the plan gives."""
    calls = [step for step in steps if isinstance(step, AtenStep)]
    made = {name for call in calls for name in call.produces()}
    products = [s.target for item in items if isinstance(item, ProductKernel) for s in item.steps]
    written = {n for call in calls if call.overload == "out" for n in tree_names(call.kwargs)}
    return written | {b.name for b in products if b.kind == "aten" and b.name not in made}


def _used(steps: Sequence[Any], program: Program) -> set[str]:
    """The buffers that a step or a result names."""
    used = {name for step in steps for name in [*step.names(), *step.produces()]}
    used |= {name for s in steps if isinstance(s, (KernelStep, LaunchStep)) for name in s.writes}
    return used | {out.name for out in program.outputs}


def _product(
    item: ProductKernel,
    name: str,
    triton: TritonModule,
    live: set[str],
    kept: set[str],
    views: dict[Window, str],
    objects: list[Any],
) -> list[Any]:
    """The steps of a product on a GPU, and of the kernel that reads its result."""
    step, reader = item.step, item.reader
    assert isinstance(step, DeviceProduct)
    template = triton.takes_product(item, kept)
    if template and (reader is None or follows(step, reader) is not None):
        return triton.add_product(item, name, live, kept, _product_label(item))
    if template:
        alone = replace(item, reader=None)
        steps: list[Any] = triton.add_product(alone, f"{name}p", live, kept, _product_label(alone))
    else:
        assert step.call is not None
        steps = _call(step.call, views, objects)
    if reader is not None:
        steps += triton.add(reader, name, live, _label(reader))
    return steps


def _label(item: Kernel | Bundle) -> str:
    """The operations of the kernel, in their order, each once."""
    shown = list(dict.fromkeys(_names(item)))
    return "+".join(shown[:_SHOWN]) + ("+..." if len(shown) > _SHOWN else "")


def _names(item: Kernel | Bundle) -> list[str]:
    kernels = item.kernels if isinstance(item, Bundle) else [item]
    steps = [step for kernel in kernels if isinstance(kernel, Kernel) for step in kernel.steps]
    names = [
        name
        for step in steps
        for name in [*(value.op for value in step.tape.values), step.mode or step.reduction]
        if name is not None and name not in _SILENT
    ]
    return names or ["copy"]


def _operations(item: Kernel | Bundle | ProductKernel) -> int:
    """How many operations a kernel fuses."""
    if isinstance(item, ProductKernel):
        return len(item.steps) + (len(_names(item.reader)) if item.reader is not None else 0)
    return len(_names(item))


_SHOWN = 8
_SILENT = frozenset(["load", "constant", "index_expr", "to_dtype", "set"])


def _product_label(item: ProductKernel) -> str:
    if isinstance(item.step, DeviceProduct):
        batch, rows, inner, columns = map(hint, item.step.size)
        times = "" if batch == 1 else f"{batch} x "
        size = f"product {times}{rows}x{inner}x{columns}"
    elif isinstance(item.step, WindowProduct):
        images, height, width, channels = map(hint, item.step.x.size)
        down, across = item.step.window
        of = f"{images}x{channels}x{height}x{width} -> {hint(item.step.size[1])}"
        size = f"windows {of}, {down}x{across}"
    elif isinstance(item.step, Winograd):
        images, height, width, channels = map(hint, item.step.x.size)
        size = f"winograd {images}x{channels}x{height}x{width} -> {hint(item.step.size[1])}"
    else:
        rows, columns = map(hint, item.step.size)
        times = f"{len(item.steps)} x " if item.beside else ""
        size = f"product {times}{rows}x{hint(item.step.x.size[1])}x{columns}"
    return size if item.reader is None else f"{size} + {_label(item.reader)}"


def _results_kept(program: Program, items: list[Scheduled]) -> set[str]:
    """Results of products that are read by more than the kernel behind the product."""
    results = {r for item in items if isinstance(item, ProductKernel) for r in item.results}
    if not results:
        return results
    kept = {out.name for out in program.outputs}
    for item in items:
        if isinstance(item, ProductKernel):
            kept |= {name for step in item.steps for name in step.reads}
            if item.reader is not None:
                kept |= item.reader.reads() - {*item.results}
        elif isinstance(item, Call | CalledKernel):
            kept |= item.step.reads.keys()
        else:
            for kernel in item.kernels if isinstance(item, Bundle) else [item]:
                kept |= kernel.reads()
    return results & kept


def live_buffers(program: Program, items: list[Scheduled]) -> set[str]:
    """Buffers that must be in memory: returned, inputs, made by aten, or read outside their
    kernel."""
    live = {out.name for out in program.outputs}
    live |= {b.name for b in program.buffers.values() if b.kind != "temp"}
    for item in items:
        kernels: list[Any] = item.kernels if isinstance(item, Bundle) else [item]
        if isinstance(item, ProductKernel):
            live |= {name for step in item.steps for name in step.reads}
            kernels = [item.reader] if item.reader is not None else []
        for one in kernels:
            if isinstance(one, Kernel):
                live |= one.reads() - one.writes().keys()
                # read and written, but read first: the old contents count
                written: set[str] = set()
                for step in one.steps:
                    live |= step.reads.keys() - written
                    written.add(step.target.name)
            else:
                live |= one.step.reads.keys()
    return live


def _read_later(item: Scheduled, live: set[str]) -> Scheduled | None:
    """The item without kernels whose results nobody reads, such as a part of a buffer whose other
    part is read where that is made."""
    if isinstance(item, Kernel):
        return item if live & item.writes().keys() else None
    if not isinstance(item, Bundle):
        return item
    kernels = [kernel for kernel in item.kernels if live & kernel.writes().keys()]
    return replace(item, kernels=kernels) if kernels else None


def _constant(buffer: Buffer | None, name: str, value: torch.Tensor) -> ConstantSpec:
    """On the device of its readers: tables that a lowering computes are made on the CPU."""
    made = ConstantSpec.of(name, value)
    return made if buffer is None else replace(made, device=str(buffer.device))


def _input(buffer: Buffer | Extent, number: int) -> TensorSpec | NumberSpec:
    if not isinstance(buffer, Buffer):
        return NumberSpec(f"arg{number}", buffer)
    return TensorSpec(
        buffer.name,
        dtype_name(buffer.dtype),
        buffer.size,
        buffer.stride,
        device=str(buffer.device),
        static=buffer.static,
    )


def _buffer(buffer: Buffer, planned: bool) -> BufferSpec:
    return BufferSpec(
        buffer.name,
        dtype_name(buffer.dtype),
        buffer.size,
        buffer.stride,
        str(buffer.device),
        "temp" if planned else buffer.kind,
    )


def _call(step: AtenCall, views: dict[Window, str], objects: list[Any]) -> list[Any]:
    """The operator's step, after the views that its arguments need."""
    before: list[Any] = []
    for window in windows([step.args, step.kwargs]):
        if not window.is_whole() and window not in views:
            views[window] = f"view{len(views)}"
            before.append(
                ViewStep(
                    views[window], window.buffer.name, window.size, window.stride, window.offset
                )
            )

    def name_of(leaf: Any) -> str | None:
        if not isinstance(leaf, Window):
            return None
        return leaf.buffer.name if leaf.is_whole() else views[leaf]

    if isinstance(step, Check):
        found = name_of(step.args[0]) or ""
        return [*before, CheckStep(found, step.error, step.message, list(step.sizes))]
    schema = step.target._schema
    args = [encode(a, name_of, objects) for a in step.args]
    kwargs = {k: encode(v, name_of, objects) for k, v in step.kwargs.items()}
    results = [b.name if b is not None else "" for b in step.outputs]
    overload = schema.overload_name
    if _takes_memory(step):
        given = dict(zip(_written(schema.name), ({"buf": name} for name in results), strict=True))
        overload, results, kwargs = "out", [], {**kwargs, **given}
    return [*before, AtenStep(schema.name, overload, args, results, kwargs, list(step.binds))]


def _takes_memory(step: AtenCall) -> bool:
    """Whether the operator can write its results where the memory plan has places for them."""
    if step.target.name() not in _WRITING or step.binds:
        return False
    return all(
        result is not None
        and result.device.type == "cpu"
        and result.stride == contiguous_strides(result.size)
        for result in step.outputs
    )


def _written(op: str) -> list[str]:
    """The arguments that the out= form of an operator writes."""
    arguments = torch._C._get_schema(op, "out").arguments
    return [a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write]
