"""The memory plan: where each temporary of a plan lives, and when each tensor is let go.

Temporaries share one arena. Each gets a byte offset such that two whose lifetimes overlap never
overlap in memory; the largest are placed first, each in the smallest gap that holds it (greedy best
fit). Where a kernel may write its output over an input that dies there, both get one place.
Everything else is a tensor of its own: made just before its first step, dropped after its last; a
temporary may take over the memory of an operator's result that dies where it is born.

    a = kernel(x)      a: steps 0-1       arena [ a 1 KiB | b 1 KiB ]
    b = kernel(a)      b: steps 1-2
    c = kernel(b)      c: steps 2-3       c takes the place of a

Temporaries whose sizes are computed when the plan runs come after the others in the arena. Those of
sizes c * m with one m (s0 * s1, say) and whole cache lines for c are placed as above, in units of
m. The rest take turns in slots: one may follow another if it is no larger whatever the sizes are.
Buffers whose sizes depend on an operator's results, known only after it, live outside.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch

from fxgraph.sizes import Extent, Size, common_factor, exact, hint, known_le, symbols
from inductor.runtime.plan import AtenStep, BufferSpec, PlanSpec, TensorSpec, storage_bytes

ALIGNMENT = 64  # bytes: a cache line, and the widest vector
GPU_ALIGNMENT = 128  # a cache line there, and a descriptor


@dataclass
class MemoryPlan:
    """Result of `plan_memory`. Lists run parallel to the plan's steps."""

    offsets: dict[str, Extent]  # temp -> byte offset in the arena
    arena_bytes: Extent
    allocs: list[list[str]]  # tensors of their own to make before the step
    frees: list[list[str]]  # tensors to drop after the step, inputs among them
    # the most that is live at once, arena included, inputs not; for the sizes seen when compiling
    peak_bytes: int
    windows: dict[str, str]  # temp -> the aten result whose memory it takes over
    arena_device: str = "cpu"


@dataclass
class Lifetime:
    """First and last step that touch a buffer; `last` is len(steps) for outputs."""

    first: int
    last: int

    def overlaps(self, other: Lifetime) -> bool:
        return self.first <= other.last and other.first <= self.last


@dataclass
class Block:
    """A place in the arena and the buffers that take turns in it (in place)."""

    names: list[str]
    size: Extent
    life: Lifetime
    offset: Extent = 0


def plan_memory(spec: PlanSpec) -> MemoryPlan:
    """Place and time all buffers of a valid plan."""
    buffers = {b.name: b for b in spec.buffers}
    lives, returned = lifetimes(spec)
    windows = take_over(spec, lives, returned)
    for name, root in windows.items():
        lives[root].last = max(lives[root].last, lives.pop(name).last)
    device = arena_device(spec)
    late = {name for s in spec.steps if s.kind == "aten" for name, _, _ in s.binds}
    in_arena = [
        b
        for b in spec.buffers
        if b.name in lives
        and is_arena(b, returned, device)
        and late.isdisjoint(s.name for s in symbols(buffer_bytes(b)))
    ]
    alignment = ALIGNMENT if device == "cpu" else GPU_ALIGNMENT
    blocks = share_in_place(spec, make_blocks(in_arena, lives, alignment), lives)
    arena_bytes = assign_offsets(blocks, alignment)
    offsets = {name: block.offset for block in blocks for name in block.names}

    steps = len(spec.steps)
    allocs: list[list[str]] = [[] for _ in range(steps)]
    frees: list[list[str]] = [[] for _ in range(steps)]
    change = [0] * (steps + 2)
    for name, life in lives.items():
        if name in offsets or name not in buffers:
            continue
        if buffers[name].kind != "aten":
            allocs[life.first].append(name)
        if life.last < steps:
            frees[life.last].append(name)
        size = hint(buffer_bytes(buffers[name]))
        change[life.first] += size
        change[life.last + 1] -= size
    for item in spec.inputs:
        if item.name in lives and lives[item.name].last < steps:
            frees[lives[item.name].last].append(item.name)
    live = peak = 0
    for delta in change:
        live += delta
        peak = max(peak, live)
    peak += hint(arena_bytes)
    return MemoryPlan(offsets, arena_bytes, allocs, frees, peak, windows, device)


