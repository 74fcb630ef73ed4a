"""Triton for matrix products: one template, and in it the kernel that reads the result.

A program computes a tile of rows x and columns r of one matrix z, in float32, or in int32 of int8.
Neighbouring programs compute tiles of neighbouring rows, GROUP of them before the next column, so
that their operands are in the device's cache. Then it runs the pointwise kernel that reads the
product, whose loops are written in x, r and z; the product itself is stored only if others read it.

Elements outside of the operands are 0 in a tile: rows and columns of them are not stored, and
elements beyond `inner` meet 0 in both operands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from fxgraph.sizes import Extent, ceil_div, contiguous_strides, exact, hint, product
from inductor.codegen.triton_body import ROWS, SCALAR, Pass, Term, spread
from inductor.codegen.triton_loops import PROGRAM, Emitter, TritonKernel, power_of_two
from inductor.codegen.triton_ops import type_name
from inductor.devices import BANDWIDTH, EMPTY, TENSOR, VECTOR, Device
from inductor.index import ZERO, Index
from inductor.ir import Buffer, DeviceProduct, Operand
from inductor.schedule.fusion import Kernel, ProductKernel

GROUP = 8


@dataclass(frozen=True)
class Tiles:
    """Of a product: rows and columns of the result, elements of the sums in one iteration."""

    rows: int
    columns: int
    inner: int
    warps: int
    stages: int
    way: str = ""  # of triton_product_ways.py, chosen by measuring alone

    def shared(self, itemsize: int) -> int:
        """Bytes of shared memory that the operands' tiles take."""
        return self.stages * (self.rows + self.columns) * self.inner * itemsize


# At most 64 sums for each thread: with 128, and a kernel that follows, registers spill. For
# operands of 2 bytes; those of 4 take half as many elements in one iteration, and none more than
# there are.
CONFIGURATIONS = (
    Tiles(128, 128, 64, 8, 3),
    Tiles(128, 64, 64, 4, 3),
    Tiles(64, 128, 64, 4, 3),
    Tiles(64, 64, 64, 4, 4),
    Tiles(128, 32, 64, 4, 4),
    Tiles(32, 128, 64, 4, 4),
    Tiles(64, 32, 64, 4, 5),
    Tiles(32, 64, 64, 4, 5),
    Tiles(32, 32, 64, 4, 5),
    Tiles(16, 64, 128, 4, 4),
    Tiles(64, 16, 128, 4, 4),
    Tiles(16, 32, 128, 4, 5),
    Tiles(16, 16, 128, 2, 5),
)
# Of products outside of tensor cores: elements of a tile that registers hold.
LARGEST_EXACT = 64 * 64
# --- the cost model -------------------------------------------------------------------------------
# Shares of a multiprocessor's peak that a tile reaches, by its elements: a smaller one reads more
# for each operation. The library's kernels are faster than ours of the same tiles: by so much
# outside of tensor cores, in them by `Device.ahead`.
_SHARES = ((128 * 256, 1.0), (128 * 128, 0.9), (128 * 64, 0.7), (64 * 64, 0.5), (32 * 64, 0.3))
_LEAST_SHARE = 0.15
LIBRARY_AHEAD_EXACT = 1.6
CACHE = 2.5  # bandwidth of the device's cache, in that of its memory
# Operations that an element of a kernel behind a product costs, where they are not 1. Nothing
# overlaps them: in a kernel of its own they wait for memory anyway. Measured on an H200 (bfloat16,
# 2048x768x3072): 38 us with a gelu of tanh in the template; 17 of the library, and 11 of a kernel.
_COSTS = (
    dict.fromkeys(("load", "constant", "index_expr", "set"), 0)
    | dict.fromkeys(
        ("tanh", "erf", "exp", "expm1", "log", "log1p", "sin", "cos", "pow", "sigmoid"), 20
    )
    | dict.fromkeys(("div", "sqrt", "rsqrt", "reciprocal"), 8)
)
Sizes = tuple[Extent, Extent, Extent, Extent]


