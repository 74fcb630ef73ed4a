"""Body of a Triton kernel's pass over a tile of elements: loop bodies as lines of text, addresses
and masks, and reductions of rows.

The emitter, of triton_loops.py or triton_products.py, gives a pass the names of its kernel: masks,
sizes that are arguments, buffers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fxgraph.sizes import Undecided, largest
from inductor.codegen.triton_ops import (
    COMBINE,
    LARGEST,
    NoTriton,
    constant,
    convert,
    finish_rows,
    neutral,
    operation,
    type_name,
)
from inductor.index import Index, Indirect, Mod, Var
from inductor.ir import Buffer, Loops
from inductor.ops import Access, Tape, Value, fits_in_32_bits

# --- one pass over the elements
# ---------------------------------------------------------------------

# The axes of a tile and the extents of them.
FLAT = (("x", "XBLOCK"),)
ROWS = (("x", "XBLOCK"), ("r", "RBLOCK"))
SCALAR = "z"  # a variable that has one value in a program
# The device's atomic updates: mode and bytes. Maxima of floats would lose NaN.
ATOMIC = {("add", 4), ("add", 8)}


@dataclass
class Term:
    """A Triton expression's name and the axes that it varies along."""

    text: str
    axes: frozenset[str]


class Pass:
    """Lines that compute steps over one tile, and the values of buffers made in it. zeros: loads
    are of whole tiles, 0 outside of the tensor."""

    def __init__(
        self, emitter: Any, tile: tuple[tuple[str, str], ...], prefix: str, zeros: bool = False
    ) -> None:
        self.emitter = emitter
        self.tile = tile
        self.axes = tuple(axis for axis, _ in tile)
        self.prefix = prefix
        self.zeros = zeros
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
        """Compute a step, and store the result if anything outside reads it."""
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
        return self.compute(step.tape, step.values)

    def compute(self, tape: Tape, values: Sequence[Value]) -> list[Term]:
        self.values = {}
        for value in tape.values:
            args = [self.values[a] for a in value.args]
            self.values[value] = self._value(value, args)
        return [self.values[v] for v in values]

    def keep(self, step: Loops, result: Term, store: bool = True) -> None:
        """Remember a step's result for later steps, and store it."""
        name = step.target.name
        self.known[name, step.index] = result
        if name in self.emitter.local or not store:
            return
        full = self.emitter.kernel.role(step) == "full"
        rounds = step.target.dtype != step.values[0].dtype
        self.store(step.target, step.index, result, self.axes if full else self.axes[:1], rounds)

    def store(
        self, target: Buffer, index: Index, result: Term, least: Collection[str], rounds: bool
    ) -> None:
        """Store a term at the index, over at least these axes. rounds: to the target's type."""
        pointer, axes = self.pointer(target.name, index, least)
        value = f"{result.text}.to({type_name(target.dtype)})" if rounds else result.text
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
        if len(self.tile) == 1:
            return f"[{self.tile[0][1]}]"
        return f"[{', '.join(block if axis in axes else '1' for axis, block in self.tile)}]"

    def mask_argument(
        self, axes: Collection[str], extra: str | None = None, other: str = ""
    ) -> str:
        masks = [m for a in self.axes if a in axes and (m := self.emitter.mask(a))]
        masks += [extra] if extra else []
        if not masks:
            return ""
        return f", mask={' & '.join(masks)}" + (f", other={other}" if other else "")

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
            if atom.name != SCALAR:
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
                narrow = value.dtype == torch.int32 and self.emitter.wide
                if narrow and not fits_in_32_bits(value.attr):
                    text = f"tl.minimum(tl.maximum({text}, -(1 << 30)), 1 << 30)"
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
        least = self.axes if self.zeros else mask.axes if mask else ()
        pointer, axes = self.pointer(access.buffer, access.index, least)
        zeros = self.zeros or mask is not None
        arguments = self.mask_argument(axes, mask.text if mask else None, "0" if zeros else "")
        text = f"tl.load({pointer}{arguments})"
        dtype = self.emitter.buffers[access.buffer].dtype
        if dtype != value.dtype:
            text += f".to({type_name(value.dtype)})"
        loaded = self.bind(text, axes)
        if mask is None and access.buffer not in self.emitter.written:
            self.known[access.buffer, access.index] = loaded
        return loaded


# --- reductions -----------------------------------------------------------------------------------


def reduce_tile(body: Pass, step: Loops, terms: list[Term]) -> str:
    """The reduction of a whole tile along its rows, lanes past the end of a row left out."""
    kind, dtype = str(step.reduction), step.values[0].dtype
    mask = body.emitter.mask("r")
    tiles = [spread(body, t.text, t.axes) for t in terms]
    outside = neutral(kind, dtype)
    if mask:
        tiles[0] = f"tl.where({mask}, {tiles[0]}, {outside})"
        if len(tiles) > 1:
            tiles[1] = f"tl.where({mask}, {tiles[1]}, {LARGEST})"
    return finish_rows(kind, dtype, tiles)


def spread(body: Pass, text: str, axes: frozenset[str]) -> str:
    """A term over the whole tile: a reduction needs every lane."""
    whole = frozenset(body.axes)
    return text if axes == whole else f"tl.broadcast_to({text}, {body.shape(whole)})"


class Accumulator:
    """A reduction that runs along a loop: a tile of partial results, then one reduction of that."""

    def __init__(self, emitter: Any, step: Loops) -> None:
        self.emitter = emitter
        self.step = step
        self.kind = str(step.reduction)
        self.dtype = step.values[0].dtype
        self.neutral = neutral(self.kind, self.dtype)
        self.name = f"acc_{step.target.name}"
        self.positional = self.kind in ("argmax", "argmin")

    def start(self) -> list[str]:
        shape = "[XBLOCK, RBLOCK]"
        lines = [f"{self.name} = tl.broadcast_to({self.neutral}, {shape})"]
        if self.positional:
            lines.append(f"{self.name}_at = tl.full({shape}, {LARGEST}, tl.int64)")
        return lines

    def update(self, body: Pass) -> None:
        """Take in the elements of one tile."""
        terms = body.evaluate(self.step)
        tiles = [spread(body, t.text, t.axes) for t in terms]
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

    def finish(self, rows: Pass) -> None:
        """Reduce the tile and hand the rows' results on."""
        tiles = [self.name, f"{self.name}_at"] if self.positional else [self.name]
        rows.keep(self.step, rows.bind(finish_rows(self.kind, self.dtype, tiles), {"x"}))
