"""Triton from loop bodies: one fused kernel of the schedule becomes one @triton.jit function.

Two shapes, as in schedule/fusion.py. A pointwise kernel flattens its loops into one range x, cut
into blocks. A kernel of rows gives each program a tile of rows x and their elements r:

    persistent   a whole row fits in a tile: every step runs once over it, reductions included
    looped       rows are longer: one pass over r for each reduction that waits for another. What a
                 later pass needs of an earlier elementwise step it computes again, which costs less
                 than memory traffic.

A scatter is one flat range of atomic additions, in an order that no run repeats, as in eager. A
bundle is one kernel: each program does a part of one of the bundle's kernels.

A size that only a call brings is an argument of the kernel, n0, n1, ..., and the number of programs
an argument of its launch. Rows of such a size are looped over, unless a bound is known.

The text is plain Triton that can be read and run by itself. It is exact where eager is: maxima
propagate NaN, division and square roots round correctly, half types are computed in float32.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import torch

from inductor.codegen.triton_ops import (
    COMBINE,
    LARGEST,
    TYPES,
    NoTriton,
    constant,
    convert,
    finish_rows,
    neutral,
    operation,
    type_name,
)
from inductor.index import ZERO, FloorDiv, Index, Indirect, Mod, Var
from inductor.ir import Buffer, Loops, Program
from inductor.ops import Access, Value
from inductor.runtime.plan import LaunchStep, TritonSpec
from inductor.schedule.fusion import Bundle, Kernel, extent
from inductor.sizes import (
    Extent,
    Size,
    Undecided,
    bounds,
    ceil_div,
    exact,
    hint,
    known_le,
    known_lt,
    largest,
)

PERSISTENT_ROW = 4096  # elements; longer rows are looped over
LOOPED_TILE = 2048
POINTWISE_BLOCK = 1024
TILE = 2048  # elements of a tile of short rows
MOST_PARTS = 64  # kernels of a bundle that are launched as one
PROGRAM = "tl.program_id(0)"
HEAD = """import triton
import triton.language as tl
from inductor.runtime import triton_math as fg
from inductor.runtime.triton_math import math


"""


@dataclass
class TritonKernel(TritonSpec):
    """A kernel's text and how to launch it. `args` are buffer names, in parameter order."""

    args: list[str] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    programs: Extent = 0
    sizes: list[Size] = field(default_factory=list)  # arguments after the buffers

    def spec(self) -> TritonSpec:
        """What of the kernel a plan keeps besides its steps."""
        return TritonSpec(*(getattr(self, f.name) for f in fields(TritonSpec)))

    def step(self, label: str = "") -> LaunchStep:
        return LaunchStep(
            self.name, self.args, list(self.writes), self.programs, list(self.sizes), label
        )


def emit(
    kernel: Kernel, buffers: Mapping[str, Buffer], name: str, local: Collection[str] = ()
) -> TritonKernel:
    """The Triton form of a fused kernel; NoTriton if some operation or reduction has none.

    `local` names buffers that nothing outside of this kernel reads: they are not stored.
    """
    return _Emitter(kernel, buffers, name, frozenset(local)).emit()


def emit_together(parts: Sequence[TritonKernel], name: str) -> TritonKernel | None:
    """One kernel whose programs are those of the parts, one after another; None for parts with
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

    `everywhere` makes Triton kernels for CPU buffers too, which Triton's interpreter can run.
    """

    def __init__(self, program: Program, everywhere: bool = False) -> None:
        self.program = program
        self.everywhere = everywhere
        self.kernels: dict[str, TritonKernel] = {}

    def takes(self, item: Kernel | Bundle) -> bool:
        """Whether a kernel is ours: it writes device memory."""
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
                self.kernels[name] = together
                return [together.step(label)]
        steps = []
        for number, part in enumerate(parts):
            kernel = self._emitter(part, f"{name}_{number}" if number else name, live).emit()
            self.kernels[kernel.name] = kernel
            steps.append(kernel.step(label))
        return steps

    def _emitter(
        self, kernel: Kernel, name: str, live: Collection[str], program: str = PROGRAM
    ) -> _Emitter:
        local = frozenset(kernel.writes().keys() - live)
        return _Emitter(kernel, self.program.buffers, name, local, program)

    def specs(self) -> list[TritonSpec]:
        return [kernel.spec() for kernel in self.kernels.values()]


