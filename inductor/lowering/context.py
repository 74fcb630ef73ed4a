"""The building blocks of lowerings: lazy pointwise tensors, reductions, and realising them as loops
over a buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fxgraph.sizes import (
    Extent,
    Size,
    Undecided,
    contiguous_strides,
    exact,
    hint,
    nonzero,
    product,
    smallest,
    symbols,
)
from inductor import costs, devices
from inductor.boxes import Box, refined, whole
from inductor.devices import device_model
from inductor.index import ZERO, FloorDiv, Index, Mod, Var, delinearize
from inductor.ir import (
    AtenCall,
    Buffer,
    Indices,
    Loops,
    Program,
    Tape,
    Tensor,
    Value,
    Window,
)
from inductor.lowering.layouts import (
    broadcast,
    is_dense,
    is_distinct,
    narrow,
    sees_layout,
    sees_storage,
    stride_order,
)
from inductor.lowering.numbers import FIT_HALF, Number, half_number
from inductor.lowering.registry import NotLowered
from inductor.lowering.symbolic import GraphSizes
from inductor.ops import COMPUTE_TYPES, indirect_values, ops, recording
from inductor.softmax_attention import SCORES

# Bytes that one program of a GPU reads to reduce a row, or TOGETHER rows that lie side by side:
# more are split, into parts of no less than the least.
MUCH_WORK, LEAST_WORK, TOGETHER = 1 << 16, 1 << 13, 32
# Boxes that inputs of one operator may be cut to, where each has others.
MOST_BOXES = 12


@dataclass
class Nameless:
    """A tensor that has a name, but no memory until a kernel turns out to read it there: by the
    operator, at that step of the program.
    """

    step: int
    target: Any
    operands: list[Tensor]
    buffer: Buffer


class Lowering:
    """Builds one Program. `node` is the graph node being lowered."""

    def __init__(self, program: Program | None = None) -> None:
        self.program = program if program is not None else Program()
        self.sizes = GraphSizes(self.program.symbols, self.program.values, self.program.given)
        self.bound: set[str] = set()  # symbols whose values the plan has by now
        self.found: dict[Any, AtenCall] = {}  # a mask's node -> the call that finds its elements
        # scores of attention without memory, and their gradients -> how they would be computed
        self.scores: dict[str, Nameless] = {}
        self.node: Any = None
        self.overwritten: Tensor | None = None  # an operand whose memory the node may write
        self.gpu = device_model()
        self.measured = False  # whether forms of products are measured there later

    # -- names and buffers ----------------------------------------------------------------------

    def new_buffer(
        self, size: Sequence[Extent], stride: Sequence[Extent], like: Tensor, kind: str = "temp"
    ) -> Buffer:
        name = f"buf{self.program.next_buffer}"
        self.program.next_buffer += 1
        buffer = Buffer(name, like.dtype, tuple(size), tuple(stride), like.device, kind)
        self.program.buffers[name] = buffer
        return buffer

    def val(self) -> Any:
        """The fake tensor of the node being lowered."""
        return self.node.meta["val"]

    def shape(self, val: torch.Tensor | None = None) -> tuple[Extent, ...]:
        """The size of a fake tensor, by default of the node's."""
        return self.sizes.all((self.val() if val is None else val).shape)

    def strides(self, val: torch.Tensor) -> tuple[Extent, ...]:
        return self.sizes.all(val.stride())

    # -- lazy tensors -----------------------------------------------------------------------------

    def pointwise(
        self,
        fn: Callable[..., Value],
        inputs: Sequence[Tensor | Number | Size],
        dtype: torch.dtype,
        compute: torch.dtype | Sequence[torch.dtype] | None = None,
        work: int = 1,
        size: Sequence[Extent] | None = None,
        wide_scalars: bool = False,
    ) -> Tensor:
        """`fn` of the inputs, each converted to `compute` (by default `dtype`; or a type for each)
        and broadcast together. wide_scalars: numbers and 0-dim tensors of wider types are not
        rounded to a half type first, but for a first operand on the CPU."""
        if any(isinstance(item, complex) for item in inputs):
            raise NotLowered("complex numbers")
        if compute is None or isinstance(compute, torch.dtype):
            compute = [compute or dtype] * len(inputs)
        types = list(compute)
        tensors = [t for t in inputs if isinstance(t, Tensor)]
        out_size = tuple(size) if size is not None else broadcast(*(t.size for t in tensors))
        split = self._common_split(tensors, out_size)
        numel = hint(product(out_size))
        for t in tensors:
            few = t.window is None and hint(t.numel) * costs.BROADCAST_FACTOR <= numel
            repeated = few and t.work >= 3 and not self.stays_lazy(t)
            if repeated and not self._broadcast_inside(t, len(out_size)):
                self.realize(t)

        def inner(idx: Indices) -> Value:
            places = enumerate(zip(inputs, types, strict=True))
            return fn(*(operand(place, item, kind, idx) for place, (item, kind) in places))

        def operand(
            place: int, item: Tensor | Number | Size, kind: torch.dtype, idx: Indices
        ) -> Value:
            if isinstance(item, Tensor):
                value = item.load(narrow(idx, item.size))
                wide = item.dtype in (kind, *FIT_HALF)
                if wide_scalars and not item.size:
                    wide |= place > 0 or item.device.type != "cpu"
            else:
                wide = wide_scalars or not isinstance(item, Size)
                if not wide_scalars and not isinstance(item, Size):
                    item = half_number(item, kind)
                value = ops.constant(item, kind)
            return ops.to_compute(value, kind) if wide else ops.to_dtype(value, kind)

        result = Tensor(
            out_size,
            dtype,
            tensors[0].device if tensors else self.val().device,
            inner=inner,
            work=work + sum(t.work for t in tensors if t.window is None),
            reads=sum(self._reads(t, numel) for t in tensors),
            split=split,
        )
        most = costs.SCORES_SHARE if self.node is not None and self.node.meta.get(SCORES) else 1
        if result.work > most * costs.MAX_WORK or result.reads > most * costs.MAX_READS:
            self.realize(result)
        return result

    @staticmethod
    def _reads(t: Tensor, numel: int) -> int:
        """How many buffers of about `numel` elements reading the tensor reads; rows and columns
        that are broadcast stay in the cache."""
        if hint(t.numel) * costs.BROADCAST_FACTOR <= numel:
            return 0
        return 1 if t.window is not None else t.reads

    def stays_lazy(self, t: Tensor) -> bool:
        """Whether the tensor is a mask of scores that takes more to be read than to be computed
        again for each head.
        """
        large = hint(t.numel) * t.dtype.itemsize > costs.MASK_BYTES
        return large and t.work <= costs.MASK_WORK and self.node.meta.get(SCORES, False)

    def _common_split(
        self, tensors: list[Tensor], size: tuple[Extent, ...]
    ) -> tuple[Box, ...] | None:
        """The boxes in which all inputs that have some are one element's expression each; inputs
        that are broadcast, or would make many boxes of few, are realised."""
        chosen = None
        for t in tensors:
            if t.split is None or t.window is not None:
                continue
            common = t.split if chosen is None else refined(chosen, t.split, MOST_BOXES)
            if t.size == size and common is not None:
                chosen = common
            else:
                self.realize(t)
        return chosen

    def _broadcast_inside(self, t: Tensor, rank: int) -> bool:
        """Whether `t` does not vary along the dimension that the node's result is contiguous in."""
        val = self.node.meta.get("val")
        if not isinstance(val, torch.Tensor) or val.dim() != rank:
            return True
        size, stride = self.shape(val), self.strides(val)
        unit = [d for d in range(rank) if stride[d] == 1 and size[d] not in (0, 1)]
        shift = rank - len(t.size)
        return all(d < shift or t.size[d - shift] == 1 for d in unit)

    def generate(
        self,
        size: Sequence[Extent],
        dtype: torch.dtype,
        inner: Callable[[Indices], Value],
        *sources: Tensor,
        work: int = 1,
    ) -> Tensor:
        """A lazy tensor from an explicit body that reads `sources` at indices of its own choice."""
        for t in sources:
            if t.split is not None:
                self.realize(t)
        device = sources[0].device if sources else self.val().device
        lazy = [t for t in sources if t.window is None]
        return Tensor(
            tuple(size),
            dtype,
            device,
            inner=inner,
            work=work + sum(t.work for t in lazy),
            reads=sum(1 if t.window is not None else t.reads for t in sources),
        )

    # -- realising --------------------------------------------------------------------------------

    def realize(self, t: Tensor, stride: Sequence[Extent] | None = None) -> Window:
        """Put a tensor in memory (no copy if it is there already) and return its window."""
        if t.window is None:
            wanted = stride if stride is not None else self._hint(t)
            buffer = self.new_buffer(t.size, wanted, t)
            self.store(t, Window(buffer, buffer.size, buffer.stride))
            t.window = Window(buffer, buffer.size, buffer.stride)
            t.inner = None
        return t.window

    def exact(self, t: Tensor, val: torch.Tensor, *, own: bool = False) -> Window:
        """A tensor in memory with the very strides of the graph's own, `val`; copied if it lies
        there otherwise. `own`: also at the start of memory that nothing else is in, unless it is an
        input.
        """
        size, stride = self.shape(val), self.strides(val)
        distinct = is_distinct(size, stride)
        given = t.window is not None and t.window.buffer.kind == "input"
        if own and not given and val.storage_offset() != 0:
            raise Undecided("memory before a tensor's first element")
        window = self.realize(t, stride if distinct else None)
        alike = all(n == 1 or a == b for n, a, b in zip(size, window.stride, stride, strict=True))
        if own and window.buffer.kind != "input":
            alike = alike and window.buffer.kind == "output" and window.is_whole()
        if alike or product(size) == 0:
            return window
        if not distinct and own:
            raise Undecided(f"the layout of elements that share a place, {stride}")
        if not distinct or t.dtype not in COMPUTE_TYPES:
            return window
        fresh = self.copy(t, stride).window
        assert fresh is not None
        if own:
            fresh.buffer.kind = "output"
        return fresh

    def _hint(self, t: Tensor) -> Sequence[Extent]:
        """Strides for a new buffer: those of the graph's own tensor, where its shape is the
        node's."""
        wanted = t.hint
        if wanted is None and self.node is not None:
            val = self.node.meta.get("val")
            if isinstance(val, torch.Tensor) and self.shape(val) == t.size:
                wanted = self.strides(val)
        if wanted is not None and is_dense(t.size, wanted):
            return wanted
        return contiguous_strides(t.size)

    def realize_rows(self, x: Tensor) -> Window:
        """In memory, the elements of the last dimension side by side."""
        window = self.realize(x)
        if window.stride[-1] == 1 or x.size[-1] == 1:
            return window
        copied = self.copy(x, contiguous_strides(x.size)).window
        assert copied is not None
        return copied

    def copy(self, t: Tensor, stride: Sequence[Extent] | None = None) -> Tensor:
        """A tensor of the same values in a fresh buffer."""
        if t.dtype not in COMPUTE_TYPES:
            return self._cloned(t)
        fresh = Tensor(t.size, t.dtype, t.device, inner=t.load, work=t.work + 1, reads=t.reads)
        self.realize(fresh, stride)
        return fresh

    def _cloned(self, t: Tensor) -> Tensor:
        """A copy of a tensor that loops cannot hold (complex numbers), by aten."""
        window = self.realize(t)
        stride = window.stride if is_dense(t.size, window.stride) else contiguous_strides(t.size)
        buffer = self.new_buffer(t.size, stride, t, "aten")
        name = f"aten{self.program.new_number()}"
        clone = torch.ops.aten.clone.default
        self.program.steps.append(AtenCall(name, clone, [window], {}, [buffer]))
        return Tensor.of(buffer)

    def aten_copy(self, t: Tensor, window: Window) -> None:
        """Write a tensor that loops cannot hold, or another device holds, into `window`, by
        aten.
        """
        copy = torch.ops.aten.copy_.default
        name = f"aten{self.program.new_number()}"
        given, written = [window, self.realize(t)], (window.buffer.name,)
        self.note_fallback(copy)
        self.program.steps.append(AtenCall(name, copy, given, {}, [None], True, written))

    def store(self, t: Tensor, window: Window) -> None:
        """Write a lazy tensor's elements into `window`, part by part if it is made of parts."""
        if t.numel == 0:
            if product(window.buffer.size) == 0 and window.buffer.kind == "temp":
                self._allocate(window.buffer)
            return
        boxes = t.split if t.split is not None else [whole(t.size)]
        bundle = f"parts{self.program.next_step}" if len(boxes) > 1 else None
        order = stride_order(window.size, window.stride)
        for box in boxes:

            def place(idx: list[Index], box: Box = box) -> tuple[Index, ...]:
                return tuple(i * r.step + r.low for i, r in zip(idx, box, strict=True))

            def body(idx: list[Index], _: Any, place: Any = place) -> tuple[Value, ...]:
                return (t.load(place(idx)),)

            def position(idx: list[Index], place: Any = place) -> Index:
                return window.index(place(idx))

            size = [r.count for r in box]
            self.loops(size, order, (), body, position, None, window.buffer, bundle)

    def overwrite(self, t: Tensor, window: Window) -> None:
        """Write a tensor's elements into `window`, which they may be computed from. Those that are
        there already are left.
        """
        name, before = window.buffer.name, len(self.program.steps)
        self.store(t, window)
        steps = [s for s in self.program.steps[before:] if isinstance(s, Loops)]
        del self.program.steps[before:]
        if any(index != s.index for s in steps for index in s.reads.get(name, [])):
            self.store(self.copy(t), window)  # it reads elements that it overwrites
        else:
            self.program.steps += [s for s in steps if not s.is_idle()]

    def reduce(
        self,
        kind: str,
        t: Tensor,
        dims: Sequence[int],
        dtype: torch.dtype,
        body: Callable[[Value], Value] = lambda v: v,
        compute: torch.dtype | None = None,
        position: bool = False,
        whole: bool = False,
    ) -> Tensor:
        """Reduce `body(element)` over `dims` with the dimensions kept as 1; the result is realised.

        With `position` the reduction also sees the row-major position among the reduced elements
        (argmax). On a GPU, few long rows are reduced in parts, and these then, unless `whole`.
        """
        if t.split is not None:
            self.realize(t)
        dims = sorted({d % max(len(t.size), 1) for d in dims}) if t.size else []
        kept = [d for d in range(len(t.size)) if d not in dims]
        out_size = tuple(1 if d in dims else n for d, n in enumerate(t.size))
        reduced = [t.size[d] for d in dims]
        compute = COMPUTE_TYPES[compute or t.dtype]
        if devices.is_gpu(t.device) and not (whole or position):
            parts = self._parts(t, kept, reduced)
            if parts > 1:
                return self._reduce_parts(kind, t, dims, dtype, body, compute, parts)

        def both(idx: list[Index], ridx: list[Index]) -> tuple[Value, ...]:
            full: list[Index] = [ZERO] * len(t.size)
            for d, i in zip(kept, idx, strict=True):
                full[d] = i
            for d, i in zip(dims, ridx, strict=True):
                full[d] = i
            value = body(ops.to_compute(t.load(tuple(full)), compute))
            if not position:
                return (value,)
            flat = ZERO
            for i, step in zip(ridx, contiguous_strides(reduced), strict=True):
                flat = flat + i * step
            return value, ops.index_expr(flat, torch.int64)

        if product(reduced) == 1 and product(out_size) != 0:
            return self._reduce_one(t, out_size, dtype, body, compute, position)
        result = Tensor(out_size, dtype, t.device)
        buffer = self.new_buffer(out_size, contiguous_strides(out_size), result)
        result.window = Window(buffer, buffer.size, buffer.stride)
        size = [t.size[d] for d in kept]
        strides = [buffer.stride[d] for d in kept]

        def where(idx: list[Index]) -> Index:
            total = ZERO
            for i, step in zip(idx, strides, strict=True):
                total = total + i * step
            return total

        if product(out_size) == 0:
            self._allocate(buffer)
        else:
            self.loops(size, range(len(size)), reduced, both, where, kind, buffer)
        return result

    def _parts(self, t: Tensor, kept: Sequence[int], reduced: Sequence[Extent]) -> int:
        """In how many parts a reduction keeps the GPU busy: a divisor of its length, or 1."""
        length, rows = product(reduced), hint(product(t.size[d] for d in kept))
        if not isinstance(length, int) or not rows:
            return 1
        beside = min(rows, TOGETHER) if self._are_beside(t, kept) else 1  # rows of a tile
        nbytes = length * beside * t.dtype.itemsize
        wanted = 4 * self.gpu.units * beside // rows
        if nbytes < MUCH_WORK or wanted < 4:
            return 1
        most = min(wanted, nbytes // LEAST_WORK)
        return max((n for n in range(1, most + 1) if length % n == 0), default=1)

    def _are_beside(self, t: Tensor, kept: Sequence[int]) -> bool:
        """Whether elements of neighbouring rows lie side by side."""
        stride = t.window.stride if t.window is not None else contiguous_strides(t.size)
        return any(stride[d] == 1 and t.size[d] != 1 for d in kept)

    def _reduce_parts(
        self,
        kind: str,
        t: Tensor,
        dims: Sequence[int],
        dtype: torch.dtype,
        body: Callable[[Value], Value],
        compute: torch.dtype,
        parts: int,
    ) -> Tensor:
        """Every row in parts of equal length; then their results. The parts of rows that lie side
        by side come first: a program has the same part of several rows, whose elements it reads
        together.
        """
        kept = [d for d in range(len(t.size)) if d not in dims]
        reduced = [t.size[d] for d in dims]
        each = exact(product(reduced), parts)
        assert each is not None

        rows = [t.size[d] for d in kept]
        first = self._are_beside(t, kept)
        at = 0 if first else len(rows)  # the place of the number of the part

        def inner(idx: Indices) -> Value:
            full: list[Index] = [ZERO] * len(t.size)
            for d, i in zip(kept, [*idx[:at], *idx[at + 1 :]], strict=False):
                full[d] = i
            place = delinearize(idx[at] * each + idx[-1], reduced)
            for d, i in zip(dims, place, strict=True):
                full[d] = i
            return t.load(tuple(full))

        size = (*rows[:at], parts, *rows[at:], each)
        split = Tensor(size, t.dtype, t.device, inner=inner, work=t.work)
        split.reads = t.reads
        between = self.reduce(kind, split, [len(rows) + 1], compute, body, compute, whole=True)
        total = self.reduce(kind, between, [at], dtype, compute=compute, whole=True)
        assert total.window is not None
        size = tuple(1 if d in dims else n for d, n in enumerate(t.size))
        window = Window(total.window.buffer, size, contiguous_strides(size))
        return Tensor(size, dtype, t.device, window)

    def _allocate(self, buffer: Buffer) -> None:
        """A buffer of no elements, which no loop fills but which may be returned."""
        buffer.kind = "aten"
        kwargs = {"dtype": buffer.dtype, "device": buffer.device}
        target = torch.ops.aten.empty_strided.default
        args = [list(buffer.size), list(buffer.stride)]
        name = f"aten{self.program.new_number()}"
        self.program.steps.append(AtenCall(name, target, args, kwargs, [buffer]))

    def _reduce_one(
        self,
        t: Tensor,
        size: tuple[Extent, ...],
        dtype: torch.dtype,
        body: Callable[[Value], Value],
        compute: torch.dtype,
        position: bool,
    ) -> Tensor:
        """A reduction of one element each: the element, or position 0."""

        def fn(v: Value) -> Value:
            return ops.constant(0, torch.int64) if position else body(v)

        return self.pointwise(fn, [t], dtype, compute, size=size)

    def loops(
        self,
        size: Sequence[Extent],
        order: Sequence[int],
        reduced: Sequence[Extent],
        body: Callable[[list[Index], list[Index]], tuple[Value, ...]],
        position: Callable[[list[Index]], Index],
        reduction: str | None,
        target: Buffer,
        bundle: str | None = None,
        mode: str | None = None,
    ) -> Loops:
        """Trace a body over loop variables and append the step. Dimensions are cut where reshapes
        inside the body divide them, so that indices come out affine: `i // 64` over 128 becomes
        `i0` of (2, 64). `position` of a scatter (of a `mode`) takes the reduced indices as well."""
        factors = [[n] if n != 1 else [] for n in (*size, *reduced)]
        for _ in range(6):
            vars = [
                [Var(f"{'i' if d < len(size) else 'r'}{d}_{k}", n) for k, n in enumerate(f)]
                for d, f in enumerate(factors)
            ]
            idx = [_combine(v) for v in vars]
            tape = Tape()
            with recording(tape):
                values = body(idx[: len(size)], idx[len(size) :])
                where = position(idx if mode else idx[: len(size)])
            if not (cuts := _cuts([*tape.indices(), where])):
                break
            factors = [
                [m for v in dim for m in ((v.size // cuts[v], cuts[v]) if v in cuts else (v.size,))]
                for dim in vars
            ]
        dims = [v for d in order for v in vars[d]]
        collide = [v for dim in vars[len(size) :] for v in dim]
        step = Loops(
            f"loop{self.program.new_number()}",
            dims,
            collide if mode else _by_memory(collide, tape),
            _live(tape, [*values, *indirect_values(where)]),
            values,
            reduction,
            target,
            where,
            bundle,
            mode=mode,
        )
        self.program.steps.append(step)
        return step

    def scatter(
        self,
        mode: str,
        base: Tensor,
        free: Sequence[Extent],
        serial: Sequence[Extent],
        value: Callable[[list[Index], list[Index]], Value],
        place: Callable[[list[Index], list[Index]], Indices],
    ) -> Tensor:
        """A copy of `base` with `value(i, s)` combined (see ir.Loops) into the element `place(i,
        s)` for all i in `free` and s in `serial`. Places of different i must differ: they are
        filled in parallel; those of one i in the order of s.
        """
        if devices.is_gpu(base.device) and torch.are_deterministic_algorithms_enabled():
            raise NotLowered("additions in an order that no run repeats")
        own = base is self.overwritten
        result = base if own else self.copy(base)
        window = result.window
        assert window is not None
        if 0 in (*free, *serial):
            return result
        count, turns = len(free), len(free) + len(serial)
        if not nonzero(base.numel):  # no turn without a place, whatever checks are about to find
            serial = [*serial, smallest(base.numel, 1)]

        def body(idx: list[Index], ridx: list[Index]) -> tuple[Value, ...]:
            return (ops.to_compute(value(idx, ridx[: turns - count]), base.dtype),)

        def write(window: Window) -> Loops:
            def position(idx: list[Index]) -> Index:
                return window.index(place(idx[:count], idx[count:turns]))

            order, target = range(count), window.buffer
            return self.loops(free, order, serial, body, position, None, target, mode=mode)

        step = write(window)
        if own and any(a.buffer == window.buffer.name for a in step.tape.loads()):
            self.program.steps.remove(step)
            result = self.copy(base)
            assert result.window is not None
            write(result.window)
        return result

    # -- symbols that results define --------------------------------------------------------------

    def bind(self, value: Any, number: int, dim: int | None) -> list[tuple[str, int, int | None]]:
        """The new symbols that result `number` of an operator is, or has as its size."""
        if not isinstance(value, torch.SymInt):
            return []
        size, read = self.sizes.of(value), self.sizes.read(value)
        names = [*(s.name for s in symbols(size) if size == Size.of(s)), *([read] if read else [])]
        new = [name for name in names if name not in self.bound]
        self.bound.update(new)
        return [(name, number, dim) for name in new]

    def define(self, value: Any, size: Extent) -> None:
        """A number that depends on data, if nothing before gives that, is `size`, whatever checks
        of it are about to tell. Raises NotLowered if sizes are made of its name already.
        """
        names = self.sizes.names(value)
        if names and names[0] not in self.bound:
            if names[0] in self.program.symbols:
                raise NotLowered("a size of an input, which an operator is to give")
            self.sizes.values.update(dict.fromkeys(names, size))
            self.bound.update(names)

    def require_bound(self, sizes: Any) -> None:
        """Raise Undecided unless the plan can compute these sizes."""
        if missing := {s.name for s in symbols(sizes)} - self.bound:
            raise Undecided(f"{', '.join(sorted(missing))}, which nothing before gives")

    def note_fallback(self, target: Any) -> None:
        """An operator is aten's."""
        name = str(target).removeprefix("aten.")
        self.program.fallbacks[name] = self.program.fallbacks.get(name, 0) + 1

    # -- operators that stay operators ------------------------------------------------------------

    def aten(
        self,
        target: Any,
        args: Any,
        kwargs: Any,
        *,
        ordered: bool = False,
        mutates: tuple[str, ...] = (),
        asserts: bool = False,
        val: Any = None,
    ) -> Any:
        """Call an operator inside the plan; results take size and strides from the node's fake
        tensors, or those given."""

        exact = self.node is not None and sees_layout(target)

        def tree(value: Any, given: Any = None) -> Any:
            if isinstance(value, Tensor):
                known = getattr(given, "meta", {}).get("val") if exact else None
                if known is None or known.layout != torch.strided:
                    return self.realize(value)
                return self.exact(value, known, own=sees_storage(target))
            if isinstance(value, (list, tuple)):
                alike = isinstance(given, (list, tuple)) and len(given) == len(value)
                return [tree(v, g) for v, g in zip(value, given if alike else [None] * len(value))]
            return value

        own_node = self.node is not None and target is self.node.target
        given, named = (self.node.args, self.node.kwargs) if own_node else ((), {})
        val = self.val() if val is None else val
        single = not isinstance(val, (list, tuple)) and val is not None
        results: list[Any] = []
        binds: list[tuple[str, int, int | None]] = []
        for number, one in enumerate([val] if single else val or ()):
            if not isinstance(one, torch.Tensor):
                results.append(self.sizes.of(one))
                binds += self.bind(one, number, None)
                continue
            size, stride = self.shape(one), self.strides(one)
            for d, n in enumerate(one.shape):
                binds += self.bind(n, number, d)
            buffer = self.new_buffer(
                size,
                stride if is_dense(size, stride) else contiguous_strides(size),
                Tensor(size, one.dtype, one.device),
                "aten",
            )
            results.append(Tensor.of(buffer))
        self.require_bound([r.size if isinstance(r, Tensor) else r for r in results])
        self.note_fallback(target)
        step = AtenCall(
            f"aten{self.program.new_number()}",
            target,
            tree(args, given),
            {k: tree(v, named.get(k)) for k, v in kwargs.items()},
            [r.window.buffer if isinstance(r, Tensor) and r.window else None for r in results],
            ordered,
            mutates,
            tuple(binds),
            asserts,
        )
        self.program.steps.append(step)
        return results[0] if single else tuple(results) if results else None


def _combine(vars: list[Var]) -> Index:
    """The index of a dimension from the loop variables it was cut into, outermost first."""
    total: Index = ZERO
    step: Extent = 1
    for v in reversed(vars):
        total = total + Index({v: step})
        step = step * v.size
    return total


def _cuts(indices: Sequence[Index]) -> dict[Var, Extent]:
    """Loop variable -> extent of its inner part, where a quotient in `indices` divides it."""
    cuts: dict[Var, Extent] = {}
    for index in indices:
        if index.is_affine():
            continue
        for atom in index.atoms():
            if not isinstance(atom, (FloorDiv, Mod)):
                continue
            for v, coefficient in atom.dividend.terms.items():
                inner = exact(atom.divisor, coefficient)
                if inner is None or not isinstance(v, Var):
                    continue
                inner = abs(inner) if isinstance(inner, int) else inner
                if inner not in (1, v.size) and exact(v.size, inner) is not None:
                    cuts[v] = min(inner, cuts.get(v, inner), key=hint)
    return cuts


def _by_memory(reduced: list[Var], tape: Tape) -> list[Var]:
    """Reduced variables, the one with the largest stride outermost."""
    if len(reduced) < 2:
        return reduced
    reach = dict.fromkeys(reduced, 0)
    for access in tape.loads():
        for atom, coefficient in access.index.terms.items():
            if atom in reach:
                reach[atom] = max(reach[atom], abs(hint(coefficient)))
    return sorted(reduced, key=lambda v: -reach[v])


def _live(tape: Tape, values: Sequence[Value]) -> Tape:
    """The tape without values that nothing uses (simplifications leave some)."""
    used = {v.id for v in values}
    for value in reversed(tape.values):
        if value.id in used:
            used.update(a.id for a in value.args)
    if len(used) != len(tape.values):
        tape.values = [v for v in tape.values if v.id in used]
    return tape


__all__ = ["Lowering"]
