"""The Triton kernels of one program, and the plan steps that launch them.

triton_loops.py      fused kernels of the schedule
triton_products.py   matrix products, with the readers of their results
triton_product_ways.py  other ways through them, to be measured
triton_attention.py  attention with scores that are changed
triton_attention_gradient.py  its backward
triton_body.py       lines of text of loop bodies, of both
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from fxgraph.sizes import hint, product
from inductor.codegen import triton_product_ways, triton_products
from inductor.codegen.triton_attention import AttentionEmitter
from inductor.codegen.triton_attention_gradient import AttentionGradientEmitter
from inductor.codegen.triton_loops import HEAD, PROGRAM, Emitter, Tiles, TritonKernel
from inductor.codegen.triton_ops import NoTriton
from inductor.device_tuning import Tuner
from inductor.devices import BANDWIDTH, EMPTY, Device, device_model
from inductor.ir import Attention, AttentionGradient, Buffer, DeviceProduct, Program
from inductor.runtime.plan import LaunchStep, TritonSpec
from inductor.schedule.fusion import Bundle, Kernel, ProductKernel

MOST_PARTS = 64  # kernels of a bundle that are launched as one
MOST_CANDIDATES = 8  # forms of a kernel that are measured

Form = tuple[TritonKernel, ...]  # kernels that are launched one after another


def emit(
    kernel: Kernel, buffers: Mapping[str, Buffer], name: str, local: Collection[str] = ()
) -> TritonKernel:
    """The Triton form of a fused kernel; NoTriton if some operation or reduction has none.

    `local` names buffers that nothing outside of this kernel reads: they are not stored.
    """
    return Emitter(kernel, buffers, name, frozenset(local)).emit()


def emit_together(parts: Sequence[TritonKernel], name: str) -> TritonKernel | None:
    """A fused kernel whose programs are those of the parts, one after another; None for parts with
    sizes that calls bring. A part's text takes its program's number as the parameter `pid`.
    """
    counts = [p.programs for p in parts if isinstance(p.programs, int) and not p.sizes]
    if len(parts) > MOST_PARTS or len(counts) < len(parts):
        return None
    args = list(dict.fromkeys(arg for part in parts for arg in part.args))
    body, start = ["pid = tl.program_id(0)"], 0
    for number, (part, count) in enumerate(zip(parts, counts, strict=True)):
        last = number == len(parts) - 1
        test = "else:" if last else f"{'elif' if number else 'if'} pid < {start + count}:"
        given = [f"pid - {start}", *part.args, *(f"{k}={n}" for k, n in part.constants.items())]
        body += [test, f"    {part.name}({', '.join(given)})"]
        start += count
    function = [f"def {name}({', '.join(args)}):", *(f"    {line}" for line in body)]
    texts = [part.source.removeprefix(HEAD) for part in parts]
    source = HEAD + "\n\n".join([*texts, "@triton.jit\n" + "\n".join(function) + "\n"])
    signature: dict[str, str] = {}
    for part in parts:
        signature |= {arg: part.signature[arg] for arg in part.args}
    return TritonKernel(
        name, source, {arg: signature[arg] for arg in args}, {}, max(p.warps for p in parts),
        device=parts[0].device, args=args,
        writes=list(dict.fromkeys(name for part in parts for name in part.writes)),
        programs=start,
    )  # fmt: skip


class TritonModule:
    """The Triton kernels of one program, and the plan steps that launch them.

    `device`: that they are chosen for, by its model, unless `tuner` measures. `everywhere` makes
    Triton kernels for CPU buffers too, which Triton's interpreter can run. `contract`: whether they
    may round a * b + c once.
    """

    def __init__(
        self,
        program: Program,
        everywhere: bool = False,
        device: Device | None = None,
        tuner: Tuner | None = None,
        contract: bool = False,
    ) -> None:
        self.program = program
        self.everywhere = everywhere
        self.device = device or device_model()
        self.tuner = tuner
        self.contract = contract
        self.kernels: dict[str, TritonKernel] = {}

    def takes(self, item: Kernel | Bundle) -> bool:
        """Whether a kernel is generated as Triton: it writes device memory."""
        first = item.kernels[0] if isinstance(item, Bundle) else item
        return self.everywhere or first.steps[0].target.device.type == "cuda"

    def add(
        self, item: Kernel | Bundle, name: str, live: Collection[str], label: str = ""
    ) -> list[LaunchStep]:
        """The step of a kernel, or of a bundle; one for each of its kernels where sizes vary."""
        parts = item.kernels if isinstance(item, Bundle) else [item]
        if len(parts) > 1:
            made = [
                self._emitter(p, f"{name}_{k}", live, "pid").emit() for k, p in enumerate(parts)
            ]
            together = emit_together(made, name)
            if together is not None:
                together.contract = self.contract
                self.kernels[name] = together
                return [together.step(label)]
        steps = []
        for number, part in enumerate(parts):
            own = f"{name}_{number}" if number else name
            steps += self._steps(self._candidates(part, own, live), label)
        return steps

    def _candidates(self, part: Kernel, name: str, live: Collection[str]) -> list[Form]:
        """Forms of a kernel; the first is the one that the cost model chooses."""
        first = self._emitter(part, name, live)
        if self.tuner is None or part.is_scatter:
            return self._told([(first.emit(),)])
        return self._told(
            (self._emitter(part, name, live, tiles=tiles).emit(),)
            for tiles in first.choices()[:MOST_CANDIDATES]
        )

    def _told(self, forms: Iterable[Form]) -> list[Form]:
        """The forms, with what is wanted of all kernels."""
        found = list(forms)
        for kernel in itertools.chain.from_iterable(found):
            kernel.contract = self.contract
        return found

    def _steps(self, candidates: Sequence[Form], label: str) -> list[LaunchStep]:
        """Launches of the kernels of the fastest form."""
        form = candidates[self.fastest(candidates)]
        for kernel in form:
            self.kernels[kernel.name] = kernel
            if kernel.space is not None:
                self.program.buffers[kernel.space.name] = kernel.space
        labels = [label, *[f"sums of {label}"] * (len(form) - 1)]
        return [kernel.step(text) for kernel, text in zip(form, labels, strict=True)]

    def fastest(self, candidates: Sequence[Form]) -> int:
        """The place of the form to take."""
        if self.tuner is None or len(candidates) == 1:
            return 0
        return self.tuner.fastest(candidates, self.program.buffers)

    def takes_product(self, item: ProductKernel, kept: Collection[str]) -> bool:
        """Whether the template is expected to be faster than the library's operator, and a kernel
        that reads its result."""
        step = item.step
        assert isinstance(step, DeviceProduct)
        if step.call is None:
            return True
        if self.tuner is not None:
            return self._is_measured_faster(item, kept)
        device, about = self.device, (step.size, step.dtype, step.precision, self.device)
        own = triton_products.best_seconds(*about)
        library = triton_products.library_seconds(*about)
        if triton_products.follows(step, item.reader) is None:
            return own < library
        assert item.reader is not None
        own += triton_products.following_seconds(step, item.reader, device)
        moved = 2 - (step.target.name in kept)
        nbytes = hint(product(step.target.size)) * step.target.dtype.itemsize * moved
        return own < library + EMPTY + nbytes / (device.bandwidth * BANDWIDTH)

    def _is_measured_faster(self, item: ProductKernel, kept: Collection[str]) -> bool:
        """The template's best form, with the kernel that reads it, against the operator's."""
        assert isinstance(item.step, DeviceProduct) and self.tuner is not None
        follows = triton_products.follows(item.step, item.reader) is not None
        live = {item.step.target.name, *(item.reader.writes() if item.reader else ())}
        reader = item.reader if follows else None
        name = item.step.target.name
        own = self._products(replace(item, reader=reader), "own", frozenset(), name in kept)
        after = self._candidates(reader, "after", live)[0] if reader is not None else ()
        return self.tuner.beats(own, item.step.call, after, self.program.buffers)

    def add_product(
        self, item: ProductKernel, name: str, live: Collection[str], kept: Collection[str],
        label: str = "",
    ) -> list[LaunchStep]:  # fmt: skip
        """The steps of a product by the template, with the kernel that reads its result, which has
        to follow it. kept: results that others read, too.
        """
        step = item.step
        assert isinstance(step, DeviceProduct)
        local = frozenset(item.reader.writes().keys() - live) if item.reader else frozenset()
        return self._steps(self._products(item, name, local, step.target.name in kept), label)

    def _products(
        self, item: ProductKernel, name: str, local: frozenset[str], kept: bool
    ) -> list[Form]:
        """Forms of the template; the first is the one that the cost model chooses."""
        step = item.step
        assert isinstance(step, DeviceProduct)
        about = (step.size, step.dtype, step.precision, self.device)
        most = 1 if self.tuner is None else MOST_CANDIDATES
        found = triton_products.configurations(*about)[:most]
        if self.tuner is not None:
            found += triton_product_ways.ways(step, found, self.device)
        return self._told(
            triton_product_ways.emit(
                item, self.program.buffers, name, local, tiles, kept, self.device
            )
            for tiles in found
        )

    def add_attention(
        self, step: Attention | AttentionGradient, name: str, label: str
    ) -> list[LaunchStep]:
        kind = AttentionEmitter if isinstance(step, Attention) else AttentionGradientEmitter
        made = kind(step, self.program.buffers, name).emit()  # type: ignore[arg-type]
        return self._steps(self._told([(made,)]), label)

    def _emitter(
        self,
        kernel: Kernel,
        name: str,
        live: Collection[str],
        program: str = PROGRAM,
        tiles: Tiles | None = None,
    ) -> Emitter:
        local = frozenset(kernel.writes().keys() - live)
        units = self.device.units
        return Emitter(kernel, self.program.buffers, name, local, program, tiles, units)

    def specs(self) -> list[TritonSpec]:
        return [kernel.spec() for kernel in self.kernels.values()]


__all__ = ["NoTriton", "TritonModule", "emit"]
