"""The analysis of a fused kernel that all code generators share: merged loops, the vectorised
variable, and the pass over a row in which each step runs. Neutral of language and device.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fxgraph.sizes import Extent, hint, known_lt
from inductor.index import ZERO, FloorDiv, Index, Mod, Var
from inductor.ir import Loops
from inductor.ops import Value
from inductor.schedule.align import rewrite
from inductor.schedule.fusion import Kernel, extent

TILE = 8  # least extent of both sides of a transposition in registers
FEW = 8  # extents below make too short vectors
INTERLEAVED = range(2, TILE)  # extents of a variable that is stored interleaved


def merge_loops(kernel: Kernel) -> Kernel:
    """Neighbouring loops that every index walks as one become one: (8, 512) with strides (393216,
    768) is 4096 with stride 768. Variables are renamed by position, so that equal kernels read
    equal."""
    forms = [
        f for s in kernel.steps for i in [*s.tape.indices(), s.index] for f in _linear_forms(i)
    ]
    outer_groups = _merged(kernel.outer, forms)
    inner_groups = _merged(kernel.inner, forms)
    outer, renaming = _renamed("i", outer_groups)
    inner, more = _renamed("r", inner_groups)
    renaming |= more
    result = Kernel(kernel.id, outer, inner, before=kernel.before)
    for step in kernel.steps:
        role = kernel.role(step)
        dims = [*outer, *inner] if role == "full" else outer
        reduced = inner if role in ("reduce", "scatter") else []
        result.steps.append(rewrite(step, renaming, dims, reduced))
    return result


def _linear_forms(index: Index) -> Iterable[dict[Any, Extent]]:
    """The index's own coefficients, and those of every dividend inside it."""
    yield index.terms
    for atom in index.atoms():
        if isinstance(atom, (FloorDiv, Mod)):
            yield atom.dividend.terms


def _merged(vars: Sequence[Var], forms: list[dict[Any, Extent]]) -> list[list[Var]]:
    groups: list[list[Var]] = []
    for v in vars:
        if v.size == 1:
            continue
        last = groups[-1][-1] if groups else None
        if last is not None and all(f.get(last, 0) == f.get(v, 0) * v.size for f in forms):
            groups[-1].append(v)
        else:
            groups.append([v])
    return groups


def _renamed(prefix: str, groups: list[list[Var]]) -> tuple[list[Var], dict[Var, Index]]:
    vars, renaming = [], {}
    for k, group in enumerate(groups):
        new = Var(f"{prefix}{k}", extent(group))
        vars.append(new)
        rest = Index({new: 1})
        step: Extent = 1
        for v in reversed(group):
            # every index is linear in the group as a whole, so its innermost variable can stand for
            # it
            renaming[v] = rest if step == 1 else ZERO
            step = step * v.size
    return vars, _default_zero(renaming)


class _default_zero(dict):  # type: ignore[type-arg]
    """Variables of extent 1 are in no group: they are 0."""

    def get(self, key: object, default: object = None) -> object:
        if isinstance(key, Var):
            return dict.get(self, key, ZERO if key.size == 1 else default)
        return dict.get(self, key, default)

    def __or__(self, other: dict) -> _default_zero:  # type: ignore[type-arg]
        return _default_zero({**self, **other})

    def __ior__(self, other: dict) -> _default_zero:  # type: ignore[type-arg,override,misc]
        return self | other


def lane_variable(kernel: Kernel) -> Var | None:
    """The variable to vectorise: the one along which most accesses are contiguous. For equal scores
    the innermost loop wins, since it needs no loop interchange."""
    vars = [*kernel.outer, *kernel.inner]
    if not vars:
        return None
    order = list(reversed(kernel.inner)) + list(reversed(kernel.outer))
    if kernel.is_scatter:  # the loops that collide keep their order
        order = kernel.inner[-1:] + list(reversed(kernel.outer))
    inner = set(kernel.inner)
    accesses: list[tuple[Index, int]] = []

    def note(index: Index, weight: int) -> None:
        """Record the access of an inner loop; the cost of others, once per row, is negligible."""
        if not inner or not inner.isdisjoint(index.variables()):
            accesses.append((index, weight))

    for s in kernel.steps:
        for access in s.tape.loads():
            note(access.index, 2)
        if s.mode is not None:  # at positions that inner loops load, if it has no others
            accesses.append((s.index, 3))
        else:
            note(s.index, 3)

    def is_few(jump: Extent) -> bool:
        return type(jump) is int and 0 < abs(jump) < FEW

    def score(v: Var) -> float:
        total = 0.0
        for index, weight in accesses:
            coefficient = index.terms.get(v, 0)
            paired = weight == 3 and _partner(kernel, index, v) is not None
            if paired or (coefficient == 1 and not _inside_quotient(index, v)):
                total += weight
            elif coefficient != 0 or _inside_quotient(index, v):
                total -= weight / 4 if is_few(coefficient) else weight
        return total * min(hint(v.size), 16) / 16 if total > 0 else total

    def is_near(v: Var) -> bool:
        """Whether neighbours along v are few elements apart."""
        jumps = [i.terms.get(v, 0) for i, _ in accesses if not _inside_quotient(i, v)]
        return len(jumps) == len(accesses) and all(n == 0 or is_few(n) for n in jumps)

    best = max(order, key=score)  # the first of equals
    if hint(best.size) < FEW and not kernel.is_scatter:
        # elements that are picked from whole vectors, rather than vectors of so few
        longer = [v for v in order if hint(v.size) >= 2 * FEW and is_near(v)]
        best = max(longer, key=score, default=best)
    if kernel.is_scatter and score(best) <= 0:
        return None  # loads and stores one by one, which a vector would only hold together
    return best if best.size not in (0, 1) else None