def arena_device(spec: PlanSpec) -> str:
    """Where the arena is: with the first kernel that is launched, else on the CPU."""
    return next((kernel.device for kernel in spec.triton), "cpu")


def is_arena(buffer: BufferSpec, returned: set[str], device: str = "cpu") -> bool:
    """Whether a buffer can live in the arena; a temp that turns out to be returned cannot."""
    return buffer.kind == "temp" and buffer.device == device and buffer.name not in returned


def buffer_bytes(buffer: BufferSpec) -> Extent:
    return storage_bytes(buffer.dtype, buffer.size, buffer.stride)


def lifetimes(spec: PlanSpec) -> tuple[dict[str, Lifetime], set[str]]:
    """Lifetime of every buffer and varying input that some step touches, and the names of the
    returned ones.

    A use of a view, or of an aten result that may alias its arguments, is a use of its base.
    """
    names = {b.name for b in spec.buffers}
    names |= {i.name for i in spec.inputs if isinstance(i, TensorSpec) and not i.static}
    behind: dict[str, set[str]] = {}

    def roots(name: str) -> set[str]:
        return behind.get(name, set()) | ({name} & names)

    lives: dict[str, Lifetime] = {}

    def touch(name: str, step: int) -> None:
        for root in roots(name):
            life = lives.setdefault(root, Lifetime(step, step))
            life.last = step

    for index, step in enumerate(spec.steps):
        if step.kind == "view":
            behind[step.out] = roots(step.base)
            continue
        for name in step.names():
            touch(name, index)
        aliased: set[str] = set()
        if step.kind == "aten" and may_alias(step):
            aliased = set().union(*(roots(name) for name in step.names()), set())
        for name in step.produces():
            behind[name] = aliased
            touch(name, index)
    returned: set[str] = set()
    for out in spec.outputs:
        if out.kind != "value":
            touch(out.name, len(spec.steps))
            returned |= roots(out.name)
    return lives, returned


def may_alias(step: AtenStep) -> bool:
    """Whether a result of the op may share memory with an argument, as its schema says."""
    return _schema_aliases(step.op, step.overload)


@functools.cache
def _schema_aliases(op: str, overload: str) -> bool:
    schema = torch._C._get_schema(op, overload)
    return any(result.alias_info is not None for result in schema.returns)


def take_over(spec: PlanSpec, lives: dict[str, Lifetime], returned: set[str]) -> dict[str, str]:
    """Temps that an in-place pair lets take the memory of a result of aten, and which.

    conv -> a;  k1: a -> b, inplace (b, a);  k2: b -> c, inplace (c, b)      {b: a, c: a}

    The operator must give memory of its own: the executor copies a result that turns out to share.
    """
    buffers = {b.name: b for b in spec.buffers}
    own = {
        name
        for step in spec.steps
        if step.kind == "aten" and step.op.startswith("aten::") and not may_alias(step)
        for name in step.produces()
    }
    result: dict[str, str] = {}
    last = {name: life.last for name, life in lives.items()}  # of the buffers that hold the memory
    for index, step in enumerate(spec.steps):
        if step.kind != "kernel":
            continue
        for out, source in step.inplace:
            root = result.get(source, source)
            if out in result or out not in lives or root not in own or source in returned:
                continue
            if not is_arena(buffers[out], returned) or lives[out].first != index:
                continue
            if last[root] != index or lives[out].last == index:
                continue
            if not _only_argument(spec, step, source) or not _fits(buffers[out], buffers[root]):
                continue
            result[out] = root
            last[root] = lives[out].last
    return result


def _fits(buffer: BufferSpec, place: BufferSpec) -> bool:
    return (
        buffer.device == place.device == "cpu"
        and buffer.dtype == place.dtype
        and known_le(buffer_bytes(buffer), buffer_bytes(place))
    )


def make_blocks(
    buffers: list[BufferSpec], lives: dict[str, Lifetime], alignment: int
) -> list[Block]:
    found = []
    for b in buffers:
        life = Lifetime(lives[b.name].first, lives[b.name].last)
        found.append(Block([b.name], _rounded(buffer_bytes(b), alignment), life))
    return found


def _rounded(size: Extent, alignment: int) -> Extent:
    """The size rounded up to whole cache lines; a Size is rounded when the block is placed."""
    return size if isinstance(size, Size) else (size + alignment - 1) // alignment * alignment