def configurations(size: Sizes, dtype: torch.dtype, precision: str, device: Device) -> list[Tiles]:
    """The tiles that fit the device, the cheapest by the model first."""
    least = max(32 // dtype.itemsize, 16, power_of_two(hint(size[2])))
    exactly = is_exact(dtype, precision)
    fitting = {}
    for tiles in CONFIGURATIONS:
        if exactly and tiles.rows * tiles.columns > LARGEST_EXACT:
            continue
        inner = min(tiles.inner * 2 // dtype.itemsize, least, 32 if exactly else 128)
        tiles = replace(tiles, inner=inner)
        if tiles.shared(dtype.itemsize) <= device.shared:
            fitting[tiles] = seconds(size, dtype, precision, tiles, device)
    _, rows, _, columns = map(hint, size)

    def order(tiles: Tiles) -> tuple[float, int]:
        """A key that prefers, among equally fast tiles, those that compute least beside the
        result.
        """
        padded = -(-rows // tiles.rows) * tiles.rows * -(-columns // tiles.columns) * tiles.columns
        return fitting[tiles], padded

    return sorted(fitting, key=order)


def best_seconds(size: Sizes, dtype: torch.dtype, precision: str, device: Device) -> float:
    best = configurations(size, dtype, precision, device)
    return seconds(size, dtype, precision, best[0], device)


def is_exact(dtype: torch.dtype, precision: str) -> bool:
    """Whether products are computed outside of tensor cores."""
    return dtype == torch.float32 and precision == "ieee"


def seconds(size: Sizes, dtype: torch.dtype, precision: str, tiles: Tiles, device: Device) -> float:
    """A product by the template, its operands read and nothing else fused."""
    batch, rows, inner, columns = map(hint, size)
    count = batch * -(-rows // tiles.rows) * -(-columns // tiles.columns)
    turns = -(-inner // tiles.inner)
    area = tiles.rows * tiles.columns
    peak = device.tensor[str(dtype).removeprefix("torch.")] * TENSOR
    share = next((share for least, share in _SHARES if area >= least), _LEAST_SHARE)
    if is_exact(dtype, precision):
        peak, share = device.vector * VECTOR, 1.0
    waves = -(-count // device.units)
    computing = waves * 2 * area * tiles.inner * turns * device.units / (peak * share)
    # Bytes read: by all programs from the cache, the operands once from memory.
    reading = (tiles.rows + tiles.columns) * tiles.inner * turns * dtype.itemsize
    alone = device.bandwidth * BANDWIDTH * CACHE / device.units
    moved = (rows * inner + inner * columns + rows * columns) * batch * dtype.itemsize
    return max(EMPTY, computing, waves * reading / alone, moved / (device.bandwidth * BANDWIDTH))


def library_seconds(size: Sizes, dtype: torch.dtype, precision: str, device: Device) -> float:
    """The same by the library: the best of all tiles, and of sums split over programs."""
    batch, rows, inner, columns = map(hint, size)
    ahead = LIBRARY_AHEAD_EXACT if is_exact(dtype, precision) else device.ahead
    largest = Tiles(128, 256, 64, 8, 3)
    found = []
    for parts in (1, 2, 4, 8, 16):
        split = (batch * parts, rows, max(1, inner // parts), columns)
        adding = 0.0 if parts == 1 else device.seconds(8 * parts * batch * rows * columns)
        best = min(
            best_seconds(split, dtype, precision, device),
            seconds(split, dtype, precision, largest, device),
        )
        found.append(best / ahead + adding)
    return max(EMPTY, min(found))


def following_seconds(step: DeviceProduct, reader: Kernel, device: Device) -> float:
    """Of a kernel that runs behind each tile of the template, its operations alone."""
    tiles = configurations(step.size, step.dtype, step.precision, device)[0]
    batch, rows, _, columns = map(hint, step.size)
    count = batch * -(-rows // tiles.rows) * -(-columns // tiles.columns)
    elements = -(-count // device.units) * device.units * tiles.rows * tiles.columns
    costs = sum(_COSTS.get(v.op, 1) for one in reader.steps for v in one.tape.values)
    return costs * elements / (device.vector * VECTOR)


# --- which kernel may follow ----------------------------------------------------------------------


def follows(step: DeviceProduct, reader: Kernel | None) -> dict[Any, Index] | None:
    """A kernel's loop variables in terms of the product's, if each iteration reads one element of
    the result, and each element is read once; None for other kernels.
    """
    if reader is None or reader.is_rows or reader.is_scatter:
        return None
    found = {index for s in reader.steps for index in s.reads.get(step.target.name, ())}
    if len(found) != 1 or step.target.name in reader.writes():
        return None
    (index,) = found
    moving = [v for v in reader.outer if v.size != 1]
    if not index.is_affine() or index.const != 0 or set(index.terms) != set(moving):
        return None
    order = sorted(moving, key=lambda v: -hint(index.terms[v]))
    sizes = [v.size for v in order]
    if product(sizes) != product(step.target.size):
        return None
    strides = contiguous_strides(sizes)
    if any(index.terms[v] != stride for v, stride in zip(order, strides, strict=True)):
        return None
    whole = position(step)
    meaning: dict[Any, Index] = {v: ZERO for v in reader.outer if v.size == 1}
    for v, stride in zip(order, strides, strict=True):
        place = whole // stride
        meaning[v] = place % v.size if v is not order[0] else place
    return meaning


def position(step: DeviceProduct) -> Index:
    """Where the result's element (z, x, r) is."""
    _, rows, _, columns = step.size
    z, x, r = step.place
    return z * (rows * columns) + x * columns + r


# --- text -----------------------------------------------------------------------------------------


class ProductEmitter(Emitter):
    """A product, and the kernel that reads it if `follows` holds. kept: the product is stored."""

    top = "down * XBLOCK"  # the first row of a tile

    def __init__(
        self,
        item: ProductKernel,
        buffers: Mapping[str, Buffer],
        name: str,
        local: frozenset[str],
        tiles: Tiles,
        kept: bool,
    ) -> None:
        assert isinstance(item.step, DeviceProduct)
        self.step = item.step
        self.kernel = item.reader or Kernel(item.id, [], [])
        self.buffers, self.name, self.local = buffers, name, local
        self.program = PROGRAM
        found = follows(item.step, item.reader)
        assert found is not None or item.reader is None
        self._meaning = found or {}
        self.tiles = tiles
        self.kept = kept or item.reader is None
        indices = [i for s in self.kernel.steps for i in (*s.tape.indices(), s.index)]
        operands = [i for o in self.step.operands for i in o.tape.indices()]
        self.wide = self._needs_int64([*indices, *operands])
        self.written = {*self.kernel.writes(), self.step.target.name}
        self.args, self.sizes, self.lines = [], [], []
        batch, rows, inner, columns = self.step.size
        self.extents = {"x": rows, "r": columns, "ka": inner, "kb": inner}
        self.constants = {"XBLOCK": tiles.rows, "RBLOCK": tiles.columns, "KBLOCK": tiles.inner}
        self.num_warps = tiles.warps
        down, across = ceil_div(rows, tiles.rows), ceil_div(columns, tiles.columns)
        self.programs = batch * down * across

    def _reach(self) -> Extent:
        batch, rows, inner, columns = self.step.size
        return product([batch, rows, columns]) + inner

    def mask(self, axis: str) -> str | None:
        block = {"x": "XBLOCK", "r": "RBLOCK"}.get(axis, "KBLOCK")
        size = self.extents[axis]
        fits = size != 0 and exact(size, self.constants[block]) is not None
        return None if fits else f"{axis}mask"

    def meaning(self, v: Any) -> Index | None:
        return self._meaning.get(v)

    def emit(self) -> TritonKernel:
        lines = [*self.tile(self.program), self.zeros(), *self.turns(), *self.results()]
        return self.made(self._text_of(lines), self.tiles.stages)

    def tile(self, program: str) -> list[str]:
        """Lines that compute where a program's tile is."""
        lines = [*self._place(program), *self._range("x", f"{self.top} + ", "[:, None]")]
        return [*lines, *self._range("r", "across * RBLOCK + ", "[None, :]")]

    def zeros(self) -> str:
        return f"sums = tl.zeros([XBLOCK, RBLOCK], {type_name(self.step.sums)})"

    def turns(self, start: str = "0", stop: str = "") -> list[str]:
        """The loop over k that adds up a tile."""
        lines = [*self.operands(), f'sums = fg.dot(a, b, sums, "{self.step.precision}")']
        stop = stop or self.number(self.step.size[2])
        return [f"for k in range({start}, {stop}, KBLOCK):", *indented(lines)]

    def operands(self) -> list[str]:
        """Lines that load the operands' tiles of one turn, a and b."""
        a = self._operand(self.step.a, Pass(self, _A, "a", zeros=True))
        b = self._operand(self.step.b, Pass(self, _B, "b", zeros=True))
        lines = [*self._range("ka", "k + ", "[None, :]"), *self._range("kb", "k + ", "[:, None]")]
        return [*lines, *a, *b]

    def results(self) -> list[str]:
        """Lines that store the product and run the kernel that reads it."""
        step = self.step
        body = Pass(self, ROWS, "")
        result = self._scaled(body)
        for reading in self.kernel.steps:
            for index in reading.reads.get(step.target.name, ()):
                body.known[step.target.name, index] = result
        if self.kept:
            rounds = step.target.dtype != step.sums
            body.store(step.target, position(step), result, body.axes, rounds)
        for reading in self.kernel.steps:
            body.run(reading)
        return body.take_lines()

    def _place(self, program: str) -> list[str]:
        batch, rows, _, columns = self.step.size
        number = self.number
        lines = [
            f"pid = {program}" + (".to(tl.int64)" if self.wide else ""),
            f"tall = tl.cdiv({number(rows)}, {self.tiles.rows})",
            f"wide = tl.cdiv({number(columns)}, RBLOCK)",
        ]
        if batch != 1:
            lines += [f"{SCALAR} = pid // (tall * wide)", "pid = pid % (tall * wide)"]
        return [
            *lines,
            f"top = pid // ({GROUP} * wide) * {GROUP}",
            f"height = tl.minimum(tall - top, {GROUP})",
            f"down = top + pid % ({GROUP} * wide) % height",
            f"across = pid % ({GROUP} * wide) // height",
        ]

    def _range(self, axis: str, start: str, shape: str) -> list[str]:
        block = {"x": "XBLOCK", "r": "RBLOCK"}.get(axis, "KBLOCK")
        cast = ".to(tl.int64)" if self.wide else ""
        lines = [f"{axis} = {start}tl.arange(0, {block}){shape}{cast}"]
        if self.mask(axis):
            lines.append(f"{axis}mask = {axis} < {self.number(self.extents[axis])}")
        return lines

    def _operand(self, operand: Operand, body: Pass) -> list[str]:
        """Lines that bind a tile of an operand to its name, the prefix of the pass."""
        name, dtype = body.prefix, self.step.dtype
        value = operand.value
        if value.op == "load" and self.buffers[value.attr.buffer].dtype == dtype:
            pointer, axes = body.pointer(value.attr.buffer, value.attr.index, body.axes)
            zero = "0.0" if dtype.itemsize == 1 and dtype.is_floating_point else "0"
            return [f"{name} = tl.load({pointer}{body.mask_argument(axes, other=zero)})"]
        term = body.compute(operand.tape, [value])[0]
        text = f"{spread(body, term.text, term.axes)}.to({type_name(dtype)})"
        return [*body.take_lines(), f"{name} = {text}"]

    def _scaled(self, body: Pass) -> Term:
        step = self.step
        alpha, beta = step.scales
        result = Term("sums", frozenset(body.axes))
        for factor in step.factors:
            term = body.compute(factor.tape, [factor.value])[0]
            result = body.bind(f"{result.text} * {term.text}", body.axes)
        if alpha != 1:
            result = body.bind(f"{result.text} * {alpha!r}", body.axes)
        if step.bias is None:
            return result
        term = body.compute(step.bias.tape, [step.bias.value])[0]
        text = f"{term.text}.to(tl.float32)"
        scaled = text if beta == 1 else f"{text} * {beta!r}"
        return body.bind(f"{result.text} + {scaled}", body.axes)


def indented(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]


_A = (("x", "XBLOCK"), ("ka", "KBLOCK"))
_B = (("kb", "KBLOCK"), ("r", "RBLOCK"))
