"""Triton from loop bodies: one fused kernel of the schedule becomes one @triton.jit function.

Two shapes, as in schedule/fusion.py. A pointwise kernel flattens its loops into one range x, cut
into blocks. A kernel of rows gives each program a tile of rows x and their elements r:

    persistent   a whole row fits in a tile: every step runs once over it, reductions included
    looped       rows are longer: one pass over r for each reduction that waits for another, but for
                 the sum of a softmax, which runs along with the maximum (triton_online.py). A later
                 pass computes values of an earlier elementwise step again, which costs less than
                 memory traffic.

A scatter is one flat range of atomic additions, in an order that no run repeats, as in eager. A
bundle is one kernel: each program does a part of one of the bundle's kernels.

A size that only a call brings is an argument of the kernel, n0, n1, ..., and the number of programs
an argument of its launch. Rows of such a size are looped over, unless a bound is known.

The text is plain Triton that can be read and run by itself. It is exact where eager is: maxima
propagate NaN, division and square roots round correctly, half types are computed in float32.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from fxgraph.sizes import (
    Extent,
    Size,
    Undecided,
    bounds,
    ceil_div,
    exact,
    hint,
    known_le,
    known_lt,
)
from inductor.codegen.triton_body import FLAT, ROWS, Accumulator, Pass
from inductor.codegen.triton_online import OnlineSum, online_sums
from inductor.codegen.triton_ops import TYPES
from inductor.index import ZERO, FloorDiv, Index, Mod, Var
from inductor.ir import Buffer, Loops
from inductor.runtime.plan import LaunchStep, TritonSpec
from inductor.schedule.fusion import Kernel, extent

PERSISTENT_ROW = 4096  # elements; longer rows are looped over
LOOPED_TILE = 2048
POINTWISE_BLOCK, POINTWISE_BLOCKS = 1024, (2048, 1024, 512, 256)
# Elements of a tile of rows that lie side by side, of whole ones or of parts.
TALL_TILE, TALL_LOOPED = 8192, 4096
GROUP = 16  # rows that lie side by side, at least, where not all do
UNITS = 132  # multiprocessors of a device that is not known
TILE = 2048  # elements of a tile of short rows
PROGRAM = "tl.program_id(0)"
HEAD = """import triton
import triton.language as tl
from inductor.runtime import triton_math as fg
from inductor.runtime.triton_math import math


"""


@dataclass(frozen=True)
class Tiles:
    """Of a kernel of loops: elements along x, and along r (0: of a pointwise kernel)."""

    x: int
    r: int
    warps: int


@dataclass
class TritonKernel(TritonSpec):
    """A kernel's text and how to launch it. `args` are buffer names, in parameter order."""

    args: list[str] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    programs: Extent = 0
    sizes: list[Size] = field(default_factory=list)  # arguments after the buffers
    space: Buffer | None = None  # memory of its own

    def spec(self) -> TritonSpec:
        """The part of the kernel that a plan keeps besides its steps."""
        return TritonSpec(*(getattr(self, f.name) for f in fields(TritonSpec)))

    def step(self, label: str = "") -> LaunchStep:
        self.label = label
        scratch = self.space.name if self.space is not None and self.scratch else ""
        sizes: list[Extent] = [*self.sizes]
        return LaunchStep(
            self.name, self.args, list(self.writes), self.programs, sizes, label, scratch=scratch
        )


# --- the loop axes
# ----------------------------------------------------------------------------------


@dataclass
class Axis:
    """A flattened range of the kernel, and each of its loop variables as an expression of it."""

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


