"""Other ways through the template of products, that `max-autotune` measures beside the plain one:
no model chooses them.

shares        Stream-K. Tiles of a last wave that would leave multiprocessors idle are summed by all
              of these, each an equal share of the iterations; a second kernel adds the parts of
              each tile up, in their order, and runs the kernel that reads the product.
described     One program for each multiprocessor, with tile after tile; operands are copied by
              descriptors (TMA). Where an address is no multiple of 16, they are loaded as usual.
specialized   The same, with copies and products in warps of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from fxgraph.sizes import is_symbolic
from inductor.codegen.triton_loops import TritonKernel
from inductor.codegen.triton_products import ProductEmitter, Tiles, indented, is_exact
from inductor.devices import Device
from inductor.ir import Buffer, DeviceProduct, Operand
from inductor.schedule.fusion import ProductKernel

MOST_TILES = 2  # of the plain way, the best by the model, that other ways are tried with
LEAST_SHARE = 256  # elements of the sums
PIECES = 8  # of a tile, each added up by a program
DESCRIPTOR = 128  # bytes
GROUP_OF_WARPS = 4  # that has its own registers; Triton compiles no fewer with others beside them


def ways(step: DeviceProduct, plain: Sequence[Tiles], device: Device) -> list[Tiles]:
    """Tiles with other ways that can compute the product."""
    if is_symbolic(step.size):
        return []
    found = []
    for tiles in plain[:MOST_TILES]:
        if Shares.of(step, tiles, device) is not None:
            found.append(replace(tiles, way="shares"))
        if device.descriptors and not is_exact(step.dtype, step.precision) and all(_matrices(step)):
            found.append(replace(tiles, way="described"))
            if tiles.warps >= GROUP_OF_WARPS:
                found.append(replace(tiles, way="specialized"))
    return found


def emit(
    item: ProductKernel, buffers: Mapping[str, Buffer], name: str, local: frozenset[str],
    tiles: Tiles, kept: bool, device: Device,
) -> tuple[TritonKernel, ...]:  # fmt: skip
    """The kernels of a product, which are launched one after another."""
    about = (name, local, tiles, kept)
    if not tiles.way:
        return (ProductEmitter(item, buffers, *about).emit(),)
    step = item.step
    assert isinstance(step, DeviceProduct)
    if tiles.way != "shares":
        programs = min(device.units, _count(step, tiles))
        space = _space(step, f"{name}_scratch", 2 * DESCRIPTOR * programs, torch.uint8)
        return (_Described(item, buffers, *about).emitted(programs, space),)
    shares = Shares.of(step, tiles, device)
    assert shares is not None
    area = tiles.rows * tiles.columns
    space = _space(step, f"{name}_parts", 2 * shares.programs * area, step.sums)
    buffers = {**buffers, space.name: space}
    alone = item if shares.whole else replace(item, reader=None)
    first = _Sharing(alone, buffers, *about).emitted(shares, space)
    after = _Adding(item, buffers, f"{name}_sums", *about[1:]).emitted(shares, space)
    return first, after


def _space(step: DeviceProduct, name: str, count: int, dtype: torch.dtype) -> Buffer:
    return Buffer(name, dtype, (count,), (1,), step.target.device, "temp")


def _count(step: DeviceProduct, tiles: Tiles) -> int:
    """How many tiles the result has."""
    batch, rows, _, columns = map(int, step.size)  # type: ignore[arg-type]
    return batch * -(-rows // tiles.rows) * -(-columns // tiles.columns)


# --- stream-K -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shares:
    """The first `whole` of the tiles have a program each. The others, `rest`, have `turns`
    iterations each, of which each of `programs` takes `each`: of one tile, or of two neighbours.
    """

    whole: int
    rest: int
    turns: int
    programs: int
    each: int

    @classmethod
    def of(cls, step: DeviceProduct, tiles: Tiles, device: Device) -> Shares | None:
        """None where no multiprocessor would be idle, or sums are too short to share."""
        count, turns = _count(step, tiles), -(-int(step.size[2]) // tiles.inner)  # type: ignore[arg-type]
        rest = count % device.units
        least = max(1, LEAST_SHARE // tiles.inner)
        programs = min(device.units, rest * turns // least)
        if programs <= rest:
            return None
        each = -(-rest * turns // programs)
        if each == turns:
            return None
        return cls(count - rest, rest, turns, -(-rest * turns // each), each)


class _Sharing(ProductEmitter):
    def emitted(self, shares: Shares, space: Buffer) -> TritonKernel:
        tile = self.tile(f"({shares.whole} + number)")
        turns = self.turns("start * KBLOCK", "stop * KBLOCK")
        lines = [
            f"share = {self.program}",
            f"at = share * {shares.each}",
            f"end = tl.minimum(at + {shares.each}, {shares.rest * shares.turns})",
            "for part in range(0, 2):",
            f"    number = at // {shares.turns}",
            f"    start = at - number * {shares.turns}",
            f"    stop = tl.minimum(end - number * {shares.turns}, {shares.turns})",
            "    if start < stop:",
            *indented(indented([*tile, self.zeros(), *turns])),
            f"        tl.store({_slot(self, space)} + {_LANES}, sums)",
            f"    at = number * {shares.turns} + stop",
        ]
        if shares.whole:
            plain = [*self.tile(f"(share - {shares.programs})"), self.zeros(), *self.turns()]
            inside = [lines[0], f"if share < {shares.programs}:", *indented(lines[1:])]
            lines = [*inside, "else:", *indented([*plain, *self.results()])]
        self.written = {space.name, *(self.written if shares.whole else ())}
        self.programs = shares.programs + shares.whole
        made = self.made(self._text_of(lines), self.tiles.stages)
        made.space = space
        return made


class _Adding(ProductEmitter):
    def __init__(self, *about: Any) -> None:
        super().__init__(*about)
        rows = max(1, self.tiles.rows // PIECES)
        self.pieces = self.tiles.rows // rows
        self.constants = {"XBLOCK": rows, "RBLOCK": self.tiles.columns}
        self.top = f"down * {self.tiles.rows} + piece * XBLOCK"

    def mask(self, axis: str) -> str | None:
        whole = axis != "x" or self.extents["x"] % self.tiles.rows == 0  # type: ignore[operator]
        return super().mask(axis) if whole else "xmask"

    def emitted(self, shares: Shares, space: Buffer) -> TritonKernel:
        turns, each = shares.turns, shares.each
        lines = [
            f"number = {self.program} // {self.pieces}",
            f"piece = {self.program} % {self.pieces}",
            self.zeros(),
            f"first = number * {turns} // {each}",
            f"last = (number * {turns} + {turns - 1}) // {each}",
            "for share in range(first, last + 1):",
            f"    part = number - share * {each} // {turns}",
            f"    sums += tl.load({_slot(self, space)} + piece * XBLOCK * RBLOCK + {_LANES})",
            *self.tile(f"({shares.whole} + number)"),
            *self.results(),
        ]
        self.programs = shares.rest * self.pieces
        return self.made(self._text_of(lines))


_LANES = "tl.arange(0, XBLOCK)[:, None] * RBLOCK + tl.arange(0, RBLOCK)[None, :]"


def _slot(emitter: ProductEmitter, space: Buffer) -> str:
    """Where a share's part of the sums is."""
    area = emitter.tiles.rows * emitter.tiles.columns
    return f"{emitter.parameter(space.name)} + (2 * share + part) * {area}"