def interleaved_variable(kernel: Kernel, lane: Var | None) -> Var | None:
    """In a pointwise kernel, the short variable that some store is contiguous along, and next along
    `lane`: all of its values are computed, and stored interleaved."""
    if lane is None:
        return None
    found = (_partner(kernel, s.index, lane) for s in kernel.steps)
    return next((v for v in found if v is not None), None)


def _partner(kernel: Kernel, index: Index, v: Var) -> Var | None:
    """The variable u of a short extent n in an index n * v + u + ..."""
    jump = index.terms.get(v)
    if kernel.is_rows or kernel.is_scatter or jump not in INTERLEAVED or hint(v.size) < TILE:
        return None
    return next(
        (u for u, c in index.terms.items() if c == 1 and u in kernel.outer and u.size == jump), None
    )


def tile_variable(kernel: Kernel, lane: Var | None) -> Var | None:
    """In a pointwise kernel, the other variable that some access is contiguous along where it jumps
    along `lane`: such accesses are transposed in registers, a square of both variables at a
    time."""
    if lane is None or hint(lane.size) < TILE or kernel.is_rows:
        return None
    counts: dict[Var, int] = {}
    for s in kernel.steps:
        for index in [s.index, *(a.index for a in s.tape.loads() if not a.masked)]:
            for v in kernel.outer:
                if hint(v.size) >= TILE and transposes(index, lane, v):
                    counts[v] = counts.get(v, 0) + 1
    return max(counts, key=lambda v: counts[v]) if counts else None


def transposes(index: Index, lane: Var, v: Var) -> bool:
    """Whether an access is contiguous along `v` and jumps along `lane`."""
    return (
        index.terms.get(lane, 0) not in (-1, 0, 1)
        and index.terms.get(v, 0) == 1
        and all(isinstance(a, Var) for a in index.terms)
    )


def positions_in_order(kernel: Kernel, step: Loops) -> bool:
    """Whether an argmax meets its positions 0, 1, 2, ... one after another."""
    index = step.values[1].attr
    return step.values[1].op == "index_expr" and index == Index({kernel.inner[0]: 1})


def narrow_positions(kernel: Kernel, step: Loops) -> Value | None:
    """The position that an argmax sees, if 32 bits hold it and nothing else uses it."""
    if step.reduction not in ("argmax", "argmin"):
        return None
    position = step.values[1]
    small = known_lt(extent(kernel.inner), 2**31)
    free = position.op == "index_expr" and all(position not in v.args for v in step.tape.values)
    return position if small and free else None


def _inside_quotient(index: Index, v: Var) -> bool:
    return any(isinstance(a, (FloorDiv, Mod)) and v in a.dividend.variables() for a in index.terms)


@dataclass
class Pass:
    """A pass over the rows' inner range: `row` steps run before it, `full` ones in its loop."""

    row: list[Loops] = field(default_factory=list)
    full: list[Loops] = field(default_factory=list)


def passes(kernel: Kernel) -> list[Pass]:
    """Steps by pass. A step goes to the first pass after the reductions whose results it needs."""
    result: list[Pass] = []
    available: dict[str, int] = {}  # buffer made here -> first pass that can read it
    for step in kernel.steps:
        number = max((available[b] for b in step.reads if b in available), default=0)
        while len(result) <= number:
            result.append(Pass())
        role = kernel.role(step)
        (result[number].row if role == "row" else result[number].full).append(step)
        available[step.target.name] = number + 1 if role == "reduce" else number
    return result


def in_place(kernel: Kernel, order: Sequence[Pass], writes: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs (out, in) of `writes` and buffers read such that `out` may take the memory of `in`.

    y[i] = relu(x[i])                yes
    y[i] = x[i] * sum(x[k] for k)    yes: the row's sum is known before anything of it is written
    y[i] = x[i] + x[n - i]           no

    All of `in` that an iteration reads stands where it writes `out`, and no later step of the row
    reads it again.
    """
    steps = [s for one in order for s in [*one.row, *one.full]]
    pairs = []
    for name in writes:
        position, *more = (k for k, s in enumerate(steps) if s.target.name == name)
        writer = steps[position]
        if more or writer.mode or not all(isinstance(atom, Var) for atom in writer.index.terms):
            continue
        last_read: dict[str, int] = {}
        for k, step in enumerate(steps):
            last_read.update(dict.fromkeys(step.reads, k))
        for source, last in last_read.items():
            indices = {i for s in steps for i in s.reads.get(source, ())}
            if last <= position and indices == {writer.index} and source not in kernel.writes():
                pairs.append((name, source))
    return pairs
