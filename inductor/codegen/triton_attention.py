"""Triton for attention whose scores are changed by expressions: masks, biases, caps.

A program has a block of queries of one head, and goes over the keys in blocks: the product of the
two, the body that changes scores, and a softmax that runs along ("FlashAttention", Dao et al.,
2022). Neither the scores nor a mask that is an expression are ever in memory. A weight is rounded
to the type of the values before the sum of all weights is known.

Axes: x counts the queries, r the keys (rv: in the tile of values), dq the elements of a head (dk:
in the tile of keys), z the heads of all sequences.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fxgraph.sizes import Extent, ceil_div, exact, hint, product
from inductor.codegen.triton_body import ROWS, SCALAR, Pass, Term, spread
from inductor.codegen.triton_loops import PROGRAM, Emitter, TritonKernel, power_of_two
from inductor.codegen.triton_ops import type_name
from inductor.index import ZERO, Index, Var
from inductor.ir import Attention, AttentionGradient, Buffer, Indices, Window
from inductor.lowering.device_products import precision
from inductor.schedule.fusion import Kernel

LEAST = 16  # of each side of a product
# Of a block, by bytes of an element: as large as leaves all that a thread holds in registers.
QUERIES, KEYS = {2: 64, 4: 64}, {2: 64, 4: 16}
WIDE_HEAD = 64  # elements: of more, blocks are halved
_BLOCKS = {"x": "XBLOCK", "r": "RBLOCK", "rv": "RBLOCK", "dq": "DBLOCK", "dk": "DBLOCK"}


class AttentionEmitter(Emitter):
    step: Any  # an Attention; of a subclass, an AttentionGradient

    def __init__(self, step: Attention, buffers: Mapping[str, Buffer], name: str) -> None:
        assert step.scores is not None and step.mask is None and not step.causal
        self._start(step, buffers, name)
        heads = product(step.q.size[:2])
        self.programs = heads * ceil_div(step.q.size[2], self.constants["XBLOCK"])

    def _start(
        self, step: Attention | AttentionGradient, buffers: Mapping[str, Buffer], name: str
    ) -> None:
        """Set what the backward has, too; `programs` is still to be told."""
        assert step.scores is not None
        self.step, self.name, self.buffers = step, name, buffers
        self.kernel, self.local, self.program = Kernel(0, [], []), frozenset(), PROGRAM
        sequences, heads, queries, size = step.q.size
        keys = step.k.size[2]
        self.extents: dict[str, Extent] = {"x": queries, "r": keys, "dq": size}
        self.extents |= {"rv": keys, "dk": size}
        z = self._var(SCALAR, sequences * heads)
        self.head = z % heads if heads != 1 else ZERO
        self.sequence = z // heads if heads != 1 else z
        group = hint(heads) // hint(step.k.size[1])
        self.head_of_keys = self.head // group if group != 1 else self.head
        body = step.scores
        place = (self.sequence, self.head, self._axis("x"), self._axis("r"))
        self._meaning = _meaning(body.dims, body.index, place, body.target.stride)
        indices = [i.substitute(self._meaning.get) for i in body.tape.indices()]
        self.places = [self._place_of(window, axes) for window, axes in self._tiles()]
        self.wide = self._needs_int64([*indices, *self.places])
        self.written = set(step.writes)
        self.args, self.sizes, self.lines = [], [], []
        self.constants = self._constants()
        self.num_warps = 4

    def _constants(self) -> dict[str, int]:
        step, size = self.step, hint(self.extents["dq"])
        width = max(step.q.buffer.dtype.itemsize, step.v.buffer.dtype.itemsize)
        halves = 2 if size > WIDE_HEAD else 1
        queries = max(LEAST, min(QUERIES[width] // halves, power_of_two(hint(self.extents["x"]))))
        return {
            "XBLOCK": queries,
            "RBLOCK": max(LEAST, KEYS[width] // halves),
            "DBLOCK": max(LEAST, power_of_two(size)),
        }

    def _reach(self) -> Extent:
        step = self.step
        return product(step.q.size) + self.extents["r"]

    def _var(self, name: str, size: Extent) -> Index:
        return ZERO if size == 1 else Index({Var(name, size): 1})

    def _axis(self, name: str) -> Index:
        return self._var(name, self.extents[name])

    def _tiles(self) -> list[tuple[Window, tuple[str, str]]]:
        """The operands and the result, each with the axes of its rows and elements."""
        step, target = self.step, self.step.target
        whole = Window(target, step.q.size, target.stride)
        return [
            (step.q, ("x", "dq")), (step.k, ("r", "dk")), (step.v, ("rv", "dq")),
            (whole, ("x", "dq")),
        ]  # fmt: skip

    def _place_of(self, window: Window, axes: tuple[str, str]) -> Index:
        of_keys = window is self.step.k or window is self.step.v
        head = self.head_of_keys if of_keys else self.head
        return window.index((self.sequence, head, *map(self._axis, axes)))

    def mask(self, axis: str) -> str | None:
        size = self.extents[axis]
        fits = size != 0 and exact(size, self.constants[_BLOCKS[axis]]) is not None
        return None if fits else f"{axis}mask"

    def meaning(self, v: Any) -> Index | None:
        return self._meaning.get(v)

    # --- text ---

    def emit(self) -> TritonKernel:
        step, number = self.step, self.number
        cast = ".to(tl.int64)" if self.wide else ""
        lines = [
            f"pid = {self.program}{cast}",
            f"tall = tl.cdiv({number(self.extents['x'])}, XBLOCK)",
            f"{SCALAR} = pid // tall",
            *self._range("x", "pid % tall * XBLOCK + ", "[:, None]"),
            *self._range("dq", "", "[None, :]"),
            *self._range("dk", "", "[:, None]"),
            *self._load("q", 0, (("x", "XBLOCK"), ("dq", "DBLOCK"))),
            'top = tl.full([XBLOCK, 1], float("-inf"), tl.float32)',
            "total = tl.zeros([XBLOCK, 1], tl.float32)",
            "sums = tl.zeros([XBLOCK, DBLOCK], tl.float32)",
            f"for r0 in range(0, {number(self.extents['r'])}, RBLOCK):",
            *(f"    {line}" for line in self._turn()),
        ]
        nothing = 'float("nan")' if step.nothing_is_nan else "0.0"
        lines += [
            "divisor = tl.where(total == 0, 1.0, total)",
            f"sums = tl.where(total == 0, {nothing}, tl.div_rn(sums, divisor))",
        ]
        body = Pass(self, (("x", "XBLOCK"), ("dq", "DBLOCK")), "")
        result = Term("sums", frozenset(("x", "dq")))
        body.store(step.target, self.places[3], result, ("x", "dq"), True)
        if step.sums is not None:
            nothing = 'float("nan")' if step.nothing_is_nan else 'float("inf")'
            sums = f"tl.where(total == 0, {nothing}, top + tl.log(divisor))"
            rows = Window(step.sums, step.sums.size, step.sums.stride)
            index = rows.index((self.sequence, self.head, self._axis("x")))
            body.store(step.sums, index, Term(sums, frozenset(("x",))), ("x",), False)
        return self.made(self._text_of([*lines, *body.lines]), 2)

    def _turn(self) -> list[str]:
        """The lines for one block of keys."""
        step = self.step
        assert step.scores is not None
        body = Pass(self, ROWS, "")
        name = step.scores.target.name
        body.known[name, step.scores.index] = Term("products", frozenset(("x", "r")))
        term = body.compute(step.scores.tape, step.scores.values)[0]
        changed = spread(body, term.text, term.axes)
        if mask := self.mask("r"):
            changed = f'tl.where({mask}, {changed}, float("-inf"))'
        kinds = {w: type_name(w.buffer.dtype) for w in (step.q, step.v)}
        first, second = (precision(w.buffer.dtype) for w in (step.q, step.v))
        zeros = "tl.zeros([XBLOCK, RBLOCK], tl.float32)"
        return [
            *self._range("r", "r0 + ", "[None, :]"),
            *self._range("rv", "r0 + ", "[:, None]"),
            *self._load("k", 1, (("dk", "DBLOCK"), ("r", "RBLOCK"))),
            f'products = fg.dot(q, k, {zeros}, "{first}")',
            *body.take_lines(),
            f"scores = {changed}",
            "larger = fg.maximum(top, fg.row_max_nan(scores))",
            'shift = tl.where(larger == float("-inf"), 0.0, larger)',
            "weights = tl.exp(scores - shift)",
            "scale = tl.exp(top - shift)",
            "total = total * scale + fg.row_sum(weights)",
            *self._load("v", 2, (("rv", "RBLOCK"), ("dq", "DBLOCK"))),
            f'sums = fg.dot(weights.to({kinds[step.v]}), v, sums * scale, "{second}")',
            "top = larger",
        ]

    def _load(self, name: str, number: int, tile: tuple[tuple[str, str], ...]) -> list[str]:
        body = Pass(self, tile, name, zeros=True)
        window = (self.step.q, self.step.k, self.step.v)[number]
        pointer, axes = body.pointer(window.buffer.name, self.places[number], body.axes)
        return [f"{name} = tl.load({pointer}{body.mask_argument(axes, other='0')})"]

    def _range(self, axis: str, start: str, shape: str) -> list[str]:
        cast = ".to(tl.int64)" if self.wide else ""
        lines = [f"{axis} = {start}tl.arange(0, {_BLOCKS[axis]}){shape}{cast}"]
        if self.mask(axis):
            lines.append(f"{axis}mask = {axis} < {self.number(self.extents[axis])}")
        return lines


def _meaning(
    dims: list[Var], index: Index, place: Indices, stride: tuple[Extent, ...]
) -> dict[Any, Index]:
    """The variables of loops over all scores, in the attention's: position by position, of a tensor
    of scores that is contiguous.
    """
    whole = ZERO
    for one, step in zip(place, stride, strict=True):
        whole = whole + one * step
    found: dict[Any, Index] = {}
    for v in dims:
        found[v] = ZERO if v.size == 1 else (whole // index.terms[v]) % v.size
    return found


__all__ = ["AttentionEmitter"]
