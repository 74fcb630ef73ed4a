"""The C++ function of one fused kernel: its loops, vectorised, around the bodies that cpp_body.py
writes (cpp.py shows the form).
"""

from __future__ import annotations

from collections import ChainMap
from dataclasses import dataclass, replace
from itertools import pairwise

import torch

from fxgraph.sizes import Extent, Size, ceil_div, hint, known_le, largest
from inductor import costs
from inductor.codegen import cuts
from inductor.codegen.cpp_body import CPP_TYPES, Body
from inductor.codegen.kernel import (
    Pass,
    in_place,
    interleaved_variable,
    lane_variable,
    merge_loops,
    narrow_positions,
    passes,
    tile_variable,
)
from inductor.codegen.moves import as_integers
from inductor.index import Var
from inductor.ir import Buffer, Loops, Program
from inductor.operations import OPERATIONS
from inductor.ops import COMPUTE_TYPES, Value, indirect_values
from inductor.schedule.fusion import Kernel, extent

# Rows of intermediates up to this many bytes stay on the stack of the thread.
MAX_SCRATCH = 48 * 1024
# Longest run of additions into one accumulator, per lane.
CHUNK = 4096
# An index constant below this stays a literal; larger ones become parameters.
LITERAL = 10
WIDEST = 16  # lanes of a vector on any processor
# Columns of a strip that is transposed at a time: several cache lines of each row that is read.
STRIP = 64
ALWAYS = "__attribute__((always_inline))"
# Vectors of columns that are reduced together.
GROUP = 4
# Reductions whose body is at most this long get four accumulators.
UNROLL_VALUES = 8


@dataclass
class Emitted:
    """A kernel's function text and call arguments."""

    text: str
    constants: list[Extent]
    buffers: list[str]
    writes: list[str]
    total: Extent
    work: Extent  # steps of loops for each of `total`
    inplace: list[tuple[str, str]]  # (out, in): see KernelStep
    # the variables whose values, in row-major order, the range walks; None if it counts strips
    order: list[Var] | None = None
    kernel: Kernel | None = None  # in the variables of `order`


def emit(program: Program, kernel: Kernel, live: set[str], *, in_order: bool = False) -> Emitted:
    """in_order: the range of a pointwise kernel walks its variables in the kernel's own order."""
    return _Emitter(program, merge_loops(kernel), live, in_order).run()