class Emitter:
    def __init__(
        self,
        kernel: Kernel,
        buffers: Mapping[str, Buffer],
        name: str,
        local: frozenset[str],
        program: str = PROGRAM,
        tiles: Tiles | None = None,
        units: int = UNITS,
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
        self.written = set(kernel.writes())
        self.args: list[str] = []
        self.sizes: list[Size] = []
        self.lines: list[str] = []
        self.units = units
        tiles = tiles or self.choices()[0]
        self.constants = {"XBLOCK": tiles.x} | ({"RBLOCK": tiles.r} if tiles.r else {})
        self.programs, self.num_warps = ceil_div(self.x.size, tiles.x), tiles.warps

    def _needs_int64(self, indices: Iterable[Index]) -> bool:
        """Whether an index, or a dividend in one, may not fit 32 bits. Sums and products that wrap
        around on the way do no harm.
        """
        try:
            ends = [end for i in indices for part in (i, *i.dividends()) for end in part.bounds()]
        except Undecided:
            return True
        ends.append(self._reach())
        return not all(known_lt(n, 1 << 30) and known_lt(-(1 << 30), n) for n in ends)

    def _reach(self) -> Extent:
        """An upper bound of positions on the kernel's own axes."""
        return extent([*self.kernel.outer, *self.kernel.inner])

    def choices(self) -> list[Tiles]:
        """Tiles that may be fast; the first one by the cost model."""
        if self.r is None:
            most = power_of_two(hint(self.x.size))
            blocks = [n for n in POINTWISE_BLOCKS if n <= most] or [most]
            # The largest that gives every multiprocessor work; threads of 2 elements at least.
            enough = [n for n in blocks if hint(ceil_div(self.x.size, n)) >= 2 * self.units]
            first = max((n for n in enough if n <= POINTWISE_BLOCK), default=blocks[-1])
            return [Tiles(n, 0, 4) for n in sorted(blocks, key=lambda n: n != first)]
        most = power_of_two(hint(self.x.size))
        if self._rows_are_neighbours():
            return self._tall(most)
        across = self._across(self.r.size)
        down = min(max(1, TILE // across), most, 64)
        while down > 1 and hint(ceil_div(self.x.size, down)) < self.units:
            down //= 2
        first_ = Tiles(down, across, 8 if across >= 2048 else 4)
        others = [Tiles(down, across, warps) for warps in (2, 4, 8, 16) if warps * 32 <= across]
        others += [Tiles(n, across, first_.warps) for n in (down // 2, down * 2) if 0 < n <= most]
        return list(dict.fromkeys([first_, *others]))

    def _tall(self, most: int) -> list[Tiles]:
        """Of rows that lie side by side: enough of them for a transaction of memory."""
        assert self.r is not None
        whole = power_of_two(hint(self.r.size))
        fits = bounds(self.r.size)[1] is not None and whole * 16 <= TALL_TILE
        found = []
        for down in (1024, 512, 256, 128, 64, 32, 16):
            if down > 64 and not (fits and whole * down <= TALL_LOOPED):
                continue  # of short rows alone
            across = whole if fits and whole * down <= TALL_TILE else TALL_LOOPED // down
            tiles = Tiles(min(down, most), min(across, whole), 8)
            if not fits or tiles.r >= whole:
                found.append(tiles)

        def order(tiles: Tiles) -> tuple[bool, int]:
            few = hint(ceil_div(self.x.size, tiles.x)) < self.units
            return few, tiles.x if few else -tiles.x

        return sorted(dict.fromkeys(found), key=order)

    def _rows_are_neighbours(self) -> bool:
        """Whether most tensors have elements of neighbouring rows side by side, not those of a row
        of their own. Of rows in several groups, those of a group count."""
        assert self.r is not None
        votes = 0
        last = self.kernel.outer[-1] if self.kernel.outer else None
        grouped = last is not None and len(self.kernel.outer) > 1 and hint(last.size) >= GROUP
        for step in self.kernel.steps:
            for index in (*step.tape.indices(), step.index):
                found = index.substitute(self.meaning).terms
                beside = found.get(self.x.var) == 1
                if not beside and grouped and last in index.terms:
                    beside = index.terms[last] == 1 and self.r.var in found
                elif self.x.var not in found:
                    continue
                if self.r.var in found:
                    votes += beside - (found[self.r.var] == 1)
        return votes > 0

    @staticmethod
    def _across(length: Extent) -> int:
        """The width of a tile: whole rows if they are short for all sizes."""
        most = bounds(length)[1]
        if most is not None and (whole := power_of_two(most)) <= PERSISTENT_ROW:
            return whole
        return min(LOOPED_TILE, power_of_two(hint(length)))

    @property
    def looped(self) -> bool:
        return self.r is not None and not known_le(self.r.size, self.constants["RBLOCK"])

    def emit(self) -> TritonKernel:
        if self.r is None:
            body = Pass(self, FLAT, "")
            for step in self.kernel.steps:
                body.run(step)
            self.lines += body.lines
        elif self.looped:
            self._emit_looped()
        else:
            body = Pass(self, ROWS, "")
            for step in self.kernel.steps:
                body.run(step)
            self.lines += body.lines
        return self.made(self._text())

    def made(self, text: str, stages: int = 3) -> TritonKernel:
        writes = [n for n in self.args if n in self.written]
        signature = {n: f"*{TYPES[self.buffers[n].dtype]}" for n in self.args}
        signature |= {f"n{k}": "i64" for k in range(len(self.sizes))}
        signature |= dict.fromkeys(self.constants, "constexpr")
        return TritonKernel(
            self.name, text, signature, self.constants, self.num_warps, stages,
            device=str(self.buffers[writes[0]].device),
            divisible=[f"n{k}" for k, n in enumerate(self.sizes) if exact(n, 16) is not None],
            args=self.args, writes=writes, programs=self.programs, sizes=self.sizes,
        )  # fmt: skip

    def _text(self) -> str:
        start = f"{self.program}.to(tl.int64)" if self.wide else self.program
        lines = [f"x = {start} * XBLOCK + tl.arange(0, XBLOCK)" + ("[:, None]" if self.r else "")]
        if self.mask("x"):
            lines.append(f"xmask = x < {self.number(self.x.size)}")
        if self.r is not None and not self.looped:
            lines += self._row_range("")
        return self._text_of([*lines, *self.lines])

    def _text_of(self, lines: list[str]) -> str:
        sizes = [f"n{k}" for k in range(len(self.sizes))]
        blocks = [f"{name}: tl.constexpr" for name in self.constants]
        given = [] if self.program == PROGRAM else [self.program]
        head = f"@triton.jit\ndef {self.name}({', '.join([*given, *self.args, *sizes, *blocks])}):"
        body = ["    " + line for line in lines]
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
        online = online_sums(self.kernel)
        phases = self._phases({total: top for top, total in online.items()})
        rows = Pass(self, ROWS, "")  # values of whole rows live outside of the loops
        for phase in range(max(phases.values(), default=0) + 1):
            steps = [s for s in self.kernel.steps if phases[s] == phase]
            inside = [s for s in steps if self._needs_a_pass(s)]
            if inside:
                self._emit_pass(inside, rows, phase, online)
            for step in steps:
                if self.kernel.role(step) == "row":
                    rows.run(step)
            self.lines += rows.take_lines()

    def _needs_a_pass(self, step: Loops) -> bool:
        """Whether a step computes rows' elements in a pass of its own, not only inside of its
        readers.
        """
        role = self.kernel.role(step)
        return role == "reduce" or (role == "full" and step.target.name not in self.local)

    def _phases(self, online: Mapping[Loops, Loops]) -> dict[Loops, int]:
        """The pass of each step: after the pass of every reduction that it depends on, but for a
        sum that runs along with its maximum (`online`).
        """
        made = {s.target.name: s for s in self.kernel.steps}
        phases: dict[Loops, int] = {}
        for step in self.kernel.steps:
            if step in online:
                phases[step] = phases[online[step]]
                continue
            phase = 0
            for name in step.reads:
                source = made.get(name)
                if source is None or source is step or source not in phases:
                    continue
                later = self.kernel.role(source) != "full" and self.kernel.role(step) != "row"
                phase = max(phase, phases[source] + later)
            phases[step] = phase
        return phases

    def _emit_pass(
        self, steps: list[Loops], rows: Pass, phase: int, online: Mapping[Loops, Loops]
    ) -> None:
        """Emit a loop over r: elementwise steps, those they need again, and running reductions."""
        body = Pass(self, ROWS, f"p{phase}_")
        body.known.update(rows.known)
        along = set(online.values())  # computed with their maxima
        needed = self._again([s for s in steps if s not in along])
        accumulators: list[Accumulator] = []
        for step in self.kernel.steps:
            if step in along:
                continue
            if step in steps and self.kernel.role(step) == "reduce":
                total = online.get(step)
                accumulator = OnlineSum(self, step, total) if total else Accumulator(self, step)
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