def share_in_place(spec: PlanSpec, blocks: list[Block], lives: dict[str, Lifetime]) -> list[Block]:
    """Merge the blocks of `out` and `in` for in-place pairs whose `in` dies where `out` is born.

    k1: a -> b, inplace (b, a)          [a] [b]  ->  [a, b]
    """
    block_of = {name: block for block in blocks for name in block.names}
    for index, step in enumerate(spec.steps):
        if step.kind != "kernel":
            continue
        for out, source in step.inplace:
            first, second = block_of.get(source), block_of.get(out)
            if first is None or second is None or second.names != [out]:
                continue  # no temps, or `out` has its place already
            life = lives[out]
            if first.life.last != index or life.first != index or life.last == index:
                continue
            if not known_le(second.size, first.size) or not _only_argument(spec, step, source):
                continue
            first.names += second.names
            first.life = Lifetime(first.life.first, second.life.last)
            for name in second.names:
                block_of[name] = first
    unique = {id(block): block for block in block_of.values()}
    return list(unique.values())


def _only_argument(spec: PlanSpec, step: Any, name: str) -> bool:
    """Whether a kernel touches the memory of `name` through one argument only."""
    views = {s.out: s.base for s in spec.steps if s.kind == "view"}
    hits = 0
    for arg in step.names():
        while arg in views:
            arg = views[arg]
        hits += arg == name
    return hits == 1


def assign_offsets(blocks: list[Block], alignment: int) -> Extent:
    """Set each block's offset; returns the arena's size."""
    groups: dict[Extent, list[tuple[Block, int]]] = {}  # unit -> blocks and their sizes in it
    rest: list[Block] = []
    for block in blocks:
        unit, count = _in_units(block.size)
        if count % alignment:
            rest.append(block)
        else:
            groups.setdefault(unit, []).append((block, count))
    total: Extent = 0
    for unit in sorted(groups, key=lambda unit: (unit != 1, str(unit))):
        placed = [_Placed(count, block.life) for block, count in groups[unit]]
        extent = _place(placed)
        for (block, _), place in zip(groups[unit], placed, strict=True):
            block.offset = total + place.offset * unit
        total = total + extent * unit
    return _assign_slots(rest, total, alignment)


def _in_units(size: Extent) -> tuple[Extent, int]:
    """(m, c) with size == m * c and no number dividing m."""
    if isinstance(size, int):
        return 1, size
    count = common_factor([*size.terms.values()])
    unit = exact(size, count)
    assert isinstance(count, int) and unit is not None
    return unit, count


@dataclass
class _Placed:
    """A block while it is placed, in units."""

    size: int
    life: Lifetime
    offset: int = 0


def _place(blocks: list[_Placed]) -> int:
    """Set each offset, largest first, in the tightest gap; returns the extent of all."""
    done: list[_Placed] = []
    total = 0
    for block in sorted(blocks, key=lambda b: (-b.size, b.life.first)):
        block.offset = _best_gap(block, [p for p in done if p.life.overlaps(block.life)])
        done.append(block)
        total = max(total, block.offset + block.size)
    return total


def _best_gap(block: _Placed, neighbours: list[_Placed]) -> int:
    """Offset of the smallest hole between live neighbours that fits, else just past the last."""
    best, best_size, end = None, None, 0
    for other in sorted(neighbours, key=lambda b: b.offset):
        gap = other.offset - end
        if gap >= block.size and (best_size is None or gap < best_size):
            best, best_size = end, gap
        end = max(end, other.offset + other.size)
    return end if best is None else best


def _assign_slots(blocks: list[Block], total: Extent, alignment: int) -> Extent:
    """Blocks one after another in slots as large as their first, from `total` on."""
    slots: list[list[Block]] = []
    for block in sorted(blocks, key=lambda b: (-hint(b.size), b.life.first)):
        for slot in slots:
            if known_le(block.size, slot[0].size) and not any(
                other.life.overlaps(block.life) for other in slot
            ):
                slot.append(block)
                break
        else:
            slots.append([block])
    for slot in slots:
        for block in slot:
            block.offset = total
        total = total + (slot[0].size + alignment - 1) // alignment * alignment
    return total