class _Emitter:
    """Writes one kernel's function."""

    def __init__(
        self, program: Program, kernel: Kernel, live: set[str], in_order: bool = False
    ) -> None:
        steps = [replace(s, tape=s.tape.of(_wanted(s))) for s in kernel.steps]
        kernel, moved = as_integers(replace(kernel, steps=steps), program.buffers)
        self.kernel, self.moves = kernel, bool(moved)
        self.buffer_of = ChainMap(moved, program.buffers)
        last = kernel.outer[-1] if kernel.outer else None
        self.lane = last if in_order else lane_variable(kernel)
        self.rows = kernel.is_rows or any(s.reduction or s.mode for s in kernel.steps)
        outer, inner = list(kernel.outer), list(kernel.inner)
        if kernel.is_scatter and self.lane in outer:  # pieces of the lane, each in serial loops
            self.rows = False
            outer.remove(self.lane)
            inner.append(self.lane)
        free = not (self.rows or kernel.is_scatter or in_order)
        self.interleaved = interleaved_variable(kernel, self.lane) if free else None
        self.tile = self.interleaved or (tile_variable(kernel, self.lane) if free else None)
        if self.tile is not None and self.lane is not None:
            outer.remove(self.lane)
            outer.remove(self.tile)
            inner = [self.lane, self.tile]
        elif kernel.is_scatter:
            pass
        elif not self.rows and outer:  # a pointwise kernel: its rows are the vectorised dimension
            last = self.lane or outer[-1]
            outer.remove(last)
            inner = [last]
        elif self.lane in inner:
            inner.remove(self.lane)
            inner.append(self.lane)
        elif self.lane in outer:
            outer.remove(self.lane)
            outer.append(self.lane)
        self.outer, self.inner = outer, inner
        self.lane_outer = self.rows and self.lane in outer
        self.passes = passes(kernel)
        self.constants: list[Extent] = []
        self.buffers: list[str] = []
        # columns are reduced several vectors at a time
        self.grouped = self.lane_outer and self._is_worth_groups()
        # or all of them, row after row, as they lie in memory
        self.streamed = self.grouped and self._is_worth_streams()
        self.scratch = self._scratch(live)
        self.live = live
        self.body = Body(self)
        self.half = self._needs_half(kernel.steps)

    # -- decisions --------------------------------------------------------------------------------

    def _scratch(self, live: set[str]) -> dict[str, Extent]:
        """Intermediates of full rows (or of the columns of a vector or a group of them) that a
        later pass reads and nobody outside does -> elements."""
        length = extent(self.inner)
        made: dict[str, int] = {}
        result: dict[str, Extent] = {}
        for number, one in enumerate(self.passes):
            for step in [*one.row, *one.full]:
                for name in step.reads:
                    if made.get(name, number) < number and name not in live:
                        result[name] = length
            for step in one.full:
                if self.kernel.role(step) == "full":
                    made[step.target.name] = number
        types = [COMPUTE_TYPES[self.buffer_of[b].dtype] for b in result]
        length = length * self.columns
        long = isinstance(length, int) and length * sum(t.itemsize for t in types) > MAX_SCRATCH
        unknown = self.lane_outer and not isinstance(length, int)
        if long or unknown or self.streamed:
            live.update(result)  # too long for the stack: in memory after all
            return {}
        return dict.fromkeys(result, length)

    @property
    def columns(self) -> int:
        """How many columns are computed together: 1 of a row."""
        return (GROUP if self.grouped else 1) * WIDEST if self.lane_outer else 1

    def _is_worth_groups(self) -> bool:
        """Whether one pass reads columns, or several that are long: each is code of its own."""
        several = bool(self.passes[0].row) or any(one.full for one in self.passes[1:])
        values = sum(len(s.tape.values) for s in self.kernel.steps)
        long = hint(extent(self.inner)) >= costs.LONG_COLUMN and values <= costs.GROUPED_VALUES
        return bool(self.inner) and (not several or long)

    def _is_worth_streams(self) -> bool:
        """Whether what is reduced is beyond the nearest caches: a strip of a few columns would take
        a line of each page, and come back to the page for the next strip."""
        assert self.lane is not None
        columns, rows = hint(self.lane.size), hint(extent(self.inner))
        return (
            len(self.outer) == 1
            and columns >= costs.STREAMED_COLUMNS
            and columns * rows >= costs.STREAMED
        )

    def _needs_half(self, steps: list[Loops]) -> bool:
        """Whether a vector of 64-bit elements occurs."""
        if self.lane is None:
            return False
        for step in steps:
            varying = set()
            for v in step.tape.values:
                if v is narrow_positions(self.kernel, step):
                    continue
                index = v.attr.index if v.op == "load" else v.attr if v.op == "index_expr" else None
                if (index is not None and self.lane in index.variables()) or any(
                    a in varying for a in v.args
                ):
                    varying.add(v)
                    if v.dtype.itemsize == 8:
                        return True
            if step.reduction and step.values[0].dtype.itemsize == 8:
                return True
            at_lane = step.mode or self.lane in step.index.variables()
            if step.target.dtype.itemsize == 8 and at_lane:
                return True
        return False

    # -- names ------------------------------------------------------------------------------------

    def constant(self, value: Extent) -> str:
        """A number in the text: a literal if small, else a parameter shared by equal values."""
        if isinstance(value, Size):
            return self.parameter(value)
        if abs(value) < LITERAL:
            return str(value)
        if value < 0:
            return f"-{self.constant(-value)}"
        return self.parameter(value)

    def parameter(self, value: Extent) -> str:
        if value not in self.constants:
            self.constants.append(value)
        return f"n{self.constants.index(value)}"

    def pointer(self, buffer: str) -> str:
        if buffer not in self.buffers:
            self.buffers.append(buffer)
        return f"p{self.buffers.index(buffer)}"

    def target(self, name: str) -> Buffer:
        return self.buffer_of[name]

    # -- text -------------------------------------------------------------------------------------

    def run(self) -> Emitted:
        strip: Extent = 1
        if self.interleaved is not None:
            lines, total = self._interleaved(self.interleaved)
            strip = 2
        elif self.tile is not None:
            lines, total = self._tiles(self.tile)
            strip = self.lane.size * STRIP if self.lane else 1
        elif not self.rows:
            lines, total = self._pointwise()
        elif self.grouped:
            lines, total = self._column_groups()
        elif self.lane_outer:
            lines, total = self._columns()
        else:
            lines, total = self._rows()
        text = self._function(lines)
        stored = {s.target.name for s in self.kernel.steps}
        per_row = extent(self.inner) if self.rows else strip
        if self.kernel.is_scatter:
            per_row = extent(self.kernel.inner)
        elif self.lane_outer and not self.interleaved and self.tile is None:  # several columns
            per_row = per_row * max(1, hint(extent(self.outer)) // max(1, hint(total)))
        writes = [b for b in self.buffers if b in stored]
        return Emitted(
            text,
            self.constants,
            self.buffers,
            writes,
            total,
            largest(per_row * self._steps(), 1),
            in_place(self.kernel, self.passes, writes),
            self._order(),
            self.kernel,
        )

    def _steps(self) -> int:
        """Of all loops for an element: values and stores, as costs.GRAIN_STEPS counts them."""
        count, alone = 0, self.lane is None
        for step in self.kernel.steps:
            count += 1 + len(step.tape.values)
            for value in step.tape.values:
                work = OPERATIONS[value.op].work if value.op in OPERATIONS else costs.CHEAP
                count += costs.STEPS_OF_WORK * (work - costs.CHEAP)
            loaded = (indirect_values(access.index) for access in step.tape.loads())
            alone = alone or any(loaded)
        return count * (costs.STEPS_ALONE if alone else 1)

    def _order(self) -> list[Var] | None:
        if self.tile is not None or self.lane_outer or self.kernel.is_scatter:
            return None
        return list(self.outer) if self.rows else [*self.outer, *self.inner]

    def _function(self, lines: list[str]) -> str:
        declared = [
            f"  {CPP_TYPES[self.target(b).dtype]}* const p{k} = "
            f"({CPP_TYPES[self.target(b).dtype]}*)P[{k}];"
            for k, b in enumerate(self.buffers)
        ]
        scratch = [
            self._scratch_row(k, CPP_TYPES[COMPUTE_TYPES[self.target(b).dtype]], n)
            for k, (b, n) in enumerate(self.scratch.items())
        ]
        sizes = [f"  const int64_t n{k} = n[{k}];" for k in range(len(self.constants))]
        head = (
            "static __attribute__((noinline)) void FUNCTION"
            "(void* const* P, int64_t begin, int64_t end, const int64_t* n) {"
        )
        vectors = self._vectors()
        using = [f"  using namespace {vectors};"] if self.lane else []
        if vectors == "pairs":
            lines = [line.replace("each_vector<W, 0>(", "each_move(") for line in lines]
        return "\n".join([head, *using, *declared, *sizes, *scratch, *lines, "}"])

    def _vectors(self) -> str:
        """The namespace of the vectors that the function takes."""
        plain = self.moves and not (self.rows or self.kernel.is_scatter or self.tile)
        if plain and self.body.vectors == {torch.int16}:
            return "pairs"
        return "half" if self.half else "wide"

    def _scratch_row(self, number: int, kind: str, length: Extent) -> str:
        if isinstance(length, int):
            return f"  alignas(64) {kind} s{number}[{length}];"
        room = MAX_SCRATCH // len(self.scratch) // 64 * 64  # bytes; longer rows are on the heap
        return f"  Row<{kind}, {room}> row{number}({self.parameter(length)}); " + (
            f"{kind}* const s{number} = row{number}.data;"
        )

    def _decode(self, vars: list[Var], position: str) -> list[str]:
        """The outer variables from the row-major position among them."""
        lines: list[str] = []
        step: Extent = 1
        for v in reversed(vars):
            whole = position if step == 1 else f"{position} / {self.parameter(step)}"
            last = v is vars[0]
            text = whole if last else f"{whole} % {self.parameter(v.size)}"
            lines.append(f"const int64_t {v.name} = {text};")
            step = step * v.size
        return lines

    def _pointwise(self) -> tuple[list[str], Extent]:
        """The range counts elements; a thread's piece may begin and end within a row."""
        row, loop = self._pieces_of_lane() or self._pass(self.passes[0], "j0", "j1")
        total = extent(self.kernel.outer)
        if not self.inner:
            return _indent([*row, *loop]), 1
        if not self.outer:
            head = ["const int64_t j0 = begin, j1 = end;"]
            return _indent([*head, *row, *loop]), total
        width = self.parameter(self.inner[-1].size)
        return self._pieces(width, [*row, *loop]), total

    def _pieces_of_lane(self) -> tuple[list[str], list[str]] | None:
        """As _pass, the loop cut where comparisons of the lane variable change (cuts.py)."""
        whole, steps = self.lane, self.passes[0].full
        if whole is None or self.inner != [whole] or self.passes[0].row:
            return None
        ends = cuts.cuts(steps, whole)
        if not ends:
            return None
        before: list[str] = []
        loops: list[str] = []
        self.half = False
        for low, high in pairwise([0, *ends, whole.size]):
            assert isinstance(low, int) and isinstance(high, int)
            self.lane, parts = cuts.pieces(steps, whole, low, high)
            self.inner = [self.lane]
            self.half = self.half or self._needs_half(parts)
            first = self.constant(low)
            start = f"max(j0, {first}) - {first}" if low else "j0"
            stop = "j1" if high == whole.size else f"min(j1, {self.constant(high)})"
            row, loop = self._pass(Pass(full=parts), start, f"{stop} - {first}" if low else stop)
            before += row
            loops += loop
        self.lane, self.inner = whole, [whole]
        return before, loops

    def _interleaved(self, short: Var) -> tuple[list[str], Extent]:
        """As a pointwise kernel over all variables but `short`, all of whose values are computed
        for each vector."""
        assert self.lane is not None
        body = self.body
        body.begin_pass()
        for step in self.passes[0].full:
            body.step(step)
        row, mid, inside = body.take_row(), body.take_mid(), body.take_body()
        before, after = body.take_tiles()
        lane, width = self.lane.name, self.parameter(self.lane.size)
        loop = [
            f"each_vector<W, 0>(j0, j1, [&](int64_t {lane}, auto lanes, auto) {ALWAYS} {{",
            *_indent([*mid, f"int64_t {short.name} = 0;", *before]),
            *_indent(
                [f"for (; {short.name} < {short.size}; ++{short.name}) {{", *_indent(inside), "}"]
            ),
            *_indent(after),
            "});",
        ]
        return self._pieces(width, [*row, *loop]), extent([*self.outer, self.lane])

    def _pieces(self, width: str, body: list[str]) -> list[str]:
        """`body` for each piece [j0, j1) of rows of `width` elements in [begin, end). Rows are
        counted, since a division takes longer than a short row."""
        first = self._decode(self.outer, "t") if self.outer else []
        lines = [
            f"const int64_t j1 = min({width}, j0 + end - e);",
            *body,
            "e += j1 - j0;",
            "j0 = 0;",
            *self._next(self.outer),
        ]
        return _indent(
            [
                "if (begin >= end) return;",
                f"const int64_t t = begin / {width};",
                f"int64_t j0 = begin - t * {width};",
                *(line.removeprefix("const ") for line in first),
                "for (int64_t e = begin; e < end;) {",
                *_indent(lines),
                "}",
            ]
        )

    def _next(self, vars: list[Var]) -> list[str]:
        """Advance the outer variables to the next row."""
        if len(vars) < 2:
            return [f"++{v.name};" for v in vars]
        last = vars[-1]
        head = f"if (++{last.name} == {self.parameter(last.size)}) {{"
        return [head, *_indent([f"{last.name} = 0;", *self._next(vars[:-1])]), "}"]

    def _tiles(self, tile: Var) -> tuple[list[str], Extent]:
        """The range counts strips, each as wide as STRIP of `tile` and as long as the lane
        variable. In a strip, squares of W by W are loaded, transposed, computed row by row."""
        assert self.lane is not None
        body = self.body
        body.begin_pass()
        for step in self.passes[0].full:
            body.step(step)
        row, mid, inside = body.take_row(), body.take_mid(), body.take_body()
        before, after = body.take_tiles()
        name, strips = tile.name, ceil_div(tile.size, STRIP)
        decode = self._decode(self.outer, f"t / {self.constant(strips)}") if self.outer else []
        strip = f"t % {self.constant(strips)}" if self.outer else "t"
        square = [
            f"const int64_t {name} = {name}_first;",
            *before,
            "for (int64_t q = 0; q < lane_count(across); ++q) {",
            f"  const int64_t {name} = {name}_first + q;",
            *_indent(inside),
            "}",
            *after,
        ]
        lane, length = self.lane.name, self.constant(self.lane.size)
        lines = [
            *decode,
            f"const int64_t first = {strip} * {STRIP}, last = min({self.constant(tile.size)}, "
            f"first + {STRIP});",
            *row,
            f"each_vector<W, {_whole(self.lane.size)}>(0, {length}, "
            f"[&](int64_t {lane}, auto lanes, auto) {ALWAYS} {{",
            *_indent(mid),
            f"  each_vector<W, {_whole(tile.size)}>(first, last, "
            f"[&](int64_t {name}_first, auto across, auto) "
            f"{ALWAYS} {{",
            *_indent(_indent(square)),
            "  });",
            "});",
        ]
        total = extent(self.outer) * strips
        return _indent(["for (int64_t t = begin; t < end; ++t) {", *_indent(lines), "}"]), total

    def _rows(self) -> tuple[list[str], Extent]:
        lines = self._decode(self.outer, "t")
        for one in self.passes:
            row, loop = self._pass(one, "0", None)
            lines += [*row, *loop]
        total = extent(self.outer)
        return _indent(["for (int64_t t = begin; t < end; ++t) {", *_indent(lines), "}"]), total

    def _columns(self) -> tuple[list[str], Extent]:
        """Rows in the lanes: each vector holds W neighbouring rows."""
        assert self.lane is not None
        others, width = self.outer[:-1], self.constant(self.lane.size)
        lanes = 8 if self.half else 16  # of the widest machine; narrower ones take several steps
        lines: list[str] = []
        for one in self.passes:
            row, loop = self._pass(one, "0", None)
            lines += [*row, *loop]
        blocks = ceil_div(self.lane.size, lanes)
        decode = self._decode(others, f"t / {self.constant(blocks)}") if others else []
        block = f"t % {self.constant(blocks)}" if others else "t"
        name = self.lane.name
        body = [
            *decode,
            f"const int64_t first = {block} * {lanes}, last = min({width}, first + {lanes});",
            f"for (int64_t {name} = first; {name} < last; {name} += W) {{",
            f"  one_vector<W, {_whole(self.lane.size)}>(last - {name}, [&](auto lanes) {ALWAYS} {{",
            *_indent(_indent(lines)),
            "  });",
            "}",
        ]
        total = extent(others) * blocks
        return _indent(["for (int64_t t = begin; t < end; ++t) {", *_indent(body), "}"]), total

    def _column_groups(self) -> tuple[list[str], Extent]:
        """Columns as above, GROUP vectors of them at a time: as many independent additions, and
        longer stretches of each row. What a column has outside of its loops is an array over the
        vectors."""
        assert self.lane is not None
        lanes = (8 if self.half else 16) * GROUP  # of the widest machine
        if hint(self.lane.size) < 2 * torch.get_num_threads() * lanes and len(self.outer) == 1:
            lanes //= GROUP  # rather more threads than longer stretches
        blocks = ceil_div(self.lane.size, lanes)
        width, loops = self.constant(self.lane.size), self._group_loops()
        if self.streamed:
            text = [
                f"const int64_t high = min({width}, end * {lanes});",
                f"for (int64_t first = begin * {lanes}; first < high; first += {costs.STREAM}) {{",
                f"  const int64_t last = min(high, first + {costs.STREAM});",
                f"  constexpr int N = {costs.STREAM} / W;",
                *_indent(loops),
                "}",
            ]
            return _indent(text), blocks
        others = self.outer[:-1]
        decode = self._decode(others, f"t / {self.constant(blocks)}") if others else []
        block = f"t % {self.constant(blocks)}" if others else "t"
        text = [
            *decode,
            f"const int64_t low = {block} * {lanes}, high = min({width}, low + {lanes});",
            f"each_group<W, {_whole(self.lane.size, lanes // 16)}>(low, high, "
            f"[&](int64_t first, auto vectors, auto lanes) {ALWAYS} {{",
            "  constexpr int N = decltype(vectors)::value;",
            *_indent(loops),
            "});",
        ]
        total = extent(others) * blocks
        return _indent(["for (int64_t t = begin; t < end; ++t) {", *_indent(text), "}"]), total

    def _group_loops(self) -> list[str]:
        assert self.lane is not None
        body, name = self.body, self.lane.name
        whole = _whole(self.lane.size)

        def group(lines: list[str]) -> list[str]:
            each = f"in_group<W, N>(first, [&](int64_t {name}, auto u) {ALWAYS} {{"
            if self.streamed:
                each = (
                    f"each_column<W, {whole}>(first, last, "
                    f"[&](int64_t {name}, int u, auto lanes) {ALWAYS} {{"
                )
            return [each, *_indent(lines), "});"] if lines else []

        loops: list[str] = []
        for one in self.passes:
            body.begin_pass()
            self.unroll, self.two_level = False, self._two_level(one)
            for step in [*one.row, *one.full]:
                body.step(step)
            row, inside = body.take_row(), [*body.take_mid(), *body.take_body()]
            opened, closed = body.take_inner_accumulators()
            declared, after = body.take_declarations(), body.take_after()
            nest = self._nest(group(inside), opened, closed) if one.full else []
            loops += [*declared, *group(row), *nest, *group(after)]
        return loops

    def _nest(self, inside: list[str], opened: list[str], closed: list[str]) -> list[str]:
        """Scalar loops over the inner variables, the innermost cut into chunks where sums are."""
        last, stop = self.inner[-1], self.constant(self.inner[-1].size)
        chunked = self.two_level and not known_le(last.size, CHUNK)
        start, end = ("c", f"min(c + {CHUNK}, {stop})") if chunked else ("0", stop)
        lines = [*opened, *_for(last.name, start, end, inside), *closed]
        if chunked:
            head = f"for (int64_t c = 0; c < {stop}; c += {CHUNK}) {{"
            lines = [head, *_indent(lines), "}"]
        for v in reversed(self.inner[:-1]):
            lines = _for(v.name, "0", self.constant(v.size), lines)
        return lines

    def _pass(self, one: Pass, low: str, high: str | None) -> tuple[list[str], list[str]]:
        """(lines before, lines of the loop) of one pass over a row."""
        body = self.body
        body.begin_pass()
        for step in one.row:
            body.step(step)
        self.unroll = self._unrolls(one)
        self.two_level = self._two_level(one)
        for step in one.full:
            body.step(step)
        row = body.take_row()
        if not one.full:
            return row, body.take_after()
        return row, self._loop(low, high)

    def _unrolls(self, one: Pass) -> bool:
        return (
            self.lane is not None
            and bool(self.inner)
            and self.lane is self.inner[-1]
            and hint(self.lane.size) >= 128
            and all(s.reduction for s in one.full)
            and not any(s.reduction.startswith("arg") for s in one.full if s.reduction)
            and sum(len(s.tape.values) for s in one.full) <= UNROLL_VALUES
        )

    def _two_level(self, one: Pass) -> bool:
        """Whether sums are taken per stretch and then added, which keeps rounding errors small."""
        sums = any(s.reduction == "sum" and s.values[0].dtype.is_floating_point for s in one.full)
        lanes = 1 if self.lane_outer or self.lane is None else 64 if self.unroll else 16
        return sums and (
            len(self.inner) > 1
            or (bool(self.inner) and not known_le(self.inner[-1].size, CHUNK * lanes // 16))
        )

    def _loop(self, low: str, high: str | None) -> list[str]:
        body = self.body
        mid, inside = body.take_mid(), body.take_body()
        opened, closed = body.take_inner_accumulators()
        after = body.take_after()
        if not self.inner:
            return [*body.take_declarations(), *mid, *inside, *after]
        last = self.inner[-1]
        stop = high if high is not None else self.constant(last.size)
        chunked = self.two_level and not known_le(last.size, CHUNK)
        start, end = (("c", f"min(c + {CHUNK}, {stop})")) if chunked else (low, stop)
        if self.lane is last:
            each = "each_vector4" if self.unroll else "each_vector"
            whole = 0 if high is not None else _whole(last.size, 4)
            lines = [
                f"{each}<W, {whole}>({start}, {end}, "
                f"[&](int64_t {last.name}, auto lanes, auto u) __attribute__((always_inline)) {{",
                *_indent(inside),
                "});",
            ]
        else:
            lines = _for(last.name, start, end, inside)
        lines = [*opened, *lines, *closed]
        if chunked:
            lines = [
                f"for (int64_t c = {low}; c < {stop}; c += {CHUNK}) {{",
                *_indent(lines),
                "}",
            ]
        lines = [*mid, *lines]
        for v in reversed(self.inner[:-1]):
            lines = _for(v.name, "0", self.constant(v.size), lines)
        return [*body.take_declarations(), *lines, *after]


def _wanted(step: Loops) -> list[Value]:
    return [*step.values, *indirect_values(step.index)]


def _whole(size: Extent, most: int = 1) -> int:
    """The argument WHOLE of loops over `size` lanes (vec.h): up to `most` vectors."""
    if not isinstance(size, int):
        return 0
    return next((n for n in (4, 1) if n <= most and size % (n * WIDEST) == 0), 0)


def _for(name: str, start: str, end: str, lines: list[str]) -> list[str]:
    head = f"for (int64_t {name} = {start}; {name} < {end}; ++{name}) {{"
    return [head, *_indent(lines), "}"]


def _indent(lines: list[str]) -> list[str]:
    return ["  " + line for line in lines]


__all__ = ["Emitted", "emit"]