# --- descriptors ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Matrix:
    """An operand that a descriptor can tell of: its rows, or those of its transpose (`turned`), lie
    in memory one after another, each at a multiple of 16 bytes."""

    buffer: str
    offset: int
    stride: int
    turned: bool


def _matrices(step: DeviceProduct) -> tuple[Matrix | None, Matrix | None]:
    return _matrix(step.a, "x", "ka", step.dtype), _matrix(step.b, "kb", "r", step.dtype)


def _matrix(operand: Operand, outer: str, inner: str, dtype: torch.dtype) -> Matrix | None:
    value = operand.value
    if value.op != "load" or value.attr.masked or len(operand.tape.values) != 1:
        return None
    index = value.attr.index
    if not index.is_affine():
        return None
    strides = {v.name: step for v, step in index.terms.items()}
    if set(strides) != {outer, inner} or not isinstance(index.const, int):
        return None
    if 1 not in strides.values():
        return None
    turned = strides[inner] != 1
    stride = strides[outer if not turned else inner]
    far = isinstance(stride, int) and stride > 0 and stride * dtype.itemsize % 16 == 0
    if not far or index.const * dtype.itemsize % 16:
        return None
    return Matrix(value.attr.buffer, index.const, int(stride), turned)


class _Described(ProductEmitter):
    def emitted(self, programs: int, space: Buffer) -> TritonKernel:
        self.constants["DESCRIBED"] = 1
        a, b = _matrices(self.step)
        assert a is not None and b is not None
        _, rows, inner, columns = self.step.size
        down, across = "down * XBLOCK", "across * RBLOCK"
        if self.wide:  # positions in a matrix are of 32 bits
            down, across = (f"({text}).to(tl.int32)" for text in (down, across))
        described, loads = [], []
        for name, one, sizes, blocks, places in (
            ("a", a, (rows, inner), ("XBLOCK", "KBLOCK"), (down, "k")),
            ("b", b, (inner, columns), ("KBLOCK", "RBLOCK"), ("k", across)),
        ):
            order = (1, 0) if one.turned else (0, 1)
            size, block, place = (
                ", ".join(str(part[k]) for k in order) for part in (sizes, blocks, places)
            )
            start = self.parameter(one.buffer) + (f" + {one.offset}" if one.offset else "")
            described.append(
                f"{name}_tiles = tl.make_tensor_descriptor("
                f"{start}, [{size}], [{one.stride}, 1], [{block}])"
            )
            loads.append(f"{name} = {name}_tiles.load([{place}])" + (".T" if one.turned else ""))
        flags = "flatten=True"
        if self.tiles.way == "specialized":  # of copies alone; loads are not taken apart
            flags = "flatten=DESCRIBED == 0, warp_specialize=DESCRIBED == 1"
        count = _count(self.step, self.tiles)
        turn = [
            "if DESCRIBED:",
            *indented(loads),
            "else:",
            *indented(self.operands()),
            f'sums = fg.dot(a, b, sums, "{self.step.precision}")',
        ]
        body = [
            *self.tile("number"),
            self.zeros(),
            f"for k in range(0, {self.number(inner)}, KBLOCK):",
            *indented(turn),
            *self.results(),
        ]
        lines = [
            "if DESCRIBED:",
            *indented(described),
            f"for number in tl.range({self.program}, {count}, {programs}, {flags}):",
            *indented(body),
        ]
        self.programs = programs
        made = self.made(self._text_of(lines), self.tiles.stages)
        made.careful, made.scratch, made.space = {"DESCRIBED": 0}, 2 * DESCRIPTOR, space
        return made


__all__ = ["emit", "ways"]
