"""Triton for the backward of attention whose scores are changed by expressions.

A program has a block of queries of one head and goes over the keys, for the gradient of queries, or
has a block of keys and goes over the queries. It computes weights anew, from the scores and their
sums ("FlashAttention", Dao et al., 2022), and with the body that changes scores the gradient of
that body. Axes are those of triton_attention.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from fxgraph.sizes import ceil_div, hint, product
from inductor.codegen.triton_attention import LEAST, AttentionEmitter
from inductor.codegen.triton_body import ROWS, SCALAR, Pass, Term, spread
from inductor.codegen.triton_loops import TritonKernel, power_of_two
from inductor.codegen.triton_ops import type_name
from inductor.index import Index
from inductor.ir import AttentionGradient, Buffer, Window
from inductor.lowering.device_products import precision
from inductor.ops import Tape, Value

# Of a block, by bytes of an element and of the head: as large as leaves all that a thread holds in
# registers.
_BLOCK, _BLOCK_WIDE = {2: 64, 4: 32}, {2: 32, 4: 16}
_HALVED = (("q", 2), ("k", 4))  # of which a turn takes half as much
_ROWS, _COLUMNS = (("x", "XBLOCK"), ("dq", "DBLOCK")), (("rv", "RBLOCK"), ("dq", "DBLOCK"))


class AttentionGradientEmitter(AttentionEmitter):
    def __init__(self, step: AttentionGradient, buffers: Mapping[str, Buffer], name: str) -> None:
        self._start(step, buffers, name)
        heads = product(step.q.size[:2])
        axis, block = ("x", "XBLOCK") if step.of == "q" else ("r", "RBLOCK")
        self.programs = heads * ceil_div(self.extents[axis], self.constants[block])

    def _constants(self) -> dict[str, int]:
        size = hint(self.extents["dq"])
        width = self.step.q.buffer.dtype.itemsize
        block = (_BLOCK if size <= 64 else _BLOCK_WIDE)[width]
        along = block // 2 if (self.step.of, width) in _HALVED else block
        down, across = (block, along) if self.step.of == "q" else (along, block)
        lengths = {axis: power_of_two(hint(self.extents[axis])) for axis in ("x", "r")}
        return {
            "XBLOCK": max(LEAST, min(down, lengths["x"])),
            "RBLOCK": max(LEAST, min(across, lengths["r"])),
            "DBLOCK": max(LEAST, power_of_two(size)),
        }

    def _tiles(self) -> list[tuple[Window, tuple[str, str]]]:
        step, of_queries, of_keys = self.step, ("x", "dq"), ("rv", "dq")
        target = Window(step.target, step.target.size, step.target.stride)
        found = {
            "q": (step.q, of_queries),
            "k": (step.k, of_keys),
            "g": (step.gradient, of_queries),
        }
        if step.v is not None:
            found["v"] = (step.v, of_keys)
        found["target"] = (target, of_queries if step.of == "q" else of_keys)
        self.names = list(found)
        return list(found.values())

    def _place_of(self, window: Window, axes: tuple[str, str]) -> Index:
        return window.index((self.sequence, self.head, *map(self._axis, axes)))

    # --- text ---

    def emit(self) -> TritonKernel:
        step, number = self.step, self.number
        sides = [("XBLOCK", "x"), ("RBLOCK", "r")]
        (block, axis), (other, along) = sides if step.of == "q" else sides[::-1]
        cast = ".to(tl.int64)" if self.wide else ""
        start = f"pid % tall * {block} + "
        lines = [
            f"pid = {self.program}{cast}",
            f"tall = tl.cdiv({number(self.extents[axis])}, {block})",
            f"{SCALAR} = pid // tall",
            *self._range("dq", "", "[None, :]"),
            *(self._queries(start) if axis == "x" else self._keys(start)),
            f"sums = tl.zeros([{block}, DBLOCK], tl.float32)",
            f"for start in range(0, {number(self.extents[along])}, {other}):",
            *(f"    {line}" for line in self._turn()),
        ]
        tile = _ROWS if step.of == "q" else _COLUMNS
        body = Pass(self, tile, "")
        axes = tuple(axis for axis, _ in tile)
        place = self.places[self.names.index("target")]
        body.store(step.target, place, Term("sums", frozenset(axes)), axes, True)
        return self.made(self._text_of([*lines, *body.lines]), 2)

    def _queries(self, start: str) -> list[str]:
        """Lines that load a block of queries, of gradients and of what else is of a query."""
        lines = [*self._range("x", start, "[:, None]"), *self._tile("q", _ROWS)]
        lines += self._tile("g", _ROWS)
        for name, window in (("logs", self.step.sums), ("inner", self.step.inner)):
            if window is not None:
                body = Pass(self, _ROWS, name, zeros=False)
                index = window.index((self.sequence, self.head, self._axis("x")))
                pointer, axes = body.pointer(window.buffer.name, index, ("x",))
                lines.append(f"{name} = tl.load({pointer}{body.mask_argument(axes, other='0')})")
        return lines

    def _keys(self, start: str) -> list[str]:
        lines = [*self._range("r", start, "[None, :]"), *self._range("rv", start, "[:, None]")]
        lines += self._tile("k", _COLUMNS)
        return lines + (self._tile("v", _COLUMNS) if self.step.v is not None else [])

    def _tile(self, name: str, tile: tuple[tuple[str, str], ...]) -> list[str]:
        body = Pass(self, tile, name, zeros=True)
        window = getattr(self.step, {"g": "gradient"}.get(name, name))
        place = self.places[self.names.index(name)]
        pointer, axes = body.pointer(window.buffer.name, place, body.axes)
        return [f"{name} = tl.load({pointer}{body.mask_argument(axes, other='0')})"]

    def _turn(self) -> list[str]:
        """The lines for one block of the other side."""
        step = self.step
        lines = self._keys("start + ") if step.of == "q" else self._queries("start + ")
        kind = precision(step.q.buffer.dtype)
        zeros = "tl.zeros([XBLOCK, RBLOCK], tl.float32)"
        whole = frozenset(("x", "r"))
        body = Pass(self, ROWS, "")
        body.known[step.scores.target.name, step.scores.index] = Term("products", whole)
        body.known[step.score_gradient, step.scores.index] = Term("changed_gradient", whole)
        (exponent,) = step.scores.values[:1]
        (term,) = body.compute(_needed(step.scores.tape, exponent), [exponent])
        changed = spread(body, term.text, term.axes)
        lines += [
            f'products = fg.dot(q, tl.trans(k), {zeros}, "{kind}")',
            *body.take_lines(),
            f"weights = {self._inside(f'tl.exp({changed} - logs)')}",
        ]
        operands = type_name(step.q.buffer.dtype)
        if step.of == "v":
            return [*lines, f'sums = fg.dot(tl.trans(weights).to({operands}), g, sums, "{kind}")']
        lines += [
            f'changed_gradient = weights * (fg.dot(g, tl.trans(v), {zeros}, "{kind}") - inner)',
        ]
        (term,) = body.compute(step.scores.tape, step.scores.values[1:])
        gradient = spread(body, term.text, term.axes)
        lines += [*body.take_lines(), f"change = {self._inside(gradient)}.to({operands})"]
        factors = "change, k" if step.of == "q" else "tl.trans(change), q"
        return [*lines, f'sums = fg.dot({factors}, sums, "{kind}")']

    def _inside(self, text: str) -> str:
        """0 outside of the scores."""
        masks = [mask for axis in ("x", "r") if (mask := self.mask(axis))]
        return f"tl.where({' & '.join(masks)}, {text}, 0.0)" if masks else text


def _needed(tape: Tape, value: Value) -> Tape:
    """The part of the tape that computes the value."""
    used = {value}
    for one in reversed(tape.values):
        if one in used:
            used.update(one.args)
    part = Tape()
    part.values = [one for one in tape.values if one in used]
    return part


__all__ = ["AttentionGradientEmitter"]