# --- the loop axes
# ----------------------------------------------------------------------------------


@dataclass
class Axis:
    """One flattened range of the kernel and what each of its loop variables is in terms of it."""

    name: str
    size: Extent
    var: Var
    meaning: dict[Var, Index] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, vars: Sequence[Var], indices: Sequence[Index]) -> Axis:
        size = extent(vars)
        flat = Var(name, size)
        axis = cls(name, size, flat)
        step = size
        groups = merge(vars, indices)
        for group in groups:
            length = extent(group)
            step = _without(step, length)
            position = (Index({flat: 1}) // step) % length if size not in (0, 1) else ZERO
            inner = length
            for v in group:
                inner = _without(inner, v.size)
                axis.meaning[v] = (position // inner) % v.size if v.size not in (0, 1) else ZERO
        # Where a group's variables occur together, they rejoin into the group's position.
        return axis


def _without(product: Extent, factor: Extent) -> Extent:
    """product / factor, an extent of 0 counting as 1."""
    rest = exact(product, factor) if factor != 0 else product
    assert rest is not None
    return rest


def merge(vars: Sequence[Var], indices: Iterable[Index]) -> list[list[Var]]:
    """Runs of neighbouring variables that every index steps through as through one.

    (i0, i1) over (8, 64) merge if all indices hold 64*c*i0 + c*i1 for some c.
    """
    indices = list(indices)
    inside: set[Var] = {
        v
        for index in indices
        for atom in index.terms
        if isinstance(atom, (FloorDiv, Mod))
        for v in atom.dividend.variables()
    }
    groups: list[list[Var]] = []
    for v in vars:
        if groups and v not in inside and groups[-1][-1] not in inside:
            last = groups[-1][-1]
            if all(i.terms.get(last, 0) == i.terms.get(v, 0) * v.size for i in indices):
                groups[-1].append(v)
                continue
        groups.append([v])
    return groups


# --- one kernel
# -------------------------------------------------------------------------------------


class _Emitter:
    def __init__(
        self,
        kernel: Kernel,
        buffers: Mapping[str, Buffer],
        name: str,
        local: frozenset[str],
        program: str = PROGRAM,
    ) -> None:
        self.kernel = kernel
        self.program = program  # its number in the text: asked for, or a parameter
        self.buffers = buffers
        self.name = name
        self.local = local
        indices = [i for s in kernel.steps for i in (*s.tape.indices(), s.index)]
        # The atomic operations of a scatter need no order, so that all its loops are one range.
        outer = [*kernel.inner, *kernel.outer] if kernel.is_scatter else kernel.outer
        self.x = Axis.of("x", outer, indices)
        # A reduction over nothing but extents of 1 has no inner variables, but is one of rows.
        rows = kernel.is_rows or any(s.reduction for s in kernel.steps)
        rows = rows and not kernel.is_scatter
        self.r = Axis.of("r", kernel.inner, indices) if rows else None
        self.wide = self._needs_int64(indices)
        self.written = kernel.writes().keys()
        self.args: list[str] = []
        self.sizes: list[Size] = []
        self.lines: list[str] = []
        self.constants, self.programs, self.num_warps = self._tiles()

    def _needs_int64(self, indices: Iterable[Index]) -> bool:
        try:
            reach = [i.bounds()[1] for i in indices]
        except Undecided:
            return True
        reach.append(extent([*self.kernel.outer, *self.kernel.inner]))
        return not all(known_lt(n, 1 << 30) for n in reach)

    def _tiles(self) -> tuple[dict[str, int], Extent, int]:
        rows = self.x.size
        if self.r is None:
            block = min(POINTWISE_BLOCK, power_of_two(hint(rows)))
            return {"XBLOCK": block}, ceil_div(rows, block), 4
        across = self._across(self.r.size)
        down = min(max(1, TILE // across), power_of_two(hint(rows)), 64)
        return {"XBLOCK": down, "RBLOCK": across}, ceil_div(rows, down), 8 if across >= 2048 else 4

    @staticmethod
    def _across(length: Extent) -> int:
        """The width of a tile: whole rows, if they are short whatever their size."""
        most = bounds(length)[1]
        if most is not None and (whole := power_of_two(most)) <= PERSISTENT_ROW:
            return whole
        return min(LOOPED_TILE, power_of_two(hint(length)))

    @property
    def looped(self) -> bool:
        return self.r is not None and not known_le(self.r.size, self.constants["RBLOCK"])

    def emit(self) -> TritonKernel:
        if self.r is None:
            body = _Pass(self, 1, "")
            for step in self.kernel.steps:
                body.run(step)
            self.lines += body.lines
        elif self.looped:
            self._emit_looped()
        else:
            body = _Pass(self, 2, "")
            for step in self.kernel.steps:
                body.run(step)
            self.lines += body.lines
        writes = [n for n in self.args if n in self.kernel.writes()]
        text = self._text()
        signature = {n: f"*{TYPES[self.buffers[n].dtype]}" for n in self.args}
        signature |= {f"n{k}": "i64" for k in range(len(self.sizes))}
        signature |= dict.fromkeys(self.constants, "constexpr")
        return TritonKernel(
            self.name, text, signature, self.constants, self.num_warps,
            device=str(self.kernel.steps[0].target.device),
            args=self.args, writes=writes, programs=self.programs, sizes=self.sizes,
        )  # fmt: skip

    def _text(self) -> str:
        start = f"{self.program}.to(tl.int64)" if self.wide else self.program
        lines = [f"x = {start} * XBLOCK + tl.arange(0, XBLOCK)" + ("[:, None]" if self.r else "")]
        if self.mask("x"):
            lines.append(f"xmask = x < {self.number(self.x.size)}")
        if self.r is not None and not self.looped:
            lines += self._row_range("")
        sizes = [f"n{k}" for k in range(len(self.sizes))]
        blocks = [f"{name}: tl.constexpr" for name in self.constants]
        given = [] if self.program == PROGRAM else [self.program]
        head = f"@triton.jit\ndef {self.name}({', '.join([*given, *self.args, *sizes, *blocks])}):"
        body = ["    " + line for line in lines + self.lines]
        return HEAD + "\n".join([head, *body]) + "\n"

    def number(self, size: Extent) -> str:
        """A size in the text: a literal, or an argument."""
        if isinstance(size, int):
            return str(size)
        if size not in self.sizes:
            self.sizes.append(size)
        return f"n{self.sizes.index(size)}"

    def _row_range(self, offset: str) -> list[str]:
        assert self.r is not None
        dtype = ".to(tl.int64)" if self.wide else ""
        lines = [f"r = {offset}tl.arange(0, RBLOCK)[None, :]{dtype}"]
        if self.mask("r"):
            lines.append(f"rmask = r < {self.number(self.r.size)}")
        return lines

    def mask(self, axis: str) -> str | None:
        """Name of the axis' mask, or None where its blocks always fit."""
        if axis == "x":
            return None if exact(self.x.size, self.constants["XBLOCK"]) is not None else "xmask"
        assert self.r is not None
        fits = self.r.size != 0 and exact(self.r.size, self.constants["RBLOCK"]) is not None
        return None if fits else "rmask"

    def parameter(self, buffer: str) -> str:
        if buffer not in self.args:
            self.args.append(buffer)
        return buffer

    def meaning(self, v: Any) -> Index | None:
        found = self.x.meaning.get(v)
        if found is None and self.r is not None:
            found = self.r.meaning.get(v)
        return found

    # --- rows longer than a tile ---

    def _emit_looped(self) -> None:
        """Passes over the rows; each ends with the reductions that its elements allow."""
        phases = self._phases()
        rows = _Pass(self, 2, "")  # values of whole rows live outside of the loops
        for phase in range(max(phases.values(), default=0) + 1):
            steps = [s for s in self.kernel.steps if phases[s] == phase]
            inside = [s for s in steps if self.kernel.role(s) != "row"]
            if inside:
                self._emit_pass(inside, rows, phase)
            for step in steps:
                if self.kernel.role(step) == "row":
                    rows.run(step)
            self.lines += rows.take_lines()

    def _phases(self) -> dict[Loops, int]:
        """Which pass each step runs in: after the pass of every reduction that it depends on."""
        made = {s.target.name: s for s in self.kernel.steps}
        phases: dict[Loops, int] = {}
        for step in self.kernel.steps:
            phase = 0
            for name in step.reads:
                source = made.get(name)
                if source is None or source is step or source not in phases:
                    continue
                later = self.kernel.role(source) != "full" and self.kernel.role(step) != "row"
                phase = max(phase, phases[source] + later)
            phases[step] = phase
        return phases

    def _emit_pass(self, steps: list[Loops], rows: _Pass, phase: int) -> None:
        """One loop over r: elementwise steps, those they need again, and running reductions."""
        body = _Pass(self, 2, f"p{phase}_")
        body.known.update(rows.known)
        needed = self._again(steps)
        accumulators = []
        for step in self.kernel.steps:
            if step in steps and self.kernel.role(step) == "reduce":
                accumulator = _Accumulator(self, step)
                accumulators.append(accumulator)
                accumulator.update(body)
            elif step in needed:
                body.run(step, store=step in steps)
        for accumulator in accumulators:
            self.lines += accumulator.start()
        assert self.r is not None
        self.lines.append(f"for r0 in range(0, {self.number(self.r.size)}, RBLOCK):")
        self.lines += ["    " + line for line in [*self._row_range("r0 + "), *body.lines]]
        for accumulator in accumulators:
            accumulator.finish(rows)
        self.lines += rows.take_lines()

    def _again(self, steps: list[Loops]) -> set[Loops]:
        """The steps and the elementwise steps that they read from, however far back."""
        made = {s.target.name: s for s in self.kernel.steps}
        needed, waiting = set(steps), list(steps)
        while waiting:
            for name in waiting.pop().reads:
                source = made.get(name)
                if source is None or source in needed or self.kernel.role(source) != "full":
                    continue
                needed.add(source)
                waiting.append(source)
        return needed


def power_of_two(n: int) -> int:
    return 1 << max(n - 1, 0).bit_length()


# --- one pass over the elements
# ---------------------------------------------------------------------

AXES = {1: "[XBLOCK]", 2: "[XBLOCK, RBLOCK]"}
# What the device does to an element in one go: mode and bytes. Maxima of floats would lose NaN.
ATOMIC = {("add", 4), ("add", 8)}


@dataclass
class Term:
    """A Triton expression's name and the axes that it varies along."""

    text: str
    axes: frozenset[str]


class _Pass:
    """Lines that compute steps over one block, and what is known of buffers made in it."""

    def __init__(self, emitter: _Emitter, rank: int, prefix: str) -> None:
        self.emitter = emitter
        self.rank = rank
        self.prefix = prefix
        self.lines: list[str] = []
        self.known: dict[tuple[str, Index], Term] = {}
        self.count = 0
        self.dtypes: dict[str, torch.dtype] = {}
        self.values: dict[Value, Term] = {}

    def take_lines(self) -> list[str]:
        taken, self.lines = self.lines, []
        return taken

    def bind(self, text: str, axes: Iterable[str]) -> Term:
        name = f"{self.prefix}v{self.count}"
        self.count += 1
        self.lines.append(f"{name} = {text}")
        return Term(name, frozenset(axes))

    # --- steps ---

    def run(self, step: Loops, store: bool = True) -> None:
        """Compute a step and store it unless nobody outside looks."""
        terms = self.evaluate(step)
        if step.mode:
            self.scatter(step, terms[0])
            return
        if step.reduction:
            result = self.bind(reduce_tile(self, step, terms), {"x"})
        else:
            result = terms[0]
        self.keep(step, result, store)

    def evaluate(self, step: Loops) -> list[Term]:
        self.values = {}
        for value in step.tape.values:
            args = [self.values[a] for a in value.args]
            self.values[value] = self._value(value, args)
        return [self.values[v] for v in step.values]

    def keep(self, step: Loops, result: Term, store: bool = True) -> None:
        """Remember a step's result for later steps, and store it."""
        name = step.target.name
        self.known[name, step.index] = result
        if name in self.emitter.local or not store:
            return
        full = self.emitter.kernel.role(step) == "full"
        least = ("x", "r") if full and self.rank == 2 else ("x",)
        pointer, axes = self.pointer(name, step.index, least)
        dtype = step.target.dtype
        value = result.text
        if dtype != step.values[0].dtype:
            value = f"{value}.to({type_name(dtype)})"
        if result.axes != axes:
            value = f"tl.broadcast_to({value}, {self.shape(axes)})"
        self.lines.append(f"tl.store({pointer}, {value}{self.mask_argument(axes)})")

    def scatter(self, step: Loops, value: Term) -> None:
        """Combine a step's values with its target, in whatever order they come."""
        dtype = step.target.dtype
        if step.mode != "set" and (step.mode, dtype.itemsize) not in ATOMIC:
            raise NoTriton("scatter", f"of {step.mode} on {dtype}")
        pointer, axes = self.pointer(step.target.name, step.index, ("x",))
        text = value.text
        if dtype != step.values[0].dtype:
            text = f"{text}.to({type_name(dtype)})"
        if value.axes != axes:
            text = f"tl.broadcast_to({text}, {self.shape(axes)})"
        mask = self.mask_argument(axes)
        if step.mode == "set":
            self.lines.append(f"tl.store({pointer}, {text}{mask})")
        else:
            self.lines.append(f'tl.atomic_{step.mode}({pointer}, {text}{mask}, sem="relaxed")')

    # --- addressing ---

    def shape(self, axes: Collection[str]) -> str:
        if self.rank == 1:
            return "[XBLOCK]"
        return f"[{'XBLOCK' if 'x' in axes else '1'}, {'RBLOCK' if 'r' in axes else '1'}]"

    def mask_argument(
        self, axes: Collection[str], extra: str | None = None, other: bool = False
    ) -> str:
        masks = [m for a in ("x", "r") if a in axes and (m := self.emitter.mask(a))]
        masks += [extra] if extra else []
        if not masks:
            return ""
        return f", mask={' & '.join(masks)}" + (", other=0" if other else "")

    def index(self, index: Index) -> tuple[str, frozenset[str]]:
        """An index as Triton text, and the axes it varies along."""
        axes: set[str] = set()
        return self._render(index.substitute(self.emitter.meaning), axes), frozenset(axes)

    def _render(self, index: Index, axes: set[str]) -> str:
        parts = []
        for atom, coefficient in index.terms.items():
            text = self._atom(atom, axes)
            number = self.emitter.number
            parts.append(text if coefficient == 1 else f"{number(coefficient)} * {text}")
        if index.const != 0 or not parts:
            parts.append(self.emitter.number(index.const))
        return " + ".join(parts).replace("+ -", "- ")

    def _atom(self, atom: Any, axes: set[str]) -> str:
        if isinstance(atom, Var):
            axes.add(atom.name)
            return atom.name
        if isinstance(atom, Indirect):
            term = self.values[atom.value]
            axes.update(term.axes)
            return term.text if self.emitter.wide else f"{term.text}.to(tl.int32)"
        text, number = self._render(atom.dividend, axes), self.emitter.number
        divisor = largest(atom.divisor, 1)  # 0 where nothing is computed
        if atom.dividend.is_natural():
            text = text if text.isidentifier() else f"({text})"
            return f"({text} {atom.sign} {number(divisor)})"
        # Moved up by a multiple of the divisor, since Triton rounds towards zero.
        try:
            lift = -(atom.dividend.bounds()[0] // divisor)
        except Undecided as error:
            raise NoTriton("index", str(error)) from error
        moved = f"(({text} + {number(lift * divisor)}) {atom.sign} {number(divisor)})"
        return moved if isinstance(atom, Mod) else f"({moved} - {number(lift)})"

    def pointer(
        self, buffer: str, index: Index, axes: Collection[str] = ()
    ) -> tuple[str, frozenset[str]]:
        """Pointers to the buffer's elements, spread over at least `axes`."""
        text, found = self.index(index)
        name = self.emitter.parameter(buffer)
        address = f"{name} + {text}" if text != "0" else name
        wanted = found | frozenset(axes)
        if wanted != found:
            address = f"tl.broadcast_to({address}, {self.shape(wanted)})"
        return address, wanted

    # --- values ---

    def _value(self, value: Value, args: list[Term]) -> Term:
        axes = frozenset().union(*(a.axes for a in args), frozenset())
        match value.op:
            case "load":
                return self._load(value, value.attr, args[0] if value.attr.masked else None)
            case "constant":
                return Term(constant(value.attr, value.dtype), frozenset())
            case "index_expr":
                text, axes = self.index(value.attr)
                return self.bind(f"({text}).to({type_name(value.dtype)})", axes)
            case "to_dtype":
                return self.bind(convert(args[0].text, value.args[0].dtype, value.attr), axes)
            case "where":
                return self.bind(f"tl.where({', '.join(a.text for a in args)})", axes)
        return self.bind(operation(value.op, [a.text for a in args], value.args[0].dtype), axes)

    def _load(self, value: Value, access: Access, mask: Term | None) -> Term:
        known = self.known.get((access.buffer, access.index))
        if known is not None:
            if mask is None:
                return known
            zero = constant(False if value.dtype == torch.bool else 0, value.dtype)
            return self.bind(f"tl.where({mask.text}, {known.text}, {zero})", known.axes | mask.axes)
        pointer, axes = self.pointer(access.buffer, access.index, mask.axes if mask else ())
        arguments = self.mask_argument(axes, mask.text if mask else None, other=mask is not None)
        text = f"tl.load({pointer}{arguments})"
        dtype = self.emitter.buffers[access.buffer].dtype
        if dtype != value.dtype:
            text += f".to({type_name(value.dtype)})"
        loaded = self.bind(text, axes)
        if mask is None and access.buffer not in self.emitter.written:
            self.known[access.buffer, access.index] = loaded
        return loaded


# --- reductions -----------------------------------------------------------------------------------


def reduce_tile(body: _Pass, step: Loops, terms: list[Term]) -> str:
    """The reduction of a whole tile along its rows, lanes past the end of a row left out."""
    kind, dtype = str(step.reduction), step.values[0].dtype
    mask = body.emitter.mask("r")
    tiles = [_spread(body, t.text, t.axes) for t in terms]
    outside = neutral(kind, dtype)
    if mask:
        tiles[0] = f"tl.where({mask}, {tiles[0]}, {outside})"
        if len(tiles) > 1:
            tiles[1] = f"tl.where({mask}, {tiles[1]}, {LARGEST})"
    return finish_rows(kind, dtype, tiles)


def _spread(body: _Pass, text: str, axes: frozenset[str]) -> str:
    """A term over the whole tile: a reduction needs every lane."""
    whole = frozenset(("x", "r"))
    return text if axes == whole else f"tl.broadcast_to({text}, {body.shape(whole)})"


class _Accumulator:
    """A reduction that runs along a loop: a tile of partial results, then one reduction of that."""

    def __init__(self, emitter: _Emitter, step: Loops) -> None:
        self.emitter = emitter
        self.step = step
        self.kind = str(step.reduction)
        self.dtype = step.values[0].dtype
        self.neutral = neutral(self.kind, self.dtype)
        self.name = f"acc_{step.target.name}"
        self.positional = self.kind in ("argmax", "argmin")

    def start(self) -> list[str]:
        shape = AXES[2]
        lines = [f"{self.name} = tl.broadcast_to({self.neutral}, {shape})"]
        if self.positional:
            lines.append(f"{self.name}_at = tl.full({shape}, {LARGEST}, tl.int64)")
        return lines

    def update(self, body: _Pass) -> None:
        """Take in the elements of one tile."""
        terms = body.evaluate(self.step)
        tiles = [_spread(body, t.text, t.axes) for t in terms]
        mask = self.emitter.mask("r")
        if self.positional:
            better = body.bind(
                f"fg.better_{self.kind[3:]}({tiles[0]}, {tiles[1]}, {self.name}, {self.name}_at)",
                {"x", "r"},
            ).text
            better = f"{better} & {mask}" if mask else better
            body.lines.append(f"{self.name}_at = tl.where({better}, {tiles[1]}, {self.name}_at)")
            body.lines.append(f"{self.name} = tl.where({better}, {tiles[0]}, {self.name})")
            return
        combined = COMBINE[self.kind].format(self.name, tiles[0])
        if mask:
            combined = f"tl.where({mask}, {combined}, {self.name})"
        body.lines.append(f"{self.name} = {combined}")

    def finish(self, rows: _Pass) -> None:
        """Reduce the tile and hand the rows' results on."""
        tiles = [self.name, f"{self.name}_at"] if self.positional else [self.name]
        rows.keep(self.step, rows.bind(finish_rows(self.kind, self.dtype, tiles), {"x"}))


__all__ = ["NoTriton", "TritonKernel", "TritonModule", "emit"]
